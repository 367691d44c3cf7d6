/* SPDX-License-Identifier: MIT
 *
 * test_engine_draft.c: an engine with drafts gives the answers of one without: greedy and with
 * seeds, with constraints, biases, probabilities and ends of every kind, of models with states and
 * windows, with prefixes, and where memory is so short that requests are preempted. The numbers of
 * drafted and accepted tokens are checked too: drafts of the model itself are accepted, those of
 * another model are not. Layers that draft are made by make_mtp.c. N-grams draft texts that repeat,
 * and tokens that a constraint forces.
 *   test_engine_draft MAKE_MTP
 */
#include <math.h>

#include "core/counters.h"
#include "llm/draft.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/preset.h"
#include "tests/server/draft_scene.h"
#include "tests/server/engine_scene.h"
#include "tests/support/random.h"

static const char *make_mtp;
static llm_model *model; /* scene_model */

/* ---- Engines ---- */

static llm_model *draft_open(tdm_type type, int64_t seed) {
    char name[64];
    random_model_spec spec = preset_find("tiny-llama");
    spec.type = type;
    spec.n_ctx = 2048;
    spec.seed = seed;
    snprintf(name, sizeof name, "draft-%d-%d.gguf", (int)type, (int)seed);
    return rig_model(preset_file(name, &spec), rig_device(NULL, "fast", 2));
}

/* An engine with n-grams of n_gram tokens. */
static server_engine *engine_ngrams(llm_model *m, const llm_context_params *context,
                                    const server_limits *limits, int32_t n_gram) {
    server_engine_params params = {
        .struct_size = sizeof params, .context = *context, .n_gram = n_gram, .n_draft = N_DRAFT};
    server_engine *engine = NULL;
    tdm_error err = {0};
    if (limits != NULL) params.limits = *limits;
    RIG_OK(server_engine_create(m, &params, &engine, &err));
    return engine;
}

/* ---- The same answers ---- */

/* The answers without drafts; those of a kind are computed once. */
typedef struct plain_answers {
    server_engine *engine;
    bool is_known[N_KIND];
    rig_answer of[N_KIND][2];
} plain_answers;

static const rig_answer *plain_get(plain_answers *plain, int k) {
    if (!plain->is_known[k]) draft_scene_two(plain->engine, (kind)k, plain->of[k]);
    plain->is_known[k] = true;
    return plain->of[k];
}

static void plain_end(plain_answers *plain) {
    for (int k = 0; k < N_KIND; k++)
        for (int i = 0; i < 2 && plain->is_known[k]; i++) rig_answer_free(&plain->of[k][i]);
    server_engine_destroy(plain->engine);
}

/* Under a sanitizer each kind runs with one draft of n, greedy answers with all: kinds differ in
 * code that has nothing to do with drafts. */
static bool kind_is_left_out(int k, int d, int n) {
#ifdef TANDEM_SANITIZED
    return k != GREEDY && k % n != d;
#else
    (void)k, (void)d, (void)n;
    return false;
#endif
}

static void test_alike(void **state) {
    (void)state;
    static const char *const names[] = {"the model itself", "4 bits", "another model"};
    const llm_context_params params = scene_context(1024);
    llm_model *drafts[3] = {draft_open(TDM_TYPE_Q8_0, preset_find("tiny-llama").seed),
                            draft_open(TDM_TYPE_Q4_0, preset_find("tiny-llama").seed),
                            draft_open(TDM_TYPE_Q8_0, preset_find("tiny-llama").seed + 1)};
    tdm_error err = {0};
    static plain_answers plain;
    plain.engine = draft_scene_engine(model, NULL, &params, NULL);
    for (int d = 0; d < 3; d++) {
        RIG_OK(llm_draft_check(drafts[d], model, &err));
        server_engine *engine = draft_scene_engine(model, drafts[d], &params, NULL);
        for (int k = 0; k < N_KIND; k++) {
            rig_answer a[2];
            char what[64];
            if (kind_is_left_out(k, d, 3)) continue;
            snprintf(what, sizeof what, "%s, kind %d", names[d], k);
            const rig_answer *expected = plain_get(&plain, k);
            const uint64_t n_step = scene_stats(engine).n_step;
            draft_scene_two(engine, (kind)k, a);
            int32_t n_draft = 0, n_accepted = 0;
            for (int i = 0; i < 2; i++) {
                draft_scene_alike(what, &a[i], &expected[i]);
                assert_int_equal(expected[i].usage.n_draft, 0);
                n_draft += a[i].usage.n_draft;
                n_accepted += a[i].usage.n_draft_accepted;
            }
            const int32_t n_more = (int32_t)(scene_stats(engine).n_step - n_step);
            print_message("%s: %d of %d accepted, %d steps\n", what, n_accepted, n_draft, n_more);
            assert_true(n_draft > 0 && n_accepted <= n_draft);
            if (d == 0 && k != SEEDED) {
                assert_true(n_accepted * 100 >= n_draft * 85);
                assert_true(n_more * 3 < 2 * N_ANSWER);
            }
            if (d == 1 && k == GREEDY) assert_true(n_accepted > 0 && n_accepted < n_draft);
            /* Where none is right, few are tried. */
            if (d == 2 && n_accepted == 0) assert_true(n_draft < 2 * (N_ANSWER / 4 + 2 * N_DRAFT));
            for (int i = 0; i < 2; i++) rig_answer_free(&a[i]);
        }
        const server_stats stats = scene_stats(engine);
        assert_true(stats.n_draft > 0 && stats.n_draft_accepted <= stats.n_draft);
        assert_true(d == 2 || stats.n_draft_accepted > 0);
        server_engine_destroy(engine);
    }
    plain_end(&plain);
    for (int d = 0; d < 3; d++) llm_model_close(drafts[d]);
}

/* ---- N-grams ---- */

/* Lets the token 5 + 6 * (n % 20) follow n tokens, and no other. */
static tdm_status single_mask(void *state, uint64_t *words, bool *is_limited_out, tdm_error *err) {
    const int t = 5 + 6 * (*(const int *)state % 20);
    (void)err;
    *is_limited_out = true;
    memset(words, 0, 384 / 8);
    words[t / 64] = UINT64_C(1) << (t % 64);
    return TDM_OK;
}

static tdm_status single_accept(void *state, int32_t token, tdm_error *err) {
    const int n = (*(int *)state)++;
    return token == 5 + 6 * (n % 20) ? TDM_OK : tdm_fail(err, TDM_INTERNAL, "token %d", token);
}

/* A text whose tokens are forced, or (is_free) that repeats one token by a bias: each step gives
 * all drafts, but for the first steps of a text that has not repeated yet. */
static void repeats_check(server_engine *engine, bool is_free, int32_t n_request) {
    static const llm_logit_bias bias = {17, 1000};
    rig_answer a[3];
    const uint64_t n_step = scene_stats(engine).n_step;
    const uint64_t n_before = tdm_counter_get(TDM_COUNTER_SUBMISSIONS);
    for (int32_t i = 0; i < n_request; i++) {
        llm_constraint single = {NULL,
                                 single_mask,
                                 single_accept,
                                 NULL,
                                 free,
                                 draft_scene_place_clone,
                                 draft_scene_place_assign};
        const int32_t prompt[2] = {9 + i, 8};
        rig_answer_init(&a[i]);
        server_request request = rig_request(&a[i], prompt, 2, N_ANSWER);
        request.ignores_end = true;
        if (is_free) {
            request.bias = &bias;
            request.n_bias = 1;
        } else {
            single.state = calloc(1, sizeof(int));
            request.constraint = &single;
        }
        rig_submit(engine, &request);
    }
    for (int32_t i = 0; i < n_request; i++) {
        rig_answer_wait(&a[i]);
        assert_int_equal(a[i].status, TDM_OK);
        assert_int_equal(a[i].n, N_ANSWER);
        for (int32_t k = 0; k < N_ANSWER; k++)
            assert_int_equal(a[i].tokens[k], is_free ? 17 : 5 + 6 * (k % 20));
        assert_true(a[i].usage.n_draft > N_ANSWER / 2);
        assert_true(a[i].usage.n_draft_accepted + 1 >= a[i].usage.n_draft);
        rig_answer_free(&a[i]);
    }
    const int32_t n = (int32_t)(scene_stats(engine).n_step - n_step);
    const int32_t n_decode = (int32_t)(tdm_counter_get(TDM_COUNTER_SUBMISSIONS) - n_before);
    print_message("%d requests, %s: %d steps for %d tokens, %d submissions\n", n_request,
                  is_free ? "repeats" : "forced", n, N_ANSWER, n_decode);
    if (n_request < 3) assert_true(n <= N_ANSWER / (N_DRAFT + 1) + 6);
    /* A draft model decodes forced tokens together, and n-grams decode nothing. */
    assert_true(n_decode <= 2 * n + 2 * n_request);
}

static void test_ngrams(void **state) {
    (void)state;
    const llm_context_params params = scene_context(1024);
    static plain_answers plain;
    server_engine *engine = NULL;
    tdm_error err = {0};
    plain.engine = draft_scene_engine(model, NULL, &params, NULL);
    for (int32_t n_gram = 1; n_gram <= 2; n_gram++) {
        int32_t n_draft = 0;
        engine = engine_ngrams(model, &params, NULL, n_gram);
        for (int k = 0; k < N_KIND; k++) {
            rig_answer a[2];
            char what[64];
            if (kind_is_left_out(k, n_gram - 1, 2)) continue;
            snprintf(what, sizeof what, "n-grams of %d, kind %d", n_gram, k);
            const rig_answer *expected = plain_get(&plain, k);
            draft_scene_two(engine, (kind)k, a);
            for (int i = 0; i < 2; i++) {
                draft_scene_alike(what, &a[i], &expected[i]);
                n_draft += a[i].usage.n_draft;
                rig_answer_free(&a[i]);
            }
        }
        print_message("n-grams of %d: %d drafts\n", n_gram, n_draft);
        assert_true(n_draft > 0);
        for (int32_t n = 1; n <= 3; n++) repeats_check(engine, false, n);
        for (int32_t n = 1; n <= 3; n++) repeats_check(engine, true, n);
        server_engine_destroy(engine);
    }
    plain_end(&plain);
    const server_engine_params bad = {
        .context = params, .n_gram = LLM_MAX_DRAFT_NGRAM + 1, .n_draft = N_DRAFT};
    assert_int_equal(server_engine_create(model, &bad, &engine, &err), TDM_INVALID_ARGUMENT);
}

/* A draft model proposes what is forced as n-grams do. */
static void test_forced(void **state) {
    (void)state;
    const llm_context_params params = scene_context(1024);
    llm_model *draft = draft_open(TDM_TYPE_Q8_0, preset_find("tiny-llama").seed + 1);
    server_engine *engine = draft_scene_engine(model, draft, &params, NULL);
    for (int32_t n = 1; n <= 3; n++) repeats_check(engine, false, n);
    server_engine_destroy(engine);
    llm_model_close(draft);
}

/* Proposals of a draft model and of n-grams end before a token that is barred and the only allowed
 * one. */
static void test_forced_bars(void **state) {
    (void)state;
    static const int32_t history[1] = {9}, forced[N_DRAFT] = {5, 11, 17, 23, 29};
    const llm_context_params params = scene_context(1024);
    const llm_sampler_params greedy = {.struct_size = sizeof greedy};
    const int32_t n_vocab = model->hparams.n_vocab;
    llm_model *small = draft_open(TDM_TYPE_Q8_0, preset_find("tiny-llama").seed + 1);
    llm_context *target = rig_context(model, &params), *ctx = rig_context(small, &params);
    llm_sampler *samplers[2] = {NULL, NULL};
    tdm_error err = {0};
    for (int i = 0; i < 2; i++) RIG_OK(llm_sampler_create(&greedy, n_vocab, 0, &samplers[i], &err));
    for (int is_ngram = 0; is_ngram < 2; is_ngram++) {
        const llm_draft_params p = {
            .ctx = is_ngram ? NULL : ctx, .target = target, .n_max = N_DRAFT, .n_gram = 1};
        llm_draft *draft = NULL;
        RIG_OK(llm_draft_create(&p, &draft, &err));
        for (int32_t n = 0; n <= N_DRAFT; n++) {
            int place = 0;
            int32_t proposed[N_DRAFT];
            const llm_constraint single = {
                .state = &place, .mask = single_mask, .accept = single_accept};
            llm_draft_item item = {.sampler = samplers[0],
                                   .model = samplers[1],
                                   .history = history,
                                   .n_history = 1,
                                   .next = 8,
                                   .n = N_DRAFT,
                                   .bars = forced + n,
                                   .n_bar = n < N_DRAFT,
                                   .constraint = &single,
                                   .tokens_out = proposed};
            RIG_OK(llm_draft_propose(draft, &item, 1, &err));
            assert_int_equal(item.n_out, n);
            assert_memory_equal(proposed, forced, (size_t)n * sizeof *proposed);
            RIG_OK(llm_draft_truncate(draft, 0, 0, &err));
        }
        llm_draft_destroy(draft);
    }
    for (int i = 0; i < 2; i++) llm_sampler_destroy(samplers[i]);
    llm_context_destroy(ctx);
    llm_context_destroy(target);
    llm_model_close(small);
}

/* ---- Ends ---- */

/* Ends in the middle of accepted drafts; then a conversation that goes on from there. */
static void test_ends(void **state) {
    (void)state;
    enum { N_CTX = 112 };
    const llm_context_params params = scene_context(N_CTX);
    const int64_t seed = preset_find("tiny-llama").seed;
    llm_model *draft = draft_open(TDM_TYPE_Q8_0, seed);
    int32_t prompt[N_PROMPT + RIG_MAX_ANSWER];
    uint64_t random = 31;
    scene_prompt(&random, prompt, N_PROMPT);
    int32_t stop = -1;
    for (int way = 0; way < 5; way++) {
        rig_answer a[2], more[2];
        for (int d = 0; d < 2; d++) {
            server_engine *engine = draft_scene_engine(model, d == 1 ? draft : NULL, &params, NULL);
            rig_answer_init(&a[d]);
            /* Ways: the context is full, a stop token, the sink, a cancellation, a number. */
            server_request request = rig_request(&a[d], prompt, N_PROMPT,
                                                 way == 0   ? 0
                                                 : way == 4 ? 9
                                                            : 30);
            request.ignores_end = true;
            request.stop_tokens = &stop;
            request.n_stop = way == 1;
            if (way == 2) a[d].stop_at = 10;
            if (way == 3) a[d].cancel_at = 10;
            a[d].engine = engine;
            rig_submit(engine, &request);
            rig_answer_wait(&a[d]);
            assert_int_equal(a[d].status, TDM_OK);
            if (way == 3) {
                /* It ends behind the step, which may have given more tokens. */
                assert_int_equal(a[d].end, SERVER_END_CANCELLED);
                assert_true(a[d].n >= 10 && a[d].n <= 10 + N_DRAFT);
                a[d].n = 10;
                a[d].usage.n_generated = 10;
            }
            assert_true((d == 1) == (a[d].usage.n_draft_accepted > 0));
            if (way == 0) {
                assert_int_equal(a[d].n, N_CTX - N_PROMPT + 1);
                assert_int_equal(a[d].end, SERVER_END_CONTEXT);
                stop = a[d].tokens[12];
            }
            /* The answer's tokens and another one are the next prompt. */
            const int32_t n = N_PROMPT + (a[d].n < 12 ? a[d].n : 12);
            memcpy(prompt + N_PROMPT, a[d].tokens, (size_t)(n - N_PROMPT) * sizeof *prompt);
            prompt[n] = 77;
            rig_answer_init(&more[d]);
            request = rig_request(&more[d], prompt, n + 1, 16);
            request.ignores_end = true;
            rig_submit(engine, &request);
            rig_answer_wait(&more[d]);
            const int32_t n_least = n - (n == N_PROMPT + a[d].n);
            assert_true(more[d].usage.n_cached == n_least || (way == 3 && d == 1));
            assert_true((d == 1) == (more[d].usage.n_draft_accepted > 0));
            server_engine_destroy(engine);
        }
        if (way == 3) memset(a[1].logprobs, 0, sizeof a[1].logprobs);
        if (way == 3) memset(a[0].logprobs, 0, sizeof a[0].logprobs);
        draft_scene_alike("an end", &a[1], &a[0]);
        draft_scene_alike("a conversation", &more[1], &more[0]);
        for (int d = 0; d < 2; d++) {
            rig_answer_free(&a[d]);
            rig_answer_free(&more[d]);
        }
    }
    llm_model_close(draft);
}

/* ---- How many ---- */

static server_usage usage_of(server_engine *engine, int32_t max_draft, int32_t min_draft,
                             float p_min) {
    static const int32_t prompt[5] = {9, 8, 7, 6, 5};
    static int32_t first[N_ANSWER];
    rig_answer a;
    rig_answer_init(&a);
    server_request request = rig_request(&a, prompt, 5, N_ANSWER);
    request.ignores_end = true;
    request.max_draft = max_draft;
    request.min_draft = min_draft;
    request.min_draft_p = p_min;
    rig_submit(engine, &request);
    rig_answer_wait(&a);
    assert_int_equal(a.status, TDM_OK);
    if (first[0] == 0) memcpy(first, a.tokens, sizeof first);
    assert_memory_equal(a.tokens, first, sizeof first);
    rig_answer_free(&a);
    return a.usage;
}

static void test_limits(void **state) {
    (void)state;
    const llm_context_params params = scene_context(512);
    llm_model *draft = draft_open(TDM_TYPE_Q8_0, preset_find("tiny-llama").seed);
    server_engine *engine = draft_scene_engine(model, draft, &params, NULL);
    tdm_error err = {0};
    const server_usage all = usage_of(engine, 0, 0, 0), two = usage_of(engine, 2, 0, 0);
    assert_true(all.n_draft >= N_ANSWER / 2);
    assert_int_equal(usage_of(engine, 1000, 0, 0).n_draft, all.n_draft); /* the engine's */
    /* Of each three tokens two are drafts. */
    assert_true(two.n_draft <= 2 * (N_ANSWER / 3) && two.n_draft > N_ANSWER / 2);
    assert_int_equal(usage_of(engine, -1, 0, 0).n_draft, 0);
    assert_int_equal(usage_of(engine, 2, 3, 0).n_draft, 0);
    assert_int_equal(usage_of(engine, 0, 0, 1).n_draft, 0); /* no token is certain */
    const server_usage likely = usage_of(engine, 0, 0, 0.02f);
    const server_usage runs = usage_of(engine, 0, 4, 0.02f);
    print_message("%d drafts, %d of 2 %% and more, %d in runs of 4\n", all.n_draft, likely.n_draft,
                  runs.n_draft);
    assert_true(likely.n_draft > 0 && likely.n_draft <= all.n_draft);
    assert_true(runs.n_draft <= likely.n_draft);
    /* Wrong numbers. */
    for (int i = 0; i < 5; i++) {
        rig_answer a;
        server_request_id id;
        const int32_t prompt[1] = {5};
        rig_answer_init(&a);
        server_request request = rig_request(&a, prompt, 1, 1);
        if (i == 0) request.max_draft = -2;
        if (i == 1) request.min_draft = -1;
        if (i == 2) request.min_draft_p = -0.1f;
        if (i == 3) request.min_draft_p = 1.5f;
        if (i == 4) request.min_draft_p = NAN;
        assert_int_equal(server_engine_submit(engine, &request, &id, NULL, &err),
                         TDM_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "drafts"));
        rig_answer_free(&a);
    }
    server_engine_destroy(engine);
    for (int32_t n = 0; n <= LLM_MAX_DRAFT + 1; n += LLM_MAX_DRAFT + 1) {
        const server_engine_params bad = {
            .context = params, .draft = draft, .draft_context = params, .n_draft = n};
        assert_int_equal(server_engine_create(model, &bad, &engine, &err), TDM_INVALID_ARGUMENT);
    }
    llm_model_close(draft);
}

/* Requests that are read while the first one's event waits, so that they generate together: few
 * have drafts, in even parts, and many have none. */
static void test_crowd(void **state) {
    (void)state;
    static const int32_t numbers[3] = {3, 6, 12}, most[3] = {3, 1, 0};
    const llm_context_params params = scene_context(2048);
    const server_limits limits = {.n_running = 12};
    llm_model *draft = draft_open(TDM_TYPE_Q8_0, preset_find("tiny-llama").seed);
    for (int c = 0; c < 3; c++) {
        server_engine *engine = draft_scene_engine(model, draft, &params, &limits);
        server_engine *plain = draft_scene_engine(model, NULL, &params, &limits);
        rig_answer a[12], expected[12], first;
        int32_t prompt[30];
        uint64_t random = 41;
        rig_answer_init(&first);
        first.gate_at = 1;
        const server_request gate = rig_request(&first, (const int32_t[]){5}, 1, 1);
        rig_submit(engine, &gate);
        for (int i = 0; i < numbers[c]; i++) {
            scene_prompt(&random, prompt, 4);
            rig_answer_init(&a[i]);
            rig_answer_init(&expected[i]);
            server_request request = rig_request(&a[i], prompt, 4, N_ANSWER);
            request.ignores_end = true;
            rig_submit(engine, &request);
            request.sink.user = &expected[i];
            rig_submit(plain, &request);
        }
        rig_answer_open(&first);
        int32_t n_draft = 0;
        for (int i = 0; i < numbers[c]; i++) {
            rig_answer_wait(&a[i]);
            rig_answer_wait(&expected[i]);
            draft_scene_alike("of many", &a[i], &expected[i]);
            n_draft += a[i].usage.n_draft;
        }
        print_message("%d requests: %d drafts\n", numbers[c], n_draft);
        if (most[c] == 0) assert_int_equal(n_draft, 0);
        /* All of them are right, so a request drafts `most` of `most + 1` tokens, and at most the
         * last ones are drafted in a smaller crowd. */
        assert_true(n_draft <= numbers[c] * (N_ANSWER * most[c] / (most[c] + 1) + N_DRAFT));
        assert_true(most[c] == 0 || n_draft > numbers[c] * N_ANSWER * most[c] / (most[c] + 1) / 2);
        for (int i = 0; i < numbers[c]; i++) {
            rig_answer_free(&a[i]);
            rig_answer_free(&expected[i]);
        }
        rig_answer_wait(&first);
        rig_answer_free(&first);
        server_engine_destroy(engine);
        server_engine_destroy(plain);
    }
    llm_model_close(draft);
}

/* ---- Other models, prefixes, preemption ---- */

static void fixture_path(const char *name, const char *mtp, char *path, size_t size) {
    char head[128], file[96];
    snprintf(head, sizeof head, "tests/model/archs/%s.head", name);
    snprintf(file, sizeof file, "%s.gguf", name);
    char *from = rig_source_file(head);
    assert_non_null(from);
    snprintf(path, size, "%s", rig_file(file));
    assert_true(access(path, R_OK) == 0 || arch_fixture_write(from, name, 1, path));
    free(from);
    if (mtp == NULL) return;
    char plain[512];
    snprintf(plain, sizeof plain, "%s", path);
    snprintf(file, sizeof file, "%s.%s.gguf", name, mtp);
    snprintf(path, size, "%s", rig_file(file));
    const char *argv[] = {make_mtp, plain, path, mtp, NULL};
    if (access(path, R_OK) != 0) assert_int_equal(rig_spawn(argv), 0);
}

enum { N_TALK = 6, N_OUT = 16, TALK_PROMPT = 90 };

/* Answers of a model with drafts (draft NULL = n-grams), of requests that share prefixes and go on
 * from each other's answers; with room for all, and with so little that requests are preempted.
 * Returns the percentage of accepted drafts with room for all. */
static int32_t talk_check(const char *what, llm_model *m, llm_model *draft) {
    static const tdm_type f32 = TDM_TYPE_F32;
    llm_context_params params = {.struct_size = sizeof params,
                                 .n_ctx = 512,
                                 .n_ubatch = 32,
                                 .page_len = 8,
                                 .type_k = &f32,
                                 .type_v = &f32};
    llm_context *ctx = rig_context(m, &params);
    static int32_t prompts[N_TALK][TALK_PROMPT + N_OUT + 8], expected[N_TALK][N_OUT];
    int32_t n_prompt[N_TALK], n[N_TALK], percent = 0;
    uint64_t random = 71;
    for (int i = 0; i < N_TALK; i++) {
        const bool goes_on = i == 2 || i == 4;
        n_prompt[i] = goes_on ? n_prompt[i - 1] : TALK_PROMPT - 9 * i;
        if (i > 0) memcpy(prompts[i], prompts[i - 1], sizeof prompts[i]);
        if (goes_on) {
            memcpy(prompts[i] + n_prompt[i], expected[i - 1],
                   (size_t)n[i - 1] / 2 * sizeof(int32_t));
            n_prompt[i] += n[i - 1] / 2;
        }
        for (int32_t k = i == 0 ? 0 : n_prompt[i] - 3; k < n_prompt[i]; k++)
            prompts[i][k] = (int32_t)random_u32_below(&random, 100);
        n[i] = scene_plain(ctx, prompts[i], n_prompt[i], N_OUT, false, expected[i]);
    }
    llm_context_destroy(ctx);
    for (int turn = 0; turn < 2; turn++) {
        const server_limits limits = {
            .n_running = 4, .n_held = turn == 0 ? 6 : 1, .n_prompt_step = 20};
        params.n_ctx = turn == 0 ? 512 : 136;
        server_engine *engine = draft != NULL ? draft_scene_engine(m, draft, &params, &limits)
                                              : engine_ngrams(m, &params, &limits, 1);
        rig_answer a[2 * N_TALK];
        /* One after the other, then all of them again, two at a time and more. */
        for (int i = 0; i < 2 * N_TALK; i++) {
            rig_answer_init(&a[i]);
            server_request request =
                rig_request(&a[i], prompts[i % N_TALK], n_prompt[i % N_TALK], N_OUT);
            request.is_uncached = turn == 1 && i >= N_TALK; /* they share no pages */
            rig_submit(engine, &request);
            if (i < N_TALK) rig_answer_wait(&a[i]);
        }
        int32_t n_draft = 0, n_again = 0;
        for (int i = 0; i < 2 * N_TALK; i++) {
            rig_answer_wait(&a[i]);
            scene_answer_is(what, &a[i], expected[i % N_TALK], n[i % N_TALK]);
            n_draft += i < N_TALK ? a[i].usage.n_draft : 0;
            n_again += i < N_TALK ? 0 : a[i].usage.n_draft;
            rig_answer_free(&a[i]);
        }
        const server_stats stats = scene_stats(engine);
        print_message("%s: %llu of %llu accepted (%d, then %d drafts), %llu tokens cached, %llu "
                      "preempted\n",
                      what, (unsigned long long)stats.n_draft_accepted,
                      (unsigned long long)stats.n_draft, n_draft, n_again,
                      (unsigned long long)stats.n_prompt_cached,
                      (unsigned long long)stats.n_preempted);
        assert_true(n_draft > 0 && n_again > 0);
        assert_true(turn == 0 || stats.n_preempted > 0);
        if (turn == 0) percent = (int32_t)(100 * stats.n_draft_accepted / stats.n_draft);
        server_engine_destroy(engine);
    }
    return percent;
}

static void test_restricted(void **state) {
    (void)state;
    static const char *const names[] = {"mamba-dense", "qwen35-dense", "gpt-oss-moe"};
    for (int i = 0; i < 3; i++) {
#ifdef TANDEM_SANITIZED /* the second has what the first has */
        if (i == 0) continue;
#endif
        char path[512];
        fixture_path(names[i], NULL, path, sizeof path);
        llm_model *m = rig_model(path, rig_device(NULL, "fast", 2));
        llm_model *draft = rig_model(path, rig_device(NULL, "fast", 2));
        assert_true(talk_check(names[i], m, draft) > 85);
        (void)talk_check(names[i], m, NULL);
        llm_model_close(draft);
        llm_model_close(m);
    }
}

static void test_layers(void **state) {
    (void)state;
    static const struct {
        const char *name, *kind;
        int32_t least; /* percent */
    } cases[] = {{"glm4moe-moe", "perfect", 95},
                 {"glm4moe-moe", "random", 0},
                 {"qwen35-dense", "perfect", 95}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char path[512];
        llm_model *m = NULL, *layer = NULL;
        tdm_error err = {0};
        tdm_open_device *dev = rig_device(NULL, "fast", 2);
        fixture_path(cases[i].name, cases[i].kind, path, sizeof path);
        RIG_OK(llm_model_open(path, &m, &err));
        RIG_OK(llm_model_open_draft(m, &layer, &err));
        RIG_OK(llm_model_load(m, rig_runtime(), &dev, 1, NULL, NULL, &err));
        RIG_OK(llm_model_load(layer, rig_runtime(), &dev, 1, NULL, NULL, &err));
        assert_true(talk_check(cases[i].name, m, layer) >= cases[i].least);
        llm_model_close(layer);
        llm_model_close(m);
    }
}

static void test_load(void **state) {
    (void)state;
    model = scene_model();
}

static int all_end(void **state) {
    llm_model_close(model);
    return rig_end(state);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),   cmocka_unit_test(test_alike),
        cmocka_unit_test(test_ngrams), cmocka_unit_test(test_forced),
        cmocka_unit_test(test_ends),   cmocka_unit_test(test_limits),
        cmocka_unit_test(test_crowd),  cmocka_unit_test(test_restricted),
        cmocka_unit_test(test_layers), cmocka_unit_test(test_forced_bars),
    };
    if (argc < 2) return 2;
    make_mtp = argv[1];
    return cmocka_run_group_tests(tests, rig_begin, all_end);
}
