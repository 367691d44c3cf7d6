/* SPDX-License-Identifier: MIT
 *
 * attention_part.h: the parts in which ATTENTION sums over a sequence: where one ends and the next
 * begins. attention.c computes and merges them.
 *
 * A sum of floats depends on its order. For a token to get the same bits in a prompt, in an answer
 * and in a batch that verifies a draft, parts must be the same for every reader: they follow from
 * the positions at which the entries of the page table begin, not from how long the cache is, how
 * many tokens attend or how many threads there are. Yet a short cache should give work to several
 * threads and a long one not fall into thousands of parts. So the first PARTS parts are of LEN
 * positions, the next PARTS of twice as many, and so on: in a cache of n tokens none holds more
 * than n / PARTS or LEN, and there are PARTS log2(n / (PARTS LEN)) of them, about.
 */
#ifndef TANDEM_CPU_ATTENTION_PART_H
#define TANDEM_CPU_ATTENTION_PART_H

#include "plugins/cpu/cpu.h"

enum {
    CPU_ATTENTION_LEN = 512, /* positions; with fewer, queries and merging cost too much */
    CPU_ATTENTION_PARTS = 32
};

/* A part: its number, and the position behind its last. */
typedef struct cpu_attention_part {
    int32_t number;
    int64_t end;
} cpu_attention_part;

/* The part in which position `pos` lies; a negative one in the first. */
static inline cpu_attention_part cpu_attention_part_at(int64_t pos) {
    int64_t len = CPU_ATTENTION_LEN, first = 0;
    int32_t number = 0;
    if (pos < 0) pos = 0;
    for (; pos >= first + CPU_ATTENTION_PARTS * len; number += CPU_ATTENTION_PARTS) {
        first += CPU_ATTENTION_PARTS * len;
        len *= 2;
    }
    int64_t in_level = (pos - first) / len;
    return (cpu_attention_part){number + (int32_t)in_level, first + (in_level + 1) * len};
}

/* Most parts that n_entry pages of page_len tokens fall into, where positions have no gaps. One
 * more than from position 0 on, since a window may begin inside a part. At least 1. */
static inline int32_t cpu_attention_part_most(int32_t n_entry, int32_t page_len) {
    int32_t n = cpu_attention_part_at((int64_t)n_entry * page_len).number + 2;
    if (n > n_entry) n = n_entry;
    return n > 1 ? n : 1;
}

/* The first entry behind `at`, of n in the order of their positions, that begins in another
 * part. */
static inline int32_t cpu_attention_part_end(const tdm_page_entry *entries, int32_t at, int32_t n) {
    int64_t end_pos = cpu_attention_part_at(entries[at].base_pos).end;
    int32_t end = at + 1;
    while (end < n && entries[end].base_pos < end_pos) end++;
    return end;
}

#endif
