/* SPDX-License-Identifier: MIT
 *
 * sampler_breakers.h: the tokens that DRY does not go over (llm_sampler_params.dry_breakers), from the
 * texts that users give.
 */
#ifndef LLM_SAMPLER_BREAKERS_H
#define LLM_SAMPLER_BREAKERS_H

#include "llm/tokenizer/vocab.h"

/* The tokens that have one of n_text texts in them: *tokens_out [*n_out] by id, which the caller
 * frees; NULL where there is none. An empty text is in no token. Reads the whole vocabulary.
 * TDM_RESOURCE_EXHAUSTED. [any-thread] */
tdm_status llm_sampler_breakers(const llm_vocab *vocab, const char *const *texts, size_t n_text,
                                int32_t **tokens_out, int32_t *n_out, tdm_error *err);

#endif
