// SPDX-License-Identifier: MIT
//
// unary.comp: dst = f(x), element by element. See GPU_KERNEL_UNARY.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "axes.glsl"
#include "math.glsl"

const int OP = SPEC0, N_AXIS = SPEC1, WIDTH = SPEC2, LANE = SPEC3, ACT = SPEC4;
const int DST_LANE = SPEC5;

// A number in the order of f32s, in which 0 and -0 are equal: drivers may turn comparisons of
// floats into min and max, which treat zeros and NaN in their own way. x is not NaN.
int order_of(float x) {
    int bits = floatBitsToInt(x);
    return bits == 0x80000000 ? 0 : bits ^ (bits >> 31 & 0x7fffffff);
}

float clamp_of(float x, float least, float greatest) {
    if (is_nan(x)) return x;
    if (order_of(x) < order_of(least)) return least;
    return order_of(x) > order_of(greatest) ? greatest : x;
}

float unary_of(float x) {
    float a = intBitsToFloat(args.word[12]), b = intBitsToFloat(args.word[13]);
    switch (OP) {
    case 0: return x * a + b;
    case 1: return clamp_of(x, a, b);
    case 2: return sqrt_of(x);
    case 3: return act_of(ACT, x);
    default:
        return act_of(ACT, x * a + b) * intBitsToFloat(args.word[14]) + intBitsToFloat(args.word[15]);
    }
}

void main() {
    uint first = invocation_number() * WIDTH, n = uint(args.word[11]);
    if (first >= n) return;
    uint x_at = axes_at(axes_split(first, 0, N_AXIS), 7);
    if (WIDTH == 1) {
        F32(args.address[0]).at[first] = unary_of(F32(args.address[1]).at[x_at]);
        return;
    }
    vec4 x = lanes_load(args.address[1], x_at, LANE, uint(args.word[7]));
    lanes_store(args.address[0], first, DST_LANE,
                vec4(unary_of(x.x), unary_of(x.y), unary_of(x.z), unary_of(x.w)));
}
