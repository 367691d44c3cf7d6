/* SPDX-License-Identifier: MIT
 *
 * random_block.c: feed-forward, expert and attention blocks as in models, with the cuts of models
 * or unusual ones.
 */
#include <stdio.h>
#include <string.h>

#include "tests/split/random_pool.h"

/* A part [off, off + n) of axis 0 or 1. */
static int cut_out(pool *p, int x, int axis, int64_t off, int64_t n) {
    int64_t offset[TDM_MAX_DIMS] = {0}, ne[TDM_MAX_DIMS], nb[TDM_MAX_DIMS];
    memcpy(ne, p->values[x].ne, sizeof ne);
    memcpy(nb, p->values[x].nb, sizeof nb);
    offset[axis] = off;
    ne[axis] = n;
    return pool_add_view(p, tdm_build_slice(p->b, pool_use(p, x), offset, ne), x, nb);
}

static int reshaped(pool *p, int x, int64_t a, int64_t b, int64_t c) {
    if (x >= 0) x = pool_contiguous(p, x);
    if (x < 0) return -1;
    return pool_add_view(p, tdm_build_reshape(p->b, pool_use(p, x), a, b, c, 1), x, NULL);
}

static int normed(pool *p, int x) {
    if (x < 0 || !choice_rarely(p->c, 2)) return x;
    int32_t weight = pool_plain(p, 'n', p->values[x].ne[0], 0);
    return pool_add(p, tdm_build_rms_norm(p->b, pool_use(p, x), weight, 1e-5f), 1);
}

/* ---- Feed-forward ---- */

void pool_block_ffn(pool *p) {
    int x = pool_pick_tokens(p);
    if (x < 0) return;
    int64_t n = p->values[x].ne[0];
    int32_t unit = (int32_t)POOL_ONE_OF(p, 1, 32, 8, 16, 64, 3), n_unit = 0;
    n_unit = (int32_t)POOL_ONE_OF(p, 8, 2, 3, 4, 16, 5, 1);
    int64_t ff = (int64_t)unit * n_unit;
    pool_cut cut = pool_new_cut(p, n_unit, 1);
    bool is_cut = !choice_rarely(p->c, 8), is_fused = choice_rarely(p->c, 3);
    int32_t lens[2] = {unit, unit};
    int32_t one = is_cut ? pool_cut_partition(p, &cut, lens, 1, false) : 0;
    tdm_act act = (tdm_act)(1 + pool_below(p, 3));
    int h = normed(p, x), gate, up;
    if (h < 0 || n > 640) return;
    if (is_fused) {
        int32_t two = is_cut ? pool_cut_partition(p, &cut, lens, 2, false) : 0;
        int both = pool_project(p, h, 2 * ff, two, 1, false);
        if (both < 0) return;
        gate = cut_out(p, both, 0, 0, ff);
        up = cut_out(p, both, 0, ff, ff);
    } else {
        gate = pool_project(p, h, ff, one, 1, choice_rarely(p->c, 4));
        up = pool_project(p, h, ff, one, 1, false);
    }
    if (gate < 0 || up < 0) return;
    int y = pool_add(p, tdm_build_glu(p->b, pool_use(p, gate), pool_use(p, up), act),
                     p->values[h].size / 2);
    if (y < 0) return;
    /* The way back cut alike, not at all, or by something else. */
    uint32_t back = pool_below(p, 8);
    int32_t partition = back < 6 ? one : back == 6 ? 0 : pool_partition(p, ff);
    y = pool_project(p, y, n, partition, 0, choice_rarely(p->c, 4));
    pool_residual(p, x, y);
}

/* ---- Experts ---- */

/* The same with a product for each choice. */
static void block_products(pool *p, int x, int id, int weight, int32_t n_used,
                           const int32_t matrix[3], tdm_act act) {
    tdm_builder *b = p->b;
    const int64_t *shape = p->values[x].ne;
    const int64_t n = shape[0], n_tok = shape[1];
    const int32_t all = pool_use(p, id);
    int32_t row = tdm_build_copy(b, pool_use(p, x), TDM_TYPE_F32);
    row = tdm_build_reshape(b, row, n, 1, n_tok, 1);
    int32_t gate = tdm_build_moe_matmul(b, matrix[0], row, all, 0, 0);
    int32_t up = tdm_build_moe_matmul(b, matrix[1], row, all, 0, 0);
    int32_t y = tdm_build_moe_matmul(b, matrix[2], tdm_build_glu(b, gate, up, act), all, 0, 0);
    int32_t w = tdm_build_reshape(b, pool_use(p, weight), 1, n_used, n_tok, 1);
    y = tdm_build_mul(b, y, w);
    int32_t sum = -1;
    for (int32_t u = 0; u < n_used; u++) {
        const int64_t at[] = {0, u, 0, 0}, ne[] = {n, 1, n_tok, 1};
        int32_t one = tdm_build_reshape(
            b, tdm_build_copy(b, tdm_build_slice(b, y, at, ne), TDM_TYPE_F32), n, n_tok, 1, 1);
        sum = sum < 0 ? one : tdm_build_add(b, sum, one);
    }
    if (n_used == 1) sum = tdm_build_copy(b, sum, TDM_TYPE_F32); /* an output is no view */
    pool_calm(p, pool_residual(p, x, pool_add(p, sum, p->values[x].size)));
}

void pool_block_moe(pool *p) {
    int x = pool_pick_tokens(p);
    if (x < 0 || p->values[x].ne[0] > 512) return;
    int64_t n = p->values[x].ne[0], ff = POOL_ONE_OF(p, 8, 32, 24, 64, 5, 256);
    int64_t n_expert = POOL_ONE_OF(p, 4, 2, 3, 8, 1, 6);
    if (n * ff * n_expert > POOL_MAX_WEIGHT) ff = 8;
    tdm_route_params route = {0};
    route.n_used = 1 + (int32_t)pool_below(p, (uint32_t)(n_expert < 3 ? n_expert : 3));
    route.score = (int32_t)pool_below(p, 3);
    route.normalize = (int32_t)pool_below(p, 2);
    route.scale = choice_rarely(p->c, 3) ? 1.5f : 0;
    if (n_expert % 2 == 0 && route.n_used <= n_expert / 2 && choice_rarely(p->c, 4)) {
        route.n_group = 2;
        route.n_group_used = 1;
    }
    int32_t partition = choice_rarely(p->c, 6) ? pool_partition(p, n_expert) : 0;
    int logit = pool_project(p, x, n_expert, partition, 1, false);
    if (logit < 0) return;
    int32_t bias = choice_rarely(p->c, 3) ? pool_plain(p, 'b', n_expert, 0) : -1, weight = -1;
    int32_t id = -1;
    /* A device that keeps the states of compressed attention takes experts that are given. */
    if (bias < 0 && route.n_group == 0 && choice_rarely(p->c, 3) &&
        pool_keeps_states(p, TDM_KV_POOLED)) {
        char name[16];
        snprintf(name, sizeof name, "id%d", p->n_input++);
        id = tdm_build_input(p->b, name, TDM_TYPE_I32,
                             POOL_SHAPE(route.n_used, p->values[x].ne[1], 1, 1));
        id = tdm_build_moe_route_given(p->b, pool_use(p, logit), id, &route, &weight);
    } else {
        id = tdm_build_moe_route(p->b, pool_use(p, logit), bias, &route, &weight);
    }
    int w = pool_add(p, weight, 0.5), i = pool_add(p, id, 1);
    if (i < 0 || w < 0) return;
    p->values[i].type = TDM_TYPE_I32;
    p->values[i].is_hidden = true;

    /* An id of its own, whose experts may be assigned whole; one unit of 8 columns or each one. */
    int32_t unit = ff % 8 == 0 && choice_rarely(p->c, 2) ? 8 : 1, cut = 0;
    if (!choice_rarely(p->c, 4)) {
        pool_cut columns = pool_new_cut(p, (int32_t)ff / unit, 1);
        cut = pool_cut_partition(p, &columns, &unit, 1, false);
    }
    const int64_t in[] = {n, ff, n_expert, 1}, out[] = {ff, n, n_expert, 1};
    int32_t gate = pool_weight_cut(p, TDM_USAGE_EXPERT, in, cut, cut ? 1 : 0);
    int32_t up = pool_weight_cut(p, TDM_USAGE_EXPERT, in, cut, cut ? 1 : 0);
    int32_t down = pool_weight_cut(p, TDM_USAGE_EXPERT, out, cut, 0);
    tdm_act act = (tdm_act)(1 + pool_below(p, 3));
    if (choice_rarely(p->c, 3)) {
        block_products(p, x, i, w, route.n_used, (const int32_t[]){gate, up, down}, act);
        return;
    }
    int32_t y = tdm_build_moe_ffn(p->b, pool_use(p, x), pool_use(p, i), pool_use(p, w), gate, up,
                                  down, act, 0, choice_rarely(p->c, 2) ? 0 : (int32_t)n_expert);
    int z = pool_add(p, y, p->values[x].size);
    pool_calm(p, pool_residual(p, x, z));
}

/* ---- Attention ---- */

static const tdm_type cache_types[] = {TDM_TYPE_F32,  TDM_TYPE_F16,  TDM_TYPE_Q8_0,
                                       TDM_TYPE_Q4_0, TDM_TYPE_BF16, TDM_TYPE_Q5_1,
                                       TDM_TYPE_Q5_0, TDM_TYPE_Q4_1, TDM_TYPE_IQ4_NL};

/* The numbers of one attention block. */
typedef struct heads {
    int32_t n_kv, per_kv, dim_k, dim_v;
    bool is_latent, is_cut;
    pool_cut cut;
    int32_t part_q, part_k, part_v, part_o;
    random_state *state;
    int32_t state_value, kv;
} heads;

static int32_t heads_part(pool *p, const heads *h, int32_t len, bool is_whole) {
    return h->is_cut ? pool_cut_partition(p, &h->cut, &len, 1, is_whole) : 0;
}

static void rope_draw(pool *p, heads *h) {
    tdm_rope_params rope = {0};
    if (choice_rarely(p->c, 5)) {
        rope.n_rot = 0;
    } else if (choice_rarely(p->c, 3)) {
        rope.n_rot = 2 * (int32_t)(1 + pool_below(p, (uint32_t)h->dim_k / 2));
        rope.rope_offset = (int32_t)pool_below(p, (uint32_t)(h->dim_k - rope.n_rot) + 1);
    } else {
        rope.n_rot = h->dim_k;
    }
    rope.mode = (int32_t)pool_below(p, 2);
    h->state->rope = rope;
    h->state->desc.n_rot = rope.n_rot;
    h->state->desc.rope_offset = rope.n_rot > 0 ? rope.rope_offset : 0;
    if (rope.n_rot == 0) h->state->rope.rope_offset = 0;
}

static bool state_draw(pool *p, heads *h) {
    random_state *s = &p->facts->states[p->facts->n_state];
    h->state = s;
    h->is_latent = choice_rarely(p->c, 5);
    h->n_kv = h->is_latent ? 1 : (int32_t)POOL_ONE_OF(p, 2, 1, 3, 4, 5, 8);
    h->per_kv = (int32_t)POOL_ONE_OF(p, 2, 1, 3, 4, 7);
    h->dim_k = (int32_t)POOL_ONE_OF(p, 8, 16, 32, 64, 12, 20, 40);
    h->dim_v =
        h->is_latent || !choice_rarely(p->c, 3) ? h->dim_k : (int32_t)POOL_ONE_OF(p, 8, 32, 24);
    if (h->is_latent && h->dim_k > 16 && choice_rarely(p->c, 2)) h->dim_v = h->dim_k - 8;
    tdm_kv_desc *d = &s->desc;
    *d = (tdm_kv_desc){.struct_size = sizeof *d,
                       .type_k = cache_types[pool_below(p, 9)],
                       .type_v = cache_types[pool_below(p, 9)],
                       .head_dim_k = h->dim_k,
                       .head_dim_v = h->dim_v,
                       .n_head_kv = h->n_kv};
    d->flags = pool_below(p, 4);
    if (h->is_latent) {
        d->type_v = d->type_k;
        d->flags = TDM_KV_V_FROM_K | (pool_below(p, 2) ? TDM_KV_ROTATE_K | TDM_KV_ROTATE_V : 0);
    }
    d->cls = (int32_t)pool_below(p, RANDOM_MAX_CLASS);
    d->page_len = p->facts->page_len[d->cls];
    s->n_page = p->facts->n_page[d->cls];
    rope_draw(p, h);
    uint64_t size = 0;
    tdm_error refusal = {0};
    if (choice_rarely(p->c, 4)) d->flags |= TDM_KV_BIASED;
    if ((d->flags & TDM_KV_BIASED) != 0 && p->page_size(p->context, d, &size, &refusal) != TDM_OK)
        d->flags &= ~(uint32_t)TDM_KV_BIASED;
    if (p->page_size(p->context, d, &size, &p->err) != TDM_OK) {
        tdm_build_fail(p->b, p->err.status, "%s", p->err.message);
        return false;
    }
    snprintf(s->name, sizeof s->name, "kv%d", p->facts->n_state);
    h->state_value = tdm_build_state(p->b, s->name, d, size, s->n_page, &h->kv);
    h->is_cut = !choice_rarely(p->c, 8);
    if (h->is_cut) h->cut = pool_new_cut(p, h->n_kv, h->per_kv);
    h->part_q = heads_part(p, h, h->per_kv * h->dim_k, false);
    h->part_k = heads_part(p, h, h->dim_k, true);
    h->part_v = heads_part(p, h, h->dim_v, true);
    h->part_o = heads_part(p, h, h->per_kv * h->dim_v, false);
    if (h->is_cut && !choice_rarely(p->c, 10)) {
        s->partition = (tdm_partition){.id = h->cut.id,
                                       .layer = h->cut.layer,
                                       .n_unit = h->n_kv,
                                       .n_segment = 1,
                                       .unit_len = {h->dim_k},
                                       .n_sub = h->per_kv,
                                       .whole_segments = 1};
        tdm_build_set_partition(p->b, h->state_value, tdm_build_partition(p->b, &s->partition), 0);
    }
    p->facts->n_state++;
    return p->n_cut < POOL_MAX_CUT;
}

/* Q, K and V from one matrix, each KV head's three parts apart. */
static void project_fused(pool *p, const heads *h, int x, int *q, int *k, int *v) {
    int64_t n_q = (int64_t)h->n_kv * h->per_kv * h->dim_k, n_k = (int64_t)h->n_kv * h->dim_k;
    int64_t n_v = (int64_t)h->n_kv * h->dim_v;
    int32_t lens[3] = {h->per_kv * h->dim_k, h->dim_k, h->dim_v};
    int32_t partition = 0;
    if (h->is_cut) {
        /* A fused matrix cannot cut a unit: KV-head groups are whole, under their own id or under
         * another one, which the cache does not have. */
        pool_cut cut = choice_rarely(p->c, 3) ? pool_new_cut(p, h->n_kv, 1) : h->cut;
        partition = pool_cut_partition(p, &cut, lens, 3, cut.n_sub > 1);
    }
    int all = pool_project(p, x, n_q + n_k + n_v, partition, 1, choice_rarely(p->c, 3));
    if (all < 0) return;
    int64_t n_head = (int64_t)h->n_kv * h->per_kv;
    if (h->dim_k == h->dim_v && choice_rarely(p->c, 2)) {
        /* Heads first, then apart: nothing is copied. */
        all = reshaped(p, all, h->dim_k, n_head + 2 * h->n_kv, p->n_tok);
        if (all < 0) return;
        *q = cut_out(p, all, 1, 0, n_head);
        *k = cut_out(p, all, 1, n_head, h->n_kv);
        *v = cut_out(p, all, 1, n_head + h->n_kv, h->n_kv);
        return;
    }
    *q = cut_out(p, all, 0, 0, n_q);
    *k = cut_out(p, all, 0, n_q, n_k);
    *v = cut_out(p, all, 0, n_q + n_k, n_v);
}

static int turned(pool *p, const heads *h, int x) {
    if (x < 0 || (h->state->rope.n_rot == 0 && pool_below(p, 2) == 0)) return x;
    return pool_add(p, tdm_build_rope(p->b, pool_use(p, x), p->pos, -1, &h->state->rope),
                    p->values[x].size);
}

/* Keys and values into the cache, queries out: [dim_k, n_head, n_tok]. */
static int query_make(pool *p, const heads *h, int x) {
    int64_t n_head = (int64_t)h->n_kv * h->per_kv;
    int q = -1, k = -1, v = -1;
    if (!h->is_latent && choice_rarely(p->c, 4)) {
        project_fused(p, h, x, &q, &k, &v);
    } else {
        bool has_bias = choice_rarely(p->c, 4);
        q = pool_project(p, x, n_head * h->dim_k, h->part_q, 1, has_bias);
        k = pool_project(p, x, (int64_t)h->n_kv * h->dim_k, h->part_k, 1, has_bias);
        if (!h->is_latent)
            v = pool_project(p, x, (int64_t)h->n_kv * h->dim_v, h->part_v, 1, has_bias);
    }
    q = reshaped(p, q, h->dim_k, n_head, p->n_tok);
    k = reshaped(p, k, h->dim_k, h->n_kv, p->n_tok);
    if (!h->is_latent) v = reshaped(p, v, h->dim_v, h->n_kv, p->n_tok);
    if (q < 0 || k < 0 || (v < 0 && !h->is_latent)) return -1;
    if (choice_rarely(p->c, 4)) { /* norms of each head */
        q = pool_add(
            p, tdm_build_rms_norm(p->b, pool_use(p, q), pool_plain(p, 'n', h->dim_k, 0), 1e-5f), 1);
        k = pool_add(p, tdm_build_rms_norm(p->b, pool_use(p, k), -1, 1e-5f), 1);
    }
    q = turned(p, h, q);
    k = turned(p, h, k);
    if (q < 0 || k < 0) return -1;
    tdm_build_kv_write(p->b, pool_use(p, k), v >= 0 ? pool_use(p, v) : -1, p->step, h->state_value,
                       h->kv);
    return q;
}

static tdm_attention_params attention_draw(pool *p, const heads *h) {
    tdm_attention_params a = {0};
    a.kv = h->kv;
    a.heads_per_kv = h->per_kv;
    a.n_head_all = h->n_kv * h->per_kv;
    a.is_causal = !choice_rarely(p->c, 5);
    a.window = choice_rarely(p->c, 4) ? 1 + (int32_t)pool_below(p, 12) : 0;
    if (a.window > 0 && choice_rarely(p->c, 3)) a.window_kind = TDM_WINDOW_SYMMETRIC;
    a.softcap = choice_rarely(p->c, 5) ? 4 : 0;
    if ((h->state->desc.flags & TDM_KV_BIASED) != 0) a.softcap = 0;
    a.scale = choice_rarely(p->c, 4) ? 0.25f : 0;
    return a;
}

/* A number for each distance and head, or -1. */
static int32_t bias_draw(pool *p, const heads *h) {
    const int64_t ne[TDM_MAX_DIMS] = {1 + 2 * (int64_t)pool_below(p, 5),
                                      (int64_t)h->n_kv * h->per_kv, 1, 1};
    int32_t lens = h->per_kv;
    char name[16];
    if ((h->state->desc.flags & TDM_KV_BIASED) == 0) return -1;
    snprintf(name, sizeof name, "d%d", p->n_weight++);
    int32_t bias = tdm_build_weight(p->b, name, TDM_TYPE_F32, ne, 0);
    if (h->is_cut)
        tdm_build_set_partition(p->b, bias, pool_cut_partition(p, &h->cut, &lens, 1, false), 1);
    return bias;
}

/* Attention, once or over two windows that are merged. */
static int attend(pool *p, const heads *h, int q) {
    tdm_attention_params a = attention_draw(p, h);
    int32_t n_head = h->n_kv * h->per_kv, sink = -1, ml = -1;
    if (choice_rarely(p->c, 4)) {
        int32_t lens = h->per_kv, part = 0;
        if (h->is_cut) part = pool_cut_partition(p, &h->cut, &lens, 1, false);
        sink = pool_plain(p, 's', n_head, part);
    }
    uint32_t kind = pool_below(p, 16);
    const tdm_attention_sources sources = {sink, -1, bias_draw(p, h)};
    int32_t o = tdm_build_attention_of(p->b, pool_use(p, q), p->step, h->state_value, &sources, &a,
                                       kind >= 14 ? &ml : NULL);
    int x = pool_add(p, o, 0.7);
    if (x < 0 || kind < 14) return x;
    int m = pool_add(p, ml, 1);
    if (m < 0) return x;
    p->values[m].is_hidden = true; /* has infinities: for results and merging only */
    if (kind == 14) return x;
    int32_t ml2 = -1;
    a.window = 1 + (int32_t)pool_below(p, 4);
    int32_t o2 = tdm_build_attention(p->b, pool_use(p, q), p->step, h->state_value, -1, &a, &ml2);
    int32_t os = tdm_build_concat(p->b, pool_use(p, x), o2, 3);
    int32_t mls = tdm_build_concat(p->b, pool_use(p, m), ml2, 3);
    return pool_add(p, tdm_build_lse_merge(p->b, os, mls), 0.7);
}

void pool_block_attention(pool *p) {
    heads h = {0};
    int x = p->step >= 0 && p->facts->n_state < RANDOM_MAX_STATE && p->n_cut + 3 < POOL_MAX_CUT
                ? pool_pick_tokens(p)
                : -1;
    if (x < 0 || p->values[x].ne[0] > 512 || !state_draw(p, &h)) return;
    int q = query_make(p, &h, normed(p, x));
    if (q < 0) return;
    int o = attend(p, &h, q);
    if (o < 0) return;
    if (choice_rarely(p->c, 4)) { /* the queries of the next layer read this too */
        tdm_attention_params a = attention_draw(p, &h);
        int again = pool_add(
            p, tdm_build_attention(p->b, pool_use(p, q), p->step, h.state_value, -1, &a, NULL),
            0.7);
        o = pool_residual(p, o, again);
    }
    if (o < 0 || choice_rarely(p->c, 8)) return;
    o = reshaped(p, o, (int64_t)h.n_kv * h.per_kv * h.dim_v, p->n_tok, 1);
    if (o < 0) return;
    int32_t partition = choice_rarely(p->c, 8) ? 0 : h.part_o;
    int y = pool_project(p, o, p->values[x].ne[0], partition, 0, choice_rarely(p->c, 5));
    pool_residual(p, x, y);
}
