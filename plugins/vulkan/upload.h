/* SPDX-License-Identifier: MIT
 *
 * upload.h: page-locked memory of the host, and weights that are copied from it to memory that the
 * host does not write directly. These copies go on after the call: the next piece of a file is read
 * meanwhile.
 */
#ifndef TANDEM_VULKAN_UPLOAD_H
#define TANDEM_VULKAN_UPLOAD_H

#include "plugins/gpu/layout/weight.h"
#include "plugins/vulkan/memory.h"

tdm_status vk_uploads_create(vk_device *device, tdm_error *err);

/* All memory of vk_host_alloc has been freed. */
void vk_uploads_destroy(vk_device *device);

/* tdm_buffer_ops.host_alloc: memory of the driver that both sides read at full speed. Where the
 * driver has none, or the device has the host's memory, any memory of the host: uploads from it are
 * finished when they return. */
tdm_status vk_host_alloc(tdm_device *device, uint64_t size, void **ptr_out, tdm_error *err);
void vk_host_free(tdm_device *device, void *ptr, uint64_t size);
tdm_status vk_upload_finish(tdm_device *device, const void *src, tdm_error *err);

/* Submits the copies of a part of a tensor at buffer[off ..], whose rows `src` are in memory of
 * vk_host_alloc, and does not wait for them. *is_taken_out is false where nothing was done, since
 * `src` is not in such memory or a row is larger than the staging memory. [any-thread] */
tdm_status vk_upload_begin(tdm_buffer *buffer, uint64_t off, const gpu_weight_layout *layout,
                           const gpu_weight_part *part, const void *src, uint64_t row_pitch,
                           bool *is_taken_out, tdm_error *err);

/* Waits until no copy into the buffer is under way. [any-thread] */
void vk_upload_settle(tdm_buffer *buffer);

#endif
