/* SPDX-License-Identifier: MIT
 *
 * spin.h: how long a wait looks at a word before it sleeps. What it looks at, and how it sleeps, is
 * the waiter's own.
 *
 * Mental model. Sleeping and being woken cost some 50 us, a node of a graph often less, so a wait
 * first looks. How long is learned from the waits before it: the patience, up to CPU_PATIENCE_MAX,
 * doubles where what was looked for came and halves where it did not. That is all where nobody can
 * say when it comes: the next job of an idle device, another member of a group.
 *
 * Where others are known to be about to come, in the midst of a job, it is asked what they do. If
 * they run they will come, the sooner the less they are disturbed, and looking takes nothing from
 * them: the wait goes on, asking again now and then. If one of them has no processor, this may be
 * the one that it needs: the wait sleeps. So threads with a core each never sleep in a job, however
 * uneven their shares, and threads that have to share give way after the patience, which has then
 * learned to be short. CPU_LOOK_MAX bounds all looking, so that whoever runs without getting on (it
 * may wait for a third one, which needs this processor) is not looked at for ever.
 *
 * Whether a thread runs, its processor-time clock tells: it stands still while the thread has no
 * processor, and moves between any two readings while it has one. Where the clock is too coarse for
 * that, threads seem not to run, and the patience alone decides.
 */
#ifndef TANDEM_CPU_SPIN_H
#define TANDEM_CPU_SPIN_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds. */
enum {
    CPU_PATIENCE_MIN = 1000,
    CPU_PATIENCE_START = 20000,
    CPU_PATIENCE_MAX = 100000, /* about twice what a sleep and its wake-up cost together */
    CPU_LOOK_AGAIN = 30000,    /* from one question to the next, which costs about 1000 */
    CPU_LOOK_MAX = 2000000     /* a sleep hardly matters beside it */
};

/* How long a wait of some kind looks before it asks or sleeps, in nanoseconds: learned, and shared
 * by all threads that wait so. Start with CPU_PATIENCE_START. */
typedef _Atomic int32_t cpu_patience;

/* One wait. Start with {0}. */
typedef struct cpu_spin {
    int32_t n_look;
    uint64_t start_ns; /* 0 = the clock was not needed so far */
    uint64_t turn_ns;  /* when to ask or to sleep */
} cpu_spin;

/* True where all that are waited for run. */
typedef bool (*cpu_spin_ask_fn)(void *arg);

/* True while a waiting thread should go on looking; false says that it should sleep, and makes
 * later waits shorter. `ask` may be NULL: nobody knows. [any-thread] */
bool cpu_spin_goes_on(cpu_spin *spin, cpu_patience *patience, cpu_spin_ask_fn ask, void *arg);

/* The same at a given time (not 0), without pausing the processor: every call is a look at the
 * clock. [any-thread] */
bool cpu_spin_goes_on_at(cpu_spin *spin, cpu_patience *patience, cpu_spin_ask_fn ask, void *arg,
                         uint64_t now_ns);

/* What was looked for is there: later waits may look longer. [any-thread] */
void cpu_spin_succeeded(const cpu_spin *spin, cpu_patience *patience);

/* True where the thread with this processor-time clock (pthread_getcpuclockid), not the calling
 * one, has a processor now. [any-thread] */
bool cpu_thread_runs(clockid_t clock);

#endif
