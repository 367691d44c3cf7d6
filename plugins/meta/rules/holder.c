/* SPDX-License-Identifier: MIT
 *
 * holder.c: nodes that one member computes alone. With split = layer one member holds all weights
 * and caches of a layer. It computes the whole layer from values that it holds alone, so nothing
 * is exchanged inside a layer. A value is sent once, when a layer of another member reads it.
 *
 * This file decides which member computes a node and emits it there. Nodes without a holder are
 * compiled by the rules.
 */
#include <string.h>

#include "plugins/meta/rules/compile.h"

#include "plugins/meta/layout/partition.h"

enum { NONE = -1, SEVERAL = -2 };

static int32_t holders_join(int32_t a, int32_t b) {
    return a == NONE || a == b ? b : b == NONE ? a : SEVERAL;
}

/* The member that holds all of a weight or STATE. NONE: a value without a partition, which every
 * member holds. SEVERAL: no member holds all, or a STATE that every member holds. */
static int32_t value_holder(const meta_compiler *c, int32_t v) {
    const tdm_value *value = meta_value(c, v);
    const meta_assignment *assigned = NULL;
    if (value->partition == 0) return value->kind == TDM_VALUE_STATE ? SEVERAL : NONE;
    if (value->kind == TDM_VALUE_STATE && c->plan->rewrites_step) return SEVERAL;
    if (meta_partition_find(c->device, tdm_graph_partition(c->graph, value->partition), &assigned,
                            NULL) != TDM_OK)
        return SEVERAL;
    for (int32_t d = 0; d < c->n_member; d++)
        if (assigned->hi[d] - assigned->lo[d] == (int64_t)assigned->n_unit * assigned->n_sub)
            return d;
    return SEVERAL;
}

/* The member that holds all weights and caches of a node. SEVERAL also for a node with an empty
 * value: no member holds more of that than another. */
static int32_t node_own_holder(const meta_compiler *c, const tdm_node *node) {
    int32_t own = NONE;
    for (int32_t i = 0; i < node->n_src; i++) {
        if (node->src[i] < 0) continue;
        const tdm_value *v = meta_value(c, node->src[i]);
        if (v->kind == TDM_VALUE_WEIGHT || v->kind == TDM_VALUE_STATE)
            own = holders_join(own, value_holder(c, node->src[i]));
        if (tdm_shape_count(v->ne) == 0) return SEVERAL;
    }
    for (int32_t i = 0; i < node->n_dst; i++)
        if (node->dst[i] >= 0 && tdm_shape_count(meta_value(c, node->dst[i])->ne) == 0)
            return SEVERAL;
    return own;
}

/* Whether one source of a node has a holder, and no more than one. */
static bool has_one_held_source(const tdm_node *node, const int32_t *producer,
                                const int32_t *holders) {
    int32_t n = 0;
    for (int32_t i = 0; i < node->n_src; i++) {
        int32_t from = node->src[i] >= 0 ? producer[node->src[i]] : -1;
        n += from >= 0 && holders[from] >= 0;
    }
    return n == 1;
}

/* The holder of the source that is computed last. Of a sum at the beginning of a layer that is the
 * layer's own addend. */
static int32_t last_holder(const tdm_node *node, const int32_t *producer, const int32_t *holders) {
    int32_t last = -1;
    for (int32_t i = 0; i < node->n_src; i++)
        if (node->src[i] >= 0 && producer[node->src[i]] > last) last = producer[node->src[i]];
    return last >= 0 ? holders[last] : NONE;
}

/* Sets c->holders. A node without weights or caches of its own follows the source that is computed
 * last. A node with one held source, such as a norm, goes instead to the holder that all readers of
 * its results agree on: to send its source costs one exchange, as to send its result does, and the
 * same layer often reads the source too. wanted[n_value] is working memory. */
static void holders_set(meta_compiler *c, const int32_t *own, const int32_t *producer,
                        int32_t *wanted) {
    const tdm_graph *graph = c->graph;
    for (int32_t n = 0; n < graph->n_node; n++)
        c->holders[n] =
            own[n] != NONE ? own[n] : last_holder(tdm_graph_node(graph, n), producer, c->holders);
    for (int32_t i = 0; i < graph->n_value; i++) wanted[i] = NONE;
    for (int32_t n = graph->n_node - 1; n >= 0; n--) {
        const tdm_node *node = tdm_graph_node(graph, n);
        int32_t readers = NONE;
        for (int32_t i = 0; i < node->n_dst; i++)
            if (node->dst[i] >= 0) readers = holders_join(readers, wanted[node->dst[i]]);
        if (own[n] == NONE && readers >= 0 && has_one_held_source(node, producer, c->holders))
            c->holders[n] = readers;
        int32_t holder = c->holders[n] >= 0 ? c->holders[n] : SEVERAL;
        for (int32_t i = 0; i < node->n_src; i++)
            if (node->src[i] >= 0)
                wanted[node->src[i]] = holders_join(wanted[node->src[i]], holder);
    }
}

bool meta_holders_find(meta_compiler *c) {
    const tdm_graph *graph = c->graph;
    size_t n_value = (size_t)graph->n_value, n_node = (size_t)graph->n_node;
    if (c->device->options.split != META_SPLIT_LAYER || c->device->n_active < 2) return true;
    size_t size = (2 * n_value + n_node + 1) * sizeof(int32_t);
    int32_t *block = meta_alloc(c->device->host, size);
    c->holders = meta_alloc(c->device->host, (n_node + 1) * sizeof *c->holders);
    if (block == NULL || c->holders == NULL) {
        meta_free(c->device->host, block, size);
        return meta_out_of_memory(c);
    }
    int32_t *producer = block, *wanted = producer + n_value, *own = wanted + n_value;
    for (size_t i = 0; i < n_value; i++) producer[i] = -1;
    for (int32_t n = 0; n < graph->n_node; n++) {
        const tdm_node *node = tdm_graph_node(graph, n);
        own[n] = node_own_holder(c, node);
        for (int32_t i = 0; i < node->n_dst; i++)
            if (node->dst[i] >= 0) producer[node->dst[i]] = n;
    }
    holders_set(c, own, producer, wanted);
    meta_free(c->device->host, block, size);
    return true;
}

/* The layout of a value of which one member holds everything. */
static int32_t alone_id(meta_compiler *c, int32_t value, int32_t holder) {
    const tdm_value *v = meta_value(c, value);
    meta_cut cut = {.axis = 0, .n_segment = 1, .repeat = 1};
    cut.segments[0].n_unit = cut.segments[0].hi[holder] = v->ne[0];
    return meta_cut_id(c, value, &cut);
}

/* A source on its holder: a weight as it is there, anything else sent there where need be. -1 where
 * the member does not hold all of a weight, or after a failure. */
static int32_t source_convert(meta_compiler *c, int32_t value, int32_t holder) {
    const tdm_value *v = meta_value(c, value);
    if (v->kind != TDM_VALUE_WEIGHT) return meta_convert(c, value, alone_id(c, value, holder));
    int32_t variant = meta_variant_best(c, value);
    int32_t local = variant < 0 ? -1 : meta_variant_at(c, variant)->local[holder];
    if (local < 0) return -1;
    const int64_t *ne = meta_part_value(&c->plan->members[holder].part, local)->ne;
    return memcmp(ne, v->ne, sizeof v->ne) == 0 ? variant : -1;
}

bool meta_holder_emit(meta_compiler *c, const tdm_node *node, bool *is_emitted_out) {
    int32_t holder = c->holders != NULL ? c->holders[c->node] : NONE;
    int32_t src[TDM_MAX_SRC], layouts[TDM_MAX_DST], variants[TDM_MAX_DST];
    meta_emission e = {.src = src, .dst_layout = layouts};
    *is_emitted_out = false;
    if (holder < 0) return true;
    for (int32_t i = 0; i < node->n_src; i++) {
        src[i] = -1;
        if (node->src[i] < 0) continue;
        if (meta_value(c, node->src[i])->kind == TDM_VALUE_STATE) {
            e.state = meta_state_get(c, node->src[i], node->params.kv.kv);
            e.state_src = i;
            if (e.state == NULL) return false;
            continue;
        }
        src[i] = source_convert(c, node->src[i], holder);
        if (src[i] < 0) return c->status == TDM_OK;
    }
    for (int32_t i = 0; i < node->n_dst; i++)
        layouts[i] = node->dst[i] >= 0 ? alone_id(c, node->dst[i], holder) : -1;
    if (!meta_emit(c, &e, variants)) return false;
    for (int32_t i = 0; i < node->n_dst; i++) meta_variant_link(c, variants[i]);
    *is_emitted_out = true;
    return c->status == TDM_OK;
}
