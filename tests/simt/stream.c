/* SPDX-License-Identifier: MIT
 *
 * stream.c: see stream.h.
 */
#include "tests/simt/stream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* While a device is held, its streams accept commands and run none. For tests of calls that must
 * not wait. */
EXPORT void tandem_simt_hold(bool hold);
EXPORT void tandem_simt_hold_device(int device, bool hold);
static bool is_held[SIMT_MAX_DEVICE]; /* under simt_mutex */

void tandem_simt_hold_device(int device, bool hold) {
    pthread_mutex_lock(&simt_mutex);
    is_held[device] = hold;
    pthread_cond_broadcast(&simt_changed);
    pthread_mutex_unlock(&simt_mutex);
}

void tandem_simt_hold(bool hold) {
    for (int i = 0; i < SIMT_MAX_DEVICE; i++) tandem_simt_hold_device(i, hold);
}

/* How many releases had to wait for the device. */
EXPORT long tandem_simt_waits(void);
static long n_wait; /* under simt_mutex */

long tandem_simt_waits(void) {
    pthread_mutex_lock(&simt_mutex);
    long n = n_wait;
    pthread_mutex_unlock(&simt_mutex);
    return n;
}

void simt_idle_wait(const simt_context *c) {
    pthread_mutex_lock(&simt_mutex);
    n_wait += c->n_pending > 0;
    while (c->n_pending > 0 && !is_held[simt_device_of(c)])
        pthread_cond_wait(&simt_changed, &simt_mutex);
    pthread_mutex_unlock(&simt_mutex);
}

typedef bool work_function(const simt_work *launch, char *why, size_t why_size);

/* Runs or starts a launch; a kernel that breaks a rule loses the device. Nothing on a lost
 * device. */
static void kernel_do(simt_stream *s, const simt_work *launch, work_function *work) {
    char why[200];
    pthread_mutex_lock(&simt_mutex);
    bool is_lost = s->context->sticky != RT_SUCCESS;
    pthread_mutex_unlock(&simt_mutex);
    if (is_lost || work(launch, why, sizeof why)) return;
    fprintf(stderr, "simt: kernel %s: %s\n", launch->kernel->name, why);
    pthread_mutex_lock(&simt_mutex);
    s->context->sticky = RT_LAUNCH_FAILED;
    pthread_mutex_unlock(&simt_mutex);
}

/* An early launch is started as early as a device may start it: before the launch before it runs,
 * and a chain of them together. */
static void graph_run(simt_stream *s, const simt_exec *exec) {
    for (int i = 0; i < exec->n; i++) {
        for (int k = i + 1; k <= i + SIMT_MAX_EARLY && k < exec->n && exec->launches[k].is_early;
             k++)
            kernel_do(s, &exec->launches[k], simt_work_start);
        kernel_do(s, &exec->launches[i], simt_work_run);
    }
    simt_works_forget(); /* launches that were started before the device was lost */
}

static void command_run(simt_stream *s, const simt_command *c) {
    switch (c->kind) {
    case COMMAND_LAUNCH: kernel_do(s, &c->launch, simt_work_run); break;
    case COMMAND_GRAPH: graph_run(s, c->exec); break;
    case COMMAND_COPY: memmove(c->dst, c->src, c->size); break;
    case COMMAND_FILL: memset(c->dst, c->byte, c->size); break;
    case COMMAND_EVENT: break;
    }
}

static void *stream_main(void *arg) {
    simt_stream *s = arg;
    pthread_mutex_lock(&simt_mutex);
    for (;;) {
        while ((s->n_done == s->n_given || is_held[simt_device_of(s->context)]) && !s->is_ending)
            pthread_cond_wait(&simt_changed, &simt_mutex);
        if (s->n_done == s->n_given) break;
        const simt_command *c = &s->commands[s->n_done % MAX_COMMAND];
        pthread_mutex_unlock(&simt_mutex);
        command_run(s, c);
        pthread_mutex_lock(&simt_mutex);
        if (c->kind == COMMAND_EVENT && c->event->n_done < c->event_number)
            c->event->n_done = c->event_number;
        s->n_done++;
        s->context->n_pending--;
        pthread_cond_broadcast(&simt_changed);
    }
    pthread_mutex_unlock(&simt_mutex);
    simt_work_end();
    return NULL;
}

/* How many launches, and launches of graphs, were given to streams since the library was loaded. */
EXPORT uint64_t tandem_simt_submissions(void);
static uint64_t n_submission; /* under simt_mutex */

uint64_t tandem_simt_submissions(void) {
    pthread_mutex_lock(&simt_mutex);
    uint64_t n = n_submission;
    pthread_mutex_unlock(&simt_mutex);
    return n;
}

rt_result simt_command_give(simt_stream *s, const simt_command *c) {
    if (s == NULL) return INVALID_HANDLE;
    pthread_mutex_lock(&simt_mutex);
    n_submission += c->kind == COMMAND_LAUNCH || c->kind == COMMAND_GRAPH;
    while (s->n_given - s->n_done == MAX_COMMAND) pthread_cond_wait(&simt_changed, &simt_mutex);
    s->commands[s->n_given++ % MAX_COMMAND] = *c;
    s->context->n_pending++;
    pthread_cond_broadcast(&simt_changed);
    pthread_mutex_unlock(&simt_mutex);
    return RT_SUCCESS;
}

rt_result simt_stream_create(void **stream_out, unsigned flags) {
    (void)flags;
    CALL_UNSAFE(stream_create);
    simt_stream *s = calloc(1, sizeof *s);
    if (s == NULL) return RT_OUT_OF_MEMORY;
    s->context = simt_current;
    if (pthread_create(&s->thread, NULL, stream_main, s) != 0) {
        free(s);
        return RT_OUT_OF_MEMORY;
    }
    *stream_out = s;
    simt_live_add(1);
    return RT_SUCCESS;
}

rt_result simt_stream_destroy(void *handle) {
    simt_stream *s = handle;
    RELEASE();
    pthread_mutex_lock(&simt_mutex);
    s->is_ending = true;
    pthread_cond_broadcast(&simt_changed);
    pthread_mutex_unlock(&simt_mutex);
    pthread_join(s->thread, NULL);
    if (s->capture != NULL && s->capture->streams[0] == s) simt_graph_free(s->capture->graph);
    simt_capture_leave(s);
    free(s);
    simt_live_add(-1);
    return RT_SUCCESS;
}

rt_result simt_stream_sync(void *handle) {
    simt_stream *s = handle;
    CALL_UNSAFE(stream_sync);
    pthread_mutex_lock(&simt_mutex);
    uint64_t given = s->n_given;
    while (s->n_done < given) pthread_cond_wait(&simt_changed, &simt_mutex);
    rt_result result = simt_loss_of(s->context);
    pthread_mutex_unlock(&simt_mutex);
    return result;
}
