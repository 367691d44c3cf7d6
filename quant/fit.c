/* SPDX-License-Identifier: MIT
 *
 * fit.c: least squares over scales, minimums and codes, see fit.h.
 *
 * The problem. Minimise E = sum w[i] (x[i] - a v(c[i]) - b)^2 over real a, b and codes c. For given
 * codes the best a and b solve a linear system, for given a and b the best code is the nearest
 * level; neither step alone suffices, because the codes no longer change once a fits them. So a
 * number of scales around the one that maps the range of x onto the levels are tried, each with its
 * own codes, and the one whose least-squares a and b leave the smallest E wins.
 *
 * A superblock stores sub-block scales as small integers times one d. These are rounded from the
 * sub-blocks' own fits, then improved in turns: each sub-block tries neighbouring integers with
 * their own codes, and d (and dmin) is solved for anew from all codes. E never grows.
 *
 * Sums are kept in LANES partial sums, so that they are the same however many of them a vector
 * holds.
 */
#include "quant/fit.h"

#include <math.h>
#include <string.h>

#include "quant/half.h"
#include "quant/vector.h"
#include "tandem/block.h"

enum { LANES = 8, N_VECTOR = LANES / VECTOR_LEN };

void tdm_fit_load(const float *src, float *dst, int n, float limit) {
    for (int i = 0; i < n; i++) {
        float value = src[i] == src[i] ? src[i] : 0;
        value = value > limit ? limit : value;
        dst[i] = value < -limit ? -limit : value;
    }
}

/* Large weights carry most of a dot product, yet most weights are small: rms + |x| lies between
 * equal weights and x^2. Over the seven types that search, on a small trained Llama, it gave the
 * lowest divergence from the original, or was within 12 % of equal weights; x^2 was the worst. */
void tdm_fit_weigh(const float *x, const float *importance, float *weights, int n) {
    float peak = 0, squares = 0;
    for (int i = 0; i < n && importance != NULL; i++) {
        if (isfinite(importance[i]) && importance[i] > peak) peak = importance[i];
    }
    for (int i = 0; i < n; i++) squares += x[i] * x[i];
    float rms = sqrtf(squares / (float)n);
    for (int i = 0; i < n; i++) {
        float share = 1;
        if (peak > 0)
            share = isfinite(importance[i]) && importance[i] > 0 ? importance[i] / peak : 0;
        weights[i] = share * (rms + fabsf(x[i]));
    }
}

static inline float sum_lanes(const vector *lanes) {
    float sum = 0;
    for (int v = 0; v < N_VECTOR; v++)
        for (int k = 0; k < VECTOR_LEN; k++) sum += lanes[v][k];
    return sum;
}

/* 1 / scale. 0 for a scale so small that its reciprocal may overflow: as an f16 it is 0 anyway. */
static float reciprocal(float scale) {
    return fabsf(scale) > 1e-30f ? 1 / scale : 0;
}

/* To the nearest integer, ties to even, |value| < 2^22: adding 1.5 * 2^23 leaves no fraction. */
static inline float round_nearest(float value) {
    return (value + 0x1.8p23f) - 0x1.8p23f;
}

static inline float clamp(float value, float lo, float hi) {
    value = value < lo ? lo : value;
    return value > hi ? hi : value;
}

static inline vector vector_round(vector value) {
    return (value + 0x1.8p23f) - 0x1.8p23f;
}

static inline vector vector_clamp(vector value, float lo, float hi) {
    const vector los = vector_of(lo), his = vector_of(hi);
    value = vector_select(value < los, los, value);
    return vector_select(value > his, his, value);
}

static const int8_t iq4_values[16] = TDM_IQ4_VALUES;

static const float iq4_mids[15] = {-115.5f, -93.5f, -74,   -57,   -42, -28.5f, -16, -4.5f,
                                   7,       19,     31.5f, 45.5f, 61,  79,     101};
static const float iq4_steps[15] = {23, 21, 18, 16, 14, 13, 12, 11, 12, 12, 13, 15, 16, 20, 24};

/* The level of the codebook nearest to value: each midpoint below it adds the step across it. */
static inline float nearest_iq4(float value) {
    float level = -127;
    for (int k = 0; k < 15; k++) level += value > iq4_mids[k] ? iq4_steps[k] : 0;
    return level;
}

static inline vector vector_nearest_iq4(vector value) {
    vector level = vector_of(-127);
    for (int k = 0; k < 15; k++) {
        const vector mid = vector_of(iq4_mids[k]), step = vector_of(iq4_steps[k]);
        level += vector_select(value > mid, step, vector_of(0));
    }
    return level;
}

static int iq4_code(float level) {
    int code = 0;
    while (iq4_values[code] < (int)level) code++;
    return code;
}

static inline float nearest_level(float value, float lo, float hi, bool is_iq4) {
    return is_iq4 ? nearest_iq4(value) : round_nearest(clamp(value, lo, hi));
}

static inline vector vector_nearest(vector value, float lo, float hi, bool is_iq4) {
    return is_iq4 ? vector_nearest_iq4(value) : vector_round(vector_clamp(value, lo, hi));
}

static float level_limit(tdm_fit_levels levels, int end) {
    if (levels.is_iq4) return iq4_values[end < 0 ? 0 : 15];
    return (float)(end < 0 ? levels.lo : levels.hi);
}

/* ---- one scale ------------------------------------------------------------------------------ */

typedef struct scale_sums {
    float xv, vv; /* sum w x v, sum w v^2 */
} scale_sums;

/* The sums for the levels nearest to x * inverse. Inlined, so that is_iq4 is a constant. */
static inline scale_sums sum_scale_(const float *restrict x, const float *restrict w, int n,
                                    float inverse, float lo, float hi, bool is_iq4) {
    vector xv[N_VECTOR] = {{0}}, vv[N_VECTOR] = {{0}};
    for (int i = 0; i < n; i += LANES) {
        for (int k = 0; k < N_VECTOR; k++) {
            const vector xs = vector_load(x + i + k * VECTOR_LEN);
            const vector ws = vector_load(w + i + k * VECTOR_LEN);
            const vector v = vector_nearest(xs * inverse, lo, hi, is_iq4), wv = ws * v;
            xv[k] += wv * xs;
            vv[k] += wv * v;
        }
    }
    return (scale_sums){sum_lanes(xv), sum_lanes(vv)};
}

static scale_sums sum_scale(const float *x, const float *w, int n, float inverse,
                            tdm_fit_levels levels) {
    if (levels.is_iq4) return sum_scale_(x, w, n, inverse, 0, 0, true);
    return sum_scale_(x, w, n, inverse, (float)levels.lo, (float)levels.hi, false);
}

static inline float scale_error_(const float *restrict x, const float *restrict w, int n,
                                 float scale, float lo, float hi, bool is_iq4) {
    const float inverse = reciprocal(scale);
    vector error[N_VECTOR] = {{0}};
    for (int i = 0; i < n; i += LANES) {
        for (int k = 0; k < N_VECTOR; k++) {
            const vector xs = vector_load(x + i + k * VECTOR_LEN);
            const vector ws = vector_load(w + i + k * VECTOR_LEN);
            const vector rest = xs - scale * vector_nearest(xs * inverse, lo, hi, is_iq4);
            error[k] += ws * rest * rest;
        }
    }
    return sum_lanes(error);
}

static float scale_error(const float *x, const float *w, int n, float scale,
                         tdm_fit_levels levels) {
    if (levels.is_iq4) return scale_error_(x, w, n, scale, 0, 0, true);
    return scale_error_(x, w, n, scale, (float)levels.lo, (float)levels.hi, false);
}

static void choose_codes(const float *x, int n, float scale, tdm_fit_levels levels, int8_t *codes) {
    float inverse = reciprocal(scale);
    for (int i = 0; i < n; i++) {
        float v = nearest_level(x[i] * inverse, (float)levels.lo, (float)levels.hi, levels.is_iq4);
        codes[i] = (int8_t)(levels.is_iq4 ? iq4_code(v) : (int)v);
    }
}

/* The real scale that fits best. The peak is mapped to the far end of the levels and to points
 * around it, a little more than half a level either way, on both sides. */
static float search_scale(const float *x, const float *w, int n, tdm_fit_levels levels) {
    enum { STEPS = 8 };
    float peak = 0;
    for (int i = 0; i < n; i++) {
        if (fabsf(x[i]) > fabsf(peak)) peak = x[i];
    }
    if (fabsf(peak) <= 1e-30f) return 0;
    float best_gain = 0, best = peak / level_limit(levels, -1);
    for (int end = -1; end <= 1; end += 2) {
        float limit = level_limit(levels, end), reach = levels.is_iq4 ? 12 : 0.8f;
        for (int step = -STEPS; step <= STEPS; step++) {
            float inverse = (limit + reach * (float)step / STEPS) / peak;
            scale_sums sums = sum_scale(x, w, n, inverse, levels);
            if (sums.vv <= 0 || sums.xv * sums.xv <= best_gain * sums.vv) continue;
            best_gain = sums.xv * sums.xv / sums.vv;
            best = sums.xv / sums.vv;
        }
    }
    for (int turn = 0; turn < 2; turn++) { /* codes for the solved scale, then solved again */
        scale_sums sums = sum_scale(x, w, n, reciprocal(best), levels);
        if (sums.vv <= 0 || sums.xv * sums.xv <= best_gain * sums.vv) break;
        best_gain = sums.xv * sums.xv / sums.vv;
        best = sums.xv / sums.vv;
    }
    return best;
}

/* f16 with the range limited, so that no scale becomes infinite. */
static uint16_t scale_to_f16(float scale) {
    return tdm_f32_to_f16(clamp(scale, -65504, 65504));
}

uint16_t tdm_fit_scale(const float *x, const float *weights, int n, tdm_fit_levels levels,
                       int8_t *codes) {
    uint16_t bits = scale_to_f16(search_scale(x, weights, n, levels));
    choose_codes(x, n, tdm_f16_to_f32(bits), levels, codes);
    return bits;
}

/* One turn over all sub-blocks with d given: the best integer scale within `reach` of the present
 * one for each. Returns the error. */
static float improve_scales(const float *x, const float *w, int sub_len, tdm_fit_levels levels,
                            int lo, int hi, int reach, float d, int16_t *scales) {
    float total = 0;
    for (int s = 0; s < TDM_FIT_MAX / sub_len; s++) {
        int middle = scales[s];
        float best = INFINITY;
        for (int step = -reach; step <= reach; step++) {
            int scale = middle + step;
            if (scale < lo || scale > hi) continue;
            float error =
                scale_error(x + s * sub_len, w + s * sub_len, sub_len, d * (float)scale, levels);
            if (error < best || (error == best && scale == middle)) {
                best = error;
                scales[s] = (int16_t)scale;
            }
        }
        total += best;
    }
    return total;
}

/* The d that is best for the levels that these scales and this d choose. */
static float solve_d(const float *x, const float *w, int sub_len, tdm_fit_levels levels, float d,
                     const int16_t *scales) {
    float xv = 0, vv = 0;
    for (int s = 0; s < TDM_FIT_MAX / sub_len; s++) {
        float scale = scales[s];
        scale_sums sums =
            sum_scale(x + s * sub_len, w + s * sub_len, sub_len, reciprocal(d * scale), levels);
        xv += scale * sums.xv;
        vv += scale * scale * sums.vv;
    }
    return vv > 0 ? xv / vv : d;
}

void tdm_fit_super_scale(const float *x, const float *weights, int sub_len, tdm_fit_levels levels,
                         int scale_lo, int scale_hi, tdm_fit_super *out) {
    int n_sub = TDM_FIT_MAX / sub_len;
    float real[TDM_FIT_MAX_SUB], peak = 0, best = INFINITY;
    memset(out, 0, sizeof *out);
    for (int s = 0; s < n_sub; s++) {
        real[s] = search_scale(x + s * sub_len, weights + s * sub_len, sub_len, levels);
        if (fabsf(real[s]) > fabsf(peak)) peak = real[s];
    }
    uint16_t bits = scale_to_f16(peak / (float)scale_lo);
    int16_t scales[TDM_FIT_MAX_SUB];
    float inverse = reciprocal(tdm_f16_to_f32(bits));
    for (int s = 0; s < n_sub; s++) {
        scales[s] =
            (int16_t)round_nearest(clamp(real[s] * inverse, (float)scale_lo, (float)scale_hi));
    }
    for (int turn = 0; turn < 3; turn++) {
        float d = tdm_f16_to_f32(bits);
        float error = improve_scales(x, weights, sub_len, levels, scale_lo, scale_hi, 1, d, scales);
        if (!(error < best)) break;
        best = error;
        out->d = bits;
        memcpy(out->scales, scales, sizeof scales[0] * (size_t)n_sub);
        bits = scale_to_f16(solve_d(x, weights, sub_len, levels, d, scales));
    }
    for (int s = 0; s < n_sub; s++) {
        choose_codes(x + s * sub_len, sub_len, tdm_f16_to_f32(out->d) * (float)out->scales[s],
                     levels, out->codes + s * sub_len);
    }
}

/* ---- scale and offset ----------------------------------------------------------------------- */

typedef struct line_sums {
    float w, x, v, xv, vv; /* sums of w times 1, x, v, x v, v^2 */
} line_sums;

/* The sums for the codes 0 … hi nearest to (x - offset) * inverse. */
static line_sums sum_line(const float *restrict x, const float *restrict w, int n, float inverse,
                          float offset, float hi) {
    vector s1[N_VECTOR] = {{0}}, sx[N_VECTOR] = {{0}}, sv[N_VECTOR] = {{0}};
    vector sxv[N_VECTOR] = {{0}}, svv[N_VECTOR] = {{0}};
    for (int i = 0; i < n; i += LANES) {
        for (int k = 0; k < N_VECTOR; k++) {
            const vector xs = vector_load(x + i + k * VECTOR_LEN);
            const vector ws = vector_load(w + i + k * VECTOR_LEN);
            const vector v = vector_round(vector_clamp((xs - offset) * inverse, 0, hi));
            const vector wv = ws * v;
            s1[k] += ws;
            sx[k] += ws * xs;
            sv[k] += wv;
            sxv[k] += wv * xs;
            svv[k] += wv * v;
        }
    }
    return (line_sums){sum_lanes(s1), sum_lanes(sx), sum_lanes(sv), sum_lanes(sxv), sum_lanes(svv)};
}

static float line_error(const float *restrict x, const float *restrict w, int n, float scale,
                        float offset, float hi) {
    const float inverse = reciprocal(scale);
    vector error[N_VECTOR] = {{0}};
    for (int i = 0; i < n; i += LANES) {
        for (int k = 0; k < N_VECTOR; k++) {
            const vector xs = vector_load(x + i + k * VECTOR_LEN);
            const vector ws = vector_load(w + i + k * VECTOR_LEN);
            const vector v = vector_round(vector_clamp((xs - offset) * inverse, 0, hi));
            const vector rest = xs - (scale * v + offset);
            error[k] += ws * rest * rest;
        }
    }
    return sum_lanes(error);
}

static void choose_line_codes(const float *x, int n, float scale, float offset, float hi,
                              int8_t *codes) {
    float inverse = reciprocal(scale);
    for (int i = 0; i < n; i++) {
        codes[i] = (int8_t)round_nearest(clamp((x[i] - offset) * inverse, 0, hi));
    }
}

typedef struct line {
    float scale, offset, gain; /* gain: by how much the error is less than sum w x^2 */
} line;

/* The least-squares line; with `is_below` the offset may not be positive (a K-quant subtracts a
 * minimum that is not negative). A scale below 0 never wins: its gain is 0. */
static line solve_line(line_sums sums, bool is_below) {
    line best = {0, 0, 0};
    float det = sums.w * sums.vv - sums.v * sums.v;
    float scale = 0, offset = 0;
    if (det > 0) {
        scale = (sums.w * sums.xv - sums.x * sums.v) / det;
        offset = (sums.vv * sums.x - sums.v * sums.xv) / det;
    }
    if ((det <= 0 || (is_below && offset > 0)) && sums.vv > 0) {
        scale = sums.xv / sums.vv;
        offset = 0;
    }
    float gain = scale * sums.xv + offset * sums.x;
    if (scale > 0 && isfinite(gain)) best = (line){scale, offset, gain};
    return best;
}

static line search_line(const float *x, const float *w, int n, int hi, bool is_below) {
    enum { STEPS = 16 };
    float min = x[0], max = x[0];
    for (int i = 1; i < n; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    if (is_below && min > 0) min = 0;
    if (max - min <= 1e-30f) return (line){0, min, 0}; /* all the same, not above 0 if is_below */
    line best = {(max - min) / (float)hi, min, 0};
    bool is_solved = false;
    for (int step = 0; step <= STEPS; step++) {
        float inverse = ((float)hi - 0.9f + 1.8f * (float)step / STEPS) / (max - min);
        line found = solve_line(sum_line(x, w, n, inverse, min, (float)hi), is_below);
        if (found.gain > best.gain || (!is_solved && found.scale > 0)) {
            best = found;
            is_solved = true;
        }
    }
    for (int turn = 0; turn < 3; turn++) {
        line_sums sums = sum_line(x, w, n, reciprocal(best.scale), best.offset, (float)hi);
        line found = solve_line(sums, is_below);
        if (!(found.gain > best.gain)) break;
        best = found;
    }
    return best;
}

void tdm_fit_scale_offset(const float *x, const float *weights, int n, int hi, int8_t *codes,
                          uint16_t *scale_out, uint16_t *offset_out) {
    line found = search_line(x, weights, n, hi, false);
    *scale_out = scale_to_f16(found.scale);
    *offset_out = scale_to_f16(found.offset);
    choose_line_codes(x, n, tdm_f16_to_f32(*scale_out), tdm_f16_to_f32(*offset_out), (float)hi,
                      codes);
}

/* One turn with d and dmin given: for each sub-block the best pair of integers within `reach` of
 * the present ones. Returns the error. */
static float improve_lines(const float *x, const float *w, int sub_len, int hi, int scale_hi,
                           int reach, float d, float dmin, int16_t *scales, int16_t *mins) {
    float total = 0;
    for (int s = 0; s < TDM_FIT_MAX / sub_len; s++) {
        const float *xs = x + s * sub_len, *ws = w + s * sub_len;
        int scale_now = scales[s], min_now = mins[s];
        float best =
            line_error(xs, ws, sub_len, d * (float)scale_now, -(dmin * (float)min_now), (float)hi);
        for (int i = -reach; i <= reach; i++) {
            for (int j = -reach; j <= reach; j++) {
                int scale = scale_now + i, min = min_now + j;
                if (scale < 0 || scale > scale_hi || min < 0 || min > scale_hi) continue;
                float error =
                    line_error(xs, ws, sub_len, d * (float)scale, -(dmin * (float)min), (float)hi);
                if (!(error < best)) continue;
                best = error;
                scales[s] = (int16_t)scale;
                mins[s] = (int16_t)min;
            }
        }
        total += best;
    }
    return total;
}

/* d and dmin by least squares for the codes that the present ones choose: x ~ d p - dmin m with
 * p = scale * code and m = min. Left as they are where the solution is of no use. */
static void solve_d_dmin(const float *x, const float *w, int sub_len, int hi, const int16_t *scales,
                         const int16_t *mins, float *d, float *dmin) {
    float pp = 0, pm = 0, mm = 0, xp = 0, xm = 0;
    for (int s = 0; s < TDM_FIT_MAX / sub_len; s++) {
        float scale = scales[s], min = mins[s];
        line_sums sums = sum_line(x + s * sub_len, w + s * sub_len, sub_len, reciprocal(*d * scale),
                                  -(*dmin * min), (float)hi);
        pp += scale * scale * sums.vv;
        pm += scale * min * sums.v;
        mm += min * min * sums.w;
        xp += scale * sums.xv;
        xm += min * sums.x;
    }
    float det = pp * mm - pm * pm;
    if (det > 0) {
        float d_new = (xp * mm - xm * pm) / det, dmin_new = (xp * pm - xm * pp) / det;
        if (d_new > 0 && dmin_new >= 0) *d = d_new, *dmin = dmin_new;
    } else if (pp > 0 && xp > 0) {
        *d = xp / pp;
    }
}

void tdm_fit_super_scale_min(const float *x, const float *weights, int sub_len, int hi,
                             int scale_hi, tdm_fit_super *out) {
    int n_sub = TDM_FIT_MAX / sub_len;
    line real[TDM_FIT_MAX_SUB];
    float scale_peak = 0, min_peak = 0, best = INFINITY;
    memset(out, 0, sizeof *out);
    for (int s = 0; s < n_sub; s++) {
        real[s] = search_line(x + s * sub_len, weights + s * sub_len, sub_len, hi, true);
        if (real[s].scale > scale_peak) scale_peak = real[s].scale;
        if (-real[s].offset > min_peak) min_peak = -real[s].offset;
    }
    float d = tdm_f16_to_f32(scale_to_f16(scale_peak / (float)scale_hi));
    float dmin = tdm_f16_to_f32(scale_to_f16(min_peak / (float)scale_hi));
    float inverse = reciprocal(d), inverse_min = reciprocal(dmin);
    int16_t scales[TDM_FIT_MAX_SUB], mins[TDM_FIT_MAX_SUB];
    for (int s = 0; s < n_sub; s++) {
        scales[s] = (int16_t)round_nearest(clamp(real[s].scale * inverse, 0, (float)scale_hi));
        mins[s] = (int16_t)round_nearest(clamp(-real[s].offset * inverse_min, 0, (float)scale_hi));
    }
    for (int turn = 0; turn < 3; turn++) {
        float error = improve_lines(x, weights, sub_len, hi, scale_hi, 1, d, dmin, scales, mins);
        if (!(error < best)) break;
        best = error;
        out->d = tdm_f32_to_f16(d);
        out->dmin = tdm_f32_to_f16(dmin);
        memcpy(out->scales, scales, sizeof scales[0] * (size_t)n_sub);
        memcpy(out->mins, mins, sizeof mins[0] * (size_t)n_sub);
        solve_d_dmin(x, weights, sub_len, hi, scales, mins, &d, &dmin);
        d = tdm_f16_to_f32(scale_to_f16(d));
        dmin = tdm_f16_to_f32(scale_to_f16(dmin));
    }
    for (int s = 0; s < n_sub; s++) {
        choose_line_codes(x + s * sub_len, sub_len, tdm_f16_to_f32(out->d) * (float)out->scales[s],
                          -(tdm_f16_to_f32(out->dmin) * (float)out->mins[s]), (float)hi,
                          out->codes + s * sub_len);
    }
}
