/* SPDX-License-Identifier: MIT
 *
 * blocks_32.c: q4_0, q4_1, q5_0, q5_1 and q8_0, the types with one scale (and minimum) for 32
 * elements. Layout and formulas: tandem/block.h.
 *
 * Without importance the codes are those of the formulas that ggml publishes for these types, to
 * the bit: the element of largest magnitude takes the extreme code (q4_0, q5_0, q8_0), or the range
 * is divided evenly (q4_1, q5_1). With importance, fit.h searches for scales.
 */
#include <math.h>
#include <string.h>

#include "quant/blocks.h"
#include "quant/fit.h"
#include "quant/half.h"
#include "tandem/block.h"

enum { LEN = TDM_BLOCK_LEN, HALF = LEN / 2 };

static const float f16_max = 65504;

/* 1 / d, or 0 where that overflows: d then rounds to 0 as an f16, and the codes have no effect. */
static float reciprocal(float d) {
    return fabsf(d) >= 0x1p-126f ? 1 / d : 0;
}

/* The element of largest magnitude, with its sign; the first of several. */
static float find_peak(const float *x) {
    float peak = 0, magnitude = 0;
    for (int i = 0; i < LEN; i++) {
        if (fabsf(x[i]) > magnitude) magnitude = fabsf(x[i]), peak = x[i];
    }
    return peak;
}

static void find_range(const float *x, float *min_out, float *max_out) {
    float min = x[0], max = x[0];
    for (int i = 1; i < LEN; i++) {
        min = x[i] < min ? x[i] : min;
        max = x[i] > max ? x[i] : max;
    }
    *min_out = min, *max_out = max;
}

/* codes[i] = (x[i] - base) * inverse + offset, rounded half up and limited to hi. Apart from
 * rounding errors the product lies between -offset and hi + 1 - offset, so that the conversion to
 * an integer is always defined. */
static void round_codes(const float *x, float base, float inverse, float offset, int hi,
                        uint8_t *codes) {
    for (int i = 0; i < LEN; i++) {
        int code = (int)((x[i] - base) * inverse + (offset + 0.5f));
        codes[i] = (uint8_t)(code < hi ? code : hi);
    }
}

/* The fit gives signed codes around 0; the bytes hold codes from 0. */
static void shift_codes(const int8_t *fitted, int offset, uint8_t *codes) {
    for (int i = 0; i < LEN; i++) codes[i] = (uint8_t)(fitted[i] + offset);
}

static void pack_nibbles(const uint8_t *codes, uint8_t *qs) {
    for (int j = 0; j < HALF; j++) qs[j] = (uint8_t)((codes[j] & 15) | (codes[j + HALF] & 15) << 4);
}

static void pack_fifth_bits(const uint8_t *codes, uint8_t *qh) {
    memset(qh, 0, 4);
    for (int i = 0; i < LEN; i++) qh[i / 8] |= (uint8_t)((codes[i] >> 4 & 1) << i % 8);
}

static int fifth_bit(const uint8_t *qh, int i) {
    return (qh[i / 8] >> i % 8 & 1) << 4;
}

/* Codes around `offset` with one scale: q4_0 (offset 8) and q5_0 (16). Returns the scale's bits. */
static uint16_t quantize_signed(const float *src, int offset, const float *importance,
                                uint8_t *codes) {
    float x[LEN];
    tdm_fit_load(src, x, LEN, f16_max * (float)offset);
    if (importance != NULL) {
        float weights[LEN];
        int8_t fitted[LEN];
        tdm_fit_weigh(x, importance, weights, LEN);
        tdm_fit_levels levels = {.lo = -offset, .hi = offset - 1};
        uint16_t scale = tdm_fit_scale(x, weights, LEN, levels, fitted);
        shift_codes(fitted, offset, codes);
        return scale;
    }
    float d = find_peak(x) / (float)-offset;
    round_codes(x, 0, reciprocal(d), (float)offset, 2 * offset - 1, codes);
    return tdm_f32_to_f16(d);
}

/* Codes 0 … hi above a minimum: q4_1 (hi 15) and q5_1 (31). */
static void quantize_ranged(const float *src, int hi, const float *importance, uint8_t *codes,
                            uint16_t *d_out, uint16_t *m_out) {
    float x[LEN], min, max;
    tdm_fit_load(src, x, LEN, f16_max);
    if (importance != NULL) {
        float weights[LEN];
        int8_t fitted[LEN];
        tdm_fit_weigh(x, importance, weights, LEN);
        tdm_fit_scale_offset(x, weights, LEN, hi, fitted, d_out, m_out);
        shift_codes(fitted, 0, codes);
        return;
    }
    find_range(x, &min, &max);
    float d = (max - min) / (float)hi;
    round_codes(x, min, reciprocal(d), 0, hi, codes);
    *d_out = tdm_f32_to_f16(d);
    *m_out = tdm_f32_to_f16(min);
}

void tdm_q4_0_dequantize(const void *blocks, float *dst, int64_t n) {
    const tdm_block_q4_0 *block = blocks;
    for (int64_t i = 0; i < n; i += LEN, block++) {
        float d = tdm_f16_to_f32(block->d);
        for (int j = 0; j < HALF; j++) {
            dst[i + j] = (float)((block->qs[j] & 15) - 8) * d;
            dst[i + j + HALF] = (float)((block->qs[j] >> 4) - 8) * d;
        }
    }
}

void tdm_q4_0_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q4_0 *block = blocks;
    for (int64_t i = 0; i < n; i += LEN, block++) {
        uint8_t codes[LEN];
        block->d = quantize_signed(src + i, 8, importance ? importance + i : NULL, codes);
        pack_nibbles(codes, block->qs);
    }
}

void tdm_q4_1_dequantize(const void *blocks, float *dst, int64_t n) {
    const tdm_block_q4_1 *block = blocks;
    for (int64_t i = 0; i < n; i += LEN, block++) {
        float d = tdm_f16_to_f32(block->d), m = tdm_f16_to_f32(block->m);
        for (int j = 0; j < HALF; j++) {
            dst[i + j] = (float)(block->qs[j] & 15) * d + m;
            dst[i + j + HALF] = (float)(block->qs[j] >> 4) * d + m;
        }
    }
}

void tdm_q4_1_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q4_1 *block = blocks;
    for (int64_t i = 0; i < n; i += LEN, block++) {
        uint8_t codes[LEN];
        quantize_ranged(src + i, 15, importance ? importance + i : NULL, codes, &block->d,
                        &block->m);
        pack_nibbles(codes, block->qs);
    }
}

void tdm_q5_0_dequantize(const void *blocks, float *dst, int64_t n) {
    const tdm_block_q5_0 *block = blocks;
    for (int64_t i = 0; i < n; i += LEN, block++) {
        float d = tdm_f16_to_f32(block->d);
        for (int j = 0; j < HALF; j++) {
            int lo = (block->qs[j] & 15) | fifth_bit(block->qh, j);
            int hi = block->qs[j] >> 4 | fifth_bit(block->qh, j + HALF);
            dst[i + j] = (float)(lo - 16) * d;
            dst[i + j + HALF] = (float)(hi - 16) * d;
        }
    }
}

void tdm_q5_0_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q5_0 *block = blocks;
    for (int64_t i = 0; i < n; i += LEN, block++) {
        uint8_t codes[LEN];
        block->d = quantize_signed(src + i, 16, importance ? importance + i : NULL, codes);
        pack_nibbles(codes, block->qs);
        pack_fifth_bits(codes, block->qh);
    }
}

void tdm_q5_1_dequantize(const void *blocks, float *dst, int64_t n) {
    const tdm_block_q5_1 *block = blocks;
    for (int64_t i = 0; i < n; i += LEN, block++) {
        float d = tdm_f16_to_f32(block->d), m = tdm_f16_to_f32(block->m);
        for (int j = 0; j < HALF; j++) {
            int lo = (block->qs[j] & 15) | fifth_bit(block->qh, j);
            int hi = block->qs[j] >> 4 | fifth_bit(block->qh, j + HALF);
            dst[i + j] = (float)lo * d + m;
            dst[i + j + HALF] = (float)hi * d + m;
        }
    }
}

void tdm_q5_1_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q5_1 *block = blocks;
    for (int64_t i = 0; i < n; i += LEN, block++) {
        uint8_t codes[LEN];
        quantize_ranged(src + i, 31, importance ? importance + i : NULL, codes, &block->d,
                        &block->m);
        pack_nibbles(codes, block->qs);
        pack_fifth_bits(codes, block->qh);
    }
}

void tdm_q8_0_dequantize(const void *blocks, float *dst, int64_t n) {
    const tdm_block_q8_0 *block = blocks;
    for (int64_t i = 0; i < n; i += LEN, block++) {
        float d = tdm_f16_to_f32(block->d);
        for (int j = 0; j < LEN; j++) dst[i + j] = (float)block->qs[j] * d;
    }
}

/* At 8 bits a search does not lower the error measurably, so importance is ignored. */
void tdm_q8_0_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    (void)importance;
    tdm_block_q8_0 *block = blocks;
    for (int64_t i = 0; i < n; i += LEN, block++) {
        float x[LEN];
        tdm_fit_load(src + i, x, LEN, f16_max * 127);
        float d = fabsf(find_peak(x)) / 127, inverse = reciprocal(d);
        block->d = tdm_f32_to_f16(d);
        for (int j = 0; j < LEN; j++) {
            /* Rounds to nearest, ties away from zero. roundf would be a function call per
             * element. */
            float scaled = x[j] * inverse;
            int whole = (int)scaled;
            float rest = scaled - (float)whole;
            block->qs[j] = (int8_t)(whole + (rest >= 0.5f) - (rest <= -0.5f));
        }
    }
}
