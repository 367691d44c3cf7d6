/* SPDX-License-Identifier: MIT
 *
 * buffer.c: the table of buffers of CUDA and HIP: checks, the kind of memory for each purpose,
 * tensors in the layouts of plugins/gpu/layout.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/layout/page.h"
#include "plugins/gpu/rt/rt.h"

/* True for buffers that the host writes or reads in every step: they are page-locked host
 * memory. */
static bool is_of_host(int32_t purpose) {
    return purpose == TDM_BUFFER_INPUT || purpose == TDM_BUFFER_OUTPUT;
}

/* The size of memory that FETCH reads or writes: it copies whole units of 16 bytes. A size that
 * cannot be rounded up stays, and is refused as too large. */
static uint64_t fetch_size(uint64_t size) {
    return size <= UINT64_MAX - 15 ? (size + 15) / 16 * 16 : size;
}

static void buffer_free(tdm_buffer *buffer) {
    if (buffer == NULL) return;
    gpu_upload_settle(buffer->device->uploads, &buffer->uploads);
    rt_memory_free(buffer->device, &buffer->memory);
    rt_memory_free(buffer->device, &buffer->copy);
    free(buffer);
}

static tdm_status buffer_alloc(tdm_device *device, const tdm_buffer_params *params,
                               tdm_buffer **buffer_out, tdm_error *err) {
    tdm_buffer_params p;
    tdm_struct_read(&p, sizeof p, params);
    if (device->max_buffer != 0 && p.size > device->max_buffer)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "%s: a buffer of %llu bytes, but its section says max-buffer = %llu",
                        device->name, (unsigned long long)p.size,
                        (unsigned long long)device->max_buffer);
    tdm_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", device->name);
    buffer->device = device;
    buffer->size = p.size;
    const bool is_input = p.purpose == TDM_BUFFER_INPUT;
    const uint64_t size = is_input ? fetch_size(p.size) : p.size;
    tdm_status status =
        p.purpose == TDM_BUFFER_ARENA
            ? rt_memory_alloc_shared(device, size, &buffer->memory, err)
            : rt_memory_alloc(device, size, is_of_host(p.purpose), &buffer->memory, err);
    /* A copy in device memory (rt.h): a load of host memory takes a kernel microseconds, and most
     * kernels of a step read the step block. */
    if (status == TDM_OK && is_input && !device->target.is_host)
        status = rt_memory_alloc(device, size, false, &buffer->copy, err);
    if (status != TDM_OK) {
        buffer_free(buffer);
        return status;
    }
    *buffer_out = buffer;
    return TDM_OK;
}

static tdm_status range_check(const tdm_buffer *buffer, const char *what, uint64_t off,
                              uint64_t size, tdm_error *err) {
    return tdm_range_check(buffer->device->name, what, off, size, buffer->size, err);
}

static tdm_status buffer_upload(tdm_buffer *buffer, uint64_t off, const void *src, uint64_t size,
                                tdm_error *err) {
    tdm_status status = range_check(buffer, "upload", off, size, err);
    return status != TDM_OK ? status
                            : rt_upload(buffer->device, &buffer->memory, off, src, size, err);
}

static tdm_status buffer_download(tdm_buffer *buffer, uint64_t off, void *dst, uint64_t size,
                                  tdm_error *err) {
    const gpu_runs runs = {off, size, size, 1};
    tdm_status status = range_check(buffer, "download", off, size, err);
    return status != TDM_OK ? status
                            : rt_download(buffer->device, &buffer->memory, &runs, dst, err);
}

static tdm_status buffer_copy(tdm_buffer *dst, uint64_t dst_off, tdm_buffer *src, uint64_t src_off,
                              uint64_t size, tdm_error *err) {
    tdm_status status = tdm_copy_check(dst->device->name, dst == src, dst_off, dst->size, src_off,
                                       src->size, size, err);
    if (status != TDM_OK || size == 0) return status;
    return rt_copy(dst->device, &dst->memory, dst_off, &src->memory, src_off, size, err);
}

static tdm_status buffer_fill(tdm_buffer *buffer, uint64_t off, uint64_t size, uint8_t byte,
                              tdm_error *err) {
    tdm_status status = range_check(buffer, "fill", off, size, err);
    return status != TDM_OK ? status
                            : rt_fill(buffer->device, &buffer->memory, off, size, byte, err);
}

static void *buffer_host_pointer(tdm_buffer *buffer, uint32_t access) {
    (void)access;
    return buffer->memory.host;
}

static tdm_status buffer_import(tdm_device *device, void *ptr, uint64_t size,
                                tdm_import_info *info_out, tdm_buffer **buffer_out,
                                tdm_error *err) {
    if (ptr == NULL || size == 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: import: no memory", device->name);
    if ((uintptr_t)ptr % 4096 != 0 || size % 4096 != 0)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: import: address and size must be multiples of 4096", device->name);
    if (device->facts->attribute[RT_MAPS_HOST] == 0)
        return tdm_fail(err, TDM_UNSUPPORTED, "%s: the device does not map host memory",
                        device->name);
    tdm_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: import: no memory", device->name);
    buffer->device = device;
    buffer->size = size;
    tdm_status status = rt_memory_import(device, ptr, size, &buffer->memory, err);
    if (status != TDM_OK) {
        free(buffer);
        return status;
    }
    if (info_out != NULL) {
        /* has_atomic32 and has_atomic64 stay false: kernels only load and store words of such
         * memory, so that other atomic operations are not tested. */
        const tdm_import_info info = {.struct_size = sizeof info,
                                      .is_coherent = true,
                                      .is_pollable = device->target.may_wait};
        tdm_struct_write(info_out, &info, sizeof info);
    }
    *buffer_out = buffer;
    return TDM_OK;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static tdm_status runs_download(void *context, const gpu_runs *runs, void *dst, tdm_error *err) {
    const tdm_buffer *buffer = context;
    return rt_download(buffer->device, &buffer->memory, runs, dst, err);
}

static gpu_tensor_buffer buffer_of(tdm_buffer *buffer) {
    return (gpu_tensor_buffer){.name = buffer->device->name,
                               .size = buffer->size,
                               .context = buffer,
                               .download = runs_download};
}

static tdm_status tensor_size(tdm_device *device, const tdm_tensor_desc *desc, uint64_t *size_out,
                              tdm_error *err) {
    (void)device;
    return gpu_tensor_size(desc, size_out, err);
}

static tdm_status tensor_upload(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                                const void *src, uint64_t row_pitch, int64_t row_first,
                                int64_t n_row, int64_t col_first, int64_t n_col, tdm_error *err) {
    const gpu_tensor_buffer b = buffer_of(buffer);
    gpu_weight_layout layout;
    gpu_weight_part part;
    tdm_status status =
        gpu_tensor_part(&b, off, desc, row_first, n_row, col_first, n_col, &layout, &part, err);
    if (status != TDM_OK || part.n_row == 0) return status;
    if (buffer->memory.host == NULL)
        return gpu_upload(buffer->device->uploads, buffer, off, &buffer->uploads, &layout, &part,
                          src, row_pitch, err);
    gpu_weight_store(&layout, &part, src, row_pitch, buffer->memory.host + off);
    return TDM_OK;
}

static tdm_status tensor_download(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                                  void *dst, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                                  int64_t col_first, int64_t n_col, tdm_error *err) {
    const gpu_tensor_buffer b = buffer_of(buffer);
    gpu_weight_layout layout;
    gpu_weight_part part;
    tdm_status status =
        gpu_tensor_part(&b, off, desc, row_first, n_row, col_first, n_col, &layout, &part, err);
    return status != TDM_OK ? status
                            : gpu_tensor_download(&b, off, &layout, &part, dst, row_pitch, err);
}

static tdm_status kv_page_size(tdm_device *device, const tdm_kv_desc *desc, uint64_t *size_out,
                               tdm_error *err) {
    tdm_kv_desc d;
    tdm_struct_read(&d, sizeof d, desc);
    return gpu_page_size(&device->target, &d, size_out, err);
}

const tdm_buffer_ops rt_buffer_ops = {
    .struct_size = sizeof(tdm_buffer_ops),
    .alloc = buffer_alloc,
    .free = buffer_free,
    .upload = buffer_upload,
    .download = buffer_download,
    .copy = buffer_copy,
    .fill = buffer_fill,
    .host_pointer = buffer_host_pointer,
    .import_host = buffer_import,
    .tensor_size = tensor_size,
    .tensor_upload = tensor_upload,
    .tensor_download = tensor_download,
    .kv_page_size = kv_page_size,
    .host_alloc = rt_host_alloc,
    .host_free = rt_host_free,
    .upload_finish = rt_upload_finish,
    .import_peer = rt_import_peer,
};
