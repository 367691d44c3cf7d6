/* SPDX-License-Identifier: MIT
 *
 * page.c: the arrangement of cache pages that page.h describes.
 */
#include "plugins/gpu/layout/page.h"

#include <string.h>

#include "core/base/kv_check.h"

enum {
    UNIT = 16,              /* bytes */
    MAX_HEAD_DIM = 1024,    /* a row of floats and a row of codes take 8 KiB of shared memory */
    MAX_UNIT_LEN = 1 << 20, /* floats of a unit of recurrent states */
    MAX_STRIDE = 0x7fff     /* what fits above GPU_ATTENTION_STRIDE_SHIFT in a positive int32 */
};

static int64_t round_up(int64_t n, int64_t unit) {
    return (n + unit - 1) / unit * unit;
}

static gpu_page_side side_make(tdm_type type, int32_t head_dim) {
    tdm_type_info info = tdm_type_get_info(type);
    gpu_page_side side = {.type = type, .head_dim = head_dim, .rotation = 1};
    side.padded = side.stored = tdm_kv_padded(type, head_dim);
    if (info.is_quantized) {
        int32_t code_size = type == TDM_TYPE_Q8_0 ? 32 : 16;
        side.n_block = side.padded / info.block_len;
        side.n_column = side.n_block * code_size;
        side.n_unit = side.n_column / UNIT;
        return side;
    }
    side.n_unit = (int32_t)(round_up((int64_t)side.padded * info.block_size, UNIT) / UNIT);
    side.stored = side.n_column = side.n_unit * UNIT / info.block_size;
    return side;
}

static bool has_min(tdm_type type) {
    return type == TDM_TYPE_Q4_1 || type == TDM_TYPE_Q5_1;
}

static bool has_fifth(tdm_type type) {
    return type == TDM_TYPE_Q5_0 || type == TDM_TYPE_Q5_1;
}

/* Places a side's planes behind `off`; returns the end. */
static int64_t side_place(gpu_page_side *side, int32_t n_slot, int64_t off) {
    int64_t n = (int64_t)side->n_block * n_slot;
    side->code_off = (int32_t)off;
    off += (int64_t)side->n_unit * n_slot * UNIT;
    side->scale_off = (int32_t)off;
    off += round_up(n * (has_min(side->type) ? 4 : 2), UNIT);
    return off + (has_fifth(side->type) ? round_up(n * 4, UNIT) : 0);
}

tdm_status gpu_page_get(const gpu_target *target, const tdm_kv_desc *desc, gpu_page *page_out,
                        tdm_error *err) {
    int32_t page_len = desc->page_len != 0 ? desc->page_len : TDM_KV_PAGE_LEN_DEFAULT;
    bool is_recurrent = (desc->flags & TDM_KV_RECURRENT) != 0;
    tdm_status status = tdm_kv_page_check(desc, is_recurrent ? MAX_UNIT_LEN : MAX_HEAD_DIM, err);
    if (status != TDM_OK) return status;
    if (desc->stride > MAX_STRIDE)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: a cache with a stride of %d; kernels have up to %d", target->name,
                        (int)desc->stride, (int)MAX_STRIDE);
    if ((desc->flags & TDM_KV_IN_HOST) != 0 && !target->is_host)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: the cache is in the host's memory, which this device's kernels do not "
                        "read",
                        target->name);
    gpu_page page = {.n_head_kv = desc->n_head_kv,
                     .page_len = page_len,
                     .stride = desc->stride > 1 ? desc->stride : 1,
                     .n_slot = page_len < 4 && !is_recurrent ? 4 : page_len,
                     .v_from_k = (desc->flags & TDM_KV_V_FROM_K) != 0,
                     .k = side_make(desc->type_k, desc->head_dim_k)};
    page.n_row = page_len;
    if (page.stride > 1) {
        page.n_slot = 4;
        while (page.n_slot * page.stride < page_len) page.n_slot *= 2;
        page.n_row = page.n_slot;
    }
    if ((desc->flags & TDM_KV_ROTATE_K) != 0 && page.k.n_block > 0)
        page.k.rotation = tdm_kv_rotation_block(page.k.padded, desc->rope_offset, desc->n_rot);
    int64_t size = side_place(&page.k, page.n_slot, 0);
    page.v = page.k;
    page.v.head_dim = desc->head_dim_v;
    if (!page.v_from_k) {
        page.v = side_make(desc->type_v, desc->head_dim_v);
        if ((desc->flags & TDM_KV_ROTATE_V) != 0 && page.v.n_block > 0)
            page.v.rotation = tdm_kv_rotation_block(page.v.padded, 0, 0);
        size = side_place(&page.v, page.n_slot, size);
    }
    if (size * page.n_head_kv > INT32_MAX)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "cache pages of %lld bytes; the kernels address up to 2^31 - 1",
                        (long long)(size * page.n_head_kv));
    page.head_size = (int32_t)size;
    page.page_size = (int32_t)(size * page.n_head_kv);
    *page_out = page;
    return TDM_OK;
}

tdm_status gpu_page_size(const gpu_target *target, const tdm_kv_desc *desc, uint64_t *size_out,
                         tdm_error *err) {
    gpu_page page = {0};
    tdm_status status = gpu_page_get(target, desc, &page, err);
    if (status == TDM_OK) *size_out = (uint64_t)page.page_size;
    return status;
}

/* ---- Rows of slots --------------------------------------------------------------------------- */

/* A copy between a canonical row and a region, piece by piece, in the order of the row's bytes. */
typedef struct row_copy {
    const gpu_page *page;
    const gpu_page_side *side;
    bool is_v;
    int32_t slot;
    uint8_t *put;        /* the region, where it is written; else NULL */
    const uint8_t *get;  /* the region, where it is read */
    const uint8_t *from; /* with `put`: the next byte of the row */
    uint8_t *to;         /* with `get`: the next byte of the row */
} row_copy;

static void piece_copy(row_copy *c, int64_t off, size_t size) {
    if (c->put != NULL) {
        memcpy(c->put + off, c->from, size);
        c->from += size;
        return;
    }
    memcpy(c->to, c->get + off, size);
    c->to += size;
}

/* Offset in the region of the row's code byte or plain element `at`, which has `size` bytes. */
static int64_t code_place(const row_copy *c, int32_t at, int32_t size) {
    const gpu_page_side *s = c->side;
    if (c->is_v)
        return s->code_off + (((int64_t)(c->slot / 4) * s->n_column + at) * 4 + c->slot % 4) * size;
    int64_t off = (int64_t)at * size;
    return s->code_off + (off / UNIT * c->page->n_slot + c->slot) * UNIT + off % UNIT;
}

static void blocks_copy(row_copy *c) {
    const gpu_page_side *s = c->side;
    int32_t n_code = s->n_column / s->n_block, scale_size = has_min(s->type) ? 4 : 2;
    int64_t n = (int64_t)s->n_block * c->page->n_slot;
    int64_t fifth_off = s->scale_off + round_up(n * scale_size, UNIT);
    for (int32_t b = 0; b < s->n_block; b++) {
        int64_t at = (int64_t)b * c->page->n_slot + c->slot;
        piece_copy(c, s->scale_off + at * scale_size, (size_t)scale_size);
        if (has_fifth(s->type)) piece_copy(c, fifth_off + at * 4, 4);
        for (int32_t i = 0; i < n_code; i++) piece_copy(c, code_place(c, b * n_code + i, 1), 1);
    }
}

static void row_copy_run(row_copy *c) {
    const gpu_page_side *s = c->side;
    int32_t size = tdm_type_get_info(s->type).block_size;
    if (s->n_block > 0) {
        blocks_copy(c);
        return;
    }
    for (int32_t i = 0; i < s->padded; i++) piece_copy(c, code_place(c, i, size), (size_t)size);
    for (int32_t i = s->padded; i < s->stored && c->put != NULL; i++)
        memset(c->put + code_place(c, i, size), 0, (size_t)size);
}

void gpu_page_row_put(const gpu_page *page, uint8_t *region, int32_t slot, bool is_v,
                      const uint8_t *row) {
    row_copy c = {.page = page,
                  .side = is_v ? &page->v : &page->k,
                  .is_v = is_v,
                  .slot = slot,
                  .put = region,
                  .from = row};
    row_copy_run(&c);
}

void gpu_page_row_get(const gpu_page *page, const uint8_t *region, int32_t slot, bool is_v,
                      uint8_t *row) {
    row_copy c = {.page = page,
                  .side = is_v ? &page->v : &page->k,
                  .is_v = is_v,
                  .slot = slot,
                  .get = region,
                  .to = row};
    row_copy_run(&c);
}
