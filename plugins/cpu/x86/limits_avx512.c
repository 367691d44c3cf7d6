/* SPDX-License-Identifier: MIT
 *
 * limits_avx512.c: the machine's limits with AVX-512 and VNNI: 64 products of 8 bits or 16 of f32
 * an instruction.
 *
 * Intrinsics instead of the words of vector/: a limit is the rate of one instruction, so the loops
 * name it.
 */
#include <immintrin.h>

#include "plugins/cpu/machine/limits.h"

enum { N_STEP = 5000 };

uint64_t cpu_limit_read_avx512(const uint8_t *a, const uint8_t *b, size_t step, size_t n) {
    __m512i acc[8];
    for (int i = 0; i < 8; i++) acc[i] = _mm512_setzero_si512();
    for (; n > 0; n--, a += step, b += step)
        for (int i = 0; i < 4; i++) {
            acc[i] = _mm512_xor_si512(acc[i], _mm512_load_si512(a + 64 * i));
            acc[4 + i] = _mm512_xor_si512(acc[4 + i], _mm512_load_si512(b + 64 * i));
        }
    for (int i = 1; i < 8; i++) acc[0] = _mm512_xor_si512(acc[0], acc[i]);
    return (uint64_t)_mm512_reduce_add_epi64(acc[0]);
}

static uint64_t limit_int8_avx512(uint32_t seed, double *n_op_out) {
    const __m512i x = _mm512_set1_epi8((char)seed), w = _mm512_set1_epi8((char)(seed + 1));
    __m512i acc[CPU_LIMIT_N_ACC];
    for (int i = 0; i < CPU_LIMIT_N_ACC; i++) acc[i] = _mm512_set1_epi32(i);
    for (int n = 0; n < N_STEP; n++)
        for (int i = 0; i < CPU_LIMIT_N_ACC; i++) acc[i] = _mm512_dpbusd_epi32(acc[i], x, w);
    for (int i = 1; i < CPU_LIMIT_N_ACC; i++) acc[0] = _mm512_add_epi32(acc[0], acc[i]);
    *n_op_out = 2.0 * 64 * CPU_LIMIT_N_ACC * N_STEP;
    return (uint64_t)_mm512_reduce_add_epi64(acc[0]);
}

/* Sums stay near 2: nothing becomes infinite or denormal, which some cores are slow at. */
uint64_t cpu_limit_f32_avx512(uint32_t seed, double *n_op_out) {
    const __m512 half = _mm512_set1_ps(0.5f), one = _mm512_set1_ps((float)seed);
    __m512 acc[CPU_LIMIT_N_ACC];
    for (int i = 0; i < CPU_LIMIT_N_ACC; i++) acc[i] = _mm512_set1_ps((float)i);
    for (int n = 0; n < N_STEP; n++)
        for (int i = 0; i < CPU_LIMIT_N_ACC; i++) acc[i] = _mm512_fmadd_ps(acc[i], half, one);
    for (int i = 1; i < CPU_LIMIT_N_ACC; i++) acc[0] = _mm512_add_ps(acc[0], acc[i]);
    *n_op_out = 2.0 * 16 * CPU_LIMIT_N_ACC * N_STEP;
    return (uint64_t)_mm512_reduce_add_ps(acc[0]);
}

const cpu_limit_loops cpu_limit_loops_avx512 = {"AVX-512 VNNI", cpu_limit_read_avx512,
                                                limit_int8_avx512, cpu_limit_f32_avx512};
