/* SPDX-License-Identifier: MIT
 *
 * jobs.h: the list of computations that were submitted to a queue and have not begun, in their
 * order. A job that has ended is used again, so that steady use allocates nothing. The queue has
 * the threads that take jobs from the list and run them.
 */
#ifndef TANDEM_BASE_JOBS_H
#define TANDEM_BASE_JOBS_H

#include <pthread.h>

#include "tandem/host.h"
#include "tandem/queue.h"

typedef struct tdm_job {
    struct tdm_job *next;
    tdm_plan *plan;
    tdm_point *waits;   /* [n_wait] in `block` */
    tdm_point *signals; /* [n_signal] in `block` */
    int32_t n_wait, n_signal;
    void *block;       /* of tdm_host.alloc; kept when the job is used again */
    size_t block_size; /* bytes */
} tdm_job;

typedef struct tdm_jobs {
    const tdm_host *host;  /* its semaphores and memory; outlives the list */
    const char *name;      /* of the device, for messages */
    pthread_mutex_t mutex; /* of both lists that follow */
    tdm_job *first, *last; /* waiting jobs, oldest first */
    tdm_job *unused;
} tdm_jobs;

/* Makes an empty list. Released with tdm_jobs_destroy, when no job is left in it. [setup] */
tdm_status tdm_jobs_init(tdm_jobs *jobs, const tdm_host *host, const char *name, tdm_error *err);
void tdm_jobs_destroy(tdm_jobs *jobs);

/* Makes a job with copies of the arrays; it is in no list yet. TDM_RESOURCE_EXHAUSTED without
 * memory. tdm_job_settle takes it back. [any-thread] */
tdm_status tdm_job_make(tdm_jobs *jobs, tdm_plan *plan, const tdm_point *waits, int32_t n_wait,
                        const tdm_point *signals, int32_t n_signal, tdm_job **job_out,
                        tdm_error *err);

/* Appends a job, or takes the oldest one out (NULL = there is none). The caller holds the mutex. */
void tdm_jobs_push(tdm_jobs *jobs, tdm_job *job);
tdm_job *tdm_jobs_pop(tdm_jobs *jobs);

/* Waits, without a limit, until all points of job->waits are reached, or returns the failure of the
 * first that is poisoned. The caller does not hold the mutex. [any-thread] */
tdm_status tdm_job_wait(const tdm_jobs *jobs, const tdm_job *job, tdm_error *err);

/* Signals the job's points on TDM_OK, else fails them with `status` and *status_err (nullable). The
 * job becomes an unused one; the caller uses it no more. The caller does not hold the mutex.
 * [any-thread] */
void tdm_job_settle(tdm_jobs *jobs, tdm_job *job, tdm_status status, const tdm_error *status_err);

#endif
