/* SPDX-License-Identifier: MIT
 *
 * vector/norm.c: the kernels of norm.h.
 */
#include <math.h>
#include <string.h>

#include "plugins/cpu/ops/norm.h"
#include "plugins/cpu/vector/exp.h"

static double sum_sq_lanes(const float *x, int64_t n) {
    /* Two chains of sums: within one, each addition waits for the one before it. */
    lanes_wide even = lanes_wide_zero(), odd = lanes_wide_zero();
    int64_t i = 0;
    for (; i + 2 * N_LANE <= n; i += 2 * N_LANE) {
        even = lanes_wide_add_sq(even, lanes_load(x + i));
        odd = lanes_wide_add_sq(odd, lanes_load(x + i + N_LANE));
    }
    if (i + N_LANE <= n) {
        even = lanes_wide_add_sq(even, lanes_load(x + i));
        i += N_LANE;
    }
    odd = lanes_wide_add_sq(odd, lanes_load_part(x + i, n - i));
    return lanes_wide_sum(even) + lanes_wide_sum(odd);
}

static void apply_lanes(const float *x, const float *weight, float factor, float *y, int64_t n) {
    lanes f = lanes_set(factor);
    int64_t i = 0;
    if (weight == NULL) {
        for (; i + N_LANE <= n; i += N_LANE) lanes_store(y + i, lanes_mul(lanes_load(x + i), f));
        lanes_store_part(y + i, lanes_mul(lanes_load_part(x + i, n - i), f), n - i);
        return;
    }
    for (; i + N_LANE <= n; i += N_LANE)
        lanes_store(y + i, lanes_mul(lanes_mul(lanes_load(x + i), f), lanes_load(weight + i)));
    n -= i;
    lanes part = lanes_mul(lanes_load_part(x + i, n), f);
    lanes_store_part(y + i, lanes_mul(part, lanes_load_part(weight + i, n)), n);
}

static double sum_lanes(const float *x, int64_t n) {
    lanes_wide sum = lanes_wide_zero();
    int64_t i = 0;
    for (; i + N_LANE <= n; i += N_LANE) sum = lanes_wide_add(sum, lanes_load(x + i));
    return lanes_wide_sum(lanes_wide_add(sum, lanes_load_part(x + i, n - i)));
}

/* x - mean, with the mean as a sum of two floats: rows far from 0 keep their differences. */
static inline lanes centred(lanes x, lanes high, lanes low) {
    return lanes_sub(lanes_sub(x, high), low);
}

static double sum_sq_about_lanes(const float *x, int64_t n, double mean) {
    float high = (float)mean, low = (float)(mean - (double)high);
    lanes h = lanes_set(high), l = lanes_set(low);
    lanes_wide wide = lanes_wide_zero();
    int64_t i = 0;
    for (; i + N_LANE <= n; i += N_LANE)
        wide = lanes_wide_add_sq(wide, centred(lanes_load(x + i), h, l));
    double sum = lanes_wide_sum(wide);
    for (; i < n; i++) sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    return sum;
}

static void center_lanes(const float *x, const float *weight, const float *bias, double mean,
                         float factor, float *y, int64_t n) {
    float high = (float)mean, low = (float)(mean - (double)high);
    lanes h = lanes_set(high), l = lanes_set(low), f = lanes_set(factor);
    for (int64_t i = 0; i < n; i += N_LANE) {
        int64_t part = n - i < N_LANE ? n - i : N_LANE;
        lanes v = lanes_mul(centred(lanes_load_part(x + i, part), h, l), f);
        if (weight != NULL) v = lanes_mul(v, lanes_load_part(weight + i, part));
        if (bias != NULL) v = lanes_add(v, lanes_load_part(bias + i, part));
        lanes_store_part(y + i, v, part);
    }
}

static float max_lanes(const float *x, int64_t n) {
    lanes max = lanes_set(-INFINITY);
    float last = -INFINITY;
    int64_t i = 0;
    for (; i + N_LANE <= n; i += N_LANE) max = lanes_max(lanes_load(x + i), max);
    for (; i < n; i++)
        if (x[i] > last) last = x[i];
    float first = lanes_max_of(max);
    return first > last ? first : last;
}

static void softmax_lanes(const float *x, float *y, int64_t n) {
    float max = max_lanes(x, n);
    bool has_nan = false;
    for (int64_t i = 0; i < n && max == -INFINITY; i++) has_nan |= x[i] != x[i];
    if (max == -INFINITY && !has_nan) {
        memset(y, 0, (size_t)n * sizeof y[0]);
        return;
    }
    lanes shift = lanes_set(max);
    lanes_wide sum = lanes_wide_zero();
    int64_t i = 0;
    for (; i + N_LANE <= n; i += N_LANE) {
        lanes e = lanes_exp(lanes_sub(lanes_load(x + i), shift));
        lanes_store(y + i, e);
        sum = lanes_wide_add(sum, e);
    }
    int64_t rest = n - i;
    lanes_store_part(y + i, lanes_exp(lanes_sub(lanes_load_part(x + i, rest), shift)), rest);
    sum = lanes_wide_add(sum, lanes_load_part(y + i, rest));
    lanes factor = lanes_set((float)(1.0 / lanes_wide_sum(sum)));
    for (i = 0; i + N_LANE <= n; i += N_LANE)
        lanes_store(y + i, lanes_mul(lanes_load(y + i), factor));
    lanes_store_part(y + i, lanes_mul(lanes_load_part(y + i, rest), factor), rest);
}

const cpu_norm_kernels LANES_FN(cpu_norm) = {LANES_ISA,    LANES_NAME,   sum_sq_lanes,
                                             apply_lanes,  sum_lanes,    sum_sq_about_lanes,
                                             center_lanes, softmax_lanes};
