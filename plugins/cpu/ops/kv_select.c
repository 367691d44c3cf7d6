/* SPDX-License-Identifier: MIT
 *
 * kv_select.c: KV_SELECT: the cached tokens that matter most to a token, by the keys of an index.
 *
 * Tokens are taken in batches of as many as there are threads. All threads score a batch, divided
 * by entries of the page table; then each makes lists of some tokens. A score depends on its token
 * and its row alone, and equal scores go to the lower position or block, so the result depends
 * neither on the number of threads nor on the tokens beside it. The scores come from ATTENTION's
 * kernels (attention_kernel.h), with queries in full precision whatever the role of the token.
 */
#include <math.h>
#include <string.h>

#include "quant/convert.h"
#include "plugins/cpu/exec/pool.h"
#include "plugins/cpu/kv/hadamard.h"
#include "plugins/cpu/ops/attention_kernel.h"
#include "plugins/cpu/ops/ops.h"

enum { SRC_Q, SRC_W, SRC_STEP, SRC_STATE };

/* What follows from the graph alone. */
typedef struct shape {
    cpu_kv_layout layout;
    int32_t n_head, n_tok, n_top, batch;
    int32_t n_list; /* of a token: one, or one for each head */
    int32_t block_len, n_local;
    int32_t run_len;   /* tokens that a chosen row gives the list; 0 = its own number */
    size_t row_size;   /* bytes of the scores of a list */
    size_t query_size; /* bytes of a prepared head */
    size_t worker_size;
} shape;

static bool shape_get(const cpu_device *device, const tdm_graph *graph, const tdm_node *node,
                      shape *out) {
    const tdm_value *q = tdm_graph_value(graph, node->src[SRC_Q]);
    const tdm_kv_desc *desc = tdm_graph_kv(graph, node->params.select.kv);
    memset(out, 0, sizeof *out);
    if (cpu_kv_layout_get(desc, &out->layout, NULL) != TDM_OK) return false;
    const cpu_kv_side *k = &out->layout.k;
    out->n_head = (int32_t)q->ne[1];
    out->n_tok = (int32_t)q->ne[2];
    out->n_top = node->params.select.n_top;
    out->n_list = node->src[SRC_W] >= 0 ? 1 : out->n_head;
    out->block_len = node->params.select.block_len > 1 ? node->params.select.block_len : 1;
    out->n_local = node->params.select.n_local;
    out->run_len = node->params.select.is_of_tokens != 0 ? out->layout.stride : 0;
    out->batch = device->n_thread < out->n_tok ? device->n_thread : out->n_tok;
    out->row_size = cpu_kv_round((size_t)graph->step_caps.n_entry * (size_t)out->layout.page_len *
                                 sizeof(float));
    out->query_size = cpu_kv_round((size_t)k->padded * sizeof(float)) +
                      cpu_kv_round((size_t)k->n_block * sizeof(cpu_query_block));
    const size_t n_head = (size_t)out->n_head;
    out->worker_size = 2 * cpu_kv_round((size_t)k->padded * sizeof(float)) +
                       n_head * out->query_size + n_head * CPU_CHUNK * sizeof(float) +
                       2 * cpu_kv_round(n_head * sizeof(void *));
    return true;
}

static tdm_status supports(const cpu_device *device, const tdm_graph *graph, const tdm_node *node,
                           tdm_error *err) {
    cpu_kv_layout layout;
    (void)device;
    return cpu_kv_supports(graph, node, node->params.select.kv, SRC_STEP, SRC_STATE, &layout, err);
}

static size_t scratch_size(const cpu_device *device, const tdm_graph *graph, const tdm_node *node) {
    shape s;
    if (!shape_get(device, graph, node, &s)) return 0;
    return (size_t)s.batch * (size_t)s.n_list * s.row_size +
           (size_t)device->n_thread * s.worker_size;
}

typedef struct walk {
    const cpu_node *n;
    shape s;
    cpu_step step;
    cpu_attention_kernels kernels;
    uint8_t *rows;       /* [batch, n_list] of row_size: scores, in the order of the entries */
    float *x;            /* [padded] a head or a row */
    uint8_t *stored;     /* a canonical row */
    uint8_t *queries;    /* [n_head] of query_size */
    const uint8_t **q;   /* [n_head] */
    float **score;       /* [n_head] of CPU_CHUNK */
    int32_t query_token; /* the token that the queries are of; -1 = none yet */
    bool is_reference;
} walk;

static walk walk_begin(const cpu_node *n, const cpu_worker *w, bool is_reference) {
    walk k = {.n = n, .query_token = -1, .is_reference = is_reference};
    if (!shape_get(n->device, n->graph, n->node, &k.s)) return k;
    const shape *s = &k.s;
    const size_t padded = cpu_kv_round((size_t)s->layout.k.padded * sizeof(float));
    k.step = cpu_step_get(n->graph, &n->src[SRC_STEP],
                          tdm_graph_kv(n->graph, n->node->params.select.kv)->cls);
    k.kernels = cpu_attention_choose(n->device->isa, false, &s->layout);
    k.rows = n->scratch;
    uint8_t *at = n->scratch + (size_t)s->batch * (size_t)s->n_list * s->row_size +
                  (size_t)w->ith * s->worker_size;
    k.x = (float *)(void *)at, at += padded;
    k.stored = at, at += padded;
    k.queries = at, at += (size_t)s->n_head * s->query_size;
    float *scores = (float *)(void *)at;
    at += (size_t)s->n_head * CPU_CHUNK * sizeof(float);
    k.q = (const uint8_t **)(void *)at, at += cpu_kv_round((size_t)s->n_head * sizeof(void *));
    k.score = (float **)(void *)at;
    for (int32_t h = 0; h < s->n_head; h++) {
        k.q[h] = k.queries + (size_t)h * s->query_size;
        k.score[h] = scores + (size_t)h * CPU_CHUNK;
    }
    return k;
}

/* Prepares the heads of a token: for the kernels, or for the reference as they are. */
static void queries_make(walk *k, int32_t token) {
    const cpu_kv_side *side = &k->s.layout.k;
    if (k->query_token == token) return;
    k->query_token = token;
    for (int32_t h = 0; h < k->s.n_head; h++) {
        uint8_t *q = k->queries + (size_t)h * k->s.query_size;
        bool is_plain = k->is_reference || k->kernels.query == NULL;
        float *x = is_plain ? (float *)(void *)q : k->x;
        cpu_kv_read_row(&k->n->src[SRC_Q], h, token, x);
        memset(x + side->head_dim, 0, (size_t)(side->padded - side->head_dim) * sizeof *x);
        if (k->is_reference) continue;
        k->kernels.rotate(x, side->padded, side->rotation);
        if (k->kernels.query != NULL) k->kernels.query(side, x, q);
    }
}

static float weight_at(const walk *k, int32_t head, int32_t token) {
    const cpu_view *w = &k->n->src[SRC_W];
    const int64_t at_head = w->ne[0] > 1 ? head : 0, at_token = w->ne[1] > 1 ? token : 0;
    return *(const float *)(const void *)(w->data + at_head * w->nb[0] + at_token * w->nb[1]);
}

/* The scores of list `i` of a token; `row` are those of its first list. */
static float *list_at(const walk *k, float *row, int32_t i) {
    return row + (size_t)i * (k->s.row_size / sizeof *row);
}

/* Slots first .. last-1 of the chunk of a region that begins with slot `start`. */
static void chunk_score(const walk *k, int32_t token, const uint8_t *region, int32_t start,
                        int32_t first, int32_t last, float *out) {
    const cpu_kv_side *side = &k->s.layout.k;
    const size_t tile = (size_t)(start / CPU_KV_TILE);
    const cpu_kv_span span = {.side = side,
                              .data = region + side->data_off + tile * side->data_size,
                              .scale = region + side->scale_off + tile * side->scale_size,
                              .first = first,
                              .last = last};
    k->kernels.score(&span, k->s.n_head, k->q, k->score);
    for (int32_t h = 0; h < k->s.n_head && k->n->src[SRC_W].data == NULL; h++)
        memcpy(list_at(k, out, h), k->score[h] + first, (size_t)(last - first) * sizeof *out);
    if (k->n->src[SRC_W].data == NULL) return;
    memset(out, 0, (size_t)(last - first) * sizeof *out);
    for (int32_t h = 0; h < k->s.n_head; h++) {
        const float weight = weight_at(k, h, token), *score = k->score[h] + first;
        for (int32_t i = 0; i < last - first; i++) out[i] += weight * (score[i] < 0 ? 0 : score[i]);
    }
}

static void slot_score_reference(const walk *k, int32_t token, const uint8_t *region, int32_t slot,
                                 float *out) {
    const cpu_kv_side *side = &k->s.layout.k;
    double sum = 0;
    cpu_kv_load(side, region, slot, k->stored, 0, cpu_kv_units(side));
    tdm_row_codec_get(side->type).dequantize(k->stored, k->x, side->padded);
    cpu_hadamard_plain(k->x, side->padded, side->rotation);
    for (int32_t h = 0; h < k->s.n_head; h++) {
        const float *q = (const float *)(const void *)k->q[h];
        double dot = 0;
        for (int32_t i = 0; i < side->head_dim; i++) dot += (double)q[i] * (double)k->x[i];
        if (k->n->src[SRC_W].data == NULL)
            *list_at(k, out, h) = (float)dot;
        else
            sum += (double)weight_at(k, h, token) * (dot < 0 ? 0 : dot);
    }
    if (k->n->src[SRC_W].data != NULL) *out = (float)sum;
}

static void entry_score(const walk *k, int32_t token, const tdm_page_entry *e, float *out) {
    const uint8_t *region = cpu_kv_head(&k->s.layout, k->n->src[SRC_STATE].data, e->page, 0);
    for (int32_t i = 0; i < e->count && k->is_reference; i++)
        slot_score_reference(k, token, region, e->first + i, out + i);
    for (int32_t slot = e->first, end = e->first + e->count; slot < end && !k->is_reference;) {
        int32_t start = slot / CPU_CHUNK * CPU_CHUNK;
        int32_t last = end - start < CPU_CHUNK ? end - start : CPU_CHUNK;
        chunk_score(k, token, region, start, slot - start, last, out + slot - e->first);
        slot = start + last;
    }
}

/* The entries of a sequence up to the position of a token. */
typedef struct cursor {
    const tdm_page_entry *entries;
    int32_t at, n;
    int64_t pos;
} cursor;

static cursor cursor_begin(const walk *k, int32_t token) {
    cursor c = {.pos = token < k->step.n_tok ? cpu_step_row(&k->step, &k->s.layout, token) : -1};
    if (c.pos >= 0) c.entries = cpu_step_entries(&k->step, k->step.seq[token], &c.n);
    return c;
}

/* The next entry, cut to what the token sees; false behind the last. */
static bool cursor_next(cursor *c, const walk *k, tdm_page_entry *e) {
    while (c->at < c->n) {
        *e = c->entries[c->at++];
        if (!cpu_kv_entry_clip(&k->s.layout, k->n->src[SRC_STATE].ne[1], e)) continue;
        int64_t count = c->pos - e->base_pos + 1;
        if (count < e->count) e->count = count > 0 ? (int32_t)count : 0;
        if (e->count > 0) return true;
    }
    return false;
}

/* This worker's share of the scores of a token. */
static void token_score(walk *k, int32_t token, float *row, const cpu_worker *w) {
    cursor c = cursor_begin(k, token);
    tdm_page_entry e;
    for (int32_t i = 0; cursor_next(&c, k, &e); i++, row += e.count) {
        if (i % w->nth != w->ith) continue;
        queries_make(k, token);
        entry_score(k, token, &e, row);
    }
}

/* Rises with x; a NaN is below every number, and -0 is 0. */
static uint32_t key_of(float x) {
    uint32_t u;
    if (isnan(x)) return 0;
    x += 0.0f;
    memcpy(&u, &x, sizeof u);
    return (u & 0x80000000u) != 0 ? ~u : u | 0x80000000u;
}

/* The key of rank `k` (from 1) of n > k scores; *n_tied_out: how many of those with this key are
 * among the best k. One byte of the key at a time, from the highest. */
static uint32_t key_find(const float *score, int32_t n, int32_t k, int32_t *n_tied_out) {
    uint32_t key = 0, known = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        int32_t count[256] = {0}, byte = 255;
        for (int32_t i = 0; i < n; i++) {
            uint32_t x = key_of(score[i]);
            if ((x & known) == key) count[x >> shift & 255]++;
        }
        for (; byte > 0 && count[byte] < k; byte--) k -= count[byte];
        key |= (uint32_t)byte << shift;
        known |= (uint32_t)255 << shift;
    }
    *n_tied_out = k;
    return key;
}

/* A walk over the positions that a token sees, which also counts the blocks that have any. */
typedef struct block_cursor {
    cursor c;
    tdm_page_entry e;
    int32_t i, block_len;
    int32_t block;    /* counted from 0 without empty ones; -1 = none yet */
    int64_t pos, end; /* the present position, and the one behind its block */
} block_cursor;

static block_cursor block_cursor_begin(const walk *k, int32_t token) {
    return (block_cursor){.c = cursor_begin(k, token), .block_len = k->s.block_len, .block = -1};
}

/* Moves to the next position; false behind the last. */
static bool block_cursor_next(block_cursor *b, const walk *k) {
    if (b->i >= b->e.count) {
        b->i = 0;
        if (!cursor_next(&b->c, k, &b->e)) return false;
    }
    b->pos = (int64_t)b->e.base_pos + b->i++;
    if (b->pos < b->end) return true;
    b->block++;
    b->end = b->block_len > 1 ? (b->pos / b->block_len + 1) * b->block_len : b->pos + 1;
    return true;
}

/* Puts the highest score of each block in front of `score`; returns how many blocks there are.
 * *n_local_out: how many of them, the last ones, are chosen whatever their scores. */
static int32_t blocks_gather(const walk *k, int32_t token, float *score, int32_t *n_local_out) {
    block_cursor b = block_cursor_begin(k, token);
    const int64_t local_pos = (b.c.pos / b.block_len - k->s.n_local + 1) * b.block_len;
    int32_t block = -1;
    *n_local_out = 0;
    for (int32_t at = 0; block_cursor_next(&b, k); at++) {
        if (b.block == block) {
            if (key_of(score[at]) > key_of(score[block])) score[block] = score[at];
            continue;
        }
        block = b.block;
        score[block] = score[at];
        if (b.pos >= local_pos) ++*n_local_out;
    }
    return block + 1;
}

/* A list under construction. */
typedef struct list_writer {
    const cpu_view *view;
    uint8_t *to;
    int32_t n, most; /* positions so far, and at most */
} list_writer;

static void list_add(list_writer *l, int64_t pos) {
    if (l->n < l->most) *(int32_t *)(void *)(l->to + l->n++ * l->view->nb[0]) = (int32_t)pos;
}

/* What a chosen row stands for: itself, or a run of tokens. */
static void list_add_row(list_writer *l, const walk *k, int64_t row) {
    if (k->s.run_len == 0) list_add(l, row);
    for (int32_t i = 0; i < k->s.run_len; i++) list_add(l, row * k->s.run_len + i);
}

/* The tokens up to a token that no row stands for yet. */
static void list_add_tail(list_writer *l, const walk *k, int32_t token) {
    const int64_t run = k->s.run_len, pos = token < k->step.n_tok ? k->step.pos[token] : -1;
    for (int64_t p = run > 0 ? (pos + 1) / run * run : pos + 1; p <= pos; p++) list_add(l, p);
}

/* Chooses for a list of a token; `score` is changed. */
static void token_choose(const walk *k, int32_t token, int32_t list, float *score) {
    const cpu_view *out = &k->n->dst[0];
    list_writer l = {
        .view = out, .to = out->data + token * out->nb[1] + list * out->nb[2], .most = k->s.n_top};
    const int32_t n_row = k->s.run_len > 0 ? k->s.n_top / k->s.run_len : k->s.n_top;
    int32_t n_local, n_chosen = 0, n_tied = INT32_MAX, block = -1;
    uint32_t key = 0;
    bool is_chosen = false;
    const int32_t n_ranked = blocks_gather(k, token, score, &n_local) - n_local;
    const int32_t n_best = n_row / k->s.block_len - n_local;
    if (n_ranked > n_best) {
        key = UINT32_MAX, n_tied = 0;
        if (n_best > 0) key = key_find(score, n_ranked, n_best, &n_tied);
    }
    for (block_cursor b = block_cursor_begin(k, token);
         n_chosen < n_row && block_cursor_next(&b, k);) {
        if (b.block != block) {
            block = b.block;
            uint32_t x = block < n_ranked ? key_of(score[block]) : UINT32_MAX;
            is_chosen = block >= n_ranked || x > key || (x == key && n_tied-- > 0);
        }
        if (is_chosen) list_add_row(&l, k, b.pos);
        n_chosen += is_chosen;
    }
    list_add_tail(&l, k, token);
    while (l.n < l.most) list_add(&l, -1);
}

static void select_all(const cpu_node *n, cpu_worker *w, bool is_reference) {
    walk k = walk_begin(n, w, is_reference);
    const size_t token_size = (size_t)k.s.n_list * k.s.row_size;
    for (int32_t first = 0; first < k.s.n_tok; first += k.s.batch) {
        int32_t n_tok = k.s.n_tok - first < k.s.batch ? k.s.n_tok - first : k.s.batch;
        for (int32_t i = 0; i < n_tok; i++)
            token_score(&k, first + i, (float *)(void *)(k.rows + (size_t)i * token_size), w);
        cpu_worker_barrier(w);
        for (int32_t i = w->ith; i < n_tok * k.s.n_list; i += w->nth) {
            float *row = (float *)(void *)(k.rows + (size_t)(i / k.s.n_list) * token_size);
            token_choose(&k, first + i / k.s.n_list, i % k.s.n_list,
                         list_at(&k, row, i % k.s.n_list));
        }
        cpu_worker_barrier(w);
    }
}

static void run(const cpu_node *n, cpu_worker *w) {
    select_all(n, w, false);
}

static void run_reference(const cpu_node *n, cpu_worker *w) {
    select_all(n, w, true);
}

const cpu_op_impl cpu_op_kv_select = {
    .supports = supports, .scratch_size = scratch_size, .run = run, .run_reference = run_reference};
