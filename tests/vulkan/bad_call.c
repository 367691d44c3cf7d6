/* SPDX-License-Identifier: MIT
 *
 * bad_call.c: calls a Vulkan driver in an invalid way. The test of validation layers runs it
 * first: if the layers do not report it, a run of the plugin without reports proves nothing.
 *
 * Exits with 77 where there is no driver.
 */
#define VK_NO_PROTOTYPES
#include <dlfcn.h>
#include <stdio.h>
#include <vulkan/vulkan_core.h>

enum { SKIPPED = 77 };

/* A buffer of no bytes and no usage. */
static int buffer_make(PFN_vkGetInstanceProcAddr get, VkInstance instance) {
    PFN_vkEnumeratePhysicalDevices enumerate =
        (PFN_vkEnumeratePhysicalDevices)get(instance, "vkEnumeratePhysicalDevices");
    PFN_vkCreateDevice create = (PFN_vkCreateDevice)get(instance, "vkCreateDevice");
    PFN_vkGetDeviceProcAddr get_device =
        (PFN_vkGetDeviceProcAddr)get(instance, "vkGetDeviceProcAddr");
    VkPhysicalDevice physical;
    VkDevice device;
    VkBuffer buffer;
    uint32_t n = 1;
    const float priority = 1;
    const VkDeviceQueueCreateInfo queue = {.sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO,
                                           .queueCount = 1,
                                           .pQueuePriorities = &priority};
    const VkDeviceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO,
                                     .queueCreateInfoCount = 1,
                                     .pQueueCreateInfos = &queue};
    const VkBufferCreateInfo bad = {.sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    if (enumerate(instance, &n, &physical) < 0 || n == 0) return SKIPPED;
    if (create(physical, &info, NULL, &device) != VK_SUCCESS) return SKIPPED;
    PFN_vkCreateBuffer create_buffer = (PFN_vkCreateBuffer)get_device(device, "vkCreateBuffer");
    PFN_vkDestroyBuffer destroy_buffer = (PFN_vkDestroyBuffer)get_device(device, "vkDestroyBuffer");
    PFN_vkDestroyDevice destroy = (PFN_vkDestroyDevice)get_device(device, "vkDestroyDevice");
    if (create_buffer(device, &bad, NULL, &buffer) == VK_SUCCESS)
        destroy_buffer(device, buffer, NULL);
    destroy(device, NULL);
    return 0;
}

int main(void) {
    const VkApplicationInfo application = {.sType = VK_STRUCTURE_TYPE_APPLICATION_INFO,
                                           .apiVersion = VK_API_VERSION_1_2};
    const VkInstanceCreateInfo info = {.sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO,
                                       .pApplicationInfo = &application};
    PFN_vkGetInstanceProcAddr get;
    VkInstance instance;
    void *library = dlopen("libvulkan.so.1", RTLD_NOW);
    if (library == NULL) return SKIPPED;
    *(void **)&get = dlsym(library, "vkGetInstanceProcAddr");
    PFN_vkCreateInstance create = (PFN_vkCreateInstance)get(NULL, "vkCreateInstance");
    if (create(&info, NULL, &instance) != VK_SUCCESS) return SKIPPED;
    int rc = buffer_make(get, instance);
    ((PFN_vkDestroyInstance)get(instance, "vkDestroyInstance"))(instance, NULL);
    return rc;
}
