/* SPDX-License-Identifier: MIT
 *
 * shaders.h: the kernels as SPIR-V. The build compiles shaders/<name>.comp for each row of
 * GPU_KERNEL_LIST and embeds the result (embed.py).
 */
#ifndef TANDEM_VULKAN_SHADERS_H
#define TANDEM_VULKAN_SHADERS_H

#include <stddef.h>
#include <stdint.h>

#include "plugins/gpu/plan/kernel.h"

typedef struct vk_shader {
    const uint32_t *code;
    size_t size; /* bytes */
} vk_shader;

extern const vk_shader vk_shaders[GPU_KERNEL_COUNT_];

#endif
