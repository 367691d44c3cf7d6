/* SPDX-License-Identifier: MIT
 *
 * vector_neon.h: the words of x86/vector_avx512.h for AArch64's Advanced SIMD (NEON) with dot
 * products (FEAT_DotProd). Instructions: Arm Architecture Reference Manual for A-profile; names:
 * Arm C Language Extensions.
 *
 * Registers have 128 bits, and there are 32 of them. A vector of the words is two registers, so
 * that kernels have as many vectors of as many lanes as with AVX2. Shifts and sums of integers are
 * written with the operators that GCC and clang have for vectors: the compiler then takes a
 * constant shift into the instruction, and accepts a shift that is not constant.
 */
#ifndef TANDEM_CPU_ARM_VECTOR_NEON_H
#define TANDEM_CPU_ARM_VECTOR_NEON_H

#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "plugins/cpu/vector/unroll.h"

#define LANES_ISA  CPU_ISA_NEON
#define LANES_NAME "neon"
/* What vector/matmul_tile.h takes from the instruction set besides the words. */
#define LANES_MATMUL_H "plugins/cpu/arm/matmul_neon.h"
#define LANES_FN(name) name##_neon

typedef struct lanes {
    float32x4_t low, high;
} lanes;
typedef struct ints {
    int32x4_t low, high;
} ints;
enum { N_LANE = 8 };

/* Prefetch the cache line at p into the first-level or the second-level cache. */
INLINE void prefetch_l1(const void *p) {
    __builtin_prefetch(p, 0, 3);
}
INLINE void prefetch_l2(const void *p) {
    __builtin_prefetch(p, 0, 2);
}

/* ---- four floats ----------------------------------------------------------------------------- */

typedef float32x4_t quad;

INLINE quad quad_set(float x) {
    return vdupq_n_f32(x);
}
INLINE quad quad_load(const float *p) {
    return vld1q_f32(p);
}
INLINE void quad_store(float *p, quad x) {
    vst1q_f32(p, x);
}
INLINE quad quad_sub(quad a, quad b) {
    return vsubq_f32(a, b);
}
INLINE quad quad_mul(quad a, quad b) {
    return vmulq_f32(a, b);
}
INLINE quad quad_fma(quad a, quad b, quad c) {
    return vfmaq_f32(c, a, b);
}
/* b where either is NaN. FMIN and FMAX would give NaN there. */
INLINE quad quad_min(quad a, quad b) {
    return vbslq_f32(vcltq_f32(a, b), a, b);
}
INLINE quad quad_max(quad a, quad b) {
    return vbslq_f32(vcgtq_f32(a, b), a, b);
}

/* ---- floats ---------------------------------------------------------------------------------- */

INLINE lanes lanes_zero(void) {
    return (lanes){vdupq_n_f32(0), vdupq_n_f32(0)};
}
INLINE lanes lanes_set(float x) {
    return (lanes){vdupq_n_f32(x), vdupq_n_f32(x)};
}
INLINE lanes lanes_load(const float *p) {
    return (lanes){vld1q_f32(p), vld1q_f32(p + 4)};
}
INLINE void lanes_store(float *p, lanes x) {
    vst1q_f32(p, x.low);
    vst1q_f32(p + 4, x.high);
}
/* There are no loads and stores of a part: it goes through memory. */
INLINE lanes lanes_load_part(const float *p, int64_t n) {
    float part[N_LANE] = {0};
    if (n == N_LANE) return lanes_load(p);
    memcpy(part, p, (size_t)n * sizeof *p);
    return lanes_load(part);
}
INLINE void lanes_store_part(float *p, lanes x, int64_t n) {
    float part[N_LANE];
    if (n == N_LANE) {
        lanes_store(p, x);
        return;
    }
    lanes_store(part, x);
    memcpy(p, part, (size_t)n * sizeof *p);
}
INLINE void lanes_store_rows(float *y, int n, lanes a) {
    lanes_store_part(y, a, n);
}

/* Words that do the same to both registers. */
#define LANES_1_(name, of)                                                                         \
    INLINE lanes name(lanes x) {                                                                   \
        return (lanes){of(x.low), of(x.high)};                                                     \
    }
#define LANES_2_(name, of)                                                                         \
    INLINE lanes name(lanes a, lanes b) {                                                          \
        return (lanes){of(a.low, b.low), of(a.high, b.high)};                                      \
    }
LANES_2_(lanes_add, vaddq_f32)
LANES_2_(lanes_sub, vsubq_f32)
LANES_2_(lanes_mul, vmulq_f32)
LANES_2_(lanes_div, vdivq_f32)
LANES_2_(lanes_min, quad_min)
LANES_2_(lanes_max, quad_max)
LANES_1_(lanes_sqrt, vsqrtq_f32)
LANES_1_(lanes_floor, vrndmq_f32)
LANES_1_(lanes_abs, vabsq_f32)
/* Neighbours exchanged. */
LANES_1_(lanes_swap, vrev64q_f32)

INLINE lanes lanes_fma(lanes a, lanes b, lanes c) {
    return (lanes){vfmaq_f32(c.low, a.low, b.low), vfmaq_f32(c.high, a.high, b.high)};
}
INLINE lanes lanes_fnma(lanes a, lanes b, lanes c) {
    return (lanes){vfmsq_f32(c.low, a.low, b.low), vfmsq_f32(c.high, a.high, b.high)};
}
/* Clamped first, since -inf - floor(-inf) would be NaN. */
INLINE lanes lanes_fraction(lanes x) {
    x = lanes_max(lanes_set(-127), x);
    return lanes_sub(x, lanes_floor(x));
}

INLINE ints ints_of_bits(lanes x) {
    return (ints){vreinterpretq_s32_f32(x.low), vreinterpretq_s32_f32(x.high)};
}
/* The f32 with these bits. */
INLINE lanes lanes_from_bits(ints x) {
    return (lanes){vreinterpretq_f32_s32(x.low), vreinterpretq_f32_s32(x.high)};
}

INLINE quad quad_copysign(quad x, quad s) {
    return vbslq_f32(vdupq_n_u32(0x80000000u), s, x);
}
LANES_2_(lanes_copysign, quad_copysign)

INLINE lanes lanes_select_less(lanes a, lanes b, lanes x, lanes y) {
    return (lanes){vbslq_f32(vcltq_f32(a.low, b.low), x.low, y.low),
                   vbslq_f32(vcltq_f32(a.high, b.high), x.high, y.high)};
}
INLINE float lanes_max_of(lanes x) {
    return vmaxnmvq_f32(vmaxnmq_f32(x.low, x.high));
}
INLINE float lanes_sum(lanes x) {
    return vaddvq_f32(vaddq_f32(x.low, x.high));
}

typedef struct lanes_wide {
    float64x2_t part[4];
} lanes_wide;

INLINE lanes_wide lanes_wide_zero(void) {
    return (lanes_wide){{vdupq_n_f64(0), vdupq_n_f64(0), vdupq_n_f64(0), vdupq_n_f64(0)}};
}
INLINE lanes_wide lanes_widen(lanes x) {
    return (lanes_wide){{vcvt_f64_f32(vget_low_f32(x.low)), vcvt_high_f64_f32(x.low),
                         vcvt_f64_f32(vget_low_f32(x.high)), vcvt_high_f64_f32(x.high)}};
}
INLINE lanes_wide lanes_wide_add(lanes_wide s, lanes x) {
    lanes_wide wide = lanes_widen(x);
    UNROLL for (int i = 0; i < 4; i++) s.part[i] = vaddq_f64(s.part[i], wide.part[i]);
    return s;
}
INLINE lanes_wide lanes_wide_add_sq(lanes_wide s, lanes x) {
    lanes_wide wide = lanes_widen(x);
    UNROLL for (int i = 0; i < 4; i++) s.part[i] = vfmaq_f64(s.part[i], wide.part[i], wide.part[i]);
    return s;
}
INLINE double lanes_wide_sum(lanes_wide s) {
    return vaddvq_f64(vaddq_f64(vaddq_f64(s.part[0], s.part[2]), vaddq_f64(s.part[1], s.part[3])));
}

INLINE lanes lanes_load_twice(const float *p) {
    float32x4_t x = vld1q_f32(p);
    return (lanes){vzip1q_f32(x, x), vzip2q_f32(x, x)};
}
INLINE lanes lanes_fma_alternate(lanes a, lanes b, lanes c) {
    const uint32x4_t even = vreinterpretq_u32_u64(vdupq_n_u64(0x80000000u));
    c.low = vreinterpretq_f32_u32(vreinterpretq_u32_f32(c.low) ^ even);
    c.high = vreinterpretq_f32_u32(vreinterpretq_u32_f32(c.high) ^ even);
    return lanes_fma(a, b, c);
}

/* All bits of the lanes i with first <= at + i < last. */
INLINE uint32x4_t quad_in(int first, int last, int at) {
    static const int32_t number[4] = {0, 1, 2, 3};
    int32x4_t i = vaddq_s32(vld1q_s32(number), vdupq_n_s32(at));
    return vcgeq_s32(i, vdupq_n_s32(first)) & vcltq_s32(i, vdupq_n_s32(last));
}
INLINE lanes lanes_choose(lanes x, lanes y, int first, int last, int at) {
    return (lanes){vbslq_f32(quad_in(first, last, at), x.low, y.low),
                   vbslq_f32(quad_in(first, last, at + 4), x.high, y.high)};
}
INLINE lanes lanes_keep(lanes x, int first, int last, int at) {
    return lanes_choose(x, lanes_zero(), first, last, at);
}

INLINE lanes lanes_from_quads(quad a, quad b) {
    return (lanes){a, b};
}
INLINE quad lanes_quad0(lanes x) {
    return x.low;
}
INLINE quad lanes_quad1(lanes x) {
    return x.high;
}

INLINE quad lanes_rows_max(const lanes *x) {
    quad m[4];
    UNROLL for (int i = 0; i < 4; i++) m[i] = vmaxq_f32(x[i].low, x[i].high);
    return vpmaxq_f32(vpmaxq_f32(m[0], m[1]), vpmaxq_f32(m[2], m[3]));
}
INLINE quad lanes_rows_sum(const lanes *x) {
    quad s[4];
    UNROLL for (int i = 0; i < 4; i++) s[i] = vaddq_f32(x[i].low, x[i].high);
    return vpaddq_f32(vpaddq_f32(s[0], s[1]), vpaddq_f32(s[2], s[3]));
}

/* Element k of register i changes places with element i of register k: pairs, then halves. */
INLINE void quads_transpose(quad x[4]) {
    float64x2_t t[4];
    UNROLL for (int i = 0; i < 4; i += 2) {
        t[i] = vreinterpretq_f64_f32(vtrn1q_f32(x[i], x[i + 1]));
        t[i + 1] = vreinterpretq_f64_f32(vtrn2q_f32(x[i], x[i + 1]));
    }
    UNROLL for (int i = 0; i < 2; i++) {
        x[i] = vreinterpretq_f32_f64(vzip1q_f64(t[i], t[i + 2]));
        x[i + 2] = vreinterpretq_f32_f64(vzip2q_f64(t[i], t[i + 2]));
    }
}
INLINE void lanes_transpose(lanes x[N_LANE]) {
    UNROLL for (int row = 0; row < N_LANE; row += 4) {
        quad low[4], high[4];
        UNROLL for (int i = 0; i < 4; i++) {
            low[i] = x[row + i].low;
            high[i] = x[row + i].high;
        }
        quads_transpose(low);
        quads_transpose(high);
        UNROLL for (int i = 0; i < 4; i++) x[row + i] = (lanes){low[i], high[i]};
    }
    UNROLL for (int i = 0; i < 4; i++) {
        quad high = x[i].high;
        x[i].high = x[i + 4].low;
        x[i + 4].low = high;
    }
}

/* The passes of one register, with lanes i ^ 1 and i ^ 2. */
INLINE quad quad_butterflies(quad x) {
    const uint32x4_t odd = vreinterpretq_u32_u64(vdupq_n_u64(0xffffffff00000000u));
    quad y = vrev64q_f32(x);
    x = vbslq_f32(odd, vsubq_f32(y, x), vaddq_f32(x, y));
    y = vextq_f32(x, x, 2);
    return vcombine_f32(vget_low_f32(vaddq_f32(x, y)), vget_high_f32(vsubq_f32(y, x)));
}
INLINE lanes lanes_butterflies(lanes x) {
    quad low = quad_butterflies(x.low), high = quad_butterflies(x.high);
    return (lanes){vaddq_f32(low, high), vsubq_f32(low, high)};
}

/* ---- integers -------------------------------------------------------------------------------- */

/* Both registers in turn, read as elements of another type. */
INLINE uint32x4_t words_of(int32x4_t x) {
    return vreinterpretq_u32_s32(x);
}
INLINE int32x4_t from_words(uint32x4_t x) {
    return vreinterpretq_s32_u32(x);
}
INLINE uint16x8_t halves_of(int32x4_t x) {
    return vreinterpretq_u16_s32(x);
}
INLINE int32x4_t from_halves(uint16x8_t x) {
    return vreinterpretq_s32_u16(x);
}
INLINE int16x8_t signed_halves_of(int32x4_t x) {
    return vreinterpretq_s16_s32(x);
}
INLINE int32x4_t from_signed_halves(int16x8_t x) {
    return vreinterpretq_s32_s16(x);
}
INLINE uint8x16_t bytes_of(int32x4_t x) {
    return vreinterpretq_u8_s32(x);
}
INLINE int32x4_t from_bytes(uint8x16_t x) {
    return vreinterpretq_s32_u8(x);
}
INLINE int8x16_t signed_bytes_of(int32x4_t x) {
    return vreinterpretq_s8_s32(x);
}

/* Addresses need not be aligned. */
INLINE ints ints_load(const void *p) {
    return (ints){from_bytes(vld1q_u8(p)), from_bytes(vld1q_u8((const uint8_t *)p + 16))};
}
INLINE void ints_store(void *p, ints x) {
    vst1q_u8(p, bytes_of(x.low));
    vst1q_u8((uint8_t *)p + 16, bytes_of(x.high));
}
INLINE ints ints_set(int32_t x) {
    return (ints){vdupq_n_s32(x), vdupq_n_s32(x)};
}
INLINE ints ints_set_bytes(const void *p) {
    int32_t four;
    memcpy(&four, p, 4);
    return ints_set(four);
}
INLINE ints ints_from_halves(uint16x8_t x) {
    return (ints){from_words(vmovl_u16(vget_low_u16(x))), from_words(vmovl_high_u16(x))};
}
INLINE ints ints_from_u8(const uint8_t *p) {
    return ints_from_halves(vmovl_u8(vld1_u8(p)));
}
INLINE ints ints_from_i8(const uint8_t *p) {
    int16x8_t x = vmovl_s8(vreinterpret_s8_u8(vld1_u8(p)));
    return (ints){vmovl_s16(vget_low_s16(x)), vmovl_high_s16(x)};
}
INLINE ints ints_from_u16(const uint8_t *p) {
    return ints_from_halves(vreinterpretq_u16_u8(vld1q_u8(p)));
}
INLINE ints ints_widen(ints x, int i) {
    uint8x16_t part = bytes_of(i < 2 ? x.low : x.high);
    return ints_from_halves(i % 2 == 0 ? vmovl_u8(vget_low_u8(part)) : vmovl_high_u8(part));
}
/* There is no gather: each lane is loaded by itself. */
INLINE ints ints_gather_(const void *table, ints index, int size) {
    int32_t at[N_LANE], x[N_LANE];
    vst1q_s32(at, index.low);
    vst1q_s32(at + 4, index.high);
    UNROLL for (int i = 0; i < N_LANE; i++)
        memcpy(&x[i], (const uint8_t *)table + (size_t)(uint32_t)at[i] * (size_t)size, 4);
    return (ints){vld1q_s32(x), vld1q_s32(x + 4)};
}
INLINE ints ints_gather8(const void *table, ints index) {
    return ints_gather_(table, index, 8);
}
INLINE ints ints_gather4(const void *table, ints index) {
    return ints_gather_(table, index, 4);
}
/* Sums wrap. */
INLINE ints ints_add(ints a, ints b) {
    return (ints){vaddq_s32(a.low, b.low), vaddq_s32(a.high, b.high)};
}
INLINE ints ints_sub(ints a, ints b) {
    return (ints){vsubq_s32(a.low, b.low), vsubq_s32(a.high, b.high)};
}
INLINE ints ints_and(ints a, ints b) {
    return (ints){a.low & b.low, a.high & b.high};
}
INLINE ints ints_or(ints a, ints b) {
    return (ints){a.low | b.low, a.high | b.high};
}
INLINE ints ints_xor(ints a, ints b) {
    return (ints){a.low ^ b.low, a.high ^ b.high};
}
INLINE ints ints_or_and(ints a, ints b, ints mask) {
    return ints_or(a, ints_and(b, mask));
}

#define INTS_SHIFT_(name, of, op, back)                                                            \
    INLINE ints name(ints x, int n) {                                                              \
        return (ints){back(of(x.low) op n), back(of(x.high) op n)};                                \
    }
INTS_SHIFT_(ints_sll32, words_of, <<, from_words)
INTS_SHIFT_(ints_srl32, words_of, >>, from_words)
INTS_SHIFT_(ints_sra32, , >>, )
INTS_SHIFT_(ints_sll16, halves_of, <<, from_halves)
INTS_SHIFT_(ints_srl16, halves_of, >>, from_halves)
INTS_SHIFT_(ints_sra16, signed_halves_of, >>, from_signed_halves)
#undef INTS_SHIFT_

INLINE ints ints_bits(ints x, int shift, int32_t mask) {
    return ints_and(ints_srl32(x, shift), ints_set(mask));
}
INLINE ints ints_shift_left(ints x, int shift) {
    return ints_sll32(x, shift);
}
INLINE int32_t ints_sum(ints x) {
    return vaddvq_s32(vaddq_s32(x.low, x.high));
}

INLINE int32x4_t quad_mul15(int32x4_t a, int32x4_t b) {
    return from_signed_halves(vqrdmulhq_s16(signed_halves_of(a), signed_halves_of(b)));
}
INLINE ints ints_mul15(ints a, ints b) {
    return (ints){quad_mul15(a.low, b.low), quad_mul15(a.high, b.high)};
}
INLINE int32x4_t quad_dot16(int32x4_t sum, int32x4_t a, int32x4_t b) {
    int16x8_t x = signed_halves_of(a), y = signed_halves_of(b);
    int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y)), high = vmull_high_s16(x, y);
    return vaddq_s32(sum, vpaddq_s32(low, high));
}
INLINE ints ints_dot16(ints sum, ints a, ints b) {
    return (ints){quad_dot16(sum.low, a.low, b.low), quad_dot16(sum.high, a.high, b.high)};
}
#define DOT8_IS_NARROW 0
#define DOT8_IS_SIGNED 1
INLINE ints ints_dot8(ints sum, ints a, ints b) {
    return (ints){vdotq_s32(sum.low, signed_bytes_of(a.low), signed_bytes_of(b.low)),
                  vdotq_s32(sum.high, signed_bytes_of(a.high), signed_bytes_of(b.high))};
}
INLINE ints ints_dot8_add(ints sum, ints halves_sum) {
    (void)sum;
    return halves_sum;
}
INLINE int32x4_t quads_pack(ints x) {
    return from_signed_halves(vqmovn_high_s32(vqmovn_s32(x.low), x.high));
}
INLINE ints ints_pack(ints a, ints b) {
    return (ints){quads_pack(a), quads_pack(b)};
}

/* ---- sixteen numbers of 16 bits -------------------------------------------------------------- */

typedef ints halves;

INLINE halves halves_pack(const ints *x) {
    return ints_pack(x[0], x[1]);
}
INLINE void halves_store_bytes(uint8_t *p, halves low, halves high) {
    int8x16_t first =
        vqmovn_high_s16(vqmovn_s16(signed_halves_of(low.low)), signed_halves_of(low.high));
    int8x16_t second =
        vqmovn_high_s16(vqmovn_s16(signed_halves_of(high.low)), signed_halves_of(high.high));
    vst1q_s8((int8_t *)p, first);
    vst1q_s8((int8_t *)p + 16, second);
}
INLINE int32x4_t quad_order(int32x4_t x) {
    static const uint8_t order[16] = {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15};
    return from_bytes(vqtbl1q_u8(bytes_of(x), vld1q_u8(order)));
}
INLINE void halves_store_pairs(uint8_t *p, halves low, halves high, bool is_paired) {
    halves a = {quad_order(low.low), quad_order(low.high)};
    halves b = {quad_order(high.low), quad_order(high.high)};
    if (is_paired) {
        halves x = {vzip1q_s32(a.low, b.low), vzip2q_s32(a.low, b.low)};
        halves y = {vzip1q_s32(a.high, b.high), vzip2q_s32(a.high, b.high)};
        a = x, b = y;
    }
    ints_store(p, a);
    ints_store(p + 32, b);
}

/* ---- conversions between integers and floats ------------------------------------------------- */

INLINE lanes lanes_from_ints(ints x) {
    return (lanes){vcvtq_f32_s32(x.low), vcvtq_f32_s32(x.high)};
}
INLINE ints ints_from_lanes(lanes x) {
    return (ints){vcvtnq_s32_f32(x.low), vcvtnq_s32_f32(x.high)};
}
INLINE lanes lanes_from_f16_halves(uint16x8_t x) {
    float16x8_t half = vreinterpretq_f16_u16(x);
    return (lanes){vcvt_f32_f16(vget_low_f16(half)), vcvt_high_f32_f16(half)};
}
INLINE lanes lanes_from_f16_bits(ints x) {
    return lanes_from_f16_halves(vmovn_high_u32(vmovn_u32(words_of(x.low)), words_of(x.high)));
}
INLINE lanes lanes_from_f16(const uint8_t *p) {
    return lanes_from_f16_halves(vreinterpretq_u16_u8(vld1q_u8(p)));
}
INLINE lanes lanes_from_bf16(const uint8_t *p) {
    return lanes_from_bits(ints_sll32(ints_from_u16(p), 16));
}
/* In two steps, since 2^n itself may be no normal number. */
INLINE lanes lanes_scale2(lanes x, lanes n) {
    ints whole = ints_from_lanes(n), first = ints_sra32(whole, 1), second = ints_sub(whole, first);
    const ints bias = ints_set(127);
    x = lanes_mul(x, lanes_from_bits(ints_sll32(ints_add(first, bias), 23)));
    return lanes_mul(x, lanes_from_bits(ints_sll32(ints_add(second, bias), 23)));
}
/* 2^n has the exponent field n + 127: 0 is the number 0. Adding 1.5 * 2^23 leaves a whole number in
 * the lowest bits. */
INLINE lanes lanes_scale2_down(lanes x, lanes t) {
    lanes n = lanes_floor(lanes_max(lanes_set(-127), t));
    ints field = ints_of_bits(lanes_add(n, lanes_set(0x1.8p23f + 127)));
    return lanes_mul(x, lanes_from_bits(ints_sll32(field, 23)));
}

/* ---- bytes ----------------------------------------------------------------------------------- */

#define BYTES_1_(name, of)                                                                         \
    INLINE ints name(ints x) {                                                                     \
        return (ints){from_bytes(of(bytes_of(x.low))), from_bytes(of(bytes_of(x.high)))};          \
    }

INLINE ints bytes_set(uint8_t x) {
    return (ints){from_bytes(vdupq_n_u8(x)), from_bytes(vdupq_n_u8(x))};
}
INLINE ints bytes_table(const int8_t *p) {
    int32x4_t table = vreinterpretq_s32_s8(vld1q_s8(p));
    return (ints){table, table};
}
INLINE ints bytes_lookup(ints table, ints x) {
    return (ints){from_bytes(vqtbl1q_u8(bytes_of(table.low), bytes_of(x.low))),
                  from_bytes(vqtbl1q_u8(bytes_of(table.high), bytes_of(x.high)))};
}
/* Every byte shifted by n bits to the right; to the left where n is negative. */
INLINE ints bytes_shift(ints x, int n) {
    if (n < 0) return (ints){from_bytes(bytes_of(x.low) << -n), from_bytes(bytes_of(x.high) << -n)};
    return (ints){from_bytes(bytes_of(x.low) >> n), from_bytes(bytes_of(x.high) >> n)};
}
INLINE ints bytes_low4(ints x) {
    return ints_and(x, bytes_set(15));
}
INLINE ints bytes_high4(ints x) {
    return bytes_shift(x, 4);
}
INLINE ints bytes_low6(ints x) {
    return ints_and(x, bytes_set(63));
}
INLINE ints bytes_pair_low(ints x, int k) {
    return ints_and(bytes_shift(x, 2 * k), bytes_set(3));
}
INLINE ints bytes_pair_high(ints x, int k) {
    return ints_and(bytes_shift(x, 2 * k - 4), bytes_set(0x30));
}
INLINE int32x4_t quad_add_bit(int32x4_t x, int32x4_t bits, int bit, int value) {
    uint8x16_t is_set = vtstq_u8(bytes_of(bits), vdupq_n_u8((uint8_t)(1 << bit)));
    return from_bytes(vaddq_u8(bytes_of(x), is_set & vdupq_n_u8((uint8_t)value)));
}
INLINE ints bytes_add_bit(ints x, ints bits, int bit, int value) {
    return (ints){quad_add_bit(x.low, bits.low, bit, value),
                  quad_add_bit(x.high, bits.high, bit, value)};
}
INLINE int32x4_t quad_negate(int32x4_t x, int32x4_t bits, int k) {
    static const uint8_t first[16] = {0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12};
    uint8x16_t only = vreinterpretq_u8_u32(vdupq_n_u32(k == 0 ? 0x08040201u : 0x80402010u));
    uint8x16_t m = vtstq_u8(vqtbl1q_u8(bytes_of(bits), vld1q_u8(first)), only);
    return from_bytes(vsubq_u8(bytes_of(x) ^ m, m));
}
INLINE ints bytes_negate(ints x, ints bits, int k) {
    return (ints){quad_negate(x.low, bits.low, k), quad_negate(x.high, bits.high, k)};
}
/* A comparison gives -1 where it is true. */
INLINE uint8x16_t quad_trit(uint8x16_t x) {
    uint8x16_t sum = vaddq_u8(vcgtq_u8(x, vdupq_n_u8(85)), vcgtq_u8(x, vdupq_n_u8(170)));
    return vsubq_u8(vdupq_n_u8(0), sum);
}
BYTES_1_(bytes_trit, quad_trit)
INLINE uint8x16_t quad_times3(uint8x16_t x) {
    return vmulq_u8(x, vdupq_n_u8(3));
}
BYTES_1_(bytes_trit_rest, quad_times3)

#undef BYTES_1_
#undef LANES_2_
#undef LANES_1_

/* ---- registers ------------------------------------------------------------------------------- */

enum { SCORE_ROWS = 4, SCORE_SUMS = 8, ADD_ROWS = 4, ADD_SUMS = 8 };

#endif
