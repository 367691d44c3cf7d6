/* SPDX-License-Identifier: MIT
 *
 * blocks_iq4.c: iq4_nl and iq4_xs, 4-bit indices into a fixed non-linear codebook. Layout and
 * formulas: tandem/block.h. fit.h searches for scales and codes; this file packs them.
 */
#include <string.h>

#include "quant/blocks.h"
#include "quant/fit.h"
#include "quant/half.h"
#include "tandem/block.h"

enum { LEN = TDM_BLOCK_LEN, SUPER = TDM_SUPERBLOCK_LEN, HALF = LEN / 2 };

/* Inputs are limited to f16's range: see convert.h. */
static const float input_limit = 65504;

static const int8_t values[16] = TDM_IQ4_VALUES;
static const tdm_fit_levels levels = {.is_iq4 = true};

static void unpack(const uint8_t *qs, float scale, float *dst) {
    for (int j = 0; j < HALF; j++) {
        dst[j] = scale * (float)values[qs[j] & 15];
        dst[j + HALF] = scale * (float)values[qs[j] >> 4];
    }
}

static void pack(const int8_t *codes, uint8_t *qs) {
    for (int j = 0; j < HALF; j++) qs[j] = (uint8_t)(codes[j] | codes[j + HALF] << 4);
}

void tdm_iq4_nl_dequantize(const void *blocks, float *dst, int64_t n) {
    const tdm_block_iq4_nl *block = blocks;
    for (; n > 0; n -= LEN, dst += LEN, block++) unpack(block->qs, tdm_f16_to_f32(block->d), dst);
}

void tdm_iq4_nl_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_iq4_nl *block = blocks;
    for (int64_t start = 0; start < n; start += LEN, block++) {
        float x[LEN], weights[LEN];
        int8_t codes[LEN];
        tdm_fit_load(src + start, x, LEN, input_limit);
        tdm_fit_weigh(x, importance ? importance + start : NULL, weights, LEN);
        block->d = tdm_fit_scale(x, weights, LEN, levels, codes);
        pack(codes, block->qs);
    }
}

void tdm_iq4_xs_dequantize(const void *blocks, float *dst, int64_t n) {
    const tdm_block_iq4_xs *block = blocks;
    for (; n > 0; n -= SUPER, dst += SUPER, block++) {
        float d = tdm_f16_to_f32(block->d);
        for (int s = 0; s < 8; s++) {
            float scale = d * (float)(tdm_iq4_xs_scale(block, s) - 32);
            unpack(block->qs + HALF * s, scale, dst + LEN * s);
        }
    }
}

void tdm_iq4_xs_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_iq4_xs *block = blocks;
    for (int64_t start = 0; start < n; start += SUPER, block++) {
        float x[SUPER], weights[SUPER];
        tdm_fit_super fit;
        tdm_fit_load(src + start, x, SUPER, input_limit);
        tdm_fit_weigh(x, importance ? importance + start : NULL, weights, SUPER);
        tdm_fit_super_scale(x, weights, LEN, levels, -32, 31, &fit);
        memset(block, 0, sizeof *block);
        block->d = fit.d;
        for (int s = 0; s < 8; s++) {
            int scale = fit.scales[s] + 32;
            block->scales_l[s / 2] |= (uint8_t)((scale & 15) << s % 2 * 4);
            block->scales_h |= (uint16_t)((scale >> 4) << 2 * s);
            pack(fit.codes + LEN * s, block->qs + HALF * s);
        }
    }
}
