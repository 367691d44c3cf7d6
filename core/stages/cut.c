/* SPDX-License-Identifier: MIT
 *
 * cut.c: see cut.h.
 */
#include "core/stages/cut.h"

#include <stdlib.h>
#include <string.h>

#include "core/graph/builder.h"
#include "core/graph/graph_arrays.h"

static tdm_status out_of_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "stages: out of memory");
}

/* ---- Which nodes ---- */

/* Whether the value is a WEIGHT that lives on another device than the stage's. */
static bool is_foreign(const int32_t *slot_dev, int32_t slot, const tdm_value *v, int32_t dev) {
    return slot_dev != NULL && v->kind == TDM_VALUE_WEIGHT && slot >= 0 && slot_dev[slot] >= 0 &&
           slot_dev[slot] != dev;
}

static tdm_status stage_make(tdm_cut *cut, tdm_stage *st, const int32_t *slot_dev, int32_t first,
                             int32_t count, tdm_error *err) {
    const tdm_graph *graph = cut->graph;
    size_t n_slot = (size_t)graph->n_slot + 1;
    st->slot_map = malloc(n_slot * sizeof *st->slot_map);
    st->copies = malloc(n_slot * sizeof *st->copies);
    if (st->slot_map == NULL || st->copies == NULL) return out_of_memory(err);
    tdm_status status = TDM_OK;
    bool is_part = count != graph->n_node;
    if (!is_part) status = tdm_graph_find_unread(graph, &is_part, err);
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < graph->n_value && !is_part; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        is_part = is_foreign(slot_dev, v->slot, v, st->dev);
    }
    if (!is_part) {
        st->graph = graph;
        for (int32_t i = 0; i < graph->n_slot; i++) st->slot_map[i] = i;
        return TDM_OK;
    }
    status = tdm_graph_extract(graph, first, count, &st->own_graph, st->slot_map, err);
    st->graph = st->own_graph;
    return status;
}

static tdm_status stages_make(tdm_cut *cut, const int32_t *node_dev, const int32_t *slot_dev,
                              tdm_error *err) {
    const int32_t n_node = cut->graph->n_node;
    int32_t n_stage = 0;
    for (int32_t i = 0; i < n_node; i++) n_stage += i == 0 || node_dev[i] != node_dev[i - 1];
    cut->stages = calloc((size_t)n_stage + 1, sizeof *cut->stages);
    if (cut->stages == NULL) return out_of_memory(err);
    tdm_status status = TDM_OK;
    for (int32_t i = 0, end; i < n_node && status == TDM_OK; i = end) {
        for (end = i; end < n_node && node_dev[end] == node_dev[i];) end++;
        tdm_stage *st = &cut->stages[cut->n_stage++];
        st->dev = node_dev[i];
        status = stage_make(cut, st, slot_dev, i, end - i, err);
    }
    return status;
}

/* ---- What crosses ---- */

static bool is_crossing(const tdm_value *v) {
    return v->slot >= 0 && (v->kind == TDM_VALUE_INPUT || v->kind == TDM_VALUE_OUTPUT);
}

static tdm_status slots_make(tdm_cut *cut, tdm_error *err) {
    cut->slots = calloc((size_t)cut->graph->n_slot + 1, sizeof *cut->slots);
    if (cut->slots == NULL) return out_of_memory(err);
    for (int32_t i = 0; i < cut->graph->n_slot; i++) cut->slots[i].first = cut->slots[i].home = -1;
    for (int32_t i = 0; i < cut->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(cut->graph, i);
        if (v->slot < 0) continue;
        cut->slots[v->slot].value = i;
        cut->slots[v->slot].size = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
    }
    return TDM_OK;
}

/* A value needs its memory on every device from the first stage that touches it to the last, since
 * a later stage may copy it from the device that made it. Without memory of the caller's, an INPUT
 * is written before all stages, and an OUTPUT is read after them. */
static void lives_find(tdm_cut *cut, int32_t caller_dev) {
    for (int32_t s = 0; s < cut->n_stage; s++) {
        const tdm_stage *st = &cut->stages[s];
        for (int32_t i = 0; i < st->graph->n_value; i++) {
            const tdm_value *v = tdm_graph_value(st->graph, i);
            if (!is_crossing(v)) continue;
            tdm_cut_slot *slot = &cut->slots[st->slot_map[v->slot]];
            const tdm_value *whole = tdm_graph_value(cut->graph, slot->value);
            if (slot->first < 0) slot->first = s;
            slot->last = s;
            if (v->kind == TDM_VALUE_OUTPUT) slot->home = st->dev;
            if (st->dev != caller_dev || !is_crossing(whole)) slot->devs |= 1u << st->dev;
        }
    }
    for (int32_t i = 0; i < cut->graph->n_slot && caller_dev < 0; i++) {
        tdm_cut_slot *slot = &cut->slots[i];
        int32_t kind = tdm_graph_value(cut->graph, slot->value)->kind;
        if (slot->first < 0) continue;
        if (kind == TDM_VALUE_INPUT) slot->first = 0;
        if (kind == TDM_VALUE_OUTPUT) slot->last = cut->n_stage - 1;
    }
}

static void copy_count(tdm_cut *cut, int32_t slot) {
    uint64_t size = cut->slots[slot].size;
    cut->copied_size += size;
    if (cut->max_copy < size) cut->max_copy = size;
}

/* The copies of one stage; held[slot] has a bit for each device that has the value's bytes. */
static void stage_copies_find(tdm_cut *cut, tdm_stage *st, int32_t caller_dev, uint32_t *held) {
    for (int32_t i = 0; i < st->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(st->graph, i);
        if (!is_crossing(v) || v->kind != TDM_VALUE_INPUT) continue;
        int32_t slot = st->slot_map[v->slot], home = cut->slots[slot].home;
        if ((held[slot] & 1u << st->dev) != 0) continue;
        held[slot] |= 1u << st->dev;
        st->copies[st->n_before++] = (tdm_stage_copy){slot, home >= 0 ? home : caller_dev, st->dev};
        copy_count(cut, slot);
    }
    for (int32_t i = 0; i < st->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(st->graph, i);
        if (!is_crossing(v) || v->kind != TDM_VALUE_OUTPUT) continue;
        int32_t slot = st->slot_map[v->slot];
        held[slot] = 1u << st->dev;
        if (caller_dev < 0 || caller_dev == st->dev ||
            tdm_graph_value(cut->graph, cut->slots[slot].value)->kind != TDM_VALUE_OUTPUT)
            continue;
        held[slot] |= 1u << caller_dev;
        st->copies[st->n_before + st->n_after++] = (tdm_stage_copy){slot, st->dev, caller_dev};
        copy_count(cut, slot);
    }
}

static tdm_status copies_find(tdm_cut *cut, int32_t caller_dev, tdm_error *err) {
    uint32_t *held = calloc((size_t)cut->graph->n_slot + 1, sizeof *held);
    if (held == NULL) return out_of_memory(err);
    for (int32_t i = 0; i < cut->graph->n_slot; i++)
        if (tdm_graph_value(cut->graph, cut->slots[i].value)->kind == TDM_VALUE_INPUT)
            held[i] = caller_dev >= 0 ? 1u << caller_dev : UINT32_MAX;
    for (int32_t s = 0; s < cut->n_stage; s++)
        stage_copies_find(cut, &cut->stages[s], caller_dev, held);
    free(held);
    return TDM_OK;
}

static bool has_weight(const tdm_cut *cut, int32_t slot, int32_t dev) {
    for (int32_t i = 0; i < cut->n_weight; i++)
        if (cut->weights[i].slot == slot && cut->weights[i].to == dev) return true;
    return false;
}

/* The copies of weights. A plain one becomes an INPUT of the stage, which any memory may hold: a
 * group has memory for a WEIGHT only where it was allocated with it. */
static tdm_status weights_find(tdm_cut *cut, const int32_t *slot_dev, int32_t n_dev,
                               tdm_error *err) {
    size_t n = (size_t)cut->graph->n_slot * (size_t)n_dev + 1;
    if (slot_dev == NULL) return TDM_OK;
    cut->weights = malloc(n * sizeof *cut->weights);
    if (cut->weights == NULL) return out_of_memory(err);
    for (int32_t s = 0; s < cut->n_stage; s++) {
        const tdm_stage *st = &cut->stages[s];
        bool is_changed = false;
        for (int32_t i = 0; st->own_graph != NULL && i < st->own_graph->n_value; i++) {
            tdm_value *v = tdm_graph_own_value(st->own_graph, i);
            int32_t slot = v->slot < 0 ? -1 : st->slot_map[v->slot];
            if (!is_foreign(slot_dev, slot, v, st->dev)) continue;
            if (!has_weight(cut, slot, st->dev))
                cut->weights[cut->n_weight++] = (tdm_stage_copy){slot, slot_dev[slot], st->dev};
            if (v->usage != 0) continue;
            v->kind = TDM_VALUE_INPUT;
            v->partition = v->axis = 0;
            is_changed = true;
        }
        if (is_changed) st->own_graph->hash = tdm_graph_hash(st->own_graph);
    }
    return TDM_OK;
}

/* ---- The whole ---- */

tdm_status tdm_cut_make(const tdm_cut_params *params, tdm_cut *cut_out, tdm_error *err) {
    tdm_cut cut = {.graph = params->graph};
    tdm_status status = slots_make(&cut, err);
    if (status == TDM_OK) status = stages_make(&cut, params->node_dev, params->slot_dev, err);
    if (status == TDM_OK) {
        lives_find(&cut, params->caller_dev);
        status = copies_find(&cut, params->caller_dev, err);
    }
    if (status == TDM_OK) status = weights_find(&cut, params->slot_dev, params->n_dev, err);
    if (status != TDM_OK) {
        tdm_cut_free(&cut);
        return status;
    }
    *cut_out = cut;
    return TDM_OK;
}

void tdm_cut_free(tdm_cut *cut) {
    for (int32_t s = 0; s < cut->n_stage; s++) {
        tdm_graph_free(cut->stages[s].own_graph);
        free(cut->stages[s].slot_map);
        free(cut->stages[s].copies);
    }
    free(cut->stages);
    free(cut->slots);
    free(cut->weights);
    memset(cut, 0, sizeof *cut);
}

const char *tdm_cut_slot_name(const tdm_cut *cut, int32_t slot) {
    return tdm_graph_value_name(cut->graph, cut->slots[slot].value);
}

tdm_tensor_desc tdm_weight_desc(const tdm_value *value) {
    tdm_tensor_desc desc = {
        .struct_size = sizeof desc, .type = (tdm_type)value->type, .usage = value->usage};
    memcpy(desc.ne, value->ne, sizeof desc.ne);
    return desc;
}
