/* SPDX-License-Identifier: MIT
 *
 * vector/attention_softmax.h: the softmax of attention's chunks (cpu_attention_soften_fn).
 */
#ifndef TANDEM_CPU_VECTOR_ATTENTION_SOFTMAX_H
#define TANDEM_CPU_VECTOR_ATTENTION_SOFTMAX_H

#include <math.h>

#include "plugins/cpu/vector/vector.h"

/* exp(x) = 2^t, t = x log2 e, = 2^floor(t) 2^r with 0 <= r < 1: for 2^r a polynomial of degree 5, 1
 * at 0 and otherwise the nearest in relative error; with the rounding of f32 within 1.8e-7. t is
 * rounded, too: 6e-8 |x| of a result that falls as exp(x). */
INLINE lanes lanes_exp2(lanes x) {
    lanes t = lanes_limit_exponent(lanes_mul(x, lanes_set(1.44269504f))), r = lanes_fraction(t);
    lanes y = lanes_set(0.001872950333f);
    y = lanes_fma(y, r, lanes_set(0.009010218828f));
    y = lanes_fma(y, r, lanes_set(0.05579765964f));
    y = lanes_fma(y, r, lanes_set(0.2401687281f));
    y = lanes_fma(y, r, lanes_set(0.6931503588f));
    y = lanes_fma(y, r, lanes_set(1));
    return lanes_scale2_floor(y, t);
}

/* softcap tanh(x / softcap), tanh(y) = 1 - 2 / (exp(2 y) + 1). */
INLINE lanes lanes_softcap(lanes x, float softcap) {
    lanes y =
        lanes_max(lanes_set(-20), lanes_min(lanes_set(20), lanes_mul(x, lanes_set(2 / softcap))));
    lanes part = lanes_div(lanes_set(2), lanes_add(lanes_exp2(y), lanes_set(1)));
    return lanes_mul(lanes_set(softcap), lanes_add(lanes_set(1), lanes_mul(part, lanes_set(-1))));
}

/* Up to four rows, whose maxima, sums and factors are found together. With is_whole every slot
 * counts. */
INLINE void soften_group(int n_row, float *const *score, int32_t begin, int32_t end,
                         const int32_t *first, const int32_t *last, float softcap, bool is_whole,
                         float *m, float *l, float *keep, float *gain) {
    const quad least = quad_set(-3e38f); /* -inf - -inf would be NaN */
    lanes peak[4], sum[4];
    float base[4];
    UNROLL for (int r = 0; r < 4; r++) {
        peak[r] = lanes_set(-INFINITY);
        sum[r] = lanes_zero();
    }
    for (int32_t i = begin; i < end; i += N_LANE) {
        UNROLL for (int r = 0; r < n_row; r++) {
            lanes x = lanes_load(score[r] + i);
            if (softcap > 0) {
                x = lanes_softcap(x, softcap);
                lanes_store(score[r] + i, x);
            }
            if (!is_whole) x = lanes_choose(x, lanes_set(-INFINITY), first[r], last[r], i);
            peak[r] = lanes_max(x, peak[r]);
        }
    }
    quad m_new = lanes_rows_max(peak), zero = quad_set(0);
    quad_store(base, quad_sub(zero, quad_max(m_new, least)));
    for (int32_t i = begin; i < end; i += N_LANE) {
        UNROLL for (int r = 0; r < n_row; r++) {
            lanes x = lanes_exp2(lanes_add(lanes_load(score[r] + i), lanes_set(base[r])));
            if (!is_whole) x = lanes_keep(x, first[r], last[r], i);
            lanes_store(score[r] + i, x);
            sum[r] = lanes_add(sum[r], x);
        }
    }
    quad m_old = quad_load(m), both = quad_max(m_new, m_old), top = quad_max(both, least);
    lanes factors = lanes_exp2(lanes_from_quads(quad_sub(m_old, top), quad_sub(m_new, top)));
    quad old_factor = lanes_quad0(factors), new_factor = lanes_quad1(factors);
    quad_store(keep, old_factor);
    quad_store(gain, new_factor);
    quad_store(m, both);
    quad_store(l, quad_fma(quad_load(l), old_factor, quad_mul(lanes_rows_sum(sum), new_factor)));
}

INLINE void soften_rows(int32_t n_row, float *const *score, int32_t begin, int32_t end,
                        const int32_t *first, const int32_t *last, float softcap, float *m,
                        float *l, float *keep, float *gain) {
    for (int32_t at = 0; at < n_row; at += 4, score += 4, first += 4, last += 4) {
        int32_t n = n_row - at < 4 ? n_row - at : 4;
        bool is_whole = softcap <= 0;
        for (int32_t r = 0; r < n; r++) is_whole = is_whole && first[r] <= begin && last[r] >= end;
#define SOFTEN(n, whole)                                                                           \
    soften_group(n, score, begin, end, first, last, whole ? 0 : softcap, whole, m + at, l + at,    \
                 keep + at, gain + at)
        if (is_whole && n == 4)
            SOFTEN(4, true);
        else if (is_whole && n == 1)
            SOFTEN(1, true);
        else if (n == 4)
            SOFTEN(4, false);
        else if (n == 3)
            SOFTEN(3, false);
        else if (n == 2)
            SOFTEN(2, false);
        else
            SOFTEN(1, false);
#undef SOFTEN
    }
}

#endif
