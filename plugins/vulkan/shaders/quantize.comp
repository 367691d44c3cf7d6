// SPDX-License-Identifier: MIT
//
// quantize.comp: rows of x as bytes, for products with integer dot products (bytes_store.glsl,
// kernel.h). An invocation for each group of 32 elements.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#define BYTES_ROOM 1
#include "bytes_store.glsl"
#include "x_rows.glsl"

const bool HAS_ROLES = SPEC0 != 0;

vec4 quad_load(uint64_t x, uint i) {
    if (X_IS_WIDE) return F32x4(x).at[i / 4];
    uint stride = uint(args.word[10]);
    return vec4(F32(x).at[i * stride], F32(x).at[(i + 1) * stride], F32(x).at[(i + 2) * stride],
                F32(x).at[(i + 3) * stride]);
}

void main() {
    uint number = invocation_number(), n_row = uint(args.word[1]), n_group = uint(args.word[2]);
    uint row = number / n_group, g = number - row * n_group;
    if (row >= n_row) return;
    bool is_prompt = HAS_ROLES && bytes_is_prompt(args.address[2], row % uint(args.word[9]), 11);
    uint64_t x = x_row_address(row), n = uint64_t(n_row) * n_group, to = args.address[0];
    vec4 v[8];
    uint greatest = 0;
    [[unroll]] for (int i = 0; i < 8; i++) {
        v[i] = quad_load(x, 32 * g + 4 * i);
        greatest = max(greatest, bytes_size(v[i]));
    }
    BytesScale by = bytes_scale(greatest, is_prompt);
    uvec4 high[2], low[2];
    [[unroll]] for (int i = 0; i < 8; i++) {
        uvec2 code = bytes_code(v[i], by.inverse, is_prompt);
        high[i / 4][i % 4] = code.x;
        low[i / 4][i % 4] = code.y;
    }
    [[unroll]] for (int i = 0; i < 2; i++) {
        U32x4(to + 32ul * number).at[i] = high[i];
        U32x4(to + 32 * (n + number)).at[i] = low[i];
    }
    F32(to + 64 * n + 4ul * number).at[0] = by.scale;
    if (g == 0) U32(to + 68 * n).at[row] = is_prompt ? 0u : 1u;
}
