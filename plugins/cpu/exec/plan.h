/* SPDX-License-Identifier: MIT
 *
 * plan.h: a graph made ready to run; what queue.c and device.c need of plan.c.
 */
#ifndef TANDEM_CPU_PLAN_H
#define TANDEM_CPU_PLAN_H

#include "plugins/cpu/cpu.h"
#include "plugins/cpu/exec/scratch.h"

/* Resolves every node, and allocates what running needs of the scratch that the plans of a queue
 * share. The graph and the scratch must outlive the plan. Fails with the status of supports_op, or
 * TDM_RESOURCE_EXHAUSTED. Released with cpu_plan_destroy. [any-thread] */
tdm_status cpu_plan_create(cpu_device *device, cpu_scratch *scratch, const tdm_graph *graph,
                           tdm_plan **plan_out, tdm_error *err);
/* NULL is a no-op. [any-thread] */
void cpu_plan_destroy(tdm_plan *plan);

/* The scratch that the plan was made for. */
const cpu_scratch *cpu_plan_scratch(const tdm_plan *plan);
bool cpu_plan_is_bound(const tdm_plan *plan);
/* Bytes that the plan needs of the scratch, and those that it holds itself. */
void cpu_plan_sizes(const tdm_plan *plan, uint64_t *scratch_size_out, uint64_t *host_size_out);

/* tdm_queue_ops.plan_bind: checks the bindings and computes all addresses. The message names the
 * value. */
tdm_status cpu_plan_bind(tdm_plan *plan, const tdm_binding *bindings, int32_t n_binding,
                         tdm_error *err);

/* Runs a bound plan, the calling thread being worker 0. Counts its nodes in *progress, which only
 * this thread writes. Allocates nothing. One call at a time for a plan. Only an exchange fails:
 * TDM_CANCELLED, or TDM_DEADLINE_EXCEEDED with the member that did not come; what follows it has
 * not run, and the plan may be run again. */
tdm_status cpu_plan_run(tdm_plan *plan, _Atomic uint64_t *progress, tdm_error *err);

#endif
