/* SPDX-License-Identifier: MIT
 *
 * x86/hadamard_avx512.c: hadamard.c's sums in 512-bit vectors, for blocks of 32 and more.
 */
#include "plugins/cpu/kv/hadamard.h"

#include <immintrin.h>
#include <math.h>

#include "plugins/cpu/vector/unroll.h"

/* The passes inside a vector: lane i with lanes i ^ 1, i ^ 2, i ^ 4, i ^ 8. */
static inline __m512 butterflies(__m512 x) {
    __m512 y = _mm512_permute_ps(x, 0xb1);
    x = _mm512_mask_sub_ps(_mm512_add_ps(x, y), 0xaaaa, y, x);
    y = _mm512_permute_ps(x, 0x4e);
    x = _mm512_mask_sub_ps(_mm512_add_ps(x, y), 0xcccc, y, x);
    y = _mm512_shuffle_f32x4(x, x, 0xb1);
    x = _mm512_mask_sub_ps(_mm512_add_ps(x, y), 0xf0f0, y, x);
    y = _mm512_shuffle_f32x4(x, x, 0x4e);
    return _mm512_mask_sub_ps(_mm512_add_ps(x, y), 0xff00, y, x);
}

/* A block of n_vec vectors, a constant where this is inlined: it stays in registers. */
INLINE void rotate_vectors(float *x, int n_vec, float norm) {
    __m512 v[8];
    UNROLL for (int i = 0; i < n_vec; i++) v[i] = butterflies(_mm512_loadu_ps(x + 16 * i));
    UNROLL for (int half = 1; half < n_vec; half *= 2) {
        UNROLL for (int i = 0; i < n_vec; i++) {
            if ((i & half) != 0) continue;
            __m512 a = v[i], b = v[i + half];
            v[i] = _mm512_add_ps(a, b);
            v[i + half] = _mm512_sub_ps(a, b);
        }
    }
    UNROLL for (int i = 0; i < n_vec; i++)
        _mm512_storeu_ps(x + 16 * i, _mm512_mul_ps(v[i], _mm512_set1_ps(norm)));
}

void cpu_hadamard_avx512(float *x, int32_t n, int32_t block) {
    if (block < 32) {
        cpu_hadamard_plain(x, n, block);
        return;
    }
    if (block <= 128) {
        float factor = 1 / sqrtf((float)block);
        for (; n > 0; n -= block, x += block) {
            if (block == 32)
                rotate_vectors(x, 2, factor);
            else if (block == 64)
                rotate_vectors(x, 4, factor);
            else
                rotate_vectors(x, 8, factor);
        }
        return;
    }
    float norm = 1 / sqrtf((float)block);
    for (; n > 0; n -= block, x += block) {
        for (int32_t i = 0; i < block; i += 16)
            _mm512_storeu_ps(x + i, butterflies(_mm512_loadu_ps(x + i)));
        for (int32_t half = 16; half < block; half *= 2) {
            __m512 factor = _mm512_set1_ps(2 * half < block ? 1 : norm);
            for (int32_t i = 0; i < block; i += 2 * half) {
                for (int32_t j = i; j < i + half; j += 16) {
                    __m512 a = _mm512_loadu_ps(x + j), b = _mm512_loadu_ps(x + j + half);
                    _mm512_storeu_ps(x + j, _mm512_mul_ps(_mm512_add_ps(a, b), factor));
                    _mm512_storeu_ps(x + j + half, _mm512_mul_ps(_mm512_sub_ps(a, b), factor));
                }
            }
        }
    }
}
