/* SPDX-License-Identifier: MIT
 *
 * vector_avx512.h: the words of vector/vector.h for AVX-512 with VNNI, each with its contract.
 * vector_avx2.h defines the same words for AVX2.
 */
#ifndef TANDEM_CPU_X86_VECTOR_AVX512_H
#define TANDEM_CPU_X86_VECTOR_AVX512_H

#include "plugins/cpu/x86/vector_x86.h"

#define LANES_ISA  CPU_ISA_AVX512
#define LANES_NAME "avx512"
/* What vector/matmul_tile.h takes from the instruction set besides the words. */
#if CPU_IS_PANEL
#define LANES_MATMUL_H "plugins/cpu/x86/matmul_amx.h"
#else
#define LANES_MATMUL_H "plugins/cpu/x86/matmul_avx512.h"
#endif
#define LANES_FN(name) name##_avx512 /* the name of a kernel for this instruction set */

typedef __m512 lanes;
typedef __m512i ints;
enum { N_LANE = 16 };

INLINE lanes lanes_zero(void) {
    return _mm512_setzero_ps();
}
INLINE lanes lanes_set(float x) {
    return _mm512_set1_ps(x);
}
INLINE lanes lanes_load(const float *p) {
    return _mm512_loadu_ps(p);
}
INLINE void lanes_store(float *p, lanes x) {
    _mm512_storeu_ps(p, x);
}
/* The first n lanes, 0 <= n <= N_LANE; the others are 0 and their memory is not touched. */
INLINE lanes lanes_load_part(const float *p, int64_t n) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
INLINE void lanes_store_part(float *p, lanes x, int64_t n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
}
INLINE lanes lanes_add(lanes a, lanes b) {
    return _mm512_add_ps(a, b);
}
INLINE lanes lanes_sub(lanes a, lanes b) {
    return _mm512_sub_ps(a, b);
}
INLINE lanes lanes_mul(lanes a, lanes b) {
    return _mm512_mul_ps(a, b);
}
INLINE lanes lanes_div(lanes a, lanes b) {
    return _mm512_div_ps(a, b);
}
INLINE lanes lanes_sqrt(lanes x) {
    return _mm512_sqrt_ps(x);
}
/* a * b + c */
INLINE lanes lanes_fma(lanes a, lanes b, lanes c) {
    return _mm512_fmadd_ps(a, b, c);
}
/* c - a * b */
INLINE lanes lanes_fnma(lanes a, lanes b, lanes c) {
    return _mm512_fnmadd_ps(a, b, c);
}
/* Both give b where either is NaN. */
INLINE lanes lanes_min(lanes a, lanes b) {
    return _mm512_min_ps(a, b);
}
INLINE lanes lanes_max(lanes a, lanes b) {
    return _mm512_max_ps(a, b);
}
INLINE lanes lanes_floor(lanes x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
/* x - floor(x); a number in 0 .. 1 for -inf. */
INLINE lanes lanes_fraction(lanes x) {
    return _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
}
/* x * 2^n for whole n in -160 .. 160, through the subnormals and to infinity. */
INLINE lanes lanes_scale2(lanes x, lanes n) {
    return _mm512_scalef_ps(x, n);
}
/* x * 2^floor(t) for t <= 0; a result that is no normal number may be 0. */
INLINE lanes lanes_scale2_down(lanes x, lanes t) {
    return _mm512_scalef_ps(x, t);
}
INLINE lanes lanes_abs(lanes x) {
    return _mm512_abs_ps(x);
}
/* Magnitude of x with the sign of s. */
INLINE lanes lanes_copysign(lanes x, lanes s) {
    return _mm512_or_ps(_mm512_abs_ps(x), _mm512_and_ps(s, _mm512_set1_ps(-0.0f)));
}
/* a < b ? x : y in each lane. */
INLINE lanes lanes_select_less(lanes a, lanes b, lanes x, lanes y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
/* The largest lane, and the sum of the lanes. */
INLINE float lanes_max_of(lanes x) {
    return _mm512_reduce_max_ps(x);
}
INLINE float lanes_sum(lanes x) {
    return _mm512_reduce_add_ps(x);
}

/* Sums in double of N_LANE floats at a time. */
typedef struct lanes_wide {
    __m512d low, high;
} lanes_wide;

INLINE lanes_wide lanes_wide_zero(void) {
    return (lanes_wide){_mm512_setzero_pd(), _mm512_setzero_pd()};
}
INLINE __m512d lanes_half(lanes x, int half) {
    return _mm512_cvtps_pd(half ? _mm512_extractf32x8_ps(x, 1) : _mm512_castps512_ps256(x));
}
INLINE lanes_wide lanes_wide_add(lanes_wide s, lanes x) {
    return (lanes_wide){_mm512_add_pd(s.low, lanes_half(x, 0)),
                        _mm512_add_pd(s.high, lanes_half(x, 1))};
}
INLINE lanes_wide lanes_wide_add_sq(lanes_wide s, lanes x) {
    __m512d low = lanes_half(x, 0), high = lanes_half(x, 1);
    return (lanes_wide){_mm512_fmadd_pd(low, low, s.low), _mm512_fmadd_pd(high, high, s.high)};
}
INLINE double lanes_wide_sum(lanes_wide s) {
    return _mm512_reduce_add_pd(_mm512_add_pd(s.low, s.high));
}

/* N_LANE / 2 floats, each twice: p[0] p[0] p[1] p[1] ... */
INLINE lanes lanes_load_twice(const float *p) {
    const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}
/* Neighbours exchanged: x[1] x[0] x[3] x[2] ... */
INLINE lanes lanes_swap(lanes x) {
    return _mm512_permute_ps(x, 0xb1);
}
/* a * b - c in even lanes, a * b + c in odd ones. */
INLINE lanes lanes_fma_alternate(lanes a, lanes b, lanes c) {
    return _mm512_fmaddsub_ps(a, b, c);
}

/* The first n lanes, 1 <= n <= N_LANE; the other lanes of the memory are not touched. */
INLINE void lanes_store_rows(float *y, int n, lanes a) {
    _mm512_mask_storeu_ps(y, (__mmask16)(0xffffu >> (16 - n)), a);
}

/* Lanes i with first <= at + i < last, for 0 <= first < last <= 64. */
INLINE __mmask16 lanes_in(int first, int last, int at) {
    unsigned long long below_last = last >= 64 ? ~0ull : (1ull << last) - 1;
    unsigned long long below_first = (1ull << first) - 1;
    return (__mmask16)((below_last & ~below_first) >> at);
}
/* x in the lanes i with first <= at + i < last (0 <= first < last <= 64), y (or 0) in the
 * others. */
INLINE lanes lanes_choose(lanes x, lanes y, int first, int last, int at) {
    return _mm512_mask_mov_ps(y, lanes_in(first, last, at), x);
}
INLINE lanes lanes_keep(lanes x, int first, int last, int at) {
    return _mm512_maskz_mov_ps(lanes_in(first, last, at), x);
}

/* A vector that begins with a and b. */
INLINE lanes lanes_from_quads(quad a, quad b) {
    return _mm512_zextps256_ps512(_mm256_insertf128_ps(_mm256_castps128_ps256(a), b, 1));
}
/* Lanes 0 .. 3 and lanes 4 .. 7. */
INLINE quad lanes_quad0(lanes x) {
    return _mm512_castps512_ps128(x);
}
INLINE quad lanes_quad1(lanes x) {
    return _mm512_extractf32x4_ps(x, 1);
}

/* Of each of four vectors the largest lane, and the sum of the lanes. Lanes of the four are
 * interleaved, then the lanes of one vector are reduced, its 128-bit parts last. */
#define LANES_ROWS_(name, op)                                                                      \
    INLINE quad name(const lanes *x) {                                                             \
        lanes a =                                                                                  \
            _mm512_##op##_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));      \
        lanes b =                                                                                  \
            _mm512_##op##_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));      \
        lanes c = _mm512_##op##_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));  \
        __m256 d = _mm256_##op##_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));      \
        return _mm_##op##_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));              \
    }
LANES_ROWS_(lanes_rows_max, max)
LANES_ROWS_(lanes_rows_sum, add)
#undef LANES_ROWS_

/* Element k of vector i changes places with element i of vector k: pairs, then quads of neighbours
 * in each 128-bit part; then the parts change places. */
INLINE void lanes_transpose(lanes x[N_LANE]) {
    lanes t[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(x[i], x[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        for (int k = 0; k < 2; k++) {
            __m512d a = _mm512_castps_pd(t[i + k]), b = _mm512_castps_pd(t[i + k + 2]);
            x[i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
            x[i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
        }
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(x[i], x[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(x[i + 8], x[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        x[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        x[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        x[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        x[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

/* The passes of a Walsh-Hadamard transform inside a vector: lane i with lanes i ^ 1, i ^ 2, i ^ 4
 * and so on; of two lanes the lower becomes their sum, the other lower - higher. */
INLINE lanes lanes_butterflies(lanes x) {
    lanes y = _mm512_permute_ps(x, 0xb1);
    x = _mm512_mask_sub_ps(_mm512_add_ps(x, y), 0xaaaa, y, x);
    y = _mm512_permute_ps(x, 0x4e);
    x = _mm512_mask_sub_ps(_mm512_add_ps(x, y), 0xcccc, y, x);
    y = _mm512_shuffle_f32x4(x, x, 0xb1);
    x = _mm512_mask_sub_ps(_mm512_add_ps(x, y), 0xf0f0, y, x);
    y = _mm512_shuffle_f32x4(x, x, 0x4e);
    return _mm512_mask_sub_ps(_mm512_add_ps(x, y), 0xff00, y, x);
}

/* ---- integers: N_LANE numbers of 32 bits; also read as pairs of 16 bits or as bytes ---------- */

INLINE ints ints_load(const void *p) {
    return _mm512_loadu_si512(p);
}
INLINE void ints_store(void *p, ints x) {
    _mm512_storeu_si512(p, x);
}
INLINE ints ints_set(int32_t x) {
    return _mm512_set1_epi32(x);
}
/* The 4 bytes at p in each lane. */
INLINE ints ints_set_bytes(const void *p) {
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    return _mm512_set1_epi32(four);
}
/* N_LANE numbers of 8 or 16 bits. */
INLINE ints ints_from_u8(const uint8_t *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p));
}
INLINE ints ints_from_i8(const uint8_t *p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p));
}
INLINE ints ints_from_u16(const uint8_t *p) {
    return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
}
/* Bytes i * N_LANE .. (i + 1) * N_LANE - 1 of x, unsigned; i is a constant in 0 .. 3. */
INLINE ints ints_widen(ints x, int i) {
    __m128i part = i == 0   ? _mm512_castsi512_si128(x)
                   : i == 1 ? _mm512_extracti32x4_epi32(x, 1)
                   : i == 2 ? _mm512_extracti32x4_epi32(x, 2)
                            : _mm512_extracti32x4_epi32(x, 3);
    return _mm512_cvtepu8_epi32(part);
}
/* The 4 bytes at table + 8 (or 4) * index. */
INLINE ints ints_gather8(const void *table, ints index) {
    return _mm512_i32gather_epi32(index, table, 8);
}
INLINE ints ints_gather4(const void *table, ints index) {
    return _mm512_i32gather_epi32(index, table, 4);
}
INLINE ints ints_add(ints a, ints b) {
    return _mm512_add_epi32(a, b);
}
INLINE ints ints_sub(ints a, ints b) {
    return _mm512_sub_epi32(a, b);
}
INLINE ints ints_and(ints a, ints b) {
    return _mm512_and_si512(a, b);
}
INLINE ints ints_or(ints a, ints b) {
    return _mm512_or_si512(a, b);
}
INLINE ints ints_xor(ints a, ints b) {
    return _mm512_xor_si512(a, b);
}
/* a | (b & mask) */
INLINE ints ints_or_and(ints a, ints b, ints mask) {
    return _mm512_ternarylogic_epi32(a, b, mask, 0xf8);
}
/* Shifts of 32-bit lanes and of their 16-bit halves by a constant; sra keeps the sign. */
INLINE ints ints_sll32(ints x, int n) {
    return _mm512_slli_epi32(x, (unsigned)n);
}
INLINE ints ints_srl32(ints x, int n) {
    return _mm512_srli_epi32(x, (unsigned)n);
}
INLINE ints ints_sra32(ints x, int n) {
    return _mm512_srai_epi32(x, (unsigned)n);
}
INLINE ints ints_sll16(ints x, int n) {
    return _mm512_slli_epi16(x, (unsigned)n);
}
INLINE ints ints_srl16(ints x, int n) {
    return _mm512_srli_epi16(x, (unsigned)n);
}
INLINE ints ints_sra16(ints x, int n) {
    return _mm512_srai_epi16(x, (unsigned)n);
}
/* (x >> shift) & mask, and x << shift, for a shift that need not be a constant. */
INLINE ints ints_bits(ints x, int shift, int32_t mask) {
    return _mm512_and_si512(_mm512_srl_epi32(x, _mm_cvtsi32_si128(shift)), _mm512_set1_epi32(mask));
}
INLINE ints ints_shift_left(ints x, int shift) {
    return _mm512_sll_epi32(x, _mm_cvtsi32_si128(shift));
}
INLINE int32_t ints_sum(ints x) {
    return _mm512_reduce_add_epi32(x);
}

/* a * b / 2^15 of signed 16-bit halves, rounded. */
INLINE ints ints_mul15(ints a, ints b) {
    return _mm512_mulhrs_epi16(a, b);
}
/* sum + a.low * b.low + a.high * b.high of signed 16-bit halves. */
INLINE ints ints_dot16(ints sum, ints a, ints b) {
    return _mm512_dpwssd_epi32(sum, a, b);
}
/* sum + the products of unsigned bytes of a (where DOT8_IS_SIGNED, signed ones) and signed bytes of
 * b: four in a 32-bit lane, or, where DOT8_IS_NARROW, two in each 16-bit half, which must not
 * overflow. ints_dot8_add adds such sums of halves to 32-bit lanes. */
#define DOT8_IS_NARROW 0
INLINE ints ints_dot8(ints sum, ints a, ints b) {
    return _mm512_dpbusd_epi32(sum, a, b);
}
INLINE ints ints_dot8_add(ints sum, ints halves_sum) {
    (void)sum;
    return halves_sum;
}
/* 16-bit numbers from the lanes of a, then from those of b. All must fit. */
INLINE ints ints_pack(ints a, ints b) {
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7),
                                    _mm512_packs_epi32(a, b));
}
/* 16 numbers of 16 bits from 16 / N_LANE vectors. All must fit. */
INLINE halves halves_pack(const ints *x) {
    return _mm512_cvtepi32_epi16(x[0]);
}

/* ---- conversions between integers and floats ------------------------------------------------- */

INLINE lanes lanes_from_ints(ints x) {
    return _mm512_cvtepi32_ps(x);
}
/* To the nearest whole number, ties to even. */
INLINE ints ints_from_lanes(lanes x) {
    return _mm512_cvtps_epi32(x);
}
/* The f32 with these bits. */
INLINE lanes lanes_from_bits(ints x) {
    return _mm512_castsi512_ps(x);
}
/* The f16 whose bits are the low half of each lane; the high half must be 0. */
INLINE lanes lanes_from_f16_bits(ints x) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(x));
}
/* N_LANE numbers of f16 or bf16 in memory. */
INLINE lanes lanes_from_f16(const uint8_t *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}
INLINE lanes lanes_from_bf16(const uint8_t *p) {
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

/* ---- bytes: codes of weights and of cache rows ----------------------------------------------- */

/* 16 bytes, in each 128-bit part: a table for bytes_lookup, which takes bytes 0 .. 15 of x. */
INLINE ints bytes_table(const int8_t *p) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)p));
}
INLINE ints bytes_lookup(ints table, ints x) {
    return _mm512_shuffle_epi8(table, x);
}
/* The low 4, high 4 and low 6 bits of every byte. */
INLINE ints bytes_low4(ints x) {
    return _mm512_and_si512(x, _mm512_set1_epi8(15));
}
INLINE ints bytes_high4(ints x) {
    return _mm512_and_si512(_mm512_srli_epi16(x, 4), _mm512_set1_epi8(15));
}
INLINE ints bytes_low6(ints x) {
    return _mm512_and_si512(x, _mm512_set1_epi8(63));
}
/* Bits 2 * k and 2 * k + 1 of every byte, moved to bits 0 and 1, or to bits 4 and 5. */
INLINE ints bytes_pair_low(ints x, int k) {
    switch (k) {
    case 0: break;
    case 1: x = _mm512_srli_epi16(x, 2); break;
    case 2: x = _mm512_srli_epi16(x, 4); break;
    default: x = _mm512_srli_epi16(x, 6);
    }
    return _mm512_and_si512(x, _mm512_set1_epi8(3));
}
INLINE ints bytes_pair_high(ints x, int k) {
    switch (k) {
    case 0: x = _mm512_slli_epi16(x, 4); break;
    case 1: x = _mm512_slli_epi16(x, 2); break;
    case 2: break;
    default: x = _mm512_srli_epi16(x, 2);
    }
    return _mm512_and_si512(x, _mm512_set1_epi8(0x30));
}
/* Adds `value` to the bytes of x where bit `bit` of the same byte of `bits` is set. */
INLINE ints bytes_add_bit(ints x, ints bits, int bit, int value) {
    __mmask64 m = _mm512_test_epi8_mask(bits, _mm512_set1_epi8((char)(1 << bit)));
    return _mm512_mask_add_epi8(x, m, x, _mm512_set1_epi8((char)value));
}
/* Negates byte i of a lane of x where bit k + i of the same lane of `bits` is set; k is 0 or 4. */
INLINE ints bytes_negate(ints x, ints bits, int k) {
    const __m512i first = _mm512_set4_epi32(0x0c0c0c0c, 0x08080808, 0x04040404, 0);
    __m512i only = _mm512_set1_epi32(k == 0 ? 0x08040201 : (int)0x80402010);
    __mmask64 m = _mm512_test_epi8_mask(_mm512_shuffle_epi8(bits, first), only);
    return _mm512_mask_sub_epi8(x, m, _mm512_setzero_si512(), x);
}
/* The next trit of every byte, 0 .. 2, and what remains of it (tdm_tq1_0_trit). The trit is
 * 3 * b / 256: 1 from 86 on, 2 from 171 on. */
INLINE ints bytes_trit(ints x) {
    const __m512i one = _mm512_set1_epi8(1);
    __m512i first = _mm512_min_epu8(_mm512_subs_epu8(x, _mm512_set1_epi8(85)), one);
    __m512i second = _mm512_min_epu8(_mm512_subs_epu8(x, _mm512_set1_epi8((char)170)), one);
    return _mm512_add_epi8(first, second);
}
INLINE ints bytes_trit_rest(ints x) {
    return _mm512_add_epi8(x, _mm512_add_epi8(x, x));
}

/* ---- registers: how much of its work a kernel does at once ----------------------------------- */

/* Attention: query rows taken together in scores and in weighted sums, and vectors of sums that are
 * held in registers. */
enum { SCORE_ROWS = 8, SCORE_SUMS = 8, ADD_ROWS = 8, ADD_SUMS = 16 };

#endif
