/* SPDX-License-Identifier: MIT
 *
 * queue.c: checks of single queues and plans: creation, preparation, running. The order of work on
 * several queues is checked in order.c.
 */
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/device/runtime.h"
#include "certify/pipe.h"

static certify_verdict run_check(certify *c) {
    certify_pipe p;
    certify_verdict verdict = certify_pipe_open(c, &p);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_submit(&p, NULL, 0, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&p, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_judge(&p, "through a queue");
    return verdict;
}

static certify_verdict null_check(certify *c) {
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (!TDM_HAS(c->plugin, queue)) return certify_skip(c, "no queues");
    c->plugin->queue->destroy(NULL);
    c->plugin->queue->plan_destroy(NULL);
    return CERTIFY_PASSED;
}

/* The caller's arrays are overwritten as soon as each call returns, while the work still waits. */
static certify_verdict arrays_check(certify *c) {
    certify_pipe p;
    tdm_point gate = {NULL, 1};
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_pipe_open(c, &p);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (tdm_semaphore_ops.create(0, &gate.semaphore, NULL) != TDM_OK)
        return certify_skip(c, "out of memory");
    int32_t n = p.chain.rig.graph->n_slot;
    tdm_binding *bindings = malloc((size_t)n * sizeof *bindings);
    tdm_point waits[1] = {gate}, signals[1] = {{p.done, 1}};
    if (bindings == NULL) return certify_skip(c, "out of memory");
    memcpy(bindings, p.chain.rig.bindings, (size_t)n * sizeof *bindings);
    tdm_status status = c->plugin->queue->plan_bind(p.plan, bindings, n, &err);
    memset(bindings, 0xee, (size_t)n * sizeof *bindings);
    if (status == TDM_OK)
        status = c->plugin->queue->graph_compute(p.queue, p.plan, waits, 1, signals, 1, &err);
    memset(waits, 0xee, sizeof waits);
    memset(signals, 0xee, sizeof signals);
    if (status != TDM_OK) return certify_fail(c, "%s", err.message);
    tdm_semaphore_ops.signal(gate.semaphore, 1);
    verdict = certify_pipe_wait(&p, 1);
    free(bindings);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_judge(&p, "with the arrays gone");
    return verdict;
}

/* Creates and destroys queues, each after some work. The first two may leave threads of a driver;
 * those that follow may add none. */
static certify_verdict destroy_check(certify *c) {
    certify_pipe p;
    int n_thread = 0;
    certify_verdict verdict = certify_open(c);
    for (int i = 0; i < 6 && verdict == CERTIFY_PASSED; i++) {
        verdict = certify_pipe_create(c, &p);
        if (verdict == CERTIFY_PASSED) verdict = certify_pipe_submit(&p, NULL, 0, 1);
        if (verdict == CERTIFY_PASSED) verdict = certify_pipe_submit(&p, NULL, 0, 2);
        if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&p, 2);
        if (verdict != CERTIFY_PASSED) return verdict;
        c->plugin->queue->plan_destroy(p.plan);
        c->plugin->queue->destroy(p.queue);
        verdict = certify_pipe_judge(&p, "after its queue");
        if (i == 1) n_thread = certify_thread_count();
    }
    if (verdict == CERTIFY_PASSED && n_thread > 0 && !certify_threads_settle(n_thread))
        return certify_fail(c, "4 queues left %d threads", certify_thread_count() - n_thread);
    return verdict;
}

/* A plan that is not bound, or belongs to another queue, is refused; then it works. */
static certify_verdict refused_check(certify *c) {
    certify_pipe a, b;
    tdm_plan *plan = NULL;
    tdm_plan_params params = {sizeof params, 0};
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_pipe_open(c, &a);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_create(c, &b);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_queue_ops *ops = c->plugin->queue;
    const certify_rig *rig = &a.chain.rig;
    tdm_point done = {a.done, 1};
    if (ops->graph_prepare(a.queue, rig->graph, &params, &plan, &err) != TDM_OK)
        return certify_fail(c, "%s", err.message);
    verdict = certify_expect(c, "a plan that was never bound",
                             ops->graph_compute(a.queue, plan, NULL, 0, &done, 1, &err),
                             TDM_FAILED_PRECONDITION);
    if (verdict == CERTIFY_PASSED &&
        ops->plan_bind(plan, rig->bindings, rig->graph->n_slot - 1, &err) == TDM_OK)
        return certify_fail(c, "plan_bind accepted %d bindings for %d slots",
                            (int)rig->graph->n_slot - 1, (int)rig->graph->n_slot);
    if (verdict == CERTIFY_PASSED &&
        ops->plan_bind(plan, rig->bindings, rig->graph->n_slot, &err) != TDM_OK)
        return certify_fail(c, "plan_bind after a refusal: %.300s", err.message);
    if (verdict == CERTIFY_PASSED)
        verdict = certify_expect(c, "a plan of another queue",
                                 ops->graph_compute(b.queue, plan, NULL, 0, &done, 1, &err),
                                 TDM_FAILED_PRECONDITION);
    if (verdict == CERTIFY_PASSED &&
        ops->graph_compute(a.queue, plan, NULL, 0, &done, 1, &err) != TDM_OK)
        return certify_fail(c, "after two refusals: %.300s", err.message);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&a, 1);
    return verdict == CERTIFY_PASSED ? certify_pipe_judge(&a, "after two refusals") : verdict;
}

/* Binds a small plan, prepares and binds a large one, and runs the small one again: the scratch
 * that they share may not have moved under it. */
static certify_verdict scratch_check(certify *c) {
    certify_pipe a;
    certify_chain large;
    tdm_plan_params params = {sizeof params, 0};
    tdm_plan *plan = NULL;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_pipe_open(c, &a);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_submit(&a, NULL, 0, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&a, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_chain_create(c, 6, 4099, 33, &large);
    if (verdict == CERTIFY_PASSED) verdict = certify_rig_upload(&large.rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_queue_ops *ops = c->plugin->queue;
    const certify_rig *rig = &large.rig;
    if (ops->graph_prepare(a.queue, rig->graph, &params, &plan, &err) != TDM_OK)
        return certify_fail(c, "a large plan: %.300s", err.message);
    for (uint64_t i = 2; i <= 6 && verdict == CERTIFY_PASSED; i += 2) {
        tdm_point done = {a.done, i + 1};
        verdict = certify_rig_upload(&a.chain.rig);
        if (verdict == CERTIFY_PASSED) verdict = certify_pipe_submit(&a, NULL, 0, i);
        if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&a, i);
        if (verdict == CERTIFY_PASSED)
            verdict = certify_pipe_judge(&a, "a small plan beside a large one");
        if (verdict == CERTIFY_PASSED && i == 2 &&
            ops->plan_bind(plan, rig->bindings, rig->graph->n_slot, &err) != TDM_OK)
            return certify_fail(c, "a large plan: %.300s", err.message);
        if (verdict == CERTIFY_PASSED &&
            ops->graph_compute(a.queue, plan, NULL, 0, &done, 1, &err) != TDM_OK)
            return certify_fail(c, "a large plan: %.300s", err.message);
        if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&a, i + 1);
    }
    if (verdict == CERTIFY_PASSED) verdict = certify_rig_download(&large.rig);
    return verdict == CERTIFY_PASSED ? certify_rig_judge(&large.rig, "a large plan", large.nmse)
                                     : verdict;
}

/* A thread that submits computations, all of which wait for `gate`. */
typedef struct submitter {
    certify_pipe *pipe;
    tdm_point gate;
    atomic_int n_done;
    pthread_t thread;
} submitter;

enum { N_SUBMIT = 40 };

static void *submitter_main(void *arg) {
    submitter *s = arg;
    for (int i = 0; i < N_SUBMIT; i++) {
        if (certify_pipe_submit(s->pipe, &s->gate, 1, (uint64_t)i + 1) != CERTIFY_PASSED) break;
        atomic_store(&s->n_done, i + 1);
    }
    return NULL;
}

static certify_verdict never_waits_check(certify *c) {
    certify_pipe p;
    submitter s = {.pipe = &p, .gate = {NULL, 1}};
    certify_verdict verdict = certify_pipe_open(c, &p);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (tdm_semaphore_ops.create(0, &s.gate.semaphore, NULL) != TDM_OK ||
        pthread_create(&s.thread, NULL, submitter_main, &s) != 0)
        return certify_skip(c, "out of memory");
    for (int i = 0; i < 1000 && atomic_load(&s.n_done) < N_SUBMIT; i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    const int n_before = atomic_load(&s.n_done);
    tdm_semaphore_ops.signal(s.gate.semaphore, 1);
    pthread_join(s.thread, NULL);
    if (atomic_load(&s.n_done) < N_SUBMIT) return CERTIFY_FAILED; /* certify_pipe_submit says why */
    if (n_before < N_SUBMIT)
        return certify_fail(c, "returned for %d computations that wait, and not for the next",
                            n_before);
    verdict = certify_pipe_wait(&p, N_SUBMIT);
    return verdict == CERTIFY_PASSED ? certify_pipe_judge(&p, "after 40 submissions") : verdict;
}

/* Allocations from the host's table are all the plugin's, and none is allowed. malloc also serves
 * the driver, which may fill its own caches at any time: its memory in use may grow in some
 * intervals, but not in every one. */
static certify_verdict steady_check(certify *c) {
    enum { N_INTERVAL = 4, PER_INTERVAL = 50 };
    certify_pipe p;
    uint64_t at = 0;
    size_t least = SIZE_MAX, used = 0;
    int64_t n_alloc = 0;
    certify_verdict verdict = certify_pipe_open(c, &p);
    for (int i = -1; verdict == CERTIFY_PASSED && i < N_INTERVAL; i++) {
        const uint64_t end = at + (i < 0 ? 10 : PER_INTERVAL); /* first to warm up */
        while (at < end && verdict == CERTIFY_PASSED) {
            verdict = certify_pipe_submit(&p, NULL, 0, ++at);
            if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&p, at);
        }
        const size_t now = mallinfo2().uordblks;
        if (i < 0) n_alloc = c->host.n_alloc;
        if (i >= 0 && now - used < least) least = now > used ? now - used : 0;
        if (i >= 0 && now < used) least = 0;
        used = now;
    }
    if (verdict != CERTIFY_PASSED) return verdict;
    if (c->host.n_alloc != n_alloc)
        return certify_fail(c, "%d computations allocated %lld times from the host",
                            N_INTERVAL * PER_INTERVAL, (long long)(c->host.n_alloc - n_alloc));
    if (least > PER_INTERVAL * 16)
        return certify_fail(c, "every %d computations keep %zu bytes of malloc's, or more",
                            PER_INTERVAL, least);
    return CERTIFY_PASSED;
}

static certify_verdict info_check(certify *c) {
    union {
        tdm_plan_info info;
        uint8_t bytes[sizeof(tdm_plan_info) + 32];
    } told;
    certify_pipe p;
    certify_verdict verdict = certify_pipe_open(c, &p);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_queue_ops *ops = c->plugin->queue;
    if (!TDM_HAS(ops, plan_get_info)) return certify_skip(c, "no slot plan_get_info");
    for (int is_large = 0; is_large < 2; is_large++) {
        size_t size = is_large ? sizeof told : offsetof(tdm_plan_info, host_size);
        size_t known = is_large ? sizeof told.info : size;
        memset(&told, 0xee, sizeof told);
        told.info.struct_size = size;
        if (ops->plan_get_info(p.plan, &told.info, NULL) != TDM_OK)
            return certify_fail(c, "failed with a struct_size of %zu", size);
        for (size_t i = known; i < sizeof told; i++)
            if (told.bytes[i] != 0xee)
                return certify_fail(c, "wrote behind a struct_size of %zu", size);
    }
    return CERTIFY_PASSED;
}

/* Runs plans of two shapes in turn on one queue. */
static certify_verdict plans_check(certify *c) {
    certify_pipe a;
    certify_chain other;
    tdm_plan_params params = {sizeof params, 0};
    tdm_plan *plan = NULL;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_pipe_open(c, &a);
    if (verdict == CERTIFY_PASSED) verdict = certify_chain_create(c, 3, 70, 2, &other);
    if (verdict == CERTIFY_PASSED) verdict = certify_rig_upload(&other.rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_queue_ops *ops = c->plugin->queue;
    if (ops->graph_prepare(a.queue, other.rig.graph, &params, &plan, &err) != TDM_OK ||
        ops->plan_bind(plan, other.rig.bindings, other.rig.graph->n_slot, &err) != TDM_OK)
        return certify_fail(c, "a second plan: %.300s", err.message);
    for (uint64_t i = 1; verdict == CERTIFY_PASSED && i <= 20; i += 2) {
        tdm_point done = {a.done, i + 1};
        verdict = certify_pipe_submit(&a, NULL, 0, i);
        if (verdict == CERTIFY_PASSED &&
            ops->graph_compute(a.queue, plan, NULL, 0, &done, 1, &err) != TDM_OK)
            verdict = certify_fail(c, "%s", err.message);
    }
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&a, 20);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_judge(&a, "two plans in turn");
    if (verdict == CERTIFY_PASSED) verdict = certify_rig_download(&other.rig);
    if (verdict == CERTIFY_PASSED)
        verdict = certify_rig_judge(&other.rig, "two plans in turn", other.nmse);
    if (verdict == CERTIFY_PASSED) ops->plan_destroy(plan);
    return verdict;
}

/* One plan, other memory at every computation. */
static certify_verdict rebind_check(certify *c) {
    certify_pipe a, b;
    certify_verdict verdict = certify_pipe_open(c, &a);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_create(c, &b);
    for (uint64_t i = 1; verdict == CERTIFY_PASSED && i <= 6; i++) {
        certify_pipe *p = i % 2 ? &a : &b;
        tdm_error err = {.struct_size = sizeof err};
        verdict = certify_rig_upload(&p->chain.rig);
        if (verdict != CERTIFY_PASSED) return verdict;
        if (c->plugin->queue->plan_bind(a.plan, p->chain.rig.bindings, a.chain.rig.graph->n_slot,
                                        &err) != TDM_OK)
            return certify_fail(c, "%s", err.message);
        verdict = certify_pipe_submit(&a, NULL, 0, i);
        if (verdict != CERTIFY_PASSED) return verdict;
        verdict = certify_pipe_wait(&a, i);
        if (verdict == CERTIFY_PASSED) verdict = certify_pipe_judge(p, "with other bindings");
    }
    return verdict;
}

typedef struct driver {
    certify_pipe *pipe;
    pthread_t thread;
    const char *wrong;
} driver;

static void *driver_main(void *arg) {
    driver *d = arg;
    certify_pipe *p = d->pipe;
    for (uint64_t i = 1; i <= 50 && d->wrong == NULL; i++) {
        tdm_point done = {p->done, i};
        if (p->chain.rig.c->plugin->queue->graph_compute(p->queue, p->plan, NULL, 0, &done, 1,
                                                         NULL) != TDM_OK)
            d->wrong = "graph_compute failed";
        else if (tdm_semaphore_ops.wait(p->done, i, TDM_WAIT_FOREVER, NULL) != TDM_OK)
            d->wrong = "a computation failed";
    }
    return NULL;
}

static certify_verdict threads_check(certify *c) {
    certify_pipe pipes[3];
    driver drivers[3];
    certify_verdict verdict = certify_pipe_open(c, &pipes[0]);
    for (int i = 1; verdict == CERTIFY_PASSED && i < 3; i++)
        verdict = certify_pipe_create(c, &pipes[i]);
    if (verdict != CERTIFY_PASSED) return verdict;
    for (int i = 0; i < 3; i++) {
        drivers[i] = (driver){.pipe = &pipes[i]};
        if (pthread_create(&drivers[i].thread, NULL, driver_main, &drivers[i]) != 0)
            return certify_skip(c, "cannot start threads");
    }
    for (int i = 0; i < 3; i++) pthread_join(drivers[i].thread, NULL);
    for (int i = 0; i < 3; i++) {
        if (drivers[i].wrong != NULL)
            return certify_fail(c, "3 queues at once: %s", drivers[i].wrong);
        verdict = certify_pipe_judge(&pipes[i], "3 queues driven by 3 threads");
        if (verdict != CERTIFY_PASSED) return verdict;
    }
    return CERTIFY_PASSED;
}

/* A device with graph_compute_sync and queues must compute equal bits with both. */
static certify_verdict sync_check(certify *c) {
    certify_pipe p;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_pipe_open(c, &p);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (!TDM_HAS(c->plugin->device, graph_compute_sync))
        return certify_skip(c, "no slot graph_compute_sync");
    certify_rig *rig = &p.chain.rig;
    verdict = certify_pipe_submit(&p, NULL, 0, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&p, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_rig_download(rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    uint8_t *queued = malloc(rig->sizes[p.chain.y]);
    if (queued == NULL) return certify_skip(c, "out of memory");
    memcpy(queued, rig->bytes[p.chain.y], rig->sizes[p.chain.y]);
    verdict = certify_rig_upload(rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (certify_rig_compute(rig, &err) != TDM_OK) return certify_fail(c, "%s", err.message);
    verdict = certify_rig_download(rig);
    if (verdict == CERTIFY_PASSED && memcmp(queued, rig->bytes[p.chain.y], rig->sizes[p.chain.y]))
        verdict = certify_fail(c, "graph_compute_sync computes other bits than the queue");
    free(queued);
    return verdict;
}

static const certify_check checks[] = {
    {"queue.run", 3,
     "queue.h: graph_compute: \"runs the plan with the memory it is bound to, then signals\"",
     run_check},
    {"queue.destroy-null", 3, "queue.h: destroy, plan_destroy: \"NULL is a no-op.\"", null_check},
    {"queue.destroy", 3, "queue.h: destroy: \"Ends its threads and destroys\"", destroy_check},
    {"queue.arrays", 3,
     "queue.h: plan_bind: \"The array is read during the call only\"; graph_compute: \"The arrays "
     "are "
     "read before the call returns.\"",
     arrays_check},
    {"queue.refused", 3,
     "queue.h: graph_compute: \"A plan that is not bound, or was prepared for another queue, gives "
     "TDM_FAILED_PRECONDITION.\"",
     refused_check},
    {"queue.rebind", 3, "queue.h: plan_bind: \"for all computations until it is bound again\"",
     rebind_check},
    {"queue.scratch", 3,
     "queue.h: \"It grows in graph_prepare and plan_bind only, and never moves under a bound "
     "plan\"",
     scratch_check},
    {"queue.never-waits", 3, "queue.h: graph_compute: \"never waits for execution\"",
     never_waits_check},
    {"queue.plans", 3,
     "queue.h: \"The caller owns plans and keeps those of every shape it alternates between\"",
     plans_check},
    {"queue.steady", 3,
     "queue.h: plan_bind: \"Allocates all that computing will need.\"; graph_compute: \"Allocates "
     "nothing in steady use\"",
     steady_check},
    {"queue.plan-info", 3,
     "queue.h: plan_get_info: \"fills *info_out as far as its struct_size goes\"", info_check},
    {"queue.threads", 3,
     "plugin.h: \"[queue-serial] from one thread at a time for the same queue\": others at once",
     threads_check},
    {"queue.sync-agrees", 3,
     "queue.h: \"A device without queues offers graph_compute_sync alone\": with both, both "
     "compute "
     "the same",
     sync_check},
};
const certify_table certify_queue_table = CERTIFY_SHARED_TABLE(checks);
