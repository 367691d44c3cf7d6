// SPDX-License-Identifier: MIT
//
// product_lane.comp: products on devices with small subgroups. Each thread has 8 rows of its own
// and all of k, for up to 8 columns. Each thread loads x itself, so that threads exchange nothing
// and no shared memory is used. One module for each WEIGHT_TYPE. See kernel.h.
//
// On such devices, which are software drivers, the number of loads decides, not their size: 8 rows
// share a load of x, 8 columns share a load of weights. Rows and columns are written out or
// unrolled, so that their numbers are in registers. Halves of a group and quads of elements are
// loops, and the code that stores exists once: these drivers compile on the user's processor, in a
// time that grows with the code.
#version 460
#extension GL_GOOGLE_include_directive : require
#define WEIGHT_MODULES WEIGHT_ANY // kernels.py
#include "args.glsl"
#include "product.glsl"

const uint ROWS = 8, MAX_COLUMNS = 8;
#define EACH_ROW(f) f(0) f(1) f(2) f(3) f(4) f(5) f(6) f(7)

WeightRow rows[ROWS];     // GLU: a row of gate, the same of up, then the next of both
WeightGroup groups[ROWS]; // of each row; `low` is the present half
uint64_t x[MAX_COLUMNS];  // the address of each column's x
// Of each column and the rows 0 to 3, 4 to 7: sums of the present half, and of all groups
vec4 part_0[MAX_COLUMNS], part_1[MAX_COLUMNS], y_0[MAX_COLUMNS], y_1[MAX_COLUMNS];
vec2 x_sum[MAX_COLUMNS]; // elements of the present half, where WEIGHT_HAS_OFFSET

#if WEIGHT_IS_PLAIN
#define ROW_QUAD(r) weight_quad(rows[r], groups[r], 0, q, uint(args.word[1]))
#else
#define ROW_QUAD(r) bytes_float(groups[r].low[q])
#endif

// Adds to the parts elements 4 * q to 4 * q + 3 behind element `first` of x: of a half, or of plain
// rows.
void quad_add(uint first, uint q) {
    vec4 a0 = ROW_QUAD(0), a1 = ROW_QUAD(1), a2 = ROW_QUAD(2), a3 = ROW_QUAD(3);
    vec4 a4 = ROW_QUAD(4), a5 = ROW_QUAD(5), a6 = ROW_QUAD(6), a7 = ROW_QUAD(7);
    // Element i of the rows 0 to 3, 4 to 7.
    vec4 w0_0 = vec4(a0.x, a1.x, a2.x, a3.x), w0_1 = vec4(a4.x, a5.x, a6.x, a7.x);
    vec4 w1_0 = vec4(a0.y, a1.y, a2.y, a3.y), w1_1 = vec4(a4.y, a5.y, a6.y, a7.y);
    vec4 w2_0 = vec4(a0.z, a1.z, a2.z, a3.z), w2_1 = vec4(a4.z, a5.z, a6.z, a7.z);
    vec4 w3_0 = vec4(a0.w, a1.w, a2.w, a3.w), w3_1 = vec4(a4.w, a5.w, a6.w, a7.w);
    [[unroll]] for (uint c = 0; c < TILE_COLUMNS; c++) {
        vec4 v = x_four(x[c], first + 4 * q), sum = part_0[c];
        sum = fma(w1_0, v.yyyy, fma(w0_0, v.xxxx, sum));
        part_0[c] = fma(w3_0, v.wwww, fma(w2_0, v.zzzz, sum));
        sum = fma(w1_1, v.yyyy, fma(w0_1, v.xxxx, part_1[c]));
        part_1[c] = fma(w3_1, v.wwww, fma(w2_1, v.zzzz, sum));
        if (WEIGHT_HAS_OFFSET) x_sum[c] += v.xy + v.zw;
    }
}

void parts_clear() {
    [[unroll]] for (uint c = 0; c < TILE_COLUMNS; c++) {
        part_0[c] = part_1[c] = vec4(0);
        x_sum[c] = vec2(0);
    }
}

// Adds the present half, whose scales are scale.x of the groups. Then the other half is present.
#define ROW_TURN(r)                                                                                \
    groups[r].low = groups[r].high;                                                                \
    groups[r].scale.x = groups[r].scale.y;                                                         \
    groups[r].offset.x = groups[r].offset.y;

void half_add(uint first) {
    parts_clear();
    [[dont_unroll]] for (uint q = 0; q < 4; q++) quad_add(first, q);
    vec4 scale_0 = vec4(groups[0].scale.x, groups[1].scale.x, groups[2].scale.x, groups[3].scale.x);
    vec4 scale_1 = vec4(groups[4].scale.x, groups[5].scale.x, groups[6].scale.x, groups[7].scale.x);
    vec4 offset_0 =
        vec4(groups[0].offset.x, groups[1].offset.x, groups[2].offset.x, groups[3].offset.x);
    vec4 offset_1 =
        vec4(groups[4].offset.x, groups[5].offset.x, groups[6].offset.x, groups[7].offset.x);
    [[unroll]] for (uint c = 0; c < TILE_COLUMNS; c++) {
        y_0[c] = fma(scale_0, part_0[c], y_0[c]);
        y_1[c] = fma(scale_1, part_1[c], y_1[c]);
        if (WEIGHT_HAS_OFFSET) {
            y_0[c] = fma(offset_0, vec4(x_sum[c].x + x_sum[c].y), y_0[c]);
            y_1[c] = fma(offset_1, vec4(x_sum[c].x + x_sum[c].y), y_1[c]);
        }
    }
    EACH_ROW(ROW_TURN)
}

// Stores y of all columns. What is stored next is moved to the beginning of y_0 and y_1.
void sums_store(Tile t, uint row) {
    [[dont_unroll]] for (uint c = 0; c < t.n_column; c++) {
        uint at = y_at(t, column_number(t, c));
        [[dont_unroll]] for (uint r = 0; r < ROWS / N_PART; r++) {
            y_store(at, row + r * gl_WorkGroupSize.x, y_0[0].x, y_0[0].y);
            y_0[0] = IS_GLU ? vec4(y_0[0].zw, y_1[0].xy) : vec4(y_0[0].yzw, y_1[0].x);
            y_1[0] = IS_GLU ? y_1[0].zwzw : y_1[0].yzww;
        }
        [[unroll]] for (uint i = 0; i + 1 < TILE_COLUMNS; i++) {
            y_0[i] = y_0[i + 1];
            y_1[i] = y_1[i + 1];
        }
    }
}

#define ROW_SET(r)                                                                                 \
    rows[r] = product_row(t, row + (IS_GLU ? r / 2 : r) * gl_WorkGroupSize.x, IS_GLU ? r % 2 : 0);
#define GROUP_LOAD(r) groups[r] = weight_group(rows[r], g);

void main() {
    Tile t = tile_get(gl_WorkGroupSize.x * ROWS / N_PART);
    if (t.n_column == 0) return;
    uint row = t.row + gl_LocalInvocationID.x, n_group = (uint(args.word[1]) + 31) / 32;
    EACH_ROW(ROW_SET)
    [[unroll]] for (uint c = 0; c < TILE_COLUMNS; c++) {
        x[c] = x_address(t, column_number(t, min(c, t.n_column - 1)));
        y_0[c] = y_1[c] = vec4(0);
    }
#if WEIGHT_IS_PLAIN
    parts_clear();
    [[dont_unroll]] for (uint q = 0; q < 8 * n_group; q++) quad_add(0, q);
    y_0 = part_0;
    y_1 = part_1;
#else
    [[dont_unroll]] for (uint g = 0; g < n_group; g++) {
        EACH_ROW(GROUP_LOAD)
        [[dont_unroll]] for (uint h = 0; h < 2; h++) half_add(32 * g + 16 * h);
    }
#endif
    sums_store(t, row);
}
