/* SPDX-License-Identifier: MIT
 *
 * x86/attention_soften.h: the softmax of attention's chunks. Included behind attention_vector.h,
 * whose words it is written in; besides them
 *
 *   f_div, f_min, f_round          division, minimum, rounding to nearest even
 *   f_scale2(x, n)                 x 2^n, n whole
 *   f_largest(x)                   largest lane
 *   f_choose(x, y, first, last, at) lanes whose number, counted from `at`, lies in first .. last-1 of
 *                                  x, the others of y
 */
#ifndef TANDEM_CPU_X86_ATTENTION_SOFTEN_H
#define TANDEM_CPU_X86_ATTENTION_SOFTEN_H

#include "plugins/cpu/x86/attention_vector.h"

/* exp(x), x <= 0: x = n ln 2 + r with |r| <= ln 2 / 2, and the Taylor series of exp(r) to the sixth
 * power, whose remainder is below 1.3e-7. ln 2 as one f32 adds 2e-9 n, where the result is 2^-n. */
INLINE vec_f f_exp(vec_f x) {
    vec_f n = f_round(f_mul(x, f_set1(1.44269504f)));
    vec_f r = f_fma(n, f_set1(-0.693147182f), x);
    vec_f y = f_set1(1.0f / 720);
    y = f_fma(y, r, f_set1(1.0f / 120));
    y = f_fma(y, r, f_set1(1.0f / 24));
    y = f_fma(y, r, f_set1(1.0f / 6));
    y = f_fma(y, r, f_set1(0.5f));
    y = f_fma(y, r, f_set1(1));
    y = f_fma(y, r, f_set1(1));
    return f_scale2(y, n);
}

/* softcap tanh(x / softcap), tanh(y) = 1 - 2 / (exp(2 y) + 1). */
INLINE vec_f f_softcap(vec_f x, float softcap) {
    vec_f y = f_max(f_set1(-20), f_min(f_set1(20), f_mul(x, f_set1(2 / softcap))));
    vec_f part = f_div(f_set1(2), f_add(f_exp(y), f_set1(1)));
    return f_mul(f_set1(softcap), f_add(f_set1(1), f_mul(part, f_set1(-1))));
}

/* The largest score of a row, softcap applied in place. With is_whole every slot counts. */
INLINE float row_max(float *score, int32_t begin, int32_t end, int32_t first, int32_t last,
                     float softcap, bool is_whole) {
    vec_f peak = f_set1(-INFINITY);
    for (int32_t i = begin; i < end; i += LANES) {
        vec_f x = f_load(score + i);
        if (softcap > 0) {
            x = f_softcap(x, softcap);
            f_store(score + i, x);
        }
        if (!is_whole) x = f_choose(x, f_set1(-INFINITY), first, last, i);
        peak = f_max(x, peak);
    }
    return f_largest(peak);
}

/* p = exp(score - m) in place of a row's scores. Returns the sum. */
INLINE float row_exp(float *score, int32_t begin, int32_t end, int32_t first, int32_t last, float m,
                     bool is_whole) {
    vec_f sum = f_zero(), base = f_set1(m == -INFINITY ? 0 : -m);
    for (int32_t i = begin; i < end; i += LANES) {
        /* Over -inf alone exp(-inf - 0) is 0, and a NaN stays one. */
        vec_f x = f_exp(f_max(f_set1(-150), f_add(f_load(score + i), base)));
        if (!is_whole) x = f_keep(x, first, last, i);
        f_store(score + i, x);
        sum = f_add(sum, x);
    }
    return f_sum(sum);
}

/* Three passes over up to LANES rows: rows do not wait for each other's sums, and the numbers that
 * the last one loads as vectors were stored long before. */
INLINE void soften_rows(int32_t n_row, float *const *score, int32_t begin, int32_t end,
                        const int32_t *first, const int32_t *last, float softcap, float *m,
                        float *l, float *keep, float *gain) {
    for (int32_t at = 0; at < n_row; at += LANES) {
        float m_new[LANES], l_new[LANES], m_old[LANES], max[LANES], factors[2][LANES];
        int n = n_row - at < LANES ? n_row - at : LANES;
        f_store(m_new, f_zero());
        f_store(m_old, f_zero());
        for (int i = 0; i < n; i++) {
            int32_t r = at + i, lo = first[r], hi = last[r];
            bool is_whole = lo <= begin && hi >= end;
            m_old[i] = m[r];
            if (!is_whole)
                m_new[i] = row_max(score[r], begin, end, lo, hi, softcap, false);
            else if (softcap > 0)
                m_new[i] = row_max(score[r], begin, end, begin, end, softcap, true);
            else
                m_new[i] = row_max(score[r], begin, end, begin, end, 0, true);
        }
        for (int i = 0; i < n; i++) {
            int32_t r = at + i, lo = first[r], hi = last[r];
            l_new[i] = lo <= begin && hi >= end
                           ? row_exp(score[r], begin, end, begin, end, m_new[i], true)
                           : row_exp(score[r], begin, end, lo, hi, m_new[i], false);
        }
        vec_f both = f_max(f_load(m_new), f_load(m_old)), least = f_set1(-3e38f);
        vec_f base = f_mul(f_max(both, least), f_set1(-1)); /* -inf - -inf would be NaN */
        f_store(factors[0], f_exp(f_max(f_set1(-150), f_add(f_load(m_old), base))));
        f_store(factors[1], f_exp(f_max(f_set1(-150), f_add(f_load(m_new), base))));
        f_store(max, both);
        for (int i = 0; i < n; i++) {
            keep[at + i] = factors[0][i];
            gain[at + i] = factors[1][i];
            l[at + i] = l[at + i] * factors[0][i] + l_new[i] * factors[1][i];
            m[at + i] = max[i];
        }
    }
}

#endif
