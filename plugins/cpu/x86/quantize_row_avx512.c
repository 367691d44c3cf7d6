/* SPDX-License-Identifier: MIT
 *
 * quantize_row_avx512.c: the quantisers of quantize_row.c for AVX-512, bit for bit. They use
 * intrinsics instead of the words of vector/: those have neither masks nor the direct conversion
 * from 32 bits to bytes, and a row took 20 % longer.
 */
#include <immintrin.h>

#include "plugins/cpu/ops/quantize_row.h"

/* The codes of 32 elements, 16 in each vector. */
static inline cpu_x_scale codes_get(const float *x, float limit, int32_t code_offset,
                                    __m512i codes[2]) {
    const __m512 finite = _mm512_set1_ps(3.402823466e38f);
    __m512 lo = _mm512_loadu_ps(x), hi = _mm512_loadu_ps(x + 16);
    __m512 lo_abs = _mm512_abs_ps(lo), hi_abs = _mm512_abs_ps(hi);
    /* "not at most the largest number": true for infinities and NaN */
    __mmask16 bad = _mm512_cmp_ps_mask(lo_abs, finite, _CMP_NLE_UQ) |
                    _mm512_cmp_ps_mask(hi_abs, finite, _CMP_NLE_UQ);
    float largest = _mm512_reduce_max_ps(_mm512_max_ps(lo_abs, hi_abs));
    if (bad != 0 || largest < 0x1p-100f) {
        codes[0] = codes[1] = _mm512_setzero_si512();
        return cpu_x_scale_empty(bad != 0, code_offset);
    }
    __m512 inverse = _mm512_set1_ps(limit / largest);
    cpu_x_scale s = {.d = largest / limit};
    codes[0] = _mm512_cvtps_epi32(_mm512_mul_ps(lo, inverse));
    codes[1] = _mm512_cvtps_epi32(_mm512_mul_ps(hi, inverse));
    cpu_x_sums_set(&s, _mm512_reduce_add_epi32(codes[0]), _mm512_reduce_add_epi32(codes[1]),
                   code_offset);
    return s;
}

void cpu_quantize_row_q15_bytes_avx512(const float *x, int64_t n, int32_t code_offset,
                                       void *blocks) {
    cpu_q15_block *out = blocks;
    for (int64_t b = 0; b < n / CPU_X_LEN; b++, x += CPU_X_LEN, out++) {
        __m512i codes[2];
        out->s = codes_get(x, CPU_Q15_MAX, code_offset, codes);
        for (int i = 0; i < 2; i++) {
            __m512i hi = _mm512_srai_epi32(_mm512_add_epi32(codes[i], _mm512_set1_epi32(64)), 7);
            __m512i lo = _mm512_sub_epi32(codes[i], _mm512_slli_epi32(hi, 7));
            _mm_storeu_si128((void *)(out->hi + 16 * i), _mm512_cvtepi32_epi8(hi));
            _mm_storeu_si128((void *)(out->lo + 16 * i), _mm512_cvtepi32_epi8(lo));
        }
    }
}

void cpu_quantize_row_q8_avx512(const float *x, int64_t n, int32_t code_offset, void *blocks) {
    cpu_q8_block *out = blocks;
    for (int64_t b = 0; b < n / CPU_X_LEN; b++, x += CPU_X_LEN, out++) {
        __m512i codes[2];
        out->s = codes_get(x, CPU_Q8_MAX, code_offset, codes);
        _mm_storeu_si128((void *)out->q, _mm512_cvtepi32_epi8(codes[0]));
        _mm_storeu_si128((void *)(out->q + 16), _mm512_cvtepi32_epi8(codes[1]));
    }
}
