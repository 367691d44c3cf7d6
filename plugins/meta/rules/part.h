/* SPDX-License-Identifier: MIT
 *
 * part.h: one member's part of a graph: a tdm_graph under construction, and for each of its slots
 * where the memory comes from. The rules decide which nodes are added.
 */
#ifndef TANDEM_META_PART_H
#define TANDEM_META_PART_H

#include "core/base/view.h"
#include "plugins/meta/meta.h"

/* Where the memory of a slot comes from. */
typedef enum meta_slot_source {
    META_SLOT_TEMP,   /* the member's scratch */
    META_SLOT_WEIGHT, /* the slice of a WEIGHT of the group's graph */
    META_SLOT_STATE,  /* the slice of a STATE */
    META_SLOT_INPUT,  /* an INPUT of the group's graph, whole */
    META_SLOT_STEP,   /* the step block, rewritten for this member (caches cut by sequence) */
    META_SLOT_OUTPUT, /* in the scratch; delivered to the caller after the run */
    META_SLOT_ARENA,  /* the group's arena */
    META_SLOT_PEER,   /* the peer memory of the group's exchanges (exchange/peer.h) */
    META_SLOT_EPOCH,  /* a step header with the group's epoch, for EXCHANGE */
    META_SLOT_ZEROS   /* bytes of 0 */
} meta_slot_source;

typedef struct meta_slot {
    int32_t source; /* meta_slot_source */
    int32_t value;  /* of the group's graph; -1 = none */
    uint64_t size;  /* canonical bytes; not used for a weight in a private layout */
} meta_slot;

typedef struct meta_part {
    const tdm_host *host;
    /* Points to the three arrays below, for readers. Its names are those of the group's graph. */
    tdm_graph graph;
    tdm_value *values;      /* [graph.n_value] owned by the part, as are all arrays here */
    tdm_node *nodes;        /* [graph.n_node] */
    tdm_kv_desc *kv;        /* [graph.n_kv] */
    tdm_view_place *places; /* [graph.n_value] */
    meta_slot *slots;       /* [graph.n_slot] */
    int32_t cap_value, cap_node, cap_kv, cap_slot, cap_place;
    int32_t arena, peer, epoch; /* value indices; -1 = not added yet */
    uint64_t zeros_size;        /* bytes of the largest ZEROS value */
} meta_part;

/* Makes an empty part of the graph `whole`, whose names must live as long as the part. */
void meta_part_begin(const tdm_host *host, const tdm_graph *whole, meta_part *part);
/* Frees what the part owns. Does nothing on a zeroed struct. */
void meta_part_end(meta_part *part);

/* Adds a value that no node produces; returns its index, -1 without memory. `like` gives kind,
 * type, usage and name; ne the local shape; `value` is that of the group's graph, -1 = none. */
int32_t meta_part_add_value(meta_part *part, const tdm_value *like, const int64_t ne[TDM_MAX_DIMS],
                            meta_slot_source source, int32_t value);
/* Adds a copy of a description; returns its index, -1 without memory. */
int32_t meta_part_add_kv(meta_part *part, const tdm_kv_desc *desc);
/* Makes a temporary with its own slot (not a view) outlive the run: it becomes an OUTPUT of the
 * part, for a piece of `value` of the group's graph. */
void meta_part_keep(meta_part *part, int32_t v, int32_t value);
/* True for a value with its own memory that a node computes; false for -1. The base of a view is
 * another value. */
bool meta_part_is_keepable(const meta_part *part, int32_t v);
/* A destination of a node of a part. */
typedef struct meta_result {
    int32_t type; /* tdm_type; < 0 = an optional destination that is absent */
    int32_t name; /* offset in the names of the group's graph */
    int64_t ne[TDM_MAX_DIMS];
} meta_result;
/* Adds a node. params NULL: all 0. src[n_src]: values of the part, -1 = absent. The destinations
 * are new TEMP values, or views where the op is one; dst_out[n_dst] receives their indices, -1 =
 * absent. False without memory. */
bool meta_part_add_node(meta_part *part, int32_t op, const tdm_op_params *params,
                        const int32_t *src, int32_t n_src, const meta_result *dst, int32_t n_dst,
                        int32_t *dst_out);

/* Views and copies of one value; -1 without memory. A view that changes nothing is the value. */
int32_t meta_part_reshape(meta_part *part, int32_t v, const int64_t ne[TDM_MAX_DIMS]);
int32_t meta_part_slice(meta_part *part, int32_t v, int32_t axis, int64_t off, int64_t len);
int32_t meta_part_concat(meta_part *part, int32_t a, int32_t b, int32_t axis);
/* The value itself where it is contiguous, else a copy. */
int32_t meta_part_contiguous(meta_part *part, int32_t v);

/* Bytes from the first element of a value to the end of its last. Of a view they include the
 * gaps. */
uint64_t meta_part_span(const meta_part *part, int32_t v);

static inline const tdm_value *meta_part_value(const meta_part *part, int32_t v) {
    return &part->values[v];
}

/* The type, name and shape of a value. */
static inline meta_result meta_result_like(const tdm_value *v) {
    return (meta_result){v->type, v->name, {v->ne[0], v->ne[1], v->ne[2], v->ne[3]}};
}

#endif
