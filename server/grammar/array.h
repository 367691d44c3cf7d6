/* SPDX-License-Identifier: MIT
 *
 * array.h: arrays that grow, for the files of this folder.
 */
#ifndef TANDEM_SERVER_GRAMMAR_ARRAY_H
#define TANDEM_SERVER_GRAMMAR_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

/* Makes room for `need` elements of `size` bytes at *data, which has room for *capacity; *data may
 * move. False without memory, or for more than INT32_MAX / 2 elements; the array is unchanged
 * then. */
static inline bool grammar_reserve(void **data, int32_t *capacity, int64_t need, size_t size) {
    if (need <= *capacity) return true;
    if (need > INT32_MAX / 2) return false;
    const int64_t grown = need < 16 ? 16 : need + need / 2;
    void *moved = realloc(*data, (size_t)grown * size);
    if (moved == NULL) return false;
    *data = moved;
    *capacity = (int32_t)grown;
    return true;
}

#endif
