/* SPDX-License-Identifier: MIT
 *
 * norm.c: the ops that reduce a row (ne[0]): RMS_NORM and its two halves SUM_SQ and RMS_APPLY
 * (Zhang and Sennrich, arXiv:1910.07467), LAYER_NORM (Ba et al., arXiv:1607.06450), and SOFTMAX.
 */
#include <math.h>

#include "plugins/cpu/ops/norm.h"
#include "plugins/cpu/ops/strided.h"
#include "plugins/cpu/ops/ops.h"

/* ---- Plain kernels --------------------------------------------------------------------------- */

static double sum_sq_plain(const float *x, int64_t n) {
    double sum[4] = {0}; /* independent, so that additions overlap */
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) sum[k] += (double)x[i + k] * (double)x[i + k];
    for (; i < n; i++) sum[0] += (double)x[i] * (double)x[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static void apply_plain(const float *x, const float *weight, float factor, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        y[i] = weight != NULL ? x[i] * factor * weight[i] : x[i] * factor;
}

static double sum_plain(const float *x, int64_t n) {
    double sum[4] = {0}; /* independent, so that additions overlap */
    int64_t i = 0;
    for (; i + 4 <= n; i += 4)
        for (int k = 0; k < 4; k++) sum[k] += (double)x[i + k];
    for (; i < n; i++) sum[0] += (double)x[i];
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

static double sum_sq_about_plain(const float *x, int64_t n, double mean) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    return sum;
}

static void center_plain(const float *x, const float *weight, const float *bias, double mean,
                         float factor, float *y, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        y[i] = (float)((double)x[i] - mean) * factor * (weight != NULL ? weight[i] : 1.0f) +
               (bias != NULL ? bias[i] : 0.0f);
}

static void softmax_plain(const float *x, float *y, int64_t n) {
    float max = -INFINITY;
    bool has_nan = false;
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        if (x[i] > max) max = x[i];
        has_nan |= x[i] != x[i];
    }
    if (max == -INFINITY && !has_nan) {
        memset(y, 0, (size_t)n * sizeof y[0]);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        y[i] = expf(x[i] - max);
        sum += (double)y[i];
    }
    float factor = (float)(1.0 / sum);
    for (int64_t i = 0; i < n; i++) y[i] *= factor;
}

static const cpu_norm_kernels norm_plain = {0,
                                            "plain",
                                            sum_sq_plain,
                                            apply_plain,
                                            sum_plain,
                                            sum_sq_about_plain,
                                            center_plain,
                                            softmax_plain};

/* The best first. */
static const cpu_norm_kernels *const norm_table[] = {
#if defined(__x86_64__)
    &cpu_norm_avx512,
    &cpu_norm_avx2,
#elif defined(__aarch64__)
    &cpu_norm_neon,
#endif
    &norm_plain,
};

static const cpu_norm_kernels *norm_pick(uint32_t isa) {
    const cpu_norm_kernels *const *row = norm_table;
    while (((*row)->isa & ~isa) != 0) row++;
    return *row;
}

/* ---- RMS norm -------------------------------------------------------------------------------- */

static double row_sum_sq(const cpu_norm_kernels *kernels, const uint8_t *x, int64_t n, int64_t nb) {
    if (kernels != NULL && nb == sizeof(float)) return kernels->sum_sq((const void *)x, n);
    double sum = 0;
    for (int64_t i = 0; i < n; i++) {
        double value = (double)cpu_f32_at(x, i, nb);
        sum += value * value;
    }
    return sum;
}

/* 1 / sqrt(sum / n + eps). */
static double norm_factor(double sum, int64_t n, float eps) {
    return 1.0 / sqrt(sum / (double)n + (double)eps);
}

/* y[first .. last) = x * factor * weight. kernels NULL: in double. */
static void row_apply(const cpu_norm_kernels *kernels, const uint8_t *x, int64_t x_nb,
                      const cpu_view *weight, double factor, float *y, int64_t first,
                      int64_t last) {
    bool is_dense =
        x_nb == sizeof(float) && (weight->data == NULL || cpu_view_has_dense_rows(weight));
    if (kernels != NULL && is_dense) {
        const float *scale = (const void *)weight->data;
        kernels->apply((const float *)(const void *)(x + first * x_nb),
                       scale != NULL ? scale + first : NULL, (float)factor, y + first,
                       last - first);
        return;
    }
    for (int64_t i = first; i < last; i++) {
        double value = (double)cpu_f32_at(x, i, x_nb) * factor;
        if (weight->data != NULL) value *= (double)cpu_f32_at(weight->data, i, weight->nb[0]);
        y[i] = (float)value;
    }
}

/* With fewer rows than workers each of them sums the whole row, which takes less time than a
 * barrier, and applies the factor to its columns: the result is the same for any number of
 * workers. */
static void rms_rows(const cpu_node *n, cpu_worker *w, const cpu_norm_kernels *kernels) {
    bool has_sum = n->node->op == TDM_OP_RMS_APPLY;
    const cpu_view *x = &n->src[0], *weight = has_sum ? &n->src[2] : &n->src[1], *y = &n->dst[0];
    float eps = n->node->params.norm.eps;
    int64_t n_all = has_sum && n->node->params.norm.n != 0 ? n->node->params.norm.n : x->ne[0];
    cpu_tile t = cpu_tile_share(n, w, tdm_shape_rows(x->ne), x->ne[0]);
    if (t.col_last <= t.col_first) return;
    for (int64_t r = t.row_first; r < t.row_last; r++) {
        const uint8_t *px = cpu_view_row(x, r);
        double sum = has_sum ? (double)cpu_f32_at(cpu_view_row(&n->src[1], r), 0, 0)
                             : row_sum_sq(kernels, px, x->ne[0], x->nb[0]);
        row_apply(kernels, px, x->nb[0], weight, norm_factor(sum, n_all, eps),
                  (void *)cpu_view_row(y, r), t.col_first, t.col_last);
    }
}

/* With fewer rows than workers every worker reads every row, so the source has no shares. */
static int64_t rms_share_unit(const cpu_node *n, int32_t arg) {
    const cpu_view *x = &n->src[0];
    int64_t n_row = tdm_shape_rows(x->ne);
    bool is_by_row = n_row >= n->device->n_thread && cpu_view_is_dense(x);
    return arg == TDM_MAX_SRC || (arg == 0 && is_by_row) ? cpu_tile_unit(n, n_row, x->ne[0]) : 0;
}

static void rms_run(const cpu_node *n, cpu_worker *w) {
    rms_rows(n, w, norm_pick(n->device->isa));
}

static void rms_run_reference(const cpu_node *n, cpu_worker *w) {
    rms_rows(n, w, NULL);
}

/* ---- Layer norm ------------------------------------------------------------------------------ */

/* mean of the row and 1 / sqrt(variance + eps). */
static double row_moments(const cpu_norm_kernels *kernels, const uint8_t *x, int64_t n, int64_t nb,
                          float eps, double *factor_out) {
    bool is_fast = kernels != NULL && nb == sizeof(float);
    double sum = 0, about = 0;
    if (is_fast) sum = kernels->sum((const void *)x, n);
    for (int64_t i = 0; i < n && !is_fast; i++) sum += (double)cpu_f32_at(x, i, nb);
    double mean = sum / (double)n;
    if (is_fast) about = kernels->sum_sq_about((const void *)x, n, mean);
    for (int64_t i = 0; i < n && !is_fast; i++) {
        double value = (double)cpu_f32_at(x, i, nb) - mean;
        about += value * value;
    }
    *factor_out = norm_factor(about, n, eps);
    return mean;
}

/* As rms_rows: with fewer rows than workers each of them reads the whole row. */
static void layer_norm_rows(const cpu_node *n, cpu_worker *w, const cpu_norm_kernels *kernels) {
    const cpu_view *x = &n->src[0], *weight = &n->src[1], *bias = &n->src[2], *y = &n->dst[0];
    cpu_tile t = cpu_tile_share(n, w, tdm_shape_rows(x->ne), x->ne[0]);
    if (t.col_last <= t.col_first) return;
    bool is_dense = cpu_view_has_dense_rows(x) &&
                    (weight->data == NULL || cpu_view_has_dense_rows(weight)) &&
                    (bias->data == NULL || cpu_view_has_dense_rows(bias));
    for (int64_t r = t.row_first; r < t.row_last; r++) {
        const uint8_t *px = cpu_view_row(x, r);
        float *py = (void *)cpu_view_row(y, r);
        double factor,
            mean = row_moments(kernels, px, x->ne[0], x->nb[0], n->node->params.norm.eps, &factor);
        if (kernels != NULL && is_dense) {
            const float *pw = (const void *)weight->data, *pb = (const void *)bias->data;
            kernels->center((const float *)(const void *)px + t.col_first,
                            pw != NULL ? pw + t.col_first : NULL,
                            pb != NULL ? pb + t.col_first : NULL, mean, (float)factor,
                            py + t.col_first, t.col_last - t.col_first);
            continue;
        }
        for (int64_t i = t.col_first; i < t.col_last; i++) {
            double value = ((double)cpu_f32_at(px, i, x->nb[0]) - mean) * factor;
            if (weight->data != NULL) value *= (double)cpu_f32_at(weight->data, i, weight->nb[0]);
            if (bias->data != NULL) value += (double)cpu_f32_at(bias->data, i, bias->nb[0]);
            py[i] = (float)value;
        }
    }
}

static void layer_norm_run(const cpu_node *n, cpu_worker *w) {
    layer_norm_rows(n, w, norm_pick(n->device->isa));
}

static void layer_norm_run_reference(const cpu_node *n, cpu_worker *w) {
    layer_norm_rows(n, w, NULL);
}

/* ---- Sum of squares -------------------------------------------------------------------------- */

static void sum_sq_rows(const cpu_node *n, cpu_worker *w, const cpu_norm_kernels *kernels) {
    const cpu_view *x = &n->src[0], *y = &n->dst[0];
    int64_t first, last;
    cpu_worker_share(w, tdm_shape_rows(x->ne), 1, &first, &last);
    for (int64_t r = first; r < last; r++) {
        float sum = (float)row_sum_sq(kernels, cpu_view_row(x, r), x->ne[0], x->nb[0]);
        memcpy(cpu_view_row(y, r), &sum, sizeof sum);
    }
}

static void sum_sq_run(const cpu_node *n, cpu_worker *w) {
    sum_sq_rows(n, w, norm_pick(n->device->isa));
}

static void sum_sq_run_reference(const cpu_node *n, cpu_worker *w) {
    sum_sq_rows(n, w, NULL);
}

/* ---- Softmax --------------------------------------------------------------------------------- */

static void softmax_row_reference(const uint8_t *x, int64_t nb, float *y, int64_t n) {
    double max = -INFINITY, sum = 0;
    bool has_nan = false;
    for (int64_t i = 0; i < n; i++) {
        double value = (double)cpu_f32_at(x, i, nb);
        if (value > max) max = value;
        has_nan |= value != value;
    }
    for (int64_t i = 0; i < n; i++) sum += exp((double)cpu_f32_at(x, i, nb) - max);
    for (int64_t i = 0; i < n; i++)
        y[i] = max == -INFINITY && !has_nan
                   ? 0
                   : (float)(exp((double)cpu_f32_at(x, i, nb) - max) / sum);
}

static void softmax_run(const cpu_node *n, cpu_worker *w) {
    const cpu_view *x = &n->src[0], *y = &n->dst[0];
    const cpu_norm_kernels *kernels = norm_pick(n->device->isa);
    bool is_dense = cpu_view_has_dense_rows(x) && !n->device->is_reference;
    int64_t first, last;
    cpu_worker_share(w, tdm_shape_rows(x->ne), 1, &first, &last);
    for (int64_t r = first; r < last; r++) {
        const uint8_t *px = cpu_view_row(x, r);
        float *py = (void *)cpu_view_row(y, r);
        if (is_dense)
            kernels->softmax((const void *)px, py, x->ne[0]);
        else
            softmax_row_reference(px, x->nb[0], py, x->ne[0]);
    }
}

const cpu_op_impl cpu_op_softmax = {.run = softmax_run};
const cpu_op_impl cpu_op_rms_norm = {
    .share_unit = rms_share_unit, .run = rms_run, .run_reference = rms_run_reference};
const cpu_op_impl cpu_op_rms_apply = {
    .share_unit = rms_share_unit, .run = rms_run, .run_reference = rms_run_reference};
const cpu_op_impl cpu_op_layer_norm = {
    .share_unit = rms_share_unit, .run = layer_norm_run, .run_reference = layer_norm_run_reference};
const cpu_op_impl cpu_op_sum_sq = {.run = sum_sq_run, .run_reference = sum_sq_run_reference};
