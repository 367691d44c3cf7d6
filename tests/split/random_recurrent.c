/* SPDX-License-Identifier: MIT
 *
 * random_recurrent.c: blocks with recurrent states: a convolution of channels in segments, then a
 * scan of heads, each with a state that is cut with the block, or whole.
 */
#include <stdio.h>
#include <string.h>

#include "tests/split/random_pool.h"

/* The numbers of one block. */
typedef struct recurrent {
    int32_t n_unit, n_sub; /* units, parts of a unit */
    bool is_cut, is_tiled;
    pool_cut cut;
    int32_t dk, dv, n_k, per_k;
} recurrent;

static int cut_out(pool *p, int x, int64_t off, int64_t n) {
    int64_t offset[TDM_MAX_DIMS] = {off}, ne[TDM_MAX_DIMS], nb[TDM_MAX_DIMS];
    memcpy(ne, p->values[x].ne, sizeof ne);
    memcpy(nb, p->values[x].nb, sizeof nb);
    ne[0] = n;
    return pool_add_view(p, tdm_build_slice(p->b, pool_use(p, x), offset, ne), x, nb);
}

static int heads_of(pool *p, int x, int64_t len, int64_t n) {
    if (x >= 0) x = pool_contiguous(p, x);
    if (x < 0) return -1;
    return pool_add_view(p, tdm_build_reshape(p->b, pool_use(p, x), len, n, p->n_tok, 1), x, NULL);
}

/* A state of n_unit units of `len` floats, with two slots for each sequence; -1 where it failed.
 * dk: of a scan; 0 for a convolution. */
static int32_t state_make(pool *p, const recurrent *r, int32_t n_unit, int32_t len, int32_t dk,
                          uint32_t flags, int32_t *kv) {
    random_state *s = &p->facts->states[p->facts->n_state];
    uint64_t size = 0;
    s->desc = (tdm_kv_desc){.struct_size = sizeof s->desc,
                            .type_k = TDM_TYPE_F32,
                            .type_v = TDM_TYPE_F32,
                            .head_dim_k = len,
                            .head_dim_v = len,
                            .n_head_kv = n_unit,
                            .page_len = 1,
                            .rope_offset = dk,
                            .flags = TDM_KV_V_FROM_K | TDM_KV_RECURRENT | flags};
    s->n_page = 2 * RANDOM_MAX_SEQ;
    if (p->page_size(p->context, &s->desc, &size, &p->err) != TDM_OK) {
        tdm_build_fail(p->b, p->err.status, "%s", p->err.message);
        return -1;
    }
    snprintf(s->name, sizeof s->name, "rs%d", p->facts->n_state);
    int32_t state = tdm_build_state(p->b, s->name, &s->desc, size, s->n_page, kv);
    if (r->is_cut) {
        s->partition = (tdm_partition){.id = r->cut.id,
                                       .layer = r->cut.layer,
                                       .n_unit = r->n_unit,
                                       .n_segment = 1,
                                       .unit_len = {r->n_sub},
                                       .n_sub = r->n_sub};
        tdm_build_set_partition(p->b, state, tdm_build_partition(p->b, &s->partition), 0);
    }
    p->facts->n_state++;
    return state;
}

static int32_t partition_of(pool *p, const recurrent *r, const int32_t *lens, int n) {
    return r->is_cut ? pool_cut_partition(p, &r->cut, lens, n, false) : 0;
}

/* The convolution of a projection of x: [n_unit * (a + b), n_tok]. */
static int convolve(pool *p, const recurrent *r, int x, int32_t a, int32_t b) {
    const int32_t lens[2] = {a * r->n_sub, b * r->n_sub}, k = 2 + (int32_t)pool_below(p, 3);
    const int32_t n_unit = r->n_unit * r->n_sub, n_segment = b > 0 ? 2 : 1;
    const int64_t n_ch = (int64_t)n_unit * (a + b);
    tdm_conv_params params = {.n_segment = n_segment, .unit_len = {a, b}};
    char name[16];
    int y = pool_project(p, x, n_ch, partition_of(p, r, lens, n_segment), 1, false);
    if (y < 0) return -1;
    int32_t state = state_make(p, r, n_unit, (a + b) * (k - 1), 0, 0, &params.kv);
    if (state < 0) return -1;
    snprintf(name, sizeof name, "w%d", p->n_weight++);
    int32_t w = tdm_build_weight(p->b, name, TDM_TYPE_F32, POOL_SHAPE(k, n_ch, 1, 1), 0), bias = -1;
    int32_t partition = partition_of(p, r, lens, n_segment);
    if (partition != 0) tdm_build_set_partition(p->b, w, partition, 1);
    if (choice_rarely(p->c, 3)) bias = pool_plain(p, 'b', n_ch, partition);
    return pool_add(p, tdm_build_conv1d(p->b, pool_use(p, y), w, bias, p->step, state, &params), 1);
}

/* A decay between exp(-1) and 1. */
static int32_t decay(pool *p, const recurrent *r, int x, int64_t n_v, int32_t len) {
    const int32_t lens[1] = {(int32_t)(n_v / r->n_unit) * len};
    int g = pool_project(p, x, n_v * len, partition_of(p, r, lens, 1), 1, false);
    if (g < 0) return -1;
    g = pool_add(p, tdm_build_act(p->b, pool_use(p, g), TDM_ACT_SIGMOID), 0.7);
    g = heads_of(p, g, len, n_v);
    return g < 0 ? -1 : tdm_build_scale(p->b, pool_use(p, g), -1, 0);
}

static int32_t keys(pool *p, int x, int64_t len, int64_t n) {
    x = heads_of(p, x, len, n);
    if (x < 0) return -1;
    return tdm_build_scale(p->b, tdm_build_rms_norm(p->b, pool_use(p, x), -1, 1e-5f), 0.25f, 0);
}

bool pool_keeps_states(pool *p, uint32_t flags) {
    const tdm_kv_desc desc = {.struct_size = sizeof desc,
                              .type_k = TDM_TYPE_F32,
                              .type_v = TDM_TYPE_F32,
                              .head_dim_k = 1,
                              .head_dim_v = 1,
                              .n_head_kv = 1,
                              .page_len = 1,
                              .flags = TDM_KV_V_FROM_K | TDM_KV_RECURRENT | flags};
    uint64_t size = 0;
    tdm_error refusal = {0};
    return p->page_size(p->context, &desc, &size, &refusal) != TDM_UNSUPPORTED;
}

static int scan(pool *p, const recurrent *r, int x) {
    const int32_t n_v = r->n_k * r->per_k, len = choice_rarely(p->c, 3) ? r->dk : 1;
    const int32_t lens[1] = {(int32_t)(n_v / r->n_unit) * r->dv}, each[1] = {n_v / r->n_unit};
    tdm_scan_params params = {.heads_per_k = r->per_k, .is_tiled = r->is_tiled};
    tdm_scan_sources src = {-1, -1, -1, -1, -1, -1};
    src.q = keys(p, pool_project(p, x, (int64_t)r->n_k * r->dk, 0, 0, false), r->dk, r->n_k);
    src.k = keys(p, pool_project(p, x, (int64_t)r->n_k * r->dk, 0, 0, false), r->dk, r->n_k);
    int v = pool_project(p, x, (int64_t)n_v * r->dv, r->is_tiled ? 0 : partition_of(p, r, lens, 1),
                         1, false);
    v = heads_of(p, v, r->dv, n_v);
    src.g = r->is_tiled ? -1 : decay(p, r, x, n_v, len);
    if (r->is_tiled) { /* without a partition, whose units are no tiles */
        recurrent whole = *r;
        whole.is_cut = false;
        src.g = decay(p, &whole, x, n_v, len);
    }
    const bool is_erased = choice_rarely(p->c, 3) && pool_keeps_states(p, TDM_KV_ERASED);
    int32_t erase = -1, write = -1;
    if (is_erased) {
        erase = keys(p, pool_project(p, x, (int64_t)r->n_k * r->dk, 0, 0, false), r->dk, r->n_k);
        write = keys(p, pool_project(p, x, (int64_t)r->n_k * r->dk, 0, 0, false), r->dk, r->n_k);
        if (erase < 0 || write < 0) return -1;
        erase = tdm_build_scale(p->b, erase, -0.3f, 0); /* states do not grow */
    } else if (choice_rarely(p->c, 2)) {
        int beta = pool_project(p, x, n_v, r->is_tiled ? 0 : partition_of(p, r, each, 1), 1, false);
        if (beta < 0) return -1;
        beta = pool_add(p, tdm_build_act(p->b, pool_use(p, beta), TDM_ACT_SIGMOID), 0.7);
        beta = heads_of(p, beta, 1, n_v);
        if (beta < 0) return -1;
        src.beta = pool_use(p, beta);
    }
    if (v < 0 || src.q < 0 || src.k < 0 || src.g < 0) return -1;
    src.v = pool_use(p, v);
    const int32_t n_unit = r->is_tiled ? r->n_k : n_v;
    int32_t state = state_make(p, r, n_unit, n_v / n_unit * r->dk * r->dv, r->dk,
                               is_erased ? TDM_KV_ERASED : 0, &params.kv);
    if (state < 0) return -1;
    int32_t o =
        is_erased ? tdm_build_linear_scan_erased(p->b, &src, erase, write, p->step, state, &params)
                  : tdm_build_linear_scan(p->b, &src, p->step, state, &params);
    return pool_calm(p, pool_add(p, o, 1));
}

/* A cache that sparse attention reads, or its index: of one KV head where `dv` is 0. -1 where
 * there is none. */
static int32_t sparse_state(pool *p, int32_t n_kv, int32_t dk, int32_t dv, const pool_cut *cut,
                            int32_t *kv) {
    random_state *s = &p->facts->states[p->facts->n_state];
    tdm_error refusal = {0};
    uint64_t size = 0;
    s->desc = (tdm_kv_desc){.struct_size = sizeof s->desc,
                            .type_k = TDM_TYPE_F32,
                            .type_v = TDM_TYPE_F32,
                            .head_dim_k = dk,
                            .head_dim_v = dv > 0 ? dv : 8,
                            .n_head_kv = n_kv,
                            .page_len = p->facts->page_len[0],
                            .flags = TDM_KV_SPARSE | (dv > 0 ? 0 : TDM_KV_V_FROM_K)};
    s->n_page = p->facts->n_page[0];
    if (p->page_size(p->context, &s->desc, &size, &refusal) != TDM_OK) return -1;
    snprintf(s->name, sizeof s->name, "kv%d", p->facts->n_state);
    int32_t state = tdm_build_state(p->b, s->name, &s->desc, size, s->n_page, kv);
    if (cut != NULL) {
        s->partition = (tdm_partition){.id = cut->id,
                                       .layer = cut->layer,
                                       .n_unit = n_kv,
                                       .n_segment = 1,
                                       .unit_len = {dk},
                                       .n_sub = cut->n_sub,
                                       .whole_segments = 1};
        tdm_build_set_partition(p->b, state, tdm_build_partition(p->b, &s->partition), 0);
    }
    p->facts->n_state++;
    return state;
}

/* Positions or blocks of them. */
static tdm_select_params select_draw(pool *p) {
    tdm_select_params select = {.n_top = (int32_t)POOL_ONE_OF(p, 3, 1, 30)};
    if (!choice_rarely(p->c, 2)) return select;
    select.block_len = (int32_t)POOL_ONE_OF(p, 2, 1, 3, 5);
    select.n_local = (int32_t)pool_below(p, (uint32_t)select.n_top + 1);
    select.n_top *= select.block_len;
    return select;
}

/* Sparse attention over a cache whose KV heads have lists of their own, from an index beside it.
 * The cache may be cut by heads. */
static void listed_attention(pool *p) {
    const int32_t n_kv = (int32_t)POOL_ONE_OF(p, 2, 3, 5),
                  per_kv = (int32_t)POOL_ONE_OF(p, 2, 1, 3);
    const int32_t dim = (int32_t)POOL_ONE_OF(p, 8, 40), dv = (int32_t)POOL_ONE_OF(p, 8, 24);
    const bool is_cut = !choice_rarely(p->c, 5);
    tdm_select_params select = select_draw(p);
    tdm_attention_params params = {
        .heads_per_kv = per_kv, .n_head_all = n_kv * per_kv, .is_causal = 1};
    pool_cut cut = {0};
    if (is_cut) cut = pool_new_cut(p, n_kv, per_kv);
    int32_t index = sparse_state(p, 1, dim, 0, NULL, &select.kv);
    int32_t state =
        index >= 0 ? sparse_state(p, n_kv, dim, dv, is_cut ? &cut : NULL, &params.kv) : -1;
    if (state < 0) return;
    int index_k = pool_input(p, POOL_SHAPE(dim, 1, p->n_tok, 1));
    int index_q = pool_input(p, POOL_SHAPE(dim, n_kv, p->n_tok, 1));
    int k = pool_input(p, POOL_SHAPE(dim, n_kv, p->n_tok, 1));
    int v = pool_input(p, POOL_SHAPE(dv, n_kv, p->n_tok, 1));
    int q = pool_input(p, POOL_SHAPE(dim, n_kv * per_kv, p->n_tok, 1));
    if (index_k < 0 || index_q < 0 || k < 0 || v < 0 || q < 0) return;
    tdm_build_kv_write(p->b, pool_use(p, index_k), -1, p->step, index, select.kv);
    tdm_build_kv_write(p->b, pool_use(p, k), pool_use(p, v), p->step, state, params.kv);
    int32_t list = tdm_build_kv_select(p->b, pool_use(p, index_q), -1, p->step, index, &select);
    pool_add(
        p,
        tdm_build_attention_sparse(p->b, pool_use(p, q), p->step, state, -1, list, &params, NULL),
        0.7);
}

/* Sparse attention over one cache, by inputs that all members have alike: which positions are
 * selected must not hang on how a member rounds. */
static void sparse_attention(pool *p) {
    const int32_t n_head = (int32_t)POOL_ONE_OF(p, 3, 1, 4), dim = (int32_t)POOL_ONE_OF(p, 8, 40);
    tdm_select_params select = select_draw(p);
    tdm_attention_params params = {.heads_per_kv = n_head, .n_head_all = n_head, .is_causal = 1};
    int32_t state = sparse_state(p, 1, dim, 0, NULL, &select.kv);
    if (state < 0) return;
    int k = pool_input(p, POOL_SHAPE(dim, 1, p->n_tok, 1));
    int q = pool_input(p, POOL_SHAPE(dim, n_head, p->n_tok, 1));
    int w = pool_input(p, POOL_SHAPE(n_head, p->n_tok, 1, 1));
    if (k < 0 || q < 0 || w < 0) return;
    params.kv = select.kv;
    tdm_build_kv_write(p->b, pool_use(p, k), -1, p->step, state, select.kv);
    int32_t list =
        tdm_build_kv_select(p->b, pool_use(p, q), pool_use(p, w), p->step, state, &select);
    pool_add(
        p,
        tdm_build_attention_sparse(p->b, pool_use(p, q), p->step, state, -1, list, &params, NULL),
        0.7);
}

void pool_block_recurrent(pool *p) {
    recurrent r = {0};
    if (!pool_keeps_states(p, 0)) return;
    if (p->step >= 0 && p->facts->n_state + 3 < RANDOM_MAX_STATE && choice_rarely(p->c, 3)) {
        if (p->n_cut + 1 < POOL_MAX_CUT && choice_rarely(p->c, 2))
            listed_attention(p);
        else
            sparse_attention(p);
    }
    int x = p->step >= 0 && p->facts->n_state + 1 < RANDOM_MAX_STATE && p->n_cut + 3 < POOL_MAX_CUT
                ? pool_pick_tokens(p)
                : -1;
    if (x < 0 || p->values[x].ne[0] > 256) return;
    r.n_k = (int32_t)POOL_ONE_OF(p, 2, 1, 3, 4, 5);
    r.per_k = (int32_t)POOL_ONE_OF(p, 2, 1, 3, 4);
    r.dk = (int32_t)POOL_ONE_OF(p, 8, 16, 5);
    r.dv = (int32_t)POOL_ONE_OF(p, 8, 1, 16, 3);
    r.is_tiled = choice_rarely(p->c, 3);
    r.is_cut = !choice_rarely(p->c, 6);
    /* Grouped: a unit is a head of k with its heads of v, which may be held apart. */
    r.n_unit = r.n_k;
    r.n_sub = r.is_tiled ? 1 : r.per_k;
    if (r.is_cut) r.cut = pool_new_cut(p, r.n_unit, r.n_sub);
    int32_t a = 1 + (int32_t)pool_below(p, 4), b = (int32_t)pool_below(p, 3);
    int y = convolve(p, &r, x, a, b);
    if (y < 0) return;
    int h = cut_out(p, y, 0, (int64_t)r.n_unit * r.n_sub * a);
    h = h >= 0 ? pool_contiguous(p, h) : -1;
    if (h < 0) return;
    int o = scan(p, &r, h);
    if (o >= 0) heads_of(p, o, (int64_t)r.n_k * r.per_k * r.dv, 1);
}
