/* SPDX-License-Identifier: MIT
 *
 * pool.c: see pool.h.
 */
#include "server/api/pool.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#define N_THREAD_MAX 16

struct api_pool {
    pthread_mutex_t lock;
    pthread_cond_t wakes;
    api_task *first, **last; /* the queue; the link that the next task is appended to */
    bool ends;               /* threads end when the queue is empty */
    int n_thread;
    pthread_t threads[N_THREAD_MAX];
};

/* The lock is held. */
static void queue_add(api_pool *pool, api_task *task) {
    task->is_queued = true;
    task->next = NULL;
    *pool->last = task;
    pool->last = &task->next;
    pthread_cond_signal(&pool->wakes);
}

static void *work(void *user) {
    api_pool *pool = user;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (pool->first == NULL && !pool->ends) pthread_cond_wait(&pool->wakes, &pool->lock);
        api_task *task = pool->first;
        if (task == NULL) break;
        pool->first = task->next;
        if (pool->first == NULL) pool->last = &pool->first;
        task->is_queued = task->is_due = false;
        task->is_running = true;
        bool is_finished = false;
        task->finished = &is_finished;
        pthread_mutex_unlock(&pool->lock);
        task->run(task);
        pthread_mutex_lock(&pool->lock);
        if (is_finished) continue; /* it may be freed */
        task->is_running = false;
        if (task->is_due) queue_add(pool, task);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

tdm_status api_pool_create(int n_thread, api_pool **out, tdm_error *err) {
    *out = NULL;
    api_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for threads");
    if (n_thread > N_THREAD_MAX) n_thread = N_THREAD_MAX;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wakes, NULL);
    pool->last = &pool->first;
    /* signals are for the main thread */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (pool->n_thread < n_thread &&
           pthread_create(&pool->threads[pool->n_thread], NULL, work, pool) == 0)
        pool->n_thread++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pool->n_thread < n_thread) {
        api_pool_destroy(pool);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cannot start a thread");
    }
    *out = pool;
    return TDM_OK;
}

void api_pool_destroy(api_pool *pool) {
    if (pool == NULL) return;
    pthread_mutex_lock(&pool->lock);
    pool->ends = true;
    pthread_cond_broadcast(&pool->wakes);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < pool->n_thread; i++) pthread_join(pool->threads[i], NULL);
    pthread_cond_destroy(&pool->wakes);
    pthread_mutex_destroy(&pool->lock);
    free(pool);
}

void api_pool_add(api_pool *pool, api_task *task) {
    pthread_mutex_lock(&pool->lock);
    if (task->is_running)
        task->is_due = true;
    else if (!task->is_queued)
        queue_add(pool, task);
    pthread_mutex_unlock(&pool->lock);
}

bool api_pool_finish(api_pool *pool, api_task *task) {
    pthread_mutex_lock(&pool->lock);
    const bool is_finished = !task->is_due;
    if (is_finished) *task->finished = true;
    pthread_mutex_unlock(&pool->lock);
    return is_finished;
}
