/* SPDX-License-Identifier: MIT
 *
 * float_mode.h: how shaders compute with floats, as far as a driver lets them choose: whether
 * denormal numbers are kept, whether results are rounded to the nearest, and whether signed zeros,
 * infinities and NaN are kept. SPIR-V leaves all open where a module says nothing.
 *   - Scales of quantised weights are f16 numbers, of most models denormal ones: a driver that
 *     takes them for 0 would compute zeros.
 *   - Attention (attention_*.comp, merge.comp) and softmax (row.comp, route.comp, sinkhorn.comp)
 *     begin with -inf, and compare floats with it for what is masked or empty. The other kernels
 *     have no infinities of their own. But a NaN or an infinity among the operands of any kernel
 *     must be in its result as in the CPU's, and the scale of a group with a NaN is NaN
 *     (quantize.comp, halves.comp). So all modules request that these are kept.
 */
#ifndef TANDEM_VULKAN_FLOAT_MODE_H
#define TANDEM_VULKAN_FLOAT_MODE_H

#include "plugins/vulkan/driver.h"

/* Sets of widths of floats: 16, 32 and 64, joined by |. 0 = the driver's own choice. */
typedef struct vk_float_mode {
    uint32_t keeps_denormals;
    uint32_t rounds_to_nearest;
    uint32_t keeps_infinities; /* and signed zeros, and NaN */
} vk_float_mode;

/* The modes that modules request from a driver with these properties: all three for f16, rounding
 * and infinities for f32, and denormals and rounding of other widths where the driver has one
 * mode for several. [any-thread] */
vk_float_mode vk_float_mode_of(const VkPhysicalDeviceFloatControlsProperties *properties);

/* The module of `size` bytes with instructions that request the modes, to be freed by the caller; a
 * copy of it where there is no mode to request or no place for that. *size_out: its bytes. NULL
 * without memory. [any-thread] */
uint32_t *vk_float_mode_add(const uint32_t *code, size_t size, const vk_float_mode *mode,
                            size_t *size_out);

#endif
