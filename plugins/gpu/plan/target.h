/* SPDX-License-Identifier: MIT
 *
 * target.h: the limits and features of a device that the planner uses, without types of a driver. A
 * plugin fills it once when it opens the device.
 */
#ifndef TANDEM_GPU_TARGET_H
#define TANDEM_GPU_TARGET_H

#include <stdbool.h>
#include <stdint.h>

/* How products are divided (ops/product.c). A plugin fills it by the kind of device, from
 * measurements, never by a device's name. 0 = default. */
typedef struct gpu_product_tuning {
    int32_t lane_max_subgroup; /* threads of the largest subgroup for which PRODUCT_LANE is used;
                                  -1 = neither PRODUCT_LANE nor ATTENTION_LANE is used. Default 8,
                                  at most 16 */
    int32_t lane_group;        /* threads of PRODUCT_LANE. Default four subgroups */
    int32_t lane_columns;      /* columns of a tile of PRODUCT_LANE: 1, 2, 4 or 8. Default 8 */
    int32_t row_group;         /* most threads of PRODUCT_ROW. Default 128 */
    int32_t row_rows;          /* rows of a workgroup of PRODUCT_ROW, a power of two. Default 4, or
                                  2 from 5 columns on */
    int32_t row_max_columns;   /* columns up to which PRODUCT_ROW is used. Default 8 */
    bool has_no_tiles;         /* PRODUCT_TILE is never used */
    bool has_fixed_tiles; /* PRODUCT_ROW and PRODUCT_ROW_DOT exist for 1, 2 and 4 columns with 4
                             rows and for 8 columns with 2; for canonical blocks for one
                             column with 2 rows. PRODUCT_TILE is for plain types alone */
    /* PRODUCT_TILE_MATRIX has 256 threads for tiles of 128 rows and 32, 64 or 128 columns, and
     * takes f16 weights in wide rows alone (GPU_PRODUCT_WIDE_WEIGHT) */
    bool has_wide_matrices;
    bool has_block_matrices; /* PRODUCT_TILE_BLOCK as well, where there are more than 64 columns */
    int32_t matrix_least;    /* columns from which wide matrices are used. Default 9 */
    /* k from which one column of quantised weights is multiplied by integer dot products, where the
     * device has them (has_dot8). Default 2048 */
    int32_t dot_one_k;
    int32_t quantize_lanes; /* threads of QUANTIZE that share a group of 32 elements. Default 1 */
    bool rows_quantize; /* kernels that compute x of a product store its bytes too: quantize.c */
} gpu_product_tuning;

/* How rows are reduced (ops/norm.c). */
typedef struct gpu_norm_tuning {
    int32_t share;      /* elements of a thread in a step of fewer than 64 rows. Default 16 */
    int32_t long_share; /* in a step of more rows. Default 128 */
} gpu_norm_tuning;

/* Which kernels of ATTENTION are used (ops/attention.c). All of them compute the same. */
typedef struct gpu_attention_tuning {
    bool has_no_lanes; /* ATTENTION_LANE is not used */
    bool has_no_parts; /* ATTENTION_PART is not used where ATTENTION_TILE can replace it */
    bool has_no_tiles; /* ATTENTION_TILE is not used */
    /* Numbers that a thread of ATTENTION_TILE may hold in registers: scores, sums, and a unit of K
     * while it is decoded. With more of them a tile has more threads, up to tile_group: 128, 256 or
     * 512. tile_group 0 = 128, always */
    int32_t tile_registers, tile_group;
    int32_t part_sums; /* most sums that a thread of ATTENTION_PART holds. 0 = 64, the most */
    /* ATTENTION_TILE_MATRIX with matrices of a subgroup (gpu_target.matrix_rows) is not used */
    bool has_no_matrices;
    bool has_no_latent_matrices; /* the same of ATTENTION_LATENT_MATRIX */
    /* ATTENTION_TILE_MATRIX and ATTENTION_LATENT_MATRIX of CUDA and HIP are used where they can
     * replace ATTENTION_TILE and ATTENTION_PART */
    bool has_matrices;
    int32_t matrix_least_tok; /* tokens of a step from which has_matrices holds. Default 9, as for
                                 ATTENTION_TILE */
    int32_t part_teams; /* most teams of 64 threads of ATTENTION_PART and SELECT_SCORE, which divide
                           the heads; a power of two. 0 and 1 = one */
} gpu_attention_tuning;

struct gpu_step; /* step.h */

typedef struct gpu_target {
    char name[32];          /* of the device, for messages */
    int32_t subgroup_min;   /* threads of a subgroup (warp, wave), powers of two, 1 .. 128 */
    int32_t subgroup_max;   /* equal to subgroup_min where the size is fixed or required */
    int32_t max_group_size; /* threads of a workgroup */
    uint32_t max_grid[3];   /* workgroups along each axis */
    uint32_t shared_size;   /* bytes of shared memory of a workgroup */
    uint32_t shared_most;   /* the same of a kernel for which the plugin requests more; 0 =
                               shared_size */
    int32_t n_unit;         /* compute units; 0 = unknown */
    int32_t max_trips;      /* iterations of all loops that one invocation may run; 0 = no limit.
                               Drivers with such a limit end loops there without an error, so that
                               results would be wrong */
    uint64_t max_range;     /* bytes that one operand may span; 0 = no limit */
    bool is_host;           /* its memory is the host's: integrated, or a CPU */
    bool is_unfused;        /* each node is planned by itself, for tests (fuse.h) */
    bool has_f16;           /* arithmetic in f16 */
    bool has_dot8;          /* dot products of four signed bytes in hardware */
    /* Matrix hardware that a subgroup uses together, with f16 operands and f32 sums: rows and
     * columns of the matrix of sums of one instruction, which adds 16 products to each. 0 = none.
     * PRODUCT_TILE_MATRIX, ATTENTION_TILE_MATRIX and ATTENTION_LATENT_MATRIX use it */
    int32_t matrix_rows, matrix_columns;
    bool is_matrix_plain; /* kernels named HALF instead of MATRIX, for tests */
    /* The last workgroup of a step that ends may read what the others have stored, without a
     * barrier between steps (gpu_emit_counters) */
    bool counts_groups;
    bool may_wait; /* kernels may wait for other members of a group (WIRE_WAIT) */
    gpu_product_tuning product;
    gpu_attention_tuning attention;
    gpu_norm_tuning norm;
    /* True for a step that the device computes wrongly, as a check of the plugin has found: it is
     * refused. NULL = there are no such steps. Called by any thread */
    bool (*is_wrong)(void *context, const struct gpu_step *step);
    void *is_wrong_context;
    const bool *has_kernel; /* GPU_KERNEL_COUNT_: kernels that exist for the device. NULL = all */
} gpu_target;

#endif
