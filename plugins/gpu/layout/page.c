/* SPDX-License-Identifier: MIT
 *
 * page.c: the arrangement of cache pages that page.h describes.
 */
#include "plugins/gpu/layout/page.h"

#include "core/base/kv_check.h"

enum {
    UNIT = 16,
    MAX_HEAD_DIM = 1024,   /* a row of floats and one of codes take 8 KiB of shared memory */
    MAX_UNIT_LEN = 1 << 20 /* of recurrent states */
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

/* Places a side's planes behind `off`; returns the end. */
static int64_t side_place(gpu_page_side *side, int32_t n_slot, int64_t off) {
    bool has_min = side->type == TDM_TYPE_Q4_1 || side->type == TDM_TYPE_Q5_1;
    bool has_fifth = side->type == TDM_TYPE_Q5_0 || side->type == TDM_TYPE_Q5_1;
    int64_t n = (int64_t)side->n_block * n_slot;
    side->code_off = (int32_t)off;
    off += (int64_t)side->n_unit * n_slot * UNIT;
    side->scale_off = (int32_t)off;
    off += round_up(n * (has_min ? 4 : 2), UNIT);
    return off + (has_fifth ? round_up(n * 4, UNIT) : 0);
}

tdm_status gpu_page_get(const gpu_target *target, const tdm_kv_desc *desc, gpu_page *page_out,
                        tdm_error *err) {
    int32_t page_len = desc->page_len != 0 ? desc->page_len : TDM_KV_PAGE_LEN_DEFAULT;
    bool is_recurrent = (desc->flags & TDM_KV_RECURRENT) != 0;
    tdm_status status = tdm_kv_page_check(desc, is_recurrent ? MAX_UNIT_LEN : MAX_HEAD_DIM, err);
    if (status != TDM_OK) return status;
    if ((desc->flags & TDM_KV_IN_HOST) != 0 && !target->is_host)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: the cache is in the host's memory, which this device's kernels do not "
                        "read",
                        target->name);
    gpu_page page = {.n_head_kv = desc->n_head_kv,
                     .page_len = page_len,
                     .n_slot = page_len < 4 && !is_recurrent ? 4 : page_len,
                     .v_from_k = (desc->flags & TDM_KV_V_FROM_K) != 0,
                     .k = side_make(desc->type_k, desc->head_dim_k)};
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
