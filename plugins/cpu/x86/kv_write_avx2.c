/* SPDX-License-Identifier: MIT
 *
 * x86/kv_write_avx2.c: rows of floats to cache types with AVX2, byte for byte as core/base does it:
 * the same operations in the same order, each rounded on its own, where they round at all. Of
 * several elements of the largest magnitude (or the least value) the first counts, there as here.
 */
#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "core/base/fit.h"
#include "core/base/half.h"
#include "plugins/cpu/kv_row.h"
#include "tandem/block.h"

enum { LEN = TDM_BLOCK_LEN, PARTS = LEN / 8 };

static const float f16_max = 65504;

typedef struct block32 {
    __m256 x[PARTS];
} block32;

/* NaN counts as 0, everything is limited to -limit .. limit. */
static inline block32 load_block(const float *src, float limit) {
    block32 b;
    for (int i = 0; i < PARTS; i++) {
        __m256 x = _mm256_loadu_ps(src + 8 * i);
        x = _mm256_and_ps(x, _mm256_cmp_ps(x, x, _CMP_ORD_Q));
        x = _mm256_min_ps(x, _mm256_set1_ps(limit));
        b.x[i] = _mm256_max_ps(x, _mm256_set1_ps(-limit));
    }
    return b;
}

static inline __m256 magnitude(__m256 x) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

static inline float reduce(__m256 x, bool is_max) {
    __m128 lo = _mm256_castps256_ps128(x), hi = _mm256_extractf128_ps(x, 1);
    lo = is_max ? _mm_max_ps(lo, hi) : _mm_min_ps(lo, hi);
    hi = _mm_movehl_ps(lo, lo);
    lo = is_max ? _mm_max_ps(lo, hi) : _mm_min_ps(lo, hi);
    hi = _mm_movehdup_ps(lo);
    return _mm_cvtss_f32(is_max ? _mm_max_ss(lo, hi) : _mm_min_ss(lo, hi));
}

/* The first element that equals `value`, or whose magnitude does: the sign of zero, or of the
 * peak, is the first one's. */
static inline float first_equal(const block32 *b, float value, bool of_magnitude) {
    float x[LEN];
    unsigned found = 0;
    for (int i = 0; i < PARTS; i++) {
        __m256 y = of_magnitude ? magnitude(b->x[i]) : b->x[i];
        __m256 equal = _mm256_cmp_ps(y, _mm256_set1_ps(value), _CMP_EQ_OQ);
        found |= (unsigned)_mm256_movemask_ps(equal) << 8 * i;
        _mm256_storeu_ps(x + 8 * i, b->x[i]);
    }
    return found != 0 ? x[__builtin_ctz(found)] : value;
}

static inline float find_peak(const block32 *b) {
    __m256 most = magnitude(b->x[0]);
    for (int i = 1; i < PARTS; i++) most = _mm256_max_ps(most, magnitude(b->x[i]));
    float largest = reduce(most, true);
    return largest > 0 ? first_equal(b, largest, true) : 0;
}

static inline float reciprocal(float d) {
    return fabsf(d) >= 0x1p-126f ? 1 / d : 0;
}

/* 32 whole numbers from -128 .. 127 to bytes, in order. */
static inline __m256i pack_bytes(const __m256i *codes) {
    __m256i lo = _mm256_packs_epi32(codes[0], codes[1]);
    __m256i hi = _mm256_packs_epi32(codes[2], codes[3]);
    return _mm256_permutevar8x32_epi32(_mm256_packs_epi16(lo, hi),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

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

static inline void store_nibbles(uint8_t *qs, __m256i codes) {
    __m128i mask = _mm_set1_epi8(15);
    __m128i lo = _mm_and_si128(_mm256_castsi256_si128(codes), mask);
    __m128i hi = _mm_and_si128(_mm256_extracti128_si256(codes, 1), mask);
    _mm_storeu_si128((__m128i *)(void *)qs, _mm_or_si128(lo, _mm_slli_epi16(hi, 4)));
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

/* ---- iq4_nl: the search of core/base/fit.c --------------------------------------------------- */

typedef struct iq4_sums {
    float xv, vv; /* sum w x v, sum w v^2, of the levels v nearest to x * inverse */
} iq4_sums;

/* The number of the nearest level: how many of the 15 midpoints between levels lie below, found by
 * halving. *v_out is the level. */
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

/* Lanes one after the other, as fit.c adds them. */
static inline float sum_lanes(__m256 x) {
    float lanes[8], sum = 0;
    _mm256_storeu_ps(lanes, x);
    for (int i = 0; i < 8; i++) sum += lanes[i];
    return sum;
}

static inline iq4_sums sum_levels(const block32 *b, const block32 *weights, float inverse) {
    __m256 xv = _mm256_setzero_ps(), vv = _mm256_setzero_ps();
    for (int i = 0; i < PARTS; i++) {
        __m256 v;
        nearest_level(_mm256_mul_ps(b->x[i], _mm256_set1_ps(inverse)), &v);
        __m256 wv = _mm256_mul_ps(weights->x[i], v);
        xv = _mm256_add_ps(xv, _mm256_mul_ps(wv, b->x[i]));
        vv = _mm256_add_ps(vv, _mm256_mul_ps(wv, v));
    }
    return (iq4_sums){sum_lanes(xv), sum_lanes(vv)};
}

static inline float scale_reciprocal(float scale) {
    return fabsf(scale) > 1e-30f ? 1 / scale : 0;
}

/* search_scale of fit.c for the codebook: the peak is mapped to places around either end. */
static float search_scale(const block32 *b, const block32 *weights) {
    enum { STEPS = 8 };
    float peak = find_peak(b);
    if (fabsf(peak) <= 1e-30f) return 0;
    float best_gain = 0, best = peak / -127;
    for (int end = 0; end < 2; end++) {
        float limit = end == 0 ? -127 : 113;
        for (int step = -STEPS; step <= STEPS; step++) {
            iq4_sums sums = sum_levels(b, weights, (limit + 12.0f * (float)step / STEPS) / peak);
            if (sums.vv <= 0 || sums.xv * sums.xv <= best_gain * sums.vv) continue;
            best_gain = sums.xv * sums.xv / sums.vv;
            best = sums.xv / sums.vv;
        }
    }
    for (int turn = 0; turn < 2; turn++) {
        iq4_sums sums = sum_levels(b, weights, scale_reciprocal(best));
        if (sums.vv <= 0 || sums.xv * sums.xv <= best_gain * sums.vv) break;
        best_gain = sums.xv * sums.xv / sums.vv;
        best = sums.xv / sums.vv;
    }
    return best;
}

void cpu_quantize_iq4_nl_avx2(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_iq4_nl *block = blocks;
    (void)importance;
    for (int64_t at = 0; at < n; at += LEN, block++) {
        block32 b = load_block(src + at, f16_max), weights;
        float x[LEN], w[LEN];
        for (int i = 0; i < PARTS; i++) _mm256_storeu_ps(x + 8 * i, b.x[i]);
        tdm_fit_weigh(x, NULL, w, LEN);
        for (int i = 0; i < PARTS; i++) weights.x[i] = _mm256_loadu_ps(w + 8 * i);
        float scale = search_scale(&b, &weights);
        scale = scale < -f16_max ? -f16_max : scale;
        block->d = tdm_f32_to_f16(scale > f16_max ? f16_max : scale);
        __m256 v, inverse = _mm256_set1_ps(scale_reciprocal(tdm_f16_to_f32(block->d)));
        __m256i codes[PARTS];
        for (int i = 0; i < PARTS; i++)
            codes[i] = nearest_level(_mm256_mul_ps(b.x[i], inverse), &v);
        store_nibbles(block->qs, pack_bytes(codes));
    }
}
