/* SPDX-License-Identifier: MIT
 *
 * view.h: where the elements of a value lie inside the memory of another.
 *
 * A view node (RESHAPE, PERMUTE, SLICE) has no addresses. Here base, offset and strides are derived
 * from it, for the verifier and for all plugins of this project. The executor adds the address: the
 * binding of the base's slot.
 */
#ifndef TANDEM_BASE_VIEW_H
#define TANDEM_BASE_VIEW_H

#include "tandem/graph.h"

typedef struct tdm_view_place {
    int32_t base;             /* value that owns the memory; the value itself where it is no view */
    int64_t off;              /* bytes from the base's first byte to this value's first element */
    int64_t nb[TDM_MAX_DIMS]; /* bytes from one element to the next along each axis; along the axis
                                 of a quantised type's blocks (always 0) from block to block */
} tdm_view_place;

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

#endif
