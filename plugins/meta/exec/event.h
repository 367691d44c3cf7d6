/* SPDX-License-Identifier: MIT
 *
 * event.h: a word that the threads of a queue wait on. A wait looks at it for a while and then
 * sleeps; how long it looks is learned from how the last waits ended, so that steps that follow each
 * other closely are met awake, and an idle or crowded machine is left to those who compute.
 */
#ifndef TANDEM_META_BELL_H
#define TANDEM_META_BELL_H

#include <pthread.h>
#include <stdatomic.h>

#include "tandem/status.h"

typedef struct meta_bell {
    _Alignas(64) _Atomic uint32_t value; /* counts rings */
    _Atomic int32_t n_sleeper;
    _Atomic int32_t patience; /* ns */
    pthread_mutex_t mutex;
    pthread_cond_t rung;
} meta_bell;

/* [setup] */
tdm_status meta_bell_create(meta_bell *bell, tdm_error *err);
void meta_bell_destroy(meta_bell *bell);

/* Waits until the value is no longer `seen`, at most timeout_ns (UINT64_MAX: for ever); returns the
 * value. [any-thread] */
uint32_t meta_bell_wait(meta_bell *bell, uint32_t seen, uint64_t timeout_ns);
/* Changes the value and wakes all. What was written before is seen by those who wake.
 * [any-thread] */
void meta_bell_ring(meta_bell *bell);

uint64_t meta_clock_ns(void); /* monotonic */

#endif
