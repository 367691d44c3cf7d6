/* SPDX-License-Identifier: MIT
 *
 * adapter_plan.c: makes plans for an adapted device: finds the side of every node, and has the
 * graph cut where the side changes. adapter_queue.c runs plans.
 */
#include "core/stages/adapter_plan.h"

#include <stdlib.h>

#include "core/base/params.h"
#include "core/base/view.h"
#include "core/graph/builder.h"
#include "core/stages/refusal.h"

static tdm_status out_of_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plan: out of memory");
}

/* ---- Sides ---- */

/* The sides of a graph's nodes and weights. */
typedef struct sides {
    tdm_device *device;
    const tdm_graph *graph;
    tdm_view_place *places; /* [n_value] */
    int32_t *node;          /* [n_node] adapter_side */
    int32_t *slot;          /* [n_slot] adapter_side of a WEIGHT; -1 = not known */
} sides;

static tdm_status sides_begin(sides *s, tdm_error *err) {
    s->places = malloc(((size_t)s->graph->n_value + 1) * sizeof *s->places);
    s->node = malloc(((size_t)s->graph->n_node + 1) * sizeof *s->node);
    s->slot = malloc(((size_t)s->graph->n_slot + 1) * sizeof *s->slot);
    if (s->places == NULL || s->node == NULL || s->slot == NULL) return out_of_memory(err);
    tdm_view_resolve_all(s->graph, s->places);
    for (int32_t i = 0; i < s->graph->n_slot; i++) s->slot[i] = -1;
    return TDM_OK;
}

static void sides_end(sides *s) {
    free(s->places);
    free(s->node);
    free(s->slot);
}

static bool source_needs_fallback(sides *s, int32_t index, int32_t base) {
    const tdm_value *v = tdm_graph_value(s->graph, base);
    if (v->kind != TDM_VALUE_WEIGHT)
        return adapter_source_side(s->device, s->graph, index, base) == ADAPTER_FALLBACK;
    if (s->slot[v->slot] < 0)
        s->slot[v->slot] = (int32_t)adapter_source_side(s->device, s->graph, index, base);
    return s->slot[v->slot] == ADAPTER_FALLBACK;
}

static tdm_status node_side(sides *s, int32_t index, tdm_error *err) {
    const tdm_node *node = tdm_graph_node(s->graph, index);
    tdm_open_device *dev = s->device->main;
    adapter_needs needs = {0};
    adapter_side side = ADAPTER_MAIN;
    tdm_error why = {0};
    for (int32_t i = 0; i < node->n_src; i++) {
        if (node->src[i] < 0) continue;
        int32_t base = s->places[node->src[i]].base;
        adapter_needs_add(&needs, tdm_graph_value(s->graph, base)->kind,
                          source_needs_fallback(s, index, base));
    }
    tdm_status status = adapter_node_side(s->device, s->graph, index, &needs, &side, &why);
    if (status != TDM_OK)
        return tdm_fail(err, status, "device '%s': %s: %s", tdm_open_device_name(dev),
                        tdm_op_name(node->op), why.message);
    if (side == ADAPTER_FALLBACK)
        tdm_refusal_report(dev, s->device->rt->fallback, s->graph, node, why.message);
    s->node[index] = (int32_t)side;
    return TDM_OK;
}

/* A view moves no bytes and is where the node before it is; views in front of all other nodes are
 * where the first of those is. */
static tdm_status sides_find(sides *s, bool *is_whole, tdm_error *err) {
    tdm_status status = sides_begin(s, err);
    int32_t first = -1;
    for (int32_t i = 0; status == TDM_OK && i < s->graph->n_node; i++) {
        if (tdm_op_is_view(tdm_graph_node(s->graph, i)->op)) {
            s->node[i] = i > 0 ? s->node[i - 1] : ADAPTER_MAIN;
            continue;
        }
        status = node_side(s, i, err);
        if (first < 0) first = i;
    }
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < first; i++) s->node[i] = s->node[first];
    *is_whole = true;
    for (int32_t i = 0; i < s->graph->n_node; i++) *is_whole &= s->node[i] == ADAPTER_MAIN;
    for (int32_t i = 0; i < s->graph->n_slot; i++) *is_whole &= s->slot[i] != ADAPTER_FALLBACK;
    return TDM_OK;
}

/* ---- Stages ---- */

/* Memory of the stages on one side. */
static tdm_status side_allocate(tdm_plan *plan, tdm_open_device *dev, int32_t d, tdm_error *err) {
    const tdm_stages *st = &plan->stages;
    tdm_stage_memory *m = &plan->memory;
    tdm_status status = TDM_OK;
    if (st->need[d] > 0)
        status = tdm_mem_alloc(dev, st->need[d], TDM_BUFFER_COMPUTE, &m->mem[d], err);
    if (status == TDM_OK && st->need_in[d] > 0)
        status = tdm_mem_alloc(dev, st->need_in[d], TDM_BUFFER_INPUT, &m->in[d], err);
    if (status == TDM_OK && st->need_out[d] > 0)
        status = tdm_mem_alloc(dev, st->need_out[d], TDM_BUFFER_OUTPUT, &m->out[d], err);
    return status;
}

static uint64_t side_size(const tdm_plan *plan, int32_t d) {
    const tdm_stage_memory *m = &plan->memory;
    return m->mem[d].size + m->in[d].size + m->out[d].size;
}

static tdm_status stages_make(tdm_plan *plan, const sides *s, tdm_error *err) {
    tdm_device *device = plan->device;
    tdm_open_device *fallback = adapter_fallback(device, err);
    if (fallback == NULL) return TDM_UNAVAILABLE;
    tdm_device_info info, main;
    tdm_status status = tdm_open_device_get_info(fallback, &info, err);
    if (status == TDM_OK) status = tdm_open_device_get_info(device->main, &main, err);
    if (status != TDM_OK) return status;
    const tdm_stage_device devs[ADAPTER_SIDE_COUNT_] = {
        [ADAPTER_MAIN] = {.dev = device->main,
                          .align = device->align,
                          .separates_borders = tdm_stage_separates_borders(device->main, &main)},
        [ADAPTER_FALLBACK] = {.dev = fallback,
                              .align = device->align,
                              .places_temps = (info.flags & TDM_DEVICE_HOLDS_TEMPS) == 0},
    };
    tdm_stage_queues *queues = &plan->queue->stages;
    if (queues->queues[ADAPTER_FALLBACK] == NULL)
        status = tdm_queue_adapter_create(fallback, &queues->queues[ADAPTER_FALLBACK], err);
    if (status != TDM_OK) return status;
    const tdm_cut_params params = {.graph = plan->graph,
                                   .node_dev = s->node,
                                   .n_dev = ADAPTER_SIDE_COUNT_,
                                   .slot_dev = s->slot,
                                   .caller_dev = ADAPTER_MAIN};
    status = tdm_stages_create(&params, devs, &plan->stages, err);
    for (int32_t d = 0; d < ADAPTER_SIDE_COUNT_ && status == TDM_OK; d++)
        status = side_allocate(plan, devs[d].dev, d, err);
    if (status == TDM_OK)
        status = tdm_stage_memory_grow_staging(&plan->memory, plan->stages.staging_size, err);
    if (status == TDM_OK) status = tdm_stages_plan(&plan->stages, queues, err);
    if (status != TDM_OK) return status;
    plan->stamps = calloc((size_t)plan->stages.cut.n_weight + 1, sizeof *plan->stamps);
    if (plan->stamps == NULL) return out_of_memory(err);
    atomic_store(&device->is_staged, true);
    return TDM_OK;
}

/* Leaves out weights and caches that no node reads, or views alone, as a group's graph for a member
 * may have them: they may lie on the side that does not run the graph, and no plan can be bound to
 * them there. */
static tdm_status unread_drop(tdm_plan *plan, tdm_error *err) {
    const tdm_graph *graph = plan->graph;
    bool has_unread = false;
    tdm_status status = tdm_graph_find_unread(graph, &has_unread, err);
    if (status != TDM_OK || !has_unread) return status;
    plan->slot_map = malloc(((size_t)graph->n_slot + 1) * sizeof *plan->slot_map);
    if (plan->slot_map == NULL) return out_of_memory(err);
    status = tdm_graph_extract(graph, 0, graph->n_node, &plan->own_graph, plan->slot_map, err);
    if (status == TDM_OK) plan->graph = plan->own_graph;
    return status;
}

tdm_status adapter_plan_create(tdm_queue *queue, const tdm_graph *graph,
                               const tdm_plan_params *params, tdm_plan **plan_out, tdm_error *err) {
    tdm_device *device = queue->device;
    tdm_status status = tdm_plan_flags_check(tdm_open_device_name(device->main), params, err);
    if (status != TDM_OK) return status;
    tdm_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return out_of_memory(err);
    bool is_whole = false;
    plan->device = device;
    plan->queue = queue;
    plan->graph = graph;
    plan->n_given = graph->n_slot;
    plan->given = calloc((size_t)graph->n_slot + 1, sizeof *plan->given);
    plan->bound = calloc((size_t)graph->n_slot + 1, sizeof *plan->bound);
    if (plan->given == NULL || plan->bound == NULL) status = out_of_memory(err);
    if (status == TDM_OK) status = unread_drop(plan, err);
    sides s = {.device = device, .graph = plan->graph};
    if (status == TDM_OK) status = sides_find(&s, &is_whole, err);
    if (status == TDM_OK)
        status = is_whole ? tdm_device_plan_create(queue->stages.queues[ADAPTER_MAIN], plan->graph,
                                                   &plan->whole, err)
                          : stages_make(plan, &s, err);
    sides_end(&s);
    if (status != TDM_OK) {
        adapter_plan_destroy(plan);
        return status;
    }
    *plan_out = plan;
    return TDM_OK;
}

void adapter_plan_destroy(tdm_plan *plan) {
    if (plan == NULL) return;
    tdm_device_plan_destroy(plan->whole);
    tdm_stages_free(&plan->stages);
    tdm_stage_memory_free(&plan->memory);
    free(plan->stamps);
    free(plan->given);
    free(plan->bound);
    free(plan->slot_map);
    tdm_graph_free(plan->own_graph);
    free(plan);
}

tdm_status adapter_plan_get_info(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err) {
    tdm_plan_info sum = {0}, fallback = {0};
    tdm_status status = plan->whole != NULL
                            ? tdm_device_plan_get_info(plan->whole, &sum, err)
                            : tdm_stages_add_plan_info(&plan->stages, ADAPTER_MAIN, &sum, err);
    if (status == TDM_OK)
        status = tdm_stages_add_plan_info(&plan->stages, ADAPTER_FALLBACK, &fallback, err);
    if (status != TDM_OK) return status;
    sum.device_size += side_size(plan, ADAPTER_MAIN);
    sum.host_size += fallback.host_size + fallback.device_size + fallback.scratch_size +
                     side_size(plan, ADAPTER_FALLBACK) + plan->memory.staging_size;
    sum.crossing_size += fallback.crossing_size + plan->stages.cut.copied_size;
    tdm_struct_write(info_out, &sum, sizeof sum);
    return TDM_OK;
}
