/* SPDX-License-Identifier: MIT
 *
 * quantize_row_avx2.c: cpu_quantize_row_plain for AVX2, bit for bit.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "plugins/cpu/quantize_row.h"

static float max8(__m256 a) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

static int32_t sum8(__m256i a) {
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

/* 32 numbers, each within a byte. The packs work within halves of 128 bits: dwords 0 4 1 5 2 6 3 7
 * of what they give are in order. */
static void bytes_store(int8_t *out, const __m256i v[4]) {
    __m256i packed =
        _mm256_packs_epi16(_mm256_packs_epi32(v[0], v[1]), _mm256_packs_epi32(v[2], v[3]));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256((void *)out, _mm256_permutevar8x32_epi32(packed, order));
}

void cpu_quantize_row_avx2(const float *x, int64_t n, int32_t code_offset, cpu_q15_block *out) {
    const __m256 sign = _mm256_set1_ps(-0.0f), limit = _mm256_set1_ps(3.402823466e38f);
    for (int64_t b = 0; b < n / CPU_Q15_LEN; b++, x += CPU_Q15_LEN, out++) {
        __m256 v[4], largest8 = _mm256_setzero_ps(), bad8 = _mm256_setzero_ps();
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + 8 * i);
            __m256 magnitude = _mm256_andnot_ps(sign, v[i]);
            /* "not at most the largest number": true for infinities and NaN */
            bad8 = _mm256_or_ps(bad8, _mm256_cmp_ps(magnitude, limit, _CMP_NLE_UQ));
            largest8 = _mm256_max_ps(largest8, magnitude);
        }
        bool bad = _mm256_movemask_ps(bad8) != 0;
        float largest = max8(largest8);
        if (bad || largest < 0x1p-100f) {
            memset(out, 0, sizeof *out);
            if (bad) out->d = NAN;
            if (bad && code_offset == 0) out->half[0].sum = out->half[1].sum = out->all.sum = NAN;
            continue;
        }
        __m256 inverse = _mm256_set1_ps(CPU_Q15_MAX / largest);
        __m256i q[4];
        for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
        __m256i hi[4], lo[4];
        for (int i = 0; i < 4; i++) {
            hi[i] = _mm256_srai_epi32(_mm256_add_epi32(q[i], _mm256_set1_epi32(64)), 7);
            lo[i] = _mm256_sub_epi32(q[i], _mm256_slli_epi32(hi[i], 7));
        }
        bytes_store(out->hi, hi);
        bytes_store(out->lo, lo);
        out->d = largest / CPU_Q15_MAX;
        cpu_q15_sums_set(out, sum8(_mm256_add_epi32(q[0], q[1])),
                         sum8(_mm256_add_epi32(q[2], q[3])), code_offset);
    }
}
