/* SPDX-License-Identifier: MIT
 *
 * x86/attention_avx512.c: attention_vector.h in 512-bit vectors, with VNNI's dot products.
 * attention_q8_avx512.c compiles it again for queries of 8 bits.
 */
#include <immintrin.h>

#ifndef QUERY_IS_Q8
#define QUERY_IS_Q8 0
#endif

#define LANES      16
#define SCORE_ROWS 8
#define SCORE_SUMS 8
#define ADD_ROWS   8
#define ADD_SUMS   16

typedef __m512i vec_i;
typedef __m512 vec_f;

#define i_load(p)            _mm512_loadu_si512(p)
#define i_set1(x)            _mm512_set1_epi32(x)
#define i_table(p)           _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)(p)))
#define i_and(a, b)          _mm512_and_si512(a, b)
#define i_add(a, b)          _mm512_add_epi32(a, b)
#define i_or_and(a, b, mask) _mm512_ternarylogic_epi32(a, b, mask, 0xf8)
#define i_srl16(x, n)        _mm512_srli_epi16(x, n)
#define i_sll16(x, n)        _mm512_slli_epi16(x, n)
#define i_sra16(x, n)        _mm512_srai_epi16(x, n)
#define i_srl32(x, n)        _mm512_srli_epi32(x, n)
#define i_sll32(x, n)        _mm512_slli_epi32(x, n)
#define i_sra32(x, n)        _mm512_srai_epi32(x, n)
#define i_lookup(table, x)   _mm512_shuffle_epi8(table, x)
#define i_dot(acc, a, b)     _mm512_dpwssd_epi32(acc, a, b)
#define i_mul15(a, b)        _mm512_mulhrs_epi16(a, b)
#define i_xor(a, b)          _mm512_xor_si512(a, b)
#define i_dot8(acc, a, b)    _mm512_dpbusd_epi32(acc, a, b)
#define i_dot8_add(sum, acc) (acc)
#define DOT8_IS_NARROW       0
#define i_store(p, x)        _mm512_storeu_si512(p, x)
#define i_to_f(x)            _mm512_cvtepi32_ps(x)
#define f_to_i(x)            _mm512_cvtps_epi32(x)
#define i_pack16(x)          _mm512_cvtepi32_epi16((x)[0])
#define i_pack(a, b)                                                                               \
    _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), _mm512_packs_epi32(a, b))
#define i_sum(x)            _mm512_reduce_add_epi32(x)
#define f_sum(x)            _mm512_reduce_add_ps(x)
#define f_peak(x)           _mm512_reduce_max_ps(x)
#define f_zero()            _mm512_setzero_ps()
#define f_load(p)           _mm512_loadu_ps(p)
#define f_store(p, x)       _mm512_storeu_ps(p, x)
#define f_set1(x)           _mm512_set1_ps(x)
#define f_add(a, b)         _mm512_add_ps(a, b)
#define f_mul(a, b)         _mm512_mul_ps(a, b)
#define f_div(a, b)         _mm512_div_ps(a, b)
#define f_fma(a, b, c)      _mm512_fmadd_ps(a, b, c)
#define f_max(a, b)         _mm512_max_ps(a, b)
#define f_min(a, b)         _mm512_min_ps(a, b)
#define f_max_abs(a, b)     _mm512_max_ps(_mm512_abs_ps(a), b)
#define f_limit_exponent(t) (t)
#define f_fraction(t)       _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC)
#define f_scale2(x, t)      _mm512_scalef_ps(x, t)
#define f_from_f16(p)       _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(p)))
#define f_from_bf16(p)                                                                             \
    _mm512_castsi512_ps(_mm512_slli_epi32(                                                         \
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p))), 16))
#define f_keep(x, first, last, at)      _mm512_maskz_mov_ps(lanes_in(first, last, at), x)
#define f_choose(x, y, first, last, at) _mm512_mask_mov_ps(y, lanes_in(first, last, at), x)

/* Lanes i with first <= at + i < last, for 0 <= first < last <= 64. */
static inline __attribute__((always_inline)) __mmask16 lanes_in(int first, int last, int at) {
    unsigned long long below_last = last >= 64 ? ~0ull : (1ull << last) - 1;
    unsigned long long below_first = (1ull << first) - 1;
    return (__mmask16)((below_last & ~below_first) >> at);
}

#define f_quad(x, i) _mm512_extractf32x4_ps(x, i)
#define f_from_quads(a, b)                                                                         \
    _mm512_zextps256_ps512(_mm256_insertf128_ps(_mm256_castps128_ps256(a), b, 1))

/* Rows take turns in the lanes, then lanes of a row are put together, parts last. */
#define ROWS_FUNCTION(name, op)                                                                    \
    static inline __attribute__((always_inline)) __m128 name(const vec_f *x) {                     \
        vec_f a =                                                                                  \
            _mm512_##op##_ps(_mm512_unpacklo_ps(x[0], x[1]), _mm512_unpackhi_ps(x[0], x[1]));      \
        vec_f b =                                                                                  \
            _mm512_##op##_ps(_mm512_unpacklo_ps(x[2], x[3]), _mm512_unpackhi_ps(x[2], x[3]));      \
        vec_f c = _mm512_##op##_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));  \
        __m256 d = _mm256_##op##_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));      \
        return _mm_##op##_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));              \
    }
ROWS_FUNCTION(f_rows_max, max)
ROWS_FUNCTION(f_rows_sum, add)

/* Pairs, then quads of neighbours in each 128-bit part; then the parts change places. */
static inline __attribute__((always_inline)) void f_transpose(vec_f x[16]) {
    vec_f t[16];
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

#if QUERY_IS_Q8
#include "plugins/cpu/x86/attention_vector.h"

#define SCORE(name, type)                                                                          \
    {CPU_ISA_AVX512, type, score_##name, query_##name, "score_q8_" #name "_avx512"},

const cpu_score_row cpu_score_q8_avx512[6] = {FOR_EACH_SCORED(SCORE)};
#else
#include "plugins/cpu/x86/attention_latent.h"
#include "plugins/cpu/x86/attention_softmax.h"

#define SCORE_PLAIN(name, type)                                                                    \
    {CPU_ISA_AVX512, type, score_##name, NULL, "score_" #name "_avx512"},
#define SCORE_QUANTIZED(name, type)                                                                \
    {CPU_ISA_AVX512, type, score_##name, query_##name, "score_" #name "_avx512"},
#define ADD_LATENT(name, type)                                                                     \
    {CPU_ISA_AVX512, type, true, latent_##name, "add_key_" #name "_avx512"},
#define ADD(name, type) {CPU_ISA_AVX512, type, false, add_##name, "add_" #name "_avx512"},

const cpu_score_row cpu_score_avx512[9] = {FOR_EACH_PLAIN(SCORE_PLAIN)
                                               FOR_EACH_QUANTIZED(SCORE_QUANTIZED)};
const cpu_add_row cpu_add_avx512[18] = {FOR_EACH_PLAIN(ADD) FOR_EACH_QUANTIZED(ADD) FOR_EACH_PLAIN(
    ADD_LATENT) FOR_EACH_QUANTIZED(ADD_LATENT)};

void cpu_soften_avx512(int32_t n_row, float *const *score, int32_t begin, int32_t end,
                       const int32_t *first, const int32_t *last, float softcap, float *m, float *l,
                       float *keep, float *gain) {
    soften_rows(n_row, score, begin, end, first, last, softcap, m, l, keep, gain);
}
#endif
