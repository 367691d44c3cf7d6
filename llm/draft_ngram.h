/* SPDX-License-Identifier: MIT
 *
 * draft_ngram.h: finds where the last tokens of a sequence stand earlier in it, so that what followed
 * there can be proposed again (prompt lookup decoding). Each token costs the same time, however long
 * the sequence is. What is proposed, and when: llm/draft.h.
 *
 * The last n tokens of each place are hashed. Places of the same hash are a chain, the last one
 * first. So a token is taken back by removing the first place of one chain.
 *
 * One thread at a time.
 */
#ifndef LLM_DRAFT_NGRAM_H
#define LLM_DRAFT_NGRAM_H

#include <stdint.h>

#include "tandem/status.h"

/* The largest number of tokens that must be alike. */
#define LLM_MAX_DRAFT_NGRAM 16

/* The tokens of one sequence. Cleared is empty. */
typedef struct llm_ngrams {
    int32_t *tokens; /* [n_tok] */
    int32_t *before; /* [n_tok + 1] the place in front of one in its chain; -1 = none */
    int32_t *heads;  /* [2^bits] the last place of each chain; -1 = none */
    int32_t n_tok, n_room;
    int32_t bits;
} llm_ngrams;

/* Frees and clears it. */
void llm_ngrams_free(llm_ngrams *g);
/* Appends a token. Places are hashes of n tokens, which is the same for all calls. On
 * TDM_RESOURCE_EXHAUSTED nothing changes. */
tdm_status llm_ngrams_append(llm_ngrams *g, int32_t n, int32_t token, tdm_error *err);
/* Keeps the first n_tok tokens at most. */
void llm_ngrams_truncate(llm_ngrams *g, int32_t n, int32_t n_tok);
/* The index of the token behind an earlier place whose last tokens are those of the sequence, at
 * least n of them; -1 = there is none. Of the last 32 places of the chain, the one where most tokens
 * are alike, at most 32; of equal ones the last. */
int32_t llm_ngrams_find(const llm_ngrams *g, int32_t n);

#endif
