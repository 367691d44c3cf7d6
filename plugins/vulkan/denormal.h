/* SPDX-License-Identifier: MIT
 *
 * denormal.h: whether a device computes with denormal f16 numbers, or takes them for 0.
 */
#ifndef TANDEM_VULKAN_DENORMAL_H
#define TANDEM_VULKAN_DENORMAL_H

#include "plugins/vulkan/vk.h"

/* TDM_UNSUPPORTED where the device takes denormal f16 numbers for 0. It would then compute zeros
 * from quantised weights whose scales are such numbers, and report no error. A device whose driver
 * supports the float mode that keeps denormal numbers (float_mode.h) is accepted. Any other device
 * computes a row of a table, and the result is checked. The device is open. [setup] */
tdm_status vk_denormals_check(vk_device *device, tdm_error *err);

#endif
