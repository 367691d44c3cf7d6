// SPDX-License-Identifier: MIT
//
// angle.comp: (cos, sin) * mscale of each pair and token. See GPU_KERNEL_ANGLE.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "angle.glsl"

const bool HAS_FACTOR = SPEC0 != 0;

layout(buffer_reference, scalar, buffer_reference_align = 8) buffer F32x2 { vec2 at[]; };

void main() {
    uint i = invocation_number(), n_pair = uint(args.word[0]);
    if (i >= uint(args.word[4])) return;
    uint tok = i / n_pair, pair = i - tok * n_pair;
    int64_t pos = I32(args.address[1]).at[tok * uint(args.word[1])];
    pos += args.word[5];
    uint64_t turn = Turns(args.address[2]).at[pair];
    bool is_bad = false;
    if (HAS_FACTOR)
        turn = turn_divided(turn, F32(args.address[3]).at[pair * uint(args.word[2])], is_bad);
    vec2 angle = turn_cos_sin(turn, pos) * intBitsToFloat(args.word[3]);
    if (args.word[6] != 0) angle.y = -angle.y;
    F32x2(args.address[0]).at[i] = is_bad ? vec2(uintBitsToFloat(0x7fc00000u)) : angle;
}
