/* SPDX-License-Identifier: MIT
 *
 * op_cache.c: checks of the ops on the key/value cache, and the shapes of their results.
 * tdm_kv_desc_check has checked the description (a->kv).
 */
#include <float.h>

#include "core/graph/op_infer.h"

static bool has_v(const tdm_op_args *a) {
    return (a->kv->flags & TDM_KV_V_FROM_K) == 0;
}

/* The cache keeps rows of tokens. */
static tdm_status rows_check(const tdm_op_args *a, tdm_error *err) {
    if ((a->kv->flags & TDM_KV_RECURRENT) == 0) return TDM_OK;
    return tdm_op_fail(a, err, "cache description %d has slots of recurrent states, not tokens",
                       (int)a->node->params.kv.kv);
}

/* v, a source or a destination, is present exactly when the cache stores V. */
static tdm_status v_check(const tdm_op_args *a, bool is_present, tdm_error *err) {
    if (is_present == has_v(a)) return TDM_OK;
    return tdm_op_fail(a, err,
                       is_present ? "v must be absent: cache description %d takes V from K"
                                  : "v is absent, but cache description %d stores V",
                       (int)a->node->params.kv.kv);
}

tdm_status tdm_infer_kv_write(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_kv_desc *kv = a->kv;
    int64_t n_tok = a->graph->step_caps.n_tok;
    tdm_status status = rows_check(a, err);
    (void)dst;
    if (status == TDM_OK) status = tdm_op_need_type(a, 0, "k", TDM_TYPE_F32, err);
    if (status == TDM_OK)
        status = tdm_op_need_shape(a, 0, "k", kv->head_dim_k, kv->n_head_kv, n_tok, 1, err);
    if (status == TDM_OK) status = v_check(a, a->src[1] != NULL, err);
    if (status == TDM_OK && a->src[1] != NULL) {
        status = tdm_op_need_type(a, 1, "v", TDM_TYPE_F32, err);
        if (status == TDM_OK)
            status = tdm_op_need_shape(a, 1, "v", kv->head_dim_v, kv->n_head_kv, n_tok, 1, err);
    }
    return status;
}

/* Every absolute query head reads a KV head of the state. */
static tdm_status heads_check(const tdm_op_args *a, int64_t n_head, tdm_error *err) {
    const tdm_attention_params *p = &a->node->params.attention;
    int64_t first, last;
    tdm_status status = tdm_op_need_range(a, "heads_per_kv", p->heads_per_kv, 1, INT32_MAX, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "first_head", p->first_head, 0, INT32_MAX, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "first_head_kv", p->first_head_kv, 0, INT32_MAX, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "n_head_all", p->n_head_all, p->first_head + n_head,
                                   INT32_MAX, err);
    if (status != TDM_OK || n_head == 0) return status;
    first = p->first_head / p->heads_per_kv - p->first_head_kv;
    last = (p->first_head + n_head - 1) / p->heads_per_kv - p->first_head_kv;
    if (first < 0 || last >= a->kv->n_head_kv)
        return tdm_op_fail(a, err,
                           "heads %d .. %lld with %d to a KV head read KV heads %lld .. %lld of "
                           "the state, which has 0 .. %d",
                           (int)p->first_head, (long long)(p->first_head + n_head - 1),
                           (int)p->heads_per_kv, (long long)first, (long long)last,
                           (int)a->kv->n_head_kv - 1);
    return TDM_OK;
}

/* What changes the scores of positions: the form of the window, ALiBi, a temperature. */
static tdm_status positions_check(const tdm_op_args *a, tdm_error *err) {
    const tdm_attention_params *p = &a->node->params.attention;
    const int32_t kind_most = p->window > 0 ? TDM_WINDOW_SYMMETRIC : TDM_WINDOW_SLIDING;
    const bool has_temperature = p->temperature_scale != 0;
    tdm_status status = tdm_op_need_range(a, "window", p->window, 0, INT32_MAX, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "window_kind", p->window_kind, 0, kind_most, err);
    if (status == TDM_OK)
        status = tdm_op_need_float(a, "alibi_max_bias", p->alibi_max_bias, 0, err);
    if (status == TDM_OK)
        status = tdm_op_need_float(a, "temperature_scale", p->temperature_scale, -FLT_MAX, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "temperature_length", p->temperature_length, has_temperature,
                                   has_temperature ? INT32_MAX : 0, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "temperature_offset", p->temperature_offset, 0,
                                   has_temperature ? INT32_MAX : 0, err);
    if (status == TDM_OK && a->kv->stride > 1 &&
        (p->window > 0 || p->alibi_max_bias > 0 || has_temperature || !p->is_causal))
        return tdm_op_fail(a, err,
                           "cache description %d is TDM_KV_STRIDED: attention is causal, without "
                           "a window, slopes or a temperature",
                           (int)p->kv);
    if (status == TDM_OK && p->alibi_max_bias > 0 && p->softcap > 0)
        return tdm_op_fail(a, err, "alibi_max_bias = %g and softcap = %g exclude one another",
                           (double)p->alibi_max_bias, (double)p->softcap);
    return status;
}

static tdm_status sparse_check(const tdm_op_args *a, tdm_error *err) {
    if ((a->kv->flags & TDM_KV_SPARSE) != 0) return TDM_OK;
    return tdm_op_fail(a, err, "cache description %d has no TDM_KV_SPARSE",
                       (int)a->node->params.kv.kv);
}

/* The list of positions of an attention, if there is one. */
static tdm_status list_check(const tdm_op_args *a, tdm_error *err) {
    if (a->src[4] == NULL) return TDM_OK;
    tdm_status status = sparse_check(a, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 4, "select", TDM_TYPE_I32, err);
    if (status == TDM_OK)
        status = tdm_op_need_shape(a, 4, "select", -1, a->graph->step_caps.n_tok, -1, 1, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "positions of select", a->src[4]->ne[0], 1, INT32_MAX, err);
    if (status == TDM_OK && a->src[4]->ne[2] != 1 && a->src[4]->ne[2] != a->kv->n_head_kv)
        return tdm_op_fail(a, err,
                           "select has %lld lists, expected 1 or one for each of %d KV heads",
                           (long long)a->src[4]->ne[2], (int)a->kv->n_head_kv);
    if (status == TDM_OK && a->node->params.attention.softcap > 0)
        return tdm_op_fail(a, err, "select and softcap = %g exclude one another",
                           (double)a->node->params.attention.softcap);
    return status;
}

/* The bias of an attention for each distance, if there is one. */
static tdm_status bias_check(const tdm_op_args *a, tdm_error *err) {
    const tdm_value *bias = a->src[5];
    if (bias == NULL) return TDM_OK;
    if ((a->kv->flags & TDM_KV_BIASED) == 0)
        return tdm_op_fail(a, err, "cache description %d has no TDM_KV_BIASED",
                           (int)a->node->params.kv.kv);
    tdm_status status = tdm_op_need_type(a, 5, "bias", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 5, "bias", -1, a->src[0]->ne[1], 1, 1, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "distances of bias", bias->ne[0], 1, INT32_MAX, err);
    if (status == TDM_OK && bias->ne[0] % 2 == 0)
        return tdm_op_fail(a, err,
                           "bias has %lld distances; as many before a token as behind it and "
                           "distance 0 are an odd number",
                           (long long)bias->ne[0]);
    if (status == TDM_OK && a->node->params.attention.softcap > 0)
        return tdm_op_fail(a, err, "bias and softcap = %g exclude one another",
                           (double)a->node->params.attention.softcap);
    return status;
}

/* A KV_SELECT whose lists have positions of tokens. */
static tdm_status tokens_check(const tdm_op_args *a, const tdm_select_params *p, tdm_error *err) {
    if ((a->kv->flags & TDM_KV_STRIDED) == 0)
        return tdm_op_fail(a, err, "is_of_tokens needs a cache with TDM_KV_STRIDED");
    if (p->block_len > 1 || p->n_local > 0)
        return tdm_op_fail(a, err, "is_of_tokens excludes blocks of %d and %d local ones",
                           (int)p->block_len, (int)p->n_local);
    if (p->n_top < a->kv->stride || p->n_top % a->kv->stride != a->kv->stride - 1)
        return tdm_op_fail(a, err,
                           "n_top = %d is no multiple of the stride %d, plus %d, as is_of_tokens "
                           "needs it",
                           (int)p->n_top, (int)a->kv->stride, (int)a->kv->stride - 1);
    return TDM_OK;
}

tdm_status tdm_infer_kv_select(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_select_params *p = &a->node->params.select;
    const int64_t n_tok = a->graph->step_caps.n_tok;
    const int32_t block_len = p->block_len > 1 ? p->block_len : 1;
    const tdm_value *q = a->src[0];
    const bool has_w = a->src[1] != NULL;
    tdm_status status = rows_check(a, err);
    if (status == TDM_OK) status = sparse_check(a, err);
    if (status == TDM_OK && (has_v(a) || a->kv->n_head_kv != 1))
        return tdm_op_fail(a, err,
                           "cache description %d is no index: it needs TDM_KV_V_FROM_K and one KV "
                           "head, not %d",
                           (int)p->kv, (int)a->kv->n_head_kv);
    if (status == TDM_OK) status = tdm_op_need_type(a, 0, "q", TDM_TYPE_F32, err);
    if (status == TDM_OK)
        status = tdm_op_need_shape(a, 0, "q", a->kv->head_dim_k, -1, n_tok, 1, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "heads of q", q->ne[1], 1, INT32_MAX, err);
    if (status == TDM_OK && has_w) status = tdm_op_need_type(a, 1, "w", TDM_TYPE_F32, err);
    if (status == TDM_OK && has_w)
        status = tdm_op_need_shape(a, 1, "w", a->src[1]->ne[0] == 1 ? 1 : q->ne[1],
                                   a->src[1]->ne[1] == 1 ? 1 : n_tok, 1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "n_top", p->n_top, 1, INT32_MAX, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "block_len", p->block_len, 0, p->n_top, err);
    if (status == TDM_OK && p->n_top % block_len != 0)
        return tdm_op_fail(a, err, "n_top = %d is no multiple of block_len = %d", (int)p->n_top,
                           (int)block_len);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "n_local", p->n_local, 0, p->n_top / block_len, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "is_of_tokens", p->is_of_tokens, 0, 1, err);
    if (status == TDM_OK && p->is_of_tokens != 0) status = tokens_check(a, p, err);
    if (status == TDM_OK)
        tdm_op_give(&dst[0], TDM_TYPE_I32, p->n_top, n_tok, has_w ? 1 : q->ne[1], 1);
    return status;
}

tdm_status tdm_infer_attention(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_attention_params *p = &a->node->params.attention;
    const tdm_value *q = a->src[0];
    tdm_status status = rows_check(a, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 0, "q", TDM_TYPE_F32, err);
    if (status == TDM_OK)
        status =
            tdm_op_need_shape(a, 0, "q", a->kv->head_dim_k, -1, a->graph->step_caps.n_tok, 1, err);
    if (status == TDM_OK && a->src[3] != NULL) {
        status = tdm_op_need_type(a, 3, "sink", TDM_TYPE_F32, err);
        if (status == TDM_OK) status = tdm_op_need_shape(a, 3, "sink", q->ne[1], 1, 1, 1, err);
    }
    if (status == TDM_OK) status = list_check(a, err);
    if (status == TDM_OK) status = bias_check(a, err);
    if (status == TDM_OK) status = heads_check(a, q->ne[1], err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "is_causal", p->is_causal, 0, 1, err);
    if (status == TDM_OK) status = tdm_op_need_float(a, "scale", p->scale, -FLT_MAX, err);
    if (status == TDM_OK) status = tdm_op_need_float(a, "softcap", p->softcap, 0, err);
    if (status == TDM_OK) status = positions_check(a, err);
    if (status == TDM_OK) {
        tdm_op_give(&dst[0], TDM_TYPE_F32, a->kv->head_dim_v, q->ne[1], q->ne[2], 1);
        tdm_op_give(&dst[1], TDM_TYPE_F32, 2, q->ne[1], q->ne[2], 1);
    }
    return status;
}

tdm_status tdm_infer_kv_shift(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_rope_params *p = &a->node->params.shift.rope;
    tdm_status status = rows_check(a, err);
    (void)dst;
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "reserved", a->node->params.shift.reserved, 0, 0, err);
    if (status == TDM_OK) status = tdm_op_need_rope(a, p, a->kv->head_dim_k, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "pos_add", p->pos_add, 0, 0, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "is_inverse", p->is_inverse, 0, 0, err);
    if (status == TDM_OK && a->kv->stride > 1)
        return tdm_op_fail(a, err, "cache description %d is TDM_KV_STRIDED",
                           (int)a->node->params.shift.kv);
    if (status != TDM_OK) return status;
    if (p->n_rot != a->kv->n_rot || (p->n_rot > 0 && p->rope_offset != a->kv->rope_offset))
        return tdm_op_fail(a, err,
                           "turns %d elements from %d on, cache description %d says %d from %d on",
                           (int)p->n_rot, (int)p->rope_offset, (int)a->node->params.shift.kv,
                           (int)a->kv->n_rot, (int)a->kv->rope_offset);
    if (a->src[2] != NULL) {
        status = tdm_op_need_type(a, 2, "factor", TDM_TYPE_F32, err);
        if (status == TDM_OK)
            status = tdm_op_need_shape(a, 2, "factor", p->n_rot / 2, 1, 1, 1, err);
    }
    return status;
}

tdm_status tdm_infer_kv_copy(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    (void)a, (void)dst, (void)err; /* it has only the step block, the state and its description */
    return TDM_OK;
}

tdm_status tdm_infer_kv_export(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_kv_desc *kv = a->kv;
    int64_t n_row = dst[0].ne[2];
    tdm_status status = tdm_op_need_range(a, "rows", n_row, 0, INT32_MAX, err);
    if (status == TDM_OK) status = v_check(a, dst[1].is_present, err);
    if (status == TDM_OK) {
        tdm_op_give(&dst[0], kv->type_k, tdm_kv_padded(kv->type_k, kv->head_dim_k), kv->n_head_kv,
                    n_row, 1);
        tdm_op_give(&dst[1], kv->type_v, tdm_kv_padded(kv->type_v, kv->head_dim_v), kv->n_head_kv,
                    n_row, 1);
    }
    return status;
}

tdm_status tdm_infer_kv_import(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_kv_desc *kv = a->kv;
    const tdm_value *k = a->src[0];
    tdm_status status = tdm_op_need_type(a, 0, "k", kv->type_k, err);
    (void)dst;
    if (status == TDM_OK)
        status = tdm_op_need_shape(a, 0, "k", tdm_kv_padded(kv->type_k, kv->head_dim_k),
                                   kv->n_head_kv, -1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "rows", k->ne[2], 0, INT32_MAX, err);
    if (status == TDM_OK) status = v_check(a, a->src[1] != NULL, err);
    if (status == TDM_OK && a->src[1] != NULL) {
        status = tdm_op_need_type(a, 1, "v", kv->type_v, err);
        if (status == TDM_OK)
            status = tdm_op_need_shape(a, 1, "v", tdm_kv_padded(kv->type_v, kv->head_dim_v),
                                       kv->n_head_kv, k->ne[2], 1, err);
    }
    return status;
}

tdm_status tdm_infer_lse_merge(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *o = a->src[0];
    tdm_status status = tdm_op_need_type(a, 0, "o", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 1, "ml", TDM_TYPE_F32, err);
    if (status == TDM_OK)
        status = tdm_op_need_shape(a, 1, "ml", 2, o->ne[1], o->ne[2], o->ne[3], err);
    if (status == TDM_OK) tdm_op_give(dst, TDM_TYPE_F32, o->ne[0], o->ne[1], o->ne[2], 1);
    return status;
}
