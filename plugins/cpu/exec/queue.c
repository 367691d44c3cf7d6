/* SPDX-License-Identifier: MIT
 *
 * queue.c: computations in the order in which they were given, on a thread of the queue's own,
 * which is also worker 0 of the pool while one runs. Jobs are recycled, so that steady use
 * allocates nothing.
 */
#include "plugins/cpu/exec/queue.h"

#include "core/base/jobs.h"
#include "core/base/params.h"
#include "plugins/cpu/exec/plan.h"
#include "plugins/cpu/exec/pool.h"
#include "plugins/cpu/exec/spin.h"

struct tdm_queue {
    cpu_device *device;
    pthread_t thread;
    tdm_jobs jobs;
    pthread_cond_t changed;    /* with the jobs' mutex */
    bool is_ending;            /* under that mutex */
    cpu_scratch scratch;       /* of its plans */
    _Atomic uint64_t progress; /* nodes run */
    /* jobs in the list, plus one when ending: what the thread spins on */
    _Atomic int32_t n_pending;
    cpu_spin_time spin_time;
};

static void job_run(tdm_queue *queue, tdm_job *job) {
    tdm_error err = {.struct_size = sizeof err};
    tdm_status status = tdm_job_wait(&queue->jobs, job, &err);
    if (status == TDM_OK) status = cpu_plan_run(job->plan, &queue->progress, &err);
    tdm_job_settle(&queue->jobs, job, status, &err);
}

/* The next job; NULL when the queue ends and nothing is left. */
static tdm_job *job_next(tdm_queue *queue) {
    cpu_spin spin = {0};
    while (atomic_load_explicit(&queue->n_pending, memory_order_acquire) == 0)
        if (!cpu_spin_continue(&spin, &queue->spin_time, NULL, NULL)) break;
    if (atomic_load_explicit(&queue->n_pending, memory_order_acquire) != 0)
        cpu_spin_succeeded(&spin, &queue->spin_time);
    pthread_mutex_lock(&queue->jobs.mutex);
    while (queue->jobs.first == NULL && !queue->is_ending)
        pthread_cond_wait(&queue->changed, &queue->jobs.mutex);
    tdm_job *job = tdm_jobs_pop(&queue->jobs);
    if (job != NULL) atomic_fetch_sub_explicit(&queue->n_pending, 1, memory_order_relaxed);
    pthread_mutex_unlock(&queue->jobs.mutex);
    return job;
}

static void *queue_main(void *arg) {
    tdm_queue *queue = arg;
    cpu_pool_pin_caller(queue->device->pool);
    for (;;) {
        tdm_job *job = job_next(queue);
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
    status = tdm_jobs_init(&queue->jobs, host, "cpu", err);
    if (status != TDM_OK) {
        cpu_scratch_destroy(&queue->scratch);
        host->free(host->context, queue, sizeof *queue);
        return status;
    }
    int rc = pthread_cond_init(&queue->changed, NULL);
    if (rc == 0 && (rc = cpu_thread_start(&queue->thread, queue_main, queue)) != 0)
        pthread_cond_destroy(&queue->changed);
    if (rc != 0) {
        tdm_jobs_destroy(&queue->jobs);
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
    pthread_mutex_lock(&queue->jobs.mutex);
    queue->is_ending = true;
    atomic_fetch_add_explicit(&queue->n_pending, 1, memory_order_release);
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->jobs.mutex);
    pthread_join(queue->thread, NULL);
    pthread_cond_destroy(&queue->changed);
    tdm_jobs_destroy(&queue->jobs);
    cpu_scratch_destroy(&queue->scratch);
    host->free(host->context, queue, sizeof *queue);
}

static tdm_status queue_compute(tdm_queue *queue, tdm_plan *plan, const tdm_point *waits,
                                int32_t n_wait, const tdm_point *signals, int32_t n_signal,
                                tdm_error *err) {
    if (cpu_plan_scratch(plan) != &queue->scratch)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "cpu: the plan belongs to another queue");
    if (!cpu_plan_is_bound(plan))
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "cpu: the plan is not bound");
    tdm_job *job = NULL;
    tdm_status status =
        tdm_job_make(&queue->jobs, plan, waits, n_wait, signals, n_signal, &job, err);
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&queue->jobs.mutex);
    tdm_jobs_push(&queue->jobs, job);
    atomic_fetch_add_explicit(&queue->n_pending, 1, memory_order_release);
    pthread_cond_signal(&queue->changed);
    pthread_mutex_unlock(&queue->jobs.mutex);
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
