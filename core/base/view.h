/* SPDX-License-Identifier: MIT
 *
 * view.h: where the elements of a value lie inside the memory of another (tdm_view_place in
 * graph.h), and which nodes write and read that memory.
 *
 * For the verifier and for the plugins of this project; other plugins call the same through the
 * host's table (host.h).
 */
#ifndef TANDEM_BASE_VIEW_H
#define TANDEM_BASE_VIEW_H

#include "tandem/graph.h"

/* The place of a value that is no view: offset 0 and contiguous strides. [any-thread] */
void tdm_view_place_base(const tdm_value *value, int32_t index, tdm_view_place *out);

/* The place of a view `node` of `x`, which lies at `x_place`; `y` is the node's destination. For a
 * node that obeys the rules of its op (op_rules.h). out may be x_place. [any-thread] */
void tdm_view_place_step(const tdm_node *node, const tdm_value *y, const tdm_value *x,
                         const tdm_view_place *x_place, tdm_view_place *out);

/* True when the elements lie one after the other in canonical order, so that RESHAPE may rename
 * them. Axes of length 1 have any stride; an empty value is contiguous. [any-thread] */
bool tdm_view_is_contiguous(const tdm_value *value, const tdm_view_place *place);

/* The place of one value of a verified graph. Walks the nodes once. [any-thread] */
void tdm_view_resolve(const tdm_graph *graph, int32_t value, tdm_view_place *out);

/* The places of all values of a verified graph: places_out[n_value]. [any-thread] */
void tdm_view_resolve_all(const tdm_graph *graph, tdm_view_place *places_out);

/* tdm_host_graph_ops.uses: which node writes each value, and how many sources read its memory.
 * [any-thread] */
void tdm_view_uses(const tdm_graph *graph, const tdm_view_place *places, int32_t *writer_out,
                   int32_t *n_read_out);

#endif
