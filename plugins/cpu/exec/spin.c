/* SPDX-License-Identifier: MIT
 *
 * spin.c: polling, learning the spin time, and testing whether a thread runs.
 */
#include "plugins/cpu/exec/spin.h"

#include "core/base/relax.h"

enum { POLLS_PER_CLOCK = 32 }; /* reading the clock costs as much as several polls */

static uint64_t ns_of(const struct timespec *t) {
    return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

bool cpu_spin_continue_at(cpu_spin *spin, cpu_spin_time *spin_time, cpu_spin_check_fn check,
                          void *arg, uint64_t now_ns) {
    int32_t ns = atomic_load_explicit(spin_time, memory_order_relaxed);
    if (spin->start_ns == 0) {
        spin->start_ns = now_ns;
        spin->check_ns = now_ns + (uint64_t)ns;
    }
    if (now_ns < spin->check_ns) return true;
    if (check != NULL && now_ns - spin->start_ns < CPU_SPIN_LIMIT && check(arg)) {
        spin->check_ns = now_ns + CPU_SPIN_RECHECK;
        return true;
    }
    /* Lost updates between threads do no harm: the next wait corrects them. */
    ns = ns / 2 > CPU_SPIN_MIN ? ns / 2 : CPU_SPIN_MIN;
    atomic_store_explicit(spin_time, ns, memory_order_relaxed);
    return false;
}

bool cpu_spin_continue(cpu_spin *spin, cpu_spin_time *spin_time, cpu_spin_check_fn check,
                       void *arg) {
    tdm_relax();
    if (++spin->n_poll % POLLS_PER_CLOCK != 0) return true;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return cpu_spin_continue_at(spin, spin_time, check, arg, ns_of(&now));
}

void cpu_spin_succeeded(const cpu_spin *spin, cpu_spin_time *spin_time) {
    if (spin->start_ns == 0) return; /* came almost at once: nothing to learn */
    int32_t ns = atomic_load_explicit(spin_time, memory_order_relaxed);
    ns = ns < CPU_SPIN_MAX / 2 ? ns * 2 : CPU_SPIN_MAX;
    atomic_store_explicit(spin_time, ns, memory_order_relaxed);
}

bool cpu_thread_runs(clockid_t clock) {
    struct timespec first, second;
    if (clock_gettime(clock, &first) != 0 || clock_gettime(clock, &second) != 0) return false;
    return ns_of(&first) != ns_of(&second);
}
