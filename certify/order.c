/* SPDX-License-Identifier: MIT
 *
 * order.c: checks of semaphores between computations: waits before signals, order on one queue and
 * across queues, and how failures propagate.
 */
#include <string.h>
#include <time.h>

#include "core/device/runtime.h"
#include "certify/pipe.h"

static certify_verdict semaphore_make(certify *c, tdm_semaphore **out) {
    if (tdm_semaphore_ops.create(0, out, NULL) == TDM_OK) return CERTIFY_PASSED;
    return certify_skip(c, "out of memory");
}

/* Pauses, so that a computation that wrongly does not wait has time to run. */
static void linger(void) {
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
}

static certify_verdict unreached_judge(certify *c, tdm_semaphore *done, const char *what) {
    uint64_t value = 0;
    linger();
    if (tdm_semaphore_ops.query(done, &value, NULL) != TDM_OK || value != 0)
        return certify_fail(c, "%s", what);
    return CERTIFY_PASSED;
}

static certify_verdict early_wait_check(certify *c) {
    certify_pipe p;
    tdm_point gates[2] = {{NULL, 5}, {NULL, 1}};
    certify_verdict verdict = certify_pipe_open(c, &p);
    for (int i = 0; verdict == CERTIFY_PASSED && i < 2; i++)
        verdict = semaphore_make(c, &gates[i].semaphore);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_submit(&p, gates, 2, 1);
    if (verdict == CERTIFY_PASSED)
        verdict = unreached_judge(c, p.done, "ran before anything was signalled");
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_semaphore_ops.signal(gates[1].semaphore, 1);
    tdm_semaphore_ops.signal(gates[0].semaphore, 4); /* of 5 */
    verdict = unreached_judge(c, p.done, "ran when one of two points was not reached");
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_semaphore_ops.signal(gates[0].semaphore, 6); /* past it */
    verdict = certify_pipe_wait(&p, 1);
    return verdict == CERTIFY_PASSED ? certify_pipe_judge(&p, "after a wait") : verdict;
}

static certify_verdict signals_check(certify *c) {
    certify_pipe p;
    tdm_point signals[3] = {{NULL, 1}, {NULL, 7}, {NULL, 3}};
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_pipe_open(c, &p);
    for (int i = 0; verdict == CERTIFY_PASSED && i < 3; i++)
        verdict = semaphore_make(c, &signals[i].semaphore);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (c->plugin->queue->graph_compute(p.queue, p.plan, NULL, 0, signals, 3, &err) != TDM_OK)
        return certify_fail(c, "%s", err.message);
    for (int i = 0; i < 3; i++)
        if (tdm_semaphore_ops.wait(signals[i].semaphore, signals[i].value, 30000000000u, &err) !=
            TDM_OK)
            return certify_fail(c, "signal %d of 3: %.300s", i, err.message);
    return CERTIFY_PASSED;
}

/* Two plans of one queue. */
static certify_verdict serial_check(certify *c) {
    certify_pipe a, b;
    tdm_point gate = {NULL, 1}, done;
    tdm_plan *second = NULL;
    tdm_plan_params params = {sizeof params, 0};
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_pipe_open(c, &a);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_create(c, &b);
    if (verdict == CERTIFY_PASSED) verdict = semaphore_make(c, &gate.semaphore);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_submit(&a, &gate, 1, 1);
    if (verdict != CERTIFY_PASSED) return verdict;
    done = (tdm_point){b.done, 1};
    const tdm_queue_ops *ops = c->plugin->queue;
    const certify_rig *rig = &b.chain.rig;
    if (ops->graph_prepare(a.queue, rig->graph, &params, &second, &err) != TDM_OK ||
        ops->plan_bind(second, rig->bindings, rig->graph->n_slot, &err) != TDM_OK ||
        ops->graph_compute(a.queue, second, NULL, 0, &done, 1, &err) != TDM_OK)
        return certify_fail(c, "%s", err.message);
    verdict = unreached_judge(c, b.done, "the second computation overtook the first");
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_semaphore_ops.signal(gate.semaphore, 1);
    verdict = certify_pipe_wait(&b, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&a, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_judge(&a, "the first");
    return verdict == CERTIFY_PASSED ? certify_pipe_judge(&b, "the second") : verdict;
}

/* b waits for a, and is submitted first. */
static certify_verdict across_check(certify *c) {
    certify_pipe a, b;
    certify_verdict verdict = certify_pipe_open(c, &a);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_create(c, &b);
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_point gate = {a.done, 1};
    verdict = certify_pipe_submit(&b, &gate, 1, 1);
    if (verdict == CERTIFY_PASSED)
        verdict = unreached_judge(c, b.done, "ran before the other queue's work");
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_submit(&a, NULL, 0, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&b, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_judge(&a, "the first queue");
    return verdict == CERTIFY_PASSED ? certify_pipe_judge(&b, "the second queue") : verdict;
}

/* ---- Failure ---- */

static const char failure_text[] = "the suite made this wait fail";

static void gate_fail(tdm_semaphore *gate) {
    tdm_error err = {.struct_size = sizeof err};
    (void)tdm_fail(&err, TDM_DATA_LOSS, "%s", failure_text);
    tdm_semaphore_ops.fail(gate, TDM_DATA_LOSS, &err);
}

static certify_verdict poison_judge(certify *c, tdm_semaphore *s, const char *who) {
    tdm_error err = {.struct_size = sizeof err};
    tdm_status status = tdm_semaphore_ops.wait(s, 1, 30000000000u, &err);
    if (status != TDM_DATA_LOSS)
        return certify_fail(c, "%s got '%s', not '%s'", who, tdm_status_text(status),
                            tdm_status_text(TDM_DATA_LOSS));
    if (strstr(err.message, failure_text) == NULL)
        return certify_fail(c, "%s got another message: \"%.200s\"", who, err.message);
    return CERTIFY_PASSED;
}

static certify_verdict poison_check(certify *c) {
    certify_pipe p;
    tdm_point gate = {NULL, 1}, signals[2] = {{NULL, 1}, {NULL, 1}};
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_pipe_open(c, &p);
    if (verdict == CERTIFY_PASSED) verdict = semaphore_make(c, &gate.semaphore);
    for (int i = 0; verdict == CERTIFY_PASSED && i < 2; i++)
        verdict = semaphore_make(c, &signals[i].semaphore);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (c->plugin->queue->graph_compute(p.queue, p.plan, &gate, 1, signals, 2, &err) != TDM_OK)
        return certify_fail(c, "%s", err.message);
    gate_fail(gate.semaphore);
    verdict = poison_judge(c, signals[0].semaphore, "the first signal");
    if (verdict == CERTIFY_PASSED)
        verdict = poison_judge(c, signals[1].semaphore, "the second signal");
    return verdict;
}

static certify_verdict skipped_check(certify *c) {
    certify_pipe p;
    tdm_point gate = {NULL, 1};
    certify_verdict verdict = certify_pipe_open(c, &p);
    if (verdict == CERTIFY_PASSED) verdict = semaphore_make(c, &gate.semaphore);
    if (verdict != CERTIFY_PASSED) return verdict;
    gate_fail(gate.semaphore); /* before the work is given */
    verdict = certify_pipe_submit(&p, &gate, 1, 1);
    if (verdict != CERTIFY_PASSED) return verdict;
    (void)tdm_semaphore_ops.wait(p.done, 1, 30000000000u, NULL);
    return certify_pipe_judge_untouched(&p, "behind a failure");
}

static certify_verdict spread_check(certify *c) {
    certify_pipe a, b, d;
    tdm_point gate = {NULL, 1};
    certify_verdict verdict = certify_pipe_open(c, &a);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_create(c, &b);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_create(c, &d);
    if (verdict == CERTIFY_PASSED) verdict = semaphore_make(c, &gate.semaphore);
    if (verdict != CERTIFY_PASSED) return verdict;
    tdm_point after_a = {a.done, 1}, after_b = {b.done, 1};
    verdict = certify_pipe_submit(&d, &after_b, 1, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_submit(&b, &after_a, 1, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_submit(&a, &gate, 1, 1);
    if (verdict != CERTIFY_PASSED) return verdict;
    gate_fail(gate.semaphore);
    verdict = poison_judge(c, d.done, "the third queue");
    return verdict == CERTIFY_PASSED ? poison_judge(c, b.done, "the second queue") : verdict;
}

/* A queue must work after a failure, with new semaphores. */
static certify_verdict recover_check(certify *c) {
    certify_pipe p;
    tdm_point gate = {NULL, 1};
    certify_verdict verdict = certify_pipe_open(c, &p);
    if (verdict == CERTIFY_PASSED) verdict = semaphore_make(c, &gate.semaphore);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_submit(&p, &gate, 1, 1);
    if (verdict != CERTIFY_PASSED) return verdict;
    gate_fail(gate.semaphore);
    (void)tdm_semaphore_ops.wait(p.done, 1, 30000000000u, NULL);
    verdict = semaphore_make(c, &p.done);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_submit(&p, NULL, 0, 1);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&p, 1);
    return verdict == CERTIFY_PASSED ? certify_pipe_judge(&p, "after a failure") : verdict;
}

static const certify_check checks[] = {
    {"order.wait-first", 3,
     "semaphore.h: \"Waiting for a point before anything has promised to signal it is legal.\"; "
     "queue.h: graph_compute: \"once every wait is reached\"",
     early_wait_check},
    {"order.signals", 3,
     "queue.h: graph_compute: \"runs the plan with the memory it is bound to, then signals\"",
     signals_check},
    {"order.serial", 3,
     "queue.h: \"A queue runs computations in the order in which they were given.\"", serial_check},
    {"order.across", 3,
     "semaphore.h: \"timelines, the only way in which work on different queues is put in order\"",
     across_check},
    {"order.poison", 3,
     "semaphore.h: \"work behind it is skipped and fails its own signals with the same error\"",
     poison_check},
    {"order.skipped", 3, "semaphore.h: \"work behind it is skipped\"", skipped_check},
    {"order.poison-spreads", 3,
     "semaphore.h: \"every wait, present and future, returns that status at once\"", spread_check},
    {"order.recover", 3, "semaphore.h: \"A poisoned semaphore stays so; make a new one to go on.\"",
     recover_check},
};
const certify_table certify_order_table = CERTIFY_SHARED_TABLE(checks);
