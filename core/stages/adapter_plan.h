/* SPDX-License-Identifier: MIT
 *
 * adapter_plan.h: what adapter_plan.c makes of a graph and adapter_queue.c runs. Not for others.
 *
 * Where the device runs all nodes, a plan is the device's own plan. Otherwise it is stages
 * (stages.h) on two sides. The caller binds INPUTs and OUTPUTs in memory of the device, and the
 * temporaries of the device's stages; the plan owns the rest: values that cross, temporaries of the
 * fallback, and copies of weights that the fallback reads.
 */
#ifndef TANDEM_CORE_ADAPTER_PLAN_H
#define TANDEM_CORE_ADAPTER_PLAN_H

#include "core/stages/adapter_internal.h"
#include "core/stages/stages.h"

/* Which bytes the fallback's copy of a weight holds. */
typedef struct adapter_weight_stamp {
    uint64_t id, version, off; /* of the buffer they were copied from; id 0 = none yet */
} adapter_weight_stamp;

/* The handle of a plan. */
struct tdm_plan {
    tdm_device *device;
    tdm_queue *queue;
    const tdm_graph *graph; /* the caller's, or own_graph */
    tdm_graph *own_graph;   /* the caller's without weights and caches that no node reads; NULL =
                               it has none */
    int32_t *slot_map;      /* [graph->n_slot] slots of the caller's graph; NULL = the same */
    int32_t n_given;        /* slots of the caller's graph */
    tdm_device_plan *whole; /* the device's own plan; NULL: stages */
    tdm_binding *given;     /* [n_slot] as bound, buffers of the caller's */
    tdm_binding *bound;     /* [n_slot] the same in the device's own buffers */
    bool is_bound;
    tdm_stages stages; /* devices are sides */
    tdm_stage_memory memory;
    adapter_weight_stamp *stamps; /* [stages.cut.n_weight] */
};

tdm_status adapter_plan_create(tdm_queue *queue, const tdm_graph *graph,
                               const tdm_plan_params *params, tdm_plan **plan_out, tdm_error *err);
void adapter_plan_destroy(tdm_plan *plan);
tdm_status adapter_plan_get_info(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err);

/* A computation that went straight to the device. Its semaphore serves it alone, so that a failure
 * of another computation does not hide whether this one has ended. */
typedef struct adapter_direct {
    tdm_semaphore *semaphore;
    uint64_t value; /* of the last computation */
} adapter_direct;

/* The handle of a queue. */
struct tdm_queue {
    tdm_device *device;
    /* by side; the fallback's queue from the first plan with stages on, the semaphore likewise */
    tdm_stage_queues stages;
    tdm_worker *worker;     /* NULL: all work so far went straight to the device */
    adapter_direct *direct; /* [n_direct] of which most have ended */
    int32_t n_direct;
};

#endif
