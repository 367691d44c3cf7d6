// SPDX-License-Identifier: MIT
//
// halves.comp: rows of x as f16, for products on matrix hardware (product_matrix.glsl, kernel.h). A
// workgroup for each row:
//   x = factor * half     factor = a power of two, |half| below 2^15, rounded to nearest
// Each row is filled with zeros from k elements to a multiple of 32. A row with a NaN or an
// infinity has the factor NaN.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "half.glsl"
#include "reduce.glsl"
#include "x_rows.glsl"

float one_load(uint64_t x, uint i) {
    return i < uint(args.word[0]) ? F32(x).at[i * uint(args.word[10])] : 0.0;
}

vec4 quad_load(uint64_t x, uint i) {
    if (X_IS_WIDE) return F32x4(x).at[i / 4];
    return vec4(one_load(x, i), one_load(x, i + 1), one_load(x, i + 2), one_load(x, i + 3));
}

// packHalf2x16 may round towards 0, as Mesa's driver of AMD cards does: all of x would shrink a
// little.
uint halves_pack(vec2 v) {
    uvec2 bits = floatBitsToUint(v);
    return f16_of_f32_bits(bits.x) | f16_of_f32_bits(bits.y) << 16;
}

void main() {
    uint row = group_number(), n_row = uint(args.word[1]), n_quad = 8 * uint(args.word[2]);
    if (row >= n_row) return;
    uint64_t x = x_row_address(row);
    uvec4 most = uvec4(0);
    for (uint q = gl_LocalInvocationID.x; q < n_quad; q += gl_WorkGroupSize.x)
        most = max(most, floatBitsToUint(quad_load(x, 4 * q)) & 0x7fffffffu); // of a NaN the greatest
    uint exponent = max(max(most.x, most.y), max(most.z, most.w)) >> 23;
    exponent = uint(group_max(float(exponent)));
    // max |x| < 2^(exponent - 126): times 2^(141 - exponent) it is below 2^15. Of a row below
    // 2^-111 neither that factor nor its inverse would be a normal f32.
    bool is_finite = exponent < 255u;
    exponent = clamp(exponent, 15u, 254u);
    float times = is_finite ? uintBitsToFloat(268u - exponent << 23) : 0.0;
    uint64_t to = args.address[0] + 64ul * row * uint(args.word[2]);
    for (uint q = gl_LocalInvocationID.x; q < n_quad; q += gl_WorkGroupSize.x) {
        vec4 v = is_finite ? quad_load(x, 4 * q) * times : vec4(0.0);
        U32x2(to).at[q] = uvec2(halves_pack(v.xy), halves_pack(v.zw));
    }
    if (gl_LocalInvocationID.x == 0)
        F32(args.address[0] + 64ul * n_row * uint(args.word[2])).at[row] =
            uintBitsToFloat(is_finite ? exponent - 14u << 23 : 0x7fc00000u);
}
