/* SPDX-License-Identifier: MIT
 *
 * tensor.c: see tensor.h.
 */
#include "plugins/gpu/mem/tensor.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/tensor_part.h"

enum {
    PACK_SIZE = 4 << 20 /* bytes of a part that are converted at a time */
};

gpu_runs gpu_runs_join(const gpu_runs *runs) {
    gpu_runs r = *runs;
    if (r.size == 0) r.n_run = 0;
    if (r.n_run > 1 && r.stride == r.size) {
        r.size *= (uint64_t)r.n_run;
        r.n_run = 1;
    }
    return r;
}

/* Reads the caller's description and refuses what no layout could hold. */
static tdm_status desc_read(const tdm_tensor_desc *theirs, tdm_tensor_desc *desc, tdm_error *err) {
    size_t size = theirs->struct_size;
    if (size == 0 || size > sizeof *desc) size = sizeof *desc;
    memset(desc, 0, sizeof *desc);
    memcpy(desc, theirs, size);
    return tdm_tensor_desc_check(desc, err);
}

tdm_status gpu_tensor_size(const tdm_tensor_desc *desc, uint64_t *size_out, tdm_error *err) {
    tdm_tensor_desc d;
    tdm_status status = desc_read(desc, &d, err);
    if (status != TDM_OK) return status;
    if (d.usage != 0) return gpu_weight_size(d.type, d.ne, d.usage, size_out, err);
    *size_out = tdm_tensor_canonical_size(d.type, d.ne);
    return TDM_OK;
}

tdm_status gpu_tensor_part(const gpu_tensor_buffer *buffer, uint64_t off,
                           const tdm_tensor_desc *desc, int64_t row_first, int64_t n_row,
                           int64_t col_first, int64_t n_col, gpu_weight_layout *layout_out,
                           gpu_weight_part *part_out, tdm_error *err) {
    tdm_tensor_desc d;
    uint64_t size = 0;
    tdm_status status = desc_read(desc, &d, err);
    if (status == TDM_OK) status = gpu_tensor_size(&d, &size, err);
    if (status == TDM_OK && (off > buffer->size || size > buffer->size - off))
        status = tdm_fail(err, TDM_OUT_OF_RANGE,
                          "%s: tensor: %llu bytes at offset %llu are not inside a buffer of %llu",
                          buffer->name, (unsigned long long)size, (unsigned long long)off,
                          (unsigned long long)buffer->size);
    if (status == TDM_OK)
        status = tdm_tensor_part_check(&d, row_first, n_row, col_first, n_col, err);
    if (status == TDM_OK) status = gpu_weight_layout_get(d.type, d.ne, d.usage, layout_out, err);
    if (status != TDM_OK) return status;
    *part_out = (gpu_weight_part){0};
    if (n_row > 0 && n_col > 0)
        *part_out = gpu_weight_part_get(layout_out, row_first, n_row, col_first, n_col);
    return TDM_OK;
}

/* Rows of a part that are converted at a time: as many as have at most PACK_SIZE bytes in each
 * plane, but at least one. *size_out: bytes of a buffer for them. */
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

tdm_status gpu_tensor_download(const gpu_tensor_buffer *buffer, uint64_t off,
                               const gpu_weight_layout *layout, const gpu_weight_part *part,
                               uint8_t *dst, uint64_t row_pitch, tdm_error *err) {
    uint64_t size;
    if (part->n_row == 0) return TDM_OK;
    int64_t n_each = rows_each(layout, part, &size);
    tdm_status status = TDM_OK;
    void *packed = malloc((size_t)size);
    if (packed == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory to convert a tensor",
                        buffer->name);
    for (int64_t r = 0; r < part->n_row && status == TDM_OK; r += n_each) {
        gpu_weight_part some = *part;
        some.row_first += r;
        some.n_row = n_each < part->n_row - r ? n_each : part->n_row - r;
        for (int plane = 0; plane < layout->n_plane && status == TDM_OK; plane++) {
            const gpu_weight_runs runs = gpu_weight_runs_get(layout, plane, &some);
            const gpu_runs where = {off + runs.off, runs.size, runs.stride, runs.n_run};
            status = buffer->download(buffer->context, &where, packed, err);
            if (status == TDM_OK)
                gpu_weight_unpack(layout, plane, &some, packed, dst + (uint64_t)r * row_pitch,
                                  row_pitch);
        }
    }
    free(packed);
    return status;
}
