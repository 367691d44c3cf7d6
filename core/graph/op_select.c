/* SPDX-License-Identifier: MIT
 *
 * op_select.c: type and shape of the results of selection and experts.
 */
#include <float.h>

#include "core/graph/op_infer.h"

tdm_status tdm_infer_top_k(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0];
    int32_t k = a->node->params.top_k.k;
    tdm_status status = tdm_op_need_type(a, 0, "x", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 0, "x", -1, -1, 1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "k", k, 0, x->ne[0], err);
    /* the largest id, index_base + ne[0] - 1, fits into an i32 */
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "elements of a row", x->ne[0], 0, INT32_MAX, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "index_base", a->node->params.top_k.index_base, 0,
                                   INT32_MAX - x->ne[0], err);
    if (status == TDM_OK) {
        tdm_op_give(&dst[0], TDM_TYPE_F32, k, x->ne[1], 1, 1);
        tdm_op_give(&dst[1], TDM_TYPE_I32, k, x->ne[1], 1, 1);
    }
    return status;
}

/* Experts that are given, not chosen: nothing may change a choice. */
static tdm_status given_ids_check(const tdm_op_args *a, tdm_error *err) {
    const tdm_route_params *p = &a->node->params.route;
    tdm_status status = tdm_op_need_type(a, 2, "id", TDM_TYPE_I32, err);
    if (status == TDM_OK)
        status = tdm_op_need_shape(a, 2, "id", p->n_used, a->src[0]->ne[1], 1, 1, err);
    if (status == TDM_OK && (a->src[1] != NULL || p->n_group > 1 || p->id_divisor > 1))
        return tdm_op_fail(a, err, "id excludes a bias, groups and an id_divisor");
    return status;
}

tdm_status tdm_infer_moe_route(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *logit = a->src[0];
    const tdm_route_params *p = &a->node->params.route;
    int64_t n_expert = logit->ne[0], n_choice = n_expert;
    tdm_status status = tdm_op_need_type(a, 0, "logit", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 0, "logit", -1, -1, 1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "experts", n_expert, 1, INT32_MAX, err);
    if (status == TDM_OK && a->src[1] != NULL) {
        status = tdm_op_need_type(a, 1, "bias", TDM_TYPE_F32, err);
        if (status == TDM_OK) status = tdm_op_need_shape(a, 1, "bias", n_expert, 1, 1, 1, err);
    }
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "score", p->score, 0, TDM_ROUTE_SQRT_SOFTPLUS, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "normalize", p->normalize, 0, 1, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "n_group", p->n_group, 0, n_expert, err);
    if (status == TDM_OK && p->n_group > 1) {
        if (n_expert % p->n_group != 0)
            return tdm_op_fail(a, err, "n_group = %d does not divide %lld experts", (int)p->n_group,
                               (long long)n_expert);
        status = tdm_op_need_range(a, "n_group_used", p->n_group_used, 1, p->n_group, err);
        n_choice = n_expert / p->n_group * p->n_group_used;
    } else if (status == TDM_OK) {
        status = tdm_op_need_range(a, "n_group_used", p->n_group_used, 0, 1, err);
    }
    if (status == TDM_OK) status = tdm_op_need_range(a, "n_used", p->n_used, 1, n_choice, err);
    if (status == TDM_OK) status = tdm_op_need_float(a, "scale", p->scale, -FLT_MAX, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "id_divisor", p->id_divisor, 0, INT32_MAX, err);
    if (status == TDM_OK && a->src[2] != NULL) status = given_ids_check(a, err);
    if (status == TDM_OK) {
        tdm_op_give(&dst[0], TDM_TYPE_I32, p->n_used, logit->ne[1], 1, 1);
        tdm_op_give(&dst[1], TDM_TYPE_F32, p->n_used, logit->ne[1], 1, 1);
    }
    return status;
}

/* A bias is a row of f32 for each expert. */
static tdm_status expert_bias_check(const tdm_op_args *a, int32_t src, const char *name, int64_t n,
                                    int64_t n_expert, tdm_error *err) {
    if (a->src[src] == NULL) return TDM_OK;
    tdm_status status = tdm_op_need_type(a, src, name, TDM_TYPE_F32, err);
    return status != TDM_OK ? status : tdm_op_need_shape(a, src, name, n, n_expert, 1, 1, err);
}

/* first_expert and n_expert_all of matrices of n_expert experts. */
static tdm_status experts_check(const tdm_op_args *a, int64_t n_expert, tdm_error *err) {
    const int32_t first = a->node->params.moe.first_expert, all = a->node->params.moe.n_expert_all;
    tdm_status status = tdm_op_need_range(a, "experts", n_expert, 0, INT32_MAX, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "first_expert", first, 0, INT32_MAX - n_expert, err);
    if (status == TDM_OK && (all != 0 || first != 0))
        status = tdm_op_need_range(a, "n_expert_all", all, first + n_expert, INT32_MAX, err);
    return status;
}

tdm_status tdm_infer_moe_ffn(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0], *id = a->src[1], *gate = a->src[3];
    int64_t n = x->ne[0], n_tok = x->ne[1], n_ff = gate->ne[1], n_expert = gate->ne[2];
    const tdm_moe_params *p = &a->node->params.moe;
    tdm_status status = tdm_op_need_type(a, 0, "x", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 0, "x", -1, -1, 1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 1, "id", TDM_TYPE_I32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 1, "id", -1, n_tok, 1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 2, "weight", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 2, "weight", id->ne[0], n_tok, 1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_numbers(a, 3, "gate", err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 3, "gate", n, -1, -1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_numbers(a, 4, "up", err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 4, "up", n, n_ff, n_expert, 1, err);
    if (status == TDM_OK) status = tdm_op_need_numbers(a, 5, "down", err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 5, "down", n_ff, n, n_expert, 1, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "act", p->act, 0, TDM_ACT_COUNT_ - 1, err);
    if (status == TDM_OK) status = experts_check(a, n_expert, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "is_weighted_first", p->is_weighted_first, 0, 1, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "is_soft", p->is_soft, 0, 1, err);
    if (status == TDM_OK)
        status = tdm_op_need_float(a, "limit", p->limit, p->is_soft ? 0 : -FLT_MAX, err);
    if (status == TDM_OK) status = tdm_op_need_float(a, "alpha", p->alpha, 0, err);
    if (status == TDM_OK) status = tdm_op_need_float(a, "up_offset", p->up_offset, -FLT_MAX, err);
    if (status == TDM_OK) status = tdm_op_need_roles(a, 6, 0, 1, err);
    if (status == TDM_OK) status = expert_bias_check(a, 7, "gate_bias", n_ff, n_expert, err);
    if (status == TDM_OK) status = expert_bias_check(a, 8, "up_bias", n_ff, n_expert, err);
    if (status == TDM_OK) status = expert_bias_check(a, 9, "down_bias", n, n_expert, err);
    if (status == TDM_OK) tdm_op_give(dst, TDM_TYPE_F32, n, n_tok, 1, 1);
    return status;
}

tdm_status tdm_infer_moe_matmul(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *w = a->src[0], *x = a->src[1], *id = a->src[3];
    const int64_t n_used = id->ne[0], n_row = x->ne[1] == 1 ? 1 : n_used;
    tdm_status status = tdm_op_need_numbers(a, 0, "w", err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 0, "w", -1, -1, -1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 1, "x", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 1, "x", w->ne[0], n_row, -1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 3, "id", TDM_TYPE_I32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 3, "id", -1, x->ne[2], 1, 1, err);
    if (status == TDM_OK) status = experts_check(a, w->ne[2], err);
    if (status == TDM_OK) status = tdm_op_need_roles(a, 2, 1, 2, err);
    if (status == TDM_OK) tdm_op_give(dst, TDM_TYPE_F32, w->ne[1], n_used, x->ne[2], 1);
    return status;
}
