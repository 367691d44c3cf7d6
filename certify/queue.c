/* SPDX-License-Identifier: MIT
 *
 * queue.c: checks of single queues and plans: creation, preparation, running. The order of work on
 * several queues is checked in order.c.
 */
#include <malloc.h>
#include <pthread.h>
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

/* The caller's arrays are overwritten as soon as the call returns, while the work still waits. */
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
    tdm_status status =
        c->plugin->queue->graph_compute(p.queue, p.plan, bindings, n, waits, 1, signals, 1, &err);
    memset(bindings, 0xee, (size_t)n * sizeof *bindings);
    memset(waits, 0xee, sizeof waits);
    memset(signals, 0xee, sizeof signals);
    free(bindings);
    if (status != TDM_OK) return certify_fail(c, "%s", err.message);
    tdm_semaphore_ops.signal(gate.semaphore, 1);
    verdict = certify_pipe_wait(&p, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_judge(&p, "with the arrays gone");
    return verdict;
}

/* Signals a semaphore after a pause, while the queue is being destroyed. */
static void *late_signal(void *arg) {
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    tdm_semaphore_ops.signal(arg, 1);
    return NULL;
}

static certify_verdict destroy_check(certify *c) {
    certify_pipe p;
    tdm_point gate = {NULL, 1};
    pthread_t thread;
    uint64_t value = 0;
    certify_verdict verdict = certify_pipe_open(c, &p);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (tdm_semaphore_ops.create(0, &gate.semaphore, NULL) != TDM_OK)
        return certify_skip(c, "out of memory");
    for (uint64_t i = 1; verdict == CERTIFY_PASSED && i <= 8; i++)
        verdict = certify_pipe_submit(&p, &gate, 1, i);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (pthread_create(&thread, NULL, late_signal, gate.semaphore) != 0)
        return certify_skip(c, "cannot start threads");
    c->plugin->queue->destroy(p.queue);
    if (tdm_semaphore_ops.query(p.done, &value, NULL) != TDM_OK || value != 8)
        return certify_fail(c, "returned while work was left: %llu of 8 computations are done",
                            (unsigned long long)value);
    pthread_join(thread, NULL);
    return certify_pipe_judge(&p, "before the queue went");
}

static certify_verdict steady_check(certify *c) {
    certify_pipe p;
    certify_verdict verdict = certify_pipe_open(c, &p);
    for (uint64_t i = 1; verdict == CERTIFY_PASSED && i <= 10; i++) {
        verdict = certify_pipe_submit(&p, NULL, 0, i);
        if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&p, i);
    }
    if (verdict != CERTIFY_PASSED) return verdict;
    int64_t n_alloc = c->host.n_alloc;
    size_t used = mallinfo2().uordblks;
    for (uint64_t i = 11; verdict == CERTIFY_PASSED && i <= 210; i++) {
        verdict = certify_pipe_submit(&p, NULL, 0, i);
        if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&p, i);
    }
    if (verdict != CERTIFY_PASSED) return verdict;
    if (c->host.n_alloc != n_alloc)
        return certify_fail(c, "200 computations allocated %lld times from the host",
                            (long long)(c->host.n_alloc - n_alloc));
    if (mallinfo2().uordblks > used + 200 * 16)
        return certify_fail(c, "200 computations kept %zu bytes of malloc's",
                            mallinfo2().uordblks - used);
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
    if (ops->graph_prepare(c->device, other.rig.graph, &params, &plan, &err) != TDM_OK)
        return certify_fail(c, "a second plan: %.300s", err.message);
    for (uint64_t i = 1; verdict == CERTIFY_PASSED && i <= 20; i += 2) {
        tdm_point done = {a.done, i + 1};
        verdict = certify_pipe_submit(&a, NULL, 0, i);
        if (verdict == CERTIFY_PASSED &&
            ops->graph_compute(a.queue, plan, other.rig.bindings, other.rig.graph->n_slot, NULL, 0,
                               &done, 1, &err) != TDM_OK)
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
        tdm_point done = {a.done, i};
        tdm_error err = {.struct_size = sizeof err};
        verdict = certify_rig_upload(&p->chain.rig);
        if (verdict != CERTIFY_PASSED) return verdict;
        if (c->plugin->queue->graph_compute(a.queue, a.plan, p->chain.rig.bindings,
                                            a.chain.rig.graph->n_slot, NULL, 0, &done, 1,
                                            &err) != TDM_OK)
            return certify_fail(c, "%s", err.message);
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
        if (p->chain.rig.c->plugin->queue->graph_compute(p->queue, p->plan, p->chain.rig.bindings,
                                                         p->chain.rig.graph->n_slot, NULL, 0, &done,
                                                         1, NULL) != TDM_OK)
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
     "queue.h: graph_compute: \"runs the plan with bindings[n_binding], one for each slot of the "
     "graph, then signals\"",
     run_check},
    {"queue.destroy-null", 3, "queue.h: destroy, plan_destroy: \"NULL is a no-op.\"", null_check},
    {"queue.destroy-waits", 3,
     "queue.h: destroy: \"Waits for the work it was given, then destroys\"", destroy_check},
    {"queue.arrays", 3, "queue.h: graph_compute: \"The arrays are read before the call returns.\"",
     arrays_check},
    {"queue.rebind", 3, "queue.h: graph_compute: \"runs the plan with bindings[n_binding]\"",
     rebind_check},
    {"queue.plans", 3,
     "queue.h: \"The caller owns plans and keeps those of every shape it alternates between\"",
     plans_check},
    {"queue.steady", 3,
     "queue.h: graph_prepare: \"allocates all that running will need, so that computing allocates "
     "nothing\"",
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
const certify_table certify_queue_table = CERTIFY_TABLE(checks);
