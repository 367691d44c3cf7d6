/* SPDX-License-Identifier: MIT
 *
 * angle.h: cos and sin of RoPE's angles. An angle is a position times a 64-bit fraction of a
 * turn (plugins/gpu/ops/angle.h), so that its reduction to one turn is exact.
 */
#ifndef TANDEM_GPU_ANGLE_H
#define TANDEM_GPU_ANGLE_H
#include "lang.h"

// The fraction divided by a frequency factor, which is m * 2^-shift with m of 24 bits. is_bad_out:
// the factor is 0 (or denormal) or NaN, and there is no angle; the result is 0 then.
static inline u64 turn_divided(u64 turn, float factor, bool &is_bad_out) {
    uint bits = float_to_bits(factor), exponent = bits >> 23 & 255u;
    is_bad_out = (bits & 0x7fffffffu) > 0x7f800000u || exponent == 0u;
    if (exponent == 255u || exponent == 0u) return u64(0); // an infinite factor: no rotation
    u64 m = u64(bits & 0x7fffffu | 0x800000u), quotient, rest;
    int shift = 150 - int(exponent); // turn * 2^shift / m
    u64 result = u64(0);
    if (shift >= 0 && shift < 64) {
        quotient = turn / m;
        rest = turn - quotient * m;
        int first = min(shift, 40); // rest has 24 bits
        result = (quotient << shift) + ((rest << first) / m << (shift - first));
    } else if (shift < 0 && shift >= -40) {
        result = turn / (m << -shift);
    }
    return (bits >> 31) != 0u ? u64(0) - result : result;
}

// (cos, sin) of pos times the fraction `turn` of a turn.
static inline vec2 turn_cos_sin(u64 turn, i64 pos) {
    uint phase = uint(turn * u64(pos) >> 32);
    uint quarter = phase + 0x20000000u >> 30;                          // the nearest
    float a = float(int(phase - (quarter << 30))) * 1.46291807927e-9f; // 2 pi / 2^32: |a| <= pi / 4
    float t = a * a;
    float s = -1.958789088e-4f;
    s = s * t + 8.332748271e-3f;
    s = s * t - 1.666666466e-1f;
    s = a + a * t * s;
    float c = 2.454794168e-5f;
    c = c * t - 1.388830303e-3f;
    c = c * t + 4.166664466e-2f;
    c = 1.0f - 0.5f * t + t * t * c;
    switch (quarter & 3u) {
    case 0: return vec2(c, s);
    case 1: return vec2(-s, c);
    case 2: return vec2(-c, -s);
    default: return vec2(s, -c);
    }
}

#endif
