/* SPDX-License-Identifier: MIT
 *
 * tensor_part.c: see tensor_part.h.
 */
#include "core/base/tensor_part.h"

tdm_status tdm_tensor_desc_check(const tdm_tensor_desc *desc, tdm_error *err) {
    tdm_type_info type = tdm_type_get_info(desc->type);
    if (type.name == NULL)
        return tdm_fail(err, TDM_UNSUPPORTED, "tensor: type %d is unknown", (int)desc->type);
    uint64_t size = (uint64_t)type.block_size;
    for (int i = 0; i < TDM_MAX_DIMS; i++) {
        int64_t n = desc->ne[i];
        if (n < 0 || (i == 0 && n % type.block_len != 0))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "tensor: %lld is no length of axis %d in type %s", (long long)n, i,
                            type.name);
        if (n > 0 && (__builtin_mul_overflow(size, (uint64_t)n, &size) || size > INT64_MAX))
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "tensor: larger than any memory");
    }
    return TDM_OK;
}

tdm_status tdm_tensor_part_check(const tdm_tensor_desc *desc, int64_t row_first, int64_t n_row,
                                 int64_t col_first, int64_t n_col, tdm_error *err) {
    int64_t n_row_all = tdm_shape_rows(desc->ne), len = tdm_type_get_info(desc->type).block_len;
    if (row_first < 0 || n_row < 0 || row_first > n_row_all || n_row > n_row_all - row_first)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "tensor: rows %lld and %lld more, of %lld",
                        (long long)row_first, (long long)n_row, (long long)n_row_all);
    if (col_first < 0 || n_col < 0 || col_first > desc->ne[0] || n_col > desc->ne[0] - col_first)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "tensor: columns %lld and %lld more, of %lld",
                        (long long)col_first, (long long)n_col, (long long)desc->ne[0]);
    if (col_first % len != 0 || n_col % len != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "tensor: columns %lld and %lld more are not whole blocks of %s",
                        (long long)col_first, (long long)n_col, tdm_type_name(desc->type));
    return TDM_OK;
}
