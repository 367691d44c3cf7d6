/* SPDX-License-Identifier: MIT
 *
 * tile_vec_avx2.h: the vector words that matmul_tile.h is written in, for AVX2 with FMA and F16C:
 * eight lanes of 32 bits, a lane for each row of a group.
 */
#ifndef TANDEM_CPU_TILE_VEC_H
#define TANDEM_CPU_TILE_VEC_H

#include <immintrin.h>

#include "plugins/cpu/ops/quantize_row.h"
#include "plugins/cpu/vector/unroll.h"
#include "tandem/block.h"

/* As in tile_vec_avx512.h. Signed codes stay signed here. */
enum { V_LANE = 8, V_TOK = 8, V_TOK_FLOAT = 4, V_SIGNED_OFFSET = 0 };
/* Most tokens whose sums are in registers at once; with two scales and two minima. */
enum { V_STEP = V_TOK, V_STEP_MIN2 = V_TOK };

#if V_IS_Q8
#define V_NAME(name) cpu_matmul_run_##name##_q8_avx2
typedef cpu_q8_block v_x_block;
#else
#define V_NAME(name) cpu_matmul_run_##name##_avx2
typedef cpu_q15_block v_x_block;
#endif

typedef __m256 v_f32;
typedef __m256i v_i32;
typedef __m256i v_u8; /* four codes of each row */

static inline v_f32 v_zero(void) {
    return _mm256_setzero_ps();
}
static inline v_f32 v_set(float x) {
    return _mm256_set1_ps(x);
}
static inline v_f32 v_add(v_f32 a, v_f32 b) {
    return _mm256_add_ps(a, b);
}
static inline v_f32 v_sub(v_f32 a, v_f32 b) {
    return _mm256_sub_ps(a, b);
}
static inline v_f32 v_mul(v_f32 a, v_f32 b) {
    return _mm256_mul_ps(a, b);
}
/* a * b + c and c - a * b, rounded once */
static inline v_f32 v_madd(v_f32 a, v_f32 b, v_f32 c) {
    return _mm256_fmadd_ps(a, b, c);
}
static inline v_f32 v_nmadd(v_f32 a, v_f32 b, v_f32 c) {
    return _mm256_fnmadd_ps(a, b, c);
}
static inline v_f32 v_from_i32(v_i32 a) {
    return _mm256_cvtepi32_ps(a);
}

/* One number of each row. */
static inline v_f32 v_load_f32(const uint8_t *p) {
    return _mm256_loadu_ps((const void *)p);
}
static inline v_f32 v_load_f16(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}
static inline v_f32 v_load_bf16(const uint8_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
static inline v_i32 v_load_u8(const uint8_t *p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
}
static inline v_i32 v_load_i8(const uint8_t *p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p));
}
static inline v_i32 v_load_u16(const uint8_t *p) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
}

static inline v_i32 v_set_i32(int32_t x) {
    return _mm256_set1_epi32(x);
}
static inline v_i32 v_add_i32(v_i32 a, v_i32 b) {
    return _mm256_add_epi32(a, b);
}
static inline v_i32 v_sub_i32(v_i32 a, v_i32 b) {
    return _mm256_sub_epi32(a, b);
}
static inline v_i32 v_xor(v_i32 a, v_i32 b) {
    return _mm256_xor_si256(a, b);
}
static inline v_i32 v_or(v_i32 a, v_i32 b) {
    return _mm256_or_si256(a, b);
}
/* (a >> shift) & mask in each lane */
static inline v_i32 v_bits_i32(v_i32 a, int shift, int32_t mask) {
    return _mm256_and_si256(_mm256_srl_epi32(a, _mm_cvtsi32_si128(shift)), _mm256_set1_epi32(mask));
}
static inline v_i32 v_shift_left(v_i32 a, int shift) {
    return _mm256_sll_epi32(a, _mm_cvtsi32_si128(shift));
}
/* Number i of the four numbers of each row that four codes are. */
static inline v_i32 v_widen(v_u8 a, int i) {
    __m128i half = i < 2 ? _mm256_castsi256_si128(a) : _mm256_extracti128_si256(a, 1);
    return _mm256_cvtepu8_epi32(i % 2 == 0 ? half : _mm_srli_si128(half, 8));
}
/* The f16 whose bits are the low half of each lane, of which the rest is 0. */
static inline v_f32 v_from_f16_bits(v_i32 a) {
    return _mm256_cvtph_ps(
        _mm_packus_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1)));
}
/* Bits of each lane as f32. */
static inline v_f32 v_as_f32(v_i32 a) {
    return _mm256_castsi256_ps(a);
}
/* The 4 bytes at table + 8 (or 4) * index, for each lane. */
static inline v_i32 v_gather8(const void *table, v_i32 index) {
    return _mm256_i32gather_epi32(table, index, 8);
}
static inline v_i32 v_gather4(const void *table, v_i32 index) {
    return _mm256_i32gather_epi32(table, index, 4);
}

/* Codes: four bytes of each row. */
static inline v_u8 v_load_codes(const uint8_t *p) {
    return _mm256_loadu_si256((const void *)p);
}
static inline v_u8 v_low4(v_u8 a) {
    return _mm256_and_si256(a, _mm256_set1_epi8(15));
}
static inline v_u8 v_high4(v_u8 a) {
    return _mm256_and_si256(_mm256_srli_epi16(a, 4), _mm256_set1_epi8(15));
}
static inline v_u8 v_low6(v_u8 a) {
    return _mm256_and_si256(a, _mm256_set1_epi8(63));
}
/* Bits 2 * k and the next of every byte, moved to bits 0 and 1, or 4 and 5. */
static inline v_u8 v_pair_low(v_u8 a, int k) {
    switch (k) {
    case 0: break;
    case 1: a = _mm256_srli_epi16(a, 2); break;
    case 2: a = _mm256_srli_epi16(a, 4); break;
    default: a = _mm256_srli_epi16(a, 6);
    }
    return _mm256_and_si256(a, _mm256_set1_epi8(3));
}
static inline v_u8 v_pair_high(v_u8 a, int k) {
    switch (k) {
    case 0: a = _mm256_slli_epi16(a, 4); break;
    case 1: a = _mm256_slli_epi16(a, 2); break;
    case 2: break;
    default: a = _mm256_srli_epi16(a, 2);
    }
    return _mm256_and_si256(a, _mm256_set1_epi8(0x30));
}
/* Adds `value` to the codes where bit `bit` of `bits` is set. */
static inline v_u8 v_add_bit(v_u8 codes, v_u8 bits, int bit, int value) {
    __m256i only = _mm256_set1_epi8((char)(1 << bit));
    __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bits, only), only);
    return _mm256_add_epi8(codes, _mm256_and_si256(is_set, _mm256_set1_epi8((char)value)));
}
/* Signed bytes as codes. */
static inline v_u8 v_from_signed(v_u8 a) {
    return a;
}
/* Codes of the values that the codebook gives for 4-bit indices. */
static inline v_u8 v_from_codebook(v_u8 index) {
    static const int8_t values[16] = TDM_IQ4_VALUES;
    __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)values));
    return v_from_signed(_mm256_shuffle_epi8(table, index));
}

/* Signed bytes with their signs turned where, of the bits k .. k + 3 of their lane (k = 0 or 4),
 * theirs is set. */
static inline v_u8 v_negate(v_u8 a, v_i32 bits, int k) {
    const __m256i first =
        _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    __m256i only = _mm256_set1_epi32(k == 0 ? 0x08040201 : (int)0x80402010);
    __m256i m = _mm256_and_si256(_mm256_shuffle_epi8(bits, first), only);
    m = _mm256_cmpeq_epi8(m, only);
    return _mm256_sub_epi8(_mm256_xor_si256(a, m), m);
}
/* The next trit of each byte, 0 .. 2, and what is left of it (tdm_tq1_0_trit): 3 * b / 256 counts
 * the passing of 85 and of 170. */
static inline v_u8 v_trit(v_u8 a) {
    const __m256i one = _mm256_set1_epi8(1);
    __m256i first = _mm256_min_epu8(_mm256_subs_epu8(a, _mm256_set1_epi8(85)), one);
    __m256i second = _mm256_min_epu8(_mm256_subs_epu8(a, _mm256_set1_epi8((char)170)), one);
    return _mm256_add_epi8(first, second);
}
static inline v_u8 v_trit_rest(v_u8 a) {
    return _mm256_add_epi8(a, _mm256_add_epi8(a, a));
}
/* Codes of the values that mxfp4's codes stand for. */
static inline v_u8 v_from_e2m1(v_u8 index) {
    static const int8_t values[16] = TDM_MXFP4_VALUES;
    __m256i table = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)values));
    return v_from_signed(_mm256_shuffle_epi8(table, index));
}

static inline __m256i v_set_four(const void *four_bytes) {
    int32_t four;
    __builtin_memcpy(&four, four_bytes, 4);
    return _mm256_set1_epi32(four);
}

/* Keeps compilers from adding up a block's products in an order that needs them all at once. */
static inline void v_pin(__m256i *v) {
    __asm__("" : "+x"(*v));
}

/* sum[t] += the dot products of each row's 4 * n codes codes[first ..] with those elements of x[t].
 * `n_bit` is how wide the codes are, 8 = signed. */
#if V_IS_Q8
/* maddubs gives sums of pairs in 16 bits; how many of them may be added there: 2 * 15 * 127 fits 8
 * times into 2^15 - 1, 2 * 31 * 127 4 times, 2 * 63 * 127 twice. Signed codes hand their sign to the
 * other factor: 2 * 128 * 127 fits once. */
INLINE void v_dots(v_i32 *sum, const v_u8 *codes, int first, int n, const v_x_block **x, int n_tok,
                   int n_bit) {
    const __m256i ones = _mm256_set1_epi16(1);
    int n_safe = n_bit <= 4 ? 8 : n_bit == 5 ? 4 : n_bit == 6 ? 2 : 1;
    __m256i pairs[V_TOK];
    UNROLL
    for (int c = 0; c < n; c++) {
        v_u8 code = codes[first + c];
        v_u8 magnitude = n_bit < 8 ? code : _mm256_abs_epi8(code);
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            __m256i q = v_set_four(x[t]->q + 4 * (first + c));
            if (n_bit == 8) q = _mm256_sign_epi8(q, code);
            q = _mm256_maddubs_epi16(magnitude, q);
            pairs[t] = c % n_safe == 0 ? q : _mm256_add_epi16(pairs[t], q);
            if (c % n_safe == n_safe - 1 || c == n - 1) {
                sum[t] = _mm256_add_epi32(sum[t], _mm256_madd_epi16(pairs[t], ones));
                v_pin(&sum[t]);
            } else {
                v_pin(&pairs[t]);
            }
        }
    }
}
#else
/* The first two of the four codes of each row as words: unsigned codes get a byte of zeros behind
 * them, signed ones come behind a byte that is shifted out. */
static inline __m256i codes_widen(v_u8 codes, bool is_signed) {
    const char _ = (char)0x80;
    __m128i order = is_signed ? _mm_setr_epi8(_, 0, _, 1, _, 4, _, 5, _, 8, _, 9, _, 12, _, 13)
                              : _mm_setr_epi8(0, _, 1, _, 4, _, 5, _, 8, _, 9, _, 12, _, 13, _);
    codes = _mm256_shuffle_epi8(codes, _mm256_broadcastsi128_si256(order));
    return is_signed ? _mm256_srai_epi16(codes, 8) : codes;
}

/* In words, which maddwd sums in 32 bits: 32 * 128 * 16256 stays below 2^27. */
INLINE void v_dots(v_i32 *sum, const v_u8 *codes, int first, int n, const v_x_block **x, int n_tok,
                   int n_bit) {
    UNROLL
    for (int c = first; c < first + n; c++) {
        __m256i a = codes_widen(codes[c], n_bit == 8);
        __m256i b = codes_widen(_mm256_srli_epi32(codes[c], 16), n_bit == 8);
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            __m256i p = _mm256_madd_epi16(a, v_set_four(x[t]->q + 4 * c));
            __m256i q = _mm256_madd_epi16(b, v_set_four(x[t]->q + 4 * c + 2));
            sum[t] = _mm256_add_epi32(sum[t], _mm256_add_epi32(p, q));
            v_pin(&sum[t]);
        }
    }
}
#endif

/* The first n rows. */
static inline void v_store(float *y, int n, v_f32 a) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_maskstore_ps(y, _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane), a);
}

#endif
