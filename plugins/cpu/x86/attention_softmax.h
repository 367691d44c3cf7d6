/* SPDX-License-Identifier: MIT
 *
 * x86/attention_soften.h: the softmax of attention's chunks. Included behind attention_vector.h,
 * whose words it is written in; besides them
 *
 *   f_div, f_min                   division, minimum
 *   f_limit_exponent(t)            t, or a number whose power of two is 0 where the words that
 *                                  follow would not take it: they take 126 at least. NaN stays NaN
 *   f_fraction(t)                  t - floor(t)
 *   f_scale2(x, t)                 x 2^floor(t); NaN where x is
 *   f_rows_max(x), f_rows_sum(x)   __m128 of the largest lanes, the sums of lanes, of four vectors
 *   f_from_quads(a, b)             a vector that begins with these two __m128; f_quad(x, i), i a
 *                                  constant 0 or 1, is them again
 *   f_choose(x, y, first, last, at) lanes whose number, counted from `at`, lies in first .. last-1 of
 *                                  x, the others of y
 */
#ifndef TANDEM_CPU_X86_ATTENTION_SOFTEN_H
#define TANDEM_CPU_X86_ATTENTION_SOFTEN_H

#include "plugins/cpu/x86/attention_vector.h"

/* exp(x) = 2^t, t = x log2 e, = 2^floor(t) 2^r with 0 <= r < 1: for 2^r a polynomial of degree 5, 1
 * at 0 and otherwise the nearest in relative error; with the rounding of f32 within 1.8e-7. t is
 * rounded, too: 6e-8 |x| of a result that falls as exp(x). */
INLINE vec_f f_exp(vec_f x) {
    vec_f t = f_limit_exponent(f_mul(x, f_set1(1.44269504f))), r = f_fraction(t);
    vec_f y = f_set1(0.001872950333f);
    y = f_fma(y, r, f_set1(0.009010218828f));
    y = f_fma(y, r, f_set1(0.05579765964f));
    y = f_fma(y, r, f_set1(0.2401687281f));
    y = f_fma(y, r, f_set1(0.6931503588f));
    y = f_fma(y, r, f_set1(1));
    return f_scale2(y, t);
}

/* softcap tanh(x / softcap), tanh(y) = 1 - 2 / (exp(2 y) + 1). */
INLINE vec_f f_softcap(vec_f x, float softcap) {
    vec_f y = f_max(f_set1(-20), f_min(f_set1(20), f_mul(x, f_set1(2 / softcap))));
    vec_f part = f_div(f_set1(2), f_add(f_exp(y), f_set1(1)));
    return f_mul(f_set1(softcap), f_add(f_set1(1), f_mul(part, f_set1(-1))));
}

/* Up to four rows, whose maxima, sums and factors are found together. With is_whole every slot
 * counts. */
INLINE void soften_group(int n_row, float *const *score, int32_t begin, int32_t end,
                         const int32_t *first, const int32_t *last, float softcap, bool is_whole,
                         float *m, float *l, float *keep, float *gain) {
    const __m128 least = _mm_set1_ps(-3e38f); /* -inf - -inf would be NaN */
    vec_f peak[4], sum[4];
    float base[4];
    UNROLL for (int r = 0; r < 4; r++) {
        peak[r] = f_set1(-INFINITY);
        sum[r] = f_zero();
    }
    for (int32_t i = begin; i < end; i += LANES) {
        UNROLL for (int r = 0; r < n_row; r++) {
            vec_f x = f_load(score[r] + i);
            if (softcap > 0) {
                x = f_softcap(x, softcap);
                f_store(score[r] + i, x);
            }
            if (!is_whole) x = f_choose(x, f_set1(-INFINITY), first[r], last[r], i);
            peak[r] = f_max(x, peak[r]);
        }
    }
    __m128 m_new = f_rows_max(peak), zero = _mm_setzero_ps();
    _mm_storeu_ps(base, _mm_sub_ps(zero, _mm_max_ps(m_new, least)));
    for (int32_t i = begin; i < end; i += LANES) {
        UNROLL for (int r = 0; r < n_row; r++) {
            vec_f x = f_exp(f_add(f_load(score[r] + i), f_set1(base[r])));
            if (!is_whole) x = f_keep(x, first[r], last[r], i);
            f_store(score[r] + i, x);
            sum[r] = f_add(sum[r], x);
        }
    }
    __m128 m_old = _mm_loadu_ps(m), both = _mm_max_ps(m_new, m_old), top = _mm_max_ps(both, least);
    vec_f factors = f_exp(f_from_quads(_mm_sub_ps(m_old, top), _mm_sub_ps(m_new, top)));
    __m128 old_factor = f_quad(factors, 0), new_factor = f_quad(factors, 1);
    _mm_storeu_ps(keep, old_factor);
    _mm_storeu_ps(gain, new_factor);
    _mm_storeu_ps(m, both);
    _mm_storeu_ps(
        l, _mm_fmadd_ps(_mm_loadu_ps(l), old_factor, _mm_mul_ps(f_rows_sum(sum), new_factor)));
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
