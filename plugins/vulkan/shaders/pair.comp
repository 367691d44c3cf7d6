// SPDX-License-Identifier: MIT
//
// pair.comp: dst = a op b, b repeated along axes where it has one element. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"

void main() {
    uint i = invocation_number();
    if (i >= uint(args.word[12])) return;
    uint left = i;
    uint a_at = 0, b_at = 0;
    for (int axis = 0; axis < 4; axis++) {
        uint ne = uint(args.word[axis]);
        uint at = left % ne;
        left /= ne;
        a_at += at * uint(args.word[4 + axis]);
        b_at += at * uint(args.word[8 + axis]);
    }
    float a = F32(args.address[1]).at[a_at];
    float b = F32(args.address[2]).at[b_at];
    F32(args.address[0]).at[i] = SPEC0 == 0 ? a + b : SPEC0 == 1 ? a * b : a / b;
}
