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

/* Each returns when the bytes are there. The caller has checked the ranges. [any-thread] */
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

/* Waits until a timeline semaphore has a value: the end of `what`, for messages.
 * TDM_DEADLINE_EXCEEDED after the timeout. After another failure what was submitted has ended too: on a
 * lost device nothing runs, and a wait that fails for lack of memory is tried once more. [any-thread] */
tdm_status vk_semaphore_wait(vk_device *device, VkSemaphore semaphore, uint64_t value,
                             uint64_t timeout_ns, const char *what, tdm_error *err);

/* Copies that the caller records and does not wait for. begin: what kernels and earlier copies wrote
 * is visible to the copies that follow. submit: the copies run in the order of all submissions, and
 * what they wrote is visible to later ones; *value_out is the number to wait for. wait: until the
 * copies of a number are done; 0 = none. Only one thread uses a command buffer, and its pool, at a
 * time. [any-thread] */
tdm_status vk_copies_begin(vk_device *device, VkCommandBuffer commands, tdm_error *err);
tdm_status vk_copies_submit(vk_device *device, VkCommandBuffer commands, uint64_t *value_out,
                            tdm_error *err);
tdm_status vk_copies_wait(vk_device *device, uint64_t value, tdm_error *err);

/* Makes a pool and commands_out[n] of it, each of which can be recorded again. On failure *pool_out
 * is VK_NULL_HANDLE, or a pool to be destroyed. */
tdm_status vk_commands_create(vk_device *device, uint32_t n, VkCommandPool *pool_out,
                              VkCommandBuffer *commands_out, tdm_error *err);
/* Submits recorded commands and waits for their end. [any-thread] */
tdm_status vk_commands_run(vk_device *device, VkCommandBuffer commands, tdm_error *err);

#endif
