/* SPDX-License-Identifier: MIT
 *
 * sampler.c: creates samplers, keeps the history, runs the usual steps and draws. See sampler.h for
 * the steps, sampler_chain.c for the other ones.
 *
 * Equal results on every machine need more than a seed: the last bits of libm's exp differ between
 * machines, and sums depend on their order. So all sums are doubles in a fixed order, and this file
 * has its own exp of plain multiplications and additions, which the compiler must not fuse.
 *
 * A vocabulary is large (150,000) and few tokens remain after top-k or top-p. So candidates are
 * found with a heap instead of sorting all.
 */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "llm/random.h"
#include "llm/sampler_internal.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* gcc does not support it, and does not fuse in its ISO modes */
#endif

/* ---- Creation and history ---- */

static tdm_status params_check(const llm_sampler_params *p, tdm_error *err) {
    if (!(p->temp >= 0 && p->temp <= FLT_MAX))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "temp = %g: must be 0 (greedy) or a positive number", (double)p->temp);
    if (p->top_k < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "top-k = %d: must be 0 (off) or more", p->top_k);
    if (!(p->top_p >= 0))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "top-p = %g: must be 0 to 1 (off)",
                        (double)p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "min-p = %g: must be 0 (off) to 1",
                        (double)p->min_p);
    if (!(p->repeat_penalty >= 0 && p->repeat_penalty <= FLT_MAX))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "repeat-penalty = %g: must be 1 (off) or another positive number",
                        (double)p->repeat_penalty);
    const struct {
        const char *key;
        float value, lo, hi;
    } ranges[] = {
        {"frequency-penalty", p->frequency_penalty, -FLT_MAX, FLT_MAX},
        {"presence-penalty", p->presence_penalty, -FLT_MAX, FLT_MAX},
        {"typical-p", p->typical_p, 0, FLT_MAX},
        {"top-n-sigma", p->top_n_sigma, -FLT_MAX, FLT_MAX},
        {"xtc-probability", p->xtc_probability, 0, 1},
        {"xtc-threshold", p->xtc_threshold, 0, FLT_MAX},
        {"dynatemp-range", p->dynatemp_range, 0, FLT_MAX},
        {"dynatemp-exp", p->dynatemp_exponent, 0, FLT_MAX},
        {"adaptive-target", p->adaptive_target, -FLT_MAX, 1},
        {"adaptive-decay", p->adaptive_decay, 0, 0.99f},
        {"dry-multiplier", p->dry_multiplier, -FLT_MAX, FLT_MAX},
        {"dry-base", p->dry_base, 0, FLT_MAX},
        {"mirostat-ent", p->mirostat_tau, 0, FLT_MAX},
        {"mirostat-lr", p->mirostat_eta, 0, FLT_MAX},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (!(ranges[i].value >= ranges[i].lo && ranges[i].value <= ranges[i].hi))
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s = %g: must be %g to %g", ranges[i].key,
                            (double)ranges[i].value, (double)ranges[i].lo, (double)ranges[i].hi);
    if (p->mirostat < 0 || p->mirostat > 2)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "mirostat = %d: must be 0 (off), 1 or 2",
                        p->mirostat);
    if (p->min_keep < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "min-keep = %d: must be 0 (off) or more",
                        p->min_keep);
    if (p->dry_allowed_length < -1 || p->dry_last_n < 0 || p->n_logit_bias < 0 || p->n_order < -1 ||
        p->n_order > LLM_SAMPLER_ORDER_MAX)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "sampler: dry-allowed-length, dry-penalty-last-n or a length of a list is "
                        "out of range");
    for (int32_t i = 0; i < p->n_order; i++)
        if (p->order[i] >= LLM_SAMPLER_STEP_COUNT)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "samplers: there is no step %d",
                            p->order[i]);
    for (int32_t i = 0; i < p->n_logit_bias; i++)
        if (p->logit_bias[i].bias != p->logit_bias[i].bias)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "logit-bias of token %d is no number",
                            p->logit_bias[i].token);
    if (p->repeat_last_n < -1)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "repeat-last-n = %d: must be -1 (all), 0 (off) or more", p->repeat_last_n);
    return TDM_OK;
}

tdm_status llm_sampler_create(const llm_sampler_params *params, int32_t n_vocab, int32_t n_history,
                              llm_sampler **sampler_out, tdm_error *err) {
    llm_sampler_params p = {0};
    *sampler_out = NULL;
    if (params != NULL) {
        const size_t size = params->struct_size;
        memcpy(&p, params, size > 0 && size < sizeof p ? size : sizeof p);
    }
    p.struct_size = sizeof p;
    const tdm_status status = params_check(&p, err);
    if (status != TDM_OK) return status;
    if (n_vocab < 1 || n_history < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "sampler for a vocabulary of %d and a history of %d tokens: the first must "
                        "be at least 1, the second at least 0",
                        n_vocab, n_history);

    llm_sampler *s = calloc(1, sizeof *s);
    bool is_complete = s != NULL;
    if (is_complete) {
        s->params = p;
        s->n_vocab = n_vocab;
        s->logits = calloc((size_t)n_vocab, sizeof *s->logits);
        is_complete = s->logits != NULL;
        if (p.temp > 0 || llm_sampler_has_chain(&p)) {
            s->candidates = calloc((size_t)n_vocab, sizeof *s->candidates);
            is_complete = is_complete && s->candidates != NULL;
        }
        s->is_chain = llm_sampler_has_chain(&p);
        if (s->is_chain) is_complete = llm_sampler_chain_create(s, n_history) && is_complete;
        if ((p.repeat_penalty != 0 && p.repeat_penalty != 1) || p.frequency_penalty != 0 ||
            p.presence_penalty != 0)
            s->n_last =
                p.repeat_last_n < 0 || p.repeat_last_n > n_history ? n_history : p.repeat_last_n;
        if (s->n_last > 0) {
            s->last = calloc((size_t)s->n_last, sizeof *s->last);
            s->distinct = calloc((size_t)s->n_last, sizeof *s->distinct);
            s->n_seen = calloc((size_t)n_vocab, sizeof *s->n_seen);
            s->place = calloc((size_t)n_vocab, sizeof *s->place);
            is_complete = is_complete && s->last != NULL && s->distinct != NULL &&
                          s->n_seen != NULL && s->place != NULL;
        }
    }
    if (!is_complete) {
        llm_sampler_destroy(s);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "no memory to sample from a vocabulary of %d tokens", n_vocab);
    }
    *sampler_out = s;
    return TDM_OK;
}

void llm_sampler_destroy(llm_sampler *s) {
    if (s == NULL) return;
    free(s->last);
    free(s->distinct);
    free(s->n_seen);
    free(s->place);
    free(s->logits);
    free(s->candidates);
    llm_sampler_chain_destroy(s);
    free(s);
}

void llm_sampler_copy(llm_sampler *s, const llm_sampler *other) {
    if (s->is_chain) llm_sampler_chain_copy(s, other);
    s->n_accepted = other->n_accepted;
    if (s->n_last == 0) return;
    s->n_distinct = other->n_distinct;
    memcpy(s->last, other->last, (size_t)s->n_last * sizeof *s->last);
    memcpy(s->distinct, other->distinct, (size_t)s->n_last * sizeof *s->distinct);
    memcpy(s->n_seen, other->n_seen, (size_t)s->n_vocab * sizeof *s->n_seen);
    memcpy(s->place, other->place, (size_t)s->n_vocab * sizeof *s->place);
}

void llm_sampler_accept(llm_sampler *s, int32_t token) {
    if (token < 0 || token >= s->n_vocab) return;
    if (s->is_chain) llm_sampler_chain_accept(s, token);
    if (s->n_last > 0) {
        int32_t *slot = &s->last[s->n_accepted % (uint64_t)s->n_last];
        if (s->n_accepted >= (uint64_t)s->n_last && --s->n_seen[*slot] == 0) {
            const int32_t moved = s->distinct[--s->n_distinct];
            s->distinct[s->place[*slot]] = moved;
            s->place[moved] = s->place[*slot];
        }
        *slot = token;
        if (s->n_seen[token]++ == 0) {
            s->place[token] = s->n_distinct;
            s->distinct[s->n_distinct++] = token;
        }
    }
    s->n_accepted++;
}

llm_row llm_row_without(const llm_row *row, const int32_t *barred, int32_t n_barred,
                        float *logits_out) {
    llm_row out = {logits_out, row->tokens, row->n};
    memcpy(logits_out, row->logits, (size_t)row->n * sizeof *logits_out);
    for (int32_t i = 0; i < n_barred; i++) {
        if (row->tokens == NULL) logits_out[barred[i]] = -INFINITY;
        for (int32_t k = 0; row->tokens != NULL && k < row->n; k++)
            if (row->tokens[k] == barred[i]) logits_out[k] = -INFINITY;
    }
    return out;
}

llm_row llm_row_masked(const llm_row *row, const uint64_t *mask, float *logits_out) {
    for (int32_t i = 0; i < row->n; i++) {
        const int32_t t = row->tokens != NULL ? row->tokens[i] : i;
        logits_out[i] = mask[t / 64] >> (t % 64) & 1 ? row->logits[i] : -INFINITY;
    }
    return (llm_row){logits_out, row->tokens, row->n};
}

llm_row llm_row_changed(const llm_row *row, const llm_row_change *change, float *logits_out) {
    llm_row out = *row;
    if (change->n_barred + change->n_bias > 0)
        out = llm_row_without(row, change->barred, change->n_barred, logits_out);
    for (int32_t i = 0; i < change->n_bias; i++)
        logits_out[change->bias[i].token] += change->bias[i].bias;
    if (change->mask != NULL) out = llm_row_masked(&out, change->mask, logits_out);
    return out;
}

/* ---- Reproducible arithmetic ---- */

/* exp(x) for x <= 0, with an error of about 1e-15; 0 if the result is below the normal doubles. x =
 * k ln 2 + r with |r| <= ln 2 / 2, and exp(r) is its Taylor series to r^13, with a remainder below
 * 1e-17. ln 2 is the sum of two constants; the first has few enough bits that its product with k is
 * exact (fdlibm's split). */
double llm_sampler_exp(double x) {
    if (!(x > -708)) return 0;
    const int64_t k_int = (int64_t)(x * 1.4426950408889634 - 0.5); /* to the nearest, as x <= 0 */
    const double k = (double)k_int;
    const double r = (x - k * 6.93147180369123816490e-01) - k * 1.90821492927058770002e-10;
    static const double inverse_factorial[] = {1.0,
                                               1.0,
                                               1.0 / 2,
                                               1.0 / 6,
                                               1.0 / 24,
                                               1.0 / 120,
                                               1.0 / 720,
                                               1.0 / 5040,
                                               1.0 / 40320,
                                               1.0 / 362880,
                                               1.0 / 3628800,
                                               1.0 / 39916800,
                                               1.0 / 479001600,
                                               1.0 / 6227020800};
    double sum = inverse_factorial[13];
    for (int i = 12; i >= 0; i--) sum = sum * r + inverse_factorial[i];
    const uint64_t bits = (uint64_t)(1023 + k_int) << 52;
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return sum * scale;
}

/* A hash: the number that follows the state x. */
static uint64_t mix(uint64_t x) {
    return llm_random_next(&x);
}

double llm_sampler_uniform(const llm_sampler *s, uint64_t stream) {
    return (double)(mix(mix(s->params.seed + stream) + s->n_accepted) >> 11) * 0x1p-53;
}

/* ---- Steps ---- */

/* Fills s->logits: NaN becomes -inf, +inf the largest number, and tokens in the history are
 * penalised. Positive logits are divided by the penalty, negative ones multiplied, so that a
 * penalty above 1 always makes a token less likely (Keskar et al., "CTRL", 2019, section 4.1, with
 * the usual extension to negative logits). */
static void logits_prepare(llm_sampler *s, const llm_row *row) {
    s->tokens = row->tokens;
    s->n_row = row->n;
    for (int32_t i = 0; i < row->n; i++) {
        const float x = row->logits[i];
        s->logits[i] = x != x ? -INFINITY : x > FLT_MAX ? FLT_MAX : x;
    }
    if (s->is_chain) return; /* penalties are a step of it */
    for (int32_t i = 0; i < s->n_distinct; i++) {
        float *x = &s->logits[s->distinct[i]];
        if (*x < -FLT_MAX) continue;
        *x = *x > 0 ? *x / s->params.repeat_penalty : *x * s->params.repeat_penalty;
        /* A penalised token stays possible: not -inf. */
        if (*x < -FLT_MAX) *x = -FLT_MAX;
        if (*x > FLT_MAX) *x = FLT_MAX;
    }
}

/* The token of logit i of the row. */
static int32_t token_at(const llm_sampler *s, int32_t i) {
    return s->tokens != NULL ? s->tokens[i] : i;
}

bool llm_sampler_is_better(const candidate *a, const candidate *b) {
    return a->logit > b->logit || (a->logit == b->logit && a->token < b->token);
}

/* Moves heap[i] down to its place in a heap of n; the subtrees below i are heaps. */
static void sift_down(candidate *heap, int32_t n, int32_t i, bool is_best_first) {
    const candidate moved = heap[i];
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && llm_sampler_is_better(&heap[child + 1], &heap[child]) == is_best_first)
            child++;
        if (llm_sampler_is_better(&heap[child], &moved) != is_best_first) break;
        heap[i] = heap[child];
    }
    heap[i] = moved;
}

void llm_sampler_heapify(candidate *heap, int32_t n, bool is_best_first) {
    for (int32_t i = n / 2 - 1; i >= 0; i--) sift_down(heap, n, i, is_best_first);
}

void llm_sampler_heap_pop(candidate *heap, int32_t n, bool is_best_first) {
    const candidate top = heap[0];
    heap[0] = heap[n - 1];
    heap[n - 1] = top;
    if (n > 2) sift_down(heap, n - 1, 0, is_best_first);
}

/* After n_popped pops from a heap of n, the popped candidates are at the end, the best last. Moves
 * them to the beginning, best first. */
static void reverse(candidate *c, int32_t n, int32_t n_popped) {
    for (int32_t i = 0; i < n_popped && i < n - 1 - i; i++) {
        const candidate swapped = c[i];
        c[i] = c[n - 1 - i];
        c[n - 1 - i] = swapped;
    }
}

void llm_sampler_best_first(candidate *c, int32_t n, int32_t k) {
    llm_sampler_heapify(c, n, true);
    for (int32_t i = 0; i < k; i++) llm_sampler_heap_pop(c, n - i, true);
    reverse(c, n, k);
}

/* Writes the k best tokens with a logit above -inf, best first; returns how many there are. A heap
 * has the best tokens so far, with the worst of them at the top; few later tokens are better than
 * that one and replace it. */
static int32_t top_k(const llm_sampler *s, int32_t k, candidate *c) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_row; i++) {
        const float x = s->logits[i];
        if (!(x >= -FLT_MAX)) continue;
        if (n < k) {
            c[n++] = (candidate){.logit = x, .token = token_at(s, i)};
            if (n == k) llm_sampler_heapify(c, n, false);
        } else if (x > c[0].logit) { /* an equal one has a higher id */
            c[0] = (candidate){.logit = x, .token = token_at(s, i)};
            sift_down(c, n, 0, false);
        }
    }
    if (n < k) llm_sampler_heapify(c, n, false);
    for (int32_t left = n; left > 1; left--) llm_sampler_heap_pop(c, left, false);
    return n;
}

/* Writes the tokens with a logit above -inf, in the order of the row; returns how many. */
static int32_t all_possible(const llm_sampler *s, candidate *c) {
    int32_t n = 0;
    for (int32_t i = 0; i < s->n_row; i++)
        if (s->logits[i] >= -FLT_MAX)
            c[n++] = (candidate){.logit = s->logits[i], .token = token_at(s, i)};
    return n;
}

int32_t llm_sampler_top_p(candidate *c, int32_t n, double enough, double sum, bool is_sorted) {
    double reached = 0;
    int32_t n_kept = 0;
    if (is_sorted) {
        while (n_kept < n && (n_kept == 0 || reached < enough)) reached += c[n_kept++].weight;
        return n_kept;
    }
    /* n candidates of this weight would together weigh half of what may be left out. So all lighter
     * ones are left out without ordering them; the other half is a margin for rounding. */
    const double too_light = (sum - enough) / n / 2;
    int32_t n_heavy = 0;
    for (int32_t i = 0; i < n; i++)
        if (c[i].weight >= too_light) c[n_heavy++] = c[i];
    n = n_heavy;
    llm_sampler_heapify(c, n, true);
    while (n_kept < n && (n_kept == 0 || reached < enough)) {
        llm_sampler_heap_pop(c, n - n_kept, true);
        n_kept++;
        reached += c[n - n_kept].weight;
    }
    reverse(c, n, n_kept);
    return n_kept;
}

double llm_sampler_weigh(candidate *c, int32_t n, float max_logit, float temp) {
    double sum = 0;
    for (int32_t i = 0; i < n; i++) {
        c[i].weight = llm_sampler_exp(((double)c[i].logit - (double)max_logit) / (double)temp);
        sum += c[i].weight;
    }
    return sum;
}

int32_t llm_sampler_draw(const llm_sampler *s, const candidate *c, int32_t n, double sum) {
    const double enough = llm_sampler_uniform(s, 0) * sum;
    int32_t token = c[0].token;
    double reached = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!(c[i].weight > 0)) continue;
        token = c[i].token;
        reached += c[i].weight;
        if (reached > enough) break;
    }
    return token;
}

static bool is_greedy(const llm_sampler_params *p) {
    return p->temp == 0 || p->top_k == 1;
}

int32_t llm_sampler_candidates(const llm_sampler *s) {
    if (s->is_chain) return llm_sampler_chain_candidates(s);
    if (s->n_last > 0) return 0;
    if (is_greedy(&s->params)) return 1;
    return s->params.top_k < s->n_vocab ? s->params.top_k : 0;
}

/* Checks a row and prepares s->logits. *max_out = the highest logit, *best_out = its index in the
 * row. */
static tdm_status row_begin(llm_sampler *s, const llm_row *row, float *max_out, int32_t *best_out,
                            tdm_error *err) {
    const int32_t n_needed = row->tokens != NULL ? llm_sampler_candidates(s) : s->n_vocab;
    if (n_needed < 1 || row->n < n_needed || row->n > s->n_vocab)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "a row of %d %s; the sampler needs %d of a vocabulary of %d", row->n,
                        row->tokens != NULL ? "candidates" : "logits",
                        n_needed < 1 ? s->n_vocab : n_needed, s->n_vocab);
    logits_prepare(s, row);
    int32_t best = 0;
    for (int32_t i = 1; i < s->n_row; i++)
        if (s->logits[i] > s->logits[best]) best = i;
    *best_out = best;
    *max_out = s->logits[best];
    if (*max_out >= -FLT_MAX) return TDM_OK;
    return tdm_fail(err, TDM_DATA_LOSS,
                    "all %d logits are -inf or NaN: the weights of the model, or a computation, "
                    "are wrong",
                    s->n_row);
}

/* Runs TOP_K, TOP_P, MIN_P and TEMPERATURE, without a chain; orders as few tokens as possible.
 * Fills s->candidates, with weights whose sum is *sum_out; returns how many. */
static int32_t usual_steps(llm_sampler *s, float max_logit, double *sum_out) {
    const llm_sampler_params *p = &s->params;
    candidate *c = s->candidates;
    const bool is_sorted = p->top_k > 0 && p->top_k < s->n_vocab;
    int32_t n = is_sorted ? top_k(s, p->top_k, c) : all_possible(s, c);
    const bool has_min_p = p->min_p > 0, has_top_p = p->top_p > 0 && p->top_p < 1;
    if (has_min_p || has_top_p) {
        const double sum = llm_sampler_weigh(c, n, max_logit, 1);
        double left = sum;
        /* Both min-p and top-p keep the best candidates, so their order does not matter. min-p
         * comes first because it is cheaper and leaves fewer candidates to order. top-p still means
         * a part of the weight of all, including what min-p left out: the candidates that are left
         * may weigh less than that, and then all of them stay. */
        if (has_min_p) {
            int32_t n_kept = 0;
            left = 0;
            for (int32_t i = 0; i < n; i++) {
                if (c[i].weight < (double)p->min_p) continue;
                left += c[i].weight;
                c[n_kept++] = c[i];
            }
            n = n_kept;
        }
        if (has_top_p) n = llm_sampler_top_p(c, n, (double)p->top_p * sum, left, is_sorted);
    }
    *sum_out = llm_sampler_weigh(c, n, max_logit, p->temp);
    return n;
}

tdm_status llm_sampler_left(llm_sampler *s, const llm_row *row, candidate **left_out,
                            int32_t *n_out, double *sum_out, tdm_error *err) {
    float max_logit = 0;
    int32_t best = 0;
    *left_out = s->candidates;
    *n_out = 0;
    const tdm_status status = row_begin(s, row, &max_logit, &best, err);
    if (status != TDM_OK) return status;
    if (s->is_chain) {
        const int32_t n = all_possible(s, s->candidates);
        *n_out = llm_sampler_chain_steps(s, n, sum_out);
        if (*n_out > 0) return TDM_OK;
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "logit-bias leaves no token to sample");
    }
    if (is_greedy(&s->params)) {
        s->greedy = (candidate){1, max_logit, token_at(s, best)};
        *left_out = &s->greedy;
        *n_out = 1;
        *sum_out = 1;
        return TDM_OK;
    }
    *n_out = usual_steps(s, max_logit, sum_out);
    return TDM_OK;
}

tdm_status llm_sampler_pick(llm_sampler *s, const llm_row *row, int32_t *token_out,
                            tdm_error *err) {
    candidate *left;
    int32_t n;
    double sum = 0;
    *token_out = -1;
    const tdm_status status = llm_sampler_left(s, row, &left, &n, &sum, err);
    if (status != TDM_OK) return status;
    *token_out = llm_sampler_draw(s, left, n, sum);
    if (s->is_chain) llm_sampler_chain_picked(s, *token_out, n, sum);
    return TDM_OK;
}
