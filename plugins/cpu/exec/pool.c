/* SPDX-License-Identifier: MIT
 *
 * pool.c: threads that wait for work and for each other. Both waits poll one word, then sleep on a
 * condition variable. Between the nodes of a graph a sleep would cost more than the node: a barrier
 * polls as long as the awaited workers run. Between steps an idle device must not hold the
 * processor, and the next step cannot be predicted: that wait polls for a short time. spin.h
 * decides how long.
 *
 * No wake-up is lost: a sleeper increments the count of sleepers, then reads the word again, under
 * the mutex; the waker changes the word, then reads the count. In sequentially consistent order one
 * of the two sees the other's change.
 */
#include <signal.h>
#include <string.h>

#include "plugins/cpu/machine/cores.h"
#include "plugins/cpu/exec/pool.h"
#include "plugins/cpu/exec/spin.h"

/* A worker, on a cache line of its own. */
typedef struct pool_worker {
    _Alignas(64) cpu_pool *pool;
    pthread_t thread; /* of all but worker 0 */
    int32_t ith;
    _Atomic clockid_t clock;    /* its processor time; of worker 0 in the current job */
    _Atomic uint32_t n_arrival; /* barriers reached; as `meeting`, which counts those passed */
} pool_worker;

/* A word that threads wait on, on a cache line of its own. */
typedef struct pool_word {
    _Alignas(64) _Atomic uint32_t value;
    _Atomic int32_t n_sleeper;
    cpu_spin_time spin_time;
} pool_word;

struct cpu_pool {
    pool_word job;                          /* counts jobs: workers wait for the next */
    pool_word meeting;                      /* counts barriers passed */
    _Alignas(64) _Atomic int32_t n_arrived; /* at the current barrier */
    _Alignas(64) pthread_mutex_t sleep_mutex;
    pthread_cond_t changed;
    pthread_mutex_t run_mutex; /* one job at a time */
    cpu_pool_fn fn;            /* of the current job; NULL ends the threads */
    void *arg;
    const tdm_host *host;
    int32_t n_thread;
    int32_t n_started; /* threads that run: workers 1 .. n_started */
    bool is_pinned, has_core_each;
    cpu_set_t cores;
    pool_worker workers[]; /* n_thread */
};

/* Waits until the word's value is not `seen`. `check` as in cpu_spin_continue. */
static void word_wait(cpu_pool *pool, pool_word *word, uint32_t seen, cpu_spin_check_fn check,
                      void *arg) {
    cpu_spin spin = {0};
    do {
        if (atomic_load_explicit(&word->value, memory_order_acquire) != seen) {
            cpu_spin_succeeded(&spin, &word->spin_time);
            return;
        }
    } while (cpu_spin_continue(&spin, &word->spin_time, check, arg));
    pthread_mutex_lock(&pool->sleep_mutex);
    atomic_fetch_add(&word->n_sleeper, 1);
    while (atomic_load(&word->value) == seen) pthread_cond_wait(&pool->changed, &pool->sleep_mutex);
    atomic_fetch_sub(&word->n_sleeper, 1);
    pthread_mutex_unlock(&pool->sleep_mutex);
}

/* Increments the word and wakes the threads that sleep on it. */
static void word_raise(cpu_pool *pool, pool_word *word) {
    atomic_fetch_add(&word->value, 1);
    if (atomic_load(&word->n_sleeper) == 0) return;
    pthread_mutex_lock(&pool->sleep_mutex);
    pthread_cond_broadcast(&pool->changed);
    pthread_mutex_unlock(&pool->sleep_mutex);
}

/* Returns true if every worker that has not reached the barrier where worker `arg` waits runs. */
static bool missing_run(void *arg) {
    const cpu_worker *w = arg;
    cpu_pool *pool = w->pool;
    uint32_t here = atomic_load_explicit(&pool->workers[w->ith].n_arrival, memory_order_relaxed);
    for (int32_t i = 0; i < w->nth; i++) {
        pool_worker *other = &pool->workers[i];
        if (atomic_load_explicit(&other->n_arrival, memory_order_relaxed) == here) continue;
        if (!cpu_thread_runs(atomic_load_explicit(&other->clock, memory_order_relaxed)))
            return false;
    }
    return true;
}

void cpu_worker_barrier(cpu_worker *w) {
    cpu_pool *pool = w->pool;
    if (w->nth == 1) return;
    uint32_t seen = atomic_load_explicit(&pool->meeting.value, memory_order_acquire);
    atomic_store_explicit(&pool->workers[w->ith].n_arrival, seen + 1, memory_order_relaxed);
    if (atomic_fetch_add(&pool->n_arrived, 1) == w->nth - 1) {
        /* No worker arrives again before the word changes, so the count may be reset first. */
        atomic_store_explicit(&pool->n_arrived, 0, memory_order_relaxed);
        word_raise(pool, &pool->meeting);
    } else {
        word_wait(pool, &pool->meeting, seen, missing_run, w);
    }
}

static void affinity_apply(const cpu_pool *pool, int32_t ith) {
    if (!pool->is_pinned) return;
    cpu_set_t set = pool->cores;
    /* One processor for each worker where there are enough; else all workers share all of them. */
    if (pool->n_thread <= CPU_COUNT(&pool->cores)) {
        int32_t rank = 0;
        CPU_ZERO(&set);
        for (int i = 0; i < CPU_SETSIZE; i++)
            if (CPU_ISSET(i, &pool->cores) && rank++ == ith) CPU_SET(i, &set);
    }
    /* If the processor was taken away since the list was checked, the thread stays where it is. */
    (void)pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

int cpu_thread_start(pthread_t *thread_out, void *(*main)(void *), void *arg) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(thread_out, NULL, main, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

void cpu_pool_pin_caller(const cpu_pool *pool) {
    affinity_apply(pool, 0);
}

cpu_pool_visit cpu_pool_enter(const cpu_pool *pool) {
    cpu_pool_visit visit = {.has_moved = false};
    if (pool->is_pinned &&
        pthread_getaffinity_np(pthread_self(), sizeof visit.before, &visit.before) == 0)
        visit.has_moved =
            pthread_setaffinity_np(pthread_self(), sizeof pool->cores, &pool->cores) == 0;
    return visit;
}

void cpu_pool_leave(const cpu_pool_visit *visit) {
    if (visit->has_moved)
        (void)pthread_setaffinity_np(pthread_self(), sizeof visit->before, &visit->before);
}

bool cpu_pool_has_core_each(const cpu_pool *pool) {
    return pool->has_core_each;
}

static void *thread_main(void *arg) {
    pool_worker *self = arg;
    cpu_pool *pool = self->pool;
    cpu_worker w = {.ith = self->ith, .nth = pool->n_thread, .pool = pool};
    affinity_apply(pool, self->ith);
    for (uint32_t seen = 0;; seen++) {
        word_wait(pool, &pool->job, seen, NULL, NULL);
        if (pool->fn == NULL) return NULL;
        pool->fn(pool->arg, &w);
        cpu_worker_barrier(&w);
    }
}

/* The caller holds run_mutex; this unlocks it. */
static void job_run(cpu_pool *pool, cpu_pool_fn fn, void *arg) {
    cpu_worker w = {.ith = 0, .nth = pool->n_thread, .pool = pool};
    if (pool->n_thread > 1) {
        clockid_t clock = 0;
        (void)pthread_getcpuclockid(pthread_self(), &clock); /* a thread that lives has one */
        atomic_store_explicit(&pool->workers[0].clock, clock, memory_order_relaxed);
        pool->fn = fn;
        pool->arg = arg;
        word_raise(pool, &pool->job);
    }
    fn(arg, &w);
    cpu_worker_barrier(&w);
    pthread_mutex_unlock(&pool->run_mutex);
}

void cpu_pool_run(cpu_pool *pool, cpu_pool_fn fn, void *arg) {
    pthread_mutex_lock(&pool->run_mutex);
    job_run(pool, fn, arg);
}

bool cpu_pool_try_run(cpu_pool *pool, cpu_pool_fn fn, void *arg) {
    if (pthread_mutex_trylock(&pool->run_mutex) != 0) return false;
    job_run(pool, fn, arg);
    return true;
}

static size_t pool_size(int32_t n_thread) {
    return sizeof(cpu_pool) + (size_t)n_thread * sizeof(pool_worker);
}

tdm_status cpu_pool_create(const tdm_host *host, int32_t n_thread, const cpu_set_t *cores,
                           cpu_pool **pool_out, tdm_error *err) {
    cpu_pool *pool = host->alloc(host->context, pool_size(n_thread), 64);
    if (pool == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a pool of %d threads",
                        (int)n_thread);
    memset(pool, 0, pool_size(n_thread));
    pool->host = host;
    pool->n_thread = n_thread;
    if (cores != NULL) {
        pool->is_pinned = true;
        pool->cores = *cores;
    }
    int32_t n_core = cores != NULL ? (int32_t)CPU_COUNT(cores) : cpu_cores_available();
    pool->has_core_each = n_thread <= n_core;
    int32_t spin_time = pool->has_core_each ? CPU_SPIN_START : CPU_SPIN_MIN;
    atomic_store_explicit(&pool->job.spin_time, spin_time, memory_order_relaxed);
    atomic_store_explicit(&pool->meeting.spin_time, spin_time, memory_order_relaxed);
    int rc = pthread_mutex_init(&pool->sleep_mutex, NULL);
    if (rc == 0 && (rc = pthread_mutex_init(&pool->run_mutex, NULL)) != 0)
        pthread_mutex_destroy(&pool->sleep_mutex);
    if (rc == 0 && (rc = pthread_cond_init(&pool->changed, NULL)) != 0) {
        pthread_mutex_destroy(&pool->run_mutex);
        pthread_mutex_destroy(&pool->sleep_mutex);
    }
    if (rc != 0) {
        host->free(host->context, pool, pool_size(n_thread));
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "thread pool: %s", strerror(rc));
    }
    for (int32_t i = 1; i < n_thread; i++) {
        pool_worker *worker = &pool->workers[i];
        clockid_t clock = 0;
        worker->pool = pool;
        worker->ith = i;
        rc = cpu_thread_start(&worker->thread, thread_main, worker);
        if (rc != 0) {
            cpu_pool_destroy(pool);
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cannot start thread %d of %d: %s",
                            (int)i + 1, (int)n_thread, strerror(rc));
        }
        pool->n_started++;
        (void)pthread_getcpuclockid(worker->thread, &clock);
        atomic_store_explicit(&worker->clock, clock, memory_order_relaxed);
    }
    *pool_out = pool;
    return TDM_OK;
}

void cpu_pool_destroy(cpu_pool *pool) {
    if (pool == NULL) return;
    pool->fn = NULL;
    word_raise(pool, &pool->job);
    for (int32_t i = 1; i <= pool->n_started; i++) pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->changed);
    pthread_mutex_destroy(&pool->run_mutex);
    pthread_mutex_destroy(&pool->sleep_mutex);
    const tdm_host *host = pool->host;
    host->free(host->context, pool, pool_size(pool->n_thread));
}
