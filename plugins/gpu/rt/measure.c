/* SPDX-License-Identifier: MIT
 *
 * measure.c: measures the limits of a device: the bandwidth of its memory with the driver's copy
 * inside the device; its arithmetic with the kernel LIMIT_RATE, which computes in registers alone
 * with the instructions of the kernels of products. The shortest of several runs counts.
 */
#include <math.h>
#include <string.h>
#include <time.h>

#include "core/base/params.h"
#include "plugins/gpu/rt/plan.h"

enum {
    N_RUN = 4,
    MAX_COPY = 32,
    RATE_THREADS = 256,
    RATE_GROUPS = 16, /* workgroups of a compute unit */
    MAX_TRIPS = 1 << 20,
    BYTE_OPS = 4 * 16 * 16 * 16 * 2, /* operations of a trip of a wave in limit_rate.cu */
    FLOAT_OPS = 16 * 2               /* operations of a trip of a thread there */
};
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
    rt_result waited = rt_stream_end(device, device->copy_stream);
    *seconds_out = clock_seconds() - start;
    pthread_mutex_unlock(&device->copy_mutex);
    if (result != RT_SUCCESS) return rt_fail(device, err, result, RT_FN_copy_inside);
    return waited == RT_SUCCESS ? TDM_OK : rt_fail(device, err, waited, RT_FN_stream_sync);
}

/* Bytes per second of a copy, read and written bytes added up. The first copy is not counted: it
 * writes the memory for the first time. */
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

/* Seconds of one launch of LIMIT_RATE. The kernel gets the address of `memory`, so that a compiler
 * cannot remove the computation, but writes nothing there. */
static tdm_status rate_time(rt_device *device, const gpu_step *step, const rt_memory *memory,
                            double *seconds_out, tdm_error *err) {
    const rt_driver *fn = device->fn;
    rt_function function = {0};
    tdm_status status = rt_function_get(device, step, &function, err);
    if (status != TDM_OK) return status;
    rt_args args = {.args = {.address = {memory->address}}};
    memcpy(args.args.word, step->word, sizeof step->word);
    memcpy(args.spec, step->spec, sizeof step->spec);
    void *params[] = {&args};
    pthread_mutex_lock(&device->copy_mutex);
    const double start = clock_seconds();
    rt_result result = fn->launch(function.handle, step->grid[0], 1, 1, RATE_THREADS, 1, 1,
                                  rt_shared_size(step), device->copy_stream, params, NULL);
    rt_result waited = rt_stream_end(device, device->copy_stream);
    *seconds_out = clock_seconds() - start;
    pthread_mutex_unlock(&device->copy_mutex);
    if (result != RT_SUCCESS) return rt_fail(device, err, result, RT_FN_launch);
    return waited == RT_SUCCESS ? TDM_OK : rt_fail(device, err, waited, RT_FN_stream_sync);
}

/* Operations per second. The number of trips grows until a launch takes a quarter of RUN_SECONDS.
 * The first launch is not counted: it also loads the kernel. */
static tdm_status rate_measure(rt_device *device, bool is_float, const rt_memory *memory,
                               double *rate_out, tdm_error *err) {
    const bool is_emulated = device->source->driver.is_emulated;
    const int32_t n_unit = device->target.n_unit > 0 ? device->target.n_unit : 1;
    gpu_step step = {.kernel = GPU_KERNEL_LIMIT_RATE,
                     .group_size = RATE_THREADS,
                     .grid = {is_emulated ? 1 : (uint32_t)(n_unit * RATE_GROUPS), 1, 1},
                     .word = {1},
                     .spec = {is_float}};
    const double ops = is_float ? (double)FLOAT_OPS * RATE_THREADS
                                : (double)BYTE_OPS * RATE_THREADS / device->target.subgroup_max;
    double once = 0, best = INFINITY;
    tdm_status status = rate_time(device, &step, memory, &once, err);
    while (status == TDM_OK && step.word[0] < MAX_TRIPS) {
        status = rate_time(device, &step, memory, &once, err);
        if (once >= RUN_SECONDS / 4) break;
        step.word[0] *= 4;
    }
    for (int i = 0; i < N_RUN && status == TDM_OK; i++) {
        status = rate_time(device, &step, memory, &once, err);
        best = fmin(best, once);
    }
    if (status == TDM_OK) *rate_out = ops * step.grid[0] * step.word[0] / best;
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
    /* On an emulated device, whose copies the processor makes, the least size exceeds the
     * caches. */
    uint64_t size = device->source->driver.is_emulated ? COPY_SIZE_MIN : COPY_SIZE_MAX;
    do {
        status = pieces_alloc(device, size, pieces, err);
        if (status == TDM_RESOURCE_EXHAUSTED) size /= 2;
    } while (status == TDM_RESOURCE_EXHAUSTED && size >= COPY_SIZE_MIN);
    /* Without memory nothing is measured: all limits stay 0, unknown. */
    if (status == TDM_RESOURCE_EXHAUSTED) {
        status = TDM_OK;
    } else if (status == TDM_OK) {
        status = bandwidth_measure(device, &pieces[0], &pieces[1], &limits.read_bandwidth, err);
        if (status == TDM_OK)
            status = rate_measure(device, false, &pieces[0], &limits.int8_peak, err);
        if (status == TDM_OK)
            status = rate_measure(device, true, &pieces[0], &limits.f32_peak, err);
        rt_memory_free(device, &pieces[0]);
        rt_memory_free(device, &pieces[1]);
    }
    if (status == TDM_OK) tdm_struct_write(limits_out, &limits, sizeof limits);
    return status;
}
