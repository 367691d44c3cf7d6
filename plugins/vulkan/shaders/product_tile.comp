// SPDX-License-Identifier: MIT
//
// product_tile.comp: products for prompts. A workgroup computes 64 rows for 32 columns from tiles
// of 32 elements of k in shared memory; each of its 128 threads 4 rows for 4 columns. One module
// for each WEIGHT_TYPE. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#define WEIGHT_MODULES WEIGHT_ANY // kernels.py
#include "args.glsl"
#include "product.glsl"

const uint ROWS = 64, COLUMNS = 32, DEPTH = 32, THREADS = 128;
// [DEPTH][ROWS] and [DEPTH][COLUMNS]: 12 KiB
shared float w_tile[DEPTH * ROWS];
shared float x_tile[DEPTH * COLUMNS];

// Rows by half of the threads, a group of each; columns by the other half, half a group of each.
void tiles_load(WeightRow row, uint64_t x, uint g, uint k, uint thread) {
    if (thread < ROWS) {
        WeightGroup group = weight_group(row, g);
        [[unroll]] for (int q = 0; q < 8; q++) {
            vec4 w = weight_quad(row, group, g, q, k) * group.scale[q / 4] + group.offset[q / 4];
            [[unroll]] for (int i = 0; i < 4; i++) w_tile[(4 * q + i) * ROWS + thread] = w[i];
        }
    } else {
        uint column = thread % COLUMNS, first = (thread - ROWS) / COLUMNS * 16;
        [[unroll]] for (uint q = 0; q < 4; q++) {
            vec4 v = x_four(x, DEPTH * g + first + 4 * q);
            [[unroll]] for (int i = 0; i < 4; i++)
                x_tile[(first + 4 * q + i) * COLUMNS + column] = v[i];
        }
    }
}

void main() {
    Tile t = tile_get(ROWS / N_PART);
    if (t.n_column == 0) return;
    uint thread = gl_LocalInvocationID.x;
    uint k = uint(args.word[1]), n_group = (k + DEPTH - 1) / DEPTH;
    WeightRow row = product_row(t, t.row + thread % ROWS / N_PART, int(thread) % N_PART);
    uint64_t x = x_address(t, column_number(t, min(thread % COLUMNS, t.n_column - 1)));
    uint row_first = thread % 16 * 4, column_first = thread / 16 * 4;
    float sum[16];
    [[unroll]] for (int i = 0; i < 16; i++) sum[i] = 0;
    [[dont_unroll]] for (uint g = 0; g < n_group; g++) {
        barrier();
        tiles_load(row, x, g, k, thread);
        barrier();
        [[unroll]] for (uint i = 0; i < DEPTH; i++) {
            float w[4], v[4];
            [[unroll]] for (int r = 0; r < 4; r++) w[r] = w_tile[i * ROWS + row_first + r];
            [[unroll]] for (int c = 0; c < 4; c++) v[c] = x_tile[i * COLUMNS + column_first + c];
            [[unroll]] for (int s = 0; s < 16; s++) sum[s] = fma(w[s % 4], v[s / 4], sum[s]);
        }
    }
    [[unroll]] for (uint c = 0; c < 4; c++) {
        if (column_first + c >= t.n_column) break;
        uint at = y_at(t, column_number(t, column_first + c));
        [[unroll]] for (uint r = 0; r < 4; r += N_PART)
            y_store(at, t.row + (row_first + r) / N_PART, sum[4 * c + r],
                    sum[4 * c + r + N_PART - 1]);
    }
}
