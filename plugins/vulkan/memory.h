/* SPDX-License-Identifier: MIT
 *
 * memory.h: device memory. Small pieces share blocks of the driver's memory, since drivers limit
 * how many allocations there are; large ones have a block of their own.
 */
#ifndef TANDEM_VULKAN_MEMORY_H
#define TANDEM_VULKAN_MEMORY_H

#include "plugins/vulkan/vk.h"

/* Who reads and writes the memory, which decides its type. */
typedef enum vk_use {
    VK_USE_DEVICE = 0, /* kernels alone; the host writes it when it loads */
    VK_USE_INPUT,      /* the host writes it in every step, kernels read it */
    VK_USE_OUTPUT,     /* kernels write it, the host reads it in every step */
    VK_USE_STAGING     /* what copies between host and device go through */
} vk_use;

/* Blocks, by type of memory. */
typedef struct vk_blocks vk_blocks;

tdm_status vk_blocks_create(vk_device *device, tdm_error *err);
void vk_blocks_destroy(vk_device *device);

/* Allocates; the contents are undefined. Size 0 gives no memory and address 0.
 * TDM_RESOURCE_EXHAUSTED with the sizes where there is not enough; the device stays usable.
 * [any-thread] */
tdm_status vk_memory_alloc(vk_device *device, uint64_t size, vk_use use, vk_memory *memory_out,
                           tdm_error *err);

/* Memory that the host has allocated at `ptr`; both ptr and size are multiples of the driver's
 * import alignment. TDM_UNSUPPORTED where the driver cannot; TDM_RESOURCE_EXHAUSTED where memory is
 * short, so that the same import may succeed later. [any-thread] */
tdm_status vk_memory_import(vk_device *device, void *ptr, uint64_t size, vk_memory *memory_out,
                            tdm_error *err);

/* Frees; does nothing on empty memory. [any-thread] */
void vk_memory_free(vk_device *device, vk_memory *memory);

/* Bytes that the driver has allocated for this device. Imported memory is the host's and does not
 * count. [any-thread] */
uint64_t vk_memory_allocated(const vk_device *device);

/* For mapped memory that is not coherent: makes what the host wrote visible to the device, or what
 * the device wrote visible to the host, for the bytes [off, off + size). [any-thread] */
tdm_status vk_memory_flush(vk_device *device, const vk_memory *memory, uint64_t off, uint64_t size,
                           tdm_error *err);
tdm_status vk_memory_invalidate(vk_device *device, const vk_memory *memory, uint64_t off,
                                uint64_t size, tdm_error *err);

#endif
