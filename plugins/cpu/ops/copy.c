/* SPDX-License-Identifier: MIT
 *
 * copy.c: COPY, CONCAT and REPEAT: elements from any view to a contiguous value. COPY also converts
 * floats from one type to another.
 */
#include "quant/half.h"
#include "plugins/cpu/ops/strided.h"
#include "plugins/cpu/ops/ops.h"

/* An element of a type of floats as f32. */
static float element_get(tdm_type type, const uint8_t *at) {
    uint16_t half;
    float x;
    switch ((int)type) {
    case TDM_TYPE_F16: memcpy(&half, at, sizeof half); return tdm_f16_to_f32(half);
    case TDM_TYPE_BF16: memcpy(&half, at, sizeof half); return tdm_bf16_to_f32(half);
    default: memcpy(&x, at, sizeof x); return x;
    }
}

static void element_put(tdm_type type, uint8_t *at, float x) {
    uint16_t half;
    switch ((int)type) {
    case TDM_TYPE_F16:
        half = tdm_f32_to_f16(x);
        memcpy(at, &half, sizeof half);
        break;
    case TDM_TYPE_BF16:
        half = tdm_f32_to_bf16(x);
        memcpy(at, &half, sizeof half);
        break;
    default: memcpy(at, &x, sizeof x);
    }
}

static bool is_converted(int32_t type) {
    return type == TDM_TYPE_F32 || type == TDM_TYPE_F16 || type == TDM_TYPE_BF16;
}

static tdm_status copy_supports(const cpu_device *device, const tdm_graph *graph,
                                const tdm_node *node, tdm_error *err) {
    (void)device;
    int32_t from = tdm_graph_value(graph, node->src[0])->type;
    int32_t to = tdm_graph_value(graph, node->dst[0])->type;
    if (from == to || (is_converted(from) && is_converted(to))) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED, "copy: no conversion from %s to %s",
                    tdm_type_name((tdm_type)from), tdm_type_name((tdm_type)to));
}

/* Elements of one size, `n` of them, from stride nb to dense. */
static void elements_move(uint8_t *dst, const uint8_t *src, int64_t n, int64_t nb, size_t size) {
    if (nb == (int64_t)size) {
        memcpy(dst, src, (size_t)n * size);
    } else if (size == 4) {
        for (int64_t i = 0; i < n; i++) memcpy(dst + i * 4, src + i * nb, 4);
    } else {
        for (int64_t i = 0; i < n; i++) memcpy(dst + i * (int64_t)size, src + i * nb, size);
    }
}

static void copy_run(const cpu_node *n, cpu_worker *w) {
    const cpu_view *x = &n->src[0], *y = &n->dst[0];
    int64_t len = tdm_type_get_info(x->type).block_len;
    size_t x_size = (size_t)tdm_type_get_info(x->type).block_size;
    size_t y_size = (size_t)tdm_type_get_info(y->type).block_size;
    if (x->type == y->type && cpu_view_is_dense(x)) {
        int64_t first, last;
        cpu_worker_share(w, (int64_t)tdm_tensor_canonical_size(x->type, x->ne), 4096, &first,
                         &last);
        if (last > first) memcpy(y->data + first, x->data + first, (size_t)(last - first));
        return;
    }
    cpu_tile t = cpu_tile_share(n, w, tdm_shape_rows(x->ne), x->ne[0] / len);
    int64_t count = t.col_last - t.col_first;
    if (count <= 0) return;
    for (int64_t r = t.row_first; r < t.row_last; r++) {
        const uint8_t *src = cpu_view_row(x, r) + t.col_first * x->nb[0];
        uint8_t *dst = cpu_view_row(y, r) + t.col_first * (int64_t)y_size;
        if (x->type == y->type) {
            elements_move(dst, src, count, x->nb[0], x_size);
        } else {
            for (int64_t i = 0; i < count; i++)
                element_put(y->type, dst + i * (int64_t)y_size,
                            element_get(x->type, src + i * x->nb[0]));
        }
    }
}

/* y = a then b along `axis`: each row of y comes from one of them, or (axis 0) from both. */
static void concat_run(const cpu_node *n, cpu_worker *w) {
    const cpu_view *a = &n->src[0], *b = &n->src[1], *y = &n->dst[0];
    int axis = n->node->params.concat.axis;
    int64_t len = tdm_type_get_info(y->type).block_len;
    size_t size = (size_t)tdm_type_get_info(y->type).block_size;
    int64_t first, last;
    if (y->ne[0] == 0) return;
    cpu_worker_share(w, tdm_shape_rows(y->ne), 1, &first, &last);
    for (int64_t r = first; r < last; r++) {
        uint8_t *dst = cpu_view_row(y, r);
        if (axis == 0) {
            elements_move(dst, cpu_view_row_as(a, y->ne, r), a->ne[0] / len, a->nb[0], size);
            elements_move(dst + a->ne[0] / len * (int64_t)size, cpu_view_row_as(b, y->ne, r),
                          b->ne[0] / len, b->nb[0], size);
            continue;
        }
        int64_t at[TDM_MAX_DIMS] = {0, r % y->ne[1], r / y->ne[1] % y->ne[2],
                                    r / y->ne[1] / y->ne[2]};
        const cpu_view *from = at[axis] < a->ne[axis] ? a : b;
        if (from == b) at[axis] -= a->ne[axis];
        elements_move(dst,
                      from->data + at[1] * from->nb[1] + at[2] * from->nb[2] + at[3] * from->nb[3],
                      y->ne[0] / len, from->nb[0], size);
    }
}

/* y[i] = x[i mod x.ne] along each axis: row r of y is a row of x, repeated until y's row is
 * full. */
static void repeat_run(const cpu_node *n, cpu_worker *w) {
    const cpu_view *x = &n->src[0], *y = &n->dst[0];
    int64_t first, last;
    if (y->ne[0] == 0) return;
    cpu_worker_share(w, tdm_shape_rows(y->ne), 1, &first, &last);
    for (int64_t r = first; r < last; r++) {
        const uint8_t *src = x->data;
        uint8_t *dst = cpu_view_row(y, r);
        int64_t row = r;
        for (int i = 1; i < TDM_MAX_DIMS; i++) {
            src += row % y->ne[i] % x->ne[i] * x->nb[i];
            row /= y->ne[i];
        }
        for (int64_t at = 0; at < y->ne[0]; at += x->ne[0])
            elements_move(dst + at * (int64_t)sizeof(float), src, x->ne[0], x->nb[0],
                          sizeof(float));
    }
}

const cpu_op_impl cpu_op_repeat = {.run = repeat_run};
const cpu_op_impl cpu_op_copy = {.supports = copy_supports, .run = copy_run};
const cpu_op_impl cpu_op_concat = {.run = concat_run};
