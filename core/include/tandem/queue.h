/* SPDX-License-Identifier: MIT
 *
 * queue.h: plans, and running them.
 *
 * A plan is what a device made of a graph: fused, captured, with kernels chosen. A queue runs
 * plans in the order in which they were given, without the caller waiting. The caller owns plans
 * and keeps those of every shape it alternates between; nothing is planned per step.
 *
 * A device without queues offers graph_compute_sync alone (device.h); the core then supplies
 * queue, plan and semaphores around it.
 */
#ifndef TANDEM_QUEUE_H
#define TANDEM_QUEUE_H

#include "tandem/buffer.h"
#include "tandem/graph.h"
#include "tandem/semaphore.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tdm_queue tdm_queue; /* the plugin's */
typedef struct tdm_plan tdm_plan;   /* the plugin's */

/* Memory of one slot of a graph for one computation. Offsets respect the device's buffer
 * alignment. Slots that no node uses may have a NULL buffer. */
typedef struct tdm_binding {
    tdm_buffer *buffer;
    uint64_t off;  /* bytes */
    uint64_t size; /* bytes that belong to the slot */
} tdm_binding;

typedef struct tdm_plan_params {
    size_t struct_size;
    uint32_t flags; /* none yet; 0 */
} tdm_plan_params;

typedef struct tdm_plan_info {
    size_t struct_size;
    uint64_t device_size;   /* bytes the plan itself holds on the device (scratch, constants) */
    uint64_t host_size;     /* bytes of host memory */
    uint64_t crossing_size; /* bytes copied in one run, both ways, between the device and the CPU,
                               where that runs nodes that the device refuses (host.h) */
} tdm_plan_info;

typedef struct tdm_queue_ops {
    size_t struct_size;

    /* Makes a queue; released with destroy. [any-thread] */
    tdm_status (*create)(tdm_device *device, tdm_queue **queue_out, tdm_error *err);

    /* Waits for the work it was given, then destroys; NULL is a no-op. [any-thread] */
    void (*destroy)(tdm_queue *queue);

    /* Turns a graph into a plan. The graph must have been verified, be supported as a whole, and
     * outlive the plan. May be slow; allocates all that running will need, so that computing
     * allocates nothing. Released with plan_destroy. [any-thread] */
    tdm_status (*graph_prepare)(tdm_device *device, const tdm_graph *graph,
                                const tdm_plan_params *params, tdm_plan **plan_out, tdm_error *err);

    /* Destroys; NULL is a no-op. No computation of the plan may be under way. [any-thread] */
    void (*plan_destroy)(tdm_plan *plan);

    /* Sizes of a plan; fills *info_out as far as its struct_size goes. [any-thread] */
    tdm_status (*plan_get_info)(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err);

    /* Appends a computation: once every wait is reached, runs the plan with bindings[n_binding],
     * one for each slot of the graph, then signals. The arrays are read before the call returns.
     * TDM_OK means accepted; a later failure arrives by the signals' poison. A plan runs one
     * computation at a time: the queue it is first used on orders them. [queue-serial] */
    tdm_status (*graph_compute)(tdm_queue *queue, tdm_plan *plan, const tdm_binding *bindings,
                                int32_t n_binding, const tdm_point *waits, int32_t n_wait,
                                const tdm_point *signals, int32_t n_signal, tdm_error *err);
} tdm_queue_ops;

#ifdef __cplusplus
}
#endif

#endif
