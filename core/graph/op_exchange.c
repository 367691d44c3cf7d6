/* SPDX-License-Identifier: MIT
 *
 * op_exchange.c: checks of EXCHANGE: its sources against its result, and that the bytes it uses
 * lie in the arena. The shape of its destination is given, not inferred: a member that sends nothing
 * has no x to infer it from.
 */
#include "core/graph/op_infer.h"

enum { X, ARENA, STEP, RESIDUAL };

static bool is_sum(const tdm_exchange_params *p) {
    return p->kind == TDM_EXCHANGE_SUM || p->kind == TDM_EXCHANGE_SUM_PART;
}

static tdm_status params_check(const tdm_op_args *a, const tdm_exchange_params *p, tdm_error *err) {
    bool has_axis = p->kind != TDM_EXCHANGE_SUM, has_wire = is_sum(p);
    bool has_whole = p->kind == TDM_EXCHANGE_SUM_PART;
    tdm_status status = tdm_op_need_range(a, "stage", p->stage, 0, INT32_MAX, err);
    if (status == TDM_OK) status = tdm_op_need_range(a, "n_member", p->n_member, 1, 64, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "member", p->member, 0, p->n_member - 1, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "kind", p->kind, 0, TDM_EXCHANGE_GATHER, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "axis", p->axis, 0, has_axis ? TDM_MAX_DIMS - 1 : 0, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "first", p->first, 0, has_axis ? INT32_MAX : 0, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "whole", p->whole, 0, has_whole ? INT32_MAX : 0, err);
    if (status != TDM_OK) return status;
    if (p->n_member < 64 && p->senders >> p->n_member != 0)
        return tdm_op_fail(a, err, "senders = 0x%llx names more than %d members",
                           (unsigned long long)p->senders, (int)p->n_member);
    if (has_wire && p->wire_type != TDM_TYPE_F32 && p->wire_type != TDM_TYPE_F16 &&
        p->wire_type != TDM_TYPE_BF16 && p->wire_type != TDM_TYPE_Q8_0)
        return tdm_op_fail(a, err, "wire_type = %d is none of f32, f16, bf16, q8_0",
                           (int)p->wire_type);
    if (!has_wire && (p->wire_type != 0 || p->data_stride != 0))
        return tdm_op_fail(a, err, "a gather has no wire_type (%d) and no data_stride (%llu)",
                           (int)p->wire_type, (unsigned long long)p->data_stride);
    return TDM_OK;
}

/* x is present exactly where this member sends. Also checks types, step source and residual. */
static tdm_status sources_check(const tdm_op_args *a, const tdm_exchange_params *p,
                                const tdm_op_result *dst, tdm_error *err) {
    const int64_t step_least = sizeof(tdm_step_header) / sizeof(int32_t);
    const tdm_value *step = a->src[STEP];
    bool is_sender = (p->senders >> p->member & 1) != 0;
    char text[TDM_VALUE_TEXT_SIZE];
    tdm_status status;
    if (is_sender != (a->src[X] != NULL))
        return tdm_op_fail(a, err, "member %d is %s of senders = 0x%llx but its x is %s",
                           (int)p->member, is_sender ? "one" : "none",
                           (unsigned long long)p->senders, is_sender ? "absent" : "present");
    if (step->kind != TDM_VALUE_INPUT || step->type != TDM_TYPE_I32 || step->ne[0] < step_least)
        return tdm_op_fail(a, err,
                           "source 2 must be the step block, or an INPUT of i32 that begins with "
                           "its header of %d, not %s",
                           (int)step_least, tdm_value_text(a->graph, a->node->src[STEP], text));
    status = tdm_op_need_type(a, ARENA, "arena", TDM_TYPE_I8, err);
    if (status == TDM_OK && a->src[X] != NULL)
        status = tdm_op_need_type(a, X, "x", (tdm_type)(is_sum(p) ? TDM_TYPE_F32 : dst->type), err);
    if (status != TDM_OK || a->src[RESIDUAL] == NULL) return status;
    if (!is_sum(p)) return tdm_op_fail(a, err, "a gather has no residual");
    status = tdm_op_need_type(a, RESIDUAL, "residual", TDM_TYPE_F32, err);
    if (status == TDM_OK)
        status = tdm_op_need_shape(a, RESIDUAL, "residual", dst->ne[0], dst->ne[1], dst->ne[2],
                                   dst->ne[3], err);
    return status;
}

/* Writes the shape of the addends to ne_out; x has this shape where it is present. */
static tdm_status addend_find(const tdm_op_args *a, const tdm_exchange_params *p,
                              const tdm_op_result *dst, int64_t ne_out[TDM_MAX_DIMS],
                              tdm_error *err) {
    int64_t whole = p->whole;
    int i;
    for (i = 0; i < TDM_MAX_DIMS; i++) ne_out[i] = dst->ne[i];
    if (p->kind == TDM_EXCHANGE_SUM_PART) {
        if (whole == 0 && a->src[X] != NULL) whole = a->src[X]->ne[p->axis];
        if (dst->ne[p->axis] > whole - p->first)
            return tdm_op_fail(a, err, "%lld elements from %d on along axis %d are outside %lld%s",
                               (long long)dst->ne[p->axis], (int)p->first, (int)p->axis,
                               (long long)whole,
                               p->whole == 0 && a->src[X] == NULL
                                   ? ": without x, say in `whole` how long the addends are"
                                   : "");
        ne_out[p->axis] = whole;
    }
    if (a->src[X] == NULL) return tdm_shape_check("the addends", TDM_TYPE_F32, ne_out, err);
    return tdm_op_need_shape(a, X, "x", ne_out[0], ne_out[1], ne_out[2], ne_out[3], err);
}

/* x is a part of the result, along axis from first on. */
static tdm_status part_check(const tdm_op_args *a, const tdm_exchange_params *p,
                             const tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[X];
    int block_len = tdm_type_get_info((tdm_type)dst->type).block_len;
    char shape[TDM_SHAPE_TEXT_SIZE], text[TDM_VALUE_TEXT_SIZE];
    int i;
    if (x == NULL) return tdm_op_need_range(a, "first", p->first, 0, 0, err);
    for (i = 0; i < TDM_MAX_DIMS; i++)
        if (i == p->axis ? x->ne[i] > dst->ne[i] - p->first : x->ne[i] != dst->ne[i])
            return tdm_op_fail(a, err, "x is no part from %d on along axis %d of the result %s: %s",
                               (int)p->first, (int)p->axis, tdm_shape_text(dst->ne, shape),
                               tdm_value_text(a->graph, a->node->src[X], text));
    if (p->axis == 0 && p->first % block_len != 0)
        return tdm_op_fail(a, err, "first = %d cuts a block of %d elements", (int)p->first,
                           block_len);
    return TDM_OK;
}

/* [off, off + n * stride) is after the abort word and inside the arena. */
static tdm_status arena_check(const tdm_op_args *a, const char *word, uint64_t off, uint64_t n,
                              uint64_t stride, uint64_t align, tdm_error *err) {
    uint64_t size = (uint64_t)tdm_shape_count(a->src[ARENA]->ne), bytes;
    char text[TDM_VALUE_TEXT_SIZE];
    if (off < 8 || off % align != 0 || (n > 1 && stride % align != 0) ||
        __builtin_mul_overflow(n, stride, &bytes) || off > size || bytes > size - off)
        return tdm_op_fail(a, err,
                           "%llu %s of %llu bytes at offset %llu (multiples of %llu, behind the "
                           "abort word) do not fit the arena %s",
                           (unsigned long long)n, word, (unsigned long long)stride,
                           (unsigned long long)off, (unsigned long long)align,
                           tdm_value_text(a->graph, a->node->src[ARENA], text));
    return TDM_OK;
}

/* Data of n pieces and the flags lie in the arena, apart from each other. */
static tdm_status places_check(const tdm_op_args *a, const tdm_exchange_params *p, const char *word,
                               uint64_t n, uint64_t stride, tdm_error *err) {
    uint64_t n_member = (uint64_t)p->n_member, data_end, flag_end;
    tdm_status status = arena_check(a, word, p->data_off, n, stride, 4, err);
    if (status == TDM_OK) status = arena_check(a, "flags", p->flag_off, n_member, 64, 8, err);
    if (status != TDM_OK) return status;
    data_end = p->data_off + n * stride;
    flag_end = p->flag_off + n_member * 64;
    if (p->data_off < flag_end && p->flag_off < data_end)
        return tdm_op_fail(a, err, "flags at %llu lie inside the %s at %llu .. %llu",
                           (unsigned long long)p->flag_off, word, (unsigned long long)p->data_off,
                           (unsigned long long)data_end);
    return TDM_OK;
}

tdm_status tdm_infer_exchange(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_exchange_params *p = &a->node->params.exchange;
    int64_t ne[TDM_MAX_DIMS], count, block_len;
    uint64_t size;
    tdm_status status = tdm_shape_check("the result of an exchange", dst->type, dst->ne, err);
    if (status == TDM_OK) status = params_check(a, p, err);
    if (status == TDM_OK) status = sources_check(a, p, dst, err);
    if (status != TDM_OK) return status;
    if (!is_sum(p)) {
        status = part_check(a, p, dst, err);
        if (status != TDM_OK) return status;
        size = tdm_tensor_canonical_size((tdm_type)dst->type, dst->ne);
        return places_check(a, p, "gathered values", 1, size, err);
    }
    dst->type = TDM_TYPE_F32;
    status = addend_find(a, p, dst, ne, err);
    if (status != TDM_OK) return status;
    count = tdm_shape_count(ne);
    block_len = tdm_type_get_info((tdm_type)p->wire_type).block_len;
    size =
        tdm_type_row_size((tdm_type)p->wire_type, (count + block_len - 1) / block_len * block_len);
    if (p->data_stride < size)
        return tdm_op_fail(a, err, "data_stride = %llu is less than the %llu bytes of an addend",
                           (unsigned long long)p->data_stride, (unsigned long long)size);
    return places_check(a, p, "addends", (uint64_t)p->n_member, p->data_stride, err);
}
