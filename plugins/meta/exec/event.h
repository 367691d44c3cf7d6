/* SPDX-License-Identifier: MIT
 *
 * event.h: a counter that the threads of a queue wait on. A wait polls the counter for spin_ns and
 * then sleeps. spin_ns follows the outcome of the last waits: it doubles when a poll succeeds and
 * halves when a wait has to sleep. So steps that follow each other closely are met without a
 * sleep, and an idle or crowded machine keeps its processors for the threads that compute.
 */
#ifndef TANDEM_META_EVENT_H
#define TANDEM_META_EVENT_H

#include <pthread.h>
#include <stdatomic.h>

#include "tandem/status.h"

typedef struct meta_event {
    _Alignas(64) _Atomic uint32_t value; /* number of signals so far, modulo 2^32 */
    _Atomic int32_t n_sleeper;           /* threads that sleep or are about to */
    _Atomic int32_t spin_ns;             /* how long a wait polls before it sleeps */
    pthread_mutex_t mutex;               /* of `changed` */
    pthread_cond_t changed;
} meta_event;

/* [setup] */
tdm_status meta_event_create(meta_event *event, tdm_error *err);
void meta_event_destroy(meta_event *event);

/* Waits until the value differs from `seen`, at most timeout_ns (UINT64_MAX: no limit), and returns
 * the value. It equals `seen` after a timeout. [any-thread] */
uint32_t meta_event_wait(meta_event *event, uint32_t seen, uint64_t timeout_ns);
/* Increments the value and wakes all waiting threads. They see what the caller wrote before.
 * [any-thread] */
void meta_event_signal(meta_event *event);

/* The monotonic clock. */
uint64_t meta_clock_ns(void);

#endif
