/* SPDX-License-Identifier: MIT
 *
 * transfer.c: synchronous copies between host and device, and inside the device. Memory that the
 * host sees is written directly; else the bytes go through a staging buffer.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/vulkan/vk.h"

enum { STAGING_SIZE = 4 << 20 };

struct vk_transfer {
    pthread_mutex_t mutex; /* over all of it: one copy at a time */
    vk_memory staging;     /* allocated at first use */
    VkCommandPool pool;
    VkCommandBuffer commands;
    VkSemaphore done; /* timeline */
    uint64_t n_done;
};

static tdm_status objects_create(vk_device *device, struct vk_transfer *t, tdm_error *err) {
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = device->facts->compute_family};
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                             .pNext = &type};
    VkResult result = device->fn.CreateCommandPool(device->device, &pool, NULL, &t->pool);
    if (result != VK_SUCCESS) return vk_fail(device, err, result, "vkCreateCommandPool");
    const VkCommandBufferAllocateInfo commands = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = t->pool,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = 1};
    result = device->fn.AllocateCommandBuffers(device->device, &commands, &t->commands);
    if (result != VK_SUCCESS) return vk_fail(device, err, result, "vkAllocateCommandBuffers");
    result = device->fn.CreateSemaphore(device->device, &semaphore, NULL, &t->done);
    return result == VK_SUCCESS ? TDM_OK : vk_fail(device, err, result, "vkCreateSemaphore");
}

tdm_status vk_transfer_create(vk_device *device, tdm_error *err) {
    struct vk_transfer *t = calloc(1, sizeof *t);
    if (t == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    pthread_mutex_init(&t->mutex, NULL);
    device->transfer = t;
    return objects_create(device, t, err);
}

void vk_transfer_destroy(vk_device *device) {
    struct vk_transfer *t = device->transfer;
    if (t == NULL) return;
    vk_memory_free(device, &t->staging);
    if (t->done != VK_NULL_HANDLE) device->fn.DestroySemaphore(device->device, t->done, NULL);
    if (t->pool != VK_NULL_HANDLE) device->fn.DestroyCommandPool(device->device, t->pool, NULL);
    pthread_mutex_destroy(&t->mutex);
    free(t);
    device->transfer = NULL;
}

/* ---- One batch of commands ------------------------------------------------------------------- */

static tdm_status commands_begin(vk_device *device, tdm_error *err) {
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    const VkMemoryBarrier before = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
    if (atomic_load(&device->is_lost))
        return vk_fail(device, err, VK_ERROR_DEVICE_LOST, "an earlier call");
    VkResult result = device->fn.BeginCommandBuffer(device->transfer->commands, &info);
    if (result != VK_SUCCESS) return vk_fail(device, err, result, "vkBeginCommandBuffer");
    device->fn.CmdPipelineBarrier(device->transfer->commands,
                                  VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT |
                                      VK_PIPELINE_STAGE_TRANSFER_BIT,
                                  VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &before, 0, NULL, 0, NULL);
    return TDM_OK;
}

/* Submits and waits. */
static tdm_status commands_run(vk_device *device, tdm_error *err) {
    struct vk_transfer *t = device->transfer;
    const uint64_t value = t->n_done + 1;
    const VkMemoryBarrier after = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                   .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                   .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    const VkTimelineSemaphoreSubmitInfo timeline = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &value};
    const VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                 .pNext = &timeline,
                                 .commandBufferCount = 1,
                                 .pCommandBuffers = &t->commands,
                                 .signalSemaphoreCount = 1,
                                 .pSignalSemaphores = &t->done};
    const VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &t->done,
                                      .pValues = &value};
    device->fn.CmdPipelineBarrier(t->commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
                                  VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &after, 0, NULL, 0, NULL);
    VkResult result = device->fn.EndCommandBuffer(t->commands);
    if (result != VK_SUCCESS) return vk_fail(device, err, result, "vkEndCommandBuffer");
    pthread_mutex_lock(&device->queue_mutex);
    result = device->fn.QueueSubmit(device->queue, 1, &submit, VK_NULL_HANDLE);
    pthread_mutex_unlock(&device->queue_mutex);
    if (result != VK_SUCCESS) return vk_fail(device, err, result, "vkQueueSubmit");
    t->n_done = value;
    result = device->fn.WaitSemaphores(device->device, &wait, UINT64_MAX);
    return result == VK_SUCCESS ? TDM_OK : vk_fail(device, err, result, "vkWaitSemaphores");
}

static tdm_status copy_run(vk_device *device, const vk_memory *dst, uint64_t dst_off,
                           const vk_memory *src, uint64_t src_off, uint64_t size, tdm_error *err) {
    const VkBufferCopy region = {.srcOffset = src_off, .dstOffset = dst_off, .size = size};
    tdm_status status = commands_begin(device, err);
    if (status != TDM_OK) return status;
    device->fn.CmdCopyBuffer(device->transfer->commands, src->buffer, dst->buffer, 1, &region);
    return commands_run(device, err);
}

static tdm_status staging_get(vk_device *device, tdm_error *err) {
    if (device->transfer->staging.buffer != VK_NULL_HANDLE) return TDM_OK;
    return vk_memory_alloc(device, STAGING_SIZE, TDM_BUFFER_STAGING, &device->transfer->staging,
                           err);
}

/* ---- Mapped memory --------------------------------------------------------------------------- */

/* Memory that is not coherent: whole allocations are flushed, which is always aligned. */
static VkMappedMemoryRange whole_range(const vk_memory *memory) {
    return (VkMappedMemoryRange){.sType = VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE,
                                 .memory = memory->memory,
                                 .size = VK_WHOLE_SIZE};
}

static tdm_status mapped_flush(vk_device *device, const vk_memory *memory, tdm_error *err) {
    const VkMappedMemoryRange range = whole_range(memory);
    if (memory->is_coherent) return TDM_OK;
    VkResult result = device->fn.FlushMappedMemoryRanges(device->device, 1, &range);
    return result == VK_SUCCESS ? TDM_OK
                                : vk_fail(device, err, result, "vkFlushMappedMemoryRanges");
}

static tdm_status mapped_invalidate(vk_device *device, const vk_memory *memory, tdm_error *err) {
    const VkMappedMemoryRange range = whole_range(memory);
    if (memory->is_coherent) return TDM_OK;
    VkResult result = device->fn.InvalidateMappedMemoryRanges(device->device, 1, &range);
    return result == VK_SUCCESS ? TDM_OK
                                : vk_fail(device, err, result, "vkInvalidateMappedMemoryRanges");
}

/* ---- The four copies ------------------------------------------------------------------------- */

tdm_status vk_upload(vk_device *device, const vk_memory *memory, uint64_t off, const void *src,
                     uint64_t size, tdm_error *err) {
    struct vk_transfer *t = device->transfer;
    if (size == 0) return TDM_OK;
    if (memory->mapped != NULL) {
        memcpy(memory->mapped + off, src, (size_t)size);
        return mapped_flush(device, memory, err);
    }
    pthread_mutex_lock(&t->mutex);
    tdm_status status = staging_get(device, err);
    for (uint64_t at = 0; at < size && status == TDM_OK; at += STAGING_SIZE) {
        uint64_t n = size - at < STAGING_SIZE ? size - at : STAGING_SIZE;
        memcpy(t->staging.mapped, (const uint8_t *)src + at, (size_t)n);
        status = mapped_flush(device, &t->staging, err);
        if (status == TDM_OK) status = copy_run(device, memory, off + at, &t->staging, 0, n, err);
    }
    pthread_mutex_unlock(&t->mutex);
    return status;
}

tdm_status vk_download(vk_device *device, const vk_memory *memory, uint64_t off, void *dst,
                       uint64_t size, tdm_error *err) {
    struct vk_transfer *t = device->transfer;
    if (size == 0) return TDM_OK;
    if (memory->mapped != NULL && memory->is_cached) {
        tdm_status status = mapped_invalidate(device, memory, err);
        if (status == TDM_OK) memcpy(dst, memory->mapped + off, (size_t)size);
        return status;
    }
    pthread_mutex_lock(&t->mutex);
    tdm_status status = staging_get(device, err);
    for (uint64_t at = 0; at < size && status == TDM_OK; at += STAGING_SIZE) {
        uint64_t n = size - at < STAGING_SIZE ? size - at : STAGING_SIZE;
        status = copy_run(device, &t->staging, 0, memory, off + at, n, err);
        if (status == TDM_OK) status = mapped_invalidate(device, &t->staging, err);
        if (status == TDM_OK) memcpy((uint8_t *)dst + at, t->staging.mapped, (size_t)n);
    }
    pthread_mutex_unlock(&t->mutex);
    return status;
}

tdm_status vk_copy(vk_device *device, const vk_memory *dst, uint64_t dst_off, const vk_memory *src,
                   uint64_t src_off, uint64_t size, tdm_error *err) {
    if (size == 0) return TDM_OK;
    pthread_mutex_lock(&device->transfer->mutex);
    tdm_status status = copy_run(device, dst, dst_off, src, src_off, size, err);
    pthread_mutex_unlock(&device->transfer->mutex);
    return status;
}

/* vkCmdFillBuffer sets whole words; the bytes before and behind them are uploaded. */
tdm_status vk_fill(vk_device *device, const vk_memory *memory, uint64_t off, uint64_t size,
                   uint8_t byte, tdm_error *err) {
    const uint8_t edge[4] = {byte, byte, byte, byte};
    uint64_t first = (off + 3) / 4 * 4, last = (off + size) / 4 * 4;
    if (size == 0) return TDM_OK;
    if (first >= last || memory->mapped != NULL) {
        if (memory->mapped != NULL) {
            memset(memory->mapped + off, byte, (size_t)size);
            return mapped_flush(device, memory, err);
        }
        uint8_t bytes[8];
        memset(bytes, byte, sizeof bytes);
        return vk_upload(device, memory, off, bytes, size, err);
    }
    tdm_status status = vk_upload(device, memory, off, edge, first - off, err);
    if (status == TDM_OK) status = vk_upload(device, memory, last, edge, off + size - last, err);
    if (status != TDM_OK) return status;
    pthread_mutex_lock(&device->transfer->mutex);
    status = commands_begin(device, err);
    if (status == TDM_OK) {
        device->fn.CmdFillBuffer(device->transfer->commands, memory->buffer, first, last - first,
                                 byte * 0x01010101u);
        status = commands_run(device, err);
    }
    pthread_mutex_unlock(&device->transfer->mutex);
    return status;
}
