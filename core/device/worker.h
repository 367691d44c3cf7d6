/* SPDX-License-Identifier: MIT
 *
 * worker.h: a thread that runs jobs in order of submission: waits for points, runs the job,
 * signals. Used for devices whose plugin has no queues (queue_adapter.h), and for adapted devices
 * that have plans with stages (adapter_queue.c). Jobs are recycled, so that submitting allocates
 * nothing in steady use.
 */
#ifndef TANDEM_CORE_WORKER_H
#define TANDEM_CORE_WORKER_H

#include "tandem/semaphore.h"

#define TDM_WORKER_MAX_POINTS 16 /* waits, and signals, of one job */

typedef struct tdm_worker tdm_worker;

/* What a job does, on the worker's thread. A failure poisons the job's signals. */
typedef tdm_status (*tdm_job_fn)(void *owner, tdm_error *err);

/* Starts the thread. [any-thread] */
tdm_status tdm_worker_create(tdm_worker **worker_out, tdm_error *err);
/* Runs all submitted jobs, then ends the thread; NULL is a no-op. [any-thread] */
void tdm_worker_destroy(tdm_worker *worker);

/* Appends a job: once all waits are reached, the thread calls run(owner), then signals. At most
 * TDM_WORKER_MAX_POINTS waits and as many signals, which the caller must check. Does not wait.
 * `owner` stays valid until the signals. [queue-serial] */
tdm_status tdm_worker_submit(tdm_worker *worker, tdm_job_fn run, void *owner,
                             const tdm_point *waits, int32_t n_wait, const tdm_point *signals,
                             int32_t n_signal, tdm_error *err);

#endif
