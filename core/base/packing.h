/* SPDX-License-Identifier: MIT
 *
 * packing.h: things that live for a while, laid out in one range of bytes so that those that live at
 * once share none. What they are, and what a moment is, is the caller's.
 */
#ifndef TANDEM_BASE_PACKING_H
#define TANDEM_BASE_PACKING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tdm_packed {
    int32_t id;          /* the caller's; different ones make the result the same every time */
    int32_t first, last; /* moments of its life, both included */
    uint64_t size;       /* bytes; 0 = takes none and lies anywhere */
    uint64_t off;        /* result: a sum of sizes, and so a multiple of what all sizes are */
} tdm_packed;

/* Sets off of each of the n things, puts them in order of it, and tells how many bytes the range
 * has. The largest is placed first; each takes the smallest gap that it fits into between those
 * placed before it whose lives meet its own, or the end: where a few are large and many small, that
 * is a few percent above the largest sum of what lives at once. False where 64 bits do not suffice.
 * [any-thread] */
bool tdm_pack(tdm_packed *things, int32_t n, uint64_t *size_out);

#endif
