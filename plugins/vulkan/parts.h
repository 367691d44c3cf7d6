/* SPDX-License-Identifier: MIT
 *
 * parts.h: long plans are submitted in parts, since drivers reset a device whose submission runs
 * too long (amdgpu: after 2 s; i915: after 640 ms). Workgroups of a kernel do not depend on each
 * other, so that a part may be a share of them. How long steps run is estimated from what they read
 * and compute, and from how fast earlier computations were.
 */
#ifndef TANDEM_VULKAN_PARTS_H
#define TANDEM_VULKAN_PARTS_H

#include "plugins/vulkan/plan.h"

/* Cautious rates for the kind of device, until something was measured. */
void vk_rates_init(vk_rates *rates, const vk_facts *facts);

/* The workgroups of slice `slice`, 0 .. n_slice - 1, of a step: from begin_out[3] on,
 * count_out[3] of them along each axis. False where the slice has none. */
bool vk_slice_get(const gpu_step *step, uint32_t slice, uint32_t n_slice, uint32_t begin_out[3],
                  uint32_t count_out[3]);

/* Cuts a plan's steps into parts of at most about half a second, or a tenth of a second on an
 * integrated GPU, in plan->parts. A step that alone takes longer becomes several parts, each of a
 * slice of its workgroups. TDM_RESOURCE_EXHAUSTED without memory; the plan then has no parts.
 * [any-thread] */
tdm_status vk_parts_cut(tdm_plan *plan, tdm_error *err);

/* Adapts the rates to a computation of this work (tdm_plan.work) that took `seconds`. It began when
 * its queue had no other work. The rates rise only where the least that was done shows that the
 * device is faster than they say, and fall only where the most that may have been done shows that it
 * is slower. [any-thread] */
void vk_rates_learn(vk_device *device, const gpu_work_range *work, double seconds);

#endif
