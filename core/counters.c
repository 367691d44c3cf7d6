/* SPDX-License-Identifier: MIT
 *
 * counters.c: see counters.h. Relaxed atomics: a reader sees every addition that happened before in
 * its own thread. Tests and tables need no more.
 */
#include "core/counters.h"

#include <stdatomic.h>

static _Atomic uint64_t counters[TDM_COUNTER_COUNT_];

static int is_counter(tdm_counter counter) {
    return (unsigned)counter < (unsigned)TDM_COUNTER_COUNT_;
}

void tdm_counter_add(tdm_counter counter, uint64_t amount) {
    if (is_counter(counter))
        atomic_fetch_add_explicit(&counters[counter], amount, memory_order_relaxed);
}

uint64_t tdm_counter_get(tdm_counter counter) {
    return is_counter(counter) ? atomic_load_explicit(&counters[counter], memory_order_relaxed) : 0;
}

const char *tdm_counter_name(tdm_counter counter) {
    static const char *const names[TDM_COUNTER_COUNT_] = {
        "graphs built",    "graphs hashed", "graphs planned", "allocations",
        "bytes allocated", "binds",         "submissions",    "host waits",
        "uploads",         "downloads",     "input bytes",    "output bytes",
    };
    return is_counter(counter) ? names[counter] : "?";
}
