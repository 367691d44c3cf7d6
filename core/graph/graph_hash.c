/* SPDX-License-Identifier: MIT
 *
 * graph_hash.c: a 64-bit hash of what a graph computes. It covers structure, shapes, parameters,
 * cuts and cache descriptions. It does not cover names, strides of the arrays, or bytes that a
 * newer version appended.
 */
#include <string.h>

#include "core/graph/builder.h"
#include "core/counters.h"

/* A value, node, partition or description as words. A node has the most. */
#define MAX_WORDS (4 + TDM_MAX_SRC / 2 + (int)(sizeof(tdm_op_params) / 8))
typedef struct words {
    uint64_t word[MAX_WORDS];
    int n;
} words;

static void words_add(words *w, int64_t word) {
    w->word[w->n++] = (uint64_t)word;
}

/* Two int32 in one word. */
static void words_pair(words *w, int32_t low, int32_t high) {
    words_add(w, (int64_t)((uint64_t)(uint32_t)high << 32 | (uint32_t)low));
}

static void words_of_header(const tdm_graph *g, words *w) {
    words_pair(w, g->n_value, g->n_node);
    words_pair(w, g->n_partition, g->n_kv);
    words_pair(w, g->n_slot, g->step);
    words_pair(w, g->step_caps.n_tok, g->step_caps.n_seq);
    words_pair(w, g->step_caps.n_out, g->step_caps.n_entry);
    words_pair(w, g->step_caps.n_job, g->step_caps.n_class);
    words_pair(w, g->step_caps.has_rs, g->step_caps.reserved[0]);
    for (size_t i = 1; i < sizeof g->step_caps.reserved / sizeof g->step_caps.reserved[0]; i += 2)
        words_pair(w, g->step_caps.reserved[i], g->step_caps.reserved[i + 1]);
}

static void words_of_value(const tdm_graph *g, int32_t i, words *w) {
    const tdm_value *v = tdm_graph_value(g, i);
    int d;
    words_pair(w, v->kind, v->type);
    for (d = 0; d < TDM_MAX_DIMS; d++) words_add(w, v->ne[d]);
    words_pair(w, v->slot, (int32_t)v->usage);
    words_pair(w, v->partition, v->axis);
}

static void words_of_node(const tdm_graph *g, int32_t i, words *w) {
    const tdm_node *node = tdm_graph_node(g, i);
    size_t at;
    int d;
    words_pair(w, node->op, node->n_src);
    words_add(w, node->n_dst);
    for (d = 0; d < TDM_MAX_SRC; d += 2) words_pair(w, node->src[d], node->src[d + 1]);
    words_pair(w, node->dst[0], node->dst[1]);
    for (at = 0; at < sizeof node->params.bytes; at += 8) {
        int64_t word;
        memcpy(&word, node->params.bytes + at, sizeof word);
        words_add(w, word);
    }
}

static void words_of_partition(const tdm_graph *g, int32_t i, words *w) {
    const tdm_partition *p = tdm_graph_partition(g, i);
    words_pair(w, p->id, p->layer);
    words_pair(w, p->n_unit, p->n_segment);
    for (int32_t s = 0; s < TDM_MAX_SEGMENTS; s += 2)
        words_pair(w, p->unit_len[s], p->unit_len[s + 1]);
    words_pair(w, p->n_sub, p->whole_segments);
    for (size_t i = 0; i < sizeof p->reserved / sizeof p->reserved[0]; i += 2)
        words_pair(w, p->reserved[i], p->reserved[i + 1]);
}

static void words_of_kv(const tdm_graph *g, int32_t i, words *w) {
    const tdm_kv_desc *kv = tdm_graph_kv(g, i);
    words_pair(w, (int32_t)kv->type_k, (int32_t)kv->type_v);
    words_pair(w, kv->head_dim_k, kv->head_dim_v);
    words_pair(w, kv->n_head_kv, kv->page_len);
    words_pair(w, kv->rope_offset, kv->n_rot);
    words_pair(w, (int32_t)kv->flags, kv->cls);
    words_pair(w, kv->stride, kv->reserved);
}

typedef void (*words_fn)(const tdm_graph *g, int32_t i, words *w);

typedef struct part {
    words_fn words_of;
    int32_t first, n;
} part;

/* The arrays of a graph. Partition 0 means "none" and is left out. */
static void parts_of(const tdm_graph *g, part parts[4]) {
    parts[0] = (part){words_of_value, 0, g->n_value};
    parts[1] = (part){words_of_node, 0, g->n_node};
    parts[2] = (part){words_of_partition, 1, g->n_partition};
    parts[3] = (part){words_of_kv, 0, g->n_kv};
}

/* Continues a multiply-and-rotate chain with some words; hash_end finishes it. The constants are
 * odd and arbitrary: digits of the golden ratio and of sqrt(2). */
static uint64_t hash_words(uint64_t h, const words *w) {
    int i;
    for (i = 0; i < w->n; i++) {
        h = (h ^ w->word[i]) * UINT64_C(0x9e3779b97f4a7c15);
        h = h << 29 | h >> 35;
        h += UINT64_C(0x6a09e667f3bcc909);
    }
    return h;
}

static uint64_t hash_end(uint64_t h) {
    h = (h ^ h >> 32) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 29) * UINT64_C(0x6a09e667f3bcc909);
    h ^= h >> 32;
    return h != 0 ? h : 1; /* 0 means "not computed" */
}

uint64_t tdm_graph_hash(const tdm_graph *graph) {
    part parts[4];
    words header = {.n = 0};
    uint64_t h;
    int p;
    tdm_counter_add(TDM_COUNTER_GRAPHS_HASHED, 1);
    words_of_header(graph, &header);
    h = hash_words(0, &header);
    parts_of(graph, parts);
    for (p = 0; p < 4; p++) {
        int32_t i;
        for (i = parts[p].first; i < parts[p].n; i++) {
            words w;
            w.n = 0;
            parts[p].words_of(graph, i, &w);
            h = hash_words(h, &w);
        }
    }
    return hash_end(h);
}
