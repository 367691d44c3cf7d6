// SPDX-License-Identifier: MIT
//
// product_lane.comp: products on devices with small subgroups. Each thread has 4 rows of its own and
// all of k, for up to 8 columns; the threads of a subgroup load x together and broadcast it, so that
// no shared memory is used. SPEC5 is the subgroup size, 4 to 16. One module for each WEIGHT_TYPE.
// See kernel.h. Loops are written out: drivers of such devices may not unroll them.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_ballot : require
#include "args.glsl"
#include "product.glsl"

const uint LANES = SPEC5 < 1 ? 8 : SPEC5;
const uint ROWS = 4;

// Of a group: element i of the thread's four rows, and their scales.
vec4 w[32];
vec4 scale_low, scale_high, offset_low, offset_high;

#define QUAD(q)                                                                                    \
    {                                                                                              \
        vec4 a0 = weight_quad(r0, g0, g, q, k), a1 = weight_quad(r1, g1, g, q, k);                 \
        vec4 a2 = weight_quad(r2, g2, g, q, k), a3 = weight_quad(r3, g3, g, q, k);                 \
        w[4 * q] = vec4(a0.x, a1.x, a2.x, a3.x);                                                   \
        w[4 * q + 1] = vec4(a0.y, a1.y, a2.y, a3.y);                                               \
        w[4 * q + 2] = vec4(a0.z, a1.z, a2.z, a3.z);                                               \
        w[4 * q + 3] = vec4(a0.w, a1.w, a2.w, a3.w);                                               \
    }

void group_load(WeightRow r0, WeightRow r1, WeightRow r2, WeightRow r3, uint g, uint k) {
    WeightGroup g0 = weight_group(r0, g), g1 = weight_group(r1, g);
    WeightGroup g2 = weight_group(r2, g), g3 = weight_group(r3, g);
    QUAD(0) QUAD(1) QUAD(2) QUAD(3) QUAD(4) QUAD(5) QUAD(6) QUAD(7)
    scale_low = vec4(g0.scale.x, g1.scale.x, g2.scale.x, g3.scale.x);
    scale_high = vec4(g0.scale.y, g1.scale.y, g2.scale.y, g3.scale.y);
    offset_low = vec4(g0.offset.x, g1.offset.x, g2.offset.x, g3.offset.x);
    offset_high = vec4(g0.offset.y, g1.offset.y, g2.offset.y, g3.offset.y);
}

// Elements 2 * i and 2 * i + 1 of the group, which lane i % LANES has loaded as its i / LANES-th.
#define PAIR(i)                                                                                    \
    {                                                                                              \
        vec2 v = subgroupBroadcast(i / LANES == 0   ? own_0                                        \
                                   : i / LANES == 1 ? own_1                                        \
                                   : i / LANES == 2 ? own_2                                        \
                                                    : own_3,                                       \
                                   i % LANES);                                                     \
        part = fma(w[2 * i], v.xxxx, part);                                                        \
        part = fma(w[2 * i + 1], v.yyyy, part);                                                    \
        if (WEIGHT_HAS_OFFSET) x_sum += v;                                                         \
    }

void column_add(uint64_t x, uint first, inout vec4 sum) {
    vec2 own_0 = x_two(x, first), own_1 = vec2(0), own_2 = vec2(0), own_3 = vec2(0), x_sum = vec2(0);
    vec4 part = vec4(0);
    if (LANES < 16) own_1 = x_two(x, first + 2 * LANES);
    if (LANES < 8) {
        own_2 = x_two(x, first + 4 * LANES);
        own_3 = x_two(x, first + 6 * LANES);
    }
    PAIR(0) PAIR(1) PAIR(2) PAIR(3) PAIR(4) PAIR(5) PAIR(6) PAIR(7)
#if WEIGHT_HAS_HALF_SCALES
    sum = fma(scale_low, part, sum);
    if (WEIGHT_HAS_OFFSET) sum = fma(offset_low, vec4(x_sum.x + x_sum.y), sum);
    part = vec4(0);
    x_sum = vec2(0);
#endif
    PAIR(8) PAIR(9) PAIR(10) PAIR(11) PAIR(12) PAIR(13) PAIR(14) PAIR(15)
    sum = fma(scale_high, part, sum);
    if (WEIGHT_HAS_OFFSET) sum = fma(offset_high, vec4(x_sum.x + x_sum.y), sum);
}

void column_store(Tile t, uint c, uint row, vec4 sum) {
    if (c >= t.n_column) return;
    uint at = y_at(t, column_number(t, c)), step = gl_WorkGroupSize.x;
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

#define X_OF(c) x_address(t, column_number(t, min(c, t.n_column - 1)))

void main() {
    Tile t = tile_get(gl_WorkGroupSize.x * ROWS / N_PART);
    if (t.n_column == 0) return;
    uint lane = gl_SubgroupInvocationID, row = t.row + gl_SubgroupID * LANES + lane;
    uint k = uint(args.word[1]), n_group = (k + 31) / 32, step = gl_WorkGroupSize.x;
    // GLU: a row of gate, the same of up, then the next of both.
    WeightRow r0 = product_row(t, row, 0), r1 = product_row(t, IS_GLU ? row : row + step, N_PART - 1);
    WeightRow r2 = product_row(t, IS_GLU ? row + step : row + 2 * step, 0);
    WeightRow r3 = product_row(t, IS_GLU ? row + step : row + 3 * step, N_PART - 1);
    uint64_t x0 = X_OF(0), x1 = X_OF(1), x2 = X_OF(2), x3 = X_OF(3);
    uint64_t x4 = X_OF(4), x5 = X_OF(5), x6 = X_OF(6), x7 = X_OF(7);
    vec4 y0 = vec4(0), y1 = vec4(0), y2 = vec4(0), y3 = vec4(0);
    vec4 y4 = vec4(0), y5 = vec4(0), y6 = vec4(0), y7 = vec4(0);
    [[dont_unroll]] for (uint g = 0; g < n_group; g++) {
        uint first = 32 * g + 2 * lane;
        group_load(r0, r1, r2, r3, g, k);
        column_add(x0, first, y0);
        if (TILE_COLUMNS > 1) column_add(x1, first, y1);
        if (TILE_COLUMNS > 2) {
            column_add(x2, first, y2);
            column_add(x3, first, y3);
        }
        if (TILE_COLUMNS > 4) {
            column_add(x4, first, y4);
            column_add(x5, first, y5);
            column_add(x6, first, y6);
            column_add(x7, first, y7);
        }
    }
    column_store(t, 0, row, y0);
    if (TILE_COLUMNS > 1) column_store(t, 1, row, y1);
    if (TILE_COLUMNS > 2) {
        column_store(t, 2, row, y2);
        column_store(t, 3, row, y3);
    }
    if (TILE_COLUMNS > 4) {
        column_store(t, 4, row, y4);
        column_store(t, 5, row, y5);
        column_store(t, 6, row, y6);
        column_store(t, 7, row, y7);
    }
}
