/* SPDX-License-Identifier: MIT
 *
 * plan.c: makes a plan: resolves the values of each node and calls its emitter.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/layout/weight.h"
#include "plugins/gpu/plan/fuse.h"
#include "plugins/gpu/plan/maker.h"

/* ---- The lists of a plan that is being made -------------------------------------------------- */

/* Room for one more element in an array that grows by doubling. */
static bool room_make(gpu_maker *maker, void **array, int32_t *room, int32_t n, size_t size) {
    if (n < *room) return true;
    int32_t more = *room == 0 ? 64 : *room * 2;
    void *grown = realloc(*array, (size_t)more * size);
    if (grown == NULL) {
        maker->is_out_of_memory = true;
        return false;
    }
    *array = grown;
    *room = more;
    return true;
}

bool gpu_maker_step(gpu_maker *maker, const gpu_step *step) {
    gpu_plan *plan = maker->plan;
    if (!room_make(maker, (void **)&plan->steps, &maker->step_room, plan->n_step, sizeof *step))
        return false;
    plan->steps[plan->n_step] = *step;
    plan->steps[plan->n_step].order = plan->n_step;
    plan->n_step++;
    return true;
}

int32_t gpu_maker_area(gpu_maker *maker, uint64_t size) {
    if (!room_make(maker, (void **)&maker->areas, &maker->area_room, maker->n_area,
                   sizeof *maker->areas))
        return -1;
    maker->areas[maker->n_area] = (gpu_area){.size = size, .last_round = -1};
    return maker->n_area++;
}

void gpu_maker_form(gpu_maker *maker, const gpu_made_form *form) {
    if (room_make(maker, (void **)&maker->forms, &maker->form_room, maker->n_form,
                  sizeof *maker->forms))
        maker->forms[maker->n_form++] = *form;
}

/* The constants are searched for the bytes at each multiple of the alignment: plans have a few
 * constants of a few kilobytes. */
uint64_t gpu_maker_constant(gpu_maker *maker, const void *bytes, uint64_t size) {
    enum { ALIGN = 16 };
    gpu_plan *plan = maker->plan;
    for (uint64_t at = 0; at + size <= plan->constants_size; at += ALIGN)
        if (memcmp(plan->constants + at, bytes, size) == 0) return at;
    uint64_t off = (plan->constants_size + ALIGN - 1) / ALIGN * ALIGN;
    if (off + size > maker->constant_room) {
        uint64_t room = 2 * (off + size);
        uint8_t *grown = realloc(plan->constants, room);
        if (grown == NULL) {
            maker->is_out_of_memory = true;
            return 0;
        }
        memset(grown + maker->constant_room, 0, room - maker->constant_room);
        plan->constants = grown;
        maker->constant_room = room;
    }
    memcpy(plan->constants + off, bytes, size);
    plan->constants_size = off + size;
    return off;
}

/* ---- Values ---------------------------------------------------------------------------------- */

/* Bytes of a base value's memory. */
static tdm_status value_size(const tdm_value *v, uint64_t *size_out, tdm_error *err) {
    if (v->kind == TDM_VALUE_WEIGHT && v->usage != 0)
        return gpu_weight_size((tdm_type)v->type, v->ne, v->usage, size_out, err);
    *size_out = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
    return TDM_OK;
}

/* Bytes from the first element of a view to the end of its last. */
static uint64_t view_extent(const gpu_value *v) {
    tdm_type_info info = tdm_type_get_info(v->type);
    int64_t end = info.block_size;
    for (int i = 0; i < TDM_MAX_DIMS; i++) {
        int64_t n = i == 0 ? v->ne[0] / info.block_len : v->ne[i];
        if (n == 0) return 0;
        end += (n - 1) * v->nb[i];
    }
    return (uint64_t)end;
}

static tdm_status value_fill(gpu_emit *e, const tdm_view_place *place, int32_t index,
                             gpu_value *out, tdm_error *err) {
    *out = (gpu_value){0};
    if (index < 0) return TDM_OK;
    const tdm_value *v = tdm_graph_value(e->graph, index);
    const tdm_value *base = tdm_graph_value(e->graph, place->base);
    gpu_maker *maker = e->maker;
    out->is_present = true;
    out->type = (tdm_type)v->type;
    out->usage = v->kind == TDM_VALUE_WEIGHT ? v->usage : 0;
    out->is_private = out->usage != 0;
    memcpy(out->ne, v->ne, sizeof out->ne);
    memcpy(out->nb, place->nb, sizeof out->nb);
    out->place =
        (gpu_operand){.space = GPU_SPACE_SLOT, .index = base->slot, .off = (uint64_t)place->off};
    uint64_t whole;
    tdm_status status = value_size(base, &whole, err);
    if (status != TDM_OK) return status;
    out->place.size = out->is_private || v->kind == TDM_VALUE_STATE ? whole : view_extent(out);
    if (maker == NULL) return TDM_OK;
    if (base->kind != TDM_VALUE_TEMP) {
        maker->plan->slot_sizes[base->slot] = whole;
        return TDM_OK;
    }
    if (maker->area_of_slot[base->slot] < 0)
        maker->area_of_slot[base->slot] = gpu_maker_area(maker, whole);
    out->place.space = GPU_SPACE_AREA;
    out->place.index = maker->area_of_slot[base->slot];
    return TDM_OK;
}

/* Where value `index` of a graph lies: from `places` or, where that is NULL, derived. */
static tdm_view_place place_get(const tdm_graph *graph, const tdm_view_place *places,
                                int32_t index) {
    tdm_view_place place = {0};
    if (index < 0) return place;
    if (places != NULL) return places[index];
    tdm_view_resolve(graph, index, &place);
    return place;
}

tdm_status gpu_node_fill(gpu_emit *e, const tdm_view_place *places, tdm_error *err) {
    const tdm_node *node = e->node;
    tdm_status status = TDM_OK;
    for (int i = 0; i < node->n_src && status == TDM_OK; i++) {
        tdm_view_place place = place_get(e->graph, places, node->src[i]);
        status = value_fill(e, &place, node->src[i], &e->src[i], err);
    }
    for (int i = 0; i < node->n_dst && status == TDM_OK; i++) {
        tdm_view_place place = place_get(e->graph, places, node->dst[i]);
        status = value_fill(e, &place, node->dst[i], &e->dst[i], err);
    }
    return status;
}

static tdm_status node_emit(gpu_emit *e, const tdm_view_place *places, tdm_error *err) {
    gpu_emit_fn emit = gpu_op_emitter(e->node->op);
    if (emit == NULL) return gpu_refuse(e, err, "there is no kernel for this op");
    tdm_status status = gpu_node_fill(e, places, err);
    return status != TDM_OK ? status : emit(e, err);
}

tdm_status gpu_plan_supports(const gpu_target *target, const tdm_graph *graph, int32_t node,
                             tdm_error *err) {
    gpu_emit e = {
        .target = target, .graph = graph, .node = tdm_graph_node(graph, node), .index = node};
    return tdm_op_is_view(e.node->op) ? TDM_OK : node_emit(&e, NULL, err);
}

/* ---- Making ---------------------------------------------------------------------------------- */

static tdm_status nodes_emit(gpu_maker *maker, const gpu_target *target, const tdm_graph *graph,
                             tdm_error *err) {
    gpu_fuse_plan fused;
    tdm_status status = gpu_fuse_find(target, graph, maker->places, &fused, err);
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < graph->n_node && status == TDM_OK; i++) {
        gpu_emit e = {.target = target,
                      .graph = graph,
                      .node = tdm_graph_node(graph, i),
                      .index = i,
                      .maker = maker};
        const gpu_fuse_group *group =
            fused.group_of[i] < 0 ? NULL : &fused.groups[fused.group_of[i]];
        if (tdm_op_is_view(e.node->op) || (group != NULL && group->last != i)) continue;
        status = group != NULL ? gpu_fuse_emit(target, graph, maker->places, maker, group, err)
                               : node_emit(&e, maker->places, err);
    }
    gpu_fuse_plan_free(&fused);
    return status;
}

static void steps_arrange(gpu_maker *maker) {
    int32_t *round_of = calloc((size_t)maker->plan->n_step + 1, sizeof *round_of);
    if (round_of == NULL || !gpu_maker_order(maker, round_of) ||
        !gpu_maker_lay_out(maker, round_of))
        maker->is_out_of_memory = true;
    free(round_of);
}

static void maker_free(gpu_maker *maker) {
    free(maker->areas);
    free(maker->forms);
    free(maker->area_of_slot);
    free(maker->places);
}

tdm_status gpu_plan_create(const gpu_target *target, const tdm_graph *graph, gpu_plan **plan_out,
                           tdm_error *err) {
    size_t n_slot = (size_t)graph->n_slot;
    gpu_maker maker = {.plan = calloc(1, sizeof(gpu_plan))};
    tdm_status status = TDM_OK;
    maker.places = calloc((size_t)graph->n_value + 1, sizeof *maker.places);
    maker.area_of_slot = malloc((n_slot + 1) * sizeof *maker.area_of_slot);
    if (maker.plan != NULL) maker.plan->slot_sizes = calloc(n_slot + 1, sizeof(uint64_t));
    maker.is_out_of_memory = maker.plan == NULL || maker.places == NULL ||
                             maker.area_of_slot == NULL || maker.plan->slot_sizes == NULL;
    if (!maker.is_out_of_memory) {
        maker.plan->n_slot = graph->n_slot;
        for (size_t i = 0; i < n_slot; i++) maker.area_of_slot[i] = -1;
        tdm_view_resolve_all(graph, maker.places);
        status = nodes_emit(&maker, target, graph, err);
        if (status == TDM_OK && !maker.is_out_of_memory) steps_arrange(&maker);
    }
    if (status == TDM_OK && maker.is_out_of_memory)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan of %d nodes",
                          target->name, (int)graph->n_node);
    maker_free(&maker);
    if (status == TDM_OK)
        *plan_out = maker.plan;
    else
        gpu_plan_destroy(maker.plan);
    return status;
}

void gpu_plan_destroy(gpu_plan *plan) {
    if (plan == NULL) return;
    free(plan->steps);
    free(plan->slot_sizes);
    free(plan->constants);
    free(plan);
}
