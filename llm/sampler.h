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
/* Picks a token from logits[n_vocab], without adding it to the history. The draw depends on the
 * seed and the number of accepted tokens, so a repeated pick gives the same token. NaN counts as
 * -inf. If all logits are -inf or NaN: TDM_DATA_LOSS. One thread at a time for a sampler. */
tdm_status llm_sampler_pick(llm_sampler *sampler, const float *logits, int32_t *token_out,
                            tdm_error *err);

#endif
