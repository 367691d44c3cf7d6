/* SPDX-License-Identifier: MIT
 *
 * memory.h: the group's own memory, from the host's allocator, and the rounding of sizes.
 */
#ifndef TANDEM_META_MEMORY_H
#define TANDEM_META_MEMORY_H

#include "tandem/host.h"

/* The least multiple of `align` (not 0) that is at least `size`; UINT64_MAX, which is too large for
 * any memory, where 64 bits cannot hold it. [any-thread] */
static inline uint64_t meta_round_up(uint64_t size, uint64_t align) {
    uint64_t sum;
    return __builtin_add_overflow(size, align - 1, &sum) ? UINT64_MAX : sum / align * align;
}

/* Memory from the host's counted allocator, zeroed; NULL without memory. meta_free takes the same
 * size; NULL is a no-op. [any-thread] */
void *meta_alloc(const tdm_host *host, size_t size);
void meta_free(const tdm_host *host, void *ptr, size_t size);
/* The failure for an allocation that returned NULL: TDM_RESOURCE_EXHAUSTED, "group: no memory" and
 * the purpose ("for a plan"). [any-thread] */
tdm_status meta_no_memory(const char *purpose, tdm_error *err);
/* Makes room for `need` elements in an array that grows by doubling. `array` is the address of the
 * pointer to it (NULL = empty); that pointer and *capacity (elements) are changed together. The new
 * part is zeroed. After a failure (TDM_RESOURCE_EXHAUSTED) nothing has changed. The owner frees it
 * with meta_free and the size *capacity * element_size. [any-thread] */
tdm_status meta_grow(const tdm_host *host, void *array, int32_t *capacity, int64_t need,
                     size_t element_size, tdm_error *err);

#endif
