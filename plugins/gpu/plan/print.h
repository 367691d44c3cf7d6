/* SPDX-License-Identifier: MIT
 *
 * print.h: plans as text: the list of steps, and what they cost.
 */
#ifndef TANDEM_GPU_PRINT_H
#define TANDEM_GPU_PRINT_H

#include "plugins/gpu/plan/plan.h"
#include "tandem/host.h"

/* The list, a line for each step and a line of dashes for each barrier:
 *
 *   kernel(spec) threads x workgroups: what it writes = what it reads {words}
 *
 * An operand is the name of its slot's value, or t<number> for a temporary, then @offset where that
 * is not 0, then :bytes. `has_words` prints the words too; zeros at the end of spec and words are
 * left out. The caller frees the text with free(). NULL when out of memory. [any-thread] */
char *gpu_plan_text(const gpu_plan *plan, const tdm_graph *graph, bool has_words);

/* What a run of the plan costs, a line for each layer or run of equal layers, then the sum:
 * dispatches, barriers, bytes of weights, of temporaries, and of other memory (inputs, outputs)
 * that kernels read and write. What they touch of caches depends on the step and is not counted. A
 * step belongs to the layer whose weight or cache it reads ("blk.3."), or else to the layer of the
 * step emitted before it. The caller frees the text with free(). NULL when out of memory.
 * [any-thread] */
char *gpu_plan_cost_text(const gpu_plan *plan, const tdm_graph *graph);

/* Logs that text, a message for each line, for users of --verbose. `name` is the device's.
 * [any-thread] */
void gpu_plan_cost_log(const gpu_plan *plan, const tdm_graph *graph, const tdm_host *host,
                       const char *name);

#endif
