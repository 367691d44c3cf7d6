/* SPDX-License-Identifier: MIT
 *
 * embedding.h: makes one vector of the hidden states of a text's tokens: pooling and normalisation,
 * on the host. Matrices that some models have between the two: projection.h. The states come from
 * llm_context_hidden of a context that gives embeddings.
 */
#ifndef LLM_EMBEDDING_H
#define LLM_EMBEDDING_H

#include "llm/model.h"

/* The numbers are those of the key ARCH.pooling_type (ggml-org/llama.cpp, include/llama.h). */
typedef enum llm_pooling {
    LLM_POOLING_NONE = 0, /* a vector for each token */
    LLM_POOLING_MEAN = 1, /* of all tokens */
    LLM_POOLING_CLS = 2,  /* of the first token */
    LLM_POOLING_LAST = 3, /* of the last token */
    LLM_POOLING_RANK = 4  /* scores instead of a vector (score.h) */
} llm_pooling;

/* The pooling that the file's key names. Without a key: none where a matrix gives vectors another
 * width than the model's (ColBERT), else the mean where tokens see later ones, else the last token;
 * *is_given_out is false. */
tdm_status llm_pooling_read(const llm_model *model, llm_pooling *pooling_out, bool *is_given_out,
                            tdm_error *err);

/* Writes the vector vector_out[n_embd] of rows[n_tok][n_embd], n_tok >= 1. `pooling` is MEAN, CLS
 * or LAST. The mean is computed in double precision. [any-thread] */
void llm_pool(llm_pooling pooling, const float *rows, int32_t n_tok, int32_t n_embd,
              float *vector_out);

/* Scales a vector in place:
 *   p < 0  not at all
 *   p = 0  so that the largest absolute value is 32760
 *   p > 0  so that (sum |x|^p)^(1/p) = 1; p = 2 is the Euclidean norm
 * A vector of zeros is not changed. [any-thread] */
void llm_embedding_normalize(float *vector, int32_t n, int32_t p);

#endif
