/* SPDX-License-Identifier: MIT
 *
 * spin.c: looking, learning how long, and telling whether a thread runs.
 */
#include "plugins/cpu/exec/spin.h"

#include "core/base/relax.h"

enum { LOOKS_PER_CLOCK = 32 }; /* the clock costs as much as some looks */

static uint64_t ns_of(const struct timespec *t) {
    return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

bool cpu_spin_goes_on_at(cpu_spin *spin, cpu_patience *patience, cpu_spin_ask_fn ask, void *arg,
                         uint64_t now_ns) {
    int32_t ns = atomic_load_explicit(patience, memory_order_relaxed);
    if (spin->start_ns == 0) {
        spin->start_ns = now_ns;
        spin->turn_ns = now_ns + (uint64_t)ns;
    }
    if (now_ns < spin->turn_ns) return true;
    if (ask != NULL && now_ns - spin->start_ns < CPU_LOOK_MAX && ask(arg)) {
        spin->turn_ns = now_ns + CPU_LOOK_AGAIN;
        return true;
    }
    /* Lost updates between threads do no harm: the next wait corrects them. */
    ns = ns / 2 > CPU_PATIENCE_MIN ? ns / 2 : CPU_PATIENCE_MIN;
    atomic_store_explicit(patience, ns, memory_order_relaxed);
    return false;
}

bool cpu_spin_goes_on(cpu_spin *spin, cpu_patience *patience, cpu_spin_ask_fn ask, void *arg) {
    tdm_relax();
    if (++spin->n_look % LOOKS_PER_CLOCK != 0) return true;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return cpu_spin_goes_on_at(spin, patience, ask, arg, ns_of(&now));
}

void cpu_spin_succeeded(const cpu_spin *spin, cpu_patience *patience) {
    if (spin->start_ns == 0) return; /* there almost at once: says nothing */
    int32_t ns = atomic_load_explicit(patience, memory_order_relaxed);
    ns = ns < CPU_PATIENCE_MAX / 2 ? ns * 2 : CPU_PATIENCE_MAX;
    atomic_store_explicit(patience, ns, memory_order_relaxed);
}

bool cpu_thread_runs(clockid_t clock) {
    struct timespec first, second;
    if (clock_gettime(clock, &first) != 0 || clock_gettime(clock, &second) != 0) return false;
    return ns_of(&first) != ns_of(&second);
}
