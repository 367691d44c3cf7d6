/* SPDX-License-Identifier: MIT
 *
 * sampler_internal.h: what sampler.c and sampler_chain.c share. sampler.c has the usual steps in
 * their usual order (repeat_penalty, TOP_K, TOP_P, MIN_P, TEMPERATURE), and the draw. If parameters
 * need any other step or order, sampler_chain.c runs all steps instead: a chain.
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
    int32_t *last;      /* [n_last] a ring; index n_accepted % n_last is written next */
    int32_t *n_seen;    /* [n_vocab] how often each token is in the ring */
    int32_t n_distinct; /* tokens with n_seen > 0 */
    int32_t *distinct;  /* [n_last] these tokens, in any order */
    int32_t *place;     /* [n_vocab] index into `distinct` of a token with n_seen > 0 */

    const int32_t *tokens; /* of the row during a pick: llm_row.tokens */
    int32_t n_row;         /* of the row during a pick: llm_row.n */
    float *logits;         /* [n_vocab] of the row; without a chain, penalised */
    candidate *candidates; /* [n_vocab]; NULL if temp is 0 and there is no chain */
    candidate greedy;      /* the only candidate of greedy sampling without a chain */

    /* Only for a chain. */
    bool is_chain; /* there are other steps than the usual ones, or another order */
    llm_sampler_step order[LLM_SAMPLER_ORDER_MAX];
    int32_t n_order;
    llm_logit_bias *bias; /* [params.n_logit_bias] */
    int32_t n_dry;        /* last tokens that DRY reads; 0 = no DRY */
    int32_t *dry_last;    /* [n_dry] a ring, as `last` */
    bool *dry_is_breaker; /* [n_dry] as dry_last: whether a breaker lies in the token */
    int32_t *dry_text;    /* [n_dry] the ring in order, the last token first */
    int32_t *dry_repeat;  /* [n_dry] scratch of repeats_find */
    int32_t *dry_length;  /* [n_vocab] 1 + the length of the longest repetition that the token would
                             continue; 0 = none. All 0 between picks */
    llm_sampler_breakers *breakers; /* a copy; NULL = none */
    int32_t breaker_state;          /* of the search for breakers, behind the history */
    uint64_t n_broken;    /* tokens of the history up to that in which the last breaker ends; 0 = no
                          breaker so far */
    double mu;            /* of Mirostat: the largest surprise, in bits; twice tau at first */
    int32_t picked;       /* the token that was picked last; -1 = none since the last accept */
    double surprise;      /* of that token, in bits */
    bool is_adaptive;     /* ADAPTIVE_P acts */
    double probability;   /* of the picked token before ADAPTIVE_P */
    /* Of ADAPTIVE_P: of the probabilities of earlier tokens, the sum with the weights decay^age, and
     * the sum of these weights. At first as if all had had the target. */
    double weighted_sum, weight_sum;
};

/* Runs all steps on a row: *left_out are the *n_out candidates among which one is drawn, in any
 * order, with weights whose sum is *sum_out. The sampler owns them until the next call. Fails as
 * llm_sampler_pick does. */
tdm_status llm_sampler_left(llm_sampler *s, const llm_row *row, candidate **left_out,
                            int32_t *n_out, double *sum_out, tdm_error *err);
/* exp(x) for x <= 0, the same on every machine. */
double llm_sampler_exp(double x);
/* A random number u, 0 <= u < 1, which depends only on the seed, the number of accepted tokens and
 * `stream`. So a repeated pick gives the same token. Streams: 0 = the draw, 1 = XTC. */
double llm_sampler_uniform(const llm_sampler *s, uint64_t stream);
/* Whether a comes before b in the order of candidates: the higher logit first, of equal ones the
 * lower id. */
bool llm_sampler_is_better(const candidate *a, const candidate *b);
/* Makes a heap of n candidates with the best, or else the worst, at the top. */
void llm_sampler_heapify(candidate *heap, int32_t n, bool is_best_first);
/* Swaps the top of a heap of n with its last element; the first n - 1 stay a heap. */
void llm_sampler_heap_pop(candidate *heap, int32_t n, bool is_best_first);
/* Moves the best k of n candidates to the beginning, best first; k <= n. */
void llm_sampler_best_first(candidate *c, int32_t n, int32_t k);
/* Moves to the beginning, best first, the fewest best candidates whose weights together reach
 * `enough`, or all n if they do not; returns how many, at least 1. sum: of the n weights.
 * is_sorted: the candidates are best first already. */
int32_t llm_sampler_top_p(candidate *c, int32_t n, double enough, double sum, bool is_sorted);
/* Computes the weights exp((logit - max_logit) / temp), and returns their sum. */
double llm_sampler_weigh(candidate *c, int32_t n, float max_logit, float temp);
/* Draws one of n >= 1 candidates by their weights, whose sum is given. */
int32_t llm_sampler_draw(const llm_sampler *s, const candidate *c, int32_t n, double sum);

/* ---- sampler_chain.c: the parts of llm_sampler_* for a sampler with a chain ---- */

/* Whether params need a chain. */
bool llm_sampler_has_chain(const llm_sampler_params *params);
/* Allocates what a chain needs; params and n_vocab are set. False without memory;
 * llm_sampler_chain_destroy must follow then, too. */
bool llm_sampler_chain_create(llm_sampler *s, int32_t n_history);
void llm_sampler_chain_destroy(llm_sampler *s);
void llm_sampler_chain_copy(llm_sampler *s, const llm_sampler *other);
/* Called with a valid token before it is counted in n_accepted. */
void llm_sampler_chain_accept(llm_sampler *s, int32_t token);
int32_t llm_sampler_chain_candidates(const llm_sampler *s);
/* Runs all steps on s->candidates[0..n), which have logits. Gives weights with their sum, and
 * returns how many candidates are left; 0 if biases leave none. */
int32_t llm_sampler_chain_steps(llm_sampler *s, int32_t n, double *sum_out);
/* Called after `token` was drawn among the n candidates that chain_steps left, with their sum. */
void llm_sampler_chain_picked(llm_sampler *s, int32_t token, int32_t n, double sum);

#endif
