/* SPDX-License-Identifier: MIT
 *
 * builder_nodes.h: a function for each op: its sources, in the order of op.h, and its parameters.
 * The op's rule decides everything else, so that a graph that could be built is one that verifies.
 * Each returns the node's first destination. Part of builder.h, which includes it.
 */
#ifndef TANDEM_CORE_BUILDER_NODES_H
#define TANDEM_CORE_BUILDER_NODES_H

#include <string.h>

#include "core/graph/builder.h"

/* No parameters; every destination is present. */
static inline tdm_node_spec tdm_node_spec_of(tdm_op op, int32_t s0, int32_t s1, int32_t s2,
                                             int32_t s3) {
    tdm_node_spec r;
    int i;
    memset(&r, 0, sizeof r);
    r.op = op;
    for (i = 0; i < TDM_MAX_SRC; i++) r.src[i] = -1;
    r.src[0] = s0, r.src[1] = s1, r.src[2] = s2, r.src[3] = s3;
    for (i = 0; i < TDM_MAX_DST; i++) r.dst[i].is_present = true;
    return r;
}

static inline int32_t tdm_build_reshape(tdm_builder *b, int32_t x, int64_t ne0, int64_t ne1,
                                        int64_t ne2, int64_t ne3) {
    const int64_t ne[TDM_MAX_DIMS] = {ne0, ne1, ne2, ne3};
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_RESHAPE, x, -1, -1, -1);
    memcpy(r.dst[0].ne, ne, sizeof ne);
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_permute(tdm_builder *b, int32_t x, int a0, int a1, int a2, int a3) {
    const int32_t axis[TDM_MAX_DIMS] = {a0, a1, a2, a3};
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_PERMUTE, x, -1, -1, -1);
    memcpy(r.params.permute.axis, axis, sizeof axis);
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_slice(tdm_builder *b, int32_t x, const int64_t offset[TDM_MAX_DIMS],
                                      const int64_t ne[TDM_MAX_DIMS]) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_SLICE, x, -1, -1, -1);
    memcpy(r.params.slice.offset, offset, sizeof r.params.slice.offset);
    memcpy(r.dst[0].ne, ne, sizeof r.dst[0].ne);
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_copy(tdm_builder *b, int32_t x, tdm_type type) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_COPY, x, -1, -1, -1);
    r.dst[0].type = (int32_t)type;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_concat(tdm_builder *b, int32_t x, int32_t y, int axis) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_CONCAT, x, y, -1, -1);
    r.params.concat.axis = axis;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_repeat(tdm_builder *b, int32_t x, const int64_t ne[TDM_MAX_DIMS]) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_REPEAT, x, -1, -1, -1);
    memcpy(r.dst[0].ne, ne, sizeof r.dst[0].ne);
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_get_rows(tdm_builder *b, int32_t table, int32_t id,
                                         int64_t first_row) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_GET_ROWS, table, id, -1, -1);
    r.params.rows.first_row = first_row;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_matmul(tdm_builder *b, int32_t w, int32_t x) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_MATMUL, w, x, tdm_build_role(b), -1);
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_add(tdm_builder *b, int32_t x, int32_t y) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_ADD, x, y, -1, -1);
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_mul(tdm_builder *b, int32_t x, int32_t y) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_MUL, x, y, -1, -1);
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_div(tdm_builder *b, int32_t x, int32_t y) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_DIV, x, y, -1, -1);
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_scale(tdm_builder *b, int32_t x, float scale, float bias) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_SCALE, x, -1, -1, -1);
    r.params.scale.scale = scale;
    r.params.scale.bias = bias;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_clamp(tdm_builder *b, int32_t x, float min, float max) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_CLAMP, x, -1, -1, -1);
    r.params.clamp.min = min;
    r.params.clamp.max = max;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_sqrt(tdm_builder *b, int32_t x) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_SQRT, x, -1, -1, -1);
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_act(tdm_builder *b, int32_t x, tdm_act act) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_ACT, x, -1, -1, -1);
    r.params.act.act = (int32_t)act;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_glu(tdm_builder *b, int32_t gate, int32_t up, tdm_act act) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_GLU, gate, up, -1, -1);
    r.params.act.act = (int32_t)act;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_softmax(tdm_builder *b, int32_t x) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_SOFTMAX, x, -1, -1, -1);
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_rms_norm(tdm_builder *b, int32_t x, int32_t weight, float eps) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_RMS_NORM, x, weight, -1, -1);
    r.params.norm.eps = eps;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_layer_norm(tdm_builder *b, int32_t x, int32_t weight, int32_t bias,
                                           float eps) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_LAYER_NORM, x, weight, bias, -1);
    r.params.norm.eps = eps;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_sum_sq(tdm_builder *b, int32_t x) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_SUM_SQ, x, -1, -1, -1);
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_rms_apply(tdm_builder *b, int32_t x, int32_t sum, int32_t weight,
                                          float eps, int64_t n) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_RMS_APPLY, x, sum, weight, -1);
    r.params.norm.eps = eps;
    r.params.norm.n = n;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_rope(tdm_builder *b, int32_t x, int32_t pos, int32_t factor,
                                     const tdm_rope_params *params) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_ROPE, x, pos, factor, -1);
    r.params.rope = *params;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_top_k(tdm_builder *b, int32_t x, int32_t k, int32_t index_base,
                                      int32_t *id_out) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_TOP_K, x, -1, -1, -1);
    r.params.top_k.k = k;
    r.params.top_k.index_base = index_base;
    return tdm_build_node(b, &r, id_out);
}

static inline int32_t tdm_build_moe_route(tdm_builder *b, int32_t logit, int32_t bias,
                                          const tdm_route_params *params, int32_t *weight_out) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_MOE_ROUTE, logit, bias, -1, -1);
    r.params.route = *params;
    return tdm_build_node(b, &r, weight_out);
}

/* The weights of the experts `id` i32 [n_used, n_tok]. */
static inline int32_t tdm_build_moe_route_given(tdm_builder *b, int32_t logit, int32_t id,
                                                const tdm_route_params *params,
                                                int32_t *weight_out) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_MOE_ROUTE, logit, -1, id, -1);
    r.params.route = *params;
    return tdm_build_node(b, &r, weight_out);
}

static inline int32_t tdm_build_sinkhorn(tdm_builder *b, int32_t x, int32_t n_iter, float eps) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_SINKHORN, x, -1, -1, -1);
    r.params.sinkhorn = (tdm_sinkhorn_params){n_iter, eps};
    return tdm_build_node(b, &r, NULL);
}

/* matrix: gate, up, down. bias: theirs, -1 = none each; NULL = no biases. */
static inline int32_t tdm_build_moe_ffn_biased(tdm_builder *b, int32_t x, int32_t id,
                                               int32_t weight, const int32_t matrix[3],
                                               const int32_t *bias, const tdm_moe_params *params) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_MOE_FFN, x, id, weight, matrix[0]);
    r.src[4] = matrix[1];
    r.src[5] = matrix[2];
    r.src[6] = tdm_build_role(b);
    for (int i = 0; i < 3; i++) r.src[7 + i] = bias != NULL ? bias[i] : -1;
    r.params.moe = *params;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_moe_ffn(tdm_builder *b, int32_t x, int32_t id, int32_t weight,
                                        int32_t gate, int32_t up, int32_t down, tdm_act act,
                                        int32_t first_expert, int32_t n_expert_all) {
    const int32_t matrix[3] = {gate, up, down};
    const tdm_moe_params params = {
        .act = (int32_t)act, .first_expert = first_expert, .n_expert_all = n_expert_all};
    return tdm_build_moe_ffn_biased(b, x, id, weight, matrix, NULL, &params);
}

static inline int32_t tdm_build_moe_matmul(tdm_builder *b, int32_t w, int32_t x, int32_t id,
                                           int32_t first_expert, int32_t n_expert_all) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_MOE_MATMUL, w, x, tdm_build_role(b), id);
    r.params.moe.first_expert = first_expert;
    r.params.moe.n_expert_all = n_expert_all;
    return tdm_build_node(b, &r, NULL);
}

static inline void tdm_build_kv_write(tdm_builder *b, int32_t k, int32_t v, int32_t step,
                                      int32_t state, int32_t kv) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_KV_WRITE, k, v, step, state);
    r.params.kv.kv = kv;
    tdm_build_node(b, &r, NULL);
}

/* What attention may read beside queries and cache; -1 = none. */
typedef struct tdm_attention_sources {
    int32_t sink;   /* [n_head] */
    int32_t select; /* i32 [n_top, n_tok, n_list]: positions of the tokens that count */
    int32_t bias;   /* [distances, n_head] */
} tdm_attention_sources;

/* ml_out NULL: the (m, l) output is absent. */
static inline int32_t tdm_build_attention_of(tdm_builder *b, int32_t q, int32_t step, int32_t state,
                                             const tdm_attention_sources *sources,
                                             const tdm_attention_params *params, int32_t *ml_out) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_ATTENTION, q, step, state, sources->sink);
    r.src[4] = sources->select;
    r.src[5] = sources->bias;
    r.params.attention = *params;
    r.dst[1].is_present = ml_out != NULL;
    return tdm_build_node(b, &r, ml_out);
}

/* Attention over the tokens at the positions that `select` lists, -1 = over all. */
static inline int32_t tdm_build_attention_sparse(tdm_builder *b, int32_t q, int32_t step,
                                                 int32_t state, int32_t sink, int32_t select,
                                                 const tdm_attention_params *params,
                                                 int32_t *ml_out) {
    const tdm_attention_sources sources = {sink, select, -1};
    return tdm_build_attention_of(b, q, step, state, &sources, params, ml_out);
}

static inline int32_t tdm_build_attention(tdm_builder *b, int32_t q, int32_t step, int32_t state,
                                          int32_t sink, const tdm_attention_params *params,
                                          int32_t *ml_out) {
    return tdm_build_attention_sparse(b, q, step, state, sink, -1, params, ml_out);
}

static inline int32_t tdm_build_kv_select(tdm_builder *b, int32_t q, int32_t w, int32_t step,
                                          int32_t state, const tdm_select_params *params) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_KV_SELECT, q, w, step, state);
    r.params.select = *params;
    return tdm_build_node(b, &r, NULL);
}

static inline void tdm_build_kv_shift(tdm_builder *b, int32_t step, int32_t state, int32_t factor,
                                      int32_t kv, const tdm_rope_params *rope) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_KV_SHIFT, step, state, factor, -1);
    r.params.shift.kv = kv;
    r.params.shift.rope = *rope;
    tdm_build_node(b, &r, NULL);
}

static inline void tdm_build_kv_copy(tdm_builder *b, int32_t step, int32_t state, int32_t kv) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_KV_COPY, step, state, -1, -1);
    r.params.kv.kv = kv;
    tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_kv_export(tdm_builder *b, int32_t step, int32_t state, int32_t kv,
                                          int64_t n_row, int32_t *v_out) {
    const tdm_kv_desc *desc = tdm_build_kv_desc(b, kv);
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_KV_EXPORT, step, state, -1, -1);
    r.params.kv.kv = kv;
    r.dst[0].ne[2] = n_row;
    /* v follows from the description */
    if (desc != NULL) r.dst[1].is_present = (desc->flags & TDM_KV_V_FROM_K) == 0;
    return tdm_build_node(b, &r, v_out);
}

static inline void tdm_build_kv_import(tdm_builder *b, int32_t k, int32_t v, int32_t step,
                                       int32_t state, int32_t kv) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_KV_IMPORT, k, v, step, state);
    r.params.kv.kv = kv;
    tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_lse_merge(tdm_builder *b, int32_t o, int32_t ml) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_LSE_MERGE, o, ml, -1, -1);
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_conv1d(tdm_builder *b, int32_t x, int32_t w, int32_t bias,
                                       int32_t step, int32_t state, const tdm_conv_params *params) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_CONV1D, x, w, bias, step);
    r.src[4] = state;
    r.params.conv = *params;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_block_pool(tdm_builder *b, int32_t x, int32_t score, int32_t bias,
                                           int32_t step, int32_t state,
                                           const tdm_pool_params *params) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_BLOCK_POOL, x, score, bias, step);
    r.src[4] = state;
    r.params.pool = *params;
    return tdm_build_node(b, &r, NULL);
}

/* Sources of a LINEAR_SCAN; -1 = absent. */
typedef struct tdm_scan_sources {
    int32_t q, k, v, g, a, beta;
} tdm_scan_sources;

/* With erase and write, -1 = absent; both are there exactly when the state is TDM_KV_ERASED. */
static inline int32_t tdm_build_linear_scan_erased(tdm_builder *b, const tdm_scan_sources *src,
                                                   int32_t erase, int32_t write, int32_t step,
                                                   int32_t state, const tdm_scan_params *params) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_LINEAR_SCAN, src->q, src->k, src->v, src->g);
    r.src[4] = src->a;
    r.src[5] = src->beta;
    r.src[6] = step;
    r.src[7] = state;
    r.src[8] = erase;
    r.src[9] = write;
    r.params.scan = *params;
    return tdm_build_node(b, &r, NULL);
}

static inline int32_t tdm_build_linear_scan(tdm_builder *b, const tdm_scan_sources *src,
                                            int32_t step, int32_t state,
                                            const tdm_scan_params *params) {
    return tdm_build_linear_scan_erased(b, src, -1, -1, step, state, params);
}

/* x is -1 where the member sends nothing, residual and peer where there are none; the result has
 * this type and shape. Returns -1 in phase PUBLISH, which has no result. */
static inline int32_t tdm_build_exchange_peer(tdm_builder *b, int32_t x, int32_t arena,
                                              int32_t peer, int32_t step, int32_t residual,
                                              tdm_type type, const int64_t ne[TDM_MAX_DIMS],
                                              const tdm_exchange_params *params) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_EXCHANGE, x, arena, step, residual);
    r.src[5] = peer;
    r.params.exchange = *params;
    r.dst[0].is_present = params->phase != TDM_EXCHANGE_PUBLISH;
    r.dst[1].is_present = false;
    if (r.dst[0].is_present) {
        r.dst[0].type = (int32_t)type;
        memcpy(r.dst[0].ne, ne, sizeof r.dst[0].ne);
    }
    return tdm_build_node(b, &r, NULL);
}

/* The same with flags and data in the arena. */
static inline int32_t tdm_build_exchange(tdm_builder *b, int32_t x, int32_t arena, int32_t step,
                                         int32_t residual, tdm_type type,
                                         const int64_t ne[TDM_MAX_DIMS],
                                         const tdm_exchange_params *params) {
    return tdm_build_exchange_peer(b, x, arena, -1, step, residual, type, ne, params);
}

/* A GATHER with two payloads. x2 is -1 where x is; the second result has this type and shape and is
 * stored to *y2_out. */
static inline int32_t tdm_build_exchange_pair(tdm_builder *b, int32_t x, int32_t x2, int32_t arena,
                                              int32_t step, const tdm_type type[2],
                                              const int64_t ne[2][TDM_MAX_DIMS],
                                              const tdm_exchange_params *params, int32_t *y2_out) {
    tdm_node_spec r = tdm_node_spec_of(TDM_OP_EXCHANGE, x, arena, step, -1);
    r.src[4] = x2;
    r.params.exchange = *params;
    for (int i = 0; i < 2; i++) {
        r.dst[i].is_present = params->phase != TDM_EXCHANGE_PUBLISH;
        if (!r.dst[i].is_present) continue;
        r.dst[i].type = (int32_t)type[i];
        memcpy(r.dst[i].ne, ne[i], sizeof r.dst[i].ne);
    }
    return tdm_build_node(b, &r, y2_out);
}

#endif
