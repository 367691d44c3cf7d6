/* SPDX-License-Identifier: MIT
 *
 * quantize_row_avx512.c: cpu_quantize_row_plain for AVX-512, bit for bit.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "plugins/cpu/quantize_row.h"

/* Elements first .. first + 15 as two bytes each. */
static void codes_store(cpu_q15_block *out, int first, __m512i q) {
    __m512i hi = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(64)), 7);
    __m512i lo = _mm512_sub_epi32(q, _mm512_slli_epi32(hi, 7));
    _mm_storeu_si128((void *)(out->hi + first), _mm512_cvtepi32_epi8(hi));
    _mm_storeu_si128((void *)(out->lo + first), _mm512_cvtepi32_epi8(lo));
}

static int32_t sum16(__m512i q) {
    return _mm512_reduce_add_epi32(q);
}

void cpu_quantize_row_avx512(const float *x, int64_t n, int32_t code_offset, cpu_q15_block *out) {
    for (int64_t b = 0; b < n / CPU_Q15_LEN; b++, x += CPU_Q15_LEN, out++) {
        __m512 lo = _mm512_loadu_ps(x), hi = _mm512_loadu_ps(x + 16);
        __m512 lo_abs = _mm512_abs_ps(lo), hi_abs = _mm512_abs_ps(hi);
        const __m512 limit = _mm512_set1_ps(3.402823466e38f);
        /* "not at most the largest number": true for infinities and NaN */
        __mmask16 bad = _mm512_cmp_ps_mask(lo_abs, limit, _CMP_NLE_UQ) |
                        _mm512_cmp_ps_mask(hi_abs, limit, _CMP_NLE_UQ);
        float largest = _mm512_reduce_max_ps(_mm512_max_ps(lo_abs, hi_abs));
        if (bad != 0 || largest < 0x1p-100f) {
            memset(out, 0, sizeof *out);
            if (bad != 0) out->d = NAN;
            if (bad != 0 && code_offset == 0) {
                out->half[0].sum = out->half[1].sum = out->all.sum = NAN;
            }
            continue;
        }
        __m512 inverse = _mm512_set1_ps(CPU_Q15_MAX / largest);
        __m512i lo_q = _mm512_cvtps_epi32(_mm512_mul_ps(lo, inverse));
        __m512i hi_q = _mm512_cvtps_epi32(_mm512_mul_ps(hi, inverse));
        codes_store(out, 0, lo_q);
        codes_store(out, 16, hi_q);
        out->d = largest / CPU_Q15_MAX;
        cpu_q15_sums_set(out, sum16(lo_q), sum16(hi_q), code_offset);
    }
}
