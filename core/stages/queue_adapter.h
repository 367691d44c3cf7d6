/* SPDX-License-Identifier: MIT
 *
 * queue_adapter.h: plans and queues for every device: the plugin's own where it has them. For a
 * plugin that has only graph_compute_sync, a thread of the core waits, runs the graph and signals.
 * Contracts are those of tandem/queue.h.
 *
 * Once a device was given up (tdm_open_device_is_stuck), the destroy functions keep its queues and
 * plans, since its plugin may still use them; making plans, binding and computing give
 * TDM_UNAVAILABLE.
 */
#ifndef TANDEM_CORE_QUEUE_ADAPTER_H
#define TANDEM_CORE_QUEUE_ADAPTER_H

#include "core/device/runtime.h"
#include "core/device/worker.h"

typedef struct tdm_queue_adapter tdm_queue_adapter;
typedef struct tdm_device_plan tdm_device_plan;

#define TDM_QUEUE_MAX_POINTS TDM_WORKER_MAX_POINTS /* waits, and signals, of one computation */

/* Released with tdm_queue_adapter_destroy, before the device is closed. [setup] */
tdm_status tdm_queue_adapter_create(tdm_open_device *dev, tdm_queue_adapter **queue_out,
                                    tdm_error *err);
/* Waits for all submitted work; its plans have been destroyed; NULL is a no-op. [setup] */
void tdm_queue_adapter_destroy(tdm_queue_adapter *queue);

/* Makes a plan of `graph`, which must outlive it, for this queue. Counted in
 * TDM_COUNTER_GRAPHS_PLANNED. Released with tdm_device_plan_destroy. [queue-serial] */
tdm_status tdm_device_plan_create(tdm_queue_adapter *queue, const tdm_graph *graph,
                                  tdm_device_plan **plan_out, tdm_error *err);
/* NULL is a no-op. No computation of the plan may be under way. [any-thread] */
void tdm_device_plan_destroy(tdm_device_plan *plan);
/* The device that it runs on. [any-thread] */
tdm_open_device *tdm_device_plan_device(const tdm_device_plan *plan);
/* All zero where the plugin has no plan_get_info. [any-thread] */
tdm_status tdm_device_plan_get_info(const tdm_device_plan *plan, tdm_plan_info *info_out,
                                    tdm_error *err);
/* As tdm_queue_ops.plan_bind. Counted in TDM_COUNTER_BINDS. [queue-serial] */
tdm_status tdm_device_plan_bind(tdm_device_plan *plan, const tdm_binding *bindings,
                                int32_t n_binding, tdm_error *err);

/* As tdm_queue_ops.graph_compute, on the plan's queue. Counted in TDM_COUNTER_SUBMISSIONS.
 * [queue-serial] */
tdm_status tdm_device_plan_compute(tdm_device_plan *plan, const tdm_point *waits, int32_t n_wait,
                                   const tdm_point *signals, int32_t n_signal, tdm_error *err);

/* As tdm_queue_ops.progress; 0 where the plugin has none, and for NULL. [any-thread] */
uint64_t tdm_queue_adapter_progress(const tdm_queue_adapter *queue);

#endif
