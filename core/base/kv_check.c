/* SPDX-License-Identifier: MIT
 *
 * kv_check.c: see kv_check.h.
 */
#include "core/base/kv_check.h"

/* "f32, f16, ...": the names of TDM_KV_TYPE_LIST, after a leading ", ". */
#define NAME_(ID, name) ", " #name
static const char type_names[] = TDM_KV_TYPE_LIST(NAME_);
#undef NAME_

const char *tdm_kv_type_names(void) {
    return type_names + 2;
}

static tdm_status types_check(const tdm_kv_desc *desc, tdm_error *err) {
    if (tdm_kv_type_is_storable(desc->type_k) && tdm_kv_type_is_storable(desc->type_v))
        return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED, "cache types %s and %s: each must be one of %s",
                    tdm_type_name(desc->type_k), tdm_type_name(desc->type_v), tdm_kv_type_names());
}

static tdm_status latent_check(const tdm_kv_desc *desc, tdm_error *err) {
    bool rotate_k = (desc->flags & TDM_KV_ROTATE_K) != 0;
    bool rotate_v = (desc->flags & TDM_KV_ROTATE_V) != 0;
    if ((desc->flags & TDM_KV_V_FROM_K) == 0 ||
        (desc->type_v == desc->type_k && rotate_v == rotate_k &&
         desc->head_dim_v <= desc->head_dim_k))
        return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "latent cache: V is part of K, so it needs K's type (%s, not %s), K's rotation "
                    "and at most K's head size",
                    tdm_type_name(desc->type_k), tdm_type_name(desc->type_v));
}

tdm_status tdm_kv_page_check(const tdm_kv_desc *desc, int32_t max_head_dim, tdm_error *err) {
    int32_t page_len = desc->page_len != 0 ? desc->page_len : TDM_KV_PAGE_LEN_DEFAULT;
    tdm_status status = types_check(desc, err);
    if (status != TDM_OK) return status;
    if (desc->head_dim_k < 1 || desc->head_dim_k > max_head_dim || desc->head_dim_v < 1 ||
        desc->head_dim_v > max_head_dim || desc->n_head_kv < 1 ||
        desc->n_head_kv > TDM_KV_MAX_HEADS)
        return tdm_fail(
            err, TDM_UNSUPPORTED,
            "cache of %d heads of %d and %d elements: 1 to %d heads of 1 to %d elements "
            "are supported",
            (int)desc->n_head_kv, (int)desc->head_dim_k, (int)desc->head_dim_v,
            (int)TDM_KV_MAX_HEADS, (int)max_head_dim);
    if (page_len < 1 || page_len > TDM_KV_MAX_PAGE_LEN || (page_len & (page_len - 1)) != 0)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "cache pages of %d tokens: use a power of two from 1 to %d", (int)page_len,
                        (int)TDM_KV_MAX_PAGE_LEN);
    if (desc->n_rot < 0 || desc->rope_offset < 0 || desc->n_rot % 2 != 0 ||
        (int64_t)desc->rope_offset + desc->n_rot > desc->head_dim_k)
        return tdm_fail(
            err, TDM_UNSUPPORTED,
            "cache with RoPE on elements %d .. +%d of %d of a K head: they must be an even "
            "number inside the head",
            (int)desc->rope_offset, (int)desc->n_rot, (int)desc->head_dim_k);
    return latent_check(desc, err);
}
