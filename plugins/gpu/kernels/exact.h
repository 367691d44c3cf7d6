/* SPDX-License-Identifier: MIT
 *
 * exact.h: arithmetic whose results are the same bits on every device: quotients and square roots
 * rounded to nearest even, and conversions between f32, f16 and bf16. The results are those
 * of plugins/vulkan/shaders/exact.glsl, bit for bit. The build forbids to fuse products with sums.
 */
#ifndef TANDEM_GPU_EXACT_H
#define TANDEM_GPU_EXACT_H
#include "number.h"

static inline bool exact_is_nan(float x) {
    return (float_to_bits(x) & 0x7fffffffu) > 0x7f800000u;
}

// a / b. Both are finite and b is normal. A quotient below 2^-126 gives 0 of its sign.
static inline float exact_div(float a, float b) {
    uint ua = float_to_bits(a), ub = float_to_bits(b);
    uint sign = (ua ^ ub) & 0x80000000u;
    int exponent = int(ua >> 23 & 255u) - int(ub >> 23 & 255u) + 127;
    if ((ua & 0x7f800000u) == 0u) return bits_to_float(sign);
    u64 over = u64(ua & 0x7fffffu | 0x800000u) << 26;
    u64 under = u64(ub & 0x7fffffu | 0x800000u);
    uint quotient = uint(over / under); // 2^25 .. 2^27
    bool has_rest = u64(quotient) * under != over;
    uint drop = 3u;
    if (quotient < 1u << 26) {
        drop = 2u;
        exponent--;
    }
    uint rest = quotient & ((1u << drop) - 1u), middle = 1u << (drop - 1u);
    uint mantissa = quotient >> drop;
    if (rest > middle || rest == middle && (has_rest || (mantissa & 1u) != 0u)) mantissa++;
    if (mantissa >> 24 != 0u) {
        mantissa >>= 1;
        exponent++;
    }
    if (exponent <= 0) return bits_to_float(sign);
    if (exponent >= 255) return bits_to_float(sign | 0x7f800000u);
    return bits_to_float(sign | uint(exponent) << 23 | mantissa & 0x7fffffu);
}

// The square root of x >= 0, finite; 0 where x is below 2^-126.
static inline float exact_sqrt(float x) {
    uint bits = float_to_bits(x);
    int exponent = int(bits >> 23) - 127;
    if (exponent == -127) return 0.0f;
    // The integer square root of a number of 47 or 48 bits has 24 bits.
    u64 square = u64(bits & 0x7fffffu | 0x800000u) << ((exponent & 1) != 0 ? 24 : 23);
    u64 root = u64(sqrt(float(square)));
    for (int i = 0; i < 8 && root * root > square; i++) root--;
    for (int i = 0; i < 8 && (root + 1) * (root + 1) <= square; i++) root++;
    uint mantissa = uint(root);
    if (square - root * root > root) mantissa++;
    exponent = (exponent & 1) != 0 ? (exponent - 1) / 2 : exponent / 2;
    return bits_to_float((uint(exponent + 127) << 23) + (mantissa - 0x800000u));
}

// To the nearest f16, ties to even; a NaN stays one.
static inline uint exact_to_f16(float x) {
    uint bits = float_to_bits(x), sign = bits >> 16 & 0x8000u;
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u) return sign | 0x7e00u | bits >> 13 & 0x3ffu;
    if (bits >= 0x477ff000u) return sign | 0x7c00u;
    if (bits >= 0x38800000u) {
        bits += 0x0fffu + (bits >> 13 & 1u);
        return sign | (bits >> 13) - (112u << 10);
    }
    uint shift = 126u - (bits >> 23); // a subnormal f16 counts 2^-24
    if (shift > 24u) return sign;
    uint mantissa = bits & 0x7fffffu | 0x800000u, result = mantissa >> shift;
    uint rest = mantissa & ((1u << shift) - 1u), middle = 1u << (shift - 1u);
    if (rest > middle || rest == middle && (result & 1u) != 0u) result++;
    return sign | result;
}

static inline float exact_from_f16(uint half_bits) {
    uint sign = (half_bits & 0x8000u) << 16, bits = half_bits & 0x7fffu;
    if (bits >= 0x7c00u) {
        uint payload = (bits & 0x3ffu) << 13;
        return bits_to_float(sign | 0x7f800000u | payload | (payload != 0u ? 0x400000u : 0u));
    }
    if (bits >= 0x400u) return bits_to_float(sign | (bits << 13) + (112u << 23));
    if (bits == 0u) return bits_to_float(sign);
    int top = top_bit(bits);
    return bits_to_float(sign | uint(top + 103) << 23 | bits << (23 - top) & 0x7fffffu);
}

static inline uint exact_to_bf16(float x) {
    uint bits = float_to_bits(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
    return bits + 0x7fffu + (bits >> 16 & 1u) >> 16;
}

#endif
