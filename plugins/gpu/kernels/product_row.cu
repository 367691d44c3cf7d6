/* SPDX-License-Identifier: MIT
 *
 * product_row.cu: products for up to 8 columns. The threads of a workgroup divide k; each has the
 * same SPEC2 rows and SPEC3 columns, and their sums are added up at the end.
 * An entry for each WEIGHT_TYPE. See kernel.h.
 */
#ifndef WEIGHT_TYPE
#define WEIGHT_FILE "product_row.cu"
#include "each_type.h"
#else
#include "product.h"

struct ProductRow : Product {
    explicit ProductRow(const Args &args_) : Product(args_) {}

    const int N_SUM = TILE_ROWS * TILE_COLUMNS;
    // At most 32 waves in a workgroup: the emitter sees to that.
    enum { MAX_ROWS = 4, MAX_COLUMNS = 8, MAX_SUM = MAX_ROWS * MAX_COLUMNS };
    float *sums = shared_take<float>(32 * N_SUM);

    void run() {
        Tile t = tile_get(TILE_ROWS / N_PART);
        if (t.n_column == 0) return;
        uint k = uint(args.word[1]), n_group = (k + 31) / 32;
        WeightRow rows[MAX_ROWS];
        u64 x[MAX_COLUMNS];
        float sum[MAX_SUM];
        UNROLL for (int r = 0; r < TILE_ROWS; r++) rows[r] =
            product_row(t, t.row + r / N_PART, r % N_PART);
        UNROLL for (int c = 0; c < TILE_COLUMNS; c++) x[c] =
            x_address(t, column_number(t, min(uint(c), t.n_column - 1)));
        UNROLL for (int i = 0; i < N_SUM; i++) sum[i] = 0;
        for (uint g = thread_id(); g < n_group; g += group_size()) {
            WeightGroup groups[MAX_ROWS];
            UNROLL for (int r = 0; r < TILE_ROWS; r++) groups[r] = weight_group(rows[r], g);
            UNROLL for (int h = 0; h < 2; h++) {
                float part[MAX_SUM], x_sum[MAX_COLUMNS];
                UNROLL for (int i = 0; i < N_SUM; i++) part[i] = 0;
                UNROLL for (int c = 0; c < TILE_COLUMNS; c++) x_sum[c] = 0;
                UNROLL for (int q = 4 * h; q < 4 * h + 4; q++) {
                    vec4 w[MAX_ROWS];
                    UNROLL for (int r = 0; r < TILE_ROWS; r++) w[r] =
                        weight_quad(rows[r], groups[r], g, q, k);
                    UNROLL for (int c = 0; c < TILE_COLUMNS; c++) {
                        vec4 v = x_four(x[c], 32 * g + 4 * q);
                        x_sum[c] += v.x + v.y + v.z + v.w;
                        UNROLL for (int r = 0; r < TILE_ROWS; r++) part[r * TILE_COLUMNS + c] +=
                            dot(w[r], v);
                    }
                }
                UNROLL for (int i = 0; i < N_SUM; i++) {
                    float scale = groups[i / TILE_COLUMNS].scale[h];
                    float offset = groups[i / TILE_COLUMNS].offset[h];
                    sum[i] += scale * part[i];
                    if (WEIGHT_HAS_OFFSET) sum[i] += offset * x_sum[i % TILE_COLUMNS];
                }
            }
        }
        UNROLL for (int i = 0; i < N_SUM; i++) sum[i] = wave_sum(sum[i]);
        if (group_waves() > 1) {
            if (lane_id() == 0) {
                UNROLL for (int i = 0; i < N_SUM; i++) sums[wave_id() * N_SUM + i] = sum[i];
            }
            barrier();
            if (wave_id() != 0) return;
            UNROLL for (int i = 0; i < N_SUM; i++) {
                float total = 0;
                for (uint s = lane_id(); s < group_waves(); s += wave_size())
                    total += sums[s * N_SUM + i];
                sum[i] = wave_sum(total);
            }
        }
        if (lane_id() != 0) return;
        UNROLL for (int c = 0; c < TILE_COLUMNS; c++) {
            if (c >= t.n_column) break;
            uint at = y_at(t, column_number(t, c));
            UNROLL for (int r = 0; r < TILE_ROWS; r += N_PART)
                y_store(at, t.row + r / N_PART, sum[r * TILE_COLUMNS + c],
                        sum[(r + N_PART - 1) * TILE_COLUMNS + c]);
        }
    }
};

GPU_TYPED_KERNEL(product_row, ProductRow)
#endif
