/* SPDX-License-Identifier: MIT
 *
 * fuse.h: several nodes in one kernel.
 *
 * A fusion is a row of a table (plugins/gpu/ops/fusions.c): a pattern of nodes, and an emitter that
 * appends the steps for all of them. It saves launches and barriers, and temporaries that no step
 * writes any more take no scratch. It never decides what a device supports: each op has its own
 * emitter, which is used where no fusion applies. Fused and unfused kernels give the same results
 * within the bounds of op.h.
 */
#ifndef TANDEM_GPU_FUSE_H
#define TANDEM_GPU_FUSE_H

#include "core/base/view.h"
#include "plugins/gpu/plan/emit.h"

enum { GPU_FUSE_MAX = 48 }; /* nodes in a fusion */

/* Which nodes write and read the values of a graph. The arrays are indexed by value. They describe
 * base values (tdm_view_place.base): reads of views are counted for their base, and views
 * themselves have writer -1 and n_read 0. View nodes are not counted. */
typedef struct gpu_uses {
    const tdm_graph *graph;
    const tdm_view_place *places; /* n_value */
    int32_t *writer;              /* n_value: the node that writes the value; -1 = none */
    int32_t *n_read;              /* n_value: sources of nodes that read the value or its views */
    int32_t *depth;               /* n_value: nodes of the longest chain that ends with the node
                                     that writes the value; 0 = no node writes it */
} gpu_uses;

/* The node that writes the value; -1 where there is none, where its op is not `op`, where the value
 * is a view, or is -1. [any-thread] */
int32_t gpu_uses_writer(const gpu_uses *uses, int32_t value, tdm_op op);

/* True where the value is a TEMP value or a view of one, and only one source of one node reads it
 * or its views: a fusion with that node need not write it. [any-thread] */
bool gpu_uses_is_inner(const gpu_uses *uses, int32_t value);

/* The nodes of a fusion, in the order that its emitter expects. Its steps run at the place of the
 * node that comes last in the graph. */
typedef struct gpu_fused {
    int32_t node[GPU_FUSE_MAX];
    int32_t n;
} gpu_fused;

typedef struct gpu_fusion {
    const char *name;
    /* True where a pattern ends with `node`; sets *out. It reads ops and uses alone: the planner
     * checks that no node in between depends on one of the pattern (may_wait in fuse.c), and the
     * emitter checks shapes. */
    bool (*match)(const gpu_uses *uses, int32_t node, gpu_fused *out);
    /* Appends the steps for the nodes of `out`, in its order; in the entry behind the last one
     * `node` is NULL. Any failure when it is called without a plan: the nodes are planned one by
     * one. Then it is called with a plan. */
    tdm_status (*emit)(gpu_emit *nodes, tdm_error *err);
} gpu_fusion;

/* The table, in the order in which patterns are tried: a node that belongs to a group of one row is
 * not tried with later rows. [any-thread] */
const gpu_fusion *gpu_fusions(int32_t *n_out);

/* Nodes of a graph that are fused. */
typedef struct gpu_fuse_group {
    const gpu_fusion *fusion;
    gpu_fused nodes;
    int32_t last; /* the node that comes last in the graph: the steps take its place */
} gpu_fuse_group;

typedef struct gpu_fuse_plan {
    gpu_fuse_group *groups;
    int32_t *group_of; /* n_node: number of the node's group; -1 = it is planned by itself */
    int32_t n_group;
} gpu_fuse_plan;

/* Finds the groups; none with target->is_unfused. places[n_value]: where the graph's values lie.
 * Without memory TDM_RESOURCE_EXHAUSTED, and nothing is held. Released with gpu_fuse_plan_free. */
tdm_status gpu_fuse_find(const gpu_target *target, const tdm_graph *graph,
                         const tdm_view_place *places, gpu_fuse_plan *out, tdm_error *err);
void gpu_fuse_plan_free(gpu_fuse_plan *plan);

/* Calls the emitter of a group with its filled nodes. maker NULL: steps are only checked. */
tdm_status gpu_fuse_emit(const gpu_target *target, const tdm_graph *graph,
                         const tdm_view_place *places, gpu_maker *maker,
                         const gpu_fuse_group *group, tdm_error *err);

#endif
