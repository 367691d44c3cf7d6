/* SPDX-License-Identifier: MIT
 *
 * fuse.h: several nodes in one kernel.
 *
 * A fusion is a row of a table (plugins/gpu/ops/fusions.c): a pattern over nodes, and an emitter
 * that is given all of them. It saves launches and barriers, and temporaries that no step writes
 * any more take no scratch. It never decides what a device supports: each op has its own emitter,
 * which is used where no fusion applies. A fused kernel gives what the unfused ones give, to the
 * bounds of op.h.
 */
#ifndef TANDEM_GPU_FUSE_H
#define TANDEM_GPU_FUSE_H

#include "core/base/view.h"
#include "plugins/gpu/plan/emit.h"

enum { GPU_FUSE_MAX = 48 }; /* nodes in a fusion */

/* Who writes and who reads the values of a graph. A view counts as the value whose memory it lies
 * in: "base" below. */
typedef struct gpu_uses {
    const tdm_graph *graph;
    const tdm_view_place *places; /* n_value */
    int32_t *writer;              /* n_value, by base: the node that writes it; -1 = none */
    int32_t *n_read;              /* n_value, by base: sources of nodes, without view nodes */
    int32_t *depth;               /* n_value, by base: nodes of the longest chain that ends with it,
                                     without view nodes; 0 = no node writes it */
} gpu_uses;

/* The node that writes the value itself, which is no view; -1 where there is none, or where its op
 * is not `op`. [any-thread] */
int32_t gpu_uses_writer(const gpu_uses *uses, int32_t value, tdm_op op);

/* True where one source of one node reads the value or its views and the caller of the plan does
 * not: a fusion with that node need not write it. [any-thread] */
bool gpu_uses_is_inner(const gpu_uses *uses, int32_t value);

/* The nodes of a fusion in the order that its emitter defines; the last of the graph among them is
 * where it is launched. */
typedef struct gpu_fused {
    int32_t node[GPU_FUSE_MAX];
    int32_t n;
} gpu_fused;

typedef struct gpu_fusion {
    const char *name;
    /* True where the node, the last of the pattern, ends one; sets *out. It reads ops and uses.
     * That nothing else touches the memory in between is checked by the planner. */
    bool (*match)(const gpu_uses *uses, int32_t node, gpu_fused *out);
    /* Appends the steps for out's nodes, in that order; behind the last, `node` of an entry is NULL.
     * TDM_UNSUPPORTED: the nodes are planned one by one. It is called twice, first without a plan. */
    tdm_status (*emit)(gpu_emit *nodes, tdm_error *err);
} gpu_fusion;

/* The table, in the order in which patterns are tried: a node that one row takes is not offered to
 * the next. [any-thread] */
const gpu_fusion *gpu_fusions(int32_t *n_out);

/* What is fused in a graph. */
typedef struct gpu_fuse_group {
    const gpu_fusion *fusion;
    gpu_fused nodes;
    int32_t last; /* the last node in the graph */
} gpu_fuse_group;

typedef struct gpu_fuse_plan {
    gpu_fuse_group *groups;
    int32_t *group_of; /* n_node: number of the node's group; -1 = it is planned by itself */
    int32_t n_group;
} gpu_fuse_plan;

/* Finds the groups. Without memory TDM_RESOURCE_EXHAUSTED, and nothing is held. Released with
 * gpu_fuse_plan_free. */
tdm_status gpu_fuse_find(const gpu_target *target, const tdm_graph *graph,
                         const tdm_view_place *places, gpu_fuse_plan *out, tdm_error *err);
void gpu_fuse_plan_free(gpu_fuse_plan *plan);

/* Fills and calls the emitter of a group; maker NULL: as supports_op. */
tdm_status gpu_fuse_emit(const gpu_target *target, const tdm_graph *graph,
                         const tdm_view_place *places, gpu_maker *maker,
                         const gpu_fuse_group *group, tdm_error *err);

#endif
