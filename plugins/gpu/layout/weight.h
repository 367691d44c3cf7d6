/* SPDX-License-Identifier: MIT
 *
 * weight.h: the layout in which GPU plugins store a weight that has usage flags, and the
 * conversions from and to canonical bytes. Kernels read this layout. Vulkan, CUDA and HIP use the
 * same one, for every usage.
 *
 * Mental model. A canonical block holds codes, scales and minimums side by side, so that its codes
 * begin at an odd multiple of 2 bytes. Here a tensor is a few planes, one after the other. A plane
 * holds the same field of every block: the codes of all blocks, then the scales of all blocks.
 *
 *   block number b = row * n_block + index of the block in its row      rows as in tensor.h
 *   field f of block b lies at  planes[f].off + b * planes[f].unit
 *
 * Invariants:
 *   - The fields of a type cover each byte of its block once. So the planes have exactly the
 *     canonical bytes, no bit is changed, and a download returns what was uploaded.
 *   - Planes begin at multiples of 16 bytes. The tensor itself must begin at a multiple of
 *     GPU_WEIGHT_ALIGN bytes: a plugin states at least this as its buffer_align. A kernel reads the
 *     codes of a block in loads of 8 or 16 bytes where the plane's unit is a multiple of that.
 *   - A part of a tensor (some rows, some whole blocks of them) is one run of bytes per plane where
 *     it has whole rows, else one run per plane and row. So parts may come in any order.
 *   - A plain type (f32, f16, bf16) has one plane: its canonical bytes. A tensor without usage
 *     flags has the same.
 */
#ifndef TANDEM_GPU_WEIGHT_H
#define TANDEM_GPU_WEIGHT_H

#include "tandem/tensor.h"

enum { GPU_WEIGHT_MAX_PLANE = 5, GPU_WEIGHT_ALIGN = 16 };

typedef struct gpu_weight_plane {
    uint64_t off;      /* from the tensor's start; a multiple of 16 */
    int32_t unit;      /* bytes of one block */
    int32_t block_off; /* where these bytes are in a canonical block */
} gpu_weight_plane;

typedef struct gpu_weight_layout {
    tdm_type type;
    int32_t n_plane;   /* 1 .. GPU_WEIGHT_MAX_PLANE */
    int32_t block_len; /* elements of a block */
    int32_t block_size; /* bytes of a canonical block */
    int64_t n_block; /* blocks of a row */
    int64_t n_row;   /* rows of the tensor */
    uint64_t size;   /* bytes of the tensor */
    gpu_weight_plane planes[GPU_WEIGHT_MAX_PLANE];
} gpu_weight_layout;

/* A part of a tensor: rows row_first .. + n_row - 1, in each of them blocks block_first ..
 * + n_block - 1. */
typedef struct gpu_weight_part {
    int64_t row_first, n_row;
    int64_t block_first, n_block;
} gpu_weight_part;

/* The bytes of one plane that belong to a part: run i of n_run is the bytes off + i * stride ..
 * off + i * stride + size - 1 of the tensor. */
typedef struct gpu_weight_runs {
    uint64_t off, size, stride;
    int64_t n_run; /* 0 = the part is empty */
} gpu_weight_runs;

/* The layout of a tensor. TDM_UNSUPPORTED with the reason for a type without numbers,
 * TDM_INVALID_ARGUMENT for rows that are not whole blocks or a size beyond 2^62 bytes.
 * [any-thread] */
tdm_status gpu_weight_layout_get(tdm_type type, const int64_t ne[TDM_MAX_DIMS], uint32_t usage,
                                 gpu_weight_layout *layout_out, tdm_error *err);

/* Bytes of a weight in this layout. Fails like gpu_weight_layout_get. [any-thread] */
tdm_status gpu_weight_size(tdm_type type, const int64_t ne[TDM_MAX_DIMS], uint32_t usage,
                           uint64_t *size_out, tdm_error *err);

/* The rows and columns (whole blocks) of tensor_upload and tensor_download as a part. The caller
 * has checked that they are inside the tensor. [any-thread] */
gpu_weight_part gpu_weight_part_get(const gpu_weight_layout *layout, int64_t row_first,
                                    int64_t n_row, int64_t col_first, int64_t n_col);

/* Where a part lies in a plane. [any-thread] */
gpu_weight_runs gpu_weight_runs_get(const gpu_weight_layout *layout, int plane,
                                    const gpu_weight_part *part);

/* For memory that the host does not write directly: converts one plane of a part and writes its
 * runs to staging memory without gaps, in order: n_run * size bytes of gpu_weight_runs_get. `src`
 * is the first block of the part's first row, row_pitch the bytes from row to row of src. A caller
 * whose staging memory is smaller divides the rows of the part. [any-thread] */
void gpu_weight_pack(const gpu_weight_layout *layout, int plane, const gpu_weight_part *part,
                     const void *src, uint64_t row_pitch, void *staging);

/* The inverse: writes this plane's bytes of each canonical block of `dst`. After all planes the
 * part is whole. [any-thread] */
void gpu_weight_unpack(const gpu_weight_layout *layout, int plane, const gpu_weight_part *part,
                       const void *staging, void *dst, uint64_t row_pitch);

/* For memory that the host reads and writes: all planes of a part, to and from `tensor`, which is
 * the tensor's first byte. [any-thread], for parts that do not overlap */
void gpu_weight_store(const gpu_weight_layout *layout, const gpu_weight_part *part, const void *src,
                      uint64_t row_pitch, void *tensor);
void gpu_weight_load(const gpu_weight_layout *layout, const gpu_weight_part *part,
                     const void *tensor, void *dst, uint64_t row_pitch);

#endif
