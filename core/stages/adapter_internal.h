/* SPDX-License-Identifier: MIT
 *
 * adapter_internal.h: what the adapter*.c files share. Not for others.
 *
 * An adapted device has two sides: the device itself (main) and the CPU (fallback). Each weight and
 * cache lives on one of them. The side depends on whether main supports one node that reads such a
 * weight or cache: allocation and planning use the same test, so that they agree.
 */
#ifndef TANDEM_CORE_ADAPTER_INTERNAL_H
#define TANDEM_CORE_ADAPTER_INTERNAL_H

#include <stdatomic.h>

#include "core/stages/queue_adapter.h"
#include "core/device/runtime_internal.h"

typedef enum adapter_side {
    ADAPTER_MAIN = 0,
    ADAPTER_FALLBACK = 1,
    ADAPTER_SIDE_COUNT_
} adapter_side;

/* The handle that callers of tdm_adapter_acquire hold. */
struct tdm_device {
    tdm_device *next; /* of the runtime's list */
    tdm_runtime *rt;
    tdm_open_device *main;
    tdm_plugin table; /* that the caller gets */
    uint64_t align;   /* of offsets on either side */
    /* a plan with stages was made: from then on a worker runs all plans in order */
    atomic_bool is_staged;
};

/* One of the items that a buffer was allocated with. */
typedef struct adapter_item {
    uint64_t off, size; /* in the caller's buffer */
    uint64_t local;     /* offset in the memory of `side` */
    adapter_side side;
} adapter_item;

/* The handle of a buffer. */
struct tdm_buffer {
    tdm_device *device;
    uint64_t size;
    uint64_t id;                   /* no other buffer has or had it */
    atomic_uint_least64_t version; /* grows with each write other than by a plan */
    tdm_mem mem[ADAPTER_SIDE_COUNT_];
    adapter_item *items; /* [n_item] in order of off; NULL: all of it is mem[ADAPTER_MAIN] */
    int32_t n_item;
};

/* Where a range that begins at `off` lies. */
typedef struct adapter_place {
    tdm_mem mem;
    uint64_t off;
    adapter_side side;
} adapter_place;

extern const tdm_buffer_ops adapter_buffer_ops;
extern const tdm_queue_ops adapter_queue_ops;

/* The CPU, opened on first use. NULL where there is none or it cannot be opened; *why (nullable)
 * receives the reason. [any-thread] */
tdm_open_device *adapter_fallback(tdm_device *device, tdm_error *why);

/* The side on which a weight or a cache of this kind lives. [any-thread] */
adapter_side adapter_tensor_side(tdm_device *device, const tdm_tensor_desc *desc);
adapter_side adapter_kv_side(tdm_device *device, const tdm_kv_desc *desc);
/* The same for a source of node `index`; `base` is the value that owns the source's memory. Main
 * where that is neither a WEIGHT nor a STATE. [any-thread] */
adapter_side adapter_source_side(tdm_device *device, const tdm_graph *graph, int32_t index,
                                 int32_t base);
/* Where the weights and caches that a node reads live. */
typedef struct adapter_needs {
    bool is_state;        /* it uses a cache */
    bool state_fallback;  /* that cache lives on the fallback */
    bool weight_fallback; /* some of its weights do */
} adapter_needs;

/* Adds a source of this kind (TDM_VALUE_*). */
static inline void adapter_needs_add(adapter_needs *needs, int32_t kind, bool is_on_fallback) {
    if (kind != TDM_VALUE_STATE) {
        needs->weight_fallback |= is_on_fallback;
        return;
    }
    needs->is_state = true;
    needs->state_fallback |= is_on_fallback;
}

/* The side that runs a node. A node that uses a cache runs where that lives: its weights are plain,
 * and are copied there. TDM_UNSUPPORTED, with the reasons of both sides in *why, where neither runs
 * it. Where the fallback runs it, *why receives the reason of main. [any-thread] */
tdm_status adapter_node_side(tdm_device *device, const tdm_graph *graph, int32_t index,
                             const adapter_needs *needs, adapter_side *side_out, tdm_error *why);

/* Where a range that begins at offset `off` of a buffer lies; false in the gaps between items.
 * Several empty items, and behind them one with bytes, may begin at the same offset: an empty range
 * there lies on `side` if one of them does. `side` is read for empty ranges only. [any-thread] */
bool adapter_buffer_at(const tdm_buffer *buffer, uint64_t off, bool is_empty, adapter_side side,
                       adapter_place *out);

#endif
