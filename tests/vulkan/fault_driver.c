/* SPDX-License-Identifier: MIT
 *
 * fault_driver.c: see fault_driver.h. Its name as a library is the loader's, so that a program that
 * has opened it gets it where it asks for libvulkan.so.1.
 */
#define VK_NO_PROTOTYPES
#include "tests/vulkan/fault_driver.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <vulkan/vulkan_core.h>

#include "plugins/vulkan/matrix.h"

#define EXPORT __attribute__((visibility("default")))

EXPORT fault_state fault_state_now = {.call = FAULT_COUNT_};
#define state fault_state_now

/* Functions that are passed through this file. */
#define PASSED_LIST(F)                                                                             \
    FAULT_LIST(F)                                                                                  \
    F(DestroyInstance)                                                                             \
    F(EnumerateDeviceExtensionProperties)                                                          \
    F(GetPhysicalDeviceFeatures2)                                                                  \
    F(GetPhysicalDeviceProperties2)                                                                \
    F(GetPhysicalDeviceMemoryProperties2)                                                          \
    F(GetDeviceProcAddr)                                                                           \
    F(DestroyDevice)                                                                               \
    F(DeviceWaitIdle)                                                                              \
    F(FreeMemory)                                                                                  \
    F(DestroyBuffer)                                                                               \
    F(DestroyShaderModule)                                                                         \
    F(DestroyPipelineLayout)                                                                       \
    F(DestroyPipelineCache)                                                                        \
    F(DestroyPipeline)                                                                             \
    F(DestroyCommandPool)                                                                          \
    F(DestroySemaphore)

/* One driver: the functions are the same for all its devices. */
static struct {
#define FIELD_(name) PFN_vk##name name;
    PASSED_LIST(FIELD_)
#undef FIELD_
} real;

static PFN_vkGetInstanceProcAddr real_get;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static bool is_lost;
static uint64_t sizes[4096]; /* of memory, by its handle's place in `handles` */
static VkDeviceMemory handles[4096];
/* Shaders on cooperative matrices that were not destroyed; VK_NULL_HANDLE = a free place. */
static VkShaderModule matrix_modules[1024];

/* ---- Failing --------------------------------------------------------------------------------- */

static VkResult fault_at(fault_call call) {
    VkResult result = VK_SUCCESS;
    bool is_of_device = call > FAULT_CreateDevice;
    pthread_mutex_lock(&mutex);
    if (state.call == (int32_t)call && state.n_left-- == 0) {
        state.has_failed = 1;
        result = (VkResult)state.result;
        is_lost = is_lost || (result == VK_ERROR_DEVICE_LOST && is_of_device);
    }
    if (is_lost && is_of_device) result = VK_ERROR_DEVICE_LOST;
    pthread_mutex_unlock(&mutex);
    return result;
}

static void count(int32_t more) {
    pthread_mutex_lock(&mutex);
    state.n_object += more;
    pthread_mutex_unlock(&mutex);
}

/* A device that is lost runs nothing any more. The one behind this driver does, and is awaited
 * before what it may use is destroyed. */
static void loss_settle(VkDevice device) {
    pthread_mutex_lock(&mutex);
    const bool was_lost = is_lost;
    pthread_mutex_unlock(&mutex);
    if (was_lost) real.DeviceWaitIdle(device);
}

#define PASS(name, ...)                                                                            \
    VkResult result = fault_at(FAULT_##name);                                                      \
    return result != VK_SUCCESS ? result : real.name(__VA_ARGS__)

/* After a failure, what a call should have made is undefined: nothing may destroy it. */
#define MAKE(name, out, ...)                                                                       \
    VkResult result = fault_at(FAULT_##name);                                                      \
    if (result == VK_SUCCESS) result = real.name(__VA_ARGS__, out);                                \
    if (result == VK_SUCCESS)                                                                      \
        count(1);                                                                                  \
    else                                                                                           \
        memset(out, 0x5a, sizeof *(out));                                                          \
    return result

/* ---- What is made and destroyed -------------------------------------------------------------- */

#define MADE_LIST(F)                                                                               \
    F(CreateBuffer, DestroyBuffer, VkBufferCreateInfo, VkBuffer)                                   \
    F(CreatePipelineLayout, DestroyPipelineLayout, VkPipelineLayoutCreateInfo, VkPipelineLayout)   \
    F(CreatePipelineCache, DestroyPipelineCache, VkPipelineCacheCreateInfo, VkPipelineCache)       \
    F(CreateCommandPool, DestroyCommandPool, VkCommandPoolCreateInfo, VkCommandPool)               \
    F(CreateSemaphore, DestroySemaphore, VkSemaphoreCreateInfo, VkSemaphore)

#define MADE_(create, destroy, info_type, type)                                                    \
    static VkResult VKAPI_CALL my_##create(VkDevice device, const info_type *info,                 \
                                           const VkAllocationCallbacks *callbacks, type *out) {    \
        MAKE(create, out, device, info, callbacks);                                                \
    }                                                                                              \
    static void VKAPI_CALL my_##destroy(VkDevice device, type object,                              \
                                        const VkAllocationCallbacks *callbacks) {                  \
        if (object != VK_NULL_HANDLE) count(-1);                                                   \
        loss_settle(device);                                                                       \
        real.destroy(device, object, callbacks);                                                   \
    }
MADE_LIST(MADE_)

/* ---- Cooperative matrices -------------------------------------------------------------------- */

enum { OP_CAPABILITY = 17, CAPABILITY_MATRIX = 6022 /* CooperativeMatrixKHR */ };

static bool uses_matrices(const VkShaderModuleCreateInfo *info) {
    for (size_t at = 5; at + 1 < info->codeSize / 4 && (info->pCode[at] & 0xffff) == OP_CAPABILITY;
         at += info->pCode[at] >> 16)
        if (info->pCode[at + 1] == CAPABILITY_MATRIX) return true;
    return false;
}

/* Whether `now` is in matrix_modules; if so, `next` takes its place. Several threads of the plugin
 * make pipelines. */
static bool matrix_module_replace(VkShaderModule now, VkShaderModule next) {
    bool is_found = false;
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < sizeof matrix_modules / sizeof matrix_modules[0] && !is_found; i++) {
        is_found = matrix_modules[i] == now;
        if (is_found) matrix_modules[i] = next;
    }
    pthread_mutex_unlock(&mutex);
    return is_found;
}

static VkResult VKAPI_CALL my_CreateShaderModule(VkDevice device,
                                                 const VkShaderModuleCreateInfo *info,
                                                 const VkAllocationCallbacks *callbacks,
                                                 VkShaderModule *out) {
    VkResult result = fault_at(FAULT_CreateShaderModule);
    if (result == VK_SUCCESS) result = real.CreateShaderModule(device, info, callbacks, out);
    if (result == VK_SUCCESS) count(1);
    if (result == VK_SUCCESS && uses_matrices(info) &&
        !matrix_module_replace(VK_NULL_HANDLE, *out)) {
        fprintf(stderr, "fault_driver: too many shaders on matrices\n");
        abort();
    }
    return result;
}

static void VKAPI_CALL my_DestroyShaderModule(VkDevice device, VkShaderModule module,
                                              const VkAllocationCallbacks *callbacks) {
    if (module != VK_NULL_HANDLE) {
        count(-1);
        (void)matrix_module_replace(module, VK_NULL_HANDLE);
    }
    real.DestroyShaderModule(device, module, callbacks);
}

/* VkCooperativeMatrixPropertiesKHR: f16 operands, f32 sums, of a subgroup. */
static VkResult VKAPI_CALL my_matrix_shapes(VkPhysicalDevice physical, uint32_t *n, void *out) {
    const uint32_t size = state.has_matrix == 2 ? 8 : 16;
    const uint32_t shape[] = {size, size, 16, 0, 0, 1, 1, VK_FALSE, 3};
    (void)physical;
    if (out != NULL && *n > 0)
        memcpy((char *)out + 2 * sizeof(void *), shape, sizeof shape); /* behind sType and pNext */
    *n = 1;
    return VK_SUCCESS;
}

static VkBaseOutStructure *chain_find(const void *first, VkStructureType type) {
    VkBaseOutStructure *s = (VkBaseOutStructure *)first;
    while (s != NULL && s->sType != type) s = s->pNext;
    return s;
}

static void VKAPI_CALL my_GetPhysicalDeviceProperties2(VkPhysicalDevice physical,
                                                       VkPhysicalDeviceProperties2 *out) {
    real.GetPhysicalDeviceProperties2(physical, out);
    vk_matrix_stages *stages =
        (vk_matrix_stages *)(void *)chain_find(out->pNext, VK_MATRIX_STAGES_TYPE);
    VkPhysicalDeviceMaintenance4Properties *sizes =
        (VkPhysicalDeviceMaintenance4Properties *)(void *)chain_find(
            out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES);
    VkPhysicalDeviceSubgroupSizeControlProperties *control =
        (VkPhysicalDeviceSubgroupSizeControlProperties *)(void *)chain_find(
            out->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES);
    if (state.max_allocation != 0)
        out->properties.limits.maxMemoryAllocationCount = state.max_allocation;
    if (sizes != NULL && state.max_buffer != 0) sizes->maxBufferSize = state.max_buffer;
    if (control != NULL) state.subgroup = (int32_t)control->minSubgroupSize;
    if (control != NULL && state.max_subgroup != 0)
        control->maxSubgroupSize = (uint32_t)state.max_subgroup;
    if (control != NULL && state.group_subgroups != 0) {
        if (state.max_subgroup == 0) control->maxSubgroupSize = 2 * control->minSubgroupSize;
        control->maxComputeWorkgroupSubgroups = (uint32_t)state.group_subgroups;
    }
    if (stages != NULL) stages->cooperativeMatrixSupportedStages = VK_SHADER_STAGE_COMPUTE_BIT;
}

static VkResult VKAPI_CALL my_CreateComputePipelines(VkDevice device, VkPipelineCache cache,
                                                     uint32_t n,
                                                     const VkComputePipelineCreateInfo *infos,
                                                     const VkAllocationCallbacks *callbacks,
                                                     VkPipeline *out) {
    if (infos[0].stage.module != VK_NULL_HANDLE &&
        matrix_module_replace(infos[0].stage.module, infos[0].stage.module))
        return VK_ERROR_UNKNOWN;
    /* Constant 0 is the group size. */
    int32_t group_size;
    memcpy(&group_size, infos[0].stage.pSpecializationInfo->pData, sizeof group_size);
    pthread_mutex_lock(&mutex);
    if (group_size > state.max_group) state.max_group = group_size;
    const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo *named =
        (const VkPipelineShaderStageRequiredSubgroupSizeCreateInfo *)(const void *)chain_find(
            infos[0].stage.pNext,
            VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO);
    state.named_subgroup = named != NULL ? (int32_t)named->requiredSubgroupSize : 0;
    pthread_mutex_unlock(&mutex);
    VkComputePipelineCreateInfo info = infos[0]; /* the plugin makes one at a time */
    if (state.max_subgroup != 0) info.stage.pNext = NULL;
    MAKE(CreateComputePipelines, out, device, cache, n, &info, callbacks);
}

static void VKAPI_CALL my_DestroyPipeline(VkDevice device, VkPipeline pipeline,
                                          const VkAllocationCallbacks *callbacks) {
    if (pipeline != VK_NULL_HANDLE) count(-1);
    real.DestroyPipeline(device, pipeline, callbacks);
}

static void memory_note(VkDeviceMemory memory, uint64_t size, bool is_new) {
    pthread_mutex_lock(&mutex);
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) {
        if (handles[i] != (is_new ? VK_NULL_HANDLE : memory)) continue;
        state.allocated += is_new ? size : -sizes[i];
        state.n_object += is_new ? 1 : -1;
        state.n_allocation += is_new ? 1 : UINT32_MAX;
        handles[i] = is_new ? memory : VK_NULL_HANDLE;
        sizes[i] = size;
        break;
    }
    pthread_mutex_unlock(&mutex);
}

static VkResult VKAPI_CALL my_AllocateMemory(VkDevice device, const VkMemoryAllocateInfo *info,
                                             const VkAllocationCallbacks *callbacks,
                                             VkDeviceMemory *out) {
    VkResult result = fault_at(FAULT_AllocateMemory);
    const bool is_beyond = state.max_allocation != 0 && state.n_allocation >= state.max_allocation;
    if (is_beyond) state.n_beyond++;
    if (is_beyond && result == VK_SUCCESS) result = VK_ERROR_TOO_MANY_OBJECTS;
    if (result == VK_SUCCESS) result = real.AllocateMemory(device, info, callbacks, out);
    if (result == VK_SUCCESS)
        memory_note(*out, info->allocationSize, true);
    else
        memset(out, 0x5a, sizeof *out);
    return result;
}

static void VKAPI_CALL my_FreeMemory(VkDevice device, VkDeviceMemory memory,
                                     const VkAllocationCallbacks *callbacks) {
    if (memory != VK_NULL_HANDLE) memory_note(memory, 0, false);
    loss_settle(device);
    real.FreeMemory(device, memory, callbacks);
}

/* ---- Device ---------------------------------------------------------------------------------- */

static VkResult VKAPI_CALL my_MapMemory(VkDevice device, VkDeviceMemory memory, VkDeviceSize off,
                                        VkDeviceSize size, VkMemoryMapFlags flags, void **out) {
    PASS(MapMemory, device, memory, off, size, flags, out);
}

static VkResult VKAPI_CALL my_BindBufferMemory(VkDevice device, VkBuffer buffer,
                                               VkDeviceMemory memory, VkDeviceSize off) {
    PASS(BindBufferMemory, device, buffer, memory, off);
}

static VkResult VKAPI_CALL my_AllocateCommandBuffers(VkDevice device,
                                                     const VkCommandBufferAllocateInfo *info,
                                                     VkCommandBuffer *out) {
    PASS(AllocateCommandBuffers, device, info, out);
}

static VkResult VKAPI_CALL my_BeginCommandBuffer(VkCommandBuffer commands,
                                                 const VkCommandBufferBeginInfo *info) {
    PASS(BeginCommandBuffer, commands, info);
}

static VkResult VKAPI_CALL my_EndCommandBuffer(VkCommandBuffer commands) {
    PASS(EndCommandBuffer, commands);
}

static VkResult VKAPI_CALL my_QueueSubmit(VkQueue queue, uint32_t n, const VkSubmitInfo *submits,
                                          VkFence fence) {
    pthread_mutex_lock(&mutex);
    state.n_submit += (int32_t)n;
    pthread_mutex_unlock(&mutex);
    PASS(QueueSubmit, queue, n, submits, fence);
}

static VkResult VKAPI_CALL my_WaitSemaphores(VkDevice device, const VkSemaphoreWaitInfo *info,
                                             uint64_t timeout) {
    pthread_mutex_lock(&mutex);
    state.n_wait++;
    pthread_mutex_unlock(&mutex);
    VkResult result = fault_at(FAULT_WaitSemaphores);
    return result == VK_SUCCESS ? real.WaitSemaphores(device, info, timeout) : result;
}

static VkResult VKAPI_CALL my_GetSemaphoreCounterValue(VkDevice device, VkSemaphore semaphore,
                                                       uint64_t *value_out) {
    PASS(GetSemaphoreCounterValue, device, semaphore, value_out);
}

static VkResult VKAPI_CALL
my_GetMemoryHostPointerPropertiesEXT(VkDevice device, VkExternalMemoryHandleTypeFlagBits type,
                                     const void *ptr, VkMemoryHostPointerPropertiesEXT *out) {
    PASS(GetMemoryHostPointerPropertiesEXT, device, type, ptr, out);
}

static VkResult VKAPI_CALL my_DeviceWaitIdle(VkDevice device) {
    return real.DeviceWaitIdle(device);
}

static void VKAPI_CALL my_DestroyDevice(VkDevice device, const VkAllocationCallbacks *callbacks) {
    real.DeviceWaitIdle(device); /* after a loss, work may still run here */
    real.DestroyDevice(device, callbacks);
    count(-1);
    is_lost = false;
}

/* ---- Instance -------------------------------------------------------------------------------- */

static VkResult VKAPI_CALL my_EnumeratePhysicalDevices(VkInstance instance, uint32_t *n,
                                                       VkPhysicalDevice *out) {
    PASS(EnumeratePhysicalDevices, instance, n, out);
}

/* What a test asks for is one extension more, behind the real ones. */
static VkResult VKAPI_CALL my_EnumerateDeviceExtensionProperties(VkPhysicalDevice physical,
                                                                 const char *layer, uint32_t *n,
                                                                 VkExtensionProperties *out) {
    uint32_t room = *n;
    VkResult result = real.EnumerateDeviceExtensionProperties(physical, layer, n, out);
    const char *more = state.has_matrix != 0 ? VK_MATRIX_EXTENSION
                       : state.budget != 0   ? VK_EXT_MEMORY_BUDGET_EXTENSION_NAME
                                             : NULL;
    if (result != VK_SUCCESS || more == NULL) return result;
    if (out != NULL && *n < room) {
        memset(&out[*n], 0, sizeof out[*n]);
        strcpy(out[*n].extensionName, more);
    }
    (*n)++;
    return VK_SUCCESS;
}

static void VKAPI_CALL my_GetPhysicalDeviceMemoryProperties2(
    VkPhysicalDevice physical, VkPhysicalDeviceMemoryProperties2 *out) {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT *budget = out->pNext;
    bool has_budget = state.budget != 0 && budget != NULL;
    if (has_budget) out->pNext = NULL;
    real.GetPhysicalDeviceMemoryProperties2(physical, out);
    const VkMemoryPropertyFlags left_out =
        (state.is_incoherent ? VK_MEMORY_PROPERTY_HOST_COHERENT_BIT : 0u) |
        (state.is_uncached ? VK_MEMORY_PROPERTY_HOST_CACHED_BIT : 0u);
    for (uint32_t i = 0; i < out->memoryProperties.memoryTypeCount; i++)
        out->memoryProperties.memoryTypes[i].propertyFlags &= ~left_out;
    if (!has_budget) return;
    out->pNext = budget;
    for (uint32_t i = 0; i < VK_MAX_MEMORY_HEAPS; i++) {
        budget->heapBudget[i] = state.budget;
        budget->heapUsage[i] = state.allocated;
    }
}

static void VKAPI_CALL my_GetPhysicalDeviceFeatures2(VkPhysicalDevice physical,
                                                     VkPhysicalDeviceFeatures2 *out) {
    real.GetPhysicalDeviceFeatures2(physical, out);
    if (state.has_no_int64) out->features.shaderInt64 = VK_FALSE;
    vk_matrix_features *matrix =
        (vk_matrix_features *)(void *)chain_find(out->pNext, VK_MATRIX_FEATURES_TYPE);
    if (matrix != NULL) matrix->cooperativeMatrix = VK_TRUE;
}

static VkResult VKAPI_CALL my_CreateDevice(VkPhysicalDevice physical,
                                           const VkDeviceCreateInfo *info,
                                           const VkAllocationCallbacks *callbacks, VkDevice *out) {
    VkDeviceCreateInfo without = *info;
    const char *names[64];
    without.enabledExtensionCount = 0;
    for (uint32_t i = 0; i < info->enabledExtensionCount; i++) {
        const char *name = info->ppEnabledExtensionNames[i];
        if ((state.budget == 0 || strcmp(name, VK_EXT_MEMORY_BUDGET_EXTENSION_NAME) != 0) &&
            (state.has_matrix == 0 || strcmp(name, VK_MATRIX_EXTENSION) != 0))
            names[without.enabledExtensionCount++] = name;
    }
    without.ppEnabledExtensionNames = names;
    /* The real driver has no such features; the plugin puts them first. */
    VkBaseOutStructure *features = (VkBaseOutStructure *)without.pNext;
    if (features != NULL && features->pNext != NULL &&
        features->pNext->sType == VK_MATRIX_FEATURES_TYPE)
        features->pNext = features->pNext->pNext;
    /* Kernels have atomics of device scope, which the memory model allows by a second feature. */
    const VkPhysicalDeviceVulkan12Features *f12 =
        (const VkPhysicalDeviceVulkan12Features *)(const void *)chain_find(
            info->pNext, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
    if (f12 != NULL && f12->vulkanMemoryModel && !f12->vulkanMemoryModelDeviceScope)
        return VK_ERROR_FEATURE_NOT_PRESENT;
    MAKE(CreateDevice, out, physical, &without, callbacks);
}

static void VKAPI_CALL my_DestroyInstance(VkInstance instance,
                                          const VkAllocationCallbacks *callbacks) {
    real.DestroyInstance(instance, callbacks);
    count(-1);
}

static VkResult VKAPI_CALL my_CreateInstance(const VkInstanceCreateInfo *info,
                                             const VkAllocationCallbacks *callbacks,
                                             VkInstance *out) {
    MAKE(CreateInstance, out, info, callbacks);
}

/* ---- Finding functions ----------------------------------------------------------------------- */

static PFN_vkVoidFunction VKAPI_CALL my_GetDeviceProcAddr(VkDevice device, const char *name);

static PFN_vkVoidFunction pass(const char *name, PFN_vkVoidFunction found) {
#define PASS_(fn)                                                                                  \
    if (found != NULL && strcmp(name, "vk" #fn) == 0) {                                            \
        real.fn = (PFN_vk##fn)found;                                                               \
        return (PFN_vkVoidFunction)my_##fn;                                                        \
    }
    PASSED_LIST(PASS_)
#undef PASS_
    return found;
}

/* Waiting until a device is idle is needed here, whether or not the caller uses it. */
static PFN_vkVoidFunction VKAPI_CALL my_GetDeviceProcAddr(VkDevice device, const char *name) {
    if (real.DeviceWaitIdle == NULL)
        real.DeviceWaitIdle =
            (PFN_vkDeviceWaitIdle)real.GetDeviceProcAddr(device, "vkDeviceWaitIdle");
    return pass(name, real.GetDeviceProcAddr(device, name));
}

EXPORT PFN_vkVoidFunction VKAPI_CALL vkGetInstanceProcAddr(VkInstance instance, const char *name) {
    if (real_get == NULL) {
        void *library = dlopen(state.real, RTLD_NOW | RTLD_LOCAL);
        if (library != NULL) *(void **)&real_get = dlsym(library, "vkGetInstanceProcAddr");
    }
    if (state.has_matrix != 0 &&
        strcmp(name, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR") == 0)
        return (PFN_vkVoidFunction)my_matrix_shapes;
    return real_get == NULL ? NULL : pass(name, real_get(instance, name));
}
