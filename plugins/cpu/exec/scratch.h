/* SPDX-License-Identifier: MIT
 *
 * scratch.h: the memory that the plans of a queue share while they run, one after the other. It
 * grows by chunks: a chunk never moves, and lives as long as a bound plan uses it.
 */
#ifndef TANDEM_CPU_SCRATCH_H
#define TANDEM_CPU_SCRATCH_H

#include <pthread.h>

#include "tandem/plugin.h"

/* One allocation, 64-byte aligned. */
typedef struct cpu_chunk {
    uint8_t *data;
    size_t size;    /* bytes */
    int32_t n_user; /* plans that are bound to it */
} cpu_chunk;

typedef struct cpu_scratch {
    const tdm_host *host;
    pthread_mutex_t mutex; /* protects `largest` and the chunks' n_user */
    cpu_chunk *largest;    /* the chunk that new users get; NULL: none was needed yet */
} cpu_scratch;

/* [setup] */
tdm_status cpu_scratch_create(const tdm_host *host, cpu_scratch *scratch_out, tdm_error *err);
/* No chunk may have a user. [setup] */
void cpu_scratch_destroy(cpu_scratch *scratch);

/* Makes the largest chunk hold `size` bytes or more. A chunk that is replaced lives on while it has
 * users. [any-thread] */
tdm_status cpu_scratch_reserve(cpu_scratch *scratch, size_t size, tdm_error *err);
/* Gives the largest chunk, of at least `size` bytes, to one more user. *chunk_out is NULL where
 * size is 0. [any-thread] */
tdm_status cpu_scratch_take(cpu_scratch *scratch, size_t size, cpu_chunk **chunk_out,
                            tdm_error *err);
/* Ends one use of a chunk, and frees a replaced chunk with its last use; NULL is a no-op.
 * [any-thread] */
void cpu_scratch_drop(cpu_scratch *scratch, cpu_chunk *chunk);

#endif
