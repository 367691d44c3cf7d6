/* SPDX-License-Identifier: MIT
 *
 * buffer.c: buffers as the ABI has them: checks, and what each purpose means for memory.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/vulkan/transfer.h"
#include "plugins/vulkan/upload.h"

static vk_use use_of(int32_t purpose) {
    switch (purpose) {
    case TDM_BUFFER_INPUT: return VK_USE_INPUT;
    case TDM_BUFFER_OUTPUT:
    case TDM_BUFFER_ARENA: return VK_USE_OUTPUT;
    default: return VK_USE_DEVICE;
    }
}

static tdm_status buffer_alloc(tdm_device *device, const tdm_buffer_params *params,
                               tdm_buffer **buffer_out, tdm_error *err) {
    tdm_buffer_params p;
    tdm_struct_read(&p, sizeof p, params);
    tdm_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    buffer->device = device;
    buffer->size = p.size;
    tdm_status status = vk_memory_alloc(device, p.size, use_of(p.purpose), &buffer->memory, err);
    if (status != TDM_OK) {
        free(buffer);
        return status;
    }
    *buffer_out = buffer;
    return TDM_OK;
}

static void buffer_free(tdm_buffer *buffer) {
    if (buffer == NULL) return;
    gpu_upload_settle(buffer->device->uploads, &buffer->uploads);
    vk_memory_free(buffer->device, &buffer->memory);
    free(buffer);
}

static tdm_status range_check(const tdm_buffer *buffer, const char *what, uint64_t off,
                              uint64_t size, tdm_error *err) {
    return tdm_range_check(buffer->device->name, what, off, size, buffer->size, err);
}

static tdm_status buffer_upload(tdm_buffer *buffer, uint64_t off, const void *src, uint64_t size,
                                tdm_error *err) {
    tdm_status status = range_check(buffer, "upload", off, size, err);
    return status != TDM_OK ? status
                            : vk_upload(buffer->device, &buffer->memory, off, src, size, err);
}

static tdm_status buffer_download(tdm_buffer *buffer, uint64_t off, void *dst, uint64_t size,
                                  tdm_error *err) {
    tdm_status status = range_check(buffer, "download", off, size, err);
    return status != TDM_OK ? status
                            : vk_download(buffer->device, &buffer->memory, off, dst, size, err);
}

static tdm_status buffer_copy(tdm_buffer *dst, uint64_t dst_off, tdm_buffer *src, uint64_t src_off,
                              uint64_t size, tdm_error *err) {
    tdm_status status = tdm_copy_check(dst->device->name, dst == src, dst_off, dst->size, src_off,
                                       src->size, size, err);
    if (status != TDM_OK || size == 0) return status;
    return vk_copy(dst->device, &dst->memory, dst_off, &src->memory, src_off, size, err);
}

static tdm_status buffer_fill(tdm_buffer *buffer, uint64_t off, uint64_t size, uint8_t byte,
                              tdm_error *err) {
    tdm_status status = range_check(buffer, "fill", off, size, err);
    return status != TDM_OK ? status
                            : vk_fill(buffer->device, &buffer->memory, off, size, byte, err);
}

/* NULL for memory that the caller would have to flush, and where it reads, for memory that the host
 * does not cache. */
static void *buffer_host_pointer(tdm_buffer *buffer, uint32_t access) {
    const vk_memory *memory = &buffer->memory;
    bool is_fast = memory->is_cached || (access & TDM_ACCESS_READ) == 0;
    return memory->is_coherent && is_fast ? memory->mapped : NULL;
}

const tdm_buffer_ops vk_buffer_ops = {
    .struct_size = sizeof(tdm_buffer_ops),
    .alloc = buffer_alloc,
    .free = buffer_free,
    .upload = buffer_upload,
    .download = buffer_download,
    .copy = buffer_copy,
    .fill = buffer_fill,
    .host_pointer = buffer_host_pointer,
    .import_host = vk_import_host,
    .tensor_size = vk_tensor_size,
    .tensor_upload = vk_tensor_upload,
    .tensor_download = vk_tensor_download,
    .kv_page_size = vk_kv_page_size,
    .host_alloc = vk_host_alloc,
    .host_free = vk_host_free,
    .upload_finish = vk_upload_finish,
};
