/* SPDX-License-Identifier: MIT
 *
 * plan_text.h: a plan's list of steps as text.
 */
#ifndef TANDEM_TESTS_PLAN_TEXT_H
#define TANDEM_TESTS_PLAN_TEXT_H

#include "plugins/gpu/plan/plan.h"

/* The list, a line for each step and a line of dashes for each barrier:
 *
 *   kernel(spec) threads x workgroups: what it writes = what it reads {words}
 *
 * An operand is the name of its slot's value, or t<number> for a temporary, then @offset where that
 * is not 0, then :bytes. `has_words` prints the words too; zeros at the end of spec and words are
 * left out. The caller frees the text with free(). NULL when out of memory. */
char *gpu_plan_text(const gpu_plan *plan, const tdm_graph *graph, bool has_words);

#endif
