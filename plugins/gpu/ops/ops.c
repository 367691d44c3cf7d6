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
    default: return NULL;
    }
}
