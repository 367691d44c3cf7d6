/* SPDX-License-Identifier: MIT
 *
 * codes.c: see codes.h. Layouts and formulas: tandem/block.h.
 */
#include "quant/codes.h"

#include <string.h>

#include "quant/grids.h"
#include "quant/half.h"

enum { SUPER = TDM_SUPERBLOCK_LEN, N_SUB = SUPER / 32 };

static uint32_t word_get(const uint8_t *p) {
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* n coordinates of a point, negative where the bit of `signs` is set. */
static void point_put(const void *point, int n, uint32_t signs, int8_t *code) {
    const uint8_t *p = point;
    for (int i = 0; i < n; i++) code[i] = (int8_t)(signs >> i & 1 ? -p[i] : p[i]);
}

/* scale[h] of iq2_xs and iq2_s from nibble h of `scales`, for elements 16 * h .. + 15. */
static void iq2_scales_get(tdm_f16 d_bits, const uint8_t scales[8], float *scale) {
    float d = tdm_f16_to_f32(d_bits);
    for (int h = 0; h < SUPER / 16; h++) {
        int nibble = scales[h / 2] >> h % 2 * 4 & 15;
        scale[h] = d * (0.5f + (float)nibble) * 0.25f;
    }
}

static void mxfp4_codes(const void *block, int8_t *code, float *scale) {
    static const int8_t values[16] = TDM_MXFP4_VALUES;
    const tdm_block_mxfp4 *b = block;
    scale[0] = scale[1] = tdm_mxfp4_scale(b->e);
    for (int j = 0; j < 16; j++) {
        code[j] = values[b->qs[j] & 15];
        code[j + 16] = values[b->qs[j] >> 4];
    }
}

static void nvfp4_codes(const void *block, int8_t *code, float *scale) {
    static const int8_t values[16] = TDM_MXFP4_VALUES;
    const tdm_block_nvfp4 *b = block;
    for (int s = 0; s < 4; s++, code += 16) {
        scale[s] = tdm_nvfp4_scale(b->scales[s]);
        for (int j = 0; j < 8; j++) {
            code[j] = values[b->qs[8 * s + j] & 15];
            code[j + 8] = values[b->qs[8 * s + j] >> 4];
        }
    }
}

static void iq2_xxs_codes(const void *block, int8_t *code, float *scale) {
    const tdm_grids *grids = tdm_grids_get();
    const tdm_block_iq2_xxs *b = block;
    float d = tdm_f16_to_f32(b->d);
    for (int s = 0; s < N_SUB; s++) {
        const uint8_t *qs = b->qs + 8 * s;
        uint32_t word = word_get(qs + 4);
        scale[2 * s] = scale[2 * s + 1] = d * (0.5f + (float)(word >> 28)) * 0.25f;
        for (int g = 0; g < 4; g++, code += 8) {
            point_put(&grids->iq2_xxs[qs[g]], 8, tdm_signs_of_7(word >> 7 * g & 127), code);
        }
    }
}

static void iq2_xs_codes(const void *block, int8_t *code, float *scale) {
    const tdm_grids *grids = tdm_grids_get();
    const tdm_block_iq2_xs *b = block;
    iq2_scales_get(b->d, b->scales, scale);
    for (int g = 0; g < SUPER / 8; g++, code += 8) {
        point_put(&grids->iq2_xs[b->qs[g] & 511], 8, tdm_signs_of_7(b->qs[g] >> 9), code);
    }
}

static void iq2_s_codes(const void *block, int8_t *code, float *scale) {
    const tdm_grids *grids = tdm_grids_get();
    const tdm_block_iq2_s *b = block;
    iq2_scales_get(b->d, b->scales, scale);
    for (int g = 0; g < SUPER / 8; g++, code += 8) {
        int index = b->qs[g] | (b->qh[g / 4] >> g % 4 * 2 & 3) << 8;
        point_put(&grids->iq2_s[index], 8, b->signs[g], code);
    }
}

static void iq3_xxs_codes(const void *block, int8_t *code, float *scale) {
    const tdm_grids *grids = tdm_grids_get();
    const tdm_block_iq3_xxs *b = block;
    const uint8_t *qs = b->qs;
    float d = tdm_f16_to_f32(b->d);
    for (int s = 0; s < N_SUB; s++) {
        uint32_t word = word_get(b->words + 4 * s);
        scale[2 * s] = scale[2 * s + 1] = d * (0.5f + (float)(word >> 28)) * 0.5f;
        for (int g = 0; g < 4; g++, code += 8, qs += 2) {
            uint32_t signs = tdm_signs_of_7(word >> 7 * g & 127);
            point_put(&grids->iq3_xxs[qs[0]], 4, signs, code);
            point_put(&grids->iq3_xxs[qs[1]], 4, signs >> 4, code + 4);
        }
    }
}

static void iq3_s_codes(const void *block, int8_t *code, float *scale) {
    const tdm_grids *grids = tdm_grids_get();
    const tdm_block_iq3_s *b = block;
    float d = tdm_f16_to_f32(b->d);
    for (int s = 0; s < N_SUB; s++) {
        int nibble = b->scales[s / 2] >> s % 2 * 4 & 15;
        scale[2 * s] = scale[2 * s + 1] = d * (float)(1 + 2 * nibble);
        for (int q = 0; q < 8; q++, code += 4) {
            int index = b->qs[8 * s + q] | (b->qh[s] >> q & 1) << 8;
            point_put(&grids->iq3_s[index], 4, b->signs[4 * s + q / 2] >> q % 2 * 4, code);
        }
    }
}

/* Codes are eight times v + o: -9 .. 9. An eighth of the scale loses nothing, d being an f16. */
static void iq1_point_put(int index, bool is_minus, int8_t *code) {
    const uint8_t *v = (const uint8_t *)&tdm_grids_get()->iq1[index];
    for (int i = 0; i < 8; i++) code[i] = (int8_t)(v[i] - 8 + (is_minus ? -1 : 1));
}

static void iq1_s_codes(const void *block, int8_t *code, float *scale) {
    const tdm_block_iq1_s *b = block;
    float d = tdm_f16_to_f32(b->d);
    for (int s = 0; s < N_SUB; s++) {
        int high = b->qh[s];
        scale[2 * s] = scale[2 * s + 1] = d * (float)(2 * (high >> 12 & 7) + 1) * 0.125f;
        for (int g = 0; g < 4; g++, code += 8) {
            iq1_point_put(b->qs[4 * s + g] | (high >> 3 * g & 7) << 8, high >> 15, code);
        }
    }
}

static void iq1_m_codes(const void *block, int8_t *code, float *scale) {
    const tdm_block_iq1_m *b = block;
    float d = tdm_f16_to_f32(tdm_iq1_m_d(b->scales));
    for (int h = 0; h < SUPER / 16; h++) {
        scale[h] = d * (float)(2 * tdm_iq1_m_scale(b->scales, h) + 1) * 0.125f;
    }
    for (int g = 0; g < SUPER / 8; g++, code += 8) {
        int nibble = b->qh[g / 2] >> g % 2 * 4 & 15;
        iq1_point_put(b->qs[g] | (nibble & 7) << 8, nibble >> 3, code);
    }
}

static void d_spread(tdm_f16 d, float *scale) {
    for (int h = 0; h < SUPER / 16; h++) scale[h] = tdm_f16_to_f32(d);
}

static void tq1_0_codes(const void *block, int8_t *code, float *scale) {
    const tdm_block_tq1_0 *b = block;
    d_spread(b->d, scale);
    for (int i = 0; i < 160; i++) code[i] = (int8_t)(tdm_tq1_0_trit(b->qs[i % 32], i / 32) - 1);
    for (int i = 0; i < 80; i++) {
        code[160 + i] = (int8_t)(tdm_tq1_0_trit(b->qs[32 + i % 16], i / 16) - 1);
    }
    for (int i = 0; i < 16; i++) {
        code[240 + i] = (int8_t)(tdm_tq1_0_trit(b->qh[i % 4], i / 4) - 1);
    }
}

static void tq2_0_codes(const void *block, int8_t *code, float *scale) {
    const tdm_block_tq2_0 *b = block;
    d_spread(b->d, scale);
    for (int i = 0; i < SUPER; i++) {
        code[i] = (int8_t)((b->qs[32 * (i / 128) + i % 32] >> i % 128 / 32 * 2 & 3) - 1);
    }
}

static const tdm_codes_fn functions[TDM_TYPE_LIMIT_] = {
    [TDM_TYPE_MXFP4] = mxfp4_codes,     [TDM_TYPE_IQ2_XXS] = iq2_xxs_codes,
    [TDM_TYPE_IQ2_XS] = iq2_xs_codes,   [TDM_TYPE_IQ2_S] = iq2_s_codes,
    [TDM_TYPE_IQ3_XXS] = iq3_xxs_codes, [TDM_TYPE_IQ3_S] = iq3_s_codes,
    [TDM_TYPE_IQ1_S] = iq1_s_codes,     [TDM_TYPE_IQ1_M] = iq1_m_codes,
    [TDM_TYPE_TQ1_0] = tq1_0_codes,     [TDM_TYPE_TQ2_0] = tq2_0_codes,
    [TDM_TYPE_NVFP4] = nvfp4_codes,
};

tdm_codes_fn tdm_codes_get(tdm_type type) {
    return (unsigned)type < TDM_TYPE_LIMIT_ ? functions[type] : NULL;
}
