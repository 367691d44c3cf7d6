/* SPDX-License-Identifier: MIT
 *
 * test_steps.c: each step of sampling leaves the tokens and probabilities that llama.cpp's sampler
 * leaves (steps.txt); picks follow them, and Mirostat, candidates and copies do what they say.
 *
 *   test_steps steps.txt
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llm/sampler_internal.h"
#include "tests/sampler/case_vocab.h"

static const char *steps_path;
static llm_vocab *vocab; /* of the cases */

/* The sampler of a case, with another temperature. */
static llm_sampler *case_make_at(int index, float temp) {
    const sampler_case *c = &sampler_cases[index];
    static const char letters[] = "edskypmxta"; /* of llm_sampler_step, in order */
    static llm_logit_bias biases[CASE_BIASES];
    const char *texts[CASE_BREAKERS];
    llm_sampler_breakers *breakers = NULL;
    tdm_error err = {0};
    const int n_text = case_breakers_of(index, texts);
    if (llm_sampler_breakers_create(vocab, texts, (size_t)n_text, &breakers, &err) != TDM_OK)
        fail_msg("%s", err.message);
    llm_sampler_params p = {
        .struct_size = sizeof p,
        .temp = temp,
        .top_k = c->top_k,
        .top_p = c->top_p,
        .min_p = c->min_p,
        .min_keep = c->min_keep,
        .repeat_penalty = c->repeat,
        .repeat_last_n = c->last_n,
        .seed = 5,
        .frequency_penalty = c->frequency,
        .presence_penalty = c->presence,
        .typical_p = c->typical_p,
        .top_n_sigma = c->top_n_sigma,
        .xtc_probability = strchr(c->steps, 'x') != NULL,
        .xtc_threshold = c->xtc_threshold,
        .dynatemp_range = c->dyna_range,
        .dynatemp_exponent = c->dyna_exponent,
        .dry_multiplier = c->dry_multiplier,
        .dry_base = c->dry_base,
        .dry_allowed_length = c->dry_allowed,
        .dry_last_n = c->dry_last_n,
        .dry_breakers = breakers,
        .adaptive_target = c->adaptive_target,
        .adaptive_decay = c->adaptive_decay,
        .mirostat = c->steps[0] == 'M'   ? 2
                    : c->steps[0] == 'N' ? 1
                                         : 0,
        .mirostat_tau = c->tau,
        .mirostat_eta = c->eta,
        .logit_bias = biases,
    };
    for (int i = 0; i < CASE_BIASES; i++)
        biases[i] = (llm_logit_bias){case_biases[i].token, case_biases[i].bias};
    for (const char *s = c->steps; *s != '\0'; s++) {
        const char *letter = strchr(letters, *s);
        if (*s == 'b') p.n_logit_bias = CASE_BIASES;
        if (letter != NULL) p.order[p.n_order++] = (uint8_t)(letter - letters);
    }
    if (p.n_order == 0) p.n_order = -1;
    llm_sampler *s = NULL;
    if (llm_sampler_create(&p, CASE_VOCAB, 1024, &s, &err) != TDM_OK) fail_msg("%s", err.message);
    llm_sampler_breakers_destroy(breakers); /* the sampler has its own */
    int32_t history[CASE_HISTORY];
    const int n = case_history(index, history);
    for (int i = 0; i < n; i++) llm_sampler_accept(s, history[i]);
    return s;
}

static llm_sampler *case_make(int index) {
    return case_make_at(index, sampler_cases[index].temp);
}

/* The probabilities by token; 0 = not left. */
static void case_remaining(llm_sampler *s, int index, double probability[CASE_VOCAB]) {
    float logits[CASE_VOCAB];
    candidate *left;
    int32_t n;
    double sum;
    tdm_error err = {0};
    case_logits(index, logits);
    const llm_row row = {logits, NULL, CASE_VOCAB};
    if (llm_sampler_left(s, &row, &left, &n, &sum, &err) != TDM_OK) fail_msg("%s", err.message);
    for (int i = 0; i < CASE_VOCAB; i++) probability[i] = 0;
    for (int32_t i = 0; i < n; i++) {
        assert_true(left[i].weight > 0 && probability[left[i].token] == 0);
        probability[left[i].token] = left[i].weight / sum;
    }
}

static void equal_to_llama_cpp(void **state) {
    (void)state;
    FILE *file = fopen(steps_path, "r");
    char *line = NULL;
    size_t capacity = 0;
    assert_non_null(file);
    for (int i = 0; i < CASE_COUNT; i++) {
        double mine[CASE_VOCAB], theirs[CASE_VOCAB] = {0};
        int n_left = 0;
        assert_true(getline(&line, &capacity, file) > 0);
        char *word = strtok(line, " \n");
        assert_string_equal(word, sampler_cases[i].name);
        while ((word = strtok(NULL, " \n")) != NULL) {
            char *end;
            const long token = strtol(word, &end, 10);
            assert_true(token >= 0 && token < CASE_VOCAB && *end == ':');
            theirs[token] = strtod(end + 1, NULL);
            n_left++;
        }
        assert_true(n_left > 0);
        llm_sampler *s = case_make(i);
        case_remaining(s, i, mine);
        for (int t = 0; t < CASE_VOCAB; t++)
            if ((mine[t] > 1e-30) != (theirs[t] > 1e-30) ||
                fabs(mine[t] - theirs[t]) > 2e-5 * theirs[t] + 1e-12)
                fail_msg("%s, token %d: probability %g, llama.cpp %g", sampler_cases[i].name, t,
                         mine[t], theirs[t]);
        llm_sampler_destroy(s);
    }
    free(line);
    fclose(file);
}

/* Picks are drawn by the probabilities that are left. */
static void picks_follow(void **state) {
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        enum { DRAWS = 3000 };
        if (strpbrk(sampler_cases[i].steps, "MNeda") != NULL)
            continue; /* these change with the history */
        llm_sampler *s = case_make(i);
        double probability[CASE_VOCAB];
        float logits[CASE_VOCAB];
        int count[CASE_VOCAB] = {0};
        tdm_error err = {0};
        case_logits(i, logits);
        const llm_row row = {logits, NULL, CASE_VOCAB};
        case_remaining(s, i, probability);
        for (int d = 0; d < DRAWS; d++) {
            int32_t token, again;
            assert_int_equal(llm_sampler_pick(s, &row, &token, &err), TDM_OK);
            assert_int_equal(llm_sampler_pick(s, &row, &again, &err), TDM_OK);
            assert_int_equal(token, again);
            count[token]++;
            llm_sampler_accept(s, token);
        }
        for (int t = 0; t < CASE_VOCAB; t++) {
            const double expected = probability[t] * DRAWS;
            if (fabs(count[t] - expected) > 5 * sqrt(expected) + 2)
                fail_msg("%s, token %d: %d draws, expected %g", sampler_cases[i].name, t, count[t],
                         expected);
        }
        llm_sampler_destroy(s);
    }
}

/* XTC acts as often as its probability says. */
static void xtc_acts_at_times(void **state) {
    (void)state;
    llm_sampler_params p = {
        .struct_size = sizeof p, .temp = 1, .xtc_probability = 0.3f, .xtc_threshold = 0.2f};
    const float logits[4] = {3, 2.9f, 0, -1};
    const llm_row row = {logits, NULL, 4};
    llm_sampler *s;
    tdm_error err = {0};
    candidate *left;
    double sum;
    int n_acted = 0;
    assert_int_equal(llm_sampler_create(&p, 4, 10, &s, &err), TDM_OK);
    for (int d = 0; d < 2000; d++) {
        int32_t n;
        assert_int_equal(llm_sampler_left(s, &row, &left, &n, &sum, &err), TDM_OK);
        assert_true(n == 4 || (n == 3 && left[0].token == 1));
        n_acted += n == 3;
        llm_sampler_accept(s, 0);
    }
    assert_in_range(n_acted, 500, 700);
    llm_sampler_destroy(s);
}

/* mu moves by the surprise of what was picked, once it is accepted. The mean surprise becomes
 * tau. */
static void mirostat_reaches(int version) {
    llm_sampler_params p = {.struct_size = sizeof p,
                            .temp = 1,
                            .mirostat = version,
                            .mirostat_tau = 3,
                            .mirostat_eta = 0.1f};
    float logits[CASE_VOCAB];
    llm_sampler *s;
    tdm_error err = {0};
    case_logits(0, logits);
    const llm_row row = {logits, NULL, CASE_VOCAB};
    assert_int_equal(llm_sampler_create(&p, CASE_VOCAB, 10, &s, &err), TDM_OK);
    assert_int_equal(llm_sampler_candidates(s), 0);
    double mean = 0;
    for (int d = 0; d < 3000; d++) {
        candidate *left;
        double sum;
        int32_t token, n;
        assert_int_equal(llm_sampler_pick(s, &row, &token, &err), TDM_OK);
        assert_int_equal(llm_sampler_left(s, &row, &left, &n, &sum, &err), TDM_OK);
        for (int32_t i = 0; i < n; i++)
            if (left[i].token == token && d >= 1000) mean += -log2(left[i].weight / sum) / 2000;
        llm_sampler_accept(s, token);
    }
    if (fabs(mean - 3) > 0.1) fail_msg("version %d: mean surprise %g, not 3", version, mean);
    llm_sampler_destroy(s);
}

static void mirostat_reaches_tau(void **state) {
    (void)state;
    mirostat_reaches(1);
    mirostat_reaches(2);
}

/* The probabilities that ADAPTIVE_P leaves follow those of the tokens that were drawn before; a
 * token that was accepted without being drawn does not count. */
static void adaptive_follows(void **state) {
    (void)state;
    const double target = 0.2, decay = 0.8;
    llm_sampler_params p = {.struct_size = sizeof p,
                            .temp = 1,
                            .order = {LLM_SAMPLER_ADAPTIVE_P},
                            .n_order = 1,
                            .adaptive_target = (float)target,
                            .adaptive_decay = (float)decay};
    static const float logits[6] = {4, 3.6f, 3, 2, 1, -1};
    const llm_row row = {logits, NULL, 6};
    double plain[6], plain_sum = 0, sum = target / (1 - decay), weights = 1 / (1 - decay), mean = 0;
    llm_sampler *s;
    tdm_error err = {0};
    for (int i = 0; i < 6; i++) plain_sum += plain[i] = exp((double)logits[i]);
    assert_int_equal(llm_sampler_create(&p, 6, 10, &s, &err), TDM_OK);
    for (int d = 0; d < 3000; d++) {
        double expected[6], expected_sum = 0, left_sum;
        candidate *left;
        int32_t token, n;
        const double now = fmin(fmax(2 * target - sum / weights, 0), 1);
        for (int i = 0; i < 6; i++) {
            const double far = fabs(plain[i] / plain_sum - now) / 0.3;
            expected_sum += expected[i] = exp(5 - 10 * far * far / (1 + far));
        }
        assert_int_equal(llm_sampler_left(s, &row, &left, &n, &left_sum, &err), TDM_OK);
        assert_int_equal(n, 6);
        for (int i = 0; i < 6; i++)
            if (fabs(left[i].weight / left_sum - expected[left[i].token] / expected_sum) > 1e-5)
                fail_msg("draw %d, token %d: %g, expected %g", d, left[i].token,
                         left[i].weight / left_sum, expected[left[i].token] / expected_sum);
        assert_int_equal(llm_sampler_pick(s, &row, &token, &err), TDM_OK);
        if (d % 10 == 9) token = (token + 1) % 6;
        llm_sampler_accept(s, token);
        if (d % 10 == 9) continue;
        sum = plain[token] / plain_sum + decay * sum;
        weights = 1 + decay * weights;
        mean += plain[token] / plain_sum / 2700;
    }
    if (fabs(mean - target) > 0.02) fail_msg("mean probability %g, not %g", mean, target);
    llm_sampler_destroy(s);
}

/* The best k tokens give what the whole row gives, where the sampler asks for them only. */
static void candidates_suffice(void **state) {
    (void)state;
    int n_asked = 0;
    for (int turn = 0; turn < 2 * CASE_COUNT; turn++) {
        const int i = turn % CASE_COUNT;
        const bool is_own = turn < CASE_COUNT; /* else at temperature 1, which changes no logit */
        llm_sampler *s = is_own ? case_make(i) : case_make_at(i, 1);
        const int32_t k = llm_sampler_candidates(s);
        float logits[CASE_VOCAB], values[CASE_VOCAB];
        int32_t tokens[CASE_VOCAB];
        tdm_error err = {0};
        case_logits(i, logits);
        for (int t = 0; t < CASE_VOCAB; t++) {
            int at = t;
            for (; at > 0 && values[at - 1] < logits[t]; at--) {
                values[at] = values[at - 1];
                tokens[at] = tokens[at - 1];
            }
            values[at] = logits[t];
            tokens[at] = t;
        }
        const llm_row whole = {logits, NULL, CASE_VOCAB}, best = {values, tokens, k};
        for (int d = 0; d < 50 && k > 0; d++) {
            int32_t a, b;
            assert_int_equal(llm_sampler_pick(s, &whole, &a, &err), TDM_OK);
            assert_int_equal(llm_sampler_pick(s, &best, &b, &err), TDM_OK);
            assert_int_equal(a, b);
            llm_sampler_accept(s, a);
        }
        n_asked += k > 0;
        /* The case 'other-order' needs the whole row only where its temperature changes logits. */
        if (strpbrk(sampler_cases[i].steps, "bed") != NULL &&
            (is_own || sampler_cases[i].steps[0] != 't'))
            assert_int_equal(k, 0);
        llm_sampler_destroy(s);
    }
    assert_true(n_asked >= 3);
}

static void copies_are_equal(void **state) {
    (void)state;
    for (int i = 0; i < CASE_COUNT; i++) {
        llm_sampler *a = case_make(i), *b = case_make(i);
        float logits[CASE_VOCAB];
        tdm_error err = {0};
        case_logits(i, logits);
        const llm_row row = {logits, NULL, CASE_VOCAB};
        int32_t history[CASE_HISTORY];
        const int n_history = case_history(i, history);
        for (int d = 0; d < 100; d++) llm_sampler_accept(b, CASE_WORD + d % CASE_WORDS);
        llm_sampler_copy(b, a);
        for (int k = 0; k < n_history && k < 8; k++) {
            candidate *left, *other_left;
            int32_t n, n_other;
            double sum, other_sum;
            assert_int_equal(llm_sampler_left(a, &row, &left, &n, &sum, &err), TDM_OK);
            assert_int_equal(llm_sampler_left(b, &row, &other_left, &n_other, &other_sum, &err),
                             TDM_OK);
            assert_int_equal(n, n_other);
            for (int32_t t = 0; t < n; t++)
                assert_true(left[t].token == other_left[t].token &&
                            fabs(left[t].weight - other_left[t].weight) == 0);
            llm_sampler_accept(a, history[k]);
            llm_sampler_accept(b, history[k]);
        }
        for (int d = 0; d < 20; d++) {
            int32_t token, other;
            assert_int_equal(llm_sampler_pick(a, &row, &token, &err), TDM_OK);
            llm_sampler_copy(b, a);
            assert_int_equal(llm_sampler_pick(b, &row, &other, &err), TDM_OK);
            assert_int_equal(token, other);
            llm_sampler_accept(a, token);
        }
        llm_sampler_destroy(a);
        llm_sampler_destroy(b);
    }
}

static void mistakes_are_refused(void **state) {
    (void)state;
    const llm_logit_bias nan_bias = {1, NAN}, bars[2] = {{0, -INFINITY}, {1, -INFINITY}};
    const struct {
        llm_sampler_params params;
        const char *message;
    } cases[] = {
        {{.typical_p = -1}, "typical-p = -1"},
        {{.xtc_probability = 2}, "xtc-probability = 2: must be 0 to 1"},
        {{.dry_base = NAN}, "dry-base"},
        {{.dynatemp_range = -1}, "dynatemp-range"},
        {{.min_keep = -1}, "min-keep = -1: must be 0 (off) or more"},
        {{.adaptive_target = 1.5f}, "adaptive-target = 1.5"},
        {{.adaptive_decay = 1}, "adaptive-decay = 1: must be 0 to 0.99"},
        {{.mirostat = 3}, "mirostat = 3: must be 0 (off), 1 or 2"},
        {{.order = {200}, .n_order = 1}, "there is no step 200"},
        {{.n_order = 17}, "out of range"},
        {{.logit_bias = &nan_bias, .n_logit_bias = 1}, "logit-bias of token 1 is no number"},
    };
    llm_sampler *s;
    tdm_error err = {0};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(llm_sampler_create(&cases[i].params, 4, 10, &s, &err),
                         TDM_INVALID_ARGUMENT);
        if (strstr(err.message, cases[i].message) == NULL)
            fail_msg("%s: %s", cases[i].message, err.message);
    }
    const llm_sampler_params bar = {.logit_bias = bars, .n_logit_bias = 2};
    const float logits[2] = {1, 2};
    const llm_row row = {logits, NULL, 2};
    int32_t token;
    assert_int_equal(llm_sampler_create(&bar, 2, 10, &s, &err), TDM_OK);
    assert_int_equal(llm_sampler_pick(s, &row, &token, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "logit-bias leaves no token"));
    llm_sampler_destroy(s);
    assert_int_equal(llm_sampler_step_find("typ_p", 5), LLM_SAMPLER_TYPICAL_P);
    assert_int_equal(llm_sampler_step_find("top-k", 5), LLM_SAMPLER_TOP_K);
    assert_int_equal(llm_sampler_step_find("Top_K", 5), LLM_SAMPLER_TOP_K);
    assert_int_equal(llm_sampler_step_find("minp", 4), LLM_SAMPLER_MIN_P);
    assert_int_equal(llm_sampler_step_find("topnsigma", 9), LLM_SAMPLER_TOP_N_SIGMA);
    assert_int_equal(llm_sampler_step_find("temp", 4), LLM_SAMPLER_TEMPERATURE);
    assert_int_equal(llm_sampler_step_find("typical-p", 9), LLM_SAMPLER_TYPICAL_P);
    assert_int_equal(llm_sampler_step_find("nucleus", 7), LLM_SAMPLER_TOP_P);
    assert_int_equal(llm_sampler_step_find("adaptive-p", 10), LLM_SAMPLER_ADAPTIVE_P);
    assert_int_equal(llm_sampler_step_find("", 0), -1);
    assert_int_equal(llm_sampler_step_find("top", 3), -1);
    assert_int_equal(llm_sampler_step_find("top__k", 6), -1);
    assert_int_equal(llm_sampler_step_find("top_", 4), -1);
    assert_int_equal(llm_sampler_step_find("xtcx", 4), -1);
    assert_string_equal(llm_sampler_step_name(LLM_SAMPLER_XTC), "xtc");
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    steps_path = argv[1];
    vocab = case_vocab_make();
    if (vocab == NULL) return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_to_llama_cpp), cmocka_unit_test(picks_follow),
        cmocka_unit_test(xtc_acts_at_times),  cmocka_unit_test(mirostat_reaches_tau),
        cmocka_unit_test(adaptive_follows),   cmocka_unit_test(candidates_suffice),
        cmocka_unit_test(copies_are_equal),   cmocka_unit_test(mistakes_are_refused),
    };
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    llm_vocab_destroy(vocab);
    return n_failed;
}
