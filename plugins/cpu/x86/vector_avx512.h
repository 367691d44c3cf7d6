/* SPDX-License-Identifier: MIT
 *
 * vector_avx512.h: the words of vector.h for AVX-512 with VNNI: a vector of 16 floats and the
 * operations on it. vector_avx2.h has the same words for AVX2.
 */
#ifndef TANDEM_CPU_X86_VECTOR_AVX512_H
#define TANDEM_CPU_X86_VECTOR_AVX512_H

#include <immintrin.h>
#include <stdint.h>

#define LANES_ISA      CPU_ISA_AVX512
#define LANES_NAME     "avx512"
#define LANES_FN(name) name##_avx512 /* the name of a kernel for this instruction set */

typedef __m512 lanes;
enum { N_LANE = 16 };

static inline lanes lanes_set(float x) {
    return _mm512_set1_ps(x);
}
static inline lanes lanes_load(const float *p) {
    return _mm512_loadu_ps(p);
}
static inline void lanes_store(float *p, lanes x) {
    _mm512_storeu_ps(p, x);
}
/* The first n lanes, 0 <= n <= N_LANE; the others are 0 and their memory is not touched. */
static inline lanes lanes_load_part(const float *p, int64_t n) {
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1), p);
}
static inline void lanes_store_part(float *p, lanes x, int64_t n) {
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1), x);
}
static inline lanes lanes_add(lanes a, lanes b) {
    return _mm512_add_ps(a, b);
}
static inline lanes lanes_sub(lanes a, lanes b) {
    return _mm512_sub_ps(a, b);
}
static inline lanes lanes_mul(lanes a, lanes b) {
    return _mm512_mul_ps(a, b);
}
static inline lanes lanes_div(lanes a, lanes b) {
    return _mm512_div_ps(a, b);
}
/* a * b + c */
static inline lanes lanes_fma(lanes a, lanes b, lanes c) {
    return _mm512_fmadd_ps(a, b, c);
}
/* c - a * b */
static inline lanes lanes_fnma(lanes a, lanes b, lanes c) {
    return _mm512_fnmadd_ps(a, b, c);
}
/* Both give b where either is NaN. */
static inline lanes lanes_min(lanes a, lanes b) {
    return _mm512_min_ps(a, b);
}
static inline lanes lanes_max(lanes a, lanes b) {
    return _mm512_max_ps(a, b);
}
static inline lanes lanes_round(lanes x) {
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/* x * 2^n for whole n in -160 .. 160, through the subnormals and to infinity. */
static inline lanes lanes_scale2(lanes x, lanes n) {
    return _mm512_scalef_ps(x, n);
}
static inline lanes lanes_abs(lanes x) {
    return _mm512_abs_ps(x);
}
/* Magnitude of x with the sign of s. */
static inline lanes lanes_copysign(lanes x, lanes s) {
    return _mm512_or_ps(_mm512_abs_ps(x), _mm512_and_ps(s, _mm512_set1_ps(-0.0f)));
}
/* a < b ? x : y in each lane. */
static inline lanes lanes_select_less(lanes a, lanes b, lanes x, lanes y) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), y, x);
}
static inline float lanes_max_of(lanes x) {
    return _mm512_reduce_max_ps(x);
}

/* Sums in double of N_LANE floats at a time. */
typedef struct lanes_wide {
    __m512d low, high;
} lanes_wide;

static inline lanes_wide lanes_wide_zero(void) {
    return (lanes_wide){_mm512_setzero_pd(), _mm512_setzero_pd()};
}
static inline __m512d lanes_half(lanes x, int half) {
    return _mm512_cvtps_pd(half ? _mm512_extractf32x8_ps(x, 1) : _mm512_castps512_ps256(x));
}
static inline lanes_wide lanes_wide_add(lanes_wide s, lanes x) {
    return (lanes_wide){_mm512_add_pd(s.low, lanes_half(x, 0)),
                        _mm512_add_pd(s.high, lanes_half(x, 1))};
}
static inline lanes_wide lanes_wide_add_sq(lanes_wide s, lanes x) {
    __m512d low = lanes_half(x, 0), high = lanes_half(x, 1);
    return (lanes_wide){_mm512_fmadd_pd(low, low, s.low), _mm512_fmadd_pd(high, high, s.high)};
}
static inline double lanes_wide_sum(lanes_wide s) {
    return _mm512_reduce_add_pd(_mm512_add_pd(s.low, s.high));
}

/* N_LANE / 2 floats, each twice: p[0] p[0] p[1] p[1] ... */
static inline lanes lanes_load_twice(const float *p) {
    const __m512i index = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
    return _mm512_permutexvar_ps(index, _mm512_castps256_ps512(_mm256_loadu_ps(p)));
}
/* Neighbours exchanged: x[1] x[0] x[3] x[2] ... */
static inline lanes lanes_swap(lanes x) {
    return _mm512_permute_ps(x, 0xb1);
}
/* a * b - c in even lanes, a * b + c in odd ones. */
static inline lanes lanes_fma_alternate(lanes a, lanes b, lanes c) {
    return _mm512_fmaddsub_ps(a, b, c);
}

#endif
