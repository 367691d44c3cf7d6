// SPDX-License-Identifier: MIT
//
// quantize.comp: rows of x as bytes, for products with integer dot products (bytes.glsl, kernel.h).
// An invocation for each group of 32 elements:
//   x = scale * (128 * high + low)     scale = max |x| / 16256, high = -127 .. 127, low = -64 .. 63
// A row of a prompt has 8 bits: low is 0. A group with a NaN or an infinity has the scale NaN.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"

const bool HAS_ROLES = SPEC0 != 0;
const bool X_IS_WIDE = SPEC1 != 0; // x is dense and aligned to 16 bytes in every row
const int ROLE_PROMPT = 1;

layout(buffer_reference, scalar, buffer_reference_align = 16) buffer F32x4 { vec4 at[]; };

uint64_t row_address(uint row) {
    uint per_matrix = uint(args.word[9]), matrix = row / per_matrix;
    uint column = row - matrix * per_matrix, rest = column / uint(args.word[3]);
    uint c2 = rest / uint(args.word[4]);
    uint at = (column - rest * uint(args.word[3])) * uint(args.word[5]) +
              (rest - c2 * uint(args.word[4])) * uint(args.word[6]) + c2 * uint(args.word[7]) +
              matrix * uint(args.word[8]);
    return args.address[1] + 4 * uint64_t(at);
}

vec4 quad_load(uint64_t x, uint i) {
    if (X_IS_WIDE) return F32x4(x).at[i / 4];
    uint stride = uint(args.word[10]);
    return vec4(F32(x).at[i * stride], F32(x).at[(i + 1) * stride], F32(x).at[(i + 2) * stride],
                F32(x).at[(i + 3) * stride]);
}

uint bytes_pack(ivec4 v) {
    uvec4 bytes = uvec4(v) & 255u;
    return bytes.x | bytes.y << 8 | bytes.z << 16 | bytes.w << 24;
}

void main() {
    uint number = invocation_number(), n_row = uint(args.word[1]), n_group = uint(args.word[2]);
    uint row = number / n_group, g = number - row * n_group;
    if (row >= n_row) return;
    bool is_prompt = false;
    if (HAS_ROLES) {
        uint column = row % uint(args.word[9]);
        is_prompt = I32(args.address[2]).at[column / uint(args.word[12]) * uint(args.word[11])] ==
                    ROLE_PROMPT;
    }
    uint64_t x = row_address(row), n = uint64_t(n_row) * n_group, to = args.address[0];
    vec4 v[8];
    uvec4 most = uvec4(0);
    [[unroll]] for (int i = 0; i < 8; i++) {
        v[i] = quad_load(x, 32 * g + 4 * i);
        most = max(most, floatBitsToUint(v[i]) & 0x7fffffffu); // of a NaN the greatest
    }
    uint greatest = max(max(most.x, most.y), max(most.z, most.w));
    float scale = uintBitsToFloat(greatest) * (1.0 / 16256.0);
    float inverse = (is_prompt ? 127.0 : 16256.0) / uintBitsToFloat(greatest);
    if (greatest >= 0x7f800000u) {
        scale = uintBitsToFloat(0x7fc00000u);
        inverse = 0.0;
    } else if (greatest < 0x06800000u) { // 2^-114, of which the inverse would overflow
        scale = inverse = 0.0;
    }
    uvec4 high[2], low[2];
    [[unroll]] for (int i = 0; i < 8; i++) {
        // What is not finite, and what its inverse made of it, must not reach the conversion.
        vec4 scaled = inverse == 0.0 ? vec4(0.0) : roundEven(v[i] * inverse);
        ivec4 code = ivec4(clamp(scaled, -16256.0, 16256.0));
        ivec4 upper = is_prompt ? code : code + 64 >> 7;
        high[i / 4][i % 4] = bytes_pack(upper);
        low[i / 4][i % 4] = is_prompt ? 0u : bytes_pack(code - (upper << 7));
    }
    [[unroll]] for (int i = 0; i < 2; i++) {
        U32x4(to + 32ul * number).at[i] = high[i];
        U32x4(to + 32 * (n + number)).at[i] = low[i];
    }
    F32(to + 64 * n + 4ul * number).at[0] = scale;
    if (g == 0) U32(to + 68 * n).at[row] = is_prompt ? 0u : 1u;
}
