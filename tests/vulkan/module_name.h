/* SPDX-License-Identifier: MIT
 *
 * module_name.h: of which of the plugin's kernels a shader module is, for loaders that tests put
 * before the real one.
 */
#ifndef TANDEM_TESTS_MODULE_NAME_H
#define TANDEM_TESTS_MODULE_NAME_H

#include <vulkan/vulkan_core.h>

/* Keeps the kernel of a module that was made from `info`. [any-thread] */
void module_add(VkShaderModule module, const VkShaderModuleCreateInfo *info);

/* The kernel's name; "unknown" of a module that was not kept or is none of the plugin's.
 * [any-thread] */
const char *module_name(VkShaderModule module);

#endif
