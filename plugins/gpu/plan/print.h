/* SPDX-License-Identifier: MIT
 *
 * print.h: the cost of a plan's steps as text, for --verbose and tests.
 */
#ifndef TANDEM_GPU_PRINT_H
#define TANDEM_GPU_PRINT_H

#include "plugins/gpu/plan/plan.h"
#include "tandem/host.h"

/* [n_slot] the value of each slot, -1 = none. The caller frees it with free(). NULL when out of
 * memory. [any-thread] */
int32_t *gpu_slot_values(const tdm_graph *graph);
/* The name of a slot's value; `values` are of gpu_slot_values. "" where the slot has no value.
 * Valid while the graph lives. [any-thread] */
const char *gpu_slot_name(const tdm_graph *graph, const int32_t *values, int32_t slot);

/* The cost of one run of the plan: a line for each layer or range of equal layers, then the sum.
 * Counted are dispatches, barriers, and the bytes of weights, of temporaries and of other memory
 * (inputs, outputs) that kernels read and write. Bytes of caches depend on the step and are not
 * counted. A step belongs to the layer of the weight or cache that it touches, by the name
 * ("blk.3."), or else to the layer of the step that was emitted before it. The caller frees the
 * text with free(). NULL when out of memory. [any-thread] */
char *gpu_plan_cost_text(const gpu_plan *plan, const tdm_graph *graph);

/* Logs that text, a message for each line, for users of --verbose. `name` is the device's.
 * [any-thread] */
void gpu_plan_cost_log(const gpu_plan *plan, const tdm_graph *graph, const tdm_host *host,
                       const char *name);

#endif
