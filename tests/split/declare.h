/* SPDX-License-Identifier: MIT
 *
 * declare.h: layouts of values declared at random (tandem/split.h: split_set), so that a rule meets
 * its sources in layouts that no rule would give them. What is declared follows from the seed
 * alone.
 */
#ifndef TANDEM_TESTS_DECLARE_H
#define TANDEM_TESTS_DECLARE_H

#include "core/device/runtime.h"
#include "tandem/split.h"

/* A layout that cuts a value of that shape along one axis, over members of which those that are
 * active get something: one or more segments, repeated or not, ranges that ascend and may overlap
 * or lie in any order of members. */
void declare_draw(uint64_t *random, const int64_t ne[TDM_MAX_DIMS], int32_t n_member,
                  const bool *is_active, tdm_layout *out);

/* Declares layouts for up to `n` values of a graph that is to run on `group`. A refused layout
 * stays as it was, with a message. *n_out counts the accepted ones. */
tdm_status declare_some(tdm_open_device *group, const tdm_graph *graph, uint64_t seed, int32_t n,
                        int32_t n_member, const bool *is_active, int32_t *n_out, tdm_error *err);

#endif
