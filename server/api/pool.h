/* SPDX-License-Identifier: MIT
 *
 * pool.h: threads that run tasks in the order in which they come.
 */
#ifndef TANDEM_SERVER_POOL_H
#define TANDEM_SERVER_POOL_H

#include <stdbool.h>

#include "tandem/status.h"

/* Lies within what it works on, which lives until `run` is called or later. */
typedef struct api_task {
    struct api_task *next;
    void (*run)(struct api_task *task);
    bool is_queued, is_running, is_due; /* these are guarded by the pool */
    bool *finished;
} api_task;

typedef struct api_pool api_pool;

tdm_status api_pool_create(int n_thread, api_pool **out, tdm_error *err);
/* Runs what is queued, then ends the threads. NULL is a no-op. */
void api_pool_destroy(api_pool *pool);
/* Queues a task once. A task that is running runs once more, never twice at the same time.
 * [any-thread] */
void api_pool_add(api_pool *pool, api_task *task);
/* Within `run`: the task is never run again by a call of api_pool_add before now, so that it may be
 * freed. False where it is due: return from `run` and it runs again. */
bool api_pool_finish(api_pool *pool, api_task *task);

#endif
