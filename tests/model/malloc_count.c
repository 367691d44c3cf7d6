/* SPDX-License-Identifier: MIT
 *
 * malloc_count.c: see malloc_count.h.
 */
#include <stdatomic.h>
#include <stddef.h>

#include "tests/model/malloc_count.h"

static atomic_ulong n_malloc;

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *data, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *data, size_t size);

unsigned long malloc_count_get(void) {
    return n_malloc;
}

void *__wrap_malloc(size_t size) {
    n_malloc++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size) {
    n_malloc++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *data, size_t size) {
    n_malloc++;
    return __real_realloc(data, size);
}
