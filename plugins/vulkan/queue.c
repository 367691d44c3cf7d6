/* SPDX-License-Identifier: MIT
 *
 * queue.c: runs plans in the order in which they were given. No thread of its own: a computation is
 * submitted by the caller, or by the thread that reaches the last point it waits for; and whoever
 * waits for its signals waits in the driver.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugins/vulkan/parts.h"

typedef struct queue_job queue_job;

/* What outlives the queue: the core may still ask about signals whose queue has been destroyed. */
typedef struct ring {
    pthread_mutex_t mutex;
    pthread_cond_t left; /* a thread has left the driver's wait */
    vk_device *device;   /* not touched once closed */
    VkSemaphore done;    /* timeline: parts of computations that are done */
    queue_job *unused;   /* recycled, so that steady use allocates nothing */
    int32_t n_ref;       /* the queue, and jobs whose signals are attached */
    int32_t n_inside;    /* threads in the driver's wait */
    bool is_closed;      /* the queue is gone: all its work is done, or lost */
    tdm_status status;   /* of a closed ring */
    tdm_error err;
} ring;

/* A computation on its way. */
struct queue_job {
    queue_job *next;
    tdm_queue *queue; /* while it is not submitted */
    ring *ring;
    tdm_plan *plan;    /* until it is submitted */
    gpu_work work;     /* of the plan */
    double start;      /* seconds on the clock; 0 = others ran before it */
    tdm_point *points; /* n_wait, then n_signal */
    int32_t n_wait;
    int32_t n_signal;
    int32_t room;   /* points allocated */
    int32_t n_open; /* waits not reached, and 1 until all are registered; under the queue's mutex */
    int32_t n_ref;  /* signals attached, and 1 until it is submitted; under the ring's mutex */
    uint64_t value; /* of `done` when it is done */
    tdm_status status; /* the first failure of a wait */
    tdm_error err;
};

struct tdm_queue {
    vk_device *device;
    vk_scratch_pool scratch;
    ring *ring;
    uint64_t n_submitted;  /* parts, by the one thread that submits */
    pthread_mutex_t mutex; /* over what follows */
    pthread_cond_t idle;
    queue_job *first, *last; /* not submitted, oldest first */
    bool is_submitting;      /* a thread is in queue_submit */
};

static const tdm_host_semaphore_ops *semaphore_ops(const vk_device *device) {
    return device->instance->host->semaphore;
}

/* ---- Jobs and the ring ----------------------------------------------------------------------- */

static void job_free(queue_job *job) {
    free(job->points);
    free(job);
}

static ring *ring_create(vk_device *device, tdm_error *err) {
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                        .pNext = &type};
    ring *r = calloc(1, sizeof *r);
    if (r == NULL) {
        tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a queue", device->name);
        return NULL;
    }
    VkResult result = device->fn.CreateSemaphore(device->device, &info, NULL, &r->done);
    if (result != VK_SUCCESS) {
        vk_fail(device, err, result, "vkCreateSemaphore");
        free(r);
        return NULL;
    }
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->left, NULL);
    r->device = device;
    r->n_ref = 1;
    return r;
}

/* Drops a reference; the mutex is held, and is not after it. */
static void ring_drop(ring *r) {
    bool is_last = --r->n_ref == 0;
    pthread_mutex_unlock(&r->mutex);
    if (!is_last) return;
    while (r->unused != NULL) {
        queue_job *job = r->unused;
        r->unused = job->next;
        job_free(job);
    }
    pthread_cond_destroy(&r->left);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

static void job_drop(queue_job *job) {
    ring *r = job->ring;
    pthread_mutex_lock(&r->mutex);
    if (--job->n_ref > 0) {
        pthread_mutex_unlock(&r->mutex);
        return;
    }
    job->next = r->unused;
    r->unused = job;
    ring_drop(r);
}

/* An unused job with room for the points; NULL without memory. */
static queue_job *job_get(ring *r, int32_t n_point) {
    pthread_mutex_lock(&r->mutex);
    queue_job *job = r->unused;
    if (job != NULL) r->unused = job->next;
    pthread_mutex_unlock(&r->mutex);
    if (job == NULL) job = calloc(1, sizeof *job);
    if (job == NULL) return NULL;
    if (n_point > job->room) {
        tdm_point *points = realloc(job->points, (size_t)n_point * sizeof *points);
        if (points == NULL) {
            job_free(job);
            return NULL;
        }
        job->points = points;
        job->room = n_point;
    }
    pthread_mutex_lock(&r->mutex);
    r->n_ref++;
    pthread_mutex_unlock(&r->mutex);
    job->ring = r;
    job->n_ref = 1;
    job->status = TDM_OK;
    return job;
}

/* ---- Waiting in the driver ------------------------------------------------------------------- */

static tdm_status done_wait(vk_device *device, VkSemaphore done, uint64_t value,
                            uint64_t timeout_ns, tdm_error *err) {
    const VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &done,
                                      .pValues = &value};
    if (atomic_load(&device->is_lost))
        return vk_fail(device, err, VK_ERROR_DEVICE_LOST, "an earlier call");
    VkResult result = device->fn.WaitSemaphores(device->device, &wait, timeout_ns);
    if (result == VK_SUCCESS) return TDM_OK;
    if (result == VK_TIMEOUT)
        return tdm_fail(err, TDM_DEADLINE_EXCEEDED, "%s: a computation has not ended",
                        device->name);
    return vk_fail(device, err, result, "vkWaitSemaphores");
}

static double clock_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* tdm_native_wait.wait of a signal */
static tdm_status job_wait(void *context, uint64_t timeout_ns, tdm_error *err) {
    queue_job *job = context;
    ring *r = job->ring;
    pthread_mutex_lock(&r->mutex);
    if (r->is_closed) {
        tdm_status status = r->status;
        if (status != TDM_OK) tdm_fail(err, status, "%s", r->err.message);
        pthread_mutex_unlock(&r->mutex);
        return status;
    }
    r->n_inside++;
    pthread_mutex_unlock(&r->mutex);
    uint64_t n_done = 0;
    bool is_early =
        r->device->fn.GetSemaphoreCounterValue(r->device->device, r->done, &n_done) == VK_SUCCESS &&
        n_done < job->value;
    tdm_status status = done_wait(r->device, r->done, job->value, timeout_ns, err);
    if (status == TDM_OK && is_early && job->start > 0)
        vk_rates_learn(r->device, &job->work, clock_seconds() - job->start);
    pthread_mutex_lock(&r->mutex);
    if (--r->n_inside == 0) pthread_cond_broadcast(&r->left);
    pthread_mutex_unlock(&r->mutex);
    return status;
}

/* tdm_native_wait.release of a signal */
static void job_release(void *context) {
    job_drop(context);
}

/* ---- Submission ------------------------------------------------------------------------------ */

/* A part signals the next value of the timeline, so that drivers do not join it with the next one.
 * The plan's arrays are written by the one thread that submits. */
static void submits_fill(tdm_queue *queue, tdm_plan *plan) {
    for (int32_t i = 0; i < plan->n_part; i++) {
        vk_part *part = &plan->parts[i];
        part->value = queue->n_submitted + 1 + (uint64_t)i;
        part->timeline = (VkTimelineSemaphoreSubmitInfo){
            .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
            .signalSemaphoreValueCount = 1,
            .pSignalSemaphoreValues = &part->value};
        plan->submits[i] = (VkSubmitInfo){.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                          .pNext = &part->timeline,
                                          .commandBufferCount = 1,
                                          .pCommandBuffers = &part->commands,
                                          .signalSemaphoreCount = 1,
                                          .pSignalSemaphores = &queue->ring->done};
    }
}

static tdm_status commands_submit(tdm_queue *queue, queue_job *job, tdm_error *err) {
    vk_device *device = queue->device;
    tdm_plan *plan = job->plan;
    uint64_t n_done = 0;
    if (atomic_load(&device->is_lost))
        return vk_fail(device, err, VK_ERROR_DEVICE_LOST, "an earlier call");
    submits_fill(queue, plan);
    pthread_mutex_lock(&device->queue_mutex);
    VkResult result =
        device->fn.GetSemaphoreCounterValue(device->device, queue->ring->done, &n_done);
    job->start = n_done == queue->n_submitted ? clock_seconds() : 0;
    if (result == VK_SUCCESS)
        result = device->fn.QueueSubmit(device->queue, (uint32_t)plan->n_part, plan->submits,
                                        VK_NULL_HANDLE);
    pthread_mutex_unlock(&device->queue_mutex);
    if (result != VK_SUCCESS) return vk_fail(device, err, result, "vkQueueSubmit");
    queue->n_submitted += (uint64_t)plan->n_part;
    job->value = queue->n_submitted;
    job->work = plan->work;
    return TDM_OK;
}

/* Lets waiters of a signal wait in the driver. Without memory for that, waits here and signals. */
static void signal_attach(tdm_queue *queue, queue_job *job, const tdm_point *signal) {
    const tdm_host_semaphore_ops *semaphore = semaphore_ops(queue->device);
    const tdm_native_wait wait = {
        .struct_size = sizeof wait, .context = job, .wait = job_wait, .release = job_release};
    tdm_error err = {0};
    pthread_mutex_lock(&job->ring->mutex);
    job->n_ref++;
    pthread_mutex_unlock(&job->ring->mutex);
    if (TDM_HAS(semaphore, attach) &&
        semaphore->attach(signal->semaphore, signal->value, &wait, NULL) == TDM_OK)
        return;
    tdm_status status = done_wait(queue->device, queue->ring->done, job->value, UINT64_MAX, &err);
    if (status == TDM_OK)
        semaphore->signal(signal->semaphore, signal->value);
    else
        semaphore->fail(signal->semaphore, status, &err);
    job_drop(job);
}

static void job_submit(tdm_queue *queue, queue_job *job) {
    const tdm_host_semaphore_ops *semaphore = semaphore_ops(queue->device);
    const tdm_point *signals = job->points + job->n_wait;
    if (job->status == TDM_OK) job->status = commands_submit(queue, job, &job->err);
    for (int32_t i = 0; i < job->n_signal; i++)
        if (job->status == TDM_OK)
            signal_attach(queue, job, &signals[i]);
        else
            semaphore->fail(signals[i].semaphore, job->status, &job->err);
    job_drop(job);
}

/* Submits from the front what waits for nothing. One thread at a time does so, so that the order
 * holds; the mutex is held before and after, and not while a job is submitted. */
static void queue_submit(tdm_queue *queue) {
    if (queue->is_submitting) return; /* that thread looks at the front again */
    queue->is_submitting = true;
    while (queue->first != NULL && queue->first->n_open == 0) {
        queue_job *job = queue->first;
        queue->first = job->next;
        if (queue->first == NULL) queue->last = NULL;
        pthread_mutex_unlock(&queue->mutex);
        job_submit(queue, job);
        pthread_mutex_lock(&queue->mutex);
    }
    queue->is_submitting = false;
    if (queue->first == NULL) pthread_cond_broadcast(&queue->idle);
}

/* One of the points that a job waits for is reached or has failed. The last touch of the queue is
 * the unlock: it may be destroyed right after. */
static void job_point_reached(void *user, tdm_status status, const tdm_error *err) {
    queue_job *job = user;
    tdm_queue *queue = job->queue;
    pthread_mutex_lock(&queue->mutex);
    if (status != TDM_OK && job->status == TDM_OK) {
        job->status = status;
        tdm_fail(&job->err, status, "%s", err != NULL ? err->message : tdm_status_text(status));
    }
    job->n_open--;
    queue_submit(queue);
    pthread_mutex_unlock(&queue->mutex);
}

/* ---- The ABI's table ------------------------------------------------------------------------- */

static tdm_status queue_create(tdm_device *device, tdm_queue **queue_out, tdm_error *err) {
    tdm_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a queue", device->name);
    tdm_error why = {0};
    queue->device = device;
    queue->ring = ring_create(device, &why);
    if (queue->ring == NULL) {
        free(queue);
        return tdm_fail(err, why.status, "%s", why.message);
    }
    vk_scratch_pool_init(&queue->scratch);
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->idle, NULL);
    *queue_out = queue;
    return TDM_OK;
}

/* Everything submitted is done, or the device lost: from now on the ring answers by itself. */
static void ring_close(tdm_queue *queue) {
    ring *r = queue->ring;
    tdm_error err = {0};
    tdm_status status = done_wait(queue->device, r->done, queue->n_submitted, UINT64_MAX, &err);
    pthread_mutex_lock(&r->mutex);
    r->is_closed = true;
    r->status = status;
    r->err = err;
    while (r->n_inside > 0) pthread_cond_wait(&r->left, &r->mutex);
    queue->device->fn.DestroySemaphore(queue->device->device, r->done, NULL);
    ring_drop(r);
}

static void queue_destroy(tdm_queue *queue) {
    if (queue == NULL) return;
    pthread_mutex_lock(&queue->mutex);
    while (queue->first != NULL || queue->is_submitting)
        pthread_cond_wait(&queue->idle, &queue->mutex);
    pthread_mutex_unlock(&queue->mutex);
    ring_close(queue);
    vk_scratch_pool_destroy(queue->device, &queue->scratch);
    pthread_cond_destroy(&queue->idle);
    pthread_mutex_destroy(&queue->mutex);
    free(queue);
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
    queue_job *job = job_get(queue->ring, n_wait + n_signal);
    if (job == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory to submit a computation",
                        queue->device->name);
    job->queue = queue;
    job->plan = plan;
    job->n_wait = n_wait;
    job->n_signal = n_signal;
    job->n_open = n_wait + 1;
    job->next = NULL;
    if (n_wait > 0) memcpy(job->points, waits, (size_t)n_wait * sizeof *waits);
    if (n_signal > 0) memcpy(job->points + n_wait, signals, (size_t)n_signal * sizeof *signals);
    pthread_mutex_lock(&queue->mutex);
    if (queue->last != NULL)
        queue->last->next = job;
    else
        queue->first = job;
    queue->last = job;
    pthread_mutex_unlock(&queue->mutex);
    for (int32_t i = 0; i < n_wait; i++) {
        tdm_error why = {0};
        tdm_status status =
            semaphore_ops(queue->device)
                ->on_reached(waits[i].semaphore, waits[i].value, job_point_reached, job, &why);
        if (status != TDM_OK) job_point_reached(job, status, &why);
    }
    job_point_reached(job, TDM_OK, NULL);
    return TDM_OK;
}

tdm_status vk_queue_plan(tdm_queue *queue, gpu_plan *steps, tdm_plan **plan_out, tdm_error *err) {
    return vk_plan_of_steps(queue->device, &queue->scratch, steps, plan_out, err);
}

static tdm_status plan_prepare(tdm_queue *queue, const tdm_graph *graph,
                               const tdm_plan_params *params, tdm_plan **plan_out, tdm_error *err) {
    tdm_plan_params p;
    vk_struct_read(&p, sizeof p, params);
    if (p.flags != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: unknown plan flags 0x%x",
                        queue->device->name, (unsigned)p.flags);
    return vk_plan_create(queue->device, &queue->scratch, graph, plan_out, err);
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
