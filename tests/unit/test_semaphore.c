/* SPDX-License-Identifier: MIT
 *
 * test_semaphore.c: semaphores among threads, sentence by sentence of tandem/semaphore.h. Also run
 * under the thread sanitizer.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
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

/* The wait comes first, long before the signal: it sleeps, is woken, and reads what was written
 * before. */
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

/* A waiter that reached the point may destroy the semaphore, although the signaller has hardly
 * returned. */
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

/* ---- Words, callbacks, attached waits ---- */

/* A driver whose work ends when the test signals it. */
typedef struct driver {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool is_done;
    tdm_status status; /* of the work, once done */
    int n_wait, n_release;
} driver;

static driver *driver_make(void) {
    driver *d = calloc(1, sizeof *d);
    assert_non_null(d);
    pthread_mutex_init(&d->mutex, NULL);
    pthread_cond_init(&d->changed, NULL);
    return d;
}

static void driver_end(driver *d, tdm_status status) {
    pthread_mutex_lock(&d->mutex);
    d->is_done = true;
    d->status = status;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->mutex);
}

static tdm_status driver_wait(void *context, uint64_t timeout_ns, tdm_error *err) {
    driver *d = context;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_nsec += (long)(timeout_ns % 1000000000u);
    end.tv_sec += (time_t)(timeout_ns / 1000000000u) + end.tv_nsec / 1000000000;
    end.tv_nsec %= 1000000000;
    int rc = 0;
    pthread_mutex_lock(&d->mutex);
    d->n_wait++;
    while (!d->is_done && rc == 0) rc = pthread_cond_timedwait(&d->changed, &d->mutex, &end);
    tdm_status status = !d->is_done           ? TDM_DEADLINE_EXCEEDED
                        : d->status == TDM_OK ? TDM_OK
                                              : tdm_fail(err, d->status, "the card fell out");
    pthread_mutex_unlock(&d->mutex);
    return status;
}

static void driver_release(void *context) {
    driver *d = context;
    pthread_mutex_lock(&d->mutex);
    d->n_release++;
    pthread_mutex_unlock(&d->mutex);
}

static void driver_free(driver *d) {
    assert_int_equal(d->n_release, 1);
    free(d);
}

static tdm_native_wait wait_of(driver *d) {
    return (tdm_native_wait){sizeof(tdm_native_wait), d, driver_wait, driver_release};
}

static void test_word(void **state) {
    (void)state;
    tdm_semaphore *s = make(3);
    uint64_t *word = ops->word(s);
    assert_int_equal((uintptr_t)word % 64, 0);
    assert_int_equal(__atomic_load_n(word, __ATOMIC_ACQUIRE), 3);
    ops->signal(s, 8);
    assert_int_equal(__atomic_load_n(word, __ATOMIC_ACQUIRE), 8);
    __atomic_store_n(word, 11, __ATOMIC_RELEASE); /* as a device does */
    assert_int_equal(ops->wait(s, 11, 0, NULL), TDM_OK);
    ops->destroy(s);
}

/* A thread that waits without a limit. */
typedef struct sleeper {
    tdm_semaphore *s;
    uint64_t value;
    tdm_status status;
    tdm_error err;
    pthread_t thread;
} sleeper;

static void *sleeper_main(void *arg) {
    sleeper *p = arg;
    p->status = ops->wait(p->s, p->value, TDM_WAIT_FOREVER, &p->err);
    return NULL;
}

static void sleeper_start(sleeper *p, tdm_semaphore *s, uint64_t value) {
    *p = (sleeper){.s = s, .value = value};
    assert_int_equal(pthread_create(&p->thread, NULL, sleeper_main, p), 0);
}

/* A thread that waits before anything is attached ends up in the driver, and its result is the
 * semaphore's. */
static void test_attach(void **state) {
    (void)state;
    for (int is_early = 0; is_early < 2; is_early++) {
        tdm_semaphore *s = make(0);
        driver *d = driver_make();
        const tdm_native_wait wait = wait_of(d);
        sleeper low, high;
        uint64_t value = 9;
        sleeper_start(&low, s, 2);
        sleeper_start(&high, s, 4);
        if (!is_early) sleep_ms(20); /* they sleep, most likely */
        assert_int_equal(ops->attach(s, 3, &wait, NULL), TDM_OK);
        assert_int_equal(ops->query(s, &value, NULL), TDM_OK);
        assert_int_equal(value, 0);
        assert_int_equal(ops->wait(s, 3, MS, NULL), TDM_DEADLINE_EXCEEDED);
        driver_end(d, TDM_OK);
        pthread_join(low.thread, NULL);
        assert_int_equal(low.status, TDM_OK);
        assert_int_equal(ops->query(s, &value, NULL), TDM_OK);
        assert_int_equal(value, 3);
        assert_true(d->n_wait > 0);
        ops->signal(s, 4);
        pthread_join(high.thread, NULL);
        assert_int_equal(high.status, TDM_OK);
        ops->destroy(s);
        driver_free(d);
    }
}

/* A query alone finds work that has ended, and several attached values are reached in order. */
static void test_attach_polled(void **state) {
    (void)state;
    tdm_semaphore *s = make(0);
    driver *d[2] = {driver_make(), driver_make()};
    uint64_t value = 9;
    for (int i = 0; i < 2; i++) {
        const tdm_native_wait wait = wait_of(d[i]);
        assert_int_equal(ops->attach(s, (uint64_t)i + 1, &wait, NULL), TDM_OK);
    }
    driver_end(d[0], TDM_OK);
    assert_int_equal(ops->query(s, &value, NULL), TDM_OK);
    assert_int_equal(value, 1);
    driver_end(d[1], TDM_OK);
    assert_int_equal(ops->query(s, &value, NULL), TDM_OK);
    assert_int_equal(value, 2);
    const tdm_native_wait late = wait_of(d[0]);
    d[0]->n_release = 0;
    assert_int_equal(ops->attach(s, 1, &late, NULL),
                     TDM_OK); /* reached already: released at once */
    assert_int_equal(d[0]->n_release, 1);
    ops->destroy(s);
    for (int i = 0; i < 2; i++) driver_free(d[i]);
}

/* Failure of the driver poisons; poison wakes a thread that is in the driver; what is attached is
 * released in either case, and on destroy. */
static void test_attach_fails(void **state) {
    (void)state;
    tdm_error cause = {0};
    tdm_semaphore *s = make(0), *t = make(0), *u = make(0);
    driver *d[3] = {driver_make(), driver_make(), driver_make()};
    sleeper a, b;
    const tdm_native_wait w0 = wait_of(d[0]), w1 = wait_of(d[1]), w2 = wait_of(d[2]);
    assert_int_equal(ops->attach(s, 1, &w0, NULL), TDM_OK);
    assert_int_equal(ops->attach(t, 1, &w1, NULL), TDM_OK);
    assert_int_equal(ops->attach(u, 1, &w2, NULL), TDM_OK);
    sleeper_start(&a, s, 1);
    sleeper_start(&b, t, 1);
    sleep_ms(20);
    driver_end(d[0], TDM_UNAVAILABLE);
    pthread_join(a.thread, NULL);
    assert_int_equal(a.status, TDM_UNAVAILABLE);
    assert_string_equal(a.err.message, "the card fell out");
    tdm_fail(&cause, TDM_DATA_LOSS, "another cause");
    (ops->fail)(t, TDM_DATA_LOSS, &cause);
    pthread_join(b.thread, NULL);
    assert_int_equal(b.status, TDM_DATA_LOSS);
    ops->destroy(s);
    ops->destroy(t);
    ops->destroy(u); /* never reached */
    for (int i = 0; i < 3; i++) driver_free(d[i]);
}

typedef struct note {
    tdm_semaphore *s; /* that the callback signals; NULL = none */
    _Atomic int n_call;
    tdm_status status;
    char message[TDM_ERROR_MESSAGE_SIZE];
} note;

static void note_take(void *user, tdm_status status, const tdm_error *err) {
    note *n = user;
    n->status = status;
    snprintf(n->message, sizeof n->message, "%s", err != NULL ? err->message : "");
    if (n->s != NULL) ops->signal(n->s, 1);
    n->n_call++;
}

static void note_await(const note *n, int n_call) {
    for (int i = 0; i < 60000 && n->n_call < n_call; i++) sleep_ms(1);
    assert_int_equal(n->n_call, n_call);
}

static void test_on_reached(void **state) {
    (void)state;
    tdm_semaphore *s = make(2), *other = make(0);
    note now = {0}, soon = {.s = other}, later = {0}, never = {0};
    tdm_error cause = {0};
    assert_int_equal(ops->on_reached(s, 2, note_take, &now, NULL), TDM_OK);
    assert_int_equal(now.n_call, 1);
    assert_int_equal(ops->on_reached(s, 9, note_take, &never, NULL), TDM_OK);
    assert_int_equal(ops->on_reached(s, 5, note_take, &later, NULL), TDM_OK);
    assert_int_equal(ops->on_reached(s, 4, note_take, &soon, NULL), TDM_OK);
    ops->signal(s, 4);
    assert_int_equal(soon.n_call, 1);
    assert_int_equal(soon.status, TDM_OK);
    assert_int_equal(ops->wait(other, 1, 0, NULL), TDM_OK);
    assert_int_equal(later.n_call + never.n_call, 0);
    ops->signal(s, 7);
    assert_int_equal(later.n_call, 1);
    tdm_fail(&cause, TDM_DATA_LOSS, "a cause");
    (ops->fail)(s, TDM_DATA_LOSS, &cause);
    assert_int_equal(never.n_call, 1);
    assert_int_equal(never.status, TDM_DATA_LOSS);
    assert_string_equal(never.message, "a cause");
    assert_int_equal(ops->on_reached(s, 20, note_take, &never, NULL), TDM_OK);
    assert_int_equal(never.n_call, 2);
    ops->destroy(s);
    ops->destroy(other);
}

/* A point that only a driver reaches, in either order of the two calls. */
static void test_on_reached_in_driver(void **state) {
    (void)state;
    for (int is_first = 0; is_first < 2; is_first++) {
        tdm_semaphore *s = make(0);
        driver *d = driver_make();
        const tdm_native_wait wait = wait_of(d);
        note n = {0};
        if (is_first) assert_int_equal(ops->on_reached(s, 1, note_take, &n, NULL), TDM_OK);
        assert_int_equal(ops->attach(s, 1, &wait, NULL), TDM_OK);
        if (!is_first) assert_int_equal(ops->on_reached(s, 1, note_take, &n, NULL), TDM_OK);
        sleep_ms(5);
        assert_int_equal(n.n_call, 0);
        driver_end(d, TDM_OK);
        note_await(&n, 1);
        assert_int_equal(n.status, TDM_OK);
        ops->destroy(s);
        driver_free(d);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alone),         cmocka_unit_test(test_timeout),
        cmocka_unit_test(test_wait_first),    cmocka_unit_test(test_points),
        cmocka_unit_test(test_poison),        cmocka_unit_test(test_poison_race),
        cmocka_unit_test(test_ping_pong),     cmocka_unit_test(test_destroy_at_once),
        cmocka_unit_test(test_word),          cmocka_unit_test(test_attach),
        cmocka_unit_test(test_attach_polled), cmocka_unit_test(test_attach_fails),
        cmocka_unit_test(test_on_reached),    cmocka_unit_test(test_on_reached_in_driver),
    };
    return cmocka_run_group_tests_name("semaphore", tests, NULL, NULL);
}
