/* SPDX-License-Identifier: MIT
 *
 * scratch.h: the scratch memory that the plans of a queue share (tandem/queue.h). The plugin
 * allocates the memory.
 */
#ifndef TANDEM_GPU_SCRATCH_H
#define TANDEM_GPU_SCRATCH_H

#include <pthread.h>
#include <stddef.h>

#include "tandem/status.h"

/* The plugin's functions. They get the context that the pool was made with. */
typedef struct gpu_scratch_driver {
    size_t memory_size; /* bytes of the plugin's description of a piece of memory */
    /* Allocates device memory. Fills *memory, the description, which is zero before, and gives the
     * device's address, a multiple of 256. */
    tdm_status (*alloc)(void *context, uint64_t size, void *memory, uint64_t *address_out,
                        tdm_error *err);
    void (*free)(void *context, void *memory);
} gpu_scratch_driver;

/* A piece of scratch. It lives until neither the pool nor a bound plan refers to it. */
typedef struct gpu_scratch {
    uint64_t address;     /* the device's, a multiple of 256 */
    uint64_t size;        /* bytes */
    int32_t n_ref;        /* the pool and bound plans; under the pool's mutex */
    max_align_t memory[]; /* the plugin's description of it */
} gpu_scratch;

typedef struct gpu_scratch_pool {
    const gpu_scratch_driver *driver;
    void *context;
    const char *name; /* of the device, for messages */
    pthread_mutex_t mutex; /* over the fields below */
    gpu_scratch *current;  /* the largest piece; NULL = none yet */
    uint64_t expected;     /* most bytes of gpu_scratch_expect so far: the size of a new piece */
} gpu_scratch_pool;

/* Makes an empty pool. Released with gpu_scratch_pool_destroy, after all plans that took scratch
 * from it. */
void gpu_scratch_pool_init(gpu_scratch_pool *pool, const gpu_scratch_driver *driver, void *context,
                           const char *name);
void gpu_scratch_pool_destroy(gpu_scratch_pool *pool);

/* States that a plan will need `size` bytes: a new piece gets at least as many. Rationale: a caller
 * prepares all stages of a graph and then binds them one by one. A bound stage keeps its piece. If
 * the pool grew with each stage, the pieces would take the sum of what the stages need instead of
 * the largest. [any-thread] */
void gpu_scratch_expect(gpu_scratch_pool *pool, uint64_t size);

/* Gives a piece of at least `size` bytes: the pool's, or a new one that takes its place. Without
 * memory for the expected size it tries `size` alone. Fails as `alloc` does; the pool is then as
 * before. Released with gpu_scratch_drop. [any-thread] */
tdm_status gpu_scratch_get(gpu_scratch_pool *pool, uint64_t size, gpu_scratch **scratch_out,
                           tdm_error *err);

/* NULL is a no-op. [any-thread] */
void gpu_scratch_drop(gpu_scratch_pool *pool, gpu_scratch *scratch);

#endif
