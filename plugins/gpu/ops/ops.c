/* SPDX-License-Identifier: MIT
 *
 * ops.c: the table of emitters.
 */
#include "plugins/gpu/ops/ops.h"

gpu_emit_fn gpu_op_emitter(int32_t op) {
    switch (op) {
    case TDM_OP_ADD: return gpu_op_add;
    case TDM_OP_MUL: return gpu_op_mul;
    case TDM_OP_DIV: return gpu_op_div;
    case TDM_OP_GLU: return gpu_op_glu;
    case TDM_OP_SCALE: return gpu_op_scale;
    case TDM_OP_CLAMP: return gpu_op_clamp;
    case TDM_OP_SQRT: return gpu_op_sqrt;
    case TDM_OP_ACT: return gpu_op_act;
    case TDM_OP_COPY: return gpu_op_copy;
    case TDM_OP_CONCAT: return gpu_op_concat;
    case TDM_OP_REPEAT: return gpu_op_repeat;
    default: return NULL;
    }
}
