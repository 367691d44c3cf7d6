/* SPDX-License-Identifier: MIT
 *
 * matmul.c: the MATMUL op: y[j] = sum_i w[i, j] * x[i] for every token; with a matrix for each
 * head, row h of a token is multiplied with matrix h.
 *
 * First the workers share the tokens and bring their activations into the kernel's form, once for
 * all matrices; then they share the groups of rows, and each multiplies its own with all
 * tokens. A weight is thus read from memory once however many tokens there are. Kernels are in
 * matmul_*.c, experts in moe.c.
 */
#include <string.h>

#include "core/base/convert.h"
#include "plugins/cpu/matmul.h"

/* Bytes of weights that stay in a core's second-level cache while all tokens pass by. */
enum { CACHED_SIZE = 256 * 1024 };

cpu_matmul_matrix cpu_matmul_matrix_get(const cpu_device *device, const cpu_weight_layout *l,
                                        const uint8_t *data, int64_t i) {
    return (cpu_matmul_matrix){
        .kernel = cpu_matmul_kernel_get(device, l->type),
        .type = l->type,
        .data = data + (size_t)(i * l->n_group) * l->group_size,
        .group_pitch = l->group_size,
        .n_block = l->n_block,
        .n_row = l->n_row,
        .n_group = l->n_group,
    };
}

static size_t round_up_64(size_t size) {
    return (size + 63) & ~(size_t)63;
}

size_t cpu_matmul_x_size(const cpu_matmul_kernel *kernel, int64_t k) {
    return round_up_64((size_t)(k / CPU_X_LEN) * cpu_x_block_size(kernel->form));
}

void cpu_matmul_group(const cpu_matmul_matrix *m, int64_t group, const cpu_matmul_tile *tile,
                      int64_t y_row) {
    int64_t row = group * m->kernel->n_lane;
    cpu_matmul_tile t = *tile;
    t.type = m->type;
    t.n_block = m->n_block;
    t.group = m->data + (size_t)group * m->group_pitch;
    t.n_row = (int32_t)(m->n_row - row < m->kernel->n_lane ? m->n_row - row : m->kernel->n_lane);
    for (int32_t i = 0; i < t.n_tok; i++) t.y[i] = tile->y[i] + (row - y_row);
    m->kernel->run(&t);
}

/* True where elements of the value need not be neighbours: a PERMUTE is among its views. */
static bool may_be_strided(const tdm_graph *graph, int32_t value) {
    for (int32_t i = graph->n_node - 1; i >= 0; i--) {
        const tdm_node *node = tdm_graph_node(graph, i);
        if (node->dst[0] != value || !tdm_op_is_view(node->op)) continue;
        if (node->op == TDM_OP_PERMUTE) return true;
        value = node->src[0]; /* produced earlier: the walk goes on backwards */
    }
    return false;
}

static tdm_status matmul_supports(const cpu_device *device, const tdm_graph *graph,
                                  const tdm_node *node, tdm_error *err) {
    (void)device;
    const tdm_value *w = tdm_graph_value(graph, node->src[0]);
    const tdm_value *x = tdm_graph_value(graph, node->src[1]);
    const tdm_value *y = tdm_graph_value(graph, node->dst[0]);
    if (tdm_row_codec_get((tdm_type)w->type).dequantize == NULL) {
        return tdm_fail(err, TDM_UNSUPPORTED, "MATMUL: weights of type %s are no numbers",
                        tdm_type_name((tdm_type)w->type));
    }
    if (x->type != TDM_TYPE_F32 || y->type != TDM_TYPE_F32) {
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "MATMUL: activations must be f32, not %s -> %s: put a COPY before it",
                        tdm_type_name((tdm_type)x->type), tdm_type_name((tdm_type)y->type));
    }
    if (w->usage != 0 && !(w->usage & TDM_USAGE_MATMUL)) {
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "MATMUL: weight %s was not uploaded for matmul: its "
                        "usage lacks MATMUL",
                        tdm_graph_value_name(graph, node->src[0]));
    }
    if (w->ne[3] != 1) {
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "MATMUL: a weight has two dimensions, or three with one matrix for each "
                        "head, not [%lld, %lld, %lld, %lld]",
                        (long long)w->ne[0], (long long)w->ne[1], (long long)w->ne[2],
                        (long long)w->ne[3]);
    }
    return TDM_OK;
}

/* The scratch of a node: activations of all tokens, then a row of weights for each worker. */
typedef struct scratch_plan {
    size_t x_pitch; /* bytes from one token to the next; 0 = floats are read where they are */
    size_t x_size;
    size_t w_pitch; /* bytes for each worker; 0 = rows are read where they are */
} scratch_plan;

static const cpu_matmul_kernel *kernel_of(const cpu_device *device, const tdm_value *w) {
    return w->usage == 0 ? cpu_matmul_kernel_reference()
                         : cpu_matmul_kernel_get(device, (tdm_type)w->type);
}

static scratch_plan scratch_plan_make(const cpu_matmul_kernel *kernel, tdm_type w_type, int64_t k,
                                      int64_t n_tok, bool is_x_strided, bool is_w_strided) {
    scratch_plan plan = {.x_pitch = cpu_matmul_x_size(kernel, k)};
    if (plan.x_pitch == 0 && is_x_strided) plan.x_pitch = round_up_64((size_t)k * sizeof(float));
    if (is_w_strided) plan.w_pitch = round_up_64(tdm_type_row_size(w_type, k));
    plan.x_size = plan.x_pitch * (size_t)n_tok;
    return plan;
}

/* Before views have strides: room for every value that may turn out to need copying. */
static size_t matmul_scratch_size(const cpu_device *device, const tdm_graph *graph,
                                  const tdm_node *node) {
    const tdm_value *w = tdm_graph_value(graph, node->src[0]);
    const tdm_value *x = tdm_graph_value(graph, node->src[1]);
    scratch_plan plan = scratch_plan_make(
        kernel_of(device, w), (tdm_type)w->type, w->ne[0], tdm_shape_rows(x->ne),
        may_be_strided(graph, node->src[1]), w->usage == 0 && may_be_strided(graph, node->src[0]));
    return plan.x_size + plan.w_pitch * (size_t)device->n_thread;
}

/* Row `i` of a view, rows numbered through its outer dimensions. */
static uint8_t *view_row(const cpu_view *v, int64_t i) {
    int64_t i1 = i % v->ne[1], i2 = i / v->ne[1] % v->ne[2], i3 = i / v->ne[1] / v->ne[2];
    return v->data + i1 * v->nb[1] + i2 * v->nb[2] + i3 * v->nb[3];
}

/* Copies n units of `size` bytes that lie `pitch` apart. */
static void units_gather(const uint8_t *src, int64_t pitch, size_t size, int64_t n, uint8_t *dst) {
    for (int64_t i = 0; i < n; i++, src += pitch, dst += size) memcpy(dst, src, size);
}

void cpu_matmul_x_prepare(const cpu_matmul_kernel *kernel, uint32_t isa, const cpu_view *x,
                          int64_t token, uint8_t *out) {
    const uint8_t *row = view_row(x, token);
    bool is_dense = x->nb[0] == (int64_t)sizeof(float);
    if (kernel->form == CPU_X_F32) {
        units_gather(row, x->nb[0], sizeof(float), x->ne[0], out);
        return;
    }
    cpu_quantize_row_fn quantize = cpu_quantize_row_get(isa, kernel->form);
    if (is_dense) {
        quantize((const float *)(const void *)row, x->ne[0], kernel->code_offset, out);
        return;
    }
    for (int64_t i = 0; i < x->ne[0]; i += CPU_X_LEN, out += cpu_x_block_size(kernel->form)) {
        float piece[CPU_X_LEN];
        units_gather(row + i * x->nb[0], x->nb[0], sizeof(float), CPU_X_LEN, (uint8_t *)piece);
        quantize(piece, CPU_X_LEN, kernel->code_offset, out);
    }
}

/* Groups first .. last-1 of matrix number `head` times all its tokens: rows head, head + n_matrix
 * and so on of x. */
static void groups_multiply(const cpu_node *n, const cpu_matmul_matrix *m, int64_t head,
                            const uint8_t *x_data, size_t x_pitch, int64_t first, int64_t last) {
    int64_t n_matrix = n->src[0].ne[2], n_tok = tdm_shape_rows(n->src[1].ne) / n_matrix;
    for (int64_t t = 0; t < n_tok; t += CPU_MATMUL_TOK) {
        cpu_matmul_tile tile;
        tile.n_tok = (int32_t)(n_tok - t < CPU_MATMUL_TOK ? n_tok - t : CPU_MATMUL_TOK);
        for (int32_t i = 0; i < tile.n_tok; i++) {
            int64_t row = head + (t + i) * n_matrix;
            tile.x[i] = x_pitch != 0 ? (const void *)(x_data + (size_t)row * x_pitch)
                                     : (const void *)view_row(&n->src[1], row);
            tile.y[i] = (float *)(void *)view_row(&n->dst[0], row);
        }
        for (int64_t g = first; g < last; g++) cpu_matmul_group(m, g, &tile, 0);
    }
}

/* The same for a plain matrix whose elements are not neighbours: row by row through `row`. */
static void strided_multiply(const cpu_node *n, const cpu_matmul_matrix *m, int64_t head,
                             const uint8_t *x_data, size_t x_pitch, int64_t first, int64_t last,
                             uint8_t *row) {
    const cpu_view *w = &n->src[0];
    size_t unit = (size_t)tdm_type_get_info(w->type).block_size;
    for (int64_t j = first; j < last; j++) {
        cpu_matmul_matrix one = *m;
        units_gather(m->data + j * w->nb[1], w->nb[0], unit, m->n_block, row);
        one.data = row;
        one.group_pitch = 0; /* group j, like every other, is the row just copied */
        groups_multiply(n, &one, head, x_data, x_pitch, j, j + 1);
    }
}

static cpu_matmul_matrix matrix_of(const cpu_node *n, int64_t head) {
    const cpu_view *w = &n->src[0];
    if (w->usage != 0) {
        cpu_weight_layout layout;
        if (cpu_weight_layout_get(n->device, w->type, w->usage, w->ne, &layout, NULL) == TDM_OK) {
            return cpu_matmul_matrix_get(n->device, &layout, w->data, head);
        }
    }
    return (cpu_matmul_matrix){
        .kernel = cpu_matmul_kernel_reference(),
        .type = w->type,
        .data = w->data + head * w->nb[2],
        .group_pitch = (size_t)w->nb[1],
        .n_block = w->ne[0] / tdm_type_get_info(w->type).block_len,
        .n_row = w->ne[1],
        .n_group = w->ne[1],
    };
}

/* Groups first .. last-1 of one matrix, as many at a time as stay in the cache. */
static void matrix_multiply(const cpu_node *n, const cpu_worker *w, const scratch_plan *plan,
                            const cpu_matmul_matrix *m, int64_t head, int64_t first, int64_t last) {
    if (plan->w_pitch != 0) {
        uint8_t *row = n->scratch + plan->x_size + plan->w_pitch * (size_t)w->ith;
        strided_multiply(n, m, head, n->scratch, plan->x_pitch, first, last, row);
        return;
    }
    int64_t n_cached = m->group_pitch > 0 ? CACHED_SIZE / (int64_t)m->group_pitch : 0;
    if (n_cached < 1) n_cached = 1;
    for (int64_t g = first; g < last; g += n_cached) {
        int64_t end = last - g < n_cached ? last : g + n_cached;
        groups_multiply(n, m, head, n->scratch, plan->x_pitch, g, end);
    }
}

static void matmul_run(const cpu_node *n, cpu_worker *w) {
    const cpu_view *weight = &n->src[0], *x = &n->src[1];
    cpu_matmul_matrix m = matrix_of(n, 0);
    bool is_w_strided = weight->usage == 0 && weight->nb[0] != tdm_type_get_info(m.type).block_size;
    scratch_plan plan = scratch_plan_make(m.kernel, m.type, weight->ne[0], tdm_shape_rows(x->ne),
                                          x->nb[0] != (int64_t)sizeof(float), is_w_strided);
    int64_t first, last, n_group = m.n_group;
    if (plan.x_pitch != 0) {
        cpu_worker_share(w, tdm_shape_rows(x->ne), 1, &first, &last);
        for (int64_t t = first; t < last; t++) {
            cpu_matmul_x_prepare(m.kernel, n->device->isa, x, t,
                                 n->scratch + (size_t)t * plan.x_pitch);
        }
        cpu_worker_barrier(w);
    }
    /* The groups of all matrices are dealt out as one list: a worker's share may begin and end
     * inside a matrix. */
    cpu_worker_share(w, n_group * weight->ne[2], 1, &first, &last);
    while (first < last) {
        int64_t head = first / n_group, end = (head + 1) * n_group;
        if (end > last) end = last;
        if (head > 0) m = matrix_of(n, head);
        matrix_multiply(n, w, &plan, &m, head, first - head * n_group, end - head * n_group);
        first = end;
    }
}

/* On a reference device the same walk finds the reference kernel. */
const cpu_op_impl cpu_op_matmul = {
    .op = TDM_OP_MATMUL,
    .supports = matmul_supports,
    .scratch_size = matmul_scratch_size,
    .run = matmul_run,
};
