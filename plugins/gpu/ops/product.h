/* SPDX-License-Identifier: MIT
 *
 * product.h: the step of a product of matrices and columns, which MATMUL, MOE_FFN and MOE_MATMUL share:
 * chooses
 * the kernel and its tile, and fills the words.
 */
#ifndef TANDEM_GPU_PRODUCT_H
#define TANDEM_GPU_PRODUCT_H

#include "plugins/gpu/plan/emit.h"

/* y of a column = its matrix times x of the column. Column c of a PLAIN product has the place
 * c = c0 + column_ne[0] * (c1 + column_ne[1] * c2); of the others it is the number of a pair, a
 * token and one of its experts: u + n_used * token. Strides count elements. */
typedef struct gpu_product {
    const gpu_value *w; /* [k, n, n_matrix] */
    gpu_operand dst, x; /* f32 */
    gpu_product_mode mode;
    int64_t n_column;             /* of each matrix; PAIRS, SORTED: pairs */
    int64_t column_ne[2];         /* PLAIN */
    int64_t x_stride_k;           /* from element to element of a column */
    int64_t x_stride[3];          /* PLAIN: along c0, c1, c2; else [0]: from row to row of x */
    int64_t x_stride_matrix;      /* PLAIN */
    int64_t y_stride_matrix;      /* PLAIN */
    int64_t y_stride;             /* from column to column; rows of y are dense */
    int32_t x_per_token;          /* PAIRS, SORTED: pairs that share a row of x */
    gpu_operand index;            /* PAIRS: ids; SORTED: what kernel MOE_SORT writes */
    int64_t n_used, first_expert; /* PAIRS */
    int64_t id_stride[2];         /* PAIRS */
    int64_t n_tile;               /* SORTED: tiles, those without pairs included */
    /* What is stored instead of y: gpu_product_end. Besides `up` and `act`, of PLAIN products alone.
     * There is either `up`, or an addend and a factor. */
    const gpu_value *up; /* act(y) * (up x); up has w's type, shape and strides. NULL = not */
    int32_t act;                /* tdm_act; TDM_ACT_NONE = 0 */
    gpu_operand addend;         /* absent = none */
    bool is_bias;               /* the addend is a value for each row, else it has y's strides */
    int64_t bias_stride;        /* elements */
    gpu_operand factor;         /* absent = none */
    gpu_product_end factor_end; /* GPU_PRODUCT_END_EACH, _ROWS or _COLUMNS */
    bool has_factor_act;        /* act is of the factor */
    bool is_scaled;
    float before, after; /* where it is scaled: around act */
    /* For kernels that multiply bytes or f16 (ops/quantize.h); products that share them multiply
     * the same. */
    gpu_emit *form_of;  /* the emitter whose source form_x is x and source form_role `role`: products
                           of the same x share its bytes, of whatever nodes. NULL = x is no source */
    int form_x, form_role;
    gpu_operand *bytes; /* shared by products of the same x, without form_of: the first that needs x
                              as bytes puts their place here. NULL = not shared */
    gpu_operand role;   /* tdm_role i32 of rows of x; absent = all are generated */
    int64_t role_stride;   /* elements */
    int64_t rows_per_role; /* neighbouring rows of x that share a role */
} gpu_product;

/* Columns that a tile of a SORTED product has on this device, whatever the weight is. A canonical
 * weight has no SORTED product. */
int32_t gpu_product_sorted_columns(const gpu_target *target);

/* Whether a weight has canonical blocks of a quantised type, which kernels multiply with one column
 * at a time. */
bool gpu_product_is_canonical(const gpu_value *w);

/* True where two matrices may be `w` and `up` of a product. */
bool gpu_product_is_pair(const gpu_value *w, const gpu_value *up);

/* Appends the step. Nothing is appended where y has no elements. */
tdm_status gpu_product_emit(gpu_emit *e, const gpu_product *p, tdm_error *err);

/* Spec number 1 and words of a weight's layout, as all kernels that read weights have them:
 * word[0 .. 2] = distances, in blocks, of neighbouring blocks of a row, of rows, of matrices. */
tdm_status gpu_weight_words(const gpu_emit *e, const gpu_value *w, int32_t word[3],
                            int32_t *flags_out, tdm_error *err);

/* The grid of a type as an operand; absent for a type without one. */
gpu_operand gpu_weight_grid(gpu_emit *e, tdm_type type);

/* A refusal for a type without numbers. */
tdm_status gpu_weight_check(const gpu_emit *e, const gpu_value *w, tdm_error *err);

#endif
