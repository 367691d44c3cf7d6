/* SPDX-License-Identifier: MIT
 *
 * parts.c: see parts.h.
 */
#include "plugins/vulkan/parts.h"

/* A quarter of what the strictest driver allows, so that an estimate may be wrong by four. */
static const double part_seconds = 0.5;
/* Below that, the time of a submission counts more than its work. */
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

void vk_parts_cut(tdm_plan *plan) {
    const vk_device *device = plan->device;
    const double limit =
        device->options.part_us > 0 ? device->options.part_us * 1e-6 : part_seconds;
    double seconds = 0;
    plan->n_part = 0;
    plan->work = (gpu_work){0};
    for (int32_t i = 0; i < plan->bound.steps->n_step; i++) {
        const gpu_work work = gpu_step_work(&plan->bound.steps->steps[i]);
        double more = seconds_of(device, &work);
        if (i > 0 && seconds + more > limit) {
            plan->parts[plan->n_part++].end = i;
            seconds = 0;
        }
        seconds += more;
        if (work.is_upper) continue;
        plan->work.bytes += work.bytes;
        plan->work.ops += work.ops;
    }
    plan->parts[plan->n_part++].end = plan->bound.steps->n_step;
}

/* The rate of what takes most of the estimate moves half of the way to what was seen. The work is
 * what was certainly done, so that the rate seen is one that the device really reaches: a higher one
 * would make parts too long. */
void vk_rates_learn(vk_device *device, const gpu_work *work, double seconds) {
    double by_bytes = work->bytes / atomic_load(&device->rates.bytes);
    double by_ops = work->ops / atomic_load(&device->rates.ops);
    if (seconds < least_seconds || by_bytes + by_ops <= 0) return;
    _Atomic double *rate = by_ops > by_bytes ? &device->rates.ops : &device->rates.bytes;
    double old = atomic_load(rate), factor = (by_bytes + by_ops) / seconds;
    atomic_store(rate, old * (1 + factor) / 2);
}
