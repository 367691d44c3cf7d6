/* SPDX-License-Identifier: MIT
 *
 * memory.c: which type of memory serves a use, blocks of it, and the pieces of blocks.
 */
#include "plugins/vulkan/memory.h"

#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/mem/ranges.h"

enum {
    BLOCK_SIZE = 32 << 20,
    /* Larger pieces have a block of their own, so that freeing them gives memory back. */
    SHARED_MAX = BLOCK_SIZE / 8,
    /* Offsets and sizes of pieces are multiples of this. It is a multiple of any driver's
     * nonCoherentAtomSize, a power of two up to 256: so a flush of one piece touches no other. */
    PIECE_UNIT = 256
};

/* An allocation of the driver with a buffer over all of it. */
struct vk_block {
    struct vk_block *next;
    VkDeviceMemory memory;
    VkBuffer buffer;
    uint64_t address;
    uint64_t size;
    uint8_t *mapped;
    VkMemoryPropertyFlags flags;
    uint32_t type;
    bool is_imported;  /* the memory is the host's; it does not count in vk_blocks.allocated */
    bool is_shared;    /* it has pieces, and is in vk_blocks.shared */
    gpu_ranges ranges; /* where shared */
};

struct vk_blocks {
    pthread_mutex_t mutex;      /* over `shared` and the ranges of its blocks */
    struct vk_block *shared;    /* those with pieces */
    _Atomic uint64_t allocated; /* vk_memory_allocated */
    /* Blocks with memory, imported ones included. A driver allows maxMemoryAllocationCount of them
     * at a time (Vulkan's specification demands at least 4096), and need not check it. */
    _Atomic uint32_t n_allocation;
};

tdm_status vk_blocks_create(vk_device *device, tdm_error *err) {
    vk_blocks *blocks = calloc(1, sizeof *blocks);
    if (blocks == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    pthread_mutex_init(&blocks->mutex, NULL);
    device->blocks = blocks;
    return TDM_OK;
}

void vk_blocks_destroy(vk_device *device) {
    vk_blocks *blocks = device->blocks;
    if (blocks == NULL) return;
    pthread_mutex_destroy(&blocks->mutex);
    free(blocks);
    device->blocks = NULL;
}

uint64_t vk_memory_allocated(const vk_device *device) {
    return atomic_load(&device->blocks->allocated);
}

/* ---- Types ----------------------------------------------------------------------------------- */

/* How well a type of memory serves a use; below 0: not at all. */
static int type_score(const vk_device *device, VkMemoryPropertyFlags flags, vk_use use) {
    const VkMemoryPropertyFlags never =
        VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT | VK_MEMORY_PROPERTY_PROTECTED_BIT |
        VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD;
    bool is_local = (flags & VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT) != 0;
    bool is_visible = (flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0;
    bool is_coherent = (flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) != 0;
    bool is_cached = (flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
    bool is_host = device->target.is_host;
    if ((flags & never) != 0) return -1;
    switch (use) {
    case VK_USE_INPUT: /* device-local memory if the host can write it: bytes cross the bus once */
        if (!is_visible) return -1;
        return (is_coherent ? 8 : 0) + (is_local ? 4 : 0) + (is_cached == is_host ? 1 : 0);
    case VK_USE_OUTPUT:
    case VK_USE_STAGING: /* the host's reads must be cached */
        if (!is_visible) return -1;
        return (is_cached ? 8 : 0) + (is_coherent ? 4 : 0) + (is_local == is_host ? 1 : 0);
    default:
        /* Memory of a card's kernels is never placed in host memory, where it would be slow without
         * an error: the allocation fails instead. The part of a card's memory that the host sees
         * may be small; it is left to inputs. A device that shares the host's memory is written
         * directly. */
        if (!is_local && !is_host) return -1;
        return (is_local ? 8 : 0) + (is_visible == is_host ? 4 : 0) + (is_coherent ? 2 : 0) +
               (is_cached == is_host ? 1 : 0);
    }
}

/* Types in falling order of score; returns how many serve. */
static uint32_t types_order(const vk_device *device, uint32_t allowed, vk_use use,
                            uint32_t order[VK_MAX_MEMORY_TYPES]) {
    const VkPhysicalDeviceMemoryProperties *memory = &device->facts->memory;
    int score[VK_MAX_MEMORY_TYPES];
    uint32_t n = 0;
    for (uint32_t i = 0; i < memory->memoryTypeCount; i++) {
        int s = type_score(device, memory->memoryTypes[i].propertyFlags, use);
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

/* ---- Blocks ---------------------------------------------------------------------------------- */

static void block_free(vk_device *device, struct vk_block *block) {
    if (block == NULL) return;
    if (block->buffer != VK_NULL_HANDLE)
        device->fn.DestroyBuffer(device->device, block->buffer, NULL);
    if (block->memory != VK_NULL_HANDLE) {
        device->fn.FreeMemory(device->device, block->memory, NULL); /* unmaps */
        atomic_fetch_sub(&device->blocks->n_allocation, 1);
        if (!block->is_imported) atomic_fetch_sub(&device->blocks->allocated, block->size);
    }
    gpu_ranges_free(&block->ranges);
    free(block);
}

static VkResult buffer_create(vk_device *device, uint64_t size, bool is_import,
                              VkBuffer *buffer_out) {
    const VkExternalMemoryBufferCreateInfo external = {
        .sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO,
        .handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT};
    const VkBufferCreateInfo info = {
        .sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO,
        .pNext = is_import ? &external : NULL,
        .size = size,
        .usage = VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT |
                 VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT,
        .sharingMode = VK_SHARING_MODE_EXCLUSIVE};
    return device->fn.CreateBuffer(device->device, &info, NULL, buffer_out);
}

static uint32_t allocations_max(const vk_device *device) {
    return device->facts->properties.limits.maxMemoryAllocationCount;
}

/* Allocates memory of block->type for the block's buffer or, where ptr is not NULL, imports the
 * host's memory at `ptr`; binds and maps it. */
static VkResult block_bind(vk_device *device, struct vk_block *block, uint64_t size, void *ptr) {
    const VkImportMemoryHostPointerInfoEXT import = {
        .sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT,
        .handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT,
        .pHostPointer = ptr};
    const VkMemoryAllocateFlagsInfo address = {.sType =
                                                   VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO,
                                               .pNext = ptr != NULL ? &import : NULL,
                                               .flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT};
    const VkMemoryAllocateInfo info = {.sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO,
                                       .pNext = &address,
                                       .allocationSize = size,
                                       .memoryTypeIndex = block->type};
    void *mapped = ptr;
    VkResult result = VK_ERROR_TOO_MANY_OBJECTS;
    if (atomic_fetch_add(&device->blocks->n_allocation, 1) < allocations_max(device))
        result = device->fn.AllocateMemory(device->device, &info, NULL, &block->memory);
    if (result != VK_SUCCESS) {
        atomic_fetch_sub(&device->blocks->n_allocation, 1);
        block->memory = VK_NULL_HANDLE;
        return result;
    }
    block->size = size;
    block->is_imported = ptr != NULL;
    block->flags = device->facts->memory.memoryTypes[block->type].propertyFlags;
    if (!block->is_imported) atomic_fetch_add(&device->blocks->allocated, size);
    result = device->fn.BindBufferMemory(device->device, block->buffer, block->memory, 0);
    if (result == VK_SUCCESS && ptr == NULL &&
        (block->flags & VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT) != 0)
        result = device->fn.MapMemory(device->device, block->memory, 0, VK_WHOLE_SIZE, 0, &mapped);
    if (result != VK_SUCCESS) return result;
    block->mapped = mapped;
    const VkBufferDeviceAddressInfo where = {.sType = VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO,
                                             .buffer = block->buffer};
    block->address = device->fn.GetBufferDeviceAddress(device->device, &where);
    return VK_SUCCESS;
}

/* Whether the heap of a type has room, by VK_EXT_memory_budget. True without that extension. */
static bool has_room(const vk_device *device, uint32_t type, uint64_t size) {
    uint32_t heap = device->facts->memory.memoryTypes[type].heapIndex;
    uint64_t n_free;
    if (!vk_facts_heap_free(&device->instance->driver, device->facts, heap, &n_free)) return true;
    return size <= n_free;
}

/* Makes a block of at least `size` bytes in memory of a type, or an import of the host's memory at
 * `ptr`, where that is not NULL. Freed with block_free. */
static VkResult block_make(vk_device *device, uint32_t type, uint64_t size, void *ptr,
                           struct vk_block **block_out) {
    struct vk_block *block = calloc(1, sizeof *block);
    VkMemoryRequirements needs;
    if (block == NULL) return VK_ERROR_OUT_OF_HOST_MEMORY;
    block->type = type;
    VkResult result = buffer_create(device, size, ptr != NULL, &block->buffer);
    if (result == VK_SUCCESS) {
        device->fn.GetBufferMemoryRequirements(device->device, block->buffer, &needs);
        if (ptr != NULL) needs.size = size;
        result = (needs.memoryTypeBits >> type & 1) == 0 ? VK_ERROR_FEATURE_NOT_PRESENT
                 : ptr == NULL && !has_room(device, type, needs.size)
                     ? VK_ERROR_OUT_OF_DEVICE_MEMORY
                     : block_bind(device, block, needs.size, ptr);
    } else {
        block->buffer = VK_NULL_HANDLE;
    }
    if (result == VK_SUCCESS) {
        *block_out = block;
        return VK_SUCCESS;
    }
    block_free(device, block);
    return result;
}

/* ---- Pieces ---------------------------------------------------------------------------------- */

static vk_memory piece_of(const vk_device *device, struct vk_block *block, uint64_t off,
                          uint64_t size, vk_use use) {
    vk_memory memory = {.block = block,
                        .buffer = block->buffer,
                        .off = off,
                        .address = block->address + off,
                        .size = size};
    bool may_map = device->options.has_map || use == VK_USE_STAGING;
    if (block->mapped != NULL && may_map) memory.mapped = block->mapped + off;
    memory.is_coherent = (block->flags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) != 0;
    memory.is_cached = (block->flags & VK_MEMORY_PROPERTY_HOST_CACHED_BIT) != 0;
    return memory;
}

/* A piece of a shared block of this type; a new block where none has room. */
static VkResult piece_take(vk_device *device, uint32_t type, uint64_t size, vk_use use,
                           vk_memory *memory_out) {
    vk_blocks *blocks = device->blocks;
    VkResult result = VK_SUCCESS;
    uint64_t off = 0;
    pthread_mutex_lock(&blocks->mutex);
    struct vk_block *block = blocks->shared;
    while (block != NULL && (block->type != type || !gpu_ranges_take(&block->ranges, size, &off)))
        block = block->next;
    if (block == NULL) {
        result = block_make(device, type, BLOCK_SIZE, NULL, &block);
        if (result == VK_SUCCESS && (!gpu_ranges_init(&block->ranges, BLOCK_SIZE, PIECE_UNIT) ||
                                     !gpu_ranges_take(&block->ranges, size, &off))) {
            block_free(device, block);
            result = VK_ERROR_OUT_OF_HOST_MEMORY;
        }
        if (result == VK_SUCCESS) {
            block->is_shared = true;
            block->next = blocks->shared;
            blocks->shared = block;
        }
    }
    if (result == VK_SUCCESS) *memory_out = piece_of(device, block, off, size, use);
    pthread_mutex_unlock(&blocks->mutex);
    return result;
}

static VkResult memory_take(vk_device *device, uint32_t type, uint64_t size, uint64_t limit,
                            vk_use use, vk_memory *memory_out) {
    struct vk_block *block;
    if (size <= SHARED_MAX && limit >= BLOCK_SIZE) {
        VkResult result = piece_take(device, type, size, use, memory_out);
        if (result == VK_SUCCESS || vk_result_status(result) != TDM_RESOURCE_EXHAUSTED)
            return result; /* without memory for a block there may be some for the piece alone */
    }
    VkResult result = block_make(device, type, size, NULL, &block);
    if (result == VK_SUCCESS) *memory_out = piece_of(device, block, 0, size, use);
    return result;
}

static tdm_status memory_refuse(vk_device *device, uint64_t size, uint64_t limit, VkResult result,
                                tdm_error *err) {
    uint64_t n_free, n_total;
    if (result == VK_ERROR_TOO_MANY_OBJECTS)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "%s (%s): no allocation of %llu bytes: the driver allows %u allocations at "
                        "a time (maxMemoryAllocationCount), and this process has %u; use fewer "
                        "models, contexts or adapters at a time",
                        device->name, device->facts->properties.deviceName,
                        (unsigned long long)size, (unsigned)allocations_max(device),
                        (unsigned)atomic_load(&device->blocks->n_allocation));
    vk_facts_memory(&device->instance->driver, device->facts, vk_memory_allocated(device), &n_free,
                    &n_total);
    if (size > limit)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "%s (%s): asked for %llu bytes in one buffer; the driver allocates up to "
                        "%llu at once, and %llu are free",
                        device->name, device->facts->properties.deviceName,
                        (unsigned long long)size, (unsigned long long)limit,
                        (unsigned long long)n_free);
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                    "%s (%s): not enough memory: asked for %llu bytes, %llu are free of %llu",
                    device->name, device->facts->properties.deviceName, (unsigned long long)size,
                    (unsigned long long)n_free, (unsigned long long)n_total);
}

tdm_status vk_memory_alloc(vk_device *device, uint64_t size, vk_use use, vk_memory *memory_out,
                           tdm_error *err) {
    uint32_t order[VK_MAX_MEMORY_TYPES];
    uint64_t limit = device->facts->max_allocation;
    memset(memory_out, 0, sizeof *memory_out);
    if (device->options.allocation != 0 && device->options.allocation < limit)
        limit = device->options.allocation;
    if (size == 0) return TDM_OK;
    if (atomic_load(&device->is_lost))
        return vk_fail(device, err, VK_ERROR_DEVICE_LOST, "an earlier call");
    VkResult result = VK_ERROR_OUT_OF_DEVICE_MEMORY;
    if (size > limit) return memory_refuse(device, size, limit, result, err);
    uint32_t n = types_order(device, UINT32_MAX, use, order);
    for (uint32_t i = 0; i < n; i++) {
        result = memory_take(device, order[i], size, limit, use, memory_out);
        if (result == VK_SUCCESS) return TDM_OK;
        /* Neither depends on the type of memory. */
        if (result == VK_ERROR_DEVICE_LOST || result == VK_ERROR_TOO_MANY_OBJECTS) break;
    }
    memset(memory_out, 0, sizeof *memory_out);
    return result == VK_ERROR_DEVICE_LOST ? vk_fail(device, err, result, "vkAllocateMemory")
                                          : memory_refuse(device, size, limit, result, err);
}

/* Also of allocations: others may be freed. */
static bool is_short_of_memory(VkResult result) {
    return result == VK_ERROR_OUT_OF_HOST_MEMORY || result == VK_ERROR_OUT_OF_DEVICE_MEMORY ||
           result == VK_ERROR_TOO_MANY_OBJECTS;
}

tdm_status vk_memory_import(vk_device *device, void *ptr, uint64_t size, vk_memory *memory_out,
                            tdm_error *err) {
    VkMemoryHostPointerPropertiesEXT pointer = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT};
    uint32_t order[VK_MAX_MEMORY_TYPES];
    struct vk_block *block;
    memset(memory_out, 0, sizeof *memory_out);
    VkResult result = device->fn.GetMemoryHostPointerPropertiesEXT(
        device->device, VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT, ptr, &pointer);
    uint32_t n = 0;
    if (result == VK_SUCCESS) n = types_order(device, pointer.memoryTypeBits, VK_USE_OUTPUT, order);
    if (result == VK_SUCCESS && n == 0) result = VK_ERROR_INVALID_EXTERNAL_HANDLE;
    for (uint32_t i = 0; i < n; i++) {
        /* Imported memory is not mapped, so that it cannot be flushed: it must be coherent. */
        const VkMemoryType *type = &device->facts->memory.memoryTypes[order[i]];
        VkResult made = VK_ERROR_INVALID_EXTERNAL_HANDLE;
        if ((type->propertyFlags & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) != 0)
            made = block_make(device, order[i], size, ptr, &block);
        if (made == VK_ERROR_DEVICE_LOST) return vk_fail(device, err, made, "vkAllocateMemory");
        if (made == VK_SUCCESS) {
            *memory_out = piece_of(device, block, 0, size, VK_USE_STAGING);
            return TDM_OK;
        }
        /* A lack of memory may be temporary: the failure of another type does not hide it. */
        if (!is_short_of_memory(result)) result = made;
    }
    if (result == VK_ERROR_DEVICE_LOST)
        return vk_fail(device, err, result, "vkGetMemoryHostPointerPropertiesEXT");
    char text[32];
    return tdm_fail(err, is_short_of_memory(result) ? TDM_RESOURCE_EXHAUSTED : TDM_UNSUPPORTED,
                    "%s (%s): the driver does not import %llu bytes of host memory: %s",
                    device->name, device->facts->properties.deviceName, (unsigned long long)size,
                    vk_result_name(result, text));
}

void vk_memory_free(vk_device *device, vk_memory *memory) {
    struct vk_block *block = memory->block;
    if (block == NULL) return;
    if (block->is_shared) {
        vk_blocks *blocks = device->blocks;
        pthread_mutex_lock(&blocks->mutex);
        gpu_ranges_give(&block->ranges, memory->off, memory->size);
        if (block->ranges.n_taken == 0) {
            struct vk_block **at = &blocks->shared;
            while (*at != block) at = &(*at)->next;
            *at = block->next;
        } else {
            block = NULL;
        }
        pthread_mutex_unlock(&blocks->mutex);
    }
    block_free(device, block);
    memset(memory, 0, sizeof *memory);
}

/* ---- Memory that is not coherent ------------------------------------------------------------- */

static VkMappedMemoryRange range_of(const vk_device *device, const vk_memory *memory, uint64_t off,
                                    uint64_t size) {
    uint64_t atom = device->facts->properties.limits.nonCoherentAtomSize;
    uint64_t first = (memory->off + off) / atom * atom;
    uint64_t end = (memory->off + off + size + atom - 1) / atom * atom;
    return (VkMappedMemoryRange){.sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE,
                                 .memory = memory->block->memory,
                                 .offset = first,
                                 .size = end < memory->block->size ? end - first : VK_WHOLE_SIZE};
}

tdm_status vk_memory_flush(vk_device *device, const vk_memory *memory, uint64_t off, uint64_t size,
                           tdm_error *err) {
    if (memory->is_coherent || size == 0) return TDM_OK;
    const VkMappedMemoryRange range = range_of(device, memory, off, size);
    VkResult result = device->fn.FlushMappedMemoryRanges(device->device, 1, &range);
    return result == VK_SUCCESS ? TDM_OK
                                : vk_fail(device, err, result, "vkFlushMappedMemoryRanges");
}

tdm_status vk_memory_invalidate(vk_device *device, const vk_memory *memory, uint64_t off,
                                uint64_t size, tdm_error *err) {
    if (memory->is_coherent || size == 0) return TDM_OK;
    const VkMappedMemoryRange range = range_of(device, memory, off, size);
    VkResult result = device->fn.InvalidateMappedMemoryRanges(device->device, 1, &range);
    return result == VK_SUCCESS ? TDM_OK
                                : vk_fail(device, err, result, "vkInvalidateMappedMemoryRanges");
}
