/* SPDX-License-Identifier: MIT
 *
 * matmul.c: the step of MATMUL. Roles are ignored: every row of x is multiplied as a generated one.
 */
#include "plugins/gpu/ops/ops.h"
#include "plugins/gpu/ops/product.h"

static int64_t stride_of(const gpu_value *v, int axis) {
    return v->ne[axis] == 1 ? 0 : v->nb[axis] / tdm_type_get_info(v->type).block_size;
}

tdm_status gpu_op_matmul(gpu_emit *e, tdm_error *err) {
    const gpu_value *w = &e->src[0], *x = &e->src[1], *y = &e->dst[0];
    /* One matrix: columns are all axes from 1 on. Several: axis 1 is the matrix. */
    int first = w->ne[2] == 1 ? 1 : 2;
    if (x->type != TDM_TYPE_F32)
        return gpu_refuse(e, err, "x is %s; kernels multiply f32", tdm_type_name(x->type));
    if (w->ne[3] != 1) return gpu_refuse(e, err, "a fourth axis of w");
    if (tdm_shape_count(y->ne) == 0) return TDM_OK;
    gpu_product p = {
        .w = w,
        .dst = y->place,
        .x = x->place,
        .mode = GPU_PRODUCT_PLAIN,
        .n_column = tdm_shape_rows(x->ne) / (first == 1 ? 1 : w->ne[2]),
        .column_ne = {x->ne[first], x->ne[first + 1]},
        .x_stride_k = stride_of(x, 0),
        .x_stride = {stride_of(x, first), stride_of(x, first + 1),
                     first == 1 ? stride_of(x, 3) : 0},
        .x_stride_matrix = first == 1 ? 0 : stride_of(x, 1),
        .y_stride_matrix = first == 1 ? 0 : y->ne[0],
        .y_stride = first == 1 ? y->ne[0] : y->ne[0] * y->ne[1],
    };
    if (x->ne[0] == 1) p.x_stride_k = 1;
    return gpu_product_emit(e, &p, err);
}
