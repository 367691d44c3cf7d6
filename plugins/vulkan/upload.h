/* SPDX-License-Identifier: MIT
 *
 * upload.h: page-locked memory and copies for plugins/gpu/mem/upload.h, which loads weights.
 */
#ifndef TANDEM_VULKAN_UPLOAD_H
#define TANDEM_VULKAN_UPLOAD_H

#include "plugins/gpu/mem/upload.h"
#include "plugins/vulkan/memory.h"

tdm_status vk_uploads_create(vk_device *device, tdm_error *err);

/* All memory of vk_host_alloc has been freed. */
void vk_uploads_destroy(vk_device *device);

/* host_alloc, host_free and upload_finish of tdm_buffer_ops. */
tdm_status vk_host_alloc(tdm_device *device, uint64_t size, void **ptr_out, tdm_error *err);
void vk_host_free(tdm_device *device, void *ptr, uint64_t size);
tdm_status vk_upload_finish(tdm_device *device, const void *src, tdm_error *err);

#endif
