/* SPDX-License-Identifier: MIT
 *
 * limits_avx2.c: the machine's limits with 256-bit registers; built twice, with CPU_LIMIT_AVX_VNNI
 * for processors that have the dot products of VNNI without AVX-512.
 *
 * Intrinsics instead of the words of vector/: a limit is the rate of one instruction, so the loops
 * name it.
 */
#include <immintrin.h>

#include "plugins/cpu/machine/limits.h"

enum {
    N_STEP = 5000,
    N_ACC = 12 /* the factors and what a product passes through need registers too */
};

static uint64_t sum_epi64(__m256i x) {
    return (uint64_t)_mm256_extract_epi64(x, 0) + (uint64_t)_mm256_extract_epi64(x, 1) +
           (uint64_t)_mm256_extract_epi64(x, 2) + (uint64_t)_mm256_extract_epi64(x, 3);
}

static uint64_t limit_read(const uint8_t *a, const uint8_t *b, size_t step, size_t n) {
    __m256i acc[8];
    for (int i = 0; i < 8; i++) acc[i] = _mm256_setzero_si256();
    for (; n > 0; n--, a += step, b += step)
        for (int i = 0; i < 8; i++) {
            acc[i] =
                _mm256_xor_si256(acc[i], _mm256_load_si256((const __m256i *)(a + 32 * (size_t)i)));
            acc[i] =
                _mm256_xor_si256(acc[i], _mm256_load_si256((const __m256i *)(b + 32 * (size_t)i)));
        }
    for (int i = 1; i < 8; i++) acc[0] = _mm256_xor_si256(acc[0], acc[i]);
    return sum_epi64(acc[0]);
}

#ifdef CPU_LIMIT_AVX_VNNI
static uint64_t limit_int8(uint32_t seed, double *n_op_out) {
    const __m256i x = _mm256_set1_epi8((char)seed), w = _mm256_set1_epi8((char)(seed + 1));
    __m256i acc[N_ACC];
    for (int i = 0; i < N_ACC; i++) acc[i] = _mm256_set1_epi32(i);
    for (int n = 0; n < N_STEP; n++)
        for (int i = 0; i < N_ACC; i++) acc[i] = _mm256_dpbusd_avx_epi32(acc[i], x, w);
    for (int i = 1; i < N_ACC; i++) acc[0] = _mm256_add_epi32(acc[0], acc[i]);
    *n_op_out = 2.0 * 32 * N_ACC * N_STEP;
    return sum_epi64(acc[0]);
}
#else
/* VPMADDUBSW adds pairs of products in 16 bits. Its sums are added in 16 bits as well, which short
 * codes allow several times before they have to be widened, and which costs the least: the limit
 * leaves the widening out. */
static uint64_t limit_int8(uint32_t seed, double *n_op_out) {
    const __m256i w = _mm256_set1_epi8((char)(seed + 1));
    __m256i x = _mm256_set1_epi8((char)seed), acc[N_ACC];
    for (int i = 0; i < N_ACC; i++) acc[i] = _mm256_set1_epi16((short)i);
    for (int n = 0; n < N_STEP; n++)
        for (int i = 0; i < N_ACC; i++) {
            /* The compiler must assume that x has changed: it cannot reuse a product. */
            __asm__ volatile("" : "+x"(x));
            acc[i] = _mm256_add_epi16(acc[i], _mm256_maddubs_epi16(x, w));
        }
    for (int i = 1; i < N_ACC; i++) acc[0] = _mm256_xor_si256(acc[0], acc[i]);
    *n_op_out = 2.0 * 32 * N_ACC * N_STEP;
    return sum_epi64(acc[0]);
}
#endif

/* Sums stay near 2: nothing becomes infinite or denormal, which some cores are slow at. */
static uint64_t limit_f32(uint32_t seed, double *n_op_out) {
    const __m256 half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps((float)seed);
    __m256 acc[N_ACC];
    for (int i = 0; i < N_ACC; i++) acc[i] = _mm256_set1_ps((float)i);
    for (int n = 0; n < N_STEP; n++)
        for (int i = 0; i < N_ACC; i++) acc[i] = _mm256_fmadd_ps(acc[i], half, one);
    for (int i = 1; i < N_ACC; i++) acc[0] = _mm256_add_ps(acc[0], acc[i]);
    *n_op_out = 2.0 * 8 * N_ACC * N_STEP;
    return sum_epi64(_mm256_cvtps_epi32(acc[0]));
}

#ifdef CPU_LIMIT_AVX_VNNI
const cpu_limit_loops cpu_limit_loops_avx_vnni = {"AVX-VNNI", limit_read, limit_int8, limit_f32};
#else
const cpu_limit_loops cpu_limit_loops_avx2 = {"AVX2", limit_read, limit_int8, limit_f32};
#endif
