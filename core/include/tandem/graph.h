/* SPDX-License-Identifier: MIT
 *
 * graph.h: a computation as data.
 *
 * A graph is flat arrays of values and nodes: no pointers between them, no callbacks, no
 * addresses. It can be hashed, compared, cut, printed and sent. Nodes are stored in an order in
 * which they can run: each source is produced earlier, and nodes that touch the same STATE keep
 * their order. A value is written by at most one node.
 *
 * A value names a binding slot, never memory: the caller of a computation passes a buffer and an
 * offset for each slot (tdm_binding in queue.h). A view (RESHAPE, PERMUTE, SLICE) has slot -1: it
 * lives inside its source. Temporaries have slots too. A device with TDM_DEVICE_HOLDS_TEMPS keeps
 * them in the scratch of its queue and may leave out those that fusing makes needless. For other
 * devices the caller plans their memory by lifetime: two temporaries that never live at the same
 * time, in the order of the nodes, may be bound to the same bytes, so that such a device must not
 * fuse across nodes.
 *
 * A graph's builder owns it, and keeps it alive and unchanged while any plan made of it lives.
 */
#ifndef TANDEM_GRAPH_H
#define TANDEM_GRAPH_H

#include "tandem/kv.h"
#include "tandem/op.h"
#include "tandem/step.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum tdm_value_kind {
    TDM_VALUE_TEMP = 0, /* produced and consumed inside */
    TDM_VALUE_WEIGHT,   /* constant across steps; private layout where it has usage flags */
    TDM_VALUE_STATE,    /* kept across steps, changed in place; i8 [page_size, n_page] */
    TDM_VALUE_INPUT,    /* uploaded by the caller before each step */
    TDM_VALUE_OUTPUT    /* read by the caller after each step */
} tdm_value_kind;

typedef struct tdm_value {
    int32_t kind; /* tdm_value_kind */
    int32_t type; /* tdm_type */
    int64_t ne[TDM_MAX_DIMS];
    int32_t slot;      /* 0 .. graph->n_slot - 1, each used once; -1 for a view */
    uint32_t usage;    /* TDM_USAGE_*, of a WEIGHT */
    int32_t partition; /* index into graph->partitions; 0 = none */
    int32_t axis;      /* which axis the partition cuts */
    int32_t name;      /* offset into graph->names */
    int32_t reserved;  /* 0 */
} tdm_value;

typedef struct tdm_node {
    int32_t op;    /* tdm_op */
    int32_t n_src; /* all that the op has, absent ones included */
    int32_t n_dst;
    int32_t reserved;
    int32_t src[TDM_MAX_SRC]; /* value indices; -1 = optional source absent, and past n_src */
    int32_t dst[TDM_MAX_DST]; /* value indices; -1 = optional destination absent, and past n_dst */
    tdm_op_params params;
} tdm_node;

typedef struct tdm_graph {
    size_t struct_size;
    size_t value_size; /* sizeof(tdm_value) for the builder: the arrays' stride, so that */
    size_t node_size;  /* both may grow by appended fields */
    size_t partition_size;
    size_t kv_size;
    const tdm_value *values;
    const tdm_node *nodes;
    const tdm_partition *partitions; /* [0] is "none" */
    const tdm_kv_desc *kv;
    const char *names; /* NUL-terminated strings, one after the other; offset 0 is "" */
    int32_t n_value;
    int32_t n_node;
    int32_t n_partition;
    int32_t n_kv;
    int32_t n_slot;
    int32_t names_size;      /* bytes */
    tdm_step_caps step_caps; /* of the step block, where the graph has one */
    int32_t step;            /* value index of the step block; -1 = none */
    int32_t reserved;
    uint64_t hash; /* of structure and shapes, not of names; 0 = not computed */
} tdm_graph;

/* Element i of one of the graph's arrays, by stride. [any-thread] */
static inline const tdm_value *tdm_graph_value(const tdm_graph *graph, int32_t i) {
    return (const tdm_value *)(const void *)((const char *)graph->values +
                                             (size_t)i * graph->value_size);
}
static inline const tdm_node *tdm_graph_node(const tdm_graph *graph, int32_t i) {
    return (const tdm_node *)(const void *)((const char *)graph->nodes +
                                            (size_t)i * graph->node_size);
}
static inline const tdm_kv_desc *tdm_graph_kv(const tdm_graph *graph, int32_t i) {
    return (const tdm_kv_desc *)(const void *)((const char *)graph->kv +
                                               (size_t)i * graph->kv_size);
}
static inline const tdm_partition *tdm_graph_partition(const tdm_graph *graph, int32_t i) {
    return (const tdm_partition *)(const void *)((const char *)graph->partitions +
                                                 (size_t)i * graph->partition_size);
}
static inline const char *tdm_graph_value_name(const tdm_graph *graph, int32_t i) {
    return graph->names + tdm_graph_value(graph, i)->name;
}

/* True for the ops whose destination is a view of their first source. [any-thread] */
static inline bool tdm_op_is_view(int32_t op) {
    return op == TDM_OP_RESHAPE || op == TDM_OP_PERMUTE || op == TDM_OP_SLICE;
}

/* Where the elements of a value lie. A view node has no addresses: base, offset and strides are
 * derived from it (tdm_host_graph_ops.view_places). The executor adds the address, which is the
 * binding of the base's slot. Arrays of it have a fixed stride: its size is frozen. */
typedef struct tdm_view_place {
    int32_t base;             /* value that owns the memory; the value itself where it is no view */
    int32_t reserved;         /* 0 */
    int64_t off;              /* bytes from the base's first byte to this value's first element */
    int64_t nb[TDM_MAX_DIMS]; /* bytes from one element to the next along each axis; along the axis
                                 of a quantised type's blocks (always 0) from block to block */
} tdm_view_place;

#ifdef __cplusplus
}
#endif

#endif
