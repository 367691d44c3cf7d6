/* SPDX-License-Identifier: MIT
 *
 * ops.h: the emitter of each op.
 */
#ifndef TANDEM_GPU_OPS_H
#define TANDEM_GPU_OPS_H

#include "plugins/gpu/plan/emit.h"

/* gpu_op_<name>: arith.c move.c norm.c rope.c select.c matmul.c moe.c attention.c cache.c */
tdm_status gpu_op_add(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_mul(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_div(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_glu(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_scale(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_clamp(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_sqrt(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_act(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_softmax(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_rms_norm(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_layer_norm(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_sum_sq(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_rms_apply(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_rope(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_top_k(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_moe_route(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_lse_merge(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_copy(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_concat(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_repeat(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_get_rows(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_matmul(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_moe_ffn(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_exchange(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_kv_write(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_attention(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_kv_shift(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_kv_copy(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_kv_export(gpu_emit *e, tdm_error *err);
tdm_status gpu_op_kv_import(gpu_emit *e, tdm_error *err);

/* gpu_fused_<name>: emitters of the fusion table, fusions.c. nodes are in the order of its pattern. */
tdm_status gpu_fused_add_norm(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_rope_write(gpu_emit *nodes, tdm_error *err);
tdm_status gpu_fused_rope_attention(gpu_emit *nodes, tdm_error *err);

/* Appends the step of a COPY: to = from, two values of one shape, converted. */
tdm_status gpu_emit_copy(gpu_emit *e, const gpu_value *to, const gpu_value *from, tdm_error *err);

#endif
