/* SPDX-License-Identifier: MIT
 *
 * product.c: see product.h. Seven kernels compute products:
 *   PRODUCT_ROW   few columns: the threads of a workgroup divide k
 *   PRODUCT_LANE  small subgroups: a thread has rows of its own and all of k
 *   PRODUCT_TILE  many columns: tiles in shared memory
 *   PRODUCT_ROW_DOT, PRODUCT_TILE_DOT the same with integer dot products, for quantised weights: x
 *                 is first rounded to 15 bits, or to 8 bits for rows of prompts, and stored as
 *                 bytes. For one column only from some k on (dot_one_k): for a shorter k the step
 *                 that makes the bytes costs more time than it saves
 *   PRODUCT_TILE_MATRIX  many columns on matrix hardware: x becomes f16 first
 *   PRODUCT_TILE_BLOCK   more columns, on matrix hardware that four waves use together
 * The choice of kernel and tile depends on the product's shape and types and on the target
 * (gpu_product_tuning), never on data.
 */
#include "plugins/gpu/ops/product.h"

#include <string.h>

#include "plugins/gpu/layout/weight.h"
#include "plugins/gpu/ops/quantize.h"
#include "quant/grids.h"

enum {
    GROUP_LEN = 32, /* elements of k that kernels take at a time */
    TILE_THREADS = 128,
    TILE_ROWS = 64,
    TILE_COLUMNS = 32,
    TILE_SHARED = (TILE_ROWS + TILE_COLUMNS) * GROUP_LEN * 4,
    DOT_WIDE_SHARED = 16 << 10, /* bytes of shared memory of PRODUCT_TILE_DOT with 64 columns */
    DOT_WIDE_COLUMNS = 64,
    DOT_ONE_K = 2048,
    /* PRODUCT_TILE_MATRIX of Vulkan */
    MATRIX_COLUMNS = 64,  /* of a tile; of SORTED products TILE_COLUMNS */
    MATRIX_SUBGROUPS = 4, /* of a workgroup, each with SUB_ROWS rows and half of the columns */
    MATRIX_SUB_ROWS = 32,
    MATRIX_LOADS = 2 * TILE_ROWS, /* half groups of weights in a tile */
    MATRIX_PITCH = 80,            /* bytes of a row of its tiles */
    MATRIX_PLAIN_TRIPS = 9,       /* loop iterations of one group of PRODUCT_TILE_HALF */
    /* PRODUCT_TILE_MATRIX with has_wide_matrices (target.h), and PRODUCT_TILE_BLOCK */
    WIDE_THREADS = 256,
    WIDE_ROWS = 128,
    WIDE_MAX_COLUMNS = 128,
    WIDE_LEAST = 9,         /* columns from which it is used */
    WIDE_SHARED = 48 << 10, /* bytes of shared memory with 128 columns */
    BLOCK_COLUMNS = 128,    /* of a tile of PRODUCT_TILE_BLOCK, or twice as many */
    BLOCK_TIME = 3,         /* time of such a tile, relative to BLOCK_WIDE_TIME */
    BLOCK_WIDE_TIME = 4,    /* time of a tile of twice as many columns */
    WIDE_TILES_OF_UNIT = 1, /* with fewer tiles for each compute unit, tiles get narrower */
    LANE_ROWS = 8,          /* of a thread: product_lane.comp */
    LANE_QUADS = 8,         /* loop iterations for the elements of a group */
    LANE_HALVES = 2,        /* others for the halves of a group of a type with blocks */
    LANE_MANY_ROWS = 1024,  /* rows from which PRODUCT_LANE has large workgroups */
    ROW_MAX_SUBGROUP = 32,  /* subgroups of a workgroup: product_row.comp */
    ROW_MAX_SUM = 16        /* sums that a thread of PRODUCT_ROW holds, without has_fixed_tiles */
};

/* ---- Weights --------------------------------------------------------------------------------- */

tdm_status gpu_weight_check(const gpu_emit *e, const gpu_value *w, tdm_error *err) {
    gpu_weight_layout layout;
    tdm_error inner = {.struct_size = sizeof inner};
    if (gpu_weight_layout_get(w->type, w->ne, w->usage, &layout, &inner) == TDM_OK) return TDM_OK;
    return gpu_refuse(e, err, "%s", inner.message);
}

/* The distances of neighbouring blocks of a row, of rows and of matrices, in blocks. */
static void strides_get(const gpu_value *w, tdm_type_info info, int64_t stride[3]) {
    stride[0] = 1;
    stride[1] = w->ne[0] / info.block_len;
    stride[2] = stride[1] * w->ne[1];
    if (!w->is_private)
        for (int i = 0; i < 3; i++) stride[i] = w->nb[i] / info.block_size;
}

/* GPU_PRODUCT_WIDE_WEIGHT. */
static bool is_wide_weight(const gpu_value *w) {
    tdm_type_info info = tdm_type_get_info(w->type);
    int64_t size = info.block_size, stride[3];
    strides_get(w, info, stride);
    return !info.is_quantized && stride[0] == 1 && w->ne[0] % GROUP_LEN == 0 &&
           stride[1] * size % 16 == 0 && stride[2] * size % 16 == 0 && w->place.off % 16 == 0;
}

tdm_status gpu_weight_words(const gpu_emit *e, const gpu_value *w, int32_t word[3],
                            int32_t *flags_out, tdm_error *err) {
    tdm_type_info info = tdm_type_get_info(w->type);
    int64_t stride[3];
    tdm_status status = TDM_OK;
    strides_get(w, info, stride);
    for (int i = 0; i < 3 && status == TDM_OK; i++) status = gpu_word(e, &word[i], stride[i], err);
    *flags_out = w->is_private ? GPU_PRODUCT_PLANAR : 0;
    if (is_wide_weight(w)) *flags_out |= GPU_PRODUCT_WIDE_WEIGHT;
    return status;
}

gpu_operand gpu_weight_grid(gpu_emit *e, tdm_type type) {
    const tdm_grids *grids = tdm_grids_get();
    switch ((int)type) {
    case TDM_TYPE_IQ2_XXS: return gpu_emit_constant(e, grids->iq2_xxs, sizeof grids->iq2_xxs);
    case TDM_TYPE_IQ2_XS: return gpu_emit_constant(e, grids->iq2_xs, sizeof grids->iq2_xs);
    case TDM_TYPE_IQ2_S: return gpu_emit_constant(e, grids->iq2_s, sizeof grids->iq2_s);
    case TDM_TYPE_IQ1_S:
    case TDM_TYPE_IQ1_M: return gpu_emit_constant(e, grids->iq1, sizeof grids->iq1);
    case TDM_TYPE_IQ3_XXS: return gpu_emit_constant(e, grids->iq3_xxs, sizeof grids->iq3_xxs);
    case TDM_TYPE_IQ3_S: return gpu_emit_constant(e, grids->iq3_s, sizeof grids->iq3_s);
    default: return (gpu_operand){0};
    }
}

/* ---- Choice of kernel and tile --------------------------------------------------------------- */

typedef struct choice {
    gpu_kernel kernel;
    int32_t group_size;
    int32_t rows;     /* spec 2: rows of a thread (LANE) or of a workgroup (ROW) */
    int32_t columns;  /* spec 3: columns of a tile */
    int64_t row_tile; /* rows of a workgroup */
    int64_t trips;    /* gpu_step.trips */
    bool has_bytes, has_halves; /* the kernel reads x as bytes, as f16 */
    int32_t matrix[2];          /* spec 5, 6: rows and columns of a matrix of sums */
} choice;

static int32_t least(int32_t a, int32_t b) {
    return a < b ? a : b;
}

static int32_t or_default(int32_t n, int32_t otherwise) {
    return n != 0 ? n : otherwise;
}

/* The least power of two that is n or more, up to max. */
static int32_t power_above(int64_t n, int32_t max) {
    int32_t power = 1;
    while (power < n && power < max) power *= 2;
    return power;
}

static bool uses_lanes(const gpu_target *t) {
    return !t->has_dot8 && t->subgroup_min == t->subgroup_max && t->subgroup_max >= 4 &&
           t->subgroup_max <= least(or_default(t->product.lane_max_subgroup, 8), 16);
}

static bool uses_tiles(const gpu_target *t) {
    return t->max_group_size >= TILE_THREADS && t->shared_size >= TILE_SHARED &&
           !t->product.has_no_tiles;
}

int32_t gpu_product_sorted_columns(const gpu_target *t) {
    if (uses_lanes(t)) return or_default(t->product.lane_columns, 8);
    return uses_tiles(t) ? TILE_COLUMNS : 8;
}

static choice lanes_choose(const gpu_target *t, const gpu_product *p, int64_t n_group) {
    const gpu_product_tuning *tuning = &t->product;
    int32_t max_columns = or_default(tuning->lane_columns, 8);
    choice c = {.kernel = GPU_KERNEL_PRODUCT_LANE,
                .columns = p->mode == GPU_PRODUCT_PAIRS    ? 1
                           : p->mode == GPU_PRODUCT_SORTED ? max_columns
                                                           : power_above(p->n_column, max_columns)};
    c.rows = LANE_ROWS;
    c.trips = n_group * LANE_QUADS + (int64_t)c.columns * (LANE_ROWS + 1);
    if (tdm_type_get_info(p->w->type).is_quantized) c.trips += n_group * (1 + LANE_HALVES);
    /* With few rows smaller workgroups, of which there are more. Only two sizes, since each is
     * another pipeline to compile. */
    c.group_size =
        p->w->ne[1] < LANE_MANY_ROWS
            ? t->subgroup_max
            : least(or_default(tuning->lane_group, 4 * t->subgroup_max), t->max_group_size);
    c.row_tile = (int64_t)c.rows * c.group_size;
    return c;
}

/* Canonical blocks are loaded in pieces of 2 bytes. Such weights are rare, and kernels that decode
 * several rows at a time take drivers long to compile: so they are multiplied with one column at a
 * time. */
bool gpu_product_is_canonical(const gpu_value *w) {
    return !w->is_private && tdm_type_get_info(w->type).is_quantized;
}

static choice rows_choose(const gpu_target *t, const gpu_product *p, int64_t n_group) {
    const gpu_product_tuning *tuning = &t->product;
    choice c = {.kernel = GPU_KERNEL_PRODUCT_ROW,
                .columns = p->mode == GPU_PRODUCT_PAIRS    ? 1
                           : p->mode == GPU_PRODUCT_SORTED ? 8
                                                           : least((int32_t)p->n_column, 8)};
    int32_t max_group = least(or_default(tuning->row_group, 128),
                              least(t->max_group_size, t->subgroup_min * ROW_MAX_SUBGROUP));
    c.group_size = power_above(n_group, max_group);
    if (c.group_size < t->subgroup_max) c.group_size = least(t->subgroup_max, max_group);
    c.rows = or_default(tuning->row_rows, c.columns <= 4 ? 4 : 2);
    if (gpu_product_is_canonical(p->w)) c.rows = c.columns = 1;
    if (tuning->has_fixed_tiles) {
        c.columns = power_above(c.columns, 8);
        c.rows = c.columns == 8 || gpu_product_is_canonical(p->w) ? 2 : 4;
    } else
        while (c.rows > 1 && (c.rows * c.columns > ROW_MAX_SUM || c.rows > p->w->ne[1]))
            c.rows /= 2;
    c.row_tile = c.rows;
    c.trips = (n_group + c.group_size - 1) / c.group_size +
              (int64_t)c.rows * c.columns * (ROW_MAX_SUBGROUP / t->subgroup_min + 1);
    /* In wide rows a thread takes 8 elements at a time, not a group. */
    if (is_wide_weight(p->w)) c.trips += GROUP_LEN / 8 * (n_group / c.group_size + 1);
    return c;
}

/* True where there are enough columns for tiles. */
static bool has_many_columns(const gpu_target *t, const gpu_product *p) {
    return p->mode == GPU_PRODUCT_SORTED ||
           (p->mode == GPU_PRODUCT_PLAIN &&
            p->n_column > or_default(t->product.row_max_columns, 8));
}

static bool uses_dots(const gpu_target *t, const gpu_product *p) {
    if (!t->has_dot8 || !tdm_type_get_info(p->w->type).is_quantized) return false;
    int64_t n_column = p->n_column;
    if (p->mode == GPU_PRODUCT_PAIRS) n_column = (n_column + p->n_used - 1) / p->n_used;
    return p->mode == GPU_PRODUCT_SORTED || n_column > 1 ||
           p->w->ne[0] >= or_default(t->product.dot_one_k, DOT_ONE_K);
}

static choice dots_choose(const gpu_target *t, const gpu_product *p, int64_t n_group) {
    bool is_sorted = p->mode == GPU_PRODUCT_SORTED;
    if (!has_many_columns(t, p) || !uses_tiles(t)) {
        choice c = rows_choose(t, p, n_group);
        c.kernel = GPU_KERNEL_PRODUCT_ROW_DOT;
        c.has_bytes = true;
        return c;
    }
    bool is_wide = !is_sorted && p->n_column > TILE_COLUMNS && t->shared_size >= DOT_WIDE_SHARED;
    return (choice){.kernel = GPU_KERNEL_PRODUCT_TILE_DOT,
                    .group_size = TILE_THREADS,
                    .rows = 4,
                    .columns = is_wide ? DOT_WIDE_COLUMNS : TILE_COLUMNS,
                    .row_tile = TILE_ROWS,
                    .trips = (n_group + 1) / 2 * 3,
                    .has_bytes = true};
}

static choice matrices_choose(const gpu_target *t, const gpu_product *p, int64_t n_group) {
    const int32_t group_size = MATRIX_SUBGROUPS * t->subgroup_max;
    choice c = {.kernel = t->is_matrix_plain ? GPU_KERNEL_PRODUCT_TILE_HALF
                                             : GPU_KERNEL_PRODUCT_TILE_MATRIX,
                .group_size = group_size,
                .rows = MATRIX_LOADS / group_size,
                .columns = p->mode == GPU_PRODUCT_SORTED ? TILE_COLUMNS : MATRIX_COLUMNS,
                .row_tile = TILE_ROWS,
                .has_halves = true,
                .matrix = {t->matrix_rows, t->matrix_columns}};
    /* Without the hardware each element of the sums is a loop over k. */
    c.trips = n_group * (2 + 4 * c.columns / group_size);
    if (t->is_matrix_plain)
        c.trips +=
            (n_group * MATRIX_PLAIN_TRIPS + 2) * MATRIX_SUB_ROWS * c.columns / t->subgroup_max;
    return c;
}

/* PRODUCT_TILE_MATRIX of Vulkan: a subgroup of a known size computes each quarter of a tile, and
 * all invocations load equal parts of the weight, so that there are at most MATRIX_LOADS of
 * them. */
static bool uses_matrices(const gpu_target *t, const gpu_product *p) {
    const tdm_type type = (tdm_type)p->w->type;
    const int32_t columns = p->mode == GPU_PRODUCT_SORTED ? TILE_COLUMNS / 2 : MATRIX_COLUMNS / 2;
    const int32_t group_size = MATRIX_SUBGROUPS * t->subgroup_max;
    const uint32_t shared = (TILE_ROWS + MATRIX_COLUMNS) * MATRIX_PITCH +
                            MATRIX_SUBGROUPS * 4 * (uint32_t)(t->matrix_rows * t->matrix_columns);
    return t->matrix_rows > 0 && MATRIX_SUB_ROWS % t->matrix_rows == 0 &&
           columns % t->matrix_columns == 0 && t->matrix_rows * t->matrix_columns <= 256 &&
           (type == TDM_TYPE_F16 || tdm_type_get_info(type).is_quantized) &&
           t->subgroup_min == t->subgroup_max && t->subgroup_max >= 4 &&
           MATRIX_LOADS % group_size == 0 && group_size <= t->max_group_size &&
           t->shared_size >= shared && has_many_columns(t, p);
}

static choice wide_choose(const gpu_target *t, const gpu_product *p, int64_t n_group) {
    const int64_t n_row_tile = (p->w->ne[1] + WIDE_ROWS - 1) / WIDE_ROWS * p->w->ne[2];
    int32_t columns = WIDE_MAX_COLUMNS;
    if (p->mode == GPU_PRODUCT_SORTED) columns = TILE_COLUMNS;
    while (columns > TILE_COLUMNS &&
           (p->n_column <= columns / 2 || n_row_tile * ((p->n_column + columns - 1) / columns) <
                                              (int64_t)WIDE_TILES_OF_UNIT * t->n_unit))
        columns /= 2;
    return (choice){.kernel = GPU_KERNEL_PRODUCT_TILE_MATRIX,
                    .group_size = WIDE_THREADS,
                    .rows = 1,
                    .columns = columns,
                    .row_tile = WIDE_ROWS,
                    .trips = n_group,
                    .has_halves = true};
}

/* PRODUCT_TILE_BLOCK with the width of tiles that takes less time, where each compute unit runs one
 * tile after the other. */
static choice block_choose(const gpu_target *t, const gpu_product *p, int64_t n_group) {
    const int64_t n_unit = t->n_unit > 0 ? t->n_unit : 1;
    const int64_t n_row_tile = (p->w->ne[1] + WIDE_ROWS - 1) / WIDE_ROWS * p->w->ne[2];
    int64_t time[2];
    for (int i = 0; i < 2; i++) {
        const int64_t columns = BLOCK_COLUMNS << i;
        const int64_t n_tile = n_row_tile * ((p->n_column + columns - 1) / columns);
        time[i] = (n_tile + n_unit - 1) / n_unit * (i == 0 ? BLOCK_TIME : BLOCK_WIDE_TIME);
    }
    return (choice){.kernel = GPU_KERNEL_PRODUCT_TILE_BLOCK,
                    .group_size = WIDE_THREADS,
                    .rows = 1,
                    .columns = time[1] <= time[0] ? 2 * BLOCK_COLUMNS : BLOCK_COLUMNS,
                    .row_tile = WIDE_ROWS,
                    .trips = n_group,
                    .has_halves = true};
}

static bool uses_block(const gpu_target *t, const gpu_product *p) {
    return t->product.has_block_matrices && p->mode == GPU_PRODUCT_PLAIN &&
           p->n_column > BLOCK_COLUMNS / 2;
}

static bool uses_wide(const gpu_target *t, const gpu_product *p) {
    return t->product.has_wide_matrices && t->max_group_size >= WIDE_THREADS &&
           t->shared_size >= WIDE_SHARED && has_many_columns(t, p) &&
           (p->mode == GPU_PRODUCT_SORTED ||
            p->n_column >= or_default(t->product.matrix_least, WIDE_LEAST)) &&
           (tdm_type_get_info(p->w->type).is_quantized ||
            (p->w->type == TDM_TYPE_F16 && is_wide_weight(p->w)));
}

static choice choose(const gpu_target *t, const gpu_product *p, int64_t n_group) {
    if (gpu_product_is_canonical(p->w)) return rows_choose(t, p, n_group);
    if (uses_wide(t, p))
        return uses_block(t, p) ? block_choose(t, p, n_group) : wide_choose(t, p, n_group);
    if (uses_matrices(t, p)) {
        choice c = matrices_choose(t, p, n_group);
        if (t->max_trips == 0 || c.trips <= t->max_trips) return c;
    }
    if (uses_dots(t, p)) return dots_choose(t, p, n_group);
    if (uses_lanes(t)) {
        choice c = lanes_choose(t, p, n_group), rows = rows_choose(t, p, n_group);
        /* Of a long k the threads have parts. Pairs were sorted for tiles of as many columns. */
        bool is_long = t->max_trips != 0 && c.trips > t->max_trips;
        return is_long && (p->mode != GPU_PRODUCT_SORTED || c.columns == rows.columns) ? rows : c;
    }
    if (!has_many_columns(t, p) || !uses_tiles(t)) return rows_choose(t, p, n_group);
    return (choice){.kernel = GPU_KERNEL_PRODUCT_TILE,
                    .group_size = TILE_THREADS,
                    .rows = 4,
                    .columns = TILE_COLUMNS,
                    .row_tile = TILE_ROWS,
                    .trips = n_group};
}

/* With a second matrix (GLU), half of the rows of a tile belong to it. */
static void parts_set(choice *c) {
    if (c->rows > 1 || c->has_halves)
        c->row_tile /= 2;
    else
        c->rows = 2;
}

/* ---- The step -------------------------------------------------------------------------------- */

static bool x_is_wide(const gpu_product *p) {
    bool is_whole = p->x_stride_matrix % 4 == 0;
    for (int i = 0; i < 3; i++) is_whole = is_whole && p->x_stride[i] % 4 == 0;
    return is_whole && p->x_stride_k == 1 && p->w->ne[0] % GROUP_LEN == 0 && p->x.off % 16 == 0;
}

/* Fills the words of a PRODUCT as kernel.h lists them. n_group: workgroups that have work. */
static tdm_status words_fill(gpu_emit *e, const gpu_product *p, gpu_step *step, int64_t n_group,
                             tdm_error *err) {
    const int64_t numbers[GPU_MAX_WORD] = {
        [0] = p->w->ne[1],
        [1] = p->w->ne[0],
        [2] = p->mode == GPU_PRODUCT_SORTED ? p->n_tile : p->n_column,
        [3] = p->mode == GPU_PRODUCT_PAIRS ? p->n_used : p->column_ne[0],
        [4] = p->mode == GPU_PRODUCT_PLAIN ? p->column_ne[1] : p->x_per_token,
        [5] = p->x_stride[0],
        [6] = p->x_stride[1],
        [7] = p->x_stride[2],
        [8] = p->x_stride_matrix,
        [9] = p->y_stride_matrix,
        [10] = p->y_stride,
        [14] = p->x_stride_k,
        [15] = p->mode != GPU_PRODUCT_PLAIN ? p->first_expert
               : p->is_bias                 ? p->bias_stride
                                            : 1,
        [16] = p->w->ne[2],
        [17] = p->id_stride[0],
        [18] = p->id_stride[1],
        [19] = n_group,
    };
    tdm_status status = TDM_OK;
    for (int i = 0; i < GPU_MAX_WORD && status == TDM_OK; i++)
        if (i < 11 || i > 13) status = gpu_word(e, &step->word[i], numbers[i], err);
    return status != TDM_OK ? status
                            : gpu_weight_words(e, p->w, &step->word[11], &step->spec[1], err);
}

bool gpu_product_is_pair(const gpu_value *w, const gpu_value *up) {
    return w->type == up->type && w->usage == up->usage &&
           w->place.off % 16 == up->place.off % 16 && memcmp(w->ne, up->ne, sizeof w->ne) == 0 &&
           memcmp(w->nb, up->nb, sizeof w->nb) == 0;
}

/* Sets operands, words and spec 7 for what is done with the sums: gpu_product_end. */
static void end_set(gpu_step *step, const gpu_product *p) {
    int32_t end = p->act << GPU_PRODUCT_END_ACT_SHIFT;
    if (p->up != NULL) {
        end |= GPU_PRODUCT_END_GLU;
        step->operand[3] = p->up->place;
    } else if (p->addend.space != GPU_SPACE_NONE) {
        end |= p->is_bias ? GPU_PRODUCT_END_BIAS : GPU_PRODUCT_END_ADD;
        step->operand[3] = p->addend;
    }
    if (p->factor.space != GPU_SPACE_NONE) {
        end |= (int32_t)p->factor_end | (p->has_factor_act ? GPU_PRODUCT_END_OTHER_ACT : 0);
        step->operand[4] = p->factor;
    }
    if (p->is_scaled) {
        end |= GPU_PRODUCT_END_SCALED;
        memcpy(&step->word[17], &p->before, sizeof p->before);
        memcpy(&step->word[18], &p->after, sizeof p->after);
    }
    step->spec[7] = end;
}

/* Refuses a product for whose end the chosen kernel has no code. */
static tdm_status end_check(gpu_emit *e, const gpu_product *p, const choice *c, tdm_error *err) {
    if (p->factor.space != GPU_SPACE_NONE && c->has_halves && e->target->product.has_wide_matrices)
        return gpu_refuse(e, err, "kernel %s takes no factor", gpu_kernel_name(c->kernel));
    /* PRODUCT_TILE_BLOCK has no registers left for more than an addend or GLU. */
    if (c->kernel == GPU_KERNEL_PRODUCT_TILE_BLOCK &&
        (p->is_scaled || (p->act != TDM_ACT_NONE && p->up == NULL)))
        return gpu_refuse(e, err, "kernel %s takes no act and no scale",
                          gpu_kernel_name(c->kernel));
    return TDM_OK;
}

/* Refuses x or y of more elements than the kernels' 32-bit numbers count. */
static tdm_status extent_check(const gpu_emit *e, const gpu_operand *floats, tdm_error *err) {
    const uint64_t n = floats->size / sizeof(float);
    if (n <= (uint64_t)UINT32_MAX + 1) return TDM_OK;
    return gpu_refuse(e, err, "%llu elements; kernels of products count up to 2^32",
                      (unsigned long long)n);
}

/* The number of tiles, each of which is the work of a workgroup. */
static int64_t tiles_count(const gpu_product *p, const choice *c) {
    int64_t n_row_tile = (p->w->ne[1] + c->row_tile - 1) / c->row_tile;
    switch (p->mode) {
    case GPU_PRODUCT_PLAIN:
        return n_row_tile * ((p->n_column + c->columns - 1) / c->columns * p->w->ne[2]);
    case GPU_PRODUCT_PAIRS: return n_row_tile * p->n_column;
    default: return n_row_tile * p->n_tile;
    }
}

static void choice_set(gpu_step *step, const gpu_product *p, const choice *c) {
    step->trips = c->trips;
    step->spec[0] = (int32_t)p->w->type;
    if (!c->has_bytes && !c->has_halves && x_is_wide(p)) step->spec[1] |= GPU_PRODUCT_WIDE_X;
    step->spec[2] = c->rows;
    step->spec[3] = c->columns;
    step->spec[4] = p->mode;
    step->spec[5] = c->matrix[0];
    step->spec[6] = c->matrix[1];
}

/* Sets all operands but those of end_set, after the step that converts x where the kernel reads x
 * as bytes or as f16. */
static tdm_status operands_set(gpu_emit *e, const gpu_product *p, const choice *c, gpu_step *step,
                               tdm_error *err) {
    step->operand[0] = p->dst;
    step->operand[1] = p->w->place;
    step->operand[2] = p->x;
    step->operand[4] = p->index;
    if (c->has_bytes || c->has_halves) {
        tdm_status status = gpu_quantize_emit(e, p, c->has_halves, &step->operand[2], err);
        if (status == TDM_OK) status = gpu_word(e, &step->word[5], gpu_quantize_rows(p), err);
        if (status != TDM_OK) return status;
    }
    step->operand[5] = gpu_weight_grid(e, p->w->type);
    return TDM_OK;
}

/* Bytes of the experts' matrices that a step reads: at most one for each pair, and each at most
 * once. */
static uint64_t experts_size(const gpu_product *p) {
    int64_t n = p->n_column < p->w->ne[2] ? p->n_column : p->w->ne[2];
    return p->w->place.size / (uint64_t)p->w->ne[2] * (uint64_t)n;
}

tdm_status gpu_product_emit(gpu_emit *e, const gpu_product *p, tdm_error *err) {
    const gpu_value *w = p->w;
    if (w->ne[1] == 0 || w->ne[2] == 0 || p->n_column == 0) return TDM_OK;
    tdm_status status = gpu_weight_check(e, w, err);
    if (status == TDM_OK) status = extent_check(e, &p->x, err);
    if (status == TDM_OK) status = extent_check(e, &p->dst, err);
    if (status != TDM_OK) return status;
    choice c = choose(e->target, p, (w->ne[0] + GROUP_LEN - 1) / GROUP_LEN);
    if (p->up != NULL) parts_set(&c);
    status = end_check(e, p, &c, err);
    if (status != TDM_OK) return status;
    gpu_step step = gpu_step_make(e, c.kernel, c.group_size);
    const int64_t n_tile = tiles_count(p, &c);
    status = words_fill(e, p, &step, n_tile, err);
    if (status == TDM_OK) status = gpu_step_grid(e, &step, n_tile, err);
    choice_set(&step, p, &c);
    if (status == TDM_OK) status = operands_set(e, p, &c, &step, err);
    if (status != TDM_OK) return status;
    end_set(&step, p);
    if (p->mode != GPU_PRODUCT_PLAIN) step.weight_size = experts_size(p);
    return gpu_emit_step(e, &step, err);
}
