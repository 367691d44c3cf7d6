/* SPDX-License-Identifier: MIT
 *
 * blocks_k.c: q2_K, q3_K, q4_K, q5_K and q6_K, superblocks of 256 elements with quantised scales.
 * Layout and formulas: tandem/block.h. fit.h searches for scales and codes; this file packs them.
 */
#include <string.h>

#include "quant/blocks.h"
#include "quant/fit.h"
#include "quant/half.h"
#include "tandem/block.h"

enum { LEN = TDM_SUPERBLOCK_LEN };

/* Inputs are limited to f16's range: see convert.h. */
static const float input_limit = 65504;

static void load_weighted(const float *src, const float *importance, float *x, float *weights) {
    tdm_fit_load(src, x, LEN, input_limit);
    tdm_fit_weigh(x, importance, weights, LEN);
}

/* Where the two-bit codes of q2_K and q3_K lie: byte and shift of element i. */
static int pair_byte(int i) {
    return 32 * (i / 128) + i % 32;
}
static int pair_shift(int i) {
    return 2 * (i % 128 / 32);
}

/* Where the nibbles of q4_K and q5_K lie. */
static int nibble_byte(int i) {
    return 32 * (i / 64) + i % 32;
}
static int nibble_shift(int i) {
    return i % 64 / 32 * 4;
}

/* Where the low nibbles of q6_K lie. */
static int q6_byte(int i) {
    return 64 * (i / 128) + i % 64;
}
static int q6_shift(int i) {
    return i % 128 / 64 * 4;
}

static void q4_K_pack_scales(const int16_t *scales, const int16_t *mins, uint8_t *bytes) {
    for (int s = 0; s < 4; s++) {
        bytes[s] = (uint8_t)(scales[s] | (scales[s + 4] >> 4) << 6);
        bytes[s + 4] = (uint8_t)(mins[s] | (mins[s + 4] >> 4) << 6);
        bytes[s + 8] = (uint8_t)((scales[s + 4] & 15) | (mins[s + 4] & 15) << 4);
    }
}

/* `scales` are -32 … 31; the bytes hold them with an offset of 32. */
static void q3_K_pack_scales(const int16_t *scales, uint8_t *bytes) {
    memset(bytes, 0, 12);
    for (int s = 0; s < 16; s++) {
        int value = scales[s] + 32;
        bytes[s % 8] |= (uint8_t)((value & 15) << s / 8 * 4);
        bytes[8 + s % 4] |= (uint8_t)((value >> 4) << s / 4 * 2);
    }
}

void tdm_q2_K_dequantize(const void *blocks, float *dst, int64_t n) {
    const tdm_block_q2_K *block = blocks;
    for (; n > 0; n -= LEN, dst += LEN, block++) {
        float d = tdm_f16_to_f32(block->d), dmin = tdm_f16_to_f32(block->dmin);
        for (int i = 0; i < LEN; i++) {
            uint8_t scale = block->scales[i / 16];
            int code = block->qs[pair_byte(i)] >> pair_shift(i) & 3;
            dst[i] = (d * (float)(scale & 15)) * (float)code - dmin * (float)(scale >> 4);
        }
    }
}

void tdm_q2_K_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q2_K *block = blocks;
    for (int64_t start = 0; start < n; start += LEN, block++) {
        float x[LEN], weights[LEN];
        tdm_fit_super fit;
        load_weighted(src + start, importance ? importance + start : NULL, x, weights);
        tdm_fit_super_scale_min(x, weights, 16, 3, 15, &fit);
        memset(block, 0, sizeof *block);
        block->d = fit.d;
        block->dmin = fit.dmin;
        for (int s = 0; s < 16; s++) {
            block->scales[s] = (uint8_t)(fit.scales[s] | fit.mins[s] << 4);
        }
        for (int i = 0; i < LEN; i++) {
            block->qs[pair_byte(i)] |= (uint8_t)(fit.codes[i] << pair_shift(i));
        }
    }
}

void tdm_q3_K_dequantize(const void *blocks, float *dst, int64_t n) {
    const tdm_block_q3_K *block = blocks;
    for (; n > 0; n -= LEN, dst += LEN, block++) {
        float d = tdm_f16_to_f32(block->d);
        for (int i = 0; i < LEN; i++) {
            int scale = tdm_q3_K_scale(block->scales, i / 16) - 32;
            int low = block->qs[pair_byte(i)] >> pair_shift(i) & 3;
            int code = low - (block->hmask[i % 32] >> i / 32 & 1 ? 0 : 4);
            dst[i] = (d * (float)scale) * (float)code;
        }
    }
}

void tdm_q3_K_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q3_K *block = blocks;
    tdm_fit_levels levels = {.lo = -4, .hi = 3};
    for (int64_t start = 0; start < n; start += LEN, block++) {
        float x[LEN], weights[LEN];
        tdm_fit_super fit;
        load_weighted(src + start, importance ? importance + start : NULL, x, weights);
        tdm_fit_super_scale(x, weights, 16, levels, -32, 31, &fit);
        memset(block, 0, sizeof *block);
        block->d = fit.d;
        q3_K_pack_scales(fit.scales, block->scales);
        for (int i = 0; i < LEN; i++) {
            int code = fit.codes[i] + 4;
            block->qs[pair_byte(i)] |= (uint8_t)((code & 3) << pair_shift(i));
            block->hmask[i % 32] |= (uint8_t)((code >> 2) << i / 32);
        }
    }
}

void tdm_q4_K_dequantize(const void *blocks, float *dst, int64_t n) {
    const tdm_block_q4_K *block = blocks;
    for (; n > 0; n -= LEN, dst += LEN, block++) {
        float d = tdm_f16_to_f32(block->d), dmin = tdm_f16_to_f32(block->dmin);
        for (int s = 0; s < 8; s++) {
            float scale = d * (float)tdm_q4_K_scale(block->scales, s);
            float min = dmin * (float)tdm_q4_K_min(block->scales, s);
            for (int i = 32 * s; i < 32 * s + 32; i++) {
                int code = block->qs[nibble_byte(i)] >> nibble_shift(i) & 15;
                dst[i] = scale * (float)code - min;
            }
        }
    }
}

void tdm_q4_K_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q4_K *block = blocks;
    for (int64_t start = 0; start < n; start += LEN, block++) {
        float x[LEN], weights[LEN];
        tdm_fit_super fit;
        load_weighted(src + start, importance ? importance + start : NULL, x, weights);
        tdm_fit_super_scale_min(x, weights, 32, 15, 63, &fit);
        memset(block, 0, sizeof *block);
        block->d = fit.d;
        block->dmin = fit.dmin;
        q4_K_pack_scales(fit.scales, fit.mins, block->scales);
        for (int i = 0; i < LEN; i++) {
            block->qs[nibble_byte(i)] |= (uint8_t)(fit.codes[i] << nibble_shift(i));
        }
    }
}

void tdm_q5_K_dequantize(const void *blocks, float *dst, int64_t n) {
    const tdm_block_q5_K *block = blocks;
    for (; n > 0; n -= LEN, dst += LEN, block++) {
        float d = tdm_f16_to_f32(block->d), dmin = tdm_f16_to_f32(block->dmin);
        for (int s = 0; s < 8; s++) {
            float scale = d * (float)tdm_q4_K_scale(block->scales, s);
            float min = dmin * (float)tdm_q4_K_min(block->scales, s);
            for (int i = 32 * s; i < 32 * s + 32; i++) {
                int low = block->qs[nibble_byte(i)] >> nibble_shift(i) & 15;
                int code = low | (block->qh[i % 32] >> s & 1) << 4;
                dst[i] = scale * (float)code - min;
            }
        }
    }
}

void tdm_q5_K_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q5_K *block = blocks;
    for (int64_t start = 0; start < n; start += LEN, block++) {
        float x[LEN], weights[LEN];
        tdm_fit_super fit;
        load_weighted(src + start, importance ? importance + start : NULL, x, weights);
        tdm_fit_super_scale_min(x, weights, 32, 31, 63, &fit);
        memset(block, 0, sizeof *block);
        block->d = fit.d;
        block->dmin = fit.dmin;
        q4_K_pack_scales(fit.scales, fit.mins, block->scales);
        for (int i = 0; i < LEN; i++) {
            block->qs[nibble_byte(i)] |= (uint8_t)((fit.codes[i] & 15) << nibble_shift(i));
            block->qh[i % 32] |= (uint8_t)((fit.codes[i] >> 4) << i / 32);
        }
    }
}

void tdm_q6_K_dequantize(const void *blocks, float *dst, int64_t n) {
    const tdm_block_q6_K *block = blocks;
    for (; n > 0; n -= LEN, dst += LEN, block++) {
        float d = tdm_f16_to_f32(block->d);
        for (int i = 0; i < LEN; i++) {
            int low = block->ql[q6_byte(i)] >> q6_shift(i) & 15;
            int high = block->qh[pair_byte(i)] >> pair_shift(i) & 3;
            dst[i] = (d * (float)block->scales[i / 16]) * (float)((low | high << 4) - 32);
        }
    }
}

void tdm_q6_K_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_q6_K *block = blocks;
    tdm_fit_levels levels = {.lo = -32, .hi = 31};
    for (int64_t start = 0; start < n; start += LEN, block++) {
        float x[LEN], weights[LEN];
        tdm_fit_super fit;
        load_weighted(src + start, importance ? importance + start : NULL, x, weights);
        tdm_fit_super_scale(x, weights, 16, levels, -128, 127, &fit);
        memset(block, 0, sizeof *block);
        block->d = fit.d;
        for (int s = 0; s < 16; s++) block->scales[s] = (int8_t)fit.scales[s];
        for (int i = 0; i < LEN; i++) {
            int code = fit.codes[i] + 32;
            block->ql[q6_byte(i)] |= (uint8_t)((code & 15) << q6_shift(i));
            block->qh[pair_byte(i)] |= (uint8_t)((code >> 4) << pair_shift(i));
        }
    }
}
