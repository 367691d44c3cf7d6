/* SPDX-License-Identifier: MIT
 *
 * sampler_chain.c: runs the steps of sampling as a chain: all kinds of steps, in any order. See
 * sampler.h for the steps. Results are equal on every machine; sampler.c says how.
 */
#include <ctype.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llm/sampler_internal.h"

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* as in sampler.c */
#endif

#define LN_2 0.69314718055994530942

/* ---- Names ---- */

static const char *const step_names[LLM_SAMPLER_STEP_COUNT] = {
#define STEP_NAME(ID, name) [LLM_SAMPLER_##ID] = name,
    LLM_SAMPLER_STEP_LIST(STEP_NAME)
#undef STEP_NAME
};

const char *llm_sampler_step_name(llm_sampler_step step) {
    return step_names[step];
}

/* Whether name[0..len) is the step's name: in any case, and each '_' may be '-' or left out. */
static bool is_named(const char *step, const char *name, size_t len) {
    size_t k = 0;
    for (; *step != '\0'; step++) {
        if (*step == '_') {
            k += k < len && (name[k] == '_' || name[k] == '-');
            continue;
        }
        if (k == len || tolower((unsigned char)name[k]) != *step) return false;
        k++;
    }
    return k == len;
}

int llm_sampler_step_find(const char *name, size_t len) {
    static const struct {
        const char *name;
        llm_sampler_step step;
    } others[] = {
        {"temp", LLM_SAMPLER_TEMPERATURE},  {"typ", LLM_SAMPLER_TYPICAL_P},
        {"typical", LLM_SAMPLER_TYPICAL_P}, {"typical_p", LLM_SAMPLER_TYPICAL_P},
        {"nucleus", LLM_SAMPLER_TOP_P},
    };
    for (int i = 0; i < LLM_SAMPLER_STEP_COUNT; i++)
        if (is_named(step_names[i], name, len)) return i;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (is_named(others[i].name, name, len)) return others[i].step;
    return -1;
}

/* ---- Creation and history ---- */

bool llm_sampler_has_chain(const llm_sampler_params *p) {
    return p->frequency_penalty != 0 || p->presence_penalty != 0 ||
           (p->typical_p > 0 && p->typical_p < 1) || p->top_n_sigma > 0 || p->xtc_probability > 0 ||
           p->dynatemp_range > 0 || p->dry_multiplier != 0 || p->mirostat != 0 ||
           p->n_logit_bias > 0 || p->min_keep > 1 || p->n_order != 0;
}

/* Replaces parameters of value 0 by the usual values, and sets the order of steps. */
static void usual_values(llm_sampler *s) {
    llm_sampler_params *p = &s->params;
    if (p->dynatemp_exponent == 0) p->dynatemp_exponent = 1;
    if (p->dry_base == 0) p->dry_base = 1.75f;
    if (p->dry_allowed_length == 0) p->dry_allowed_length = 2;
    if (p->dry_allowed_length < 0) p->dry_allowed_length = 0;
    if (p->mirostat_tau == 0) p->mirostat_tau = 5;
    if (p->mirostat_eta == 0) p->mirostat_eta = 0.1f;
    if (p->adaptive_decay == 0) p->adaptive_decay = 0.9f;
    s->n_order = 0;
    for (int32_t i = 0; i < p->n_order; i++) {
        if (p->order[i] != LLM_SAMPLER_ADAPTIVE_P)
            s->order[s->n_order++] = (llm_sampler_step)p->order[i];
        else
            s->is_adaptive = p->adaptive_target > 0 && p->mirostat == 0;
    }
    if (p->n_order == 0)
        for (; s->n_order < LLM_SAMPLER_USUAL_COUNT; s->n_order++)
            s->order[s->n_order] = (llm_sampler_step)s->n_order;
    if (p->mirostat != 0) {
        s->order[0] = LLM_SAMPLER_TEMPERATURE;
        s->n_order = 1;
        p->dynatemp_range = 0; /* mu follows the surprises at one temperature */
    }
}

/* Allocates what DRY needs; false without memory. With a history of 0 tokens DRY is off. */
static bool dry_create(llm_sampler *s, int32_t n_history) {
    const llm_sampler_params *p = &s->params;
    s->n_dry = p->dry_last_n > 0 && p->dry_last_n < n_history ? p->dry_last_n : n_history;
    if (p->dry_multiplier == 0 || p->dry_base < 1 || s->n_dry == 0) {
        s->n_dry = 0;
        return true;
    }
    const size_t n = (size_t)s->n_dry, n_vocab = (size_t)s->n_vocab;
    s->dry_last = calloc(n, sizeof *s->dry_last);
    s->dry_text = calloc(n, sizeof *s->dry_text);
    s->dry_repeat = calloc(n, sizeof *s->dry_repeat);
    s->dry_length = calloc(n_vocab, sizeof *s->dry_length);
    s->dry_is_breaker = calloc(n, sizeof *s->dry_is_breaker);
    if (p->dry_breakers != NULL) s->breakers = llm_sampler_breakers_copy(p->dry_breakers);
    return s->dry_last != NULL && s->dry_text != NULL && s->dry_repeat != NULL &&
           s->dry_length != NULL && s->dry_is_breaker != NULL &&
           (s->breakers != NULL) == (p->dry_breakers != NULL);
}

bool llm_sampler_chain_create(llm_sampler *s, int32_t n_history) {
    usual_values(s);
    const size_t n_bias = (size_t)s->params.n_logit_bias;
    s->mu = 2.0 * (double)s->params.mirostat_tau;
    s->weight_sum = 1 / (1 - (double)s->params.adaptive_decay);
    s->weighted_sum = (double)s->params.adaptive_target * s->weight_sum;
    s->picked = -1;
    s->bias = calloc(n_bias + 1, sizeof *s->bias);
    if (s->bias == NULL) return false;
    if (n_bias > 0) memcpy(s->bias, s->params.logit_bias, n_bias * sizeof *s->bias);
    const bool is_complete = dry_create(s, n_history);
    s->params.logit_bias = NULL; /* the caller's arrays may go */
    s->params.dry_breakers = NULL;
    return is_complete;
}

void llm_sampler_chain_destroy(llm_sampler *s) {
    free(s->bias);
    free(s->dry_last);
    free(s->dry_text);
    free(s->dry_repeat);
    free(s->dry_length);
    free(s->dry_is_breaker);
    llm_sampler_breakers_destroy(s->breakers);
}

void llm_sampler_chain_copy(llm_sampler *s, const llm_sampler *other) {
    const size_t n_dry = (size_t)s->n_dry;
    if (n_dry > 0) memcpy(s->dry_last, other->dry_last, n_dry * sizeof *s->dry_last);
    if (n_dry > 0)
        memcpy(s->dry_is_breaker, other->dry_is_breaker, n_dry * sizeof *s->dry_is_breaker);
    s->breaker_state = other->breaker_state;
    s->n_broken = other->n_broken;
    s->mu = other->mu;
    s->weighted_sum = other->weighted_sum;
    s->weight_sum = other->weight_sum;
    s->probability = other->probability;
    s->picked = other->picked;
    s->surprise = other->surprise;
}

/* Adds a token to what DRY reads. Breakers are searched for here, so that a pick reads no text. */
static void dry_accept(llm_sampler *s, int32_t token) {
    const uint64_t place = s->n_accepted % (uint64_t)s->n_dry;
    s->dry_last[place] = token;
    if (s->breakers == NULL) return;
    const llm_breaker_step step = llm_sampler_breakers_read(s->breakers, s->breaker_state, token);
    s->breaker_state = step.state;
    s->dry_is_breaker[place] = step.is_whole;
    if (step.ends) s->n_broken = s->n_accepted + 1;
}

void llm_sampler_chain_accept(llm_sampler *s, int32_t token) {
    if (s->n_dry > 0) dry_accept(s, token);
    if (s->params.mirostat != 0 && s->picked == token)
        s->mu -= (double)s->params.mirostat_eta * (s->surprise - (double)s->params.mirostat_tau);
    if (s->is_adaptive && s->picked == token) {
        const double decay = (double)s->params.adaptive_decay;
        s->weighted_sum = s->probability + decay * s->weighted_sum;
        s->weight_sum = 1 + decay * s->weight_sum;
    }
    s->picked = -1;
}

/* ---- Arithmetic ---- */

/* ln x for x > 0, with an error of about 1e-15. x = m 2^e with m between the square roots of 1/2
 * and of 2; ln m = 2 artanh((m - 1) / (m + 1)) as a series. */
static double ln_same(double x) {
    int e;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752440) {
        m *= 2;
        e--;
    }
    const double f = (m - 1) / (m + 1), f2 = f * f;
    double sum = 0;
    for (int k = 25; k >= 1; k -= 2) sum = sum * f2 + 1.0 / k;
    return 2 * f * sum + (double)e * LN_2;
}

static float highest(const candidate *c, int32_t n) {
    float max = c[0].logit;
    for (int32_t i = 1; i < n; i++)
        if (c[i].logit > max) max = c[i].logit;
    return max;
}

/* Computes weights without temperature; returns their sum. */
static double weigh_all(candidate *c, int32_t n) {
    return llm_sampler_weigh(c, n, highest(c, n), 1);
}

/* The entropy in nats of weights with that sum: ln sum + mean of (highest - logit). */
static double entropy_of(const candidate *c, int32_t n, double sum, float max) {
    double mean = 0;
    for (int32_t i = 0; i < n; i++) mean += c[i].weight * ((double)max - (double)c[i].logit);
    return ln_same(sum) + mean / sum;
}

/* ---- Steps that change logits ---- */

/* A changed logit stays a number: the token stays possible. */
static float logit_clamp(float x) {
    return x < -FLT_MAX ? -FLT_MAX : x > FLT_MAX ? FLT_MAX : x;
}

/* Adds the biases; returns how many candidates are left. s->logits[i] is the logit of token i here:
 * with biases, rows are whole. */
static int32_t bias_do(llm_sampler *s, candidate *c, int32_t n) {
    if (s->params.n_logit_bias == 0) return n;
    for (int32_t i = 0; i < s->params.n_logit_bias; i++) {
        const llm_logit_bias *b = &s->bias[i];
        if (b->token < 0 || b->token >= s->n_vocab || !(s->logits[b->token] >= -FLT_MAX)) continue;
        const float x = s->logits[b->token] + b->bias;
        s->logits[b->token] = b->bias < -FLT_MAX ? -INFINITY : logit_clamp(x);
    }
    int32_t n_kept = 0;
    for (int32_t i = 0; i < n; i++) {
        c[i].logit = s->logits[c[i].token];
        if (c[i].logit >= -FLT_MAX) c[n_kept++] = c[i];
    }
    return n_kept;
}

static void penalties_do(llm_sampler *s, candidate *c, int32_t n) {
    const llm_sampler_params *p = &s->params;
    if (s->n_last == 0) return;
    const float repeat = p->repeat_penalty != 0 ? p->repeat_penalty : 1;
    for (int32_t i = 0; i < n; i++) {
        const int32_t count = s->n_seen[c[i].token];
        if (count == 0) continue;
        const float x = logit_clamp(c[i].logit > 0 ? c[i].logit / repeat : c[i].logit * repeat);
        c[i].logit = logit_clamp(x - ((float)count * p->frequency_penalty + p->presence_penalty));
    }
}

/* Sets s->dry_repeat[k], 0 < k < n: how many of the last tokens are equal to those that end k
 * tokens earlier. By the Z algorithm (Gusfield, "Algorithms on Strings, Trees and Sequences", 1.4)
 * on the reversed text. */
static void repeats_find(llm_sampler *s, int32_t n) {
    const int32_t *text = s->dry_text;
    int32_t *z = s->dry_repeat;
    int32_t left = 0, right = 0; /* text[left .. right) equals the beginning */
    for (int32_t k = 1; k < n; k++) {
        int32_t length = 0;
        if (k < right) length = z[k - left] < right - k ? z[k - left] : right - k;
        while (k + length < n && text[length] == text[k + length]) length++;
        z[k] = length;
        if (k + length > right) {
            left = k;
            right = k + length;
        }
    }
}

static double power(double base, int32_t exponent) {
    double product = 1;
    for (; exponent > 0; exponent--) product *= base;
    return product;
}

/* "Don't repeat yourself" (p-e-w, text-generation-webui #5677): a token that would make a repeated
 * sequence longer is penalised by that sequence's length. */
static void dry_do(llm_sampler *s, candidate *c, int32_t n) {
    const llm_sampler_params *p = &s->params;
    const int32_t length = s->n_accepted < (uint64_t)s->n_dry ? (int32_t)s->n_accepted : s->n_dry;
    if (s->n_dry == 0 || length <= p->dry_allowed_length) return;
    /* tokens behind the last breaker: a repetition has at most these */
    const uint64_t n_unbroken = s->n_accepted - s->n_broken;
    const int32_t limit = n_unbroken < (uint64_t)length ? (int32_t)n_unbroken : length;
    if (limit < p->dry_allowed_length) return;
    for (int32_t i = 0; i < length; i++)
        s->dry_text[i] = s->dry_last[(s->n_accepted - 1 - (uint64_t)i) % (uint64_t)s->n_dry];
    repeats_find(s, length);
    for (int32_t k = 1; k < length; k++) {
        const int32_t repeat = s->dry_repeat[k] < limit ? s->dry_repeat[k] : limit;
        /* A token that is a breaker by itself is never penalised. */
        if (s->dry_is_breaker[(s->n_accepted - (uint64_t)k) % (uint64_t)s->n_dry]) continue;
        int32_t *longest = &s->dry_length[s->dry_text[k - 1]];
        if (repeat >= p->dry_allowed_length && repeat + 1 > *longest) *longest = repeat + 1;
    }
    /* base^exponent must not exceed the largest float. */
    const int32_t exponent_max =
        p->dry_base > 1.000001f ? (int32_t)(88.7228391 / ln_same((double)p->dry_base)) : 0;
    for (int32_t i = 0; i < n; i++) {
        const int32_t t = c[i].token;
        if (s->dry_length[t] == 0) continue;
        int32_t exponent = s->dry_length[t] - 1 - p->dry_allowed_length;
        if (exponent_max > 0 && exponent > exponent_max) exponent = exponent_max;
        const double base = exponent_max > 0 ? (double)p->dry_base : 1;
        c[i].logit =
            logit_clamp(c[i].logit - (float)((double)p->dry_multiplier * power(base, exponent)));
    }
    for (int32_t k = 1; k < length; k++) s->dry_length[s->dry_text[k - 1]] = 0;
}

/* Divides logits by a temperature; 0 keeps only the best candidate. Returns how many are left. */
static int32_t temperature_set(candidate *c, int32_t n, double temp) {
    if (temp <= 0) {
        llm_sampler_best_first(c, n, 1);
        return 1;
    }
    /* A temperature may be so low that quotients of different logits are equal: the largest number.
     * Then their distances from the best are divided, so that the best one stays alone. */
    const double max = (double)highest(c, n);
    const double zero = fabs(max) > (double)FLT_MAX * temp ? max : 0;
    for (int32_t i = 0; i < n; i++)
        c[i].logit = logit_clamp((float)(((double)c[i].logit - zero) / temp));
    return n;
}

static int32_t temperature_do(const llm_sampler *s, candidate *c, int32_t n) {
    const llm_sampler_params *p = &s->params;
    if (p->dynatemp_range <= 0) return temperature_set(c, n, (double)p->temp);
    if (n < 2) return n;
    const float max = highest(c, n);
    const double sum = llm_sampler_weigh(c, n, max, 1);
    const double share = entropy_of(c, n, sum, max) / ln_same((double)n);
    const double lo = p->temp > p->dynatemp_range ? (double)p->temp - (double)p->dynatemp_range : 0;
    const double hi = (double)p->temp + (double)p->dynatemp_range;
    const double raised =
        share > 0 ? llm_sampler_exp((double)p->dynatemp_exponent * ln_same(share < 1 ? share : 1))
                  : 0;
    return temperature_set(c, n, lo + (hi - lo) * raised);
}

/* ---- Steps that leave tokens out ---- */

/* How many of n candidates have to stay. */
static int32_t least_kept(const llm_sampler *s, int32_t n) {
    const int32_t k = s->params.min_keep;
    return k < 1 ? 1 : k < n ? k : n;
}

static int32_t top_n_sigma_do(const llm_sampler *s, candidate *c, int32_t n) {
    if (s->params.top_n_sigma <= 0 || n < 2) return n;
    double mean = 0, square = 0;
    for (int32_t i = 0; i < n; i++) mean += (double)c[i].logit;
    mean /= n;
    for (int32_t i = 0; i < n; i++)
        square += ((double)c[i].logit - mean) * ((double)c[i].logit - mean);
    const double least = (double)highest(c, n) - (double)s->params.top_n_sigma * sqrt(square / n);
    int32_t n_kept = 0;
    for (int32_t i = 0; i < n; i++)
        if ((double)c[i].logit >= least) c[n_kept++] = c[i];
    return n_kept;
}

/* Sorts the candidates also where none is left out: a row of candidates is sorted and a whole row
 * is not, and what is drawn depends on the order. */
static int32_t top_k_do(const llm_sampler *s, candidate *c, int32_t n) {
    const int32_t k = s->params.top_k;
    if (k <= 0 || k >= s->n_vocab) return n;
    const int32_t n_kept = k < n ? k : n;
    llm_sampler_best_first(c, n, n_kept);
    return n_kept;
}

/* Locally typical sampling (Meister et al., 2022): tokens in the order of |surprise - entropy|,
 * until their probability exceeds p and they are enough. */
static int32_t typical_do(const llm_sampler *s, candidate *c, int32_t n) {
    const double p = (double)s->params.typical_p;
    if (p <= 0 || p >= 1 || n < 2) return n;
    const float max = highest(c, n);
    const double sum = llm_sampler_weigh(c, n, max, 1);
    const double log_sum = ln_same(sum), entropy = entropy_of(c, n, sum, max);
    /* The heap orders by `logit`, which is minus the distance meanwhile. The real logits are kept
     * in s->logits, by token, and come back at the end. */
    for (int32_t i = 0; i < n; i++) {
        const double surprise = (double)max - (double)c[i].logit + log_sum;
        s->logits[c[i].token] = c[i].logit;
        c[i].logit = (float)-fabs(surprise - entropy);
    }
    const int32_t n_least = least_kept(s, n);
    int32_t n_kept = 0;
    double reached = 0;
    llm_sampler_heapify(c, n, true);
    while (n_kept < n && (reached <= p * sum || n_kept < n_least)) {
        llm_sampler_heap_pop(c, n - n_kept, true);
        n_kept++;
        reached += c[n - n_kept].weight;
    }
    memmove(c, c + n - n_kept, (size_t)n_kept * sizeof *c);
    for (int32_t i = 0; i < n_kept; i++) c[i].logit = s->logits[c[i].token];
    return n_kept;
}

static int32_t top_p_do(const llm_sampler *s, candidate *c, int32_t n) {
    const double p = (double)s->params.top_p;
    if (p <= 0 || p >= 1) return n;
    const double sum = weigh_all(c, n);
    const int32_t n_least = least_kept(s, n);
    if (n_least > 1) {
        double reached = 0;
        llm_sampler_best_first(c, n, n_least);
        for (int32_t i = 0; i < n_least; i++) reached += c[i].weight;
        if (reached >= p * sum) return n_least;
    }
    return llm_sampler_top_p(c, n, p * sum, sum, false);
}

static int32_t min_p_do(const llm_sampler *s, candidate *c, int32_t n) {
    const double least = (double)s->params.min_p;
    const int32_t n_least = least_kept(s, n);
    int32_t n_above = 0, n_kept = 0;
    if (least <= 0) return n;
    weigh_all(c, n);
    for (int32_t i = 0; i < n; i++) n_above += c[i].weight >= least;
    if (n_above < n_least) {
        llm_sampler_best_first(c, n, n_least);
        return n_least;
    }
    for (int32_t i = 0; i < n; i++)
        if (c[i].weight >= least) c[n_kept++] = c[i];
    return n_kept;
}

/* "Exclude top choices" (p-e-w, text-generation-webui #6335): of the tokens that reach the
 * threshold, only the least likely one is kept. */
static int32_t xtc_do(const llm_sampler *s, candidate *c, int32_t n) {
    const llm_sampler_params *p = &s->params;
    if (p->xtc_probability <= 0 || p->xtc_threshold > 0.5f || n < 2) return n;
    if (llm_sampler_uniform(s, 1) > (double)p->xtc_probability) return n;
    const double least = (double)p->xtc_threshold * weigh_all(c, n);
    int32_t last = -1, n_above = 0;
    for (int32_t i = 0; i < n; i++) {
        if (c[i].weight < least) continue;
        n_above++;
        if (last < 0 || llm_sampler_is_better(&c[last], &c[i])) last = i;
    }
    if (n_above < 2 || n - (n_above - 1) < least_kept(s, n)) return n;
    int32_t n_kept = 0;
    for (int32_t i = 0; i < n; i++)
        if (c[i].weight < least || i == last) c[n_kept++] = c[i];
    return n_kept;
}

/* Mirostat 1: keeps the k best tokens. It takes the probabilities for those of Zipf's law, whose
 * exponent s it estimates from the best 100, and k is the rank whose surprise is about mu then:
 * k^s = e 2^mu / (1 - N^-e) with e = s - 1 and N tokens in the vocabulary. */
static int32_t mirostat_1_do(const llm_sampler *s, candidate *c, int32_t n) {
    const int32_t m = n < 100 ? n : 100;
    double rank_fall = 0, square = 0;
    if (n < 2) return n;
    llm_sampler_best_first(c, n, m);
    for (int32_t i = 0; i + 1 < m; i++) {
        const double rank = ln_same((double)(i + 2) / (i + 1));
        rank_fall += rank * ((double)c[i].logit - (double)c[i + 1].logit);
        square += rank * rank;
    }
    const double exponent = rank_fall / square, e = exponent - 1, size = fabs(e);
    const double log_n = ln_same((double)s->n_vocab), power = llm_sampler_exp(-size * log_n);
    /* The logarithm of k^s; where e < 0, both sides of the fraction are multiplied by N^e. */
    const double log_fraction =
        power >= 1 ? -ln_same(log_n)
                   : ln_same(size) - ln_same(1 - power) - (e < 0 ? size * log_n : 0);
    const double log_power = log_fraction + s->mu * LN_2;
    int32_t k = n;
    if (log_power < exponent * ln_same((double)n))
        k = exponent > 0 && log_power > 0 ? (int32_t)(1 / llm_sampler_exp(-log_power / exponent))
                                          : 1;
    if (k > m) llm_sampler_best_first(c, n, k);
    return k > 1 ? k : 1;
}

/* Mirostat 2.0: tokens whose surprise is above mu are left out. */
static int32_t mirostat_2_do(const llm_sampler *s, candidate *c, int32_t n) {
    const float max = highest(c, n);
    const double log_sum = ln_same(llm_sampler_weigh(c, n, max, 1));
    int32_t n_kept = 0, best = 0;
    for (int32_t i = 1; i < n; i++)
        if (llm_sampler_is_better(&c[i], &c[best])) best = i;
    const candidate top = c[best];
    for (int32_t i = 0; i < n; i++)
        if (((double)max - (double)c[i].logit + log_sum) / LN_2 <= s->mu) c[n_kept++] = c[i];
    if (n_kept == 0) c[n_kept++] = top;
    return n_kept;
}

/* "Adaptive-p" (llama.cpp #17927): replaces the logits by 5 - 10 d^2 / (1 + d), where d is the
 * distance of a token's probability from t, in units of 0.3. So the logits fall quadratically near
 * t and linearly far from it. t is as far on the other side of the target as the mean of earlier
 * tokens is on this one. The probabilities are kept in s->logits, by token. */
static void adaptive_p_do(llm_sampler *s, candidate *c, int32_t n) {
    const double sum = weigh_all(c, n);
    double t = 2 * (double)s->params.adaptive_target - s->weighted_sum / s->weight_sum;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    for (int32_t i = 0; i < n; i++) {
        const double p = c[i].weight / sum, d = fabs(p - t) / 0.3;
        s->logits[c[i].token] = (float)p;
        c[i].logit = (float)(5 - 10 * d * d / (1 + d));
    }
}

/* ---- The chain ---- */

int32_t llm_sampler_chain_candidates(const llm_sampler *s) {
    const llm_sampler_params *p = &s->params;
    if (p->n_logit_bias > 0) return 0;
    for (int32_t i = 0; i < s->n_order; i++) {
        switch (s->order[i]) {
        case LLM_SAMPLER_TOP_K:
            if (p->top_k > 0) return p->top_k < s->n_vocab ? p->top_k : 0;
            break;
        case LLM_SAMPLER_PENALTIES:
            if (s->n_last > 0) return 0;
            break;
        case LLM_SAMPLER_DRY:
            if (s->n_dry > 0) return 0;
            break;
        case LLM_SAMPLER_TOP_N_SIGMA:
            if (p->top_n_sigma > 0) return 0;
            break;
        case LLM_SAMPLER_TYPICAL_P:
            if (p->typical_p > 0 && p->typical_p < 1) return 0;
            break;
        case LLM_SAMPLER_XTC:
            if (p->xtc_probability > 0) return 0;
            break;
        case LLM_SAMPLER_TOP_P:
            if (p->top_p > 0 && p->top_p < 1) return 0;
            break;
        case LLM_SAMPLER_TEMPERATURE:
            if (p->dynatemp_range > 0) return 0;
            if (p->temp == 0) return 1;
            /* A division can make different logits equal. Then their ids decide which are among
             * the k best, and the candidates may lack one of a lower id. So the sampler needs whole
             * rows. It costs something only in this unusual order: devices then send n_vocab logits
             * of each row instead of k candidates. */
            if (p->temp != 1) return 0;
            break;
        case LLM_SAMPLER_MIN_P:      /* keeps the best */
        case LLM_SAMPLER_ADAPTIVE_P: /* is not in `order` */
        case LLM_SAMPLER_STEP_COUNT: break;
        }
    }
    return 0;
}

int32_t llm_sampler_chain_steps(llm_sampler *s, int32_t n, double *sum_out) {
    candidate *c = s->candidates;
    n = bias_do(s, c, n);
    *sum_out = 0;
    for (int32_t i = 0; i < s->n_order && n > 0; i++) {
        switch (s->order[i]) {
        case LLM_SAMPLER_PENALTIES: penalties_do(s, c, n); break;
        case LLM_SAMPLER_DRY: dry_do(s, c, n); break;
        case LLM_SAMPLER_TOP_N_SIGMA: n = top_n_sigma_do(s, c, n); break;
        case LLM_SAMPLER_TOP_K: n = top_k_do(s, c, n); break;
        case LLM_SAMPLER_TYPICAL_P: n = typical_do(s, c, n); break;
        case LLM_SAMPLER_TOP_P: n = top_p_do(s, c, n); break;
        case LLM_SAMPLER_MIN_P: n = min_p_do(s, c, n); break;
        case LLM_SAMPLER_XTC: n = xtc_do(s, c, n); break;
        case LLM_SAMPLER_TEMPERATURE: n = temperature_do(s, c, n); break;
        case LLM_SAMPLER_ADAPTIVE_P:
        case LLM_SAMPLER_STEP_COUNT: break;
        }
    }
    if (n > 0 && s->params.mirostat == 1) n = mirostat_1_do(s, c, n);
    if (n > 0 && s->params.mirostat == 2) n = mirostat_2_do(s, c, n);
    if (n > 0 && s->is_adaptive) adaptive_p_do(s, c, n);
    if (n > 0) *sum_out = weigh_all(c, n);
    return n;
}

void llm_sampler_chain_picked(llm_sampler *s, int32_t token, int32_t n, double sum) {
    s->picked = token;
    if (s->is_adaptive) s->probability = (double)s->logits[token];
    if (s->params.mirostat == 0) return;
    for (int32_t i = 0; i < n; i++)
        if (s->candidates[i].token == token)
            s->surprise = (ln_same(sum) - ln_same(s->candidates[i].weight)) / LN_2;
}
