/* SPDX-License-Identifier: MIT
 *
 * adapter_plan.h: what adapter_plan.c makes of a graph and adapter_queue.c runs. Not for others.
 *
 * Where the device runs all of it, a plan is the device's own. Otherwise it is stages, each a graph
 * and plan of one side. A value that crosses between stages has a place on each side that touches
 * it, in memory of the plan's (the border), given for as many stages as it lives; a caller's inputs
 * and outputs keep their place on the device. Temporaries inside a stage of the device are where
 * the caller bound them, those of the fallback lie behind its border.
 */
#ifndef TANDEM_CORE_ADAPTER_PLAN_H
#define TANDEM_CORE_ADAPTER_PLAN_H

#include "core/stages/adapter_internal.h"

#define ADAPTER_NOWHERE UINT64_MAX

/* A weight of the device's that a node of the fallback reads: the copy that the fallback has. */
typedef struct adapter_weight_copy {
    int32_t slot;
    uint64_t off; /* in border[ADAPTER_FALLBACK] */
    uint64_t size;
    tdm_tensor_desc desc;
    uint64_t id, version, from; /* which bytes were copied; id 0 = none yet */
} adapter_weight_copy;

typedef struct adapter_stage {
    adapter_side side;
    const tdm_graph *graph;
    tdm_graph *own_graph;
    int32_t *slot_map; /* the stage's slot -> the whole graph's */
    tdm_device_plan *plan;
    tdm_binding *bindings; /* [graph->n_slot] filled in when it runs, but for the border's */
    bool *is_given;        /* [graph->n_slot] bound by the caller's binding */
    int32_t *copies_in;    /* slots brought from the other side before it runs */
    int32_t n_copy_in;
    int32_t *copies_out; /* outputs of the caller's that the fallback made, brought back after */
    int32_t n_copy_out;
} adapter_stage;

/* The handle of a plan. */
struct tdm_plan {
    tdm_device *device;
    const tdm_graph *graph;
    tdm_device_plan *whole; /* NULL: stages */
    tdm_binding *given;     /* [n_slot] of the computation under way, buffers of the borrower's */
    tdm_binding *bound;     /* [n_slot] the same in the device's own buffers */
    adapter_stage *stages;
    int32_t n_stage;
    tdm_mem border[ADAPTER_SIDE_COUNT_];
    uint64_t *border_off[ADAPTER_SIDE_COUNT_]; /* [n_slot] or ADAPTER_NOWHERE */
    uint64_t *slot_size;                       /* [n_slot] canonical bytes */
    adapter_weight_copy *weights;
    int32_t n_weight;
    void *staging;
    uint64_t staging_size;
    uint64_t crossing_size; /* bytes of all copies of one run, weights apart */
    tdm_queue *queue;       /* that runs it now */
    tdm_job job;
};

tdm_status adapter_plan_create(tdm_device *device, const tdm_graph *graph,
                               const tdm_plan_params *params, tdm_plan **plan_out, tdm_error *err);
void adapter_plan_destroy(tdm_plan *plan);
tdm_status adapter_plan_get_info(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err);
/* What the worker does for a submission. */
tdm_status adapter_plan_run(tdm_job *job, tdm_error *err);

#endif
