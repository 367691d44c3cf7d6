/* SPDX-License-Identifier: MIT
 *
 * exchange.h: what a plan keeps for its EXCHANGE nodes, how a failed exchange ends the plan, and
 * the kernels. tandem/collective.h defines the protocol.
 */
#ifndef TANDEM_CPU_EXCHANGE_H
#define TANDEM_CPU_EXCHANGE_H

#include "core/base/wire.h"
#include "plugins/cpu/cpu.h"
#include "plugins/cpu/exec/spin.h"

#define CPU_NO_FAILURE INT32_MAX

/* What all exchanges of a plan share. */
typedef struct cpu_exchanges {
    cpu_spin_time spin_time; /* how long a wait polls before it yields, as learned */
    uint64_t timeout_ns;     /* of a wait, from when it stops polling */
    /* The first failure. The one worker that sets failed_at also writes the fields behind it; they
     * are read after a barrier. */
    _Atomic int32_t failed_at; /* place in the plan, or CPU_NO_FAILURE */
    tdm_status status;
    int32_t stage;
    /* the first whose flag was missing; -1 = all flags were there, but the abort word was set */
    int32_t member;
    int64_t chunk;
    double waited_ms;
} cpu_exchanges;

/* What one EXCHANGE node keeps. */
struct cpu_exchange {
    /* [c % 2] workers that have published chunk c. A worker publishes at most one chunk ahead of
     * the one that it waits for, so two counters are enough. */
    _Alignas(64) _Atomic int32_t n_published[2];
    int32_t place; /* in the plan */
    cpu_exchanges *all;
    /* Weights of the first matrix product behind it, as last bound: prefetched while waiting. */
    const uint8_t *ahead; /* NULL: there is none before the next exchange */
    size_t ahead_size;    /* bytes */
};

/* Ready for a first run, or for the next after one that failed; nothing is running. */
void cpu_exchanges_init(cpu_exchanges *all, uint64_t timeout_ns);
void cpu_exchange_init(cpu_exchange *x, cpu_exchanges *all, int32_t place);

/* The failure as a status and a message; TDM_OK where there was none. */
tdm_status cpu_exchanges_status(const cpu_exchanges *all, tdm_error *err);

/* As tdm_wire_sum, in x86/exchange_avx2.c. */
void cpu_wire_sum_avx2(tdm_type type, const void *const *addends, int32_t n_addend, int64_t first,
                       int64_t n, const float *residual, float *y);

#endif
