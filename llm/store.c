/* SPDX-License-Identifier: MIT
 *
 * store.c: see store.h.
 */
#include "llm/store.h"

#include <stdlib.h>
#include <string.h>

static tdm_status out_of_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
}

/* Places the items of device d in new buffers at the end of the store. */
static tdm_status device_place(llm_store *store, tdm_open_device *const *devs, int32_t d,
                               uint64_t align, llm_store_item *items, int32_t n_item,
                               int32_t *bad_out, tdm_error *err) {
    tdm_device_info info;
    tdm_mem *mem = NULL;
    tdm_status status = tdm_open_device_get_info(devs[d], &info, err);
    if (status != TDM_OK) return status;
    const uint64_t most = info.max_buffer != 0 ? info.max_buffer : UINT64_MAX;
    for (int32_t i = 0; i < n_item; i++) {
        tdm_buffer_item *what = &items[i].what;
        uint64_t size, end = 0;
        if (items[i].dev != d) continue;
        if (what->size > most && !tdm_open_device_is_group(devs[d])) {
            *bad_out = i;
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                            "%llu bytes are needed in one buffer, and device '%s' has buffers of "
                            "at most %llu",
                            (unsigned long long)what->size, tdm_open_device_name(devs[d]),
                            (unsigned long long)most);
        }
        if (__builtin_add_overflow(what->size, align - 1, &size))
            return tdm_fail(err, TDM_OUT_OF_RANGE, "more than 2^64 bytes");
        size = size / align * align;
        bool is_over = mem != NULL && __builtin_add_overflow(mem->size, what->size, &end);
        if (most == UINT64_MAX && is_over)
            return tdm_fail(err, TDM_OUT_OF_RANGE, "more than 2^64 bytes");
        if (mem == NULL || is_over || end > most) {
            mem = &store->mems[store->n_mem++];
            *mem = (tdm_mem){.dev = devs[d]};
        }
        items[i].mem = store->n_mem - 1;
        what->off = mem->size;
        if (__builtin_add_overflow(mem->size, size, &mem->size))
            return tdm_fail(err, TDM_OUT_OF_RANGE, "more than 2^64 bytes");
        /* Only the padding after the last item exceeds the limit. */
        if (mem->size > most && what->off + what->size <= most) mem->size = most;
    }
    return TDM_OK;
}

tdm_status llm_store_place(tdm_open_device *const *devs, int32_t n_dev, uint64_t align,
                           llm_store_item *items, int32_t n_item, llm_store *store_out,
                           int32_t *bad_out, tdm_error *err) {
    llm_store store = {calloc((size_t)n_item + 1, sizeof *store.mems), 0};
    tdm_status status = store.mems != NULL ? TDM_OK : out_of_memory(err);
    *bad_out = -1;
    for (int32_t d = 0; d < n_dev && status == TDM_OK; d++)
        status = device_place(&store, devs, d, align, items, n_item, bad_out, err);
    if (status != TDM_OK) {
        free(store.mems);
        return status;
    }
    *store_out = store;
    return TDM_OK;
}

tdm_status llm_store_allocate(llm_store *store, tdm_buffer_purpose purpose,
                              const llm_store_item *items, int32_t n_item, tdm_error *err) {
    tdm_buffer_item *list = calloc((size_t)n_item + 1, sizeof *list);
    tdm_status status = list != NULL ? TDM_OK : out_of_memory(err);
    for (int32_t k = 0; k < store->n_mem; k++) {
        tdm_mem *mem = &store->mems[k];
        tdm_buffer_params params = {sizeof params, mem->size, purpose, 0, list};
        for (int32_t i = 0; i < n_item && status == TDM_OK; i++)
            if (items[i].mem == k && items[i].dev >= 0) list[params.n_item++] = items[i].what;
        tdm_open_device *dev = mem->dev;
        *mem = (tdm_mem){0};
        if (status == TDM_OK) status = tdm_mem_alloc_items(dev, &params, mem, err);
    }
    free(list);
    return status;
}

uint64_t llm_store_size(const llm_store *store) {
    uint64_t size = 0;
    for (int32_t i = 0; i < store->n_mem; i++) size += store->mems[i].size;
    return size;
}

void llm_store_free(llm_store *store) {
    for (int32_t i = 0; i < store->n_mem; i++) tdm_mem_free(&store->mems[i]);
    free(store->mems);
    memset(store, 0, sizeof *store);
}
