/* SPDX-License-Identifier: MIT
 *
 * queue_adapter.c: see queue_adapter.h.
 */
#include "core/stages/queue_adapter.h"

#include <stdlib.h>
#include <string.h>

#include "core/counters.h"
#include "core/device/runtime_internal.h"

struct tdm_device_plan {
    tdm_queue_adapter *queue;
    const tdm_graph *graph;
    tdm_plan *plan;        /* NULL for a device without queues, which uses what follows */
    tdm_binding *bindings; /* [graph->n_slot] */
    bool is_bound;
};

struct tdm_queue_adapter {
    tdm_open_device *dev;
    tdm_queue *plugin_queue; /* NULL: the worker serves */
    tdm_worker *worker;      /* NULL: the queue does */
};

static tdm_status job_run(void *owner, tdm_error *err) {
    tdm_device_plan *plan = owner;
    tdm_open_device *dev = plan->queue->dev;
    pthread_mutex_lock(&dev->sync_mutex);
    tdm_status status = tdm_open_device_plugin(dev)->device->graph_compute_sync(
        tdm_open_device_handle(dev), plan->graph, plan->bindings, plan->graph->n_slot, err);
    pthread_mutex_unlock(&dev->sync_mutex);
    return status;
}

tdm_status tdm_queue_adapter_create(tdm_open_device *dev, tdm_queue_adapter **queue_out,
                                    tdm_error *err) {
    tdm_queue_adapter *queue = calloc(1, sizeof *queue);
    if (queue == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "queue: out of memory");
    queue->dev = dev;
    const tdm_plugin *plugin = tdm_open_device_plugin(dev);
    tdm_error inner = {0};
    tdm_status status;
    if (TDM_HAS(plugin, queue)) {
        status = plugin->queue->create(tdm_open_device_handle(dev), &queue->plugin_queue, err);
    } else {
        status = tdm_worker_create(&queue->worker, &inner);
        if (status != TDM_OK)
            tdm_fail(err, status, "device '%s': %s", tdm_open_device_name(dev), inner.message);
    }
    if (status != TDM_OK) {
        free(queue);
        return status;
    }
    *queue_out = queue;
    return TDM_OK;
}

void tdm_queue_adapter_destroy(tdm_queue_adapter *queue) {
    if (queue == NULL || tdm_open_device_is_stuck(queue->dev)) return;
    if (queue->plugin_queue != NULL)
        tdm_open_device_plugin(queue->dev)->queue->destroy(queue->plugin_queue);
    tdm_worker_destroy(queue->worker);
    free(queue);
}

uint64_t tdm_queue_adapter_progress(const tdm_queue_adapter *queue) {
    if (queue == NULL || queue->plugin_queue == NULL) return 0;
    const tdm_queue_ops *ops = tdm_open_device_plugin(queue->dev)->queue;
    return TDM_HAS(ops, progress) ? ops->progress(queue->plugin_queue) : 0;
}

tdm_status tdm_device_plan_create(tdm_queue_adapter *queue, const tdm_graph *graph,
                                  tdm_device_plan **plan_out, tdm_error *err) {
    tdm_status status = tdm_open_device_check(queue->dev, err);
    if (status != TDM_OK) return status;
    tdm_device_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plan: out of memory");
    plan->queue = queue;
    plan->graph = graph;
    if (queue->plugin_queue != NULL) {
        tdm_plan_params params = {sizeof params, 0};
        status = tdm_open_device_plugin(queue->dev)
                     ->queue->graph_prepare(queue->plugin_queue, graph, &params, &plan->plan, err);
    } else {
        plan->bindings = calloc((size_t)graph->n_slot + 1, sizeof *plan->bindings);
        if (plan->bindings == NULL)
            status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plan: out of memory");
    }
    if (status != TDM_OK) {
        free(plan);
        return status;
    }
    tdm_counter_add(TDM_COUNTER_GRAPHS_PLANNED, 1);
    *plan_out = plan;
    return TDM_OK;
}

void tdm_device_plan_destroy(tdm_device_plan *plan) {
    if (plan == NULL || tdm_open_device_is_stuck(plan->queue->dev)) return;
    if (plan->plan != NULL)
        tdm_open_device_plugin(plan->queue->dev)->queue->plan_destroy(plan->plan);
    free(plan->bindings);
    free(plan);
}

tdm_open_device *tdm_device_plan_device(const tdm_device_plan *plan) {
    return plan->queue->dev;
}

tdm_status tdm_device_plan_get_info(const tdm_device_plan *plan, tdm_plan_info *info_out,
                                    tdm_error *err) {
    memset(info_out, 0, sizeof *info_out);
    info_out->struct_size = sizeof *info_out;
    if (plan->plan == NULL) return TDM_OK;
    const tdm_queue_ops *ops = tdm_open_device_plugin(plan->queue->dev)->queue;
    return TDM_HAS(ops, plan_get_info) ? ops->plan_get_info(plan->plan, info_out, err) : TDM_OK;
}

tdm_status tdm_device_plan_bind(tdm_device_plan *plan, const tdm_binding *bindings,
                                int32_t n_binding, tdm_error *err) {
    tdm_counter_add(TDM_COUNTER_BINDS, 1);
    plan->is_bound = false;
    if (n_binding != plan->graph->n_slot)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "bind: %d bindings for %d slots", n_binding,
                        plan->graph->n_slot);
    tdm_status status = tdm_open_device_check(plan->queue->dev, err);
    if (status != TDM_OK) return status;
    if (plan->plan != NULL)
        status = tdm_open_device_plugin(plan->queue->dev)
                     ->queue->plan_bind(plan->plan, bindings, n_binding, err);
    else if (n_binding > 0)
        memcpy(plan->bindings, bindings, (size_t)n_binding * sizeof *bindings);
    plan->is_bound = status == TDM_OK;
    return status;
}

tdm_status tdm_device_plan_compute(tdm_device_plan *plan, const tdm_point *waits, int32_t n_wait,
                                   const tdm_point *signals, int32_t n_signal, tdm_error *err) {
    const tdm_queue_adapter *queue = plan->queue;
    if (n_wait < 0 || n_signal < 0 || n_wait > TDM_QUEUE_MAX_POINTS ||
        n_signal > TDM_QUEUE_MAX_POINTS)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "compute: %d waits, %d signals (at most %d)",
                        n_wait, n_signal, TDM_QUEUE_MAX_POINTS);
    if (!plan->is_bound)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "compute: the plan is not bound");
    if (tdm_open_device_is_stuck(queue->dev)) return tdm_open_device_check(queue->dev, err);
    tdm_counter_add(TDM_COUNTER_SUBMISSIONS, 1);
    if (plan->plan != NULL)
        return tdm_open_device_plugin(queue->dev)
            ->queue->graph_compute(queue->plugin_queue, plan->plan, waits, n_wait, signals,
                                   n_signal, err);
    return tdm_worker_submit(queue->worker, job_run, plan, waits, n_wait, signals, n_signal, err);
}
