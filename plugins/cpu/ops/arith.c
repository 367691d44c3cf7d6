/* SPDX-License-Identifier: MIT
 *
 * arith.c: ADD, MUL, DIV, SCALE, CLAMP, SQRT, ACT, GLU: elementwise, with b repeated along axes of
 * length 1.
 */
#include <math.h>

#include "plugins/cpu/ops/arith.h"
#include "plugins/cpu/ops/strided.h"
#include "plugins/cpu/ops/ops.h"

/* ---- Activations ----------------------------------------------------------------------------- */

#define GELU_SLOPE 0.79788456080286536 /* sqrt(2 / pi), Hendrycks and Gimpel, arXiv:1606.08415 */
#define GELU_CUBIC 0.044715

static double act_exact(tdm_act act, double x) {
    switch ((int)act) {
    case TDM_ACT_SILU: return x / (1.0 + exp(-x));
    case TDM_ACT_GELU: return 0.5 * x * (1.0 + tanh(GELU_SLOPE * (x + GELU_CUBIC * x * x * x)));
    case TDM_ACT_GELU_ERF: return 0.5 * x * erfc(-x * 0.70710678118654752);
    case TDM_ACT_RELU: return x > 0.0 || x != x ? x : 0.0;
    case TDM_ACT_SIGMOID: return 1.0 / (1.0 + exp(-x));
    case TDM_ACT_TANH: return tanh(x);
    case TDM_ACT_SOFTPLUS: return (x > 0.0 || x != x ? x : 0.0) + log1p(exp(-fabs(x)));
    default: return x;
    }
}

float cpu_act_reference(tdm_act act, float x) {
    return (float)act_exact(act, (double)x);
}

float cpu_act_plain(tdm_act act, float x) {
    switch ((int)act) {
    case TDM_ACT_SILU: return x / (1.0f + expf(-x));
    case TDM_ACT_GELU: {
        /* x (1 + tanh u) / 2 = x / (1 + exp(-2u)), which keeps its digits where tanh u nears -1 */
        float u = (float)GELU_SLOPE * (x + (float)GELU_CUBIC * x * x * x);
        return x / (1.0f + expf(-2.0f * u));
    }
    case TDM_ACT_GELU_ERF: return 0.5f * x * erfcf(-x * 0.70710678f);
    case TDM_ACT_RELU: return x > 0.0f || x != x ? x : 0.0f;
    case TDM_ACT_SIGMOID: return 1.0f / (1.0f + expf(-x));
    case TDM_ACT_TANH: return tanhf(x);
    case TDM_ACT_SOFTPLUS: return (x > 0.0f || x != x ? x : 0.0f) + log1pf(expf(-fabsf(x)));
    default: return x;
    }
}

/* ---- Plain kernels --------------------------------------------------------------------------- */

static float pair_of(int32_t op, float a, float b) {
    switch (op) {
    case TDM_OP_MUL: return a * b;
    case TDM_OP_DIV: return a / b;
    default: return a + b;
    }
}

static float map_of(const tdm_node *node, float x) {
    const tdm_op_params *p = &node->params;
    switch (node->op) {
    case TDM_OP_CLAMP: return x < p->clamp.min ? p->clamp.min : x > p->clamp.max ? p->clamp.max : x;
    case TDM_OP_SQRT: return sqrtf(x);
    default: return x * node->params.scale.scale + node->params.scale.bias;
    }
}

static void pair_plain(int32_t op, const float *a, const float *b, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = pair_of(op, a[i], b[i]);
}

static void map_plain(const tdm_node *node, const float *x, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) y[i] = map_of(node, x[i]);
}

static void glu_plain(tdm_act act, const float *x, const float *up, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float value = cpu_act_plain(act, x[i]);
        y[i] = up != NULL ? value * up[i] : value;
    }
}

static const cpu_arith_kernels arith_plain = {0, "plain", pair_plain, map_plain, glu_plain};

/* The best first. */
static const cpu_arith_kernels *const arith_table[] = {
#if defined(__x86_64__)
    &cpu_arith_avx512,
    &cpu_arith_avx2,
#elif defined(__aarch64__)
    &cpu_arith_neon,
#endif
    &arith_plain,
};

static const cpu_arith_kernels *arith_pick(uint32_t isa) {
    const cpu_arith_kernels *const *row = arith_table;
    while (((*row)->isa & ~isa) != 0) row++;
    return *row;
}

/* ---- Shares ---------------------------------------------------------------------------------- */

/* Where all is contiguous and of one shape, rows do not matter: the units in which elements are
 * divided in that case; else 0. */
static int64_t flat_unit(const cpu_node *n) {
    const cpu_view *y = &n->dst[0];
    for (int32_t i = 0; i < n->node->n_src; i++) {
        if (n->node->src[i] < 0) continue;
        if (!cpu_view_is_dense(&n->src[i]) || memcmp(n->src[i].ne, y->ne, sizeof y->ne) != 0)
            return 0;
    }
    if (n->unit != 0) return n->unit;
    return tdm_shape_rows(y->ne) >= n->device->n_thread ? y->ne[0] : CPU_SHARE_UNIT;
}

static cpu_tile tile_share(const cpu_node *n, const cpu_worker *w) {
    const cpu_view *y = &n->dst[0];
    int64_t unit = flat_unit(n);
    if (unit == 0) return cpu_tile_share(n, w, tdm_shape_rows(y->ne), y->ne[0]);
    cpu_tile t = {.row_last = 1};
    cpu_worker_share(w, tdm_shape_count(y->ne), unit, &t.col_first, &t.col_last);
    return t;
}

static int64_t share_unit(const cpu_node *n, int32_t arg) {
    const cpu_view *y = &n->dst[0], *v = arg < TDM_MAX_SRC ? &n->src[arg] : y;
    int64_t unit = flat_unit(n);
    if (unit != 0) return unit;
    if (!cpu_view_is_dense(v) || memcmp(v->ne, y->ne, sizeof y->ne) != 0) return 0;
    return cpu_tile_unit(n, tdm_shape_rows(y->ne), y->ne[0]);
}

/* ---- Running --------------------------------------------------------------------------------- */

/* ADD, MUL and DIV. One rounding for each element whatever the kernel, hence no reference path. */
static void pair_run(const cpu_node *n, cpu_worker *w) {
    const cpu_view *a = &n->src[0], *b = &n->src[1], *y = &n->dst[0];
    const cpu_arith_kernels *kernels = arith_pick(n->device->isa);
    bool is_repeated = b->ne[0] != y->ne[0];
    cpu_tile t = tile_share(n, w);
    int64_t count = t.col_last - t.col_first;
    if (count <= 0) return;
    bool is_dense = cpu_view_has_dense_rows(a) && cpu_view_has_dense_rows(b) && !is_repeated;
    for (int64_t r = t.row_first; r < t.row_last; r++) {
        const uint8_t *pa = cpu_view_row(a, r) + t.col_first * a->nb[0];
        const uint8_t *pb =
            cpu_view_row_as(b, y->ne, r) + (is_repeated ? 0 : t.col_first * b->nb[0]);
        float *py = (float *)(void *)cpu_view_row(y, r) + t.col_first;
        if (is_dense) {
            kernels->pair(n->node->op, (const void *)pa, (const void *)pb, py, count);
        } else {
            int64_t nb = is_repeated ? 0 : b->nb[0];
            for (int64_t i = 0; i < count; i++)
                py[i] = pair_of(n->node->op, cpu_f32_at(pa, i, a->nb[0]), cpu_f32_at(pb, i, nb));
        }
    }
}

static bool has_act(int32_t op) {
    return op == TDM_OP_ACT || op == TDM_OP_GLU;
}

/* One element of an op of one source, or of GLU, where the kernels do not apply. */
static float mapped(const cpu_node *n, float x, float up, bool is_reference) {
    if (!has_act(n->node->op)) return map_of(n->node, x);
    tdm_act act = (tdm_act)n->node->params.act.act;
    if (!is_reference) return cpu_act_plain(act, x) * up;
    return (float)(act_exact(act, (double)x) * (double)up);
}

static void map_rows(const cpu_node *n, cpu_worker *w, const cpu_arith_kernels *kernels) {
    const cpu_view *x = &n->src[0], *up = n->node->op == TDM_OP_GLU ? &n->src[1] : NULL;
    const cpu_view *y = &n->dst[0];
    bool is_dense = cpu_view_has_dense_rows(x) && (up == NULL || cpu_view_has_dense_rows(up));
    cpu_tile t = tile_share(n, w);
    int64_t count = t.col_last - t.col_first;
    if (count <= 0) return;
    for (int64_t r = t.row_first; r < t.row_last; r++) {
        const uint8_t *px = cpu_view_row(x, r) + t.col_first * x->nb[0];
        const uint8_t *pu = up != NULL ? cpu_view_row(up, r) + t.col_first * up->nb[0] : NULL;
        float *py = (float *)(void *)cpu_view_row(y, r) + t.col_first;
        if (kernels == NULL || !is_dense) {
            for (int64_t i = 0; i < count; i++)
                py[i] = mapped(n, cpu_f32_at(px, i, x->nb[0]),
                               pu != NULL ? cpu_f32_at(pu, i, up->nb[0]) : 1.0f, kernels == NULL);
        } else if (!has_act(n->node->op)) {
            kernels->map(n->node, (const void *)px, py, count);
        } else {
            kernels->glu((tdm_act)n->node->params.act.act, (const void *)px, (const void *)pu, py,
                         count);
        }
    }
}

static void map_run(const cpu_node *n, cpu_worker *w) {
    map_rows(n, w, arith_pick(n->device->isa));
}

static void map_run_reference(const cpu_node *n, cpu_worker *w) {
    map_rows(n, w, NULL);
}

const cpu_op_impl cpu_op_add = {.share_unit = share_unit, .run = pair_run};
const cpu_op_impl cpu_op_mul = {.share_unit = share_unit, .run = pair_run};
const cpu_op_impl cpu_op_div = {.share_unit = share_unit, .run = pair_run};
const cpu_op_impl cpu_op_scale = {
    .share_unit = share_unit, .run = map_run, .run_reference = map_run_reference};
const cpu_op_impl cpu_op_clamp = {.share_unit = share_unit, .run = map_run};
const cpu_op_impl cpu_op_sqrt = {.share_unit = share_unit,
                                 .run = map_run}; /* correctly rounded by all kernels, as CLAMP */
const cpu_op_impl cpu_op_act = {
    .share_unit = share_unit, .run = map_run, .run_reference = map_run_reference};
const cpu_op_impl cpu_op_glu = {
    .share_unit = share_unit, .run = map_run, .run_reference = map_run_reference};
