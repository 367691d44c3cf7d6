/* SPDX-License-Identifier: MIT
 *
 * matmul_avx2.h: what vector/matmul_tile.h takes from the instruction set, for AVX2: how much of a
 * tile is in registers at once, which activations the integer kernels take, and their dot products.
 */
#ifndef TANDEM_CPU_X86_MATMUL_AVX2_H
#define TANDEM_CPU_X86_MATMUL_AVX2_H

#include "plugins/cpu/ops/quantize_row.h"
#include "plugins/cpu/vector/vector.h"

/* As in matmul_avx512.h. Signed codes stay signed here. */
enum { TILE_TOK = 8, TILE_TOK_FLOAT = 4, SIGNED_OFFSET = 0 };
enum { STEP_TOK = TILE_TOK, STEP_TOK_MIN2 = TILE_TOK };

#if CPU_IS_Q8
#define KERNEL_NAME(name) cpu_matmul_run_##name##_q8_avx2
typedef cpu_q8_block x_block;
#else
#define KERNEL_NAME(name) cpu_matmul_run_##name##_avx2
typedef cpu_q15_block x_block;
#endif

/* Signed bytes as codes. */
INLINE ints codes_from_signed(ints x) {
    return x;
}

/* sum[t] += the dot products of each row's 4 * n codes codes[first ..] with those elements of x[t].
 * `n_bit` is how wide the codes are, 8 = signed. */
#if CPU_IS_Q8
/* maddubs gives sums of pairs in 16 bits; how many of them may be added there: 2 * 15 * 127 fits 8
 * times into 2^15 - 1, 2 * 31 * 127 4 times, 2 * 63 * 127 twice. The sign of a signed code is moved
 * to the other factor: 2 * 128 * 127 fits once. */
INLINE void dots_add(ints *sum, const ints *codes, int first, int n, const x_block **x, int n_tok,
                     int n_bit) {
    const __m256i ones = _mm256_set1_epi16(1);
    int n_safe = n_bit <= 4 ? 8 : n_bit == 5 ? 4 : n_bit == 6 ? 2 : 1;
    __m256i pairs[TILE_TOK];
    UNROLL
    for (int c = 0; c < n; c++) {
        ints code = codes[first + c];
        ints magnitude = n_bit < 8 ? code : _mm256_abs_epi8(code);
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            __m256i q = ints_set_bytes(x[t]->q + 4 * (first + c));
            if (n_bit == 8) q = _mm256_sign_epi8(q, code);
            q = _mm256_maddubs_epi16(magnitude, q);
            pairs[t] = c % n_safe == 0 ? q : _mm256_add_epi16(pairs[t], q);
            if (c % n_safe == n_safe - 1 || c == n - 1) {
                sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(pairs[t], ones));
                sum[t] = ints_pin(sum[t]);
            } else {
                pairs[t] = ints_pin(pairs[t]);
            }
        }
    }
}
#else
/* The first two of the four codes of each row as words: unsigned codes get a byte of zeros behind
 * them, signed ones come behind a byte that is shifted out. */
INLINE __m256i codes_widen(ints codes, bool is_signed) {
    const char _ = (char)0x80;
    __m128i order = is_signed ? _mm_setr_epi8(_, 0, _, 1, _, 4, _, 5, _, 8, _, 9, _, 12, _, 13)
                              : _mm_setr_epi8(0, _, 1, _, 4, _, 5, _, 8, _, 9, _, 12, _, 13, _);
    codes = _mm256_shuffle_epi8(codes, _mm256_broadcastsi128_si256(order));
    return is_signed ? _mm256_srai_epi16(codes, 8) : codes;
}

/* In words, which maddwd sums in 32 bits: 32 * 128 * 16256 stays below 2^27. */
INLINE void dots_add(ints *sum, const ints *codes, int first, int n, const x_block **x, int n_tok,
                     int n_bit) {
    UNROLL
    for (int c = first; c < first + n; c++) {
        __m256i a = codes_widen(codes[c], n_bit == 8);
        __m256i b = codes_widen(_mm256_srli_epi32(codes[c], 16), n_bit == 8);
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            __m256i p = _mm256_madd_epi16(a, ints_set_bytes(x[t]->q + 4 * c));
            __m256i q = _mm256_madd_epi16(b, ints_set_bytes(x[t]->q + 4 * c + 2));
            sum[t] = _mm256_add_epi32(sum[t], _mm256_add_epi32(p, q));
            sum[t] = ints_pin(sum[t]);
        }
    }
}
#endif

#endif
