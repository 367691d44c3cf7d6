/* SPDX-License-Identifier: MIT
 *
 * vector/recurrent.c: the kernels of recurrent.h.
 */
#include "plugins/cpu/ops/recurrent.h"
#include "plugins/cpu/vector/exp.h"
#include "plugins/cpu/vector/unroll.h"

static void conv_lanes(const float *const *rows, const float *w, int64_t stride, int64_t k,
                       const float *bias, float *y, int64_t n) {
    for (int64_t c = 0; c < n; c += N_LANE) {
        int64_t part = n - c < N_LANE ? n - c : N_LANE;
        lanes sum = bias != NULL ? lanes_load_part(bias + c, part) : lanes_zero();
        for (int64_t i = 0; i < k; i++)
            sum = lanes_fma(lanes_load_part(w + i * stride + c, part),
                            lanes_load_part(rows[i] + c, part), sum);
        lanes_store_part(y + c, sum, part);
    }
}

static void decay_lanes(const float *g, int g_step, const float *a, int a_step, float *y,
                        int64_t n) {
    for (int64_t i = 0; i < n; i += N_LANE) {
        int64_t part = n - i < N_LANE ? n - i : N_LANE;
        lanes x = g_step != 0 ? lanes_load_part(g + i, part) : lanes_set(g[0]);
        if (a != NULL)
            x = lanes_mul(x, a_step != 0 ? lanes_load_part(a + i, part) : lanes_set(a[0]));
        lanes_store_part(y + i, lanes_exp(x), part);
    }
}

INLINE lanes decay_load(const cpu_scan_token *t, int64_t i, int64_t part) {
    return t->decay != NULL ? lanes_load_part(t->decay + i, part) : lanes_set(t->decay_all);
}

/* n rows, which read q, k and the decay together. Without erase: has_erase is false. */
INLINE void scan_rows(float *s, int n, int64_t dk, const cpu_scan_token *t, int64_t row,
                      bool has_erase) {
    lanes u[4], sum[4], erased[4];
    UNROLL for (int r = 0; r < n; r++) {
        u[r] = lanes_set(t->v[row + r]);
        sum[r] = lanes_zero();
    }
    if (t->has_beta) {
        for (int64_t i = 0; i < dk; i += N_LANE) {
            int64_t part = dk - i < N_LANE ? dk - i : N_LANE;
            lanes k = lanes_mul(lanes_load_part(t->k + i, part), decay_load(t, i, part));
            UNROLL for (int r = 0; r < n; r++) sum[r] =
                lanes_fma(lanes_load_part(s + r * dk + i, part), k, sum[r]);
        }
        UNROLL for (int r = 0; r < n; r++) {
            u[r] = lanes_set(t->beta * (t->v[row + r] - lanes_sum(sum[r])));
            sum[r] = lanes_zero();
        }
    }
    if (has_erase) {
        for (int64_t i = 0; i < dk; i += N_LANE) {
            int64_t part = dk - i < N_LANE ? dk - i : N_LANE;
            lanes erase = lanes_load_part(t->erase + i, part);
            UNROLL for (int r = 0; r < n; r++) sum[r] =
                lanes_fma(lanes_load_part(s + r * dk + i, part), erase, sum[r]);
        }
        UNROLL for (int r = 0; r < n; r++) {
            erased[r] = lanes_set(lanes_sum(sum[r]));
            sum[r] = lanes_zero();
        }
    }
    for (int64_t i = 0; i < dk; i += N_LANE) {
        int64_t part = dk - i < N_LANE ? dk - i : N_LANE;
        lanes write = has_erase ? lanes_load_part(t->write + i, part) : lanes_zero();
        lanes k = lanes_load_part(t->k + i, part), q = lanes_load_part(t->q + i, part),
              d = decay_load(t, i, part);
        UNROLL for (int r = 0; r < n; r++) {
            float *at = s + r * dk + i;
            lanes added = lanes_mul(k, u[r]);
            if (has_erase) added = lanes_fma(write, erased[r], added);
            lanes x = lanes_fma(lanes_load_part(at, part), d, added);
            lanes_store_part(at, x, part);
            sum[r] = lanes_fma(q, x, sum[r]);
        }
    }
    UNROLL for (int r = 0; r < n; r++) t->o[row + r] = t->scale * lanes_sum(sum[r]);
}

INLINE void scan_all(float *s, int64_t n_row, int64_t dk, const cpu_scan_token *t, bool has_erase) {
    int64_t row = 0;
    for (; row + 4 <= n_row; row += 4) scan_rows(s + row * dk, 4, dk, t, row, has_erase);
    for (; row < n_row; row++) scan_rows(s + row * dk, 1, dk, t, row, has_erase);
}

static void scan_lanes(float *s, int64_t n_row, int64_t dk, const cpu_scan_token *t) {
    if (t->erase != NULL)
        scan_all(s, n_row, dk, t, true);
    else
        scan_all(s, n_row, dk, t, false);
}

const cpu_recurrent_kernels LANES_FN(cpu_recurrent) = {LANES_ISA, LANES_NAME, conv_lanes,
                                                       decay_lanes, scan_lanes};
