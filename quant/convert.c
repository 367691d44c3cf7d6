/* SPDX-License-Identifier: MIT
 *
 * convert.c: the table of row conversions, and the rows of the plain types (f32, f16, bf16). The
 * blocks are in blocks_*.c.
 */
#include "quant/convert.h"

#include <string.h>

#include "quant/blocks.h"

static void f32_dequantize(const void *blocks, float *dst, int64_t n) {
    memcpy(dst, blocks, (size_t)n * sizeof *dst);
}

static void f32_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    (void)importance;
    memcpy(blocks, src, (size_t)n * sizeof *src);
}

static void f16_dequantize(const void *blocks, float *dst, int64_t n) {
    const uint16_t *half = blocks;
    for (int64_t i = 0; i < n; i++) dst[i] = tdm_f16_to_f32(half[i]);
}

static void f16_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    (void)importance;
    uint16_t *half = blocks;
    for (int64_t i = 0; i < n; i++) half[i] = tdm_f32_to_f16(src[i]);
}

static void bf16_dequantize(const void *blocks, float *dst, int64_t n) {
    const uint16_t *half = blocks;
    for (int64_t i = 0; i < n; i++) dst[i] = tdm_bf16_to_f32(half[i]);
}

static void bf16_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    (void)importance;
    uint16_t *half = blocks;
    for (int64_t i = 0; i < n; i++) half[i] = tdm_f32_to_bf16(src[i]);
}

static const tdm_row_codec row_codecs[TDM_TYPE_LIMIT_] = {
    [TDM_TYPE_F32] = {f32_dequantize, f32_quantize},
    [TDM_TYPE_F16] = {f16_dequantize, f16_quantize},
    [TDM_TYPE_BF16] = {bf16_dequantize, bf16_quantize},
    [TDM_TYPE_Q4_0] = {tdm_q4_0_dequantize, tdm_q4_0_quantize},
    [TDM_TYPE_Q4_1] = {tdm_q4_1_dequantize, tdm_q4_1_quantize},
    [TDM_TYPE_Q5_0] = {tdm_q5_0_dequantize, tdm_q5_0_quantize},
    [TDM_TYPE_Q5_1] = {tdm_q5_1_dequantize, tdm_q5_1_quantize},
    [TDM_TYPE_Q8_0] = {tdm_q8_0_dequantize, tdm_q8_0_quantize},
    [TDM_TYPE_Q2_K] = {tdm_q2_K_dequantize, tdm_q2_K_quantize},
    [TDM_TYPE_Q3_K] = {tdm_q3_K_dequantize, tdm_q3_K_quantize},
    [TDM_TYPE_Q4_K] = {tdm_q4_K_dequantize, tdm_q4_K_quantize},
    [TDM_TYPE_Q5_K] = {tdm_q5_K_dequantize, tdm_q5_K_quantize},
    [TDM_TYPE_Q6_K] = {tdm_q6_K_dequantize, tdm_q6_K_quantize},
    [TDM_TYPE_IQ4_NL] = {tdm_iq4_nl_dequantize, tdm_iq4_nl_quantize},
    [TDM_TYPE_IQ4_XS] = {tdm_iq4_xs_dequantize, tdm_iq4_xs_quantize},
    [TDM_TYPE_MXFP4] = {tdm_mxfp4_dequantize, tdm_mxfp4_quantize},
    [TDM_TYPE_IQ2_XXS] = {tdm_iq2_xxs_dequantize, tdm_iq2_xxs_quantize},
    [TDM_TYPE_IQ2_XS] = {tdm_iq2_xs_dequantize, tdm_iq2_xs_quantize},
    [TDM_TYPE_IQ2_S] = {tdm_iq2_s_dequantize, tdm_iq2_s_quantize},
    [TDM_TYPE_IQ3_XXS] = {tdm_iq3_xxs_dequantize, tdm_iq3_xxs_quantize},
    [TDM_TYPE_IQ3_S] = {tdm_iq3_s_dequantize, tdm_iq3_s_quantize},
    [TDM_TYPE_IQ1_S] = {tdm_iq1_s_dequantize, tdm_iq1_s_quantize},
    [TDM_TYPE_IQ1_M] = {tdm_iq1_m_dequantize, tdm_iq1_m_quantize},
    [TDM_TYPE_TQ1_0] = {tdm_tq1_0_dequantize, tdm_tq1_0_quantize},
    [TDM_TYPE_TQ2_0] = {tdm_tq2_0_dequantize, tdm_tq2_0_quantize},
};

tdm_row_codec tdm_row_codec_get(tdm_type type) {
    tdm_row_codec none = {NULL, NULL};
    return (unsigned)type < TDM_TYPE_LIMIT_ ? row_codecs[type] : none;
}

static tdm_status row_check(tdm_type type, int64_t n) {
    if (tdm_row_codec_get(type).dequantize == NULL) return TDM_UNSUPPORTED;
    if (n < 0 || n % tdm_type_get_info(type).block_len != 0) return TDM_INVALID_ARGUMENT;
    return TDM_OK;
}

tdm_status tdm_row_dequantize(tdm_type type, const void *src, float *dst, int64_t n) {
    tdm_status status = row_check(type, n);
    if (status == TDM_OK && n > 0) row_codecs[type].dequantize(src, dst, n);
    return status;
}

tdm_status tdm_row_quantize(tdm_type type, const float *src, void *dst, int64_t n,
                            const float *importance) {
    tdm_status status = row_check(type, n);
    if (status == TDM_OK && n > 0) row_codecs[type].quantize(src, dst, n, importance);
    return status;
}
