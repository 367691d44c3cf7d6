/* SPDX-License-Identifier: MIT
 *
 * quantize.h: converts a GGUF model to a file with smaller types for its matrices.
 *
 * There are two steps, so that a caller can show the choice first: choosing a type for every tensor
 * (quantize_mix.c), and writing the file (quantize.c). The choice equals that of llama.cpp's tool
 * (ggml-org/llama.cpp, src/llama-quant.cpp), with an importance matrix and without, so that files
 * of the same kind have the same types. Conversion of numbers: quant/.
 */
#ifndef LLM_QUANTIZE_H
#define LLM_QUANTIZE_H

#include "llm/gguf/gguf.h"
#include "llm/model.h"
#include "llm/quantize/importance.h"

/* The rule by which some matrices get a larger type than the others. */
typedef enum llm_quantize_mix {
    LLM_QUANTIZE_PLAIN, /* only the output matrix: q6_K; none if the type is not quantised */
    LLM_QUANTIZE_Q2_K,
    LLM_QUANTIZE_Q2_K_S,
    LLM_QUANTIZE_Q3_K_M,
    LLM_QUANTIZE_Q3_K_L,
    LLM_QUANTIZE_Q4_K_S,
    LLM_QUANTIZE_Q4_K_M,
    LLM_QUANTIZE_Q5_K_M,
    LLM_QUANTIZE_IQ4,
    LLM_QUANTIZE_Q3_K_S,
    LLM_QUANTIZE_MXFP4_MOE, /* the kind's type for experts, q8_0 for all other matrices */
    LLM_QUANTIZE_IQ3_M,
    LLM_QUANTIZE_IQ3_S,
    LLM_QUANTIZE_IQ3_XS,
    LLM_QUANTIZE_IQ3_XXS,
    LLM_QUANTIZE_IQ2_M, /* also of iq2_s */
    LLM_QUANTIZE_IQ2_XS,
    LLM_QUANTIZE_IQ1,
    LLM_QUANTIZE_TERNARY
} llm_quantize_mix;

typedef struct llm_quantize_kind {
    const char *name; /* "q4_K_M" */
    tdm_type type;    /* of most matrices */
    llm_quantize_mix mix;
    uint32_t file_type; /* value of general.file_type */
    /* matrices of other types, for messages; NULL = at most the output matrix */
    const char *mixture;
} llm_quantize_kind;

/* All kinds, largest first; constant. [any-thread] */
extern const llm_quantize_kind llm_quantize_kinds[];
extern const size_t n_llm_quantize_kinds;

/* The kind of that name in any case ("Q4_K" = q4_K_M, as in llama.cpp), or NULL. [any-thread] */
const llm_quantize_kind *llm_quantize_kind_find(const char *name);

/* Bits per element of the type, scales included. [any-thread] */
double llm_quantize_bits(tdm_type type);

typedef struct llm_quantize_choice {
    tdm_type type;
    tdm_type wanted; /* differs from `type` if the rows are not whole blocks of it */
} llm_quantize_choice;

/* Chooses a type for each tensor of the file: choices_out[llm_gguf_tensor_count]. Tensors that are
 * not matrices, norms, routers and other small tensors keep their types; `is_pure` gives all others
 * the type of the kind. With an importance matrix, `has_importance`, some mixtures have other
 * types. A matrix whose rows are not whole blocks of its type gets a type with shorter blocks, at
 * last f16. TDM_UNSUPPORTED if a tensor must be converted from a type that this build cannot read,
 * or the file is an adapter or an importance matrix.
 * [any-thread] */
tdm_status llm_quantize_choose(const llm_gguf *g, const llm_quantize_kind *kind, bool is_pure,
                               bool has_importance, llm_quantize_choice *choices_out,
                               tdm_error *err);

/* Writes `path` with n_thread threads (at least 1) and a few MiB of memory for each. Errors are
 * weighed by `importance` (nullable) in the matrices that it has; TDM_FAILED_PRECONDITION if it is
 * of another model. A split model becomes one file. `progress` (nullable) is called with the bytes
 * read, on the calling thread; returning false cancels. The file gets its name when it is complete;
 * on failure an older one is unchanged. TDM_DATA_LOSS if a tensor to be converted has numbers that
 * are not finite, or the model has become shorter since it was opened; TDM_OUT_OF_RANGE if f16 or
 * bf16 would make a number infinite; TDM_IO, TDM_CANCELLED, TDM_RESOURCE_EXHAUSTED. [setup] */
tdm_status llm_quantize_write(const llm_gguf *g, const llm_quantize_kind *kind,
                              const llm_quantize_choice *choices, const llm_importance *importance,
                              const char *path, int32_t n_thread, llm_progress_fn progress,
                              void *progress_context, tdm_error *err);

#endif
