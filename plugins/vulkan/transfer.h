/* SPDX-License-Identifier: MIT
 *
 * transfer.h: copies between host and device, and inside the device.
 */
#ifndef TANDEM_VULKAN_TRANSFER_H
#define TANDEM_VULKAN_TRANSFER_H

#include "plugins/gpu/mem/tensor.h"
#include "plugins/vulkan/memory.h"

typedef gpu_runs vk_runs;

tdm_status vk_transfer_create(vk_device *device, tdm_error *err);
void vk_transfer_destroy(vk_device *device);

/* Each returns when the bytes are there. The caller has checked the ranges. vk_download_runs stores
 * the runs in `dst` one after the other, without gaps. vk_copy: the two ranges do not overlap.
 * [any-thread] */
tdm_status vk_download_runs(vk_device *device, const vk_memory *memory, const vk_runs *runs,
                            void *dst, tdm_error *err);
tdm_status vk_upload(vk_device *device, const vk_memory *memory, uint64_t off, const void *src,
                     uint64_t size, tdm_error *err);
tdm_status vk_download(vk_device *device, const vk_memory *memory, uint64_t off, void *dst,
                       uint64_t size, tdm_error *err);
tdm_status vk_copy(vk_device *device, const vk_memory *dst, uint64_t dst_off, const vk_memory *src,
                   uint64_t src_off, uint64_t size, tdm_error *err);
tdm_status vk_fill(vk_device *device, const vk_memory *memory, uint64_t off, uint64_t size,
                   uint8_t byte, tdm_error *err);

/* Waits until a timeline semaphore has a value; `what` names the work that ends then, for messages.
 * TDM_DEADLINE_EXCEEDED after the timeout. After another failure the work has ended too: on a lost
 * device nothing runs, and a wait that fails for lack of memory is tried once more, without a
 * timeout. [any-thread] */
tdm_status vk_semaphore_wait(vk_device *device, VkSemaphore semaphore, uint64_t value,
                             uint64_t timeout_ns, const char *what, tdm_error *err);

/* Copies that the caller records itself and need not wait for:
 *   vk_copies_begin   begins to record: what kernels and earlier copies wrote is visible to them
 *   vk_copies_submit  submits them, behind all earlier submissions. What they write is visible to
 *                     later submissions. *value_out is the number to wait for
 *   vk_copies_wait    waits until the copies of a number are done; 0 = returns at once
 * Only one thread uses a command buffer, and its pool, at a time. [any-thread] */
tdm_status vk_copies_begin(vk_device *device, VkCommandBuffer commands, tdm_error *err);
tdm_status vk_copies_submit(vk_device *device, VkCommandBuffer commands, uint64_t *value_out,
                            tdm_error *err);
tdm_status vk_copies_wait(vk_device *device, uint64_t value, tdm_error *err);

/* Makes a pool and n command buffers of it, commands_out[n], each of which can be recorded again.
 * After a failure *pool_out is VK_NULL_HANDLE, or a pool that the caller must destroy.
 * [any-thread] */
tdm_status vk_commands_create(vk_device *device, uint32_t n, VkCommandPool *pool_out,
                              VkCommandBuffer *commands_out, tdm_error *err);
/* Submits recorded commands and waits for their end. [any-thread] */
tdm_status vk_commands_run(vk_device *device, VkCommandBuffer commands, tdm_error *err);

#endif
