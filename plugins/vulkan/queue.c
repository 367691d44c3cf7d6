/* SPDX-License-Identifier: MIT
 *
 * queue.c: queues of Vulkan: the parts of a plan are submitted, and a timeline semaphore counts
 * those that are done. Order and signals are plugins/gpu/queue's.
 */
#include "plugins/gpu/queue/queue.h"

#include <stdlib.h>
#include <time.h>

#include "plugins/vulkan/parts.h"
#include "plugins/vulkan/transfer.h"

struct tdm_queue {
    vk_device *device;
    gpu_scratch_pool scratch;
    VkSemaphore done;     /* timeline: parts of computations that are done */
    uint64_t n_submitted; /* parts, by the one thread that submits */
    gpu_queue *base;
};

/* ---- gpu_queue_driver ------------------------------------------------------------------------ */

static double clock_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Rates are learned from a computation if the wait for it began before it ended: else its end is
 * not known. */
static tdm_status work_wait(void *context, const gpu_ticket *ticket, uint64_t timeout_ns,
                            tdm_error *err) {
    const tdm_queue *queue = context;
    vk_device *device = queue->device;
    uint64_t n_done = 0;
    bool is_early =
        device->fn.GetSemaphoreCounterValue(device->device, queue->done, &n_done) == VK_SUCCESS &&
        n_done < ticket->value;
    tdm_status status =
        vk_semaphore_wait(device, queue->done, ticket->value, timeout_ns, "a computation", err);
    if (status == TDM_OK && is_early && ticket->start > 0)
        vk_rates_learn(device, &ticket->work, clock_seconds() - ticket->start);
    return status;
}

/* Each part signals a value of its own, so that drivers do not join it with the next part. The
 * plan's arrays are written only here, by the one thread that submits; the driver reads them during
 * vkQueueSubmit only. */
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
                                          .pSignalSemaphores = &queue->done};
    }
}

static tdm_status work_submit(void *context, void *work, gpu_ticket *ticket_out, tdm_error *err) {
    tdm_queue *queue = context;
    vk_device *device = queue->device;
    tdm_plan *plan = work;
    uint64_t n_done = 0;
    if (atomic_load(&device->is_lost))
        return vk_fail(device, err, VK_ERROR_DEVICE_LOST, "an earlier call");
    submits_fill(queue, plan);
    pthread_mutex_lock(&device->queue_mutex);
    VkResult result = device->fn.GetSemaphoreCounterValue(device->device, queue->done, &n_done);
    bool teaches = n_done == queue->n_submitted && !plan->is_trial;
    ticket_out->start = teaches ? clock_seconds() : 0;
    if (result == VK_SUCCESS)
        result = device->fn.QueueSubmit(device->queue, (uint32_t)plan->n_part, plan->submits,
                                        VK_NULL_HANDLE);
    pthread_mutex_unlock(&device->queue_mutex);
    if (result != VK_SUCCESS) return vk_fail(device, err, result, "vkQueueSubmit");
    queue->n_submitted += (uint64_t)plan->n_part;
    ticket_out->value = queue->n_submitted;
    ticket_out->work = plan->work;
    return TDM_OK;
}

static const gpu_queue_driver vk_driver_of_queue = {.submit = work_submit, .wait = work_wait};

/* ---- The ABI's table ------------------------------------------------------------------------- */

static tdm_status queue_create(tdm_device *device, tdm_queue **queue_out, tdm_error *err) {
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo info = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                        .pNext = &type};
    tdm_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a queue", device->name);
    queue->device = device;
    VkResult result = device->fn.CreateSemaphore(device->device, &info, NULL, &queue->done);
    if (result != VK_SUCCESS) {
        free(queue);
        return vk_fail(device, err, result, "vkCreateSemaphore");
    }
    tdm_status status = gpu_queue_create(device->name, device->instance->host->semaphore,
                                         &vk_driver_of_queue, queue, &queue->base, err);
    if (status != TDM_OK) {
        device->fn.DestroySemaphore(device->device, queue->done, NULL);
        free(queue);
        return status;
    }
    gpu_scratch_pool_init(&queue->scratch, &vk_scratch_driver, device, device->name);
    *queue_out = queue;
    return TDM_OK;
}

static void queue_destroy(tdm_queue *queue) {
    if (queue == NULL) return;
    gpu_queue_destroy(queue->base);
    queue->device->fn.DestroySemaphore(queue->device->device, queue->done, NULL);
    gpu_scratch_pool_destroy(&queue->scratch);
    free(queue);
}

static tdm_status queue_compute(tdm_queue *queue, tdm_plan *plan, const tdm_point *waits,
                                int32_t n_wait, const tdm_point *signals, int32_t n_signal,
                                tdm_error *err) {
    tdm_status status = gpu_bound_check(&plan->bound, &queue->scratch, err);
    if (status != TDM_OK) return status;
    return gpu_queue_compute(queue->base, plan, waits, n_wait, signals, n_signal, err);
}

tdm_status vk_queue_plan(tdm_queue *queue, gpu_plan *steps, tdm_plan **plan_out, tdm_error *err) {
    return vk_plan_of_steps(queue->device, &queue->scratch, steps, plan_out, err);
}

tdm_status vk_queue_run(tdm_queue *queue, tdm_plan *plan, const tdm_binding *bindings,
                        int32_t n_binding, tdm_error *err) {
    const tdm_host_semaphore_ops *ops = queue->device->instance->host->semaphore;
    tdm_point done = {NULL, 1};
    plan->is_trial = true;
    tdm_status status = vk_plan_bind(plan, bindings, n_binding, err);
    if (status == TDM_OK) status = ops->create(0, &done.semaphore, err);
    if (status != TDM_OK) return status;
    status = queue_compute(queue, plan, NULL, 0, &done, 1, err);
    if (status == TDM_OK) status = ops->wait(done.semaphore, 1, TDM_WAIT_FOREVER, err);
    ops->destroy(done.semaphore);
    return status;
}

static tdm_status plan_prepare(tdm_queue *queue, const tdm_graph *graph,
                               const tdm_plan_params *params, tdm_plan **plan_out, tdm_error *err) {
    tdm_status status = tdm_plan_flags_check(queue->device->name, params, err);
    if (status != TDM_OK) return status;
    return vk_plan_create(queue->device, &queue->scratch, graph, plan_out, err);
}

static tdm_status plan_get_info(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err) {
    (void)err;
    tdm_plan_info info = {.struct_size = sizeof info,
                          .device_size = plan->constants.size,
                          .scratch_size = plan->bound.steps->scratch_size,
                          .host_size = (uint64_t)plan->bound.steps->n_step * sizeof(gpu_step)};
    tdm_struct_write(info_out, &info, sizeof info);
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
