/* SPDX-License-Identifier: MIT
 *
 * scratch.c: see scratch.h.
 */
#include "plugins/gpu/queue/scratch.h"

#include <stdlib.h>

void gpu_scratch_pool_init(gpu_scratch_pool *pool, const gpu_scratch_driver *driver, void *context,
                           const char *name) {
    *pool = (gpu_scratch_pool){.driver = driver, .context = context, .name = name};
    pthread_mutex_init(&pool->mutex, NULL);
}

/* With the pool's mutex held, or as the only user of the pool. */
static void scratch_unref(gpu_scratch_pool *pool, gpu_scratch *scratch) {
    if (scratch == NULL || --scratch->n_ref > 0) return;
    pool->driver->free(pool->context, scratch->memory);
    free(scratch);
}

void gpu_scratch_pool_destroy(gpu_scratch_pool *pool) {
    scratch_unref(pool, pool->current);
    pthread_mutex_destroy(&pool->mutex);
}

static tdm_status scratch_create(gpu_scratch_pool *pool, uint64_t size, gpu_scratch **scratch_out,
                                 tdm_error *err) {
    gpu_scratch *scratch = calloc(1, sizeof *scratch + pool->driver->memory_size);
    if (scratch == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan", pool->name);
    tdm_status status =
        pool->driver->alloc(pool->context, size, scratch->memory, &scratch->address, err);
    if (status != TDM_OK) {
        free(scratch);
        return status;
    }
    scratch->size = size;
    scratch->n_ref = 1;
    *scratch_out = scratch;
    return TDM_OK;
}

void gpu_scratch_expect(gpu_scratch_pool *pool, uint64_t size) {
    pthread_mutex_lock(&pool->mutex);
    if (size > pool->expected) pool->expected = size;
    pthread_mutex_unlock(&pool->mutex);
}

tdm_status gpu_scratch_get(gpu_scratch_pool *pool, uint64_t size, gpu_scratch **scratch_out,
                           tdm_error *err) {
    tdm_status status = TDM_OK;
    pthread_mutex_lock(&pool->mutex);
    if (pool->current == NULL || pool->current->size < size) {
        gpu_scratch *larger = NULL;
        const uint64_t most = pool->expected > size ? pool->expected : size;
        tdm_error failed = {0};
        status = scratch_create(pool, most, &larger, &failed);
        /* The larger plan may never be bound. */
        if (status == TDM_RESOURCE_EXHAUSTED && most > size)
            status = scratch_create(pool, size, &larger, &failed);
        if (status != TDM_OK) tdm_fail(err, status, "%s", failed.message);
        if (status == TDM_OK) {
            scratch_unref(pool, pool->current);
            pool->current = larger;
        }
    }
    if (status == TDM_OK) {
        pool->current->n_ref++;
        *scratch_out = pool->current;
    }
    pthread_mutex_unlock(&pool->mutex);
    return status;
}

void gpu_scratch_drop(gpu_scratch_pool *pool, gpu_scratch *scratch) {
    pthread_mutex_lock(&pool->mutex);
    scratch_unref(pool, scratch);
    pthread_mutex_unlock(&pool->mutex);
}
