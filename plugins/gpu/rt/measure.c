/* SPDX-License-Identifier: MIT
 *
 * measure.c: measures the bandwidth of a device's memory with the driver's own copy inside the
 * device. Peaks of arithmetic are not measured: no kernel of ours reaches them yet, and a number of
 * our kernels would be no limit.
 */
#include <math.h>
#include <string.h>
#include <time.h>

#include "core/base/params.h"
#include "plugins/gpu/rt/rt.h"

enum { N_RUN = 4, MAX_COPY = 32 };
#define COPY_SIZE_MIN ((uint64_t)16 << 20)
#define COPY_SIZE_MAX ((uint64_t)256 << 20) /* more than the caches of a fast device hold */
#define RUN_SECONDS   0.02

static double clock_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Seconds of n copies, from the first submission to the end of the last. */
static tdm_status copies_time(rt_device *device, const rt_memory *dst, const rt_memory *src, int n,
                              double *seconds_out, tdm_error *err) {
    const rt_driver *fn = device->fn;
    rt_result result = RT_SUCCESS;
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&device->copy_mutex);
    const double start = clock_seconds();
    for (int i = 0; i < n && result == RT_SUCCESS; i++)
        result =
            fn->copy_inside(dst->address, src->address, (size_t)src->size, device->copy_stream);
    rt_result waited = fn->stream_sync(device->copy_stream);
    *seconds_out = clock_seconds() - start;
    pthread_mutex_unlock(&device->copy_mutex);
    if (result != RT_SUCCESS) return rt_fail(device, err, result, RT_FN_copy_inside);
    return waited == RT_SUCCESS ? TDM_OK : rt_fail(device, err, waited, RT_FN_stream_sync);
}

/* Bytes per second that are read and written together, of memory of this size. The first copy,
 * which is not counted, writes the memory for the first time. */
static tdm_status bandwidth_measure(rt_device *device, const rt_memory *dst, const rt_memory *src,
                                    double *rate_out, tdm_error *err) {
    double once = 0, best = INFINITY;
    tdm_status status = rt_fill(device, src, 0, src->size, 0x5a, err);
    for (int i = 0; i < 2 && status == TDM_OK; i++)
        status = copies_time(device, dst, src, 1, &once, err);
    if (status != TDM_OK) return status;
    const int n = (int)fmin(fmax(RUN_SECONDS / once, 1), MAX_COPY);
    for (int i = 0; i < N_RUN && status == TDM_OK; i++) {
        double seconds = 0;
        status = copies_time(device, dst, src, n, &seconds, err);
        best = fmin(best, seconds);
    }
    if (status == TDM_OK) *rate_out = 2 * (double)src->size * n / best;
    return status;
}

/* Two pieces of the same size. */
static tdm_status pieces_alloc(rt_device *device, uint64_t size, rt_memory pieces[2],
                               tdm_error *err) {
    tdm_status status = rt_memory_alloc(device, size, false, &pieces[0], err);
    if (status != TDM_OK) return status;
    status = rt_memory_alloc(device, size, false, &pieces[1], err);
    if (status != TDM_OK) rt_memory_free(device, &pieces[0]);
    return status;
}

tdm_status rt_limits_measure(tdm_device *device, tdm_device_limits *limits_out, tdm_error *err) {
    tdm_device_limits limits = {.struct_size = sizeof limits};
    rt_memory pieces[2];
    tdm_status status = rt_enter(device, err);
    if (status != TDM_OK) return status;
    /* An emulated device copies with the processor, whose caches are smaller than the least. */
    uint64_t size = device->source->driver.is_emulated ? COPY_SIZE_MIN : COPY_SIZE_MAX;
    do {
        status = pieces_alloc(device, size, pieces, err);
        if (status == TDM_RESOURCE_EXHAUSTED) size /= 2;
    } while (status == TDM_RESOURCE_EXHAUSTED && size >= COPY_SIZE_MIN);
    /* Without memory the bandwidth stays unknown. */
    if (status == TDM_RESOURCE_EXHAUSTED) {
        status = TDM_OK;
    } else if (status == TDM_OK) {
        status = bandwidth_measure(device, &pieces[0], &pieces[1], &limits.read_bandwidth, err);
        rt_memory_free(device, &pieces[0]);
        rt_memory_free(device, &pieces[1]);
    }
    if (status == TDM_OK) tdm_struct_write(limits_out, &limits, sizeof limits);
    return status;
}
