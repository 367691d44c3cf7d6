/* SPDX-License-Identifier: MIT
 *
 * type.h: the types that a tensor's elements can have, and how many bytes they take.
 *
 * A quantised type stores `tdm_type_block_len` consecutive elements of a row in one block of
 * `tdm_type_block_size` bytes; the bytes themselves are described in block.h. Numbers are those
 * of the GGUF specification (ggml-org/ggml, docs/gguf.md, `enum ggml_type`), so that a file's
 * type field needs no translation. Conversions live in the plugins, not here.
 */
#ifndef TANDEM_TYPE_H
#define TANDEM_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tdm_type {
    TDM_TYPE_F32 = 0,
    TDM_TYPE_F16 = 1, /* IEEE 754 binary16 */
    TDM_TYPE_Q4_0 = 2,
    TDM_TYPE_Q4_1 = 3,
    TDM_TYPE_Q5_0 = 6,
    TDM_TYPE_Q5_1 = 7,
    TDM_TYPE_Q8_0 = 8,
    TDM_TYPE_Q2_K = 10,
    TDM_TYPE_Q3_K = 11,
    TDM_TYPE_Q4_K = 12,
    TDM_TYPE_Q5_K = 13,
    TDM_TYPE_Q6_K = 14,
    TDM_TYPE_IQ2_XXS = 16,
    TDM_TYPE_IQ2_XS = 17,
    TDM_TYPE_IQ3_XXS = 18,
    TDM_TYPE_IQ1_S = 19,
    TDM_TYPE_IQ4_NL = 20,
    TDM_TYPE_IQ3_S = 21,
    TDM_TYPE_IQ2_S = 22,
    TDM_TYPE_IQ4_XS = 23,
    TDM_TYPE_I8 = 24,
    TDM_TYPE_I32 = 26,
    TDM_TYPE_IQ1_M = 29,
    TDM_TYPE_BF16 = 30,
    TDM_TYPE_TQ1_0 = 34,
    TDM_TYPE_TQ2_0 = 35,
    TDM_TYPE_MXFP4 = 39,
    TDM_TYPE_LIMIT_ = 64 /* every type's number is below this; holes are not types */
} tdm_type;

typedef struct tdm_type_info {
    const char *name; /* as llama.cpp's users write it ("q4_K"); NULL where the number is no type */
    int32_t block_len;  /* elements in a block; 1 for a plain type */
    int32_t block_size; /* bytes in a block */
    bool is_quantized;
} tdm_type_info;

/* Facts about a type; name == NULL for a number that is not one. [any-thread] */
static inline tdm_type_info tdm_type_get_info(tdm_type type) {
    tdm_type_info info = {NULL, 1, 0, false};
#define TDM_TYPE_ROW_(id, text, len, size, quantized)                                              \
    case id:                                                                                       \
        info.name = text, info.block_len = len, info.block_size = size,                            \
        info.is_quantized = quantized;                                                             \
        break
    switch ((int)type) {
        TDM_TYPE_ROW_(TDM_TYPE_F32, "f32", 1, 4, false);
        TDM_TYPE_ROW_(TDM_TYPE_F16, "f16", 1, 2, false);
        TDM_TYPE_ROW_(TDM_TYPE_BF16, "bf16", 1, 2, false);
        TDM_TYPE_ROW_(TDM_TYPE_I8, "i8", 1, 1, false);
        TDM_TYPE_ROW_(TDM_TYPE_I32, "i32", 1, 4, false);
        TDM_TYPE_ROW_(TDM_TYPE_Q4_0, "q4_0", 32, 18, true);
        TDM_TYPE_ROW_(TDM_TYPE_Q4_1, "q4_1", 32, 20, true);
        TDM_TYPE_ROW_(TDM_TYPE_Q5_0, "q5_0", 32, 22, true);
        TDM_TYPE_ROW_(TDM_TYPE_Q5_1, "q5_1", 32, 24, true);
        TDM_TYPE_ROW_(TDM_TYPE_Q8_0, "q8_0", 32, 34, true);
        TDM_TYPE_ROW_(TDM_TYPE_IQ4_NL, "iq4_nl", 32, 18, true);
        TDM_TYPE_ROW_(TDM_TYPE_Q2_K, "q2_K", 256, 84, true);
        TDM_TYPE_ROW_(TDM_TYPE_Q3_K, "q3_K", 256, 110, true);
        TDM_TYPE_ROW_(TDM_TYPE_Q4_K, "q4_K", 256, 144, true);
        TDM_TYPE_ROW_(TDM_TYPE_Q5_K, "q5_K", 256, 176, true);
        TDM_TYPE_ROW_(TDM_TYPE_Q6_K, "q6_K", 256, 210, true);
        TDM_TYPE_ROW_(TDM_TYPE_IQ4_XS, "iq4_xs", 256, 136, true);
        TDM_TYPE_ROW_(TDM_TYPE_MXFP4, "mxfp4", 32, 17, true);
        TDM_TYPE_ROW_(TDM_TYPE_IQ2_XXS, "iq2_xxs", 256, 66, true);
        TDM_TYPE_ROW_(TDM_TYPE_IQ2_XS, "iq2_xs", 256, 74, true);
        TDM_TYPE_ROW_(TDM_TYPE_IQ2_S, "iq2_s", 256, 82, true);
        TDM_TYPE_ROW_(TDM_TYPE_IQ3_XXS, "iq3_xxs", 256, 98, true);
        TDM_TYPE_ROW_(TDM_TYPE_IQ3_S, "iq3_s", 256, 110, true);
        TDM_TYPE_ROW_(TDM_TYPE_IQ1_S, "iq1_s", 256, 50, true);
        TDM_TYPE_ROW_(TDM_TYPE_IQ1_M, "iq1_m", 256, 56, true);
        TDM_TYPE_ROW_(TDM_TYPE_TQ1_0, "tq1_0", 256, 54, true);
        TDM_TYPE_ROW_(TDM_TYPE_TQ2_0, "tq2_0", 256, 66, true);
    default: break;
    }
#undef TDM_TYPE_ROW_
    return info;
}

/* The type's name, or "?" for a number that is no type. [any-thread] */
static inline const char *tdm_type_name(tdm_type type) {
    const char *name = tdm_type_get_info(type).name;
    return name != NULL ? name : "?";
}

/* Bytes of a contiguous row of `n` elements; 0 where the type is unknown, n is negative or n is
 * not a multiple of the block length. n up to 2^50 cannot overflow. [any-thread] */
static inline size_t tdm_type_row_size(tdm_type type, int64_t n) {
    tdm_type_info info = tdm_type_get_info(type);
    if (info.name == NULL || n < 0 || n % info.block_len != 0) return 0;
    return (size_t)(n / info.block_len) * (size_t)info.block_size;
}

#ifdef __cplusplus
}
#endif

#endif
