/* SPDX-License-Identifier: MIT
 *
 * projection.h: the matrices that some models for embeddings have behind the pooling (EmbeddingGemma:
 * dense_2 and dense_3), computed on the host. Pooling and normalisation: embedding.h.
 */
#ifndef LLM_PROJECTION_H
#define LLM_PROJECTION_H

#include "llm/model.h"

/* The matrices, in memory as f32. */
typedef struct llm_projection llm_projection;

/* Those of the model's file, dense_2 and dense_3 (EmbeddingGemma); *projection_out is NULL where it
 * has none. The caller frees it; it does not depend on the model. TDM_DATA_LOSS where they do not
 * lead from n_embd numbers to n_embd. */
tdm_status llm_projection_read(const llm_model *model, llm_projection **projection_out,
                               tdm_error *err);
/* NULL is a no-op. */
void llm_projection_free(llm_projection *projection);
/* Takes a vector [n_embd], pooled or of a token, through the matrices, in place; NULL leaves it as
 * it is. One thread at a time for each projection. */
void llm_project(llm_projection *projection, float *vector);

#endif
