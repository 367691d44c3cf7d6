/* SPDX-License-Identifier: MIT
 *
 * adapter_queue.c: queues of an adapted device. While no plan of the device has stages, plans go
 * straight to the device's own queue. From the first plan with stages on, a worker runs all plans
 * one after the other, so that they run in the order of submission on both sides.
 */
#include <stdlib.h>
#include <string.h>

#include "core/stages/adapter_plan.h"

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

/* Waits for all work that went straight to the device. It reports no failure: a failure of that
 * work poisons the signals with which it was submitted. */
static void direct_drain(const tdm_queue *q) {
    for (int32_t i = 0; i < q->n_direct; i++)
        tdm_semaphore_ops.wait(q->direct[i].semaphore, q->direct[i].value, TDM_WAIT_FOREVER, NULL);
}

static void queue_destroy(tdm_queue *q) {
    if (q == NULL) return;
    tdm_worker_destroy(q->worker);
    /* What the device attached to a semaphore belongs to its queue, so that the semaphores go
     * first. */
    direct_drain(q);
    for (int32_t i = 0; i < q->n_direct; i++) tdm_semaphore_ops.destroy(q->direct[i].semaphore);
    free(q->direct);
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
    if (!adapter_buffer_at(given->buffer, given->off, given->size == 0, (adapter_side)side, &at))
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

/* tdm_job_fn: a plan, after everything that was submitted before it. */
static tdm_status plan_run(void *owner, tdm_error *err) {
    tdm_plan *plan = owner;
    tdm_queue *q = plan->queue;
    direct_drain(q);
    if (plan->whole != NULL) return tdm_stage_queues_run(&q->stages, plan->whole, err);
    tdm_status status = weights_refresh(plan, err);
    return status == TDM_OK ? tdm_stages_run(&plan->stages, &q->stages, &plan->memory, err)
                            : status;
}

/* ---- On the caller's thread ---- */

static tdm_status worker_start(tdm_queue *q, tdm_error *err) {
    tdm_status status = q->stages.semaphore == NULL
                            ? tdm_semaphore_ops.create(0, &q->stages.semaphore, err)
                            : TDM_OK;
    return status == TDM_OK ? tdm_worker_create(&q->worker, err) : status;
}

static tdm_status plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                            tdm_error *err) {
    plan->is_bound = false;
    if (n_binding != plan->n_given)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "bind: %d bindings for %d slots", n_binding,
                        plan->n_given);
    const int32_t n_slot = plan->graph->n_slot;
    for (int32_t i = 0; i < n_slot; i++)
        plan->given[i] = bindings[plan->slot_map != NULL ? plan->slot_map[i] : i];
    tdm_status status = TDM_OK;
    if (plan->whole == NULL) {
        status = tdm_stages_bind(&plan->stages, &plan->memory, given_locate, plan, err);
    } else {
        for (int32_t i = 0; i < n_slot && status == TDM_OK; i++) {
            tdm_slot_mem at = {0};
            status = given_locate(plan, i, ADAPTER_MAIN, &at, err);
            plan->bound[i] = (tdm_binding){at.mem.buffer, at.off, at.size};
        }
        if (status == TDM_OK) status = tdm_device_plan_bind(plan->whole, plan->bound, n_slot, err);
    }
    plan->is_bound = status == TDM_OK;
    return status;
}

/* An entry of q->direct whose computation has ended. NULL without memory. */
static adapter_direct *direct_get(tdm_queue *q, tdm_error *err) {
    for (int32_t i = 0; i < q->n_direct; i++) {
        adapter_direct *d = &q->direct[i];
        uint64_t value = 0;
        tdm_semaphore *fresh = NULL;
        if (tdm_semaphore_ops.query(d->semaphore, &value, NULL) == TDM_OK) {
            if (value >= d->value) return d;
            continue;
        }
        if (tdm_semaphore_ops.create(d->value, &fresh, NULL) != TDM_OK) continue;
        tdm_semaphore_ops.destroy(d->semaphore);
        d->semaphore = fresh;
        return d;
    }
    adapter_direct *grown = realloc(q->direct, (size_t)(q->n_direct + 1) * sizeof *grown);
    if (grown == NULL) {
        tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "queue: out of memory");
        return NULL;
    }
    q->direct = grown;
    grown[q->n_direct] = (adapter_direct){0};
    if (tdm_semaphore_ops.create(0, &grown[q->n_direct].semaphore, err) != TDM_OK) return NULL;
    return &grown[q->n_direct++];
}

static tdm_status compute_direct(tdm_queue *q, tdm_plan *plan, const tdm_point *waits,
                                 int32_t n_wait, const tdm_point *signals, int32_t n_signal,
                                 tdm_error *err) {
    tdm_point all[TDM_WORKER_MAX_POINTS];
    adapter_direct *direct = direct_get(q, err);
    if (direct == NULL) return TDM_RESOURCE_EXHAUSTED;
    if (n_signal > 0) memcpy(all, signals, (size_t)n_signal * sizeof *signals);
    all[n_signal] = (tdm_point){direct->semaphore, direct->value + 1};
    tdm_status status = tdm_device_plan_compute(plan->whole, waits, n_wait, all, n_signal + 1, err);
    if (status == TDM_OK) direct->value++;
    return status;
}

static tdm_status graph_compute(tdm_queue *q, tdm_plan *plan, const tdm_point *waits,
                                int32_t n_wait, const tdm_point *signals, int32_t n_signal,
                                tdm_error *err) {
    if (n_wait < 0 || n_signal < 0 || n_wait > TDM_WORKER_MAX_POINTS ||
        n_signal >= TDM_WORKER_MAX_POINTS)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "compute: %d waits (at most %d), %d signals (at most %d)", n_wait,
                        TDM_WORKER_MAX_POINTS, n_signal, TDM_WORKER_MAX_POINTS - 1);
    if (plan->queue != q || !plan->is_bound)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "compute: the plan %s",
                        plan->queue != q ? "belongs to another queue" : "is not bound");
    if (q->worker == NULL && !atomic_load(&q->device->is_staged))
        return compute_direct(q, plan, waits, n_wait, signals, n_signal, err);
    if (q->worker == NULL) {
        tdm_status status = worker_start(q, err);
        if (status != TDM_OK) return status;
    }
    return tdm_worker_submit(q->worker, plan_run, plan, waits, n_wait, signals, n_signal, err);
}

/* Of both sides, as work of a plan may be on either. */
static uint64_t progress(const tdm_queue *q) {
    return tdm_queue_adapter_progress(q->stages.queues[ADAPTER_MAIN]) +
           tdm_queue_adapter_progress(q->stages.queues[ADAPTER_FALLBACK]);
}

const tdm_queue_ops adapter_queue_ops = {
    .struct_size = sizeof adapter_queue_ops,
    .create = queue_create,
    .destroy = queue_destroy,
    .graph_prepare = adapter_plan_create,
    .plan_destroy = adapter_plan_destroy,
    .plan_get_info = adapter_plan_get_info,
    .plan_bind = plan_bind,
    .graph_compute = graph_compute,
    .progress = progress,
};
