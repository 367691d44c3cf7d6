/* SPDX-License-Identifier: MIT
 *
 * adapter_queue.c: queues of a lent device. Plans that are the device's own go straight to its queue
 * for as long as no plan of the device has stages; from then on a worker runs all of them one after
 * the other, so that the order in which they were given holds across both sides.
 */
#include <stdlib.h>
#include <string.h>

#include "core/stages/adapter_plan.h"

struct tdm_queue {
    tdm_device *device;
    tdm_queue_adapter *queues[ADAPTER_SIDE_COUNT_]; /* the fallback's from its first use on */
    tdm_worker *worker;       /* NULL: everything so far went straight to the device */
    tdm_semaphore *semaphore; /* the worker's own */
    uint64_t semaphore_value; /* last value promised */
    bool is_direct_used;      /* work may be under way that the worker knows nothing of */
};

static tdm_status queue_create(tdm_device *device, tdm_queue **queue_out, tdm_error *err) {
    tdm_queue *q = calloc(1, sizeof *q);
    if (q == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "queue: out of memory");
    q->device = device;
    tdm_status status = tdm_queue_adapter_create(device->main, &q->queues[ADAPTER_MAIN], err);
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
    for (int s = 0; s < ADAPTER_SIDE_COUNT_; s++) tdm_queue_adapter_destroy(q->queues[s]);
    tdm_semaphore_ops.destroy(q->semaphore);
    free(q);
}

static const char *slot_name(const tdm_graph *graph, int32_t slot) {
    for (int32_t i = 0; i < graph->n_value; i++)
        if (tdm_graph_value(graph, i)->slot == slot) return tdm_graph_value_name(graph, i);
    return "";
}

/* A binding of the borrower's as one of `side`'s own. */
static tdm_status binding_resolve(const tdm_plan *plan, int32_t slot, adapter_side side,
                                  tdm_binding *out, tdm_error *err) {
    const tdm_binding *given = &plan->given[slot];
    adapter_place at;
    if (given->buffer == NULL) {
        *out = (tdm_binding){0};
        return TDM_OK;
    }
    if (!adapter_buffer_at(given->buffer, given->off, &at))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'%s' is bound to a place where its buffer has no item",
                        slot_name(plan->graph, slot));
    if (at.side != side)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "'%s' lies on %s but is needed on %s: its buffer must be allocated with "
                        "items that describe it",
                        slot_name(plan->graph, slot), tdm_open_device_name(at.mem.dev),
                        side == ADAPTER_MAIN ? tdm_open_device_name(plan->device->main)
                                             : "the fallback");
    *out = (tdm_binding){at.mem.buffer, at.off, given->size};
    return TDM_OK;
}

/* ---- On the worker's thread ---- */

/* A poisoned semaphore stays poisoned; the next run deserves a fresh one. */
static void semaphore_renew(tdm_queue *q) {
    tdm_semaphore *fresh = NULL;
    uint64_t value;
    if (tdm_semaphore_ops.query(q->semaphore, &value, NULL) == TDM_OK) return;
    if (tdm_semaphore_ops.create(q->semaphore_value, &fresh, NULL) != TDM_OK) return;
    tdm_semaphore_ops.destroy(q->semaphore);
    q->semaphore = fresh;
}

static tdm_status queue_run(tdm_queue *q, adapter_side side, tdm_device_plan *plan,
                            const tdm_binding *bindings, int32_t n_binding, tdm_error *err) {
    tdm_point done = {q->semaphore, ++q->semaphore_value};
    tdm_status status = tdm_queue_adapter_compute(q->queues[side], plan, bindings, n_binding, NULL,
                                                  0, &done, 1, err);
    if (status == TDM_OK)
        status = tdm_semaphore_ops.wait(done.semaphore, done.value, TDM_WAIT_FOREVER, err);
    if (status != TDM_OK) semaphore_renew(q);
    return status;
}

/* Where a value that crosses lies on one side. */
static tdm_status crossing_at(const tdm_plan *plan, int32_t slot, adapter_side side, tdm_mem *mem,
                              uint64_t *off, tdm_error *err) {
    tdm_binding b;
    if (plan->border_off[side][slot] != ADAPTER_NOWHERE) {
        *mem = plan->border[side];
        *off = plan->border_off[side][slot];
        return TDM_OK;
    }
    tdm_status status = binding_resolve(plan, slot, side, &b, err);
    if (status == TDM_OK && b.buffer == NULL)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' is bound to nothing",
                          slot_name(plan->graph, slot));
    if (status != TDM_OK) return status;
    *mem = (tdm_mem){plan->device->main, b.buffer, b.off + b.size};
    *off = b.off;
    return TDM_OK;
}

static tdm_status crossing_copy(const tdm_plan *plan, int32_t slot, adapter_side to,
                                tdm_error *err) {
    adapter_side from = to == ADAPTER_MAIN ? ADAPTER_FALLBACK : ADAPTER_MAIN;
    tdm_mem src, dst;
    uint64_t src_off, dst_off;
    tdm_status status = crossing_at(plan, slot, from, &src, &src_off, err);
    if (status == TDM_OK) status = crossing_at(plan, slot, to, &dst, &dst_off, err);
    if (status != TDM_OK || plan->slot_size[slot] == 0) return status;
    return tdm_mem_copy_staged(&dst, dst_off, &src, src_off, plan->slot_size[slot], plan->staging,
                               plan->staging_size, err);
}

/* Gives the fallback the bytes of a weight that the device holds, in the fallback's own layout,
 * unless it has them. */
static tdm_status weight_refresh(tdm_plan *plan, adapter_weight_copy *w, tdm_error *err) {
    const tdm_binding *given = &plan->given[w->slot];
    adapter_place at;
    if (given->buffer == NULL || !adapter_buffer_at(given->buffer, given->off, &at))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' is bound to nothing",
                        slot_name(plan->graph, w->slot));
    uint64_t version = atomic_load(&given->buffer->version);
    if (w->id == given->buffer->id && w->version == version && w->from == given->off) return TDM_OK;
    uint64_t row_size = tdm_type_row_size(w->desc.type, w->desc.ne[0]);
    int64_t n_row = tdm_shape_rows(w->desc.ne);
    int64_t step = row_size > 0 ? (int64_t)(plan->staging_size / row_size) : n_row;
    tdm_status status = TDM_OK;
    w->id = 0;
    for (int64_t row = 0; row < n_row && row_size > 0 && status == TDM_OK; row += step) {
        int64_t n = n_row - row < step ? n_row - row : step;
        status = tdm_mem_tensor_download(&at.mem, at.off, &w->desc, plan->staging, row_size, row, n,
                                         0, w->desc.ne[0], err);
        if (status == TDM_OK)
            status = tdm_mem_tensor_upload(&plan->border[ADAPTER_FALLBACK], w->off, &w->desc,
                                           plan->staging, row_size, row, n, 0, w->desc.ne[0], err);
    }
    if (status != TDM_OK) return status;
    w->id = given->buffer->id;
    w->version = version;
    w->from = given->off;
    return TDM_OK;
}

static tdm_status stage_run(tdm_plan *plan, adapter_stage *st, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < st->n_copy_in && status == TDM_OK; i++)
        status = crossing_copy(plan, st->copies_in[i], st->side, err);
    for (int32_t i = 0; i < st->graph->n_slot && status == TDM_OK; i++)
        if (st->is_given[i])
            status = binding_resolve(plan, st->slot_map[i], st->side, &st->bindings[i], err);
    if (status == TDM_OK)
        status = queue_run(plan->queue, st->side, st->plan, st->bindings, st->graph->n_slot, err);
    for (int32_t i = 0; i < st->n_copy_out && status == TDM_OK; i++)
        status = crossing_copy(plan, st->copies_out[i], ADAPTER_MAIN, err);
    return status;
}

static tdm_status plan_run_stages(tdm_plan *plan, tdm_error *err) {
    tdm_queue *q = plan->queue;
    tdm_status status = TDM_OK;
    if (q->queues[ADAPTER_FALLBACK] == NULL)
        status = tdm_queue_adapter_create(adapter_fallback(plan->device, NULL),
                                          &q->queues[ADAPTER_FALLBACK], err);
    for (int32_t i = 0; i < plan->n_weight && status == TDM_OK; i++)
        status = weight_refresh(plan, &plan->weights[i], err);
    for (int32_t s = 0; s < plan->n_stage && status == TDM_OK; s++)
        status = stage_run(plan, &plan->stages[s], err);
    return status;
}

static tdm_status bindings_resolve(tdm_plan *plan, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < plan->graph->n_slot && status == TDM_OK; i++)
        status = binding_resolve(plan, i, ADAPTER_MAIN, &plan->bound[i], err);
    return status;
}

tdm_status adapter_plan_run(tdm_job *job, tdm_error *err) {
    tdm_plan *plan = (tdm_plan *)(void *)((char *)job - offsetof(tdm_plan, job));
    tdm_queue *q = plan->queue;
    tdm_status status = TDM_OK;
    if (q->is_direct_used) { /* a queue that is destroyed has done its work */
        tdm_queue_adapter_destroy(q->queues[ADAPTER_MAIN]);
        q->queues[ADAPTER_MAIN] = NULL;
        q->is_direct_used = false;
    }
    if (q->queues[ADAPTER_MAIN] == NULL)
        status = tdm_queue_adapter_create(plan->device->main, &q->queues[ADAPTER_MAIN], err);
    if (status != TDM_OK) return status;
    if (plan->whole == NULL) return plan_run_stages(plan, err);
    status = bindings_resolve(plan, err);
    if (status != TDM_OK) return status;
    return queue_run(q, ADAPTER_MAIN, plan->whole, plan->bound, plan->graph->n_slot, err);
}

/* ---- On the borrower's ---- */

static tdm_status worker_start(tdm_queue *q, tdm_error *err) {
    tdm_status status =
        q->semaphore == NULL ? tdm_semaphore_ops.create(0, &q->semaphore, err) : TDM_OK;
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
        return tdm_queue_adapter_compute(q->queues[ADAPTER_MAIN], plan->whole, plan->bound,
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
