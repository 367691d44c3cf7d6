// SPDX-License-Identifier: MIT
//
// exact.glsl: arithmetic whose results are the same bits on every device: quotients and square
// roots rounded to nearest even, and conversions between f32, f16 and bf16. GLSL's own division,
// sqrt and packHalf2x16 may be off by some units in the last place. Additions and products are
// exact by the specification, where `precise` forbids the compiler to fuse them.
#include "half.glsl"

// a / b. Both are finite and b is normal; a denormal a counts as 0. A quotient below 2^-126 gives 0
// of its sign.
float exact_div(float a, float b) {
    uint ua = floatBitsToUint(a), ub = floatBitsToUint(b);
    uint sign = (ua ^ ub) & 0x80000000u;
    int exponent = int(ua >> 23 & 255u) - int(ub >> 23 & 255u) + 127;
    if ((ua & 0x7f800000u) == 0u) return uintBitsToFloat(sign);
    uint64_t over = uint64_t(ua & 0x7fffffu | 0x800000u) << 26;
    uint64_t under = uint64_t(ub & 0x7fffffu | 0x800000u);
    uint quotient = uint(over / under); // 2^25 .. 2^27
    bool has_rest = uint64_t(quotient) * under != over;
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
    if (exponent <= 0) return uintBitsToFloat(sign);
    if (exponent >= 255) return uintBitsToFloat(sign | 0x7f800000u);
    return uintBitsToFloat(sign | uint(exponent) << 23 | mantissa & 0x7fffffu);
}

// The square root of x >= 0, finite; 0 where x is below 2^-126.
float exact_sqrt(float x) {
    uint bits = floatBitsToUint(x);
    int exponent = int(bits >> 23) - 127;
    if (exponent == -127) return 0.0;
    // The square root of a number of 47 or 48 bits is one of 24.
    uint64_t square = uint64_t(bits & 0x7fffffu | 0x800000u) << ((exponent & 1) != 0 ? 24 : 23);
    uint64_t root = uint64_t(sqrt(float(square)));
    for (int i = 0; i < 8 && root * root > square; i++) root--;
    for (int i = 0; i < 8 && (root + 1) * (root + 1) <= square; i++) root++;
    uint mantissa = uint(root);
    if (square - root * root > root) mantissa++;
    exponent = (exponent & 1) != 0 ? (exponent - 1) / 2 : exponent / 2;
    return uintBitsToFloat((uint(exponent + 127) << 23) + (mantissa - 0x800000u));
}

// To the nearest f16 or bf16, ties to even; a NaN stays one.
uint exact_to_f16(float x) {
    return f16_of_f32_bits(floatBitsToUint(x));
}
uint exact_to_bf16(float x) {
    return bf16_of_f32_bits(floatBitsToUint(x));
}
float exact_from_f16(uint half_bits) {
    return uintBitsToFloat(f32_bits_of_f16(half_bits));
}
