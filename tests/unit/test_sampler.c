/* SPDX-License-Identifier: MIT
 *
 * test_sampler.c: each step of sampling against a simple version that sorts all tokens, draws
 * against their distribution, and the refused parameters.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <math.h>
#include <time.h>

#include <cmocka.h>

#include "llm/sampler.h"
#include "tests/support/random.h"

static uint64_t random_state;

static uint32_t random_u32(void) {
    return (uint32_t)(random_u64(&random_state) >> 32);
}

static float random_float(float lo, float hi) {
    return lo + (hi - lo) * (float)(random_u32() >> 8) * 0x1p-24f;
}

/* The linker sends the sampler's allocations here (--wrap). */
static int calloc_count, calloc_fails_at;
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size) {
    return ++calloc_count == calloc_fails_at ? NULL : __real_calloc(n, size);
}

static int32_t vocabulary; /* of the sampler that was made last */

static llm_sampler *make(llm_sampler_params params, int32_t n_vocab, int32_t n_history) {
    vocabulary = n_vocab;
    llm_sampler *s = NULL;
    tdm_error err = {0};
    if (llm_sampler_create(&params, n_vocab, n_history, &s, &err) != TDM_OK)
        fail_msg("%s", err.message);
    return s;
}

static const float *ranked_logits;

/* The order of TOP_K: the highest first, equal ones by id, NaN last. */
static int place_compare(const void *a, const void *b) {
    const int32_t i = *(const int32_t *)a, k = *(const int32_t *)b;
    const float x = ranked_logits[i], y = ranked_logits[k];
    if ((x != x) != (y != y)) return x != x ? 1 : -1;
    if (x > y || x < y) return x > y ? -1 : 1;
    return i < k ? -1 : 1;
}

/* The token picked from the best n logits alone. One fewer is refused. */
static int32_t pick_among(llm_sampler *s, const float *logits, int32_t n) {
    int32_t *tokens = malloc((size_t)vocabulary * sizeof *tokens), token = -2;
    float *values = malloc((size_t)vocabulary * sizeof *values);
    tdm_error err = {0};
    ranked_logits = logits;
    for (int32_t i = 0; i < vocabulary; i++) tokens[i] = i;
    qsort(tokens, (size_t)vocabulary, sizeof *tokens, place_compare);
    for (int32_t i = 0; i < vocabulary; i++) values[i] = logits[tokens[i]];
    llm_row row = {values, tokens, n};
    if (llm_sampler_pick(s, &row, &token, &err) != TDM_OK) fail_msg("%s", err.message);
    row.n = n - 1; /* one too few */
    int32_t none = -2;
    assert_int_equal(llm_sampler_pick(s, &row, &none, &err), TDM_INVALID_ARGUMENT);
    assert_int_equal(none, -1);
    free(tokens);
    free(values);
    return token;
}

/* Picks from the whole row, and from as few candidates as the sampler needs: the same token. */
static int32_t pick(llm_sampler *s, const float *logits) {
    int32_t token = -2, n = llm_sampler_candidates(s);
    tdm_error err = {0};
    const llm_row row = {logits, NULL, vocabulary};
    if (llm_sampler_pick(s, &row, &token, &err) != TDM_OK) fail_msg("%s", err.message);
    if (n > 0) assert_int_equal(pick_among(s, logits, n), token);
    return token;
}

/* ---- the naive version ----------------------------------------------------------------------- */

typedef struct ranked {
    float logit;
    int32_t token;
} ranked;

static int rank_compare(const void *a, const void *b) {
    const ranked *x = a, *y = b;
    if (x->logit != y->logit) return x->logit > y->logit ? -1 : 1;
    return x->token - y->token;
}

/* p_out[n]: the distribution that a pick draws from. `history` holds what is penalised. */
static void distribution(const llm_sampler_params *p, const float *logits, int32_t n,
                         const int32_t *history, int32_t n_history, double *p_out) {
    ranked *order = malloc((size_t)n * sizeof *order);
    bool *is_in = calloc((size_t)n, sizeof *is_in);
    int32_t n_left = 0;
    assert_non_null(order);
    assert_non_null(is_in);
    for (int32_t i = 0; i < n_history; i++) is_in[history[i]] = true;
    for (int32_t i = 0; i < n; i++) {
        float x = logits[i];
        p_out[i] = 0;
        if (isnan(x) || x == -INFINITY) continue;
        if (is_in[i] && p->repeat_penalty != 0)
            x = x > 0 ? x / p->repeat_penalty : x * p->repeat_penalty;
        order[n_left++] = (ranked){x, i};
    }
    qsort(order, (size_t)n_left, sizeof *order, rank_compare);
    if (p->top_k > 0 && n_left > p->top_k) n_left = p->top_k;
    double sum = 0, head = 0;
    for (int32_t i = 0; i < n_left; i++) sum += exp((double)order[i].logit - order[0].logit);
    int32_t n_p = n_left, n_min = 0;
    if (p->top_p > 0 && p->top_p < 1)
        for (n_p = 0; n_p == 0 || (n_p < n_left && head < p->top_p * sum); n_p++)
            head += exp((double)order[n_p].logit - order[0].logit);
    while (n_min < n_left && exp((double)order[n_min].logit - order[0].logit) >= p->min_p) n_min++;
    n_left = n_p < n_min ? n_p : n_min;
    if (p->temp == 0) n_left = 1;
    sum = 0;
    for (int32_t pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < n_left; i++) {
            const double w =
                p->temp == 0 ? 1 : exp(((double)order[i].logit - order[0].logit) / p->temp);
            if (pass == 0)
                sum += w;
            else
                p_out[order[i].token] = w / sum;
        }
    free(order);
    free(is_in);
}

/* 10000 draws: none outside the distribution's support, and chi-square below what one in a
 * million samples of the right distribution exceeds (Wilson and Hilferty's approximation with
 * z = 4.75). The history moves on with tokens that `history` names, over and over. */
static void draws_match(llm_sampler_params params, const float *logits, int32_t n,
                        const int32_t *history, int32_t n_history) {
    enum { DRAWS = 10000 };
    double *p = calloc((size_t)n, sizeof *p);
    int32_t *count = calloc((size_t)n, sizeof *count);
    assert_non_null(p);
    assert_non_null(count);
    distribution(&params, logits, n, history, n_history, p);
    llm_sampler *s = make(params, n, n_history);
    for (int32_t i = 0; i < n_history; i++) llm_sampler_accept(s, history[i]);
    for (int32_t i = 0; i < DRAWS; i++) {
        const int32_t token = pick(s, logits);
        assert_true(token >= 0 && token < n);
        if (p[token] == 0) fail_msg("token %d drawn, which has no share", token);
        count[token]++;
        llm_sampler_accept(s, n_history > 0 ? history[i % n_history] : token);
    }
    /* Cells with fewer than 5 expected draws are put together. */
    double chi = 0, rest_expected = 0;
    int32_t n_cell = 0, rest_count = 0;
    for (int32_t i = 0; i < n; i++) {
        const double expected = p[i] * DRAWS;
        if (expected < 5) {
            rest_expected += expected;
            rest_count += count[i];
            continue;
        }
        chi += (count[i] - expected) * (count[i] - expected) / expected;
        n_cell++;
    }
    if (rest_expected >= 5) {
        chi += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected;
        n_cell++;
    } else {
        assert_true(rest_count <= 40);
    }
    if (n_cell > 1) {
        const double f = n_cell - 1, h = 2 / (9 * f);
        const double limit = f * pow(1 - h + 4.75 * sqrt(h), 3);
        if (chi > limit) fail_msg("chi-square %.1f over %d cells, limit %.1f", chi, n_cell, limit);
    }
    llm_sampler_destroy(s);
    free(count);
    free(p);
}

/* ---- the tests ------------------------------------------------------------------------------- */

static void test_greedy(void **state) {
    (void)state;
    const float nan = NAN, inf = INFINITY;
    const float plain[] = {1, 3, 2, 3}, with_nan[] = {nan, -2, nan, -1},
                only[] = {-inf, nan, -inf, -9}, high[] = {1, inf, inf, 5},
                low[] = {-3e38f, -3.1e38f, -3e38f, -inf};
    const struct {
        const float *logits;
        int32_t token;
    } cases[] = {{plain, 1}, {with_nan, 3}, {only, 3}, {high, 1}, {low, 0}};
    /* Greedy, and drawn from one token: the same for all other parameters. */
    const llm_sampler_params params[] = {
        {.temp = 0},
        {.temp = 0, .top_k = 3, .top_p = 0.5f, .min_p = 0.1f, .seed = 7},
        {.temp = 2, .top_k = 1, .seed = 5},
        {.temp = 1, .top_p = 1e-6f, .seed = 5},
        {.temp = 1, .top_k = 3, .top_p = 1e-6f, .seed = 5},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < sizeof params / sizeof *params; k++) {
            llm_sampler *s = make(params[k], 4, 0);
            for (int32_t draw = 0; draw < 20; draw++) {
                assert_int_equal(pick(s, cases[i].logits), cases[i].token);
                llm_sampler_accept(s, 0);
            }
            llm_sampler_destroy(s);
        }
}

static void test_penalty(void **state) {
    (void)state;
    const float logits[] = {4.0f, 3.0f, -1.0f, 2.5f};
    llm_sampler *s = make((llm_sampler_params){.repeat_penalty = 2, .repeat_last_n = 3}, 4, 100);
    assert_int_equal(pick(s, logits), 0);
    llm_sampler_accept(s, 0); /* 2 3 -1 2.5 */
    assert_int_equal(pick(s, logits), 1);
    llm_sampler_accept(s, 0); /* once is enough: 2 still */
    llm_sampler_accept(s, 1); /* 2 1.5 -1 2.5 */
    assert_int_equal(pick(s, logits), 3);
    llm_sampler_accept(s, 3); /* {0, 1, 3}: 2 1.5 -1 1.25 */
    assert_int_equal(pick(s, logits), 0);
    llm_sampler_accept(s, 2); /* {1, 3, 2}: the 0 is forgotten only now */
    assert_int_equal(pick(s, logits), 0);
    const float next[] = {1.4f, 3.0f, -1.0f, 2.7f}; /* {1, 3, 2}: 1.4 1.5 -2 1.35 */
    assert_int_equal(pick(s, next), 1);
    llm_sampler_accept(s, -1); /* no tokens, so nothing is forgotten */
    llm_sampler_accept(s, 4);
    llm_sampler_accept(s, INT32_MAX);
    assert_int_equal(pick(s, next), 1);
    llm_sampler_destroy(s);

    /* Negative logits are pushed down, not up; what overflows stays possible. */
    const float negative[] = {-1.0f, -1.5f, -INFINITY};
    s = make((llm_sampler_params){.repeat_penalty = 2, .repeat_last_n = -1}, 3, 8);
    llm_sampler_accept(s, 0);
    llm_sampler_accept(s, 2);
    assert_int_equal(pick(s, negative), 1);
    const float lowest[] = {-3e38f, -INFINITY, -INFINITY};
    assert_int_equal(pick(s, lowest), 0);
    llm_sampler_destroy(s);

    /* Off: by the penalty, by the history's length. */
    const llm_sampler_params off[] = {{.repeat_penalty = 0, .repeat_last_n = -1},
                                      {.repeat_penalty = 1, .repeat_last_n = -1},
                                      {.repeat_penalty = 9, .repeat_last_n = 0}};
    for (size_t i = 0; i < 3; i++) {
        s = make(off[i], 4, 100);
        llm_sampler_accept(s, 0);
        assert_int_equal(pick(s, logits), 0);
        llm_sampler_destroy(s);
    }
    s = make((llm_sampler_params){.repeat_penalty = 9, .repeat_last_n = -1}, 4, 0);
    llm_sampler_accept(s, 0);
    assert_int_equal(pick(s, logits), 0);
    llm_sampler_destroy(s);
}

/* A long walk over a short memory: greedy with penalty against the naive version. */
static void test_penalty_walk(void **state) {
    (void)state;
    enum { VOCAB = 23, STEPS = 3000 };
    static int32_t history[STEPS];
    for (int32_t last_n = -1; last_n < 40; last_n += 8) {
        const llm_sampler_params params = {.repeat_penalty = 1.3f, .repeat_last_n = last_n};
        const int32_t window = last_n < 0 ? 29 : last_n;
        llm_sampler *s = make(params, VOCAB, last_n < 0 ? 29 : STEPS);
        for (int32_t i = 0; i < STEPS; i++) {
            float logits[VOCAB];
            double p[VOCAB];
            for (int32_t t = 0; t < VOCAB; t++) logits[t] = random_float(-3, 3);
            const int32_t n = i < window ? i : window;
            distribution(&params, logits, VOCAB, history + i - n, n, p);
            const int32_t token = pick(s, logits);
            assert_true(p[token] == 1);
            history[i] = random_u32() % 3 ? token : (int32_t)(random_u32() % VOCAB);
            llm_sampler_accept(s, history[i]);
        }
        llm_sampler_destroy(s);
    }
}

static void test_draws(void **state) {
    (void)state;
    enum { VOCAB = 60 };
    static const int32_t history[] = {3, 9, 3, 27, 59, 0};
    float smooth[VOCAB], steep[VOCAB], tied[VOCAB], holes[VOCAB];
    for (int32_t i = 0; i < VOCAB; i++) {
        smooth[i] = random_float(-1, 2);
        steep[i] = random_float(-20, 4);
        tied[i] = (float)(random_u32() % 4);
        holes[i] = random_u32() % 3 == 0 ? (random_u32() % 2 ? NAN : -INFINITY) : smooth[i];
    }
    const float *const logits[] = {smooth, steep, tied, holes};
    const llm_sampler_params params[] = {
        {.temp = 1, .seed = 1},
        {.temp = 0.5f, .seed = 2},
        {.temp = 3, .seed = 3},
        {.temp = 1, .top_k = 7, .seed = 4},
        {.temp = 1.5f, .top_k = 59, .seed = 5},
        {.temp = 1, .top_k = 60, .seed = 6},
        {.temp = 1, .top_k = INT32_MAX, .seed = 7},
        {.temp = 1, .top_p = 0.8f, .seed = 8},
        {.temp = 2, .top_p = 0.3f, .seed = 9},
        {.temp = 1, .top_p = 1, .seed = 10},
        {.temp = 1, .top_p = 7, .seed = 10},
        {.temp = 1, .min_p = 0.2f, .seed = 11},
        {.temp = 0.7f, .min_p = 1, .seed = 12},
        {.temp = 1, .top_k = 20, .top_p = 0.7f, .seed = 13},
        {.temp = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = UINT64_MAX},
        {.temp = 4, .top_p = 0.97f, .min_p = 0.3f, .seed = 15},
        {.temp = 1e-30f, .seed = 16},
        {.temp = 3e38f, .top_k = 11, .seed = 17},
        {.temp = 1, .repeat_penalty = 1.5f, .repeat_last_n = -1, .seed = 18},
        {.temp = 1, .top_k = 9, .top_p = 0.9f, .repeat_penalty = 1.2f, .repeat_last_n = 6},
    };
    for (size_t i = 0; i < sizeof logits / sizeof *logits; i++)
        for (size_t k = 0; k < sizeof params / sizeof *params; k++) {
            const bool is_penalised = params[k].repeat_last_n != 0;
            draws_match(params[k], logits[i], VOCAB, history, is_penalised ? 6 : 0);
        }
}

/* Where the tokens that min-p leaves out weigh most, the others are all kept: they do not reach the
 * part that top-p asks for. */
static void test_light_tail(void **state) {
    (void)state;
    enum { VOCAB = 1100 };
    float logits[VOCAB];
    for (int32_t i = 0; i < VOCAB; i++) logits[i] = logf(0.09f);
    logits[500] = 0;
    logits[100] = logf(0.11f);
    draws_match((llm_sampler_params){.temp = 1, .top_p = 0.95f, .min_p = 0.1f, .seed = 3}, logits,
                VOCAB, NULL, 0);
}

/* What survives the cuts is exactly what the naive version keeps: a flat temperature makes each
 * survivor as likely as the others, so that 40 draws per survivor see all of them. */
static void test_survivors(void **state) {
    (void)state;
    enum { VOCAB = 400 };
    for (int32_t round = 0; round < 300; round++) {
        float logits[VOCAB];
        double p[VOCAB];
        bool is_seen[VOCAB] = {false};
        const int32_t n = 1 + (int32_t)(random_u32() % (round % 2 ? 12 : VOCAB));
        const bool is_coarse = random_u32() % 3 == 0; /* many ties */
        for (int32_t i = 0; i < n; i++) {
            logits[i] = is_coarse ? 0.5f * (float)(random_u32() % 8) : random_float(-6, 6);
            if (i > 0 && random_u32() % 10 == 0) logits[i] = -INFINITY;
        }
        llm_sampler_params params = {.temp = 1e30f, .seed = (uint64_t)round};
        if (random_u32() % 2) params.top_k = (int32_t)(random_u32() % 30);
        if (random_u32() % 2) params.top_p = random_float(0, 1);
        if (random_u32() % 2) params.min_p = random_float(0, 0.6f);
        distribution(&params, logits, n, NULL, 0, p);
        llm_sampler *s = make(params, n, 0);
        int32_t n_kept = 0;
        for (int32_t i = 0; i < n; i++) n_kept += p[i] > 0;
        for (int32_t i = 0; i < 40 * n_kept; i++) {
            const int32_t token = pick(s, logits);
            assert_true(p[token] > 0);
            is_seen[token] = true;
            llm_sampler_accept(s, 0);
        }
        for (int32_t i = 0; i < n; i++) assert_int_equal(is_seen[i], p[i] > 0);
        llm_sampler_destroy(s);
    }
}

static void test_same(void **state) {
    (void)state;
    enum { VOCAB = 1000, DRAWS = 200 };
    float logits[VOCAB];
    /* From integers, so that every machine has the same. */
    for (int32_t i = 0; i < VOCAB; i++) logits[i] = (float)((i * 7919) % 1009) / 128.0f;
    const llm_sampler_params params = {.temp = 0.8f, .top_k = 40, .top_p = 0.95f, .seed = 42};
    llm_sampler *a = make(params, VOCAB, 0), *b = make(params, VOCAB, 0);
    llm_sampler_params other_params = params;
    other_params.seed = 43;
    llm_sampler *other = make(other_params, VOCAB, 0);
    int32_t n_different = 0;
    uint32_t hash = 2166136261u;
    for (int32_t i = 0; i < DRAWS; i++) {
        const int32_t token = pick(a, logits);
        assert_int_equal(pick(a, logits), token); /* a pick alone changes nothing */
        assert_int_equal(pick(b, logits), token);
        n_different += pick(other, logits) != token;
        hash = (hash ^ (uint32_t)token) * 16777619u;
        llm_sampler_accept(a, token);
        llm_sampler_accept(b, token);
        llm_sampler_accept(other, token);
    }
    assert_true(n_different > DRAWS / 2);
    /* The hash of the drawn tokens is the same on every machine. */
    assert_int_equal(hash, 0xadb70b9du);
    llm_sampler_destroy(a);
    llm_sampler_destroy(b);
    llm_sampler_destroy(other);
    llm_sampler_destroy(NULL);
}

static void test_bad(void **state) {
    (void)state;
    const struct {
        llm_sampler_params params;
        const char *text;
    } wrong[] = {
        {{.temp = -1}, "temp = -1"},
        {{.temp = NAN}, "temp"},
        {{.temp = INFINITY}, "temp"},
        {{.top_k = -1}, "top-k = -1"},
        {{.top_p = -0.5f}, "top-p = -0.5"},
        {{.top_p = NAN}, "top-p"},
        {{.min_p = 1.5f}, "min-p = 1.5"},
        {{.min_p = -1}, "min-p"},
        {{.min_p = NAN}, "min-p"},
        {{.repeat_penalty = -1}, "repeat-penalty = -1"},
        {{.repeat_penalty = NAN}, "repeat-penalty"},
        {{.repeat_penalty = INFINITY}, "repeat-penalty"},
        {{.repeat_last_n = -2}, "repeat-last-n = -2"},
    };
    llm_sampler *s = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tdm_error err = {0};
        assert_int_equal(llm_sampler_create(&wrong[i].params, 8, 8, &s, &err),
                         TDM_INVALID_ARGUMENT);
        if (strstr(err.message, wrong[i].text) == NULL) fail_msg("says: %s", err.message);
        assert_null(s);
    }
    const llm_sampler_params good = {
        .temp = 1, .repeat_penalty = 2, .repeat_last_n = -1, .struct_size = sizeof good};
    assert_int_equal(llm_sampler_create(&good, 0, 8, &s, NULL), TDM_INVALID_ARGUMENT);
    assert_int_equal(llm_sampler_create(&good, 8, -1, &s, NULL), TDM_INVALID_ARGUMENT);
    /* An older caller's params: what it does not have is 0. */
    llm_sampler_params old = {.struct_size = offsetof(llm_sampler_params, top_k), .top_k = -5};
    s = make(old, 8, 8);
    llm_sampler_destroy(s);
    for (calloc_fails_at = 1; calloc_fails_at <= 7; calloc_fails_at++) {
        tdm_error err = {0};
        calloc_count = 0;
        assert_int_equal(llm_sampler_create(&good, 8, 8, &s, &err), TDM_RESOURCE_EXHAUSTED);
        assert_null(s);
    }
    calloc_fails_at = 0;

    /* A chain, with all that DRY has. */
    llm_sampler_breakers *breakers;
    assert_int_equal(
        llm_sampler_breakers_create(NULL, (const char *const[]){"ab"}, 1, &breakers, NULL), TDM_OK);
    const llm_sampler_params dry = {
        .temp = 1, .dry_multiplier = 1, .dry_breakers = breakers, .struct_size = sizeof dry};
    int n_failed = 0;
    tdm_status status = TDM_RESOURCE_EXHAUSTED;
    for (calloc_fails_at = 1; status != TDM_OK; calloc_fails_at++) {
        calloc_count = 0;
        status = llm_sampler_create(&dry, 8, 8, &s, NULL);
        n_failed += status == TDM_RESOURCE_EXHAUSTED;
        assert_true(status == TDM_OK || (status == TDM_RESOURCE_EXHAUSTED && s == NULL));
    }
    assert_int_equal(n_failed, 10);
    llm_sampler_destroy(s);
    for (calloc_fails_at = 1; calloc_fails_at <= 2; calloc_fails_at++) {
        llm_sampler_breakers *none = breakers;
        calloc_count = 0;
        assert_int_equal(llm_sampler_breakers_create(NULL, NULL, 0, &none, NULL),
                         TDM_RESOURCE_EXHAUSTED);
        assert_null(none);
    }
    llm_sampler_breakers_destroy(breakers);
    calloc_fails_at = 0;

    const float none[] = {NAN, -INFINITY, NAN};
    for (int32_t i = 0; i < 2; i++) {
        int32_t token = 5;
        tdm_error err = {0};
        s = make((llm_sampler_params){.temp = (float)i}, 3, 0);
        assert_int_equal(llm_sampler_pick(s, &(llm_row){none, NULL, 3}, &token, &err),
                         TDM_DATA_LOSS);
        assert_non_null(strstr(err.message, "all 3 logits"));
        assert_int_equal(token, -1);
        assert_int_equal(pick(s, (const float[]){NAN, 0, NAN}), 1); /* and goes on */
        llm_sampler_destroy(s);
    }
}

/* A vocabulary of 150 thousand tokens. Prints the time, which is not checked. */
static void test_large(void **state) {
    (void)state;
    enum { VOCAB = 150000 };
    float *logits = malloc(VOCAB * sizeof *logits);
    assert_non_null(logits);
    for (int32_t i = 0; i < VOCAB; i++) logits[i] = random_float(-15, 5);
    const llm_sampler_params params[] = {
        {.temp = 0},
        {.temp = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f},
        {.temp = 0.8f, .top_p = 0.95f},
        {.temp = 0.8f}};
    static const char *const names[] = {"greedy", "top-k 40", "top-p 0.95", "all"};
    for (size_t k = 0; k < sizeof params / sizeof *params; k++) {
        llm_sampler *s = make(params[k], VOCAB, 0);
        struct timespec from, to;
        clock_gettime(CLOCK_MONOTONIC, &from);
        for (int32_t i = 0; i < 10; i++) {
            assert_true(logits[pick(s, logits)] > -15);
            llm_sampler_accept(s, 0);
        }
        clock_gettime(CLOCK_MONOTONIC, &to);
        print_message(
            "%s of %d: %.2f ms\n", names[k], VOCAB,
            ((double)(to.tv_sec - from.tv_sec) * 1e3 + (double)(to.tv_nsec - from.tv_nsec) * 1e-6) /
                10);
        llm_sampler_destroy(s);
    }
    free(logits);
}

/* How many candidates are needed, and rows without barred tokens. */
static void test_candidates(void **state) {
    (void)state;
    static const struct {
        llm_sampler_params params;
        int32_t n;
    } cases[] = {{{.temp = 0}, 1},
                 {{.temp = 1, .top_k = 1}, 1},
                 {{.temp = 1, .top_k = 4}, 4},
                 {{.temp = 1, .top_k = 8}, 0}, /* the whole vocabulary */
                 {{.temp = 1, .top_p = 0.5f}, 0},
                 {{.temp = 0, .repeat_penalty = 2, .repeat_last_n = 4}, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        llm_sampler *s = make(cases[i].params, 8, 16);
        assert_int_equal(llm_sampler_candidates(s), cases[i].n);
        llm_sampler_destroy(s);
    }
    const float logits[] = {1, 5, 3, 4}, best[] = {5, 4, 3};
    const int32_t tokens[] = {1, 3, 2}, barred[] = {1, 0};
    float out[4], out_best[3];
    llm_row whole = {logits, NULL, 4}, few = {best, tokens, 3};
    whole = llm_row_without(&whole, barred, 2, out);
    few = llm_row_without(&few, barred, 2, out_best);
    llm_sampler *s = make((llm_sampler_params){.temp = 0}, 4, 0);
    int32_t token = -2;
    tdm_error err = {0};
    assert_int_equal(llm_sampler_pick(s, &whole, &token, &err), TDM_OK);
    assert_int_equal(token, 3);
    assert_int_equal(llm_sampler_pick(s, &few, &token, &err), TDM_OK);
    assert_int_equal(token, 3);
    assert_true(out[0] < -1e30f && out[1] < -1e30f && out[2] == 3 && out[3] == 4);
    llm_sampler_destroy(s);
}

/* Barred tokens, biases and a mask, each alone and together: no bias makes a barred token possible
 * again. Where nothing changes, nothing is copied. */
static void test_row_changes(void **state) {
    (void)state;
    static const float logits[] = {1, 5, 3, 4};
    static const int32_t barred[] = {1};
    static const llm_logit_bias bias[] = {{1, 100}, {3, 0.5f}, {2, -2}};
    static const uint64_t mask = 0xb; /* all but token 2 */
    static const float expected[8][4] = {{1, 5, 3, 4},
                                         {1, -INFINITY, 3, 4},
                                         {1, 105, 1, 4.5f},
                                         {1, -INFINITY, 1, 4.5f},
                                         {1, 5, -INFINITY, 4},
                                         {1, -INFINITY, -INFINITY, 4},
                                         {1, 105, -INFINITY, 4.5f},
                                         {1, -INFINITY, -INFINITY, 4.5f}};
    const llm_row row = {logits, NULL, 4};
    for (int k = 0; k < 8; k++) {
        float out[4];
        const llm_row_change change = {.barred = barred,
                                       .n_barred = k & 1,
                                       .bias = bias,
                                       .n_bias = (k & 2) != 0 ? 3 : 0,
                                       .mask = (k & 4) != 0 ? &mask : NULL};
        const llm_row changed = llm_row_changed(&row, &change, out);
        assert_ptr_equal(changed.logits, k == 0 ? logits : out);
        assert_null(changed.tokens);
        assert_int_equal(changed.n, 4);
        assert_memory_equal(changed.logits, expected[k], sizeof expected[k]);
    }
}

/* Candidates give the token of the whole row, too, where a step before TOP_K leaves tokens out, and
 * where fewer tokens are possible than TOP_K keeps: `pick` compares them. */
static void test_candidates_of_chains(void **state) {
    (void)state;
    enum { VOCAB = 60 };
    static const llm_sampler_params params[] = {
        {.temp = 1,
         .top_k = 20,
         .min_p = 0.3f,
         .seed = 1,
         .order = {LLM_SAMPLER_MIN_P, LLM_SAMPLER_TOP_K, LLM_SAMPLER_TEMPERATURE},
         .n_order = 3},
        {.temp = 1,
         .top_k = 50,
         .seed = 2,
         .order = {LLM_SAMPLER_TOP_K, LLM_SAMPLER_TEMPERATURE},
         .n_order = 2}};
    for (size_t i = 0; i < sizeof params / sizeof *params; i++) {
        llm_sampler *s = make(params[i], VOCAB, 0);
        assert_int_equal(llm_sampler_candidates(s), params[i].top_k);
        for (int d = 0; d < 200; d++) {
            float logits[VOCAB];
            for (int32_t t = 0; t < VOCAB; t++)
                logits[t] = t % 3 == 0 ? -INFINITY : random_float(-2, 2);
            llm_sampler_accept(s, pick(s, logits));
        }
        llm_sampler_destroy(s);
    }
}

/* A temperature before TOP_K makes some of these logits equal. The best k of the row are others
 * then than the best k of the divided logits: such a sampler must get the whole row. */
static void test_temperature_before_top_k(void **state) {
    (void)state;
    enum { VOCAB = 300, K = 20 };
    static const struct {
        float temp;
        int32_t n;
    } cases[] = {{1.9f, 0}, {0.9f, 0}, {1, K}, {0, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const llm_sampler_params params = {.temp = cases[i].temp,
                                           .top_k = K,
                                           .seed = 3,
                                           .order = {LLM_SAMPLER_TEMPERATURE, LLM_SAMPLER_TOP_K},
                                           .n_order = 2};
        llm_sampler *s = make(params, VOCAB, 0);
        for (int d = 0; d < 500; d++) {
            float logits[VOCAB];
            for (int32_t t = 0; t < VOCAB; t++) logits[t] = random_float(1.99f, 1.99002f);
            llm_sampler_accept(s, pick(s, logits)); /* the same from candidates, where they do */
        }
        assert_int_equal(llm_sampler_candidates(s), cases[i].n);
        llm_sampler_destroy(s);
    }
}

/* Penalties that are both beyond the largest float: the difference is a number. */
static void test_extreme_penalties(void **state) {
    (void)state;
    const float logits[] = {20, 1, 2};
    llm_sampler *s = make(
        (llm_sampler_params){
            .temp = 1, .repeat_penalty = 1e-38f, .frequency_penalty = 3e38f, .repeat_last_n = -1},
        3, 8);
    for (int i = 0; i < 2; i++) llm_sampler_accept(s, 0);
    assert_int_not_equal(pick(s, logits), 0);
    llm_sampler_destroy(s);
}

/* A temperature so low that quotients of logits are beyond the largest float leaves the best token
 * alone: a fixed one, and a dynamic one where a bias makes one token nearly certain. */
static void test_low_temperature(void **state) {
    (void)state;
    const float high[] = {8, 9, 10, 7}, low[] = {-8, -7, -6, -9};
    const llm_logit_bias bias = {2, 150};
    for (uint64_t seed = 0; seed < 20; seed++) {
        llm_sampler *fixed =
            make((llm_sampler_params){.temp = 1e-39f, .min_keep = 2, .seed = seed}, 4, 4);
        assert_int_equal(pick(fixed, high), 2);
        assert_int_equal(pick(fixed, low), 2);
        llm_sampler_destroy(fixed);
        llm_sampler *dynamic = make((llm_sampler_params){.temp = 0.5f,
                                                         .dynatemp_range = 0.5f,
                                                         .logit_bias = &bias,
                                                         .n_logit_bias = 1,
                                                         .seed = seed},
                                    4, 4);
        assert_int_equal(pick(dynamic, high), 2);
        llm_sampler_destroy(dynamic);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_penalty),
        cmocka_unit_test(test_penalty_walk),
        cmocka_unit_test(test_draws),
        cmocka_unit_test(test_survivors),
        cmocka_unit_test(test_same),
        cmocka_unit_test(test_bad),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_candidates_of_chains),
        cmocka_unit_test(test_light_tail),
        cmocka_unit_test(test_temperature_before_top_k),
        cmocka_unit_test(test_row_changes),
        cmocka_unit_test(test_low_temperature),
        cmocka_unit_test(test_extreme_penalties),
    };
    random_state = test_seed("sampler", 88172645463325252u);
    return cmocka_run_group_tests_name("sampler", tests, NULL, NULL);
}
