/* SPDX-License-Identifier: MIT
 *
 * half_matrix_plain.h: the words for products of f16 matrices (HalfMat and HalfBlocks of lang.h) in
 * plain arithmetic: a lane computes the sums of one column from shared memory, in the order of k.
 * For the emulated driver. A words.h may include it after matrix_plain.h and half_to_float().
 */
#ifndef TANDEM_GPU_HALF_MATRIX_PLAIN_H
#define TANDEM_GPU_HALF_MATRIX_PLAIN_H

#define HAS_HALF_MATS 1
struct HalfMat {
    const uvec4 *tile;
    uint row, step;
    bool is_transposed;
};
static inline HalfMat half_mat_load(const uvec4 *tile, uint row, uint step) {
    return {tile, row, step, false};
}
static inline HalfMat half_mat_load_transposed(const uvec4 *tile, uint row, uint step) {
    return {tile, row, step, true};
}
/* Element k of a row. */
static inline float half_mat_element(const HalfMat &m, uint row, uint k) {
    const uint of_tile = m.is_transposed ? k : row, i = m.is_transposed ? row : k;
    const uint word = m.tile[half_tile_at(m.row + of_tile, 2 * m.step + i / 8)][int(i / 2 % 4)];
    return half_to_float(word >> 16 * (i % 2) & 0xffffu);
}
static inline void half_mat_mul(float *sum, const HalfMat &a, const HalfMat &b) {
    float column[16];
    for (uint k = 0; k < 16; k++) column[k] = half_mat_element(b, mat_column(0), k);
    for (uint i = 0; i < mat_count(); i++)
        for (uint k = 0; k < 16; k++)
            sum[i] = fma(half_mat_element(a, mat_row(i), k), column[k], sum[i]);
}

#define HAS_HALF_BLOCKS 1
/* wait() computes the products, so a kernel that changes a tile before wait() gets wrong sums: a
 * test finds the error. */
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
