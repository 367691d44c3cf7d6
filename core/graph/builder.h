/* SPDX-License-Identifier: MIT
 *
 * builder.h: makes graphs. Owns the arrays while they grow, infers every shape from the op's rule
 * (op_rules.h) and keeps the first error, so that model code is written without a check per line:
 * after a failure every call returns -1 and does nothing, and tdm_builder_finish reports it.
 *
 * A builder belongs to one thread. Values are named by int32 index; -1 is "absent" as in graph.h.
 * Names are copied; `layer` < 0 means none, otherwise the name becomes "blk.LAYER.NAME".
 */
#ifndef TANDEM_CORE_BUILDER_H
#define TANDEM_CORE_BUILDER_H

#include "tandem/graph.h"

typedef struct tdm_builder tdm_builder;

/* An empty graph under construction; destroyed with tdm_builder_destroy. [any-thread] */
tdm_status tdm_builder_create(tdm_builder **builder_out, tdm_error *err);
/* NULL is a no-op. [any-thread] */
void tdm_builder_destroy(tdm_builder *b);

/* Values that no node produces. */
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
typedef enum tdm_step_field { TDM_STEP_TOKEN, TDM_STEP_POS, TDM_STEP_OUT_ROW } tdm_step_field;
/* A SLICE of the step block: i32 [n_tok], [n_tok] or [n_out]. Made once for each field. */
int32_t tdm_build_step_field(tdm_builder *b, tdm_step_field field);

/* Adds a partition (graph.h) and returns its index; an equal one returns the same index. Values
 * that are cut together but have units of other lengths have a partition each, with the same id,
 * layer and count of units. */
int32_t tdm_build_partition(tdm_builder *b, const tdm_partition *partition);
/* Says that `axis` of a value is cut by `partition`. */
void tdm_build_set_partition(tdm_builder *b, int32_t value, int32_t partition, int32_t axis);

/* Nodes: each returns its first destination. Sources as in op.h. */
int32_t tdm_build_reshape(tdm_builder *b, int32_t x, int64_t ne0, int64_t ne1, int64_t ne2,
                          int64_t ne3);
int32_t tdm_build_permute(tdm_builder *b, int32_t x, int a0, int a1, int a2, int a3);
int32_t tdm_build_slice(tdm_builder *b, int32_t x, const int64_t offset[TDM_MAX_DIMS],
                        const int64_t ne[TDM_MAX_DIMS]);
int32_t tdm_build_copy(tdm_builder *b, int32_t x, tdm_type type);
int32_t tdm_build_concat(tdm_builder *b, int32_t x, int32_t y, int axis);
int32_t tdm_build_get_rows(tdm_builder *b, int32_t table, int32_t id, int64_t first_row);
int32_t tdm_build_matmul(tdm_builder *b, int32_t w, int32_t x);
int32_t tdm_build_add(tdm_builder *b, int32_t x, int32_t y);
int32_t tdm_build_mul(tdm_builder *b, int32_t x, int32_t y);
int32_t tdm_build_scale(tdm_builder *b, int32_t x, float scale, float bias);
int32_t tdm_build_act(tdm_builder *b, int32_t x, tdm_act act);
int32_t tdm_build_glu(tdm_builder *b, int32_t gate, int32_t up, tdm_act act);
int32_t tdm_build_softmax(tdm_builder *b, int32_t x);
int32_t tdm_build_rms_norm(tdm_builder *b, int32_t x, int32_t weight, float eps);
int32_t tdm_build_sum_sq(tdm_builder *b, int32_t x);
int32_t tdm_build_rms_apply(tdm_builder *b, int32_t x, int32_t sum, int32_t weight, float eps,
                            int64_t n);
int32_t tdm_build_rope(tdm_builder *b, int32_t x, int32_t pos, int32_t factor,
                       const tdm_rope_params *params);
int32_t tdm_build_top_k(tdm_builder *b, int32_t x, int32_t k, int32_t index_base, int32_t *id_out);
int32_t tdm_build_moe_route(tdm_builder *b, int32_t logit, int32_t bias,
                            const tdm_route_params *params, int32_t *weight_out);
int32_t tdm_build_moe_ffn(tdm_builder *b, int32_t x, int32_t id, int32_t weight, int32_t gate,
                          int32_t up, int32_t down, tdm_act act, int32_t first_expert,
                          int32_t n_expert_all);
void tdm_build_kv_write(tdm_builder *b, int32_t k, int32_t v, int32_t step, int32_t state,
                        int32_t kv);
/* ml_out NULL: the (m, l) output is absent. */
int32_t tdm_build_attention(tdm_builder *b, int32_t q, int32_t step, int32_t state, int32_t sink,
                            const tdm_attention_params *params, int32_t *ml_out);
void tdm_build_kv_shift(tdm_builder *b, int32_t step, int32_t state, int32_t factor, int32_t kv,
                        const tdm_rope_params *rope);
void tdm_build_kv_copy(tdm_builder *b, int32_t step, int32_t state, int32_t kv);
int32_t tdm_build_kv_export(tdm_builder *b, int32_t step, int32_t state, int32_t kv, int64_t n_row,
                            int32_t *v_out);
void tdm_build_kv_import(tdm_builder *b, int32_t k, int32_t v, int32_t step, int32_t state,
                         int32_t kv);
int32_t tdm_build_lse_merge(tdm_builder *b, int32_t o, int32_t ml);
/* x is -1 where the member sends nothing, residual where there is none; the result has this type
 * and shape. */
int32_t tdm_build_exchange(tdm_builder *b, int32_t x, int32_t arena, int32_t step, int32_t residual,
                           tdm_type type, const int64_t ne[TDM_MAX_DIMS],
                           const tdm_exchange_params *params);

/* Marks a temporary as read by the caller after each step, under `name`. */
void tdm_build_output(tdm_builder *b, int32_t value, const char *name);
/* Names a value, for messages, profiles and override patterns. */
void tdm_build_name(tdm_builder *b, int32_t value, const char *name, int layer);
/* Shape of a value under construction; NULL after a failure. Valid until the next call. */
const int64_t *tdm_build_shape(const tdm_builder *b, int32_t value);
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
/* True when structure and shapes are equal (names apart). [any-thread] */
bool tdm_graph_equal(const tdm_graph *a, const tdm_graph *b);
/* A line per node, as text for people; the caller frees it with free(). NULL without memory. */
char *tdm_graph_print(const tdm_graph *graph);
/* A new graph of nodes first .. first+count-1. Values that cross the boundary become INPUT (read
 * from outside) or OUTPUT (read later); slot_map_out[new slot] = slot in `graph`, n_slot of the new
 * graph entries (array of at least graph->n_slot). The base of a view that crosses in comes along,
 * with the view nodes that lead to it. Freed with tdm_graph_free. */
tdm_status tdm_graph_extract(const tdm_graph *graph, int32_t first, int32_t count,
                             tdm_graph **graph_out, int32_t *slot_map_out, tdm_error *err);
/* An op's word ("matmul"). Never NULL. [any-thread] */
const char *tdm_op_name(int32_t op);

#endif
