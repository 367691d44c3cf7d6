// SPDX-License-Identifier: MIT
//
// sum.comp: dst = (a + b + c + d) * scale + bias, element by element, added from left to right. See
// GPU_KERNEL_SUM.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "axes.glsl"

const int N_SRC = SPEC0, N_AXIS = SPEC1, WIDTH = SPEC2, LANE = SPEC3;
const bool IS_SCALED = SPEC4 != 0;

vec4 load(int src, uvec4 at) {
    uint first =
        at.x + at.y * uint(args.word[7 + 2 * src]) + at.z * uint(args.word[8 + 2 * src]);
    uint64_t base = args.address[1 + src];
    if (WIDTH == 1) return vec4(F32(base).at[first], 0.0, 0.0, 0.0);
    return lanes_load(base, first, LANE, 1);
}

void main() {
    uint first = invocation_number() * WIDTH, n = uint(args.word[15]);
    if (first >= n) return;
    uvec4 at = axes_split(first, 0, N_AXIS);
    vec4 sum = load(0, at) + load(1, at);
    if (N_SRC > 2) sum += load(2, at);
    if (N_SRC > 3) sum += load(3, at);
    if (IS_SCALED) sum = sum * intBitsToFloat(args.word[16]) + intBitsToFloat(args.word[17]);
    if (WIDTH == 1)
        F32(args.address[0]).at[first] = sum.x;
    else
        lanes_store(args.address[0], first, LANE, sum);
}
