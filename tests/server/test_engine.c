/* SPDX-License-Identifier: MIT
 *
 * test_engine.c: the engine on a small model, without HTTP: greedy answers of many requests at a
 * time are those of one at a time; prefixes, preemption, ends of every kind, refusals, shutdown.
 * test_engine_draw.c tests what is drawn.
 */
#include <math.h>
#include <time.h>

#include "tests/model/arch_fixture.h"
#include "tests/server/engine_scene.h"
#include "tests/support/random.h"

#ifdef TANDEM_SANITIZED
enum { N_REQUEST = 24, N_ANSWER = 12 };
#else
enum { N_REQUEST = 64, N_ANSWER = 24 };
#endif
enum { MAX_PROMPT = 260 };

/* ---- Load ---- */

typedef struct load_request {
    int32_t prompt[MAX_PROMPT], n_prompt;
    int32_t expected[N_ANSWER], n_expected;
    bool ignores_end;
    rig_answer answer;
    server_engine *engine;
    uint64_t key;
    long wait_ns;
} load_request;

/* Prompts that begin alike, the same prompts, conversations that go on, and others. */
static void load_make(llm_model *model, load_request *requests) {
    const llm_context_params params = scene_context(512);
    llm_context *ctx = rig_context(model, &params);
    static int32_t prefixes[3][160];
    uint64_t random = 11;
    for (int i = 0; i < 3; i++) scene_prompt(&random, prefixes[i], 160);
    for (int i = 0; i < N_REQUEST; i++) {
        load_request *r = &requests[i];
        const load_request *before = i > 0 ? &requests[random_u32_below(&random, (uint32_t)i)] : r;
        const uint32_t kind = random_u32_below(&random, 8);
        if (kind == 0 && i > 0) {
            memcpy(r->prompt, before->prompt, sizeof r->prompt);
            r->n_prompt = before->n_prompt;
        } else if (kind == 1 && i > 0 && before->n_prompt + N_ANSWER + 5 < MAX_PROMPT) {
            memcpy(r->prompt, before->prompt, sizeof r->prompt);
            r->n_prompt = before->n_prompt;
            memcpy(r->prompt + r->n_prompt, before->expected,
                   (size_t)before->n_expected * sizeof(int32_t));
            r->n_prompt += before->n_expected;
            scene_prompt(&random, r->prompt + r->n_prompt, 5);
            r->n_prompt += 5;
        } else {
            const int32_t n_like = kind < 6 ? 1 + (int32_t)random_u32_below(&random, 160) : 0;
            memcpy(r->prompt, prefixes[kind % 3], (size_t)n_like * sizeof(int32_t));
            const int32_t n_own = 1 + (int32_t)random_u32_below(&random, 60);
            scene_prompt(&random, r->prompt + n_like, n_own);
            r->n_prompt = n_like + n_own;
        }
        r->ignores_end = i % 2 == 0;
        r->n_expected =
            scene_plain(ctx, r->prompt, r->n_prompt, N_ANSWER, r->ignores_end, r->expected);
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
        request.ignores_end = r->ignores_end;
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
    server_engine *engine = scene_engine(model, n_ctx, limits);
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
    *stats = scene_stats(engine);
    for (int i = 0; i < N_REQUEST; i++) {
        char what[32];
        snprintf(what, sizeof what, "request %d", i);
        scene_answer_is(what, &requests[i].answer, requests[i].expected, requests[i].n_expected);
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
    llm_model *model = scene_model();
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
    llm_model *model = scene_model();
    server_engine *engine = scene_engine(model, 2048, NULL);
    static int32_t prompt[1010];
    uint64_t random = 21;
    rig_answer a[5];
    scene_prompt(&random, prompt, 1010);
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
    assert_int_equal(scene_stats(engine).n_prompt_computed, 1001 + 1);
    scene_answer_is("the same prompt", &a[1], a[0].tokens, a[0].n);
    /* 1,000 tokens that are shared, and others behind them: those alone are computed. */
    prompt[1000]++;
    request = rig_request(&a[2], prompt, 1010, 4);
    request.ignores_end = true;
    rig_submit(engine, &request);
    rig_answer_wait(&a[2]);
    assert_int_equal(a[2].usage.n_cached, 1000);
    assert_true(server_engine_wait_idle(engine, UINT64_C(60000000000)));
    assert_int_equal(scene_stats(engine).n_prompt_computed, 1001 + 1 + 10);
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
    scene_answer_is("another scope", &a[3], a[2].tokens, a[2].n);
    scene_answer_is("uncached", &a[4], a[2].tokens, a[2].n);
    for (int i = 0; i < 5; i++) rig_answer_free(&a[i]);
    server_engine_destroy(engine);
    llm_model_close(model);
}

/* A request waits for a prompt that begins like its own and is read already, but not for one that is
 * much longer. */
static void test_alike(void **state) {
    (void)state;
    enum { N_LONG = 1000 };
    static const int32_t lens[5] = {8, N_LONG, 40, 100, 600};
    llm_model *model = scene_model();
    const server_limits limits = {.n_running = 5, .n_held = 5};
    server_engine *engine = scene_engine(model, 4096, &limits);
    static int32_t prompt[N_LONG];
    uint64_t random = 33;
    rig_answer a[5];
    scene_prompt(&random, prompt, N_LONG);
    for (int i = 0; i < 5; i++) {
        rig_answer_init(&a[i]);
        a[i].gate_at = i == 0 || i == 2 || i == 3;
        server_request request = rig_request(&a[i], prompt, lens[i], 2);
        request.ignores_end = true;
        rig_submit(engine, &request);
        if (i == 0) rig_answer_wait_tokens(&a[0], 1); /* the others come at the same time */
    }
    rig_answer_open(&a[0]);
    for (int i = 2; i <= 3; i++) {
        rig_answer_wait_tokens(&a[i], 1);
        if (a[1].n != 0) fail_msg("%d tokens waited for %d", lens[i], N_LONG);
        rig_answer_open(&a[i]);
    }
    for (int i = 0; i < 5; i++) rig_answer_wait(&a[i]);
    assert_int_equal(a[4].usage.n_cached, 599);
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
    const int32_t n = scene_plain(ctx, prompt, N_PROMPT, N_OUT, false, expected);
    memcpy(prompt + N_PROMPT, expected, (size_t)n * sizeof(int32_t));
    const int32_t n_long = N_PROMPT + n + N_MORE;
    for (int i = N_PROMPT + n; i < n_long; i++) prompt[i] = (int32_t)random_u32_below(&random, 100);
    const int32_t n_more = scene_plain(ctx, prompt, n_long, N_OUT, false, expected_more);
    llm_context_destroy(ctx);
    server_engine *engine = NULL;
    tdm_error err = {0};
    RIG_OK(server_engine_create(model, &engine_params, &engine, &err));
    /* Each sequence takes memory of its own: as many are held as run. */
    assert_int_equal(server_engine_n_seq(model, &engine_params.limits), 4 + 4);
    assert_int_equal(server_engine_n_seq(model, &(server_limits){0}), 16 + 16);
    assert_int_equal(server_engine_n_seq(model, &(server_limits){.n_running = 200}), LLM_MAX_SEQ);
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
    scene_answer_is(name, &a[0], expected, n);
    scene_answer_is(name, &a[1], expected, n);
    scene_answer_is(name, &a[2], expected_more, n_more);
    scene_answer_is(name, &a[3], expected, n);
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

/* Prompts that an encoder reads: many at a time are whole in a step, longer ones are refused, and only
 * a prompt with the same text of the encoder shares anything. */
static void test_encoder(void **state) {
    enum { N_PROMPT = 30, N_OUT = 12, N_MANY = 6, START = 6 };
    static const tdm_type f32 = TDM_TYPE_F32;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 128,
                                       .n_ubatch = 32,
                                       .page_len = 8,
                                       .type_k = &f32,
                                       .type_v = &f32,
                                       .begins_decoder = true};
    const server_engine_params engine_params = {
        .context = params, .limits = {.n_running = 4, .n_held = 2, .n_prompt_step = 20}};
    int32_t prompts[N_MANY][N_PROMPT + N_OUT], expected[N_MANY][N_OUT], n[N_MANY];
    uint64_t random = 71;
    (void)state;
    char *from = rig_source_file("tests/model/archs/t5-dense.head");
    assert_non_null(from);
    assert_true(arch_fixture_write(from, "t5-dense", 1, rig_file("t5.gguf")));
    free(from);
    llm_model *model = rig_model(rig_file("t5.gguf"), rig_device(NULL, "reference", 2));
    llm_context *ctx = rig_context(model, &params);
    for (int i = 0; i < N_MANY; i++) {
        for (int k = 0; k < N_PROMPT; k++)
            prompts[i][k] = 7 + (int32_t)random_u32_below(&random, 121);
        prompts[i][N_PROMPT - 1] = START;
        n[i] = scene_plain(ctx, prompts[i], N_PROMPT, N_OUT, false, expected[i]);
    }
    llm_context_destroy(ctx);
    server_engine *engine = NULL;
    tdm_error err = {0};
    RIG_OK(server_engine_create(model, &engine_params, &engine, &err));
    rig_answer a[N_MANY];
    for (int i = 0; i < N_MANY; i++) {
        rig_answer_init(&a[i]);
        const server_request request = rig_request(&a[i], prompts[i], N_PROMPT, N_OUT);
        rig_submit(engine, &request);
    }
    for (int i = 0; i < N_MANY; i++) {
        rig_answer_wait(&a[i]);
        scene_answer_is("an encoder's prompt", &a[i], expected[i], n[i]);
        assert_int_equal(a[i].usage.n_cached, 0);
        rig_answer_free(&a[i]);
    }
    /* The whole text of the last one and the first half of its answer, then a part of its text. */
    const int32_t n_answer = n[N_MANY - 1] / 2;
    int32_t *last = prompts[N_MANY - 1];
    memcpy(last + N_PROMPT, expected[N_MANY - 1], (size_t)n_answer * sizeof *last);
    for (int i = 0; i < 2; i++) {
        if (i == 1) last[20] = START;
        const int32_t n_prompt = i == 0 ? N_PROMPT + n_answer : 21;
        ctx = rig_context(model, &params);
        n[0] = scene_plain(ctx, last, n_prompt, N_OUT, false, expected[0]);
        llm_context_destroy(ctx);
        rig_answer_init(&a[0]);
        server_request request = rig_request(&a[0], last, n_prompt, N_OUT);
        rig_submit(engine, &request);
        rig_answer_wait(&a[0]);
        scene_answer_is("an answer that goes on", &a[0], expected[0], n[0]);
        assert_int_equal(a[0].usage.n_cached, i == 0 ? n_prompt - 1 : 0);
        rig_answer_free(&a[0]);
    }
    static int32_t bad[40];
    static const struct {
        int32_t start; /* where START is */
        tdm_status status;
        const char *word;
    } cases[] = {{33, TDM_OUT_OF_RANGE, "ubatch-size"},
                 {0, TDM_INVALID_ARGUMENT, "nothing before"},
                 {-1, TDM_INVALID_ARGUMENT, "no token 6"}};
    for (int i = 0; i < 3; i++) {
        server_request_id id;
        for (int k = 0; k < 40; k++) bad[k] = k == cases[i].start ? START : 9;
        rig_answer_init(&a[0]);
        const server_request request = rig_request(&a[0], bad, 40, N_OUT);
        assert_int_equal(server_engine_submit(engine, &request, &id, NULL, &err), cases[i].status);
        assert_non_null(strstr(err.message, cases[i].word));
        rig_answer_free(&a[0]);
    }
    server_engine_destroy(engine);
    llm_model_close(model);
}

/* ---- Ends ---- */

static void test_cancel(void **state) {
    (void)state;
    llm_model *model = scene_model();
    const server_limits limits = {.n_running = 1, .n_queued = 8};
    server_engine *engine = scene_engine(model, 2048, &limits);
    static int32_t prompt[1500];
    uint64_t random = 31;
    rig_answer a[4];
    scene_prompt(&random, prompt, 1500);
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
    const server_stats stats = scene_stats(engine);
    assert_int_equal(stats.n_ended[SERVER_END_CANCELLED], 2);
    assert_int_equal(stats.n_ended[SERVER_END_SINK], 1);
    assert_int_equal(stats.n_ended[SERVER_END_STOP], 1);
    for (int i = 0; i < 4; i++) rig_answer_free(&a[i]);
    server_engine_destroy(engine);
    llm_model_close(model);
}

static void test_limits(void **state) {
    (void)state;
    llm_model *model = scene_model();
    const server_limits limits = {.n_running = 1, .n_queued = 3, .n_queued_key = 2};
    server_engine *engine = scene_engine(model, 128, &limits);
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
    const server_stats before = scene_stats(engine);
    request = rig_request(&a[4], prompt, 8, 2);
    request.key = 1;
    tdm_status status = server_engine_submit(engine, &request, &id, &retry, &err);
    if (status != TDM_RESOURCE_EXHAUSTED) fail_msg("a full queue: %s", tdm_status_text(status));
    assert_true(retry > 0);
    assert_int_equal(scene_stats(engine).n_refused, before.n_refused + 1);
    server_request_info infos[8];
    server_stats stats;
    assert_int_equal(server_engine_snapshot(engine, &stats, infos, 8), 4);
    assert_int_equal(infos[0].id, first);
    assert_int_equal(infos[1].state, SERVER_QUEUED);
    assert_int_equal(stats.n_running, 1);
    assert_int_equal(stats.n_queued, 3);
    server_engine_pause(engine, infos[3].id, true);
    assert_int_equal(scene_stats(engine).n_paused, 1);
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
    llm_model *model = scene_model();
    server_engine *engine = scene_engine(model, 512, NULL);
    int32_t prompt[40], expected[60];
    uint64_t random = 41;
    rig_answer a, b;
    scene_prompt(&random, prompt, 40);
    const llm_context_params params = scene_context(512);
    llm_context *ctx = rig_context(model, &params);
    const int32_t n = scene_plain(ctx, prompt, 40, 60, true, expected);
    llm_context_destroy(ctx);
    rig_answer_init(&a);
    rig_answer_init(&b);
    /* The engine waits in the event of the third token until the request is paused. */
    a.gate_at = 3;
    server_request request = rig_request(&a, prompt, 40, 60);
    request.ignores_end = true;
    const server_request_id id = rig_submit(engine, &request);
    rig_answer_wait_tokens(&a, 3);
    server_engine_pause(engine, id, true);
    rig_answer_open(&a);
    request.sink.user = &b;
    rig_submit(engine, &request);
    rig_answer_wait(&b);
    if (a.n_event != 0) fail_msg("a paused request went on, to %d tokens", a.n);
    server_engine_pause(engine, id, false);
    rig_answer_wait(&a);
    scene_answer_is("beside a paused one", &b, expected, n);
    scene_answer_is("paused", &a, expected, n);
    rig_answer_free(&a);
    rig_answer_free(&b);
    server_engine_destroy(engine);
    llm_model_close(model);
}

static void test_shutdown(void **state) {
    (void)state;
    llm_model *model = scene_model();
    static const int32_t prompt[4] = {5, 6, 7, 8};
    rig_answer a[3];
    tdm_error err = {0};
    server_request_id id;
    for (int round = 0; round < 3; round++) {
        server_engine *engine = scene_engine(model, 512, NULL);
        for (int i = 0; i < 3; i++) {
            rig_answer_init(&a[i]);
            /* No step ends until all are there, and paused: none has filled its context by then. */
            a[i].gate_at = i == 0;
            server_request request = rig_request(&a[i], prompt, 4, round == 0 ? 5 : 0);
            request.ignores_end = true;
            const server_request_id one = rig_submit(engine, &request);
            if (round == 1) server_engine_pause(engine, one, true); /* it would never end */
        }
        rig_answer_open(&a[0]);
        if (round < 2) server_engine_drain(engine, round == 0 ? UINT64_MAX : 1000000);
        server_request request = rig_request(&a[0], prompt, 4, 1);
        if (round < 2) {
            assert_int_equal(server_engine_submit(engine, &request, &id, NULL, &err),
                             TDM_UNAVAILABLE);
            assert_true(server_engine_wait_idle(engine, UINT64_MAX));
            assert_true(scene_stats(engine).is_draining);
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

/* ---- Bad requests ---- */

static void test_bad_requests(void **state) {
    (void)state;
    llm_model *model = scene_model();
    server_engine *engine = scene_engine(model, 128, NULL);
    static int32_t prompt[128];
    rig_answer a;
    rig_answer_init(&a);
    const llm_logit_bias bias = {400, 1}, nan_bias = {4, NAN};
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
    const llm_constraint none = {0};
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
    assert_int_equal(scene_stats(engine).n_refused, 15);
    assert_int_equal(a.n_event, 0);
    /* Engines that cannot be. */
    server_engine *other = NULL;
    tdm_error err = {0};
    server_engine_params params = {.context = scene_context(128), .limits = {.n_running = 300}};
    assert_int_equal(server_engine_create(model, &params, &other, &err), TDM_INVALID_ARGUMENT);
    params.limits = (server_limits){.n_running = 64};
    assert_int_equal(server_engine_create(model, &params, &other, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "ubatch-size"));
    assert_null(other);
    rig_answer_free(&a);
    server_engine_destroy(engine);
    llm_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),     cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_alike),    cmocka_unit_test(test_restricted),
        cmocka_unit_test(test_encoder),  cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_limits),   cmocka_unit_test(test_pause),
        cmocka_unit_test(test_shutdown), cmocka_unit_test(test_bad_requests),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
