/* SPDX-License-Identifier: MIT
 *
 * quantize.h: converts x of a product: to bytes for kernels with integer dot products, to f16 for
 * kernels on matrix hardware. Either a step of its own does it or, with
 * gpu_product_tuning.rows_quantize, the step that computes x stores the bytes too.
 * The converted rows are in the order of the product's columns: first those of matrix 0.
 */
#ifndef TANDEM_GPU_QUANTIZE_H
#define TANDEM_GPU_QUANTIZE_H

#include "plugins/gpu/ops/product.h"

/* Rows of x that a product reads, of all matrices. */
int64_t gpu_quantize_rows(const gpu_product *p);

/* *bytes_out: p's x as bytes or, with is_f16, as f16, in scratch. Where no earlier product has made
 * them (gpu_product.form_of, gpu_product.bytes), appends the step that makes them, or changes the
 * step that computes x. For bytes k is a multiple of 32. */
tdm_status gpu_quantize_emit(gpu_emit *e, const gpu_product *p, bool is_f16, gpu_operand *bytes_out,
                             tdm_error *err);

/* True where a step stores the values that it computes as bytes, too. By its kernel and its
 * specialisation alone. [any-thread] */
bool gpu_step_stores_bytes(const gpu_step *step);

#endif
