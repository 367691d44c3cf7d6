/* SPDX-License-Identifier: MIT
 *
 * step.h: a plan as a list of steps, each of which launches one kernel. The planner makes the list
 * (plan.h); a plugin adds the addresses and records or captures the launches. Nothing here depends
 * on a driver.
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
    GPU_SPACE_AREA,     /* a temporary (gpu_area in maker.h) of a plan that is being made: index is
                           the area's number. A finished plan has none */
    GPU_SPACE_SCRATCH,  /* the queue's scratch, in a finished plan. index is still the area's
                           number: addresses do not depend on it, checks of plans do */
    GPU_SPACE_CONSTANT, /* the plan's constants (gpu_plan.constants); index is 0 */
    GPU_SPACE_COUNTER   /* the plan's counters (gpu_plan.counters_size); index is 0. Each counter
                           belongs to one step */
} gpu_space;

/* An operand of a step. The step touches no other bytes through it than [off, off + size) of its
 * memory: the planner orders steps by these ranges. The kernel gets the address of byte `off`.
 * Memory bound to a slot that a step writes overlaps memory bound to no other slot. */
typedef struct gpu_operand {
    int32_t space; /* gpu_space */
    int32_t index; /* slot or area; -1 = out of memory while the plan is made */
    uint64_t off;  /* bytes */
    uint64_t size; /* bytes */
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
    uint64_t inner; /* bytes at the end of operand 0 that no other step uses; 0 = none */
    int64_t trips; /* upper bound of the iterations of all loops that one invocation runs, added up;
                      loops that are unrolled when the kernel is compiled do not count. 0 = none.
                      Checked against gpu_target.max_trips */
    /* Bytes that the step reads of each operand that is a WEIGHT, for texts and estimates of time;
     * 0 = all of the operand. Set for lookups of rows and for chosen experts */
    uint64_t weight_size;
    bool has_barrier; /* all steps before it in the list have ended, and their writes are visible,
                         before it begins */
} gpu_step;

/* The kernel's name in GPU_KERNEL_LIST; whether it writes an operand. `kernel` is a valid
 * gpu_kernel. [any-thread] */
const char *gpu_kernel_name(int32_t kernel);
bool gpu_kernel_writes(int32_t kernel, int operand);

/* True where the operands are bytes of the same memory and share at least one. Both are of the same
 * plan, finished or in the making. [any-thread] */
bool gpu_operands_overlap(const gpu_operand *a, const gpu_operand *b);

#endif
