/* SPDX-License-Identifier: MIT
 *
 * queue.c: runs the computations of a group in the order of their submission.
 *
 * A coordinator thread takes one job at a time. It waits for the job's semaphores, binds the plan,
 * starts every member's part, waits until all parts have ended, delivers the outputs and signals.
 *
 * Every member has a thread that writes its inputs and submits its part, so that a driver whose
 * launch queue is full holds up no other member: the part in that queue may wait for this very
 * member. Where a member's plan is cut at exchanges, the thread runs the whole part: it submits a
 * stage when the exchange before it is done (member_queue.c). A device that computes on the host
 * has no such driver. The coordinator submits to it directly, which saves a change of threads.
 *
 * A run begins only after every member has ended the run before. The arena depends on that where
 * the areas of the two plans differ in size (compile.c).
 *
 * Failures. When a member fails, the abort word is set; the other members leave their exchanges
 * with TDM_CANCELLED, and members that compute finish. The run fails with the first status that is
 * not TDM_CANCELLED. When no member makes progress for `timeout` (watchdog.c), the abort word is
 * set as well. A member that has not ended when the grace period is over is abandoned: the group is
 * then broken and refuses runs until the member has ended after all. A thread that does not return
 * from a driver's function is lost: whatever it may use stays allocated until it leaves, and it is
 * joined no sooner. The next run starts a new thread.
 */
#include "plugins/meta/exec/queue.h"

#include <signal.h>
#include <string.h>

#include "core/base/jobs.h"
#include "plugins/meta/exec/deliver.h"
#include "plugins/meta/exec/event.h"
#include "plugins/meta/exec/replicas.h"
#include "plugins/meta/exec/stuck.h"
#include "plugins/meta/exec/watchdog.h"
#include "plugins/meta/rules/compile.h"

enum {
    SLICE_MIN_NS = 5000000, /* between two polls of the other members while one is awaited */
    SLICE_MAX_NS = META_POLL_NS
};
/* How long an abandoned thread may take to leave, before it counts as lost. */
#define LEAVE_NS UINT64_C(1000000000)
/* The grace period, in which members leave a run that timed out, is the timeout but at most
 * this. */
#define GRACE_MAX_NS 2e9

/* Which thread may write the fields of a member's run (meta_member_queue). The coordinator sets
 * RUNNING; from then on it is the member's thread, until that has set is_submitted or is_done.
 * Right before, the thread changes RUNNING to IDLE. Where it does not return from its driver, the
 * coordinator changes RUNNING to LOST instead: the run then ends without it. Such a thread reports
 * no result, sets GONE when it leaves, and no run begins before (n_lost). */
typedef enum thread_state { IDLE, RUNNING, LOST, GONE } thread_state;

/* A thread of the queue: the coordinator, or that of a member. */
typedef struct queue_thread {
    tdm_queue *queue;
    meta_member_queue *member_queue; /* NULL: the coordinator */
    pthread_t thread;
    bool is_started;
    uint32_t seen;         /* of `begun`, when it started */
    _Atomic int32_t state; /* thread_state */
} queue_thread;

struct tdm_queue {
    meta_device *device;
    tdm_jobs jobs;
    meta_event submitted; /* jobs, for the coordinator */
    meta_event begun;     /* runs, for the members' threads */
    meta_event ended;     /* parts, for the coordinator */
    _Atomic bool is_ending;
    _Atomic uint64_t progress; /* changes with that of the members */
    bool is_inner;             /* of a group that is a member of another; see claims.h */
    meta_member_queue member_queues[TDM_MAX_MEMBERS]; /* of active members */
    int32_t n_member_queue;
    queue_thread coordinator, member_threads[TDM_MAX_MEMBERS];
    /* The current run. The coordinator writes it before it signals `begun`. */
    meta_plan *plan;
    uint32_t epoch;
    meta_watchdog watchdog;
    meta_pending_release later;
};

static const tdm_host_semaphore_ops *semaphore_ops(const tdm_queue *queue) {
    return queue->device->host->semaphore;
}

/* True where the member's part is one submission: it has no exchanges, or its plan performs
 * them. */
static bool is_direct(const tdm_queue *queue, const meta_member_queue *member_queue) {
    return queue->plan->members[member_queue->d].is_direct;
}

/* The coordinator submits the part itself. */
static bool is_submitted_here(const tdm_queue *queue, const meta_member_queue *member_queue) {
    const meta_member *member = &queue->device->members[member_queue->d];
    return is_direct(queue, member_queue) && (member->info.flags & TDM_DEVICE_IS_HOST) != 0;
}

static queue_thread *thread_of(tdm_queue *queue, const meta_member_queue *member_queue) {
    return &queue->member_threads[member_queue - queue->member_queues];
}

/* The member has no share. That can happen after the queue was made, when shares are solved. */
static bool is_idle(const tdm_queue *queue, const meta_member_queue *member_queue) {
    return !meta_is_active(queue->device, member_queue->d);
}

/* ---- A run ----------------------------------------------------------------------------------- */

static void member_queue_end(tdm_queue *queue, meta_member_queue *member_queue, tdm_status status) {
    member_queue->status = status;
    if (status != TDM_OK) meta_arena_abort(queue->device);
    atomic_store(&member_queue->is_done, true);
}

/* Writes the inputs of a part and submits it, where it is one submission. */
static tdm_status part_submit(tdm_queue *queue, meta_member_queue *member_queue) {
    tdm_status status =
        meta_member_queue_upload(member_queue, queue->plan, queue->epoch, &member_queue->err);
    if (status == TDM_OK)
        status = meta_member_queue_submit(member_queue, queue->plan, 0, &member_queue->err);
    return status;
}

/* Submits a part on the coordinator's thread. */
static void member_queue_start(tdm_queue *queue, meta_member_queue *member_queue) {
    tdm_status status = part_submit(queue, member_queue);
    if (status != TDM_OK) member_queue_end(queue, member_queue, status);
    atomic_store(&member_queue->is_submitted, true);
}

/* Records which parts have ended; true when all have. */
static bool member_queues_poll(tdm_queue *queue) {
    bool is_all = true;
    for (int32_t i = 0; i < queue->n_member_queue; i++) {
        meta_member_queue *member_queue = &queue->member_queues[i];
        tdm_status status;
        if (atomic_load(&member_queue->is_done)) continue;
        if (atomic_load(&member_queue->is_submitted) &&
            meta_member_queue_wait(member_queue, 0, &status, &member_queue->err))
            member_queue_end(queue, member_queue, status);
        else
            is_all = false;
    }
    return is_all;
}

/* Waits, at most timeout_ns, for the first member that has not ended. */
static void member_queues_wait(tdm_queue *queue, uint64_t timeout_ns) {
    for (int32_t i = 0; i < queue->n_member_queue; i++) {
        meta_member_queue *member_queue = &queue->member_queues[i];
        tdm_status status;
        uint32_t seen = atomic_load(&queue->ended.value);
        if (atomic_load(&member_queue->is_done)) continue;
        if (!atomic_load(&member_queue->is_submitted)) {
            meta_event_wait(&queue->ended, seen, timeout_ns);
            return;
        }
        if (meta_member_queue_wait(member_queue, timeout_ns, &status, &member_queue->err)) {
            member_queue_end(queue, member_queue, status);
        } else {
            return;
        }
    }
}

static bool has_failed(const tdm_queue *queue) {
    for (int32_t i = 0; i < queue->n_member_queue; i++)
        if (atomic_load(&queue->member_queues[i].is_done) &&
            queue->member_queues[i].status != TDM_OK)
            return true;
    return false;
}

/* Waits for all members. TDM_DEADLINE_EXCEEDED, naming the late members, where the run timed out;
 * else TDM_OK, and each member's status is in its member_queue. */
static tdm_status members_await(tdm_queue *queue, tdm_error *err) {
    uint64_t slice = SLICE_MIN_NS, grace_ns = 0; /* of the grace period, once status is set */
    meta_stall_timer grace;
    tdm_status status = TDM_OK;
    meta_watchdog_begin(&queue->watchdog);
    while (!member_queues_poll(queue)) {
        member_queues_wait(queue, slice);
        if (slice < SLICE_MAX_NS) slice *= 2;
        if (status != TDM_OK) {
            if (meta_stall_timer_update(&grace, meta_clock_ns()) < grace_ns) continue;
            break;
        }
        bool is_late = meta_watchdog_is_late(&queue->watchdog, queue->device, queue->member_queues,
                                             queue->n_member_queue);
        atomic_store_explicit(&queue->progress, queue->watchdog.progress, memory_order_relaxed);
        if (is_late) {
            status = meta_watchdog_report(queue->plan, queue->epoch, queue->member_queues,
                                          queue->n_member_queue, err);
            meta_arena_abort(queue->device);
            double timeout = queue->device->options.timeout * 1e9;
            grace_ns = (uint64_t)(timeout < GRACE_MAX_NS ? timeout : GRACE_MAX_NS);
            meta_stall_timer_begin(&grace, meta_clock_ns());
        } else if (has_failed(queue)) {
            /* Members that compute finish, without a time limit. Members that wait in an exchange
             * for the failed one abort. */
            meta_arena_abort(queue->device);
        }
    }
    return status;
}

/* Waits until a member's thread has left the run, at most LEAVE_NS: it polls is_abandoned
 * wherever it waits. False where it has not, because a driver's function does not return: it is
 * then LOST. */
static bool thread_leaves(tdm_queue *queue, meta_member_queue *member_queue) {
    queue_thread *thread = thread_of(queue, member_queue);
    int32_t running;
    uint64_t begin_ns = meta_clock_ns();
    for (;;) {
        uint32_t seen = atomic_load(&queue->ended.value);
        if (atomic_load(&member_queue->is_done) || atomic_load(&member_queue->is_submitted)) break;
        meta_event_wait(&queue->ended, seen, SLICE_MIN_NS);
        if (meta_clock_ns() - begin_ns < LEAVE_NS) continue;
        running = RUNNING;
        if (!atomic_compare_exchange_strong(&thread->state, &running, LOST)) continue;
        atomic_fetch_add(&queue->device->members[member_queue->d].n_lost, 1);
        thread->is_started = false;
        return false;
    }
    return true;
}

/* Abandons the members that have not ended: they keep their semaphores, and their queues are
 * released later (meta_release_later). */
static void late_members_abandon(tdm_queue *queue, const tdm_error *err) {
    meta_device *device = queue->device;
    bool is_broken = false;
    for (int32_t i = 0; i < queue->n_member_queue; i++)
        atomic_store(&queue->member_queues[i].is_abandoned, true);
    for (int32_t i = 0; i < queue->n_member_queue; i++) {
        meta_member_queue *member_queue = &queue->member_queues[i];
        uint64_t value = 0;
        if (is_idle(queue, member_queue)) continue;
        if (!thread_leaves(queue, member_queue)) {
            /* The semaphore is not taken over: the thread itself waits for what it submitted before
             * it leaves (thread_lost_end), and n_lost counts it as stuck until then. */
            is_broken = true;
            continue;
        }
        if (semaphore_ops(queue)->query(member_queue->semaphore, &value, NULL) != TDM_OK ||
            value >= member_queue->value)
            continue;
        meta_member_set_stuck(device, member_queue->d, member_queue->semaphore,
                              member_queue->value);
        member_queue->semaphore = NULL;
        is_broken = true;
    }
    if (!is_broken) return;
    device->is_broken = true;
    device->broken = (tdm_error){.struct_size = sizeof device->broken};
    tdm_fail(&device->broken, TDM_UNAVAILABLE, "the group waits for a member: %.440s",
             err->message);
}

/* The status of a run: the first failure of a member that is not TDM_CANCELLED, which only follows
 * from another's failure; else the first failure. */
static tdm_status members_status(const tdm_queue *queue, tdm_error *err) {
    const meta_member_queue *first = NULL;
    for (int32_t i = 0; i < queue->n_member_queue; i++) {
        const meta_member_queue *member_queue = &queue->member_queues[i];
        if (member_queue->status == TDM_OK) continue;
        if (first == NULL ||
            (first->status == TDM_CANCELLED && member_queue->status != TDM_CANCELLED))
            first = member_queue;
    }
    if (first == NULL) return TDM_OK;
    char place[160];
    meta_watchdog_place(queue->plan, queue->epoch, first->d, place, sizeof place);
    return tdm_fail(err, first->status, "member '%s', %s: %.300s",
                    queue->device->members[first->d].name, place, first->err.message);
}

/* Gives the run an epoch. Flags compare as 64-bit differences, so the flags of a run must be
 * greater than all flags of earlier runs. Where the epoch would overflow, the flags are zeroed and
 * the epoch begins again. */
static tdm_status epoch_advance(meta_device *device, tdm_error *err) {
    if (device->epoch >= INT32_MAX) {
        tdm_status status = meta_arena_clear(device, err);
        if (status != TDM_OK) return status;
        device->epoch = 0;
    }
    device->epoch++;
    return TDM_OK;
}

/* Nanoseconds that a member has spent in exchanges since the last call, summed over the flag
 * lines. */
static uint64_t exchange_time(meta_device *device, int32_t rank) {
    meta_arena *arena = device->arena;
    uint64_t sum = 0;
    for (int32_t s = 0; arena->data != NULL && s < arena->n_exchange; s++) {
        uint64_t off =
            META_ARENA_FLAGS + ((uint64_t)s * (uint64_t)device->n_active + (uint64_t)rank) * 64 + 8;
        sum += atomic_load_explicit((_Atomic uint64_t *)(void *)(arena->data + off),
                                    memory_order_relaxed);
    }
    uint64_t spent = sum - arena->seen_ns[rank];
    arena->seen_ns[rank] = sum;
    return spent;
}

/* Adds a run of `all` nanoseconds to the members' times. Under device->mutex. */
static void times_note(tdm_queue *queue, uint64_t all) {
    for (int32_t i = 0; i < queue->n_member_queue; i++) {
        meta_member *member = &queue->device->members[queue->member_queues[i].d];
        if (is_idle(queue, &queue->member_queues[i])) continue;
        uint64_t spent = exchange_time(queue->device, member->rank);
        atomic_fetch_add_explicit(&member->exchange_ns, spent, memory_order_relaxed);
        atomic_fetch_add_explicit(&member->run_ns, all > spent ? all - spent : 0,
                                  memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&queue->device->n_run, 1, memory_order_relaxed);
}

/* Fails with `broken` while a member is stuck. After the last has ended, makes the group usable
 * again. Under device->mutex. */
static tdm_status broken_check(meta_device *device, tdm_error *err) {
    if (!device->is_broken) return TDM_OK;
    if (!meta_stuck_members_check(device))
        return tdm_fail(err, device->broken.status, "%s", device->broken.message);
    meta_arena_calm(device);
    device->is_broken = false;
    return TDM_OK;
}

/* ---- Threads --------------------------------------------------------------------------------- */

static void *coordinator_main(void *arg);

/* The last thing that a lost thread does. What it has submitted may still run. */
static void thread_lost_end(queue_thread *self) {
    meta_member_queue *member_queue = self->member_queue;
    meta_member *member = &self->queue->device->members[member_queue->d];
    (void)semaphore_ops(self->queue)
        ->wait(member_queue->semaphore, member_queue->value, TDM_WAIT_FOREVER, NULL);
    atomic_store(&self->state, GONE);
    atomic_fetch_sub(&member->n_lost, 1);
}

static void *member_thread_main(void *arg) {
    queue_thread *self = arg;
    tdm_queue *queue = self->queue;
    meta_member_queue *member_queue = self->member_queue;
    for (uint32_t seen = self->seen;;) {
        int32_t running = RUNNING;
        seen = meta_event_wait(&queue->begun, seen, UINT64_MAX);
        if (atomic_load(&queue->is_ending)) return NULL;
        /* In another state the current run does not need this thread, and its fields may change
         * while the thread reads them. */
        if (atomic_load(&self->state) != RUNNING) continue;
        bool is_one = is_direct(queue, member_queue);
        tdm_status status = is_one ? part_submit(queue, member_queue)
                                   : meta_member_queue_run(member_queue, queue->plan, queue->epoch,
                                                           &member_queue->err);
        if (!atomic_compare_exchange_strong(&self->state, &running, IDLE)) {
            thread_lost_end(self);
            return NULL;
        }
        if (!is_one || status != TDM_OK) member_queue_end(queue, member_queue, status);
        if (is_one) atomic_store(&member_queue->is_submitted, true);
        meta_event_signal(&queue->ended);
    }
}

/* Joins a lost thread that has left: it may still run its last instructions, which are in the
 * plugin that is unloaded next. */
static void thread_lost_join(queue_thread *thread) {
    if (atomic_load(&thread->state) != GONE) return;
    pthread_join(thread->thread, NULL);
    atomic_store(&thread->state, IDLE);
}

/* The thread blocks all signals: they are for the application's threads. */
static tdm_status thread_start(queue_thread *thread, tdm_queue *queue,
                               meta_member_queue *member_queue, tdm_error *err) {
    sigset_t all, before;
    thread_lost_join(thread);
    thread->queue = queue;
    thread->member_queue = member_queue;
    thread->seen = atomic_load(&queue->begun.value);
    atomic_store(&thread->state, IDLE);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread->thread, NULL,
                            member_queue == NULL ? coordinator_main : member_thread_main, thread);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "group: no thread for its queue: %s",
                        strerror(rc));
    thread->is_started = true;
    return TDM_OK;
}

/* Starts the threads that this run needs and that are not there: because a run lost them, or
 * because a plan of one submission needed none so far. */
static tdm_status threads_provide(tdm_queue *queue, tdm_error *err) {
    for (int32_t i = 0; i < queue->n_member_queue; i++) {
        meta_member_queue *member_queue = &queue->member_queues[i];
        if (is_idle(queue, member_queue) || is_submitted_here(queue, member_queue) ||
            queue->member_threads[i].is_started)
            continue;
        tdm_status status = thread_start(&queue->member_threads[i], queue, member_queue, err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}

/* The members' threads begin first, since submitting to the others takes time. */
static void parts_start(tdm_queue *queue) {
    bool has_member_threads = false;
    for (int32_t i = 0; i < queue->n_member_queue; i++) {
        const meta_member_queue *member_queue = &queue->member_queues[i];
        if (is_idle(queue, member_queue) || is_submitted_here(queue, member_queue)) continue;
        has_member_threads = true;
        atomic_store(&queue->member_threads[i].state, RUNNING);
    }
    if (has_member_threads) meta_event_signal(&queue->begun);
    for (int32_t i = 0; i < queue->n_member_queue; i++)
        if (!is_idle(queue, &queue->member_queues[i]) &&
            is_submitted_here(queue, &queue->member_queues[i]))
            member_queue_start(queue, &queue->member_queues[i]);
}

/* *spent_ns_out: of the members' parts; 0 where they were not started. Under device->mutex. */
static tdm_status plan_run(tdm_queue *queue, const tdm_job *job, uint64_t *spent_ns_out,
                           tdm_error *err) {
    meta_device *device = queue->device;
    tdm_status status = broken_check(device, err);
    if (status == TDM_OK) status = meta_plan_rebind(job->plan, err);
    for (int32_t i = 0; i < queue->n_member_queue && status == TDM_OK; i++) {
        status = meta_member_queue_begin(&queue->member_queues[i], err);
        if (is_idle(queue, &queue->member_queues[i]))
            atomic_store(&queue->member_queues[i].is_done, true);
    }
    /* A broken group returns here with the queue unchanged: its threads may still read the plan and
     * the areas of the run that broke it. */
    if (status != TDM_OK) return status;
    queue->plan = job->plan;
    status = threads_provide(queue, err);
    if (status != TDM_OK) return status;
    status = epoch_advance(device, err);
    if (status != TDM_OK) return status;
    queue->epoch = device->epoch;
    uint64_t begin_ns = meta_clock_ns();
    parts_start(queue);
    status = members_await(queue, err);
    if (status != TDM_OK) late_members_abandon(queue, err);
    /* A member's own message tells more than that it was late. */
    tdm_error own = {0};
    tdm_status said = members_status(queue, &own);
    if (said != TDM_OK && (status == TDM_OK || said != TDM_CANCELLED))
        status = tdm_fail(err, said, "%s", own.message);
    if (!device->is_broken) meta_arena_calm(device);
    *spent_ns_out = meta_clock_ns() - begin_ns;
    if (!device->is_broken)
        device->exchange_base =
            (device->exchange_base + (uint32_t)job->plan->n_exchange) & INT32_MAX;
    if (status == TDM_OK) status = meta_replicas_check(job->plan, err);
    if (status == TDM_OK) status = meta_outputs_deliver(job->plan, err);
    return status;
}

/* ---- Jobs ------------------------------------------------------------------------------------ */

static void job_run(tdm_queue *queue, tdm_job *job) {
    tdm_error err = {.struct_size = sizeof err};
    uint64_t spent_ns = 0;
    tdm_status status = tdm_job_wait(&queue->jobs, job, &err);
    if (status != TDM_OK) {
        tdm_job_settle(&queue->jobs, job, status, &err);
        return;
    }
    /* The claims come first: an outer group that waits for this one's mutex has them. */
    if (!queue->is_inner) meta_claims_lock(&queue->device->claims);
    pthread_mutex_lock(&queue->device->mutex);
    status = plan_run(queue, job, &spent_ns, &err);
    /* Reading the times of all exchanges takes long, so the signals come first. The mutex is
     * held until the times are added: a reader that locks it after the signals finds this run in
     * them. */
    tdm_job_settle(&queue->jobs, job, status, &err);
    if (spent_ns > 0) times_note(queue, spent_ns);
    pthread_mutex_unlock(&queue->device->mutex);
    if (!queue->is_inner) meta_claims_unlock(&queue->device->claims);
}

static tdm_job *job_take(tdm_queue *queue) {
    pthread_mutex_lock(&queue->jobs.mutex);
    tdm_job *job = tdm_jobs_pop(&queue->jobs);
    pthread_mutex_unlock(&queue->jobs.mutex);
    return job;
}

static void *coordinator_main(void *arg) {
    tdm_queue *queue = ((queue_thread *)arg)->queue;
    for (;;) {
        uint32_t seen = atomic_load(&queue->submitted.value);
        tdm_job *job = job_take(queue);
        if (job != NULL)
            job_run(queue, job);
        else if (atomic_load(&queue->is_ending))
            return NULL;
        else
            meta_event_wait(&queue->submitted, seen, UINT64_MAX);
    }
}

/* ---- The table ------------------------------------------------------------------------------- */

/* Frees a queue whose threads have ended, and of whose members none may use it. */
static void queue_release(meta_device *device, int32_t d, void *what) {
    tdm_queue *queue = what;
    const tdm_host *host = device->host;
    (void)d;
    for (int32_t i = 0; i < queue->n_member_queue; i++) {
        thread_lost_join(&queue->member_threads[i]);
        meta_member_queue_destroy(&queue->member_queues[i]);
    }
    meta_event_destroy(&queue->submitted);
    meta_event_destroy(&queue->begun);
    meta_event_destroy(&queue->ended);
    tdm_jobs_destroy(&queue->jobs);
    meta_free(host, queue, sizeof *queue);
}

/* Whether a member may still use the queue: a thread of it is lost, or the member is stuck, or was,
 * so that a plan of the queue may wait to be released. */
static bool is_kept(tdm_queue *queue) {
    for (int32_t i = 0; i < queue->n_member_queue; i++)
        if (atomic_load(&queue->member_threads[i].state) == LOST ||
            meta_member_is_kept(queue->device, queue->member_queues[i].d))
            return true;
    return false;
}

static void queue_destroy(tdm_queue *queue) {
    if (queue == NULL) return;
    atomic_store(&queue->is_ending, true);
    meta_event_signal(&queue->submitted);
    if (queue->coordinator.is_started) pthread_join(queue->coordinator.thread, NULL);
    meta_event_signal(&queue->begun);
    for (int32_t i = 0; i < queue->n_member_queue; i++)
        if (queue->member_threads[i].is_started)
            pthread_join(queue->member_threads[i].thread, NULL);
    if (is_kept(queue))
        meta_release_later(queue->device, META_ANY_MEMBER, NULL, 0, queue_release, queue,
                           &queue->later);
    else
        queue_release(queue->device, -1, queue);
}

static tdm_status events_create(tdm_queue *queue, tdm_error *err) {
    tdm_status status = tdm_jobs_init(&queue->jobs, queue->device->host, "group", err);
    if (status != TDM_OK) return status;
    status = meta_event_create(&queue->submitted, err);
    if (status == TDM_OK && (status = meta_event_create(&queue->begun, err)) != TDM_OK)
        meta_event_destroy(&queue->submitted);
    if (status == TDM_OK && (status = meta_event_create(&queue->ended, err)) != TDM_OK) {
        meta_event_destroy(&queue->begun);
        meta_event_destroy(&queue->submitted);
    }
    if (status != TDM_OK) tdm_jobs_destroy(&queue->jobs);
    return status;
}

static tdm_status queue_create(tdm_device *device, tdm_queue **queue_out, tdm_error *err) {
    tdm_queue *queue = meta_alloc(device->host, sizeof *queue);
    if (queue == NULL) return meta_no_memory("for a queue", err);
    queue->device = device;
    tdm_status status = events_create(queue, err);
    if (status != TDM_OK) {
        meta_free(device->host, queue, sizeof *queue);
        return status;
    }
    for (int32_t d = 0; d < device->n_member && status == TDM_OK; d++) {
        if (!meta_is_active(device, d)) continue;
        meta_member_queue *member_queue = &queue->member_queues[queue->n_member_queue++];
        status = meta_member_queue_create(device, d, member_queue, err);
        bool is_host = (device->members[d].info.flags & TDM_DEVICE_IS_HOST) != 0;
        if (status == TDM_OK && device->n_active > 1 &&
            (!is_host || device->members[d].exchange != META_EXCHANGE_IN_PLAN))
            status = thread_start(&queue->member_threads[queue->n_member_queue - 1], queue,
                                  member_queue, err);
    }
    if (status == TDM_OK) status = thread_start(&queue->coordinator, queue, NULL, err);
    if (status != TDM_OK) {
        queue_destroy(queue);
        return status;
    }
    *queue_out = queue;
    return TDM_OK;
}

static tdm_status queue_compute(tdm_queue *queue, tdm_plan *plan, const tdm_point *waits,
                                int32_t n_wait, const tdm_point *signals, int32_t n_signal,
                                tdm_error *err) {
    if (plan->queue != queue || !plan->has_bindings)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "group: the plan %s",
                        plan->queue != queue ? "belongs to another queue" : "is not bound");
    tdm_job *job = NULL;
    tdm_status status =
        tdm_job_make(&queue->jobs, plan, waits, n_wait, signals, n_signal, &job, err);
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&queue->jobs.mutex);
    tdm_jobs_push(&queue->jobs, job);
    pthread_mutex_unlock(&queue->jobs.mutex);
    meta_event_signal(&queue->submitted);
    return TDM_OK;
}

/* Ends a plan that counts in n_plan; NULL is one that was not made. */
static void plan_end(meta_device *device, tdm_plan *plan) {
    meta_plan_destroy(plan);
    if (atomic_fetch_sub(&device->n_plan, 1) == 1) meta_plan_memory_release(device);
}

static void plan_destroy(tdm_plan *plan) {
    if (plan != NULL) plan_end(plan->device, plan);
}

static tdm_status plan_prepare(tdm_queue *queue, const tdm_graph *graph,
                               const tdm_plan_params *params, tdm_plan **plan_out, tdm_error *err) {
    meta_device *device = queue->device;
    meta_plan *plan = NULL;
    tdm_status status = tdm_plan_flags_check("group", params, err);
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&device->mutex);
    atomic_fetch_add(&device->n_plan, 1);
    status = broken_check(device, err);
    /* Releases what was kept for members that did not end a test or a measurement in time. */
    if (status == TDM_OK) (void)meta_stuck_members_check(device);
    if (status == TDM_OK) status = meta_compile(device, graph, &plan, err);
    if (status == TDM_OK) {
        plan->queue = queue;
        for (int32_t i = 0; i < queue->n_member_queue; i++)
            plan->members[queue->member_queues[i].d].queue = queue->member_queues[i].queue;
        status = meta_plan_prepare(plan, err);
    }
    pthread_mutex_unlock(&device->mutex);
    if (status != TDM_OK) {
        plan_end(device, plan);
        return status;
    }
    *plan_out = plan;
    return TDM_OK;
}

static tdm_status plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                            tdm_error *err) {
    pthread_mutex_lock(&plan->device->mutex);
    tdm_status status = broken_check(plan->device, err);
    if (status == TDM_OK) status = meta_plan_bind(plan, bindings, n_binding, err);
    pthread_mutex_unlock(&plan->device->mutex);
    return status;
}

static tdm_status plan_get_info(const tdm_plan *plan, tdm_plan_info *info_out, tdm_error *err) {
    tdm_plan_info info = {.struct_size = sizeof info, .host_size = plan->host_size};
    for (int32_t d = 0; d < plan->device->n_member; d++) {
        const meta_member_plan *m = &plan->members[d];
        const tdm_queue_ops *ops = plan->device->members[d].acquired.plugin->queue;
        uint64_t scratch = 0;
        for (int32_t s = 0; meta_is_active(plan->device, d) && s < m->n_stage; s++) {
            tdm_plan_info own = {.struct_size = sizeof own};
            if (m->stages[s].plan == NULL || !TDM_HAS(ops, plan_get_info)) continue;
            tdm_status status = ops->plan_get_info(m->stages[s].plan, &own, err);
            if (status != TDM_OK) return status;
            info.device_size += own.device_size;
            info.host_size += own.host_size;
            info.crossing_size += own.crossing_size;
            if (own.scratch_size > scratch) scratch = own.scratch_size;
        }
        info.scratch_size += scratch;
    }
    tdm_struct_write(info_out, &info, sizeof info);
    return TDM_OK;
}

static uint64_t queue_progress(const tdm_queue *queue) {
    return atomic_load_explicit(&queue->progress, memory_order_relaxed);
}

void meta_queue_set_inner(tdm_queue *queue) {
    queue->is_inner = true;
}

const tdm_queue_ops meta_queue_ops = {
    .struct_size = sizeof(tdm_queue_ops),
    .create = queue_create,
    .destroy = queue_destroy,
    .graph_prepare = plan_prepare,
    .plan_destroy = plan_destroy,
    .plan_get_info = plan_get_info,
    .plan_bind = plan_bind,
    .graph_compute = queue_compute,
    .progress = queue_progress,
};
