/* SPDX-License-Identifier: MIT
 *
 * quantize.h: the step that makes bytes of a product's x, for kernels with integer dot products.
 * The rows of x follow each other as the product's columns do: first those of matrix 0.
 */
#ifndef TANDEM_GPU_QUANTIZE_H
#define TANDEM_GPU_QUANTIZE_H

#include "plugins/gpu/ops/product.h"

/* Rows of x that a product reads. */
int64_t gpu_quantize_rows(const gpu_product *p);

/* Bytes of p's x; appends the step that makes them where no earlier product has them
 * (gpu_product.form_of, gpu_product.bytes). x's rows are whole groups of 32 elements. */
tdm_status gpu_quantize_emit(gpu_emit *e, const gpu_product *p, gpu_operand *bytes_out,
                             tdm_error *err);

#endif
