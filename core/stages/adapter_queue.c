/* SPDX-License-Identifier: MIT
 *
 * adapter_queue.c: queues of an adapted device. While no plan of the device has stages, plans go
 * straight to the device's own queue. From the first plan with stages on, a worker runs all plans
 * one after the other, so that they run in the order of submission on both sides.
 */
#include <stdlib.h>
#include <string.h>

#include "core/stages/adapter_plan.h"

struct tdm_queue {
    tdm_device *device;
    tdm_stage_queues stages; /* by side; the fallback's queue from its first use on, the semaphore
                                from the worker's start on */
    tdm_worker *worker;      /* NULL: all work so far went straight to the device */
    bool is_direct_used;     /* work that bypassed the worker may be under way */
};

static tdm_status queue_create(tdm_device *device, tdm_queue **queue_out, tdm_error *err) {
    tdm_queue *q = calloc(1, sizeof *q);
    if (q == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "queue: out of memory");
    q->device = device;
    tdm_status status =
        tdm_queue_adapter_create(device->main, &q->stages.queues[ADAPTER_MAIN], err);
    if (status != TDM_OK) {
        free(q);
        return status;
    }
    *queue_out = q;
    return TDM_OK;
}

static void queue_destroy(tdm_queue *q) {
    if (q == NULL) return;
    tdm_worker_destroy(q->worker);
    tdm_stage_queues_destroy(&q->stages);
    free(q);
}

static const char *slot_name(const tdm_graph *graph, int32_t slot) {
    for (int32_t i = 0; i < graph->n_value; i++)
        if (tdm_graph_value(graph, i)->slot == slot) return tdm_graph_value_name(graph, i);
    return "";
}

/* Where what the caller bound to a slot lies on `side`. out->mem.dev stays NULL where the caller
 * bound nothing. */
static tdm_status given_locate(void *owner, int32_t slot, int32_t side, tdm_slot_mem *out,
                               tdm_error *err) {
    const tdm_plan *plan = owner;
    const tdm_binding *given = &plan->given[slot];
    adapter_place at;
    if (given->buffer == NULL) return TDM_OK;
    if (!adapter_buffer_at(given->buffer, given->off, &at))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'%s' is bound to a place where its buffer has no item",
                        slot_name(plan->graph, slot));
    if ((int32_t)at.side != side)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "'%s' lies on %s but is needed on %s: its buffer must be allocated with "
                        "items that describe it",
                        slot_name(plan->graph, slot), tdm_open_device_name(at.mem.dev),
                        side == ADAPTER_MAIN ? tdm_open_device_name(plan->device->main)
                                             : "the fallback");
    *out = (tdm_slot_mem){at.mem, at.off, given->size};
    return TDM_OK;
}

/* ---- On the worker's thread ---- */

/* Copies weights whose bytes have changed, or moved, since the fallback's copy was made. */
static tdm_status weights_refresh(tdm_plan *plan, tdm_error *err) {
    for (int32_t i = 0; i < plan->stages.cut.n_weight; i++) {
        const tdm_binding *given = &plan->given[plan->stages.cut.weights[i].slot];
        adapter_weight_stamp *stamp = &plan->stamps[i];
        uint64_t version = atomic_load(&given->buffer->version);
        if (stamp->id == given->buffer->id && stamp->version == version && stamp->off == given->off)
            continue;
        stamp->id = 0;
        tdm_status status = tdm_stages_copy_weight(&plan->stages, i, &plan->memory, err);
        if (status != TDM_OK) return status;
        *stamp = (adapter_weight_stamp){given->buffer->id, version, given->off};
    }
    return TDM_OK;
}

static tdm_status plan_run_stages(tdm_plan *plan, tdm_error *err) {
    tdm_stage_queues *queues = &plan->queue->stages;
    tdm_status status = TDM_OK;
    if (queues->queues[ADAPTER_FALLBACK] == NULL)
        status = tdm_queue_adapter_create(adapter_fallback(plan->device, NULL),
                                          &queues->queues[ADAPTER_FALLBACK], err);
    if (status == TDM_OK)
        status = tdm_stages_bind(&plan->stages, &plan->memory, given_locate, plan, err);
    if (status == TDM_OK) status = weights_refresh(plan, err);
    return status == TDM_OK ? tdm_stages_run(&plan->stages, queues, &plan->memory, err) : status;
}

static tdm_status bindings_resolve(tdm_plan *plan, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < plan->graph->n_slot && status == TDM_OK; i++) {
        tdm_slot_mem at = {0};
        status = given_locate(plan, i, ADAPTER_MAIN, &at, err);
        plan->bound[i] = (tdm_binding){at.mem.buffer, at.off, at.size};
    }
    return status;
}

tdm_status adapter_plan_run(tdm_job *job, tdm_error *err) {
    tdm_plan *plan = (tdm_plan *)(void *)((char *)job - offsetof(tdm_plan, job));
    tdm_queue *q = plan->queue;
    tdm_status status = TDM_OK;
    if (q->is_direct_used) { /* destroying a queue waits for its work */
        tdm_queue_adapter_destroy(q->stages.queues[ADAPTER_MAIN]);
        q->stages.queues[ADAPTER_MAIN] = NULL;
        q->is_direct_used = false;
    }
    if (q->stages.queues[ADAPTER_MAIN] == NULL)
        status = tdm_queue_adapter_create(plan->device->main, &q->stages.queues[ADAPTER_MAIN], err);
    if (status != TDM_OK) return status;
    if (plan->whole == NULL) return plan_run_stages(plan, err);
    status = bindings_resolve(plan, err);
    if (status != TDM_OK) return status;
    return tdm_stage_queues_run(&q->stages, ADAPTER_MAIN, plan->whole, plan->bound,
                                plan->graph->n_slot, err);
}

/* ---- On the caller's thread ---- */

static tdm_status worker_start(tdm_queue *q, tdm_error *err) {
    tdm_status status = q->stages.semaphore == NULL
                            ? tdm_semaphore_ops.create(0, &q->stages.semaphore, err)
                            : TDM_OK;
    return status == TDM_OK ? tdm_worker_create(&q->worker, err) : status;
}

static tdm_status graph_compute(tdm_queue *q, tdm_plan *plan, const tdm_binding *bindings,
                                int32_t n_binding, const tdm_point *waits, int32_t n_wait,
                                const tdm_point *signals, int32_t n_signal, tdm_error *err) {
    if (n_binding != plan->graph->n_slot || n_wait < 0 || n_signal < 0 ||
        n_wait > TDM_WORKER_MAX_POINTS || n_signal > TDM_WORKER_MAX_POINTS)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "compute: %d bindings for %d slots, %d waits, %d signals (at most %d)",
                        n_binding, plan->graph->n_slot, n_wait, n_signal, TDM_WORKER_MAX_POINTS);
    if (q->worker == NULL && !atomic_load(&q->device->is_staged)) {
        if (n_binding > 0) memcpy(plan->given, bindings, (size_t)n_binding * sizeof *bindings);
        tdm_status status = bindings_resolve(plan, err);
        if (status != TDM_OK) return status;
        q->is_direct_used = true;
        return tdm_queue_adapter_compute(q->stages.queues[ADAPTER_MAIN], plan->whole, plan->bound,
                                         n_binding, waits, n_wait, signals, n_signal, err);
    }
    if (q->worker == NULL) {
        tdm_status status = worker_start(q, err);
        if (status != TDM_OK) return status;
    }
    tdm_worker_claim(q->worker, &plan->job);
    if (n_binding > 0) memcpy(plan->given, bindings, (size_t)n_binding * sizeof *bindings);
    plan->queue = q;
    tdm_worker_submit(q->worker, &plan->job, waits, n_wait, signals, n_signal);
    return TDM_OK;
}

const tdm_queue_ops adapter_queue_ops = {
    .struct_size = sizeof adapter_queue_ops,
    .create = queue_create,
    .destroy = queue_destroy,
    .graph_prepare = adapter_plan_create,
    .plan_destroy = adapter_plan_destroy,
    .plan_get_info = adapter_plan_get_info,
    .graph_compute = graph_compute,
};
