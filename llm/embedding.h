/* SPDX-License-Identifier: MIT
 *
 * embedding.h: one vector for a text from the hidden states of its tokens: pooling and
 * normalisation, on the host. Matrices between these: projection.h. The states: llm_context_hidden
 * of a context that gives embeddings.
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

/* The pooling that the file's key names. Without a key: the mean where tokens see later ones, else
 * the last token, and *is_given_out is false. */
tdm_status llm_pooling_read(const llm_model *model, llm_pooling *pooling_out, bool *is_given_out,
                            tdm_error *err);

/* The vector [n_embd] of n_tok >= 1 rows [n_tok][n_embd]; not for LLM_POOLING_NONE and _RANK. The
 * mean is added in double precision. [any-thread] */
void llm_pool(llm_pooling pooling, const float *rows, int32_t n_tok, int32_t n_embd,
              float *vector_out);

/* Scales a vector in place:
 *   -1  not at all
 *    0  so that the largest absolute value is 32760
 *    p  so that (sum |x|^p)^(1/p) = 1: 2 = Euclidean
 * A vector of zeros stays one. [any-thread] */
void llm_embedding_normalize(float *vector, int32_t n, int32_t p);

#endif
