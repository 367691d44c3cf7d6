/* SPDX-License-Identifier: MIT
 *
 * graph_extract.c: makes a graph of a run of nodes of another graph. This file decides which
 * values cross the boundary. The caller provides their memory, by the map of slots.
 *
 * A view has no slot, so it does not cross the boundary. Its base does, and each graph that reads
 * the view derives it again with the same view nodes. A graph that does not read a view has neither
 * its node nor, for its sake, its base: the base may be a weight that lies on another device.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/view.h"
#include "core/graph/graph_arrays.h"
#include "core/graph/op_rules.h"

/* A value of the old graph, and its place in the new one. */
typedef struct crossing {
    int32_t base;     /* the value whose memory it lies in */
    int32_t producer; /* node; -1 = none */
    int32_t index;    /* in the new graph; -1 = not part of it */
    bool is_used;     /* by the nodes taken, or by a view node that is copied for them */
    bool is_read_later; /* of a base: by node `last` or a later one */
} crossing;

typedef struct extraction {
    const tdm_graph *graph;
    int32_t first, last; /* nodes first .. last-1 */
    crossing *values;
    uint8_t
        *takes; /* [last] nodes that are copied: those from `first` on but views that none of them
                       reads, and before `first` the view nodes that lead to what they read */
    tdm_graph *out;
} extraction;

static bool is_inside(const extraction *x, int32_t node) {
    return node >= x->first && node < x->last;
}

/* Bases and producers of all values. */
static void origins_find(extraction *x) {
    int32_t i, d;
    for (i = 0; i < x->graph->n_value; i++) x->values[i] = (crossing){i, -1, -1, false, false};
    for (i = 0; i < x->graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(x->graph, i);
        for (d = 0; d < node->n_dst; d++) {
            if (node->dst[d] < 0) continue;
            x->values[node->dst[d]].producer = i;
            if (tdm_op_is_view(node->op))
                x->values[node->dst[d]].base = x->values[node->src[0]].base;
        }
    }
}

/* Marks the nodes that are taken, the values that they use, and the values that are read later. */
static void uses_find(extraction *x) {
    int32_t i, s;
    for (i = x->last - 1; i >= 0; i--) {
        const tdm_node *node = tdm_graph_node(x->graph, i);
        if (tdm_op_is_view(node->op) ? !x->values[node->dst[0]].is_used : i < x->first) continue;
        x->takes[i] = 1;
        for (s = 0; s < node->n_src; s++)
            if (node->src[s] >= 0) x->values[node->src[s]].is_used = true;
        for (s = 0; s < node->n_dst; s++)
            if (node->dst[s] >= 0) x->values[node->dst[s]].is_used = true;
    }
    for (i = x->last; i < x->graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(x->graph, i);
        for (s = 0; s < node->n_src; s++)
            if (node->src[s] >= 0) x->values[x->values[node->src[s]].base].is_read_later = true;
    }
}

/* A copy of `size` bytes; NULL stays NULL where there are none. */
static bool array_copy(const void **out, const void *array, size_t size) {
    void *copy;
    if (size == 0) return true;
    copy = malloc(size);
    if (copy == NULL) return false;
    memcpy(copy, array, size);
    *out = copy;
    return true;
}

static bool arrays_alloc(extraction *x) {
    const tdm_graph *from = x->graph;
    tdm_graph *out = x->out;
    const void *parts = NULL, *kv = NULL, *names = NULL;
    int32_t i, n_value = 0, n_node = 0;
    bool is_ok;
    for (i = 0; i < from->n_value; i++)
        if (x->values[i].is_used) x->values[i].index = n_value++;
    for (i = 0; i < x->last; i++) n_node += x->takes[i];
    out->values = calloc((size_t)n_value + 1, sizeof(tdm_value));
    out->nodes = calloc((size_t)n_node + 1, sizeof(tdm_node));
    /* The strides are those of the old graph, so that fields appended by a newer version are
     * kept. */
    is_ok = array_copy(&parts, from->partitions, (size_t)from->n_partition * from->partition_size);
    is_ok = array_copy(&kv, from->kv, (size_t)from->n_kv * from->kv_size) && is_ok;
    is_ok = array_copy(&names, from->names, (size_t)from->names_size) && is_ok;
    out->partitions = parts;
    out->kv = kv;
    out->names = names;
    out->partition_size = from->partition_size;
    out->kv_size = from->kv_size;
    out->n_partition = from->n_partition;
    out->n_kv = from->n_kv;
    out->names_size = from->names_size;
    out->n_value = n_value;
    out->n_node = n_node;
    return is_ok && out->values != NULL && out->nodes != NULL;
}

static void values_fill(extraction *x, int32_t *slot_map_out) {
    int32_t i;
    for (i = 0; i < x->graph->n_value; i++) {
        const crossing *c = &x->values[i];
        tdm_value *v;
        if (c->index < 0) continue;
        v = tdm_graph_own_value(x->out, c->index);
        *v = *tdm_graph_value(x->graph, i);
        if (v->slot < 0) continue; /* a view stays a view */
        if (v->kind == TDM_VALUE_TEMP || v->kind == TDM_VALUE_OUTPUT) {
            if (!is_inside(x, c->producer))
                v->kind = TDM_VALUE_INPUT;
            else if (c->is_read_later)
                v->kind = TDM_VALUE_OUTPUT;
        }
        slot_map_out[x->out->n_slot] = v->slot;
        v->slot = x->out->n_slot++;
    }
}

static void nodes_fill(extraction *x) {
    int32_t i, s, n = 0;
    for (i = 0; i < x->last; i++) {
        tdm_node *node;
        if (!x->takes[i]) continue;
        node = tdm_graph_own_node(x->out, n++);
        *node = *tdm_graph_node(x->graph, i);
        for (s = 0; s < TDM_MAX_SRC; s++)
            if (node->src[s] >= 0) node->src[s] = x->values[node->src[s]].index;
        for (s = 0; s < TDM_MAX_DST; s++)
            if (node->dst[s] >= 0) node->dst[s] = x->values[node->dst[s]].index;
    }
}

tdm_status tdm_graph_extract(const tdm_graph *graph, int32_t first, int32_t count,
                             tdm_graph **graph_out, int32_t *slot_map_out, tdm_error *err) {
    extraction x = {0};
    tdm_status status = TDM_OK;
    if (first < 0 || count < 0 || first > graph->n_node || count > graph->n_node - first)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "part of a graph: %d nodes from %d on, of %d",
                        (int)count, (int)first, (int)graph->n_node);
    x.graph = graph;
    x.first = first;
    x.last = first + count;
    x.values = malloc(((size_t)graph->n_value + 1) * sizeof *x.values);
    x.takes = calloc((size_t)x.last + 1, 1);
    x.out = malloc(sizeof *x.out);
    if (x.out != NULL) tdm_graph_init(x.out);
    if (x.values != NULL && x.takes != NULL && x.out != NULL) {
        origins_find(&x);
        uses_find(&x);
    }
    if (x.values == NULL || x.takes == NULL || x.out == NULL || !arrays_alloc(&x)) {
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "part of a graph: no memory for %d nodes",
                          (int)count);
    } else {
        values_fill(&x, slot_map_out);
        nodes_fill(&x);
        if (graph->step >= 0 && x.values[graph->step].index >= 0) {
            x.out->step = x.values[graph->step].index;
            x.out->step_caps = graph->step_caps;
        }
        x.out->hash = tdm_graph_hash(x.out);
        *graph_out = x.out;
    }
    free(x.values);
    free(x.takes);
    if (status != TDM_OK) tdm_graph_free(x.out);
    return status;
}

tdm_status tdm_graph_find_unread(const tdm_graph *graph, bool *has_unread_out, tdm_error *err) {
    extraction x = {.graph = graph, .last = graph->n_node};
    int32_t i;
    x.values = malloc(((size_t)graph->n_value + 1) * sizeof *x.values);
    x.takes = calloc((size_t)graph->n_node + 1, 1);
    *has_unread_out = false;
    if (x.values != NULL && x.takes != NULL) {
        origins_find(&x);
        uses_find(&x);
        for (i = 0; i < graph->n_value; i++) {
            const int32_t kind = tdm_graph_value(graph, i)->kind;
            *has_unread_out |= (kind == TDM_VALUE_WEIGHT || kind == TDM_VALUE_STATE) &&
                               x.values[i].base == i && !x.values[i].is_used;
        }
    }
    const bool is_done = x.values != NULL && x.takes != NULL;
    free(x.values);
    free(x.takes);
    return is_done ? TDM_OK
                   : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "part of a graph: out of memory");
}
