/* SPDX-License-Identifier: MIT
 *
 * x86/kv_write_avx512.c: iq4_nl rows with AVX-512: two candidates of the search share a vector,
 * and tables of 16 numbers fit one. For the other types, whose blocks of 32 elements take a few
 * steps, x86/kv_write_avx2.c is as fast. Intrinsics for the reasons given there.
 */
#include "plugins/cpu/x86/kv_iq4.h"

/* The number of the nearest level: how many of the 15 midpoints between levels lie below, found by
 * bisection. */
static inline __m512i nearest_code(__m512 x) {
    /* The midpoints that decide the last two bits of the number: each at the index that the bits
     * found before it give, with zeros for the others. */
    const __m512 second =
        _mm512_setr_ps(-93.5f, 0, 0, 0, -28.5f, 0, 0, 0, 19, 0, 0, 0, 79, 0, 0, 0);
    const __m512 last =
        _mm512_setr_ps(-115.5f, 0, -74, 0, -42, 0, -16, 0, 7, 0, 31.5f, 0, 61, 0, 101, 0);
    __mmask16 upper = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-4.5f), _CMP_GT_OQ);
    __m512 mid = _mm512_mask_blend_ps(upper, _mm512_set1_ps(-57), _mm512_set1_ps(45.5f));
    __m512i code = _mm512_maskz_set1_epi32(upper, 8);
    __mmask16 above = _mm512_cmp_ps_mask(x, mid, _CMP_GT_OQ);
    code = _mm512_mask_or_epi32(code, above, code, _mm512_set1_epi32(4));
    above = _mm512_cmp_ps_mask(x, _mm512_permutexvar_ps(code, second), _CMP_GT_OQ);
    code = _mm512_mask_or_epi32(code, above, code, _mm512_set1_epi32(2));
    above = _mm512_cmp_ps_mask(x, _mm512_permutexvar_ps(code, last), _CMP_GT_OQ);
    return _mm512_mask_or_epi32(code, above, code, _mm512_set1_epi32(1));
}

static inline __m512 twice(__m256 x) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(x), x, 1);
}

static inline __m512 pair(__m256 low, __m256 high) {
    return _mm512_insertf32x8(_mm512_castps256_ps512(low), high, 1);
}

/* The partial sums of two candidates (kv_iq4.h), each in a half of the vectors. */
static void sum_levels(const block32 *b, const block32 *weights, const float *inverse,
                       float (*xv_out)[8], float (*vv_out)[8]) {
    const __m512 levels =
        _mm512_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113);
    __m512 factor = pair(_mm256_set1_ps(inverse[0]), _mm256_set1_ps(inverse[1]));
    __m512 xv = _mm512_setzero_ps(), vv = _mm512_setzero_ps();
    for (int i = 0; i < PARTS; i++) {
        __m512 x = twice(b->x[i]);
        __m512 v = _mm512_permutexvar_ps(nearest_code(_mm512_mul_ps(x, factor)), levels);
        __m512 wv = _mm512_mul_ps(twice(weights->x[i]), v);
        xv = _mm512_add_ps(xv, _mm512_mul_ps(wv, x));
        vv = _mm512_add_ps(vv, _mm512_mul_ps(wv, v));
    }
    _mm512_storeu_ps(xv_out[0], xv);
    _mm512_storeu_ps(vv_out[0], vv);
}

void cpu_quantize_iq4_nl_avx512(const float *src, void *blocks, int64_t n,
                                const float *importance) {
    tdm_block_iq4_nl *block = blocks;
    (void)importance;
    for (int64_t at = 0; at < n; at += LEN, block++) {
        block32 b = load_block(src + at, f16_max);
        __m512 inverse = _mm512_set1_ps(iq4_inverse(&b, sum_levels, 2, &block->d));
        __m128i code[2];
        for (int i = 0; i < 2; i++) {
            __m512 x = pair(b.x[2 * i], b.x[2 * i + 1]);
            code[i] = _mm512_cvtepi32_epi8(nearest_code(_mm512_mul_ps(x, inverse)));
        }
        store_nibbles(block->qs, _mm256_set_m128i(code[1], code[0]));
    }
}
