/* SPDX-License-Identifier: MIT
 *
 * worker.c: see worker.h.
 */
#include "core/device/worker.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/device/runtime.h"

typedef struct worker_job worker_job;

struct worker_job {
    worker_job *next;
    tdm_job_fn run;
    void *owner;
    tdm_point waits[TDM_WORKER_MAX_POINTS];
    tdm_point signals[TDM_WORKER_MAX_POINTS];
    int32_t n_wait, n_signal;
};

struct tdm_worker {
    pthread_t thread;
    pthread_mutex_t mutex; /* of the lists and is_stopping */
    pthread_cond_t changed;
    worker_job *first, *last; /* submitted, oldest first */
    worker_job *unused;
    bool is_stopping;
};

static void job_do(tdm_worker *worker, worker_job *job) {
    tdm_error err = {0};
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < job->n_wait && status == TDM_OK; i++)
        status = tdm_semaphore_ops.wait(job->waits[i].semaphore, job->waits[i].value,
                                        TDM_WAIT_FOREVER, &err);
    if (status == TDM_OK) status = job->run(job->owner, &err);
    tdm_point signals[TDM_WORKER_MAX_POINTS];
    int32_t n_signal = job->n_signal;
    memcpy(signals, job->signals, sizeof signals);
    /* Recycled before the signals: a caller that waits for them and submits again finds this job,
     * and no second one is allocated. */
    pthread_mutex_lock(&worker->mutex);
    job->next = worker->unused;
    worker->unused = job;
    pthread_mutex_unlock(&worker->mutex);
    for (int32_t i = 0; i < n_signal; i++) {
        if (status == TDM_OK)
            tdm_semaphore_ops.signal(signals[i].semaphore, signals[i].value);
        else
            tdm_semaphore_ops.fail(signals[i].semaphore, status, &err);
    }
}

static void *worker_main(void *arg) {
    tdm_worker *worker = arg;
    for (;;) {
        pthread_mutex_lock(&worker->mutex);
        while (worker->first == NULL && !worker->is_stopping)
            pthread_cond_wait(&worker->changed, &worker->mutex);
        worker_job *job = worker->first;
        if (job != NULL) {
            worker->first = job->next;
            if (worker->first == NULL) worker->last = NULL;
        }
        pthread_mutex_unlock(&worker->mutex);
        if (job == NULL) return NULL;
        job_do(worker, job);
    }
}

tdm_status tdm_worker_create(tdm_worker **worker_out, tdm_error *err) {
    tdm_worker *worker = calloc(1, sizeof *worker);
    if (worker == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "queue: out of memory");
    pthread_mutex_init(&worker->mutex, NULL);
    pthread_cond_init(&worker->changed, NULL);
    int rc = pthread_create(&worker->thread, NULL, worker_main, worker);
    if (rc != 0) {
        pthread_cond_destroy(&worker->changed);
        pthread_mutex_destroy(&worker->mutex);
        free(worker);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no thread for a queue: %s", strerror(rc));
    }
    *worker_out = worker;
    return TDM_OK;
}

void tdm_worker_destroy(tdm_worker *worker) {
    if (worker == NULL) return;
    pthread_mutex_lock(&worker->mutex);
    worker->is_stopping = true;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
    pthread_join(worker->thread, NULL);
    for (worker_job *job = worker->unused; job != NULL;) {
        worker_job *next = job->next;
        free(job);
        job = next;
    }
    pthread_cond_destroy(&worker->changed);
    pthread_mutex_destroy(&worker->mutex);
    free(worker);
}

tdm_status tdm_worker_submit(tdm_worker *worker, tdm_job_fn run, void *owner,
                             const tdm_point *waits, int32_t n_wait, const tdm_point *signals,
                             int32_t n_signal, tdm_error *err) {
    pthread_mutex_lock(&worker->mutex);
    worker_job *job = worker->unused;
    if (job != NULL) worker->unused = job->next;
    pthread_mutex_unlock(&worker->mutex);
    if (job == NULL) job = malloc(sizeof *job);
    if (job == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "queue: out of memory");
    if (n_wait > 0) memcpy(job->waits, waits, (size_t)n_wait * sizeof *waits);
    if (n_signal > 0) memcpy(job->signals, signals, (size_t)n_signal * sizeof *signals);
    job->n_wait = n_wait;
    job->n_signal = n_signal;
    job->run = run;
    job->owner = owner;
    job->next = NULL;
    pthread_mutex_lock(&worker->mutex);
    if (worker->last != NULL)
        worker->last->next = job;
    else
        worker->first = job;
    worker->last = job;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->mutex);
    return TDM_OK;
}
