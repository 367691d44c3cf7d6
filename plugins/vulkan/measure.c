/* SPDX-License-Identifier: MIT
 *
 * measure.c: measures a device's limits with a kernel that only reads, and one that only multiplies
 * and adds. Each runs for some hundredths of a second, long beside the time of a submission, and
 * the shortest of several runs counts. Of a software driver these are limits of its code, below
 * those of the processor.
 */
#include "plugins/vulkan/measure.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugins/vulkan/plan.h"

enum {
    GROUP_SIZE = 256, /* or less: of whole subgroups */
    N_RUN = 4,
    UNIT = 16,          /* bytes of a load */
    READ_TRIPS = 16,    /* of four loads */
    FLOP_BY_TRIP = 128, /* 16 multiply-adds of four elements */
    N_THREAD = 1 << 18, /* more than any device runs at a time */
    MAX_TRIPS = 32768,  /* below what software drivers end loops at */
    MAX_STEP = 64
};
#define READ_SIZE_MIN ((uint64_t)32 << 20)
#define READ_SIZE_MAX ((uint64_t)512 << 20) /* more than the caches of a fast device hold */
#define RUN_NS        30000000.0

/* The queue and the one buffer of all runs. Kernels read it; they contain stores to it that never
 * run. */
typedef struct bench {
    vk_device *device;
    tdm_queue *queue;
    tdm_buffer *buffer;
    uint64_t size;
} bench;

static double clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* n_step times the same step, with no barrier between them. */
static gpu_plan *steps_make(const bench *b, bool reads, int32_t n_thread, int32_t trips,
                            int32_t n_step) {
    gpu_plan *plan = calloc(1, sizeof *plan);
    if (plan == NULL) return NULL;
    plan->steps = calloc((size_t)n_step, sizeof *plan->steps);
    plan->slot_sizes = calloc(2, sizeof *plan->slot_sizes);
    if (plan->steps == NULL || plan->slot_sizes == NULL) {
        gpu_plan_destroy(plan);
        return NULL;
    }
    const gpu_target *target = &b->device->target;
    int32_t group_size = target->max_group_size < GROUP_SIZE ? target->max_group_size : GROUP_SIZE;
    group_size -= group_size % target->subgroup_max;
    uint32_t n_group = (uint32_t)((n_thread + group_size - 1) / group_size);
    uint32_t x = n_group;
    while (x > target->max_grid[0]) x = (x + 1) / 2;
    plan->n_step = n_step;
    plan->n_slot = 1;
    plan->slot_sizes[0] = b->size;
    for (int32_t i = 0; i < n_step; i++) {
        gpu_step *step = &plan->steps[i];
        step->kernel = GPU_KERNEL_LIMIT;
        step->group_size = group_size;
        step->grid[0] = x;
        step->grid[1] = (n_group + x - 1) / x;
        step->grid[2] = 1;
        step->spec[0] = !reads;
        step->word[0] = n_thread;
        step->word[1] = trips;
        /* Sizes are the bytes that the step really moves: rates are learned from them (parts.h).
         * The stores never run, and only one kernel reads. */
        step->operand[0] = (gpu_operand){.space = GPU_SPACE_SLOT};
        step->operand[1] = (gpu_operand){.space = GPU_SPACE_SLOT, .size = reads ? b->size : 0};
    }
    return plan;
}

/* Nanoseconds of the shortest of n_run runs of a bound plan. */
static tdm_status plan_time(const bench *b, tdm_plan *plan, int n_run, double *ns_out,
                            tdm_error *err) {
    const tdm_host_semaphore_ops *ops = b->device->instance->host->semaphore;
    tdm_point done = {NULL, 0};
    tdm_status status = ops->create(0, &done.semaphore, err);
    *ns_out = INFINITY;
    for (int i = 0; i < n_run && status == TDM_OK; i++) {
        double start = clock_ns();
        done.value++;
        status = vk_queue_ops.graph_compute(b->queue, plan, NULL, 0, &done, 1, err);
        if (status == TDM_OK) status = ops->wait(done.semaphore, done.value, TDM_WAIT_FOREVER, err);
        *ns_out = fmin(*ns_out, clock_ns() - start);
    }
    ops->destroy(done.semaphore);
    return status;
}

static tdm_status run_time(const bench *b, bool reads, int32_t n_thread, int32_t trips,
                           int32_t n_step, int n_run, double *ns_out, tdm_error *err) {
    const tdm_binding binding = {b->buffer, 0, b->size};
    tdm_plan *plan = NULL;
    gpu_plan *steps = steps_make(b, reads, n_thread, trips, n_step);
    if (steps == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", b->device->name);
    tdm_status status = vk_queue_plan(b->queue, steps, &plan, err);
    if (status == TDM_OK) status = vk_plan_bind(plan, &binding, 1, err);
    if (status == TDM_OK) status = plan_time(b, plan, n_run, ns_out, err);
    vk_plan_destroy(plan);
    return status;
}

/* n_step times the whole buffer. */
static tdm_status read_time(const bench *b, int32_t n_step, int n_run, double *ns_out,
                            tdm_error *err) {
    int32_t n_thread = (int32_t)(b->size / UNIT / 4 / READ_TRIPS);
    return run_time(b, true, n_thread, READ_TRIPS, n_step, n_run, ns_out, err);
}

/* Bytes per second. The buffer is read as often as takes about RUN_NS; `once_ns` is the time of
 * once. */
static tdm_status read_measure(const bench *b, double once_ns, double *rate_out, tdm_error *err) {
    int32_t n_step = (int32_t)fmin(fmax(RUN_NS / once_ns, 1), MAX_STEP);
    double ns = 0;
    tdm_status status = read_time(b, n_step, N_RUN, &ns, err);
    if (status == TDM_OK) *rate_out = (double)b->size * n_step / (ns * 1e-9);
    return status;
}

/* Operations per second. Trips grow until a run takes at least a quarter of RUN_NS. */
static tdm_status f32_measure(const bench *b, double *rate_out, tdm_error *err) {
    int32_t trips = 8;
    double ns = 0;
    tdm_status status;
    for (;;) {
        status = run_time(b, false, N_THREAD, trips, 1, N_RUN, &ns, err);
        if (status != TDM_OK || ns >= RUN_NS / 4 || trips == MAX_TRIPS) break;
        trips *= 4;
        if (trips > MAX_TRIPS) trips = MAX_TRIPS;
    }
    *rate_out = (double)N_THREAD * trips * FLOP_BY_TRIP / (ns * 1e-9);
    return status;
}

/* Replaces the buffer by one of `size` bytes. It is written once: memory that was never written may
 * lie in a cache as one page. Without memory the buffer stays. */
static tdm_status buffer_grow(bench *b, uint64_t size, bool *has_grown_out, tdm_error *err) {
    const tdm_buffer_params params = {
        .struct_size = sizeof params, .size = size, .purpose = TDM_BUFFER_COMPUTE};
    tdm_buffer *buffer = NULL;
    *has_grown_out = vk_buffer_ops.alloc(b->device, &params, &buffer, NULL) == TDM_OK;
    if (!*has_grown_out) return TDM_OK;
    vk_buffer_ops.free(b->buffer);
    b->buffer = buffer;
    b->size = size;
    return vk_buffer_ops.fill(buffer, 0, size, 0x5a, err);
}

/* A buffer that is read in little time may lie in a cache: then a larger one is read. */
static tdm_status all_measure(bench *b, tdm_device_limits *limits, tdm_error *err) {
    double once_ns = 0;
    bool has_grown = true;
    tdm_status status = TDM_OK;
    for (uint64_t size = READ_SIZE_MIN; size <= READ_SIZE_MAX && once_ns < RUN_NS / 2; size *= 4) {
        status = buffer_grow(b, size, &has_grown, err);
        if (status == TDM_OK && has_grown) status = read_time(b, 1, 2, &once_ns, err);
        if (status != TDM_OK || !has_grown) break;
    }
    if (status != TDM_OK || b->buffer == NULL) return status;
    status = read_measure(b, once_ns, &limits->read_bandwidth, err);
    if (status == TDM_OK) status = f32_measure(b, &limits->f32_peak, err);
    /* Products with 8-bit integers are done in f32. */
    limits->int8_peak = limits->f32_peak;
    snprintf(limits->arithmetic, sizeof limits->arithmetic, "f32");
    return status;
}

tdm_status vk_limits_measure(tdm_device *device, tdm_device_limits *limits_out, tdm_error *err) {
    tdm_device_limits limits = {.struct_size = sizeof limits};
    bench b = {.device = device};
    /* Groups are whole subgroups, for which test-limits may leave no room. */
    const bool has_groups = device->target.max_group_size >= device->target.subgroup_max;
    tdm_status status = vk_queue_ops.create(device, &b.queue, err);
    if (status == TDM_OK && has_groups) status = all_measure(&b, &limits, err);
    vk_queue_ops.destroy(b.queue);
    vk_buffer_ops.free(b.buffer);
    if (status == TDM_OK) tdm_struct_write(limits_out, &limits, sizeof limits);
    return status;
}
