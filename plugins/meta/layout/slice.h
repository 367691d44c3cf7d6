/* SPDX-License-Identifier: MIT
 *
 * slice.h: which slice of a weight each member holds, and moving canonical bytes there and back.
 *
 * A slice along axis 0 of a type with superblocks (256) may begin and end at any multiple of 32.
 * Both neighbours then hold the superblock, each with the other's sub-blocks masked (superblock.h).
 * So a member's tensor may exceed its range by up to 224 columns at either end: pad_lo and pad_hi.
 * The rule of MATMUL pads x with zeros to match.
 */
#ifndef TANDEM_META_SLICE_H
#define TANDEM_META_SLICE_H

#include "plugins/meta/layout/partition.h"

typedef struct meta_slice {
    bool is_empty;        /* the member holds nothing of it */
    tdm_tensor_desc desc; /* for the member's device: local shape, no partition; struct_size set */
    meta_cut cut;         /* of the whole tensor; axis -1: replicated */
    int64_t pad_lo, pad_hi; /* elements of axis 0 beyond the range, masked */
} meta_slice;

/* The slice of `desc` that member d holds. TDM_UNSUPPORTED where its type or shape cannot be cut in
 * that way, else the failures of meta_partition_find. [any-thread] */
tdm_status meta_slice_find(const meta_device *device, const tdm_tensor_desc *desc, int32_t d,
                           meta_slice *out, tdm_error *err);

/* Moves the elements of the slice that lie in rows row_first .. +n_row and columns col_first ..
 * +n_col of the canonical tensor (buffer.h: tensor_upload) between the host and member d's buffer
 * at off: from src or, where src is NULL, to dst. To dst it writes the elements that member d owns.
 * Of a superblock that is cut between two members each writes its own sub-blocks with their scales,
 * so that dst receives the canonical bytes. The staging memory is bounded. [any-thread] for parts
 * that do not overlap */
tdm_status meta_slice_move(const meta_device *device, int32_t d, tdm_buffer *buffer, uint64_t off,
                           const tdm_tensor_desc *desc, const meta_slice *slice, const void *src,
                           void *dst, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                           int64_t col_first, int64_t n_col, tdm_error *err);

/* The bytes of the slice on the member's device (its tensor_size); 0 where it is empty. */
tdm_status meta_slice_size(const meta_device *device, int32_t d, const meta_slice *slice,
                           uint64_t *size_out, tdm_error *err);

#endif
