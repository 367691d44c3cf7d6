/* SPDX-License-Identifier: MIT
 *
 * op_view.c: type and shape of views and of data movement. core/base/view.c computes where a view
 * lies in memory.
 */
#include "core/graph/op_infer.h"

static int32_t block_len_of(const tdm_value *v) {
    return tdm_type_get_info((tdm_type)v->type).block_len;
}

static bool is_copied_type(int32_t type) {
    return type == TDM_TYPE_F32 || type == TDM_TYPE_F16 || type == TDM_TYPE_BF16 ||
           type == TDM_TYPE_I32;
}

tdm_status tdm_infer_reshape(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0];
    char text[TDM_VALUE_TEXT_SIZE], shape[TDM_SHAPE_TEXT_SIZE];
    tdm_status status = tdm_shape_check("the new shape", x->type, dst->ne, err);
    if (status != TDM_OK)
        return err != NULL ? tdm_op_fail(a, err, "%s", err->message) : TDM_INVALID_ARGUMENT;
    if (tdm_shape_count(dst->ne) != tdm_shape_count(x->ne))
        return tdm_op_fail(a, err, "shape %s has %lld elements, %s has %lld",
                           tdm_shape_text(dst->ne, shape), (long long)tdm_shape_count(dst->ne),
                           tdm_value_text(a->graph, a->node->src[0], text),
                           (long long)tdm_shape_count(x->ne));
    if (!tdm_view_is_contiguous(x, a->place))
        return tdm_op_fail(a, err, "%s is not contiguous: put a COPY before the reshape",
                           tdm_value_text(a->graph, a->node->src[0], text));
    dst->type = x->type;
    return TDM_OK;
}

tdm_status tdm_infer_permute(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0];
    const int32_t *axis = a->node->params.permute.axis;
    char text[TDM_VALUE_TEXT_SIZE];
    unsigned seen = 0;
    int i;
    for (i = 0; i < TDM_MAX_DIMS; i++)
        if (axis[i] >= 0 && axis[i] < TDM_MAX_DIMS) seen |= 1u << axis[i];
    if (seen != (1u << TDM_MAX_DIMS) - 1)
        return tdm_op_fail(a, err, "axes %d %d %d %d are not a permutation of 0 .. 3", (int)axis[0],
                           (int)axis[1], (int)axis[2], (int)axis[3]);
    if (axis[0] != 0 && block_len_of(x) > 1)
        return tdm_op_fail(a, err, "axis 0 of %s holds blocks and stays where it is",
                           tdm_value_text(a->graph, a->node->src[0], text));
    for (i = 0; i < TDM_MAX_DIMS; i++) dst->ne[axis[i]] = x->ne[i];
    dst->type = x->type;
    return TDM_OK;
}

tdm_status tdm_infer_slice(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0];
    const int64_t *offset = a->node->params.slice.offset;
    char text[TDM_VALUE_TEXT_SIZE];
    int i;
    for (i = 0; i < TDM_MAX_DIMS; i++) /* subtracted, not added: either may be any number */
        if (offset[i] < 0 || dst->ne[i] < 0 || offset[i] > x->ne[i] ||
            dst->ne[i] > x->ne[i] - offset[i])
            return tdm_op_fail(a, err, "%lld elements from %lld on along axis %d are outside %s",
                               (long long)dst->ne[i], (long long)offset[i], i,
                               tdm_value_text(a->graph, a->node->src[0], text));
    if (offset[0] % block_len_of(x) != 0 || dst->ne[0] % block_len_of(x) != 0)
        return tdm_op_fail(a, err, "%lld elements from %lld on cut a block of %d of %s",
                           (long long)dst->ne[0], (long long)offset[0], (int)block_len_of(x),
                           tdm_value_text(a->graph, a->node->src[0], text));
    dst->type = x->type;
    return TDM_OK;
}

tdm_status tdm_infer_copy(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0];
    char text[TDM_VALUE_TEXT_SIZE];
    int i;
    if (!is_copied_type(x->type) || !is_copied_type(dst->type))
        return tdm_op_fail(a, err, "f32, f16, bf16 and i32 are copied, not %s to %s",
                           tdm_value_text(a->graph, a->node->src[0], text),
                           tdm_type_name((tdm_type)dst->type));
    if ((x->type == TDM_TYPE_I32) != (dst->type == TDM_TYPE_I32))
        return tdm_op_fail(a, err, "i32 holds ids and is not converted: %s to %s",
                           tdm_value_text(a->graph, a->node->src[0], text),
                           tdm_type_name((tdm_type)dst->type));
    for (i = 0; i < TDM_MAX_DIMS; i++) dst->ne[i] = x->ne[i];
    return TDM_OK;
}

tdm_status tdm_infer_concat(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0], *y = a->src[1];
    int32_t axis = a->node->params.concat.axis;
    char text[TDM_VALUE_TEXT_SIZE], other[TDM_VALUE_TEXT_SIZE];
    tdm_status status = tdm_op_need_range(a, "axis", axis, 0, TDM_MAX_DIMS - 1, err);
    int i;
    if (status != TDM_OK) return status;
    if (x->type != y->type || !is_copied_type(x->type))
        return tdm_op_fail(a, err, "joins two values of one type of f32, f16, bf16, i32: %s, %s",
                           tdm_value_text(a->graph, a->node->src[0], text),
                           tdm_value_text(a->graph, a->node->src[1], other));
    for (i = 0; i < TDM_MAX_DIMS; i++) {
        if (i != axis && x->ne[i] != y->ne[i])
            return tdm_op_fail(a, err, "axis %d differs: %s, %s", i,
                               tdm_value_text(a->graph, a->node->src[0], text),
                               tdm_value_text(a->graph, a->node->src[1], other));
        dst->ne[i] = i == axis ? x->ne[i] + y->ne[i] : x->ne[i];
    }
    dst->type = x->type;
    return TDM_OK;
}

tdm_status tdm_infer_repeat(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *x = a->src[0];
    char text[TDM_VALUE_TEXT_SIZE], shape[TDM_SHAPE_TEXT_SIZE];
    tdm_status status = tdm_op_need_type(a, 0, "x", TDM_TYPE_F32, err);
    int i;
    for (i = 0; i < TDM_MAX_DIMS && status == TDM_OK; i++)
        if (dst->ne[i] < 0 || (x->ne[i] == 0 ? dst->ne[i] != 0 : dst->ne[i] % x->ne[i] != 0))
            return tdm_op_fail(a, err, "axis %d of the result is no multiple of x's: %s from %s", i,
                               tdm_shape_text(dst->ne, shape),
                               tdm_value_text(a->graph, a->node->src[0], text));
    dst->type = TDM_TYPE_F32;
    return status;
}

tdm_status tdm_infer_get_rows(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err) {
    const tdm_value *table = a->src[0], *id = a->src[1];
    tdm_status status = tdm_op_need_numbers(a, 0, "the table", err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 0, "the table", -1, -1, 1, 1, err);
    if (status == TDM_OK) status = tdm_op_need_type(a, 1, "id", TDM_TYPE_I32, err);
    if (status == TDM_OK) status = tdm_op_need_shape(a, 1, "id", -1, 1, 1, 1, err);
    if (status == TDM_OK)
        status = tdm_op_need_range(a, "first_row", a->node->params.rows.first_row, 0,
                                   TDM_MAX_ELEMENTS, err);
    if (status == TDM_OK) tdm_op_give(dst, TDM_TYPE_F32, table->ne[0], id->ne[0], 1, 1);
    return status;
}
