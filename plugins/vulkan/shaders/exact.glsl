// SPDX-License-Identifier: MIT
//
// exact.glsl: arithmetic whose results are the same bits on every device: quotients and square
// roots rounded to nearest even, and conversions between f32, f16 and bf16. GLSL's own division,
// sqrt and packHalf2x16 may be off by some units in the last place. Additions and products are
// exact by the specification, where `precise` forbids the compiler to fuse them.

bool exact_is_nan(float x) {
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}

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

// To the nearest f16, ties to even; a NaN stays one.
uint exact_to_f16(float x) {
    uint bits = floatBitsToUint(x), sign = bits >> 16 & 0x8000u;
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

float exact_from_f16(uint half_bits) {
    uint sign = (half_bits & 0x8000u) << 16, bits = half_bits & 0x7fffu;
    if (bits >= 0x7c00u) {
        uint payload = (bits & 0x3ffu) << 13;
        return uintBitsToFloat(sign | 0x7f800000u | payload | (payload != 0u ? 0x400000u : 0u));
    }
    if (bits >= 0x400u) return uintBitsToFloat(sign | (bits << 13) + (112u << 23));
    if (bits == 0u) return uintBitsToFloat(sign);
    int top = findMSB(bits);
    return uintBitsToFloat(sign | uint(top + 103) << 23 | bits << (23 - top) & 0x7fffffu);
}

uint exact_to_bf16(float x) {
    uint bits = floatBitsToUint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
    return bits + 0x7fffu + (bits >> 16 & 1u) >> 16;
}
