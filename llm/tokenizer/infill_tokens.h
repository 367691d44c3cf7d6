/* SPDX-License-Identifier: MIT
 *
 * infill_tokens.h: the tokens of prompts that let a model write the text between two others ("fill
 * in the middle"). The keys of a file name them; without keys they are found by their known texts.
 */
#ifndef LLM_INFILL_TOKENS_H
#define LLM_INFILL_TOKENS_H

#include "llm/tokenizer/vocab.h"

/* Token ids; LLM_TOKEN_NONE = the model has none. */
typedef struct llm_infill_tokens {
    int32_t prefix; /* before the text that comes first */
    int32_t suffix; /* before the text that comes last */
    int32_t middle; /* before the text that the model writes */
    int32_t repo;   /* before the name of a repository */
    int32_t file;   /* before the name of a file */
} llm_infill_tokens;

/* Reads the keys `tokenizer.ggml.fim_*_token_id`, or the older `tokenizer.ggml.prefix_token_id` and
 * so on; `gguf` NULL = there are none. An id outside the vocabulary counts as none. TDM_DATA_LOSS
 * where a key is not an integer. [any-thread] */
tdm_status llm_infill_tokens_read(const llm_gguf *gguf, const llm_vocab *vocab,
                                  llm_infill_tokens *out, tdm_error *err);

#endif
