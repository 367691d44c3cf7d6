/* SPDX-License-Identifier: MIT
 *
 * buffer.h: a group's buffers.
 *
 * Two kinds. A *sharded* buffer was allocated with items (tandem/buffer.h): each item is a weight or
 * a cache, of which every active member holds a slice in one buffer of its own; the group's own
 * offsets only name items. An item that is plain bytes lies whole on every active member. A *host*
 * buffer (any other) is memory of the host, where the caller puts inputs and finds outputs; it is
 * imported into the members that can, so that they read it in place.
 */
#ifndef TANDEM_META_BUFFER_H
#define TANDEM_META_BUFFER_H

#include "plugins/meta/layout/slice.h"

typedef struct meta_item {
    uint64_t off, size; /* in the group's buffer */
    bool is_state;
    tdm_tensor_desc tensor; /* of a weight, with its partition */
    tdm_kv_desc kv;         /* of a state, whole */
    int64_t n_page;
    tdm_partition partition; /* of a state */
    /* [n_member]: where each member's slice lies in its buffer; size 0 = nothing there */
    uint64_t *member_off, *member_size;
} meta_item;

struct tdm_buffer {
    meta_device *device;
    uint64_t size;
    int32_t purpose;
    uint8_t *host; /* of a host buffer, size bytes, page-aligned; else NULL */
    meta_item *items;
    int32_t n_item;
    uint64_t *item_sizes;                 /* storage of the items' arrays */
    tdm_buffer *members[TDM_MAX_MEMBERS]; /* sharded: the member's buffer, NULL = nothing there.
                                             host: the import, NULL = the member cannot */
    bool is_imported;                     /* the host memory is the caller's */
    size_t host_size;                     /* bytes of host memory, whole pages; 0 where imported */
};
typedef tdm_buffer meta_buffer;

/* The item that begins at `off`; NULL where none does. Of several, all empty but for the last, the
 * last. [any-thread] */
const meta_item *meta_buffer_item(const meta_buffer *buffer, uint64_t off);

/* The cache description that member d keeps of a state: KV heads lo .. hi-1 of it, or all of them
 * and some of the pages where caches are cut by sequence. false: it keeps nothing. n_page_out:
 * pages on that member. buffer_state.c. [any-thread] */
tdm_status meta_state_local(const meta_device *device, const tdm_kv_desc *desc, int64_t n_page,
                            const tdm_partition *partition, int32_t d, tdm_kv_desc *desc_out,
                            int64_t *n_page_out, bool *is_held_out, tdm_error *err);

#endif
