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
    case TDM_OP_SOFTMAX: return gpu_op_softmax;
    case TDM_OP_RMS_NORM: return gpu_op_rms_norm;
    case TDM_OP_LAYER_NORM: return gpu_op_layer_norm;
    case TDM_OP_SUM_SQ: return gpu_op_sum_sq;
    case TDM_OP_RMS_APPLY: return gpu_op_rms_apply;
    case TDM_OP_ROPE: return gpu_op_rope;
    case TDM_OP_TOP_K: return gpu_op_top_k;
    case TDM_OP_MOE_ROUTE: return gpu_op_moe_route;
    case TDM_OP_LSE_MERGE: return gpu_op_lse_merge;
    case TDM_OP_COPY: return gpu_op_copy;
    case TDM_OP_CONCAT: return gpu_op_concat;
    case TDM_OP_REPEAT: return gpu_op_repeat;
    case TDM_OP_EXCHANGE: return gpu_op_exchange;
    case TDM_OP_KV_WRITE: return gpu_op_kv_write;
    case TDM_OP_ATTENTION: return gpu_op_attention;
    case TDM_OP_KV_SHIFT: return gpu_op_kv_shift;
    case TDM_OP_KV_COPY: return gpu_op_kv_copy;
    case TDM_OP_KV_EXPORT: return gpu_op_kv_export;
    case TDM_OP_KV_IMPORT: return gpu_op_kv_import;
    case TDM_OP_GET_ROWS: return gpu_op_get_rows;
    case TDM_OP_MATMUL: return gpu_op_matmul;
    case TDM_OP_MOE_FFN: return gpu_op_moe_ffn;
    default: return NULL;
    }
}
