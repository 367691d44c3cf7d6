/* SPDX-License-Identifier: MIT
 *
 * draft_ngram.c: see draft_ngram.h.
 */
#include "llm/draft_ngram.h"

#include <stdlib.h>
#include <string.h>

#define ROOM_LEAST   256
#define MATCH_MOST   32 /* tokens that are compared: longer matches count as this one */
#define PLACES_MOST  32 /* places of a chain that are compared */
#define GOLDEN_RATIO UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / phi (Knuth, Fibonacci hashing) */

void llm_ngrams_free(llm_ngrams *g) {
    free(g->tokens);
    free(g->before);
    free(g->heads);
    *g = (llm_ngrams){0};
}

/* The chain of place n_tok: the hash of the n tokens before it. */
static uint32_t chain_of(const llm_ngrams *g, int32_t n, int32_t n_tok) {
    uint64_t hash = 0;
    for (int32_t i = n_tok - n; i < n_tok; i++)
        hash = (hash ^ (uint64_t)(uint32_t)g->tokens[i]) * GOLDEN_RATIO;
    return (uint32_t)(hash >> (64 - g->bits));
}

/* Puts place n_tok in front of its chain. Places with fewer than n tokens are in no chain. */
static void place_add(llm_ngrams *g, int32_t n, int32_t n_tok) {
    if (n_tok < n) return;
    int32_t *head = &g->heads[chain_of(g, n, n_tok)];
    g->before[n_tok] = *head;
    *head = n_tok;
}

/* Doubles the room and builds the chains again, with at least as many chains as places. */
static tdm_status room_double(llm_ngrams *g, int32_t n, tdm_error *err) {
    const int32_t room = g->n_room > 0 ? 2 * g->n_room : ROOM_LEAST;
    llm_ngrams grown = {.n_tok = g->n_tok, .n_room = room, .bits = 7};
    while (((int32_t)1 << grown.bits) < room) grown.bits++;
    const size_t n_head = (size_t)1 << grown.bits;
    grown.tokens = malloc((size_t)room * sizeof *grown.tokens);
    grown.before = malloc(((size_t)room + 1) * sizeof *grown.before);
    grown.heads = malloc(n_head * sizeof *grown.heads);
    if (grown.tokens == NULL || grown.before == NULL || grown.heads == NULL) {
        llm_ngrams_free(&grown);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "draft: no memory for %d tokens", room);
    }
    if (g->n_tok > 0) memcpy(grown.tokens, g->tokens, (size_t)g->n_tok * sizeof *g->tokens);
    memset(grown.heads, 0xff, n_head * sizeof *grown.heads); /* -1 */
    for (int32_t i = n; i <= g->n_tok; i++) place_add(&grown, n, i);
    llm_ngrams_free(g);
    *g = grown;
    return TDM_OK;
}

tdm_status llm_ngrams_append(llm_ngrams *g, int32_t n, int32_t token, tdm_error *err) {
    const tdm_status status = g->n_tok == g->n_room ? room_double(g, n, err) : TDM_OK;
    if (status != TDM_OK) return status;
    g->tokens[g->n_tok++] = token;
    place_add(g, n, g->n_tok);
    return TDM_OK;
}

void llm_ngrams_truncate(llm_ngrams *g, int32_t n, int32_t n_tok) {
    for (; g->n_tok > n_tok; g->n_tok--)
        if (g->n_tok >= n) g->heads[chain_of(g, n, g->n_tok)] = g->before[g->n_tok];
}

/* How many tokens before place `at` are equal to those at the end of the sequence. */
static int32_t match_length(const llm_ngrams *g, int32_t at) {
    int32_t n = 0;
    while (n < MATCH_MOST && n < at && g->tokens[at - 1 - n] == g->tokens[g->n_tok - 1 - n]) n++;
    return n;
}

int32_t llm_ngrams_find(const llm_ngrams *g, int32_t n) {
    int32_t best = -1, longest = n - 1;
    if (g->n_tok < n) return -1;
    int32_t at = g->before[g->n_tok]; /* the end of the sequence is the first place of its chain */
    for (int32_t i = 0; i < PLACES_MOST && at >= 0; i++, at = g->before[at]) {
        const int32_t length = match_length(g, at);
        if (length <= longest) continue;
        longest = length;
        best = at;
    }
    return best;
}
