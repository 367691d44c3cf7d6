// SPDX-License-Identifier: MIT
//
// rope.comp: turns pairs of elements by the angles of angle.comp, and copies the rest. A token at
// position -1 is copied. An invocation computes a pair or copies an element. See GPU_KERNEL_ROPE.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"

const bool IS_ADJACENT = SPEC0 == 0; // tdm_rope_mode

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer F32x2 { vec2 at[]; };

uint x_stride, x_at, dst_at;

void element_copy(uint i) {
    U32(args.address[0]).at[dst_at + i] = U32(args.address[1]).at[x_at + i * x_stride];
}

void main() {
    uint i = invocation_number();
    if (i >= uint(args.word[9])) return;
    uint head_dim = uint(args.word[0]), n_head = uint(args.word[1]);
    uint n_rot = uint(args.word[7]), offset = uint(args.word[8]), n_unit = uint(args.word[10]);
    uint row = i / n_unit, unit = i - row * n_unit, tok = row / n_head, head = row - tok * n_head;
    x_stride = uint(args.word[3]);
    x_at = head * uint(args.word[4]) + tok * uint(args.word[5]);
    dst_at = row * head_dim;
    uint n_pair = n_rot / 2;
    if (unit >= n_pair) {
        uint rest = unit - n_pair;
        element_copy(rest < offset ? rest : rest + n_rot);
        return;
    }
    uint a = offset + (IS_ADJACENT ? 2 * unit : unit), b = a + (IS_ADJACENT ? 1 : n_pair);
    if (I32(args.address[2]).at[tok * uint(args.word[6])] == -1) {
        element_copy(a);
        element_copy(b);
        return;
    }
    vec2 angle = F32x2(args.address[3]).at[tok * n_pair + unit];
    float x = F32(args.address[1]).at[x_at + a * x_stride];
    float y = F32(args.address[1]).at[x_at + b * x_stride];
    F32(args.address[0]).at[dst_at + a] = x * angle.x - y * angle.y;
    F32(args.address[0]).at[dst_at + b] = x * angle.y + y * angle.x;
}
