/* SPDX-License-Identifier: MIT
 *
 * buffer.h: a group's buffers.
 *
 * There are two kinds. A *sharded* buffer was allocated with items (tandem/buffer.h). Each item is
 * a weight or a cache, of which every active member holds a slice in a buffer on its own device;
 * the group's offsets only name items. An item of plain bytes is held whole by every active member.
 * A *host* buffer (any other) is host memory for inputs and outputs. It is imported into the
 * members that share the host's memory, so that they read it in place.
 */
#ifndef TANDEM_META_BUFFER_H
#define TANDEM_META_BUFFER_H

#include "plugins/meta/exec/stuck.h"
#include "plugins/meta/layout/slice.h"

typedef struct meta_item {
    uint64_t off, size; /* in the group's buffer */
    bool is_state;
    tdm_tensor_desc tensor; /* of a weight, with its partition; struct_size 0 = not a weight */
    tdm_kv_desc kv;         /* of a state: the whole cache, as are n_page and partition */
    int64_t n_page;
    tdm_partition partition; /* id 0 = the cache is not cut by heads or units */
    /* [n_member] offset and bytes of each member's slice in its buffer; size 0 = no slice */
    uint64_t *member_off, *member_size;
} meta_item;

struct tdm_buffer {
    meta_device *device;
    uint64_t size;
    int32_t purpose;
    uint8_t *host; /* of a host buffer, size bytes, page-aligned; else NULL */
    meta_item *items;
    int32_t n_item;
    uint64_t *item_sizes; /* storage of the items' arrays */
    /* sharded: the member's buffer; host: the import; NULL = none */
    tdm_buffer *members[TDM_MAX_MEMBERS];
    bool is_imported; /* the host memory is the caller's */
    size_t host_size; /* bytes of host memory, whole pages; 0 where imported */
    meta_pending_release later;
};
typedef tdm_buffer meta_buffer;

extern const tdm_buffer_ops meta_buffer_ops;

/* The item that begins at `off`; NULL = none. Several items can begin there if all but the last are
 * empty; the last is returned. [any-thread] */
const meta_item *meta_buffer_item(const meta_buffer *buffer, uint64_t off);

/* The description of member d's part of a state: some of its KV heads, or all heads of some pages
 * where caches are cut by sequence. *n_page_out: pages on that member. *is_held_out false: the
 * member holds nothing of it. buffer_state.c. [any-thread] */
tdm_status meta_state_local(const meta_device *device, const tdm_kv_desc *desc, int64_t n_page,
                            const tdm_partition *partition, int32_t d, tdm_kv_desc *desc_out,
                            int64_t *n_page_out, bool *is_held_out, tdm_error *err);

#endif
