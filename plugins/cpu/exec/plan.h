/* SPDX-License-Identifier: MIT
 *
 * plan.h: a graph made ready to run; what queue.c and device.c need of plan.c.
 */
#ifndef TANDEM_CPU_PLAN_H
#define TANDEM_CPU_PLAN_H

#include "plugins/cpu/cpu.h"

/* Resolves every node and allocates all that running needs. The graph outlives the plan. Released
 * with cpu_plan_destroy. [any-thread] */
tdm_status cpu_plan_create(cpu_device *device, const tdm_graph *graph, tdm_plan **plan_out,
                           tdm_error *err);
/* NULL is a no-op. [any-thread] */
void cpu_plan_destroy(tdm_plan *plan);

const cpu_device *cpu_plan_device(const tdm_plan *plan);
/* Entries of an array of base addresses: the slots of the graph. */
int32_t cpu_plan_n_slot(const tdm_plan *plan);
/* Bytes that the plan holds: scratch, and everything else. */
void cpu_plan_sizes(const tdm_plan *plan, uint64_t *scratch_size_out, uint64_t *host_size_out);

/* Are the bindings as many and as large as the graph's slots need? The message names the value.
 * [any-thread] */
tdm_status cpu_plan_check(const tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                          tdm_error *err);
/* The address of each slot by checked bindings; bases_out[n_slot]. [any-thread] */
void cpu_plan_bases(const tdm_plan *plan, const tdm_binding *bindings, uint8_t **bases_out);

/* Runs the plan at these addresses, the calling thread being worker 0. Allocates nothing. One call
 * at a time for a plan. Only an exchange fails: TDM_CANCELLED, or TDM_DEADLINE_EXCEEDED with the
 * member that did not come; what follows it has not run, and the plan may be run again. */
tdm_status cpu_plan_run(tdm_plan *plan, uint8_t *const *bases, tdm_error *err);

#endif
