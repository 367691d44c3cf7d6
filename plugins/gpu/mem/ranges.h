/* SPDX-License-Identifier: MIT
 *
 * ranges.h: which bytes of a block of memory are free. A plugin allocates blocks from its driver
 * and gives out ranges of them; nothing here touches the memory.
 */
#ifndef TANDEM_GPU_RANGES_H
#define TANDEM_GPU_RANGES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gpu_range {
    uint64_t off, size;
} gpu_range;

/* Free ranges in order of offset; neighbours are never adjacent. */
typedef struct gpu_ranges {
    gpu_range *free;
    int32_t n_free, room;
    int32_t n_taken; /* ranges given out */
    uint64_t size;   /* of the block */
    uint64_t unit;   /* offsets and sizes are multiples of it */
} gpu_ranges;

/* All of a block of `size` bytes is free. False without memory. Released with gpu_ranges_free. */
bool gpu_ranges_init(gpu_ranges *ranges, uint64_t size, uint64_t unit);
void gpu_ranges_free(gpu_ranges *ranges);

/* Takes the first free range of at least `size` bytes (> 0), rounded up to whole units. False where
 * there is none; nothing changes then. */
bool gpu_ranges_take(gpu_ranges *ranges, uint64_t size, uint64_t *off_out);

/* Gives back what take gave, with the same size. Never fails. */
void gpu_ranges_give(gpu_ranges *ranges, uint64_t off, uint64_t size);

#endif
