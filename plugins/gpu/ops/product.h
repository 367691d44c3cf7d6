/* SPDX-License-Identifier: MIT
 *
 * product.h: the step of a product of matrices with columns, which MATMUL, MOE_FFN and MOE_MATMUL
 * share: chooses the kernel and its tile, and fills the words. Also the words and operands of a
 * weight for all kernels that read weights.
 */
#ifndef TANDEM_GPU_PRODUCT_H
#define TANDEM_GPU_PRODUCT_H

#include "plugins/gpu/plan/emit.h"

/* y of a column = its matrix times x of the column. Of a PLAIN product, column c has the
 * coordinates c = c0 + column_ne[0] * (c1 + column_ne[1] * c2). Of the others c is the number of a
 * pair, a token and one of its experts: u + n_used * token. Strides count elements. */
typedef struct gpu_product {
    const gpu_value *w; /* [k, n, n_matrix] */
    gpu_operand dst, x; /* f32 */
    gpu_product_mode mode;
    int64_t n_column;             /* of each matrix; PAIRS, SORTED: pairs */
    int64_t column_ne[2];         /* PLAIN */
    int64_t x_stride_k;           /* from element to element of a column */
    int64_t x_stride[3];          /* PLAIN: along c0, c1, c2; else [0]: from row to row of x */
    int64_t x_stride_matrix;      /* PLAIN: from matrix to matrix */
    int64_t y_stride_matrix;      /* PLAIN */
    int64_t y_stride;             /* from column to column; rows of y are dense */
    int32_t x_per_token;          /* PAIRS, SORTED: pairs that share a row of x */
    gpu_operand index;            /* PAIRS: ids; SORTED: the table that MOE_SORT writes */
    int64_t n_used, first_expert; /* PAIRS */
    int64_t id_stride[2];         /* PAIRS */
    int64_t n_tile;               /* SORTED: tiles, those without pairs included */
    /* How the stored value follows from the sum (formula: gpu_product_end). All but `up` and `act`
     * is of PLAIN products only. There is either `up`, or an addend and a factor. */
    const gpu_value *up;        /* y = act(w x) * (up x); up has w's type, shape and strides. NULL =
                                   none */
    int32_t act;                /* tdm_act; TDM_ACT_NONE = 0 */
    gpu_operand addend;         /* absent = none */
    bool is_bias;               /* the addend is a value for each row; else it has y's strides */
    int64_t bias_stride;        /* elements */
    gpu_operand factor;         /* absent = none */
    gpu_product_end factor_end; /* GPU_PRODUCT_END_EACH, _ROWS or _COLUMNS */
    bool has_factor_act;        /* `act` applies to the factor instead of the sum */
    bool is_scaled;             /* `before` and `after` apply */
    float before, after;        /* factors before and after `act` */
    /* How products of the same x share its bytes or f16 (ops/quantize.h): by form_of or by
     * `bytes`. */
    gpu_emit *form_of; /* the emitter whose source form_x is x and whose source form_role is
                          `role`: all nodes of the plan with the same sources share the form;
                          NULL = x is no source */
    int form_x, form_role;
    gpu_operand *bytes;    /* without form_of, for products of one node: absent at first; the first
                              product that needs the bytes stores their place here, later ones read
                              it. NULL = not shared */
    gpu_operand role;      /* tdm_role i32 of rows of x; absent = all are TDM_ROLE_GENERATED */
    int64_t role_stride;   /* elements */
    int64_t rows_per_role; /* neighbouring rows of x that share a role */
} gpu_product;

/* Columns of a tile of a SORTED product on this device; the same for all weights, so that one table
 * of MOE_SORT serves several products. */
int32_t gpu_product_sorted_columns(const gpu_target *target);

/* True where a weight has canonical blocks of a quantised type. Kernels multiply these with one
 * column at a time: such a weight must not be in a SORTED product. */
bool gpu_product_is_canonical(const gpu_value *w);

/* True where two matrices may be `w` and `up` of a product. */
bool gpu_product_is_pair(const gpu_value *w, const gpu_value *up);

/* Appends the step, and before it the step that makes bytes or f16 of x where needed. Appends
 * nothing where y has no elements. */
tdm_status gpu_product_emit(gpu_emit *e, const gpu_product *p, tdm_error *err);

/* The words of a weight's layout, word[0 .. 2] = s0, s1, s2 of plan/kernel.h, and its
 * gpu_product_flag bits, without GPU_PRODUCT_WIDE_X. */
tdm_status gpu_weight_words(const gpu_emit *e, const gpu_value *w, int32_t word[3],
                            int32_t *flags_out, tdm_error *err);

/* The codebook of an iq type (tandem/grid.h) as a constant of the plan; absent for other types. */
gpu_operand gpu_weight_grid(gpu_emit *e, tdm_type type);

/* TDM_UNSUPPORTED for a weight that has no layout (gpu_weight_layout_get), with its reason. */
tdm_status gpu_weight_check(const gpu_emit *e, const gpu_value *w, tdm_error *err);

#endif
