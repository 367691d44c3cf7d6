/* SPDX-License-Identifier: MIT
 *
 * type.h: the types that a tensor's elements can have, and how many bytes they take.
 *
 * A quantised type stores `tdm_type_block_len` consecutive elements of a row in one block of
 * `tdm_type_block_size` bytes; the bytes themselves are described in block.h. Numbers are those of
 * the GGUF specification (ggml-org/ggml, docs/gguf.md, `enum ggml_type`), so that a file's type
 * field needs no translation. There are no conversions here: ours are in quant/, which the core and
 * our plugins link; a plugin that links nothing of Tandem has its own.
 */
#ifndef TANDEM_TYPE_H
#define TANDEM_TYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The one list of types: TYPE(ID, name, number, kind, block_len, block_size), in the order of their
 * numbers. Tables of types, here and elsewhere, expand from it.
 *   name        as llama.cpp's users write it, and in functions: tdm_<name>_dequantize
 *   kind        FLOAT    a number of IEEE 754, or bf16
 *               INTEGER  ids and bytes; never a weight
 *               BLOCK    quantised; block.h has tdm_block_<name>
 *   block_len   elements in a block; 1 for a plain type
 *   block_size  bytes in a block */
#define TDM_TYPE_LIST(TYPE)                                                                        \
    TYPE(F32, f32, 0, FLOAT, 1, 4)                                                                 \
    TYPE(F16, f16, 1, FLOAT, 1, 2)                                                                 \
    TYPE(Q4_0, q4_0, 2, BLOCK, 32, 18)                                                             \
    TYPE(Q4_1, q4_1, 3, BLOCK, 32, 20)                                                             \
    TYPE(Q5_0, q5_0, 6, BLOCK, 32, 22)                                                             \
    TYPE(Q5_1, q5_1, 7, BLOCK, 32, 24)                                                             \
    TYPE(Q8_0, q8_0, 8, BLOCK, 32, 34)                                                             \
    TYPE(Q2_K, q2_K, 10, BLOCK, 256, 84)                                                           \
    TYPE(Q3_K, q3_K, 11, BLOCK, 256, 110)                                                          \
    TYPE(Q4_K, q4_K, 12, BLOCK, 256, 144)                                                          \
    TYPE(Q5_K, q5_K, 13, BLOCK, 256, 176)                                                          \
    TYPE(Q6_K, q6_K, 14, BLOCK, 256, 210)                                                          \
    TYPE(IQ2_XXS, iq2_xxs, 16, BLOCK, 256, 66)                                                     \
    TYPE(IQ2_XS, iq2_xs, 17, BLOCK, 256, 74)                                                       \
    TYPE(IQ3_XXS, iq3_xxs, 18, BLOCK, 256, 98)                                                     \
    TYPE(IQ1_S, iq1_s, 19, BLOCK, 256, 50)                                                         \
    TYPE(IQ4_NL, iq4_nl, 20, BLOCK, 32, 18)                                                        \
    TYPE(IQ3_S, iq3_s, 21, BLOCK, 256, 110)                                                        \
    TYPE(IQ2_S, iq2_s, 22, BLOCK, 256, 82)                                                         \
    TYPE(IQ4_XS, iq4_xs, 23, BLOCK, 256, 136)                                                      \
    TYPE(I8, i8, 24, INTEGER, 1, 1)                                                                \
    TYPE(I32, i32, 26, INTEGER, 1, 4)                                                              \
    TYPE(IQ1_M, iq1_m, 29, BLOCK, 256, 56)                                                         \
    TYPE(BF16, bf16, 30, FLOAT, 1, 2)                                                              \
    TYPE(TQ1_0, tq1_0, 34, BLOCK, 256, 54)                                                         \
    TYPE(TQ2_0, tq2_0, 35, BLOCK, 256, 66)                                                         \
    TYPE(MXFP4, mxfp4, 39, BLOCK, 32, 17)                                                          \
    TYPE(NVFP4, nvfp4, 40, BLOCK, 64, 36)

typedef enum tdm_type {
/* clang-format off */
#define TDM_TYPE_ENUM_(ID, name, number, ...) TDM_TYPE_##ID = number,
    TDM_TYPE_LIST(TDM_TYPE_ENUM_)
#undef TDM_TYPE_ENUM_
    TDM_TYPE_LIMIT_ = 64 /* every type's number is below this; not every such number is a type */
    /* clang-format on */
} tdm_type;

typedef struct tdm_type_info {
    const char *name;   /* as llama.cpp's users write it ("q4_K"); NULL = no type has the number */
    int32_t block_len;  /* elements in a block; 1 for a plain type */
    int32_t block_size; /* bytes in a block */
    bool is_quantized;
} tdm_type_info;

/* What a type is. For a number that no type has, name is NULL and block_size 0. [any-thread] */
static inline tdm_type_info tdm_type_get_info(tdm_type type) {
    tdm_type_info info = {NULL, 1, 0, false};
#define TDM_TYPE_INTEGER_ false
#define TDM_TYPE_FLOAT_   false
#define TDM_TYPE_BLOCK_   true
#define TDM_TYPE_ROW_(ID, text, number, kind, len, size)                                           \
    case TDM_TYPE_##ID:                                                                            \
        info.name = #text, info.block_len = len, info.block_size = size;                           \
        info.is_quantized = TDM_TYPE_##kind##_;                                                    \
        break;
    switch ((int)type) {
        TDM_TYPE_LIST(TDM_TYPE_ROW_)
    default: break;
    }
#undef TDM_TYPE_ROW_
#undef TDM_TYPE_BLOCK_
#undef TDM_TYPE_FLOAT_
#undef TDM_TYPE_INTEGER_
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
