/* SPDX-License-Identifier: MIT
 *
 * builder.h: makes graphs. Owns the arrays while they grow, infers every shape from the op's rule
 * (op_rules.h) and keeps the first error, so that callers need not check every call: after a
 * failure every call returns -1 and has no effect, and tdm_builder_finish returns the error.
 *
 * A builder belongs to one thread. Functions that make a value return its index; -1 is "absent" as
 * in graph.h, and the result after a failure. Names are copied; `layer` < 0 means none, otherwise
 * the name becomes "blk.LAYER.NAME".
 */
#ifndef TANDEM_CORE_BUILDER_H
#define TANDEM_CORE_BUILDER_H

#include "tandem/graph.h"

typedef struct tdm_builder tdm_builder;

/* An empty graph under construction; destroyed with tdm_builder_destroy. [any-thread] */
tdm_status tdm_builder_create(tdm_builder **builder_out, tdm_error *err);
/* NULL is a no-op. [any-thread] */
void tdm_builder_destroy(tdm_builder *b);

/* Values that no node produces. A `name` of NULL gives an automatic one. */
int32_t tdm_build_weight(tdm_builder *b, const char *name, tdm_type type,
                         const int64_t ne[TDM_MAX_DIMS], uint32_t usage);
int32_t tdm_build_input(tdm_builder *b, const char *name, tdm_type type,
                        const int64_t ne[TDM_MAX_DIMS]);
/* n_page pages of page_size bytes; adds `desc` to graph->kv and stores its index in *kv_out. */
int32_t tdm_build_state(tdm_builder *b, const char *name, const tdm_kv_desc *desc,
                        uint64_t page_size, int64_t n_page, int32_t *kv_out);
/* A STATE of `size` bytes, such as the arena of exchanges. */
int32_t tdm_build_bytes(tdm_builder *b, const char *name, uint64_t size);
/* The step block, at most one for a graph. Its shape follows from the capacities. */
int32_t tdm_build_step(tdm_builder *b, const tdm_step_caps *caps);
typedef enum tdm_step_field {
    TDM_STEP_TOKEN,
    TDM_STEP_POS,
    TDM_STEP_OUT_ROW,
    TDM_STEP_ROLE,
    TDM_STEP_OUT_ROLE,
    TDM_STEP_FIELD_COUNT_
} tdm_step_field;
/* A SLICE of the step block: i32 [n_out] for the OUT fields, else [n_tok]. The first call for a
 * field adds the node, later calls return the same value. */
int32_t tdm_build_step_field(tdm_builder *b, tdm_step_field field);
/* MATMUL, MOE_FFN and MOE_MATMUL nodes added from here on have `role` as their source of roles; -1,
 * the initial value: they have none. */
void tdm_build_set_role(tdm_builder *b, int32_t role);
/* The value that tdm_build_set_role was given last. */
int32_t tdm_build_role(const tdm_builder *b);

/* Adds a partition (tensor.h) and returns its index; an equal one returns the same index. Values
 * that are cut together but have units of other lengths have a partition each, with the same id,
 * layer, n_unit and n_sub. */
int32_t tdm_build_partition(tdm_builder *b, const tdm_partition *partition);
/* Cuts `axis` of a value by `partition`. */
void tdm_build_set_partition(tdm_builder *b, int32_t value, int32_t partition, int32_t axis);

/* A destination of a node. The caller of a rule (op_rules.h) sets is_present and, where the op
 * leaves them open, type or shape; the rule sets type and shape to what they must be. */
typedef struct tdm_op_result {
    bool is_present; /* an optional one may be absent */
    int32_t type;
    int64_t ne[TDM_MAX_DIMS];
} tdm_op_result;

/* What a node is made from: the functions of builder_nodes.h, one for each op, fill this in. */
typedef struct tdm_node_spec {
    tdm_op op;
    int32_t src[TDM_MAX_SRC]; /* -1 = absent; as many as the op has */
    tdm_op_params params;     /* bytes that the op does not use are zero */
    tdm_op_result dst[TDM_MAX_DST]; /* as the caller of a rule sets them */
} tdm_node_spec;
/* Adds the node and its destinations; second_out (nullable) receives the second, -1 where there is
 * none. Returns the first, or -1 where there is none or something failed. */
int32_t tdm_build_node(tdm_builder *b, const tdm_node_spec *spec, int32_t *second_out);
/* Description `kv` of the graph under construction; NULL where there is none. Valid until the next
 * call. */
const tdm_kv_desc *tdm_build_kv_desc(const tdm_builder *b, int32_t kv);

/* Marks a temporary as read by the caller after each step, under `name`. */
void tdm_build_output(tdm_builder *b, int32_t value, const char *name);
/* Names a value, for messages, profiles and override patterns. */
void tdm_build_name(tdm_builder *b, int32_t value, const char *name, int layer);
/* Shape of a value under construction; NULL after a failure. Valid until the next call. */
const int64_t *tdm_build_shape(const tdm_builder *b, int32_t value);
/* The graph under construction; NULL after a failure. Valid until the next call. */
const tdm_graph *tdm_build_graph(const tdm_builder *b);
/* Records a failure of the caller's own, kept like the builder's. */
TDM_PRINTF(3, 4)
void tdm_build_fail(tdm_builder *b, tdm_status status, const char *format, ...);

/* Verifies and hands over the graph; the builder is empty afterwards and may be destroyed. The
 * caller releases the graph with tdm_graph_free. Counts in TDM_COUNTER_GRAPHS_BUILT. */
tdm_status tdm_builder_finish(tdm_builder *b, tdm_graph **graph_out, tdm_error *err);

/* Frees a graph made by tdm_builder_finish or tdm_graph_extract; NULL is a no-op. [any-thread] */
void tdm_graph_free(tdm_graph *graph);

/* The services of tdm_host_graph_ops, for callers inside the host. [any-thread] */
tdm_status tdm_graph_verify(const tdm_graph *graph, tdm_error *err);
uint64_t tdm_graph_hash(const tdm_graph *graph);
tdm_status tdm_graph_plan_memory(const tdm_graph *graph, uint64_t align, uint64_t *offsets_out,
                                 uint64_t *size_out, tdm_error *err);
/* A new graph of nodes first .. first+count-1. Values that cross the boundary become INPUT (read
 * from outside) or OUTPUT (read later); slot_map_out[new slot] = slot in `graph`, n_slot of the new
 * graph entries (array of at least graph->n_slot). The base of a view that crosses into the new
 * graph is an INPUT of it, and the view nodes are copied. Views that no other node of the new graph
 * reads are left out, and so are weights and states that none reads. Freed with tdm_graph_free. */
tdm_status tdm_graph_extract(const tdm_graph *graph, int32_t first, int32_t count,
                             tdm_graph **graph_out, int32_t *slot_map_out, tdm_error *err);
/* Whether the graph has weights or states that no node reads, or views alone. tdm_graph_extract
 * leaves them out. */
tdm_status tdm_graph_find_unread(const tdm_graph *graph, bool *has_unread_out, tdm_error *err);
/* The name of an op ("matmul"). Never NULL. [any-thread] */
const char *tdm_op_name(int32_t op);

#include "core/graph/builder_nodes.h"

#endif
