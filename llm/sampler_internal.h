/* SPDX-License-Identifier: MIT
 *
 * sampler_internal.h: what sampler.c and sampler_chain.c share. sampler.c picks with the usual
 * steps and draws; sampler_chain.c has the other steps, in any order.
 */
#ifndef LLM_SAMPLER_INTERNAL_H
#define LLM_SAMPLER_INTERNAL_H

#include <stdbool.h>

#include "llm/sampler.h"

typedef struct candidate {
    double weight; /* exp(logit - highest logit): > 0 and <= 1 without temperature */
    float logit;
    int32_t token;
} candidate;

struct llm_sampler {
    llm_sampler_params params;
    int32_t n_vocab;
    uint64_t n_accepted; /* tokens ever added to the history */

    /* The penalised tokens: those among the last n_last of the history. */
    int32_t n_last;     /* 0 = no penalty */
    int32_t *last;      /* [n_last] a ring; n_accepted % n_last is written next */
    int32_t *n_seen;    /* [n_vocab] how often each token is in the ring */
    int32_t n_distinct; /* tokens with n_seen > 0 */
    int32_t *distinct;  /* [n_last] these tokens, in any order */
    int32_t *place;     /* [n_vocab] index into `distinct` of a token with n_seen > 0 */

    const int32_t *tokens; /* of the row during a pick: llm_row.tokens */
    int32_t n_row;         /* of the row during a pick: llm_row.n */
    float *logits;         /* [n_vocab] of the row, penalised */
    candidate *candidates; /* [n_vocab]; NULL if sampling is greedy */
    candidate greedy;      /* instead of them */

    /* Of a chain. */
    bool is_chain; /* other steps than the usual ones, or in another order */
    llm_sampler_step order[LLM_SAMPLER_ORDER_MAX];
    int32_t n_order;
    llm_logit_bias *bias; /* [params.n_logit_bias] */
    int32_t n_dry;        /* tokens that DRY reads at most; 0 = no DRY */
    int32_t *dry_last;    /* [n_dry] a ring, as `last` */
    int32_t *dry_text;    /* [n_dry] the ring in order, the last token first */
    int32_t *dry_repeat;  /* [n_dry] scratch */
    int32_t *dry_length;  /* [n_vocab] the longest repetition that a token goes on with, + 1 */
    bool *is_breaker;     /* [n_vocab] */
    double mu;            /* of Mirostat: twice tau at first */
    int32_t picked;       /* the token that was picked last; -1 = none since the last accept */
    double surprise;      /* of it, in bits */
};

/* Does all steps on a row: *left_out are the *n_out candidates among which one is drawn, in any
 * order, with weights whose sum is *sum_out. The sampler owns them until the next call. Fails as
 * llm_sampler_pick does. */
tdm_status llm_sampler_left(llm_sampler *s, const llm_row *row, candidate **left_out,
                            int32_t *n_out, double *sum_out, tdm_error *err);
/* exp(x) for x <= 0, the same on every machine. */
double llm_sampler_exp(double x);
/* 0 <= u < 1, a function of the seed, the length of the history and the number of the stream. There
 * is no other state, so a repeated pick gives the same token. */
double llm_sampler_uniform(const llm_sampler *s, uint64_t stream);
/* The order of candidates: the higher logit first, then the lower id. There are no ties. */
bool llm_sampler_is_better(const candidate *a, const candidate *b);
/* Makes a heap with the best or the worst candidate at the top. */
void llm_sampler_heapify(candidate *heap, int32_t n, bool is_best_first);
/* Swaps the top of a heap of n with its last element; the first n - 1 stay a heap. */
void llm_sampler_heap_pop(candidate *heap, int32_t n, bool is_best_first);
/* Brings the best k of n candidates to the beginning, best first. */
void llm_sampler_best_first(candidate *c, int32_t n, int32_t k);
/* The smallest number of best candidates whose weights reach `part` of `sum`, best first. */
int32_t llm_sampler_top_p(candidate *c, int32_t n, double part, double sum, bool is_sorted);
/* Computes weights relative to the highest logit, and returns their sum. */
double llm_sampler_weigh(candidate *c, int32_t n, float max_logit, float temp);
/* Draws one of n >= 1 candidates by their weights, whose sum is given. */
int32_t llm_sampler_draw(const llm_sampler *s, const candidate *c, int32_t n, double sum);

/* Whether params need a chain. */
bool llm_sampler_has_chain(const llm_sampler_params *params);
/* Makes what a chain needs; params and n_vocab are set. False without memory, then destroy too. */
bool llm_sampler_chain_create(llm_sampler *s, int32_t n_history);
void llm_sampler_chain_destroy(llm_sampler *s);
void llm_sampler_chain_copy(llm_sampler *s, const llm_sampler *other);
/* Before a valid token is counted in n_accepted. */
void llm_sampler_chain_accept(llm_sampler *s, int32_t token);
int32_t llm_sampler_chain_candidates(const llm_sampler *s);
/* Does all steps on s->candidates[0..n), which have logits. Gives weights with their sum, and
 * returns how many candidates are left; 0 where biases leave none. */
int32_t llm_sampler_chain_steps(llm_sampler *s, int32_t n, double *sum_out);
/* After a token was drawn among n candidates. */
void llm_sampler_chain_picked(llm_sampler *s, int32_t token, int32_t n, double sum);

#endif
