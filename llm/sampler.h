/* SPDX-License-Identifier: MIT
 *
 * sampler.h: picks the next token from a row of logits.
 *
 * The order of the steps is fixed: repetition penalty; top-k, top-p and min-p on the distribution
 * without temperature; temperature; a random draw. Temperature 0 is greedy: the highest logit after
 * penalties, and the lowest id among equal ones. The same seed, logits and history give the same
 * tokens on every machine.
 */
#ifndef LLM_SAMPLER_H
#define LLM_SAMPLER_H

#include "tandem/status.h"

typedef struct llm_sampler llm_sampler;

/* The logits of one position: of the whole vocabulary, or of the best tokens alone. */
typedef struct llm_row {
    const float *logits;   /* [n] */
    const int32_t *tokens; /* [n] the best first, equal ones by id; NULL = token i has logits[i] */
    int32_t n;             /* n_vocab where tokens is NULL */
} llm_row;

typedef struct llm_sampler_params {
    size_t struct_size;
    float temp;            /* 0 = greedy */
    int32_t top_k;         /* 0 = off */
    float top_p;           /* 0 or >= 1 = off */
    float min_p;           /* 0 = off */
    float repeat_penalty;  /* 0 or 1 = off */
    int32_t repeat_last_n; /* tokens of history that are penalised; 0 = off, -1 = all */
    uint64_t seed;
} llm_sampler_params;

/* The row without the n_barred tokens, which get -inf: written to logits_out [row->n], which the
 * result refers to. Candidates keep their places; with n_barred more of them than a sampler needs,
 * enough are left. [any-thread] */
llm_row llm_row_without(const llm_row *row, const int32_t *barred, int32_t n_barred,
                        float *logits_out);

/* The row with only the tokens whose bit in `mask` is set: bit t % 64 of word t / 64. The others get
 * -inf: written to logits_out [row->n], which the result refers to and which may be the row's own
 * logits. The mask may bar any number of
 * tokens; so give it whole rows, not candidates. [any-thread] */
llm_row llm_row_masked(const llm_row *row, const uint64_t *mask, float *logits_out);

/* Allocates all memory for n_vocab tokens and a history of at most n_history tokens (the value of
 * repeat_last_n = -1). Messages about bad parameters name the key and its range. [any-thread] */
tdm_status llm_sampler_create(const llm_sampler_params *params, int32_t n_vocab, int32_t n_history,
                              llm_sampler **sampler_out, tdm_error *err);
/* NULL is a no-op. */
void llm_sampler_destroy(llm_sampler *sampler);
/* Copies the state of `other`, so that both have the same history and the same future draws. Both
 * were created with the same parameters and sizes; each keeps its own memory. One thread at a time
 * for both. */
void llm_sampler_copy(llm_sampler *sampler, const llm_sampler *other);
/* Adds a token to the history; tokens of the prompt belong to it too. An id outside the vocabulary
 * is ignored. One thread at a time for a sampler. */
void llm_sampler_accept(llm_sampler *sampler, int32_t token);
/* Picks a token from a row of logits, without adding it to the history. The draw depends on the
 * seed and the number of accepted tokens, so a repeated pick gives the same token. NaN counts as
 * -inf. If all logits are -inf or NaN: TDM_DATA_LOSS. A row of candidates has at least
 * llm_sampler_candidates() of them, else TDM_INVALID_ARGUMENT; it gives the token that the whole
 * row gives. One thread at a time for a sampler. */
tdm_status llm_sampler_pick(llm_sampler *sampler, const llm_row *row, int32_t *token_out,
                            tdm_error *err);
/* How many candidates the sampler needs; 0 = the whole row: it has penalties, or no top-k.
 * [any-thread] */
int32_t llm_sampler_candidates(const llm_sampler *sampler);

#endif
