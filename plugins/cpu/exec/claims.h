/* SPDX-License-Identifier: MIT
 *
 * claims.h: work that is assigned while it is done. Each worker has a share; it claims its share
 * piece by piece, and then pieces of the other workers' shares. So all workers finish a node at
 * about the same time, even if one processor is slower than another or was taken away for a while.
 * An element's value does not depend on the worker that computes it. Which worker computed an
 * element is not recorded, so the workers meet at a barrier behind such a node before its result is
 * read.
 *
 * A counter per worker holds the number of claimed pieces of its share and the round in which they
 * were claimed; a count of another round reads as 0. So counters are never reset, and a worker that
 * starts late sees which pieces of its share other workers have claimed.
 */
#ifndef TANDEM_CPU_CLAIMS_H
#define TANDEM_CPU_CLAIMS_H

#include "plugins/cpu/cpu.h"

/* Of one worker, on a cache line of its own: the round in the upper half, pieces in the lower. */
typedef struct cpu_claim {
    _Alignas(64) _Atomic uint64_t word;
} cpu_claim;

/* Of one node; a node is walked once in a round. Zeroed memory is ready for round 1. */
struct cpu_claims {
    const uint32_t *round; /* counts the plan's runs; does not change while one is under way */
    cpu_claim *of;         /* [n_thread] */
};

/* The state of one worker that goes through the pieces of a node. */
typedef struct cpu_claim_walk {
    const cpu_claims *claims; /* NULL: the worker's own share, as one piece */
    cpu_worker worker;        /* whose share is being claimed */
    int32_t n_left;           /* shares in which pieces may be left, this one included */
    int64_t n, unit, piece;
    int64_t first, last, n_piece; /* of that share */
} cpu_claim_walk;

/* Begins a walk over `n` items in shares of whole units (cpu_worker_share), in pieces of `piece`
 * items (>= 1, a multiple of the unit). All workers of a node pass the same values. Without claims
 * (NULL) it is the worker's own share. [worker] */
cpu_claim_walk cpu_claims_walk(const cpu_claims *claims, const cpu_worker *w, int64_t n,
                               int64_t unit, int64_t piece);

/* Claims the next piece, items first .. last-1, never empty; false where none is left. [worker] */
bool cpu_claims_next(cpu_claim_walk *walk, int64_t *first, int64_t *last);

#endif
