/* SPDX-License-Identifier: MIT
 *
 * jobs.c: see jobs.h.
 */
#include "core/base/jobs.h"

#include <string.h>

enum {
    MAX_LOCAL_SIGNALS = 8,
    MIN_BLOCK_SIZE = 256 /* bytes of a job's arrays */
};

tdm_status tdm_jobs_init(tdm_jobs *jobs, const tdm_host *host, const char *name, tdm_error *err) {
    *jobs = (tdm_jobs){.host = host, .name = name};
    if (pthread_mutex_init(&jobs->mutex, NULL) == 0) return TDM_OK;
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no mutex", name);
}

static void job_free(const tdm_host *host, tdm_job *job) {
    if (job->block != NULL) host->free(host->context, job->block, job->block_size);
    host->free(host->context, job, sizeof *job);
}

void tdm_jobs_destroy(tdm_jobs *jobs) {
    for (tdm_job *job = jobs->unused; job != NULL;) {
        tdm_job *next = job->next;
        job_free(jobs->host, job);
        job = next;
    }
    pthread_mutex_destroy(&jobs->mutex);
}

/* An unused job with room for this many points; NULL without memory. */
static tdm_job *job_get(tdm_jobs *jobs, size_t n_point) {
    const tdm_host *host = jobs->host;
    const size_t block_size = n_point * sizeof(tdm_point);
    pthread_mutex_lock(&jobs->mutex);
    tdm_job *job = jobs->unused;
    if (job != NULL) jobs->unused = job->next;
    pthread_mutex_unlock(&jobs->mutex);
    if (job == NULL) {
        job = host->alloc(host->context, sizeof *job, 0);
        if (job == NULL) return NULL;
        memset(job, 0, sizeof *job);
    }
    if (job->block != NULL && job->block_size >= block_size) return job;
    if (job->block != NULL) host->free(host->context, job->block, job->block_size);
    job->block_size = block_size > MIN_BLOCK_SIZE ? block_size : MIN_BLOCK_SIZE;
    job->block = host->alloc(host->context, job->block_size, 0);
    if (job->block != NULL) return job;
    job_free(host, job);
    return NULL;
}

tdm_status tdm_job_make(tdm_jobs *jobs, tdm_plan *plan, const tdm_point *waits, int32_t n_wait,
                        const tdm_point *signals, int32_t n_signal, tdm_job **job_out,
                        tdm_error *err) {
    if (n_wait < 0 || n_signal < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: %d waits and %d signals", jobs->name,
                        (int)n_wait, (int)n_signal);
    tdm_job *job = job_get(jobs, (size_t)n_wait + (size_t)n_signal);
    if (job == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory to submit a computation",
                        jobs->name);
    job->next = NULL;
    job->plan = plan;
    job->waits = job->block;
    job->signals = job->waits + n_wait;
    job->n_wait = n_wait;
    job->n_signal = n_signal;
    if (n_wait > 0) memcpy(job->waits, waits, (size_t)n_wait * sizeof *waits);
    if (n_signal > 0) memcpy(job->signals, signals, (size_t)n_signal * sizeof *signals);
    *job_out = job;
    return TDM_OK;
}

void tdm_jobs_push(tdm_jobs *jobs, tdm_job *job) {
    if (jobs->last != NULL)
        jobs->last->next = job;
    else
        jobs->first = job;
    jobs->last = job;
}

tdm_job *tdm_jobs_pop(tdm_jobs *jobs) {
    tdm_job *job = jobs->first;
    if (job == NULL) return NULL;
    jobs->first = job->next;
    if (jobs->first == NULL) jobs->last = NULL;
    return job;
}

tdm_status tdm_job_wait(const tdm_jobs *jobs, const tdm_job *job, tdm_error *err) {
    for (int32_t i = 0; i < job->n_wait; i++) {
        tdm_status status = jobs->host->semaphore->wait(job->waits[i].semaphore,
                                                        job->waits[i].value, TDM_WAIT_FOREVER, err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}

static void points_settle(const tdm_jobs *jobs, const tdm_point *points, int32_t n,
                          tdm_status status, const tdm_error *status_err) {
    for (int32_t i = 0; i < n; i++) {
        if (status == TDM_OK)
            jobs->host->semaphore->signal(points[i].semaphore, points[i].value);
        else
            jobs->host->semaphore->fail(points[i].semaphore, status, status_err);
    }
}

static void job_recycle(tdm_jobs *jobs, tdm_job *job) {
    pthread_mutex_lock(&jobs->mutex);
    job->next = jobs->unused;
    jobs->unused = job;
    pthread_mutex_unlock(&jobs->mutex);
}

/* The job is recycled before the signals where these fit into `points`. So a caller that submits
 * again after the signal finds this job, and no second one is allocated. */
void tdm_job_settle(tdm_jobs *jobs, tdm_job *job, tdm_status status, const tdm_error *status_err) {
    tdm_point points[MAX_LOCAL_SIGNALS];
    const int32_t n = job->n_signal;
    if (n <= MAX_LOCAL_SIGNALS) {
        memcpy(points, job->signals, (size_t)n * sizeof *points);
        job_recycle(jobs, job);
        points_settle(jobs, points, n, status, status_err);
    } else {
        points_settle(jobs, job->signals, n, status, status_err);
        job_recycle(jobs, job);
    }
}
