/* SPDX-License-Identifier: MIT
 *
 * quantize.h: the step that makes bytes of a product's x, for kernels with integer dot products, or
 * f16, for kernels on matrix hardware. With gpu_product_tuning.rows_quantize the step that computes x
 * stores the bytes too, where it can.
 * The rows of x follow each other as the product's columns do: first those of matrix 0.
 */
#ifndef TANDEM_GPU_QUANTIZE_H
#define TANDEM_GPU_QUANTIZE_H

#include "plugins/gpu/ops/product.h"

/* Rows of x that a product reads. */
int64_t gpu_quantize_rows(const gpu_product *p);

/* p's x as bytes, or as f16. Where no earlier product has them (gpu_product.form_of,
 * gpu_product.bytes), appends the step that makes them, or changes the one that computes x. For bytes,
 * x's rows are whole groups of 32 elements. */
tdm_status gpu_quantize_emit(gpu_emit *e, const gpu_product *p, bool is_f16, gpu_operand *bytes_out,
                             tdm_error *err);

/* Whether a step that computes values stores them as bytes too. It depends on the step's kernel and its
 * specialisation alone. [any-thread] */
bool gpu_step_stores_bytes(const gpu_step *step);

#endif
