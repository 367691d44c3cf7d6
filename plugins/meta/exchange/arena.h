/* SPDX-License-Identifier: MIT
 *
 * arena.h: the host memory through which members exchange data, and the exchange performed by the
 * host for a member whose device cannot. tandem/collective.h defines the protocol.
 *
 * Layout: word 0 is the abort word; the rest of the first 64 bytes is unused. Then come the flags,
 * a line of 64 bytes for each exchange and member, then the data. compile.c assigns the offsets.
 * The arena only grows; it moves when it grows. How the data areas are reused: see compile.c.
 */
#ifndef TANDEM_META_ARENA_H
#define TANDEM_META_ARENA_H

#include "plugins/meta/exchange/peer.h"

/* The offset of the first flag line. */
#define META_ARENA_FLAGS 64
/* The most exchanges of one graph. Pages of the arena that no plan uses take no memory. */
#define META_ARENA_MAX_EXCHANGES 8192

/* The offset of the data: behind the flags of META_ARENA_MAX_EXCHANGES exchanges, in every plan. If
 * plans placed it differently, one plan would read the data of another as flags. Flags are never
 * reset between runs, because every run has a greater epoch. Only when the epoch would exceed 2^31
 * are they zeroed, between two runs (queue.c). */
static inline uint64_t meta_arena_data(int32_t n_active) {
    return META_ARENA_FLAGS + (uint64_t)META_ARENA_MAX_EXCHANGES * 64 * (uint64_t)n_active;
}

typedef struct meta_arena {
    uint8_t *data; /* page-aligned, zeroed when it is made */
    uint64_t size;
    int32_t n_exchange; /* most exchanges of any plan so far, each with a line per member */
    /* While meta_uses_peer: the memory that has flags and data, at the same offsets. Each member
     * then also copies its flag to `data`, where the host's watchdog reads it. */
    meta_peer peer;
    /* By rank: the sum of the member's times in the flag lines when queue.c last read them. */
    uint64_t seen_ns[TDM_MAX_MEMBERS];
} meta_arena;

/* The alignment in bytes, a power of two of at least a page, that address and size of host memory
 * need so that every active member can import it. A member that needs more than 2 MiB is left out:
 * it exchanges through the host. [any-thread] */
uint64_t meta_arena_align(const meta_device *device);

/* Grows the arena to at least `size` bytes and imports it into every member whose plans perform its
 * exchanges. Bindings of plans become stale (device->generation). Under device->mutex; no run may
 * be in progress. */
tdm_status meta_arena_reserve(meta_device *device, uint64_t size, tdm_error *err);
/* The same for the peer memory. Where meta_uses_peer only. */
tdm_status meta_arena_reserve_peer(meta_device *device, uint64_t size, tdm_error *err);
/* Zeroes the flags of arena and peer memory, and the times behind them. Under device->mutex; no run
 * may be in progress. */
tdm_status meta_arena_clear(meta_device *device, tdm_error *err);
/* Frees arena, peer memory and imports, but leaks what a stuck member may still use. */
void meta_arena_release(meta_device *device);

/* Sets and clears the abort word. While it is set, every member that waits in an exchange returns
 * with TDM_CANCELLED. Abort: [any-thread]. Calm: under device->mutex, while no member runs. */
void meta_arena_abort(meta_device *device);
void meta_arena_calm(meta_device *device);

/* One payload of an EXCHANGE: contiguous host memory. */
typedef struct meta_payload {
    const void *x;              /* NULL: the member sends nothing */
    int64_t x_ne[TDM_MAX_DIMS]; /* shape of x */
    void *result;
    int64_t ne[TDM_MAX_DIMS]; /* of the result */
    int32_t type;             /* of the result */
} meta_payload;

/* One EXCHANGE of the member with rank params->member. */
typedef struct meta_exchange_args {
    const tdm_exchange_params *params;
    uint32_t epoch, base; /* epoch and exchange_base of the step header */
    meta_payload first, second;
    const float *residual;    /* like first.result; NULL = none */
    const char *const *names; /* [n_member] by rank, for messages; NULL: numbers */
} meta_exchange_args;
/* Performs it on the calling thread. The result has the same bits as that of a device.
 * TDM_CANCELLED after an abort; TDM_DEADLINE_EXCEEDED names the member whose flag is missing.
 * exchange_host.c. [any-thread], as the functions below */
tdm_status meta_exchange_host(meta_arena *arena, const meta_exchange_args *args, tdm_error *err);
/* The two halves of the protocol: steps 1 and 2 for every chunk, which never wait; then steps 3 and
 * 4. */
void meta_exchange_publish(meta_arena *arena, const meta_exchange_args *args);
tdm_status meta_exchange_collect(meta_arena *arena, const meta_exchange_args *args, tdm_error *err);
/* What the host does between the phases of a member that performs steps 1 and 4 itself: raises its
 * flag for all chunks, and waits for all chunks of all members. Fails like meta_exchange_host. */
void meta_exchange_raise(meta_arena *arena, const meta_exchange_args *args);
tdm_status meta_exchange_pass(meta_arena *arena, const meta_exchange_args *args, tdm_error *err);
/* The number of chunks of an exchange. A member's flag ends at epoch * 2^32 + this number. */
int64_t meta_exchange_chunks(const meta_exchange_args *args);

/* Finds which members exchange correctly inside their plans: runs test sums and gathers on all
 * members whose devices offer it, and compares the results with those of meta_exchange_host bit for
 * bit. A member whose kernels may not wait is tested with the phases PUBLISH and COLLECT. Sets
 * `exchange`. Logs which members were refused and why; one that does not end in time is refused.
 * Part of opening the group. probe.c. [setup] */
tdm_status meta_probe(meta_device *device, tdm_error *err);
/* Tests peer memory on `home`, after meta_probe: patterns written through each member's buffer are
 * read through the others', then all members run the test exchanges with flags and data there. The
 * results must have the bits of the host's. A failure names the member; a member that did not end
 * exchanges through the host from then on. [setup] */
tdm_status meta_probe_peer(meta_device *device, int32_t home, tdm_error *err);

#endif
