/* SPDX-License-Identifier: MIT
 *
 * test_cpu_spin.c: how long waits spin before they sleep (plugins/cpu/exec/spin.h), with a clock
 * that the test sets; whether a thread runs; and a pool whose workers wait for one that has no CPU.
 */
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "plugins/cpu/exec/pool.h"
#include "plugins/cpu/exec/spin.h"

enum { START = 1000000 }; /* the clock of these waits */

/* ---- Policy ---------------------------------------------------------------------------------- */

/* Answers whether threads run: true for the first n_yes calls. */
typedef struct script {
    int n_call;
    int n_yes;
} script;

static bool script_answer(void *arg) {
    script *o = arg;
    return o->n_call++ < o->n_yes;
}

/* Nanoseconds after which a wait sleeps that reads the clock every `step` ns. */
static uint64_t spin_until(cpu_spin_time *spin_time, script *o, uint64_t step) {
    cpu_spin spin = {0};
    uint64_t now = START;
    while (cpu_spin_continue_at(&spin, spin_time, o != NULL ? script_answer : NULL, o, now))
        now += step;
    return now - START;
}

static void test_unknown_threads_spin_then_sleep(void **state) {
    (void)state;
    cpu_spin_time spin_time = CPU_SPIN_START;
    assert_int_equal(spin_until(&spin_time, NULL, 100), CPU_SPIN_START);
    assert_int_equal(spin_time, CPU_SPIN_START / 2);
    for (int i = 0; i < 40; i++) spin_until(&spin_time, NULL, 100);
    assert_int_equal(spin_time, CPU_SPIN_MIN);
}

static void test_running_threads_keep_spinning(void **state) {
    (void)state;
    cpu_spin_time spin_time = CPU_SPIN_START;
    script o = {.n_yes = 5};
    assert_int_equal(spin_until(&spin_time, &o, 100), CPU_SPIN_START + 5 * CPU_SPIN_RECHECK);
    assert_int_equal(o.n_call, 6);
    assert_int_equal(spin_time, CPU_SPIN_START / 2);
}

static void test_stopped_threads_sleep_at_once(void **state) {
    (void)state;
    cpu_spin_time spin_time = CPU_SPIN_START;
    script o = {.n_yes = 0};
    assert_int_equal(spin_until(&spin_time, &o, 100), CPU_SPIN_START);
    assert_int_equal(o.n_call, 1);
}

static void test_spin_has_a_limit(void **state) {
    (void)state;
    cpu_spin_time spin_time = CPU_SPIN_MAX;
    script o = {.n_yes = 1000000};
    uint64_t end = spin_until(&spin_time, &o, 100);
    assert_true(end >= CPU_SPIN_LIMIT);
    assert_true(end < CPU_SPIN_LIMIT + CPU_SPIN_RECHECK);
    assert_int_equal(spin_time, CPU_SPIN_MAX / 2);
}

static void test_success_doubles_the_spin(void **state) {
    (void)state;
    cpu_spin_time spin_time = CPU_SPIN_MIN;
    cpu_spin at_once = {0};
    cpu_spin_succeeded(&at_once, &spin_time);
    assert_int_equal(spin_time, CPU_SPIN_MIN);
    for (int i = 0; i < 20; i++) {
        cpu_spin spin = {0};
        int32_t before = spin_time;
        assert_true(cpu_spin_continue_at(&spin, &spin_time, NULL, NULL, START));
        cpu_spin_succeeded(&spin, &spin_time);
        assert_int_equal(spin_time, before < CPU_SPIN_MAX / 2 ? 2 * before : CPU_SPIN_MAX);
    }
    assert_int_equal(spin_time, CPU_SPIN_MAX);
}

/* ---- Who runs -------------------------------------------------------------------------------- */

/* A thread that computes until is_stopped, then sleeps until `end` is posted. */
typedef struct subject {
    pthread_t thread;
    clockid_t clock;
    _Atomic long id; /* the kernel's */
    _Atomic bool is_stopped;
    sem_t end;
} subject;

static void *subject_main(void *arg) {
    subject *s = arg;
    atomic_store(&s->id, syscall(SYS_gettid));
    while (!atomic_load(&s->is_stopped)) continue;
    while (sem_wait(&s->end) != 0) continue;
    return NULL;
}

/* The state letter of a thread of this process, from the kernel; 0 if it is not available. */
static char thread_state(long id) {
    char path[64], text[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%ld/stat", id);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = 0;
    const char *name_end = strrchr(text, ')');
    return name_end != NULL && strlen(name_end) > 2 ? name_end[2] : 0;
}

/* Two CPUs to pin threads to: a thread that shares the CPU of the caller never runs during the
 * call. Skips the test where there is only one, or where /proc has no states of threads. */
static cpu_set_t two_cores(void) {
    cpu_set_t usable, two;
    CPU_ZERO(&two);
    CPU_ZERO(&usable);
    (void)sched_getaffinity(0, sizeof usable, &usable);
    for (int i = 0; i < CPU_SETSIZE && CPU_COUNT(&two) < 2; i++)
        if (CPU_ISSET(i, &usable)) CPU_SET(i, &two);
    if (CPU_COUNT(&two) < 2 || thread_state(syscall(SYS_gettid)) == 0) {
        print_message("skipped: fewer than two processors, or no /proc\n");
        skip();
    }
    return two;
}

/* Pins a thread to the first CPU of a set (0) or to the second (1). */
static void thread_pin(pthread_t thread, const cpu_set_t *two, int which) {
    cpu_set_t one;
    int rank = 0;
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, two) && rank++ == which) CPU_SET(i, &one);
    assert_int_equal(pthread_setaffinity_np(thread, sizeof one, &one), 0);
}

static void thread_await_sleep(long id) {
    while (thread_state(id) != 'S') sched_yield();
}

static void test_thread_runs_only_while_it_computes(void **state) {
    (void)state;
    subject s = {0};
    cpu_set_t two = two_cores(), usable;
    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof usable, &usable), 0);
    assert_int_equal(sem_init(&s.end, 0, 0), 0);
    assert_int_equal(pthread_create(&s.thread, NULL, subject_main, &s), 0);
    assert_int_equal(pthread_getcpuclockid(s.thread, &s.clock), 0);
    thread_pin(pthread_self(), &two, 0);
    thread_pin(s.thread, &two, 1);
    while (atomic_load(&s.id) == 0) sched_yield();
    /* It may share its CPU, so it runs at some time, not always. */
    while (!cpu_thread_runs(s.clock)) sched_yield();
    atomic_store(&s.is_stopped, true);
    thread_await_sleep(atomic_load(&s.id));
    /* The kernel reports that it sleeps a little before it leaves its CPU. */
    while (cpu_thread_runs(s.clock)) sched_yield();
    for (int i = 0; i < 1000; i++) assert_false(cpu_thread_runs(s.clock));
    sem_post(&s.end);
    pthread_join(s.thread, NULL);
    sem_destroy(&s.end);
    assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof usable, &usable), 0);
}

/* ---- A pool ---------------------------------------------------------------------------------- */

enum { N_THREAD = 3, N_ROUND = 60, MAX_TRY = 1000 };

/* Calls of pools for the thread with this clock, by their result; the linker redirects them here
 * (--wrap). */
static _Atomic clockid_t watched_clock;
static _Atomic int64_t n_running, n_not_running;

bool __real_cpu_thread_runs(clockid_t clock);
bool __wrap_cpu_thread_runs(clockid_t clock);

bool __wrap_cpu_thread_runs(clockid_t clock) {
    bool runs = __real_cpu_thread_runs(clock);
    if (clock == atomic_load(&watched_clock))
        atomic_fetch_add(runs ? &n_running : &n_not_running, 1);
    return runs;
}

static void *host_alloc(void *context, size_t size, size_t align) {
    (void)context;
    return aligned_alloc(align != 0 ? align : 64, (size + 63) / 64 * 64);
}

static void host_free(void *context, void *p, size_t size) {
    (void)context;
    (void)size;
    free(p);
}

static const tdm_host host = {.struct_size = sizeof host, .alloc = host_alloc, .free = host_free};

static cpu_pool *pool_open(int32_t n_thread, const cpu_set_t *cores) {
    tdm_error err = {.struct_size = sizeof err};
    cpu_pool *pool = NULL;
    assert_int_equal(cpu_pool_create(&host, n_thread, cores, &pool, &err), TDM_OK);
    return pool;
}

/* Worker 1 comes late to the barrier where worker 0 waits: it computes until worker 0 has checked
 * whether it runs, or sleeps until worker 0 sleeps. */
typedef struct lateness {
    bool computes;
    _Atomic long waiter; /* worker 0's thread */
} lateness;

static void late_work(void *arg, cpu_worker *w) {
    lateness *l = arg;
    if (w->ith == 0) {
        atomic_store(&l->waiter, syscall(SYS_gettid));
    } else {
        clockid_t clock;
        int64_t n_before = atomic_load(&n_running);
        pthread_getcpuclockid(pthread_self(), &clock);
        atomic_store(&watched_clock, clock);
        while (atomic_load(&l->waiter) == 0) sched_yield();
        while (thread_state(atomic_load(&l->waiter)) != 'S') {
            if (!l->computes)
                nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
            else if (atomic_load(&n_running) != n_before)
                break;
        }
    }
    cpu_worker_barrier(w);
}

/* On a busy machine a wait may end in another way, so that one of many tries is enough. */
static void test_barrier_checks_missing_threads(void **state) {
    (void)state;
    cpu_set_t two = two_cores(), usable;
    assert_int_equal(pthread_getaffinity_np(pthread_self(), sizeof usable, &usable), 0);
    cpu_pool *pool = pool_open(2, &two);
    cpu_pool_pin_caller(pool);
    for (int i = 0; i < MAX_TRY && atomic_load(&n_running) == 0; i++)
        cpu_pool_run(pool, late_work, &(lateness){.computes = true});
    assert_true(atomic_load(&n_running) > 0);
    atomic_store(&n_not_running, 0);
    for (int i = 0; i < MAX_TRY && atomic_load(&n_not_running) == 0; i++)
        cpu_pool_run(pool, late_work, &(lateness){.computes = false});
    assert_true(atomic_load(&n_not_running) > 0);
    cpu_pool_destroy(pool);
    assert_int_equal(pthread_setaffinity_np(pthread_self(), sizeof usable, &usable), 0);
}

/* In each round one worker comes only when all others sleep; all must then wake. */
typedef struct rounds {
    _Atomic long ids[N_THREAD];
    _Atomic int32_t n_met[N_ROUND];
    _Atomic int32_t n_wrong;
} rounds;

static void rounds_work(void *arg, cpu_worker *w) {
    rounds *r = arg;
    atomic_store(&r->ids[w->ith], syscall(SYS_gettid));
    cpu_worker_barrier(w);
    for (int32_t round = 0; round < N_ROUND; round++) {
        for (int32_t i = 0; i < w->nth && round % N_THREAD == w->ith; i++)
            while (i != w->ith && thread_state(atomic_load(&r->ids[i])) != 'S')
                nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
        atomic_fetch_add(&r->n_met[round], 1);
        cpu_worker_barrier(w);
        if (atomic_load(&r->n_met[round]) != w->nth) atomic_fetch_add(&r->n_wrong, 1);
    }
}

static void test_barrier_wakes_sleepers(void **state) {
    (void)state;
    rounds r;
    if (thread_state(syscall(SYS_gettid)) == 0) {
        print_message("skipped: /proc has no states of threads\n");
        skip();
    }
    cpu_pool *pool = pool_open(N_THREAD, NULL);
    for (int job = 0; job < 3; job++) {
        memset(&r, 0, sizeof r);
        cpu_pool_run(pool, rounds_work, &r);
        assert_int_equal(r.n_wrong, 0);
        for (int32_t i = 0; i < N_ROUND; i++) assert_int_equal(r.n_met[i], N_THREAD);
    }
    cpu_pool_destroy(pool);
}

static void meet_work(void *arg, cpu_worker *w) {
    _Atomic int64_t *n = arg;
    for (int32_t i = 0; i < N_ROUND; i++) {
        atomic_fetch_add(n, 1);
        cpu_worker_barrier(w);
        if (atomic_load(n) < (int64_t)(i + 1) * w->nth) atomic_store(n, INT64_MIN / 2);
    }
}

static void test_more_threads_than_processors(void **state) {
    (void)state;
    _Atomic int64_t n = 0;
    int32_t n_thread = 4 * (int32_t)sysconf(_SC_NPROCESSORS_ONLN);
    if (n_thread > 64) n_thread = 64;
    cpu_pool *pool = pool_open(n_thread, NULL);
    cpu_pool_run(pool, meet_work, &n);
    assert_int_equal(n, (int64_t)N_ROUND * n_thread);
    cpu_pool_destroy(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown_threads_spin_then_sleep),
        cmocka_unit_test(test_running_threads_keep_spinning),
        cmocka_unit_test(test_stopped_threads_sleep_at_once),
        cmocka_unit_test(test_spin_has_a_limit),
        cmocka_unit_test(test_success_doubles_the_spin),
        cmocka_unit_test(test_thread_runs_only_while_it_computes),
        cmocka_unit_test(test_barrier_checks_missing_threads),
        cmocka_unit_test(test_barrier_wakes_sleepers),
        cmocka_unit_test(test_more_threads_than_processors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
