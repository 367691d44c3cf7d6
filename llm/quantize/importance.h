/* SPDX-License-Identifier: MIT
 *
 * importance.h: importance matrices: for each input of a matrix the mean square of its values on a
 * text. Quantising weighs the errors of weights by it.
 *
 * The file is llama.cpp's GGUF form (ggml-org/llama.cpp, tools/imatrix/README.md): general.type
 * "imatrix"; for a matrix NAME the tensors NAME.in_sum2, f32 [inputs][experts], sums of squares,
 * and NAME.counts, f32 [1][experts], the number of tokens in each sum. Several files are added up.
 */
#ifndef LLM_QUANTIZE_IMPORTANCE_H
#define LLM_QUANTIZE_IMPORTANCE_H

#include "llm/gguf/gguf.h"

typedef struct llm_importance llm_importance;

/* Reads and adds up n files, at least one.
 * TDM_DATA_LOSS names the file and the tensor if it is no such file, if sums or counts are missing,
 * negative or not finite, or if files disagree in shapes. The caller owns *out
 * (llm_importance_destroy). [setup] */
tdm_status llm_importance_read(const char *const *paths, size_t n, llm_importance **out,
                               tdm_error *err);

/* NULL is a no-op. [setup] */
void llm_importance_destroy(llm_importance *importance);

/* The number of matrices in it. [any-thread] */
size_t llm_importance_count(const llm_importance *importance);

/* Sets *values_out to the mean squares [ne[2]][ne[0]] for a matrix of a model, all positive, or to
 * NULL if there are none; `importance` owns them. An expert that got no token has ones.
 * TDM_FAILED_PRECONDITION names the tensor if the matrix has other sizes: it is of another model.
 * [any-thread] */
tdm_status llm_importance_find(const llm_importance *importance, const llm_gguf_tensor *tensor,
                               const float **values_out, tdm_error *err);

#endif
