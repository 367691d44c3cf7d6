/* SPDX-License-Identifier: MIT
 *
 * draft_ngram.h: finds where the last tokens of a sequence occur earlier in it, so that the tokens
 * that followed there can be proposed again (prompt lookup decoding). Appending a token takes the
 * same time however long the sequence is. Which tokens are proposed, and when: llm/draft.h.
 *
 * Place i is the position after the first i tokens. For each place the n tokens before it are
 * hashed. Places of equal hashes form a chain, the last place first. So the last token is removed
 * by removing the first place of one chain. A chain may contain places of other tokens, since
 * hashes can collide: llm_ngrams_find compares tokens.
 *
 * One thread at a time.
 */
#ifndef LLM_DRAFT_NGRAM_H
#define LLM_DRAFT_NGRAM_H

#include <stdint.h>

#include "tandem/status.h"

/* The largest number of tokens that must be alike. */
#define LLM_MAX_DRAFT_NGRAM 16

/* The tokens of one sequence. A cleared struct is an empty sequence. */
typedef struct llm_ngrams {
    int32_t *tokens; /* [n_tok] */
    int32_t *before; /* [n_tok + 1] for each place the next earlier one of its chain; -1 = none */
    int32_t *heads;  /* [2^bits] the last place of each chain; -1 = the chain is empty */
    int32_t n_tok, n_room; /* tokens; how many have memory */
    int32_t bits;          /* of a hash */
} llm_ngrams;

/* Frees and clears it. */
void llm_ngrams_free(llm_ngrams *g);
/* Appends a token. n, 1 .. LLM_MAX_DRAFT_NGRAM: tokens that are hashed for each place, the same in
 * all calls for a sequence. On TDM_RESOURCE_EXHAUSTED nothing changes. */
tdm_status llm_ngrams_append(llm_ngrams *g, int32_t n, int32_t token, tdm_error *err);
/* Keeps at most the first n_tok tokens. */
void llm_ngrams_truncate(llm_ngrams *g, int32_t n, int32_t n_tok);
/* Finds an earlier place that has before it at least the same n tokens that end the sequence;
 * returns the index of the token after that place, or -1. Compares the last 32 places of the chain,
 * and at most 32 tokens of each. Takes the place with the most equal tokens, and of several the
 * last. */
int32_t llm_ngrams_find(const llm_ngrams *g, int32_t n);

#endif
