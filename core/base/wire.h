/* SPDX-License-Identifier: MIT
 *
 * wire.h: the arithmetic of an EXCHANGE (tandem/collective.h), in plain C: how an addend is
 * converted for the wire, and what a sum of addends is, bit for bit. Faster variants give the same
 * bits. The caller waits for addends and passes their addresses.
 */
#ifndef TANDEM_BASE_WIRE_H
#define TANDEM_BASE_WIRE_H

#include "quant/convert.h"

/* Writes n elements as whole blocks of `type` (f32 f16 bf16 q8_0); the rest of the last block is
 * zeros. `x` and `wire` do not overlap. [any-thread] */
void tdm_wire_store(tdm_type type, const float *x, void *wire, int64_t n);

/* The same by a function that gives the bytes of tdm_row_quantize for `type`. [any-thread] */
void tdm_wire_store_by(tdm_row_quantize_fn quantize, tdm_type type, const float *x, void *wire,
                       int64_t n);

/* y[i] = sum over the n_addend addends, in their order, of element first + i, plus residual[i]
 * (NULL: none), for i in 0 .. n-1. Without addends the residual, or zeros. Operands, partial sums
 * and results below 2^-126 in magnitude become +0, NaNs of the result 0x7fc00000. addends[k] points
 * at element 0 of an addend as tdm_wire_store wrote it. y may be residual. [any-thread] */
void tdm_wire_sum(tdm_type type, const void *const *addends, int32_t n_addend, int64_t first,
                  int64_t n, const float *residual, float *y);

#endif
