/* SPDX-License-Identifier: MIT
 *
 * vector_avx2.h: the words of vector_avx512.h for AVX2 with FMA and F16C.
 */
#ifndef TANDEM_CPU_X86_VECTOR_AVX2_H
#define TANDEM_CPU_X86_VECTOR_AVX2_H

#include <immintrin.h>
#include <stdint.h>

#define LANES_ISA      CPU_ISA_AVX2
#define LANES_NAME     "avx2"
#define LANES_FN(name) name##_avx2

typedef __m256 lanes;
enum { N_LANE = 8 };

static inline lanes lanes_set(float x) {
    return _mm256_set1_ps(x);
}
static inline lanes lanes_load(const float *p) {
    return _mm256_loadu_ps(p);
}
static inline void lanes_store(float *p, lanes x) {
    _mm256_storeu_ps(p, x);
}
static inline __m256i lanes_part_mask(int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline lanes lanes_load_part(const float *p, int64_t n) {
    return _mm256_maskload_ps(p, lanes_part_mask(n));
}
static inline void lanes_store_part(float *p, lanes x, int64_t n) {
    _mm256_maskstore_ps(p, lanes_part_mask(n), x);
}
static inline lanes lanes_add(lanes a, lanes b) {
    return _mm256_add_ps(a, b);
}
static inline lanes lanes_sub(lanes a, lanes b) {
    return _mm256_sub_ps(a, b);
}
static inline lanes lanes_mul(lanes a, lanes b) {
    return _mm256_mul_ps(a, b);
}
static inline lanes lanes_div(lanes a, lanes b) {
    return _mm256_div_ps(a, b);
}
static inline lanes lanes_fma(lanes a, lanes b, lanes c) {
    return _mm256_fmadd_ps(a, b, c);
}
static inline lanes lanes_fnma(lanes a, lanes b, lanes c) {
    return _mm256_fnmadd_ps(a, b, c);
}
static inline lanes lanes_min(lanes a, lanes b) {
    return _mm256_min_ps(a, b);
}
static inline lanes lanes_max(lanes a, lanes b) {
    return _mm256_max_ps(a, b);
}
static inline lanes lanes_round(lanes x) {
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* In two steps, since 2^n itself may be no normal number. */
static inline lanes lanes_scale2(lanes x, lanes n) {
    __m256i whole = _mm256_cvtps_epi32(n);
    __m256i first = _mm256_srai_epi32(whole, 1), second = _mm256_sub_epi32(whole, first);
    const __m256i bias = _mm256_set1_epi32(127);
    x = _mm256_mul_ps(x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23)));
    return _mm256_mul_ps(
        x, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23)));
}
static inline lanes lanes_abs(lanes x) {
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}
static inline lanes lanes_copysign(lanes x, lanes s) {
    return _mm256_or_ps(lanes_abs(x), _mm256_and_ps(s, _mm256_set1_ps(-0.0f)));
}
static inline lanes lanes_select_less(lanes a, lanes b, lanes x, lanes y) {
    return _mm256_blendv_ps(y, x, _mm256_cmp_ps(a, b, _CMP_LT_OQ));
}
static inline float lanes_max_of(lanes x) {
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_movehdup_ps(m)));
}

typedef struct lanes_wide {
    __m256d low, high;
} lanes_wide;

static inline lanes_wide lanes_wide_zero(void) {
    return (lanes_wide){_mm256_setzero_pd(), _mm256_setzero_pd()};
}
static inline __m256d lanes_half(lanes x, int half) {
    return _mm256_cvtps_pd(half ? _mm256_extractf128_ps(x, 1) : _mm256_castps256_ps128(x));
}
static inline lanes_wide lanes_wide_add(lanes_wide s, lanes x) {
    return (lanes_wide){_mm256_add_pd(s.low, lanes_half(x, 0)),
                        _mm256_add_pd(s.high, lanes_half(x, 1))};
}
static inline lanes_wide lanes_wide_add_sq(lanes_wide s, lanes x) {
    __m256d low = lanes_half(x, 0), high = lanes_half(x, 1);
    return (lanes_wide){_mm256_fmadd_pd(low, low, s.low), _mm256_fmadd_pd(high, high, s.high)};
}
static inline double lanes_wide_sum(lanes_wide s) {
    __m256d sum = _mm256_add_pd(s.low, s.high);
    __m128d pair = _mm_add_pd(_mm256_castpd256_pd128(sum), _mm256_extractf128_pd(sum, 1));
    return _mm_cvtsd_f64(_mm_add_sd(pair, _mm_unpackhi_pd(pair, pair)));
}

static inline lanes lanes_load_twice(const float *p) {
    const __m256i index = _mm256_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3);
    return _mm256_permutevar8x32_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)), index);
}
static inline lanes lanes_swap(lanes x) {
    return _mm256_permute_ps(x, 0xb1);
}
static inline lanes lanes_fma_alternate(lanes a, lanes b, lanes c) {
    return _mm256_fmaddsub_ps(a, b, c);
}

#endif
