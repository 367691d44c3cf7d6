// SPDX-License-Identifier: MIT
//
// product_row_dot.comp: products for up to 8 columns of bytes. As in product_row.comp, the threads
// of a workgroup divide k, and each has the same SPEC2 rows and SPEC3 columns. One module for each
// WEIGHT_TYPE with blocks. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#define WEIGHT_MODULES WEIGHT_HAS_BLOCKS // kernels.py
#include "args.glsl"
#include "product.glsl"
#include "bytes.glsl"
#include "product_sum.glsl"

void sums_fill(Tile t) {
    uint n_group = uint(args.word[1]) / 32;
    uint64_t x[TILE_COLUMNS]; // the first group of each column
    [[unroll]] for (int c = 0; c < TILE_COLUMNS; c++)
        x[c] = uint64_t(x_row(t, column_number(t, min(c, t.n_column - 1)))) * n_group;
    [[dont_unroll]] for (uint g = gl_LocalInvocationID.x; g < n_group; g += gl_WorkGroupSize.x) {
        WeightGroup groups[TILE_ROWS];
        [[unroll]] for (int r = 0; r < TILE_ROWS; r++) groups[r] = weight_group(rows[r], g);
        [[unroll]] for (int c = 0; c < TILE_COLUMNS; c++) {
            uvec4 high_0 = x_high(x[c] + g, 0), high_1 = x_high(x[c] + g, 1);
            uvec4 low_0 = x_low(x[c] + g, 0), low_1 = x_low(x[c] + g, 1);
            float scale = x_scale(x[c] + g);
            vec2 x_sum = vec2(0);
            if (WEIGHT_HAS_OFFSET)
                x_sum = vec2(half_sum(high_0, low_0), half_sum(high_1, low_1));
            [[unroll]] for (int r = 0; r < TILE_ROWS; r++) {
                uvec4 w_0 = groups[r].low, w_1 = groups[r].high;
                ivec2 dots = ivec2((dot_16(w_0, high_0) << 7) + dot_16(w_0, low_0),
                                   (dot_16(w_1, high_1) << 7) + dot_16(w_1, low_1));
                sum[r * TILE_COLUMNS + c] +=
                    scale * group_product(groups[r].scale, groups[r].offset, dots, x_sum);
            }
        }
    }
}
