/* SPDX-License-Identifier: MIT
 *
 * quantize_row_avx2.c: the quantisers of quantize_row.c for AVX2, bit for bit. They use intrinsics
 * instead of the words of vector/: with those, the test for infinities and NaN is a blend for each
 * vector instead of one mask for a block, and a row took 3 to 8 % longer.
 */
#include <immintrin.h>

#include "plugins/cpu/ops/quantize_row.h"

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

/* The codes of 32 elements, 8 in each vector. */
static inline cpu_x_scale codes_get(const float *x, float limit, int32_t code_offset,
                                    __m256i codes[4]) {
    const __m256 sign = _mm256_set1_ps(-0.0f), finite = _mm256_set1_ps(3.402823466e38f);
    __m256 v[4], largest8 = _mm256_setzero_ps(), bad8 = _mm256_setzero_ps();
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        __m256 magnitude = _mm256_andnot_ps(sign, v[i]);
        /* "not at most the largest number": true for infinities and NaN */
        bad8 = _mm256_or_ps(bad8, _mm256_cmp_ps(magnitude, finite, _CMP_NLE_UQ));
        largest8 = _mm256_max_ps(largest8, magnitude);
    }
    bool bad = _mm256_movemask_ps(bad8) != 0;
    float largest = max8(largest8);
    if (bad || largest < 0x1p-100f) {
        for (int i = 0; i < 4; i++) codes[i] = _mm256_setzero_si256();
        return cpu_x_scale_empty(bad, code_offset);
    }
    __m256 inverse = _mm256_set1_ps(limit / largest);
    cpu_x_scale s = {.d = largest / limit};
    for (int i = 0; i < 4; i++) codes[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    cpu_x_sums_set(&s, sum8(_mm256_add_epi32(codes[0], codes[1])),
                   sum8(_mm256_add_epi32(codes[2], codes[3])), code_offset);
    return s;
}

/* The packs work within halves of 128 bits: qwords 0 2 1 3, or dwords 0 4 1 5 2 6 3 7, of what they
 * give are in order. */
static inline __m256i words_pack(__m256i a, __m256i b) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
}

void cpu_quantize_row_q15_avx2(const float *x, int64_t n, int32_t code_offset, void *blocks) {
    cpu_q15_block *out = blocks;
    for (int64_t b = 0; b < n / CPU_X_LEN; b++, x += CPU_X_LEN, out++) {
        __m256i codes[4];
        out->s = codes_get(x, CPU_Q15_MAX, code_offset, codes);
        _mm256_storeu_si256((void *)out->q, words_pack(codes[0], codes[1]));
        _mm256_storeu_si256((void *)(out->q + 16), words_pack(codes[2], codes[3]));
    }
}

void cpu_quantize_row_q8_avx2(const float *x, int64_t n, int32_t code_offset, void *blocks) {
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    cpu_q8_block *out = blocks;
    for (int64_t b = 0; b < n / CPU_X_LEN; b++, x += CPU_X_LEN, out++) {
        __m256i codes[4];
        out->s = codes_get(x, CPU_Q8_MAX, code_offset, codes);
        __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]),
                                           _mm256_packs_epi32(codes[2], codes[3]));
        _mm256_storeu_si256((void *)out->q, _mm256_permutevar8x32_epi32(bytes, order));
    }
}
