/* SPDX-License-Identifier: MIT
 *
 * semaphore.c: the timelines of tandem/semaphore.h. Owns the word, its waiters and its failure.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/relax.h"
#include "core/device/runtime.h"

/* A wait polls the word this many times before it sleeps. That takes about as long as a wake-up, so
 * that a short computation needs no wake-up, and a long one does not lose a core to the waiter. */
#define SPIN_COUNT      2000
#define LOOKS_PER_YIELD 100

struct tdm_semaphore {
    _Atomic uint64_t value;
    _Atomic int status; /* TDM_OK until poisoned */
    int n_waiter;       /* under mutex, as is error */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    tdm_error error;
};

static tdm_status semaphore_create(uint64_t value, tdm_semaphore **semaphore_out, tdm_error *err) {
    tdm_semaphore *s = calloc(1, sizeof *s);
    if (s == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "semaphore: out of memory");
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int rc = pthread_mutex_init(&s->mutex, NULL);
    if (rc == 0 && (rc = pthread_cond_init(&s->changed, &attr)) != 0)
        pthread_mutex_destroy(&s->mutex);
    pthread_condattr_destroy(&attr);
    if (rc != 0) {
        free(s);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "semaphore: %s", strerror(rc));
    }
    atomic_init(&s->value, value);
    atomic_init(&s->status, TDM_OK);
    *semaphore_out = s;
    return TDM_OK;
}

static void semaphore_destroy(tdm_semaphore *s) {
    if (s == NULL) return;
    /* A waiter that saw the value while polling may get here before the signaller has unlocked. */
    pthread_mutex_lock(&s->mutex);
    pthread_mutex_unlock(&s->mutex);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

static tdm_status semaphore_failure(tdm_semaphore *s, tdm_error *err) {
    pthread_mutex_lock(&s->mutex);
    tdm_status status = tdm_fail(err, (tdm_status)s->status, "%s", s->error.message);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

static tdm_status semaphore_query(tdm_semaphore *s, uint64_t *value_out, tdm_error *err) {
    if (atomic_load_explicit(&s->status, memory_order_acquire) != TDM_OK)
        return semaphore_failure(s, err);
    *value_out = atomic_load_explicit(&s->value, memory_order_acquire);
    return TDM_OK;
}

static bool is_settled(tdm_semaphore *s, uint64_t value) {
    return atomic_load_explicit(&s->value, memory_order_acquire) >= value ||
           atomic_load_explicit(&s->status, memory_order_acquire) != TDM_OK;
}

static struct timespec deadline_after(uint64_t timeout_ns) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t seconds = timeout_ns / 1000000000u;
    t.tv_nsec += (long)(timeout_ns % 1000000000u);
    t.tv_sec += (time_t)(seconds > INT32_MAX ? INT32_MAX : seconds) + t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static tdm_status semaphore_wait(tdm_semaphore *s, uint64_t value, uint64_t timeout_ns,
                                 tdm_error *err) {
    for (int i = 1; i <= SPIN_COUNT && timeout_ns > 0 && !is_settled(s, value); i++) {
        tdm_relax();
        /* The signaller may need this processor. */
        if (i % LOOKS_PER_YIELD == 0) sched_yield();
    }
    if (!is_settled(s, value)) {
        struct timespec deadline = {0};
        if (timeout_ns != TDM_WAIT_FOREVER) deadline = deadline_after(timeout_ns);
        int rc = 0;
        pthread_mutex_lock(&s->mutex);
        s->n_waiter++;
        while (!is_settled(s, value) && rc != ETIMEDOUT)
            rc = timeout_ns == TDM_WAIT_FOREVER
                     ? pthread_cond_wait(&s->changed, &s->mutex)
                     : pthread_cond_timedwait(&s->changed, &s->mutex, &deadline);
        s->n_waiter--;
        pthread_mutex_unlock(&s->mutex);
    }
    if (atomic_load_explicit(&s->status, memory_order_acquire) != TDM_OK)
        return semaphore_failure(s, err);
    uint64_t now = atomic_load_explicit(&s->value, memory_order_acquire);
    if (now >= value) return TDM_OK;
    return tdm_fail(err, TDM_DEADLINE_EXCEEDED,
                    "semaphore: value %llu not reached in %llu ns; it stands at %llu",
                    (unsigned long long)value, (unsigned long long)timeout_ns,
                    (unsigned long long)now);
}

static void semaphore_signal(tdm_semaphore *s, uint64_t value) {
    pthread_mutex_lock(&s->mutex);
    if (atomic_load_explicit(&s->value, memory_order_relaxed) < value) {
        atomic_store_explicit(&s->value, value, memory_order_release);
        if (s->n_waiter > 0) pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
}

static void semaphore_fail(tdm_semaphore *s, tdm_status status, const tdm_error *err) {
    pthread_mutex_lock(&s->mutex);
    if (s->status == TDM_OK) {
        status = status == TDM_OK ? TDM_INTERNAL : status;
        tdm_fail(&s->error, status, "%s",
                 err != NULL && err->message[0] != 0 ? err->message : tdm_status_text(status));
        atomic_store_explicit(&s->status, (int)status, memory_order_release);
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
}

const tdm_host_semaphore_ops tdm_semaphore_ops = {
    .struct_size = sizeof(tdm_host_semaphore_ops),
    .create = semaphore_create,
    .destroy = semaphore_destroy,
    .query = semaphore_query,
    .wait = semaphore_wait,
    .signal = semaphore_signal,
    .fail = semaphore_fail,
};
