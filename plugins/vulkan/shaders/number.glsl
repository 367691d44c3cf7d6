// SPDX-License-Identifier: MIT
//
// number.glsl: NaN and infinity of f32. Tests for NaN compare bits, because drivers may assume that
// arithmetic gives none.
#ifndef NUMBER_GLSL
#define NUMBER_GLSL

#define NEGATIVE_INFINITY uintBitsToFloat(0xff800000u)

bool is_nan(float x) {
    return (floatBitsToUint(x) & 0x7fffffffu) > 0x7f800000u;
}

#endif
