/* SPDX-License-Identifier: MIT
 *
 * ops.h: the emitters of all ops and fusions, and steps that several of them share.
 */
#ifndef TANDEM_GPU_OPS_H
#define TANDEM_GPU_OPS_H

#include "plugins/gpu/plan/emit.h"

/* gpu_op_<name> for each op that is no view: arith.c attention.c cache.c exchange.c kv_select.c
 * matmul.c merge.c moe.c move.c norm.c recurrent.c rope.c rows.c select.c */
#define GPU_OP_VIEW(name)
#define GPU_OP_VALUE(name)                           tdm_status gpu_op_##name(gpu_emit *e, tdm_error *err);
#define GPU_OP_CACHE                                 GPU_OP_VALUE
#define GPU_OP_GROUP                                 GPU_OP_VALUE
#define GPU_OP_DECLARE_(ID, name, number, kind, ...) GPU_OP_##kind(name)
TDM_OP_LIST(GPU_OP_DECLARE_)
#undef GPU_OP_DECLARE_

/* gpu_fused_<name>: emitters of the table of fusions, fusions.c (others: streams.h). `nodes` are in
 * the order of the pattern; the entry behind the last has node NULL. */
tdm_status gpu_fused_add_norm_mul(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_add_norm(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_norm_mul(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_norm_scale(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_scale_act_scale(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_scale_act(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_act_scale(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_act_mul(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_mul_act(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_affine_act(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_affine_sinkhorn(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_repeat_mul(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_scaled_sum_of_4(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_sum_of_4(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_sum_of_3(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_conv_act(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_rope_write(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_rope_attention(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_matmul_glu(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_matmul_ends(gpu_emit *nodes, tdm_error *err);

/* Appends the step of a GLU over n elements of f32 that lie one after the other: dst = act(gate) *
 * up. dst may be gate. */
tdm_status gpu_emit_glu(gpu_emit *e, tdm_act act, gpu_operand dst, gpu_operand gate, gpu_operand up,
                        int64_t n, tdm_error *err);

/* Appends the step of a COPY: to = from, two values of one shape, converted. */
tdm_status gpu_emit_copy(gpu_emit *e, const gpu_value *to, const gpu_value *from, tdm_error *err);

#endif
