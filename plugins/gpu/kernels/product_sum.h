/* SPDX-License-Identifier: MIT
 *
 * product_sum.h: what product_row.cu and product_row_dot.cu share. The threads of a workgroup
 * divide k: each has a sum over its part of k for each row and column of the tile. The sums of all
 * threads are added and stored. ROWS and COLUMNS are constants, so that sums lie in registers.
 */
#include "product.h"

template <int ROWS, int COLUMNS> struct ProductSum : Product {
    inline explicit ProductSum(const Args &args_) : Product(args_) {}

    static constexpr int N_SUM = ROWS * COLUMNS;
    // For at most 32 waves: the emitter gives no larger workgroup.
    float *sums = shared_take<float>(32 * N_SUM);

    // Each thread prefetches one line of 128 bytes of each field of one row. With 128 threads and 4
    // rows that is 4 KiB of each field: all of a q4_K row of up to 8192 elements. More would not
    // arrive before wait_previous() returns, and the lines of all workgroups must fit into the
    // cache.
    inline void begin() {
        if (MODE != MODE_PLAIN) return; // which matrix it is, an earlier kernel still computes
        Tile t = tile_get(ROWS / N_PART, COLUMNS);
        uint r = thread_id() % ROWS;
        if (t.n_column != 0)
            row_prefetch(product_row(t, t.row + r / N_PART, r % N_PART), uint(args.word[1]),
                         thread_id() / ROWS);
    }

    // sum: [ROWS][COLUMNS] of this thread. Adds the sums of all threads and stores y. Every thread
    // calls it.
    inline void sums_store(Tile t, float *sum) {
        UNROLL for (int i = 0; i < N_SUM; i++) {
            float total = wave_sum(sum[i]);
            if (lane_id() == 0) sums[wave_id() * N_SUM + i] = total;
        }
        barrier();
        // A thread for each row of y and column.
        uint n_row = uint(ROWS) / uint(N_PART), i = thread_id();
        uint c = i / n_row, r = (i - c * n_row) * uint(N_PART);
        if (c >= t.n_column) return;
        float first = 0, last = 0;
        for (uint w = 0; w < group_waves(); w++) {
            first += sums[w * N_SUM + r * COLUMNS + c];
            if (IS_GLU) last += sums[w * N_SUM + (r + 1) * COLUMNS + c];
        }
        uint column = column_number(t, c);
        y_store(y_at(t, column), column, t.row + r / uint(N_PART), first, last);
    }
};
