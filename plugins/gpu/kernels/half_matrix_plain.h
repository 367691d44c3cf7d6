/* SPDX-License-Identifier: MIT
 *
 * half_matrix_plain.h: the words for products of small matrices of f16 (lang.h) in plain arithmetic: a
 * lane computes the sums of one column from shared memory, in the order of k. A words.h that includes
 * matrix_plain.h may include it behind that; it needs half_to_float.
 */
#ifndef TANDEM_GPU_HALF_MATRIX_PLAIN_H
#define TANDEM_GPU_HALF_MATRIX_PLAIN_H

#define HAS_HALF_MATS 1
struct HalfMat {
    const uvec4 *tile;
    uint row, step;
};
static inline HalfMat half_mat_load(const uvec4 *tile, uint row, uint step) {
    return {tile, row, step};
}
static inline uint half_mat_word(const HalfMat &m, uint row, uint i) {
    return m.tile[half_tile_at(m.row + row, 2 * m.step + i / 4)][int(i % 4)];
}
static inline void half_mat_mul(float *sum, const HalfMat &a, const HalfMat &b) {
    float column[16];
    for (uint k = 0; k < 8; k++) {
        uint both = half_mat_word(b, mat_column(0), k);
        column[2 * k] = half_to_float(both & 0xffffu);
        column[2 * k + 1] = half_to_float(both >> 16);
    }
    for (uint i = 0; i < mat_count(); i++)
        for (uint k = 0; k < 8; k++) {
            uint both = half_mat_word(a, mat_row(i), k);
            sum[i] = fma(half_to_float(both & 0xffffu), column[2 * k], sum[i]);
            sum[i] = fma(half_to_float(both >> 16), column[2 * k + 1], sum[i]);
        }
}

#define HAS_HALF_BLOCKS 1
/* Products are computed when they are waited for: a tile that is changed before gives wrong sums. */
template <uint PARTS> struct HalfBlocks {
    enum { MAX_PENDING = 8 };
    struct {
        float (*sum)[8];
        uint tile;
    } pending[MAX_PENDING];
    uint n_pending = 0;
    const uvec4 *w_tiles, *x_tiles;

    inline HalfBlocks(const uvec4 *w, const uvec4 *x) : w_tiles(w), x_tiles(x) {}
    static inline void fence() {}
    inline void multiply(float (*sum)[8], uint i) {
        if (n_pending == MAX_PENDING) wait();
        pending[n_pending].sum = sum;
        pending[n_pending++].tile = i;
    }
    inline void wait() {
        for (uint i = 0; i < n_pending; i++)
            for (uint step = 0; step < 2; step++) {
                const uvec4 *w = w_tiles + pending[i].tile * (2 * group_size());
                const uvec4 *x = x_tiles + pending[i].tile * (64 * PARTS);
                HalfMat a = half_mat_load(w, 16 * (thread_id() / 32), step);
                for (uint p = 0; p < PARTS; p++)
                    half_mat_mul(pending[i].sum[p], a, half_mat_load(x, 16 * p, step));
            }
        n_pending = 0;
    }
};

#endif
