/* SPDX-License-Identifier: MIT
 *
 * queue.c: queues of CUDA and HIP: a stream, and an event behind each computation.
 * plugins/gpu/queue owns the order of computations and their signals.
 */
#include "plugins/gpu/queue/queue.h"

#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/rt/card.h"
#include "plugins/gpu/rt/plan.h"
#include "plugins/gpu/rt/wait.h"
#include "plugins/gpu/rt/watch.h"

enum {
    /* Each computation records an event. Computation n uses the event of computation n - N_EVENT
     * again, which has ended by then (work_submit): n_ended says so, and a wait for it that begins
     * later does not use the event. Only a wait that has begun before may end with n instead. */
    N_EVENT = 64,
    /* Commands that may be in a stream without a driver refusing more or making its caller wait.
     * The vendors do not document their bounds; for CUDA about a thousand launches are reported. */
    MAX_COMMAND = 60
};

struct tdm_queue {
    rt_device *device;
    rt_workspace workspace;
    void *stream;
    void *events[N_EVENT]; /* of computation n: events[n % N_EVENT] */
    rt_watch *watch;
    gpu_queue *base;
    /* Submitted computations that are known to have ended. Written by the thread that submits, read
     * by threads that wait too (event_wait). */
    _Atomic uint64_t n_ended;
    /* Computations, numbered 1, 2, ... Written by the thread that submits, read by is_busy too. */
    _Atomic uint64_t n_submitted;
    rt_card_queue in_card;
    /* Used by the thread that submits (gpu_queue_driver): */
    uint32_t n_run;             /* submitted computations of plans that wait: runs (wait.h) */
    int32_t n_command[N_EVENT]; /* commands of computation n: n_command[n % N_EVENT] */
    int32_t n_pending;          /* commands of computations that are not known to have ended */
};

/* ---- gpu_queue_driver ------------------------------------------------------------------------ */

/* Updates n_ended and n_pending. With must_wait it first waits for the oldest computation. */
static rt_result ended_count(tdm_queue *queue, bool must_wait) {
    const rt_driver *fn = queue->device->fn;
    rt_result result = RT_SUCCESS;
    while (queue->n_ended < queue->n_submitted && result == RT_SUCCESS) {
        const uint64_t oldest = (queue->n_ended + 1) % N_EVENT;
        result = must_wait ? fn->event_sync(queue->events[oldest])
                           : fn->event_query(queue->events[oldest]);
        must_wait = false;
        if (result != RT_SUCCESS) break;
        queue->n_ended++;
        queue->n_pending -= queue->n_command[oldest];
    }
    return result == RT_NOT_READY ? RT_SUCCESS : result;
}

/* gpu_queue_driver.is_full. After a failure of the driver it returns false, so that work_submit is
 * called and returns the failure. */
static bool queue_is_full(void *context, void *work) {
    tdm_queue *queue = context;
    const int32_t n = rt_plan_n_command(work) + 1;
    if (queue->n_pending + n <= MAX_COMMAND && queue->n_submitted - queue->n_ended < N_EVENT)
        return false;
    if (rt_enter(queue->device, NULL) != TDM_OK || ended_count(queue, false) != RT_SUCCESS)
        return false;
    return queue->n_pending + n > MAX_COMMAND || queue->n_submitted - queue->n_ended == N_EVENT;
}

static const rt_wait_report *report_of(const tdm_queue *queue) {
    return (const rt_wait_report *)(const void *)queue->workspace.report.host;
}

/* rt_card_queue.is_busy. A query that fails says nothing of computations: the device is lost. */
static bool queue_is_busy(const tdm_queue *queue) {
    const uint64_t last = atomic_load(&queue->n_submitted);
    return last > atomic_load(&queue->n_ended) &&
           queue->device->fn->event_query(queue->events[last % N_EVENT]) == RT_NOT_READY;
}

/* Launches a plan as computation n_submitted + 1. After a failure it waits until nothing of the
 * computation runs, since the caller frees its memory. */
static tdm_status work_launch(tdm_queue *queue, tdm_plan *plan, gpu_ticket *ticket_out,
                              tdm_error *err) {
    rt_device *device = queue->device;
    const uint64_t number = queue->n_submitted + 1;
    tdm_status status = rt_plan_launch(plan, queue->stream, err);
    if (status == TDM_OK) {
        rt_result result = device->fn->event_record(queue->events[number % N_EVENT], queue->stream);
        if (result != RT_SUCCESS) status = rt_fail(device, err, result, RT_FN_event_record);
    }
    if (status != TDM_OK) {
        (void)rt_stream_end(device, queue->stream);
        if (plan->waits)
            queue->n_run = report_of(queue)->run; /* its first kernel may have counted the run */
        return status;
    }
    if (plan->waits) queue->n_run++;
    queue->n_command[number % N_EVENT] = rt_plan_n_command(plan) + 1;
    queue->n_pending += queue->n_command[number % N_EVENT];
    queue->n_submitted = number;
    *ticket_out = (gpu_ticket){.value = number, .run = plan->waits ? queue->n_run : 0};
    return TDM_OK;
}

/* gpu_queue_driver.submit */
static tdm_status work_submit(void *context, void *work, gpu_ticket *ticket_out, tdm_error *err) {
    tdm_queue *queue = context;
    rt_device *device = queue->device;
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    if (queue->n_submitted - queue->n_ended == N_EVENT) {
        rt_result result = ended_count(queue, true);
        if (result != RT_SUCCESS) return rt_fail(device, err, result, RT_FN_event_sync);
    }
    rt_card_launch_begin(device->card);
    status = work_launch(queue, work, ticket_out, err);
    rt_card_launch_end(device->card);
    return status;
}

static tdm_status event_wait(tdm_queue *queue, const gpu_ticket *ticket, uint64_t timeout_ns,
                             tdm_error *err) {
    rt_device *device = queue->device;
    void *event = queue->events[ticket->value % N_EVENT];
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    /* The event may belong to a later computation by now (N_EVENT). */
    if (ticket->value <= atomic_load(&queue->n_ended)) return TDM_OK;
    if (timeout_ns == UINT64_MAX) {
        rt_result result = device->fn->event_sync(event);
        return result == RT_SUCCESS ? TDM_OK : rt_fail(device, err, result, RT_FN_event_sync);
    }
    return rt_watch_wait(queue->watch, event, ticket->value, timeout_ns, err);
}

static tdm_status done_wait(void *context, const gpu_ticket *ticket, uint64_t timeout_ns,
                            tdm_error *err) {
    tdm_queue *queue = context;
    tdm_status status = event_wait(queue, ticket, timeout_ns, err);
    /* After a failure the caller frees the memory, as in work_submit: nothing may run. */
    if (status != TDM_OK && status != TDM_DEADLINE_EXCEEDED)
        (void)rt_stream_end(queue->device, queue->stream);
    if (status == TDM_OK) (void)rt_card_settle(queue->device, false);
    if (status != TDM_OK || ticket->run == 0) return status;
    return rt_wait_status(queue->device, report_of(queue), ticket->run, err);
}

static const gpu_queue_driver driver_of_queue = {
    .submit = work_submit, .wait = done_wait, .is_full = queue_is_full};

/* ---- The ABI's table ------------------------------------------------------------------------- */

static void queue_destroy(tdm_queue *queue) {
    if (queue == NULL) return;
    const rt_driver *fn = queue->device->fn;
    gpu_queue_destroy(queue->base);
    rt_watch_destroy(queue->watch);
    fn->context_set(queue->device->context);
    rt_card_queue_remove(queue->device->card, &queue->in_card);
    for (int i = 0; i < N_EVENT; i++)
        if (queue->events[i] != NULL) fn->event_destroy(queue->events[i]);
    if (queue->stream != NULL) fn->stream_destroy(queue->stream);
    for (int i = 0; i < RT_N_BRANCH; i++) {
        if (queue->workspace.branch_event[i] != NULL)
            fn->event_destroy(queue->workspace.branch_event[i]);
        if (queue->workspace.branch_stream[i] != NULL)
            fn->stream_destroy(queue->workspace.branch_stream[i]);
    }
    gpu_scratch_pool_destroy(&queue->workspace.scratch);
    rt_memory_free(queue->device, &queue->workspace.report);
    rt_memory_free(queue->device, &queue->workspace.wait_state);
    free(queue);
}

/* *stream_out is NULL after a failure, whatever the driver has written. */
static rt_result stream_create(const rt_driver *fn, void **stream_out) {
    rt_result result = fn->stream_create(stream_out, RT_STREAM_NON_BLOCKING);
    if (result != RT_SUCCESS) *stream_out = NULL;
    return result;
}

static rt_result event_create(const rt_driver *fn, void **event_out, unsigned flags) {
    rt_result result = fn->event_create(event_out, flags);
    if (result != RT_SUCCESS) *event_out = NULL;
    return result;
}

static tdm_status streams_create(tdm_queue *queue, tdm_error *err) {
    rt_device *device = queue->device;
    const rt_driver *fn = device->fn;
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    rt_workspace *workspace = &queue->workspace;
    rt_result result = stream_create(fn, &queue->stream);
    for (int i = 0; i < rt_vendor_this.n_branch && result == RT_SUCCESS; i++)
        result = stream_create(fn, &workspace->branch_stream[i]);
    if (result != RT_SUCCESS) return rt_fail(device, err, result, RT_FN_stream_create);
    for (int i = 0; i < rt_vendor_this.n_branch && result == RT_SUCCESS; i++)
        result = event_create(fn, &workspace->branch_event[i], RT_EVENT_NO_TIMING);
    for (int i = 0; i < N_EVENT && result == RT_SUCCESS; i++)
        result = event_create(fn, &queue->events[i],
                              RT_EVENT_NO_TIMING | RT_EVENT_BLOCKING | rt_vendor_this.event_flags);
    return result == RT_SUCCESS ? TDM_OK : rt_fail(device, err, result, RT_FN_event_create);
}

static tdm_status report_create(tdm_queue *queue, tdm_error *err) {
    rt_device *device = queue->device;
    rt_memory *report = &queue->workspace.report, *memory = &queue->workspace.wait_state;
    if (!device->target.may_wait) return TDM_OK;
    tdm_status status = rt_memory_alloc(device, sizeof(rt_wait_report), true, report, err);
    if (status != TDM_OK) return status;
    memset(report->host, 0, sizeof(rt_wait_report));
    const rt_wait_state state = {.report = report->address};
    status = rt_memory_alloc(device, sizeof state, false, memory, err);
    return status == TDM_OK ? rt_upload(device, memory, 0, &state, sizeof state, err) : status;
}

static tdm_status queue_create(tdm_device *device, tdm_queue **queue_out, tdm_error *err) {
    tdm_queue *queue = calloc(1, sizeof *queue);
    if (queue == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a queue", device->name);
    queue->device = device;
    gpu_scratch_pool_init(&queue->workspace.scratch, &rt_scratch_driver, device, device->name);
    tdm_status status = streams_create(queue, err);
    if (status == TDM_OK) status = report_create(queue, err);
    if (status == TDM_OK) status = rt_watch_create(device, &queue->watch, err);
    if (status == TDM_OK)
        status = gpu_queue_create(device->name, device->instance->host->semaphore, &driver_of_queue,
                                  queue, &queue->base, err);
    if (status != TDM_OK) {
        queue_destroy(queue);
        return status;
    }
    queue->in_card = (rt_card_queue){.is_busy = queue_is_busy, .queue = queue};
    rt_card_queue_add(device->card, &queue->in_card);
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
