/* SPDX-License-Identifier: MIT
 *
 * buffer.c: buffers in the device's memory, which is the host's: allocating, copying, importing,
 * and converting tensors when they are uploaded and downloaded. weight.c and kv_page.c define the
 * private layouts.
 */
#include "core/base/params.h"
#include "core/base/tensor_part.h"
#include "plugins/cpu/buffer.h"
#include "plugins/cpu/exec/pool.h"
#include "plugins/cpu/machine/memory.h"
#include "plugins/cpu/ops/weight.h"
#include "plugins/cpu/kv/kv_page.h"

enum {
    UPLOAD_UNIT = 64,          /* rows assigned together: a multiple of every n_lane (weight.h) */
    UPLOAD_TOGETHER = 1 << 20, /* bytes from which waking the threads of the pool is worth it */
    UPLOAD_VISIT = 1 << 17     /* bytes from which moving to the device's processors is */
};

static tdm_status buffer_alloc(tdm_device *device, const tdm_buffer_params *params,
                               tdm_buffer **buffer_out, tdm_error *err) {
    const tdm_host *host = device->host;
    tdm_buffer_params p;
    uint64_t total, available;
    tdm_struct_read(&p, sizeof p, params);
    cpu_memory_query(&total, &available);
    /* Checked before allocating: the system also grants addresses without memory behind them. */
    bool is_too_large = p.size > SIZE_MAX / 2 || (available != 0 && p.size > available);
    tdm_buffer *buffer = is_too_large ? NULL : host->alloc(host->context, sizeof *buffer, 0);
    uint8_t *data = NULL;
    if (buffer != NULL && p.size > 0) {
        data = cpu_pages_alloc(host, (size_t)p.size);
        if (data == NULL) {
            host->free(host->context, buffer, sizeof *buffer);
            buffer = NULL;
        }
    }
    if (buffer == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "not enough memory: asked for %llu bytes, %llu are free",
                        (unsigned long long)p.size, (unsigned long long)available);
    *buffer = (tdm_buffer){.device = device, .data = data, .size = p.size};
    *buffer_out = buffer;
    return TDM_OK;
}

static void buffer_free(tdm_buffer *buffer) {
    if (buffer == NULL) return;
    const tdm_host *host = buffer->device->host;
    if (!buffer->is_imported) cpu_pages_free(host, buffer->data, (size_t)buffer->size);
    host->free(host->context, buffer, sizeof *buffer);
}

static tdm_status range_check(const tdm_buffer *buffer, const char *what, uint64_t off,
                              uint64_t size, tdm_error *err) {
    return tdm_range_check("cpu", what, off, size, buffer->size, err);
}

static tdm_status buffer_upload(tdm_buffer *buffer, uint64_t off, const void *src, uint64_t size,
                                tdm_error *err) {
    tdm_status status = range_check(buffer, "upload", off, size, err);
    if (status == TDM_OK && size > 0) memcpy(buffer->data + off, src, (size_t)size);
    return status;
}

static tdm_status buffer_download(tdm_buffer *buffer, uint64_t off, void *dst, uint64_t size,
                                  tdm_error *err) {
    tdm_status status = range_check(buffer, "download", off, size, err);
    if (status == TDM_OK && size > 0) memcpy(dst, buffer->data + off, (size_t)size);
    return status;
}

static tdm_status buffer_copy(tdm_buffer *dst, uint64_t dst_off, tdm_buffer *src, uint64_t src_off,
                              uint64_t size, tdm_error *err) {
    tdm_status status = range_check(dst, "copy, destination", dst_off, size, err);
    if (status == TDM_OK) status = range_check(src, "copy, source", src_off, size, err);
    if (status != TDM_OK || size == 0) return status;
    const uint8_t *from = src->data + src_off;
    uint8_t *to = dst->data + dst_off;
    if (from < to + size && to < from + size)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "copy: the ranges overlap");
    memcpy(to, from, (size_t)size);
    return TDM_OK;
}

static tdm_status buffer_fill(tdm_buffer *buffer, uint64_t off, uint64_t size, uint8_t byte,
                              tdm_error *err) {
    tdm_status status = range_check(buffer, "fill", off, size, err);
    if (status == TDM_OK && size > 0) memset(buffer->data + off, byte, (size_t)size);
    return status;
}

static void *buffer_host_pointer(tdm_buffer *buffer, uint32_t access) {
    (void)access; /* any */
    return buffer->data;
}

static tdm_status buffer_import_host(tdm_device *device, void *ptr, uint64_t size,
                                     tdm_import_info *info_out, tdm_buffer **buffer_out,
                                     tdm_error *err) {
    const tdm_host *host = device->host;
    if ((ptr == NULL && size > 0) || size > SIZE_MAX / 2)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "import: no memory to import");
    if ((uintptr_t)ptr % CPU_BUFFER_ALIGN != 0)
        return tdm_fail(err, TDM_UNSUPPORTED, "import: the address is not a multiple of %d",
                        (int)CPU_BUFFER_ALIGN);
    tdm_buffer *buffer = host->alloc(host->context, sizeof *buffer, 0);
    if (buffer == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "import: no memory");
    *buffer = (tdm_buffer){.device = device, .data = ptr, .size = size, .is_imported = true};
    if (info_out != NULL) {
        /* The device is the host: same memory, same atomics. */
        tdm_import_info info = {.struct_size = sizeof info,
                                .is_coherent = true,
                                .has_atomic32 = true,
                                .has_atomic64 = true,
                                .is_pollable = true};
        tdm_struct_write(info_out, &info, sizeof info);
    }
    *buffer_out = buffer;
    return TDM_OK;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

/* Reads the caller's description and refuses what no layout could hold. */
static tdm_status desc_read(const tdm_tensor_desc *theirs, tdm_tensor_desc *desc, tdm_error *err) {
    tdm_struct_read(desc, sizeof *desc, theirs);
    return tdm_tensor_desc_check(desc, err);
}

static tdm_status buffer_tensor_size(tdm_device *device, const tdm_tensor_desc *desc,
                                     uint64_t *size_out, tdm_error *err) {
    tdm_tensor_desc d;
    tdm_status status = desc_read(desc, &d, err);
    if (status != TDM_OK) return status;
    if (d.usage != 0) return cpu_weight_size(device, &d, size_out, err);
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
    return status == TDM_OK ? tdm_tensor_part_check(desc, row_first, n_row, col_first, n_col, err)
                            : status;
}

/* A checked part of a tensor that is being uploaded. */
typedef struct upload {
    const tdm_tensor_desc *desc;
    cpu_weight_layout layout; /* of a private tensor (desc->usage != 0) */
    uint8_t *dst;             /* the tensor */
    const uint8_t *src;
    uint64_t row_pitch;
    int64_t row_first, n_row, col_first, n_col;
} upload;

static void upload_work(void *arg, cpu_worker *w) {
    const upload *u = arg;
    int64_t first, last;
    cpu_worker_share(w, u->n_row, UPLOAD_UNIT, &first, &last);
    if (first == last) return;
    const uint8_t *src = u->src + (uint64_t)first * u->row_pitch;
    if (u->desc->usage != 0) {
        cpu_weight_upload(&u->layout, u->dst, src, u->row_pitch, u->row_first + first, last - first,
                          u->col_first, u->n_col);
        return;
    }
    size_t row_size = tdm_type_row_size(u->desc->type, u->desc->ne[0]);
    size_t size = tdm_type_row_size(u->desc->type, u->n_col);
    uint8_t *dst = u->dst + (size_t)(u->row_first + first) * row_size +
                   tdm_type_row_size(u->desc->type, u->col_first);
    for (int64_t r = first; r < last; r++, dst += row_size, src += u->row_pitch)
        memcpy(dst, src, size);
}

/* Large parts are converted by all threads of the pool: the first touch of a page of the buffer
 * costs more time than what is written to it. Smaller parts, and all parts while the pool has
 * another job, are converted by the calling thread; a caller may use several threads for that. The
 * calling thread moves to the device's processors meanwhile, so that pages that it touches first
 * lie near the workers. */
static tdm_status buffer_tensor_upload(tdm_buffer *buffer, uint64_t off,
                                       const tdm_tensor_desc *desc, const void *src,
                                       uint64_t row_pitch, int64_t row_first, int64_t n_row,
                                       int64_t col_first, int64_t n_col, tdm_error *err) {
    tdm_tensor_desc d;
    tdm_status status = part_check(buffer, off, desc, row_first, n_row, col_first, n_col, &d, err);
    if (status != TDM_OK || n_row == 0 || n_col == 0) return status;
    upload u = {
        .desc = &d,
        .dst = buffer->data + off,
        .src = src,
        .row_pitch = row_pitch,
        .row_first = row_first,
        .n_row = n_row,
        .col_first = col_first,
        .n_col = n_col,
    };
    if (d.usage != 0)
        status = cpu_weight_layout_get(buffer->device, d.type, d.usage, d.ne, &u.layout, err);
    if (status != TDM_OK) return status;
    const uint64_t size = (uint64_t)n_row * tdm_type_row_size(d.type, n_col);
    if (size < UPLOAD_TOGETHER || !cpu_pool_try_run(buffer->device->pool, upload_work, &u)) {
        cpu_pool_visit visit = {.has_moved = false};
        if (size >= UPLOAD_VISIT) visit = cpu_pool_enter(buffer->device->pool);
        upload_work(&u, &(cpu_worker){.ith = 0, .nth = 1});
        cpu_pool_leave(&visit);
    }
    return TDM_OK;
}

static tdm_status buffer_tensor_download(tdm_buffer *buffer, uint64_t off,
                                         const tdm_tensor_desc *desc, void *dst, uint64_t row_pitch,
                                         int64_t row_first, int64_t n_row, int64_t col_first,
                                         int64_t n_col, tdm_error *err) {
    tdm_tensor_desc d;
    tdm_status status = part_check(buffer, off, desc, row_first, n_row, col_first, n_col, &d, err);
    if (status != TDM_OK || n_row == 0 || n_col == 0) return status;
    if (d.usage != 0) {
        cpu_weight_layout layout;
        status = cpu_weight_layout_get(buffer->device, d.type, d.usage, d.ne, &layout, err);
        if (status == TDM_OK)
            cpu_weight_download(&layout, buffer->data + off, dst, row_pitch, row_first, n_row,
                                col_first, n_col);
        return status;
    }
    size_t row_size = tdm_type_row_size(d.type, d.ne[0]);
    const uint8_t *src =
        buffer->data + off + (size_t)row_first * row_size + tdm_type_row_size(d.type, col_first);
    for (int64_t r = 0; r < n_row; r++)
        memcpy((uint8_t *)dst + (size_t)r * row_pitch, src + (size_t)r * row_size,
               tdm_type_row_size(d.type, n_col));
    return TDM_OK;
}

static tdm_status buffer_kv_page_size(tdm_device *device, const tdm_kv_desc *desc,
                                      uint64_t *size_out, tdm_error *err) {
    tdm_kv_desc d;
    tdm_struct_read(&d, sizeof d, desc);
    return cpu_kv_page_size(device, &d, size_out, err);
}

const tdm_buffer_ops cpu_buffer_ops = {
    .struct_size = sizeof(tdm_buffer_ops),
    .alloc = buffer_alloc,
    .free = buffer_free,
    .upload = buffer_upload,
    .download = buffer_download,
    .copy = buffer_copy,
    .fill = buffer_fill,
    .host_pointer = buffer_host_pointer,
    .import_host = buffer_import_host,
    .tensor_size = buffer_tensor_size,
    .tensor_upload = buffer_tensor_upload,
    .tensor_download = buffer_tensor_download,
    .kv_page_size = buffer_kv_page_size,
};
