/* SPDX-License-Identifier: MIT
 *
 * scratch.c: see scratch.h.
 */
#include "plugins/cpu/exec/scratch.h"

#include <string.h>

#include "plugins/cpu/machine/memory.h"

tdm_status cpu_scratch_create(const tdm_host *host, cpu_scratch *scratch_out, tdm_error *err) {
    int rc = pthread_mutex_init(&scratch_out->mutex, NULL);
    if (rc != 0)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cpu: no mutex for scratch: %s", strerror(rc));
    scratch_out->host = host;
    scratch_out->largest = NULL;
    return TDM_OK;
}

static void chunk_free(const tdm_host *host, cpu_chunk *chunk) {
    cpu_pages_free(host, chunk->data, chunk->size);
    host->free(host->context, chunk, sizeof *chunk);
}

void cpu_scratch_destroy(cpu_scratch *scratch) {
    if (scratch->largest != NULL) chunk_free(scratch->host, scratch->largest);
    scratch->largest = NULL;
    pthread_mutex_destroy(&scratch->mutex);
}

/* The caller holds the mutex. */
static tdm_status grow(cpu_scratch *scratch, size_t size, tdm_error *err) {
    const tdm_host *host = scratch->host;
    if (size == 0 || (scratch->largest != NULL && scratch->largest->size >= size)) return TDM_OK;
    cpu_chunk *chunk = host->alloc(host->context, sizeof *chunk, 0);
    uint8_t *data = chunk != NULL ? cpu_pages_alloc(host, size) : NULL;
    if (data == NULL) {
        if (chunk != NULL) host->free(host->context, chunk, sizeof *chunk);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cpu: no memory for %llu bytes of scratch",
                        (unsigned long long)size);
    }
    *chunk = (cpu_chunk){.data = data, .size = size};
    if (scratch->largest != NULL && scratch->largest->n_user == 0)
        chunk_free(host, scratch->largest);
    scratch->largest = chunk;
    return TDM_OK;
}

tdm_status cpu_scratch_reserve(cpu_scratch *scratch, size_t size, tdm_error *err) {
    pthread_mutex_lock(&scratch->mutex);
    tdm_status status = grow(scratch, size, err);
    pthread_mutex_unlock(&scratch->mutex);
    return status;
}

tdm_status cpu_scratch_take(cpu_scratch *scratch, size_t size, cpu_chunk **chunk_out,
                            tdm_error *err) {
    pthread_mutex_lock(&scratch->mutex);
    tdm_status status = grow(scratch, size, err);
    if (status == TDM_OK) *chunk_out = size > 0 ? scratch->largest : NULL;
    if (status == TDM_OK && size > 0) scratch->largest->n_user++;
    pthread_mutex_unlock(&scratch->mutex);
    return status;
}

void cpu_scratch_drop(cpu_scratch *scratch, cpu_chunk *chunk) {
    if (chunk == NULL) return;
    pthread_mutex_lock(&scratch->mutex);
    if (--chunk->n_user == 0 && chunk != scratch->largest) chunk_free(scratch->host, chunk);
    pthread_mutex_unlock(&scratch->mutex);
}
