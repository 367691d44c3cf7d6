/* SPDX-License-Identifier: MIT
 *
 * builder_state.h: the builder's inside, shared by builder.c (arrays, values, failure, hand-over)
 * and builder_nodes.c (a function per op).
 */
#ifndef TANDEM_CORE_BUILDER_STATE_H
#define TANDEM_CORE_BUILDER_STATE_H

#include "core/base/view.h"
#include "core/graph/builder.h"

struct tdm_builder {
    tdm_graph graph;        /* its arrays have room for cap_* elements */
    tdm_view_place *places; /* of every value */
    int32_t step_field[3];  /* by tdm_step_field; -1 = not made yet */
    int32_t cap_value, cap_node, cap_partition, cap_kv, cap_name, cap_place;
    tdm_error err; /* the first failure */
};

/* True while nothing has failed. */
static inline bool tdm_builder_is_ok(const tdm_builder *b) {
    return b->err.status == TDM_OK;
}

/* Adds a value of `kind`, checked, and returns its index; -1 on failure. `slot` of a view is -1,
 * otherwise the next one is dealt out. `name` NULL: "WORD.INDEX". */
int32_t tdm_builder_add_value(tdm_builder *b, tdm_value_kind kind, int32_t type,
                              const int64_t ne[TDM_MAX_DIMS], const char *name, const char *word,
                              bool is_view);

/* The next node's storage, zeroed, sources and destinations -1; counted by whoever finishes it.
 * NULL on failure. */
tdm_node *tdm_builder_next_node(tdm_builder *b);

#endif
