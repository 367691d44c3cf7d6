/* SPDX-License-Identifier: MIT
 *
 * vector_avx2.h: the words of vector_avx512.h for AVX2 with FMA and F16C.
 */
#ifndef TANDEM_CPU_X86_VECTOR_AVX2_H
#define TANDEM_CPU_X86_VECTOR_AVX2_H

#include "plugins/cpu/x86/vector_x86.h"

#define LANES_ISA  CPU_ISA_AVX2
#define LANES_NAME "avx2"
/* What vector/matmul_tile.h takes from the instruction set besides the words. */
#define LANES_MATMUL_H "plugins/cpu/x86/matmul_avx2.h"
#define LANES_FN(name) name##_avx2

typedef __m256 lanes;
typedef __m256i ints;
enum { N_LANE = 8 };

INLINE lanes lanes_zero(void) {
    return _mm256_setzero_ps();
}
INLINE lanes lanes_set(float x) {
    return _mm256_set1_ps(x);
}
INLINE lanes lanes_load(const float *p) {
    return _mm256_loadu_ps(p);
}
INLINE void lanes_store(float *p, lanes x) {
    _mm256_storeu_ps(p, x);
}
INLINE __m256i lanes_part_mask(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
INLINE lanes lanes_load_part(const float *p, int64_t n) {
    return _mm256_maskload_ps(p, lanes_part_mask(n));
}
INLINE void lanes_store_part(float *p, lanes x, int64_t n) {
    _mm256_maskstore_ps(p, lanes_part_mask(n), x);
}
INLINE lanes lanes_add(lanes a, lanes b) {
    return _mm256_add_ps(a, b);
}
INLINE lanes lanes_sub(lanes a, lanes b) {
    return _mm256_sub_ps(a, b);
}
INLINE lanes lanes_mul(lanes a, lanes b) {
    return _mm256_mul_ps(a, b);
}
INLINE lanes lanes_div(lanes a, lanes b) {
    return _mm256_div_ps(a, b);
}
INLINE lanes lanes_sqrt(lanes x) {
    return _mm256_sqrt_ps(x);
}
INLINE lanes lanes_fma(lanes a, lanes b, lanes c) {
    return _mm256_fmadd_ps(a, b, c);
}
INLINE lanes lanes_fnma(lanes a, lanes b, lanes c) {
    return _mm256_fnmadd_ps(a, b, c);
}
INLINE lanes lanes_min(lanes a, lanes b) {
    return _mm256_min_ps(a, b);
}
INLINE lanes lanes_max(lanes a, lanes b) {
    return _mm256_max_ps(a, b);
}
INLINE lanes lanes_floor(lanes x) {
    return _mm256_floor_ps(x);
}
/* Clamped first, since -inf - floor(-inf) would be NaN. */
INLINE lanes lanes_fraction(lanes x) {
    x = _mm256_max_ps(_mm256_set1_ps(-127), x);
    return _mm256_sub_ps(x, _mm256_floor_ps(x));
}
/* In two steps, since 2^n itself may be no normal number. */
INLINE lanes lanes_scale2(lanes x, lanes n) {
    __m256i whole = _mm256_cvtps_epi32(n);
    __m256i first = _mm256_srai_epi32(whole, 1), second = _mm256_sub_epi32(whole, first);
    const __m256i bias = _mm256_set1_epi32(127);
    x = _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23)));
    return _mm256_mul_ps(
        x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23)));
}
/* 2^n has the exponent field n + 127: 0 is the number 0. Adding 1.5 * 2^23 leaves a whole number in
 * the lowest bits. */
INLINE lanes lanes_scale2_down(lanes x, lanes t) {
    __m256 n = _mm256_floor_ps(_mm256_max_ps(_mm256_set1_ps(-127), t));
    __m256i field = _mm256_castps_si256(_mm256_add_ps(n, _mm256_set1_ps(0x1.8p23f + 127)));
    return _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(field, 23)));
}
INLINE lanes lanes_abs(lanes x) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}
INLINE lanes lanes_copysign(lanes x, lanes s) {
    return _mm256_or_ps(lanes_abs(x), _mm256_and_ps(s, _mm256_set1_ps(-0.0f)));
}
INLINE lanes lanes_select_less(lanes a, lanes b, lanes x, lanes y) {
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
INLINE float lanes_max_of(lanes x) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

INLINE float lanes_sum(lanes x) {
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

typedef struct lanes_wide {
    __m256d low, high;
} lanes_wide;

INLINE lanes_wide lanes_wide_zero(void) {
    return (lanes_wide){_mm256_setzero_pd(), _mm256_setzero_pd()};
}
INLINE __m256d lanes_half(lanes x, int half) {
    return _mm256_cvtps_pd(half ? _mm256_extractf128_ps(x, 1) : _mm256_castps256_ps128(x));
}
INLINE lanes_wide lanes_wide_add(lanes_wide s, lanes x) {
    return (lanes_wide){_mm256_add_pd(s.low, lanes_half(x, 0)),
                        _mm256_add_pd(s.high, lanes_half(x, 1))};
}
INLINE lanes_wide lanes_wide_add_sq(lanes_wide s, lanes x) {
    __m256d low = lanes_half(x, 0), high = lanes_half(x, 1);
    return (lanes_wide){_mm256_fmadd_pd(low, low, s.low), _mm256_fmadd_pd(high, high, s.high)};
}
INLINE double lanes_wide_sum(lanes_wide s) {
    __m256d sum = _mm256_add_pd(s.low, s.high);
    __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(sum), _mm256_extractf128_pd(sum, 1));
    return _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)));
}

INLINE lanes lanes_load_twice(const float *p) {
    const __m256i index = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), index);
}
INLINE lanes lanes_swap(lanes x) {
    return _mm256_permute_ps(x, 0xb1);
}
INLINE lanes lanes_fma_alternate(lanes a, lanes b, lanes c) {
    return _mm256_fmaddsub_ps(a, b, c);
}

INLINE void lanes_store_rows(float *y, int n, lanes a) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    _mm256_maskstore_ps(y, _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane), a);
}

INLINE __m256 lanes_in(int first, int last, int at) {
    __m256i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    __m256i below_first = _mm256_cmpgt_epi32(_mm256_set1_epi32(first - at), i);
    __m256i below_last = _mm256_cmpgt_epi32(_mm256_set1_epi32(last - at), i);
    return _mm256_castsi256_ps(_mm256_andnot_si256(below_first, below_last));
}
INLINE lanes lanes_choose(lanes x, lanes y, int first, int last, int at) {
    return _mm256_blendv_ps(y, x, lanes_in(first, last, at));
}
INLINE lanes lanes_keep(lanes x, int first, int last, int at) {
    return _mm256_and_ps(x, lanes_in(first, last, at));
}

INLINE lanes lanes_from_quads(quad a, quad b) {
    return _mm256_insertf128_ps(_mm256_castps128_ps256(a), b, 1);
}
INLINE quad lanes_quad0(lanes x) {
    return _mm256_castps256_ps128(x);
}
INLINE quad lanes_quad1(lanes x) {
    return _mm256_extractf128_ps(x, 1);
}

#define LANES_ROWS_(name, op)                                                                      \
    INLINE quad name(const lanes *x) {                                                             \
        lanes a =                                                                                  \
            _mm256_##op##_ps(_mm256_unpacklo_ps(x[0], x[1]), _mm256_unpackhi_ps(x[0], x[1]));      \
        lanes b =                                                                                  \
            _mm256_##op##_ps(_mm256_unpacklo_ps(x[2], x[3]), _mm256_unpackhi_ps(x[2], x[3]));      \
        lanes c = _mm256_##op##_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));  \
        return _mm_##op##_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1));              \
    }
LANES_ROWS_(lanes_rows_max, max)
LANES_ROWS_(lanes_rows_sum, add)
#undef LANES_ROWS_

/* Pairs, then quads of neighbours in each 128-bit part; then the parts change places. */
INLINE void lanes_transpose(lanes x[N_LANE]) {
    lanes t[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        for (int k = 0; k < 2; k++) {
            __m256d a = _mm256_castps_pd(t[i + k]), b = _mm256_castps_pd(t[i + k + 2]);
            x[i + 2 * k] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
            x[i + 2 * k + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
        }
    }
    for (int i = 0; i < 4; i++) {
        lanes a = x[i], b = x[i + 4];
        x[i] = _mm256_permute2f128_ps(a, b, 0x20);
        x[i + 4] = _mm256_permute2f128_ps(a, b, 0x31);
    }
}

INLINE lanes lanes_butterflies(lanes x) {
    lanes y = _mm256_permute_ps(x, 0xb1);
    x = _mm256_blend_ps(_mm256_add_ps(x, y), _mm256_sub_ps(y, x), 0xaa);
    y = _mm256_permute_ps(x, 0x4e);
    x = _mm256_blend_ps(_mm256_add_ps(x, y), _mm256_sub_ps(y, x), 0xcc);
    y = _mm256_permute2f128_ps(x, x, 0x01);
    return _mm256_blend_ps(_mm256_add_ps(x, y), _mm256_sub_ps(y, x), 0xf0);
}

/* ---- integers -------------------------------------------------------------------------------- */

INLINE ints ints_load(const void *p) {
    return _mm256_loadu_si256(p);
}
INLINE void ints_store(void *p, ints x) {
    _mm256_storeu_si256(p, x);
}
INLINE ints ints_set(int32_t x) {
    return _mm256_set1_epi32(x);
}
INLINE ints ints_set_bytes(const void *p) {
    int32_t four;
    __builtin_memcpy(&four, p, 4);
    return _mm256_set1_epi32(four);
}
INLINE ints ints_from_u8(const uint8_t *p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p));
}
INLINE ints ints_from_i8(const uint8_t *p) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p));
}
INLINE ints ints_from_u16(const uint8_t *p) {
    return _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
}
INLINE ints ints_widen(ints x, int i) {
    __m128i half = i < 2 ? _mm256_castsi256_si128(x) : _mm256_extracti128_si256(x, 1);
    return _mm256_cvtepu8_epi32(i % 2 == 0 ? half : _mm_srli_si128(half, 8));
}
INLINE ints ints_gather8(const void *table, ints index) {
    return _mm256_i32gather_epi32(table, index, 8);
}
INLINE ints ints_gather4(const void *table, ints index) {
    return _mm256_i32gather_epi32(table, index, 4);
}
INLINE ints ints_add(ints a, ints b) {
    return _mm256_add_epi32(a, b);
}
INLINE ints ints_sub(ints a, ints b) {
    return _mm256_sub_epi32(a, b);
}
INLINE ints ints_and(ints a, ints b) {
    return _mm256_and_si256(a, b);
}
INLINE ints ints_or(ints a, ints b) {
    return _mm256_or_si256(a, b);
}
INLINE ints ints_xor(ints a, ints b) {
    return _mm256_xor_si256(a, b);
}
INLINE ints ints_or_and(ints a, ints b, ints mask) {
    return _mm256_or_si256(a, _mm256_and_si256(b, mask));
}
INLINE ints ints_sll32(ints x, int n) {
    return _mm256_slli_epi32(x, n);
}
INLINE ints ints_srl32(ints x, int n) {
    return _mm256_srli_epi32(x, n);
}
INLINE ints ints_sra32(ints x, int n) {
    return _mm256_srai_epi32(x, n);
}
INLINE ints ints_sll16(ints x, int n) {
    return _mm256_slli_epi16(x, n);
}
INLINE ints ints_srl16(ints x, int n) {
    return _mm256_srli_epi16(x, n);
}
INLINE ints ints_sra16(ints x, int n) {
    return _mm256_srai_epi16(x, n);
}
INLINE ints ints_bits(ints x, int shift, int32_t mask) {
    return _mm256_and_si256(_mm256_srl_epi32(x, _mm_cvtsi32_si128(shift)), _mm256_set1_epi32(mask));
}
INLINE ints ints_shift_left(ints x, int shift) {
    return _mm256_sll_epi32(x, _mm_cvtsi32_si128(shift));
}
INLINE int32_t ints_sum(ints x) {
    __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(y, _mm_shuffle_epi32(y, 0xb1)));
}
/* Keeps x in a register at this point: compilers would gather all products of a block before they
 * add any, and spill them. */
INLINE ints ints_pin(ints x) {
    __asm__("" : "+x"(x));
    return x;
}

INLINE ints ints_mul15(ints a, ints b) {
    return _mm256_mulhrs_epi16(a, b);
}
INLINE ints ints_dot16(ints sum, ints a, ints b) {
    return ints_pin(_mm256_add_epi32(sum, _mm256_madd_epi16(a, b)));
}
#define DOT8_IS_NARROW 1
INLINE ints ints_dot8(ints sum, ints a, ints b) {
    return ints_pin(_mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b)));
}
INLINE ints ints_dot8_add(ints sum, ints halves_sum) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(halves_sum, _mm256_set1_epi16(1)));
}
INLINE ints ints_pack(ints a, ints b) {
    return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
}
INLINE halves halves_pack(const ints *x) {
    return ints_pack(x[0], x[1]);
}

/* ---- conversions between integers and floats ------------------------------------------------- */

INLINE lanes lanes_from_ints(ints x) {
    return _mm256_cvtepi32_ps(x);
}
INLINE ints ints_from_lanes(lanes x) {
    return _mm256_cvtps_epi32(x);
}
INLINE lanes lanes_from_bits(ints x) {
    return _mm256_castsi256_ps(x);
}
INLINE lanes lanes_from_f16_bits(ints x) {
    return _mm256_cvtph_ps(
        _mm_packus_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1)));
}
INLINE lanes lanes_from_f16(const uint8_t *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)p));
}
INLINE lanes lanes_from_bf16(const uint8_t *p) {
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

/* ---- bytes ----------------------------------------------------------------------------------- */

INLINE ints bytes_table(const int8_t *p) {
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)p));
}
INLINE ints bytes_lookup(ints table, ints x) {
    return _mm256_shuffle_epi8(table, x);
}
INLINE ints bytes_low4(ints x) {
    return _mm256_and_si256(x, _mm256_set1_epi8(15));
}
INLINE ints bytes_high4(ints x) {
    return _mm256_and_si256(_mm256_srli_epi16(x, 4), _mm256_set1_epi8(15));
}
INLINE ints bytes_low6(ints x) {
    return _mm256_and_si256(x, _mm256_set1_epi8(63));
}
INLINE ints bytes_pair_low(ints x, int k) {
    switch (k) {
    case 0: break;
    case 1: x = _mm256_srli_epi16(x, 2); break;
    case 2: x = _mm256_srli_epi16(x, 4); break;
    default: x = _mm256_srli_epi16(x, 6);
    }
    return _mm256_and_si256(x, _mm256_set1_epi8(3));
}
INLINE ints bytes_pair_high(ints x, int k) {
    switch (k) {
    case 0: x = _mm256_slli_epi16(x, 4); break;
    case 1: x = _mm256_slli_epi16(x, 2); break;
    case 2: break;
    default: x = _mm256_srli_epi16(x, 2);
    }
    return _mm256_and_si256(x, _mm256_set1_epi8(0x30));
}
INLINE ints bytes_add_bit(ints x, ints bits, int bit, int value) {
    __m256i only = _mm256_set1_epi8((char)(1 << bit));
    __m256i is_set = _mm256_cmpeq_epi8(_mm256_and_si256(bits, only), only);
    return _mm256_add_epi8(x, _mm256_and_si256(is_set, _mm256_set1_epi8((char)value)));
}
INLINE ints bytes_negate(ints x, ints bits, int k) {
    const __m256i first =
        _mm256_broadcastsi128_si256(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    __m256i only = _mm256_set1_epi32(k == 0 ? 0x08040201 : (int)0x80402010);
    __m256i m = _mm256_and_si256(_mm256_shuffle_epi8(bits, first), only);
    m = _mm256_cmpeq_epi8(m, only);
    return _mm256_sub_epi8(_mm256_xor_si256(x, m), m);
}
INLINE ints bytes_trit(ints x) {
    const __m256i one = _mm256_set1_epi8(1);
    __m256i first = _mm256_min_epu8(_mm256_subs_epu8(x, _mm256_set1_epi8(85)), one);
    __m256i second = _mm256_min_epu8(_mm256_subs_epu8(x, _mm256_set1_epi8((char)170)), one);
    return _mm256_add_epi8(first, second);
}
INLINE ints bytes_trit_rest(ints x) {
    return _mm256_add_epi8(x, _mm256_add_epi8(x, x));
}

/* ---- registers ------------------------------------------------------------------------------- */

enum { SCORE_ROWS = 4, SCORE_SUMS = 8, ADD_ROWS = 4, ADD_SUMS = 8 };

#endif
