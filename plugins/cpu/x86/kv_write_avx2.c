/* SPDX-License-Identifier: MIT
 *
 * x86/kv_write_avx2.c: converts rows of floats to cache types with AVX2. The bytes are those of
 * tdm_row_quantize (quant/convert.h): the same operations in the same order, each rounded on its
 * own. Of several elements of the largest magnitude (or the least value) the first counts in both.
 *
 * Intrinsics instead of the words of vector/: it needs compare masks, byte shuffles and packs that
 * no other kernel needs.
 */
#include "plugins/cpu/x86/kv_block.h"
#include "plugins/cpu/x86/kv_iq4.h"

/* Codes (x - base) / d + offset, rounded half up, at most hi. */
static inline __m256i round_codes(const block32 *b, float base, float inverse, float offset,
                                  int hi) {
    __m256i codes[PARTS];
    for (int i = 0; i < PARTS; i++) {
        __m256 x =
            _mm256_mul_ps(_mm256_sub_ps(b->x[i], _mm256_set1_ps(base)), _mm256_set1_ps(inverse));
        x = _mm256_add_ps(x, _mm256_set1_ps(offset + 0.5f));
        codes[i] = _mm256_min_epi32(_mm256_cvttps_epi32(x), _mm256_set1_epi32(hi));
    }
    return pack_bytes(codes);
}

static inline void store_fifth_bits(uint8_t *qh, __m256i codes) {
    int bits = _mm256_movemask_epi8(_mm256_slli_epi16(codes, 3));
    memcpy(qh, &bits, 4);
}

static inline __m256i quantize_signed(const float *src, int offset, uint16_t *d_out) {
    block32 b = load_block(src, f16_max * (float)offset);
    float d = find_peak(&b) / (float)-offset;
    *d_out = tdm_f32_to_f16(d);
    return round_codes(&b, 0, reciprocal(d), (float)offset, 2 * offset - 1);
}

static inline __m256i quantize_ranged(const float *src, int hi, uint16_t *d_out, uint16_t *m_out) {
    block32 b = load_block(src, f16_max);
    __m256 least = b.x[0], most = b.x[0];
    for (int i = 1; i < PARTS; i++) {
        least = _mm256_min_ps(least, b.x[i]);
        most = _mm256_max_ps(most, b.x[i]);
    }
    float min = first_equal(&b, reduce(least, false), false);
    float max = first_equal(&b, reduce(most, true), false);
    float d = (max - min) / (float)hi;
    *d_out = tdm_f32_to_f16(d);
    *m_out = tdm_f32_to_f16(min);
    return round_codes(&b, min, reciprocal(d), 0, hi);
}

void cpu_quantize_q4_0_avx2(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q4_0 *block = blocks;
    (void)importance;
    for (int64_t i = 0; i < n; i += LEN, block++)
        store_nibbles(block->qs, quantize_signed(src + i, 8, &block->d));
}

void cpu_quantize_q5_0_avx2(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q5_0 *block = blocks;
    (void)importance;
    for (int64_t i = 0; i < n; i += LEN, block++) {
        __m256i codes = quantize_signed(src + i, 16, &block->d);
        store_nibbles(block->qs, codes);
        store_fifth_bits(block->qh, codes);
    }
}

void cpu_quantize_q4_1_avx2(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q4_1 *block = blocks;
    (void)importance;
    for (int64_t i = 0; i < n; i += LEN, block++)
        store_nibbles(block->qs, quantize_ranged(src + i, 15, &block->d, &block->m));
}

void cpu_quantize_q5_1_avx2(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q5_1 *block = blocks;
    (void)importance;
    for (int64_t i = 0; i < n; i += LEN, block++) {
        __m256i codes = quantize_ranged(src + i, 31, &block->d, &block->m);
        store_nibbles(block->qs, codes);
        store_fifth_bits(block->qh, codes);
    }
}

/* To nearest, ties away from zero: truncated, and one further where the rest is half or more. */
void cpu_quantize_q8_0_avx2(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q8_0 *block = blocks;
    (void)importance;
    for (int64_t i = 0; i < n; i += LEN, block++) {
        block32 b = load_block(src + i, f16_max * 127);
        float d = fabsf(find_peak(&b)) / 127;
        __m256 inverse = _mm256_set1_ps(reciprocal(d));
        __m256i codes[PARTS];
        for (int k = 0; k < PARTS; k++) {
            __m256 x = _mm256_mul_ps(b.x[k], inverse);
            __m256i whole = _mm256_cvttps_epi32(x);
            __m256 rest = _mm256_sub_ps(x, _mm256_cvtepi32_ps(whole));
            __m256 up = _mm256_cmp_ps(rest, _mm256_set1_ps(0.5f), _CMP_GE_OQ);
            __m256 down = _mm256_cmp_ps(rest, _mm256_set1_ps(-0.5f), _CMP_LE_OQ);
            whole = _mm256_sub_epi32(whole, _mm256_castps_si256(up)); /* true is -1 */
            codes[k] = _mm256_add_epi32(whole, _mm256_castps_si256(down));
        }
        block->d = tdm_f32_to_f16(d);
        _mm256_storeu_si256((__m256i *)(void *)block->qs, pack_bytes(codes));
    }
}

void cpu_quantize_f16_avx2(const float *src, void *blocks, int64_t n, const float *importance) {
    uint16_t *half = blocks;
    int64_t i = 0;
    (void)importance;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(void *)(half + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++) half[i] = tdm_f32_to_f16(src[i]);
}

/* ---- iq4_nl ---------------------------------------------------------------------------------- */

/* The number of the nearest level: how many of the 15 midpoints between levels lie below, found by
 * bisection. *v_out is the level. */
static inline __m256i nearest_level(__m256 x, __m256 *v_out) {
    const __m256 mid_1_5 = _mm256_setr_ps(-93.5f, -28.5f, 19, 79, -93.5f, -28.5f, 19, 79);
    const __m256 mid_even = _mm256_setr_ps(-115.5f, -74, -42, -16, 7, 31.5f, 61, 101);
    const __m256 low = _mm256_setr_ps(-127, -104, -83, -65, -49, -35, -22, -10);
    const __m256 high = _mm256_setr_ps(1, 13, 25, 38, 53, 69, 89, 113);
    __m256 upper = _mm256_cmp_ps(x, _mm256_set1_ps(-4.5f), _CMP_GT_OQ); /* true is -1 */
    __m256 mid = _mm256_blendv_ps(_mm256_set1_ps(-57), _mm256_set1_ps(45.5f), upper);
    __m256i code = _mm256_slli_epi32(_mm256_castps_si256(upper), 1);
    code = _mm256_add_epi32(code, _mm256_castps_si256(_mm256_cmp_ps(x, mid, _CMP_GT_OQ)));
    code = _mm256_sub_epi32(_mm256_setzero_si256(), code);
    mid = _mm256_permutevar8x32_ps(mid_1_5, code);
    code = _mm256_sub_epi32(_mm256_slli_epi32(code, 1),
                            _mm256_castps_si256(_mm256_cmp_ps(x, mid, _CMP_GT_OQ)));
    mid = _mm256_permutevar8x32_ps(mid_even, code);
    code = _mm256_sub_epi32(_mm256_slli_epi32(code, 1),
                            _mm256_castps_si256(_mm256_cmp_ps(x, mid, _CMP_GT_OQ)));
    *v_out = _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, code),
                              _mm256_permutevar8x32_ps(high, code), upper);
    return code;
}

/* The partial sums of one candidate (kv_iq4.h). */
static void sum_levels(const block32 *b, const block32 *weights, const float *inverse,
                       float (*xv_out)[8], float (*vv_out)[8]) {
    __m256 xv = _mm256_setzero_ps(), vv = _mm256_setzero_ps();
    for (int i = 0; i < PARTS; i++) {
        __m256 v;
        nearest_level(_mm256_mul_ps(b->x[i], _mm256_set1_ps(*inverse)), &v);
        __m256 wv = _mm256_mul_ps(weights->x[i], v);
        xv = _mm256_add_ps(xv, _mm256_mul_ps(wv, b->x[i]));
        vv = _mm256_add_ps(vv, _mm256_mul_ps(wv, v));
    }
    _mm256_store_ps(xv_out[0], xv);
    _mm256_store_ps(vv_out[0], vv);
}

void cpu_quantize_iq4_nl_avx2(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_iq4_nl *block = blocks;
    (void)importance;
    for (int64_t at = 0; at < n; at += LEN, block++) {
        block32 b = load_block(src + at, f16_max);
        __m256 v, inverse = _mm256_set1_ps(iq4_inverse(&b, sum_levels, 1, &block->d));
        __m256i codes[PARTS];
        for (int i = 0; i < PARTS; i++)
            codes[i] = nearest_level(_mm256_mul_ps(b.x[i], inverse), &v);
        store_nibbles(block->qs, pack_bytes(codes));
    }
}
