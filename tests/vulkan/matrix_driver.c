/* SPDX-License-Identifier: MIT
 *
 * matrix_driver.c: a Vulkan loader that offers cooperative matrices of one chosen shape, on a driver
 * whose matrices may have flexible sizes (VK_NV_cooperative_matrix2), as Mesa's software driver does
 * (26.2). That driver's own shapes are of 8 x 8 elements, which the plugin does not use. With this
 * loader the kernels on matrices compute on the real instructions, without a card.
 *
 * Environment: MATRIX_DRIVER_LOADER is the path of the real loader, MATRIX_DRIVER_SHAPE the rows and
 * columns of sums, such as 16x16; products have 16 elements. MATRIX_DRIVER_MODULES is a file to
 * which a line is added for each shader on matrices.
 */
#define VK_NO_PROTOTYPES
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan_core.h>

#include "tests/vulkan/front_driver.h"

/* Names and numbers of the Vulkan registry: headers of Debian 12 are older. */
#define FLEXIBLE_EXTENSION     "VK_NV_cooperative_matrix2"
#define FLEXIBLE_FEATURES_TYPE ((VkStructureType)1000593000)
#define FLEXIBLE_SHAPE_TYPE    ((VkStructureType)1000593001)
enum {
    COMPONENT_F16 = 0,
    COMPONENT_F32 = 1,
    SCOPE_SUBGROUP = 3,
    DEPTH = 16,
    MAX_SHAPE = 256,
    MAX_EXTENSION = 32,
    OP_CAPABILITY = 17,
    CAPABILITY_MATRIX = 6022 /* CooperativeMatrixKHR */
};

/* VkPhysicalDeviceCooperativeMatrix2FeaturesNV */
typedef struct flexible_features {
    VkStructureType sType;
    void *pNext;
    VkBool32 workgroup_scope, flexible_dimensions, reductions, conversions, per_element_operations,
        tensor_addressing, block_loads;
} flexible_features;

/* VkCooperativeMatrixPropertiesKHR */
typedef struct shape {
    VkStructureType sType;
    void *pNext;
    uint32_t MSize, NSize, KSize;
    int32_t AType, BType, CType, ResultType;
    VkBool32 saturatingAccumulation;
    int32_t scope;
} shape;

/* VkCooperativeMatrixFlexibleDimensionsPropertiesNV: each size may be any multiple of these. */
typedef struct flexible_shape {
    VkStructureType sType;
    void *pNext;
    uint32_t MGranularity, NGranularity, KGranularity;
    int32_t AType, BType, CType, ResultType;
    VkBool32 saturatingAccumulation;
    int32_t scope;
    uint32_t workgroupInvocations;
} flexible_shape;

typedef VkResult(VKAPI_PTR *shapes_fn)(VkPhysicalDevice device, uint32_t *n, shape *shapes);
typedef VkResult(VKAPI_PTR *flexible_fn)(VkPhysicalDevice device, uint32_t *n,
                                         flexible_shape *shapes);

static struct {
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
    PFN_vkGetDeviceProcAddr GetDeviceProcAddr;
    PFN_vkCreateDevice CreateDevice;
    PFN_vkCreateShaderModule CreateShaderModule;
    flexible_fn flexible_shapes;
} real;

/* Whether the driver multiplies matrices of these sizes, of f16 with sums in f32. */
static bool is_offered(VkPhysicalDevice device, uint32_t rows, uint32_t columns) {
    static flexible_shape all[MAX_SHAPE]; /* instances are made one at a time in these tests */
    uint32_t n = MAX_SHAPE;
    for (int i = 0; i < MAX_SHAPE; i++) all[i] = (flexible_shape){.sType = FLEXIBLE_SHAPE_TYPE};
    if (real.flexible_shapes(device, &n, all) < 0) return false;
    for (uint32_t i = 0; i < n; i++)
        if (all[i].AType == COMPONENT_F16 && all[i].BType == COMPONENT_F16 &&
            all[i].CType == COMPONENT_F32 && all[i].ResultType == COMPONENT_F32 &&
            all[i].scope == SCOPE_SUBGROUP && rows % all[i].MGranularity == 0 &&
            columns % all[i].NGranularity == 0 && DEPTH % all[i].KGranularity == 0)
            return true;
    return false;
}

/* The chosen shape alone. */
static VkResult VKAPI_CALL my_shapes(VkPhysicalDevice device, uint32_t *n, shape *shapes) {
    const char *text = getenv("MATRIX_DRIVER_SHAPE");
    unsigned rows = 0, columns = 0;
    const bool has_shape = text != NULL && sscanf(text, "%ux%u", &rows, &columns) == 2 &&
                           is_offered(device, rows, columns);
    if (shapes == NULL || !has_shape) return *n = has_shape, VK_SUCCESS;
    if (*n == 0) return VK_INCOMPLETE;
    *n = 1;
    shapes[0].MSize = rows, shapes[0].NSize = columns, shapes[0].KSize = DEPTH;
    shapes[0].AType = shapes[0].BType = COMPONENT_F16;
    shapes[0].CType = shapes[0].ResultType = COMPONENT_F32;
    shapes[0].saturatingAccumulation = VK_FALSE;
    shapes[0].scope = SCOPE_SUBGROUP;
    return VK_SUCCESS;
}

/* Adds the extension of flexible sizes to what the plugin requests. */
static VkResult VKAPI_CALL my_CreateDevice(VkPhysicalDevice physical,
                                           const VkDeviceCreateInfo *info,
                                           const VkAllocationCallbacks *callbacks, VkDevice *out) {
    const char *names[MAX_EXTENSION];
    VkDeviceCreateInfo with = *info;
    flexible_features features = {.sType = FLEXIBLE_FEATURES_TYPE,
                                  .pNext = (void *)info->pNext,
                                  .flexible_dimensions = VK_TRUE};
    if (info->enabledExtensionCount >= MAX_EXTENSION) return VK_ERROR_EXTENSION_NOT_PRESENT;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++)
        names[i] = info->ppEnabledExtensionNames[i];
    names[with.enabledExtensionCount++] = FLEXIBLE_EXTENSION;
    with.ppEnabledExtensionNames = names;
    with.pNext = &features;
    return real.CreateDevice(physical, &with, callbacks, out);
}

static VkResult VKAPI_CALL my_CreateShaderModule(VkDevice device,
                                                 const VkShaderModuleCreateInfo *info,
                                                 const VkAllocationCallbacks *callbacks,
                                                 VkShaderModule *out) {
    const char *path = getenv("MATRIX_DRIVER_MODULES");
    bool uses_matrices = false;
    for (size_t at = 5; at + 1 < info->codeSize / 4 && (info->pCode[at] & 0xffff) == OP_CAPABILITY;
         at += info->pCode[at] >> 16)
        uses_matrices = uses_matrices || info->pCode[at + 1] == CAPABILITY_MATRIX;
    FILE *file = path != NULL && uses_matrices ? fopen(path, "a") : NULL;
    if (file != NULL) {
        fprintf(file, "%zu bytes\n", info->codeSize);
        fclose(file);
    }
    return real.CreateShaderModule(device, info, callbacks, out);
}

static PFN_vkVoidFunction VKAPI_CALL my_GetDeviceProcAddr(VkDevice device, const char *name) {
    const PFN_vkVoidFunction found = real.GetDeviceProcAddr(device, name);
    FRONT_WRAP(CreateShaderModule)
    return found;
}

EXPORT PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance, const char *name) {
    if (real.GetInstanceProcAddr == NULL)
        real.GetInstanceProcAddr = front_open("MATRIX_DRIVER_LOADER");
    if (real.GetInstanceProcAddr == NULL) return NULL;
    const PFN_vkVoidFunction found = real.GetInstanceProcAddr(instance, name);
    FRONT_WRAP(CreateDevice)
    FRONT_WRAP(GetDeviceProcAddr)
    if (strcmp(name, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR") == 0) {
        real.flexible_shapes = (flexible_fn)real.GetInstanceProcAddr(
            instance, "vkGetPhysicalDeviceCooperativeMatrixFlexibleDimensionsPropertiesNV");
        return found != NULL && real.flexible_shapes != NULL ? (PFN_vkVoidFunction)my_shapes : NULL;
    }
    return found;
}
