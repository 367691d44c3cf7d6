/* SPDX-License-Identifier: MIT
 *
 * dense.h: a matrix of a model's file in host memory, and its product with one vector. The steps
 * after the pooling of hidden states use it (projection.h, score.h).
 */
#ifndef LLM_DENSE_H
#define LLM_DENSE_H

#include "llm/model.h"

/* All 0 = none. */
typedef struct llm_dense {
    int32_t n_in, n_out;
    float *rows; /* [n_out][n_in] */
} llm_dense;

/* Reads a tensor with at most two axes, of any type of weights, as f32. The caller frees it with
 * llm_dense_free. TDM_DATA_LOSS if it is not such a matrix; *out is cleared on failure. */
tdm_status llm_dense_read(const llm_model *model, const llm_gguf_tensor *tensor, llm_dense *out,
                          tdm_error *err);
/* Frees and clears it; a cleared one is a no-op. */
void llm_dense_free(llm_dense *dense);
/* y[n_out] = rows x[n_in] + bias[n_out]; bias NULL = 0. Sums are in double precision.
 * [any-thread] */
void llm_dense_apply(const llm_dense *dense, const float *x, const float *bias, float *y);

#endif
