/* SPDX-License-Identifier: MIT
 *
 * store.h: device memory for many things: the weights of a model, the caches of a context. Each
 * device has as many buffers as its largest buffer makes necessary; a thing lies in one of them.
 */
#ifndef TANDEM_LLM_STORE_H
#define TANDEM_LLM_STORE_H

#include "core/device/runtime.h"

typedef struct llm_store_item {
    int32_t dev;          /* of the caller's devices; the caller's to fill, with what.size, .tensor,
                             .kv, .n_page and .partition */
    int32_t mem;          /* buffer of the store that it lies in, set by llm_store_place */
    tdm_buffer_item what; /* what.off is set by llm_store_place */
} llm_store_item;

typedef struct llm_store {
    tdm_mem *mems; /* [n_mem] in order of device */
    int32_t n_mem;
} llm_store;

/* Gives every item a buffer and an offset, a multiple of `align`; mems[i].dev and .size are set,
 * and nothing is allocated. A device's items keep their order. Where an item is larger than its
 * device's largest buffer, *bad_out is its index and the status TDM_RESOURCE_EXHAUSTED with both
 * sizes; else *bad_out is -1. A group gets such an item in a buffer of its own, since it divides
 * it. TDM_OUT_OF_RANGE where sizes add up to more than 2^64. Released with llm_store_free.
 * [any-thread] */
tdm_status llm_store_place(tdm_open_device *const *devs, int32_t n_dev, uint64_t align,
                           llm_store_item *items, int32_t n_item, llm_store *store_out,
                           int32_t *bad_out, tdm_error *err);
/* Allocates the buffers. After a failure the store is still to be freed. [setup] */
tdm_status llm_store_allocate(llm_store *store, tdm_buffer_purpose purpose,
                              const llm_store_item *items, int32_t n_item, tdm_error *err);
/* Bytes of all buffers. */
uint64_t llm_store_size(const llm_store *store);
/* Frees and clears; a cleared one is a no-op. [setup] */
void llm_store_free(llm_store *store);

#endif
