/* SPDX-License-Identifier: MIT
 *
 * work.h: how much a step reads, writes and computes, for plugins that estimate how long it runs.
 */
#ifndef TANDEM_GPU_WORK_H
#define TANDEM_GPU_WORK_H

#include "plugins/gpu/plan/step.h"

typedef struct gpu_work {
    double bytes;  /* of all operands, each counted once; a cache counts in full */
    double ops;    /* multiply-adds: of products and scans of more than 8 tokens, and of attention
                      over a full cache, which count four times where there are more than 8 tokens;
                      else 0 */
    bool is_upper; /* the step may do less: it works on a cache of which it may use a part, or on
                      experts that several tokens may share */
} gpu_work;

/* What a computation of several steps does. Steps of which is_upper is true count in `most` only. */
typedef struct gpu_work_range {
    gpu_work least, most; /* is_upper is not used */
} gpu_work_range;

/* Estimates a step's work from above, by its operands and words alone. [any-thread] */
gpu_work gpu_step_work(const gpu_step *step);

/* Adds a step's work to the range. [any-thread] */
void gpu_work_add(gpu_work_range *sum, const gpu_work *work);

#endif
