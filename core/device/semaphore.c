/* SPDX-License-Identifier: MIT
 *
 * semaphore.c: the timelines of tandem/semaphore.h. Owns the word, its waiters, what devices
 * attach, the callbacks and the failure.
 *
 * A waiting thread polls the word for a moment. Then it either calls the driver's wait that is
 * attached for its value, in slices, so that it sees poison; or it sleeps until something changes.
 * Callbacks run on the thread that signals or fails. Where a point that a callback is due for is
 * signalled by an attached wait, no thread may be waiting: then a thread of the semaphore, the
 * watcher, calls the driver's wait. It is started when the first such callback exists.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/relax.h"
#include "core/device/runtime.h"

/* A wait polls the word this many times before it sleeps. That takes about as long as a wake-up, so
 * that a short computation needs no wake-up, and a long one does not lose a core to the waiter. */
#define SPIN_COUNT      2000
#define POLLS_PER_YIELD 100

/* A driver's wait, in the list of its semaphore in order of value. */
typedef struct attached attached;
struct attached {
    attached *next;
    uint64_t value;
    tdm_native_wait wait;
    int n_inside;    /* threads that are in wait.wait */
    bool is_retired; /* reached or failed: released when the last thread has left */
};

typedef struct callback callback;
struct callback {
    callback *next;
    uint64_t value;
    tdm_reached_fn fn;
    void *user;
};

struct tdm_semaphore {
    _Alignas(64) _Atomic uint64_t value; /* alone in its line: devices write it */
    _Alignas(64) _Atomic int status;     /* TDM_OK until poisoned */
    _Atomic int n_attached;              /* entries of the list that are not retired */
    pthread_mutex_t mutex;               /* of all that follows */
    pthread_cond_t changed;
    int n_waiter;
    int n_busy; /* threads that run callbacks or release what was attached */
    attached *natives, *unused_natives;
    callback *callbacks, *unused_callbacks; /* callbacks in order of value */
    pthread_t watcher;
    bool has_watcher, is_ending;
    tdm_error error;
};

static tdm_status semaphore_create(uint64_t value, tdm_semaphore **semaphore_out, tdm_error *err) {
    tdm_semaphore *s = aligned_alloc(64, (sizeof *s + 63) / 64 * 64);
    if (s == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "semaphore: out of memory");
    memset(s, 0, sizeof *s);
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
    atomic_init(&s->n_attached, 0);
    *semaphore_out = s;
    return TDM_OK;
}

static bool is_settled(tdm_semaphore *s, uint64_t value) {
    return atomic_load_explicit(&s->value, memory_order_acquire) >= value ||
           atomic_load_explicit(&s->status, memory_order_acquire) != TDM_OK;
}

static tdm_status semaphore_failure(tdm_semaphore *s, tdm_error *err) {
    pthread_mutex_lock(&s->mutex);
    tdm_status status = tdm_fail(err, (tdm_status)s->status, "%s", s->error.message);
    pthread_mutex_unlock(&s->mutex);
    return status;
}

/* ---- Settling ---- */

/* What a change of the word or the status has settled. settled_take removes it from the lists, with
 * the mutex held. settled_run then calls the callbacks and releases the attached waits, without the
 * mutex, because both are foreign code that may use semaphores. */
typedef struct settled {
    callback *callbacks; /* due */
    attached *natives;   /* no thread is inside; to be released */
} settled;

static void settled_take(tdm_semaphore *s, settled *out) {
    bool is_failed = s->status != TDM_OK;
    uint64_t value = atomic_load_explicit(&s->value, memory_order_relaxed);
    *out = (settled){NULL, NULL};
    callback **last = &out->callbacks;
    while (s->callbacks != NULL && (is_failed || s->callbacks->value <= value)) {
        *last = s->callbacks;
        last = &s->callbacks->next;
        s->callbacks = s->callbacks->next;
        *last = NULL;
    }
    for (attached **at = &s->natives; *at != NULL;) {
        attached *n = *at;
        if (!n->is_retired && (is_failed || n->value <= value)) {
            n->is_retired = true;
            atomic_fetch_sub_explicit(&s->n_attached, 1, memory_order_relaxed);
        }
        if (!n->is_retired || n->n_inside > 0) {
            at = &n->next;
            continue;
        }
        *at = n->next;
        n->next = out->natives;
        out->natives = n;
    }
    if (out->callbacks != NULL || out->natives != NULL) s->n_busy++;
    if (s->n_waiter > 0) pthread_cond_broadcast(&s->changed);
}

static void settled_run(tdm_semaphore *s, const settled *done) {
    if (done->callbacks == NULL && done->natives == NULL) return;
    tdm_error err = {0};
    tdm_status status = (tdm_status)atomic_load_explicit(&s->status, memory_order_acquire);
    if (status != TDM_OK) semaphore_failure(s, &err);
    uint64_t value = atomic_load_explicit(&s->value, memory_order_acquire);
    attached *last_native = NULL;
    callback *last_callback = NULL;
    for (attached *n = done->natives; n != NULL; last_native = n, n = n->next)
        if (n->wait.release != NULL) n->wait.release(n->wait.context);
    for (callback *c = done->callbacks; c != NULL; last_callback = c, c = c->next) {
        bool is_reached = c->value <= value;
        c->fn(c->user, is_reached ? TDM_OK : status, is_reached ? NULL : &err);
    }
    pthread_mutex_lock(&s->mutex);
    if (last_native != NULL) {
        last_native->next = s->unused_natives;
        s->unused_natives = done->natives;
    }
    if (last_callback != NULL) {
        last_callback->next = s->unused_callbacks;
        s->unused_callbacks = done->callbacks;
    }
    s->n_busy--;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->mutex);
}

static void semaphore_signal(tdm_semaphore *s, uint64_t value) {
    settled done = {NULL, NULL};
    pthread_mutex_lock(&s->mutex);
    /* A device may store a larger value at the same time: the word never falls below it. */
    uint64_t now = atomic_load_explicit(&s->value, memory_order_relaxed);
    while (now < value && !atomic_compare_exchange_weak_explicit(
                              &s->value, &now, value, memory_order_release, memory_order_relaxed))
        continue;
    settled_take(s, &done);
    pthread_mutex_unlock(&s->mutex);
    settled_run(s, &done);
}

static void semaphore_fail(tdm_semaphore *s, tdm_status status, const tdm_error *err) {
    settled done = {NULL, NULL};
    pthread_mutex_lock(&s->mutex);
    if (s->status == TDM_OK) {
        status = status == TDM_OK ? TDM_INTERNAL : status;
        tdm_fail(&s->error, status, "%s",
                 err != NULL && err->message[0] != 0 ? err->message : tdm_status_text(status));
        atomic_store_explicit(&s->status, (int)status, memory_order_release);
        settled_take(s, &done);
    }
    pthread_mutex_unlock(&s->mutex);
    settled_run(s, &done);
}

/* ---- Waiting ---- */

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* The attached wait that a waiter for `value` may use: of those whose value is not less, the one
 * with the lowest. NULL = none. Under the mutex. */
static attached *native_find(const tdm_semaphore *s, uint64_t value) {
    for (attached *n = s->natives; n != NULL; n = n->next)
        if (!n->is_retired && n->value >= value) return n;
    return NULL;
}

/* Calls an attached wait, for one slice at most. The mutex is held before and after the call, but
 * not during the wait. */
static void native_wait(tdm_semaphore *s, attached *n, uint64_t timeout_ns) {
    tdm_error err = {0};
    settled done = {NULL, NULL};
    uint64_t value = n->value;
    n->n_inside++;
    pthread_mutex_unlock(&s->mutex);
    tdm_status status = n->wait.wait(
        n->wait.context,
        timeout_ns < TDM_NATIVE_WAIT_SLICE_NS ? timeout_ns : TDM_NATIVE_WAIT_SLICE_NS, &err);
    pthread_mutex_lock(&s->mutex);
    n->n_inside--;
    pthread_mutex_unlock(&s->mutex);
    if (status == TDM_OK)
        semaphore_signal(s, value);
    else if (status != TDM_DEADLINE_EXCEEDED)
        semaphore_fail(s, status, &err);
    pthread_mutex_lock(&s->mutex);
    settled_take(s, &done); /* n, where it was retired while this thread was inside */
    if (done.callbacks == NULL && done.natives == NULL) return;
    pthread_mutex_unlock(&s->mutex);
    settled_run(s, &done);
    pthread_mutex_lock(&s->mutex);
}

static void slept_until(tdm_semaphore *s, uint64_t end_ns) {
    if (end_ns == TDM_WAIT_FOREVER) {
        pthread_cond_wait(&s->changed, &s->mutex);
        return;
    }
    struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000u),
                           .tv_nsec = (long)(end_ns % 1000000000u)};
    pthread_cond_timedwait(&s->changed, &s->mutex, &end);
}

static void semaphore_await(tdm_semaphore *s, uint64_t value, uint64_t timeout_ns) {
    uint64_t end = TDM_WAIT_FOREVER;
    if (timeout_ns != TDM_WAIT_FOREVER && __builtin_add_overflow(clock_ns(), timeout_ns, &end))
        end = TDM_WAIT_FOREVER;
    pthread_mutex_lock(&s->mutex);
    s->n_waiter++;
    while (!is_settled(s, value)) {
        attached *n = native_find(s, value);
        uint64_t now = end != TDM_WAIT_FOREVER ? clock_ns() : 0;
        if (now >= end) {
            if (n != NULL) native_wait(s, n, 0);
            break;
        }
        if (n != NULL)
            native_wait(s, n, end - now);
        else
            slept_until(s, end);
    }
    s->n_waiter--;
    pthread_mutex_unlock(&s->mutex);
}

static tdm_status semaphore_wait(tdm_semaphore *s, uint64_t value, uint64_t timeout_ns,
                                 tdm_error *err) {
    for (int i = 1; i <= SPIN_COUNT && timeout_ns > 0 && !is_settled(s, value); i++) {
        if (atomic_load_explicit(&s->n_attached, memory_order_relaxed) > 0) break;
        tdm_relax();
        /* The signaller may need this processor. */
        if (i % POLLS_PER_YIELD == 0) sched_yield();
    }
    if (!is_settled(s, value)) semaphore_await(s, value, timeout_ns);
    if (atomic_load_explicit(&s->status, memory_order_acquire) != TDM_OK)
        return semaphore_failure(s, err);
    uint64_t now = atomic_load_explicit(&s->value, memory_order_acquire);
    if (now >= value) return TDM_OK;
    return tdm_fail(err, TDM_DEADLINE_EXCEEDED,
                    "semaphore: value %llu not reached in %llu ns; it stands at %llu",
                    (unsigned long long)value, (unsigned long long)timeout_ns,
                    (unsigned long long)now);
}

static tdm_status semaphore_query(tdm_semaphore *s, uint64_t *value_out, tdm_error *err) {
    if (atomic_load_explicit(&s->n_attached, memory_order_relaxed) > 0) {
        pthread_mutex_lock(&s->mutex);
        uint64_t asked = 0; /* value of the attached wait that was polled last */
        for (attached *n; (n = native_find(s, 0)) != NULL && n->value != asked;) {
            asked = n->value;
            native_wait(s, n, 0);
        }
        pthread_mutex_unlock(&s->mutex);
    }
    if (atomic_load_explicit(&s->status, memory_order_acquire) != TDM_OK)
        return semaphore_failure(s, err);
    *value_out = atomic_load_explicit(&s->value, memory_order_acquire);
    return TDM_OK;
}

/* ---- Words, callbacks and attached waits ---- */

static uint64_t *semaphore_word(tdm_semaphore *s) {
    return (uint64_t *)(void *)&s->value;
}

/* Calls the attached wait for the first callback, until the semaphore is destroyed. */
static void *watcher_main(void *arg) {
    tdm_semaphore *s = arg;
    pthread_mutex_lock(&s->mutex);
    s->n_waiter++;
    while (!s->is_ending) {
        attached *n = s->callbacks != NULL ? native_find(s, s->callbacks->value) : NULL;
        if (n != NULL)
            native_wait(s, n, TDM_WAIT_FOREVER);
        else
            pthread_cond_wait(&s->changed, &s->mutex);
    }
    s->n_waiter--;
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* Starts the watcher where a callback and an attached wait have met. Under the mutex. */
static tdm_status watcher_start(tdm_semaphore *s, tdm_error *err) {
    if (s->has_watcher || s->callbacks == NULL || native_find(s, s->callbacks->value) == NULL)
        return TDM_OK;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&s->watcher, NULL, watcher_main, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "semaphore: no thread for its callbacks: %s",
                        strerror(rc));
    s->has_watcher = true;
    return TDM_OK;
}

static tdm_status semaphore_on_reached(tdm_semaphore *s, uint64_t value, tdm_reached_fn fn,
                                       void *user, tdm_error *err) {
    settled done = {NULL, NULL};
    pthread_mutex_lock(&s->mutex);
    callback *c = s->unused_callbacks;
    if (c != NULL) s->unused_callbacks = c->next;
    if (c == NULL && (c = malloc(sizeof *c)) == NULL) {
        pthread_mutex_unlock(&s->mutex);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "semaphore: out of memory");
    }
    callback **at = &s->callbacks;
    while (*at != NULL && (*at)->value <= value) at = &(*at)->next;
    *c = (callback){.next = *at, .value = value, .fn = fn, .user = user};
    *at = c;
    tdm_status status = watcher_start(s, err);
    if (status == TDM_OK) {
        settled_take(s, &done);
    } else {
        *at = c->next;
        c->next = s->unused_callbacks;
        s->unused_callbacks = c;
    }
    pthread_mutex_unlock(&s->mutex);
    settled_run(s, &done);
    return status;
}

static tdm_status semaphore_attach(tdm_semaphore *s, uint64_t value, const tdm_native_wait *wait,
                                   tdm_error *err) {
    settled done = {NULL, NULL};
    pthread_mutex_lock(&s->mutex);
    attached *n = s->unused_natives;
    if (n != NULL) s->unused_natives = n->next;
    if (n == NULL && (n = malloc(sizeof *n)) == NULL) {
        pthread_mutex_unlock(&s->mutex);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "semaphore: out of memory");
    }
    attached **at = &s->natives;
    while (*at != NULL && (*at)->value <= value) at = &(*at)->next;
    *n = (attached){.next = *at, .value = value, .wait = *wait};
    *at = n;
    atomic_fetch_add_explicit(&s->n_attached, 1, memory_order_relaxed);
    tdm_status status = watcher_start(s, err);
    if (status == TDM_OK) {
        settled_take(s, &done); /* at once where the point is settled; wakes sleeping waiters */
    } else {
        *at = n->next;
        n->next = s->unused_natives;
        s->unused_natives = n;
        atomic_fetch_sub_explicit(&s->n_attached, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&s->mutex);
    settled_run(s, &done);
    return status;
}

static void semaphore_destroy(tdm_semaphore *s) {
    if (s == NULL) return;
    /* A waiter that saw the value while polling may get here before the signaller has ended. */
    pthread_mutex_lock(&s->mutex);
    s->is_ending = true;
    pthread_cond_broadcast(&s->changed);
    while (s->n_busy > 0) pthread_cond_wait(&s->changed, &s->mutex);
    pthread_mutex_unlock(&s->mutex);
    if (s->has_watcher) pthread_join(s->watcher, NULL);
    for (attached *n = s->natives; n != NULL; n = n->next)
        if (n->wait.release != NULL) n->wait.release(n->wait.context);
    attached *natives[2] = {s->natives, s->unused_natives};
    callback *callbacks[2] = {s->callbacks, s->unused_callbacks};
    for (int i = 0; i < 2; i++) {
        for (attached *n = natives[i], *next; n != NULL; n = next) {
            next = n->next;
            free(n);
        }
        for (callback *c = callbacks[i], *next; c != NULL; c = next) {
            next = c->next;
            free(c);
        }
    }
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->mutex);
    free(s);
}

const tdm_host_semaphore_ops tdm_semaphore_ops = {
    .struct_size = sizeof(tdm_host_semaphore_ops),
    .create = semaphore_create,
    .destroy = semaphore_destroy,
    .query = semaphore_query,
    .wait = semaphore_wait,
    .signal = semaphore_signal,
    .fail = semaphore_fail,
    .word = semaphore_word,
    .on_reached = semaphore_on_reached,
    .attach = semaphore_attach,
};
