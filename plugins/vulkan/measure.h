/* SPDX-License-Identifier: MIT
 *
 * measure.h: the limits of a device as kernels reach them.
 */
#ifndef TANDEM_VULKAN_MEASURE_H
#define TANDEM_VULKAN_MEASURE_H

#include "plugins/vulkan/vk.h"

/* tdm_device_ops.measure_limits. Where no buffer to read from can be allocated, all limits are 0.
 * */
tdm_status vk_limits_measure(tdm_device *device, tdm_device_limits *limits_out, tdm_error *err);

#endif
