/* SPDX-License-Identifier: MIT
 *
 * tensor.h: the checks of tensor_upload and tensor_download, and the download, which converts from
 * the layout of plugins/gpu/layout/weight.h some rows at a time. upload.h has the upload. The
 * plugin moves the bytes, and handles tensors in memory that the host accesses directly.
 */
#ifndef TANDEM_GPU_TENSOR_H
#define TANDEM_GPU_TENSOR_H

#include "plugins/gpu/layout/weight.h"

/* Runs of bytes of device memory: run i is the bytes off + i * stride .. off + i * stride + size -
 * 1. On the host the runs follow each other without gaps. */
typedef struct gpu_runs {
    uint64_t off, size, stride;
    int64_t n_run;
} gpu_runs;

/* The same bytes in as few runs: one where the runs have no gaps, none where there are no bytes.
 * [any-thread] */
gpu_runs gpu_runs_join(const gpu_runs *runs);

/* A buffer as the functions below need it. */
typedef struct gpu_tensor_buffer {
    const char *name; /* of its device, for messages */
    uint64_t size;    /* bytes */
    void *context;    /* the first argument of download */
    /* Copies runs of the buffer to dst; returns when the bytes are there. */
    tdm_status (*download)(void *context, const gpu_runs *runs, void *dst, tdm_error *err);
} gpu_tensor_buffer;

/* Bytes of a tensor on the device: tdm_buffer_ops.tensor_size. [any-thread] */
tdm_status gpu_tensor_size(const tdm_tensor_desc *desc, uint64_t *size_out, tdm_error *err);

/* Checks description, rows and columns, and that the tensor lies inside the buffer. Gives the
 * layout and the part; a part of no elements has n_row 0. [any-thread] */
tdm_status gpu_tensor_part(const gpu_tensor_buffer *buffer, uint64_t off,
                           const tdm_tensor_desc *desc, int64_t row_first, int64_t n_row,
                           int64_t col_first, int64_t n_col, gpu_weight_layout *layout_out,
                           gpu_weight_part *part_out, tdm_error *err);

/* Copies a part of a tensor from the buffer to the rows at `dst`, in canonical bytes. `off` is the
 * tensor's offset in the buffer, row_pitch the bytes from row to row of dst. [any-thread] */
tdm_status gpu_tensor_download(const gpu_tensor_buffer *buffer, uint64_t off,
                               const gpu_weight_layout *layout, const gpu_weight_part *part,
                               uint8_t *dst, uint64_t row_pitch, tdm_error *err);

#endif
