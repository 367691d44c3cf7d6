/* SPDX-License-Identifier: MIT
 *
 * buffer_state.c: which part of a cache a member holds: some KV heads, some pages, or all of it.
 * partition.c assigns the heads, pages.c the pages.
 */
#include "plugins/meta/buffer.h"

/* Pages of a cache cut by sequence that member d holds. */
static tdm_status pages_count(const meta_device *device, int64_t n_page, int32_t d,
                              int64_t *n_page_out, tdm_error *err) {
    int64_t n_local[TDM_MAX_MEMBERS] = {0};
    size_t size;
    if (n_page <= 0) {
        *n_page_out = 0;
        return TDM_OK;
    }
    meta_page *pages = __builtin_mul_overflow((size_t)n_page, sizeof *pages, &size)
                           ? NULL
                           : meta_alloc(device->host, size);
    if (pages == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "group: no memory to assign %lld pages",
                        (long long)n_page);
    meta_pages_assign(device, n_page, pages, n_local);
    meta_free(device->host, pages, size);
    *n_page_out = n_local[d];
    return TDM_OK;
}

tdm_status meta_state_local(const meta_device *device, const tdm_kv_desc *desc, int64_t n_page,
                            const tdm_partition *partition, int32_t d, tdm_kv_desc *desc_out,
                            int64_t *n_page_out, bool *is_held_out, tdm_error *err) {
    int64_t lo[TDM_MAX_MEMBERS], hi[TDM_MAX_MEMBERS];
    tdm_struct_read(desc_out, sizeof *desc_out, desc);
    *n_page_out = n_page;
    *is_held_out = meta_is_active(device, d);
    if (!*is_held_out) return TDM_OK;
    bool is_recurrent = (desc_out->flags & TDM_KV_RECURRENT) != 0;
    /* All caches are cut in this way, because a step block numbers pages in one way only. Slots of
     * recurrent states are no pages of it. */
    if (device->attention == META_ATTENTION_SEQUENCE && !is_recurrent) {
        tdm_status status = pages_count(device, n_page, d, n_page_out, err);
        *is_held_out = *n_page_out > 0;
        return status;
    }
    if (partition->id == 0) return TDM_OK;
    tdm_status status = meta_partition_heads(device, partition, desc_out, lo, hi, err);
    if (status != TDM_OK) return status;
    desc_out->n_head_kv = (int32_t)(hi[d] - lo[d]);
    *is_held_out = hi[d] > lo[d];
    return TDM_OK;
}
