/* SPDX-License-Identifier: MIT
 *
 * packing.c: see packing.h.
 */
#include "core/base/packing.h"

#include <stdlib.h>

static int larger_first(const void *a, const void *b) {
    const tdm_packed *x = a, *y = b;
    if (x->size != y->size) return x->size > y->size ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->id < y->id ? -1 : x->id > y->id;
}

/* Inserts one thing into placed[0 .. n], which is sorted by offset; placed[n] is free. */
static bool one_place(tdm_packed *placed, int32_t n, tdm_packed thing) {
    uint64_t at = 0, gap = UINT64_MAX, end;
    int32_t i;
    bool is_found = false;
    for (i = 0; i < n; i++) {
        const tdm_packed *other = &placed[i];
        if (other->last < thing.first || thing.last < other->first) continue;
        if (other->off > at && other->off - at >= thing.size && other->off - at < gap) {
            gap = other->off - at;
            thing.off = at;
            is_found = true;
        }
        if (other->off + other->size > at) at = other->off + other->size;
    }
    if (!is_found) thing.off = at;
    if (__builtin_add_overflow(thing.off, thing.size, &end)) return false;
    for (i = n; i > 0 && placed[i - 1].off > thing.off; i--) placed[i] = placed[i - 1];
    placed[i] = thing;
    return true;
}

bool tdm_pack(tdm_packed *things, int32_t n, uint64_t *size_out) {
    uint64_t size = 0;
    int32_t i;
    if (n > 0) qsort(things, (size_t)n, sizeof *things, larger_first);
    for (i = 0; i < n; i++)
        if (!one_place(things, i, things[i])) return false;
    for (i = 0; i < n; i++)
        if (things[i].off + things[i].size > size) size = things[i].off + things[i].size;
    *size_out = size;
    return true;
}
