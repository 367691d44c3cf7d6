// SPDX-License-Identifier: MIT
//
// angle.glsl: cos and sin of RoPE's angles. An angle is a position times a 64-bit fraction of a
// turn (plugins/gpu/ops/angle.h), so that its reduction to one turn is exact.

layout(buffer_reference, scalar, buffer_reference_align = 8) buffer Turns { uint64_t at[]; };

// The fraction divided by a frequency factor, m * 2^k with m of 24 bits. is_bad_out: the factor is
// 0, denormal or NaN, so that there is no angle.
uint64_t turn_divided(uint64_t turn, float factor, out bool is_bad_out) {
    uint bits = floatBitsToUint(factor), exponent = bits >> 23 & 255u;
    is_bad_out = (bits & 0x7fffffffu) > 0x7f800000u || exponent == 0u;
    if (exponent == 255u || exponent == 0u) return 0ul; // an infinite factor: the angle is 0
    uint64_t m = uint64_t(bits & 0x7fffffu | 0x800000u), quotient, rest;
    int shift = 150 - int(exponent); // turn * 2^shift / m
    uint64_t result = 0ul;
    if (shift >= 0 && shift < 64) {
        quotient = turn / m;
        rest = turn - quotient * m;
        int first = min(shift, 40); // rest has 24 bits
        result = (quotient << shift) + ((rest << first) / m << (shift - first));
    } else if (shift < 0 && shift >= -40) {
        result = turn / (m << -shift);
    }
    return (bits >> 31) != 0u ? 0ul - result : result;
}

// (cos, sin) of the angle at a position.
vec2 turn_cos_sin(uint64_t turn, int64_t pos) {
    uint phase = uint(turn * uint64_t(pos) >> 32);
    uint quarter = phase + 0x20000000u >> 30; // the nearest
    float a = float(int(phase - (quarter << 30))) * 1.46291807927e-9; // 2 pi / 2^32: |a| <= pi / 4
    float t = a * a;
    float s = -1.958789088e-4;
    s = s * t + 8.332748271e-3;
    s = s * t - 1.666666466e-1;
    s = a + a * t * s;
    float c = 2.454794168e-5;
    c = c * t - 1.388830303e-3;
    c = c * t + 4.166664466e-2;
    c = 1.0 - 0.5 * t + t * t * c;
    switch (quarter & 3u) {
    case 0: return vec2(c, s);
    case 1: return vec2(-s, c);
    case 2: return vec2(-c, -s);
    default: return vec2(s, -c);
    }
}
