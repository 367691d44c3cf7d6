/* SPDX-License-Identifier: MIT
 *
 * driver.h: the Vulkan loader, opened at run time, and the functions that this plugin calls.
 */
#ifndef TANDEM_VULKAN_DRIVER_H
#define TANDEM_VULKAN_DRIVER_H

#define VK_NO_PROTOTYPES
#include <stdbool.h>
#include <vulkan/vulkan_core.h>

#include "tandem/status.h"

/* Functions of the loader without an instance. */
#define VK_GLOBAL_LIST(FN)                                                                         \
    FN(EnumerateInstanceVersion)                                                                   \
    FN(CreateInstance)

/* Functions of an instance. */
#define VK_INSTANCE_LIST(FN)                                                                       \
    FN(DestroyInstance)                                                                            \
    FN(EnumeratePhysicalDevices)                                                                   \
    FN(EnumerateDeviceExtensionProperties)                                                         \
    FN(GetPhysicalDeviceProperties2)                                                               \
    FN(GetPhysicalDeviceFeatures2)                                                                 \
    FN(GetPhysicalDeviceMemoryProperties2)                                                         \
    FN(GetPhysicalDeviceQueueFamilyProperties)                                                     \
    FN(CreateDevice)                                                                               \
    FN(GetDeviceProcAddr)

/* Functions of a device. */
#define VK_DEVICE_LIST(FN)                                                                         \
    FN(DestroyDevice)                                                                              \
    FN(DeviceWaitIdle)                                                                             \
    FN(GetDeviceQueue)                                                                             \
    FN(QueueSubmit)                                                                                \
    FN(AllocateMemory)                                                                             \
    FN(FreeMemory)                                                                                 \
    FN(MapMemory)                                                                                  \
    FN(FlushMappedMemoryRanges)                                                                    \
    FN(InvalidateMappedMemoryRanges)                                                               \
    FN(CreateBuffer)                                                                               \
    FN(DestroyBuffer)                                                                              \
    FN(BindBufferMemory)                                                                           \
    FN(GetBufferMemoryRequirements)                                                                \
    FN(GetBufferDeviceAddress)                                                                     \
    FN(CreateShaderModule)                                                                         \
    FN(DestroyShaderModule)                                                                        \
    FN(CreatePipelineLayout)                                                                       \
    FN(DestroyPipelineLayout)                                                                      \
    FN(CreatePipelineCache)                                                                        \
    FN(DestroyPipelineCache)                                                                       \
    FN(GetPipelineCacheData)                                                                       \
    FN(CreateComputePipelines)                                                                     \
    FN(DestroyPipeline)                                                                            \
    FN(CreateCommandPool)                                                                          \
    FN(DestroyCommandPool)                                                                         \
    FN(AllocateCommandBuffers)                                                                     \
    FN(FreeCommandBuffers)                                                                         \
    FN(BeginCommandBuffer)                                                                         \
    FN(EndCommandBuffer)                                                                           \
    FN(CmdBindPipeline)                                                                            \
    FN(CmdPushConstants)                                                                           \
    FN(CmdDispatch)                                                                                \
    FN(CmdDispatchBase)                                                                            \
    FN(CmdPipelineBarrier)                                                                         \
    FN(CmdCopyBuffer)                                                                              \
    FN(CmdFillBuffer)                                                                              \
    FN(CreateSemaphore)                                                                            \
    FN(DestroySemaphore)                                                                           \
    FN(WaitSemaphores)                                                                             \
    FN(GetSemaphoreCounterValue)

#define VK_FN_FIELD_(name) PFN_vk##name name;

typedef struct vk_instance_fn {
    VK_INSTANCE_LIST(VK_FN_FIELD_)
} vk_instance_fn;

typedef struct vk_device_fn {
    VK_DEVICE_LIST(VK_FN_FIELD_)
    PFN_vkGetMemoryHostPointerPropertiesEXT GetMemoryHostPointerPropertiesEXT; /* NULL: no import */
} vk_device_fn;

/* A loaded driver library with an instance. */
typedef struct vk_driver {
    void *library;
    VkInstance instance;
    uint32_t api_version; /* of the loader */
    PFN_vkGetInstanceProcAddr GetInstanceProcAddr;
    vk_instance_fn fn;
} vk_driver;

/* Opens libvulkan.so.1 and makes an instance. TDM_UNAVAILABLE with a readable reason where there is
 * none; nothing is kept then. Released with vk_driver_close. [setup] */
tdm_status vk_driver_open(vk_driver *driver, tdm_error *err);

/* Does nothing on a driver that is not open. [setup] */
void vk_driver_close(vk_driver *driver);

/* Finds the functions of a device. has_import: those of VK_EXT_external_memory_host as well. */
tdm_status vk_device_fn_load(const vk_driver *driver, VkDevice device, bool has_import,
                             vk_device_fn *fn_out, tdm_error *err);

/* "VK_ERROR_DEVICE_LOST"; "VkResult -42" where unknown. Into text. */
const char *vk_result_name(VkResult result, char text[32]);

/* The canonical status of a failed call. */
tdm_status vk_result_status(VkResult result);

#endif
