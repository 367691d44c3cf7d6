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
/* Optional source i holds roles (op.h, MATMUL): one for each element of the last axes of source x,
 * of which `first_axis` is the first that may belong to them. */
tdm_status tdm_op_need_roles(const tdm_op_args *a, int i, int x, int first_axis, tdm_error *err);
/* A parameter, `word` in the message, lies in lo .. hi. */
tdm_status tdm_op_need_range(const tdm_op_args *a, const char *word, int64_t value, int64_t lo,
                             int64_t hi, tdm_error *err);
/* A parameter is a finite number, at least `lo`. */
tdm_status tdm_op_need_float(const tdm_op_args *a, const char *word, float value, float lo,
                             tdm_error *err);
/* Parameters of a rotation of heads of head_dim elements. */
tdm_status tdm_op_need_rope(const tdm_op_args *a, const tdm_rope_params *p, int64_t head_dim,
                            tdm_error *err);
/* Sets type and shape of a destination. */
void tdm_op_give(tdm_op_result *dst, tdm_type type, int64_t n0, int64_t n1, int64_t n2, int64_t n3);

/* tdm_infer_<infer> of each row of TDM_OP_LIST; some rows share one. Views and data movement are in
 * op_view.c, arithmetic, norms and rotation in op_arith.c, selection and experts in op_select.c,
 * what touches the cache in op_cache.c, recurrences in op_recurrent.c, EXCHANGE in op_exchange.c.
 */
#define TDM_OP_INFER_(ID, name, number, kind, infer, ...)                                          \
    tdm_status tdm_infer_##infer(const tdm_op_args *a, tdm_op_result *dst, tdm_error *err);
TDM_OP_LIST(TDM_OP_INFER_)
#undef TDM_OP_INFER_

#endif
