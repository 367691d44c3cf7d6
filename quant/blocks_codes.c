/* SPDX-License-Identifier: MIT
 *
 * blocks_codes.c: rows of the types that are codes times scales (codes.h) to f32, and f32 to mxfp4,
 * nvfp4, tq1_0 and tq2_0. blocks_grid.c quantises to points of a grid.
 */
#include "quant/codes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/blocks.h"
#include "quant/fit.h"
#include "quant/half.h"

enum { LEN = TDM_BLOCK_LEN, SUPER = TDM_SUPERBLOCK_LEN, NV_LEN = 16 };

/* Inputs are limited to f16's range: see convert.h. */
static const float input_limit = 65504;

static void dequantize(tdm_type type, const uint8_t *block, float *dst, int64_t n) {
    tdm_codes_fn codes_get = tdm_codes_get(type);
    tdm_type_info info = tdm_type_get_info(type);
    for (; n > 0; n -= info.block_len, dst += info.block_len, block += info.block_size) {
        int8_t code[SUPER];
        float scale[SUPER / 16];
        codes_get(block, code, scale);
        for (int i = 0; i < info.block_len; i++) dst[i] = scale[i / 16] * (float)code[i];
    }
}

#define DEQUANTIZE_(name, TYPE)                                                                    \
    void tdm_##name##_dequantize(const void *blocks, float *dst, int64_t n) {                      \
        dequantize(TDM_TYPE_##TYPE, blocks, dst, n);                                               \
    }
DEQUANTIZE_(mxfp4, MXFP4)
DEQUANTIZE_(nvfp4, NVFP4)
DEQUANTIZE_(iq2_xxs, IQ2_XXS)
DEQUANTIZE_(iq2_xs, IQ2_XS)
DEQUANTIZE_(iq2_s, IQ2_S)
DEQUANTIZE_(iq3_xxs, IQ3_XXS)
DEQUANTIZE_(iq3_s, IQ3_S)
DEQUANTIZE_(iq1_s, IQ1_S)
DEQUANTIZE_(iq1_m, IQ1_M)
DEQUANTIZE_(tq1_0, TQ1_0)
DEQUANTIZE_(tq2_0, TQ2_0)
#undef DEQUANTIZE_

/* ---- mxfp4 and nvfp4 ------------------------------------------------------------------------ */

/* The code whose level is nearest to value; of two equally near ones, the smaller. */
static int fp4_nearest(float value) {
    static const float mids[7] = {0.5f, 1.5f, 2.5f, 3.5f, 5, 7, 10};
    float size = fabsf(value);
    int code = 0;
    while (code < 7 && size > mids[code]) code++;
    return value < 0 && code > 0 ? code | 8 : code;
}

/* Of n elements with this scale, which is not 0. */
static float fp4_error(const float *x, const float *weights, int n, float scale) {
    static const int8_t values[16] = TDM_MXFP4_VALUES;
    float error = 0;
    for (int i = 0; i < n; i++) {
        float rest = x[i] - scale * (float)values[fp4_nearest(x[i] / scale)];
        error += weights[i] * rest * rest;
    }
    return error;
}

static float peak_of(const float *x, int n) {
    float peak = 0;
    for (int i = 0; i < n; i++) peak = fmaxf(peak, fabsf(x[i]));
    return peak;
}

/* The OCP specification suggests the scale that puts the largest element into the top binade of
 * E2M1, where it may be clipped. That scale and its neighbours are tried. */
static uint8_t mxfp4_scale_find(const float *x, const float *weights) {
    float peak = peak_of(x, LEN);
    if (!(peak > 0x1p-100f)) return 0;
    int exponent;
    (void)frexpf(peak, &exponent); /* peak = [0.5, 1) * 2^exponent */
    int first = exponent - 3 + 127, best = first;
    float least = fp4_error(x, weights, LEN, tdm_mxfp4_scale((uint8_t)first));
    for (int e = first - 1; e <= first + 1; e += 2) {
        float error = fp4_error(x, weights, LEN, tdm_mxfp4_scale((uint8_t)e));
        if (error < least) least = error, best = e;
    }
    return (uint8_t)best;
}

void tdm_mxfp4_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_mxfp4 *block = blocks;
    for (int64_t start = 0; start < n; start += LEN, block++) {
        float x[LEN], weights[LEN];
        tdm_fit_load(src + start, x, LEN, input_limit);
        tdm_fit_weigh(x, importance ? importance + start : NULL, weights, LEN);
        memset(block, 0, sizeof *block);
        block->e = mxfp4_scale_find(x, weights);
        float scale = tdm_mxfp4_scale(block->e);
        for (int i = 0; i < LEN && block->e > 0; i++) {
            block->qs[i % 16] |= (uint8_t)(fp4_nearest(x[i] / scale) << i / 16 * 4);
        }
    }
}

/* The scale of 16 elements with the least error. The largest element is between the levels 12 and
 * 8, or a little beyond 12, where it is clipped: scales are an eighth of a binade apart or less. */
static uint8_t nvfp4_scale_find(const float *x, const float *weights) {
    enum { LARGEST = 0x7e };
    const float peak = peak_of(x, NV_LEN);
    int first = 1, best = 0;
    while (first < LARGEST && 13 * tdm_nvfp4_scale((uint8_t)first) < peak) first++;
    float least = 0;
    for (int i = 0; i < NV_LEN; i++) least += weights[i] * x[i] * x[i];
    for (int e = first; e <= LARGEST; e++) {
        const float scale = tdm_nvfp4_scale((uint8_t)e);
        const float error = fp4_error(x, weights, NV_LEN, scale);
        if (error < least) least = error, best = e;
        if (8 * scale > peak) break;
    }
    return (uint8_t)best;
}

void tdm_nvfp4_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_nvfp4 *block = blocks;
    for (int64_t start = 0; start < n; start += 4 * NV_LEN, block++) {
        memset(block, 0, sizeof *block);
        for (int s = 0; s < 4; s++) {
            float x[NV_LEN], weights[NV_LEN];
            const int64_t at = start + NV_LEN * s;
            tdm_fit_load(src + at, x, NV_LEN, input_limit);
            tdm_fit_weigh(x, importance ? importance + at : NULL, weights, NV_LEN);
            block->scales[s] = nvfp4_scale_find(x, weights);
            float scale = tdm_nvfp4_scale(block->scales[s]);
            for (int i = 0; i < NV_LEN && scale > 0; i++)
                block->qs[8 * s + i % 8] |= (uint8_t)(fp4_nearest(x[i] / scale) << i / 8 * 4);
        }
    }
}

/* ---- trits ---------------------------------------------------------------------------------- */

typedef struct weighed {
    float size, weight;
} weighed;

static int weighed_compare(const void *a, const void *b) {
    float x = ((const weighed *)a)->size, y = ((const weighed *)b)->size;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* x[i] ~ d * (code[i] - 1). For any d the best code is 0 or 2 where |x[i]| > d / 2, else 1. So the
 * elements with codes 0 and 2 are the m largest, for some m. The best d for them is their weighted
 * mean, and the error is then less by (sum w |x|)^2 / sum w; all m are tried. */
static tdm_f16 trits_fit(const float *x, const float *weights, uint8_t *code) {
    weighed sorted[SUPER];
    float sum = 0, weight = 0, best_gain = 0, best = 0;
    for (int i = 0; i < SUPER; i++) sorted[i] = (weighed){fabsf(x[i]), weights[i]};
    qsort(sorted, SUPER, sizeof *sorted, weighed_compare);
    for (int m = 0; m < SUPER; m++) {
        sum += sorted[m].weight * sorted[m].size;
        weight += sorted[m].weight;
        float gain = weight > 0 ? sum / weight * sum : 0;
        if (gain > best_gain) best_gain = gain, best = sum / weight;
    }
    tdm_f16 d = tdm_f32_to_f16(best);
    float half = tdm_f16_to_f32(d) / 2;
    for (int i = 0; i < SUPER; i++) {
        code[i] = half == 0 || !(fabsf(x[i]) > half) ? 1 : x[i] > 0 ? 2 : 0;
    }
    return d;
}

/* Packs n codes, `step` apart, into a byte: their number to the base 3 times 256 / 3^5, rounded up,
 * so that tdm_tq1_0_trit gives the codes again. */
static uint8_t trits_pack(const uint8_t *code, int step, int n) {
    int number = 0;
    for (int k = 0; k < 5; k++) number = number * 3 + (k < n ? code[k * step] : 0);
    return (uint8_t)((number * 256 + 242) / 243);
}

static void tq1_0_pack(const uint8_t *code, tdm_block_tq1_0 *block) {
    for (int j = 0; j < 32; j++) block->qs[j] = trits_pack(code + j, 32, 5);
    for (int j = 0; j < 16; j++) block->qs[32 + j] = trits_pack(code + 160 + j, 16, 5);
    for (int j = 0; j < 4; j++) block->qh[j] = trits_pack(code + 240 + j, 4, 4);
}

static void tq2_0_pack(const uint8_t *code, tdm_block_tq2_0 *block) {
    memset(block->qs, 0, sizeof block->qs);
    for (int i = 0; i < SUPER; i++) {
        block->qs[32 * (i / 128) + i % 32] |= (uint8_t)(code[i] << i % 128 / 32 * 2);
    }
}

static tdm_f16 trits_quantize(const float *src, const float *importance, uint8_t *code) {
    float x[SUPER], weights[SUPER];
    tdm_fit_load(src, x, SUPER, input_limit);
    tdm_fit_weigh(x, importance, weights, SUPER);
    return trits_fit(x, weights, code);
}

void tdm_tq1_0_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_tq1_0 *block = blocks;
    for (int64_t start = 0; start < n; start += SUPER, block++) {
        uint8_t code[SUPER];
        block->d = trits_quantize(src + start, importance ? importance + start : NULL, code);
        tq1_0_pack(code, block);
    }
}

void tdm_tq2_0_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    tdm_block_tq2_0 *block = blocks;
    for (int64_t start = 0; start < n; start += SUPER, block++) {
        uint8_t code[SUPER];
        block->d = trits_quantize(src + start, importance ? importance + start : NULL, code);
        tq2_0_pack(code, block);
    }
}
