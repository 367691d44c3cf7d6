/* SPDX-License-Identifier: MIT
 *
 * claims.c: claiming pieces (claims.h). What a piece is and what becomes of it is the op's matter.
 */
#include "plugins/cpu/claims.h"

/* The next piece of a share of n_piece; -1 where all are claimed. */
static int64_t piece_claim(cpu_claim *claim, uint32_t round, int64_t n_piece) {
    /* Claims order nothing but themselves: what was computed is read behind a barrier. */
    uint64_t word = atomic_load_explicit(&claim->word, memory_order_relaxed);
    for (;;) {
        uint32_t n_claimed = (uint32_t)(word >> 32) == round ? (uint32_t)word : 0;
        if (n_claimed >= n_piece) return -1;
        uint64_t next = (uint64_t)round << 32 | (n_claimed + 1);
        if (atomic_compare_exchange_weak_explicit(&claim->word, &word, next, memory_order_relaxed,
                                                  memory_order_relaxed))
            return n_claimed;
    }
}

bool cpu_claims_next(cpu_claim_walk *walk, int64_t *first, int64_t *last) {
    const cpu_claims *claims = walk->claims;
    for (; walk->n_left > 0; walk->n_left--) {
        cpu_worker *of = &walk->worker;
        int64_t begin, end;
        cpu_worker_share(of, walk->n, walk->unit, &begin, &end);
        if (claims == NULL) {
            walk->n_left = 0;
            *first = begin;
            *last = end;
            return begin < end;
        }
        int64_t n_piece = (end - begin + walk->piece - 1) / walk->piece;
        int64_t i = piece_claim(&claims->of[of->ith], *claims->round, n_piece);
        if (i >= 0) {
            *first = begin + i * walk->piece;
            *last = *first + walk->piece < end ? *first + walk->piece : end;
            return true;
        }
        of->ith = of->ith + 1 < of->nth ? of->ith + 1 : 0;
    }
    return false;
}
