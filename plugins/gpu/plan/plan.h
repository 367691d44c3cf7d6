/* SPDX-License-Identifier: MIT
 *
 * plan.h: from a graph to a list of steps.
 *
 * The planner resolves views, calls each op's emitter (plugins/gpu/ops/ops.h) or that of a fusion
 * (fuse.h), sorts the steps so that few barriers are needed, marks the steps that need one, and
 * gives temporaries their places in the scratch by lifetime. It does not depend on a driver:
 * Vulkan, CUDA and HIP use the same.
 */
#ifndef TANDEM_GPU_PLAN_H
#define TANDEM_GPU_PLAN_H

#include "plugins/gpu/plan/emit.h"

typedef struct gpu_plan {
    gpu_step *steps; /* n_step, in the order in which they are launched */
    int32_t n_step;
    int32_t n_slot;        /* of the graph */
    uint64_t *slot_sizes;  /* n_slot: bytes that a binding must have; 0 = the plan does not use the
                              slot. Slots of temporaries are 0: they live in scratch */
    uint64_t scratch_size; /* bytes of scratch, from an address that is a multiple of 256 */
    uint8_t *constants;    /* constants_size bytes that kernels read and none writes. The plugin
                              copies them to device memory, to an address that is a multiple of 16,
                              before the first run */
    uint64_t constants_size; /* 0 = the plan has none */
    /* Bytes of counters of 32 bits, 0 = none. The plugin provides device memory for them, at a
     * multiple of 4, and zeroes it before the first run. Each kernel sets its counters to zero
     * again before it ends */
    uint64_t counters_size;
} gpu_plan;

/* Makes the list for a verified graph. The graph need not outlive the plan. TDM_UNSUPPORTED with
 * the reason where an op is refused; TDM_RESOURCE_EXHAUSTED without memory. Released with
 * gpu_plan_destroy. [any-thread] */
tdm_status gpu_plan_create(const gpu_target *target, const tdm_graph *graph, gpu_plan **plan_out,
                           tdm_error *err);

/* NULL is a no-op. [any-thread] */
void gpu_plan_destroy(gpu_plan *plan);

/* TDM_OK where the node can be planned on this device; else TDM_UNSUPPORTED with the reason. A view
 * node is always supported. Allocates nothing that it keeps. [any-thread] */
tdm_status gpu_plan_supports(const gpu_target *target, const tdm_graph *graph, int32_t node,
                             tdm_error *err);

#endif
