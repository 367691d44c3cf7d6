/* SPDX-License-Identifier: MIT
 *
 * transfer.c: copies between host and device. Memory that the host sees is read and written
 * directly. Else the bytes go through a ring of staging slots: while the device copies one slot,
 * the host fills or empties the next.
 */
#include "plugins/vulkan/transfer.h"

#include <stdlib.h>
#include <string.h>

enum {
    N_SLOT = 4,
    SLOT_SIZE = 1 << 20,
    MAX_REGION = 512 /* of one slot */
};

typedef struct slot {
    VkCommandBuffer commands;
    uint64_t value; /* vk_transfer.done has it when the slot's last copy is done; 0 = no copy yet */
    VkBufferCopy regions[MAX_REGION];
    uint32_t n_region;
    uint64_t size; /* bytes of all regions, which lie one behind the other in the staging memory */
} slot;

struct vk_transfer {
    pthread_mutex_t mutex; /* over all of it: one transfer at a time */
    vk_memory staging;     /* N_SLOT * SLOT_SIZE, allocated at first use */
    VkCommandPool pool;
    VkSemaphore done;     /* timeline: how many submissions of this file are done */
    uint64_t n_submitted; /* under the mutex */
    slot slots[N_SLOT];
};

/* ---- Creating -------------------------------------------------------------------------------- */

tdm_status vk_commands_create(vk_device *device, uint32_t n, VkCommandPool *pool_out,
                              VkCommandBuffer *commands_out, tdm_error *err) {
    const VkCommandPoolCreateInfo pool = {.sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO,
                                          .flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT,
                                          .queueFamilyIndex = device->facts->compute_family};
    VkResult result = device->fn.CreateCommandPool(device->device, &pool, NULL, pool_out);
    if (result != VK_SUCCESS) {
        *pool_out = VK_NULL_HANDLE;
        return vk_fail(device, err, result, "vkCreateCommandPool");
    }
    const VkCommandBufferAllocateInfo allocate = {
        .sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO,
        .commandPool = *pool_out,
        .level = VK_COMMAND_BUFFER_LEVEL_PRIMARY,
        .commandBufferCount = n};
    result = device->fn.AllocateCommandBuffers(device->device, &allocate, commands_out);
    return result == VK_SUCCESS ? TDM_OK : vk_fail(device, err, result, "vkAllocateCommandBuffers");
}

static tdm_status objects_create(vk_device *device, struct vk_transfer *t, tdm_error *err) {
    const VkSemaphoreTypeCreateInfo type = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO,
                                            .semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE};
    const VkSemaphoreCreateInfo semaphore = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO,
                                             .pNext = &type};
    VkCommandBuffer commands[N_SLOT];
    tdm_status status = vk_commands_create(device, N_SLOT, &t->pool, commands, err);
    if (status != TDM_OK) return status;
    for (int i = 0; i < N_SLOT; i++) t->slots[i].commands = commands[i];
    VkResult result = device->fn.CreateSemaphore(device->device, &semaphore, NULL, &t->done);
    if (result == VK_SUCCESS) return TDM_OK;
    t->done = VK_NULL_HANDLE;
    return vk_fail(device, err, result, "vkCreateSemaphore");
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

/* ---- Slots ----------------------------------------------------------------------------------- */

static tdm_status staging_get(vk_device *device, tdm_error *err) {
    if (device->transfer->staging.block != NULL) return TDM_OK;
    return vk_memory_alloc(device, N_SLOT * SLOT_SIZE, VK_USE_STAGING, &device->transfer->staging,
                           err);
}

static uint64_t slot_off(const struct vk_transfer *t, const slot *s) {
    return (uint64_t)(s - t->slots) * SLOT_SIZE;
}

tdm_status vk_semaphore_wait(vk_device *device, VkSemaphore semaphore, uint64_t value,
                             uint64_t timeout_ns, const char *what, tdm_error *err) {
    const VkSemaphoreWaitInfo wait = {.sType = VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO,
                                      .semaphoreCount = 1,
                                      .pSemaphores = &semaphore,
                                      .pValues = &value};
    if (atomic_load(&device->is_lost))
        return vk_fail(device, err, VK_ERROR_DEVICE_LOST, "an earlier call");
    VkResult result = device->fn.WaitSemaphores(device->device, &wait, timeout_ns);
    if (result == VK_SUCCESS) return TDM_OK;
    if (result == VK_TIMEOUT)
        return tdm_fail(err, TDM_DEADLINE_EXCEEDED, "%s: %s has not ended", device->name, what);
    if (result != VK_ERROR_DEVICE_LOST)
        (void)device->fn.WaitSemaphores(device->device, &wait, UINT64_MAX);
    return vk_fail(device, err, result, "vkWaitSemaphores");
}

tdm_status vk_copies_wait(vk_device *device, uint64_t value, tdm_error *err) {
    return value == 0 ? TDM_OK
                      : vk_semaphore_wait(device, device->transfer->done, value, UINT64_MAX,
                                          "a copy", err);
}

/* Waits until the device is done with what the slot was last submitted for. */
static tdm_status slot_wait(vk_device *device, const slot *s, tdm_error *err) {
    return vk_copies_wait(device, s->value, err);
}

tdm_status vk_copies_begin(vk_device *device, VkCommandBuffer commands, tdm_error *err) {
    const VkCommandBufferBeginInfo info = {.sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO,
                                           .flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT};
    const VkMemoryBarrier before = {
        .sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
        .srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT,
        .dstAccessMask = VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT};
    if (atomic_load(&device->is_lost))
        return vk_fail(device, err, VK_ERROR_DEVICE_LOST, "an earlier call");
    VkResult result = device->fn.BeginCommandBuffer(commands, &info);
    if (result != VK_SUCCESS) return vk_fail(device, err, result, "vkBeginCommandBuffer");
    device->fn.CmdPipelineBarrier(
        commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
        VK_PIPELINE_STAGE_TRANSFER_BIT, 0, 1, &before, 0, NULL, 0, NULL);
    return TDM_OK;
}

/* Submits behind all earlier submissions. vk_transfer.done has *value_out when the commands are
 * done. With the mutex held. */
static tdm_status commands_submit(vk_device *device, VkCommandBuffer commands, uint64_t *value_out,
                                  tdm_error *err) {
    struct vk_transfer *t = device->transfer;
    const uint64_t value = t->n_submitted + 1;
    const VkTimelineSemaphoreSubmitInfo timeline = {
        .sType = VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO,
        .signalSemaphoreValueCount = 1,
        .pSignalSemaphoreValues = &value};
    const VkSubmitInfo submit = {.sType = VK_STRUCTURE_TYPE_SUBMIT_INFO,
                                 .pNext = &timeline,
                                 .commandBufferCount = 1,
                                 .pCommandBuffers = &commands,
                                 .signalSemaphoreCount = 1,
                                 .pSignalSemaphores = &t->done};
    pthread_mutex_lock(&device->queue_mutex);
    VkResult result = device->fn.QueueSubmit(device->queue, 1, &submit, VK_NULL_HANDLE);
    pthread_mutex_unlock(&device->queue_mutex);
    if (result != VK_SUCCESS) return vk_fail(device, err, result, "vkQueueSubmit");
    t->n_submitted = *value_out = value;
    return TDM_OK;
}

/* With the mutex held. */
static tdm_status copies_submit(vk_device *device, VkCommandBuffer commands, uint64_t *value_out,
                                tdm_error *err) {
    const VkMemoryBarrier after = {.sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER,
                                   .srcAccessMask = VK_ACCESS_TRANSFER_WRITE_BIT,
                                   .dstAccessMask = VK_ACCESS_HOST_READ_BIT};
    device->fn.CmdPipelineBarrier(commands, VK_PIPELINE_STAGE_TRANSFER_BIT,
                                  VK_PIPELINE_STAGE_HOST_BIT, 0, 1, &after, 0, NULL, 0, NULL);
    VkResult result = device->fn.EndCommandBuffer(commands);
    if (result != VK_SUCCESS) return vk_fail(device, err, result, "vkEndCommandBuffer");
    return commands_submit(device, commands, value_out, err);
}

tdm_status vk_copies_submit(vk_device *device, VkCommandBuffer commands, uint64_t *value_out,
                            tdm_error *err) {
    pthread_mutex_lock(&device->transfer->mutex);
    tdm_status status = copies_submit(device, commands, value_out, err);
    pthread_mutex_unlock(&device->transfer->mutex);
    return status;
}

tdm_status vk_commands_run(vk_device *device, VkCommandBuffer commands, tdm_error *err) {
    uint64_t value = 0;
    pthread_mutex_lock(&device->transfer->mutex);
    tdm_status status = commands_submit(device, commands, &value, err);
    if (status == TDM_OK) status = vk_copies_wait(device, value, err);
    pthread_mutex_unlock(&device->transfer->mutex);
    return status;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* How far a transfer is: the next byte is byte `at` of run `run`. */
typedef struct cursor {
    int64_t run;
    uint64_t at;
} cursor;

/* Fills the slot's regions with as many bytes as it can take, from the cursor on, and moves the
 * cursor. to_device: from staging memory to `memory`, else from it. */
static void slot_fill(const struct vk_transfer *t, slot *s, const vk_memory *memory,
                      const vk_runs *runs, cursor *c, bool to_device) {
    uint64_t staging = t->staging.off + slot_off(t, s);
    s->size = 0;
    s->n_region = 0;
    while (c->run < runs->n_run && s->size < SLOT_SIZE && s->n_region < MAX_REGION) {
        uint64_t n = runs->size - c->at, room = SLOT_SIZE - s->size;
        if (n > room) n = room;
        uint64_t far = memory->off + runs->off + (uint64_t)c->run * runs->stride + c->at;
        uint64_t near = staging + s->size;
        s->regions[s->n_region++] = (VkBufferCopy){
            .srcOffset = to_device ? near : far, .dstOffset = to_device ? far : near, .size = n};
        s->size += n;
        c->at += n;
        if (c->at < runs->size) continue;
        c->at = 0;
        c->run++;
    }
}

static tdm_status slot_copy(vk_device *device, slot *s, VkBuffer src, VkBuffer dst,
                            tdm_error *err) {
    tdm_status status = vk_copies_begin(device, s->commands, err);
    if (status != TDM_OK) return status;
    device->fn.CmdCopyBuffer(s->commands, src, dst, s->n_region, s->regions);
    return copies_submit(device, s->commands, &s->value, err);
}

/* Waits for all slots, also after a failure, so that the device uses none of them. Returns `status`
 * or, where that is TDM_OK, the first failure of a wait. */
static tdm_status slots_drain(vk_device *device, tdm_status status, tdm_error *err) {
    for (int i = 0; i < N_SLOT; i++) {
        tdm_status waited =
            slot_wait(device, &device->transfer->slots[i], status == TDM_OK ? err : NULL);
        if (status == TDM_OK) status = waited;
    }
    return status;
}

static tdm_status staged_upload(vk_device *device, const vk_memory *memory, const vk_runs *runs,
                                const uint8_t *src, tdm_error *err) {
    struct vk_transfer *t = device->transfer;
    cursor c = {0, 0};
    tdm_status status = staging_get(device, err);
    for (int i = 0; status == TDM_OK && c.run < runs->n_run; i = (i + 1) % N_SLOT) {
        slot *s = &t->slots[i];
        status = slot_wait(device, s, err);
        if (status != TDM_OK) break;
        slot_fill(t, s, memory, runs, &c, true);
        memcpy(t->staging.mapped + slot_off(t, s), src, (size_t)s->size);
        src += s->size;
        status = vk_memory_flush(device, &t->staging, slot_off(t, s), s->size, err);
        if (status == TDM_OK) status = slot_copy(device, s, t->staging.buffer, memory->buffer, err);
    }
    return slots_drain(device, status, err);
}

/* Uses the slots in turn. Each is emptied before it is filled again, the last ones at the end. */
static tdm_status staged_download(vk_device *device, const vk_memory *memory, const vk_runs *runs,
                                  uint8_t *dst, tdm_error *err) {
    struct vk_transfer *t = device->transfer;
    cursor c = {0, 0};
    tdm_status status = staging_get(device, err);
    int first = 0, n_used = 0;
    while (status == TDM_OK && (c.run < runs->n_run || n_used > 0)) {
        if (c.run < runs->n_run && n_used < N_SLOT) {
            slot *s = &t->slots[(first + n_used++) % N_SLOT];
            slot_fill(t, s, memory, runs, &c, false);
            status = slot_copy(device, s, memory->buffer, t->staging.buffer, err);
            continue;
        }
        slot *s = &t->slots[first];
        status = slot_wait(device, s, err);
        if (status == TDM_OK)
            status = vk_memory_invalidate(device, &t->staging, slot_off(t, s), s->size, err);
        if (status != TDM_OK) break;
        memcpy(dst, t->staging.mapped + slot_off(t, s), (size_t)s->size);
        dst += s->size;
        first = (first + 1) % N_SLOT;
        n_used--;
    }
    return slots_drain(device, status, err);
}

static uint64_t runs_extent(const vk_runs *runs) {
    return (uint64_t)(runs->n_run - 1) * runs->stride + runs->size;
}

tdm_status vk_download_runs(vk_device *device, const vk_memory *memory, const vk_runs *runs,
                            void *dst, tdm_error *err) {
    const vk_runs r = gpu_runs_join(runs);
    if (r.n_run == 0) return TDM_OK;
    /* The host reads write-combined memory very slowly: such memory goes through staging too. */
    if (memory->mapped != NULL && memory->is_cached) {
        tdm_status status = vk_memory_invalidate(device, memory, r.off, runs_extent(&r), err);
        for (int64_t i = 0; i < r.n_run && status == TDM_OK; i++)
            memcpy((uint8_t *)dst + (uint64_t)i * r.size,
                   memory->mapped + r.off + (uint64_t)i * r.stride, (size_t)r.size);
        return status;
    }
    pthread_mutex_lock(&device->transfer->mutex);
    tdm_status status = staged_download(device, memory, &r, dst, err);
    pthread_mutex_unlock(&device->transfer->mutex);
    return status;
}

tdm_status vk_upload(vk_device *device, const vk_memory *memory, uint64_t off, const void *src,
                     uint64_t size, tdm_error *err) {
    if (size == 0) return TDM_OK;
    if (memory->mapped != NULL) {
        memcpy(memory->mapped + off, src, (size_t)size);
        return vk_memory_flush(device, memory, off, size, err);
    }
    pthread_mutex_lock(&device->transfer->mutex);
    tdm_status status = staged_upload(device, memory, &(vk_runs){off, size, size, 1}, src, err);
    pthread_mutex_unlock(&device->transfer->mutex);
    return status;
}

tdm_status vk_download(vk_device *device, const vk_memory *memory, uint64_t off, void *dst,
                       uint64_t size, tdm_error *err) {
    return vk_download_runs(device, memory, &(vk_runs){off, size, size, 1}, dst, err);
}

/* ---- Inside the device ----------------------------------------------------------------------- */

tdm_status vk_copy(vk_device *device, const vk_memory *dst, uint64_t dst_off, const vk_memory *src,
                   uint64_t src_off, uint64_t size, tdm_error *err) {
    slot *s = &device->transfer->slots[0];
    if (size == 0) return TDM_OK;
    pthread_mutex_lock(&device->transfer->mutex);
    s->regions[0] = (VkBufferCopy){
        .srcOffset = src->off + src_off, .dstOffset = dst->off + dst_off, .size = size};
    s->n_region = 1;
    tdm_status status = slot_copy(device, s, src->buffer, dst->buffer, err);
    status = slots_drain(device, status, err);
    pthread_mutex_unlock(&device->transfer->mutex);
    return status;
}

/* Fills a range whose offset and size are multiples of 4. */
static tdm_status words_fill(vk_device *device, const vk_memory *memory, uint64_t off,
                             uint64_t size, uint8_t byte, tdm_error *err) {
    slot *s = &device->transfer->slots[0];
    pthread_mutex_lock(&device->transfer->mutex);
    tdm_status status = vk_copies_begin(device, s->commands, err);
    if (status == TDM_OK) {
        device->fn.CmdFillBuffer(s->commands, memory->buffer, memory->off + off, size,
                                 byte * 0x01010101u);
        status = copies_submit(device, s->commands, &s->value, err);
    }
    status = slots_drain(device, status, err);
    pthread_mutex_unlock(&device->transfer->mutex);
    return status;
}

/* The driver fills whole words; the bytes before and behind them are uploaded. */
tdm_status vk_fill(vk_device *device, const vk_memory *memory, uint64_t off, uint64_t size,
                   uint8_t byte, tdm_error *err) {
    uint64_t first = (off + 3) / 4 * 4, last = (off + size) / 4 * 4;
    uint8_t edge[8];
    memset(edge, byte, sizeof edge);
    if (size == 0) return TDM_OK;
    if (memory->mapped != NULL) {
        memset(memory->mapped + off, byte, (size_t)size);
        return vk_memory_flush(device, memory, off, size, err);
    }
    if (first >= last) return vk_upload(device, memory, off, edge, size, err);
    tdm_status status = vk_upload(device, memory, off, edge, first - off, err);
    if (status == TDM_OK) status = vk_upload(device, memory, last, edge, off + size - last, err);
    if (status == TDM_OK) status = words_fill(device, memory, first, last - first, byte, err);
    return status;
}
