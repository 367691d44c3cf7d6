/* SPDX-License-Identifier: MIT
 *
 * memory.c: device memory. The type of memory goes by what it is for: where the host hands over
 * data in every step it writes or reads the memory itself; all else lies in the device's own memory.
 */
#include <string.h>

#include "plugins/vulkan/vk.h"

/* How well a type of memory serves a purpose; below 0: not at all. */
static int type_score(const vk_device *device, VkMemoryPropertyFlags flags, int32_t purpose) {
    bool is_local = (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0;
    bool is_visible = (flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0;
    bool is_coherent = (flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) != 0;
    bool is_cached = (flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
    if ((flags & (VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT)) != 0)
        return -1;
    if (purpose == TDM_BUFFER_STAGING) {
        if (!is_visible) return -1;
        return (is_cached ? 4 : 0) + (is_coherent ? 2 : 0) + (is_local ? 0 : 1);
    }
    /* A small window of device memory that the host sees is left to what needs it, unless the
     * device shares the host's memory. */
    bool shares = device->facts->is_integrated || device->facts->is_cpu;
    return (is_local ? 8 : 0) + (is_visible == shares ? 4 : 0) + (is_coherent ? 2 : 0) +
           (is_cached ? 1 : 0);
}

/* Types in falling order of score; returns how many serve. */
static uint32_t types_order(const vk_device *device, uint32_t allowed, int32_t purpose,
                            uint32_t order[VK_MAX_MEMORY_TYPES]) {
    const VkPhysicalDeviceMemoryProperties *memory = &device->facts->memory;
    int score[VK_MAX_MEMORY_TYPES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < memory->memoryTypeCount; i++) {
        int s = type_score(device, memory->memoryTypes[i].propertyFlags, purpose);
        if ((allowed >> i & 1) == 0 || s < 0) continue;
        uint32_t k = n++;
        for (; k > 0 && score[k - 1] < s; k--) {
            score[k] = score[k - 1];
            order[k] = order[k - 1];
        }
        score[k] = s;
        order[k] = i;
    }
    return n;
}

static VkResult bind_to(vk_device *device, uint32_t type, uint64_t size, vk_memory *memory) {
    const VkMemoryPropertyFlags flags = device->facts->memory.memoryTypes[type].propertyFlags;
    const VkMemoryAllocateFlagsInfo address = {.sType =
                                                   VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                               .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &address,
                                       .allocationSize = size,
                                       .memoryTypeIndex = type};
    void *mapped = NULL;
    VkResult result = device->fn.AllocateMemory(device->device, &info, NULL, &memory->memory);
    if (result != VK_SUCCESS) {
        memory->memory = VK_NULL_HANDLE;
        return result;
    }
    result = device->fn.BindBufferMemory(device->device, memory->buffer, memory->memory, 0);
    if (result == VK_SUCCESS && (flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0)
        result = device->fn.MapMemory(device->device, memory->memory, 0, VK_WHOLE_SIZE, 0, &mapped);
    memory->mapped = mapped;
    memory->is_coherent = (flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) != 0;
    memory->is_cached = (flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
    return result;
}

static tdm_status buffer_create(vk_device *device, uint64_t size, VkBuffer *buffer_out,
                                tdm_error *err) {
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .size = size,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                 VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
    VkResult result = device->fn.CreateBuffer(device->device, &info, NULL, buffer_out);
    return result == VK_SUCCESS ? TDM_OK : vk_fail(device, err, result, "vkCreateBuffer");
}

static tdm_status memory_refuse(vk_device *device, uint64_t size, uint64_t limit, tdm_error *err) {
    uint64_t n_free, n_total;
    vk_facts_memory(&device->instance->driver, device->facts, &n_free, &n_total);
    if (size > limit)
        return tdm_fail(
            err, TDM_RESOURCE_EXHAUSTED,
            "%s (%s): %llu bytes in one buffer; the driver allocates up to %llu at once",
            device->name, device->facts->properties.deviceName, (unsigned long long)size,
            (unsigned long long)limit);
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                    "%s (%s): not enough memory: asked for %llu bytes, %llu are free of %llu",
                    device->name, device->facts->properties.deviceName, (unsigned long long)size,
                    (unsigned long long)n_free, (unsigned long long)n_total);
}

tdm_status vk_memory_alloc(vk_device *device, uint64_t size, int32_t purpose, vk_memory *memory_out,
                           tdm_error *err) {
    vk_memory memory = {.size = size};
    uint32_t order[VK_MAX_MEMORY_TYPES];
    uint64_t limit = device->facts->max_allocation;
    if (device->options.allocation != 0 && device->options.allocation < limit)
        limit = device->options.allocation;
    if (size == 0) {
        *memory_out = memory;
        return TDM_OK;
    }
    if (size > limit) return memory_refuse(device, size, limit, err);
    tdm_status status = buffer_create(device, size, &memory.buffer, err);
    if (status != TDM_OK) return status;
    VkMemoryRequirements needs;
    device->fn.GetBufferMemoryRequirements(device->device, memory.buffer, &needs);
    uint32_t n = types_order(device, needs.memoryTypeBits, purpose, order);
    VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    for (uint32_t i = 0; i < n && result != VK_SUCCESS; i++) {
        if (memory.memory != VK_NULL_HANDLE) break; /* bound, but not mapped */
        result = bind_to(device, order[i], needs.size, &memory);
    }
    if (result != VK_SUCCESS) {
        vk_memory_free(device, &memory);
        return vk_result_status(result) == TDM_RESOURCE_EXHAUSTED
                   ? memory_refuse(device, size, limit, err)
                   : vk_fail(device, err, result, "vkAllocateMemory");
    }
    if (!device->options.has_map && purpose != TDM_BUFFER_STAGING) memory.mapped = NULL;
    const VkBufferDeviceAddressInfo address = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO, .buffer = memory.buffer};
    memory.address = device->fn.GetBufferDeviceAddress(device->device, &address);
    *memory_out = memory;
    return TDM_OK;
}

void vk_memory_free(vk_device *device, vk_memory *memory) {
    if (memory->buffer != VK_NULL_HANDLE)
        device->fn.DestroyBuffer(device->device, memory->buffer, NULL);
    if (memory->memory != VK_NULL_HANDLE)
        device->fn.FreeMemory(device->device, memory->memory, NULL); /* unmaps */
    memset(memory, 0, sizeof *memory);
}
