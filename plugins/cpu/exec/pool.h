/* SPDX-License-Identifier: MIT
 *
 * pool.h: the threads of a device and their barrier. The caller gives them work; the queue orders
 * it (queue.c).
 */
#ifndef TANDEM_CPU_POOL_H
#define TANDEM_CPU_POOL_H

#include <pthread.h>
#include <sched.h>

#include "plugins/cpu/cpu.h"

/* One worker's part of a job. */
typedef void (*cpu_pool_fn)(void *arg, cpu_worker *w);

/* A pool of n_thread workers (>= 1): n_thread - 1 threads of its own, and the caller of
 * cpu_pool_run. `cores` (copied; NULL: any) are the processors that the threads stay on, each on
 * its own one where there are enough of them. TDM_RESOURCE_EXHAUSTED without memory or threads.
 * Destroyed with cpu_pool_destroy. [setup] */
tdm_status cpu_pool_create(const tdm_host *host, int32_t n_thread, const cpu_set_t *cores,
                           cpu_pool **pool_out, tdm_error *err);

/* Ends and joins the threads; NULL is a no-op. No job may be under way. [setup] */
void cpu_pool_destroy(cpu_pool *pool);

/* Runs fn(arg, w) on every worker, the calling thread being worker 0, and returns when all are
 * done. Callers from several threads take turns; a worker must not call it from within a job, which
 * would deadlock. [any-thread] */
void cpu_pool_run(cpu_pool *pool, cpu_pool_fn fn, void *arg);

/* The same, if no job is under way; false, and nothing done, where one is. [any-thread] */
bool cpu_pool_try_run(cpu_pool *pool, cpu_pool_fn fn, void *arg);

/* Waits until every worker of the pool has called it. What they wrote before, all can read
 * afterwards. Only within a job, in which every worker calls it equally often. [worker] */
void cpu_worker_barrier(cpu_worker *w);

/* Moves the calling thread to the processor of worker 0; without effect on a pool that is not
 * pinned. For threads that the plugin owns, or whose affinity the caller restores. [any-thread] */
void cpu_pool_pin_caller(const cpu_pool *pool);

/* Moves the calling thread to the pool's processors until cpu_pool_leave, which restores its
 * affinity: memory that it touches first is then placed where the workers reach it fastest. Without
 * effect on a pool that is not pinned. [any-thread] */
typedef struct cpu_pool_visit {
    cpu_set_t before;
    bool has_moved;
} cpu_pool_visit;
cpu_pool_visit cpu_pool_enter(const cpu_pool *pool);
void cpu_pool_leave(const cpu_pool_visit *visit);

/* True if there were at least as many processors as workers when the pool was made.
 * [any-thread] */
bool cpu_pool_has_core_each(const cpu_pool *pool);

/* pthread_create with every signal blocked: signals are for the program's own threads.
 * [any-thread] */
int cpu_thread_start(pthread_t *thread_out, void *(*main)(void *), void *arg);

#endif
