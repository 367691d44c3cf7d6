// SPDX-License-Identifier: MIT
//
// half.glsl: f16 and bf16 to and from the bits of an f32, in integers: rounding to nearest, ties to
// even, denormals kept and NaN quiet, which a driver's own conversions do not promise.
#ifndef HALF_GLSL
#define HALF_GLSL

uint f32_bits_of_f16(uint h) {
    uint sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 0x3ffu;
    if (exponent == 31u) // infinity, or a quiet NaN
        return sign | 0x7f800000u | fraction << 13 | (fraction != 0u ? 0x400000u : 0u);
    if (exponent != 0u) return sign | exponent + 112u << 23 | fraction << 13;
    // fraction * 2^-24, a normal f32
    return fraction == 0u ? sign : sign | floatBitsToUint(float(fraction) * 5.9604644775390625e-8);
}

uint f16_of_f32_bits(uint x) {
    uint sign = x >> 16 & 0x8000u, size = x & 0x7fffffffu;
    if (size > 0x7f800000u) return sign | 0x7e00u | (size >> 13 & 0x3ffu);
    if (size >= 0x477ff000u) return sign | 0x7c00u; // 65520 and above
    if (size >= 0x38800000u) {                      // 2^-14: a normal f16
        uint rounded = size + 0xfffu + (size >> 13 & 1u);
        return sign | (rounded >> 13) - (112u << 10);
    }
    uint exponent = size >> 23;
    if (exponent < 102u) return sign; // below 2^-25
    uint fraction = size & 0x7fffffu | 0x800000u, drop = 126u - exponent;
    uint kept = fraction >> drop, rest = fraction & (1u << drop) - 1u, middle = 1u << drop - 1u;
    if (rest > middle || (rest == middle && (kept & 1u) != 0u)) kept++;
    return sign | kept;
}

uint bf16_of_f32_bits(uint x) {
    if ((x & 0x7fffffffu) > 0x7f800000u) return x >> 16 | 64u;
    return x + 0x7fffu + (x >> 16 & 1u) >> 16;
}

#endif
