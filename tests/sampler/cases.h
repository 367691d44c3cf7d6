/* SPDX-License-Identifier: MIT
 *
 * cases.h: cases of sampling: logits, a history and steps. test_steps.c computes what is left with
 * our sampler, peer_steps.c with llama.cpp's, which update.sh records in steps.txt.
 */
#ifndef TESTS_SAMPLER_CASES_H
#define TESTS_SAMPLER_CASES_H

#include <math.h>
#include <stdint.h>

enum { CASE_VOCAB = 200, CASE_HISTORY = 96, CASE_BREAKERS = 4 };

/* The tokens of the cases are the first ones of GPT-2's vocabulary, which are single bytes, but for
 * some words of it: token CASE_WORD + i is case_words[i]. */
enum { CASE_WORD = 150, CASE_WORDS = 6 };
static const char *const case_words[CASE_WORDS] = {" reading", " end", "User",
                                                   "\n\n",     "The",  "ing"};

/* The usual breakers, and their tokens. */
static const char *const case_breakers[CASE_BREAKERS] = {"\n", ":", "\"", "*"};
static const int32_t case_breaker_tokens[CASE_BREAKERS] = {25, 1, 9, 198};

typedef struct sampler_case {
    const char *name;
    /* In order, by the letters of --sampling-seq: e d s k y p m x t a; M = mirostat 2, N = mirostat 1;
     * b = logit bias. */
    const char *steps;
    float temp, top_p, min_p, typical_p, top_n_sigma, xtc_threshold;
    int top_k, min_keep;
    float repeat, frequency, presence;
    int last_n;
    float dyna_range, dyna_exponent;
    float dry_multiplier, dry_base;
    int dry_allowed, dry_last_n;
    const char *breakers[CASE_BREAKERS]; /* none = the usual ones */
    const char *text; /* the history: a to l = tokens 40 to 51, n = a line end, : = itself, A to F =
                       * the words; NULL = a random one */
    float tau, eta;
    float adaptive_target, adaptive_decay;
    float spread; /* of the logits; 0 = 3 */
} sampler_case;

static const sampler_case sampler_cases[] = {
    {.name = "top-k", .steps = "k", .top_k = 7},
    {.name = "top-p", .steps = "p", .top_p = 0.8f},
    {.name = "min-p", .steps = "m", .min_p = 0.1f},
    {.name = "typical-0.5", .steps = "y", .typical_p = 0.5f},
    {.name = "typical-0.9-flat", .steps = "y", .typical_p = 0.9f, .spread = 0.5f},
    {.name = "typical-0.2-steep", .steps = "y", .typical_p = 0.2f, .spread = 8},
    {.name = "sigma-1", .steps = "s", .top_n_sigma = 1},
    {.name = "sigma-0.3", .steps = "s", .top_n_sigma = 0.3f, .spread = 1},
    {.name = "xtc-0.1", .steps = "x", .xtc_threshold = 0.1f, .spread = 6},
    {.name = "xtc-0.02", .steps = "x", .xtc_threshold = 0.02f},
    {.name = "xtc-none", .steps = "x", .xtc_threshold = 0.45f, .spread = 1},
    {.name = "temp", .steps = "t", .temp = 0.6f},
    {.name = "temp-0", .steps = "t", .temp = 0},
    {.name = "dynatemp", .steps = "t", .temp = 1, .dyna_range = 0.8f, .dyna_exponent = 1},
    {.name = "dynatemp-exponent",
     .steps = "t",
     .temp = 1.2f,
     .dyna_range = 2,
     .dyna_exponent = 2.5f},
    {.name = "repeat", .steps = "e", .repeat = 1.3f, .last_n = 64},
    {.name = "repeat-short", .steps = "e", .repeat = 1.7f, .last_n = 5},
    {.name = "frequency", .steps = "e", .repeat = 1, .frequency = 0.4f, .last_n = 64},
    {.name = "presence", .steps = "e", .repeat = 1, .presence = 1.1f, .last_n = 64},
    {.name = "penalties",
     .steps = "e",
     .repeat = 1.1f,
     .frequency = 0.2f,
     .presence = -0.5f,
     .last_n = 30},
    {.name = "dry",
     .steps = "d",
     .dry_multiplier = 0.8f,
     .dry_base = 1.75f,
     .dry_allowed = 2,
     .dry_last_n = 96},
    {.name = "dry-1",
     .steps = "d",
     .dry_multiplier = 1.5f,
     .dry_base = 1.2f,
     .dry_allowed = 1,
     .dry_last_n = 96},
    {.name = "dry-short",
     .steps = "d",
     .dry_multiplier = 0.8f,
     .dry_base = 1.75f,
     .dry_allowed = 2,
     .dry_last_n = 20},
    {.name = "dry-long",
     .steps = "d",
     .dry_multiplier = 0.5f,
     .dry_base = 1.5f,
     .dry_allowed = 5,
     .dry_last_n = 96},
    {.name = "mirostat", .steps = "M", .temp = 1, .tau = 3, .eta = 0.1f},
    {.name = "mirostat-temp", .steps = "M", .temp = 1.5f, .tau = 2.5f, .eta = 0.1f, .spread = 6},
    {.name = "bias", .steps = "b"},
    {.name = "usual",
     .steps = "edskypmxt",
     .temp = 0.8f,
     .top_p = 0.95f,
     .min_p = 0.05f,
     .typical_p = 0.95f,
     .top_n_sigma = 2,
     .xtc_threshold = 0.2f,
     .top_k = 40,
     .repeat = 1.1f,
     .frequency = 0.1f,
     .last_n = 64,
     .dry_multiplier = 0.8f,
     .dry_base = 1.75f,
     .dry_allowed = 2,
     .dry_last_n = 96},
    {.name = "other-order",
     .steps = "tmkpey",
     .temp = 1.4f,
     .top_p = 0.9f,
     .min_p = 0.02f,
     .typical_p = 0.7f,
     .top_k = 30,
     .repeat = 1.2f,
     .last_n = 64},
    {.name = "hot-first", .steps = "tpm", .temp = 2, .top_p = 0.7f, .min_p = 0.2f},
    {.name = "biased",
     .steps = "bekpt",
     .temp = 0.7f,
     .top_k = 12,
     .top_p = 0.9f,
     .repeat = 1.2f,
     .last_n = 64},
    {.name = "mirostat-dynatemp",
     .steps = "M",
     .temp = 0.7f,
     .dyna_range = 0.6f,
     .dyna_exponent = 1,
     .tau = 3,
     .eta = 0.1f},
#define CASE_BREAK(case_name, case_text, ...)                                                      \
    {                                                                                              \
        .name = case_name, .steps = "d", .dry_multiplier = 0.8f, .dry_base = 1.75f,                \
        .dry_allowed = 2, .dry_last_n = 96, .text = case_text, .breakers = {                       \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
    /* A breaker within a token, and one that is a byte. */
    CASE_BREAK("break-within", "abcdAcdabcdAcd", "eadi"),
    CASE_BREAK("break-byte", "abcdlcdabcdlcd", "T"),
    /* From within a token to a later one. */
    CASE_BREAK("break-across", "abcdABcdabcdABcd", "ing end"),
    CASE_BREAK("break-across-2", "abcdDC:cdabcdDC:cd", "\nUser:"),
    CASE_BREAK("break-tokens", "abcdnC:cdabcdnC:cd", "\nUser:"),
    /* Its beginning alone, and with something between. */
    CASE_BREAK("break-begun", "abcdnCcdabcdnCcd", "\nUser:"),
    CASE_BREAK("break-between", "abcdncC:cdabcdncC:cd", "\nUser:"),
    /* The last token begins one. */
    CASE_BREAK("break-open", "abcdnCabcdnC", "\nUser:"),
    /* One breaker begins as another, or is a part of it. */
    CASE_BREAK("break-nested", "abcdABcdabcdABcd", "ing", "ing end", "ing ending"),
    CASE_BREAK("break-twice", "abcdAEcdabcdAEcd", "ing end", "ingThe"),
    /* A token with a breaker in it is not penalised, one that begins a breaker is. */
    CASE_BREAK("break-next", "acdAbcdAbcd", "ing"),
    CASE_BREAK("break-next-begins", "acdABbcdABbcd", "ing end"),
    CASE_BREAK("break-next-ends", "acdABacdABacdA", "ing end"),
    /* Its own beginning completes the breaker that its end begins. */
    CASE_BREAK("break-round", ":cdabcdnC:cdabcdnC", "\nUser:"),
    /* Behind the window no breaker counts. */
    {.name = "break-old",
     .steps = "d",
     .dry_multiplier = 0.8f,
     .dry_base = 1.75f,
     .dry_allowed = 2,
     .dry_last_n = 12,
     .text = "ABabcdabcdabcd",
     .breakers = {"ing end"}},
    CASE_BREAK("break-empty", "abcdncdabcdncd", ""),
#undef CASE_BREAK
    /* As many tokens as must be kept where a step leaves fewer; no difference where it leaves more. */
    {.name = "keep-top-p", .steps = "p", .top_p = 0.3f, .min_keep = 9, .spread = 6},
    {.name = "keep-top-p-0", .steps = "p", .top_p = 1e-30f, .min_keep = 3},
    {.name = "keep-top-p-more", .steps = "p", .top_p = 0.8f, .min_keep = 9},
    {.name = "keep-min-p", .steps = "m", .min_p = 0.6f, .min_keep = 9},
    {.name = "keep-min-p-more", .steps = "m", .min_p = 0.1f, .min_keep = 9},
    {.name = "keep-min-p-sorted", .steps = "km", .top_k = 30, .min_p = 0.6f, .min_keep = 9},
    {.name = "keep-typical", .steps = "y", .typical_p = 0.1f, .min_keep = 25, .spread = 6},
    {.name = "keep-typical-more", .steps = "y", .typical_p = 0.5f, .min_keep = 2},
    {.name = "keep-xtc", .steps = "kx", .top_k = 4, .xtc_threshold = 0.05f, .min_keep = 4},
    {.name = "keep-xtc-enough", .steps = "kx", .top_k = 9, .xtc_threshold = 0.1f, .min_keep = 4},
    {.name = "keep-all", .steps = "pm", .top_p = 0.3f, .min_p = 0.5f, .min_keep = 1000},
    {.name = "keep-chain",
     .steps = "edskypmxt",
     .temp = 0.8f,
     .top_p = 0.2f,
     .min_p = 0.5f,
     .typical_p = 0.3f,
     .top_n_sigma = 3,
     .xtc_threshold = 0.1f,
     .top_k = 40,
     .min_keep = 6,
     .repeat = 1.1f,
     .last_n = 64},
    {.name = "adaptive",
     .steps = "a",
     .adaptive_target = 0.3f,
     .adaptive_decay = 0.9f,
     .spread = 6},
    {.name = "adaptive-low",
     .steps = "ta",
     .temp = 1.5f,
     .adaptive_target = 1e-30f,
     .adaptive_decay = 0.99f},
    {.name = "adaptive-high",
     .steps = "mta",
     .temp = 0.7f,
     .min_p = 0.05f,
     .adaptive_target = 1,
     .adaptive_decay = 0.5f,
     .spread = 6},
    /* It is the last step wherever it is named, and nothing without a target. */
    {.name = "adaptive-first",
     .steps = "akm",
     .top_k = 20,
     .min_p = 0.05f,
     .adaptive_target = 0.2f,
     .adaptive_decay = 0.9f,
     .spread = 4},
    {.name = "adaptive-off",
     .steps = "ka",
     .top_k = 20,
     .adaptive_target = -1,
     .adaptive_decay = 0.9f},
    /* Exponents of Zipf's law above and below 1; one, some, more than 100 and all tokens. */
    {.name = "mirostat-1", .steps = "N", .temp = 1, .tau = 3.2f, .eta = 0.1f},
    {.name = "mirostat-1-steep", .steps = "N", .temp = 0.6f, .tau = 3, .eta = 0.1f, .spread = 8},
    {.name = "mirostat-1-one", .steps = "N", .temp = 1, .tau = 0.1f, .eta = 0.1f, .spread = 8},
    {.name = "mirostat-1-flat", .steps = "N", .temp = 1, .tau = 3.7f, .eta = 0.1f, .spread = 0.5f},
    {.name = "mirostat-1-all", .steps = "N", .temp = 1.2f, .tau = 5, .eta = 0.1f},
    {.name = "mirostat-1-many", .steps = "N", .temp = 1.2f, .tau = 4.15f, .eta = 0.1f},
};

enum { CASE_COUNT = sizeof sampler_cases / sizeof *sampler_cases };

/* Biases of the step b: token and bias. The last one bars the token. */
enum { CASE_BIASES = 4 };
static const struct {
    int32_t token;
    float bias;
} case_biases[CASE_BIASES] = {{3, 2.5f}, {50, -1.25f}, {120, 6}, {121, -INFINITY}};

/* Numerical Recipes' generator, by the number of the case. */
static inline uint32_t case_random(uint32_t *state) {
    return (*state = *state * 1664525u + 1013904223u) >> 8;
}

/* Sums of four numbers, so that the middle is more frequent than the ends. */
static inline void case_logits(int index, float logits[CASE_VOCAB]) {
    uint32_t state = 77u + (uint32_t)index;
    const float spread = sampler_cases[index].spread > 0 ? sampler_cases[index].spread : 3;
    for (int i = 0; i < CASE_VOCAB; i++) {
        float sum = 0;
        for (int k = 0; k < 4; k++) sum += (float)case_random(&state) * 0x1p-24f - 0.5f;
        logits[i] = sum * spread;
    }
}

/* The history: a text that repeats itself, with a breaker now and then, or the case's own. Returns
 * its length. */
static inline int case_history(int index, int32_t history[CASE_HISTORY]) {
    uint32_t state = 900u + (uint32_t)index;
    const char *text = sampler_cases[index].text;
    if (text != NULL) {
        int n = 0;
        for (; text[n] != '\0'; n++)
            history[n] = text[n] == ':'   ? 25
                         : text[n] == 'n' ? 198
                         : text[n] >= 'a' ? 40 + text[n] - 'a'
                                          : CASE_WORD + text[n] - 'A';
        return n;
    }
    for (int i = 0; i < CASE_HISTORY; i++) {
        const uint32_t r = case_random(&state) % 100;
        if (i > 12 && r < 85)
            history[i] = history[i - 5 - (i / 24)];
        else
            history[i] = r < 3 ? case_breaker_tokens[r] : 40 + (int32_t)(case_random(&state) % 12);
    }
    return CASE_HISTORY;
}

/* The breakers of a case; returns how many. */
static inline int case_breakers_of(int index, const char *breakers[CASE_BREAKERS]) {
    const char *const *own = sampler_cases[index].breakers;
    int n = 0;
    for (; n < CASE_BREAKERS && (own[0] == NULL || own[n] != NULL); n++)
        breakers[n] = own[0] == NULL ? case_breakers[n] : own[n];
    return n;
}

#endif
