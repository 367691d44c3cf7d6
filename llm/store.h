/* SPDX-License-Identifier: MIT
 *
 * store.h: device memory for many items: the weights of a model, the caches of a context. The items
 * of a device lie in its buffers one after the other; a new buffer begins where the next item would
 * exceed the size of the device's largest buffer. An item is never split between two buffers.
 */
#ifndef TANDEM_LLM_STORE_H
#define TANDEM_LLM_STORE_H

#include "core/device/runtime.h"

typedef struct llm_store_item {
    int32_t dev;          /* index into the caller's devices; set by the caller */
    int32_t mem;          /* buffer of the store that it lies in; set by llm_store_place */
    tdm_buffer_item what; /* what.off is set by llm_store_place, the other fields by the caller */
} llm_store_item;

typedef struct llm_store {
    tdm_mem *mems; /* [n_mem] in order of device */
    int32_t n_mem;
} llm_store;

/* Gives every item a buffer and an offset, a multiple of `align`; mems[i].dev and .size are set,
 * and nothing is allocated. A device's items keep their order. If an item is larger than its
 * device's largest buffer, *bad_out is its index and the status TDM_RESOURCE_EXHAUSTED with both
 * sizes; else *bad_out is -1. Exception: a group divides each buffer between its members, so such
 * an item gets a buffer of its own there. TDM_OUT_OF_RANGE if sizes add up to more than 2^64.
 * Released with llm_store_free; on failure there is nothing to release. [any-thread] */
tdm_status llm_store_place(tdm_open_device *const *devs, int32_t n_dev, uint64_t align,
                           llm_store_item *items, int32_t n_item, llm_store *store_out,
                           int32_t *bad_out, tdm_error *err);
/* Allocates the buffers of a placed store; `items` are those that were placed. After a failure the
 * caller still calls llm_store_free. [setup] */
tdm_status llm_store_allocate(llm_store *store, tdm_buffer_purpose purpose,
                              const llm_store_item *items, int32_t n_item, tdm_error *err);
/* Bytes of all buffers. */
uint64_t llm_store_size(const llm_store *store);
/* Frees and clears; a cleared one is a no-op. [setup] */
void llm_store_free(llm_store *store);

#endif
