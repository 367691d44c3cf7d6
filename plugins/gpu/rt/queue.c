/* SPDX-License-Identifier: MIT
 *
 * queue.c: queues of CUDA and HIP: a stream, and an event behind each computation. Order and
 * signals are plugins/gpu/queue's.
 */
#include "plugins/gpu/queue/queue.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugins/gpu/rt/plan.h"

enum {
    /* Each computation records an event. Computation n uses the event of n - N_EVENT again, whose
     * end is then known only when n has ended. */
    N_EVENT = 64,
    POLL_NS = 20000, /* between two polls of an event, where a wait has a timeout */
};

struct tdm_queue {
    rt_device *device;
    rt_workspace workspace;
    void *stream;
    void *events[N_EVENT]; /* of computation n: events[n % N_EVENT] */
    uint64_t n_submitted;  /* by the one thread that submits */
    gpu_queue *base;
};

/* ---- gpu_queue_driver ------------------------------------------------------------------------ */

/* After a failure nothing of the computation runs any more: its caller frees the memory then. */
static tdm_status work_submit(void *context, void *work, gpu_ticket *ticket_out, tdm_error *err) {
    tdm_queue *queue = context;
    rt_device *device = queue->device;
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    const uint64_t number = queue->n_submitted + 1;
    status = rt_plan_launch(work, queue->stream, err);
    if (status == TDM_OK) {
        rt_result result = device->fn->event_record(queue->events[number % N_EVENT], queue->stream);
        if (result != RT_SUCCESS) status = rt_fail(device, err, result, RT_FN_event_record);
    }
    if (status != TDM_OK) {
        device->fn->stream_sync(queue->stream);
        return status;
    }
    queue->n_submitted = number;
    *ticket_out = (gpu_ticket){.value = number};
    return TDM_OK;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static tdm_status done_wait(void *context, const gpu_ticket *ticket, uint64_t timeout_ns,
                            tdm_error *err) {
    tdm_queue *queue = context;
    rt_device *device = queue->device;
    void *event = queue->events[ticket->value % N_EVENT];
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    if (timeout_ns == UINT64_MAX) {
        rt_result result = device->fn->event_sync(event);
        return result == RT_SUCCESS ? TDM_OK : rt_fail(device, err, result, RT_FN_event_sync);
    }
    const uint64_t start = now_ns();
    for (;;) {
        rt_result result = device->fn->event_query(event);
        if (result == RT_SUCCESS) return TDM_OK;
        if (result != RT_NOT_READY) return rt_fail(device, err, result, RT_FN_event_query);
        if (now_ns() - start >= timeout_ns)
            return tdm_fail(err, TDM_DEADLINE_EXCEEDED, "%s: a computation has not ended",
                            device->name);
        const struct timespec pause = {.tv_nsec = POLL_NS};
        nanosleep(&pause, NULL);
    }
}

static const gpu_queue_driver driver_of_queue = {.submit = work_submit, .wait = done_wait};

/* ---- The ABI's table ------------------------------------------------------------------------- */

static void queue_destroy(tdm_queue *queue) {
    if (queue == NULL) return;
    const rt_driver *fn = queue->device->fn;
    gpu_queue_destroy(queue->base);
    fn->context_set(queue->device->context);
    for (int i = 0; i < N_EVENT; i++)
        if (queue->events[i] != NULL) fn->event_destroy(queue->events[i]);
    if (queue->stream != NULL) fn->stream_destroy(queue->stream);
    if (queue->workspace.capture_stream != NULL)
        fn->stream_destroy(queue->workspace.capture_stream);
    gpu_scratch_pool_destroy(&queue->workspace.scratch);
    free(queue);
}

static tdm_status streams_create(tdm_queue *queue, tdm_error *err) {
    rt_device *device = queue->device;
    const rt_driver *fn = device->fn;
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    rt_result result = fn->stream_create(&queue->stream, RT_STREAM_NON_BLOCKING);
    if (result == RT_SUCCESS)
        result = fn->stream_create(&queue->workspace.capture_stream, RT_STREAM_NON_BLOCKING);
    if (result != RT_SUCCESS) return rt_fail(device, err, result, RT_FN_stream_create);
    for (int i = 0; i < N_EVENT && result == RT_SUCCESS; i++)
        result = fn->event_create(&queue->events[i], RT_EVENT_NO_TIMING);
    return result == RT_SUCCESS ? TDM_OK : rt_fail(device, err, result, RT_FN_event_create);
}

static tdm_status queue_create(tdm_device *device, tdm_queue **queue_out, tdm_error *err) {
    tdm_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a queue", device->name);
    queue->device = device;
    gpu_scratch_pool_init(&queue->workspace.scratch, &rt_scratch_driver, device, device->name);
    tdm_status status = streams_create(queue, err);
    if (status == TDM_OK)
        status = gpu_queue_create(device->name, device->instance->host->semaphore, &driver_of_queue,
                                  queue, &queue->base, err);
    if (status != TDM_OK) {
        queue_destroy(queue);
        return status;
    }
    *queue_out = queue;
    return TDM_OK;
}

static tdm_status queue_compute(tdm_queue *queue, tdm_plan *plan, const tdm_point *waits,
                                int32_t n_wait, const tdm_point *signals, int32_t n_signal,
                                tdm_error *err) {
    tdm_status status = gpu_bound_check(&plan->bound, &queue->workspace.scratch, err);
    if (status != TDM_OK) return status;
    return gpu_queue_compute(queue->base, plan, waits, n_wait, signals, n_signal, err);
}

static tdm_status plan_prepare(tdm_queue *queue, const tdm_graph *graph,
                               const tdm_plan_params *params, tdm_plan **plan_out, tdm_error *err) {
    tdm_status status = tdm_plan_flags_check(queue->device->name, params, err);
    if (status != TDM_OK) return status;
    return rt_plan_create(queue->device, &queue->workspace, graph, plan_out, err);
}

static tdm_status plan_get_info(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err) {
    (void)err;
    tdm_plan_info info = {.struct_size = sizeof info,
                          .device_size = plan->constants.size,
                          .scratch_size = plan->bound.steps->scratch_size,
                          .host_size = (uint64_t)plan->bound.steps->n_step *
                                       (sizeof(gpu_step) + sizeof(rt_args))};
    tdm_struct_write(info_out, &info, sizeof info);
    return TDM_OK;
}

const tdm_queue_ops rt_queue_ops = {
    .struct_size = sizeof(tdm_queue_ops),
    .create = queue_create,
    .destroy = queue_destroy,
    .graph_prepare = plan_prepare,
    .plan_destroy = rt_plan_destroy,
    .plan_get_info = plan_get_info,
    .plan_bind = rt_plan_bind,
    .graph_compute = queue_compute,
};
