/* SPDX-License-Identifier: MIT
 *
 * limits.c: measures the members' limits, each in a thread of its own, and adds them up.
 */
#include "plugins/meta/share/limits.h"

#include <signal.h>
#include <string.h>

typedef struct question {
    const meta_member *member; /* NULL: not measured */
    tdm_device_limits limits;
    tdm_status status;
    tdm_error err;
    pthread_t thread;
    bool is_started;
} question;

static void *question_ask(void *arg) {
    question *q = arg;
    const tdm_device_ops *ops = q->member->acquired.plugin->device;
    q->limits.struct_size = sizeof q->limits;
    q->status = TDM_OK;
    if (TDM_HAS(ops, measure_limits))
        q->status = ops->measure_limits(q->member->acquired.device, &q->limits, &q->err);
    return NULL;
}

static void questions_ask(meta_device *device, question *questions) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int32_t d = 0; d < device->n_member; d++) {
        question *q = &questions[d];
        if (!meta_is_active(device, d)) continue;
        q->member = &device->members[d];
        q->is_started = pthread_create(&q->thread, NULL, question_ask, q) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int32_t d = 0; d < device->n_member; d++)
        if (questions[d].is_started) pthread_join(questions[d].thread, NULL);
    /* Members for which no thread could be made are measured one after another. */
    for (int32_t d = 0; d < device->n_member; d++)
        if (questions[d].member != NULL && !questions[d].is_started) question_ask(&questions[d]);
}

static void limit_add(double *sum, double part, bool *is_known) {
    *is_known = *is_known && part > 0;
    *sum = *is_known ? *sum + part : 0;
}

static tdm_status questions_add(const meta_device *device, question *questions,
                                tdm_device_limits *sum, tdm_error *err) {
    bool knows_read = true, knows_int8 = true, knows_f32 = true, is_first = true;
    for (int32_t d = 0; d < device->n_member; d++) {
        question *q = &questions[d];
        if (q->member == NULL) continue;
        if (q->status != TDM_OK)
            return tdm_fail(err, q->status, "member '%s': measuring its limits: %.300s",
                            q->member->name, q->err.message);
        q->limits.arithmetic[sizeof q->limits.arithmetic - 1] = 0;
        limit_add(&sum->read_bandwidth, q->limits.read_bandwidth, &knows_read);
        limit_add(&sum->int8_peak, q->limits.int8_peak, &knows_int8);
        limit_add(&sum->f32_peak, q->limits.f32_peak, &knows_f32);
        if (is_first)
            memcpy(sum->arithmetic, q->limits.arithmetic, sizeof sum->arithmetic);
        else if (strcmp(sum->arithmetic, q->limits.arithmetic) != 0)
            snprintf(sum->arithmetic, sizeof sum->arithmetic, "mixed");
        is_first = false;
    }
    return TDM_OK;
}

tdm_status meta_limits_measure(meta_device *device, tdm_device_limits *limits_out, tdm_error *err) {
    tdm_device_limits sum = {.struct_size = sizeof sum};
    const size_t size = TDM_MAX_MEMBERS * sizeof(question);
    question *questions = meta_alloc(device->host, size);
    if (questions == NULL) return meta_no_memory("to measure limits", err);
    pthread_mutex_lock(&device->mutex);
    tdm_status status = device->is_broken
                            ? tdm_fail(err, device->broken.status, "%.400s", device->broken.message)
                            : TDM_OK;
    if (status == TDM_OK) questions_ask(device, questions);
    pthread_mutex_unlock(&device->mutex);
    if (status == TDM_OK) status = questions_add(device, questions, &sum, err);
    if (status == TDM_OK) tdm_struct_write(limits_out, &sum, sizeof sum);
    meta_free(device->host, questions, size);
    return status;
}
