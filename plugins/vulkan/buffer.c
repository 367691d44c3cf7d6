/* SPDX-License-Identifier: MIT
 *
 * buffer.c: buffers and tensors as the ABI has them. What a private layout looks like is decided in
 * plugins/gpu/layout.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/layout/page.h"
#include "plugins/gpu/layout/weight.h"
#include "plugins/vulkan/vk.h"

static tdm_status buffer_alloc(tdm_device *device, const tdm_buffer_params *params,
                               tdm_buffer **buffer_out, tdm_error *err) {
    tdm_buffer_params p;
    vk_struct_read(&p, sizeof p, params);
    tdm_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    buffer->device = device;
    buffer->size = p.size;
    tdm_status status = vk_memory_alloc(device, p.size, p.purpose, &buffer->memory, err);
    if (status != TDM_OK) {
        free(buffer);
        return status;
    }
    *buffer_out = buffer;
    return TDM_OK;
}

static void buffer_free(tdm_buffer *buffer) {
    if (buffer == NULL) return;
    vk_memory_free(buffer->device, &buffer->memory);
    free(buffer);
}

static tdm_status range_check(const tdm_buffer *buffer, const char *what, uint64_t off,
                              uint64_t size, tdm_error *err) {
    if (off <= buffer->size && size <= buffer->size - off) return TDM_OK;
    return tdm_fail(err, TDM_OUT_OF_RANGE,
                    "%s: %s: %llu bytes at offset %llu are not inside a buffer of %llu",
                    buffer->device->name, what, (unsigned long long)size, (unsigned long long)off,
                    (unsigned long long)buffer->size);
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
    tdm_status status = range_check(dst, "copy, destination", dst_off, size, err);
    if (status == TDM_OK) status = range_check(src, "copy, source", src_off, size, err);
    if (status != TDM_OK || size == 0) return status;
    if (dst == src && src_off < dst_off + size && dst_off < src_off + size)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: copy: the ranges overlap",
                        dst->device->name);
    return vk_copy(dst->device, &dst->memory, dst_off, &src->memory, src_off, size, err);
}

static tdm_status buffer_fill(tdm_buffer *buffer, uint64_t off, uint64_t size, uint8_t byte,
                              tdm_error *err) {
    tdm_status status = range_check(buffer, "fill", off, size, err);
    return status != TDM_OK ? status
                            : vk_fill(buffer->device, &buffer->memory, off, size, byte, err);
}

/* Only memory that needs no flush and that the host reads at full speed. */
static void *buffer_host_pointer(tdm_buffer *buffer) {
    const vk_memory *memory = &buffer->memory;
    return memory->is_coherent && memory->is_cached ? memory->mapped : NULL;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Reads the caller's description and refuses what no layout could hold. */
static tdm_status desc_read(const tdm_tensor_desc *theirs, tdm_tensor_desc *desc, tdm_error *err) {
    vk_struct_read(desc, sizeof *desc, theirs);
    tdm_type_info type = tdm_type_get_info(desc->type);
    if (type.name == NULL)
        return tdm_fail(err, TDM_UNSUPPORTED, "tensor: type %d is unknown", (int)desc->type);
    uint64_t size = (uint64_t)type.block_size;
    for (int i = 0; i < TDM_MAX_DIMS; i++) {
        int64_t n = desc->ne[i];
        if (n < 0 || (i == 0 && n % type.block_len != 0))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "tensor: %lld is no length of axis %d in type %s", (long long)n, i,
                            type.name);
        if (n > 0 && (__builtin_mul_overflow(size, (uint64_t)n, &size) || size > INT64_MAX))
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "tensor: larger than any memory");
    }
    return TDM_OK;
}

static tdm_status buffer_tensor_size(tdm_device *device, const tdm_tensor_desc *desc,
                                     uint64_t *size_out, tdm_error *err) {
    tdm_tensor_desc d;
    (void)device;
    tdm_status status = desc_read(desc, &d, err);
    if (status != TDM_OK) return status;
    if (d.usage != 0) return gpu_weight_size(d.type, d.ne, d.usage, size_out, err);
    *size_out = tdm_tensor_canonical_size(d.type, d.ne);
    return TDM_OK;
}

/* Checks description, rows and columns, and that the tensor lies inside the buffer. */
static tdm_status part_check(const tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *theirs,
                             int64_t row_first, int64_t n_row, int64_t col_first, int64_t n_col,
                             tdm_tensor_desc *desc, tdm_error *err) {
    uint64_t size = 0;
    tdm_status status = desc_read(theirs, desc, err);
    if (status == TDM_OK) status = buffer_tensor_size(buffer->device, desc, &size, err);
    if (status == TDM_OK) status = range_check(buffer, "tensor", off, size, err);
    if (status != TDM_OK) return status;
    int64_t n_row_all = tdm_shape_rows(desc->ne), len = tdm_type_get_info(desc->type).block_len;
    if (row_first < 0 || n_row < 0 || row_first > n_row_all || n_row > n_row_all - row_first)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "tensor: rows %lld and %lld more, of %lld",
                        (long long)row_first, (long long)n_row, (long long)n_row_all);
    if (col_first < 0 || n_col < 0 || col_first > desc->ne[0] || n_col > desc->ne[0] - col_first)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "tensor: columns %lld and %lld more, of %lld",
                        (long long)col_first, (long long)n_col, (long long)desc->ne[0]);
    if (col_first % len != 0 || n_col % len != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "tensor: columns %lld and %lld more are not whole blocks of %s",
                        (long long)col_first, (long long)n_col, tdm_type_name(desc->type));
    return TDM_OK;
}

static tdm_status buffer_tensor_upload(tdm_buffer *buffer, uint64_t off,
                                       const tdm_tensor_desc *desc, const void *src,
                                       uint64_t row_pitch, int64_t row_first, int64_t n_row,
                                       int64_t col_first, int64_t n_col, tdm_error *err) {
    tdm_tensor_desc d;
    tdm_status status = part_check(buffer, off, desc, row_first, n_row, col_first, n_col, &d, err);
    if (status != TDM_OK || n_row == 0 || n_col == 0) return status;
    uint64_t row_size = tdm_type_row_size(d.type, d.ne[0]);
    uint64_t size = tdm_type_row_size(d.type, n_col);
    uint64_t at = off + (uint64_t)row_first * row_size + tdm_type_row_size(d.type, col_first);
    if (size == row_size && row_pitch == row_size)
        return vk_upload(buffer->device, &buffer->memory, at, src, (uint64_t)n_row * size, err);
    for (int64_t r = 0; r < n_row && status == TDM_OK; r++)
        status = vk_upload(buffer->device, &buffer->memory, at + (uint64_t)r * row_size,
                           (const uint8_t *)src + (uint64_t)r * row_pitch, size, err);
    return status;
}

static tdm_status buffer_tensor_download(tdm_buffer *buffer, uint64_t off,
                                         const tdm_tensor_desc *desc, void *dst, uint64_t row_pitch,
                                         int64_t row_first, int64_t n_row, int64_t col_first,
                                         int64_t n_col, tdm_error *err) {
    tdm_tensor_desc d;
    tdm_status status = part_check(buffer, off, desc, row_first, n_row, col_first, n_col, &d, err);
    if (status != TDM_OK || n_row == 0 || n_col == 0) return status;
    uint64_t row_size = tdm_type_row_size(d.type, d.ne[0]);
    uint64_t size = tdm_type_row_size(d.type, n_col);
    uint64_t at = off + (uint64_t)row_first * row_size + tdm_type_row_size(d.type, col_first);
    for (int64_t r = 0; r < n_row && status == TDM_OK; r++)
        status = vk_download(buffer->device, &buffer->memory, at + (uint64_t)r * row_size,
                             (uint8_t *)dst + (uint64_t)r * row_pitch, size, err);
    return status;
}

static tdm_status buffer_kv_page_size(tdm_device *device, const tdm_kv_desc *desc,
                                      uint64_t *size_out, tdm_error *err) {
    tdm_kv_desc d;
    vk_struct_read(&d, sizeof d, desc);
    return gpu_page_size(&device->target, &d, size_out, err);
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
    .tensor_size = buffer_tensor_size,
    .tensor_upload = buffer_tensor_upload,
    .tensor_download = buffer_tensor_download,
    .kv_page_size = buffer_kv_page_size,
};
