/* SPDX-License-Identifier: MIT
 *
 * memory.c: the group's own memory: zeroed, from the host's allocator, which counts it. Memory on
 * members belongs to buffer.c.
 */
#include "plugins/meta/memory.h"

#include <string.h>

void *meta_alloc(const tdm_host *host, size_t size) {
    void *ptr = host->alloc(host->context, size, 0);
    if (ptr != NULL) memset(ptr, 0, size);
    return ptr;
}

void meta_free(const tdm_host *host, void *ptr, size_t size) {
    if (ptr != NULL) host->free(host->context, ptr, size);
}

tdm_status meta_no_memory(const char *purpose, tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "group: no memory %s", purpose);
}

tdm_status meta_grow(const tdm_host *host, void *array, int32_t *capacity, int64_t need,
                     size_t element_size, tdm_error *err) {
    void *old, *grown = NULL;
    int64_t n = *capacity > 8 ? *capacity : 8;
    size_t size;
    if (need <= *capacity) return TDM_OK;
    while (n < need && n <= INT32_MAX / 2) n *= 2;
    if (n < need) n = need;
    if (n <= INT32_MAX && !__builtin_mul_overflow((size_t)n, element_size, &size))
        grown = meta_alloc(host, size);
    if (grown == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "group: no memory for %lld elements of %zu",
                        (long long)need, element_size);
    /* The type of the caller's pointer is not known here, so it is copied as bytes. */
    memcpy(&old, array, sizeof old);
    if (old != NULL) {
        memcpy(grown, old, (size_t)*capacity * element_size);
        meta_free(host, old, (size_t)*capacity * element_size);
    }
    memcpy(array, &grown, sizeof grown);
    *capacity = (int32_t)n;
    return TDM_OK;
}
