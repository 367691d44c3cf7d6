// SPDX-License-Identifier: MIT
//
// product_lane.comp: products on devices with small subgroups. Each thread has 8 rows of its own
// and all of k, for up to 8 columns. Each thread loads x itself, so that threads exchange nothing
// and no shared memory is used. One module for each WEIGHT_TYPE. See kernel.h. Loops are written
// out: drivers of such devices may not unroll them. There, the number of loads decides, not their
// size: 8 rows share a load of x, 8 columns share a load of weights.
#version 460
#extension GL_GOOGLE_include_directive : require
#define WEIGHT_MODULES WEIGHT_ANY // kernels.py
#include "args.glsl"
#include "product.glsl"

const uint ROWS = 8, MAX_COLUMNS = 8;

// Of a group, for two sets of four rows: element i of the rows of set s is w[32 * s + i].
vec4 w[64];
vec4 scale_low[2], scale_high[2], offset_low[2], offset_high[2];

#define QUAD(q)                                                                                    \
    {                                                                                              \
        vec4 a0 = weight_quad(r0, g0, g, q, k), a1 = weight_quad(r1, g1, g, q, k);                 \
        vec4 a2 = weight_quad(r2, g2, g, q, k), a3 = weight_quad(r3, g3, g, q, k);                 \
        w[32 * s + 4 * q] = vec4(a0.x, a1.x, a2.x, a3.x);                                          \
        w[32 * s + 4 * q + 1] = vec4(a0.y, a1.y, a2.y, a3.y);                                      \
        w[32 * s + 4 * q + 2] = vec4(a0.z, a1.z, a2.z, a3.z);                                      \
        w[32 * s + 4 * q + 3] = vec4(a0.w, a1.w, a2.w, a3.w);                                      \
    }

void group_load(int s, WeightRow r0, WeightRow r1, WeightRow r2, WeightRow r3, uint g, uint k) {
    WeightGroup g0 = weight_group(r0, g), g1 = weight_group(r1, g);
    WeightGroup g2 = weight_group(r2, g), g3 = weight_group(r3, g);
    QUAD(0) QUAD(1) QUAD(2) QUAD(3) QUAD(4) QUAD(5) QUAD(6) QUAD(7)
    scale_low[s] = vec4(g0.scale.x, g1.scale.x, g2.scale.x, g3.scale.x);
    scale_high[s] = vec4(g0.scale.y, g1.scale.y, g2.scale.y, g3.scale.y);
    offset_low[s] = vec4(g0.offset.x, g1.offset.x, g2.offset.x, g3.offset.x);
    offset_high[s] = vec4(g0.offset.y, g1.offset.y, g2.offset.y, g3.offset.y);
}

// Elements 2 * i and 2 * i + 1 of the group.
#define PAIR(i)                                                                                    \
    {                                                                                              \
        vec2 v = x_two(x, first + 2 * i);                                                          \
        part_0 = fma(w[2 * i], v.xxxx, part_0);                                                    \
        part_1 = fma(w[32 + 2 * i], v.xxxx, part_1);                                               \
        part_0 = fma(w[2 * i + 1], v.yyyy, part_0);                                                \
        part_1 = fma(w[32 + 2 * i + 1], v.yyyy, part_1);                                           \
        if (WEIGHT_HAS_OFFSET) x_sum += v;                                                         \
    }

void column_add(uint64_t x, uint first, inout vec4 sum_0, inout vec4 sum_1) {
    vec2 x_sum = vec2(0);
    vec4 part_0 = vec4(0), part_1 = vec4(0);
    PAIR(0) PAIR(1) PAIR(2) PAIR(3) PAIR(4) PAIR(5) PAIR(6) PAIR(7)
#if WEIGHT_HAS_HALF_SCALES
    sum_0 = fma(scale_low[0], part_0, sum_0);
    sum_1 = fma(scale_low[1], part_1, sum_1);
    if (WEIGHT_HAS_OFFSET) {
        sum_0 = fma(offset_low[0], vec4(x_sum.x + x_sum.y), sum_0);
        sum_1 = fma(offset_low[1], vec4(x_sum.x + x_sum.y), sum_1);
    }
    part_0 = part_1 = vec4(0);
    x_sum = vec2(0);
#endif
    PAIR(8) PAIR(9) PAIR(10) PAIR(11) PAIR(12) PAIR(13) PAIR(14) PAIR(15)
    sum_0 = fma(scale_high[0], part_0, sum_0);
    sum_1 = fma(scale_high[1], part_1, sum_1);
    if (WEIGHT_HAS_OFFSET) {
        sum_0 = fma(offset_high[0], vec4(x_sum.x + x_sum.y), sum_0);
        sum_1 = fma(offset_high[1], vec4(x_sum.x + x_sum.y), sum_1);
    }
}

// The rows of a set: `step` apart from `row` on.
void set_store(uint at, uint row, uint step, vec4 sum) {
    if (IS_GLU) {
        y_store(at, row, sum.x, sum.y);
        y_store(at, row + step, sum.z, sum.w);
    } else {
        y_store(at, row, sum.x, 0);
        y_store(at, row + step, sum.y, 0);
        y_store(at, row + 2 * step, sum.z, 0);
        y_store(at, row + 3 * step, sum.w, 0);
    }
}

void column_store(Tile t, uint c, uint row, vec4 sum_0, vec4 sum_1) {
    if (c >= t.n_column) return;
    uint at = y_at(t, column_number(t, c)), step = gl_WorkGroupSize.x;
    set_store(at, row, step, sum_0);
    set_store(at, row + (IS_GLU ? 2 : 4) * step, step, sum_1);
}

// Four rows from `row` on, `step` apart. GLU: a row of gate, the same of up, then the next of both.
#define SET_ROWS(s, row)                                                                           \
    WeightRow r##s##0 = product_row(t, row, 0);                                                    \
    WeightRow r##s##1 = product_row(t, IS_GLU ? row : row + step, N_PART - 1);                     \
    WeightRow r##s##2 = product_row(t, IS_GLU ? row + step : row + 2 * step, 0);                   \
    WeightRow r##s##3 = product_row(t, IS_GLU ? row + step : row + 3 * step, N_PART - 1);

void main() {
    Tile t = tile_get(gl_WorkGroupSize.x * ROWS / N_PART);
    if (t.n_column == 0) return;
    uint row = t.row + gl_LocalInvocationID.x, step = gl_WorkGroupSize.x;
    uint k = uint(args.word[1]), n_group = (k + 31) / 32;
    uint row_1 = row + (IS_GLU ? 2 : 4) * step;
    SET_ROWS(0, row)
    SET_ROWS(1, row_1)
    uint64_t x[MAX_COLUMNS];
    vec4 y_0[MAX_COLUMNS], y_1[MAX_COLUMNS];
    [[unroll]] for (uint c = 0; c < TILE_COLUMNS; c++) {
        x[c] = x_address(t, column_number(t, min(c, t.n_column - 1)));
        y_0[c] = y_1[c] = vec4(0);
    }
    [[dont_unroll]] for (uint g = 0; g < n_group; g++) {
        group_load(0, r00, r01, r02, r03, g, k);
        group_load(1, r10, r11, r12, r13, g, k);
        [[unroll]] for (uint c = 0; c < TILE_COLUMNS; c++) column_add(x[c], 32 * g, y_0[c], y_1[c]);
    }
    [[unroll]] for (uint c = 0; c < TILE_COLUMNS; c++) column_store(t, c, row, y_0[c], y_1[c]);
}
