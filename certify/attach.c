/* SPDX-License-Identifier: MIT
 *
 * attach.c: checks of the driver's waits that a device attaches to semaphores (semaphore.h). The
 * suite stands between the plugin and the core's semaphores, and calls what was attached itself.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/device/runtime.h"
#include "certify/pipe.h"

enum { MAX_ATTACHED = 64, FIRST_VALUE = 1000 };

/* A native wait that the plugin attached. */
typedef struct attached {
    tdm_semaphore *semaphore;
    uint64_t value;
    tdm_native_wait inner;
} attached;

/* The plugin calls attach without a context, so there is one list. The check has a process of its
 * own. */
static struct {
    pthread_mutex_t mutex;
    attached all[MAX_ATTACHED];
    int n;
    const char *offence; /* a rule that the plugin broke; NULL = none */
} spy = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static tdm_status spied_wait(void *context, uint64_t timeout_ns, tdm_error *err) {
    attached *a = context;
    return a->inner.wait(a->inner.context, timeout_ns, err);
}

static void spied_release(void *context) {
    attached *a = context;
    if (a->inner.release != NULL) a->inner.release(a->inner.context);
}

static tdm_status spied_attach(tdm_semaphore *semaphore, uint64_t value,
                               const tdm_native_wait *wait, tdm_error *err) {
    attached *a = NULL;
    pthread_mutex_lock(&spy.mutex);
    for (int i = 0; i < spy.n; i++)
        if (spy.all[i].semaphore == semaphore && spy.all[i].value >= value)
            spy.offence = "attached values that do not increase";
    if (wait->wait == NULL) spy.offence = "attached a wait without a function";
    if (spy.n < MAX_ATTACHED && spy.offence == NULL) {
        a = &spy.all[spy.n++];
        *a = (attached){semaphore, value, *wait};
    }
    pthread_mutex_unlock(&spy.mutex);
    if (a == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "certify: no room");
    tdm_native_wait outer = {sizeof outer, a, spied_wait, spied_release};
    return tdm_semaphore_ops.attach(semaphore, value, &outer, err);
}

/* The first wait that was attached for the value; NULL where there is none. */
static attached *attached_find(tdm_semaphore *semaphore, uint64_t value) {
    attached *found = NULL;
    pthread_mutex_lock(&spy.mutex);
    for (int i = 0; i < spy.n && found == NULL; i++)
        if (spy.all[i].semaphore == semaphore && spy.all[i].value == value) found = &spy.all[i];
    pthread_mutex_unlock(&spy.mutex);
    return found;
}

/* ---- Calls of an attached wait, on a thread of its own in case it does not return ---- */

typedef struct asker {
    attached *a;
    uint64_t timeout_ns;
    tdm_status status;
    atomic_bool is_back;
} asker;

static void *asker_main(void *arg) {
    asker *k = arg;
    tdm_error err = {.struct_size = sizeof err};
    k->status = k->a->inner.wait(k->a->inner.context, k->timeout_ns, &err);
    atomic_store(&k->is_back, true);
    return NULL;
}

/* Calls an attached wait whose work cannot be done yet. */
static certify_verdict unfinished_judge(certify *c, attached *a, uint64_t timeout_ns) {
    static asker k; /* outlives a call that does not return */
    k.a = a;
    k.timeout_ns = timeout_ns;
    atomic_store(&k.is_back, false);
    pthread_t thread;
    if (pthread_create(&thread, NULL, asker_main, &k) != 0)
        return certify_skip(c, "cannot start threads");
    for (int i = 0; i < 500 && !atomic_load(&k.is_back); i++)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    if (!atomic_load(&k.is_back))
        return certify_fail(c, "an attached wait with a timeout of %llu ns took 5 s",
                            (unsigned long long)timeout_ns);
    pthread_join(thread, NULL);
    if (k.status != TDM_DEADLINE_EXCEEDED)
        return certify_fail(c, "an attached wait returned '%s' before the work began",
                            tdm_status_text(k.status));
    return CERTIFY_PASSED;
}

/* Calls the wait that is attached for FIRST_VALUE while the gate is closed. Opens the gate whatever
 * the verdict is, so that a wait that ignores its timeout ends too. */
static certify_verdict waits_judge(certify *c, certify_pipe *p, tdm_semaphore *gate) {
    static const uint64_t timeouts[] = {0, 1000000, 0};
    certify_verdict verdict = CERTIFY_PASSED;
    /* A plugin may attach from a thread of its own, after graph_compute has returned. */
    for (int i = 0; i < 200 && attached_find(p->done, FIRST_VALUE) == NULL; i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    attached *a = attached_find(p->done, FIRST_VALUE);
    for (int i = 0; i < 3 && a != NULL && verdict == CERTIFY_PASSED; i++)
        verdict = unfinished_judge(c, a, timeouts[i]);
    tdm_semaphore_ops.signal(gate, 1);
    return verdict;
}

static certify_verdict attach_check(certify *c) {
    static tdm_host_semaphore_ops spied;
    static certify_pipe p;
    tdm_point gate = {NULL, 1};
    spied = tdm_semaphore_ops;
    spied.attach = spied_attach;
    c->host.table.semaphore = &spied;
    certify_verdict verdict = certify_pipe_open(c, &p);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (tdm_semaphore_ops.create(0, &gate.semaphore, NULL) != TDM_OK)
        return certify_skip(c, "out of memory");
    verdict = certify_pipe_submit(&p, &gate, 1, FIRST_VALUE);
    if (verdict == CERTIFY_PASSED) verdict = waits_judge(c, &p, gate.semaphore);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&p, FIRST_VALUE);
    if (verdict == CERTIFY_PASSED) verdict = certify_pipe_judge(&p, "when an attached wait ended");
    for (uint64_t i = 1; i <= 5 && verdict == CERTIFY_PASSED; i++) {
        verdict = certify_pipe_submit(&p, NULL, 0, FIRST_VALUE + i);
        if (verdict == CERTIFY_PASSED) verdict = certify_pipe_wait(&p, FIRST_VALUE + i);
    }
    if (verdict == CERTIFY_FAILED) return verdict;
    pthread_mutex_lock(&spy.mutex);
    const char *offence = spy.offence;
    int n = spy.n;
    pthread_mutex_unlock(&spy.mutex);
    if (offence != NULL) return certify_fail(c, "%s", offence);
    if (n == 0) return certify_skip(c, "attaches no waits of a driver");
    return verdict;
}

static const certify_check checks[] = {
    {"order.attach", 3,
     "semaphore.h: tdm_native_wait: \"Waits at most timeout_ns for the work: 0 only polls. TDM_OK: "
     "done, its writes visible to the host. TDM_DEADLINE_EXCEEDED: not yet.\"; attach: \"Values "
     "are "
     "attached in increasing order.\"",
     attach_check},
};
const certify_table certify_attach_table = CERTIFY_TABLE(checks);
