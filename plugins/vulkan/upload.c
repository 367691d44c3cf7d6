/* SPDX-License-Identifier: MIT
 *
 * upload.c: see upload.h. The copies are on the queue of computations, so that what is submitted
 * later finds the bytes there.
 *
 * A queue family that only transfers is not used. It would let copies run beside computations, but
 * weights are loaded before the first of them. Mesa's software driver, on which the tests run, has
 * no such family.
 */
#include "plugins/vulkan/upload.h"

#include <stdlib.h>

#include "plugins/vulkan/transfer.h"

/* The command buffers of a device's copies, one for each piece of the ring. */
struct vk_upload_commands {
    VkCommandPool pool;
    VkCommandBuffer pieces[GPU_N_PIECE];
};

static tdm_status memory_alloc(tdm_device *device, uint64_t size, void **memory_out,
                               uint8_t **ptr_out, bool *is_cached_out, tdm_error *err) {
    vk_memory *memory = calloc(1, sizeof *memory);
    if (memory == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    tdm_status status = vk_memory_alloc(device, size, VK_USE_STAGING, memory, err);
    if (status != TDM_OK) {
        free(memory);
        return status;
    }
    *memory_out = memory;
    *ptr_out = memory->mapped;
    *is_cached_out = memory->is_cached;
    return TDM_OK;
}

static void memory_free(tdm_device *device, void *memory) {
    vk_memory_free(device, memory);
    free(memory);
}

static tdm_status memory_flush(tdm_device *device, void *memory, uint64_t off, uint64_t size,
                               tdm_error *err) {
    return vk_memory_flush(device, memory, off, size, err);
}

static tdm_status copies_begin(tdm_device *device, int piece, tdm_buffer *buffer, void *memory,
                               const gpu_copy *copies, int32_t n, uint64_t *number_out,
                               tdm_error *err) {
    const vk_memory *from = memory;
    VkCommandBuffer commands = device->upload_commands->pieces[piece];
    VkBufferCopy regions[GPU_MAX_COPY];
    for (int32_t i = 0; i < n; i++)
        regions[i] = (VkBufferCopy){.srcOffset = from->off + copies[i].src,
                                    .dstOffset = buffer->memory.off + copies[i].dst,
                                    .size = copies[i].size};
    tdm_status status = vk_copies_begin(device, commands, err);
    if (status != TDM_OK) return status;
    device->fn.CmdCopyBuffer(commands, from->buffer, buffer->memory.buffer, (uint32_t)n, regions);
    return vk_copies_submit(device, commands, number_out, err);
}

static const gpu_upload_calls calls = {.alloc = memory_alloc,
                                       .free = memory_free,
                                       .flush = memory_flush,
                                       .copy = copies_begin,
                                       .wait = vk_copies_wait};

tdm_status vk_uploads_create(vk_device *device, tdm_error *err) {
    struct vk_upload_commands *commands = calloc(1, sizeof *commands);
    if (commands == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    device->upload_commands = commands;
    tdm_status status =
        vk_commands_create(device, GPU_N_PIECE, &commands->pool, commands->pieces, err);
    return status != TDM_OK ? status
                            : gpu_uploads_create(device, device->name, device->facts->import_align,
                                                 &calls, &device->uploads, err);
}

void vk_uploads_destroy(vk_device *device) {
    struct vk_upload_commands *commands = device->upload_commands;
    gpu_uploads_destroy(device->uploads);
    device->uploads = NULL;
    if (commands == NULL) return;
    if (commands->pool != VK_NULL_HANDLE)
        device->fn.DestroyCommandPool(device->device, commands->pool, NULL);
    free(commands);
    device->upload_commands = NULL;
}

/* Where the device computes in the host's memory, the host writes weights there directly, and needs
 * no page-locked memory. */
tdm_status vk_host_alloc(tdm_device *device, uint64_t size, void **ptr_out, tdm_error *err) {
    return gpu_host_alloc(device->uploads, size, device->target.is_host && device->options.has_map,
                          ptr_out, err);
}

void vk_host_free(tdm_device *device, void *ptr, uint64_t size) {
    gpu_host_free(device->uploads, ptr, size);
}

tdm_status vk_upload_finish(tdm_device *device, const void *src, tdm_error *err) {
    return gpu_upload_finish(device->uploads, src, err);
}
