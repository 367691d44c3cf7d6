/* SPDX-License-Identifier: MIT
 *
 * worker.h: a thread that runs jobs in order of submission: waits for points, runs the job,
 * signals. It is the queue of devices without one (queue_adapter.h) and of plans with stages
 * (adapter.h). The caller owns the memory of a job, so that submitting allocates nothing.
 */
#ifndef TANDEM_CORE_WORKER_H
#define TANDEM_CORE_WORKER_H

#include <stdbool.h>

#include "tandem/semaphore.h"

#define TDM_WORKER_MAX_POINTS 16 /* waits, and signals, of one job */

typedef struct tdm_worker tdm_worker;
typedef struct tdm_job tdm_job;

/* All zero but `run`. Embedded in the object that it works on. */
struct tdm_job {
    tdm_status (*run)(tdm_job *job, tdm_error *err); /* on the worker's thread; its failure poisons
                                                        the signals */
    tdm_job *next;
    tdm_point waits[TDM_WORKER_MAX_POINTS];
    tdm_point signals[TDM_WORKER_MAX_POINTS];
    int32_t n_wait, n_signal;
    bool is_queued; /* owned by the worker: true from submission until just before the signals */
};

/* Starts the thread. [any-thread] */
tdm_status tdm_worker_create(tdm_worker **worker_out, tdm_error *err);
/* Runs all submitted jobs, then ends the thread; NULL is a no-op. [any-thread] */
void tdm_worker_destroy(tdm_worker *worker);

/* Waits until the last submission of the job has run, after which the owner may change the job.
 * [queue-serial] */
void tdm_worker_claim(tdm_worker *worker, const tdm_job *job);
/* Appends a claimed job; at most TDM_WORKER_MAX_POINTS of each. [queue-serial] */
void tdm_worker_submit(tdm_worker *worker, tdm_job *job, const tdm_point *waits, int32_t n_wait,
                       const tdm_point *signals, int32_t n_signal);

#endif
