/* SPDX-License-Identifier: MIT
 *
 * graph_fixture.h: values and graphs for the graph tests: a builder with one value of each kind,
 * and random graphs that use every op. Random numbers follow from a printed seed; TANDEM_SEED
 * replaces it.
 */
#ifndef TANDEM_TEST_GRAPH_FIXTURE_H
#define TANDEM_TEST_GRAPH_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/builder.h"
#include "core/graph/op_rules.h"
#include "tests/support/random.h"

#define NE(...)                                                                                    \
    (const int64_t[4]) {                                                                           \
        __VA_ARGS__                                                                                \
    }

/* ---- Random numbers ---- */

static uint64_t random_state;

static inline uint64_t random_next(void) {
    return random_u64(&random_state);
}

/* 0 .. n-1 */
static inline int64_t random_below(int64_t n) {
    return n > 0 ? (int64_t)(random_next() >> 11) % n : 0;
}

static inline void random_begin(const char *test, uint64_t seed) {
    random_state = test_seed(test, seed);
}

/* ---- One value of each sort ---- */

enum {
    FIX_TOK = 5,
    FIX_OUT = 2,
    FIX_EMBD = 64,
    FIX_HEAD_DIM = 16,
    FIX_HEADS = 4,
    FIX_HEADS_KV = 2
};

typedef struct fixture {
    tdm_builder *b;
    int32_t step, state, kv;
    int32_t latent, latent_kv; /* V_FROM_K, head_dim_k 16, head_dim_v 8 */
    int32_t x;                 /* input f32 [64, 5] */
    int32_t q, k;              /* input f32 [16, 4, 5] and [16, 2, 5] */
    int32_t w;                 /* weight q8_0 [64, 32], MATMUL */
    int32_t plain;             /* weight q8_0 [64, 32], no usage */
    int32_t table;             /* weight q4_0 [64, 100], ROWS */
    int32_t norm;              /* weight f32 [64] */
    int32_t gate, up, down;    /* weights q8_0 [64, 32, 4] and [32, 64, 4], EXPERT */
} fixture;

static inline tdm_kv_desc fixture_kv_desc(void) {
    tdm_kv_desc desc = {.struct_size = sizeof desc,
                        .type_k = TDM_TYPE_Q8_0,
                        .type_v = TDM_TYPE_Q4_0,
                        .head_dim_k = FIX_HEAD_DIM,
                        .head_dim_v = FIX_HEAD_DIM,
                        .n_head_kv = FIX_HEADS_KV,
                        .n_rot = FIX_HEAD_DIM,
                        .flags = TDM_KV_ROTATE_K | TDM_KV_ROTATE_V};
    return desc;
}

static inline fixture fixture_make(void) {
    const tdm_step_caps caps = {FIX_TOK, 2, FIX_OUT, 8, 3, 1, .has_rs = 1};
    tdm_kv_desc desc = fixture_kv_desc(), latent = fixture_kv_desc();
    fixture f;
    assert_int_equal(tdm_builder_create(&f.b, NULL), TDM_OK);
    f.step = tdm_build_step(f.b, &caps);
    f.state = tdm_build_state(f.b, "blk.0.cache", &desc, 1000, 7, &f.kv);
    latent.type_v = latent.type_k;
    latent.head_dim_v = 8;
    latent.flags |= TDM_KV_V_FROM_K;
    f.latent = tdm_build_state(f.b, "blk.1.cache", &latent, 500, 7, &f.latent_kv);
    f.x = tdm_build_input(f.b, "x", TDM_TYPE_F32, NE(FIX_EMBD, FIX_TOK, 1, 1));
    f.q = tdm_build_input(f.b, "q", TDM_TYPE_F32, NE(FIX_HEAD_DIM, FIX_HEADS, FIX_TOK, 1));
    f.k = tdm_build_input(f.b, "k", TDM_TYPE_F32, NE(FIX_HEAD_DIM, FIX_HEADS_KV, FIX_TOK, 1));
    f.w = tdm_build_weight(f.b, "w", TDM_TYPE_Q8_0, NE(64, 32, 1, 1), TDM_USAGE_MATMUL);
    f.plain = tdm_build_weight(f.b, "plain", TDM_TYPE_Q8_0, NE(64, 32, 1, 1), 0);
    f.table = tdm_build_weight(f.b, "table", TDM_TYPE_Q4_0, NE(64, 100, 1, 1), TDM_USAGE_ROWS);
    f.norm = tdm_build_weight(f.b, "norm", TDM_TYPE_F32, NE(64, 1, 1, 1), 0);
    f.gate = tdm_build_weight(f.b, "gate", TDM_TYPE_Q8_0, NE(64, 32, 4, 1), TDM_USAGE_EXPERT);
    f.up = tdm_build_weight(f.b, "up", TDM_TYPE_Q8_0, NE(64, 32, 4, 1), TDM_USAGE_EXPERT);
    f.down = tdm_build_weight(f.b, "down", TDM_TYPE_Q8_0, NE(32, 64, 4, 1), TDM_USAGE_EXPERT);
    return f;
}

static inline tdm_attention_params fixture_attention(const fixture *f) {
    tdm_attention_params p = {.kv = f->kv,
                              .heads_per_kv = FIX_HEADS / FIX_HEADS_KV,
                              .n_head_all = FIX_HEADS,
                              .is_causal = 1};
    return p;
}

static inline tdm_rope_params fixture_rope(void) {
    tdm_rope_params p = {.n_rot = FIX_HEAD_DIM, .freq_base = 10000};
    return p;
}

/* Means over blocks of 4 positions to rows of n in a cache of one head. */
static inline void fixture_pool(const fixture *f, int32_t keys, int32_t keys_kv, int32_t n) {
    const tdm_kv_desc desc = {.struct_size = sizeof desc,
                              .type_k = TDM_TYPE_F32,
                              .type_v = TDM_TYPE_F32,
                              .head_dim_k = 6 * n,
                              .head_dim_v = 6 * n,
                              .n_head_kv = 1,
                              .page_len = 1,
                              .flags = TDM_KV_V_FROM_K | TDM_KV_RECURRENT | TDM_KV_POOLED};
    tdm_pool_params pool = {.n_part = 2};
    int32_t state = tdm_build_state(f->b, NULL, &desc, 4096, 3, &pool.kv);
    int32_t x = tdm_build_input(f->b, NULL, TDM_TYPE_F32, NE(2 * n, FIX_TOK, 1, 1));
    int32_t bias = tdm_build_input(f->b, NULL, TDM_TYPE_F32, NE(2 * n, 4, 1, 1));
    x = tdm_build_block_pool(f->b, x, x, bias, f->step, state, &pool);
    x = tdm_build_reshape(f->b, x, n, 1, FIX_TOK, 1);
    tdm_build_kv_write(f->b, x, -1, f->step, keys, keys_kv);
}

/* A convolution and a scan over its channels, each with slots of its own, and beside them a
 * selection over an index with a stride and a mean over blocks, whose rows it keeps. */
static inline int32_t fixture_recurrent(const fixture *f) {
    tdm_kv_desc desc = {.struct_size = sizeof desc,
                        .type_k = TDM_TYPE_F32,
                        .type_v = TDM_TYPE_F32,
                        .head_dim_k = 12,
                        .head_dim_v = 12,
                        .n_head_kv = 4,
                        .page_len = 1,
                        .flags = TDM_KV_V_FROM_K | TDM_KV_RECURRENT};
    tdm_conv_params conv = {.n_segment = 2, .unit_len = {1, 3}};
    tdm_scan_params scan = {.heads_per_k = 2};
    int32_t state = tdm_build_state(f->b, NULL, &desc, 4096, 3, &conv.kv);
    int32_t x = tdm_build_input(f->b, NULL, TDM_TYPE_F32, NE(16, FIX_TOK, 1, 1));
    int32_t w = tdm_build_input(f->b, NULL, TDM_TYPE_F32, NE(4, 16, 1, 1));
    x = tdm_build_conv1d(f->b, x, w, -1, f->step, state, &conv);
    x = tdm_build_reshape(f->b, x, 4, 4, FIX_TOK, 1);
    int32_t q = tdm_build_input(f->b, NULL, TDM_TYPE_F32, NE(3, 2, FIX_TOK, 1));
    int32_t g = tdm_build_input(f->b, NULL, TDM_TYPE_F32, NE(1, 4, FIX_TOK, 1));
    desc.rope_offset = 3; /* dk */
    state = tdm_build_state(f->b, NULL, &desc, 4096, 3, &scan.kv);
    const tdm_scan_sources s = {q, q, x, g, -1, -1};
    tdm_kv_desc index = fixture_kv_desc();
    tdm_select_params top = {.n_top = 3};
    index.n_head_kv = 1;
    index.type_v = index.type_k;
    index.head_dim_v = index.head_dim_k;
    index.flags |= TDM_KV_V_FROM_K | TDM_KV_SPARSE | TDM_KV_STRIDED;
    index.stride = 4;
    int32_t keys = tdm_build_state(f->b, NULL, &index, 4096, 3, &top.kv);
    const int64_t q_ne[] = {16, 2, 5, 1}, w_ne[] = {2, 5, 1, 1};
    fixture_pool(f, keys, top.kv, index.head_dim_k);
    tdm_build_kv_select(f->b, tdm_build_input(f->b, NULL, TDM_TYPE_F32, q_ne),
                        tdm_build_input(f->b, NULL, TDM_TYPE_F32, w_ne), f->step, keys, &top);
    return tdm_build_linear_scan(f->b, &s, f->step, state, &scan);
}

/* ---- Random graphs ---- */

/* A random op of the list whose sources can all be a value of shape `ne`, without parameters; its
 * optional sources are absent. False where the op drawn is of another kind. */
static inline bool random_simple_op(const int64_t ne[4], tdm_node_spec *spec) {
    tdm_op op = (tdm_op)(1 + random_below(TDM_OP_COUNT_ - 1));
    const tdm_op_rule *rule = tdm_op_rule_get(op);
    tdm_builder *b = NULL;
    int32_t x;
    bool is_taken;
    int i;
    if (tdm_op_is_view(op) || rule->state_src != 0 || rule->step_src != 0 || rule->n_dst != 1)
        return false;
    if (tdm_builder_create(&b, NULL) != TDM_OK) return false;
    x = tdm_build_input(b, "x", TDM_TYPE_F32, ne);
    *spec = tdm_node_spec_of(op, -1, -1, -1, -1);
    for (i = 0; i < rule->n_src; i++)
        if ((rule->optional_src >> i & 1) == 0) spec->src[i] = x;
    spec->dst[0].type = TDM_TYPE_F32;
    memcpy(spec->dst[0].ne, ne, sizeof spec->dst[0].ne);
    is_taken = tdm_build_node(b, spec, NULL) >= 0;
    tdm_builder_destroy(b);
    return is_taken;
}

/* Up to n_step random ops over a growing pool of values, each op in it somewhere if n_step is large
 * enough; some values become outputs. */
static inline tdm_graph *random_graph(int n_step) {
    enum { MAX_POOL = 512 };
    fixture f = fixture_make();
    int32_t pool[MAX_POOL], n_pool = 0, tok, pos, i;
    tdm_attention_params attention = fixture_attention(&f);
    tdm_rope_params rope = fixture_rope();
    tdm_route_params route = {.n_used = 2, .normalize = 1};
    tdm_graph *graph = NULL;
    tdm_error err = {0};
    tok = tdm_build_step_field(f.b, TDM_STEP_TOKEN);
    pos = tdm_build_step_field(f.b, TDM_STEP_POS);
    pool[n_pool++] = f.x;
    pool[n_pool++] = tdm_build_get_rows(f.b, f.table, tok, 0);
    for (i = 0; i < n_step && n_pool < MAX_POOL - 4; i++) {
        int32_t x = pool[random_below(n_pool)], y = -1, other = -1;
        const int64_t *shape = tdm_build_shape(f.b, x);
        int64_t ne[4], offset[4], count;
        int d;
        if (shape == NULL) break; /* tdm_builder_finish reports the reason */
        memcpy(ne, shape, sizeof ne);
        count = ne[0] * ne[1] * ne[2] * ne[3];
        switch (random_below(25)) {
        case 0: y = tdm_build_scale(f.b, x, 2.0f, 0.5f); break;
        case 1: y = tdm_build_act(f.b, x, TDM_ACT_SILU); break;
        case 2: y = tdm_build_glu(f.b, x, x, TDM_ACT_GELU); break;
        case 3: y = tdm_build_softmax(f.b, x); break;
        case 4: {
            int axes[4] = {0, 1, 2, 3};
            for (d = 3; d > 0; d--) {
                int j = (int)random_below(d + 1), t = axes[d];
                axes[d] = axes[j], axes[j] = t;
            }
            y = tdm_build_permute(f.b, x, axes[0], axes[1], axes[2], axes[3]);
            break;
        }
        case 5:
        case 6:
            for (d = 0; d < 4; d++) {
                offset[d] = random_below(shape[d] + 1);
                ne[d] = shape[d] - offset[d];
                if (random_below(4) != 0 && ne[d] > 0) ne[d] = 1 + random_below(ne[d]);
            }
            y = tdm_build_slice(f.b, x, offset, ne);
            break;
        case 7: y = tdm_build_copy(f.b, x, TDM_TYPE_F32); break;
        case 8: /* a copy reshaped to two axes */
            y = tdm_build_copy(f.b, x, TDM_TYPE_F32);
            y = count % 2 == 0 ? tdm_build_reshape(f.b, y, count / 2, 2, 1, 1)
                               : tdm_build_reshape(f.b, y, count, 1, 1, 1);
            break;
        case 9:
            if (count < 4096) y = tdm_build_concat(f.b, x, x, (int)random_below(4));
            break;
        case 10: {
            int64_t n = 1 + random_below(40);
            tdm_partition cut = {.id = 100 + i, .layer = i, .n_segment = 1, .unit_len = {1}};
            int32_t w =
                tdm_build_weight(f.b, NULL, TDM_TYPE_F16, NE(ne[0], n, 1, 1), TDM_USAGE_MATMUL);
            cut.n_unit = (int32_t)n;
            tdm_build_set_partition(f.b, w, tdm_build_partition(f.b, &cut), 1);
            y = tdm_build_matmul(f.b, w, x);
            break;
        }
        case 11: y = tdm_build_add(f.b, x, x); break;
        case 12: y = tdm_build_mul(f.b, x, x); break;
        case 13: y = tdm_build_rms_norm(f.b, x, -1, 1e-5f); break;
        case 14: y = tdm_build_rms_apply(f.b, x, tdm_build_sum_sq(f.b, x), -1, 1e-5f, 0); break;
        case 15:
            y = tdm_build_rope(f.b, f.q, pos, -1, &rope);
            tdm_build_kv_write(f.b, f.k, f.k, f.step, f.state, f.kv);
            y = tdm_build_attention(f.b, y, f.step, f.state, -1, &attention,
                                    random_below(2) == 0 ? &other : NULL);
            break;
        case 16:
            y = tdm_build_reshape(f.b, tdm_build_copy(f.b, x, TDM_TYPE_F32), count, 1, 1, 1);
            y = tdm_build_top_k(f.b, y, (int32_t)random_below(count + 1), 0, &other);
            other = -1; /* i32 */
            break;
        case 17: {
            int32_t weight, id = tdm_build_moe_route(
                                f.b, tdm_build_input(f.b, NULL, TDM_TYPE_F32, NE(4, 5, 1, 1)), -1,
                                &route, &weight);
            y = tdm_build_moe_ffn(f.b, f.x, id, weight, f.gate, f.up, f.down, TDM_ACT_SILU, 0, 0);
            other = tdm_build_reshape(f.b, f.x, 64, 1, 5, 1);
            other = tdm_build_moe_matmul(f.b, f.gate, other, id, 0, 0);
            break;
        }
        case 18: tdm_build_kv_shift(f.b, f.step, f.state, -1, f.kv, &rope); break;
        case 19: {
            int32_t v, k = tdm_build_kv_export(f.b, f.step, f.state, f.kv, 9, &v);
            tdm_build_kv_import(f.b, k, v, f.step, f.state, f.kv);
            tdm_build_kv_copy(f.b, f.step, f.state, f.kv);
            break;
        }
        case 20:
            y = tdm_build_lse_merge(
                f.b, tdm_build_input(f.b, NULL, TDM_TYPE_F32, NE(FIX_HEAD_DIM, 4, 5, 2)),
                tdm_build_input(f.b, NULL, TDM_TYPE_F32, NE(2, 4, 5, 2)));
            break;
        case 21: {
            tdm_node_spec spec;
            if (!random_simple_op(ne, &spec)) break;
            for (d = 0; d < TDM_MAX_SRC; d++)
                if (spec.src[d] >= 0) spec.src[d] = x;
            y = tdm_build_node(f.b, &spec, NULL);
            break;
        }
        case 22: y = fixture_recurrent(&f); break;
        case 23: {
            int32_t weight, id = tdm_build_input(f.b, NULL, TDM_TYPE_I32, NE(2, 5, 1, 1));
            other = tdm_build_input(f.b, NULL, TDM_TYPE_F32, NE(4, 4, 5, 1));
            other = tdm_build_sinkhorn(f.b, other, 3, 1e-6f);
            id = tdm_build_moe_route_given(
                f.b, tdm_build_input(f.b, NULL, TDM_TYPE_F32, NE(4, 5, 1, 1)), id, &route, &weight);
            y = tdm_build_moe_ffn(f.b, f.x, id, weight, f.gate, f.up, f.down, TDM_ACT_SILU, 0, 0);
            break;
        }
        default: /* an output, of a temporary that is no view */
            if (random_below(2) == 0) {
                y = tdm_build_copy(f.b, x, TDM_TYPE_F32);
                tdm_build_output(f.b, y, "out");
            }
        }
        if (y >= 0) pool[n_pool++] = y;
        if (other >= 0) pool[n_pool++] = other;
    }
    if (tdm_builder_finish(f.b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(f.b);
    return graph;
}

#endif
