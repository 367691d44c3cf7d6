/* SPDX-License-Identifier: MIT
 *
 * queue.h: plans, and running them.
 *
 * A plan is what a device made of a graph for one queue: fused, with kernels chosen. Its life:
 *   graph_prepare  once for each shape: fuses, chooses, lays out. May be slow
 *   plan_bind      when memory moves: gives the slots their addresses. A device that captures or
 *                  records command buffers does it here
 *   graph_compute  once for each step: submits. Allocates nothing, and never waits for execution
 *   plan_destroy   before its queue
 * A queue runs computations in the order in which they were given. The caller owns plans and keeps
 * those of every shape it alternates between; nothing is planned or bound per step.
 *
 * The plans of a queue share its scratch: memory for temporaries and partial results, of which the
 * largest plan decides the size, since one computation runs at a time. It grows in graph_prepare
 * and plan_bind only, and never moves under a bound plan: a larger plan gets a new chunk, and the
 * old chunk lives until the last plan bound to it is bound again or destroyed.
 *
 * A device without queues offers graph_compute_sync alone (device.h); the core then supplies queue,
 * plan and semaphores around it.
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

/* Memory of one slot of a graph. Offsets respect the device's buffer alignment. Slots that no node
 * uses may have a NULL buffer, and so may TEMP values of a device with TDM_DEVICE_HOLDS_TEMPS. */
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
    uint64_t device_size;   /* bytes that the plan alone holds on the device (constants) */
    uint64_t host_size;     /* bytes of host memory */
    uint64_t crossing_size; /* bytes copied in one run, both ways, between the device and the CPU,
                               where that runs nodes that the device refuses (host.h) */
    uint64_t scratch_size; /* bytes that it needs of its queue's scratch on the device: the plans of
                               a queue together take the largest, not the sum */
} tdm_plan_info;

/* A plugin with this table has all slots but plan_get_info and progress, which are optional. */
typedef struct tdm_queue_ops {
    size_t struct_size;

    /* Makes a queue; released with destroy. [any-thread] */
    tdm_status (*create)(tdm_device *device, tdm_queue **queue_out, tdm_error *err);

    /* Ends its threads and destroys; NULL is a no-op. Its plans have been destroyed, so that no
     * work is under way. [any-thread] */
    void (*destroy)(tdm_queue *queue);

    /* Turns a graph into a plan for this queue. The graph must have been verified, be supported as
     * a whole, and outlive the plan. May be slow, and may wait for what the device computes: the
     * plans of all members of an exchange are made before one of them is submitted. Released with
     * plan_destroy. [queue-serial] */
    tdm_status (*graph_prepare)(tdm_queue *queue, const tdm_graph *graph,
                                const tdm_plan_params *params, tdm_plan **plan_out, tdm_error *err);

    /* Destroys; NULL is a no-op. No computation of the plan may be under way. Waits for no other.
     * [any-thread] */
    void (*plan_destroy)(tdm_plan *plan);

    /* Sizes of a plan; fills *info_out as far as its struct_size goes. Absent: they count as 0.
     * [any-thread] */
    tdm_status (*plan_get_info)(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err);

    /* Binds the plan to bindings[n_binding], one for each slot of the graph, for all computations
     * until it is bound again. The array is read during the call only; the buffers live until the
     * plan is bound again or destroyed. No computation of the plan may be under way. Checks number,
     * sizes, ranges and alignment. Allocates all that computing will need. After a failure the plan
     * is unbound. [queue-serial] */
    tdm_status (*plan_bind)(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                            tdm_error *err);

    /* Appends a computation: once every wait is reached, runs the plan with the memory it is bound
     * to, then signals. The arrays are read before the call returns. Allocates nothing in steady
     * use and never waits for execution, neither of this plan nor of one before it: where a
     * driver's queue is bounded, a thread of the plugin does the submitting. TDM_OK means accepted;
     * a later failure arrives by the signals' poison. A plan that is not bound, or was prepared for
     * another queue, gives TDM_FAILED_PRECONDITION. Several computations of one plan may be under
     * way; they run one after the other. [queue-serial] */
    tdm_status (*graph_compute)(tdm_queue *queue, tdm_plan *plan, const tdm_point *waits,
                                int32_t n_wait, const tdm_point *signals, int32_t n_signal,
                                tdm_error *err);

    /* A number that changes while computations of the queue advance, at least once a second: of
     * nodes, launches or submissions done, in any unit. So a long computation can be told from one
     * that hangs. The wait inside an EXCHANGE is no advance. Absent: a computation shows none
     * before its end. [any-thread] */
    uint64_t (*progress)(const tdm_queue *queue);
} tdm_queue_ops;

#ifdef __cplusplus
}
#endif

#endif
