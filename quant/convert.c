/* SPDX-License-Identifier: MIT
 *
 * convert.c: the table of row conversions, and the rows of the plain types (f32, f16, bf16). The
 * blocks are in blocks_*.c.
 */
#include "quant/convert.h"

#include <string.h>

#include "quant/blocks.h"

void tdm_f32_dequantize(const void *blocks, float *dst, int64_t n) {
    memcpy(dst, blocks, (size_t)n * sizeof *dst);
}

void tdm_f32_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    (void)importance;
    memcpy(blocks, src, (size_t)n * sizeof *src);
}

void tdm_f16_dequantize(const void *blocks, float *dst, int64_t n) {
    const uint16_t *half = blocks;
    for (int64_t i = 0; i < n; i++) dst[i] = tdm_f16_to_f32(half[i]);
}

void tdm_f16_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    (void)importance;
    uint16_t *half = blocks;
    for (int64_t i = 0; i < n; i++) half[i] = tdm_f32_to_f16(src[i]);
}

void tdm_bf16_dequantize(const void *blocks, float *dst, int64_t n) {
    const uint16_t *half = blocks;
    for (int64_t i = 0; i < n; i++) dst[i] = tdm_bf16_to_f32(half[i]);
}

void tdm_bf16_quantize(const float *src, void *blocks, int64_t n, const float *importance) {
    (void)importance;
    uint16_t *half = blocks;
    for (int64_t i = 0; i < n; i++) half[i] = tdm_f32_to_bf16(src[i]);
}

#define CODEC_FLOAT(name)                                                                          \
    { tdm_##name##_dequantize, tdm_##name##_quantize }
#define CODEC_BLOCK CODEC_FLOAT
#define CODEC_INTEGER(name)                                                                        \
    { NULL, NULL }
#define CODEC_(ID, name, number, kind, ...) [TDM_TYPE_##ID] = CODEC_##kind(name),
static const tdm_row_codec row_codecs[TDM_TYPE_LIMIT_] = {TDM_TYPE_LIST(CODEC_)};

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
