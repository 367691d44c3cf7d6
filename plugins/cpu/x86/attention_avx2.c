/* SPDX-License-Identifier: MIT
 *
 * x86/attention_avx2.c: attention_vector.h in 256-bit vectors (AVX2, FMA, F16C).
 * attention_q8_avx2.c compiles it again for queries of 8 bits.
 */
#include <immintrin.h>

#ifndef QUERY_IS_Q8
#define QUERY_IS_Q8 0
#endif

#define LANES      8
#define SCORE_ROWS 4
#define SCORE_SUMS 8
#define ADD_ROWS   4
#define ADD_SUMS   8

typedef __m256i vec_i;
typedef __m256 vec_f;

#define i_load(p)            _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define i_set1(x)            _mm256_set1_epi32(x)
#define i_table(p)           _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define i_and(a, b)          _mm256_and_si256(a, b)
#define i_add(a, b)          _mm256_add_epi32(a, b)
#define i_or_and(a, b, mask) _mm256_or_si256(a, _mm256_and_si256(b, mask))
#define i_srl16(x, n)        _mm256_srli_epi16(x, n)
#define i_sll16(x, n)        _mm256_slli_epi16(x, n)
#define i_sra16(x, n)        _mm256_srai_epi16(x, n)
#define i_srl32(x, n)        _mm256_srli_epi32(x, n)
#define i_sll32(x, n)        _mm256_slli_epi32(x, n)
#define i_sra32(x, n)        _mm256_srai_epi32(x, n)
#define i_lookup(table, x)   _mm256_shuffle_epi8(table, x)
#define i_mul15(a, b)        _mm256_mulhrs_epi16(a, b)
#define i_xor(a, b)          _mm256_xor_si256(a, b)
#define DOT8_IS_NARROW       1
#define i_pack16(x)          i_pack((x)[0], (x)[1])
#define i_pack(a, b)         _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8)
#define i_store(p, x)        _mm256_storeu_si256((__m256i *)(void *)(p), x)
#define i_to_f(x)            _mm256_cvtepi32_ps(x)
#define f_to_i(x)            _mm256_cvtps_epi32(x)
#define f_zero()             _mm256_setzero_ps()
#define f_load(p)            _mm256_loadu_ps(p)
#define f_store(p, x)        _mm256_storeu_ps(p, x)
#define f_set1(x)            _mm256_set1_ps(x)
#define f_add(a, b)          _mm256_add_ps(a, b)
#define f_mul(a, b)          _mm256_mul_ps(a, b)
#define f_div(a, b)          _mm256_div_ps(a, b)
#define f_fma(a, b, c)       _mm256_fmadd_ps(a, b, c)
#define f_max(a, b)          _mm256_max_ps(a, b)
#define f_min(a, b)          _mm256_min_ps(a, b)
#define f_max_abs(a, b)      _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), a), b)
#define f_limit_exponent(t)  _mm256_max_ps(_mm256_set1_ps(-200), t)
#define f_fraction(t)        _mm256_sub_ps(t, _mm256_floor_ps(t))
#define f_from_f16(p)        _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define f_from_bf16(p)                                                                             \
    _mm256_castsi256_ps(_mm256_slli_epi32(                                                         \
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))), 16))
#define f_keep(x, first, last, at)      _mm256_and_ps(x, lanes_in(first, last, at))
#define f_choose(x, y, first, last, at) _mm256_blendv_ps(y, x, lanes_in(first, last, at))
#define f_quad(x, i)                    _mm256_extractf128_ps(x, i)
#define f_from_quads(a, b)              _mm256_insertf128_ps(_mm256_castps128_ps256(a), b, 1)

#define INLINE_ static inline __attribute__((always_inline))

/* The empty statement keeps the addition here: gcc would gather all products of a block before it
 * adds any, and spill them. */
INLINE_ vec_i i_dot(vec_i acc, vec_i a, vec_i b) {
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(a, b));
#if defined(__GNUC__)
    __asm__("" : "+x"(acc));
#endif
    return acc;
}

INLINE_ vec_i i_dot8(vec_i acc, vec_i a, vec_i b) {
    acc = _mm256_add_epi16(acc, _mm256_maddubs_epi16(a, b));
#if defined(__GNUC__)
    __asm__("" : "+x"(acc));
#endif
    return acc;
}

INLINE_ vec_i i_dot8_add(vec_i sum, vec_i acc) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(acc, _mm256_set1_epi16(1)));
}

/* Lanes i with first <= at + i < last. */
INLINE_ vec_f lanes_in(int first, int last, int at) {
    vec_i i = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    vec_i below_first = _mm256_cmpgt_epi32(_mm256_set1_epi32(first - at), i);
    vec_i below_last = _mm256_cmpgt_epi32(_mm256_set1_epi32(last - at), i);
    return _mm256_castsi256_ps(_mm256_andnot_si256(below_first, below_last));
}

INLINE_ int i_sum(vec_i x) {
    __m128i y = _mm_add_epi32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    y = _mm_add_epi32(y, _mm_shuffle_epi32(y, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(y, _mm_shuffle_epi32(y, 0xb1)));
}

INLINE_ float f_sum(vec_f x) {
    __m128 y = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_add_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}

INLINE_ float f_peak(vec_f x) {
    __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    y = _mm_max_ps(y, _mm_movehl_ps(y, y));
    return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

/* Rows take turns in the lanes, then lanes of a row are put together, parts last. */
#define ROWS_FUNCTION(name, op)                                                                    \
    INLINE_ __m128 name(const vec_f *x) {                                                          \
        vec_f a =                                                                                  \
            _mm256_##op##_ps(_mm256_unpacklo_ps(x[0], x[1]), _mm256_unpackhi_ps(x[0], x[1]));      \
        vec_f b =                                                                                  \
            _mm256_##op##_ps(_mm256_unpacklo_ps(x[2], x[3]), _mm256_unpackhi_ps(x[2], x[3]));      \
        vec_f c = _mm256_##op##_ps(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));  \
        return _mm_##op##_ps(_mm256_castps256_ps128(c), _mm256_extractf128_ps(c, 1));              \
    }
ROWS_FUNCTION(f_rows_max, max)
ROWS_FUNCTION(f_rows_sum, add)

/* t >= -252, in two steps, since one exponent holds no less than -126. A NaN in t comes with one in
 * x. */
INLINE_ vec_f f_scale2(vec_f x, vec_f t) {
    vec_i whole = _mm256_cvtps_epi32(_mm256_floor_ps(t)), half = _mm256_srai_epi32(whole, 1);
    vec_i rest = _mm256_sub_epi32(whole, half), bias = _mm256_set1_epi32(127);
    vec_f a = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    vec_f b = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return _mm256_mul_ps(_mm256_mul_ps(x, a), b);
}

/* Pairs, then quads of neighbours in each 128-bit part; then the parts change places. */
INLINE_ void f_transpose(vec_f x[8]) {
    vec_f t[8];
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
        vec_f a = x[i], b = x[i + 4];
        x[i] = _mm256_permute2f128_ps(a, b, 0x20);
        x[i + 4] = _mm256_permute2f128_ps(a, b, 0x31);
    }
}

#if QUERY_IS_Q8
#include "plugins/cpu/x86/attention_vector.h"

#define SCORE(name, type)                                                                          \
    {CPU_ISA_AVX2, type, score_##name, query_##name, "score_q8_" #name "_avx2"},

const cpu_score_row cpu_score_q8_avx2[4] = {FOR_EACH_SCORED(SCORE)};
#else
#include "plugins/cpu/x86/attention_latent.h"
#include "plugins/cpu/x86/attention_softmax.h"

#define SCORE_PLAIN(name, type) {CPU_ISA_AVX2, type, score_##name, NULL, "score_" #name "_avx2"},
#define SCORE_QUANTIZED(name, type)                                                                \
    {CPU_ISA_AVX2, type, score_##name, query_##name, "score_" #name "_avx2"},
#define ADD_LATENT(name, type) {CPU_ISA_AVX2, type, true, latent_##name, "add_key_" #name "_avx2"},
#define ADD(name, type)        {CPU_ISA_AVX2, type, false, add_##name, "add_" #name "_avx2"},

const cpu_score_row cpu_score_avx2[9] = {FOR_EACH_PLAIN(SCORE_PLAIN)
                                             FOR_EACH_QUANTIZED(SCORE_QUANTIZED)};
const cpu_add_row cpu_add_avx2[18] = {FOR_EACH_PLAIN(ADD) FOR_EACH_QUANTIZED(ADD) FOR_EACH_PLAIN(
    ADD_LATENT) FOR_EACH_QUANTIZED(ADD_LATENT)};

void cpu_soften_avx2(int32_t n_row, float *const *score, int32_t begin, int32_t end,
                     const int32_t *first, const int32_t *last, float softcap, float *m, float *l,
                     float *keep, float *gain) {
    soften_rows(n_row, score, begin, end, first, last, softcap, m, l, keep, gain);
}
#endif
