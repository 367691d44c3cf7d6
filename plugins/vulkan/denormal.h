/* SPDX-License-Identifier: MIT
 *
 * denormal.h: whether a device reads denormal f16 numbers as what they are.
 */
#ifndef TANDEM_VULKAN_DENORMAL_H
#define TANDEM_VULKAN_DENORMAL_H

#include "plugins/vulkan/vk.h"

/* TDM_UNSUPPORTED where the device takes denormal f16 numbers for 0: then scales of quantised weights
 * would be lost without a word. A driver that keeps them when it is asked (float_mode.h) is not
 * tried; others compute a row of a table. The device is open. [setup] */
tdm_status vk_denormals_check(vk_device *device, tdm_error *err);

#endif
