/* SPDX-License-Identifier: MIT
 *
 * weight.c: see weight.h. The fields of each type, and the copies between blocks and planes.
 */
#include "plugins/gpu/layout/weight.h"

#include <stddef.h>
#include <string.h>

#include "tandem/block.h"

/* ---- Fields ---------------------------------------------------------------------------------- */

/* The bytes off .. off + size - 1 of a canonical block. size 0 = no field. */
typedef struct field {
    uint8_t off, size;
} field;

/* The fields of each type, in the order of their planes. shaders/dequant.glsl and kernels/dequant.h
 * have the same table. Fields of 16 bytes and more come first: the planes behind them need no
 * padding. */
static const field fields[TDM_TYPE_LIMIT_][GPU_WEIGHT_MAX_PLANE] = {
    [TDM_TYPE_F32] = {{0, 4}},
    [TDM_TYPE_F16] = {{0, 2}},
    [TDM_TYPE_BF16] = {{0, 2}},
    [TDM_TYPE_Q4_0] = {{2, 16}, {0, 2}},
    [TDM_TYPE_Q4_1] = {{4, 16}, {0, 4}},
    [TDM_TYPE_Q5_0] = {{6, 16}, {2, 4}, {0, 2}},
    [TDM_TYPE_Q5_1] = {{8, 16}, {4, 4}, {0, 4}},
    [TDM_TYPE_Q8_0] = {{2, 32}, {0, 2}},
    [TDM_TYPE_IQ4_NL] = {{2, 16}, {0, 2}},
    [TDM_TYPE_MXFP4] = {{1, 16}, {0, 1}},
    [TDM_TYPE_NVFP4] = {{4, 32}, {0, 4}},
    [TDM_TYPE_Q2_K] = {{16, 64}, {0, 16}, {80, 4}},
    [TDM_TYPE_Q3_K] = {{32, 64}, {0, 32}, {96, 12}, {108, 2}},
    [TDM_TYPE_Q4_K] = {{16, 128}, {0, 16}},
    [TDM_TYPE_Q5_K] = {{48, 128}, {16, 32}, {0, 16}},
    [TDM_TYPE_Q6_K] = {{0, 128}, {128, 64}, {192, 16}, {208, 2}},
    [TDM_TYPE_IQ4_XS] = {{8, 128}, {0, 8}},
    [TDM_TYPE_IQ2_XXS] = {{2, 64}, {0, 2}},
    [TDM_TYPE_IQ2_XS] = {{2, 64}, {66, 8}, {0, 2}},
    [TDM_TYPE_IQ2_S] = {{2, 64}, {66, 16}, {0, 2}},
    [TDM_TYPE_IQ3_XXS] = {{2, 64}, {66, 32}, {0, 2}},
    [TDM_TYPE_IQ3_S] = {{2, 64}, {74, 32}, {66, 8}, {106, 4}, {0, 2}},
    [TDM_TYPE_IQ1_S] = {{2, 32}, {34, 16}, {0, 2}},
    [TDM_TYPE_IQ1_M] = {{0, 32}, {32, 16}, {48, 8}},
    [TDM_TYPE_TQ1_0] = {{0, 48}, {48, 4}, {52, 2}},
    [TDM_TYPE_TQ2_0] = {{0, 64}, {64, 2}},
};

/* ---- Layouts --------------------------------------------------------------------------------- */

static uint64_t align_up(uint64_t size) {
    return (size + GPU_WEIGHT_ALIGN - 1) / GPU_WEIGHT_ALIGN * GPU_WEIGHT_ALIGN;
}

/* The number of blocks, checked. */
static tdm_status blocks_count(tdm_type type, const int64_t ne[TDM_MAX_DIMS],
                               gpu_weight_layout *layout, uint64_t *n_out, tdm_error *err) {
    tdm_type_info info = tdm_type_get_info(type);
    int64_t n = 1, bytes;
    if ((unsigned)type >= TDM_TYPE_LIMIT_ || fields[type][0].size == 0)
        return tdm_fail(err, TDM_UNSUPPORTED, "weight: type %s has no numbers to multiply",
                        tdm_type_name(type));
    if (ne[0] < 0 || ne[0] % info.block_len != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "weight: rows of %lld elements are not whole blocks of %s",
                        (long long)ne[0], info.name);
    for (int i = 1; i < TDM_MAX_DIMS; i++)
        if (ne[i] < 0 || __builtin_mul_overflow(n, ne[i], &n))
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "weight: larger than any memory");
    layout->type = type;
    layout->block_len = info.block_len;
    layout->block_size = info.block_size;
    layout->n_block = ne[0] / info.block_len;
    layout->n_row = n;
    if (__builtin_mul_overflow(n, layout->n_block, &n) ||
        __builtin_mul_overflow(n, (int64_t)info.block_size, &bytes) || bytes > INT64_MAX / 2)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "weight: larger than any memory");
    *n_out = (uint64_t)n;
    return TDM_OK;
}

tdm_status gpu_weight_layout_get(tdm_type type, const int64_t ne[TDM_MAX_DIMS], uint32_t usage,
                                 gpu_weight_layout *layout_out, tdm_error *err) {
    gpu_weight_layout l = {0};
    uint64_t n = 0;
    tdm_status status = blocks_count(type, ne, &l, &n, err);
    if (status != TDM_OK) return status;
    if (usage == 0) {
        l.n_plane = 1;
        l.planes[0].unit = l.block_size;
        l.size = n * (uint64_t)l.block_size;
        *layout_out = l;
        return TDM_OK;
    }
    for (; l.n_plane < GPU_WEIGHT_MAX_PLANE && fields[type][l.n_plane].size > 0; l.n_plane++) {
        const field *f = &fields[type][l.n_plane];
        l.size = align_up(l.size);
        l.planes[l.n_plane] = (gpu_weight_plane){l.size, f->size, f->off};
        l.size += n * f->size;
    }
    *layout_out = l;
    return TDM_OK;
}

tdm_status gpu_weight_size(tdm_type type, const int64_t ne[TDM_MAX_DIMS], uint32_t usage,
                           uint64_t *size_out, tdm_error *err) {
    gpu_weight_layout layout;
    tdm_status status = gpu_weight_layout_get(type, ne, usage, &layout, err);
    if (status == TDM_OK) *size_out = layout.size;
    return status;
}

/* ---- Parts ----------------------------------------------------------------------------------- */

gpu_weight_part gpu_weight_part_get(const gpu_weight_layout *layout, int64_t row_first,
                                    int64_t n_row, int64_t col_first, int64_t n_col) {
    return (gpu_weight_part){row_first, n_row, col_first / layout->block_len,
                             n_col / layout->block_len};
}

gpu_weight_runs gpu_weight_runs_get(const gpu_weight_layout *layout, int plane,
                                    const gpu_weight_part *part) {
    const gpu_weight_plane *p = &layout->planes[plane];
    uint64_t unit = (uint64_t)p->unit;
    gpu_weight_runs runs = {
        .off = p->off + (uint64_t)(part->row_first * layout->n_block + part->block_first) * unit,
        .size = (uint64_t)part->n_block * unit,
        .stride = (uint64_t)layout->n_block * unit,
        .n_run = part->n_block > 0 ? part->n_row : 0,
    };
    if (part->n_block == layout->n_block && runs.n_run > 0) {
        runs.size *= (uint64_t)part->n_row;
        runs.n_run = 1;
    }
    return runs;
}

/* Copies `unit` bytes of each of n blocks; a step is the distance between blocks. Most sizes are
 * constants here, so that the copy of a field is a few instructions instead of a call. */
static void units_copy(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step,
                       int64_t n, size_t unit) {
    if (to_step == unit && from_step == unit) {
        memcpy(to, from, (size_t)n * unit);
        return;
    }
#define UNITS_COPY_(size)                                                                          \
    case size:                                                                                     \
        for (int64_t i = 0; i < n; i++, to += to_step, from += from_step) memcpy(to, from, size);  \
        return
    switch (unit) {
        UNITS_COPY_(1);
        UNITS_COPY_(2);
        UNITS_COPY_(4);
        UNITS_COPY_(8);
        UNITS_COPY_(16);
        UNITS_COPY_(32);
        UNITS_COPY_(64);
        UNITS_COPY_(128);
    default:
        for (int64_t i = 0; i < n; i++, to += to_step, from += from_step) memcpy(to, from, unit);
    }
#undef UNITS_COPY_
}

void gpu_weight_pack(const gpu_weight_layout *layout, int plane, const gpu_weight_part *part,
                     const void *src, uint64_t row_pitch, void *staging) {
    const gpu_weight_plane *p = &layout->planes[plane];
    const uint8_t *from = (const uint8_t *)src + p->block_off;
    uint8_t *to = staging;
    size_t unit = (size_t)p->unit;
    for (int64_t r = 0; r < part->n_row; r++, from += row_pitch, to += (size_t)part->n_block * unit)
        units_copy(to, unit, from, (size_t)layout->block_size, part->n_block, unit);
}

void gpu_weight_unpack(const gpu_weight_layout *layout, int plane, const gpu_weight_part *part,
                       const void *staging, void *dst, uint64_t row_pitch) {
    const gpu_weight_plane *p = &layout->planes[plane];
    const uint8_t *from = staging;
    uint8_t *to = (uint8_t *)dst + p->block_off;
    size_t unit = (size_t)p->unit;
    for (int64_t r = 0; r < part->n_row; r++, to += row_pitch, from += (size_t)part->n_block * unit)
        units_copy(to, (size_t)layout->block_size, from, unit, part->n_block, unit);
}

/* Row r of a part, as a part. */
static gpu_weight_part row_of(const gpu_weight_part *part, int64_t r) {
    return (gpu_weight_part){part->row_first + r, 1, part->block_first, part->n_block};
}

void gpu_weight_store(const gpu_weight_layout *layout, const gpu_weight_part *part, const void *src,
                      uint64_t row_pitch, void *tensor) {
    for (int64_t r = 0; r < part->n_row; r++)
        for (int p = 0; p < layout->n_plane; p++) {
            gpu_weight_part row = row_of(part, r);
            gpu_weight_pack(layout, p, &row, (const uint8_t *)src + (uint64_t)r * row_pitch, 0,
                            (uint8_t *)tensor + gpu_weight_runs_get(layout, p, &row).off);
        }
}

void gpu_weight_load(const gpu_weight_layout *layout, const gpu_weight_part *part,
                     const void *tensor, void *dst, uint64_t row_pitch) {
    for (int64_t r = 0; r < part->n_row; r++)
        for (int p = 0; p < layout->n_plane; p++) {
            gpu_weight_part row = row_of(part, r);
            gpu_weight_unpack(layout, p, &row,
                              (const uint8_t *)tensor + gpu_weight_runs_get(layout, p, &row).off,
                              (uint8_t *)dst + (uint64_t)r * row_pitch, 0);
        }
}
