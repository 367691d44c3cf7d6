/* SPDX-License-Identifier: MIT
 *
 * graph_memory.c: places the temporaries of a graph in one range of bytes.
 *
 * A temporary lives from the node that writes it to the last node that reads it or a view of it,
 * both included, so that a node's destinations never share bytes with its sources. Nodes are gone
 * through in order; a destination takes the smallest hole that it fits into, or the end. That is
 * within a few percent of the largest sum of live bytes for transformers, and linear in practice.
 */
#include <stdlib.h>
#include <string.h>

#include "core/builder.h"
#include "core/op_rules.h"

typedef struct hole {
    uint64_t off, size;
} hole;

/* Free ranges in order of offset, never touching; behind `end` everything is free. */
typedef struct range {
    hole *holes;
    int32_t n_hole;
    uint64_t end;
    uint64_t peak;
} range;

static void hole_remove(range *r, int32_t i) {
    memmove(&r->holes[i], &r->holes[i + 1], (size_t)(r->n_hole - i - 1) * sizeof *r->holes);
    r->n_hole--;
}

/* Takes `size` bytes, a multiple of the alignment; false where 64 bits do not suffice. */
static bool range_take(range *r, uint64_t size, uint64_t *off_out) {
    int32_t best = -1, i;
    for (i = 0; i < r->n_hole; i++)
        if (r->holes[i].size >= size && (best < 0 || r->holes[i].size < r->holes[best].size))
            best = i;
    if (best < 0) {
        *off_out = r->end;
        if (__builtin_add_overflow(r->end, size, &r->end)) return false;
        if (r->end > r->peak) r->peak = r->end;
        return true;
    }
    *off_out = r->holes[best].off;
    r->holes[best].off += size;
    r->holes[best].size -= size;
    if (r->holes[best].size == 0) hole_remove(r, best);
    return true;
}

/* Gives bytes back, joined with the holes on either side; a hole at the end shortens the range. */
static void range_give(range *r, uint64_t off, uint64_t size) {
    int32_t lo = 0, hi = r->n_hole;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (r->holes[mid].off < off)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo > 0 && r->holes[lo - 1].off + r->holes[lo - 1].size == off) {
        lo--;
        r->holes[lo].size += size;
    } else {
        memmove(&r->holes[lo + 1], &r->holes[lo], (size_t)(r->n_hole - lo) * sizeof *r->holes);
        r->holes[lo] = (hole){off, size};
        r->n_hole++;
    }
    if (lo + 1 < r->n_hole && r->holes[lo].off + r->holes[lo].size == r->holes[lo + 1].off) {
        r->holes[lo].size += r->holes[lo + 1].size;
        hole_remove(r, lo + 1);
    }
    if (r->holes[lo].off + r->holes[lo].size == r->end) {
        r->end = r->holes[lo].off;
        hole_remove(r, lo);
    }
}

typedef struct life {
    int32_t base; /* the value whose memory this is */
    int32_t last; /* node that reads it last; -1 = none does */
    int32_t next; /* another value whose life ends at the same node; -1 = none */
} life;

/* Bytes rounded up to the alignment. */
static bool size_of(const tdm_value *v, uint64_t align, uint64_t *size_out) {
    uint64_t size = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
    if (__builtin_add_overflow(size, align - 1, &size)) return false;
    *size_out = size & ~(align - 1);
    return true;
}

/* Lives of all values; ending[i] heads the list of temporaries that node i is the last to use. */
static void lives_find(const tdm_graph *graph, life *lives, int32_t *ending) {
    int32_t i, s;
    for (i = 0; i < graph->n_value; i++) lives[i] = (life){i, -1, -1};
    for (i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        ending[i] = -1;
        for (s = 0; s < node->n_src; s++)
            if (node->src[s] >= 0) lives[lives[node->src[s]].base].last = i;
        for (s = 0; s < node->n_dst; s++) {
            if (node->dst[s] < 0) continue;
            if (tdm_op_is_view(node->op)) lives[node->dst[s]].base = lives[node->src[0]].base;
            lives[lives[node->dst[s]].base].last = i;
        }
    }
    for (i = 0; i < graph->n_value; i++) {
        if (lives[i].base != i || tdm_graph_value(graph, i)->kind != TDM_VALUE_TEMP) continue;
        lives[i].next = ending[lives[i].last];
        ending[lives[i].last] = i;
    }
}

static tdm_status values_place(const tdm_graph *graph, uint64_t align, const life *lives,
                               const int32_t *ending, range *r, uint64_t *offsets, tdm_error *err) {
    int32_t i, d, v;
    for (i = 0; i < graph->n_node; i++) {
        const tdm_node *node = tdm_graph_node(graph, i);
        uint64_t size = 0;
        for (d = 0; d < node->n_dst && !tdm_op_is_view(node->op); d++) {
            const tdm_value *value;
            if (node->dst[d] < 0) continue;
            value = tdm_graph_value(graph, node->dst[d]);
            if (value->kind != TDM_VALUE_TEMP) continue;
            if (!size_of(value, align, &size) ||
                (size > 0 && !range_take(r, size, &offsets[value->slot])))
                return tdm_fail(err, TDM_OUT_OF_RANGE,
                                "graph: its temporaries take more than 2^64 bytes");
            if (size == 0) offsets[value->slot] = 0;
        }
        for (v = ending[i]; v >= 0; v = lives[v].next) {
            const tdm_value *value = tdm_graph_value(graph, v);
            size_of(value, align, &size);
            if (size > 0) range_give(r, offsets[value->slot], size);
        }
    }
    return TDM_OK;
}

tdm_status tdm_graph_plan_memory(const tdm_graph *graph, uint64_t align, uint64_t *offsets_out,
                                 uint64_t *size_out, tdm_error *err) {
    range r = {NULL, 0, 0, 0};
    life *lives;
    int32_t *ending;
    tdm_status status = tdm_graph_verify(graph, err);
    int32_t i;
    if (status != TDM_OK) return status;
    if (align == 0) align = 64;
    if ((align & (align - 1)) != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "memory of a graph: alignment %llu is not a power of two",
                        (unsigned long long)align);
    lives = malloc(((size_t)graph->n_value + 1) * sizeof *lives);
    ending = malloc(((size_t)graph->n_node + 1) * sizeof *ending);
    r.holes = malloc(((size_t)graph->n_value + 1) * sizeof *r.holes);
    if (lives == NULL || ending == NULL || r.holes == NULL) {
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "memory of a graph: none left to plan it");
    } else {
        for (i = 0; i < graph->n_slot; i++) offsets_out[i] = UINT64_MAX;
        lives_find(graph, lives, ending);
        status = values_place(graph, align, lives, ending, &r, offsets_out, err);
    }
    if (status == TDM_OK) *size_out = r.peak;
    free(lives);
    free(ending);
    free(r.holes);
    return status;
}
