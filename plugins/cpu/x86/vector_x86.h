/* SPDX-License-Identifier: MIT
 *
 * vector_x86.h: the vector words that are the same for AVX2 and AVX-512. Included by vector_avx2.h
 * and vector_avx512.h.
 */
#ifndef TANDEM_CPU_X86_VECTOR_X86_H
#define TANDEM_CPU_X86_VECTOR_X86_H

#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#include "plugins/cpu/vector/unroll.h"

/* True where the first factor of ints_dot8 has signed bytes. */
#define DOT8_IS_SIGNED 0

/* Prefetch the cache line at p into the first-level or the second-level cache. */
INLINE void prefetch_l1(const void *p) {
    _mm_prefetch(p, _MM_HINT_T0);
}
INLINE void prefetch_l2(const void *p) {
    _mm_prefetch(p, _MM_HINT_T1);
}

/* ---- four floats ----------------------------------------------------------------------------- */

typedef __m128 quad;

INLINE quad quad_set(float x) {
    return _mm_set1_ps(x);
}
INLINE quad quad_load(const float *p) {
    return _mm_loadu_ps(p);
}
INLINE void quad_store(float *p, quad x) {
    _mm_storeu_ps(p, x);
}
INLINE quad quad_sub(quad a, quad b) {
    return _mm_sub_ps(a, b);
}
INLINE quad quad_mul(quad a, quad b) {
    return _mm_mul_ps(a, b);
}
/* a * b + c, rounded once. */
INLINE quad quad_fma(quad a, quad b, quad c) {
    return _mm_fmadd_ps(a, b, c);
}
/* b where either is NaN. */
INLINE quad quad_max(quad a, quad b) {
    return _mm_max_ps(a, b);
}

/* ---- sixteen numbers of 16 bits -------------------------------------------------------------- */

typedef __m256i halves;

/* The 32 numbers of low and high as signed bytes, in their order. */
INLINE void halves_store_bytes(uint8_t *p, halves low, halves high) {
    __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
    _mm256_storeu_si256((__m256i *)(void *)p, bytes);
}

/* The 32 numbers of low and high, of four neighbours in the order 0 2 1 3. If is_paired, pairs of
 * low and of high alternate; else all of low come first. */
INLINE void halves_store_pairs(uint8_t *p, halves low, halves high, bool is_paired) {
    const __m256i order = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0,
                                           1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    __m256i first = _mm256_shuffle_epi8(low, order), second = _mm256_shuffle_epi8(high, order);
    if (is_paired) {
        __m256i even = _mm256_unpacklo_epi32(first, second);
        __m256i odd = _mm256_unpackhi_epi32(first, second);
        first = _mm256_permute2x128_si256(even, odd, 0x20);
        second = _mm256_permute2x128_si256(even, odd, 0x31);
    }
    _mm256_storeu_si256((__m256i *)(void *)p, first);
    _mm256_storeu_si256((__m256i *)(void *)(p + 32), second);
}

#endif
