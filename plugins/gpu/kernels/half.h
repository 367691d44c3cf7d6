/* SPDX-License-Identifier: MIT
 *
 * half.h: conversions of f16 and bf16 to and from the bits of an f32, in integers. They round to
 * nearest, ties to even, keep denormals, and make NaN quiet. A driver's own conversions do not
 * guarantee this.
 */
#ifndef TANDEM_GPU_HALF_H
#define TANDEM_GPU_HALF_H
#include "number.h"

static inline uint f32_bits_of_f16(uint h) {
    uint sign = (h & 0x8000u) << 16, exponent = h >> 10 & 31u, fraction = h & 0x3ffu;
    if (exponent == 31u) // infinity, or a quiet NaN
        return sign | 0x7f800000u | fraction << 13 | (fraction != 0u ? 0x400000u : 0u);
    if (exponent != 0u) return sign | exponent + 112u << 23 | fraction << 13;
    // fraction * 2^-24, a normal f32
    return fraction == 0u ? sign : sign | float_to_bits(float(fraction) * 5.9604644775390625e-8f);
}

static inline uint f16_of_f32_bits(uint x) {
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

// The sums, and the products, of the two f16 of each word. The f32 result, rounded to f16, has the
// same bits as one rounding of the exact result.
static inline uint halves_add_plain(uint a, uint b) {
    uint sum = 0u;
    for (int i = 0; i < 32; i += 16) {
        float x = bits_to_float(f32_bits_of_f16(a >> i & 0xffffu));
        float y = bits_to_float(f32_bits_of_f16(b >> i & 0xffffu));
        sum |= f16_of_f32_bits(float_to_bits(x + y)) << i;
    }
    return sum;
}
static inline uint halves_mul_plain(uint a, uint b) {
    uint product = 0u;
    for (int i = 0; i < 32; i += 16) {
        float x = bits_to_float(f32_bits_of_f16(a >> i & 0xffffu));
        float y = bits_to_float(f32_bits_of_f16(b >> i & 0xffffu));
        product |= f16_of_f32_bits(float_to_bits(x * y)) << i;
    }
    return product;
}

static inline uint bf16_of_f32_bits(uint x) {
    if ((x & 0x7fffffffu) > 0x7f800000u) return x >> 16 | 64u;
    return x + 0x7fffu + (x >> 16 & 1u) >> 16;
}

#endif
