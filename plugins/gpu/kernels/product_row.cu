/* SPDX-License-Identifier: MIT
 *
 * product_row.cu: products for up to 8 columns with x as f32. The threads of a workgroup divide k;
 * each has the same ROWS rows and COLUMNS columns: product_sum.h. Plain types have tiles of 1, 2, 4
 * and 8 columns. Types with blocks have one tile, of two rows and one column: it is for weights in
 * canonical blocks, since planar ones use product_row_dot.cu.
 * Entries for each WEIGHT_TYPE. See kernel.h.
 */
#ifndef WEIGHT_TYPE
#define WEIGHT_FILE "product_row.cu"
#include "each_type.h"
#else
#include "product_sum.h"

template <int ROWS, int COLUMNS> struct ProductRow : ProductSum<ROWS, COLUMNS> {
    typedef ProductSum<ROWS, COLUMNS> Sum;
    typedef typename Sum::WeightRow WeightRow;
    typedef typename Sum::WeightGroup WeightGroup;
    using Sum::args, Sum::N_SUM, Sum::N_PART;
    inline explicit ProductRow(const Args &args_) : Sum(args_) {}

    float sum[N_SUM];

#if WEIGHT_IS_PLAIN
    // Eight elements at a time of dense, aligned rows and x.
    struct Eights {
        vec4 w[2 * ROWS], x[2];
    };

    inline void eights_load(const WeightRow *rows, u64 x, uint i, Eights &e) {
        UNROLL for (int r = 0; r < ROWS;
                    r++) this->plain_eight(rows[r], i, e.w[2 * r], e.w[2 * r + 1]);
        UNROLL for (int h = 0; h < 2; h++) e.x[h] = bits_to_float(load_16(x + 4 * i + 16 * h));
    }

    inline void eights_add(const Eights &e, int c) {
        UNROLL for (int r = 0; r < ROWS; r++) sum[r * COLUMNS + c] +=
            dot(e.w[2 * r], e.x[0]) + dot(e.w[2 * r + 1], e.x[1]);
    }

    inline void wide_add(const WeightRow *rows, const u64 *x) {
        uint i = 8 * thread_id(), step = 8 * group_size(), k = uint(args.word[1]);
        Eights e;
        // One column has little arithmetic: two iterations' loads are started together.
        if (COLUMNS == 1) {
            DONT_UNROLL for (; i + step < k; i += 2 * step) {
                Eights next;
                eights_load(rows, x[0], i, e);
                eights_load(rows, x[0], i + step, next);
                eights_add(e, 0);
                eights_add(next, 0);
            }
            if (i >= k) return;
        }
        DONT_UNROLL for (; i < k; i += step) {
            eights_load(rows, x[0], i, e);
            eights_add(e, 0);
            UNROLL for (int c = 1; c < COLUMNS; c++) {
                UNROLL for (int h = 0; h < 2; h++) e.x[h] =
                    bits_to_float(load_16(x[c] + 4 * i + 16 * h));
                eights_add(e, c);
            }
        }
    }

    inline void any_add(const WeightRow *rows, const u64 *x) {
        uint k = uint(args.word[1]);
        DONT_UNROLL for (uint i = thread_id(); i < k; i += group_size()) {
            float w[ROWS];
            UNROLL for (int r = 0; r < ROWS; r++) w[r] = this->plain_float(rows[r], i, k);
            UNROLL for (int c = 0; c < COLUMNS; c++) {
                float v = this->x_one(x[c], i);
                UNROLL for (int r = 0; r < ROWS; r++) sum[r * COLUMNS + c] += w[r] * v;
            }
        }
    }
#else
    inline void any_add(const WeightRow *rows, const u64 *x) {
        uint k = uint(args.word[1]), n_group = (k + 31) / 32;
        DONT_UNROLL for (uint g = thread_id(); g < n_group; g += group_size()) {
            UNROLL for (int r = 0; r < ROWS; r++) {
                WeightGroup group = this->weight_group(rows[r], g);
                DONT_UNROLL for (uint q = 0; q < 8; q++) {
                    vec4 w = this->weight_quad(rows[r], group, g, q, k);
                    w = w * (q < 4 ? group.scale.x : group.scale.y) +
                        (q < 4 ? group.offset.x : group.offset.y);
                    sum[r] += dot(w, this->x_four(x[0], 32 * g + 4 * q));
                }
            }
        }
    }
#endif

    inline void run() {
        auto t = this->tile_get(ROWS / N_PART, COLUMNS);
        if (t.n_column == 0) return;
        WeightRow rows[ROWS];
        u64 x[COLUMNS];
        UNROLL for (int r = 0; r < ROWS; r++) rows[r] =
            this->product_row(t, t.row + r / N_PART, r % N_PART);
        UNROLL for (int c = 0; c < COLUMNS; c++) x[c] =
            this->x_address(t, this->column_number(t, min(uint(c), t.n_column - 1)));
        UNROLL for (int i = 0; i < N_SUM; i++) sum[i] = 0;
#if WEIGHT_IS_PLAIN
        if (this->WEIGHT_IS_WIDE && this->X_IS_WIDE)
            wide_add(rows, x);
        else
#endif
            any_add(rows, x);
        this->sums_store(t, sum);
    }
};

#if WEIGHT_IS_PLAIN
GPU_SIZED_KERNEL(product_row, 128, 128, 1, ProductRow<4, 1>)
GPU_SIZED_KERNEL(product_row, 128, 168, 2, ProductRow<4, 2>)
GPU_SIZED_KERNEL(product_row, 128, 168, 4, ProductRow<4, 4>)
GPU_SIZED_KERNEL(product_row, 128, 168, 8, ProductRow<2, 8>)
#else
GPU_SIZED_KERNEL(product_row, 128, 128, 1, ProductRow<2, 1>)
#endif
#endif
