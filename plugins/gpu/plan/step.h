/* SPDX-License-Identifier: MIT
 *
 * step.h: a plan as a list of steps, each of which launches one kernel. The planner makes the list
 * (plan.h); a plugin puts in addresses and records or captures it. Nothing here depends on a driver.
 */
#ifndef TANDEM_GPU_STEP_H
#define TANDEM_GPU_STEP_H

#include <stdbool.h>
#include <stdint.h>

#include "plugins/gpu/plan/kernel.h"

/* Where an operand lies. */
typedef enum gpu_space {
    GPU_SPACE_NONE = 0, /* absent */
    GPU_SPACE_SLOT,     /* memory bound to a slot of the graph */
    GPU_SPACE_AREA,     /* a temporary of the plan, while it is made: index is the area's number */
    GPU_SPACE_SCRATCH, /* the queue's scratch, in a finished plan. index is still the area's number:
                           addresses do not depend on it, checks of plans do */
    GPU_SPACE_CONSTANT, /* the plan's constants (gpu_plan.constants); index is 0 */
    GPU_SPACE_COUNTER /* the plan's counters (gpu_plan.counters_size); index is 0. One step has each */
} gpu_space;

/* The bytes [off, off + size) of its memory are all that the step may touch through it, and `off`
 * is the address that the kernel is given. Memory bound to one slot never overlaps memory bound to
 * another that a step writes. */
typedef struct gpu_operand {
    int32_t space; /* gpu_space */
    int32_t index; /* slot or area */
    uint64_t off;
    uint64_t size;
} gpu_operand;

typedef struct gpu_step {
    int32_t kernel;     /* gpu_kernel */
    int32_t node;       /* of the graph, for messages; the last one where several are fused */
    int32_t order;      /* number among the plan's steps as emitters appended them. A plan launches
                           them in another order where that saves barriers */
    int32_t group_size; /* threads of a workgroup */
    uint32_t grid[3];   /* workgroups */
    int32_t spec[GPU_MAX_SPEC];
    gpu_operand operand[GPU_MAX_OPERAND];
    int32_t word[GPU_MAX_WORD];
    uint64_t inner; /* bytes at the end of operand 0 that only the step itself uses; 0 = none */
    int64_t trips; /* upper bound of the iterations of all loops that one invocation runs, added up;
                      loops that are unrolled when the kernel is compiled do not count. 0 = none.
                      Checked against gpu_target.max_trips */
    /* bytes that the step reads of each operand that is a WEIGHT, for texts and predictions; 0 =
     * all of the operand. For lookups and chosen experts */
    uint64_t weight_size;
    bool has_barrier; /* what earlier steps wrote is visible, and what they read may be overwritten,
                         before this one begins */
} gpu_step;

/* The kernel's name in the list; whether it writes an operand. [any-thread] */
const char *gpu_kernel_name(int32_t kernel);
bool gpu_kernel_writes(int32_t kernel, int operand);

/* True where the operands are bytes of the same memory and share at least one. Both are of the same
 * plan, finished or in the making. [any-thread] */
bool gpu_operands_overlap(const gpu_operand *a, const gpu_operand *b);

#endif
