/* SPDX-License-Identifier: MIT
 *
 * fuse.c: finds the nodes that a plan fuses: matches of the table's patterns whose nodes may all
 * run at the place of their last node.
 */
#include "plugins/gpu/plan/fuse.h"

#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/plan/maker.h"

/* ---- Uses ------------------------------------------------------------------------------------ */

static bool uses_make(const tdm_graph *graph, const tdm_view_place *places, gpu_uses *out) {
    size_t n = (size_t)graph->n_value + 1;
    *out = (gpu_uses){.graph = graph,
                      .places = places,
                      .writer = malloc(n * sizeof *out->writer),
                      .n_read = malloc(n * sizeof *out->n_read),
                      .depth = calloc(n, sizeof *out->depth)};
    if (out->writer == NULL || out->n_read == NULL || out->depth == NULL) return false;
    tdm_view_uses(graph, places, out->writer, out->n_read);
    for (int32_t i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        int32_t depth = 0;
        if (tdm_op_is_view(node->op)) continue;
        for (int k = 0; k < node->n_src; k++) {
            const int32_t base = node->src[k] < 0 ? -1 : places[node->src[k]].base;
            if (base >= 0 && out->depth[base] > depth) depth = out->depth[base];
        }
        for (int k = 0; k < node->n_dst; k++)
            if (node->dst[k] >= 0) out->depth[node->dst[k]] = depth + 1;
    }
    return true;
}

static void uses_free(gpu_uses *uses) {
    free(uses->writer);
    free(uses->n_read);
    free(uses->depth);
}

int32_t gpu_uses_writer(const gpu_uses *uses, int32_t value, tdm_op op) {
    int32_t node = value < 0 ? -1 : uses->writer[value];
    return node < 0 || tdm_graph_node(uses->graph, node)->op != (int32_t)op ? -1 : node;
}

bool gpu_uses_is_inner(const gpu_uses *uses, int32_t value) {
    if (value < 0) return false;
    int32_t base = uses->places[value].base;
    return tdm_graph_value(uses->graph, base)->kind == TDM_VALUE_TEMP && uses->n_read[base] == 1;
}

/* ---- Nodes in between ------------------------------------------------------------------------ */

static bool has_node(const gpu_fused *fused, int32_t node) {
    for (int32_t i = 0; i < fused->n; i++)
        if (fused->node[i] == node) return true;
    return false;
}

/* True where `node` must run after `before`, an earlier node of the group: it reads a value that
 * `before` writes, or both touch the same STATE. */
static bool depends_on(const gpu_uses *uses, const tdm_node *node, const tdm_node *before) {
    for (int k = 0; k < node->n_src; k++) {
        if (node->src[k] < 0) continue;
        int32_t base = uses->places[node->src[k]].base;
        for (int i = 0; i < before->n_dst; i++)
            if (before->dst[i] == base) return true;
        for (int i = 0; i < before->n_src; i++)
            if (before->src[i] == base &&
                tdm_graph_value(uses->graph, base)->kind == TDM_VALUE_STATE)
                return true;
    }
    return false;
}

/* All nodes of a group run at the place of its last one. False where a node in between depends on
 * one of them, for which that is too late. */
static bool may_wait(const gpu_uses *uses, const gpu_fused *fused, int32_t last) {
    for (int32_t i = 0; i < fused->n; i++) {
        const tdm_node *before = tdm_graph_node(uses->graph, fused->node[i]);
        for (int32_t m = fused->node[i] + 1; m < last; m++) {
            const tdm_node *node = tdm_graph_node(uses->graph, m);
            if (!tdm_op_is_view(node->op) && !has_node(fused, m) && depends_on(uses, node, before))
                return false;
        }
    }
    return true;
}

/* ---- Groups ---------------------------------------------------------------------------------- */

tdm_status gpu_fuse_emit(const gpu_target *target, const tdm_graph *graph,
                         const tdm_view_place *places, gpu_maker *maker,
                         const gpu_fuse_group *group, tdm_error *err) {
    gpu_emit nodes[GPU_FUSE_MAX + 1];
    nodes[group->nodes.n].node = NULL;
    for (int32_t i = 0; i < group->nodes.n; i++) {
        int32_t index = group->nodes.node[i];
        nodes[i] = (gpu_emit){.target = target,
                              .graph = graph,
                              .node = tdm_graph_node(graph, index),
                              .index = index,
                              .maker = maker};
        tdm_status status = gpu_node_fill(&nodes[i], places, err);
        if (status != TDM_OK) return status;
    }
    return group->fusion->emit(nodes, err);
}

static bool is_free(const gpu_fuse_plan *plan, const gpu_fused *fused) {
    for (int32_t i = 0; i < fused->n; i++)
        if (plan->group_of[fused->node[i]] >= 0) return false;
    return true;
}

static void group_try(const gpu_target *target, const gpu_uses *uses, const gpu_fusion *fusion,
                      int32_t node, gpu_fuse_plan *plan) {
    gpu_fuse_group group = {.fusion = fusion, .last = node};
    if (!fusion->match(uses, node, &group.nodes) || !is_free(plan, &group.nodes) ||
        !may_wait(uses, &group.nodes, node) ||
        gpu_fuse_emit(target, uses->graph, uses->places, NULL, &group, NULL) != TDM_OK)
        return;
    for (int32_t i = 0; i < group.nodes.n; i++) plan->group_of[group.nodes.node[i]] = plan->n_group;
    plan->groups[plan->n_group++] = group;
}

tdm_status gpu_fuse_find(const gpu_target *target, const tdm_graph *graph,
                         const tdm_view_place *places, gpu_fuse_plan *out, tdm_error *err) {
    size_t n = (size_t)graph->n_node + 1;
    int32_t n_fusion = 0;
    const gpu_fusion *fusions = gpu_fusions(&n_fusion);
    gpu_uses uses = {0};
    *out = (gpu_fuse_plan){.groups = malloc(n * sizeof *out->groups),
                           .group_of = malloc(n * sizeof *out->group_of)};
    if (out->groups == NULL || out->group_of == NULL || !uses_make(graph, places, &uses)) {
        uses_free(&uses);
        gpu_fuse_plan_free(out);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan of %d nodes",
                        target->name, (int)graph->n_node);
    }
    for (int32_t i = 0; i < graph->n_node; i++) out->group_of[i] = -1;
    for (int32_t f = 0; f < n_fusion && !target->is_unfused; f++)
        for (int32_t i = 0; i < graph->n_node; i++)
            if (out->group_of[i] < 0) group_try(target, &uses, &fusions[f], i, out);
    uses_free(&uses);
    return TDM_OK;
}

void gpu_fuse_plan_free(gpu_fuse_plan *plan) {
    free(plan->groups);
    free(plan->group_of);
    *plan = (gpu_fuse_plan){0};
}
