/* SPDX-License-Identifier: MIT
 *
 * slice.h: a weight's slices: what of it each member keeps, and moving canonical bytes there.
 *
 * A slice along axis 0 of a type of superblocks (256) may begin and end at any multiple of 32:
 * both neighbours keep the superblock, with the other's sub-blocks silenced (superblock.h), so a
 * member's tensor may reach over its range by up to 224 columns at either end. `pad` says how far;
 * the rule of MATMUL pads x with zeros to match.
 */
#ifndef TANDEM_META_SLICE_H
#define TANDEM_META_SLICE_H

#include "plugins/meta/layout/partition.h"

typedef struct meta_slice {
    bool is_empty;          /* the member holds nothing of it */
    tdm_tensor_desc desc;   /* as the member sees it: local shape, no partition; struct_size set */
    meta_cut cut;           /* of the whole tensor; axis -1: replicated */
    int64_t pad_lo, pad_hi; /* elements of axis 0 held beyond the range, silenced */
} meta_slice;

/* The slice of `desc` that member d keeps. [any-thread] */
tdm_status meta_slice_find(const meta_device *device, const tdm_tensor_desc *desc, int32_t d,
                           meta_slice *out, tdm_error *err);

/* Uploads what lies in rows row_first .. +n_row and columns col_first .. +n_col of the canonical
 * tensor (buffer.h: tensor_upload) and belongs to the slice, to member d's buffer at off. Bounded
 * staging. [any-thread] for parts that do not overlap */
tdm_status meta_slice_upload(const meta_device *device, int32_t d, tdm_buffer *buffer, uint64_t off,
                             const tdm_tensor_desc *desc, const meta_slice *slice, const void *src,
                             uint64_t row_pitch, int64_t row_first, int64_t n_row,
                             int64_t col_first, int64_t n_col, tdm_error *err);
/* The inverse: writes to dst what member d owns of that part (lowest holder; of a superblock cut
 * between two, each owner's sub-blocks with their scales, so that the bytes are the canonical ones
 * again). */
tdm_status meta_slice_download(const meta_device *device, int32_t d, tdm_buffer *buffer,
                               uint64_t off, const tdm_tensor_desc *desc, const meta_slice *slice,
                               void *dst, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                               int64_t col_first, int64_t n_col, tdm_error *err);
/* The member's bytes for the slice (its tensor_size); 0 where empty. */
tdm_status meta_slice_size(const meta_device *device, int32_t d, const meta_slice *slice,
                           uint64_t *size_out, tdm_error *err);

#endif
