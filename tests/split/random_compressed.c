/* SPDX-License-Identifier: MIT
 *
 * random_compressed.c: blocks with compressed attention: means over blocks of tokens as the rows of
 * a cache with a stride, attention over it, by lists or over all, and a turn back; and small doubly
 * stochastic matrices.
 */
#include <stdio.h>
#include <string.h>

#include "tests/split/random_pool.h"

/* The numbers of one block. */
typedef struct compressed {
    int32_t n, n_head, n_kv, block_len, n_part;
    bool is_cut, is_listed;
    pool_cut cut;
    int32_t state, kv;
} compressed;

/* A state of the case, cut by KV heads where `cut` is not NULL; -1 where it failed. */
static int32_t state_add(pool *p, const tdm_kv_desc *desc, int64_t n_page, const pool_cut *cut,
                         int32_t *kv) {
    random_state *s = &p->facts->states[p->facts->n_state];
    uint64_t size = 0;
    s->desc = *desc;
    s->n_page = n_page;
    if (p->page_size(p->context, desc, &size, &p->err) != TDM_OK) {
        tdm_build_fail(p->b, p->err.status, "%s", p->err.message);
        return -1;
    }
    snprintf(s->name, sizeof s->name, "cs%d", p->facts->n_state);
    const int32_t state = tdm_build_state(p->b, s->name, desc, size, n_page, kv);
    if (cut != NULL) {
        s->partition = (tdm_partition){.id = cut->id,
                                       .layer = cut->layer,
                                       .n_unit = cut->n_unit,
                                       .n_segment = 1,
                                       .unit_len = {desc->head_dim_k},
                                       .n_sub = cut->n_sub,
                                       .whole_segments = 1};
        tdm_build_set_partition(p->b, state, tdm_build_partition(p->b, &s->partition), 0);
    }
    p->facts->n_state++;
    return state;
}

static int heads_of(pool *p, int x, int64_t len, int64_t n) {
    if (x >= 0) x = pool_contiguous(p, x);
    if (x < 0) return -1;
    return pool_add_view(p, tdm_build_reshape(p->b, pool_use(p, x), len, n, p->n_tok, 1), x, NULL);
}

static int turned(pool *p, const compressed *c, int x, int32_t pos_add, bool is_inverse) {
    const tdm_rope_params rope = {.n_rot = c->n / 4 * 2,
                                  .rope_offset = c->n - c->n / 4 * 2,
                                  .pos_add = pos_add,
                                  .is_inverse = is_inverse};
    if (x < 0) return -1;
    return pool_add(p, tdm_build_rope(p->b, pool_use(p, x), p->pos, -1, &rope), p->values[x].size);
}

/* What rows are made of: a projection of x, or an input that all members have alike. */
static int source(pool *p, const compressed *c, int x, int64_t n) {
    if (c->is_listed) return pool_input(p, POOL_SHAPE(n, p->n_tok, 1, 1));
    return pool_project(p, x, n, choice_rarely(p->c, 3) ? pool_partition(p, n) : 0, 1, false);
}

/* The mean over the block of each token so far, turned by the block's first position: [n, 1,
 * n_tok]. */
static int pooled(pool *p, const compressed *c, int x) {
    const int32_t n_row = c->n * c->n_part;
    const tdm_kv_desc desc = {.struct_size = sizeof desc,
                              .type_k = TDM_TYPE_F32,
                              .type_v = TDM_TYPE_F32,
                              .head_dim_k = 3 * n_row,
                              .head_dim_v = 3 * n_row,
                              .n_head_kv = 1,
                              .page_len = 1,
                              .flags = TDM_KV_V_FROM_K | TDM_KV_RECURRENT | TDM_KV_POOLED};
    tdm_pool_params params = {.n_part = c->n_part};
    char name[16];
    const int y = source(p, c, x, n_row), score = source(p, c, x, n_row);
    if (y < 0 || score < 0) return -1;
    const int32_t state = state_add(p, &desc, 2 * RANDOM_MAX_SEQ, NULL, &params.kv);
    if (state < 0) return -1;
    snprintf(name, sizeof name, "b%d", p->n_weight++);
    const int32_t bias =
        tdm_build_weight(p->b, name, TDM_TYPE_F32, POOL_SHAPE(n_row, c->block_len, 1, 1), 0);
    const int mean = pool_add(p,
                              tdm_build_block_pool(p->b, pool_use(p, y), pool_use(p, score), bias,
                                                   p->step, state, &params),
                              0.7);
    return turned(p, c, heads_of(p, mean, c->n, 1), 1 - c->block_len, false);
}

/* Rows into the cache: of one head from means, or K and V of several. */
static bool rows_write(pool *p, compressed *c, int x) {
    const tdm_kv_desc desc = {.struct_size = sizeof desc,
                              .type_k = TDM_TYPE_F32,
                              .type_v = TDM_TYPE_F32,
                              .head_dim_k = c->n,
                              .head_dim_v = c->n,
                              .n_head_kv = c->n_kv,
                              .page_len = p->facts->page_len[0],
                              .flags = TDM_KV_STRIDED | (c->n_kv == 1 ? TDM_KV_V_FROM_K : 0) |
                                       (c->is_listed ? TDM_KV_SPARSE : 0),
                              .stride = c->block_len};
    const int64_t n = (int64_t)c->n * c->n_kv;
    const int32_t lens[1] = {c->n};
    const int32_t part =
        c->is_cut && c->n_kv > 1 ? pool_cut_partition(p, &c->cut, lens, 1, true) : 0;
    const int k = c->n_kv == 1 ? pooled(p, c, x)
                               : heads_of(p, pool_project(p, x, n, part, 1, false), c->n, c->n_kv);
    const int v =
        c->n_kv == 1 ? -1 : heads_of(p, pool_project(p, x, n, part, 1, false), c->n, c->n_kv);
    if (k < 0 || (v < 0 && c->n_kv > 1)) return false;
    c->state = state_add(p, &desc, p->facts->n_page[0], c->is_cut ? &c->cut : NULL, &c->kv);
    if (c->state < 0) return false;
    tdm_build_kv_write(p->b, pool_use(p, k), v >= 0 ? pool_use(p, v) : -1, p->step, c->state,
                       c->kv);
    return true;
}

static int attend(pool *p, const compressed *c, int x) {
    const int32_t per_kv = c->n_head / c->n_kv, lens[1] = {per_kv * c->n}, each[1] = {per_kv};
    const tdm_attention_params params = {
        .kv = c->kv, .heads_per_kv = per_kv, .n_head_all = c->n_head, .is_causal = 1};
    const int32_t part_q = c->is_cut ? pool_cut_partition(p, &c->cut, lens, 1, false) : 0;
    const int32_t part_sink = c->is_cut ? pool_cut_partition(p, &c->cut, each, 1, false) : 0;
    int q = c->is_listed ? pool_input(p, POOL_SHAPE((int64_t)c->n * c->n_head, p->n_tok, 1, 1))
                         : pool_project(p, x, (int64_t)c->n * c->n_head, part_q, 1, false);
    q = turned(p, c, heads_of(p, q, c->n, c->n_head), 0, false);
    if (q < 0) return -1;
    const int32_t sink = choice_rarely(p->c, 2) ? pool_plain(p, 's', c->n_head, part_sink) : -1;
    int32_t list = -1;
    if (c->is_listed) {
        const tdm_select_params select = {.kv = c->kv, .n_top = (int32_t)POOL_ONE_OF(p, 2, 1, 9)};
        const int w = pool_input(p, POOL_SHAPE(c->n_head, p->n_tok, 1, 1));
        if (w < 0) return -1;
        list =
            tdm_build_kv_select(p->b, pool_use(p, q), pool_use(p, w), p->step, c->state, &select);
    }
    const tdm_attention_sources sources = {sink, list, -1};
    const int o = pool_add(
        p, tdm_build_attention_of(p->b, pool_use(p, q), p->step, c->state, &sources, &params, NULL),
        0.7);
    return turned(p, c, o, 0, true);
}

static void matrices(pool *p, int x) {
    const int64_t n = POOL_ONE_OF(p, 4, 2, 3, 8);
    const int32_t n_iter = 1 + (int32_t)pool_below(p, 4);
    const int m = heads_of(p, pool_project(p, x, n * n, pool_partition(p, n * n), 1, false), n, n);
    if (m < 0) return;
    pool_add(p, tdm_build_sinkhorn(p->b, pool_use(p, m), n_iter, 1e-3f), 1 / (double)n);
}

void pool_block_compressed(pool *p) {
    compressed c = {0};
    const random_case *f = p->facts;
    /* A shift moves the ends of runs, and rows that move by cells lose their positions. */
    if (p->step < 0 || f->shift != 0 || f->reimports || f->n_state + 2 > RANDOM_MAX_STATE ||
        p->n_cut + 5 > POOL_MAX_CUT || !pool_keeps_states(p, TDM_KV_POOLED))
        return;
    const int x = pool_pick_tokens(p);
    if (x < 0 || p->values[x].ne[0] > 256) return;
    if (choice_rarely(p->c, 2)) matrices(p, x);
    c.n = (int32_t)POOL_ONE_OF(p, 8, 16, 40);
    c.n_kv = (int32_t)POOL_ONE_OF(p, 1, 1, 2, 3);
    c.n_head = c.n_kv * (int32_t)POOL_ONE_OF(p, 2, 1, 3);
    c.block_len = (int32_t)POOL_ONE_OF(p, 2, 4, 3, 16);
    c.n_part = 1 + (int32_t)pool_below(p, 2);
    c.is_listed = c.n_kv == 1 && choice_rarely(p->c, 3);
    c.is_cut = !c.is_listed && !choice_rarely(p->c, 4);
    if (c.is_cut) c.cut = pool_new_cut(p, c.n_kv, c.n_head / c.n_kv);
    if (!rows_write(p, &c, x)) return;
    int o = attend(p, &c, x);
    if (o < 0) return;
    o = pool_contiguous(p, o);
    if (o < 0) return;
    const int64_t n = (int64_t)c.n * c.n_head;
    o = pool_add_view(p, tdm_build_reshape(p->b, pool_use(p, o), n, p->n_tok, 1, 1), o, NULL);
    if (o < 0) return;
    const int32_t lens[1] = {c.n_head / c.n_kv * c.n};
    const int32_t part = c.is_cut ? pool_cut_partition(p, &c.cut, lens, 1, false) : 0;
    pool_residual(p, x, pool_project(p, o, p->values[x].ne[0], part, 0, false));
}
