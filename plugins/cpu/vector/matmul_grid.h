/* SPDX-License-Identifier: MIT
 *
 * matmul_grid.h: the kernels of matmul_tile.h for the types whose codes are points of a grid
 * (tandem/grid.h): iq2, iq3 and iq1. Reference: matmul_reference.c.
 *
 * Weights stay as small as they are in the file. A point is looked up when it is needed: one gather
 * loads four codes of each row into the row's lane. Offsets below are in units of N_LANE bytes, as
 * in matmul_tile.h. d is in front, except that of iq1_m, which is in bits of its scales.
 */
#ifndef TANDEM_CPU_VECTOR_MATMUL_GRID_H
#define TANDEM_CPU_VECTOR_MATMUL_GRID_H

#include "quant/grids.h"
#include "plugins/cpu/vector/matmul_tile.h"

/* Eight codes of each row: a point with the signs of the low eight bits of `signs`. */
INLINE void point8_load(const uint64_t *grid, ints index, ints signs, ints *codes) {
    const uint8_t *table = (const uint8_t *)grid;
    codes[0] = codes_from_signed(bytes_negate(ints_gather8(table, index), signs, 0));
    codes[1] = codes_from_signed(bytes_negate(ints_gather8(table + 4, index), signs, 4));
}

/* The same, of two points of four. */
INLINE void point4_load(const uint32_t *grid, ints first, ints second, ints signs, ints *codes) {
    codes[0] = codes_from_signed(bytes_negate(ints_gather4(grid, first), signs, 0));
    codes[1] = codes_from_signed(bytes_negate(ints_gather4(grid, second), signs, 4));
}

/* Adds the eighth sign bit to seven: it makes the number of set bits even. */
INLINE ints signs_of_7(ints signs) {
    ints parity = ints_xor(signs, ints_bits(signs, 4, 7));
    parity = ints_xor(parity, ints_bits(parity, 2, 3));
    parity = ints_xor(parity, ints_bits(parity, 1, 1));
    return ints_or(signs, ints_shift_left(ints_bits(parity, 0, 1), 7));
}

/* d * (0.5 + n) for 4 bits n of each lane. */
INLINE lanes half_scale(lanes d, ints lane, int shift) {
    return lanes_mul(d, lanes_add(lanes_from_ints(ints_bits(lane, shift, 15)), lanes_set(0.5f)));
}

/* d * (1 + 2 * n) for the bits n of `mask` */
INLINE lanes odd_scale(lanes d, ints lane, int shift, int32_t mask) {
    ints n = ints_bits(lane, shift, mask);
    return lanes_mul(d, lanes_from_ints(ints_add(ints_add(n, n), ints_set(1))));
}

/* 32 elements of each row: their codes, eight of each point or pair of points, and their one or two
 * scales, from the block's d. p is the block's body, s = 0 .. 7 the place in it. */
typedef void grid_step(const tdm_grids *grids, const uint8_t *p, int s, lanes d, ints *codes,
                       lanes *scale);

/* Four indices, then four sets of seven signs with a scale: 8 bytes for 32 elements. */
INLINE void iq2_xxs_step(const tdm_grids *grids, const uint8_t *p, int s, lanes d, ints *codes,
                         lanes *scale) {
    ints index = ints_load(p + 8 * N_LANE * s);
    ints word = ints_load(p + (8 * s + 4) * N_LANE);
    scale[0] = half_scale(d, word, 28);
    UNROLL
    for (int g = 0; g < 4; g++) {
        ints signs = signs_of_7(ints_bits(word, 7 * g, 127));
        point8_load(grids->iq2_xxs, ints_bits(index, 8 * g, 255), signs, codes + 2 * g);
    }
}

/* Indices with signs at 0, two groups of eight to a lane; scales at 64. */
INLINE void iq2_xs_step(const tdm_grids *grids, const uint8_t *p, int s, lanes d, ints *codes,
                        lanes *scale) {
    ints scales = ints_from_u8(p + (64 + s) * N_LANE);
    scale[0] = half_scale(d, scales, 0);
    scale[1] = half_scale(d, scales, 4);
    UNROLL
    for (int g = 0; g < 4; g++) {
        ints both = ints_load(p + (8 * s + 4 * (g / 2)) * N_LANE);
        ints signs = signs_of_7(ints_bits(both, 16 * (g % 2) + 9, 127));
        point8_load(grids->iq2_xs, ints_bits(both, 16 * (g % 2), 511), signs, codes + 2 * g);
    }
}

/* Low bytes of indices at 0, signs at 32, high bits at 64, scales at 72. */
INLINE void iq2_s_step(const tdm_grids *grids, const uint8_t *p, int s, lanes d, ints *codes,
                       lanes *scale) {
    ints low = ints_load(p + 4 * N_LANE * s);
    ints signs = ints_load(p + (32 + 4 * s) * N_LANE);
    ints high = ints_from_u8(p + (64 + s) * N_LANE);
    ints scales = ints_from_u8(p + (72 + s) * N_LANE);
    scale[0] = half_scale(d, scales, 0);
    scale[1] = half_scale(d, scales, 4);
    UNROLL
    for (int g = 0; g < 4; g++) {
        ints index =
            ints_or(ints_bits(low, 8 * g, 255), ints_shift_left(ints_bits(high, 2 * g, 3), 8));
        point8_load(grids->iq2_s, index, ints_bits(signs, 8 * g, 255), codes + 2 * g);
    }
}

/* Indices at 0, words of signs with a scale at 64. */
INLINE void iq3_xxs_step(const tdm_grids *grids, const uint8_t *p, int s, lanes d, ints *codes,
                         lanes *scale) {
    ints word = ints_load(p + (64 + 4 * s) * N_LANE);
    scale[0] = half_scale(d, word, 28);
    UNROLL
    for (int g = 0; g < 4; g++) {
        ints index = ints_load(p + (8 * s + 4 * (g / 2)) * N_LANE);
        ints signs = signs_of_7(ints_bits(word, 7 * g, 127));
        int shift = 16 * (g % 2);
        point4_load(grids->iq3_xxs, ints_bits(index, shift, 255), ints_bits(index, shift + 8, 255),
                    signs, codes + 2 * g);
    }
}

/* Low bytes of indices at 0, signs at 64, ninth bits at 96, scales at 104. */
INLINE ints iq3_s_index(ints low, int shift, ints high, int bit) {
    return ints_or(ints_bits(low, shift, 255), ints_shift_left(ints_bits(high, bit, 1), 8));
}

INLINE void iq3_s_step(const tdm_grids *grids, const uint8_t *p, int s, lanes d, ints *codes,
                       lanes *scale) {
    ints signs = ints_load(p + (64 + 4 * s) * N_LANE);
    ints high = ints_from_u8(p + (96 + s) * N_LANE);
    scale[0] = odd_scale(d, ints_from_u8(p + (104 + s / 2) * N_LANE), 4 * (s % 2), 15);
    UNROLL
    for (int g = 0; g < 4; g++) {
        ints low = ints_load(p + (8 * s + 4 * (g / 2)) * N_LANE);
        int shift = 16 * (g % 2);
        point4_load(grids->iq3_s, iq3_s_index(low, shift, high, 2 * g),
                    iq3_s_index(low, shift + 8, high, 2 * g + 1), ints_bits(signs, 8 * g, 255),
                    codes + 2 * g);
    }
}

/* iq1's codes are eight times v + o, plus 9 so that they are not negative: 8 * (v + 1) as the grid
 * has them, plus 2 where o is positive. `minus` is 1 in lanes where o is negative. */
INLINE void iq1_point_load(const uint64_t *grid, ints index, ints minus, ints *codes) {
    const uint8_t *table = (const uint8_t *)grid;
    ints offset = ints_bits(ints_sub(minus, ints_set(1)), 0, 0x02020202);
    codes[0] =
        ints_add(ints_gather8(table, index), offset); /* bytes up to 18: nothing is carried */
    codes[1] = ints_add(ints_gather8(table + 4, index), offset);
}

/* Low bytes of indices at 0; high bits, scale and offset's sign at 32. */
INLINE void iq1_s_step(const tdm_grids *grids, const uint8_t *p, int s, lanes d, ints *codes,
                       lanes *scale) {
    ints low = ints_load(p + 4 * N_LANE * s);
    ints high = ints_from_u16(p + (32 + 2 * s) * N_LANE);
    ints minus = ints_bits(high, 15, 1);
    scale[0] = odd_scale(d, high, 12, 7);
    UNROLL
    for (int g = 0; g < 4; g++) {
        ints index =
            ints_or(ints_bits(low, 8 * g, 255), ints_shift_left(ints_bits(high, 3 * g, 7), 8));
        iq1_point_load(grids->iq1, index, minus, codes + 2 * g);
    }
}

/* Low bytes of indices at 0; high bits and offsets' signs at 32, scales with d at 48. */
INLINE lanes iq1_m_d(const uint8_t *p) {
    ints bits = ints_bits(ints_from_u16(p + 48 * N_LANE), 12, 15);
    bits = ints_or(bits, ints_bits(ints_from_u16(p + 50 * N_LANE), 8, 0xf0));
    bits = ints_or(bits, ints_bits(ints_from_u16(p + 52 * N_LANE), 4, 0xf00));
    return lanes_from_f16_bits(ints_or(bits, ints_bits(ints_from_u16(p + 54 * N_LANE), 0, 0xf000)));
}

INLINE void iq1_m_step(const tdm_grids *grids, const uint8_t *p, int s, lanes d, ints *codes,
                       lanes *scale) {
    ints low = ints_load(p + 4 * N_LANE * s);
    ints high = ints_from_u16(p + (32 + 2 * s) * N_LANE);
    ints scales = ints_from_u16(p + (48 + 2 * (s / 2)) * N_LANE);
    scale[0] = odd_scale(d, scales, 6 * (s % 2), 7);
    scale[1] = odd_scale(d, scales, 6 * (s % 2) + 3, 7);
    UNROLL
    for (int g = 0; g < 4; g++) {
        ints index =
            ints_or(ints_bits(low, 8 * g, 255), ints_shift_left(ints_bits(high, 4 * g, 7), 8));
        iq1_point_load(grids->iq1, index, ints_bits(high, 4 * g + 3, 1), codes + 2 * g);
    }
}

/* ---- entries --------------------------------------------------------------------------------- */

/* Scales are in units of d * d_unit. */
INLINE void grid_tile(grid_step *step, float d_unit, int kind, int n_bit, int front_size,
                      int body_size, tile_cut cut, int n_tok) {
    const tdm_grids *grids = tdm_grids_get();
    block_walk w = walk_begin(cut, front_size, body_size, 8);
    lanes acc[TILE_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        lanes d = front_size != 0 ? lanes_from_f16(w.front) : iq1_m_d(w.body);
        d = lanes_mul(d, lanes_set(d_unit));
        for (int s = 0; s < 8; s++) {
            ints codes[N_VEC];
            lanes scale[2];
            step(grids, w.body, s, d, codes, scale);
            step_add(&w, kind, n_bit, codes, scale, NULL, n_tok, acc);
        }
    }
    tile_store(cut, n_tok, acc);
}

#define GRID_(name, d_unit, kind, n_bit, front_size, body_size)                                    \
    INLINE void name##_tile(tile_cut cut, int n_tok) {                                             \
        grid_tile(name##_step, d_unit, kind, n_bit, front_size, body_size, cut, n_tok);            \
    }                                                                                              \
    KERNEL_(name, name##_tile)

GRID_(iq2_xxs, 0.25f, ONE_SCALE | SIGNED_BIAS, 8, 2, 64)
GRID_(iq2_xs, 0.25f, TWO_SCALES | SIGNED_BIAS, 8, 2, 72)
GRID_(iq2_s, 0.25f, TWO_SCALES | SIGNED_BIAS, 8, 2, 80)
GRID_(iq3_xxs, 0.5f, ONE_SCALE | SIGNED_BIAS, 8, 2, 96)
GRID_(iq3_s, 1, ONE_SCALE | SIGNED_BIAS, 8, 2, 108)
GRID_(iq1_s, 0.125f, ONE_SCALE | HAS_BIAS, 5, 2, 48)
GRID_(iq1_m, 0.125f, TWO_SCALES | HAS_BIAS, 5, 0, 56)

#endif
