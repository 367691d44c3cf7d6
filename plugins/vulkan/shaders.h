/* SPDX-License-Identifier: MIT
 *
 * shaders.h: the kernels as SPIR-V. The build compiles shaders/<name>.comp for each row of
 * GPU_KERNEL_LIST and embeds the result (embed.py). A kernel that reads weights is compiled once
 * for each of their types: a driver would take long to throw the code of the others away.
 */
#ifndef TANDEM_VULKAN_SHADERS_H
#define TANDEM_VULKAN_SHADERS_H

#include <stddef.h>
#include <stdint.h>

#include "plugins/gpu/plan/kernel.h"

typedef struct vk_shader {
    int32_t kernel; /* gpu_kernel */
    int32_t type;   /* spec number 0 that it is for; -1 = any */
    const uint32_t *code;
    size_t size; /* bytes */
} vk_shader;

extern const vk_shader vk_shaders[];
extern const int32_t vk_n_shader;

#endif
