/* SPDX-License-Identifier: MIT
 *
 * rope.h: what ROPE needs of emitters that turn rows themselves.
 */
#ifndef TANDEM_GPU_OPS_ROPE_H
#define TANDEM_GPU_OPS_ROPE_H

#include "plugins/gpu/plan/emit.h"

/* A ROPE node inside another kernel: shaders/page_rope.glsl. */
typedef struct gpu_rope {
    gpu_operand angles; /* of kernel ANGLE */
    gpu_operand pos;
    int32_t word[4]; /* pairs, first element, tdm_rope_mode, stride of pos */
} gpu_rope;

/* Of the ROPE node `e`. Appends the step that computes the angles where no earlier node has. Words
 * are 0 where the node turns nothing. */
tdm_status gpu_rope_get(gpu_emit *e, gpu_rope *rope_out, tdm_error *err);

#endif
