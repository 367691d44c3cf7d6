/* SPDX-License-Identifier: MIT
 *
 * tensor.h: tensors on their way into a device's memory and out of it: the checks, and the way out,
 * which converts from the layout of plugins/gpu/layout/weight.h a few rows at a time. The way in is
 * upload.h's. How bytes are moved is the plugin's, and so are tensors in memory that the host
 * accesses directly.
 */
#ifndef TANDEM_GPU_TENSOR_H
#define TANDEM_GPU_TENSOR_H

#include "plugins/gpu/layout/weight.h"

/* Runs of bytes of device memory, packed one right behind the other on the host: run i is the bytes
 * [off + i * stride, + size). */
typedef struct gpu_runs {
    uint64_t off, size, stride;
    int64_t n_run;
} gpu_runs;

/* The same bytes with runs without gaps as one run, and none where there are no bytes. */
gpu_runs gpu_runs_join(const gpu_runs *runs);

typedef struct gpu_tensor_buffer {
    const char *name; /* of its device, for messages */
    uint64_t size;
    void *context; /* of the call, which returns when the bytes are there */
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

/* Converts a part on its way from the buffer to the rows at `dst`. `off` is the tensor's in the
 * buffer. [any-thread] */
tdm_status gpu_tensor_download(const gpu_tensor_buffer *buffer, uint64_t off,
                               const gpu_weight_layout *layout, const gpu_weight_part *part,
                               uint8_t *dst, uint64_t row_pitch, tdm_error *err);

#endif
