/* SPDX-License-Identifier: MIT
 *
 * vector/hadamard.c: the transform of kv/hadamard.c in vectors, with the same sums, for blocks of
 * two vectors and more.
 */
#include "plugins/cpu/kv/hadamard.h"

#include <math.h>

#include "plugins/cpu/vector/vector.h"

/* A block of n_vec vectors, a constant where this is inlined: it stays in registers. */
INLINE void rotate_vectors(float *x, int n_vec, float norm) {
    lanes v[8];
    UNROLL for (int i = 0; i < n_vec; i++) v[i] = lanes_butterflies(lanes_load(x + N_LANE * i));
    UNROLL for (int half = 1; half < n_vec; half *= 2) {
        UNROLL for (int i = 0; i < n_vec; i++) {
            if ((i & half) != 0) continue;
            lanes a = v[i], b = v[i + half];
            v[i] = lanes_add(a, b);
            v[i + half] = lanes_sub(a, b);
        }
    }
    UNROLL for (int i = 0; i < n_vec; i++)
        lanes_store(x + N_LANE * i, lanes_mul(v[i], lanes_set(norm)));
}

/* A block of any number of vectors, in memory. */
static void rotate_long(float *x, int32_t block, float norm) {
    for (int32_t i = 0; i < block; i += N_LANE)
        lanes_store(x + i, lanes_butterflies(lanes_load(x + i)));
    for (int32_t half = N_LANE; half < block; half *= 2) {
        lanes factor = lanes_set(2 * half < block ? 1 : norm);
        for (int32_t i = 0; i < block; i += 2 * half) {
            for (int32_t j = i; j < i + half; j += N_LANE) {
                lanes a = lanes_load(x + j), b = lanes_load(x + j + half);
                lanes_store(x + j, lanes_mul(lanes_add(a, b), factor));
                lanes_store(x + j + half, lanes_mul(lanes_sub(a, b), factor));
            }
        }
    }
}

void LANES_FN(cpu_hadamard)(float *x, int32_t n, int32_t block) {
    if (block < 2 * N_LANE) {
        cpu_hadamard_plain(x, n, block);
        return;
    }
    float norm = 1 / sqrtf((float)block);
    for (; n > 0; n -= block, x += block) {
        if (block == 2 * N_LANE)
            rotate_vectors(x, 2, norm);
        else if (block == 4 * N_LANE)
            rotate_vectors(x, 4, norm);
        else if (block == 8 * N_LANE)
            rotate_vectors(x, 8, norm);
        else
            rotate_long(x, block, norm);
    }
}
