/* SPDX-License-Identifier: MIT
 *
 * peer_steps.c: what the samplers of llama.cpp leave in the cases of cases.h. Built by update.sh
 * with llama.cpp's header and library, not by Meson. The argument is a file with GPT-2's
 * vocabulary.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <llama.h>

#include "cases.h"

static int32_t words[CASE_WORDS]; /* GPT-2's ids of case_words */

/* GPT-2's id of a token of the cases, and back. */
static int32_t peer_token(int32_t token) {
    return token >= CASE_WORD && token < CASE_WORD + CASE_WORDS ? words[token - CASE_WORD] : token;
}
static int32_t case_token(int32_t token) {
    for (int i = 0; i < CASE_WORDS; i++)
        if (words[i] == token) return CASE_WORD + i;
    return token;
}

static int words_find(const struct llama_vocab *vocab) {
    int n_found = 0;
    for (int32_t t = 0; t < llama_vocab_n_tokens(vocab); t++) {
        char piece[256];
        const int32_t n = llama_token_to_piece(vocab, t, piece, sizeof piece, 0, true);
        for (int i = 0; i < CASE_WORDS; i++) {
            if (n != (int32_t)strlen(case_words[i]) || memcmp(piece, case_words[i], (size_t)n) != 0)
                continue;
            words[i] = t;
            n_found++;
        }
    }
    return n_found == CASE_WORDS;
}

static struct llama_sampler *step_make(int index, char letter, const struct llama_vocab *vocab) {
    const sampler_case *c = &sampler_cases[index];
    const char *breakers[CASE_BREAKERS];
    const int n_breaker = case_breakers_of(index, breakers);
    llama_logit_bias biases[CASE_BIASES];
    for (int i = 0; i < CASE_BIASES; i++) {
        biases[i].token = case_biases[i].token;
        biases[i].bias = case_biases[i].bias;
    }
    switch (letter) {
    case 'b':
        return llama_sampler_init_logit_bias(llama_vocab_n_tokens(vocab), CASE_BIASES, biases);
    case 'e':
        return llama_sampler_init_penalties(llama_vocab_n_tokens(vocab), c->last_n, c->repeat,
                                            c->frequency, c->presence);
    case 'd':
        return llama_sampler_init_dry(vocab, c->dry_multiplier, c->dry_base, c->dry_allowed,
                                      c->dry_last_n, breakers, (size_t)n_breaker);
    case 's': return llama_sampler_init_top_n_sigma(c->top_n_sigma);
    case 'k': return llama_sampler_init_top_k(c->top_k);
    case 'y': return llama_sampler_init_typical(c->typical_p, (size_t)c->min_keep);
    case 'p': return llama_sampler_init_top_p(c->top_p, (size_t)c->min_keep);
    case 'm': return llama_sampler_init_min_p(c->min_p, (size_t)c->min_keep);
    case 'x': return llama_sampler_init_xtc(1, c->xtc_threshold, (size_t)c->min_keep, 1);
    case 't': return llama_sampler_init_temp_ext(c->temp, c->dyna_range, c->dyna_exponent);
    case 'T': return llama_sampler_init_temp(c->temp);
    case 'a': return llama_sampler_init_adaptive_p(c->adaptive_target, c->adaptive_decay, 1);
    case 'N': return llama_sampler_init_mirostat(CASE_VOCAB, 1, c->tau, c->eta, 100);
    default: return llama_sampler_init_mirostat_v2(1, c->tau, c->eta);
    }
}

static int by_token(const void *a, const void *b) {
    return ((const llama_token_data *)a)->id - ((const llama_token_data *)b)->id;
}

static void quiet(enum ggml_log_level level, const char *text, void *user) {
    (void)user;
    if (level == GGML_LOG_LEVEL_ERROR) fputs(text, stderr);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    llama_log_set(quiet, NULL);
    struct llama_model_params params = llama_model_default_params();
    params.vocab_only = true;
    struct llama_model *model = llama_model_load_from_file(argv[1], params);
    if (model == NULL) return 1;
    const struct llama_vocab *vocab = llama_model_get_vocab(model);
    if (!words_find(vocab)) return 1;
    for (int i = 0; i < CASE_COUNT; i++) {
        const sampler_case *c = &sampler_cases[i];
        float logits[CASE_VOCAB];
        int32_t history[CASE_HISTORY];
        llama_token_data data[CASE_VOCAB];
        case_logits(i, logits);
        const int n_history = case_history(i, history);
        struct llama_sampler *chain =
            llama_sampler_chain_init(llama_sampler_chain_default_params());
        if (c->steps[0] == 'M' || c->steps[0] == 'N')
            llama_sampler_chain_add(chain, step_make(i, 'T', vocab));
        /* llama.cpp's programs add adaptive_p behind all other steps. */
        for (const char *s = c->steps; *s != '\0'; s++)
            if (*s != 'a') llama_sampler_chain_add(chain, step_make(i, *s, vocab));
        if (strchr(c->steps, 'a') != NULL) llama_sampler_chain_add(chain, step_make(i, 'a', vocab));
        for (int k = 0; k < n_history; k++) llama_sampler_accept(chain, peer_token(history[k]));
        for (int k = 0; k < CASE_VOCAB; k++)
            data[k] = (llama_token_data){peer_token(k), logits[k], 0};
        llama_token_data_array left = {data, CASE_VOCAB, -1, false};
        llama_sampler_apply(chain, &left);
        double max = -INFINITY, sum = 0;
        for (size_t k = 0; k < left.size; k++)
            if (left.data[k].logit > max) max = left.data[k].logit;
        for (size_t k = 0; k < left.size; k++) sum += exp(left.data[k].logit - max);
        for (size_t k = 0; k < left.size; k++) left.data[k].id = case_token(left.data[k].id);
        qsort(left.data, left.size, sizeof *left.data, by_token);
        printf("%s", c->name);
        for (size_t k = 0; k < left.size; k++) {
            const double p = exp(left.data[k].logit - max) / sum;
            if (p > 0) printf(" %d:%.6g", left.data[k].id, p);
        }
        printf("\n");
        llama_sampler_free(chain);
    }
    llama_model_free(model);
    return 0;
}
