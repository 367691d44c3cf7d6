/* SPDX-License-Identifier: MIT
 *
 * graph_memory.c: places the temporaries of a graph in one range of bytes.
 *
 * A temporary lives from the node that writes it to the last node that reads it or a view of it,
 * both included, so that a node's destinations never share bytes with its sources.
 * core/base/packing.h chooses the offsets.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/packing.h"
#include "core/graph/builder.h"
#include "core/graph/op_rules.h"

typedef struct life {
    int32_t base;        /* the value whose memory this is */
    int32_t first, last; /* nodes; -1 = never used */
} life;

/* Bytes rounded up to the alignment. */
static bool size_of(const tdm_value *v, uint64_t align, uint64_t *size_out) {
    uint64_t size = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
    if (__builtin_add_overflow(size, align - 1, &size)) return false;
    *size_out = size & ~(align - 1);
    return true;
}

static void life_note(life *lives, int32_t value, int32_t node) {
    life *l = &lives[lives[value].base];
    if (l->first < 0) l->first = node;
    l->last = node;
}

static void lives_find(const tdm_graph *graph, life *lives) {
    int32_t i, s;
    for (i = 0; i < graph->n_value; i++) lives[i] = (life){i, -1, -1};
    for (i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        for (s = 0; s < node->n_src; s++)
            if (node->src[s] >= 0) life_note(lives, node->src[s], i);
        for (s = 0; s < node->n_dst; s++) {
            if (node->dst[s] < 0) continue;
            if (tdm_op_is_view(node->op)) lives[node->dst[s]].base = lives[node->src[0]].base;
            life_note(lives, node->dst[s], i);
        }
    }
}

/* The temporaries and their lifetimes. */
static tdm_status temps_list(const tdm_graph *graph, uint64_t align, const life *lives,
                             tdm_packed *temps, int32_t *n_out, tdm_error *err) {
    int32_t i, n = 0;
    for (i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        uint64_t size;
        if (v->kind != TDM_VALUE_TEMP || lives[i].base != i || lives[i].first < 0) continue;
        if (!size_of(v, align, &size))
            return tdm_fail(err, TDM_OUT_OF_RANGE, "graph: a temporary takes more than 2^64 bytes");
        temps[n++] = (tdm_packed){v->slot, lives[i].first, lives[i].last, size, 0};
    }
    *n_out = n;
    return TDM_OK;
}

tdm_status tdm_graph_plan_memory(const tdm_graph *graph, uint64_t align, uint64_t *offsets_out,
                                 uint64_t *size_out, tdm_error *err) {
    life *lives;
    tdm_packed *temps;
    uint64_t size = 0;
    tdm_status status = tdm_graph_verify(graph, err);
    int32_t i, n = 0;
    if (status != TDM_OK) return status;
    if (align == 0) align = 64;
    if ((align & (align - 1)) != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "memory of a graph: alignment %llu is not a power of two",
                        (unsigned long long)align);
    lives = malloc(((size_t)graph->n_value + 1) * sizeof *lives);
    temps = malloc(((size_t)graph->n_value + 1) * sizeof *temps);
    if (lives == NULL || temps == NULL) {
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "memory of a graph: none left to plan it");
    } else {
        for (i = 0; i < graph->n_slot; i++) offsets_out[i] = UINT64_MAX;
        lives_find(graph, lives);
        status = temps_list(graph, align, lives, temps, &n, err);
        if (status == TDM_OK && !tdm_pack(temps, n, &size))
            status =
                tdm_fail(err, TDM_OUT_OF_RANGE, "graph: its temporaries take more than 2^64 bytes");
        for (i = 0; i < n && status == TDM_OK; i++) offsets_out[temps[i].id] = temps[i].off;
    }
    if (status == TDM_OK) *size_out = size;
    free(lives);
    free(temps);
    return status;
}
