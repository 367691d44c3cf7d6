/* SPDX-License-Identifier: MIT
 *
 * parts.h: long plans are submitted in parts, since drivers reset a device whose submission runs
 * too long (amdgpu: after 2 s). How long steps run is estimated from what they read and compute,
 * and from how fast earlier computations were.
 */
#ifndef TANDEM_VULKAN_PARTS_H
#define TANDEM_VULKAN_PARTS_H

#include "plugins/vulkan/plan.h"

/* Cautious rates for the kind of device, until something was measured. */
void vk_rates_init(vk_rates *rates, const vk_facts *facts);

/* Cuts a plan's steps into parts of at most about half a second, at least one step each, in
 * plan->parts. [any-thread] */
void vk_parts_cut(tdm_plan *plan);

/* A computation of at least this much work (plan->work) took `seconds`, with nothing before it on
 * the device. [any-thread] */
void vk_rates_learn(vk_device *device, const gpu_work *work, double seconds);

#endif
