/* SPDX-License-Identifier: MIT
 *
 * exact.h: arithmetic whose results are the same bits on every device: quotients and square roots
 * rounded to nearest even, and conversions between f32, f16 and bf16. The results are those
 * of plugins/vulkan/shaders/exact.glsl, bit for bit. The build forbids to fuse products with sums.
 */
#ifndef TANDEM_GPU_EXACT_H
#define TANDEM_GPU_EXACT_H
#include "half.h"

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

// To the nearest f16 or bf16, ties to even; a NaN stays one.
static inline uint exact_to_f16(float x) {
    return f16_of_f32_bits(float_to_bits(x));
}
static inline uint exact_to_bf16(float x) {
    return bf16_of_f32_bits(float_to_bits(x));
}
static inline float exact_from_f16(uint half_bits) {
    return bits_to_float(f32_bits_of_f16(half_bits));
}

#endif
