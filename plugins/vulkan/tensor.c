/* SPDX-License-Identifier: MIT
 *
 * tensor.c: weights and cache pages on their way in and out. Their layouts are plugins/gpu/layout's;
 * here are checks and the way of the bytes.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/tensor_part.h"
#include "plugins/gpu/layout/page.h"
#include "plugins/gpu/layout/weight.h"
#include "plugins/vulkan/transfer.h"

enum {
    PACK_SIZE = 4 << 20 /* bytes of a part that are converted at a time */
};

/* Reads the caller's description and refuses what no layout could hold. */
static tdm_status desc_read(const tdm_tensor_desc *theirs, tdm_tensor_desc *desc, tdm_error *err) {
    vk_struct_read(desc, sizeof *desc, theirs);
    return tdm_tensor_desc_check(desc, err);
}

tdm_status vk_tensor_size(tdm_device *device, const tdm_tensor_desc *desc, uint64_t *size_out,
                          tdm_error *err) {
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
    if (status == TDM_OK) status = vk_tensor_size(buffer->device, desc, &size, err);
    if (status == TDM_OK) status = vk_range_check(buffer, "tensor", off, size, err);
    return status == TDM_OK ? tdm_tensor_part_check(desc, row_first, n_row, col_first, n_col, err)
                            : status;
}

/* The layout of a described tensor. */
static tdm_status layout_get(const tdm_tensor_desc *desc, gpu_weight_layout *layout_out,
                             tdm_error *err) {
    return gpu_weight_layout_get(desc->type, desc->ne, desc->usage, layout_out, err);
}

/* ---- Memory behind staging: plane by plane, a few rows at a time ---- */

static vk_runs runs_at(const gpu_weight_runs *runs, uint64_t off) {
    return (vk_runs){off + runs->off, runs->size, runs->stride, runs->n_run};
}

/* Rows of a part that are converted at a time, so that a plane of them fits the buffer; at least
 * one, whose bytes then decide the buffer's size. */
static int64_t rows_each(const gpu_weight_layout *layout, const gpu_weight_part *part,
                         uint64_t *size_out) {
    int64_t unit = 1;
    for (int i = 0; i < layout->n_plane; i++)
        if (layout->planes[i].unit > unit) unit = layout->planes[i].unit;
    int64_t row_size = part->n_block * unit;
    int64_t n = PACK_SIZE / row_size > 0 ? PACK_SIZE / row_size : 1;
    if (n > part->n_row) n = part->n_row;
    *size_out = (uint64_t)(n * row_size);
    return n;
}

/* Converts a part on its way: from the rows at `src` to the buffer or, where src is NULL, from the
 * buffer to the rows at `dst`. */
static tdm_status packed_move(tdm_buffer *buffer, uint64_t off, const gpu_weight_layout *layout,
                              const gpu_weight_part *part, const uint8_t *src, uint8_t *dst,
                              uint64_t row_pitch, tdm_error *err) {
    vk_device *device = buffer->device;
    uint64_t size;
    int64_t n_each = rows_each(layout, part, &size);
    tdm_status status = TDM_OK;
    void *packed = malloc((size_t)size);
    if (packed == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory to convert a tensor",
                        device->name);
    for (int64_t r = 0; r < part->n_row && status == TDM_OK; r += n_each) {
        uint64_t row_off = (uint64_t)r * row_pitch;
        gpu_weight_part some = *part;
        some.row_first += r;
        some.n_row = n_each < part->n_row - r ? n_each : part->n_row - r;
        for (int plane = 0; plane < layout->n_plane && status == TDM_OK; plane++) {
            gpu_weight_runs runs = gpu_weight_runs_get(layout, plane, &some);
            const vk_runs where = runs_at(&runs, off);
            if (src != NULL) {
                gpu_weight_pack(layout, plane, &some, src + row_off, row_pitch, packed);
                status = vk_upload_runs(device, &buffer->memory, &where, packed, err);
            } else {
                status = vk_download_runs(device, &buffer->memory, &where, packed, err);
                if (status == TDM_OK)
                    gpu_weight_unpack(layout, plane, &some, packed, dst + row_off, row_pitch);
            }
        }
    }
    free(packed);
    return status;
}

/* ---- The two ways ---- */

tdm_status vk_tensor_upload(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                            const void *src, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                            int64_t col_first, int64_t n_col, tdm_error *err) {
    const vk_memory *memory = &buffer->memory;
    tdm_tensor_desc d;
    gpu_weight_layout layout;
    tdm_status status = part_check(buffer, off, desc, row_first, n_row, col_first, n_col, &d, err);
    if (status == TDM_OK) status = layout_get(&d, &layout, err);
    if (status != TDM_OK || n_row == 0 || n_col == 0) return status;
    const gpu_weight_part part = gpu_weight_part_get(&layout, row_first, n_row, col_first, n_col);
    if (memory->mapped == NULL)
        return packed_move(buffer, off, &layout, &part, src, NULL, row_pitch, err);
    gpu_weight_store(&layout, &part, src, row_pitch, memory->mapped + off);
    return vk_memory_flush(buffer->device, memory, off, layout.size, err);
}

tdm_status vk_tensor_download(tdm_buffer *buffer, uint64_t off, const tdm_tensor_desc *desc,
                              void *dst, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                              int64_t col_first, int64_t n_col, tdm_error *err) {
    const vk_memory *memory = &buffer->memory;
    tdm_tensor_desc d;
    gpu_weight_layout layout;
    tdm_status status = part_check(buffer, off, desc, row_first, n_row, col_first, n_col, &d, err);
    if (status == TDM_OK) status = layout_get(&d, &layout, err);
    if (status != TDM_OK || n_row == 0 || n_col == 0) return status;
    const gpu_weight_part part = gpu_weight_part_get(&layout, row_first, n_row, col_first, n_col);
    if (memory->mapped == NULL || !memory->is_cached)
        return packed_move(buffer, off, &layout, &part, NULL, dst, row_pitch, err);
    status = vk_memory_invalidate(buffer->device, memory, off, layout.size, err);
    if (status == TDM_OK) gpu_weight_load(&layout, &part, memory->mapped + off, dst, row_pitch);
    return status;
}

/* ---- Cache pages ---- */

tdm_status vk_kv_page_size(tdm_device *device, const tdm_kv_desc *desc, uint64_t *size_out,
                           tdm_error *err) {
    tdm_kv_desc d;
    vk_struct_read(&d, sizeof d, desc);
    return gpu_page_size(&device->target, &d, size_out, err);
}
