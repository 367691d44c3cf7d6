/* SPDX-License-Identifier: MIT
 *
 * slice.c: which slice of a weight each member holds, and moving canonical bytes between the whole
 * weight and the slices. partition.c assigns the units; superblock.c contains the bit layouts.
 *
 * A cut is processed as runs: maximal ranges of the cut axis that are contiguous in the whole and
 * in the slice. Along axis 0 a run is a range of columns of every row; along another axis it is a
 * range of rows that repeats for every index of the higher axes. Upload and download visit the same
 * runs. A download is limited to what the member owns, so that every byte is written by one member
 * only.
 */
#include "plugins/meta/layout/slice.h"

#include "plugins/meta/layout/superblock.h"
#include "tandem/block.h"

enum { SUPER = TDM_SUPERBLOCK_LEN, STAGING_SIZE = 1 << 20 };

/* ---- Runs ---- */

typedef struct slice_run {
    int64_t first, n; /* of the whole axis */
    int64_t local;    /* where it begins in the slice, not counting the padding */
} slice_run;

typedef struct slice_walk {
    const meta_cut *cut;
    int32_t d;
    bool is_owned; /* only what no lower member holds */
    int64_t turn;  /* pattern, 0 .. cut->repeat-1; with segment and bases it is the next position */
    int32_t segment;
    int64_t base, local;
} slice_walk;

/* The member's part of the next segment where that is not empty; false at the end. */
static bool part_next(slice_walk *w, slice_run *out) {
    const meta_cut *cut = w->cut;
    while (w->turn < cut->repeat) {
        const tdm_layout_segment *s = &cut->segments[w->segment];
        int64_t lo = s->lo[w->d], hi = s->hi[w->d];
        const int64_t held_lo = lo, n_held = hi - lo, base = w->base, local = w->local;
        if (w->is_owned) meta_cut_owned(cut, w->segment, w->d, &lo, &hi);
        w->base += s->n_unit;
        w->local += n_held;
        if (++w->segment == cut->n_segment) {
            w->segment = 0;
            w->turn++;
        }
        if (lo >= hi) continue;
        *out = (slice_run){base + lo, hi - lo, local + lo - held_lo};
        return true;
    }
    return false;
}

static bool run_next(slice_walk *w, slice_run *out) {
    slice_run more;
    if (!part_next(w, out)) return false;
    for (slice_walk ahead = *w; part_next(&ahead, &more); *w = ahead) {
        if (more.first != out->first + out->n || more.local != out->local + out->n) break;
        out->n += more.n;
    }
    return true;
}

/* ---- Slices ---- */

static tdm_status layout_cut(const tdm_tensor_desc *desc, const tdm_layout *layout, meta_cut *cut,
                             tdm_error *err) {
    if (desc->axis >= 0 && desc->axis < TDM_MAX_DIMS &&
        meta_layout_get_cut_along(layout, desc->ne, desc->axis, cut))
        return TDM_OK;
    if (meta_layout_get_cut(layout, desc->ne, cut)) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "a tensor of %lld x %lld x %lld x %lld cannot be cut along axis %d in that way",
                    (long long)desc->ne[0], (long long)desc->ne[1], (long long)desc->ne[2],
                    (long long)desc->ne[3], (int)desc->axis);
}

/* By how much a slice of columns must exceed its range to consist of whole blocks. */
static tdm_status padding_find(const tdm_tensor_desc *desc, int32_t d, meta_slice *slice,
                               tdm_error *err) {
    const tdm_type_info type = tdm_type_get_info(desc->type);
    slice_walk walk = {.cut = &slice->cut, .d = d};
    slice_run run;
    int n_run = 0;
    while (run_next(&walk, &run)) {
        const int64_t end = run.first + run.n;
        n_run++;
        if (run.first % type.block_len == 0 && end % type.block_len == 0) continue;
        if (!meta_superblock_is_cuttable(desc->type) || run.first % META_SUPERBLOCK_UNIT != 0 ||
            end % META_SUPERBLOCK_UNIT != 0)
            return tdm_fail(err, TDM_UNSUPPORTED, "type %s cannot be cut at columns %lld and %lld",
                            type.name, (long long)run.first, (long long)end);
        slice->pad_lo = run.first % SUPER;
        slice->pad_hi = (SUPER - end % SUPER) % SUPER;
    }
    if (n_run > 1 && slice->pad_lo + slice->pad_hi > 0)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "type %s cannot be cut inside its blocks where a member's columns do not "
                        "lie together",
                        type.name);
    return TDM_OK;
}

tdm_status meta_slice_find(const meta_device *device, const tdm_tensor_desc *desc, int32_t d,
                           meta_slice *out, tdm_error *err) {
    tdm_layout layout;
    tdm_status status = meta_partition_layout(device, desc, &layout, err);
    if (status != TDM_OK) return status;
    *out = (meta_slice){
        .desc = {.struct_size = sizeof out->desc, .type = desc->type, .usage = desc->usage},
        .cut = {.axis = -1}};
    memcpy(out->desc.ne, desc->ne, sizeof out->desc.ne);
    if (layout.kind == TDM_LAYOUT_SPLIT) {
        status = layout_cut(desc, &layout, &out->cut, err);
        if (status != TDM_OK) return status;
        if (out->cut.axis == 0) status = padding_find(desc, d, out, err);
        if (status != TDM_OK) return status;
        meta_cut_local_shape(&out->cut, desc->ne, d, out->desc.ne);
        if (out->cut.axis == 0) out->desc.ne[0] += out->pad_lo + out->pad_hi;
    } else if (layout.kind != TDM_LAYOUT_REPLICATED) {
        return tdm_fail(err, TDM_INTERNAL, "a weight that is neither cut nor replicated");
    }
    out->is_empty = !meta_is_active(device, d) || tdm_shape_count(out->desc.ne) == 0;
    return TDM_OK;
}

tdm_status meta_slice_size(const meta_device *device, int32_t d, const meta_slice *slice,
                           uint64_t *size_out, tdm_error *err) {
    const meta_member *member = &device->members[d];
    tdm_error inner = {0};
    *size_out = 0;
    if (slice->is_empty) return TDM_OK;
    tdm_status status = meta_member_buffers(member)->tensor_size(member->acquired.device,
                                                                 &slice->desc, size_out, &inner);
    if (status != TDM_OK)
        return tdm_fail(err, status, "member '%s': %s", member->name, inner.message);
    return TDM_OK;
}

/* ---- Upload and download ---- */

/* An upload or download of a part of a tensor, for one member. */
typedef struct slice_move {
    const meta_device *device;
    int32_t d;
    tdm_buffer *buffer;
    uint64_t off;
    const meta_slice *slice;
    bool is_download;
    uint8_t *host; /* first column of the first row of the part; an upload only reads it */
    uint64_t row_pitch;
    int64_t row_first, n_row, col_first, n_col; /* the part, in the whole tensor */
    tdm_error *err;
} slice_move;

static uint8_t *host_at(const slice_move *m, int64_t row, int64_t col) {
    return m->host + (uint64_t)(row - m->row_first) * m->row_pitch +
           tdm_type_row_size(m->slice->desc.type, col - m->col_first);
}

/* Transfers rows and columns of the slice from or to host memory. */
static tdm_status member_move(const slice_move *m, uint8_t *host, uint64_t row_pitch,
                              int64_t local_row, int64_t n_row, int64_t local_col, int64_t n_col) {
    const meta_member *member = &m->device->members[m->d];
    const tdm_buffer_ops *ops = meta_member_buffers(member);
    tdm_error inner = {0};
    tdm_status status =
        m->is_download ? ops->tensor_download(m->buffer, m->off, &m->slice->desc, host, row_pitch,
                                              local_row, n_row, local_col, n_col, &inner)
                       : ops->tensor_upload(m->buffer, m->off, &m->slice->desc, host, row_pitch,
                                            local_row, n_row, local_col, n_col, &inner);
    if (status != TDM_OK)
        return tdm_fail(m->err, status, "member '%s': %s", member->name, inner.message);
    return TDM_OK;
}

/* Transfers elements lo .. hi-1 of the superblock at column `block`, in all rows of the part. The
 * transfer goes through staging memory: an upload masks the other elements there, a download leaves
 * them out. */
static tdm_status edge_move(const slice_move *m, int64_t block, int64_t local_col, int lo, int hi) {
    const tdm_type type = m->slice->desc.type;
    const tdm_host *host = m->device->host;
    const size_t size = tdm_type_row_size(type, SUPER);
    const int64_t n_chunk =
        m->n_row < (int64_t)(STAGING_SIZE / size) ? m->n_row : (int64_t)(STAGING_SIZE / size);
    if (block < m->col_first || block + SUPER > m->col_first + m->n_col) return TDM_OK;
    uint8_t *staging = meta_alloc(host, (size_t)n_chunk * size);
    if (staging == NULL) return meta_no_memory("to cut superblocks in", m->err);
    tdm_status status = TDM_OK;
    for (int64_t at = 0; at < m->n_row && status == TDM_OK; at += n_chunk) {
        const int64_t row = m->row_first + at,
                      n = m->n_row - at < n_chunk ? m->n_row - at : n_chunk;
        for (int64_t r = 0; r < n && !m->is_download; r++) {
            memcpy(staging + (size_t)r * size, host_at(m, row + r, block), size);
            meta_superblock_mask(type, staging + (size_t)r * size, lo, hi);
        }
        status = member_move(m, staging, size, row, n, local_col, SUPER);
        for (int64_t r = 0; r < n && m->is_download && status == TDM_OK; r++)
            meta_superblock_join(type, host_at(m, row + r, block), staging + (size_t)r * size, lo,
                                 hi);
    }
    meta_free(host, staging, (size_t)n_chunk * size);
    return status;
}

/* Transfers a run of columns, in all rows of the part. */
static tdm_status columns_move(const slice_move *m, const slice_run *run) {
    const bool is_super = tdm_type_get_info(m->slice->desc.type).block_len == SUPER;
    const int64_t first = run->first, end = run->first + run->n;
    /* Added to a column number of the whole, this gives the column of the slice. */
    const int64_t shift = run->local + m->slice->pad_lo - run->first;
    int64_t inner_first = first, inner_end = end;
    tdm_status status = TDM_OK;
    if (is_super) {
        const int64_t block = first / SUPER * SUPER, last = end / SUPER * SUPER;
        if (first > block) {
            const int64_t hi = end - block < SUPER ? end - block : SUPER;
            status = edge_move(m, block, block + shift, (int)(first - block), (int)hi);
            inner_first = block + SUPER;
        }
        if (status == TDM_OK && end > last && last >= inner_first)
            status = edge_move(m, last, last + shift, 0, (int)(end - last));
        inner_end = last;
    }
    if (inner_first < m->col_first) inner_first = m->col_first;
    if (inner_end > m->col_first + m->n_col) inner_end = m->col_first + m->n_col;
    if (status != TDM_OK || inner_first >= inner_end) return status;
    return member_move(m, host_at(m, m->row_first, inner_first), m->row_pitch, m->row_first,
                       m->n_row, inner_first + shift, inner_end - inner_first);
}

/* Rows that are contiguous in the whole and in the slice. */
typedef struct row_range {
    int64_t row, local, n;
} row_range;

static tdm_status rows_flush(const slice_move *m, row_range *rows) {
    if (rows->n == 0) return TDM_OK;
    tdm_status status = member_move(m, host_at(m, rows->row, m->col_first), m->row_pitch,
                                    rows->local, rows->n, m->col_first, m->n_col);
    rows->n = 0;
    return status;
}

/* Transfers all runs of a cut along axis 1, 2 or 3. */
static tdm_status rows_move(const slice_move *m, const int64_t ne[TDM_MAX_DIMS]) {
    const meta_cut *cut = &m->slice->cut;
    int64_t unit = 1; /* rows of one element of the cut axis */
    for (int32_t i = 1; i < cut->axis; i++) unit *= ne[i];
    const int64_t turn = unit * ne[cut->axis], local_turn = unit * m->slice->desc.ne[cut->axis];
    const int64_t part_end = m->row_first + m->n_row;
    row_range rows = {0};
    tdm_status status = TDM_OK;
    for (int64_t t = m->row_first / turn; t * turn < part_end && status == TDM_OK; t++) {
        slice_walk walk = {.cut = cut, .d = m->d, .is_owned = m->is_download};
        slice_run run;
        while (status == TDM_OK && run_next(&walk, &run)) {
            const int64_t begin = t * turn + run.first * unit;
            const int64_t first = begin > m->row_first ? begin : m->row_first;
            const int64_t end = begin + run.n * unit < part_end ? begin + run.n * unit : part_end;
            const int64_t local = t * local_turn + run.local * unit + first - begin;
            if (first >= end) continue;
            if (first != rows.row + rows.n || local != rows.local + rows.n)
                status = rows_flush(m, &rows);
            if (rows.n == 0) rows = (row_range){first, local, 0};
            rows.n += end - first;
        }
    }
    return status == TDM_OK ? rows_flush(m, &rows) : status;
}

static tdm_status slice_move_run(const slice_move *m, const int64_t ne[TDM_MAX_DIMS]) {
    const meta_cut *cut = &m->slice->cut;
    if (m->slice->is_empty || m->n_row == 0 || m->n_col == 0) return TDM_OK;
    if (cut->axis < 0) {
        if (m->is_download && m->d != m->device->owner) return TDM_OK;
        return member_move(m, m->host, m->row_pitch, m->row_first, m->n_row, m->col_first,
                           m->n_col);
    }
    if (cut->axis > 0) return rows_move(m, ne);
    slice_walk walk = {.cut = cut, .d = m->d, .is_owned = m->is_download};
    slice_run run;
    tdm_status status = TDM_OK;
    while (status == TDM_OK && run_next(&walk, &run)) status = columns_move(m, &run);
    return status;
}

tdm_status meta_slice_move(const meta_device *device, int32_t d, tdm_buffer *buffer, uint64_t off,
                           const tdm_tensor_desc *desc, const meta_slice *slice, const void *src,
                           void *dst, uint64_t row_pitch, int64_t row_first, int64_t n_row,
                           int64_t col_first, int64_t n_col, tdm_error *err) {
    const slice_move move = {.device = device,
                             .d = d,
                             .buffer = buffer,
                             .off = off,
                             .slice = slice,
                             .is_download = src == NULL,
                             .host = src == NULL ? dst : (uint8_t *)(uintptr_t)src,
                             .row_pitch = row_pitch,
                             .row_first = row_first,
                             .n_row = n_row,
                             .col_first = col_first,
                             .n_col = n_col,
                             .err = err};
    return slice_move_run(&move, desc->ne);
}
