/* SPDX-License-Identifier: MIT
 *
 * vector/attention_softmax.h: the softmax of attention's chunks (cpu_attention_softmax_fn).
 */
#ifndef TANDEM_CPU_VECTOR_ATTENTION_SOFTMAX_H
#define TANDEM_CPU_VECTOR_ATTENTION_SOFTMAX_H

#include <math.h>

#include "plugins/cpu/ops/attention_kernel.h"
#include "plugins/cpu/vector/exp.h"

/* softcap tanh(x / softcap), tanh(y) = 1 - 2 / (exp(2 y) + 1). */
INLINE lanes lanes_softcap(lanes x, float softcap) {
    lanes y =
        lanes_max(lanes_set(-20), lanes_min(lanes_set(20), lanes_mul(x, lanes_set(2 / softcap))));
    lanes part = lanes_div(lanes_set(2), lanes_add(lanes_exp(y), lanes_set(1)));
    return lanes_mul(lanes_set(softcap), lanes_add(lanes_set(1), lanes_mul(part, lanes_set(-1))));
}

/* n_row rows from row `at` on, at most four: their maxima, sums and factors are computed together.
 * With is_whole every slot counts and softcap is 0. */
INLINE void softmax_group(const cpu_softmax_rows *rows, int32_t at, int n_row, int32_t begin,
                          int32_t end, float softcap, bool is_whole) {
    const quad least = quad_set(-3e38f); /* -inf - -inf would be NaN */
    float *const *score = rows->score + at;
    const int32_t *first = rows->first + at, *last = rows->last + at;
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
            lanes x = lanes_exp_weight(lanes_add(lanes_load(score[r] + i), lanes_set(base[r])));
            if (!is_whole) x = lanes_keep(x, first[r], last[r], i);
            lanes_store(score[r] + i, x);
            sum[r] = lanes_add(sum[r], x);
        }
    }
    quad m_old = quad_load(rows->m + at), both = quad_max(m_new, m_old),
         top = quad_max(both, least);
    lanes factors = lanes_exp_weight(lanes_from_quads(quad_sub(m_old, top), quad_sub(m_new, top)));
    quad old_factor = lanes_quad0(factors), new_factor = lanes_quad1(factors);
    quad_store(rows->keep + at, old_factor);
    quad_store(rows->gain + at, new_factor);
    quad_store(rows->m + at, both);
    quad l = quad_mul(lanes_rows_sum(sum), new_factor);
    quad_store(rows->l + at, quad_fma(quad_load(rows->l + at), old_factor, l));
}

INLINE void softmax_rows(const cpu_softmax_rows *all, int32_t begin, int32_t end, float softcap) {
    /* A copy, since a store through a pointer could change *all, which would be read again. */
    const cpu_softmax_rows copy = *all, *rows = &copy;
    for (int32_t at = 0; at < rows->n; at += 4) {
        int32_t n = rows->n - at < 4 ? rows->n - at : 4;
        bool is_whole = softcap <= 0;
        for (int32_t r = at; r < at + n; r++)
            is_whole = is_whole && rows->first[r] <= begin && rows->last[r] >= end;
        if (is_whole && n == 4)
            softmax_group(rows, at, 4, begin, end, 0, true);
        else if (is_whole && n == 1)
            softmax_group(rows, at, 1, begin, end, 0, true);
        else if (n == 4)
            softmax_group(rows, at, 4, begin, end, softcap, false);
        else if (n == 3)
            softmax_group(rows, at, 3, begin, end, softcap, false);
        else if (n == 2)
            softmax_group(rows, at, 2, begin, end, softcap, false);
        else
            softmax_group(rows, at, 1, begin, end, softcap, false);
    }
}

#endif
