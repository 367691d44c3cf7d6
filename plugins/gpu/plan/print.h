/* SPDX-License-Identifier: MIT
 *
 * print.h: what the steps of a plan cost, as text.
 */
#ifndef TANDEM_GPU_PRINT_H
#define TANDEM_GPU_PRINT_H

#include "plugins/gpu/plan/plan.h"
#include "tandem/host.h"

/* [n_slot] the value of each slot, -1 = none. The caller frees it. NULL when out of memory.
 * [any-thread] */
int32_t *gpu_slot_values(const tdm_graph *graph);
/* The name of a slot's value, of gpu_slot_values; "" = none. [any-thread] */
const char *gpu_slot_name(const tdm_graph *graph, const int32_t *values, int32_t slot);

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
