/* SPDX-License-Identifier: MIT
 *
 * matmul.c: the step of MATMUL. Roles say how many bits x is rounded to where a kernel multiplies
 * bytes; others multiply every row of x as a generated one.
 */
#include <string.h>

#include "plugins/gpu/ops/ops.h"
#include "plugins/gpu/ops/product.h"

static int64_t stride_of(const gpu_value *v, int axis) {
    return v->ne[axis] == 1 ? 0 : v->nb[axis] / tdm_type_get_info(v->type).block_size;
}

/* The product of a MATMUL node into `y`, which has the shape of the node's destination. */
static tdm_status product_get(gpu_emit *e, const gpu_value *y, gpu_product *out, tdm_error *err) {
    const gpu_value *w = &e->src[0], *x = &e->src[1], *role = &e->src[2];
    /* One matrix: columns are all axes from 1 on. Several: axis 1 is the matrix. */
    int first = w->ne[2] == 1 ? 1 : 2;
    if (x->type != TDM_TYPE_F32)
        return gpu_refuse(e, err, "x is %s; kernels multiply f32", tdm_type_name(x->type));
    if (w->ne[3] != 1) return gpu_refuse(e, err, "a fourth axis of w");
    *out = (gpu_product){.w = w};
    if (tdm_shape_count(y->ne) == 0) return TDM_OK;
    *out = (gpu_product){
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
    if (x->ne[0] == 1) out->x_stride_k = 1;
    out->form_of = e;
    if (role->is_present) {
        out->role = role->place;
        out->role_stride = stride_of(role, 0);
        out->rows_per_role = out->n_column / role->ne[0];
    }
    return TDM_OK;
}

static tdm_status product_emit(gpu_emit *e, const gpu_value *y, const gpu_product *p,
                               tdm_error *err) {
    return tdm_shape_count(y->ne) == 0 ? TDM_OK : gpu_product_emit(e, p, err);
}

tdm_status gpu_op_matmul(gpu_emit *e, tdm_error *err) {
    gpu_product p;
    tdm_status status = product_get(e, &e->dst[0], &p, err);
    return status != TDM_OK ? status : product_emit(e, &e->dst[0], &p, err);
}

/* nodes: MATMUL gate, MATMUL up, GLU of both. */
tdm_status gpu_fused_matmul_glu(gpu_emit *nodes, tdm_error *err) {
    gpu_emit *e = &nodes[2];
    const gpu_value *gate = &nodes[0].src[0], *up = &nodes[1].src[0];
    gpu_product p;
    tdm_status status = product_get(&nodes[0], &e->dst[0], &p, err);
    if (status != TDM_OK) return status;
    if (!gpu_product_is_pair(gate, up))
        return gpu_refuse(e, err, "matrices of different type or shape are not fused");
    p.up = up;
    p.act = e->node->params.act.act;
    return product_emit(e, &e->dst[0], &p, err);
}

static bool is_shape(const int64_t a[TDM_MAX_DIMS], int64_t n0, int64_t n1, int64_t n2,
                     int64_t n3) {
    return a[0] == n0 && a[1] == n1 && a[2] == n2 && a[3] == n3;
}

/* y + addend, where the addend has y's shape or is one value for each row. */
static tdm_status matmul_add(gpu_emit *nodes, const gpu_value *addend, tdm_error *err) {
    gpu_emit *e = &nodes[1];
    const gpu_value *y = &e->dst[0];
    gpu_product p;
    tdm_status status = product_get(&nodes[0], y, &p, err);
    if (status != TDM_OK) return status;
    if (memcmp(nodes[0].dst[0].ne, y->ne, sizeof y->ne) != 0)
        return gpu_refuse(e, err, "a product that is repeated is not fused");
    p.addend = addend->place;
    p.is_bias = is_shape(addend->ne, y->ne[0], 1, 1, 1) && nodes[0].src[0].ne[2] == 1;
    if (p.is_bias)
        p.bias_stride = y->ne[0] > 1 ? addend->nb[0] / (int64_t)sizeof(float) : 0;
    else if (!is_shape(addend->ne, y->ne[0], y->ne[1], y->ne[2], y->ne[3]) ||
             !gpu_value_is_contiguous(addend))
        return gpu_refuse(e, err, "a strided or repeated addend is not fused");
    return product_emit(e, y, &p, err);
}

/* nodes: MATMUL, ADD of its result and another value. */
tdm_status gpu_fused_matmul_add(gpu_emit *nodes, tdm_error *err) {
    return matmul_add(nodes, &nodes[1].src[1], err);
}

/* nodes: MATMUL, ADD of another value and its result. */
tdm_status gpu_fused_add_matmul(gpu_emit *nodes, tdm_error *err) {
    return matmul_add(nodes, &nodes[1].src[0], err);
}
