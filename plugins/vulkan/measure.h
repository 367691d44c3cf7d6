/* SPDX-License-Identifier: MIT
 *
 * measure.h: the limits of a device as kernels reach them.
 */
#ifndef TANDEM_VULKAN_MEASURE_H
#define TANDEM_VULKAN_MEASURE_H

#include "plugins/vulkan/vk.h"

/* tdm_device_ops.measure_limits. All limits are 0 where no buffer to read from can be allocated, or
 * where a workgroup has fewer threads than a subgroup. */
tdm_status vk_limits_measure(tdm_device *device, tdm_device_limits *limits_out, tdm_error *err);

#endif
