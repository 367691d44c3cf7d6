/* SPDX-License-Identifier: MIT
 *
 * product_row_dot.cu: products for up to 8 columns of bytes (bytes.h). The threads of a workgroup
 * divide k; each has the same ROWS rows and COLUMNS columns: product_sum.h. Weights are planar.
 * With spec 5, y is stored as bytes too: the last of the workgroups that compute rows of the same
 * group of 32 does it (last.h).
 * Entries for each WEIGHT_TYPE with blocks. See kernel.h.
 */
#ifndef WEIGHT_TYPE
#define WEIGHT_FILE  "product_row_dot.cu"
#define WEIGHT_TYPES WEIGHT_TYPES_BLOCKS
#define WEIGHT_ALWAYS_PLANAR
#include "bytes_store.h"
#include "last.h"
#include "each_type.h"
#else
#include "product_sum.h"
#include "bytes.h"

template <int ROWS, int COLUMNS> struct ProductRowDot : ProductSum<ROWS, COLUMNS> {
    typedef ProductSum<ROWS, COLUMNS> Sum;
    typedef typename Sum::WeightRow WeightRow;
    typedef typename Sum::WeightGroup WeightGroup;
    using Sum::args, Sum::N_SUM, Sum::N_PART;
    inline explicit ProductRowDot(const Args &args_) : Sum(args_) {}

    // Groups of each row that are loaded before the first is used. With several columns the
    // arithmetic of one group covers the loads of the next.
    static constexpr uint AHEAD = COLUMNS == 1 ? 2 : 1;

    const bool HAS_BYTES = SPEC5 != 0;

    float sum[N_SUM];

    inline void group_add(const WeightGroup *groups, const BytesGroup &x, int c) {
        int x_sums[2] = {0, 0};
        if (WEIGHT_HAS_OFFSET) UNROLL for (int h = 0; h < 2; h++) x_sums[h] = bytes_sum(x, h);
        UNROLL for (int r = 0; r < ROWS; r++) {
            const WeightGroup &w = groups[r];
            const int dots[2] = {
                dot_16(w.low, x.low[0], dot_16(w.low, x.high[0], 0) * 128),
                dot_16(w.high, x.low[1], dot_16(w.high, x.high[1], 0) * 128),
            };
            sum[r * COLUMNS + c] += x.scale * group_product(w.scale, w.offset, dots, x_sums);
        }
    }

    // Stores 32 rows of y of the tile's columns as bytes, after all of y. A row of y has the role
    // of the row of x: it is a prompt's where the row of x has no `low`.
    inline void bytes_make(typename Sum::Tile t) {
        const uint n = uint(args.word[0]), n_column = uint(args.word[2]), n_group = n / 32;
        const uint g = t.row / 32, of_group = 32 / (uint(ROWS) / uint(N_PART));
        const u64 y = args.address[0], y_bytes = y + 4 * u64(n_column) * n;
        if (!group_is_last(args.address[4] + 4 * u64(t.column / COLUMNS * n_group + g), of_group,
                           (uint *)this->sums))
            return;
        const Bytes x(args.address[2], u64(n_column) * (uint(args.word[1]) / 32));
        DONT_UNROLL for (uint first = 0; first < t.n_column; first += group_size() / 8) {
            const uint c = first + thread_id() / 8, part = thread_id() % 8;
            const uint column = t.column + min(c, t.n_column - 1);
            bytes_store(y_bytes, u64(n_column) * n_group, column * n_group + g, part,
                        bits_to_float(load_16(y + 4 * (u64(column) * n + 32 * g + 4 * part))),
                        U32(x.has_low).at[column] == 0, c < t.n_column, column, g == 0);
        }
    }

    inline void run() {
        auto t = this->tile_get(ROWS / N_PART, COLUMNS);
        if (t.n_column == 0) return;
        uint n_group = uint(args.word[1]) / 32;
        Bytes x(args.address[2], u64(uint(args.word[5])) * n_group);
        WeightRow rows[ROWS];
        uint first[COLUMNS]; // group of each column
        UNROLL for (int r = 0; r < ROWS; r++) rows[r] =
            this->product_row(t, t.row + r / N_PART, r % N_PART);
        UNROLL for (int c = 0; c < COLUMNS; c++) first[c] =
            this->x_row(t, this->column_number(t, min(uint(c), t.n_column - 1))) * n_group;
        UNROLL for (int i = 0; i < N_SUM; i++) sum[i] = 0;
        uint g = thread_id(), step = group_size();
        DONT_UNROLL for (; g + (AHEAD - 1) * step < n_group; g += AHEAD * step) {
            WeightGroup groups[AHEAD][ROWS];
            BytesGroup xs[AHEAD];
            UNROLL for (uint i = 0; i < AHEAD; i++) {
                UNROLL for (int r = 0; r < ROWS; r++) groups[i][r] =
                    this->weight_group(rows[r], g + i * step);
                if (AHEAD > 1) xs[i] = bytes_group(x, first[0] + g + i * step, true);
            }
            UNROLL for (uint i = 0; i < AHEAD; i++) UNROLL for (int c = 0; c < COLUMNS; c++)
                group_add(groups[i], AHEAD > 1 ? xs[i] : bytes_group(x, first[c] + g, true), c);
        }
        if (AHEAD > 1 && g < n_group) {
            WeightGroup groups[ROWS];
            UNROLL for (int r = 0; r < ROWS; r++) groups[r] = this->weight_group(rows[r], g);
            group_add(groups, bytes_group(x, first[0] + g, true), 0);
        }
        this->sums_store(t, sum);
        if (HAS_BYTES) bytes_make(t);
    }
};

GPU_SIZED_KERNEL(product_row_dot, 128, 128, 1, ProductRowDot<4, 1>)
GPU_SIZED_KERNEL(product_row_dot, 128, 168, 2, ProductRowDot<4, 2>)
GPU_SIZED_KERNEL(product_row_dot, 128, 255, 4, ProductRowDot<4, 4>)
GPU_SIZED_KERNEL(product_row_dot, 128, 168, 8, ProductRowDot<2, 8>)
#endif
