/* SPDX-License-Identifier: MIT
 *
 * x86/hadamard_avx2.c: hadamard.c's sums in 256-bit vectors, for blocks of 16 and more.
 */
#include "plugins/cpu/kv/hadamard.h"

#include <immintrin.h>
#include <math.h>

#include "plugins/cpu/vector/unroll.h"

/* The passes inside a vector: lane i with lanes i ^ 1, i ^ 2, i ^ 4. */
static inline __m256 butterflies(__m256 x) {
    __m256 y = _mm256_permute_ps(x, 0xb1);
    x = _mm256_blend_ps(_mm256_add_ps(x, y), _mm256_sub_ps(y, x), 0xaa);
    y = _mm256_permute_ps(x, 0x4e);
    x = _mm256_blend_ps(_mm256_add_ps(x, y), _mm256_sub_ps(y, x), 0xcc);
    y = _mm256_permute2f128_ps(x, x, 0x01);
    return _mm256_blend_ps(_mm256_add_ps(x, y), _mm256_sub_ps(y, x), 0xf0);
}

/* A block of n_vec vectors, a constant where this is inlined: it stays in registers. */
INLINE void rotate_vectors(float *x, int n_vec, float norm) {
    __m256 v[8];
    UNROLL for (int i = 0; i < n_vec; i++) v[i] = butterflies(_mm256_loadu_ps(x + 8 * i));
    UNROLL for (int half = 1; half < n_vec; half *= 2) {
        UNROLL for (int i = 0; i < n_vec; i++) {
            if ((i & half) != 0) continue;
            __m256 a = v[i], b = v[i + half];
            v[i] = _mm256_add_ps(a, b);
            v[i + half] = _mm256_sub_ps(a, b);
        }
    }
    UNROLL for (int i = 0; i < n_vec; i++)
        _mm256_storeu_ps(x + 8 * i, _mm256_mul_ps(v[i], _mm256_set1_ps(norm)));
}

void cpu_hadamard_avx2(float *x, int32_t n, int32_t block) {
    if (block < 16) {
        cpu_hadamard_plain(x, n, block);
        return;
    }
    if (block == 32 || block == 64) {
        float factor = 1 / sqrtf((float)block);
        for (; n > 0; n -= block, x += block) {
            if (block == 32)
                rotate_vectors(x, 4, factor);
            else
                rotate_vectors(x, 8, factor);
        }
        return;
    }
    float norm = 1 / sqrtf((float)block);
    for (; n > 0; n -= block, x += block) {
        for (int32_t i = 0; i < block; i += 8)
            _mm256_storeu_ps(x + i, butterflies(_mm256_loadu_ps(x + i)));
        for (int32_t half = 8; half < block; half *= 2) {
            __m256 factor = _mm256_set1_ps(2 * half < block ? 1 : norm);
            for (int32_t i = 0; i < block; i += 2 * half) {
                for (int32_t j = i; j < i + half; j += 8) {
                    __m256 a = _mm256_loadu_ps(x + j), b = _mm256_loadu_ps(x + j + half);
                    _mm256_storeu_ps(x + j, _mm256_mul_ps(_mm256_add_ps(a, b), factor));
                    _mm256_storeu_ps(x + j + half, _mm256_mul_ps(_mm256_sub_ps(a, b), factor));
                }
            }
        }
    }
}
