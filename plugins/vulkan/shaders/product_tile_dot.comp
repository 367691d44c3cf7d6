// SPDX-License-Identifier: MIT
//
// product_tile_dot.comp: products of bytes for prompts. A workgroup computes 64 rows for SPEC3
// columns, 32 or 64, from tiles of two groups of k in shared memory: codes of the weight and bytes
// of x. Each of its 128 threads has 4 rows, 16 apart, and every eighth column. `low` of x is left
// out where no column of the tile has any. One module for each WEIGHT_TYPE with blocks.
// See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#define WEIGHT_MODULES WEIGHT_HAS_BLOCKS // kernels.py
#include "args.glsl"
#include "product.glsl"
#include "bytes.glsl"

const uint ROWS = 64, GROUPS = 2, THREADS = 128;
const int OWN = TILE_COLUMNS / 8 > 0 ? TILE_COLUMNS / 8 : 1; // columns of a thread

// [GROUPS][ROWS] and [GROUPS][TILE_COLUMNS]; of 64 columns 15.5 KiB with what follows
shared uvec4 w_low[GROUPS * ROWS], w_high[GROUPS * ROWS]; // elements 0 .. 15, 16 .. 31
shared vec4 w_scale[GROUPS * ROWS];                       // two scales, two offsets
shared uvec4 x_tile[4 * GROUPS * TILE_COLUMNS];           // high of both halves, low of both
shared float x_scales[GROUPS * TILE_COLUMNS];
shared vec2 x_sums[WEIGHT_HAS_OFFSET ? GROUPS * TILE_COLUMNS : 1];
shared uint has_low;

// Row i of the tile: of a GLU, blocks of 16 rows are of gate and of up in turn, so that a thread
// has both of a row.
uint row_of(uint i) {
    return N_PART == 1 ? i : i % 16 + i / 32 * 16;
}
int part_of(uint i) {
    return N_PART == 1 ? 0 : int(i / 16 % 2);
}

void weight_load(WeightRow row, uint g, uint at) {
    WeightGroup group = weight_group(row, g);
    w_low[at] = group.low;
    w_high[at] = group.high;
    w_scale[at] = vec4(group.scale, group.offset);
}

void x_load(uint64_t from, uint at, bool with_low) {
    const uint n = GROUPS * TILE_COLUMNS;
    uvec4 low_0 = uvec4(0), low_1 = uvec4(0);
    x_tile[at] = x_high(from, 0);
    x_tile[n + at] = x_high(from, 1);
    if (with_low) {
        low_0 = x_low(from, 0);
        low_1 = x_low(from, 1);
        x_tile[2 * n + at] = low_0;
        x_tile[3 * n + at] = low_1;
    }
    x_scales[at] = x_scale(from);
    if (WEIGHT_HAS_OFFSET)
        x_sums[at] = vec2(half_sum(x_tile[at], low_0), half_sum(x_tile[n + at], low_1));
}

void main() {
    Tile t = tile_get(ROWS / N_PART);
    if (t.n_column == 0) return;
    const uint n_x = GROUPS * TILE_COLUMNS;
    uint thread = gl_LocalInvocationID.x, n_group = uint(args.word[1]) / 32;
    uint w_of = thread / ROWS, x_of = thread / TILE_COLUMNS; // groups that this thread loads
    uint x_number = x_row(t, column_number(t, min(thread % TILE_COLUMNS, t.n_column - 1)));
    WeightRow row = product_row(t, t.row + row_of(thread % ROWS), part_of(thread % ROWS));
    uint64_t x = uint64_t(x_number) * n_group;
    if (thread == 0) has_low = 0u;
    barrier();
    if (x_has_low(x_number)) has_low = 1u;
    barrier();
    bool with_low = has_low != 0u;
    uint row_first = thread % 16, column_first = thread / 16;
    float sum[4 * OWN];
    [[unroll]] for (int i = 0; i < 4 * OWN; i++) sum[i] = 0;
    [[dont_unroll]] for (uint first = 0; first < n_group; first += GROUPS) {
        barrier();
        if (first + w_of < n_group) weight_load(row, first + w_of, thread);
        if (x_of < GROUPS && first + x_of < n_group) x_load(x + first + x_of, thread, with_low);
        barrier();
        [[dont_unroll]] for (uint s = 0; s < GROUPS && first + s < n_group; s++) {
            uvec4 w[8];
            vec4 scale[4];
            [[unroll]] for (uint r = 0; r < 4; r++) {
                uint at = s * ROWS + row_first + 16 * r;
                w[2 * r] = w_low[at];
                w[2 * r + 1] = w_high[at];
                scale[r] = w_scale[at];
            }
            [[unroll]] for (uint c = 0; c < OWN; c++) {
                uint at = s * TILE_COLUMNS + column_first + 8 * c;
                uvec4 v_0 = x_tile[at], v_1 = x_tile[n_x + at];
                ivec2 dots[4];
                [[unroll]] for (int r = 0; r < 4; r++)
                    dots[r] = ivec2(dot_16(w[2 * r], v_0), dot_16(w[2 * r + 1], v_1)) << 7;
                if (with_low) {
                    v_0 = x_tile[2 * n_x + at];
                    v_1 = x_tile[3 * n_x + at];
                    [[unroll]] for (int r = 0; r < 4; r++)
                        dots[r] += ivec2(dot_16(w[2 * r], v_0), dot_16(w[2 * r + 1], v_1));
                }
                vec2 x_sum = vec2(0);
                if (WEIGHT_HAS_OFFSET) x_sum = x_sums[at];
                [[unroll]] for (int r = 0; r < 4; r++)
                    sum[4 * c + r] += x_scales[at] * group_product(scale[r].xy, scale[r].zw,
                                                                   dots[r], x_sum);
            }
        }
    }
    [[unroll]] for (uint c = 0; c < OWN; c++) {
        if (column_first + 8 * c >= t.n_column) break;
        uint at = y_at(t, column_number(t, column_first + 8 * c));
        [[unroll]] for (uint r = 0; r < 4; r += N_PART)
            y_store(at, t.row + row_of(row_first + 16 * r), sum[4 * c + r],
                    sum[4 * c + r + N_PART - 1]);
    }
}
