/* SPDX-License-Identifier: MIT
 *
 * projection.h: the matrices that some models for embeddings apply after the pooling, or to the
 * vector of each token (EmbeddingGemma: dense_2 and dense_3; LFM2 ColBERT: dense_2), computed on
 * the host. Pooling and normalisation: embedding.h.
 */
#ifndef LLM_PROJECTION_H
#define LLM_PROJECTION_H

#include "llm/model.h"

/* The matrices, in host memory as f32. */
typedef struct llm_projection llm_projection;

/* Reads the matrices of the model's file; *projection_out is NULL if it has none. The caller frees
 * it, before or after the model. TDM_DATA_LOSS if the first matrix does not read n_embd numbers or
 * the last does not give n_embd, or if two that follow each other do not fit. */
tdm_status llm_projection_read(const llm_model *model, llm_projection **projection_out,
                               tdm_error *err);
/* NULL is a no-op. */
void llm_projection_free(llm_projection *projection);
/* How many numbers llm_project leaves of n_embd: n_embd where projection is NULL. */
int32_t llm_projection_width(const llm_projection *projection, int32_t n_embd);
/* Multiplies a vector [n_embd], pooled or of one token, with the matrices one after the other, in
 * place: it has room for n_embd numbers and for llm_projection_width. projection NULL: the vector
 * is not changed. One thread at a time for each projection. */
void llm_project(llm_projection *projection, float *vector);

#endif
