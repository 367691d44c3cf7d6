/* SPDX-License-Identifier: MIT
 *
 * queue.c: plans and computations of the discrete device.
 *
 * A queue has a thread, the card. graph_compute appends a job and returns; the thread waits for the
 * job's points, opens the memory that the plan is bound to, has the device behind compute, and
 * closes the memory again. Temporaries lie in a chunk of the device's memory that the plans of a
 * queue share; it is filled with NaN before each computation, so that a value that is read before
 * it was written, or kept from one computation to the next, shows.
 */
#include <time.h>

#include "tests/plugins/discretes/queue.h"

enum { MAX_POINT = 8, N_JOB = 64, TEMP_ALIGN = 256 };

/* Scratch of a queue: the plans bound to it, and the queue for the newest one, hold it. */
struct discrete_chunk {
    tdm_buffer *buffer;
    uint64_t size;
    int32_t n_holder;
};
typedef discrete_chunk chunk;

typedef enum job_state { JOB_FREE = 0, JOB_WAITING, JOB_DONE } job_state;

typedef struct job {
    tdm_queue *queue;
    tdm_plan *plan;
    tdm_point waits[MAX_POINT], signals[MAX_POINT];
    int32_t n_wait, n_signal;
    job_state state;
    uint32_t attached; /* bit i: signal i has an attached wait, else the thread signals */
    int32_t n_holder;  /* attached waits that were not released yet, and the thread */
    tdm_status status;
    tdm_error err;
} job;

struct tdm_queue {
    tdm_device *device;
    tdm_queue *lent;
    tdm_semaphore *done; /* of the device behind: value n after n computations */
    uint64_t n_computed;
    chunk *newest;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    job jobs[N_JOB];          /* in use or free, in any order */
    job *waiting[N_JOB];      /* a ring: from `first` on, n_waiting of them */
    int32_t first, n_waiting; /* not taken by the thread yet */
    int32_t n_under_way;      /* accepted and not done */
    bool is_ending;
};

tdm_device *discrete_queue_device(const tdm_queue *queue) {
    return queue->device;
}

/* ---- Scratch --------------------------------------------------------------------------------- */

static void chunk_leave(chunk *c) {
    if (c == NULL || --c->n_holder > 0) return;
    discrete_buffer_ops.free(c->buffer);
    free(c);
}

/* The queue's chunk, or a new one where the plan needs more. */
static tdm_status chunk_take(tdm_queue *q, uint64_t size, chunk **out, tdm_error *err) {
    if (q->newest == NULL || q->newest->size < size) {
        const tdm_buffer_params params = {sizeof params, size, TDM_BUFFER_COMPUTE, 0, NULL};
        chunk *c = calloc(1, sizeof *c);
        if (c == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
        tdm_status status = discrete_buffer_ops.alloc(q->device, &params, &c->buffer, err);
        if (status != TDM_OK) {
            free(c);
            return status;
        }
        c->size = size;
        c->n_holder = 1;
        chunk_leave(q->newest);
        q->newest = c;
    }
    q->newest->n_holder++;
    *out = q->newest;
    return TDM_OK;
}

/* ---- Plans ----------------------------------------------------------------------------------- */

static void plan_unbind(tdm_plan *plan) {
    chunk_leave(plan->scratch);
    plan->scratch = NULL;
    plan->is_bound = false;
    plan->n_bound = 0;
}

static void plan_destroy(tdm_plan *plan) {
    if (plan == NULL) return;
    plan_unbind(plan);
    discrete_behind->queue->plan_destroy(plan->lent);
    free(plan->temp_off);
    free(plan->bindings);
    free(plan->bound);
    free(plan);
    discrete_count_live(-1);
}

static tdm_status plan_fill(tdm_plan *plan, const tdm_plan_params *params, tdm_error *err) {
    tdm_queue *q = plan->queue;
    size_t n = (size_t)plan->graph->n_slot + 1;
    plan->temp_off = calloc(n, sizeof *plan->temp_off);
    plan->bindings = calloc(n, sizeof *plan->bindings);
    plan->bound = calloc(n + 1, sizeof *plan->bound);
    if (plan->temp_off == NULL || plan->bindings == NULL || plan->bound == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    tdm_status status = q->device->host->graph->plan_memory(plan->graph, TEMP_ALIGN, plan->temp_off,
                                                            &plan->temp_size, err);
    if (status != TDM_OK) return status;
    /* A temporary without bytes has a place, too. */
    for (int32_t i = 0; i < plan->graph->n_slot && plan->temp_size == 0; i++)
        if (plan->temp_off[i] != UINT64_MAX) plan->temp_size = TEMP_ALIGN;
    return discrete_behind->queue->graph_prepare(q->lent, plan->graph, params, &plan->lent, err);
}

static tdm_status graph_prepare(tdm_queue *q, const tdm_graph *graph, const tdm_plan_params *params,
                                tdm_plan **plan_out, tdm_error *err) {
    tdm_status status = discrete_call(q->device, err);
    if (status != TDM_OK) return status;
    tdm_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    atomic_fetch_add(&q->device->counts.plans, 1);
    discrete_count_live(1);
    plan->queue = q;
    plan->graph = graph;
    status = plan_fill(plan, params, err);
    if (status != TDM_OK) {
        plan_destroy(plan);
        return status;
    }
    *plan_out = plan;
    return TDM_OK;
}

static tdm_status plan_get_info(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err) {
    tdm_status status = discrete_behind->queue->plan_get_info(plan->lent, info_out, err);
    if (status == TDM_OK) info_out->scratch_size += plan->temp_size;
    return status;
}

static void bound_add(tdm_plan *plan, tdm_buffer *b) {
    for (int32_t i = 0; i < plan->n_bound; i++)
        if (plan->bound[i] == b) return;
    plan->bound[plan->n_bound++] = b;
}

static tdm_status plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                            tdm_error *err) {
    tdm_queue *q = plan->queue;
    tdm_status status = discrete_call(q->device, err);
    plan_unbind(plan);
    if (status != TDM_OK) return status;
    atomic_fetch_add(&q->device->counts.binds, 1);
    if (n_binding != plan->graph->n_slot)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%d bindings for %d slots", (int)n_binding,
                        (int)plan->graph->n_slot);
    if (plan->temp_size > 0) {
        status = chunk_take(q, plan->temp_size, &plan->scratch, err);
        if (status != TDM_OK) return status;
        bound_add(plan, plan->scratch->buffer);
    }
    for (int32_t s = 0; s < n_binding; s++) {
        plan->bindings[s] = bindings[s];
        if (plan->temp_off[s] != UINT64_MAX) {
            plan->bindings[s] = (tdm_binding){plan->scratch->buffer->lent, plan->temp_off[s],
                                              plan->temp_size - plan->temp_off[s]};
        } else if (bindings[s].buffer != NULL) {
            plan->bindings[s].buffer = bindings[s].buffer->lent;
            bound_add(plan, bindings[s].buffer);
        }
    }
    status = discrete_behind->queue->plan_bind(plan->lent, plan->bindings, n_binding, err);
    plan->is_bound = status == TDM_OK;
    if (status != TDM_OK) plan_unbind(plan);
    return status;
}

/* ---- The card -------------------------------------------------------------------------------- */

static void pause_us(int64_t us) {
    if (us > 0) nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

static tdm_status job_run(tdm_queue *q, job *j) {
    const tdm_host_semaphore_ops *ops = q->device->host->semaphore;
    tdm_plan *plan = j->plan;
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < j->n_wait && status == TDM_OK; i++)
        status = ops->wait(j->waits[i].semaphore, j->waits[i].value, TDM_WAIT_FOREVER, &j->err);
    pause_us(atomic_load(&q->device->latency_us));
    if (discrete_is_due(&q->device->hang_in)) discrete_await_release(q->device);
    if (status == TDM_OK && atomic_load(&q->device->is_lost))
        status = discrete_call(q->device, &j->err);
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < plan->n_bound; i++) discrete_buffer_enter(plan->bound[i]);
    if (plan->scratch != NULL)
        memset(plan->scratch->buffer->memory, 0xff, plan->scratch->buffer->size);
    const tdm_point done = {q->done, q->n_computed + 1};
    status = discrete_behind->queue->graph_compute(q->lent, plan->lent, NULL, 0, &done, 1, &j->err);
    if (status == TDM_OK) status = ops->wait(done.semaphore, done.value, TDM_WAIT_FOREVER, &j->err);
    if (status == TDM_OK) q->n_computed++;
    if (status == TDM_OK) discrete_clock_run(plan);
    for (int32_t i = 0; i < plan->n_bound; i++) discrete_buffer_leave(plan->bound[i]);
    pause_us(atomic_load(&q->device->completion_us));
    return status;
}

/* A failure poisons the semaphore of the device behind, which is of no use then. */
static void done_renew(tdm_queue *q) {
    tdm_semaphore *fresh = NULL;
    if (q->device->host->semaphore->create(0, &fresh, NULL) != TDM_OK) return;
    q->device->host->semaphore->destroy(q->done);
    q->done = fresh;
    q->n_computed = 0;
}

static void job_leave(job *j) {
    if (--j->n_holder == 0) j->state = JOB_FREE;
}

static void job_end(tdm_queue *q, job *j, tdm_status status) {
    const tdm_host_semaphore_ops *ops = q->device->host->semaphore;
    tdm_point signals[MAX_POINT];
    int32_t n = j->n_signal;
    uint32_t attached = j->attached;
    memcpy(signals, j->signals, sizeof signals);
    tdm_error err = j->err;
    if (status != TDM_OK) done_renew(q);
    pthread_mutex_lock(&q->mutex);
    j->status = status;
    j->state = JOB_DONE;
    q->n_under_way--;
    job_leave(j);
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->mutex);
    /* Threads that wait for attached signals are in native_wait below. */
    for (int32_t i = 0; i < n; i++)
        if ((attached >> i & 1) != 0)
            continue;
        else if (status == TDM_OK)
            ops->signal(signals[i].semaphore, signals[i].value);
        else
            ops->fail(signals[i].semaphore, status, &err);
}

static void *card_main(void *arg) {
    tdm_queue *q = arg;
    pthread_mutex_lock(&q->mutex);
    for (;;) {
        while (q->n_waiting == 0 && !q->is_ending) pthread_cond_wait(&q->changed, &q->mutex);
        if (q->n_waiting == 0) break;
        job *j = q->waiting[q->first];
        q->first = (q->first + 1) % N_JOB;
        q->n_waiting--;
        pthread_mutex_unlock(&q->mutex);
        job_end(q, j, job_run(q, j));
        pthread_mutex_lock(&q->mutex);
    }
    pthread_mutex_unlock(&q->mutex);
    return NULL;
}

/* ---- The driver's wait ----------------------------------------------------------------------- */

static tdm_status native_wait(void *context, uint64_t timeout_ns, tdm_error *err) {
    job *j = context;
    tdm_queue *q = j->queue;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    uint64_t ns = (uint64_t)end.tv_nsec + timeout_ns % 1000000000u;
    end.tv_sec += (time_t)(timeout_ns / 1000000000u + ns / 1000000000u);
    end.tv_nsec = (long)(ns % 1000000000u);
    pthread_mutex_lock(&q->mutex);
    while (j->state != JOB_DONE && timeout_ns > 0)
        if (pthread_cond_timedwait(&q->changed, &q->mutex, &end) != 0) break;
    tdm_status status = j->state != JOB_DONE ? TDM_DEADLINE_EXCEEDED : j->status;
    if (status != TDM_OK)
        tdm_fail(err, status, "%s", j->state != JOB_DONE ? "not yet" : j->err.message);
    pthread_mutex_unlock(&q->mutex);
    return status;
}

static void native_release(void *context) {
    job *j = context;
    tdm_queue *q = j->queue;
    pthread_mutex_lock(&q->mutex);
    job_leave(j);
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->mutex);
}

/* ---- Computing ------------------------------------------------------------------------------- */

/* A free job; the mutex is held. Waits where the launch bound is reached. */
static job *job_take(tdm_queue *q) {
    int64_t bound = q->device->launch_bound;
    for (;;) {
        if (bound == 0 || q->n_under_way < bound)
            for (int i = 0; i < N_JOB; i++)
                if (q->jobs[i].state == JOB_FREE) return &q->jobs[i];
        if (bound == 0) return NULL;
        pthread_cond_wait(&q->changed, &q->mutex);
    }
}

static tdm_status graph_compute(tdm_queue *q, tdm_plan *plan, const tdm_point *waits,
                                int32_t n_wait, const tdm_point *signals, int32_t n_signal,
                                tdm_error *err) {
    const tdm_host_semaphore_ops *ops = q->device->host->semaphore;
    tdm_status status = discrete_call(q->device, err);
    if (status != TDM_OK) return status;
    if (plan->queue != q || !plan->is_bound)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "'%s': the plan is %s", q->device->member,
                        plan->queue != q ? "of another queue" : "not bound");
    if (n_wait > MAX_POINT || n_signal > MAX_POINT)
        return tdm_fail(err, TDM_UNSUPPORTED, "more than %d points", MAX_POINT);
    atomic_fetch_add(&q->device->counts.submissions, 1);
    if (discrete_is_due(&q->device->block_in)) discrete_await_release(q->device);
    if (q->device->is_idle) {
        for (int32_t i = 0; i < n_wait && status == TDM_OK; i++)
            status = ops->wait(waits[i].semaphore, waits[i].value, TDM_WAIT_FOREVER, err);
        for (int32_t i = 0; i < n_signal && status == TDM_OK; i++)
            ops->signal(signals[i].semaphore, signals[i].value);
        return status;
    }
    pthread_mutex_lock(&q->mutex);
    job *j = job_take(q);
    if (j == NULL) {
        pthread_mutex_unlock(&q->mutex);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "'%s': more than %d computations under way",
                        q->device->member, N_JOB);
    }
    *j = (job){.queue = q,
               .plan = plan,
               .n_wait = n_wait,
               .n_signal = n_signal,
               .state = JOB_WAITING,
               .n_holder = 1};
    if (n_wait > 0) memcpy(j->waits, waits, (size_t)n_wait * sizeof *waits);
    if (n_signal > 0) memcpy(j->signals, signals, (size_t)n_signal * sizeof *signals);
    if (q->device->attaches) j->n_holder += n_signal;
    q->n_under_way++;
    pthread_mutex_unlock(&q->mutex);
    for (int32_t i = 0; i < n_signal && q->device->attaches; i++) {
        const tdm_native_wait wait = {sizeof wait, j, native_wait, native_release};
        if (ops->attach(signals[i].semaphore, signals[i].value, &wait, NULL) == TDM_OK)
            j->attached |= 1u << i;
        else
            native_release(j);
    }
    pthread_mutex_lock(&q->mutex);
    q->waiting[(q->first + q->n_waiting++) % N_JOB] = j;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->mutex);
    return TDM_OK;
}

/* ---- Queues ---------------------------------------------------------------------------------- */

static void queue_free(tdm_queue *q) {
    chunk_leave(q->newest);
    discrete_behind->queue->destroy(q->lent);
    q->device->host->semaphore->destroy(q->done);
    pthread_mutex_destroy(&q->mutex);
    pthread_cond_destroy(&q->changed);
    free(q);
    discrete_count_live(-1);
}

static tdm_status queue_create(tdm_device *d, tdm_queue **queue_out, tdm_error *err) {
    tdm_status status = discrete_call(d, err);
    if (status != TDM_OK) return status;
    tdm_queue *q = calloc(1, sizeof *q);
    if (q == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    q->device = d;
    discrete_count_live(1);
    pthread_mutex_init(&q->mutex, NULL);
    pthread_cond_init(&q->changed, NULL);
    status = d->host->semaphore->create(0, &q->done, err);
    if (status == TDM_OK) status = discrete_behind->queue->create(d->lent.device, &q->lent, err);
    if (status == TDM_OK && pthread_create(&q->thread, NULL, card_main, q) != 0)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "'%s': no thread", d->member);
    if (status != TDM_OK) {
        queue_free(q);
        return status;
    }
    *queue_out = q;
    return TDM_OK;
}

static void queue_destroy(tdm_queue *q) {
    if (q == NULL) return;
    pthread_mutex_lock(&q->mutex);
    q->is_ending = true;
    pthread_cond_broadcast(&q->changed);
    pthread_mutex_unlock(&q->mutex);
    pthread_join(q->thread, NULL);
    queue_free(q);
}

const tdm_queue_ops discrete_queue_ops = {
    .struct_size = sizeof discrete_queue_ops,
    .create = queue_create,
    .destroy = queue_destroy,
    .graph_prepare = graph_prepare,
    .plan_destroy = plan_destroy,
    .plan_get_info = plan_get_info,
    .plan_bind = plan_bind,
    .graph_compute = graph_compute,
};
