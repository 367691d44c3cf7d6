// SPDX-License-Identifier: MIT
//
// pair.comp: dst = a op b, act(a) * b or a * act(b); a and b are repeated along axes where they
// have one element. See GPU_KERNEL_PAIR.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "axes.glsl"
#include "math.glsl"

const int OP = SPEC0, N_AXIS = SPEC1, WIDTH = SPEC2, A_LANE = SPEC3, B_LANE = SPEC4, ACT = SPEC5;
const int DST_LANE = SPEC6;

float pair_of(float a, float b) {
    switch (OP) {
    case 0: return a + b;
    case 1: return a * b;
    case 2: return div_of(a, b);
    case 3: return act_of(ACT, a) * b;
    default: return a * act_of(ACT, b);
    }
}

void main() {
    uint first = invocation_number() * WIDTH, n = uint(args.word[15]);
    if (first >= n) return;
    uvec4 at = axes_split(first, 0, N_AXIS);
    uint a_at = axes_at(at, 7), b_at = axes_at(at, 11);
    if (WIDTH == 1) {
        F32(args.address[0]).at[first] =
            pair_of(F32(args.address[1]).at[a_at], F32(args.address[2]).at[b_at]);
        return;
    }
    vec4 a = lanes_load(args.address[1], a_at, A_LANE, uint(args.word[7]));
    vec4 b = lanes_load(args.address[2], b_at, B_LANE, uint(args.word[11]));
    lanes_store(args.address[0], first, DST_LANE,
                vec4(pair_of(a.x, b.x), pair_of(a.y, b.y), pair_of(a.z, b.z), pair_of(a.w, b.w)));
}
