/* SPDX-License-Identifier: MIT
 *
 * test_engine_crowd.c: the engine on a context without a model (fake_context.h): thousands of
 * requests from several threads that share prefixes, leave, pause and come late; a device that
 * fails; all of it with drafts, too. Small enough for the thread sanitizer.
 */
#include <sched.h>
#include <unistd.h>

#include "tests/server/engine_rig.h"

#include "tests/server/fake_context.h"
#include "tests/support/random.h"

#ifdef TANDEM_SANITIZED
enum { N_REQUEST = 600 };
#else
enum { N_REQUEST = 3000 };
#endif
enum { N_THREAD = 4, WINDOW = 18 * N_THREAD, MAX_PROMPT = 200, N_CTX = 320 };

typedef struct crowd_request {
    int32_t prompt[MAX_PROMPT], n_prompt, n_answer;
    bool may_end; /* it may end, or fail, before its last token */
    rig_answer answer;
} crowd_request;

typedef struct crowd {
    server_engine *engine;
    crowd_request *requests; /* [N_REQUEST] */
    int32_t prefixes[4][MAX_PROMPT];
} crowd;

typedef struct crowd_thread {
    crowd *all;
    int first;
    int open; /* its first request whose answer it has not waited for */
    int n_refused;
} crowd_thread;

static void request_make(const crowd *c, crowd_request *r, uint64_t *random) {
    const int32_t n_like = (int32_t)random_u32_below(random, 150);
    const int32_t n_own = 1 + (int32_t)random_u32_below(random, MAX_PROMPT - 150);
    rig_answer_init(&r->answer);
    memcpy(r->prompt, c->prefixes[random_u32_below(random, 4)], (size_t)n_like * sizeof(int32_t));
    for (int32_t i = n_like; i < n_like + n_own; i++)
        r->prompt[i] = (int32_t)random_u32_below(random, FAKE_N_VOCAB);
    r->n_prompt = n_like + n_own;
    r->n_answer = 1 + (int32_t)random_u32_below(random, 40);
}

static void oldest_wait(crowd_thread *t) {
    rig_answer_wait(&t->all->requests[t->open].answer);
    t->open += N_THREAD;
}

/* Submits request i, again and again where the queue is full. No step ends before the first
 * refusal, so that there is one at any speed. */
static server_request_id crowd_submit(crowd_thread *t, int i, const server_request *request) {
    for (;;) {
        server_request_id id = 0;
        tdm_error err = {0};
        uint64_t retry = 0;
        const tdm_status status = server_engine_submit(t->all->engine, request, &id, &retry, &err);
        if (status == TDM_OK) return id;
        if (status != TDM_RESOURCE_EXHAUSTED || retry == 0) {
            fprintf(stderr, "%s\n", err.message);
            abort();
        }
        t->n_refused++;
        fake_hold(false);
        if (t->open < i)
            oldest_wait(t);
        else
            sched_yield();
    }
}

static void *crowd_send(void *argument) {
    crowd_thread *t = argument;
    server_engine *engine = t->all->engine;
    uint64_t random = (uint64_t)t->first + 100;
    for (int i = t->first; i < N_REQUEST; i += N_THREAD) {
        crowd_request *r = &t->all->requests[i];
        request_make(t->all, r, &random);
        server_request request = rig_request(&r->answer, r->prompt, r->n_prompt, r->n_answer);
        request.key = random_u32_below(&random, 5);
        request.scope = random_u32_below(&random, 2);
        request.is_uncached = random_u32_below(&random, 10) == 0;
        request.max_draft = (int32_t)random_u32_below(&random, 5) - 1;
        request.min_draft = (int32_t)random_u32_below(&random, 2);
        const uint32_t kind = random_u32_below(&random, 12);
        if (kind == 0) request.total_limit = 1 + random_u32_below(&random, 3000000);
        r->may_end = kind < 2;
        /* Without this limit more would be open than there is room for, all the time. */
        while (t->open <= i - WINDOW) oldest_wait(t);
        const server_request_id id = crowd_submit(t, i, &request);
        if (kind == 1) server_engine_cancel(engine, id);
        if (kind == 2 || kind == 3) {
            server_engine_pause(engine, id, true);
            server_stats stats;
            server_request_info infos[4];
            (void)server_engine_snapshot(engine, &stats, infos, 4);
            server_engine_pause(engine, id, false);
        }
    }
    return NULL;
}

/* Whether the answer's tokens are those that follow from the prompt. */
static void answer_check(const crowd_request *r, int number) {
    int32_t tokens[MAX_PROMPT + RIG_MAX_ANSWER];
    memcpy(tokens, r->prompt, (size_t)r->n_prompt * sizeof(int32_t));
    for (int32_t i = 0; i < r->answer.n; i++) {
        const int32_t due = fake_next(tokens, r->n_prompt + i);
        if (r->answer.tokens[i] != due)
            fail_msg("request %d: token %d of the answer is %d, not %d", number, i,
                     r->answer.tokens[i], due);
        tokens[r->n_prompt + i] = due;
    }
}

static void crowd_run(int fail_every, int32_t n_draft) {
    static crowd c;
    pthread_t threads[N_THREAD];
    crowd_thread arguments[N_THREAD];
    tdm_error err = {0};
    uint64_t random = 9;
    const server_engine_params params = {.context = {.n_ctx = N_CTX, .n_ubatch = 64, .page_len = 8},
                                         .limits = {.n_running = 12,
                                                    .n_held = 6,
                                                    .n_queued = 40,
                                                    .n_prompt_step = 30,
                                                    .probe_ns = 1},
                                         .draft = n_draft > 0 ? fake_draft_model() : NULL,
                                         .draft_context = {.n_ubatch = 64, .page_len = 8},
                                         .n_draft = n_draft};
    c.requests = calloc(N_REQUEST, sizeof *c.requests);
    assert_non_null(c.requests);
    for (int p = 0; p < 4; p++)
        for (int i = 0; i < MAX_PROMPT; i++)
            c.prefixes[p][i] = (int32_t)random_u32_below(&random, FAKE_N_VOCAB);
    RIG_OK(server_engine_create(fake_model(), &params, &c.engine, &err));
    fake_fail_every(fail_every);
    fake_hold(true);
    for (int i = 0; i < N_THREAD; i++) {
        arguments[i] = (crowd_thread){.all = &c, .first = i, .open = i};
        assert_int_equal(pthread_create(&threads[i], NULL, crowd_send, &arguments[i]), 0);
    }
    for (int i = 0; i < N_THREAD; i++) pthread_join(threads[i], NULL);
    server_engine_drain(c.engine, UINT64_C(100000000000));
    assert_true(server_engine_wait_idle(c.engine, UINT64_C(100000000000)));
    server_stats stats;
    assert_int_equal(server_engine_snapshot(c.engine, &stats, NULL, 0), 0);
    server_engine_destroy(c.engine);
    int n_failed = 0, n_refused = 0;
    for (int i = 0; i < N_THREAD; i++) n_refused += arguments[i].n_refused;
    for (int i = 0; i < N_REQUEST; i++) {
        crowd_request *r = &c.requests[i];
        assert_int_equal(r->answer.n_event, 1); /* one end each */
        answer_check(r, i);
        if (r->answer.status != TDM_OK) {
            assert_int_equal(r->answer.status, TDM_UNAVAILABLE);
            assert_true(fail_every > 0);
            n_failed++;
        } else if (!r->may_end) {
            assert_int_equal(r->answer.end, SERVER_END_LENGTH);
            assert_int_equal(r->answer.n, r->n_answer);
        }
        rig_answer_free(&r->answer);
    }
    assert_int_equal(stats.n_submitted, N_REQUEST);
    assert_int_equal(stats.n_failed, n_failed);
    uint64_t n_ended = 0;
    for (int e = 0; e < SERVER_END_COUNT_; e++) n_ended += stats.n_ended[e];
    assert_int_equal(n_ended + stats.n_failed, stats.n_submitted);
    assert_true(stats.n_prompt_cached > 0 && stats.n_preempted > 0 && stats.n_evicted > 0);
    assert_true((fail_every > 0) == (n_failed > 0));
    assert_true(n_refused > 0);
    assert_true((n_draft > 0) == (stats.n_draft > 0));
    assert_true(stats.n_draft_accepted >= stats.n_draft / 4 &&
                stats.n_draft_accepted <= stats.n_draft);
    print_message("%llu of %llu drafts accepted, ", (unsigned long long)stats.n_draft_accepted,
                  (unsigned long long)stats.n_draft);
    print_message("%llu steps, %d failed, %d refused, %llu preempted, %llu evicted, %llu of %llu "
                  "tokens of prompts cached\n",
                  (unsigned long long)stats.n_step, n_failed, n_refused,
                  (unsigned long long)stats.n_preempted, (unsigned long long)stats.n_evicted,
                  (unsigned long long)stats.n_prompt_cached,
                  (unsigned long long)(stats.n_prompt_cached + stats.n_prompt_computed));
    free(c.requests);
}

static void test_crowd(void **state) {
    (void)state;
    crowd_run(0, 0);
    crowd_run(0, 12);
}

/* A device that fails now and then: what was in the step fails, the others go on. */
static void test_failures(void **state) {
    (void)state;
    crowd_run(97, 0);
    crowd_run(97, 12);
}

/* Sequences that lose tokens as drafts are taken back are computed again; where the draft loses
 * them, its requests do without. */
static void test_lost_tokens(void **state) {
    (void)state;
    fake_lose_every(50);
    crowd_run(0, 12);
    fake_lose_every(0);
}

static server_stats stats_get(server_engine *engine) {
    server_stats stats;
    (void)server_engine_snapshot(engine, &stats, NULL, 0);
    return stats;
}

/* Waits until the engine's state is `has_failed` and it has computed n_probe probes. */
static void state_wait(server_engine *engine, bool has_failed, uint64_t n_probe) {
    const uint64_t end = server_clock() + UINT64_C(60000000000);
    for (;;) {
        const server_stats stats = stats_get(engine);
        if (stats.has_failed == has_failed && stats.n_probe >= n_probe) return;
        if (server_clock() > end)
            fail_msg("has_failed is %d after a minute and %llu probes", stats.has_failed,
                     (unsigned long long)stats.n_probe);
        const struct timespec pause = {0, 100000};
        nanosleep(&pause, NULL);
    }
}

/* Calls of device_noted. The engine's thread counts them; they are read after the engine was
 * destroyed. */
typedef struct device_notes {
    int n_failure, n_recovery;
    char failure[64];
} device_notes;

static void device_noted(void *user, const char *failure) {
    device_notes *notes = user;
    if (failure != NULL) snprintf(notes->failure, sizeof notes->failure, "%s", failure);
    *(failure != NULL ? &notes->n_failure : &notes->n_recovery) += 1;
}

/* After a failed step the state is ok again once the device works, without a request; until then
 * it is not. A probe leaves nothing behind: all pages are free, and answers are right. */
static void test_recovery(void **state) {
    (void)state;
    device_notes notes = {0};
    const server_engine_params params = {
        .context = {.n_ctx = 64, .n_ubatch = 32, .page_len = 8},
        .limits = {.n_running = 1, .n_held = 1, .probe_ns = 100000},
        .device_noted = device_noted,
        .device_noted_user = &notes};
    const int32_t prompt[4] = {1, 2, 3, fake_next((const int32_t[]){1, 2, 3}, 3)};
    server_engine *engine = NULL;
    tdm_error err = {0};
    rig_answer a;
    RIG_OK(server_engine_create(fake_model(), &params, &engine, &err));
    for (int i = 0; i < 2; i++) {
        fake_fail_every(1);
        rig_answer_init(&a);
        server_request request = rig_request(&a, prompt, 3, 1);
        rig_submit(engine, &request);
        rig_answer_wait(&a);
        rig_answer_free(&a);
        const uint64_t n_before = stats_get(engine).n_probe;
        state_wait(engine, true, n_before + 3);
        assert_int_equal(stats_get(engine).failure.status, TDM_UNAVAILABLE);
        assert_string_equal(stats_get(engine).failure.message, "the device is gone");
        const int32_t n_free = stats_get(engine).n_page_free;
        fake_fail_every(0);
        state_wait(engine, false, n_before + 4);
        const server_stats stats = stats_get(engine);
        assert_int_equal(stats.n_page_free, n_free);
        assert_int_equal(stats.failure.status, TDM_OK);
        rig_answer_init(&a);
        request = rig_request(&a, prompt, 3, 2);
        rig_submit(engine, &request);
        rig_answer_wait(&a);
        assert_int_equal(a.status, TDM_OK);
        assert_int_equal(a.tokens[0], prompt[3]);
        assert_int_equal(a.tokens[1], fake_next(prompt, 4));
        rig_answer_free(&a);
        assert_int_equal(stats_get(engine).n_probe, stats.n_probe); /* no more of them */
    }
    server_engine_destroy(engine);
    assert_int_equal(notes.n_failure, 2); /* once, not with each probe */
    assert_int_equal(notes.n_recovery, 2);
    assert_string_equal(notes.failure, "the device is gone");
}

/* The device is gone: every request fails, none hangs, and the totals say so. */
static void test_lost_device(void **state) {
    (void)state;
    const server_engine_params params = {.context = {.n_ctx = 64, .n_ubatch = 32, .page_len = 8}};
    const int32_t prompt[3] = {1, 2, 3};
    server_engine *engine = NULL;
    server_stats stats;
    tdm_error err = {0};
    rig_answer a;
    fake_fail_every(1);
    RIG_OK(server_engine_create(fake_model(), &params, &engine, &err));
    for (int i = 0; i < 3; i++) {
        rig_answer_init(&a);
        const server_request request = rig_request(&a, prompt, 3, 1);
        rig_submit(engine, &request);
        rig_answer_wait(&a);
        assert_int_equal(a.status, i < 2 ? TDM_UNAVAILABLE : TDM_RESOURCE_EXHAUSTED);
        if (i < 2) assert_string_equal(a.message, "the device is gone");
        if (i == 2) /* and what to do */
            assert_non_null(strstr(a.message, "no memory for a step: the device is gone; start the "
                                              "server with a smaller ubatch-size"));
        rig_answer_free(&a);
        if (i == 1) fake_fail_with(TDM_RESOURCE_EXHAUSTED);
    }
    fake_fail_with(TDM_UNAVAILABLE);
    assert_true(server_engine_wait_idle(engine, UINT64_C(100000000000)));
    (void)server_engine_snapshot(engine, &stats, NULL, 0);
    assert_int_equal(stats.n_failed, 3);
    fake_fail_every(0);
    server_engine_destroy(engine);
}

/* ---- An engine that is stopped while others submit ---- */

enum { N_LATE = 3 };

typedef struct late_client {
    pthread_t thread;
    server_engine *engine;
    int n_taken; /* requests that were accepted */
    int n_over;  /* calls of finished and failed; atomic */
    tdm_status refusal;
} late_client;

static bool late_token(void *user, server_request_id id, const server_token *token) {
    (void)user, (void)id, (void)token;
    return true;
}

static void late_finished(void *user, server_request_id id, const server_result *result) {
    (void)id, (void)result;
    __atomic_fetch_add(&((late_client *)user)->n_over, 1, __ATOMIC_RELAXED);
}

static void late_failed(void *user, server_request_id id, tdm_status status, const char *message) {
    (void)id, (void)status, (void)message;
    __atomic_fetch_add(&((late_client *)user)->n_over, 1, __ATOMIC_RELAXED);
}

/* Submits until the engine refuses. */
static void *late_submit(void *user) {
    late_client *c = user;
    const int32_t prompt[3] = {1, 2, 3};
    for (;;) {
        const server_request request = {
            .struct_size = sizeof request,
            .prompt = prompt,
            .n_prompt = 3,
            .max_tokens = 8,
            .sink = {
                .token = late_token, .finished = late_finished, .failed = late_failed, .user = c}};
        server_request_id id;
        tdm_error err = {0};
        c->refusal = server_engine_submit(c->engine, &request, &id, NULL, &err);
        if (c->refusal == TDM_OK) c->n_taken++;
        if (c->refusal != TDM_OK && c->refusal != TDM_RESOURCE_EXHAUSTED) return NULL;
        server_engine_cancel(c->engine, c->refusal == TDM_OK && c->n_taken % 2 == 0 ? id : 0);
    }
}

static void test_stopped(void **state) {
    (void)state;
    const server_engine_params params = {.context = {.n_ctx = 64, .n_ubatch = 32, .page_len = 8},
                                         .limits = {.n_queued = 64}};
    for (int round = 0; round < 20; round++) {
        server_engine *engine = NULL;
        tdm_error err = {0};
        late_client clients[N_LATE];
        RIG_OK(server_engine_create(fake_model(), &params, &engine, &err));
        for (int i = 0; i < N_LATE; i++) {
            clients[i] = (late_client){.engine = engine};
            assert_int_equal(pthread_create(&clients[i].thread, NULL, late_submit, &clients[i]), 0);
        }
        if (round % 2 == 1) usleep(1000);
        server_engine_stop(engine);
        server_engine_stop(engine);
        for (int i = 0; i < N_LATE; i++) {
            pthread_join(clients[i].thread, NULL);
            assert_int_equal(clients[i].refusal, TDM_UNAVAILABLE);
            assert_int_equal(clients[i].n_over, clients[i].n_taken);
        }
        server_engine_destroy(engine);
    }
}

/* server_engine_n_seq is the number of sequences that the context gets. */
static void test_sequences(void **state) {
    static const struct {
        server_limits limits;
        int32_t n_seq;
    } cases[] = {{{0}, 48},
                 {{.n_running = 4}, 36},
                 {{.n_running = 4, .n_held = 3}, 7},
                 {{.n_held = -1}, 16},
                 {{.n_running = LLM_MAX_SEQ - 16}, LLM_MAX_SEQ},
                 {{.n_running = LLM_MAX_SEQ}, LLM_MAX_SEQ}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const server_engine_params params = {
            .context = {.n_ctx = N_CTX, .n_ubatch = N_CTX, .page_len = 8},
            .limits = cases[i].limits};
        server_engine *engine = NULL;
        server_stats stats;
        tdm_error err = {0};
        RIG_OK(server_engine_create(fake_model(), &params, &engine, &err));
        (void)server_engine_snapshot(engine, &stats, NULL, 0);
        assert_int_equal(server_engine_n_seq(fake_model(), &cases[i].limits), cases[i].n_seq);
        assert_int_equal(stats.n_page, N_CTX / 8 + 2 * cases[i].n_seq); /* fake_context.c */
        server_engine_destroy(engine);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_crowd),       cmocka_unit_test(test_failures),
        cmocka_unit_test(test_lost_tokens), cmocka_unit_test(test_recovery),
        cmocka_unit_test(test_lost_device), cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
