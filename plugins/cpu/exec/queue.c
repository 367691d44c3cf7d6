/* SPDX-License-Identifier: MIT
 *
 * queue.c: computations in the order in which they were given, on a thread of the queue's own,
 * which is also worker 0 of the pool while one runs. Jobs are recycled, so that steady use
 * allocates nothing.
 */
#include "plugins/cpu/exec/queue.h"

#include "core/base/params.h"
#include "plugins/cpu/exec/plan.h"
#include "plugins/cpu/exec/pool.h"
#include "plugins/cpu/exec/spin.h"

enum { MAX_LOCAL_SIGNALS = 8 };

typedef struct queue_job {
    struct queue_job *next;
    tdm_plan *plan;
    tdm_point *waits; /* this and the next lie in `block` */
    tdm_point *signals;
    int32_t n_wait;
    int32_t n_signal;
    void *block;
    size_t block_size;
} queue_job;

struct tdm_queue {
    cpu_device *device;
    pthread_t thread;
    pthread_mutex_t mutex; /* over the lists and is_ending */
    pthread_cond_t changed;
    queue_job *first; /* submitted, oldest first */
    queue_job *last;
    queue_job *unused;
    bool is_ending;
    cpu_scratch scratch;       /* of its plans */
    _Atomic uint64_t progress; /* nodes run */
    /* jobs in the list, plus one when ending: what the thread spins on */
    _Atomic int32_t n_pending;
    cpu_spin_time spin_time;
};

static const tdm_host_semaphore_ops *semaphore_ops(const tdm_queue *queue) {
    return queue->device->host->semaphore;
}

static void job_free(const tdm_host *host, queue_job *job) {
    if (job->block != NULL) host->free(host->context, job->block, job->block_size);
    host->free(host->context, job, sizeof *job);
}

static void job_recycle(tdm_queue *queue, queue_job *job) {
    pthread_mutex_lock(&queue->mutex);
    job->next = queue->unused;
    queue->unused = job;
    pthread_mutex_unlock(&queue->mutex);
}

static tdm_status job_wait(tdm_queue *queue, const queue_job *job, tdm_error *err) {
    for (int32_t i = 0; i < job->n_wait; i++) {
        tdm_status status = semaphore_ops(queue)->wait(job->waits[i].semaphore, job->waits[i].value,
                                                       TDM_WAIT_FOREVER, err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}

static void points_settle(tdm_queue *queue, const tdm_point *points, int32_t n, tdm_status status,
                          const tdm_error *err) {
    for (int32_t i = 0; i < n; i++) {
        if (status == TDM_OK)
            semaphore_ops(queue)->signal(points[i].semaphore, points[i].value);
        else
            semaphore_ops(queue)->fail(points[i].semaphore, status, err);
    }
}

static void job_run(tdm_queue *queue, queue_job *job) {
    tdm_error err = {.struct_size = sizeof err};
    tdm_status status = job_wait(queue, job, &err);
    if (status == TDM_OK) status = cpu_plan_run(job->plan, &queue->progress, &err);
    /* Recycled before the signal where the points fit aside: the caller that waits for it and
     * submits the next computation then finds this very job, and never allocates another. */
    if (job->n_signal <= MAX_LOCAL_SIGNALS) {
        tdm_point points[MAX_LOCAL_SIGNALS];
        int32_t n = job->n_signal;
        memcpy(points, job->signals, (size_t)n * sizeof points[0]);
        job_recycle(queue, job);
        points_settle(queue, points, n, status, &err);
    } else {
        points_settle(queue, job->signals, job->n_signal, status, &err);
        job_recycle(queue, job);
    }
}

/* The next job; NULL when the queue ends and nothing is left. */
static queue_job *job_next(tdm_queue *queue) {
    cpu_spin spin = {0};
    while (atomic_load_explicit(&queue->n_pending, memory_order_acquire) == 0)
        if (!cpu_spin_continue(&spin, &queue->spin_time, NULL, NULL)) break;
    if (atomic_load_explicit(&queue->n_pending, memory_order_acquire) != 0)
        cpu_spin_succeeded(&spin, &queue->spin_time);
    pthread_mutex_lock(&queue->mutex);
    while (queue->first == NULL && !queue->is_ending)
        pthread_cond_wait(&queue->changed, &queue->mutex);
    queue_job *job = queue->first;
    if (job != NULL) {
        queue->first = job->next;
        if (queue->first == NULL) queue->last = NULL;
        atomic_fetch_sub_explicit(&queue->n_pending, 1, memory_order_relaxed);
    }
    pthread_mutex_unlock(&queue->mutex);
    return job;
}

static void *queue_main(void *arg) {
    tdm_queue *queue = arg;
    cpu_pool_pin_caller(queue->device->pool);
    for (;;) {
        queue_job *job = job_next(queue);
        if (job == NULL) return NULL;
        job_run(queue, job);
    }
}

static tdm_status queue_create(tdm_device *device, tdm_queue **queue_out, tdm_error *err) {
    const tdm_host *host = device->host;
    if (!TDM_HAS(host, semaphore))
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "cpu: the host offers no semaphores");
    tdm_queue *queue = host->alloc(host->context, sizeof *queue, 0);
    if (queue == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cpu: no memory for a queue");
    memset(queue, 0, sizeof *queue);
    queue->device = device;
    atomic_store_explicit(&queue->spin_time, CPU_SPIN_START, memory_order_relaxed);
    tdm_status status = cpu_scratch_create(host, &queue->scratch, err);
    if (status != TDM_OK) {
        host->free(host->context, queue, sizeof *queue);
        return status;
    }
    int rc = pthread_mutex_init(&queue->mutex, NULL);
    if (rc == 0 && (rc = pthread_cond_init(&queue->changed, NULL)) != 0)
        pthread_mutex_destroy(&queue->mutex);
    if (rc == 0 && (rc = cpu_thread_start(&queue->thread, queue_main, queue)) != 0) {
        pthread_cond_destroy(&queue->changed);
        pthread_mutex_destroy(&queue->mutex);
    }
    if (rc != 0) {
        cpu_scratch_destroy(&queue->scratch);
        host->free(host->context, queue, sizeof *queue);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cpu: cannot start a queue: %s", strerror(rc));
    }
    *queue_out = queue;
    return TDM_OK;
}

static void queue_destroy(tdm_queue *queue) {
    if (queue == NULL) return;
    const tdm_host *host = queue->device->host;
    pthread_mutex_lock(&queue->mutex);
    queue->is_ending = true;
    atomic_fetch_add_explicit(&queue->n_pending, 1, memory_order_release);
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    pthread_join(queue->thread, NULL);
    for (queue_job *job = queue->unused; job != NULL;) {
        queue_job *next = job->next;
        job_free(host, job);
        job = next;
    }
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->mutex);
    cpu_scratch_destroy(&queue->scratch);
    host->free(host->context, queue, sizeof *queue);
}

/* An unused job with room for these arrays; NULL without memory. */
static queue_job *job_get(tdm_queue *queue, int32_t n_wait, int32_t n_signal) {
    const tdm_host *host = queue->device->host;
    size_t block_size = ((size_t)n_wait + (size_t)n_signal) * sizeof(tdm_point);
    pthread_mutex_lock(&queue->mutex);
    queue_job *job = queue->unused;
    if (job != NULL) queue->unused = job->next;
    pthread_mutex_unlock(&queue->mutex);
    if (job == NULL) {
        job = host->alloc(host->context, sizeof *job, 0);
        if (job == NULL) return NULL;
        memset(job, 0, sizeof *job);
    }
    if (job->block == NULL || job->block_size < block_size) {
        if (job->block != NULL) host->free(host->context, job->block, job->block_size);
        job->block_size = block_size > 256 ? block_size : 256;
        job->block = host->alloc(host->context, job->block_size, 0);
        if (job->block == NULL) {
            job_free(host, job);
            return NULL;
        }
    }
    job->waits = job->block;
    job->signals = job->waits + n_wait;
    job->n_wait = n_wait;
    job->n_signal = n_signal;
    return job;
}

static tdm_status queue_compute(tdm_queue *queue, tdm_plan *plan, const tdm_point *waits,
                                int32_t n_wait, const tdm_point *signals, int32_t n_signal,
                                tdm_error *err) {
    if (cpu_plan_scratch(plan) != &queue->scratch)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "cpu: the plan belongs to another queue");
    if (!cpu_plan_is_bound(plan))
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "cpu: the plan is not bound");
    if (n_wait < 0 || n_signal < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "cpu: %d waits and %d signals", (int)n_wait,
                        (int)n_signal);
    queue_job *job = job_get(queue, n_wait, n_signal);
    if (job == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cpu: no memory to submit a computation");
    job->plan = plan;
    if (n_wait > 0) memcpy(job->waits, waits, (size_t)n_wait * sizeof waits[0]);
    if (n_signal > 0) memcpy(job->signals, signals, (size_t)n_signal * sizeof signals[0]);
    job->next = NULL;
    pthread_mutex_lock(&queue->mutex);
    if (queue->last != NULL)
        queue->last->next = job;
    else
        queue->first = job;
    queue->last = job;
    atomic_fetch_add_explicit(&queue->n_pending, 1, memory_order_release);
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    return TDM_OK;
}

static tdm_status plan_prepare(tdm_queue *queue, const tdm_graph *graph,
                               const tdm_plan_params *params, tdm_plan **plan_out, tdm_error *err) {
    tdm_status status = tdm_plan_flags_check("cpu", params, err);
    if (status != TDM_OK) return status;
    return cpu_plan_create(queue->device, &queue->scratch, graph, plan_out, err);
}

static tdm_status plan_get_info(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err) {
    (void)err;
    tdm_plan_info info = {.struct_size = sizeof info};
    cpu_plan_sizes(plan, &info.scratch_size, &info.host_size);
    tdm_struct_write(info_out, &info, sizeof info);
    return TDM_OK;
}

static uint64_t queue_progress(const tdm_queue *queue) {
    return atomic_load_explicit(&queue->progress, memory_order_relaxed);
}

const tdm_queue_ops cpu_queue_ops = {
    .struct_size = sizeof(tdm_queue_ops),
    .create = queue_create,
    .destroy = queue_destroy,
    .graph_prepare = plan_prepare,
    .plan_destroy = cpu_plan_destroy,
    .plan_get_info = plan_get_info,
    .plan_bind = cpu_plan_bind,
    .graph_compute = queue_compute,
    .progress = queue_progress,
};
