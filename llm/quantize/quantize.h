/* SPDX-License-Identifier: MIT
 *
 * quantize.h: writes a GGUF model again with its matrices in smaller types.
 *
 * Two steps, so that what would happen can be looked at first: choosing a type for every tensor
 * (quantize_mix.c) and writing the file (quantize.c). The choices are those of llama.cpp's tool
 * without an importance matrix, so that a file of ours of one name is made like one of theirs
 * (ggml-org/llama.cpp, src/llama-quant.cpp); how numbers become codes is core/base's.
 */
#ifndef LLM_QUANTIZE_H
#define LLM_QUANTIZE_H

#include "llm/gguf/gguf.h"
#include "llm/model.h"

/* Which matrices get a larger type than the one that most get. */
typedef enum llm_quantize_mix {
    LLM_QUANTIZE_PLAIN, /* only the output matrix: q6_K; none where the type is not quantised */
    LLM_QUANTIZE_Q2_K,
    LLM_QUANTIZE_Q2_K_S,
    LLM_QUANTIZE_Q3_K_M,
    LLM_QUANTIZE_Q3_K_L,
    LLM_QUANTIZE_Q4_K_S,
    LLM_QUANTIZE_Q4_K_M,
    LLM_QUANTIZE_Q5_K_M,
    LLM_QUANTIZE_IQ4,
    LLM_QUANTIZE_Q3_K_S,
    LLM_QUANTIZE_MXFP4_MOE, /* the kind's type is for experts, all other matrices get q8_0 */
    LLM_QUANTIZE_IQ3_M,
    LLM_QUANTIZE_IQ3_S,
    LLM_QUANTIZE_IQ3_XS,
    LLM_QUANTIZE_IQ3_XXS,
    LLM_QUANTIZE_IQ2_M, /* of iq2_s, too */
    LLM_QUANTIZE_IQ2_XS,
    LLM_QUANTIZE_IQ1,
    LLM_QUANTIZE_TERNARY
} llm_quantize_mix;

typedef struct llm_quantize_kind {
    const char *name; /* "q4_K_M" */
    tdm_type type;    /* that most matrices get */
    llm_quantize_mix mix;
    uint32_t file_type;  /* what general.file_type says of such files */
    const char *mixture; /* what gets another type, for people; NULL = the output matrix at most */
} llm_quantize_kind;

/* The kinds there are, largest first; constant. [any-thread] */
extern const llm_quantize_kind llm_quantize_kinds[];
extern const size_t n_llm_quantize_kinds;

/* The kind of that name, upper and lower case alike ("Q4_K" = q4_K_M, as in llama.cpp), or NULL.
 * [any-thread] */
const llm_quantize_kind *llm_quantize_kind_find(const char *name);

/* Bits that an element of the type takes, scales included. [any-thread] */
double llm_quantize_bits(tdm_type type);

typedef struct llm_quantize_choice {
    tdm_type type;
    tdm_type wanted; /* differs from `type` where the rows are no whole blocks of it */
} llm_quantize_choice;

/* Chooses a type for each of the file's tensors: choices_out[llm_gguf_tensor_count]. What is no
 * matrix, norms, routers and other small tensors keep what they have; `is_pure` gives all others the
 * kind's own type. Rows that are no whole blocks take a type with shorter blocks, at last f16.
 * TDM_UNSUPPORTED where a tensor would have to be converted from a type that this build cannot
 * read. [any-thread] */
tdm_status llm_quantize_choose(const llm_gguf *g, const llm_quantize_kind *kind, bool is_pure,
                               llm_quantize_choice *choices_out, tdm_error *err);

/* Writes `path` with n_thread threads (at least 1), in memory bounded by a few MiB for each. A split
 * model becomes one file. `progress` (nullable) is told the bytes read, on the calling thread; false
 * from it cancels. The file appears when it is complete; on failure an older one is untouched.
 * TDM_DATA_LOSS where a tensor to be converted has numbers that are not finite, TDM_IO,
 * TDM_CANCELLED, TDM_RESOURCE_EXHAUSTED. [setup] */
tdm_status llm_quantize_write(const llm_gguf *g, const llm_quantize_kind *kind,
                              const llm_quantize_choice *choices, const char *path,
                              int32_t n_thread, llm_progress_fn progress, void *progress_context,
                              tdm_error *err);

#endif
