/* SPDX-License-Identifier: MIT
 *
 * convert.h: rows of f32 to rows of any floating-point or quantised type, and back.
 *
 * Dequantisation is the reference for everything that computes with blocks: it evaluates the
 * formulas of tandem/block.h, in plain C, one rounded f32 operation after the other, so that its
 * results are bit for bit those of ggml. Quantisation chooses the codes; a later version may choose
 * better ones, but the format stays. i8 and i32 are not converted: they hold counts and ids, not
 * numbers to be scaled.
 *
 * Non-finite and huge numbers. f32, f16 and bf16 follow IEEE 754. For the quantised types a NaN
 * counts as 0, and an infinity, or a number beyond what a scale can express, counts as the largest
 * such number of its sign: the limit is 65504 (f16's range), but 8, 16 and 127 times that for q4_0,
 * q5_0 and q8_0. A quantised row therefore never dequantises to a NaN or an infinity.
 */
#ifndef TANDEM_BASE_CONVERT_H
#define TANDEM_BASE_CONVERT_H

#include <stdint.h>

#include "quant/half.h"
#include "tandem/block.h"
#include "tandem/status.h"
#include "tandem/type.h"

/* How to convert n elements, n a multiple of the type's block length and not negative. `blocks` is
 * aligned as the type needs (2 bytes; 4 for f32) and does not overlap the floats. */
typedef void (*tdm_row_dequantize_fn)(const void *blocks, float *dst, int64_t n);
typedef void (*tdm_row_quantize_fn)(const float *src, void *blocks, int64_t n,
                                    const float *importance);

typedef struct tdm_row_codec {
    tdm_row_dequantize_fn dequantize; /* NULL, like the other, where the type is not converted */
    tdm_row_quantize_fn quantize;
} tdm_row_codec;

/* The functions for a type; both NULL for one that is not converted. [any-thread] */
tdm_row_codec tdm_row_codec_get(tdm_type type);

/* dst[0 … n) = the row at src. TDM_UNSUPPORTED for a type that is not converted,
 * TDM_INVALID_ARGUMENT where n is negative or no multiple of the block length; dst is then
 * untouched. The caller, who knows the tensor's name, writes the message. [any-thread] */
tdm_status tdm_row_dequantize(tdm_type type, const void *src, float *dst, int64_t n);

/* Writes tdm_type_row_size(type, n) bytes to dst. `importance` is NULL or holds, for each of the n
 * elements, how much its squared error counts relative to the others' (positive and finite; usually
 * the same for all rows of a matrix); plain types ignore it. Fails like tdm_row_dequantize.
 * [any-thread] */
tdm_status tdm_row_quantize(tdm_type type, const float *src, void *dst, int64_t n,
                            const float *importance);

#endif
