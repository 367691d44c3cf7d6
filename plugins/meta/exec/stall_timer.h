/* SPDX-License-Identifier: MIT
 *
 * stall_timer.h: how long a member has made no progress. Time during which this process was stopped
 * (Ctrl-Z, a debugger, a paused virtual machine) does not count: the waiting thread updates the
 * timer at least every META_POLL_NS, and of the time between two updates at most META_GAP_NS
 * counts.
 */
#ifndef TANDEM_META_STALL_TIMER_H
#define TANDEM_META_STALL_TIMER_H

#include "tandem/host.h"

#define META_POLL_NS UINT64_C(50000000)
#define META_GAP_NS  (2 * META_POLL_NS)

typedef struct meta_stall_timer {
    uint64_t seen_ns;   /* the clock at the last update */
    uint64_t waited_ns; /* what counts of the time since the timer began */
} meta_stall_timer;

/* now_ns is meta_clock_ns(). Sets the timer to 0. */
void meta_stall_timer_begin(meta_stall_timer *timer, uint64_t now_ns);
/* Adds the time since the last update, as far as it counts, and returns waited_ns. */
uint64_t meta_stall_timer_update(meta_stall_timer *timer, uint64_t now_ns);

/* Waits like the host's semaphores do, until the timer has reached limit_ns in all. [any-thread] */
tdm_status meta_stall_timer_wait(meta_stall_timer *timer, const tdm_host *host,
                                 tdm_semaphore *semaphore, uint64_t value, uint64_t limit_ns,
                                 tdm_error *err);

#endif
