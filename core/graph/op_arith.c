/* SPDX-License-Identifier: MIT
 *
 * op_arith.c: type and shape of the results of arithmetic, norms and rotation.
 */
#include <float.h>
#include <math.h>

#include "core/graph/op_infer.h"

static void give_like(tdm_op_result *dst, const tdm_value *x) {
    tdm_op_give(dst, TDM_TYPE_F32, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
}

tdm_status tdm_infer_matmul(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *w = a->src[0], *x = a->src[1];
    char text[TDM_VALUE_TEXT_SIZE], other[TDM_VALUE_TEXT_SIZE];
    tdm_status status = tdm_op_need_numbers(a, 0, "w", err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 0, "w", -1, -1, -1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 1, "x", TDM_TYPE_F32, err);
    if (status != TDM_OK) return status;
    if (w->ne[0] != x->ne[0])
        return tdm_op_fail(a, err, "w and x differ in axis 0: %s, %s",
                           tdm_value_text(a->graph, a->node->src[0], text),
                           tdm_value_text(a->graph, a->node->src[1], other));
    /* One matrix multiplies all rows of x; of several, each multiplies one row of each token. */
    if (w->ne[2] != 1 && w->ne[2] != x->ne[1])
        return tdm_op_fail(a, err, "w's matrices (axis 2) and x's heads (axis 1) differ: %s, %s",
                           tdm_value_text(a->graph, a->node->src[0], text),
                           tdm_value_text(a->graph, a->node->src[1], other));
    status = tdm_op_need_roles(a, 2, 1, w->ne[2] != 1 ? 2 : 1, err);
    if (status != TDM_OK) return status;
    tdm_op_give(dst, TDM_TYPE_F32, w->ne[1], x->ne[1], x->ne[2], x->ne[3]);
    return TDM_OK;
}

tdm_status tdm_infer_pair(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0], *y = a->src[1];
    char text[TDM_VALUE_TEXT_SIZE], other[TDM_VALUE_TEXT_SIZE];
    tdm_status status = tdm_op_need_type(a, 0, "a", TDM_TYPE_F32, err);
    int i;
    if (status == TDM_OK) status = tdm_op_need_type(a, 1, "b", TDM_TYPE_F32, err);
    if (status != TDM_OK) return status;
    for (i = 0; i < TDM_MAX_DIMS; i++)
        if (y->ne[i] != x->ne[i] && y->ne[i] != 1)
            return tdm_op_fail(a, err, "axis %d of b must be 1 or that of a: a %s, b %s", i,
                               tdm_value_text(a->graph, a->node->src[0], text),
                               tdm_value_text(a->graph, a->node->src[1], other));
    give_like(dst, x);
    return TDM_OK;
}

tdm_status tdm_infer_scale(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    tdm_status status = tdm_op_need_type(a, 0, "x", TDM_TYPE_F32, err);
    if (status == TDM_OK)
        status = tdm_op_need_float(a, "scale", a->node->params.scale.scale, -FLT_MAX, err);
    if (status == TDM_OK)
        status = tdm_op_need_float(a, "bias", a->node->params.scale.bias, -FLT_MAX, err);
    if (status == TDM_OK) give_like(dst, a->src[0]);
    return status;
}

tdm_status tdm_infer_clamp(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    double lo = (double)a->node->params.clamp.min, hi = (double)a->node->params.clamp.max;
    tdm_status status = tdm_op_need_type(a, 0, "x", TDM_TYPE_F32, err);
    if (status == TDM_OK && !(lo <= hi))
        return tdm_op_fail(a, err, "min = %g is not at most max = %g", lo, hi);
    if (status == TDM_OK) give_like(dst, a->src[0]);
    return status;
}

tdm_status tdm_infer_act(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    tdm_status status = tdm_op_need_type(a, 0, "x", TDM_TYPE_F32, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "act", a->node->params.act.act, 0, TDM_ACT_COUNT_ - 1, err);
    if (status == TDM_OK) give_like(dst, a->src[0]);
    return status;
}

tdm_status tdm_infer_glu(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *gate = a->src[0];
    tdm_status status = tdm_op_need_type(a, 0, "gate", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 1, "up", TDM_TYPE_F32, err);
    if (status == TDM_OK)
        status =
            tdm_op_need_shape(a, 1, "up", gate->ne[0], gate->ne[1], gate->ne[2], gate->ne[3], err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "act", a->node->params.act.act, 0, TDM_ACT_COUNT_ - 1, err);
    if (status == TDM_OK) give_like(dst, gate);
    return status;
}

tdm_status tdm_infer_like(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    tdm_status status = tdm_op_need_type(a, 0, "x", TDM_TYPE_F32, err);
    if (status == TDM_OK) give_like(dst, a->src[0]);
    return status;
}

/* x, the optional weight at source i, and eps. */
static tdm_status norm_check(const tdm_op_args *a, int i, tdm_error *err) {
    tdm_status status = tdm_op_need_type(a, 0, "x", TDM_TYPE_F32, err);
    if (status == TDM_OK && a->src[i] != NULL) {
        status = tdm_op_need_type(a, i, "weight", TDM_TYPE_F32, err);
        if (status == TDM_OK)
            status = tdm_op_need_shape(a, i, "weight", a->src[0]->ne[0], 1, 1, 1, err);
    }
    if (status == TDM_OK) status = tdm_op_need_float(a, "eps", a->node->params.norm.eps, 0, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "reserved", a->node->params.norm.reserved, 0, 0, err);
    return status;
}

tdm_status tdm_infer_rms_norm(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    tdm_status status = norm_check(a, 1, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "n", a->node->params.norm.n, 0, 0, err);
    if (status == TDM_OK) give_like(dst, a->src[0]);
    return status;
}

tdm_status tdm_infer_layer_norm(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    tdm_status status = norm_check(a, 1, err);
    if (status == TDM_OK && a->src[2] != NULL) {
        status = tdm_op_need_type(a, 2, "bias", TDM_TYPE_F32, err);
        if (status == TDM_OK)
            status = tdm_op_need_shape(a, 2, "bias", a->src[0]->ne[0], 1, 1, 1, err);
    }
    if (status == TDM_OK) status = tdm_op_need_range(a, "n", a->node->params.norm.n, 0, 0, err);
    if (status == TDM_OK) give_like(dst, a->src[0]);
    return status;
}

tdm_status tdm_infer_sum_sq(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0];
    tdm_status status = tdm_op_need_type(a, 0, "x", TDM_TYPE_F32, err);
    if (status == TDM_OK) tdm_op_give(dst, TDM_TYPE_F32, 1, x->ne[1], x->ne[2], x->ne[3]);
    return status;
}

tdm_status tdm_infer_rms_apply(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0];
    tdm_status status = norm_check(a, 2, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 1, "sum", TDM_TYPE_F32, err);
    if (status == TDM_OK)
        status = tdm_op_need_shape(a, 1, "sum", 1, x->ne[1], x->ne[2], x->ne[3], err);
    if (status == TDM_OK && a->node->params.norm.n != 0)
        status = tdm_op_need_range(a, "n", a->node->params.norm.n, x->ne[0], TDM_MAX_ELEMENTS, err);
    if (status == TDM_OK) give_like(dst, x);
    return status;
}

tdm_status tdm_op_need_rope(const tdm_op_args *a, const tdm_rope_params *p, int64_t head_dim,
                            tdm_error *err) {
    tdm_status status = tdm_op_need_range(a, "n_rot", p->n_rot, 0, head_dim, err);
    if (status == TDM_OK && p->n_rot % 2 != 0)
        return tdm_op_fail(a, err, "n_rot = %d is odd", (int)p->n_rot);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "rope_offset", p->rope_offset, 0, head_dim - p->n_rot, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "mode", p->mode, 0, TDM_ROPE_HALVES, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "n_ctx_orig", p->n_ctx_orig, 0, INT32_MAX, err);
    if (status == TDM_OK) status = tdm_op_need_float(a, "freq_base", p->freq_base, 0, err);
    if (status == TDM_OK) status = tdm_op_need_float(a, "freq_scale", p->freq_scale, 0, err);
    if (status == TDM_OK) status = tdm_op_need_float(a, "ext_factor", p->ext_factor, 0, err);
    if (status == TDM_OK) status = tdm_op_need_float(a, "attn_factor", p->attn_factor, 0, err);
    if (status == TDM_OK) status = tdm_op_need_float(a, "beta_fast", p->beta_fast, 0, err);
    if (status == TDM_OK) status = tdm_op_need_float(a, "beta_slow", p->beta_slow, 0, err);
    /* YaRN divides by ln(freq_base) and takes the logarithm of n_ctx_orig. */
    if (status == TDM_OK && p->ext_factor != 0) {
        status = tdm_op_need_range(a, "n_ctx_orig with YaRN", p->n_ctx_orig, 1, INT32_MAX, err);
        if (status == TDM_OK && p->freq_base != 0 && p->freq_base <= 1)
            return tdm_op_fail(a, err, "freq_base = %g with YaRN is not above 1",
                               (double)p->freq_base);
    }
    return status;
}

tdm_status tdm_infer_rope(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0];
    const tdm_rope_params *p = &a->node->params.rope;
    tdm_status status = tdm_op_need_type(a, 0, "x", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 0, "x", -1, -1, -1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 1, "pos", TDM_TYPE_I32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 1, "pos", x->ne[2], 1, 1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_rope(a, p, x->ne[0], err);
    if (status == TDM_OK)
        status =
            tdm_op_need_range(a, "pos_add", p->pos_add, -TDM_MAX_POS_ADD, TDM_MAX_POS_ADD, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "is_inverse", p->is_inverse, 0, 1, err);
    if (status == TDM_OK && a->src[2] != NULL) {
        status = tdm_op_need_type(a, 2, "factor", TDM_TYPE_F32, err);
        if (status == TDM_OK)
            status = tdm_op_need_shape(a, 2, "factor", p->n_rot / 2, 1, 1, 1, err);
    }
    if (status == TDM_OK) give_like(dst, x);
    return status;
}

tdm_status tdm_infer_sinkhorn(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0];
    const tdm_sinkhorn_params *p = &a->node->params.sinkhorn;
    tdm_status status = tdm_op_need_type(a, 0, "x", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 0, "x", -1, x->ne[0], -1, 1, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "rows of x", x->ne[0], 1, TDM_MAX_SINKHORN, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "n_iter", p->n_iter, 1, INT32_MAX, err);
    if (status == TDM_OK) status = tdm_op_need_float(a, "eps", p->eps, 0, err);
    if (status == TDM_OK) give_like(dst, x);
    return status;
}
