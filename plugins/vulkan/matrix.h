/* SPDX-License-Identifier: MIT
 *
 * matrix.h: what of VK_KHR_cooperative_matrix this plugin uses. The headers of Debian 12 are older
 * than the extension: names and numbers are those of the Vulkan registry.
 */
#ifndef TANDEM_VULKAN_MATRIX_H
#define TANDEM_VULKAN_MATRIX_H

#include "plugins/vulkan/facts.h"

#define VK_MATRIX_EXTENSION "VK_KHR_cooperative_matrix"

/* VkPhysicalDeviceCooperativeMatrixFeaturesKHR */
typedef struct vk_matrix_features {
    VkStructureType sType;
    void *pNext;
    VkBool32 cooperativeMatrix;
    VkBool32 cooperativeMatrixRobustBufferAccess;
} vk_matrix_features;

/* VkPhysicalDeviceCooperativeMatrixPropertiesKHR */
typedef struct vk_matrix_stages {
    VkStructureType sType;
    void *pNext;
    VkShaderStageFlags cooperativeMatrixSupportedStages;
} vk_matrix_stages;

#define VK_MATRIX_FEATURES_TYPE ((VkStructureType)1000506000)
#define VK_MATRIX_SHAPE_TYPE    ((VkStructureType)1000506001)
#define VK_MATRIX_STAGES_TYPE   ((VkStructureType)1000506002)

/* Sets facts->matrix_rows and matrix_columns to the shape of sums that suits PRODUCT_TILE_MATRIX
 * best, with f16 operands and f32 sums. They stay 0 where the driver has none. The device has the
 * extension. [any-thread] */
void vk_matrix_shape_read(const vk_driver *driver, vk_facts *facts);

#endif
