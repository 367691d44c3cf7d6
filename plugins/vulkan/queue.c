/* SPDX-License-Identifier: MIT
 *
 * queue.c: runs plans in the order in which they were given. A thread of the queue waits for what a
 * computation waits for, submits it, waits until the device is done, and signals.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/vulkan/plan.h"

typedef struct queue_job {
    struct queue_job *next;
    tdm_plan *plan;
    tdm_point *points; /* n_wait, then n_signal */
    int32_t n_wait;
    int32_t n_signal;
    int32_t room; /* points allocated */
} queue_job;

struct tdm_queue {
    vk_device *device;
    vk_scratch_pool scratch;
    VkSemaphore done; /* timeline: computations that are done */
    uint64_t n_submitted;
    pthread_t thread;
    pthread_mutex_t mutex; /* over the lists and is_ending */
    pthread_cond_t changed;
    queue_job *first, *last, *unused;
    bool is_ending;
    bool has_thread;
};

/* ---- Submission ------------------------------------------------------------------------------ */

static tdm_status plan_submit(tdm_queue *queue, const tdm_plan *plan, tdm_error *err) {
    vk_device *device = queue->device;
    const uint64_t value = queue->n_submitted + 1;
    const VkTimelineSemaphoreSubmitInfo timeline = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &value};
    const VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                 .pNext = &timeline,
                                 .commandBufferCount = 1,
                                 .pCommandBuffers = &plan->commands,
                                 .signalSemaphoreCount = 1,
                                 .pSignalSemaphores = &queue->done};
    if (atomic_load(&device->is_lost))
        return vk_fail(device, err, VK_ERROR_DEVICE_LOST, "an earlier call");
    pthread_mutex_lock(&device->queue_mutex);
    VkResult result = device->fn.QueueSubmit(device->queue, 1, &submit, VK_NULL_HANDLE);
    pthread_mutex_unlock(&device->queue_mutex);
    if (result != VK_SUCCESS) return vk_fail(device, err, result, "vkQueueSubmit");
    queue->n_submitted = value;
    return TDM_OK;
}

static tdm_status done_wait(tdm_queue *queue, tdm_error *err) {
    vk_device *device = queue->device;
    const VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &queue->done,
                                      .pValues = &queue->n_submitted};
    VkResult result = device->fn.WaitSemaphores(device->device, &wait, UINT64_MAX);
    return result == VK_SUCCESS ? TDM_OK : vk_fail(device, err, result, "vkWaitSemaphores");
}

static void job_run(tdm_queue *queue, queue_job *job) {
    const tdm_host_semaphore_ops *semaphore = queue->device->instance->host->semaphore;
    tdm_error err = {.struct_size = sizeof err};
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < job->n_wait && status == TDM_OK; i++)
        status =
            semaphore->wait(job->points[i].semaphore, job->points[i].value, TDM_WAIT_FOREVER, &err);
    if (status == TDM_OK) status = plan_submit(queue, job->plan, &err);
    if (status == TDM_OK) status = done_wait(queue, &err);
    const tdm_point *signals = job->points + job->n_wait;
    for (int32_t i = 0; i < job->n_signal; i++)
        if (status == TDM_OK)
            semaphore->signal(signals[i].semaphore, signals[i].value);
        else
            semaphore->fail(signals[i].semaphore, status, &err);
}

static void *queue_main(void *arg) {
    tdm_queue *queue = arg;
    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        while (queue->first == NULL && !queue->is_ending)
            pthread_cond_wait(&queue->changed, &queue->mutex);
        queue_job *job = queue->first;
        if (job == NULL) break;
        queue->first = job->next;
        if (queue->first == NULL) queue->last = NULL;
        pthread_mutex_unlock(&queue->mutex);
        job_run(queue, job);
        pthread_mutex_lock(&queue->mutex);
        job->next = queue->unused;
        queue->unused = job;
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

/* ---- The ABI's table ------------------------------------------------------------------------- */

static void jobs_free(queue_job *job) {
    while (job != NULL) {
        queue_job *next = job->next;
        free(job->points);
        free(job);
        job = next;
    }
}

static void queue_destroy(tdm_queue *queue) {
    if (queue == NULL) return;
    vk_device *device = queue->device;
    if (queue->has_thread) {
        pthread_mutex_lock(&queue->mutex);
        queue->is_ending = true;
        pthread_cond_signal(&queue->changed);
        pthread_mutex_unlock(&queue->mutex);
        pthread_join(queue->thread, NULL);
    }
    if (queue->done != VK_NULL_HANDLE)
        device->fn.DestroySemaphore(device->device, queue->done, NULL);
    vk_scratch_pool_destroy(device, &queue->scratch);
    jobs_free(queue->unused);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->mutex);
    free(queue);
}

static tdm_status queue_create(tdm_device *device, tdm_queue **queue_out, tdm_error *err) {
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                        .pNext = &type};
    tdm_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a queue", device->name);
    queue->device = device;
    vk_scratch_pool_init(&queue->scratch);
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->changed, NULL);
    tdm_status status = TDM_OK;
    VkResult result = device->fn.CreateSemaphore(device->device, &info, NULL, &queue->done);
    if (result != VK_SUCCESS) status = vk_fail(device, err, result, "vkCreateSemaphore");
    if (status == TDM_OK) {
        int rc = pthread_create(&queue->thread, NULL, queue_main, queue);
        queue->has_thread = rc == 0;
        if (rc != 0)
            status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: cannot start a queue: %s",
                              device->name, strerror(rc));
    }
    if (status != TDM_OK) {
        queue_destroy(queue);
        return status;
    }
    *queue_out = queue;
    return TDM_OK;
}

/* An unused job with room for the points; NULL without memory. */
static queue_job *job_get(tdm_queue *queue, int32_t n_point) {
    pthread_mutex_lock(&queue->mutex);
    queue_job *job = queue->unused;
    if (job != NULL) queue->unused = job->next;
    pthread_mutex_unlock(&queue->mutex);
    if (job == NULL) job = calloc(1, sizeof *job);
    if (job == NULL || n_point <= job->room) return job;
    free(job->points);
    job->points = calloc((size_t)n_point, sizeof *job->points);
    job->room = n_point;
    if (job->points != NULL) return job;
    free(job);
    return NULL;
}

static tdm_status queue_compute(tdm_queue *queue, tdm_plan *plan, const tdm_point *waits,
                                int32_t n_wait, const tdm_point *signals, int32_t n_signal,
                                tdm_error *err) {
    if (plan->scratch_pool != &queue->scratch)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: the plan belongs to another queue",
                        queue->device->name);
    if (!plan->is_bound)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: the plan is not bound",
                        queue->device->name);
    if (n_wait < 0 || n_signal < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: %d waits and %d signals",
                        queue->device->name, (int)n_wait, (int)n_signal);
    queue_job *job = job_get(queue, n_wait + n_signal);
    if (job == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory to submit a computation",
                        queue->device->name);
    job->plan = plan;
    job->n_wait = n_wait;
    job->n_signal = n_signal;
    if (n_wait > 0) memcpy(job->points, waits, (size_t)n_wait * sizeof *waits);
    if (n_signal > 0) memcpy(job->points + n_wait, signals, (size_t)n_signal * sizeof *signals);
    job->next = NULL;
    pthread_mutex_lock(&queue->mutex);
    if (queue->last != NULL)
        queue->last->next = job;
    else
        queue->first = job;
    queue->last = job;
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    return TDM_OK;
}

static tdm_status plan_prepare(tdm_queue *queue, const tdm_graph *graph,
                               const tdm_plan_params *params, tdm_plan **plan_out, tdm_error *err) {
    vk_device *device = queue->device;
    tdm_plan_params p;
    vk_struct_read(&p, sizeof p, params);
    if (p.flags != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: unknown plan flags 0x%x", device->name,
                        (unsigned)p.flags);
    return vk_plan_create(device, &queue->scratch, graph, plan_out, err);
}

static tdm_status plan_get_info(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err) {
    (void)err;
    tdm_plan_info info = {.struct_size = sizeof info,
                          .device_size = plan->constants.size,
                          .scratch_size = plan->steps->scratch_size,
                          .host_size = (uint64_t)plan->steps->n_step * sizeof(gpu_step)};
    vk_struct_write(info_out, &info, sizeof info);
    return TDM_OK;
}

const tdm_queue_ops vk_queue_ops = {
    .struct_size = sizeof(tdm_queue_ops),
    .create = queue_create,
    .destroy = queue_destroy,
    .graph_prepare = plan_prepare,
    .plan_destroy = vk_plan_destroy,
    .plan_get_info = plan_get_info,
    .plan_bind = vk_plan_bind,
    .graph_compute = queue_compute,
};
