/* SPDX-License-Identifier: MIT
 *
 * parts.c: see parts.h.
 */
#include "plugins/vulkan/parts.h"

#include <math.h>
#include <stdlib.h>

/* Most slices of a step: a bound on the submissions where an estimate is far too high. */
enum { MAX_SLICE = 32, MAX_SLICE_INTEGRATED = 64 };

/* Estimated seconds of a part, at most: a quarter of what the strictest driver of cards allows, so
 * that a part may take four times its estimate. */
static const double part_seconds = 0.5;
/* An integrated GPU draws the desktop too. i915 resets it where the desktop has to wait more than
 * 640 ms for the end of a dispatch, which it does not interrupt on Gen9. */
static const double part_seconds_integrated = 0.1;
/* No rate is learned from shorter computations: they take most of their time to submit. */
static const double least_seconds = 0.002;

void vk_rates_init(vk_rates *rates, const vk_facts *facts) {
    double scale = facts->is_cpu ? 1 : facts->is_integrated ? 4 : 20;
    atomic_init(&rates->bytes, 5e9 * scale);
    atomic_init(&rates->ops, 5e9 * scale * (facts->is_cpu ? 1 : 4));
}

static double seconds_of(const vk_device *device, const gpu_work *work) {
    return work->bytes / atomic_load(&device->rates.bytes) +
           work->ops / atomic_load(&device->rates.ops);
}

/* ---- Slices ---------------------------------------------------------------------------------- */

/* The axis along which a step is sliced. Kernels compute their workgroup's number as x + y *
 * (workgroups along x), and of a slice the driver gives them only the slice's workgroups along x:
 * so a slice must have all of x where there is more than one y. The planner uses no z. */
static int slice_axis(const gpu_step *step) {
    return step->grid[1] > 1 ? 1 : 0;
}

bool vk_slice_get(const gpu_step *step, uint32_t slice, uint32_t n_slice, uint32_t begin_out[3],
                  uint32_t count_out[3]) {
    const int axis = slice_axis(step);
    const uint64_t n = step->grid[axis];
    for (int i = 0; i < 3; i++) {
        begin_out[i] = 0;
        count_out[i] = step->grid[i];
    }
    begin_out[axis] = (uint32_t)(n * slice / n_slice);
    count_out[axis] = (uint32_t)(n * (slice + 1) / n_slice) - begin_out[axis];
    return count_out[axis] > 0;
}

/* Into how many slices of at most `limit` seconds a step of `seconds` is cut, at most max_slice; 1
 * = it stays whole. */
static int32_t slices_of(const gpu_step *step, double seconds, double limit, int32_t max_slice) {
    double n = ceil(seconds / limit), most = step->grid[slice_axis(step)];
    if (most > max_slice) most = max_slice;
    return n <= 1 ? 1 : n < most ? (int32_t)n : (int32_t)most;
}

/* ---- Parts ----------------------------------------------------------------------------------- */

static bool parts_reserve(tdm_plan *plan, int32_t n) {
    if (n <= plan->max_part) return true;
    if (n < 2 * plan->max_part) n = 2 * plan->max_part;
    vk_part *parts = realloc(plan->parts, (size_t)n * sizeof *parts);
    if (parts != NULL) plan->parts = parts;
    VkSubmitInfo *submits = realloc(plan->submits, (size_t)n * sizeof *submits);
    if (submits != NULL) plan->submits = submits;
    if (parts == NULL || submits == NULL) return false;
    plan->max_part = n;
    return true;
}

/* Adds a part of steps first .. end - 1; nothing where these are none. There is room for it. */
static void part_add(tdm_plan *plan, int32_t first, int32_t end) {
    if (first < end) plan->parts[plan->n_part++] = (vk_part){.first = first, .end = end};
}

static void slices_add(tdm_plan *plan, int32_t step, int32_t n) {
    for (int32_t i = 0; i < n; i++)
        plan->parts[plan->n_part++] =
            (vk_part){.first = step, .end = step + 1, .slice = (uint32_t)i, .n_slice = (uint32_t)n};
}

/* A plan without steps has a part without any, so that its queue signals. */
tdm_status vk_parts_cut(tdm_plan *plan, tdm_error *err) {
    const vk_device *device = plan->device;
    const int32_t n_step = plan->bound.steps->n_step;
    const bool is_integrated = device->facts->is_integrated;
    const int32_t max_slice = is_integrated ? MAX_SLICE_INTEGRATED : MAX_SLICE;
    const double limit = device->options.part_us > 0 ? device->options.part_us * 1e-6
                         : is_integrated             ? part_seconds_integrated
                                                     : part_seconds;
    double seconds = 0;
    int32_t first = 0;
    bool has_memory = parts_reserve(plan, n_step + 1);
    plan->n_part = 0;
    plan->work = (gpu_work_range){0};
    for (int32_t i = 0; i < n_step && has_memory; i++) {
        const gpu_step *step = &plan->bound.steps->steps[i];
        const gpu_work work = gpu_step_work(step);
        const double more = seconds_of(device, &work);
        const int32_t n_slice = slices_of(step, more, limit, max_slice);
        /* The steps before, the slices, and the steps behind. */
        has_memory = parts_reserve(plan, plan->n_part + n_slice + 2);
        if (!has_memory) break;
        if (n_slice > 1 || seconds + more > limit) {
            part_add(plan, first, i);
            first = i;
            seconds = 0;
        }
        if (n_slice > 1) {
            slices_add(plan, i, n_slice);
            first = i + 1;
        } else {
            seconds += more;
        }
        gpu_work_add(&plan->work, &work);
    }
    if (!has_memory) {
        plan->n_part = 0;
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a plan", device->name);
    }
    part_add(plan, first, n_step);
    if (plan->n_part == 0) plan->parts[plan->n_part++] = (vk_part){.first = 0};
    return TDM_OK;
}

/* ---- Rates ----------------------------------------------------------------------------------- */

/* Of bytes and ops, the one that takes more of the estimate gets a new rate: the mean of the old
 * rate and of the old rate times estimate / seconds. */
void vk_rates_learn(vk_device *device, const gpu_work_range *work, double seconds) {
    if (seconds < least_seconds) return;
    const bool is_faster = seconds_of(device, &work->least) > seconds;
    const gpu_work *shown = is_faster ? &work->least : &work->most;
    double by_bytes = shown->bytes / atomic_load(&device->rates.bytes);
    double by_ops = shown->ops / atomic_load(&device->rates.ops);
    double factor = (by_bytes + by_ops) / seconds;
    if (factor <= 0 || is_faster != (factor > 1)) return;
    _Atomic double *rate = by_ops > by_bytes ? &device->rates.ops : &device->rates.bytes;
    atomic_store(rate, atomic_load(rate) * (1 + factor) / 2);
}
