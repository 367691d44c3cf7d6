/* SPDX-License-Identifier: MIT
 *
 * target.h: the limits and features of a device that the planner uses, without types of a driver. A
 * plugin fills it once when it opens the device.
 */
#ifndef TANDEM_GPU_TARGET_H
#define TANDEM_GPU_TARGET_H

#include <stdbool.h>
#include <stdint.h>

/* How products are divided (ops/product.c). Table data of a plugin: chosen by measurement, from
 * what a device is, never by its name. 0 = default. */
typedef struct gpu_product_tuning {
    int32_t lane_max_subgroup; /* largest subgroup for which PRODUCT_LANE is used; -1 = never,
                                  nor ATTENTION_LANE. Default 8, at most 16 */
    int32_t lane_group;        /* its threads. Default four subgroups */
    int32_t lane_columns;      /* its columns of a tile: 1, 2, 4 or 8. Default 8 */
    int32_t row_group;         /* most threads of PRODUCT_ROW. Default 128 */
    int32_t row_rows;          /* its rows of a workgroup, a power of two. Default 4, or 2 from 5
                                  columns on */
    int32_t row_max_columns;   /* columns up to which it is used. Default 8 */
    bool has_no_tiles;         /* PRODUCT_TILE is never used */
    bool has_fixed_tiles; /* PRODUCT_ROW and PRODUCT_ROW_DOT exist for 1, 2 and 4 columns with 4
                                  rows and for 8 columns with 2; for canonical blocks for one
                                  column with 2 rows. PRODUCT_TILE is for plain types alone */
    bool
        has_wide_matrices; /* PRODUCT_TILE_MATRIX has 256 threads for tiles of 128 rows and 32, 64 or
                                  128 columns, and takes f16 in wide rows alone */
    bool has_block_matrices; /* PRODUCT_TILE_BLOCK as well, where there are more than 64 columns */
    int32_t matrix_least;    /* columns from which it is used. Default 9 */
    int32_t dot_one_k; /* k from which one column of quantised weights uses integer dot products,
                             where the device has them. Default 2048 */
    int32_t quantize_lanes; /* threads of QUANTIZE that share a group of 32 elements. Default 1 */
    bool rows_quantize; /* norms and ATTENTION_MERGE store bytes of what they write: quantize.c */
} gpu_product_tuning;

/* How rows are reduced (ops/norm.c). */
typedef struct gpu_norm_tuning {
    int32_t share;      /* elements of a thread, where a step has few rows. Default 16 */
    int32_t long_share; /* where it has many. Default 128 */
} gpu_norm_tuning;

/* Kernels of ATTENTION that are not used (ops/attention.c). Each computes what the others do. */
typedef struct gpu_attention_tuning {
    bool has_no_lanes; /* ATTENTION_LANE */
    bool has_no_parts; /* ATTENTION_PART, where ATTENTION_TILE can replace it */
    bool has_no_tiles; /* ATTENTION_TILE */
    bool has_no_matrices; /* ATTENTION_TILE_MATRIX with matrices of a subgroup (matrix_rows) */
    bool
        has_matrices; /* ATTENTION_TILE_MATRIX instead of ATTENTION_TILE, where it can replace it */
    int32_t matrix_least_tok; /* tokens of a step from which it is used. Default: those from which
                                 ATTENTION_TILE is */
    int32_t part_teams; /* most teams of threads of ATTENTION_PART, which share out its heads; a
                           power of two. Default 1 */
} gpu_attention_tuning;

struct gpu_step; /* step.h */

typedef struct gpu_target {
    char name[32];          /* of the device, for messages */
    int32_t subgroup_min;   /* threads of a subgroup (warp, wave), powers of two, 1 .. 128 */
    int32_t subgroup_max;   /* equal to subgroup_min where the size is fixed or required */
    int32_t max_group_size; /* threads of a workgroup */
    uint32_t max_grid[3];   /* workgroups along each axis */
    uint32_t shared_size;   /* bytes of shared memory of a workgroup */
    uint32_t shared_most;   /* of one of a kernel that asks for more; 0 = shared_size */
    int32_t n_unit;         /* compute units; 0 = unknown */
    int32_t max_trips;      /* iterations of all loops that one invocation may run; 0 = no limit.
                               Exceeding it is silent on drivers that have such a limit */
    uint64_t max_range;     /* bytes that one operand may span; 0 = no limit */
    bool is_host;           /* its memory is the host's: integrated, or a CPU */
    bool is_unfused;        /* each node is planned by itself, for tests (fuse.h) */
    bool has_f16;           /* arithmetic in f16 */
    bool has_dot8;          /* products of four signed bytes, added up, in hardware */
    /* Matrix hardware that a subgroup uses, f16 operands and f32 sums: rows and columns of a matrix of
     * sums that PRODUCT_TILE_MATRIX and ATTENTION_TILE_MATRIX take, of 16 products each. 0 = none */
    int32_t matrix_rows, matrix_columns;
    bool is_matrix_plain; /* PRODUCT_TILE_HALF and ATTENTION_TILE_HALF instead, for tests */
    bool
        counts_groups; /* the last of some workgroups of a step may go on with what all have stored:
                             gpu_emit_counters */
    bool may_wait;        /* kernels may wait for other members of a group (WIRE_WAIT) */
    gpu_product_tuning product;
    gpu_attention_tuning attention;
    gpu_norm_tuning norm;
    /* Steps that the device computes wrongly, as a check has found; they are refused. NULL =
     * none. */
    bool (*is_wrong)(void *context, const struct gpu_step *step);
    void *is_wrong_context;
    const bool *has_kernel; /* GPU_KERNEL_COUNT_: kernels that exist for the device. NULL = all */
} gpu_target;

#endif
