// SPDX-License-Identifier: MIT
//
// unary.comp: dst = f(x), element by element. See GPU_KERNEL_UNARY.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "axes.glsl"
#include "math.glsl"

const int OP = SPEC0, N_AXIS = SPEC1, WIDTH = SPEC2, LANE = SPEC3, ACT = SPEC4;

float unary_of(float x) {
    float a = intBitsToFloat(args.word[9]), b = intBitsToFloat(args.word[10]);
    switch (OP) {
    case 0: return x * a + b;
    case 1: return is_nan(x) ? x : min(max(x, a), b);
    case 2: return sqrt_of(x);
    default: return act_of(ACT, x);
    }
}

void main() {
    uint first = invocation_number() * WIDTH, n = uint(args.word[8]);
    if (first >= n) return;
    uint x_at = axes_at(axes_split(first, 0, N_AXIS), 4);
    if (WIDTH == 1) {
        F32(args.address[0]).at[first] = unary_of(F32(args.address[1]).at[x_at]);
        return;
    }
    uint count = min(n - first, 4u);
    vec4 x = lanes_load(args.address[1], x_at, LANE, uint(args.word[4]), count, 0.0);
    lanes_store(args.address[0], first, count,
                vec4(unary_of(x.x), unary_of(x.y), unary_of(x.z), unary_of(x.w)));
}
