/* SPDX-License-Identifier: MIT
 *
 * worker.h: a thread that does jobs in the order in which they were given: waits for points, runs,
 * signals. It is the queue of devices that have none (queue_adapter.h) and of those that are lent with help
 * (adapter.h). What a job does is its owner's; so is its memory, so that submitting allocates nothing.
 */
#ifndef TANDEM_CORE_WORKER_H
#define TANDEM_CORE_WORKER_H

#include <stdbool.h>

#include "tandem/semaphore.h"

#define TDM_WORKER_MAX_POINTS 16 /* waits, and signals, of one job */

typedef struct tdm_worker tdm_worker;
typedef struct tdm_job tdm_job;

/* Zero but for `run`; embedded in what it works on. */
struct tdm_job {
    tdm_status (*run)(tdm_job *job, tdm_error *err); /* on the worker's thread; its failure poisons
                                                        the signals */
    tdm_job *next;
    tdm_point waits[TDM_WORKER_MAX_POINTS];
    tdm_point signals[TDM_WORKER_MAX_POINTS];
    int32_t n_wait, n_signal;
    bool is_queued; /* the worker's: from submission until just before its signals are out */
};

/* Starts the thread. [any-thread] */
tdm_status tdm_worker_create(tdm_worker **worker_out, tdm_error *err);
/* Does all that it was given, then ends; NULL is a no-op. [any-thread] */
void tdm_worker_destroy(tdm_worker *worker);

/* Waits until the job's last submission has run: its owner may then fill it in anew.
 * [queue-serial] */
void tdm_worker_claim(tdm_worker *worker, const tdm_job *job);
/* Appends a claimed job; at most TDM_WORKER_MAX_POINTS of each. [queue-serial] */
void tdm_worker_submit(tdm_worker *worker, tdm_job *job, const tdm_point *waits, int32_t n_wait,
                       const tdm_point *signals, int32_t n_signal);

#endif
