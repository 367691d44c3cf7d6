/* SPDX-License-Identifier: MIT
 *
 * matmul_neon.h: what vector/matmul_tile.h takes from the instruction set, for NEON with dot
 * products: how much of a tile is in registers at once, which activations the integer kernels take,
 * and their dot products.
 */
#ifndef TANDEM_CPU_ARM_MATMUL_NEON_H
#define TANDEM_CPU_ARM_MATMUL_NEON_H

#include "plugins/cpu/ops/quantize_row.h"
#include "plugins/cpu/vector/vector.h"

/* As in x86/matmul_avx512.h. SDOT multiplies signed bytes: signed codes stay signed. */
enum { TILE_TOK = 8, TILE_TOK_FLOAT = 4, SIGNED_OFFSET = 0 };
/* The codes of 32 elements take 16 of 32 registers, a token's sums two or, with 15 bits, four. */
enum { STEP_TOK = CPU_IS_Q8 ? 4 : 2, STEP_TOK_MIN2 = STEP_TOK };

#if CPU_IS_Q8
#define KERNEL_NAME(name) cpu_matmul_run_##name##_q8_neon
typedef cpu_q8_block x_block;
#else
#define KERNEL_NAME(name) cpu_matmul_run_##name##_neon
typedef cpu_q15_block x_block;
#endif

/* Signed bytes as codes. */
INLINE ints codes_from_signed(ints x) {
    return x;
}

/* sum + the products of each lane's four codes with elements 4 * k .. 4 * k + 3 of x. SDOT takes
 * them from the register; k must be a constant there. */
INLINE int32x4_t quad_dot(int32x4_t sum, int32x4_t codes, int8x16_t x, int k) {
    int8x16_t a = signed_bytes_of(codes);
    switch (k) {
    case 0: return vdotq_laneq_s32(sum, a, x, 0);
    case 1: return vdotq_laneq_s32(sum, a, x, 1);
    case 2: return vdotq_laneq_s32(sum, a, x, 2);
    default: return vdotq_laneq_s32(sum, a, x, 3);
    }
}
INLINE ints ints_dot_lane(ints sum, ints codes, int8x16_t x, int k) {
    return (ints){quad_dot(sum.low, codes.low, x, k), quad_dot(sum.high, codes.high, x, k)};
}

/* sum[t] += the dot products of each row's 4 * n codes codes[first ..] with those elements of x[t].
 * Sums are exact: 32 * 128 * 16256 stays below 2^27. `n_bit` is how wide the codes are; all fit
 * signed bytes. */
#if CPU_IS_Q8
INLINE void dots_add(ints *sum, const ints *codes, int first, int n, const x_block **x, int n_tok,
                     int n_bit) {
    (void)n_bit;
    UNROLL
    for (int c = first; c < first + n; c += 4) {
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            int8x16_t q = vld1q_s8(x[t]->q + 4 * c);
            UNROLL
            for (int k = 0; k < 4; k++) sum[t] = ints_dot_lane(sum[t], codes[c + k], q, k);
        }
    }
}
#else
INLINE void dots_add(ints *sum, const ints *codes, int first, int n, const x_block **x, int n_tok,
                     int n_bit) {
    (void)n_bit;
    ints high[STEP_TOK];
    UNROLL
    for (int t = 0; t < n_tok; t++) high[t] = ints_set(0);
    UNROLL
    for (int c = first; c < first + n; c += 4) {
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            int8x16_t hi = vld1q_s8(x[t]->hi + 4 * c), lo = vld1q_s8(x[t]->lo + 4 * c);
            UNROLL
            for (int k = 0; k < 4; k++) {
                high[t] = ints_dot_lane(high[t], codes[c + k], hi, k);
                sum[t] = ints_dot_lane(sum[t], codes[c + k], lo, k);
            }
        }
    }
    UNROLL
    for (int t = 0; t < n_tok; t++) sum[t] = ints_add(sum[t], ints_sll32(high[t], 7));
}
#endif

#endif
