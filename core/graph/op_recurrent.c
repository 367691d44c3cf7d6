/* SPDX-License-Identifier: MIT
 *
 * op_recurrent.c: checks of the ops on recurrent states, and the shapes of their results.
 * tdm_kv_desc_check has checked the description (a->kv).
 */
#include <float.h>

#include "core/graph/op_infer.h"

/* The state has slots, and the step block says which. */
static tdm_status slots_check(const tdm_op_args *a, tdm_error *err) {
    if ((a->kv->flags & TDM_KV_RECURRENT) == 0)
        return tdm_op_fail(a, err, "cache description %d has tokens, not slots of recurrent states",
                           (int)a->node->params.kv.kv);
    if (((a->kv->flags & TDM_KV_POOLED) != 0) != (a->node->op == TDM_OP_BLOCK_POOL))
        return tdm_op_fail(a, err, "cache description %d is%s TDM_KV_POOLED",
                           (int)a->node->params.kv.kv,
                           (a->kv->flags & TDM_KV_POOLED) != 0 ? "" : " not");
    if (a->graph->step_caps.has_rs == 0)
        return tdm_op_fail(a, err, "the step block has no rs_read and rs_write");
    return TDM_OK;
}

tdm_status tdm_infer_conv1d(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_conv_params *p = &a->node->params.conv;
    const int64_t n_ch = a->src[0]->ne[0], n_tok = a->graph->step_caps.n_tok;
    int64_t unit = 0;
    tdm_status status = slots_check(a, err);
    int i;
    if (status == TDM_OK && (a->kv->flags & TDM_KV_ERASED) != 0)
        return tdm_op_fail(a, err, "cache description %d is TDM_KV_ERASED", (int)p->kv);
    if (status == TDM_OK && a->kv->rope_offset != 0)
        return tdm_op_fail(a, err, "cache description %d has rope_offset = %d, not 0", (int)p->kv,
                           (int)a->kv->rope_offset);
    if (status == TDM_OK) status = tdm_op_need_type(a, 0, "x", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 0, "x", -1, n_tok, 1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 1, "w", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 1, "w", -1, n_ch, 1, 1, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "k", a->src[1]->ne[0], 2, TDM_MAX_HEAD_DIM, err);
    if (status == TDM_OK && a->src[2] != NULL) {
        status = tdm_op_need_type(a, 2, "bias", TDM_TYPE_F32, err);
        if (status == TDM_OK) status = tdm_op_need_shape(a, 2, "bias", n_ch, 1, 1, 1, err);
    }
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "n_segment", p->n_segment, 1, TDM_MAX_SEGMENTS, err);
    for (i = 0; i < TDM_MAX_SEGMENTS && status == TDM_OK; i++) {
        bool is_used = i < p->n_segment;
        status = tdm_op_need_range(a, "unit_len", p->unit_len[i], is_used,
                                   is_used ? TDM_MAX_HEAD_DIM : 0, err);
        unit += p->unit_len[i];
    }
    if (status == TDM_OK && unit * a->kv->n_head_kv != n_ch)
        status = tdm_op_fail(a, err, "%d units of %lld channels, x has %lld", (int)a->kv->n_head_kv,
                             (long long)unit, (long long)n_ch);
    if (status == TDM_OK && unit * (a->src[1]->ne[0] - 1) != a->kv->head_dim_k)
        status =
            tdm_op_fail(a, err,
                        "%lld inputs of %lld channels are kept, a unit of the state has %d "
                        "elements",
                        (long long)a->src[1]->ne[0] - 1, (long long)unit, (int)a->kv->head_dim_k);
    if (status == TDM_OK) tdm_op_give(dst, TDM_TYPE_F32, n_ch, n_tok, 1, 1);
    return status;
}

tdm_status tdm_infer_block_pool(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_pool_params *p = &a->node->params.pool;
    const int64_t n_ch = a->src[0]->ne[0], n_tok = a->graph->step_caps.n_tok;
    static const char *const words[] = {"x", "score", "bias"};
    tdm_status status = slots_check(a, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "n_part", p->n_part, 1, 2, err);
    for (int i = 0; i < 3 && status == TDM_OK; i++) {
        const bool is_one = i > 0 && a->src[i]->ne[0] == 1;
        const int64_t n = i == 2 ? -1 : i == 1 && a->src[i]->ne[1] == 1 ? 1 : n_tok;
        status = tdm_op_need_type(a, i, words[i], TDM_TYPE_F32, err);
        if (status == TDM_OK)
            status = tdm_op_need_shape(a, i, words[i], is_one ? 1 : n_ch, n, 1, 1, err);
    }
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "block_len", a->src[2]->ne[1], 1, INT32_MAX, err);
    if (status == TDM_OK && n_ch % p->n_part != 0)
        return tdm_op_fail(a, err, "%lld rows of x are no %d equal parts", (long long)n_ch,
                           (int)p->n_part);
    if (status == TDM_OK && (a->kv->n_head_kv != 1 || a->kv->head_dim_k != 3 * n_ch))
        return tdm_op_fail(a, err, "a slot of %d x %d floats, expected 1 x %lld",
                           (int)a->kv->n_head_kv, (int)a->kv->head_dim_k, (long long)(3 * n_ch));
    if (status == TDM_OK) tdm_op_give(dst, TDM_TYPE_F32, n_ch / p->n_part, n_tok, 1, 1);
    return status;
}

/* A source of 1 or dk elements for each head and token; n_tok -1: 1 or all tokens. */
static tdm_status factor_check(const tdm_op_args *a, int i, const char *word, int64_t n_tok,
                               tdm_error *err) {
    const tdm_value *x = a->src[i];
    const int64_t dk = a->src[0]->ne[0], n_v = a->src[2]->ne[1], all = a->src[2]->ne[2];
    tdm_status status;
    if (x == NULL) return TDM_OK;
    status = tdm_op_need_type(a, i, word, TDM_TYPE_F32, err);
    if (n_tok < 0) n_tok = x->ne[2] == 1 ? 1 : all;
    if (status == TDM_OK)
        status = tdm_op_need_shape(a, i, word, x->ne[0] == 1 ? 1 : dk, n_v, n_tok, 1, err);
    return status;
}

/* Every head of v reads a head of q and k, and has a matrix in the state. */
static tdm_status heads_check(const tdm_op_args *a, tdm_error *err) {
    const tdm_scan_params *p = &a->node->params.scan;
    const int64_t dk = a->src[0]->ne[0], n_k = a->src[0]->ne[1], dv = a->src[2]->ne[0],
                  n_v = a->src[2]->ne[1], n_unit = a->kv->n_head_kv;
    const int64_t most = p->is_tiled ? 0 : INT32_MAX;
    tdm_status status = tdm_op_need_range(a, "heads_per_k", p->heads_per_k, 1, INT32_MAX, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "is_tiled", p->is_tiled, 0, 1, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "first_head", p->first_head, 0, most, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "first_head_k", p->first_head_k, 0, most, err);
    if (status != TDM_OK) return status;
    if (n_unit == 0 ? n_v != 0 : n_v % n_unit != 0)
        return tdm_op_fail(a, err, "%lld heads of v in %lld units of the state", (long long)n_v,
                           (long long)n_unit);
    if (n_unit == 0) return TDM_OK;
    if (dk > TDM_MAX_HEAD_DIM || dv > TDM_MAX_HEAD_DIM || n_v / n_unit > TDM_MAX_HEAD_DIM ||
        dk * dv * (n_v / n_unit) != a->kv->head_dim_k)
        return tdm_op_fail(
            a, err, "%lld matrices of %lld x %lld, a unit of the state has %d elements",
            (long long)(n_v / n_unit), (long long)dk, (long long)dv, (int)a->kv->head_dim_k);
    if (a->kv->rope_offset != dk) /* kv.h */
        return tdm_op_fail(a, err, "cache description %d has rope_offset = %d, not dk = %lld",
                           (int)p->kv, (int)a->kv->rope_offset, (long long)dk);
    if (p->is_tiled)
        return n_k == n_unit && n_v == n_k * p->heads_per_k
                   ? TDM_OK
                   : tdm_op_fail(
                         a, err, "tiled: %lld heads of v, %d for each of %lld of k, %lld units",
                         (long long)n_v, (int)p->heads_per_k, (long long)n_k, (long long)n_unit);
    const int64_t first = p->first_head / p->heads_per_k - p->first_head_k,
                  last = (p->first_head + n_v - 1) / p->heads_per_k - p->first_head_k;
    if (n_v > 0 && (first < 0 || last >= n_k))
        return tdm_op_fail(
            a, err, "heads %d .. %lld with %d to a head of k read %lld .. %lld of 0 .. %lld",
            (int)p->first_head, (long long)(p->first_head + n_v - 1), (int)p->heads_per_k,
            (long long)first, (long long)last, (long long)n_k - 1);
    return TDM_OK;
}

/* erase and write, which a state has or not. */
static tdm_status erase_check(const tdm_op_args *a, tdm_error *err) {
    enum { BETA = 5, ERASE = 8, WRITE = 9 };
    static const char *const words[] = {"erase", "write"};
    const bool is_erased = (a->kv->flags & TDM_KV_ERASED) != 0;
    tdm_status status = TDM_OK;
    for (int i = ERASE; i <= WRITE && status == TDM_OK; i++) {
        const char *word = words[i - ERASE];
        if ((a->src[i] != NULL) != is_erased)
            return tdm_op_fail(a, err,
                               is_erased ? "%s is absent, but cache description %d is TDM_KV_ERASED"
                                         : "%s is there, but cache description %d is not "
                                           "TDM_KV_ERASED",
                               word, (int)a->node->params.scan.kv);
        if (!is_erased) continue;
        status = tdm_op_need_type(a, i, word, TDM_TYPE_F32, err);
        if (status == TDM_OK)
            status = tdm_op_need_shape(a, i, word, a->src[0]->ne[0], a->src[0]->ne[1],
                                       a->graph->step_caps.n_tok, 1, err);
    }
    if (status == TDM_OK && is_erased && a->src[BETA] != NULL)
        return tdm_op_fail(a, err, "erase and beta exclude one another");
    return status;
}

tdm_status tdm_infer_linear_scan(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    static const char *const words[] = {"q", "k", "v"};
    const tdm_value *q = a->src[0], *v = a->src[2];
    const int64_t n_tok = a->graph->step_caps.n_tok;
    tdm_status status = slots_check(a, err);
    int i;
    for (i = 0; i < 3 && status == TDM_OK; i++)
        status = tdm_op_need_type(a, i, words[i], TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 0, "q", -1, -1, n_tok, 1, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 1, "k", q->ne[0], q->ne[1], n_tok, 1, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 2, "v", -1, -1, n_tok, 1, err);
    if (status == TDM_OK) status = factor_check(a, 3, "g", -1, err);
    if (status == TDM_OK) status = factor_check(a, 4, "a", 1, err);
    if (status == TDM_OK && a->src[5] != NULL) {
        status = tdm_op_need_type(a, 5, "beta", TDM_TYPE_F32, err);
        if (status == TDM_OK) status = tdm_op_need_shape(a, 5, "beta", 1, v->ne[1], n_tok, 1, err);
    }
    if (status == TDM_OK) status = erase_check(a, err);
    if (status == TDM_OK)
        status = tdm_op_need_float(a, "scale", a->node->params.scan.scale, -FLT_MAX, err);
    if (status == TDM_OK) status = heads_check(a, err);
    if (status == TDM_OK) tdm_op_give(dst, TDM_TYPE_F32, v->ne[0], v->ne[1], n_tok, 1);
    return status;
}
