/* SPDX-License-Identifier: MIT
 *
 * claims.c: claiming pieces (claims.h). The op decides what a piece is.
 */
#include "plugins/cpu/exec/claims.h"

/* The next piece of a share of n_piece; -1 where all are claimed. */
static int64_t piece_claim(cpu_claim *claim, uint32_t round, int64_t n_piece) {
    /* Relaxed order is enough: what was computed is read behind a barrier. */
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

/* Starts with the share of walk->worker. */
static void share_begin(cpu_claim_walk *walk) {
    cpu_worker_share(&walk->worker, walk->n, walk->unit, &walk->first, &walk->last);
    walk->n_piece = (walk->last - walk->first + walk->piece - 1) / walk->piece;
}

cpu_claim_walk cpu_claims_walk(const cpu_claims *claims, const cpu_worker *w, int64_t n,
                               int64_t unit, int64_t piece) {
    cpu_claim_walk walk = {.claims = w->nth > 1 ? claims : NULL,
                           .worker = *w,
                           .n_left = claims != NULL ? w->nth : 1,
                           .n = n,
                           .unit = unit,
                           .piece = piece};
    share_begin(&walk);
    return walk;
}

bool cpu_claims_next(cpu_claim_walk *walk, int64_t *first, int64_t *last) {
    const cpu_claims *claims = walk->claims;
    cpu_worker *of = &walk->worker;
    if (claims == NULL) {
        *first = walk->first;
        *last = walk->last;
        return walk->n_left-- > 0 && *first < *last;
    }
    while (walk->n_left > 0) {
        int64_t i = piece_claim(&claims->of[of->ith], *claims->round, walk->n_piece);
        if (i >= 0) {
            *first = walk->first + i * walk->piece;
            *last = *first + walk->piece < walk->last ? *first + walk->piece : walk->last;
            return true;
        }
        of->ith = of->ith + 1 < of->nth ? of->ith + 1 : 0;
        if (--walk->n_left > 0) share_begin(walk);
    }
    return false;
}
