/* SPDX-License-Identifier: MIT
 *
 * arena.h: the host memory through which members exchange, and the exchange as the host does it for
 * a member whose device cannot (tandem/collective.h is the protocol).
 *
 * Bytes: word 0 the abort word, the rest of the first 64 bytes unused; then flags, a line of 64
 * bytes for each exchange and member; then the data. The compiler hands out offsets from
 * META_ARENA_FLAGS on; the arena only grows, and moves when it does.
 */
#ifndef TANDEM_META_ARENA_H
#define TANDEM_META_ARENA_H

#include "plugins/meta/meta.h"

/* The offset of the first flag line. */
#define META_ARENA_FLAGS 64
/* The most exchanges of one graph. Pages of the arena that no plan uses take no memory. */
#define META_ARENA_MAX_EXCHANGES 8192

/* Where the data begins: behind the flags of as many exchanges as a graph may have, so that flags
 * of one plan are never data of another. Where runs count past 2^31 the flags are zeroed and the
 * epoch starts anew, between two runs (queue.c). */
static inline uint64_t meta_arena_data(int32_t n_active) {
    return META_ARENA_FLAGS + (uint64_t)META_ARENA_MAX_EXCHANGES * 64 * (uint64_t)n_active;
}

typedef struct meta_arena {
    uint8_t *data; /* page-aligned, zeroed when it is made */
    uint64_t size;
    int32_t n_exchange; /* flag lines that any plan so far uses, for each member */
    /* By rank: how much of the times in the flag lines is accounted for already. */
    uint64_t seen_ns[TDM_MAX_MEMBERS];
} meta_arena;

/* Makes the arena at least `size` bytes and imports it into every member that exchanges in its plans. Bindings
 * of plans become stale (device->generation). Under device->mutex, with nothing running. */
tdm_status meta_arena_reserve(meta_device *device, uint64_t size, tdm_error *err);
/* Frees arena and imports. */
void meta_arena_release(meta_device *device);

/* Sets and clears the abort word: all who wait in an exchange leave with TDM_CANCELLED. */
void meta_arena_abort(meta_device *device);
void meta_arena_calm(meta_device *device);

/* One EXCHANGE of member params->member, done on the calling thread: x (NULL where it sends
 * nothing), residual (NULL = none) and result are host memory, contiguous; count of elements of
 * the addend and the result; for GATHER and SUM_PART the shapes. Bit-equal to what devices do.
 * TDM_CANCELLED by abort, TDM_DEADLINE_EXCEEDED names the member whose flag is missing.
 * exchange_host.c. [any-thread] */
typedef struct meta_exchange_args {
    const tdm_exchange_params *params;
    uint32_t epoch;
    const void *x;
    int64_t x_ne[TDM_MAX_DIMS];
    const float *residual;
    void *result;
    int64_t ne[TDM_MAX_DIMS]; /* of the result */
    int32_t type;             /* of the result */
    const char *const *names; /* [n_member] by rank, for messages; NULL: numbers */
} meta_exchange_args;
tdm_status meta_exchange_host(meta_arena *arena, const meta_exchange_args *args, tdm_error *err);
/* Its two halves: steps 1 and 2 for every chunk, which never wait, and steps 3 and 4. */
void meta_exchange_publish(meta_arena *arena, const meta_exchange_args *args);
tdm_status meta_exchange_collect(meta_arena *arena, const meta_exchange_args *args, tdm_error *err);
/* Chunks of an exchange: the last flag of a run is epoch * 2^32 + this. */
int64_t meta_exchange_chunks(const meta_exchange_args *args);

/* Which members can be trusted to exchange inside their plans: runs sums and gathers of a pattern
 * on all that claim it, together, and compares bits with meta_exchange_host. Sets has_exchange;
 * logs who was refused and why. A member that does not answer in time is refused. probe.c.
 * During open. [setup] */
tdm_status meta_probe(meta_device *device, tdm_error *err);

#endif
