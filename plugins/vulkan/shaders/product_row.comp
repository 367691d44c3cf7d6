// SPDX-License-Identifier: MIT
//
// product_row.comp: products for up to 8 columns. The threads of a workgroup divide k; each has the
// same SPEC2 rows and SPEC3 columns, and their sums are added up at the end. Of plain types whose
// rows and x are wide, neighbouring threads load neighbouring eights of elements; else a thread has
// groups of 32. One module for each WEIGHT_TYPE. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#define WEIGHT_MODULES WEIGHT_ANY // kernels.py
#include "args.glsl"
#include "product.glsl"
#include "product_sum.glsl"

uint64_t x[TILE_COLUMNS]; // the address of each column's x

#if WEIGHT_IS_PLAIN
// Adds eights of elements, where rows and x are wide.
void eights_add(uint k) {
    uint i = 8 * gl_LocalInvocationID.x, step = 8 * gl_WorkGroupSize.x;
    // One column has little arithmetic: two turns are loaded at once.
    if (TILE_COLUMNS == 1) {
        [[dont_unroll]] for (; i + step < k; i += 2 * step) {
            vec4 w[4 * TILE_ROWS], v[4];
            [[unroll]] for (int r = 0; r < 2 * TILE_ROWS; r++)
                plain_eight(rows[r % TILE_ROWS], i + r / TILE_ROWS * step, w[2 * r], w[2 * r + 1]);
            [[unroll]] for (int q = 0; q < 4; q++)
                v[q] = x_four_wide(x[0], i + q / 2 * step + q % 2 * 4);
            [[unroll]] for (int r = 0; r < 2 * TILE_ROWS; r++)
                sum[r % TILE_ROWS] += dot(w[2 * r], v[r / TILE_ROWS * 2]) +
                                      dot(w[2 * r + 1], v[r / TILE_ROWS * 2 + 1]);
        }
    }
    [[dont_unroll]] for (; i < k; i += step) {
        vec4 w[2 * TILE_ROWS];
        [[unroll]] for (int r = 0; r < TILE_ROWS; r++)
            plain_eight(rows[r], i, w[2 * r], w[2 * r + 1]);
        [[unroll]] for (int c = 0; c < TILE_COLUMNS; c++) {
            vec4 low = x_four_wide(x[c], i), high = x_four_wide(x[c], i + 4);
            [[unroll]] for (int r = 0; r < TILE_ROWS; r++)
                sum[r * TILE_COLUMNS + c] += dot(w[2 * r], low) + dot(w[2 * r + 1], high);
        }
    }
}
#endif

// Adds group g. Each half has a scale of its own.
void group_add(uint g, uint k) {
    WeightGroup groups[TILE_ROWS];
    [[unroll]] for (int r = 0; r < TILE_ROWS; r++) groups[r] = weight_group(rows[r], g);
    [[unroll]] for (int h = 0; h < 2; h++) {
        float part[N_SUM], x_sum[TILE_COLUMNS];
        [[unroll]] for (int i = 0; i < N_SUM; i++) part[i] = 0;
        [[unroll]] for (int c = 0; c < TILE_COLUMNS; c++) x_sum[c] = 0;
        [[unroll]] for (int q = 4 * h; q < 4 * h + 4; q++) {
            vec4 w[TILE_ROWS];
            [[unroll]] for (int r = 0; r < TILE_ROWS; r++)
                w[r] = weight_quad(rows[r], groups[r], g, q, k);
            [[unroll]] for (int c = 0; c < TILE_COLUMNS; c++) {
                vec4 v = x_four(x[c], 32 * g + 4 * q);
                x_sum[c] += v.x + v.y + v.z + v.w;
                [[unroll]] for (int r = 0; r < TILE_ROWS; r++)
                    part[r * TILE_COLUMNS + c] += dot(w[r], v);
            }
        }
        [[unroll]] for (int i = 0; i < N_SUM; i++) {
            float scale = groups[i / TILE_COLUMNS].scale[h];
            float offset = groups[i / TILE_COLUMNS].offset[h];
            sum[i] += scale * part[i];
            if (WEIGHT_HAS_OFFSET) sum[i] += offset * x_sum[i % TILE_COLUMNS];
        }
    }
}

void sums_fill(Tile t) {
    uint k = uint(args.word[1]), n_group = (k + 31) / 32;
    [[unroll]] for (int c = 0; c < TILE_COLUMNS; c++)
        x[c] = x_address(t, column_number(t, min(c, t.n_column - 1)));
#if WEIGHT_IS_PLAIN
    if (WEIGHT_IS_WIDE && X_IS_WIDE) {
        eights_add(k);
        n_group = 0; // no group is left
    }
#endif
    [[dont_unroll]] for (uint g = gl_LocalInvocationID.x; g < n_group; g += gl_WorkGroupSize.x)
        group_add(g, k);
}
