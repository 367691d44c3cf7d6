/* SPDX-License-Identifier: MIT
 *
 * counters.h: process-wide counts of expensive operations, for tests and --profile. In steady
 * decoding those before TDM_COUNTER_STEADY_COUNT_ do not grow, and the others grow by a few in each
 * step.
 */
#ifndef TANDEM_CORE_COUNTERS_H
#define TANDEM_CORE_COUNTERS_H

#include <stdint.h>

typedef enum tdm_counter {
    TDM_COUNTER_GRAPHS_BUILT,
    TDM_COUNTER_GRAPHS_HASHED,
    TDM_COUNTER_GRAPHS_PLANNED, /* graph_prepare calls and schedules made */
    TDM_COUNTER_ALLOCATIONS,    /* through the host table, buffers included */
    TDM_COUNTER_BYTES_ALLOCATED,
    TDM_COUNTER_BINDS, /* plan_bind calls */
    TDM_COUNTER_STEADY_COUNT_,
    TDM_COUNTER_SUBMISSIONS = TDM_COUNTER_STEADY_COUNT_, /* graph_compute calls of the core */
    TDM_COUNTER_HOST_WAITS,                              /* of the core for a device */
    TDM_COUNTER_UPLOADS,                                 /* upload calls of the core */
    TDM_COUNTER_DOWNLOADS,                               /* likewise */
    TDM_COUNTER_INPUT_BYTES,  /* written for steps by the core: what goes up to a device */
    TDM_COUNTER_OUTPUT_BYTES, /* read of their results: what comes down */
    TDM_COUNTER_COUNT_
} tdm_counter;

/* Adds to a process-wide counter. [any-thread] */
void tdm_counter_add(tdm_counter counter, uint64_t amount);
/* Reads it. [any-thread] */
uint64_t tdm_counter_get(tdm_counter counter);
/* Its name, for tables ("graphs built"). [any-thread] */
const char *tdm_counter_name(tdm_counter counter);

#endif
