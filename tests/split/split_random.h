/* SPDX-License-Identifier: MIT
 *
 * split_random.h: numbers and cuts at random, for tests of layouts. The seed is printed;
 * TANDEM_SEED repeats a run.
 */
#ifndef TANDEM_TESTS_SPLIT_RANDOM_H
#define TANDEM_TESTS_SPLIT_RANDOM_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugins/meta/layout/layout.h"
#include "tests/support/random.h"

static uint64_t random_state;

static inline void random_begin(const char *name) {
    random_state = test_seed(name, (uint64_t)time(NULL) * 2654435761u);
}

static inline uint64_t random_word(void) {
    return random_u64(&random_state);
}

/* 0 .. n-1 */
static inline int64_t random_below(int64_t n) {
    return (int64_t)(random_word() % (uint64_t)n);
}

/* Ranges that cover n_unit units: ascending and perhaps overlapping, or in any order of members and
 * disjoint; empty ones among them. */
static inline void random_segment(int64_t n_unit, int32_t n_member, tdm_layout_segment *out) {
    int64_t ends[TDM_MAX_MEMBERS];
    int32_t order[TDM_MAX_MEMBERS];
    bool overlaps = random_below(2) == 0;
    memset(out, 0, sizeof *out);
    out->n_unit = n_unit;
    for (int32_t d = 0; d < n_member; d++) {
        ends[d] = d + 1 < n_member ? random_below(n_unit + 1) : n_unit;
        order[d] = d;
    }
    for (int32_t i = 1; i < n_member; i++) /* sort */
        for (int32_t k = i; k > 0 && ends[k - 1] > ends[k]; k--) {
            int64_t end = ends[k];
            ends[k] = ends[k - 1];
            ends[k - 1] = end;
        }
    if (!overlaps && random_below(3) == 0)
        for (int32_t i = n_member - 1; i > 0; i--) {
            int32_t k = (int32_t)random_below(i + 1), d = order[i];
            order[i] = order[k];
            order[k] = d;
        }
    int64_t reached = 0;
    for (int32_t i = 0; i < n_member; i++) {
        int64_t lo = i > 0 ? ends[i - 1] : 0, hi = ends[i];
        if (overlaps) hi += random_below(n_unit - hi + 1);
        if (hi < reached) hi = reached;
        if (lo == hi) continue;
        out->lo[order[i]] = lo;
        out->hi[order[i]] = hi;
        if (overlaps) reached = hi;
    }
}

static inline int64_t random_cut_length(const meta_cut *cut) {
    int64_t length = 0;
    for (int32_t s = 0; s < cut->n_segment; s++) length += cut->segments[s].n_unit;
    return length;
}

/* n_segment segments of 1 .. max_unit units. */
static inline void random_cut(int32_t n_segment, int64_t max_unit, int32_t n_member,
                              meta_cut *out) {
    memset(out, 0, sizeof *out);
    out->repeat = 1;
    out->n_segment = n_segment;
    for (int32_t s = 0; s < n_segment; s++)
        random_segment(1 + random_below(max_unit), n_member, &out->segments[s]);
}

#endif
