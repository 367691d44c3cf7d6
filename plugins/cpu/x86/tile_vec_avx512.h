/* SPDX-License-Identifier: MIT
 *
 * tile_vec_avx512.h: the vector words that matmul_tile.h is written in, for AVX-512 with VNNI:
 * sixteen lanes of 32 bits, a lane for each row of a group.
 */
#ifndef TANDEM_CPU_TILE_VEC_H
#define TANDEM_CPU_TILE_VEC_H

#include <immintrin.h>

#include "plugins/cpu/ops/quantize_row.h"
#include "plugins/cpu/vector/unroll.h"
#include "tandem/block.h"

/* V_TOK, and V_TOK_FLOAT of plain types: most tokens that go through at once. V_SIGNED_OFFSET: what is added to signed codes
 * to make them unsigned, as dot products take them; 0 where they stay signed. */
enum { V_LANE = 16, V_TOK = 8, V_TOK_FLOAT = 8, V_SIGNED_OFFSET = 128 };
/* Most tokens whose sums are in registers at once; with two scales and two minima. */
enum { V_STEP = V_IS_Q8 ? 8 : 4, V_STEP_MIN2 = V_IS_Q8 ? 8 : 2 };

/* V_IS_Q8, when this is included, chooses the activations that integer kernels take. */
#if V_IS_Q8
#define V_NAME(name) cpu_matmul_run_##name##_q8_avx512
typedef cpu_q8_block v_x_block;
#else
#define V_NAME(name) cpu_matmul_run_##name##_avx512
typedef cpu_q15_block v_x_block;
#endif

typedef __m512 v_f32;
typedef __m512i v_i32;
typedef __m512i v_u8; /* four codes of each row */

static inline v_f32 v_zero(void) {
    return _mm512_setzero_ps();
}
static inline v_f32 v_set(float x) {
    return _mm512_set1_ps(x);
}
static inline v_f32 v_add(v_f32 a, v_f32 b) {
    return _mm512_add_ps(a, b);
}
static inline v_f32 v_sub(v_f32 a, v_f32 b) {
    return _mm512_sub_ps(a, b);
}
static inline v_f32 v_mul(v_f32 a, v_f32 b) {
    return _mm512_mul_ps(a, b);
}
/* a * b + c and c - a * b, rounded once */
static inline v_f32 v_madd(v_f32 a, v_f32 b, v_f32 c) {
    return _mm512_fmadd_ps(a, b, c);
}
static inline v_f32 v_nmadd(v_f32 a, v_f32 b, v_f32 c) {
    return _mm512_fnmadd_ps(a, b, c);
}
static inline v_f32 v_from_i32(v_i32 a) {
    return _mm512_cvtepi32_ps(a);
}

/* One number of each row. */
static inline v_f32 v_load_f32(const uint8_t *p) {
    return _mm512_loadu_ps((const void *)p);
}
static inline v_f32 v_load_f16(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}
static inline v_f32 v_load_bf16(const uint8_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}
static inline v_i32 v_load_u8(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
}
static inline v_i32 v_load_i8(const uint8_t *p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p));
}
static inline v_i32 v_load_u16(const uint8_t *p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
}

static inline v_i32 v_set_i32(int32_t x) {
    return _mm512_set1_epi32(x);
}
static inline v_i32 v_add_i32(v_i32 a, v_i32 b) {
    return _mm512_add_epi32(a, b);
}
static inline v_i32 v_sub_i32(v_i32 a, v_i32 b) {
    return _mm512_sub_epi32(a, b);
}
static inline v_i32 v_xor(v_i32 a, v_i32 b) {
    return _mm512_xor_si512(a, b);
}
static inline v_i32 v_or(v_i32 a, v_i32 b) {
    return _mm512_or_si512(a, b);
}
/* (a >> shift) & mask in each lane */
static inline v_i32 v_bits_i32(v_i32 a, int shift, int32_t mask) {
    return _mm512_and_si512(_mm512_srl_epi32(a, _mm_cvtsi32_si128(shift)), _mm512_set1_epi32(mask));
}
static inline v_i32 v_shift_left(v_i32 a, int shift) {
    return _mm512_sll_epi32(a, _mm_cvtsi32_si128(shift));
}
/* Number i of the four numbers of each row that four codes are. */
static inline v_i32 v_widen(v_u8 a, int i) {
    __m128i part = i == 0   ? _mm512_castsi512_si128(a)
                   : i == 1 ? _mm512_extracti32x4_epi32(a, 1)
                   : i == 2 ? _mm512_extracti32x4_epi32(a, 2)
                            : _mm512_extracti32x4_epi32(a, 3);
    return _mm512_cvtepu8_epi32(part);
}
/* The f16 whose bits are the low half of each lane, of which the rest is 0. */
static inline v_f32 v_from_f16_bits(v_i32 a) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(a));
}
/* Bits of each lane as f32. */
static inline v_f32 v_as_f32(v_i32 a) {
    return _mm512_castsi512_ps(a);
}
/* The 4 bytes at table + 8 (or 4) * index, for each lane. */
static inline v_i32 v_gather8(const void *table, v_i32 index) {
    return _mm512_i32gather_epi32(index, table, 8);
}
static inline v_i32 v_gather4(const void *table, v_i32 index) {
    return _mm512_i32gather_epi32(index, table, 4);
}

/* Codes: four bytes of each row. */
static inline v_u8 v_load_codes(const uint8_t *p) {
    return _mm512_loadu_si512(p);
}
static inline v_u8 v_low4(v_u8 a) {
    return _mm512_and_si512(a, _mm512_set1_epi8(15));
}
static inline v_u8 v_high4(v_u8 a) {
    return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(15));
}
static inline v_u8 v_low6(v_u8 a) {
    return _mm512_and_si512(a, _mm512_set1_epi8(63));
}
/* Bits 2 * k and the next of every byte, moved to bits 0 and 1, or 4 and 5. */
static inline v_u8 v_pair_low(v_u8 a, int k) {
    switch (k) {
    case 0: break;
    case 1: a = _mm512_srli_epi16(a, 2); break;
    case 2: a = _mm512_srli_epi16(a, 4); break;
    default: a = _mm512_srli_epi16(a, 6);
    }
    return _mm512_and_si512(a, _mm512_set1_epi8(3));
}
static inline v_u8 v_pair_high(v_u8 a, int k) {
    switch (k) {
    case 0: a = _mm512_slli_epi16(a, 4); break;
    case 1: a = _mm512_slli_epi16(a, 2); break;
    case 2: break;
    default: a = _mm512_srli_epi16(a, 2);
    }
    return _mm512_and_si512(a, _mm512_set1_epi8(0x30));
}
/* Adds `value` to the codes where bit `bit` of `bits` is set. */
static inline v_u8 v_add_bit(v_u8 codes, v_u8 bits, int bit, int value) {
    __mmask64 m = _mm512_test_epi8_mask(bits, _mm512_set1_epi8((char)(1 << bit)));
    return _mm512_mask_add_epi8(codes, m, codes, _mm512_set1_epi8((char)value));
}
/* Signed bytes as codes. */
static inline v_u8 v_from_signed(v_u8 a) {
    return _mm512_xor_si512(a, _mm512_set1_epi8((char)0x80));
}
/* Codes of the values that the codebook gives for 4-bit indices. */
static inline v_u8 v_from_codebook(v_u8 index) {
    static const int8_t values[16] = TDM_IQ4_VALUES;
    __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)values));
    return v_from_signed(_mm512_shuffle_epi8(table, index));
}

/* Signed bytes with their signs turned where, of the bits k .. k + 3 of their lane (k = 0 or 4),
 * theirs is set. */
static inline v_u8 v_negate(v_u8 a, v_i32 bits, int k) {
    const __m512i first = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    __m512i only = _mm512_set1_epi32(k == 0 ? 0x08040201 : (int)0x80402010);
    __mmask64 m = _mm512_test_epi8_mask(_mm512_shuffle_epi8(bits, first), only);
    return _mm512_mask_sub_epi8(a, m, _mm512_setzero_si512(), a);
}
/* The next trit of each byte, 0 .. 2, and what is left of it (tdm_tq1_0_trit): 3 * b / 256 counts
 * the passing of 85 and of 170. */
static inline v_u8 v_trit(v_u8 a) {
    const __m512i one = _mm512_set1_epi8(1);
    __m512i first = _mm512_min_epu8(_mm512_subs_epu8(a, _mm512_set1_epi8(85)), one);
    __m512i second = _mm512_min_epu8(_mm512_subs_epu8(a, _mm512_set1_epi8((char)170)), one);
    return _mm512_add_epi8(first, second);
}
static inline v_u8 v_trit_rest(v_u8 a) {
    return _mm512_add_epi8(a, _mm512_add_epi8(a, a));
}
/* Codes of the values that mxfp4's codes stand for. */
static inline v_u8 v_from_e2m1(v_u8 index) {
    static const int8_t values[16] = TDM_MXFP4_VALUES;
    __m512i table = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)values));
    return v_from_signed(_mm512_shuffle_epi8(table, index));
}

static inline v_u8 v_set_codes(const int8_t *q) {
    int32_t four;
    __builtin_memcpy(&four, q, 4);
    return _mm512_set1_epi32(four);
}

/* sum[t] += the dot products of each row's 4 * n codes codes[first ..] with those elements of x[t].
 * dpbusd sums in 32 bits without saturation: 32 * 255 * 16256 stays below 2^28. `n_bit` is how wide
 * the codes are. A dot product waits four cycles for the one before it, so four tokens take turns
 * (eight chains of 15 bits: step_add hands over no more); one or two have several chains each. */
#if V_IS_Q8
INLINE void v_dots(v_i32 *sum, const v_u8 *codes, int first, int n, const v_x_block **x, int n_tok,
                   int n_bit) {
    (void)n_bit;
    bool is_split = n_tok <= 2;
    v_i32 more[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
    UNROLL
    for (int t0 = 0; t0 < n_tok; t0 += 4) {
        int end = n_tok - t0 < 4 ? n_tok : t0 + 4;
        UNROLL
        for (int c = first; c < first + n; c++) {
            UNROLL
            for (int t = t0; t < end; t++) {
                v_i32 *to = is_split && c % 2 != 0 ? &more[t] : &sum[t];
                *to = _mm512_dpbusd_epi32(*to, codes[c], v_set_codes(x[t]->q + 4 * c));
            }
        }
    }
    UNROLL
    for (int t = 0; is_split && t < n_tok; t++) sum[t] = _mm512_add_epi32(sum[t], more[t]);
}
#else
INLINE void v_dots(v_i32 *sum, const v_u8 *codes, int first, int n, const v_x_block **x, int n_tok,
                   int n_bit) {
    (void)n_bit;
    bool is_split = n_tok == 1;
    v_i32 high[V_STEP], more = _mm512_setzero_si512(), high_more = more;
    UNROLL
    for (int t = 0; t < n_tok; t++) high[t] = _mm512_setzero_si512();
    UNROLL
    for (int c = first; c < first + n; c++) {
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            v_i32 *h = is_split && c % 2 != 0 ? &high_more : &high[t];
            v_i32 *l = is_split && c % 2 != 0 ? &more : &sum[t];
            *h = _mm512_dpbusd_epi32(*h, codes[c], v_set_codes(x[t]->hi + 4 * c));
            *l = _mm512_dpbusd_epi32(*l, codes[c], v_set_codes(x[t]->lo + 4 * c));
        }
    }
    if (is_split) high[0] = _mm512_add_epi32(high[0], high_more);
    if (is_split) sum[0] = _mm512_add_epi32(sum[0], more);
    UNROLL
    for (int t = 0; t < n_tok; t++)
        sum[t] = _mm512_add_epi32(sum[t], _mm512_slli_epi32(high[t], 7));
}
#endif

/* The first n rows. */
static inline void v_store(float *y, int n, v_f32 a) {
    _mm512_mask_storeu_ps(y, (__mmask16)(0xffffu >> (16 - n)), a);
}

#endif
