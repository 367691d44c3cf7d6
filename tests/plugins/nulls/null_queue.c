/* SPDX-License-Identifier: MIT
 *
 * null_queue.c: plans and queues of the null plugin. A plan is the graph; a queue is a thread that
 * takes jobs from a ring. The first signal of a job is attached as a driver would, the others are
 * signalled by the thread. Without a fault it is correct.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "tests/plugins/nulls/null_plugin.h"

enum { N_JOB = 256, MAX_SLOT = 64, MAX_POINT = 8 };

struct tdm_plan {
    tdm_device *device;
    tdm_queue *queue;
    const tdm_graph *graph;
    const tdm_binding *bindings;
    tdm_binding own[MAX_SLOT];
    bool is_bound;
};

/* The object attached for a job: the "driver" queries it for completion. */
typedef struct ticket {
    tdm_queue *queue;
    uint64_t value;
    bool is_used; /* attached and not released */
    bool is_done;
} ticket;

typedef struct job {
    tdm_plan *plan;
    ticket *attached; /* to the first signal; NULL = the thread signals */
    tdm_point waits[MAX_POINT];
    int32_t n_wait;
    tdm_point signals[MAX_POINT];
    int32_t n_signal;
} job;

struct tdm_queue {
    tdm_device *device;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    job jobs[N_JOB];
    ticket tickets[N_JOB];
    int first;
    int n_job;
    bool is_ending;
    tdm_plan *last_bound; /* read by the faults scratch and queue-last alone */
    bool has_failed;      /* a job has ever failed; read by the fault recover alone */
};

/* ---- Attached waits ---- */

static tdm_status ticket_wait(void *context, uint64_t timeout_ns, tdm_error *err) {
    ticket *t = context;
    tdm_queue *queue = t->queue;
    struct timespec until;
    if (null_has_fault("attach-early") && t->value >= 1000) return TDM_OK;
    if (null_has_fault("attach-blocks") && t->value >= 1000) timeout_ns = 20000000000;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(timeout_ns / 1000000000);
    until.tv_nsec += (long)(timeout_ns % 1000000000);
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&queue->mutex);
    while (!t->is_done && timeout_ns > 0 &&
           pthread_cond_timedwait(&queue->changed, &queue->mutex, &until) == 0)
        continue;
    bool is_done = t->is_done;
    pthread_mutex_unlock(&queue->mutex);
    return is_done ? TDM_OK : tdm_fail(err, TDM_DEADLINE_EXCEEDED, "null: not done yet");
}

static void ticket_release(void *context) {
    ticket *t = context;
    pthread_mutex_lock(&t->queue->mutex);
    t->is_used = false;
    pthread_mutex_unlock(&t->queue->mutex);
}

/* Attaches a wait for the job to its first signal; NULL where that fails: the thread then signals.
 * Called without the mutex, because the attached wait may be called at once. */
static ticket *ticket_attach(tdm_queue *queue, const tdm_point *signal) {
    ticket *t = NULL;
    pthread_mutex_lock(&queue->mutex);
    for (int i = 0; i < N_JOB && t == NULL; i++)
        if (!queue->tickets[i].is_used) t = &queue->tickets[i];
    if (t != NULL) *t = (ticket){queue, signal->value, true, false};
    pthread_mutex_unlock(&queue->mutex);
    if (t == NULL) return NULL;
    tdm_native_wait wait = {sizeof wait, t, ticket_wait, ticket_release};
    if (queue->device->host->semaphore->attach(signal->semaphore, signal->value, &wait, NULL) ==
        TDM_OK)
        return t;
    ticket_release(t);
    return NULL;
}

/* ---- Jobs ---- */

/* Runs the plan of a job, whose waits are reached. */
static tdm_status job_compute(tdm_queue *queue, const job *j, tdm_error *err) {
    static atomic_int n_running;
    const tdm_plan *plan = j->plan;
    if (null_has_fault("queue-idle")) return TDM_OK;
    if (null_has_fault("queue-last") && queue->last_bound != NULL) plan = queue->last_bound;
    const bool is_alone = atomic_fetch_add(&n_running, 1) == 0;
    if (null_has_fault("queue-alone")) null_pause(1000000);
    tdm_status status =
        null_compute(queue->device, plan->graph, plan->bindings, plan->graph->n_slot, err);
    atomic_fetch_sub(&n_running, 1);
    if (null_has_fault("queue-alone") && !is_alone)
        return tdm_fail(err, TDM_INTERNAL, "null: another queue is running");
    return status;
}

/* True when it failed. */
static bool job_run(tdm_queue *queue, job *j) {
    const tdm_host_semaphore_ops *ops = queue->device->host->semaphore;
    tdm_error err = {.struct_size = sizeof err};
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < j->n_wait && status == TDM_OK; i++) {
        if (null_has_fault("wait-any") && j->n_wait > 1 && i == 0) continue;
        if (null_has_fault("wait-one") && j->n_wait == 1) continue;
        status = ops->wait(j->waits[i].semaphore, j->waits[i].value, TDM_WAIT_FOREVER, &err);
    }
    if (null_has_fault("not-skipped"))
        (void)null_compute(queue->device, j->plan->graph, j->plan->bindings, j->plan->graph->n_slot,
                           NULL);
    if (status == TDM_OK) status = job_compute(queue, j, &err);
    if (status != TDM_OK && null_has_fault("poison-hop")) {
        /* Jobs of all queues that failed. Only the first one passes its status on. */
        static atomic_int n_failed;
        if (atomic_fetch_add(&n_failed, 1) > 0) status = TDM_INTERNAL;
    }
    for (int32_t i = 0; i < j->n_signal; i++) {
        if (null_has_fault("one-signal") && i == 2)
            ops->fail(j->signals[i].semaphore, TDM_INTERNAL, NULL);
        if (status == TDM_OK && i == 0 && j->attached != NULL) {
            pthread_mutex_lock(&queue->mutex);
            j->attached->is_done = true;
            pthread_cond_broadcast(&queue->changed);
            pthread_mutex_unlock(&queue->mutex);
        } else if (status == TDM_OK)
            ops->signal(j->signals[i].semaphore, j->signals[i].value);
        else
            ops->fail(j->signals[i].semaphore,
                      null_has_fault("poison") && i > 0 ? TDM_INTERNAL : status, &err);
    }
    return status != TDM_OK;
}

static void *queue_main(void *arg) {
    tdm_queue *queue = arg;
    pthread_mutex_lock(&queue->mutex);
    for (;;) {
        while (queue->n_job == 0 && !queue->is_ending)
            pthread_cond_wait(&queue->changed, &queue->mutex);
        if (queue->n_job == 0) break;
        job *j = &queue->jobs[queue->first];
        pthread_mutex_unlock(&queue->mutex);
        bool has_failed = job_run(queue, j);
        pthread_mutex_lock(&queue->mutex);
        queue->has_failed = queue->has_failed || has_failed;
        queue->first = (queue->first + 1) % N_JOB;
        queue->n_job--;
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->mutex);
    return NULL;
}

static tdm_status queue_create(tdm_device *device, tdm_queue **queue_out, tdm_error *err) {
    tdm_queue *queue = device->host->alloc(device->host->context, sizeof *queue, 0);
    if (queue == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "null: out of memory");
    memset(queue, 0, sizeof *queue);
    queue->device = device;
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->changed, NULL);
    if (pthread_create(&queue->thread, NULL, queue_main, queue) != 0) {
        device->host->free(device->host->context, queue, sizeof *queue);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "null: no thread for a queue");
    }
    *queue_out = queue;
    return TDM_OK;
}

static void queue_destroy(tdm_queue *queue) {
    if (queue == NULL && !null_has_fault("queue-null")) return;
    if (null_has_fault("destroy")) return;
    pthread_mutex_lock(&queue->mutex);
    queue->is_ending = true;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    pthread_join(queue->thread, NULL);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->mutex);
    queue->device->host->free(queue->device->host->context, queue, sizeof *queue);
}

static tdm_status plan_prepare(tdm_queue *queue, const tdm_graph *graph,
                               const tdm_plan_params *params, tdm_plan **plan_out, tdm_error *err) {
    tdm_device *device = queue->device;
    (void)params;
    for (int32_t i = 0; i < graph->n_node; i++) {
        tdm_status status = null_supports_op(device, graph, i, err);
        if (status != TDM_OK) return status;
    }
    if (graph->n_slot > MAX_SLOT)
        return tdm_fail(err, TDM_UNSUPPORTED, "null: at most %d slots", (int)MAX_SLOT);
    tdm_plan *plan = device->host->alloc(device->host->context, sizeof *plan, 0);
    if (plan == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "null: out of memory");
    *plan = (tdm_plan){.device = device, .queue = queue, .graph = graph};
    *plan_out = plan;
    return TDM_OK;
}

static tdm_status plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                            tdm_error *err) {
    if (null_has_fault("bind-once") && plan->is_bound) return TDM_OK;
    plan->is_bound = false;
    if (n_binding != plan->graph->n_slot)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: %d bindings for %d slots", (int)n_binding,
                        (int)plan->graph->n_slot);
    if (n_binding > 0) memcpy(plan->own, bindings, (size_t)n_binding * sizeof bindings[0]);
    plan->bindings = null_has_fault("arrays") ? bindings : plan->own;
    plan->is_bound = true;
    tdm_plan *other = plan->queue->last_bound;
    if (null_has_fault("scratch") && other != NULL && other != plan && bindings[0].size > 100000)
        other->own[0] = other->own[other->graph->n_slot - 1];
    plan->queue->last_bound = plan;
    return TDM_OK;
}

static void plan_destroy(tdm_plan *plan) {
    if (plan != NULL && plan->queue->last_bound == plan) plan->queue->last_bound = NULL;
    if (plan != NULL) plan->device->host->free(plan->device->host->context, plan, sizeof *plan);
}

static tdm_status plan_get_info(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err) {
    tdm_plan_info info = {.host_size = sizeof *plan};
    size_t size = info_out->struct_size;
    (void)err;
    if (size == 0 || size > sizeof info || null_has_fault("plan-info")) size = sizeof info;
    info.struct_size = info_out->struct_size;
    memcpy(info_out, &info, size);
    return TDM_OK;
}

static tdm_status queue_compute(tdm_queue *queue, tdm_plan *plan, const tdm_point *waits,
                                int32_t n_wait, const tdm_point *signals, int32_t n_signal,
                                tdm_error *err) {
    if ((plan->queue != queue && !null_has_fault("other-queue")) || !plan->is_bound)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "null: the plan is of another queue or "
                        "not bound");
    if (n_wait > MAX_POINT || n_signal > MAX_POINT)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "null: %d waits, %d signals", (int)n_wait,
                        (int)n_signal);
    pthread_mutex_lock(&queue->mutex);
    bool has_failed = queue->has_failed;
    pthread_mutex_unlock(&queue->mutex);
    if (null_has_fault("recover") && has_failed)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "null: failed before");
    if (null_has_fault("steady")) {
        void *scratch = queue->device->host->alloc(queue->device->host->context, 100, 0);
        queue->device->host->free(queue->device->host->context, scratch, 100);
    }
    if (null_has_fault("overtake") &&
        n_wait == 0) { /* runs at once, before what was given earlier */
        job now = {.plan = plan, .n_signal = n_signal};
        if (n_signal > 0) memcpy(now.signals, signals, (size_t)n_signal * sizeof signals[0]);
        (void)job_run(queue, &now);
        return TDM_OK;
    }
    ticket *attached = n_signal > 0 ? ticket_attach(queue, &signals[0]) : NULL;
    pthread_mutex_lock(&queue->mutex);
    const int n_most = null_has_fault("bounded") ? 16 : N_JOB;
    while (queue->n_job == n_most) pthread_cond_wait(&queue->changed, &queue->mutex);
    job *j = &queue->jobs[(queue->first + queue->n_job) % N_JOB];
    j->plan = plan;
    j->attached = attached;
    j->n_wait = n_wait;
    if (n_wait > 0) memcpy(j->waits, waits, (size_t)n_wait * sizeof waits[0]);
    j->n_signal = n_signal;
    if (n_signal > 0) memcpy(j->signals, signals, (size_t)n_signal * sizeof signals[0]);
    queue->n_job++;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    return TDM_OK;
}

const tdm_queue_ops null_queue_ops = {
    .struct_size = sizeof(tdm_queue_ops),
    .create = queue_create,
    .destroy = queue_destroy,
    .graph_prepare = plan_prepare,
    .plan_destroy = plan_destroy,
    .plan_get_info = plan_get_info,
    .plan_bind = plan_bind,
    .graph_compute = queue_compute,
};
