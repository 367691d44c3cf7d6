/* SPDX-License-Identifier: MIT
 *
 * x86/kv_block.h: a block of 32 floats in vectors, for the quantisers of cache rows. All of them
 * give the bytes of tdm_row_quantize (quant/convert.h): they make the same operations in the same
 * order, each rounded on its own.
 */
#ifndef TANDEM_CPU_X86_KV_BLOCK_H
#define TANDEM_CPU_X86_KV_BLOCK_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "quant/half.h"
#include "plugins/cpu/kv/kv_row.h"
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

static inline void store_nibbles(uint8_t *qs, __m256i codes) {
    __m128i mask = _mm_set1_epi8(15);
    __m128i lo = _mm_and_si128(_mm256_castsi256_si128(codes), mask);
    __m128i hi = _mm_and_si128(_mm256_extracti128_si256(codes, 1), mask);
    _mm_storeu_si128((__m128i *)(void *)qs, _mm_or_si128(lo, _mm_slli_epi16(hi, 4)));
}

#endif
