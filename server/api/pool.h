/* SPDX-License-Identifier: MIT
 *
 * pool.h: a pool of threads that run tasks in the order in which they were added.
 */
#ifndef TANDEM_SERVER_POOL_H
#define TANDEM_SERVER_POOL_H

#include <stdbool.h>

#include "tandem/status.h"

/* A task: a member of the object that it works on, which lives at least until `run` is called.
 * Cleared but for `run` = not queued. */
typedef struct api_task {
    struct api_task *next;
    void (*run)(struct api_task *task);
    /* Guarded by the pool's lock. is_due: it was added while it ran, and runs again. */
    bool is_queued, is_running, is_due;
    bool *finished; /* while it runs: set by api_pool_finish */
} api_task;

typedef struct api_pool api_pool;

/* Starts n_thread threads, at most 16. TDM_RESOURCE_EXHAUSTED. [setup] */
tdm_status api_pool_create(int n_thread, api_pool **out, tdm_error *err);
/* Runs what is queued, then ends the threads and frees the pool. NULL is a no-op. [setup] */
void api_pool_destroy(api_pool *pool);
/* Queues a task, unless it is queued already. A task that is running runs once more afterwards,
 * never twice at the same time. [any-thread] */
void api_pool_add(api_pool *pool, api_task *task);
/* Called within `run`, when no other thread can add the task any more. True: the task will not run
 * again, and may be freed. False: it was added meanwhile, so it must not be freed; it runs again
 * after `run` returns. */
bool api_pool_finish(api_pool *pool, api_task *task);

#endif
