// SPDX-License-Identifier: MIT
//
// copy.comp: elements of any strides to any strides, f32, f16 and bf16 converted, or an x that
// repeats. See GPU_KERNEL_COPY.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "axes.glsl"
#include "half.glsl"

const int FROM = SPEC0, TO = SPEC1, N_AXIS = SPEC2, WIDTH = SPEC3;
const bool WRAPS = SPEC4 != 0;
const int WORD32 = 0, F16 = 1, BF16 = 2; // gpu_copy_type

layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Words4 { uvec4 at[]; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer Halves4 { u16vec4 at[]; };

// Bits of an element, as those of an f32 where types differ.
uint widen(uint x) {
    if (FROM == TO || FROM == WORD32) return x;
    return FROM == F16 ? f32_bits_of_f16(x) : x << 16;
}

uint narrow(uint x) {
    if (FROM == TO || TO == WORD32) return x;
    return TO == F16 ? f16_of_f32_bits(x) : bf16_of_f32_bits(x);
}

void move_one(uint from, uint to) {
    uint x = FROM == WORD32 ? U32(args.address[1]).at[from] : uint(U16(args.address[1]).at[from]);
    x = narrow(widen(x));
    if (TO == WORD32)
        U32(args.address[0]).at[to] = x;
    else
        U16(args.address[0]).at[to] = uint16_t(x);
}

void move_four(uint from, uint to) {
    uvec4 x;
    if (FROM == WORD32)
        x = Words4(args.address[1] + uint64_t(from) * 4).at[0];
    else
        x = uvec4(Halves4(args.address[1] + uint64_t(from) * 2).at[0]);
    x = uvec4(narrow(widen(x.x)), narrow(widen(x.y)), narrow(widen(x.z)), narrow(widen(x.w)));
    if (TO == WORD32)
        Words4(args.address[0] + uint64_t(to) * 4).at[0] = x;
    else
        Halves4(args.address[0] + uint64_t(to) * 2).at[0] = u16vec4(x);
}

void main() {
    uint first = invocation_number() * WIDTH, n = uint(args.word[12]);
    if (first >= n) return;
    uvec4 at = axes_split(first, 0, N_AXIS);
    uint to = axes_at(at, 8);
    if (WRAPS)
        at %= uvec4(args.word[13], args.word[14], args.word[15], args.word[16]);
    uint from = axes_at(at, 4);
    if (WIDTH == 1) {
        move_one(from, to);
    } else if (n - first >= 4) {
        move_four(from, to);
    } else {
        for (uint i = 0; i < n - first; i++) move_one(from + i, to + i);
    }
}
