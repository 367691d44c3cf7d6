/* SPDX-License-Identifier: MIT
 *
 * watch.c: see watch.h. Each caller that waits is in a list. The thread waits in the driver for the
 * computation with the lowest number in the list, then ends the waits for it and for earlier ones.
 * A caller that begins to wait for an earlier computation meanwhile polls instead.
 */
#include "plugins/gpu/rt/watch.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SPIN_NS = 50000, /* an event is polled this long first: short computations have ended by then */
    POLL_NS = 20000  /* pause between polls of a caller that does not use the thread */
};

/* A caller that waits; on its stack. */
typedef struct waiter {
    struct waiter *next;
    void *event;
    uint64_t number;
    bool is_done;
    rt_result result; /* of a waiter that is done */
} waiter;

struct rt_watch {
    rt_device *device;
    pthread_mutex_t mutex; /* over the fields below */
    /* wanted: signalled when a waiter was added, or is_ending was set; done: when waiters are
     * done */
    pthread_cond_t wanted, done;
    pthread_t thread; /* where has_thread */
    waiter *waiters;
    uint64_t in_driver; /* the computation that the thread waits for; 0 = none */
    bool has_thread;
    bool is_ending;
};

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

tdm_status rt_watch_create(rt_device *device, rt_watch **watch_out, tdm_error *err) {
    rt_watch *watch = calloc(1, sizeof *watch);
    pthread_condattr_t monotonic;
    if (watch == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a queue", device->name);
    watch->device = device;
    pthread_mutex_init(&watch->mutex, NULL);
    pthread_cond_init(&watch->wanted, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&watch->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
    *watch_out = watch;
    return TDM_OK;
}

void rt_watch_destroy(rt_watch *watch) {
    if (watch == NULL) return;
    pthread_mutex_lock(&watch->mutex);
    watch->is_ending = true;
    pthread_cond_signal(&watch->wanted);
    pthread_mutex_unlock(&watch->mutex);
    if (watch->has_thread) pthread_join(watch->thread, NULL);
    pthread_cond_destroy(&watch->done);
    pthread_cond_destroy(&watch->wanted);
    pthread_mutex_destroy(&watch->mutex);
    free(watch);
}

/* ---- The thread ------------------------------------------------------------------------------ */

static const waiter *first_of(const rt_watch *watch) {
    const waiter *first = watch->waiters;
    for (const waiter *w = watch->waiters; w != NULL; w = w->next)
        if (w->number < first->number) first = w;
    return first;
}

/* Ends the waits for computation `number` and for earlier ones; after a failure, all waits. */
static void waiters_end(rt_watch *watch, uint64_t number, rt_result result) {
    for (waiter **at = &watch->waiters; *at != NULL;) {
        waiter *w = *at;
        if (result == RT_SUCCESS && w->number > number) {
            at = &w->next;
            continue;
        }
        *at = w->next;
        w->is_done = true;
        w->result = result;
    }
    pthread_cond_broadcast(&watch->done);
}

static void *watch_main(void *arg) {
    rt_watch *watch = arg;
    const rt_driver *fn = watch->device->fn;
    pthread_mutex_lock(&watch->mutex);
    for (;;) {
        while (watch->waiters == NULL && !watch->is_ending)
            pthread_cond_wait(&watch->wanted, &watch->mutex);
        if (watch->waiters == NULL) break;
        const waiter *first = first_of(watch);
        const uint64_t number = first->number;
        void *event = first->event;
        watch->in_driver = number;
        pthread_mutex_unlock(&watch->mutex);
        rt_result result = fn->context_set(watch->device->context);
        if (result == RT_SUCCESS) result = fn->event_sync(event);
        pthread_mutex_lock(&watch->mutex);
        watch->in_driver = 0;
        waiters_end(watch, number, result);
    }
    pthread_mutex_unlock(&watch->mutex);
    return NULL;
}

/* ---- Waiting --------------------------------------------------------------------------------- */

static tdm_status late_fail(const rt_watch *watch, tdm_error *err) {
    return tdm_fail(err, TDM_DEADLINE_EXCEEDED, "%s: a computation has not ended",
                    watch->device->name);
}

/* Polls until the time `end`, with pauses of pause_ns; RT_NOT_READY when it has passed. */
static rt_result poll_until(const rt_watch *watch, void *event, uint64_t end, long pause_ns) {
    for (;;) {
        rt_result result = watch->device->fn->event_query(event);
        if (result != RT_NOT_READY || now_ns() >= end) return result;
        const struct timespec pause = {.tv_nsec = pause_ns};
        if (pause_ns > 0) nanosleep(&pause, NULL);
    }
}

/* Waits until the thread has ended the wait of `w`, or until the time `end`: false. With the mutex
 * held. */
static bool thread_wait(rt_watch *watch, waiter *w, uint64_t end) {
    const struct timespec until = {.tv_sec = (time_t)(end / 1000000000u),
                                   .tv_nsec = (long)(end % 1000000000u)};
    w->next = watch->waiters;
    watch->waiters = w;
    pthread_cond_signal(&watch->wanted);
    while (!w->is_done && now_ns() < end)
        pthread_cond_timedwait(&watch->done, &watch->mutex, &until);
    if (w->is_done) return true;
    waiter **at = &watch->waiters;
    while (*at != w) at = &(*at)->next;
    *at = w->next;
    return false;
}

tdm_status rt_watch_wait(rt_watch *watch, void *event, uint64_t number, uint64_t timeout_ns,
                         tdm_error *err) {
    rt_device *device = watch->device;
    const uint64_t start = now_ns();
    const uint64_t end = timeout_ns > INT64_MAX - start ? INT64_MAX : start + timeout_ns;
    const uint64_t spin_end = end - start < SPIN_NS ? end : start + SPIN_NS;
    rt_result result = poll_until(watch, event, spin_end, 0);
    if (result == RT_NOT_READY && spin_end < end) {
        waiter w = {.event = event, .number = number};
        pthread_mutex_lock(&watch->mutex);
        if (!watch->has_thread)
            watch->has_thread = pthread_create(&watch->thread, NULL, watch_main, watch) == 0;
        /* Where the thread waits for a later computation it cannot be interrupted: poll. */
        const bool has_thread = watch->has_thread && watch->in_driver <= number;
        if (has_thread && thread_wait(watch, &w, end)) result = w.result;
        pthread_mutex_unlock(&watch->mutex);
        if (!has_thread) result = poll_until(watch, event, end, POLL_NS);
    }
    if (result == RT_SUCCESS) return TDM_OK;
    return result == RT_NOT_READY ? late_fail(watch, err)
                                  : rt_fail(device, err, result, RT_FN_event_sync);
}
