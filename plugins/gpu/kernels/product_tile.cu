/* SPDX-License-Identifier: MIT
 *
 * product_tile.cu: products for prompts. A workgroup computes 64 rows for 32 columns from tiles
 * of 32 elements of k in shared memory; each of its 128 threads 4 rows for 4 columns.
 * An entry for each plain WEIGHT_TYPE. See kernel.h.
 */
#ifndef WEIGHT_TYPE
#define WEIGHT_TYPES WEIGHT_TYPES_PLAIN
#define WEIGHT_FILE  "product_tile.cu"
#include "each_type.h"
#else
#include "product.h"

struct ProductTile : Product {
    inline explicit ProductTile(const Args &args_) : Product(args_) {}

    static constexpr uint ROWS = 64, COLUMNS = 32, DEPTH = 32, THREADS = 128;
    // [DEPTH][ROWS] and [DEPTH][COLUMNS]: 12 KiB
    float *w_tile = shared_take<float>(DEPTH * ROWS);
    float *x_tile = shared_take<float>(DEPTH * COLUMNS);

    // Loads group g of k. The first 64 threads load a group of a row each, the other 64 half a
    // group of a column each.
    inline void tiles_load(WeightRow row, u64 x, uint g, uint k, uint thread) {
        if (thread < ROWS) {
            WeightGroup group = weight_group(row, g);
            UNROLL for (int q = 0; q < 8; q++) {
                vec4 w =
                    weight_quad(row, group, g, q, k) * group.scale[q / 4] + group.offset[q / 4];
                UNROLL for (int i = 0; i < 4; i++) w_tile[(4 * q + i) * ROWS + thread] = w[i];
            }
        } else {
            uint column = thread % COLUMNS, first = (thread - ROWS) / COLUMNS * 16;
            UNROLL for (uint q = 0; q < 4; q++) {
                vec4 v = x_four(x, DEPTH * g + first + 4 * q);
                UNROLL for (int i = 0; i < 4; i++) x_tile[(first + 4 * q + i) * COLUMNS + column] =
                    v[i];
            }
        }
    }

    inline void run() {
        Tile t = tile_get(ROWS / N_PART, COLUMNS);
        if (t.n_column == 0) return;
        uint thread = thread_id();
        uint k = uint(args.word[1]), n_group = (k + DEPTH - 1) / DEPTH;
        WeightRow row = product_row(t, t.row + thread % ROWS / N_PART, int(thread) % N_PART);
        u64 x = x_address(t, column_number(t, min(thread % COLUMNS, t.n_column - 1)));
        uint row_first = thread % 16 * 4, column_first = thread / 16 * 4;
        float sum[16];
        UNROLL for (int i = 0; i < 16; i++) sum[i] = 0;
        for (uint g = 0; g < n_group; g++) {
            barrier();
            tiles_load(row, x, g, k, thread);
            barrier();
            UNROLL for (uint i = 0; i < DEPTH; i++) {
                float w[4], v[4];
                UNROLL for (int r = 0; r < 4; r++) w[r] = w_tile[i * ROWS + row_first + r];
                UNROLL for (int c = 0; c < 4; c++) v[c] = x_tile[i * COLUMNS + column_first + c];
                UNROLL for (int s = 0; s < 16; s++) sum[s] = fma(w[s % 4], v[s / 4], sum[s]);
            }
        }
        UNROLL for (uint c = 0; c < 4; c++) {
            if (column_first + c >= t.n_column) break;
            uint column = column_number(t, column_first + c), at = y_at(t, column);
            UNROLL for (uint r = 0; r < 4; r += N_PART)
                y_store(at, column, t.row + (row_first + r) / N_PART, sum[4 * c + r],
                        sum[4 * c + r + N_PART - 1]);
        }
    }
};

GPU_SIZED_KERNEL(product_tile, 128, 128, 32, ProductTile)
#endif
