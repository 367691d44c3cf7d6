/* SPDX-License-Identifier: MIT
 *
 * rope.h: a ROPE node that is fused into another kernel, for the emitters of that kernel.
 */
#ifndef TANDEM_GPU_OPS_ROPE_H
#define TANDEM_GPU_OPS_ROPE_H

#include "plugins/gpu/plan/emit.h"

/* Operands and words for a kernel that turns rows itself: shaders/page_rope.glsl,
 * kernels/page_row.h. */
typedef struct gpu_rope {
    gpu_operand angles; /* as kernel ANGLE writes them */
    gpu_operand pos;
    int32_t word[4]; /* "rope[4]" of kernel.h: pairs, first element, tdm_rope_mode, stride of pos */
} gpu_rope;

/* Sets *rope_out for the ROPE node `e`. Appends the step that computes the angles where no earlier
 * node has done so. Where the node turns nothing, there are 0 pairs and no operands. */
tdm_status gpu_rope_get(gpu_emit *e, gpu_rope *rope_out, tdm_error *err);

#endif
