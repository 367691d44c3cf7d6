/* SPDX-License-Identifier: MIT
 *
 * matmul.c: the step of MATMUL, and of its fusions with what follows. Where a kernel multiplies
 * bytes, the role of a row of x decides to how many bits the row is rounded; other kernels do not
 * use roles.
 */
#include <string.h>

#include "plugins/gpu/ops/ops.h"
#include "plugins/gpu/ops/product.h"

static int64_t stride_of(const gpu_value *v, int axis) {
    return v->ne[axis] == 1 ? 0 : v->nb[axis] / tdm_type_get_info(v->type).block_size;
}

/* *out: the product of a MATMUL node `e`, stored in `y`, which has the shape of the node's
 * destination. */
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
    out->form_x = 1;
    out->form_role = 2;
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

/* ---- A product and what is done with it ------------------------------------------------------ */

/* Sets `v` as the addend of the product: a bias, which is added first, or an addend, which is added
 * last. */
static tdm_status addend_set(const gpu_emit *e, const gpu_value *w, const gpu_value *v,
                             gpu_product *p, tdm_error *err) {
    const gpu_value *y = &e->dst[0];
    const bool is_first = p->act == TDM_ACT_NONE && p->factor.space == GPU_SPACE_NONE;
    if (p->addend.space != GPU_SPACE_NONE)
        return gpu_refuse(e, err, "a product with two addends is not fused");
    p->is_bias = is_first && !p->is_scaled && is_shape(v->ne, y->ne[0], 1, 1, 1) && w->ne[2] == 1;
    if (p->is_bias)
        p->bias_stride = y->ne[0] > 1 ? v->nb[0] / (int64_t)sizeof(float) : 0;
    else if (memcmp(v->ne, y->ne, sizeof y->ne) != 0 || !gpu_value_is_contiguous(v))
        return gpu_refuse(e, err, "a strided or repeated addend is not fused");
    p->addend = v->place;
    return TDM_OK;
}

/* Sets `v` as the factor of the product. */
static tdm_status factor_set(const gpu_emit *e, const gpu_value *w, const gpu_value *v,
                             gpu_product *p, tdm_error *err) {
    const gpu_value *y = &e->dst[0];
    if (p->factor.space != GPU_SPACE_NONE)
        return gpu_refuse(e, err, "a product with two factors is not fused");
    if (v->type != TDM_TYPE_F32 || !gpu_value_is_contiguous(v))
        return gpu_refuse(e, err, "a strided factor is not fused");
    if (memcmp(v->ne, y->ne, sizeof y->ne) == 0)
        p->factor_end = GPU_PRODUCT_END_EACH;
    else if (is_shape(v->ne, y->ne[0], 1, 1, 1))
        p->factor_end = GPU_PRODUCT_END_ROWS;
    else if (is_shape(v->ne, 1, y->ne[1], y->ne[2], y->ne[3]) && w->ne[2] == 1)
        p->factor_end = GPU_PRODUCT_END_COLUMNS;
    else
        return gpu_refuse(e, err, "a factor that is repeated in parts is not fused");
    p->factor = v->place;
    return TDM_OK;
}

/* Sets the activation of the product or, with is_of_factor, of its factor. */
static tdm_status act_set(const gpu_emit *e, int32_t act, bool is_of_factor, gpu_product *p,
                          tdm_error *err) {
    if (p->act != TDM_ACT_NONE || p->factor.space != GPU_SPACE_NONE ||
        (is_of_factor && p->is_scaled))
        return gpu_refuse(e, err, "a product with two acts is not fused");
    p->act = act;
    p->has_factor_act = is_of_factor;
    return TDM_OK;
}

static tdm_status scale_set(const gpu_emit *e, gpu_product *p, tdm_error *err) {
    const tdm_op_params *params = &e->node->params;
    if (params->scale.bias != 0)
        return gpu_refuse(e, err, "a product to which a number is added is not fused");
    if (!p->is_scaled) p->before = p->after = 1;
    p->is_scaled = true;
    if (p->act == TDM_ACT_NONE && p->factor.space == GPU_SPACE_NONE)
        p->before *= params->scale.scale;
    else
        p->after *= params->scale.scale;
    return TDM_OK;
}

/* Adds to *p what node `e` does with the result so far, which is value `of` of the graph. `act`
 * (nullable): the ACT of the node's other source. */
static tdm_status end_add(const gpu_emit *e, int32_t of, const gpu_emit *act, const gpu_value *w,
                          gpu_product *p, tdm_error *err) {
    const int other = e->node->src[0] == of ? 1 : 0;
    tdm_status status = TDM_OK;
    if (p->addend.space != GPU_SPACE_NONE && !p->is_bias)
        return gpu_refuse(e, err, "what follows an addend is not fused");
    switch (e->node->op) {
    case TDM_OP_ADD: return addend_set(e, w, &e->src[other], p, err);
    case TDM_OP_ACT: return act_set(e, e->node->params.act.act, false, p, err);
    case TDM_OP_SCALE: return scale_set(e, p, err);
    case TDM_OP_GLU:
        status = act_set(e, e->node->params.act.act, other == 0, p, err);
        return status != TDM_OK ? status : factor_set(e, w, &e->src[other], p, err);
    default: break;
    }
    if (act != NULL) status = act_set(e, act->node->params.act.act, true, p, err);
    if (status != TDM_OK) return status;
    return factor_set(e, w, act != NULL ? &act->src[0] : &e->src[other], p, err);
}

/* nodes: MATMUL, and up to three of ADD, ACT, SCALE, MUL and GLU that each read the result before.
 * Before a MUL may stand the ACT of its other source. */
tdm_status gpu_fused_matmul_ends(gpu_emit *nodes, tdm_error *err) {
    const gpu_emit *act = NULL;
    gpu_product p;
    int32_t of = nodes[0].node->dst[0];
    int last = 0;
    while (nodes[last + 1].node != NULL) last++;
    gpu_emit *e = &nodes[last];
    const gpu_value *y = &e->dst[0], *w = &nodes[0].src[0];
    tdm_status status = product_get(&nodes[0], y, &p, err);
    for (int i = 1; i <= last && status == TDM_OK; i++) {
        const tdm_node *node = nodes[i].node;
        if (node->op == TDM_OP_ACT && node->src[0] != of) {
            act = &nodes[i];
            continue;
        }
        if (memcmp(nodes[i].dst[0].ne, nodes[0].dst[0].ne, sizeof y->ne) != 0)
            return gpu_refuse(e, err, "a product that is repeated is not fused");
        status = end_add(&nodes[i], of, act, w, &p, err);
        act = NULL;
        of = node->dst[0];
    }
    return status != TDM_OK ? status : product_emit(e, y, &p, err);
}
