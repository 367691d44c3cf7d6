/* SPDX-License-Identifier: MIT
 *
 * dense.h: a matrix of a model's file that the host multiplies single vectors with: what stands
 * behind the pooling of hidden states (projection.h, score.h).
 */
#ifndef LLM_DENSE_H
#define LLM_DENSE_H

#include "llm/model.h"

/* All 0 = none. */
typedef struct llm_dense {
    int32_t n_in, n_out;
    float *rows; /* [n_out][n_in] */
} llm_dense;

/* A tensor with at most two axes, of any type of weights, as f32. The caller frees it.
 * TDM_DATA_LOSS where it is no such matrix. */
tdm_status llm_dense_read(const llm_model *model, const llm_gguf_tensor *tensor, llm_dense *out,
                          tdm_error *err);
void llm_dense_free(llm_dense *dense);
/* y[n_out] = rows x + bias; bias NULL = 0. Sums are in double precision. [any-thread] */
void llm_dense_apply(const llm_dense *dense, const float *x, const float *bias, float *y);

#endif
