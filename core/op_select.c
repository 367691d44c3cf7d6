/* SPDX-License-Identifier: MIT
 *
 * op_select.c: what selection, experts and EXCHANGE give.
 */
#include <float.h>

#include "core/op_infer.h"

tdm_status tdm_infer_top_k(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0];
    int32_t k = a->node->params.top_k.k;
    tdm_status status = tdm_op_need_type(a, 0, "x", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 0, "x", -1, -1, 1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "k", k, 0, x->ne[0], err);
    /* the largest id, index_base + ne[0] - 1, is an i32 */
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
        status = tdm_op_need_range(a, "score", p->score, 0, TDM_ROUTE_TOP_SOFTMAX, err);
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
    if (status == TDM_OK) {
        tdm_op_give(&dst[0], TDM_TYPE_I32, p->n_used, logit->ne[1], 1, 1);
        tdm_op_give(&dst[1], TDM_TYPE_F32, p->n_used, logit->ne[1], 1, 1);
    }
    return status;
}

tdm_status tdm_infer_moe_ffn(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0], *id = a->src[1], *gate = a->src[3];
    int64_t n = x->ne[0], n_tok = x->ne[1], n_ff = gate->ne[1], n_expert = gate->ne[2];
    int32_t first = a->node->params.moe.first_expert, all = a->node->params.moe.n_expert_all;
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
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "act", a->node->params.moe.act, 0, TDM_ACT_TANH, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "experts", n_expert, 0, INT32_MAX, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "first_expert", first, 0, INT32_MAX - n_expert, err);
    if (status == TDM_OK && (all != 0 || first != 0))
        status = tdm_op_need_range(a, "n_expert_all", all, first + n_expert, INT32_MAX, err);
    if (status == TDM_OK) tdm_op_give(dst, TDM_TYPE_F32, n, n_tok, 1, 1);
    return status;
}

/* [off, off + n * stride) lies behind the abort word and inside the arena. */
static tdm_status arena_check(const tdm_op_args *a, const char *word, uint64_t off, uint64_t n,
                              uint64_t stride, uint64_t align, tdm_error *err) {
    uint64_t size = (uint64_t)tdm_shape_count(a->src[1]->ne), bytes;
    char text[TDM_VALUE_TEXT_SIZE];
    if (off < 8 || off % align != 0 || stride % align != 0 ||
        __builtin_mul_overflow(n, stride, &bytes) || off > size || bytes > size - off)
        return tdm_op_fail(a, err,
                           "%llu %s of %llu bytes at offset %llu (multiples of %llu, behind the "
                           "abort word) do not fit the arena %s",
                           (unsigned long long)n, word, (unsigned long long)stride,
                           (unsigned long long)off, (unsigned long long)align,
                           tdm_value_text(a->graph, a->node->src[1], text));
    return TDM_OK;
}

tdm_status tdm_infer_exchange(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0];
    const tdm_exchange_params *p = &a->node->params.exchange;
    const int64_t count = tdm_shape_count(x->ne);
    uint64_t data_end, flag_end, n_member;
    tdm_status status = tdm_op_need_type(a, 0, "addend", TDM_TYPE_F32, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 1, "arena", TDM_TYPE_I8, err);
    if (status == TDM_OK && a->src[3] != NULL) {
        status = tdm_op_need_type(a, 3, "residual", TDM_TYPE_F32, err);
        if (status == TDM_OK)
            status =
                tdm_op_need_shape(a, 3, "residual", x->ne[0], x->ne[1], x->ne[2], x->ne[3], err);
    }
    if (status == TDM_OK) status = tdm_op_need_range(a, "stage", p->stage, 0, INT32_MAX, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "n_member", p->n_member, 1, 64, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "member", p->member, 0, p->n_member - 1, err);
    if (status != TDM_OK) return status;
    if (p->wire_type != TDM_TYPE_F32 && p->wire_type != TDM_TYPE_F16 &&
        p->wire_type != TDM_TYPE_BF16 && p->wire_type != TDM_TYPE_Q8_0)
        return tdm_op_fail(a, err, "wire_type = %d is none of f32, f16, bf16, q8_0",
                           (int)p->wire_type);
    if (count % tdm_type_get_info((tdm_type)p->wire_type).block_len != 0)
        return tdm_op_fail(a, err, "%lld elements are not whole blocks of %s", (long long)count,
                           tdm_type_name((tdm_type)p->wire_type));
    if (p->data_stride < tdm_type_row_size((tdm_type)p->wire_type, count))
        return tdm_op_fail(a, err, "data_stride = %llu is less than the %llu bytes of an addend",
                           (unsigned long long)p->data_stride,
                           (unsigned long long)tdm_type_row_size((tdm_type)p->wire_type, count));
    n_member = (uint64_t)p->n_member;
    status = arena_check(a, "addends", p->data_off, n_member, p->data_stride, 4, err);
    if (status == TDM_OK) status = arena_check(a, "flags", p->flag_off, n_member, 64, 8, err);
    if (status != TDM_OK) return status;
    data_end = p->data_off + n_member * p->data_stride;
    flag_end = p->flag_off + n_member * 64;
    if (p->data_off < flag_end && p->flag_off < data_end)
        return tdm_op_fail(a, err, "flags at %llu lie inside the addends at %llu .. %llu",
                           (unsigned long long)p->flag_off, (unsigned long long)p->data_off,
                           (unsigned long long)data_end);
    tdm_op_give(dst, TDM_TYPE_F32, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
    return TDM_OK;
}
