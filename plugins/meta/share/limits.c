/* SPDX-License-Identifier: MIT
 *
 * limits.c: measures the members' limits, each in a thread of its own, and adds them up.
 */
#include "plugins/meta/share/limits.h"

#include <signal.h>
#include <string.h>

typedef struct measurement {
    const meta_member *member; /* NULL: not measured */
    tdm_device_limits limits;
    tdm_status status;
    tdm_error err;
    pthread_t thread;
    bool is_started;
} measurement;

static void *member_measure(void *arg) {
    measurement *m = arg;
    const tdm_device_ops *ops = m->member->acquired.plugin->device;
    m->limits.struct_size = sizeof m->limits;
    m->status = TDM_OK;
    if (TDM_HAS(ops, measure_limits))
        m->status = ops->measure_limits(m->member->acquired.device, &m->limits, &m->err);
    return NULL;
}

static void members_measure(meta_device *device, measurement *measurements) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int32_t d = 0; d < device->n_member; d++) {
        measurement *m = &measurements[d];
        if (!meta_is_active(device, d)) continue;
        m->member = &device->members[d];
        m->is_started = pthread_create(&m->thread, NULL, member_measure, m) == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    for (int32_t d = 0; d < device->n_member; d++)
        if (measurements[d].is_started) pthread_join(measurements[d].thread, NULL);
    /* Members for which no thread could be made are measured one after another. */
    for (int32_t d = 0; d < device->n_member; d++)
        if (measurements[d].member != NULL && !measurements[d].is_started)
            member_measure(&measurements[d]);
}

static void limit_add(double *sum, double part, bool *is_known) {
    *is_known = *is_known && part > 0;
    *sum = *is_known ? *sum + part : 0;
}

static tdm_status limits_add(const meta_device *device, measurement *measurements,
                             tdm_device_limits *sum, tdm_error *err) {
    bool knows_read = true, knows_int8 = true, knows_f32 = true, is_first = true;
    for (int32_t d = 0; d < device->n_member; d++) {
        measurement *m = &measurements[d];
        if (m->member == NULL) continue;
        if (m->status != TDM_OK)
            return tdm_fail(err, m->status, "member '%s': measuring its limits: %.300s",
                            m->member->name, m->err.message);
        m->limits.arithmetic[sizeof m->limits.arithmetic - 1] = 0;
        limit_add(&sum->read_bandwidth, m->limits.read_bandwidth, &knows_read);
        limit_add(&sum->int8_peak, m->limits.int8_peak, &knows_int8);
        limit_add(&sum->f32_peak, m->limits.f32_peak, &knows_f32);
        if (is_first)
            memcpy(sum->arithmetic, m->limits.arithmetic, sizeof sum->arithmetic);
        else if (strcmp(sum->arithmetic, m->limits.arithmetic) != 0)
            snprintf(sum->arithmetic, sizeof sum->arithmetic, "mixed");
        is_first = false;
    }
    return TDM_OK;
}

tdm_status meta_limits_measure(meta_device *device, tdm_device_limits *limits_out, tdm_error *err) {
    tdm_device_limits sum = {.struct_size = sizeof sum};
    const size_t size = TDM_MAX_MEMBERS * sizeof(measurement);
    measurement *measurements = meta_alloc(device->host, size);
    if (measurements == NULL) return meta_no_memory("to measure limits", err);
    pthread_mutex_lock(&device->mutex);
    tdm_status status = device->is_broken
                            ? tdm_fail(err, device->broken.status, "%.400s", device->broken.message)
                            : TDM_OK;
    if (status == TDM_OK) members_measure(device, measurements);
    pthread_mutex_unlock(&device->mutex);
    if (status == TDM_OK) status = limits_add(device, measurements, &sum, err);
    if (status == TDM_OK) tdm_struct_write(limits_out, &sum, sizeof sum);
    meta_free(device->host, measurements, size);
    return status;
}
