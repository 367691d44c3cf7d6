/* SPDX-License-Identifier: MIT
 *
 * case_row.c: ops over rows, softmax, norms, RoPE, SINKHORN, LSE_MERGE: test graphs and references.
 */
#include <math.h>
#include <string.h>

#include "certify/trial.h"

static int32_t input(certify_trial *t, int64_t n0, int64_t n1, int64_t n2, int64_t n3) {
    return tdm_build_input(t->b, "x", TDM_TYPE_F32, (const int64_t[]){n0, n1, n2, n3});
}

static const int64_t shapes[][4] = {
    {1, 1, 1, 1}, {64, 2, 1, 1}, {37, 5, 2, 1}, {300, 1, 1, 3}, {16, 0, 1, 1}};
enum { N_SHAPE = sizeof shapes / sizeof shapes[0] };

/* One row of -inf only, one with some, one of large numbers. */
static void infinite_fill(certify_trial *t, certify_rig *rig) {
    float *x = (float *)(void *)rig->bytes[0];
    (void)t;
    for (int i = 0; i < 20; i++) {
        x[i] = -INFINITY;
        x[20 + i] = i % 3 == 0 ? -INFINITY : (float)i;
        x[40 + i] = 1e4f + (float)i;
    }
}

static void softmax_cases(certify_trial *t) {
    for (int s = 0; s < N_SHAPE; s++)
        if (certify_trial_begin(t, CERTIFY_NMSE_F32, "softmax of [%d, %d, %d, %d]",
                                (int)shapes[s][0], (int)shapes[s][1], (int)shapes[s][2],
                                (int)shapes[s][3])) {
            t->scale = 5;
            int32_t x = tdm_build_input(t->b, "x", TDM_TYPE_F32, shapes[s]);
            certify_trial_end(t, tdm_build_softmax(t->b, x));
        }
    if (certify_trial_begin(t, CERTIFY_NMSE_F32, "softmax of rows with -inf")) {
        t->fill = infinite_fill;
        certify_trial_end(t, tdm_build_softmax(t->b, input(t, 20, 3, 1, 1)));
    }
}

static void softmax_row(const double *x, double *y, int64_t n) {
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        if (x[i] > max) max = x[i];
    for (int64_t i = 0; i < n; i++) sum += y[i] = max == -INFINITY ? 0 : exp(x[i] - max);
    for (int64_t i = 0; i < n; i++) y[i] = sum > 0 ? y[i] / sum : 0;
}

static void softmax_reference(const certify_operands *o) {
    int64_t n = o->src[0].ne[0], n_row = n > 0 ? certify_array_count(&o->src[0]) / n : 0;
    for (int64_t r = 0; r < n_row; r++) softmax_row(o->src[0].x + r * n, o->dst[0].x + r * n, n);
}

CERTIFY_OP(softmax, "op.softmax", softmax_cases, softmax_reference,
           "op.h: SOFTMAX: \"x -> softmax over ne[0]; a row of only -inf gives zeros\"")

static void rms_norm_cases(certify_trial *t) {
    for (int s = 0; s < N_SHAPE; s++)
        for (int has_weight = 0; has_weight < 2; has_weight++)
            if (certify_trial_begin(t, CERTIFY_NMSE_F32, "rms_norm of [%d, %d, %d, %d]%s",
                                    (int)shapes[s][0], (int)shapes[s][1], (int)shapes[s][2],
                                    (int)shapes[s][3], has_weight ? " with weight" : "")) {
                int32_t x = tdm_build_input(t->b, "x", TDM_TYPE_F32, shapes[s]), w = -1;
                if (has_weight)
                    w = tdm_build_weight(t->b, "w", TDM_TYPE_F32,
                                         (const int64_t[]){shapes[s][0], 1, 1, 1}, 0);
                certify_trial_end(t, tdm_build_rms_norm(t->b, x, w, 1e-5f));
            }
    if (certify_trial_begin(t, CERTIFY_NMSE_F32, "rms_norm of tiny numbers, where eps counts")) {
        t->scale = 1e-4;
        certify_trial_end(t, tdm_build_rms_norm(t->b, input(t, 50, 2, 1, 1), -1, 1e-6f));
    }
    if (certify_trial_begin(t, CERTIFY_NMSE_F32, "rms_norm of a slice")) {
        int32_t x = tdm_build_slice(t->b, input(t, 40, 6, 1, 1), (const int64_t[]){8, 1, 0, 0},
                                    (const int64_t[]){24, 4, 1, 1});
        certify_trial_end(t, tdm_build_rms_norm(t->b, x, -1, 1e-5f));
    }
}

static double sum_sq(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sum;
}

/* x / sqrt(sum / n_all + eps) * weight for each row; `sum` NULL: the sum of squares of the row. */
static void norm_rows(const certify_operands *o, const double *sum, double n_all,
                      const double *weight) {
    int64_t n = o->src[0].ne[0], n_row = n > 0 ? certify_array_count(&o->src[0]) / n : 0;
    for (int64_t r = 0; r < n_row; r++) {
        const double *x = o->src[0].x + r * n;
        double mean = (sum != NULL ? sum[r] : sum_sq(x, n)) / n_all;
        for (int64_t i = 0; i < n; i++)
            o->dst[0].x[r * n + i] = x[i] / sqrt(mean + (double)o->node->params.norm.eps) *
                                     (weight != NULL ? weight[i] : 1);
    }
}

static void rms_norm_reference(const certify_operands *o) {
    norm_rows(o, NULL, (double)o->src[0].ne[0], o->src[1].x);
}

CERTIFY_OP(rms_norm, "op.rms-norm", rms_norm_cases, rms_norm_reference,
           "op.h: RMS_NORM: \"x / sqrt(mean(x^2) + eps) * weight\"")

/* Rows far from 0, of which the small differences must be left when the mean is subtracted. */
static void offset_fill(certify_trial *t, certify_rig *rig) {
    float *x = (float *)(void *)rig->bytes[0];
    (void)t;
    for (size_t i = 0; i < rig->sizes[0] / sizeof *x; i++) x[i] += 1000;
}

static void layer_norm_cases(certify_trial *t) {
    for (int s = 0; s < N_SHAPE; s++)
        for (int has = 0; has < 4; has++) { /* bit 0: weight, bit 1: bias */
            const int64_t ne[4] = {shapes[s][0], 1, 1, 1};
            if (!certify_trial_begin(t, CERTIFY_NMSE_F32, "layer_norm of [%d, %d, %d, %d]%s%s",
                                     (int)shapes[s][0], (int)shapes[s][1], (int)shapes[s][2],
                                     (int)shapes[s][3], has & 1 ? " with weight" : "",
                                     has & 2 ? " with bias" : ""))
                return;
            int32_t x = tdm_build_input(t->b, "x", TDM_TYPE_F32, shapes[s]), w = -1, b = -1;
            if (has & 1) w = tdm_build_weight(t->b, "w", TDM_TYPE_F32, ne, 0);
            if (has & 2) b = tdm_build_weight(t->b, "b", TDM_TYPE_F32, ne, 0);
            certify_trial_end(t, tdm_build_layer_norm(t->b, x, w, b, 1e-5f));
        }
    if (certify_trial_begin(t, 1e-8, "layer_norm of rows far from 0")) {
        t->fill = offset_fill;
        certify_trial_end(t, tdm_build_layer_norm(t->b, input(t, 100, 3, 1, 1), -1, -1, 1e-5f));
    }
    if (certify_trial_begin(t, CERTIFY_NMSE_F32, "layer_norm of a permuted x")) {
        int32_t x = tdm_build_permute(t->b, input(t, 6, 40, 3, 1), 1, 0, 2, 3);
        certify_trial_end(t, tdm_build_layer_norm(t->b, x, -1, -1, 0.5f));
    }
}

static void layer_norm_reference(const certify_operands *o) {
    int64_t n = o->src[0].ne[0], n_row = n > 0 ? certify_array_count(&o->src[0]) / n : 0;
    for (int64_t r = 0; r < n_row; r++) {
        const double *x = o->src[0].x + r * n;
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < n; i++) mean += x[i] / (double)n;
        for (int64_t i = 0; i < n; i++) variance += (x[i] - mean) * (x[i] - mean) / (double)n;
        for (int64_t i = 0; i < n; i++)
            o->dst[0].x[r * n + i] = (x[i] - mean) /
                                         sqrt(variance + (double)o->node->params.norm.eps) *
                                         (o->src[1].x != NULL ? o->src[1].x[i] : 1) +
                                     (o->src[2].x != NULL ? o->src[2].x[i] : 0);
    }
}

CERTIFY_OP(layer_norm, "op.layer-norm", layer_norm_cases, layer_norm_reference,
           "op.h: LAYER_NORM: \"(x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + "
           "bias\"")

static void sum_sq_cases(certify_trial *t) {
    for (int s = 0; s < N_SHAPE; s++)
        if (certify_trial_begin(t, CERTIFY_NMSE_F32, "sum_sq of [%d, %d, %d, %d]",
                                (int)shapes[s][0], (int)shapes[s][1], (int)shapes[s][2],
                                (int)shapes[s][3])) {
            int32_t x = tdm_build_input(t->b, "x", TDM_TYPE_F32, shapes[s]);
            certify_trial_end(t, tdm_build_sum_sq(t->b, x));
        }
}

static void sum_sq_reference(const certify_operands *o) {
    int64_t n = o->src[0].ne[0];
    for (int64_t r = 0; r < certify_array_count(&o->dst[0]); r++)
        o->dst[0].x[r] = sum_sq(o->src[0].x + r * n, n);
}

CERTIFY_OP(sum_sq, "op.sum-sq", sum_sq_cases, sum_sq_reference,
           "op.h: SUM_SQ: \"x -> [1, ...]: sum of squares\"")

static void absolute_fill(certify_trial *t, certify_rig *rig) {
    (void)t;
    for (int32_t i = 0; i < rig->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(rig->graph, i);
        float *x = (float *)(void *)rig->bytes[i];
        if (v->kind != TDM_VALUE_INPUT || v->ne[0] != 1) continue;
        for (size_t k = 0; k < rig->sizes[i] / sizeof *x; k++) x[k] = fabsf(x[k]) * 50 + 1;
    }
}

static void rms_apply_cases(certify_trial *t) {
    for (int n = 0; n < 2; n++)
        for (int has_weight = 0; has_weight < 2; has_weight++)
            if (certify_trial_begin(t, CERTIFY_NMSE_F32, "rms_apply, n = %d%s", n * 96,
                                    has_weight ? ", with weight" : "")) {
                int32_t x = input(t, 37, 5, 2, 1), sum = input(t, 1, 5, 2, 1), w = -1;
                if (has_weight)
                    w = tdm_build_weight(t->b, "w", TDM_TYPE_F32, (const int64_t[]){37, 1, 1, 1},
                                         0);
                t->fill = absolute_fill;
                certify_trial_end(t, tdm_build_rms_apply(t->b, x, sum, w, 1e-5f, n * 96));
            }
}

static void rms_apply_reference(const certify_operands *o) {
    int64_t n = o->node->params.norm.n != 0 ? o->node->params.norm.n : o->src[0].ne[0];
    norm_rows(o, o->src[1].x, (double)n, o->src[2].x);
}

CERTIFY_OP(rms_apply, "op.rms-apply", rms_apply_cases, rms_apply_reference,
           "op.h: RMS_APPLY: \"x / sqrt(sum / n + eps) * weight\"")

/* Factors are positive, positions 0 .. 4000 and a -1. */
static void rope_fill(certify_trial *t, certify_rig *rig) {
    (void)t;
    for (int32_t i = 0; i < rig->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(rig->graph, i);
        if (v->type == TDM_TYPE_I32) ((int32_t *)(void *)rig->bytes[i])[1] = -1;
        if (v->kind != TDM_VALUE_WEIGHT) continue;
        float *factor = (float *)(void *)rig->bytes[i];
        for (size_t k = 0; k < rig->sizes[i] / sizeof *factor; k++)
            factor[k] = 1 + fabsf(factor[k]) * 4;
    }
}

static void rope(certify_trial *t, const char *label, const tdm_rope_params *params,
                 bool has_factor) {
    for (int mode = TDM_ROPE_ADJACENT; mode <= TDM_ROPE_HALVES; mode++)
        for (int32_t off = 0; off < 2; off++) {
            tdm_rope_params p = *params;
            int64_t head_dim = p.n_rot + off * 12, n_tok = 7;
            p.mode = mode;
            p.rope_offset = off * 8;
            if (!certify_trial_begin(t, CERTIFY_NMSE_ROPE, "rope: %s, mode %d, offset %d", label,
                                     mode, (int)p.rope_offset))
                return;
            t->id_hi = 4000;
            t->fill = rope_fill;
            int32_t x = input(t, head_dim, 3, n_tok, 1);
            int32_t pos =
                tdm_build_input(t->b, "pos", TDM_TYPE_I32, (const int64_t[]){n_tok, 1, 1, 1});
            int32_t factor = -1;
            if (has_factor)
                factor = tdm_build_weight(t->b, "factor", TDM_TYPE_F32,
                                          (const int64_t[]){p.n_rot / 2, 1, 1, 1}, 0);
            certify_trial_end(t, tdm_build_rope(t->b, x, pos, factor, &p));
        }
}

/* Two nodes that differ only in pos_add or in direction. A device that reuses angles must not reuse
 * them here. */
static void rope_pair(certify_trial *t, const char *label, const tdm_rope_params *first,
                      const tdm_rope_params *second) {
    enum { N_TOK = 9 };
    if (!certify_trial_begin(t, CERTIFY_NMSE_ROPE, "rope: turned %s", label)) return;
    t->id_hi = 4000;
    t->fill = rope_fill;
    int32_t x = input(t, first->n_rot + 8, 2, N_TOK, 1);
    int32_t pos = tdm_build_input(t->b, "pos", TDM_TYPE_I32, (const int64_t[]){N_TOK, 1, 1, 1});
    x = tdm_build_rope(t->b, x, pos, -1, first);
    certify_trial_end(t, tdm_build_rope(t->b, x, pos, -1, second));
}

static void rope_cases(certify_trial *t) {
    rope(t, "defaults", &(tdm_rope_params){.n_rot = 64}, false);
    rope(t, "a few elements", &(tdm_rope_params){.n_rot = 6, .freq_base = 500}, false);
    rope(t, "linear scaling", &(tdm_rope_params){.n_rot = 32, .freq_scale = 0.25f}, false);
    rope(t, "frequency factors", &(tdm_rope_params){.n_rot = 64, .freq_base = 500000}, true);
    rope(t, "YaRN",
         &(tdm_rope_params){.n_rot = 64,
                            .n_ctx_orig = 2048,
                            .freq_scale = 0.25f,
                            .ext_factor = 1,
                            .attn_factor = 0.9f},
         false);
    rope(t, "YaRN with its own betas",
         &(tdm_rope_params){.n_rot = 128,
                            .n_ctx_orig = 4096,
                            .freq_scale = 0.1f,
                            .ext_factor = 0.7f,
                            .beta_fast = 16,
                            .beta_slow = 2},
         false);
    rope(t, "attention factor", &(tdm_rope_params){.n_rot = 16, .attn_factor = 1.3f}, false);
    rope(t, "nothing turned", &(tdm_rope_params){.n_rot = 0}, false);
    rope(t, "positions before", &(tdm_rope_params){.n_rot = 32, .pos_add = -127}, false);
    rope(t, "positions behind, frequency factors", &(tdm_rope_params){.n_rot = 64, .pos_add = 1000},
         true);
    rope(t, "turned back", &(tdm_rope_params){.n_rot = 64, .is_inverse = 1}, false);
    rope(t, "YaRN, positions before, turned back",
         &(tdm_rope_params){.n_rot = 64,
                            .n_ctx_orig = 2048,
                            .freq_scale = 0.25f,
                            .ext_factor = 1,
                            .attn_factor = 0.9f,
                            .pos_add = -3,
                            .is_inverse = 1},
         true);
    rope_pair(t, "and back", &(tdm_rope_params){.n_rot = 64},
              &(tdm_rope_params){.n_rot = 64, .is_inverse = 1});
    rope_pair(t, "and back from an earlier position", &(tdm_rope_params){.n_rot = 64},
              &(tdm_rope_params){.n_rot = 64, .pos_add = -5, .is_inverse = 1});
    rope_pair(t, "and once more", &(tdm_rope_params){.n_rot = 64, .pos_add = 4},
              &(tdm_rope_params){.n_rot = 64});
}

static double or_default(float value, double fallback) {
    return value != 0 ? (double)value : fallback;
}

static double yarn_dim(const tdm_rope_params *p, double beta) {
    const double pi = 3.14159265358979323846;
    return p->n_rot * log(p->n_ctx_orig / (beta * 2 * pi)) /
           (2 * log(or_default(p->freq_base, 10000)));
}

void certify_rope_angle(const tdm_rope_params *p, double pos, int32_t i, double factor,
                        bool has_mscale, double *cos_out, double *sin_out) {
    double base = or_default(p->freq_base, 10000), scale = or_default(p->freq_scale, 1);
    double theta = pos * pow(base, -2.0 * i / p->n_rot) / factor, angle = theta * scale;
    double mscale = or_default(p->attn_factor, 1);
    if (p->ext_factor != 0) {
        double low = fmax(0, floor(yarn_dim(p, or_default(p->beta_fast, 32))));
        double high = fmin(p->n_rot - 1, ceil(yarn_dim(p, or_default(p->beta_slow, 1))));
        double r = fmin(1, fmax(0, (i - low) / fmax(0.001, high - low)));
        double ramp = (1 - r) * (double)p->ext_factor;
        angle = theta * scale * (1 - ramp) + theta * ramp;
        mscale *= 1 + 0.1 * log(1 / scale);
    }
    if (!has_mscale) mscale = 1;
    *cos_out = cos(angle) * mscale;
    *sin_out = sin(angle) * mscale;
}

static void rope_reference(const certify_operands *o) {
    const tdm_rope_params *p = &o->node->params.rope;
    memcpy(o->dst[0].x, o->src[0].x, (size_t)certify_array_count(&o->dst[0]) * sizeof(double));
    for (int64_t t = 0; t < o->src[0].ne[2]; t++)
        for (int64_t h = 0; h < o->src[0].ne[1]; h++)
            for (int32_t i = 0; i < p->n_rot / 2; i++) {
                double pos = o->src[1].x[t], c, s;
                bool is_adjacent = p->mode == TDM_ROPE_ADJACENT;
                int64_t a = p->rope_offset + (is_adjacent ? 2 * i : i);
                int64_t b = a + (is_adjacent ? 1 : p->n_rot / 2);
                if (pos == -1) continue;
                pos += p->pos_add;
                certify_rope_angle(p, pos, i, o->src[2].x != NULL ? o->src[2].x[i] : 1, true, &c,
                                   &s);
                if (p->is_inverse) s = -s;
                double x = *certify_array_at(&o->src[0], a, h, t, 0),
                       y = *certify_array_at(&o->src[0], b, h, t, 0);
                *certify_array_at(&o->dst[0], a, h, t, 0) = x * c - y * s;
                *certify_array_at(&o->dst[0], b, h, t, 0) = x * s + y * c;
            }
}

CERTIFY_OP(
    rope, "op.rope", rope_cases, rope_reference,
    "op.h: ROPE: \"elements rope_offset .. + n_rot of each head are turned by their position, the "
    "rest copied; a token at position -1 is copied\"")

static void sinkhorn(certify_trial *t, int64_t n, int64_t n_tok, int32_t n_iter, float eps) {
    if (!certify_trial_begin(t, CERTIFY_NMSE_F32,
                             "sinkhorn, %d tokens of %d x %d, n_iter %d, eps %g", (int)n_tok,
                             (int)n, (int)n, (int)n_iter, (double)eps))
        return;
    t->scale = 4;
    certify_trial_end(t, tdm_build_sinkhorn(t->b, input(t, n, n, n_tok, 1), n_iter, eps));
}

/* Of a matrix of 4: a row of -inf only, one with some, one of large numbers. */
static void infinite_matrix_fill(certify_trial *t, certify_rig *rig) {
    float *x = (float *)(void *)rig->bytes[0];
    (void)t;
    for (int i = 0; i < 4; i++) {
        x[i] = -INFINITY;
        x[4 + i] = i % 2 == 0 ? -INFINITY : (float)i;
        x[8 + i] = 1e4f + (float)i;
    }
}

static void sinkhorn_cases(certify_trial *t) {
    sinkhorn(t, 4, 1, 20, 1e-6f);
    sinkhorn(t, 4, 77, 20, 1e-6f);
    sinkhorn(t, 4, 5, 1, 0.01f);
    sinkhorn(t, 4, 5, 2, 0.3f);
    sinkhorn(t, 3, 300, 3, 0);
    sinkhorn(t, 1, 9, 2, 0.5f);
    sinkhorn(t, TDM_MAX_SINKHORN, 6, 5, 1e-3f);
    sinkhorn(t, 7, 0, 2, 1e-3f);
    if (certify_trial_begin(t, CERTIFY_NMSE_F32, "sinkhorn of rows with -inf")) {
        t->fill = infinite_matrix_fill;
        certify_trial_end(t, tdm_build_sinkhorn(t->b, input(t, 4, 4, 3, 1), 3, 1e-2f));
    }
    if (certify_trial_begin(t, CERTIFY_NMSE_F32, "sinkhorn of a slice")) {
        int32_t x = tdm_build_slice(t->b, input(t, 11, 6, 9, 1), (const int64_t[]){3, 1, 2, 0},
                                    (const int64_t[]){4, 4, 5, 1});
        certify_trial_end(t, tdm_build_sinkhorn(t->b, x, 4, 1e-3f));
    }
    if (certify_trial_begin(t, CERTIFY_NMSE_F32, "sinkhorn of a permuted x")) {
        int32_t x = tdm_build_permute(t->b, input(t, 5, 6, 5, 1), 1, 2, 0, 3);
        certify_trial_end(t, tdm_build_sinkhorn(t->b, x, 3, 1e-3f));
    }
}

/* y[n][n] /= sums along `axis` + eps, 0 being ne[0]. */
static void sums_divide(double *y, int64_t n, int axis, double eps) {
    for (int64_t line = 0; line < n; line++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += y[axis == 0 ? line * n + i : i * n + line];
        for (int64_t i = 0; i < n; i++) y[axis == 0 ? line * n + i : i * n + line] /= sum + eps;
    }
}

static void sinkhorn_reference(const certify_operands *o) {
    const tdm_sinkhorn_params *p = &o->node->params.sinkhorn;
    const int64_t n = o->src[0].ne[0];
    const double eps = (double)p->eps;
    for (int64_t t = 0; t < o->src[0].ne[2]; t++) {
        double *y = o->dst[0].x + t * n * n;
        for (int64_t j = 0; j < n; j++) softmax_row(o->src[0].x + (t * n + j) * n, y + j * n, n);
        for (int64_t i = 0; i < n * n; i++) y[i] += eps;
        sums_divide(y, n, 1, eps);
        for (int32_t iter = 1; iter < p->n_iter; iter++) {
            sums_divide(y, n, 0, eps);
            sums_divide(y, n, 1, eps);
        }
    }
}

CERTIFY_OP(
    sinkhorn, "op.sinkhorn", sinkhorn_cases, sinkhorn_reference,
    "op.h: SINKHORN: \"y = softmax(x) over ne[0] + eps, then n_iter times y /= (sum over ne[1] "
    "+ eps), between two of them y /= (sum over ne[0] + eps)\"")

/* Part 0 of one head and every part of another head cover no tokens. */
static void ml_fill(certify_trial *t, certify_rig *rig) {
    (void)t;
    for (int32_t i = 0; i < rig->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(rig->graph, i);
        if (v->kind != TDM_VALUE_INPUT || v->ne[0] != 2) continue;
        float *ml = (float *)(void *)rig->bytes[i];
        size_t n = rig->sizes[i] / sizeof *ml / 2, n_in_part = n / (size_t)v->ne[3];
        for (size_t k = 0; k < n; k++) {
            bool is_empty = k == 0 || k % n_in_part == 1;
            ml[2 * k] = is_empty ? -INFINITY : ml[2 * k] * 10;
            ml[2 * k + 1] = is_empty ? 0 : 1 + fabsf(ml[2 * k + 1]) * 30;
        }
    }
}

/* A part that covers no tokens has o = 0 (op.h). */
static void parts_fill(certify_trial *t, certify_rig *rig) {
    ml_fill(t, rig);
    float *o = (float *)(void *)rig->bytes[0];
    const tdm_value *v = tdm_graph_value(rig->graph, 0);
    int64_t n = v->ne[1] * v->ne[2] * v->ne[3], n_in_part = v->ne[1] * v->ne[2];
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < v->ne[0]; i++)
            if (k == 0 || k % n_in_part == 1) o[k * v->ne[0] + i] = 0;
}

static void lse_merge_cases(certify_trial *t) {
    static const int64_t sizes[][4] = {{64, 4, 3, 2}, {33, 2, 1, 5}, {8, 3, 2, 1}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        if (certify_trial_begin(t, CERTIFY_NMSE_F32, "lse_merge of [%d, %d, %d, %d]",
                                (int)sizes[s][0], (int)sizes[s][1], (int)sizes[s][2],
                                (int)sizes[s][3])) {
            int32_t o = tdm_build_input(t->b, "o", TDM_TYPE_F32, sizes[s]);
            int32_t ml = input(t, 2, sizes[s][1], sizes[s][2], sizes[s][3]);
            t->fill = parts_fill;
            certify_trial_end(t, tdm_build_lse_merge(t->b, o, ml));
        }
}

/* Each part has the weight l * exp(m - max m). A part that covers no tokens has l = 0 and no
 * weight. */
static void lse_merge_reference(const certify_operands *o) {
    const certify_array *ml = &o->src[1];
    for (int64_t t = 0; t < o->dst[0].ne[2]; t++)
        for (int64_t h = 0; h < o->dst[0].ne[1]; h++) {
            double max = -INFINITY, sum = 0;
            for (int64_t p = 0; p < ml->ne[3]; p++)
                max = fmax(max, *certify_array_at(ml, 0, h, t, p));
            for (int64_t p = 0; p < ml->ne[3]; p++)
                if (*certify_array_at(ml, 1, h, t, p) > 0)
                    sum += *certify_array_at(ml, 1, h, t, p) *
                           exp(*certify_array_at(ml, 0, h, t, p) - max);
            for (int64_t i = 0; i < o->dst[0].ne[0]; i++) {
                double y = 0;
                for (int64_t p = 0; p < ml->ne[3]; p++)
                    if (*certify_array_at(ml, 1, h, t, p) > 0)
                        y += *certify_array_at(ml, 1, h, t, p) *
                             exp(*certify_array_at(ml, 0, h, t, p) - max) / sum *
                             *certify_array_at(&o->src[0], i, h, t, p);
                *certify_array_at(&o->dst[0], i, h, t, 0) = y;
            }
        }
}

CERTIFY_OP(lse_merge, "op.lse-merge", lse_merge_cases, lse_merge_reference,
           "op.h: LSE_MERGE: \"attention over the union of the parts\"")
