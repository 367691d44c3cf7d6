/* SPDX-License-Identifier: MIT
 *
 * jobs.h: the computations that a queue was given and has not run, in their order. A job that has
 * ended is used again, so that steady use allocates nothing. Threads that run them are the queue's.
 */
#ifndef TANDEM_BASE_JOBS_H
#define TANDEM_BASE_JOBS_H

#include <pthread.h>

#include "tandem/host.h"
#include "tandem/queue.h"

typedef struct tdm_job {
    struct tdm_job *next;
    tdm_plan *plan;
    tdm_point *waits; /* this and the next point into `block` */
    tdm_point *signals;
    int32_t n_wait, n_signal;
    void *block;
    size_t block_size;
} tdm_job;

typedef struct tdm_jobs {
    const tdm_host *host; /* with semaphores */
    const char *name;     /* of the device, for messages */
    pthread_mutex_t mutex;
    tdm_job *first, *last; /* under mutex, as all lists: oldest first */
    tdm_job *unused;
} tdm_jobs;

/* Makes an empty list. Released with tdm_jobs_destroy, when no job is left in it. */
tdm_status tdm_jobs_init(tdm_jobs *jobs, const tdm_host *host, const char *name, tdm_error *err);
void tdm_jobs_destroy(tdm_jobs *jobs);

/* Makes a job with copies of the arrays, which is in no list yet. */
tdm_status tdm_job_make(tdm_jobs *jobs, tdm_plan *plan, const tdm_point *waits, int32_t n_wait,
                        const tdm_point *signals, int32_t n_signal, tdm_job **job_out,
                        tdm_error *err);

/* Appends a job, or takes the oldest one out (NULL = there is none). The caller holds the mutex. */
void tdm_jobs_push(tdm_jobs *jobs, tdm_job *job);
tdm_job *tdm_jobs_pop(tdm_jobs *jobs);

/* Waits until all points are reached that the job waits for. */
tdm_status tdm_job_wait(const tdm_jobs *jobs, const tdm_job *job, tdm_error *err);

/* Signals the job's points, or fails them with the status and *status_err, and gives the job back
 * to the list. The caller does not hold the mutex. */
void tdm_job_settle(tdm_jobs *jobs, tdm_job *job, tdm_status status, const tdm_error *status_err);

#endif
