/* SPDX-License-Identifier: MIT
 *
 * matmul_avx512.h: what vector/matmul_tile.h takes from the instruction set, for AVX-512 with VNNI:
 * how much of a tile is in registers at once, which activations the integer kernels take, and their
 * dot products.
 */
#ifndef TANDEM_CPU_X86_MATMUL_AVX512_H
#define TANDEM_CPU_X86_MATMUL_AVX512_H

#include "plugins/cpu/ops/quantize_row.h"
#include "plugins/cpu/vector/vector.h"

/* TILE_TOK: most tokens of a tile that are computed together; TILE_TOK_FLOAT: the same for plain
 * types. SIGNED_OFFSET: what is added to signed codes to make them unsigned, as the dot products
 * take them; 0 where they stay signed. */
enum { TILE_TOK = 8, TILE_TOK_FLOAT = 8, SIGNED_OFFSET = 128 };
/* Most tokens whose sums are in registers at once; STEP_TOK_MIN2 with two scales and two minima. */
enum { STEP_TOK = CPU_IS_Q8 ? 8 : 4, STEP_TOK_MIN2 = CPU_IS_Q8 ? 8 : 2 };

#if CPU_IS_Q8
#define KERNEL_NAME(name) cpu_matmul_run_##name##_q8_avx512
typedef cpu_q8_block x_block;
#else
#define KERNEL_NAME(name) cpu_matmul_run_##name##_avx512
typedef cpu_q15_block x_block;
#endif

/* Signed bytes as codes. */
INLINE ints codes_from_signed(ints x) {
    return _mm512_xor_si512(x, _mm512_set1_epi8((char)0x80));
}

/* sum[t] += the dot products of each row's 4 * n codes codes[first ..] with those elements of x[t].
 * dpbusd sums in 32 bits without saturation: 32 * 255 * 16256 stays below 2^28. `n_bit` is how wide
 * the codes are. A dot product waits four cycles for the one before it in its chain, so four chains
 * or more take turns: one for each token of 8 bits, two (hi and lo) for each token of 15. Where
 * these are too few, each token has twice as many. */
#if CPU_IS_Q8
INLINE void dots_add(ints *sum, const ints *codes, int first, int n, const x_block **x, int n_tok,
                     int n_bit) {
    (void)n_bit;
    bool is_split = n_tok <= 2;
    ints more[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    UNROLL
    for (int t0 = 0; t0 < n_tok; t0 += 4) {
        int end = n_tok - t0 < 4 ? n_tok : t0 + 4;
        UNROLL
        for (int c = first; c < first + n; c++) {
            UNROLL
            for (int t = t0; t < end; t++) {
                ints *to = is_split && c % 2 != 0 ? &more[t] : &sum[t];
                *to = _mm512_dpbusd_epi32(*to, codes[c], ints_set_bytes(x[t]->q + 4 * c));
            }
        }
    }
    UNROLL
    for (int t = 0; is_split && t < n_tok; t++) sum[t] = _mm512_add_epi32(sum[t], more[t]);
}
#else
INLINE void dots_add(ints *sum, const ints *codes, int first, int n, const x_block **x, int n_tok,
                     int n_bit) {
    (void)n_bit;
    bool is_split = n_tok == 1;
    ints high[STEP_TOK], more = _mm512_setzero_si512(), high_more = more;
    UNROLL
    for (int t = 0; t < n_tok; t++) high[t] = _mm512_setzero_si512();
    UNROLL
    for (int c = first; c < first + n; c++) {
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            ints *h = is_split && c % 2 != 0 ? &high_more : &high[t];
            ints *l = is_split && c % 2 != 0 ? &more : &sum[t];
            *h = _mm512_dpbusd_epi32(*h, codes[c], ints_set_bytes(x[t]->hi + 4 * c));
            *l = _mm512_dpbusd_epi32(*l, codes[c], ints_set_bytes(x[t]->lo + 4 * c));
        }
    }
    if (is_split) high[0] = _mm512_add_epi32(high[0], high_more);
    if (is_split) sum[0] = _mm512_add_epi32(sum[0], more);
    UNROLL
    for (int t = 0; t < n_tok; t++)
        sum[t] = _mm512_add_epi32(sum[t], _mm512_slli_epi32(high[t], 7));
}
#endif

#endif
