/* SPDX-License-Identifier: MIT
 *
 * test_engine.c: the engine on a small model, without HTTP: greedy answers of many requests at a
 * time are those of one at a time; prefixes, preemption, ends of every kind, refusals, shutdown.
 */
#include "tests/server/engine_rig.h"

#include <math.h>
#include <time.h>

#include "tests/model/arch_fixture.h"
#include "tests/model/preset.h"
#include "tests/support/random.h"

#ifdef TANDEM_SANITIZED
enum { N_REQUEST = 24, N_ANSWER = 12 };
#else
enum { N_REQUEST = 64, N_ANSWER = 24 };
#endif
enum { MAX_PROMPT = 260, PAGE_LEN = 16 };

static llm_model *model_open(void) {
    random_model_spec spec = preset_find("tiny-llama");
    spec.type = TDM_TYPE_Q8_0;
    spec.n_ctx = 2048;
    return rig_model(preset_file("engine.gguf", &spec), rig_device(NULL, "fast", 2));
}

static llm_context_params context_params(int32_t n_ctx) {
    static const tdm_type f16 = TDM_TYPE_F16;
    return (llm_context_params){.struct_size = sizeof(llm_context_params),
                                .n_ctx = n_ctx,
                                .n_ubatch = 64,
                                .page_len = PAGE_LEN,
                                .type_k = &f16,
                                .type_v = &f16};
}

static server_engine *engine_make(llm_model *model, int32_t n_ctx, const server_limits *limits) {
    server_engine_params params = {.struct_size = sizeof params,
                                   .context = context_params(n_ctx),
                                   .gives_embeddings = true,
                                   .embedding = context_params(256)};
    server_engine *engine = NULL;
    tdm_error err = {0};
    if (limits != NULL) params.limits = *limits;
    RIG_OK(server_engine_create(model, &params, &engine, &err));
    return engine;
}

static void prompt_fill(uint64_t *random, int32_t *prompt, int32_t n) {
    for (int32_t i = 0; i < n; i++) prompt[i] = 3 + (int32_t)random_u32_below(random, 256);
}

static server_stats stats_of(server_engine *engine) {
    server_stats stats;
    (void)server_engine_snapshot(engine, &stats, NULL, 0);
    return stats;
}

static void answer_is(const char *what, const rig_answer *a, const int32_t *tokens, int32_t n) {
    if (a->status != TDM_OK) fail_msg("%s: %s", what, a->message);
    for (int32_t i = 0; i < a->n && i < n; i++)
        if (a->tokens[i] != tokens[i])
            fail_msg("%s: token %d of the answer is %d, alone it is %d", what, i, a->tokens[i],
                     tokens[i]);
    if (a->n != n) fail_msg("%s: %d tokens, alone %d", what, a->n, n);
}

/* The greedy answer to a prompt, computed by ctx alone in sequence 0, which is emptied first. Returns
 * its tokens. */
static int32_t plain_answer(llm_context *ctx, const int32_t *prompt, int32_t n_prompt,
                            int32_t max_tokens, bool ignores_end, int32_t *tokens_out) {
    const int32_t n_vocab = llm_context_model(ctx)->hparams.n_vocab;
    const llm_vocab *vocab = NULL;
    tdm_error err = {0};
    int32_t n = 0;
    (void)llm_model_vocab(llm_context_model(ctx), &vocab, NULL);
    const int32_t n_token = vocab != NULL ? llm_vocab_n_token(vocab) : 0;
    RIG_OK(llm_context_truncate(ctx, 0, 0, &err));
    const llm_batch batch = {.tokens = prompt, .n_tok = n_prompt, .role = TDM_ROLE_PROMPT};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    for (;;) {
        const float *logits = llm_context_logits(ctx, 0);
        int32_t best = -1;
        for (int32_t t = 0; t < n_vocab; t++) {
            if (ignores_end && t < n_token && llm_vocab_ends_generation(vocab, t)) continue;
            if (best < 0 || logits[t] > logits[best]) best = t;
        }
        tokens_out[n++] = best;
        if (n == max_tokens || (best < n_token && llm_vocab_ends_generation(vocab, best))) return n;
        const llm_batch next = {.tokens = &best, .n_tok = 1, .role = TDM_ROLE_GENERATED};
        RIG_OK(llm_context_decode(ctx, &next, &err));
    }
}

/* ---- Load ---- */

typedef struct load_request {
    int32_t prompt[MAX_PROMPT], n_prompt;
    int32_t expected[N_ANSWER], n_expected;
    rig_answer answer;
    server_engine *engine;
    uint64_t key;
    long wait_ns;
} load_request;

/* Prompts that begin alike, the same prompts, conversations that go on, and others. */
static void load_make(llm_model *model, load_request *requests) {
    const llm_context_params params = context_params(512);
    llm_context *ctx = rig_context(model, &params);
    static int32_t prefixes[3][160];
    uint64_t random = 11;
    for (int i = 0; i < 3; i++) prompt_fill(&random, prefixes[i], 160);
    for (int i = 0; i < N_REQUEST; i++) {
        load_request *r = &requests[i];
        const load_request *before = i > 0 ? &requests[random_u32_below(&random, (uint32_t)i)] : r;
        const uint32_t kind = random_u32_below(&random, 8);
        rig_answer_init(&r->answer);
        if (kind == 0 && i > 0) {
            memcpy(r->prompt, before->prompt, sizeof r->prompt);
            r->n_prompt = before->n_prompt;
        } else if (kind == 1 && i > 0 && before->n_prompt + N_ANSWER + 5 < MAX_PROMPT) {
            memcpy(r->prompt, before->prompt, sizeof r->prompt);
            r->n_prompt = before->n_prompt;
            memcpy(r->prompt + r->n_prompt, before->expected,
                   (size_t)before->n_expected * sizeof(int32_t));
            r->n_prompt += before->n_expected;
            prompt_fill(&random, r->prompt + r->n_prompt, 5);
            r->n_prompt += 5;
        } else {
            const int32_t n_like = kind < 6 ? 1 + (int32_t)random_u32_below(&random, 160) : 0;
            memcpy(r->prompt, prefixes[kind % 3], (size_t)n_like * sizeof(int32_t));
            const int32_t n_own = 1 + (int32_t)random_u32_below(&random, 60);
            prompt_fill(&random, r->prompt + n_like, n_own);
            r->n_prompt = n_like + n_own;
        }
        r->n_expected =
            plain_answer(ctx, r->prompt, r->n_prompt, N_ANSWER, i % 2 == 0, r->expected);
        r->key = random_u32_below(&random, 3);
        r->wait_ns = (long)random_u32_below(&random, 3000000);
    }
    llm_context_destroy(ctx);
}

/* Sends every fourth request from `first` on, at random times. */
static void *load_send(void *argument) {
    load_request *first = argument;
    for (int i = 0; i < N_REQUEST; i += 4) {
        load_request *r = &first[i];
        const struct timespec wait = {0, r->wait_ns};
        nanosleep(&wait, NULL);
        server_request request = rig_request(&r->answer, r->prompt, r->n_prompt, N_ANSWER);
        request.key = r->key;
        request.ignores_end = r->expected[r->n_expected - 1] != 2 && i % 2 == 0;
        server_request_id id;
        tdm_error err = {0};
        const tdm_status status = server_engine_submit(r->engine, &request, &id, NULL, &err);
        if (status != TDM_OK) {
            fprintf(stderr, "%s\n", err.message);
            abort();
        }
    }
    return NULL;
}

static void load_run(load_request *requests, llm_model *model, int32_t n_ctx,
                     const server_limits *limits, server_stats *stats) {
    server_engine *engine = engine_make(model, n_ctx, limits);
    pthread_t threads[4];
    for (int i = 0; i < N_REQUEST; i++) {
        rig_answer_init(&requests[i].answer);
        requests[i].engine = engine;
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, load_send, requests + i), 0);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < N_REQUEST; i++) rig_answer_wait(&requests[i].answer);
    assert_true(server_engine_wait_idle(engine, UINT64_C(60000000000)));
    *stats = stats_of(engine);
    for (int i = 0; i < N_REQUEST; i++) {
        char what[32];
        snprintf(what, sizeof what, "request %d", i);
        answer_is(what, &requests[i].answer, requests[i].expected, requests[i].n_expected);
        assert_int_equal(requests[i].answer.usage.n_generated, requests[i].n_expected);
        assert_int_equal(requests[i].answer.usage.n_prompt, requests[i].n_prompt);
        rig_answer_free(&requests[i].answer);
    }
    server_engine_destroy(engine);
    assert_int_equal(stats->n_submitted, N_REQUEST);
    assert_int_equal(stats->n_queued + stats->n_running, 0);
    print_message("%llu steps, %llu tokens of prompts computed, %llu cached, %llu drawn, %llu "
                  "computed again; %llu preempted, %llu evicted\n",
                  (unsigned long long)stats->n_step, (unsigned long long)stats->n_prompt_computed,
                  (unsigned long long)stats->n_prompt_cached,
                  (unsigned long long)stats->n_generated, (unsigned long long)stats->n_replayed,
                  (unsigned long long)stats->n_preempted, (unsigned long long)stats->n_evicted);
}

static void test_load(void **state) {
    (void)state;
    static load_request requests[N_REQUEST];
    llm_model *model = model_open();
    server_stats stats;
    load_make(model, requests);
    const server_limits roomy = {.n_running = 8, .n_held = 8, .n_prompt_step = 24};
    load_run(requests, model, 2048, &roomy, &stats);
    assert_true(stats.n_prompt_cached > 0);
    assert_int_equal(stats.n_preempted, 0);
    /* Room for four whole sequences at most: requests are preempted. */
    const server_limits narrow = {.n_running = 12, .n_held = -1, .n_prompt_step = 50};
    load_run(requests, model, 288, &narrow, &stats);
    assert_true(stats.n_preempted > 0);
    assert_true(stats.n_replayed > 0);
    llm_model_close(model);
}

/* ---- Prefixes ---- */

static void test_prefix(void **state) {
    (void)state;
    llm_model *model = model_open();
    server_engine *engine = engine_make(model, 2048, NULL);
    static int32_t prompt[1010];
    uint64_t random = 21;
    rig_answer a[5];
    prompt_fill(&random, prompt, 1010);
    for (int i = 0; i < 5; i++) rig_answer_init(&a[i]);
    /* Two at once: the second waits for what the first computes. */
    server_request request = rig_request(&a[0], prompt, 1001, 4);
    request.ignores_end = true;
    rig_submit(engine, &request);
    request.sink.user = &a[1];
    rig_submit(engine, &request);
    rig_answer_wait(&a[0]);
    rig_answer_wait(&a[1]);
    assert_int_equal(a[0].usage.n_cached, 0);
    assert_int_equal(a[1].usage.n_cached, 1000);
    assert_int_equal(stats_of(engine).n_prompt_computed, 1001 + 1);
    answer_is("the same prompt", &a[1], a[0].tokens, a[0].n);
    /* 1,000 tokens that are shared, and others behind them: those alone are computed. */
    prompt[1000]++;
    request = rig_request(&a[2], prompt, 1010, 4);
    request.ignores_end = true;
    rig_submit(engine, &request);
    rig_answer_wait(&a[2]);
    assert_int_equal(a[2].usage.n_cached, 1000);
    assert_true(server_engine_wait_idle(engine, UINT64_C(60000000000)));
    assert_int_equal(stats_of(engine).n_prompt_computed, 1001 + 1 + 10);
    assert_true(a[2].n_prompt_event > 0);
    /* Not for another scope, nor for one that asks for none. */
    request.sink.user = &a[3];
    request.scope = 1;
    rig_submit(engine, &request);
    rig_answer_wait(&a[3]);
    request.sink.user = &a[4];
    request.scope = 0;
    request.is_uncached = true;
    rig_submit(engine, &request);
    rig_answer_wait(&a[4]);
    assert_int_equal(a[3].usage.n_cached, 0);
    assert_int_equal(a[4].usage.n_cached, 0);
    answer_is("another scope", &a[3], a[2].tokens, a[2].n);
    answer_is("uncached", &a[4], a[2].tokens, a[2].n);
    for (int i = 0; i < 5; i++) rig_answer_free(&a[i]);
    server_engine_destroy(engine);
    llm_model_close(model);
}

/* Models whose layers keep a window of tokens, or a state, go back to some lengths only: to the end
 * of a prompt, where a conversation goes on. Nothing but their reuse differs. */
static void check_restricted(const char *name, int32_t n_least, int32_t n_least_again) {
    enum { N_PROMPT = 150, N_MORE = 20, N_OUT = 12 };
    char head[128], file[96];
    static const tdm_type f32 = TDM_TYPE_F32;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 512,
                                       .n_ubatch = 32,
                                       .page_len = 8,
                                       .type_k = &f32,
                                       .type_v = &f32};
    const server_engine_params engine_params = {.context = params,
                                                .limits = {.n_running = 4, .n_prompt_step = 20}};
    snprintf(head, sizeof head, "tests/model/archs/%s.head", name);
    snprintf(file, sizeof file, "%s.gguf", name);
    char *from = rig_source_file(head);
    assert_non_null(from);
    assert_true(arch_fixture_write(from, name, 1, rig_file(file)));
    free(from);
    llm_model *model = rig_model(rig_file(file), rig_device(NULL, "fast", 2));
    int32_t prompt[N_PROMPT + N_OUT + N_MORE], expected[N_OUT], expected_more[N_OUT];
    uint64_t random = 61;
    for (int i = 0; i < N_PROMPT; i++) prompt[i] = (int32_t)random_u32_below(&random, 100);
    llm_context *ctx = rig_context(model, &params);
    const int32_t n = plain_answer(ctx, prompt, N_PROMPT, N_OUT, false, expected);
    memcpy(prompt + N_PROMPT, expected, (size_t)n * sizeof(int32_t));
    const int32_t n_long = N_PROMPT + n + N_MORE;
    for (int i = N_PROMPT + n; i < n_long; i++) prompt[i] = (int32_t)random_u32_below(&random, 100);
    const int32_t n_more = plain_answer(ctx, prompt, n_long, N_OUT, false, expected_more);
    llm_context_destroy(ctx);
    server_engine *engine = NULL;
    tdm_error err = {0};
    RIG_OK(server_engine_create(model, &engine_params, &engine, &err));
    rig_answer a[4];
    for (int i = 0; i < 4; i++) {
        const bool is_long = i == 2;
        rig_answer_init(&a[i]);
        const server_request request =
            rig_request(&a[i], prompt, is_long ? n_long : N_PROMPT, N_OUT);
        rig_submit(engine, &request);
        if (i > 0) rig_answer_wait(&a[i]); /* the first two at a time */
    }
    rig_answer_wait(&a[0]);
    print_message("%s: of %d tokens %d cached, of %d then %d, of the first again %d\n", name,
                  N_PROMPT, a[1].usage.n_cached, n_long, a[2].usage.n_cached, a[3].usage.n_cached);
    answer_is(name, &a[0], expected, n);
    answer_is(name, &a[1], expected, n);
    answer_is(name, &a[2], expected_more, n_more);
    answer_is(name, &a[3], expected, n);
    assert_true(a[1].usage.n_cached >= n_least_again);
    assert_true(a[2].usage.n_cached >= n_least);
    for (int i = 0; i < 4; i++) rig_answer_free(&a[i]);
    server_engine_destroy(engine);
    llm_model_close(model);
}

static void test_restricted(void **state) {
    (void)state;
    check_restricted("mamba-dense", 149, 149);
    check_restricted("qwen35-dense", 149, 149);
    check_restricted("gpt-oss-moe", 150, 149);
}

/* ---- Ends ---- */

static void test_cancel(void **state) {
    (void)state;
    llm_model *model = model_open();
    const server_limits limits = {.n_running = 1, .n_queued = 8};
    server_engine *engine = engine_make(model, 2048, &limits);
    static int32_t prompt[1500];
    uint64_t random = 31;
    rig_answer a[4];
    prompt_fill(&random, prompt, 1500);
    for (int i = 0; i < 4; i++) rig_answer_init(&a[i]);
    a[0].engine = engine;
    a[0].cancel_at = 5; /* from within an event */
    server_request request = rig_request(&a[0], prompt, 10, 0);
    request.ignores_end = true;
    rig_submit(engine, &request);
    request = rig_request(&a[1], prompt, 1500, 0); /* in the queue, or while it is read */
    const server_request_id queued = rig_submit(engine, &request);
    server_engine_cancel(engine, queued);
    server_engine_cancel(engine, 12345);
    rig_answer_wait(&a[0]);
    rig_answer_wait(&a[1]);
    assert_int_equal(a[0].end, SERVER_END_CANCELLED);
    assert_int_equal(a[0].n, 5);
    assert_int_equal(a[1].end, SERVER_END_CANCELLED);
    assert_int_equal(a[1].n, 0);
    /* The receiver ends it: no token more. */
    a[2].stop_at = 3;
    request = rig_request(&a[2], prompt, 10, 0);
    request.ignores_end = true;
    rig_submit(engine, &request);
    rig_answer_wait(&a[2]);
    assert_int_equal(a[2].end, SERVER_END_SINK);
    assert_int_equal(a[2].n, 3);
    /* A stop token. */
    request.sink.user = &a[3];
    request.stop_tokens = &a[2].tokens[1];
    request.n_stop = 1;
    rig_submit(engine, &request);
    rig_answer_wait(&a[3]);
    assert_int_equal(a[3].end, SERVER_END_STOP);
    assert_true(a[3].n <= 2);
    server_engine_cancel(engine, queued); /* it has ended */
    const server_stats stats = stats_of(engine);
    assert_int_equal(stats.n_ended[SERVER_END_CANCELLED], 2);
    assert_int_equal(stats.n_ended[SERVER_END_SINK], 1);
    assert_int_equal(stats.n_ended[SERVER_END_STOP], 1);
    for (int i = 0; i < 4; i++) rig_answer_free(&a[i]);
    server_engine_destroy(engine);
    llm_model_close(model);
}

static void test_limits(void **state) {
    (void)state;
    llm_model *model = model_open();
    const server_limits limits = {.n_running = 1, .n_queued = 3, .n_queued_key = 2};
    server_engine *engine = engine_make(model, 128, &limits);
    static const int32_t prompt[8] = {5, 6, 7, 8, 9, 10, 11, 12};
    tdm_error err = {0};
    server_request_id id;
    uint64_t retry = 0;
    rig_answer a[7];
    for (int i = 0; i < 7; i++) rig_answer_init(&a[i]);
    /* The engine waits in an event: nothing that follows depends on the machine's speed. */
    a[0].gate_at = 1;
    server_request request = rig_request(&a[0], prompt, 8, 0);
    request.ignores_end = true;
    const server_request_id first = rig_submit(engine, &request);
    rig_answer_wait_tokens(&a[0], 1);
    for (int i = 1; i < 4; i++) {
        request = rig_request(&a[i], prompt, 8, 2);
        request.key = (uint64_t)(i % 2);
        rig_submit(engine, &request);
    }
    const server_stats before = stats_of(engine);
    request = rig_request(&a[4], prompt, 8, 2);
    request.key = 1;
    tdm_status status = server_engine_submit(engine, &request, &id, &retry, &err);
    if (status != TDM_RESOURCE_EXHAUSTED) fail_msg("a full queue: %s", tdm_status_text(status));
    assert_true(retry > 0);
    assert_int_equal(stats_of(engine).n_refused, before.n_refused + 1);
    server_request_info infos[8];
    server_stats stats;
    assert_int_equal(server_engine_snapshot(engine, &stats, infos, 8), 4);
    assert_int_equal(infos[0].id, first);
    assert_int_equal(infos[1].state, SERVER_QUEUED);
    assert_int_equal(stats.n_running, 1);
    assert_int_equal(stats.n_queued, 3);
    server_engine_pause(engine, infos[3].id, true);
    assert_int_equal(stats_of(engine).n_paused, 1);
    server_engine_pause(engine, infos[3].id, false);
    rig_answer_open(&a[0]);
    for (int i = 0; i < 4; i++) rig_answer_wait(&a[i]);
    /* As far as the context goes. */
    assert_int_equal(a[0].end, SERVER_END_CONTEXT);
    assert_int_equal(a[0].n, 128 - 8 + 1);
    assert_int_equal(a[1].end, a[1].n == 2 ? SERVER_END_LENGTH : SERVER_END_STOP);
    /* Deadlines, of a nanosecond: in the queue, and in all. */
    a[5].gate_at = 1;
    request = rig_request(&a[5], prompt, 8, 2);
    request.ignores_end = true;
    rig_submit(engine, &request);
    rig_answer_wait_tokens(&a[5], 1);
    request = rig_request(&a[4], prompt, 8, 2);
    request.queue_limit = 1;
    rig_submit(engine, &request);
    rig_answer_open(&a[5]);
    rig_answer_wait(&a[4]);
    rig_answer_wait(&a[5]);
    assert_int_equal(a[4].end, SERVER_END_DEADLINE);
    assert_int_equal(a[4].n, 0);
    assert_int_equal(a[5].end, SERVER_END_LENGTH);
    request = rig_request(&a[6], prompt, 8, 0);
    request.total_limit = 1;
    rig_submit(engine, &request);
    rig_answer_wait(&a[6]);
    assert_int_equal(a[6].end, SERVER_END_DEADLINE);
    for (int i = 0; i < 7; i++) rig_answer_free(&a[i]);
    server_engine_destroy(engine);
    llm_model_close(model);
}

static void test_pause(void **state) {
    (void)state;
    llm_model *model = model_open();
    server_engine *engine = engine_make(model, 512, NULL);
    int32_t prompt[40], expected[60];
    uint64_t random = 41;
    rig_answer a, b;
    prompt_fill(&random, prompt, 40);
    const llm_context_params params = context_params(512);
    llm_context *ctx = rig_context(model, &params);
    const int32_t n = plain_answer(ctx, prompt, 40, 60, true, expected);
    llm_context_destroy(ctx);
    rig_answer_init(&a);
    rig_answer_init(&b);
    server_request request = rig_request(&a, prompt, 40, 60);
    request.ignores_end = true;
    const server_request_id id = rig_submit(engine, &request);
    rig_answer_wait_tokens(&a, 3);
    server_engine_pause(engine, id, true);
    request.sink.user = &b;
    rig_submit(engine, &request);
    rig_answer_wait(&b);
    server_engine_pause(engine, id, false);
    rig_answer_wait(&a);
    answer_is("beside a paused one", &b, expected, n);
    answer_is("paused", &a, expected, n);
    rig_answer_free(&a);
    rig_answer_free(&b);
    server_engine_destroy(engine);
    llm_model_close(model);
}

static void test_shutdown(void **state) {
    (void)state;
    llm_model *model = model_open();
    static const int32_t prompt[4] = {5, 6, 7, 8};
    rig_answer a[3];
    tdm_error err = {0};
    server_request_id id;
    for (int round = 0; round < 3; round++) {
        server_engine *engine = engine_make(model, 512, NULL);
        for (int i = 0; i < 3; i++) {
            rig_answer_init(&a[i]);
            server_request request = rig_request(&a[i], prompt, 4, round == 0 ? 5 : 0);
            request.ignores_end = true;
            const server_request_id one = rig_submit(engine, &request);
            if (round == 1) server_engine_pause(engine, one, true); /* it would never end */
        }
        if (round < 2) server_engine_drain(engine, round == 0 ? UINT64_MAX : 1000000);
        server_request request = rig_request(&a[0], prompt, 4, 1);
        if (round < 2) {
            assert_int_equal(server_engine_submit(engine, &request, &id, NULL, &err),
                             TDM_UNAVAILABLE);
            assert_true(server_engine_wait_idle(engine, UINT64_MAX));
            assert_true(stats_of(engine).is_draining);
        } else {
            server_engine_destroy(engine); /* ends what runs */
        }
        for (int i = 0; i < 3; i++) {
            rig_answer_wait(&a[i]);
            const server_end end = round == 0   ? SERVER_END_LENGTH
                                   : round == 1 ? SERVER_END_DEADLINE
                                                : SERVER_END_CANCELLED;
            assert_int_equal(a[i].end, end);
            rig_answer_free(&a[i]);
        }
        if (round < 2) server_engine_destroy(engine);
    }
    server_engine_destroy(NULL);
    llm_model_close(model);
}

/* ---- What is drawn ---- */

/* Allows every fifth token, then ends after four. */
typedef struct fifths {
    int32_t n;
    bool fails;
    int *n_destroyed;
} fifths;

static tdm_status fifths_mask(void *state, uint64_t *words, bool *is_limited_out, tdm_error *err) {
    const fifths *f = state;
    if (f->fails) return tdm_fail(err, TDM_DATA_LOSS, "no token goes on");
    *is_limited_out = f->n != 1; /* the second may be any */
    if (f->n != 1) memset(words, 0, 384 / 8);
    for (int t = 5; f->n != 1 && t < 384; t += 5) words[t / 64] |= UINT64_C(1) << (t % 64);
    return TDM_OK;
}

static tdm_status fifths_accept(void *state, int32_t token, tdm_error *err) {
    fifths *f = state;
    if (f->n != 1 && token % 5 != 0)
        return tdm_fail(err, TDM_INTERNAL, "token %d was not allowed", token);
    f->n++;
    return TDM_OK;
}

static bool fifths_done(const void *state) {
    return ((const fifths *)state)->n == 4;
}

static void fifths_destroy(void *state) {
    ++*((fifths *)state)->n_destroyed;
}

static void test_constraint(void **state) {
    (void)state;
    llm_model *model = model_open();
    server_engine *engine = engine_make(model, 512, NULL);
    static const int32_t prompt[4] = {5, 6, 7, 8};
    int n_destroyed = 0;
    fifths good = {.n_destroyed = &n_destroyed}, bad = {.fails = true, .n_destroyed = &n_destroyed};
    server_constraint constraint = {&good, fifths_mask, fifths_accept, fifths_done, fifths_destroy};
    rig_answer a, b;
    tdm_error err = {0};
    server_request_id id;
    rig_answer_init(&a);
    rig_answer_init(&b);
    server_request request = rig_request(&a, prompt, 4, 20);
    request.constraint = &constraint;
    request.n_prompt = 0; /* refused: the state is still ours */
    assert_int_equal(server_engine_submit(engine, &request, &id, NULL, &err), TDM_INVALID_ARGUMENT);
    assert_int_equal(n_destroyed, 0);
    request.n_prompt = 4;
    rig_submit(engine, &request);
    rig_answer_wait(&a);
    if (a.status != TDM_OK) fail_msg("%s", a.message);
    assert_int_equal(a.end, SERVER_END_CONSTRAINT);
    assert_int_equal(a.n, 4);
    constraint.state = &bad;
    request.sink.user = &b;
    rig_submit(engine, &request);
    rig_answer_wait(&b);
    assert_int_equal(b.status, TDM_DATA_LOSS);
    assert_string_equal(b.message, "no token goes on");
    assert_true(server_engine_wait_idle(engine, UINT64_C(60000000000)));
    assert_int_equal(n_destroyed, 2);
    rig_answer_free(&a);
    rig_answer_free(&b);
    server_engine_destroy(engine);
    llm_model_close(model);
}

static void test_bias_and_probabilities(void **state) {
    (void)state;
    llm_model *model = model_open();
    server_engine *engine = engine_make(model, 512, NULL);
    static const int32_t prompt[6] = {5, 6, 7, 8, 9, 10};
    const llm_context_params params = context_params(512);
    llm_context *ctx = rig_context(model, &params);
    float logits[384];
    rig_answer a, b;
    rig_answer_init(&a);
    rig_answer_init(&b);
    static const uint8_t roles[6] = {TDM_ROLE_PROMPT, TDM_ROLE_PROMPT, TDM_ROLE_PROMPT,
                                     TDM_ROLE_PROMPT, TDM_ROLE_PROMPT, TDM_ROLE_PROMPT};
    rig_decode_as(ctx, prompt, roles, 6, 1, logits);
    llm_context_destroy(ctx);
    server_request request = rig_request(&a, prompt, 6, 1);
    request.wants_logprobs = true;
    request.n_top = 4;
    rig_submit(engine, &request);
    rig_answer_wait(&a);
    double sum = 0;
    int32_t best = 0, second = 1;
    for (int32_t t = 0; t < 384; t++) {
        sum += exp((double)logits[t]);
        if (logits[t] > logits[best]) best = t;
    }
    if (best == 1) second = 0;
    for (int32_t t = 0; t < 384; t++)
        if (t != best && logits[t] > logits[second]) second = t;
    assert_int_equal(a.tokens[0], best);
    assert_int_equal(a.top[0].token, best);
    assert_int_equal(a.top[1].token, second);
    assert_true(fabs((double)logits[best] - log(sum) - (double)a.logprobs[0]) < 1e-4);
    assert_true(fabs((double)logits[second] - log(sum) - (double)a.top[1].logprob) < 1e-4);
    /* The best is barred, another is lifted above the second; probabilities stay the model's. */
    const server_bias biases[2] = {{best, -INFINITY}, {300, 1000}};
    request.sink.user = &b;
    request.bias = biases;
    request.n_bias = 2;
    rig_submit(engine, &request);
    rig_answer_wait(&b);
    assert_int_equal(b.tokens[0], 300);
    assert_int_equal(b.top[0].token, best);
    assert_true(fabs((double)logits[300] - log(sum) - (double)b.logprobs[0]) < 1e-4);
    rig_answer_free(&a);
    rig_answer_free(&b);
    server_engine_destroy(engine);
    llm_model_close(model);
}

/* A device that sends the best tokens alone, beside requests that need whole rows. */
static void test_candidates(void **state) {
    (void)state;
    llm_model *model = model_open();
    const llm_context_params params = context_params(512);
    const server_engine_params engine_params = {.context = params, .gives_candidates = true};
    static const int32_t prompt[6] = {5, 6, 7, 8, 9, 10};
    int32_t expected[30];
    llm_context *ctx = rig_context(model, &params);
    const int32_t n = plain_answer(ctx, prompt, 6, 30, false, expected);
    llm_context_destroy(ctx);
    server_engine *engine = NULL;
    tdm_error err = {0};
    RIG_OK(server_engine_create(model, &engine_params, &engine, &err));
    rig_answer a[3];
    for (int i = 0; i < 3; i++) {
        rig_answer_init(&a[i]);
        server_request request = rig_request(&a[i], prompt, 6, i == 1 ? 10 : 30);
        request.wants_logprobs = i == 1; /* ends before the others */
        rig_submit(engine, &request);
    }
    for (int i = 0; i < 3; i++) rig_answer_wait(&a[i]);
    answer_is("candidates", &a[0], expected, n);
    answer_is("whole rows", &a[1], expected, n < 10 ? n : 10);
    answer_is("candidates again", &a[2], expected, n);
    assert_true(a[1].logprobs[0] < 0);
    for (int i = 0; i < 3; i++) rig_answer_free(&a[i]);
    server_engine_destroy(engine);
    llm_model_close(model);
}

/* Draws do not depend on what else is in a step: the same seed gives the same answer. */
static void test_seeds(void **state) {
    (void)state;
    llm_model *model = model_open();
    server_engine *engine = engine_make(model, 512, NULL);
    static const int32_t prompt[6] = {5, 6, 7, 8, 9, 10};
    rig_answer a[6];
    for (int i = 0; i < 6; i++) {
        rig_answer_init(&a[i]);
        server_request request = rig_request(&a[i], prompt, 6, 20);
        request.ignores_end = true;
        request.sampler.temp = 1;
        request.sampler.seed = (uint64_t)(i / 2);
        rig_submit(engine, &request);
    }
    for (int i = 0; i < 6; i++) rig_answer_wait(&a[i]);
    for (int i = 0; i < 6; i += 2) answer_is("the same seed", &a[i], a[i + 1].tokens, a[i + 1].n);
    assert_memory_not_equal(a[0].tokens, a[2].tokens, 20 * sizeof(int32_t));
    for (int i = 0; i < 6; i++) rig_answer_free(&a[i]);
    server_engine_destroy(engine);
    llm_model_close(model);
}

/* ---- Bad requests ---- */

static void test_bad_requests(void **state) {
    (void)state;
    llm_model *model = model_open();
    server_engine *engine = engine_make(model, 128, NULL);
    static int32_t prompt[128];
    rig_answer a;
    rig_answer_init(&a);
    const server_bias bias = {400, 1}, nan_bias = {4, NAN};
    const int32_t stop = -1;
    const server_request good = rig_request(&a, prompt, 4, 1);
    server_request bad[14];
    tdm_status due[14];
    for (int i = 0; i < 14; i++) bad[i] = good, due[i] = TDM_INVALID_ARGUMENT;
    bad[0].n_prompt = 128, due[0] = TDM_OUT_OF_RANGE;
    bad[1].max_tokens = -1;
    bad[2].sampler.temp = -1;
    bad[3].sink.finished = NULL;
    bad[4].bias = &bias, bad[4].n_bias = 1;
    bad[5].bias = &nan_bias, bad[5].n_bias = 1;
    bad[6].stop_tokens = &stop, bad[6].n_stop = 1;
    bad[7].n_top = 385;
    bad[8].n_stop = SERVER_MAX_STOP + 1;
    bad[9].n_bias = 1; /* without biases */
    bad[10].struct_size = 8;
    bad[11].prompt = NULL;
    bad[12].n_top = -1;
    const server_constraint none = {0};
    bad[13].constraint = &none;
    for (int i = 0; i < 14; i++) {
        server_request_id id = 77;
        tdm_error err = {0};
        if (server_engine_submit(engine, &bad[i], &id, NULL, &err) != due[i])
            fail_msg("bad request %d: %s", i, err.message);
        assert_true(err.message[0] != '\0');
    }
    prompt[2] = 384;
    server_request_id id;
    assert_int_equal(server_engine_submit(engine, &good, &id, NULL, NULL), TDM_INVALID_ARGUMENT);
    assert_int_equal(stats_of(engine).n_refused, 15);
    assert_int_equal(a.n_event, 0);
    /* Engines that cannot be. */
    server_engine *other = NULL;
    tdm_error err = {0};
    server_engine_params params = {.context = context_params(128), .limits = {.n_running = 300}};
    assert_int_equal(server_engine_create(model, &params, &other, &err), TDM_INVALID_ARGUMENT);
    params.limits = (server_limits){.n_running = 64};
    assert_int_equal(server_engine_create(model, &params, &other, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "ubatch-size"));
    assert_null(other);
    rig_answer_free(&a);
    server_engine_destroy(engine);
    llm_model_close(model);
}

/* ---- Vectors ---- */

typedef struct vector_answer {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool is_done;
    tdm_status status;
    int32_t n;
    float vector[256];
} vector_answer;

static void vector_note(void *user, server_request_id id, tdm_status status, const char *message,
                        const float *vector, int32_t n) {
    vector_answer *a = user;
    (void)id;
    (void)message;
    pthread_mutex_lock(&a->lock);
    a->is_done = true;
    a->status = status;
    a->n = n;
    for (int32_t i = 0; i < n && i < 256; i++) a->vector[i] = vector[i];
    pthread_cond_signal(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void vector_wait(vector_answer *a) {
    pthread_mutex_lock(&a->lock);
    while (!a->is_done) pthread_cond_wait(&a->changed, &a->lock);
    pthread_mutex_unlock(&a->lock);
}

static void test_vectors(void **state) {
    (void)state;
    llm_model *model = model_open();
    const server_limits limits = {.n_running = 2, .n_prompt_step = 16};
    server_engine *engine = engine_make(model, 512, &limits);
    int32_t tokens[100], n_embd = model->hparams.n_embd;
    uint64_t random = 51;
    tdm_error err = {0};
    prompt_fill(&random, tokens, 100);
    vector_answer v = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    rig_answer a;
    rig_answer_init(&a);
    server_request request = rig_request(&a, tokens, 50, 100);
    request.ignores_end = true;
    rig_submit(engine, &request); /* meanwhile */
    server_embedding_request text = {.tokens = tokens,
                                     .n_tok = 100,
                                     .pooling = LLM_POOLING_MEAN,
                                     .normalize = 2,
                                     .done = vector_note,
                                     .user = &v};
    server_request_id id;
    RIG_OK(server_engine_embed(engine, &text, &id, NULL, &err));
    vector_wait(&v);
    assert_int_equal(v.status, TDM_OK);
    assert_int_equal(v.n, n_embd);
    llm_context_params params = context_params(256);
    params.gives_embeddings = true;
    llm_context *ctx = NULL;
    RIG_OK(llm_context_create(model, &params, &ctx, &err));
    const llm_batch batch = {.tokens = tokens, .n_tok = 100, .role = TDM_ROLE_PROMPT};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    float expected[256];
    llm_pool(LLM_POOLING_MEAN, llm_context_hidden(ctx, 0), 100, n_embd, expected);
    llm_embedding_normalize(expected, n_embd, 2);
    assert_memory_equal(v.vector, expected, sizeof expected);
    llm_context_destroy(ctx);
    /* Refusals, and one that is late. */
    text.n_tok = 257;
    assert_int_equal(server_engine_embed(engine, &text, &id, NULL, &err), TDM_OUT_OF_RANGE);
    text.n_tok = 100;
    text.pooling = LLM_POOLING_NONE;
    assert_int_equal(server_engine_embed(engine, &text, &id, NULL, &err), TDM_INVALID_ARGUMENT);
    text.pooling = LLM_POOLING_LAST;
    text.total_limit = 1;
    v.is_done = false;
    RIG_OK(server_engine_embed(engine, &text, &id, NULL, &err));
    vector_wait(&v);
    assert_int_equal(v.status, TDM_DEADLINE_EXCEEDED);
    assert_int_equal(v.n, 0);
    rig_answer_wait(&a);
    assert_int_equal(a.n, 100);
    assert_int_equal(server_engine_n_ctx_embedding(engine), 256);
    rig_answer_free(&a);
    server_engine_destroy(engine);
    llm_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_restricted),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_pause),
        cmocka_unit_test(test_shutdown),
        cmocka_unit_test(test_constraint),
        cmocka_unit_test(test_bias_and_probabilities),
        cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_candidates),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_vectors),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
