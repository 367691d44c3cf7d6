/* SPDX-License-Identifier: MIT
 *
 * op_infer.h: the inference functions behind the table of op_rules.c, by family, and the few
 * checks they share. For the op_*.c files only.
 */
#ifndef TANDEM_CORE_OP_INFER_H
#define TANDEM_CORE_OP_INFER_H

#include "core/graph/op_rules.h"

/* Fails with "node 3 (matmul): " before the message. */
TDM_PRINTF(3, 4)
tdm_status tdm_op_fail(const tdm_op_args *a, tdm_error *err, const char *format, ...);
/* Source i has `type`. */
tdm_status tdm_op_need_type(const tdm_op_args *a, int i, const char *word, tdm_type type,
                            tdm_error *err);
/* Source i is a float or quantised type: a matrix. */
tdm_status tdm_op_need_numbers(const tdm_op_args *a, int i, const char *word, tdm_error *err);
/* Source i has shape [n0, n1, n2, n3]; -1 = any length. */
tdm_status tdm_op_need_shape(const tdm_op_args *a, int i, const char *word, int64_t n0, int64_t n1,
                             int64_t n2, int64_t n3, tdm_error *err);
/* A parameter lies in lo .. hi. */
tdm_status tdm_op_need_range(const tdm_op_args *a, const char *word, int64_t value, int64_t lo,
                             int64_t hi, tdm_error *err);
/* A parameter is a finite number, at least `lo`. */
tdm_status tdm_op_need_float(const tdm_op_args *a, const char *word, float value, float lo,
                             tdm_error *err);
/* Parameters of a rotation of heads of head_dim elements. */
tdm_status tdm_op_need_rope(const tdm_op_args *a, const tdm_rope_params *p, int64_t head_dim,
                            tdm_error *err);
void tdm_op_give(tdm_op_result *dst, tdm_type type, int64_t n0, int64_t n1, int64_t n2, int64_t n3);

#define TDM_OP_INFER_(name)                                                                        \
    tdm_status name(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err)

/* op_view.c: views and data movement. */
TDM_OP_INFER_(tdm_infer_reshape);
TDM_OP_INFER_(tdm_infer_permute);
TDM_OP_INFER_(tdm_infer_slice);
TDM_OP_INFER_(tdm_infer_copy);
TDM_OP_INFER_(tdm_infer_concat);
TDM_OP_INFER_(tdm_infer_get_rows);

/* op_arith.c: arithmetic and norms. */
TDM_OP_INFER_(tdm_infer_matmul);
TDM_OP_INFER_(tdm_infer_pair);
TDM_OP_INFER_(tdm_infer_scale);
TDM_OP_INFER_(tdm_infer_act);
TDM_OP_INFER_(tdm_infer_glu);
TDM_OP_INFER_(tdm_infer_softmax);
TDM_OP_INFER_(tdm_infer_rms_norm);
TDM_OP_INFER_(tdm_infer_sum_sq);
TDM_OP_INFER_(tdm_infer_rms_apply);
TDM_OP_INFER_(tdm_infer_rope);

/* op_select.c: selection and experts. */
TDM_OP_INFER_(tdm_infer_top_k);
TDM_OP_INFER_(tdm_infer_moe_route);
TDM_OP_INFER_(tdm_infer_moe_ffn);

/* op_cache.c: everything that touches the cache. */
TDM_OP_INFER_(tdm_infer_kv_write);
TDM_OP_INFER_(tdm_infer_attention);
TDM_OP_INFER_(tdm_infer_kv_shift);
TDM_OP_INFER_(tdm_infer_kv_copy);
TDM_OP_INFER_(tdm_infer_kv_export);
TDM_OP_INFER_(tdm_infer_kv_import);
TDM_OP_INFER_(tdm_infer_lse_merge);

/* op_exchange.c. */
TDM_OP_INFER_(tdm_infer_exchange);

#endif
