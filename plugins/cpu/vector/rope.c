/* SPDX-License-Identifier: MIT
 *
 * vector/rope.c: the kernels of rope.h. All sources of a vector are read before any of it is
 * written, so that x and y may be the same.
 */
#include "plugins/cpu/ops/rope.h"
#include "plugins/cpu/vector/vector.h"

static void adjacent_lanes(const float *x, float *y, const float *cos_row, const float *sin_row,
                           int64_t n_pair) {
    int64_t i = 0;
    for (; i + N_LANE / 2 <= n_pair; i += N_LANE / 2) {
        lanes pairs = lanes_load(x + 2 * i);
        lanes crossed = lanes_mul(lanes_swap(pairs), lanes_load_twice(sin_row + i));
        lanes_store(y + 2 * i, lanes_fma_alternate(pairs, lanes_load_twice(cos_row + i), crossed));
    }
    for (; i < n_pair; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        y[2 * i] = a * cos_row[i] - b * sin_row[i];
        y[2 * i + 1] = a * sin_row[i] + b * cos_row[i];
    }
}

static void halves_lanes(const float *x, float *y, int64_t half, const float *cos_row,
                         const float *sin_row, int64_t n_pair) {
    for (int64_t i = 0; i < n_pair; i += N_LANE) {
        int64_t n = n_pair - i < N_LANE ? n_pair - i : N_LANE;
        lanes a = lanes_load_part(x + i, n), b = lanes_load_part(x + i + half, n);
        lanes c = lanes_load_part(cos_row + i, n), s = lanes_load_part(sin_row + i, n);
        lanes_store_part(y + i, lanes_fnma(b, s, lanes_mul(a, c)), n);
        lanes_store_part(y + i + half, lanes_fma(a, s, lanes_mul(b, c)), n);
    }
}

const cpu_rope_kernels LANES_FN(cpu_rope) = {LANES_ISA, LANES_NAME, adjacent_lanes, halves_lanes};
