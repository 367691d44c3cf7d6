/* SPDX-License-Identifier: MIT
 *
 * queue.c: see queue.h.
 */
#include "plugins/gpu/queue/queue.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

typedef struct queue_job queue_job;

/* The part of a queue that its jobs refer to. It outlives the queue: the core may still wait for
 * signals whose queue has been destroyed. Its mutex is over all fields but those that are
 * constant. */
typedef struct ring {
    pthread_mutex_t mutex;
    pthread_cond_t left;            /* signalled when no thread is in the driver's wait any more */
    const gpu_queue_driver *driver; /* constant */
    void *context;                  /* constant; not used once the ring is closed */
    char name[32];                  /* of the device; constant */
    queue_job *unused;              /* recycled jobs, so that steady use allocates nothing */
    queue_job *open;                /* submitted jobs with signals that threads may wait for */
    int32_t n_ref;                  /* 1 of the queue, and 1 of each job that is in use */
    int32_t n_inside;               /* threads in the driver's wait */
    bool is_closed; /* the queue is destroyed: its computations have ended, and each open job has
                       its status */
} ring;

/* A computation, from gpu_queue_compute until nothing refers to its signals. */
struct queue_job {
    queue_job *next;                     /* in the queue, or in the ring's unused jobs */
    queue_job *open_before, *open_after; /* in the ring's open jobs */
    gpu_queue *queue;                    /* until it is submitted */
    ring *ring;
    void *work;
    tdm_point *points; /* n_wait, then n_signal */
    int32_t n_wait;
    int32_t n_signal;
    int32_t room;   /* points allocated */
    int32_t n_open; /* waits not reached, and 1 until all are registered; under the queue's mutex */
    int32_t n_ref;  /* signals attached, and 1 until it is submitted; under the ring's mutex */
    gpu_ticket ticket; /* once it is submitted */
    bool is_open;      /* it is in the ring's open jobs */
    tdm_status status; /* the first failure of a wait or of submitting; once the ring is closed, how
                          the computation ended */
    tdm_error err;     /* the message of status */
};

struct gpu_queue {
    const tdm_host_semaphore_ops *semaphore;
    ring *ring;
    gpu_ticket last_ticket;  /* of the last submitted job; used by the thread that submits */
    bool has_submitted;      /* likewise; false = last_ticket means nothing */
    pthread_mutex_t mutex;   /* over the fields below */
    pthread_cond_t idle;     /* signalled when no job is left to submit */
    queue_job *first, *last; /* jobs that are not submitted, oldest first */
    bool is_submitting;      /* a thread runs jobs_submit, or is_handed */
    pthread_t thread;        /* submits where that may wait; created when it is first needed */
    pthread_cond_t handed;   /* signalled when is_handed or is_ending becomes true */
    bool has_thread;
    bool is_handed; /* `thread` is to run jobs_submit, and has not begun */
    bool is_ending; /* `thread` is to end */
};

/* ---- Jobs and the ring ----------------------------------------------------------------------- */

static void job_free(queue_job *job) {
    free(job->points);
    free(job);
}

static ring *ring_create(const char *name, const gpu_queue_driver *driver, void *context) {
    ring *r = calloc(1, sizeof *r);
    if (r == NULL) return NULL;
    pthread_mutex_init(&r->mutex, NULL);
    pthread_cond_init(&r->left, NULL);
    snprintf(r->name, sizeof r->name, "%s", name);
    r->driver = driver;
    r->context = context;
    r->n_ref = 1;
    return r;
}

/* Drops a reference, and frees the ring with the last one. The mutex is held; it is released. */
static void ring_drop(ring *r) {
    bool is_last = --r->n_ref == 0;
    pthread_mutex_unlock(&r->mutex);
    if (!is_last) return;
    while (r->unused != NULL) {
        queue_job *job = r->unused;
        r->unused = job->next;
        job_free(job);
    }
    pthread_cond_destroy(&r->left);
    pthread_mutex_destroy(&r->mutex);
    free(r);
}

/* With the ring's mutex held. */
static void open_add(ring *r, queue_job *job) {
    job->open_before = NULL;
    job->open_after = r->open;
    if (r->open != NULL) r->open->open_before = job;
    r->open = job;
    job->is_open = true;
}

static void open_remove(ring *r, queue_job *job) {
    if (!job->is_open) return;
    if (job->open_before != NULL)
        job->open_before->open_after = job->open_after;
    else
        r->open = job->open_after;
    if (job->open_after != NULL) job->open_after->open_before = job->open_before;
    job->is_open = false;
}

static void job_drop(queue_job *job) {
    ring *r = job->ring;
    pthread_mutex_lock(&r->mutex);
    if (--job->n_ref > 0) {
        pthread_mutex_unlock(&r->mutex);
        return;
    }
    open_remove(r, job);
    job->next = r->unused;
    r->unused = job;
    ring_drop(r);
}

/* An unused job with room for the points; NULL without memory. */
static queue_job *job_get(ring *r, int32_t n_point) {
    pthread_mutex_lock(&r->mutex);
    queue_job *job = r->unused;
    if (job != NULL) r->unused = job->next;
    pthread_mutex_unlock(&r->mutex);
    if (job == NULL) job = calloc(1, sizeof *job);
    if (job == NULL) return NULL;
    if (n_point > job->room) {
        tdm_point *points = realloc(job->points, (size_t)n_point * sizeof *points);
        if (points == NULL) {
            job_free(job);
            return NULL;
        }
        job->points = points;
        job->room = n_point;
    }
    pthread_mutex_lock(&r->mutex);
    r->n_ref++;
    pthread_mutex_unlock(&r->mutex);
    job->ring = r;
    job->n_ref = 1;
    job->status = TDM_OK;
    return job;
}

/* ---- Waiting in the driver ------------------------------------------------------------------- */

/* tdm_native_wait.wait of a signal */
static tdm_status job_wait(void *context, uint64_t timeout_ns, tdm_error *err) {
    queue_job *job = context;
    ring *r = job->ring;
    pthread_mutex_lock(&r->mutex);
    if (r->is_closed) {
        tdm_status status = job->status;
        if (status != TDM_OK) tdm_fail(err, status, "%s", job->err.message);
        pthread_mutex_unlock(&r->mutex);
        return status;
    }
    r->n_inside++;
    pthread_mutex_unlock(&r->mutex);
    tdm_status status = r->driver->wait(r->context, &job->ticket, timeout_ns, err);
    pthread_mutex_lock(&r->mutex);
    if (--r->n_inside == 0) pthread_cond_broadcast(&r->left);
    pthread_mutex_unlock(&r->mutex);
    return status;
}

/* tdm_native_wait.release of a signal */
static void job_release(void *context) {
    job_drop(context);
}

/* ---- Submission ------------------------------------------------------------------------------ */

static tdm_status work_submit(gpu_queue *queue, queue_job *job, tdm_error *err) {
    ring *r = queue->ring;
    tdm_status status = r->driver->submit(r->context, job->work, &job->ticket, err);
    if (status != TDM_OK) return status;
    queue->last_ticket = job->ticket;
    queue->has_submitted = true;
    pthread_mutex_lock(&r->mutex);
    open_add(r, job);
    pthread_mutex_unlock(&r->mutex);
    return TDM_OK;
}

/* Attaches the driver's wait to a signal. Where the core cannot attach it, waits here and
 * signals. */
static void signal_attach(gpu_queue *queue, queue_job *job, const tdm_point *signal) {
    const tdm_host_semaphore_ops *semaphore = queue->semaphore;
    const tdm_native_wait wait = {
        .struct_size = sizeof wait, .context = job, .wait = job_wait, .release = job_release};
    tdm_error err = {0};
    pthread_mutex_lock(&job->ring->mutex);
    job->n_ref++;
    pthread_mutex_unlock(&job->ring->mutex);
    if (TDM_HAS(semaphore, attach) &&
        semaphore->attach(signal->semaphore, signal->value, &wait, NULL) == TDM_OK)
        return;
    tdm_status status = job->ring->driver->wait(job->ring->context, &job->ticket, UINT64_MAX, &err);
    if (status == TDM_OK)
        semaphore->signal(signal->semaphore, signal->value);
    else
        semaphore->fail(signal->semaphore, status, &err);
    job_drop(job);
}

static void job_submit(gpu_queue *queue, queue_job *job) {
    const tdm_host_semaphore_ops *semaphore = queue->semaphore;
    const tdm_point *signals = job->points + job->n_wait;
    if (job->status == TDM_OK) job->status = work_submit(queue, job, &job->err);
    for (int32_t i = 0; i < job->n_signal; i++)
        if (job->status == TDM_OK)
            signal_attach(queue, job, &signals[i]);
        else
            semaphore->fail(signals[i].semaphore, job->status, &job->err);
    job_drop(job);
}

static void jobs_submit(gpu_queue *queue, bool may_wait);

static void *thread_main(void *arg) {
    gpu_queue *queue = arg;
    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        while (!queue->is_handed && !queue->is_ending)
            pthread_cond_wait(&queue->handed, &queue->mutex);
        if (!queue->is_handed) break;
        queue->is_handed = false;
        jobs_submit(queue, true);
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

/* Hands the submitting to the queue's thread. False where there is no thread and none can be
 * created. With the mutex held. */
static bool thread_hand(gpu_queue *queue) {
    if (!queue->has_thread)
        queue->has_thread = pthread_create(&queue->thread, NULL, thread_main, queue) == 0;
    if (!queue->has_thread) return false;
    queue->is_handed = true;
    pthread_cond_signal(&queue->handed);
    return true;
}

static bool is_full(const gpu_queue *queue) {
    const gpu_queue_driver *driver = queue->ring->driver;
    return driver->is_full != NULL && driver->is_full(queue->ring->context, queue->first->work);
}

/* Submits jobs from the front while all of their waits are reached. is_submitting is true, so that
 * no other thread does. The mutex is held before and after, but not while a job is submitted.
 * Without may_wait the queue's thread continues where the driver is full. */
static void jobs_submit(gpu_queue *queue, bool may_wait) {
    while (queue->first != NULL && queue->first->n_open == 0) {
        if (!may_wait && is_full(queue) && thread_hand(queue)) return;
        queue_job *job = queue->first;
        queue->first = job->next;
        if (queue->first == NULL) queue->last = NULL;
        pthread_mutex_unlock(&queue->mutex);
        job_submit(queue, job);
        pthread_mutex_lock(&queue->mutex);
    }
    queue->is_submitting = false;
    if (queue->first == NULL) pthread_cond_broadcast(&queue->idle);
}

/* Submits what can be submitted, unless another thread is doing so: one at a time keeps the order.
 * With the mutex held. */
static void queue_submit(gpu_queue *queue) {
    if (queue->is_submitting) return; /* that thread submits this job too */
    queue->is_submitting = true;
    jobs_submit(queue, false);
}

/* One of the points that a job waits for is reached or has failed. Nothing here uses the queue
 * after the unlock: another thread may destroy it then. */
static void job_point_reached(void *user, tdm_status status, const tdm_error *err) {
    queue_job *job = user;
    gpu_queue *queue = job->queue;
    pthread_mutex_lock(&queue->mutex);
    if (status != TDM_OK && job->status == TDM_OK) {
        job->status = status;
        tdm_fail(&job->err, status, "%s", err != NULL ? err->message : tdm_status_text(status));
    }
    job->n_open--;
    queue_submit(queue);
    pthread_mutex_unlock(&queue->mutex);
}

/* ---- The queue ------------------------------------------------------------------------------- */

tdm_status gpu_queue_create(const char *name, const tdm_host_semaphore_ops *semaphore,
                            const gpu_queue_driver *driver, void *context, gpu_queue **queue_out,
                            tdm_error *err) {
    gpu_queue *queue = calloc(1, sizeof *queue);
    if (queue != NULL) queue->ring = ring_create(name, driver, context);
    if (queue == NULL || queue->ring == NULL) {
        free(queue);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a queue", name);
    }
    queue->semaphore = semaphore;
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->idle, NULL);
    pthread_cond_init(&queue->handed, NULL);
    *queue_out = queue;
    return TDM_OK;
}

/* Waits until all submitted jobs have ended, or the device is lost, and stores the status of each
 * open job: job_wait returns it from then on, and the driver is not called any more. */
static void ring_close(gpu_queue *queue) {
    ring *r = queue->ring;
    tdm_error err = {0};
    if (queue->has_submitted)
        (void)r->driver->wait(r->context, &queue->last_ticket, UINT64_MAX, &err);
    pthread_mutex_lock(&r->mutex);
    for (queue_job *job = r->open; job != NULL; job = job->open_after)
        job->status = r->driver->wait(r->context, &job->ticket, UINT64_MAX, &job->err);
    r->is_closed = true;
    while (r->n_inside > 0) pthread_cond_wait(&r->left, &r->mutex);
    ring_drop(r);
}

void gpu_queue_destroy(gpu_queue *queue) {
    if (queue == NULL) return;
    pthread_mutex_lock(&queue->mutex);
    while (queue->first != NULL || queue->is_submitting)
        pthread_cond_wait(&queue->idle, &queue->mutex);
    queue->is_ending = true;
    pthread_cond_signal(&queue->handed);
    pthread_mutex_unlock(&queue->mutex);
    if (queue->has_thread) pthread_join(queue->thread, NULL);
    ring_close(queue);
    pthread_cond_destroy(&queue->handed);
    pthread_cond_destroy(&queue->idle);
    pthread_mutex_destroy(&queue->mutex);
    free(queue);
}

tdm_status gpu_queue_compute(gpu_queue *queue, void *work, const tdm_point *waits, int32_t n_wait,
                             const tdm_point *signals, int32_t n_signal, tdm_error *err) {
    if (n_wait < 0 || n_signal < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: %d waits and %d signals", queue->ring->name,
                        (int)n_wait, (int)n_signal);
    queue_job *job = job_get(queue->ring, n_wait + n_signal);
    if (job == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory to submit a computation",
                        queue->ring->name);
    job->queue = queue;
    job->work = work;
    job->n_wait = n_wait;
    job->n_signal = n_signal;
    job->n_open = n_wait + 1;
    job->next = NULL;
    if (n_wait > 0) memcpy(job->points, waits, (size_t)n_wait * sizeof *waits);
    if (n_signal > 0) memcpy(job->points + n_wait, signals, (size_t)n_signal * sizeof *signals);
    pthread_mutex_lock(&queue->mutex);
    if (queue->last != NULL)
        queue->last->next = job;
    else
        queue->first = job;
    queue->last = job;
    pthread_mutex_unlock(&queue->mutex);
    for (int32_t i = 0; i < n_wait; i++) {
        tdm_error why = {0};
        tdm_status status = queue->semaphore->on_reached(waits[i].semaphore, waits[i].value,
                                                         job_point_reached, job, &why);
        if (status != TDM_OK) job_point_reached(job, status, &why);
    }
    job_point_reached(job, TDM_OK, NULL);
    return TDM_OK;
}
