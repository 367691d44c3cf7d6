/* SPDX-License-Identifier: MIT
 *
 * op_state.h: which ops use a STATE or a cache description, and which of them change the STATE.
 *
 * For the core and the plugins of this project. Derived from the rows of TDM_OP_LIST. The only list
 * of its own (op_state.c) has the ops that read a STATE and do not change it.
 */
#ifndef TANDEM_BASE_OP_STATE_H
#define TANDEM_BASE_OP_STATE_H

#include <stdbool.h>

#include "tandem/graph.h"

/* True for the ops whose first parameter, params.kv.kv, is the index of a cache description; false
 * for a number that is not an op. [any-thread] */
bool tdm_op_uses_kv(int32_t op);

/* The source of a node that is a STATE, of cache ops and EXCHANGE (the arena); -1 for other ops and
 * for a number that is not an op. [any-thread] */
int32_t tdm_op_state(const tdm_node *node);

/* True for the ops that change their STATE sources in place. An op with a STATE counts as one of
 * them unless op_state.c lists it as a reader: the plan of a new op has at worst a barrier too
 * many. [any-thread] */
bool tdm_op_writes_state(int32_t op);

#endif
