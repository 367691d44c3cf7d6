/* SPDX-License-Identifier: MIT
 *
 * weight.h: how this device keeps a matrix, as the matmul kernels and the uploader see it.
 *
 * Mental model. The rows of a matrix are divided into groups of `n_lane` neighbours; the kernels
 * compute a whole group at once, one row per vector lane. Inside a group the same word of all rows
 * lies side by side:
 *
 *   group    = chunks of CPU_WEIGHT_CHUNK / n_lane blocks of each row; the last one may have fewer
 *   chunk    = front of block 0, front of block 1, ..., then body of block 0, body of block 1, ...
 *   front,
 *   body     = the fields listed in weight.c for the type, one after the other
 *   field    = unit 0 of lane 0, unit 0 of lane 1, ..., unit 1 of lane 0, ...
 *
 * Codes have units of 4 bytes (what one 32-bit lane of a dot-product instruction takes), scales
 * units of 1 or 2. The front holds the fields that would push the codes of the next block off a
 * 64-byte boundary, mostly d. A chunk joins the fronts of so many blocks that together they fill
 * whole cache lines.
 *
 * Rationale. A kernel that multiplies one token should read the bytes in the order of their
 * addresses: with hardware prefetchers it then reaches the full speed of memory. With all fronts of
 * a row behind its bodies, a core reached 13 of 30 GB/s (docs/notebook.md).
 *
 * Nothing is widened: a group takes exactly the canonical bytes of its rows; only a last, partly
 * filled group of a matrix is padded, with rows whose contents are never used. Every canonical bit
 * is kept, so that a download gives the file's bytes back.
 *
 * n_lane 1 means canonical rows: tables that are only looked up, and devices whose kernels (plain
 * C, the reference) read canonical blocks. [k, n, n_expert] is n_expert matrices, each padded.
 */
#ifndef TANDEM_CPU_WEIGHT_H
#define TANDEM_CPU_WEIGHT_H

#include "plugins/cpu/cpu.h"

enum { CPU_WEIGHT_CHUNK = 64 }; /* blocks of all rows of a group; a multiple of n_lane */

typedef struct cpu_weight_layout {
    tdm_type type;
    int32_t n_lane;     /* rows of a group; 1 = canonical */
    int32_t block_len;  /* elements */
    int32_t block_size; /* bytes */
    int64_t n_block;    /* blocks of a row */
    int64_t n_row;      /* rows of one matrix */
    int64_t n_group;    /* groups of one matrix */
    int64_t n_matrix;
    size_t row_size;   /* bytes of a canonical row */
    size_t group_size; /* bytes: n_lane * row_size */
} cpu_weight_layout;

/* The layout in which `device` keeps a tensor of that type, usage and shape. TDM_UNSUPPORTED for a
 * type of integers with usage flags, TDM_INVALID_ARGUMENT for rows that are not whole blocks or a
 * size beyond 2^62 bytes. [any-thread] */
tdm_status cpu_weight_layout_get(const cpu_device *device, tdm_type type, uint32_t usage,
                                 const int64_t ne[TDM_MAX_DIMS], cpu_weight_layout *layout_out,
                                 tdm_error *err);

/* tdm_buffer_ops.tensor_size. Fails as cpu_weight_layout_get. [any-thread] */
tdm_status cpu_weight_size(const cpu_device *device, const tdm_tensor_desc *desc,
                           uint64_t *size_out, tdm_error *err);
/* tdm_buffer_ops.tensor_upload and tensor_download for the address of a tensor in layout *l. The
 * caller has checked the part (tdm_tensor_part_check). [any-thread] for parts that do not overlap
 */
void cpu_weight_upload(const cpu_weight_layout *l, uint8_t *dst, const void *src,
                       uint64_t row_pitch, int64_t row_first, int64_t n_row, int64_t col_first,
                       int64_t n_col);
void cpu_weight_download(const cpu_weight_layout *l, const uint8_t *src, void *dst,
                         uint64_t row_pitch, int64_t row_first, int64_t n_row, int64_t col_first,
                         int64_t n_col);
/* Row `row` of a table in private layout as f32 (ne[0] elements), for GET_ROWS. */
void cpu_weight_get_row(const cpu_device *device, const cpu_view *table, int64_t row, float *out);

#endif
