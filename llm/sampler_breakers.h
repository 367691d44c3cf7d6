/* SPDX-License-Identifier: MIT
 *
 * sampler_breakers.h: finds the tokens at which a repetition ends for DRY
 * (llm_sampler_params.dry_breakers), from the texts that users give.
 */
#ifndef LLM_SAMPLER_BREAKERS_H
#define LLM_SAMPLER_BREAKERS_H

#include "llm/tokenizer/vocab.h"

/* All tokens whose text contains one of the n_text texts: (*tokens_out)[*n_out], ascending, which
 * the caller frees with free(); NULL if there is none. An empty text is contained in no token.
 * Reads the whole vocabulary. TDM_RESOURCE_EXHAUSTED. [any-thread] */
tdm_status llm_sampler_breakers(const llm_vocab *vocab, const char *const *texts, size_t n_text,
                                int32_t **tokens_out, int32_t *n_out, tdm_error *err);

#endif
