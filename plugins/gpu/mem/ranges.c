/* SPDX-License-Identifier: MIT
 *
 * ranges.c: first fit over a sorted list of free ranges.
 */
#include "plugins/gpu/mem/ranges.h"

#include <stdlib.h>
#include <string.h>

bool gpu_ranges_init(gpu_ranges *ranges, uint64_t size, uint64_t unit) {
    *ranges = (gpu_ranges){.size = size / unit * unit, .unit = unit, .room = 8};
    ranges->free = malloc((size_t)ranges->room * sizeof *ranges->free);
    if (ranges->free == NULL) return false;
    if (ranges->size > 0) ranges->free[ranges->n_free++] = (gpu_range){0, ranges->size};
    return true;
}

void gpu_ranges_free(gpu_ranges *ranges) {
    free(ranges->free);
    memset(ranges, 0, sizeof *ranges);
}

/* n taken ranges leave at most n + 1 free ranges. Room for these is allocated when a range is
 * taken, so that giving back allocates nothing and cannot fail. */
static bool room_make(gpu_ranges *ranges) {
    if (ranges->n_taken + 2 <= ranges->room) return true;
    gpu_range *grown = realloc(ranges->free, (size_t)ranges->room * 2 * sizeof *ranges->free);
    if (grown == NULL) return false;
    ranges->free = grown;
    ranges->room *= 2;
    return true;
}

static uint64_t whole_units(const gpu_ranges *ranges, uint64_t size) {
    return (size + ranges->unit - 1) / ranges->unit * ranges->unit;
}

static void entry_remove(gpu_ranges *ranges, int32_t i) {
    ranges->n_free--;
    memmove(&ranges->free[i], &ranges->free[i + 1],
            (size_t)(ranges->n_free - i) * sizeof *ranges->free);
}

bool gpu_ranges_take(gpu_ranges *ranges, uint64_t size, uint64_t *off_out) {
    if (size > ranges->size || !room_make(ranges)) return false;
    size = whole_units(ranges, size);
    for (int32_t i = 0; i < ranges->n_free; i++) {
        gpu_range *range = &ranges->free[i];
        if (range->size < size) continue;
        *off_out = range->off;
        range->off += size;
        range->size -= size;
        if (range->size == 0) entry_remove(ranges, i);
        ranges->n_taken++;
        return true;
    }
    return false;
}

void gpu_ranges_give(gpu_ranges *ranges, uint64_t off, uint64_t size) {
    int32_t i = 0;
    size = whole_units(ranges, size);
    while (i < ranges->n_free && ranges->free[i].off < off) i++;
    bool joins_before = i > 0 && ranges->free[i - 1].off + ranges->free[i - 1].size == off;
    bool joins_behind = i < ranges->n_free && off + size == ranges->free[i].off;
    ranges->n_taken--;
    if (joins_before) {
        ranges->free[i - 1].size += size;
        if (!joins_behind) return;
        ranges->free[i - 1].size += ranges->free[i].size;
        entry_remove(ranges, i);
        return;
    }
    if (joins_behind) {
        ranges->free[i].off = off;
        ranges->free[i].size += size;
        return;
    }
    memmove(&ranges->free[i + 1], &ranges->free[i],
            (size_t)(ranges->n_free - i) * sizeof *ranges->free);
    ranges->free[i] = (gpu_range){off, size};
    ranges->n_free++;
}
