/* SPDX-License-Identifier: MIT
 *
 * event.c: waiting without a lost signal. A thread that is about to sleep increments n_sleeper and
 * then reads the value again. A thread that signals changes the value and then reads n_sleeper.
 * Both use sequentially consistent order, so at least one of the two reads the other's write:
 * either the waiting thread does not sleep, or the signalling thread wakes it.
 */
#include "plugins/meta/exec/event.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/relax.h"

enum {
    SPIN_MIN_NS = 1000,
    SPIN_MAX_NS = 100000, /* about twice the time that a sleep and its wake-up take together */
    SPIN_START_NS = 20000,
    POLLS_PER_CLOCK = 32 /* polls between two reads of the clock */
};

uint64_t meta_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

tdm_status meta_event_create(meta_event *event, tdm_error *err) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int rc = pthread_mutex_init(&event->mutex, NULL);
    if (rc == 0 && (rc = pthread_cond_init(&event->changed, &attr)) != 0)
        pthread_mutex_destroy(&event->mutex);
    pthread_condattr_destroy(&attr);
    if (rc != 0) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "group: %s", strerror(rc));
    atomic_init(&event->value, 0);
    atomic_init(&event->n_sleeper, 0);
    /* With one or two processors a spinning thread may occupy the one that the awaited thread
     * needs, so spin_ns starts at its minimum there. */
    atomic_init(&event->spin_ns, sysconf(_SC_NPROCESSORS_ONLN) > 2 ? SPIN_START_NS : SPIN_MIN_NS);
    return TDM_OK;
}

void meta_event_destroy(meta_event *event) {
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->mutex);
}

/* Polls for spin_ns and adapts spin_ns. True when the value changed. */
static bool spin_wait(meta_event *event, uint32_t seen) {
    int32_t spin_ns = atomic_load_explicit(&event->spin_ns, memory_order_relaxed);
    uint64_t end = 0;
    for (int32_t n = 1;; n++) {
        if (atomic_load_explicit(&event->value, memory_order_acquire) != seen) {
            /* A change within the first polls does not show how long it is worth to spin. */
            if (end != 0)
                atomic_store_explicit(&event->spin_ns,
                                      spin_ns < SPIN_MAX_NS / 2 ? spin_ns * 2 : SPIN_MAX_NS,
                                      memory_order_relaxed);
            return true;
        }
        tdm_relax();
        if (n % POLLS_PER_CLOCK != 0) continue;
        uint64_t now = meta_clock_ns();
        if (end == 0) end = now + (uint64_t)spin_ns;
        if (now < end) continue;
        atomic_store_explicit(&event->spin_ns,
                              spin_ns / 2 > SPIN_MIN_NS ? spin_ns / 2 : SPIN_MIN_NS,
                              memory_order_relaxed);
        return false;
    }
}

uint32_t meta_event_wait(meta_event *event, uint32_t seen, uint64_t timeout_ns) {
    if (spin_wait(event, seen)) return atomic_load_explicit(&event->value, memory_order_acquire);
    struct timespec end = {0};
    if (timeout_ns != UINT64_MAX) {
        uint64_t at = meta_clock_ns() + timeout_ns;
        end.tv_sec = (time_t)(at / 1000000000u);
        end.tv_nsec = (long)(at % 1000000000u);
    }
    int rc = 0;
    pthread_mutex_lock(&event->mutex);
    atomic_fetch_add(&event->n_sleeper, 1);
    while (atomic_load(&event->value) == seen && rc != ETIMEDOUT)
        rc = timeout_ns == UINT64_MAX
                 ? pthread_cond_wait(&event->changed, &event->mutex)
                 : pthread_cond_timedwait(&event->changed, &event->mutex, &end);
    atomic_fetch_sub(&event->n_sleeper, 1);
    pthread_mutex_unlock(&event->mutex);
    return atomic_load_explicit(&event->value, memory_order_acquire);
}

void meta_event_signal(meta_event *event) {
    atomic_fetch_add(&event->value, 1);
    if (atomic_load(&event->n_sleeper) == 0) return;
    pthread_mutex_lock(&event->mutex);
    pthread_cond_broadcast(&event->changed);
    pthread_mutex_unlock(&event->mutex);
}
