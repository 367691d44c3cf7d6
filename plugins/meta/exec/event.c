/* SPDX-License-Identifier: MIT
 *
 * event.c: waiting without losing a ring: a sleeper counts itself and then looks at the word again,
 * the ringer changes the word and then looks at the count. In sequentially consistent order one of
 * the two sees the other.
 */
#include "plugins/meta/exec/event.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/base/relax.h"

enum {
    PATIENCE_MIN_NS = 1000,
    PATIENCE_MAX_NS = 100000, /* about twice what a sleep and its wake-up cost together */
    PATIENCE_START_NS = 20000,
    LOOKS_PER_CLOCK = 32
};

uint64_t meta_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

tdm_status meta_bell_create(meta_bell *bell, tdm_error *err) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    int rc = pthread_mutex_init(&bell->mutex, NULL);
    if (rc == 0 && (rc = pthread_cond_init(&bell->rung, &attr)) != 0)
        pthread_mutex_destroy(&bell->mutex);
    pthread_condattr_destroy(&attr);
    if (rc != 0) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "group: %s", strerror(rc));
    atomic_init(&bell->value, 0);
    atomic_init(&bell->n_sleeper, 0);
    /* Where a look takes the processor from whoever is waited for, looking is learned, not tried. */
    atomic_init(&bell->patience,
                sysconf(_SC_NPROCESSORS_ONLN) > 2 ? PATIENCE_START_NS : PATIENCE_MIN_NS);
    return TDM_OK;
}

void meta_bell_destroy(meta_bell *bell) {
    pthread_cond_destroy(&bell->rung);
    pthread_mutex_destroy(&bell->mutex);
}

/* Looks for as long as patience goes; true when the value changed. */
static bool look(meta_bell *bell, uint32_t seen) {
    int32_t patience = atomic_load_explicit(&bell->patience, memory_order_relaxed);
    uint64_t end = 0;
    for (int32_t n = 1;; n++) {
        if (atomic_load_explicit(&bell->value, memory_order_acquire) != seen) {
            if (end != 0) /* there almost at once says nothing */
                atomic_store_explicit(&bell->patience,
                                      patience < PATIENCE_MAX_NS / 2 ? patience * 2
                                                                     : PATIENCE_MAX_NS,
                                      memory_order_relaxed);
            return true;
        }
        tdm_relax();
        if (n % LOOKS_PER_CLOCK != 0) continue;
        uint64_t now = meta_clock_ns();
        if (end == 0) end = now + (uint64_t)patience;
        if (now < end) continue;
        atomic_store_explicit(&bell->patience,
                              patience / 2 > PATIENCE_MIN_NS ? patience / 2 : PATIENCE_MIN_NS,
                              memory_order_relaxed);
        return false;
    }
}

uint32_t meta_bell_wait(meta_bell *bell, uint32_t seen, uint64_t timeout_ns) {
    if (look(bell, seen)) return atomic_load_explicit(&bell->value, memory_order_acquire);
    struct timespec end = {0};
    if (timeout_ns != UINT64_MAX) {
        uint64_t at = meta_clock_ns() + timeout_ns;
        end.tv_sec = (time_t)(at / 1000000000u);
        end.tv_nsec = (long)(at % 1000000000u);
    }
    int rc = 0;
    pthread_mutex_lock(&bell->mutex);
    atomic_fetch_add(&bell->n_sleeper, 1);
    while (atomic_load(&bell->value) == seen && rc != ETIMEDOUT)
        rc = timeout_ns == UINT64_MAX ? pthread_cond_wait(&bell->rung, &bell->mutex)
                                      : pthread_cond_timedwait(&bell->rung, &bell->mutex, &end);
    atomic_fetch_sub(&bell->n_sleeper, 1);
    pthread_mutex_unlock(&bell->mutex);
    return atomic_load_explicit(&bell->value, memory_order_acquire);
}

void meta_bell_ring(meta_bell *bell) {
    atomic_fetch_add(&bell->value, 1);
    if (atomic_load(&bell->n_sleeper) == 0) return;
    pthread_mutex_lock(&bell->mutex);
    pthread_cond_broadcast(&bell->rung);
    pthread_mutex_unlock(&bell->mutex);
}
