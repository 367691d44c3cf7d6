/* SPDX-License-Identifier: MIT
 *
 * float_mode.h: how shaders compute with floats, as far as a driver lets them choose: whether
 * denormal numbers are kept, and whether results are rounded to the nearest. SPIR-V leaves both open
 * where a module says nothing. Scales of quantised weights are f16 numbers, of most models denormal
 * ones: a driver that takes them for 0 would compute zeros.
 */
#ifndef TANDEM_VULKAN_FLOAT_MODE_H
#define TANDEM_VULKAN_FLOAT_MODE_H

#include "plugins/vulkan/driver.h"

/* Sets of widths of floats: 16, 32 and 64, joined by |. 0 = the driver's own choice. */
typedef struct vk_float_mode {
    uint32_t keeps_denormals;
    uint32_t rounds_to_nearest;
} vk_float_mode;

/* The modes that modules ask a driver with these properties for: of f16, of f32's rounding, and of other
 * widths where the driver has one mode for several. [any-thread] */
vk_float_mode vk_float_mode_of(const VkPhysicalDeviceFloatControlsProperties *properties);

/* The module of `size` bytes, with instructions that ask for the modes, to be freed by the caller.
 * *size_out: its bytes. NULL where the module stays as it is, or without memory. [any-thread] */
uint32_t *vk_float_mode_add(const uint32_t *code, size_t size, const vk_float_mode *mode,
                            size_t *size_out);

#endif
