/* SPDX-License-Identifier: MIT
 *
 * ranges.h: allocates ranges of a block of memory: records which bytes of the block are free. The
 * plugin allocates blocks from its driver; nothing here touches the memory.
 *
 * One thread at a time may use a gpu_ranges.
 */
#ifndef TANDEM_GPU_RANGES_H
#define TANDEM_GPU_RANGES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct gpu_range {
    uint64_t off, size; /* bytes */
} gpu_range;

typedef struct gpu_ranges {
    gpu_range *free;      /* n_free ranges in order of offset; between two there is a taken range */
    int32_t n_free, room; /* room: elements allocated, at least n_taken + 1 */
    int32_t n_taken;      /* ranges taken and not given back */
    uint64_t size;        /* bytes of the block, a multiple of unit */
    uint64_t unit;        /* bytes; offsets and sizes of ranges are multiples of it */
} gpu_ranges;

/* Starts with a block of `size` bytes, rounded down to whole units, all of it free. False without
 * memory. Released with gpu_ranges_free. */
bool gpu_ranges_init(gpu_ranges *ranges, uint64_t size, uint64_t unit);
void gpu_ranges_free(gpu_ranges *ranges);

/* Takes `size` bytes (> 0), rounded up to whole units, of the first free range that has as many.
 * False where there is none, or without memory; nothing changes then. */
bool gpu_ranges_take(gpu_ranges *ranges, uint64_t size, uint64_t *off_out);

/* Gives back a range of gpu_ranges_take; `size` is the one that was given there. Never fails. */
void gpu_ranges_give(gpu_ranges *ranges, uint64_t off, uint64_t size);

#endif
