/* SPDX-License-Identifier: MIT
 *
 * tensor.c: upload and download of weights, and the size of cache pages. Owns how the bytes reach
 * the device: directly where the host sees its memory, else by plugins/gpu/mem. Layouts are those
 * of plugins/gpu/layout.
 */
#include "plugins/gpu/mem/tensor.h"

#include "plugins/gpu/layout/page.h"
#include "plugins/gpu/mem/upload.h"
#include "plugins/vulkan/transfer.h"

static tdm_status runs_download(void *context, const gpu_runs *runs, void *dst, tdm_error *err) {
    const tdm_buffer *buffer = context;
    return vk_download_runs(buffer->device, &buffer->memory, runs, dst, err);
}

static gpu_tensor_buffer buffer_of(tdm_buffer *buffer) {
    return (gpu_tensor_buffer){.name = buffer->device->name,
                               .size = buffer->size,
                               .context = buffer,
                               .download = runs_download};
}

tdm_status vk_tensor_size(tdm_device *device, const tdm_tensor_desc *desc, uint64_t *size_out,
                          tdm_error *err) {
    (void)device;
    return gpu_tensor_size(desc, size_out, err);
}

tdm_status vk_tensor_upload(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                            const void *src, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                            int64_t col_first, int64_t n_col, tdm_error *err) {
    const vk_memory *memory = &buffer->memory;
    const gpu_tensor_buffer b = buffer_of(buffer);
    gpu_weight_layout layout;
    gpu_weight_part part;
    tdm_status status =
        gpu_tensor_part(&b, off, desc, row_first, n_row, col_first, n_col, &layout, &part, err);
    if (status != TDM_OK || part.n_row == 0) return status;
    if (memory->mapped == NULL)
        return gpu_upload(buffer->device->uploads, buffer, off, &buffer->uploads, &layout, &part,
                          src, row_pitch, err);
    gpu_weight_store(&layout, &part, src, row_pitch, memory->mapped + off);
    return vk_memory_flush(buffer->device, memory, off, layout.size, err);
}

tdm_status vk_tensor_download(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                              void *dst, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                              int64_t col_first, int64_t n_col, tdm_error *err) {
    const vk_memory *memory = &buffer->memory;
    const gpu_tensor_buffer b = buffer_of(buffer);
    gpu_weight_layout layout;
    gpu_weight_part part;
    tdm_status status =
        gpu_tensor_part(&b, off, desc, row_first, n_row, col_first, n_col, &layout, &part, err);
    if (status != TDM_OK || part.n_row == 0) return status;
    if (memory->mapped == NULL || !memory->is_cached)
        return gpu_tensor_download(&b, off, &layout, &part, dst, row_pitch, err);
    status = vk_memory_invalidate(buffer->device, memory, off, layout.size, err);
    if (status == TDM_OK) gpu_weight_load(&layout, &part, memory->mapped + off, dst, row_pitch);
    return status;
}

/* ---- Cache pages ---- */

tdm_status vk_kv_page_size(tdm_device *device, const tdm_kv_desc *desc, uint64_t *size_out,
                           tdm_error *err) {
    tdm_kv_desc d;
    tdm_struct_read(&d, sizeof d, desc);
    return gpu_page_size(&device->target, &d, size_out, err);
}
