/* SPDX-License-Identifier: MIT
 *
 * packing.h: lays out things with lifetimes in one range of bytes, so that two things that live at
 * the same time share no byte. The caller defines what a moment is.
 */
#ifndef TANDEM_BASE_PACKING_H
#define TANDEM_BASE_PACKING_H

#include <stdbool.h>
#include <stdint.h>

typedef struct tdm_packed {
    int32_t id;          /* the caller's; where all differ, the result is always the same */
    int32_t first, last; /* moments between which it lives, both included */
    uint64_t size;       /* bytes; 0 = needs none, off is arbitrary */
    uint64_t off;        /* result: a sum of sizes, hence a multiple of any divisor of all sizes */
} tdm_packed;

/* Sets `off` of each of the n things, sorts them by it, and gives the size of the range. The
 * largest is placed first. Each takes the smallest gap that fits between things placed before it
 * which live at the same time, or else the end. The result is at most a few percent above the lower
 * bound (the largest sum of sizes at one moment) where few things are large. False on overflow of
 * 64 bits. [any-thread] */
bool tdm_pack(tdm_packed *things, int32_t n, uint64_t *size_out);

#endif
