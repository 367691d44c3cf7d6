/* SPDX-License-Identifier: MIT
 *
 * test_semaphore.c: timelines among threads, sentence by sentence of tandem/semaphore.h. Meant to
 * run under the thread sanitizer too.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "core/device/runtime.h"

static const tdm_host_semaphore_ops *const ops = &tdm_semaphore_ops;

enum { MS = 1000000 };

static tdm_semaphore *make(uint64_t value) {
    tdm_semaphore *s = NULL;
    assert_int_equal(ops->create(value, &s, NULL), TDM_OK);
    assert_non_null(s);
    return s;
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void sleep_ms(long ms) {
    nanosleep(&(struct timespec){ms / 1000, ms % 1000 * MS}, NULL);
}

static void test_alone(void **state) {
    (void)state;
    tdm_error err = {0};
    uint64_t value = 99;
    tdm_semaphore *s = make(5);
    assert_int_equal(ops->query(s, &value, &err), TDM_OK);
    assert_int_equal(value, 5);
    assert_int_equal(ops->wait(s, 0, 0, &err), TDM_OK);
    assert_int_equal(ops->wait(s, 5, 0, &err), TDM_OK);
    assert_int_equal(ops->wait(s, 6, 0, &err), TDM_DEADLINE_EXCEEDED);
    assert_non_null(strstr(err.message, "value 6 not reached"));
    assert_non_null(strstr(err.message, "stands at 5"));
    ops->signal(s, 4); /* not above the word: nothing changes */
    ops->signal(s, 5);
    assert_int_equal(ops->query(s, &value, NULL), TDM_OK);
    assert_int_equal(value, 5);
    ops->signal(s, 9); /* several steps at once */
    assert_int_equal(ops->wait(s, 7, TDM_WAIT_FOREVER, NULL), TDM_OK);
    assert_int_equal(ops->query(s, &value, NULL), TDM_OK);
    assert_int_equal(value, 9);
    ops->signal(s, UINT64_MAX);
    assert_int_equal(ops->wait(s, UINT64_MAX, 0, NULL), TDM_OK);
    ops->destroy(s);
    ops->destroy(NULL);
}

static void test_timeout(void **state) {
    (void)state;
    tdm_semaphore *s = make(0);
    const uint64_t from = now_ns();
    assert_int_equal(ops->wait(s, 1, 30 * MS, NULL), TDM_DEADLINE_EXCEEDED);
    const uint64_t took = now_ns() - from;
    assert_true(took >= 30 * MS);
    assert_true(took < 20000ull * MS);
    ops->signal(s, 1); /* running out of time has broken nothing */
    assert_int_equal(ops->wait(s, 1, 1, NULL), TDM_OK);
    ops->destroy(s);
}

/* ---- with others ----------------------------------------------------------------------------- */

typedef struct waiter {
    pthread_t thread;
    tdm_semaphore *semaphore;
    uint64_t value, timeout_ns;
    tdm_status status;
    tdm_error err;
    const int *payload; /* written before the signal, read behind the wait */
    int seen;
} waiter;

static void *waiter_main(void *arg) {
    waiter *w = arg;
    w->status = ops->wait(w->semaphore, w->value, w->timeout_ns, &w->err);
    if (w->status == TDM_OK && w->payload != NULL) w->seen = *w->payload;
    return NULL;
}

static void waiter_start(waiter *w, tdm_semaphore *s, uint64_t value, uint64_t timeout_ns) {
    w->semaphore = s;
    w->value = value;
    w->timeout_ns = timeout_ns;
    assert_int_equal(pthread_create(&w->thread, NULL, waiter_main, w), 0);
}

/* The wait comes first, by far: it sleeps, is woken, and sees what was written before. */
static void test_wait_first(void **state) {
    (void)state;
    enum { N = 4 };
    tdm_semaphore *s = make(0);
    int payload = 0;
    waiter w[N] = {{0}};
    for (int i = 0; i < N; i++) {
        w[i].payload = &payload;
        waiter_start(&w[i], s, 3, i % 2 ? TDM_WAIT_FOREVER : 60000ull * MS);
    }
    sleep_ms(20);
    ops->signal(s, 2); /* not yet */
    sleep_ms(5);
    payload = 42;
    ops->signal(s, 3);
    for (int i = 0; i < N; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].status, TDM_OK);
        assert_int_equal(w[i].seen, 42);
    }
    ops->destroy(s);
}

/* Each waits for a point of its own; one signal reaches some, the next the others. */
static void test_points(void **state) {
    (void)state;
    enum { N = 8 };
    tdm_semaphore *s = make(0);
    waiter w[N] = {{0}};
    for (int i = 0; i < N; i++) waiter_start(&w[i], s, (uint64_t)i + 1, TDM_WAIT_FOREVER);
    ops->signal(s, 4);
    for (int i = 0; i < 4; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].status, TDM_OK);
    }
    assert_int_equal(ops->wait(s, 5, 1 * MS, NULL), TDM_DEADLINE_EXCEEDED);
    ops->signal(s, 100);
    for (int i = 4; i < N; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].status, TDM_OK);
    }
    ops->destroy(s);
}

static void test_poison(void **state) {
    (void)state;
    enum { N = 4 };
    tdm_semaphore *s = make(2);
    waiter w[N] = {{0}};
    tdm_error first = {0}, second = {0}, err = {0};
    uint64_t value = 77;
    for (int i = 0; i < N; i++)
        waiter_start(&w[i], s, 10 + (uint64_t)i, i % 2 ? TDM_WAIT_FOREVER : 60000ull * MS);
    sleep_ms(10);
    tdm_fail(&first, TDM_UNAVAILABLE, "cable out");
    tdm_fail(&second, TDM_IO, "fire");
    (ops->fail)(s, TDM_UNAVAILABLE, &first);
    (ops->fail)(s, TDM_IO, &second); /* the first wins */
    for (int i = 0; i < N; i++) {
        pthread_join(w[i].thread, NULL);
        assert_int_equal(w[i].status, TDM_UNAVAILABLE);
        assert_int_equal(w[i].err.status, TDM_UNAVAILABLE);
        assert_string_equal(w[i].err.message, "cable out");
    }
    /* Present and future: also for points reached long ago, also after signals. */
    assert_int_equal(ops->wait(s, 1, 0, &err), TDM_UNAVAILABLE);
    ops->signal(s, 1000);
    assert_int_equal(ops->wait(s, 1, TDM_WAIT_FOREVER, &err), TDM_UNAVAILABLE);
    assert_string_equal(err.message, "cable out");
    assert_int_equal(ops->query(s, &value, &err), TDM_UNAVAILABLE);
    assert_int_equal(value, 77);
    assert_int_equal(ops->query(s, &value, NULL), TDM_UNAVAILABLE);
    ops->destroy(s);

    /* Without a message there still is one; TDM_OK is no failure, so it becomes a bug's. */
    s = make(0);
    (ops->fail)(s, TDM_CANCELLED, NULL);
    assert_int_equal(ops->wait(s, 1, 0, &err), TDM_CANCELLED);
    assert_string_equal(err.message, "cancelled");
    ops->destroy(s);
    s = make(0);
    (ops->fail)(s, TDM_OK, NULL);
    assert_int_equal(ops->wait(s, 0, 0, &err), TDM_INTERNAL);
    ops->destroy(s);
}

static void *poisoner_main(void *arg) {
    tdm_error err = {0};
    tdm_fail(&err, TDM_IO, "one of many");
    (ops->fail)(arg, TDM_IO, &err);
    return NULL;
}

/* Failing, signalling and waiting at once: everybody gets one and the same answer. */
static void test_poison_race(void **state) {
    (void)state;
    enum { N = 4, ROUNDS = 100 };
    for (int round = 0; round < ROUNDS; round++) {
        tdm_semaphore *s = make(0);
        waiter w[N] = {{0}};
        pthread_t poisoner[2];
        for (int i = 0; i < N; i++) waiter_start(&w[i], s, 1000, TDM_WAIT_FOREVER);
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&poisoner[i], NULL, poisoner_main, s), 0);
        ops->signal(s, (uint64_t)round);
        for (int i = 0; i < 2; i++) pthread_join(poisoner[i], NULL);
        for (int i = 0; i < N; i++) {
            pthread_join(w[i].thread, NULL);
            assert_int_equal(w[i].status, TDM_IO);
            assert_string_equal(w[i].err.message, "one of many");
        }
        ops->destroy(s);
    }
}

typedef struct player {
    pthread_t thread;
    tdm_semaphore *mine, *other;
    int *ball; /* plain memory: only the semaphores order the two */
    int n;
} player;

static void *player_main(void *arg) {
    player *p = arg;
    for (int i = 1; i <= p->n; i++) {
        if (ops->wait(p->mine, (uint64_t)i, TDM_WAIT_FOREVER, NULL) != TDM_OK) return NULL;
        ++*p->ball;
        ops->signal(p->other, (uint64_t)i);
    }
    return NULL;
}

static void test_ping_pong(void **state) {
    (void)state;
    int ball = 0;
    tdm_semaphore *a = make(0), *b = make(0);
    player p = {.mine = a, .other = b, .ball = &ball, .n = 3000};
    assert_int_equal(pthread_create(&p.thread, NULL, player_main, &p), 0);
    for (int i = 1; i <= p.n; i++) {
        ++ball;
        ops->signal(a, (uint64_t)i);
        assert_int_equal(ops->wait(b, (uint64_t)i, TDM_WAIT_FOREVER, NULL), TDM_OK);
        assert_int_equal(ball, 2 * i);
    }
    pthread_join(p.thread, NULL);
    ops->destroy(a);
    ops->destroy(b);
}

static void *signaller_main(void *arg) {
    ops->signal(arg, 1);
    return NULL;
}

/* Whoever saw the point may destroy, though the signaller has hardly returned. */
static void test_destroy_at_once(void **state) {
    (void)state;
    for (int round = 0; round < 300; round++) {
        tdm_semaphore *s = make(0);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, signaller_main, s), 0);
        assert_int_equal(ops->wait(s, 1, TDM_WAIT_FOREVER, NULL), TDM_OK);
        ops->destroy(s);
        pthread_join(thread, NULL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),      cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_wait_first), cmocka_unit_test(test_points),
        cmocka_unit_test(test_poison),     cmocka_unit_test(test_poison_race),
        cmocka_unit_test(test_ping_pong),  cmocka_unit_test(test_destroy_at_once),
    };
    return cmocka_run_group_tests_name("semaphore", tests, NULL, NULL);
}
