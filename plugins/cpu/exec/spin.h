/* SPDX-License-Identifier: MIT
 *
 * spin.h: how long a wait polls a word before it sleeps. What is polled, and how the waiter sleeps,
 * is the waiter's own.
 *
 * Mental model. A sleep and its wake-up cost about 50 us, a node of a graph often less, so a wait
 * polls first. For how long is learned from earlier waits: the spin time doubles, up to
 * CPU_SPIN_MAX, after a poll that succeeded, and halves after one that did not. Nothing else
 * decides where the end of the wait cannot be predicted: the next job of an idle device, another
 * member of a group.
 *
 * Within a job the waiter can check whether the awaited threads run. While all of them are on a
 * processor the wait goes on polling, since that takes nothing from them, and it checks again from
 * time to time. If one of them has no processor it may need this one: the waiter sleeps. So threads
 * with a core each never sleep within a job, however uneven their shares are; threads that share
 * cores sleep after the spin time, which is short by then. CPU_SPIN_LIMIT bounds all polling: an
 * awaited thread may itself wait for a third thread that needs this processor.
 *
 * A thread's processor-time clock shows whether it runs: the clock stands still while the thread
 * has no processor, and advances between any two readings while it has one. Where the clock is too
 * coarse for that, threads seem not to run, and the spin time alone decides.
 */
#ifndef TANDEM_CPU_SPIN_H
#define TANDEM_CPU_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds. */
enum {
    CPU_SPIN_MIN = 1000,
    CPU_SPIN_START = 20000,
    CPU_SPIN_MAX = 100000, /* about twice what a sleep and its wake-up cost together */
    CPU_SPIN_RECHECK =
        30000, /* from one check of the awaited threads to the next; one costs about 1000 */
    CPU_SPIN_LIMIT = 2000000 /* a sleep costs little beside it */
};

/* How long a wait of some kind polls before it checks or sleeps, in nanoseconds: learned, and
 * shared by all threads that wait for the same kind of event. Start with CPU_SPIN_START. */
typedef _Atomic int32_t cpu_spin_time;

/* One wait. Start with {0}. */
typedef struct cpu_spin {
    int32_t n_poll;
    uint64_t start_ns; /* 0 = the clock was not read so far */
    uint64_t check_ns; /* when to check or to sleep */
} cpu_spin;

/* Returns true if all awaited threads run. */
typedef bool (*cpu_spin_check_fn)(void *arg);

/* Returns true while a waiting thread should go on polling. False: it should sleep; later waits
 * become shorter. `check` may be NULL: the awaited threads are not known. [any-thread] */
bool cpu_spin_continue(cpu_spin *spin, cpu_spin_time *spin_time, cpu_spin_check_fn check,
                       void *arg);

/* The same at a given time (not 0), without a pause instruction. [any-thread] */
bool cpu_spin_continue_at(cpu_spin *spin, cpu_spin_time *spin_time, cpu_spin_check_fn check,
                          void *arg, uint64_t now_ns);

/* The awaited event came: later waits may poll longer. [any-thread] */
void cpu_spin_succeeded(const cpu_spin *spin, cpu_spin_time *spin_time);

/* Returns true if the thread with this processor-time clock (pthread_getcpuclockid) has a processor
 * now. It must not be the calling thread. [any-thread] */
bool cpu_thread_runs(clockid_t clock);

#endif
