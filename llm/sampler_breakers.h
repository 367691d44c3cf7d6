/* SPDX-License-Identifier: MIT
 *
 * sampler_breakers.h: finds the texts at which a repetition ends for DRY
 * (llm_sampler_params.dry_breakers) while a sequence of tokens grows.
 *
 * A breaker counts wherever it stands in the text of the tokens: within a token, or from one token,
 * which it may begin inside, to a later one. It does not matter how the text is cut into tokens.
 * (llama.cpp finds the same, but for breakers whose rest is in other tokens than those that it gives
 * for the rest alone, and it reads 40 bytes of a breaker at most.)
 */
#ifndef LLM_SAMPLER_BREAKERS_H
#define LLM_SAMPLER_BREAKERS_H

#include "llm/tokenizer/vocab.h"

enum {
    LLM_BREAKER_MAX = 64,      /* breakers at most */
    LLM_BREAKER_LEN_MAX = 256, /* bytes of one at most */
};

/* Some texts, ready to be found; does not change. */
typedef struct llm_sampler_breakers llm_sampler_breakers;

/* Prepares n_text texts; an empty one is ignored. The texts are copied, and `vocab` outlives the
 * result and its copies. The caller owns *out; on failure it is NULL. TDM_INVALID_ARGUMENT (too
 * many, or one is too long), TDM_RESOURCE_EXHAUSTED. [any-thread] */
tdm_status llm_sampler_breakers_create(const llm_vocab *vocab, const char *const *texts,
                                       size_t n_text, llm_sampler_breakers **out, tdm_error *err);
/* Another one with the same texts, or NULL without memory; the caller owns it. [any-thread] */
llm_sampler_breakers *llm_sampler_breakers_copy(const llm_sampler_breakers *breakers);
/* NULL is a no-op. */
void llm_sampler_breakers_destroy(llm_sampler_breakers *breakers);

/* What a token does to the search. */
typedef struct llm_breaker_step {
    int32_t state; /* where the search stands behind the token; 0 before the first one */
    bool ends;     /* a breaker ends in the token */
    bool is_whole; /* a breaker lies in the token from beginning to end */
} llm_breaker_step;

/* Reads a token from a state. Takes a time of the order of the token's bytes, and allocates
 * nothing. A token without text, also one outside the vocabulary, leaves the state as it is.
 * [any-thread] */
llm_breaker_step llm_sampler_breakers_read(const llm_sampler_breakers *breakers, int32_t state,
                                           int32_t token);

#endif
