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
const bool WRAPS = SPEC4 != 0, FROM_IS_ALIGNED = SPEC5 != 0, TO_IS_ALIGNED = SPEC6 != 0;
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

uvec4 four_load(uint64_t at) {
    if (FROM == WORD32 && FROM_IS_ALIGNED) {
        u64vec2 x = U64x2(at).at[0];
        return uvec4(unpack32(x.x), unpack32(x.y));
    }
    if (FROM == WORD32) return Words4(at).at[0];
    if (FROM_IS_ALIGNED) {
        uvec2 x = unpack32(U64(at).at[0]);
        return uvec4(x.x & 0xffffu, x.x >> 16, x.y & 0xffffu, x.y >> 16);
    }
    return uvec4(Halves4(at).at[0]);
}

void four_store(uint64_t at, uvec4 x) {
    if (TO == WORD32 && TO_IS_ALIGNED)
        U64x2(at).at[0] = u64vec2(pack64(x.xy), pack64(x.zw));
    else if (TO == WORD32)
        Words4(at).at[0] = x;
    else if (TO_IS_ALIGNED)
        U64(at).at[0] = pack64(uvec2(x.x | x.y << 16, x.z | x.w << 16));
    else
        Halves4(at).at[0] = u16vec4(x);
}

void move_four(uint from, uint to) {
    uvec4 x = four_load(args.address[1] + uint64_t(from) * (FROM == WORD32 ? 4 : 2));
    x = uvec4(narrow(widen(x.x)), narrow(widen(x.y)), narrow(widen(x.z)), narrow(widen(x.w)));
    four_store(args.address[0] + uint64_t(to) * (TO == WORD32 ? 4 : 2), x);
}

void main() {
    uint first = invocation_number() * WIDTH, n = uint(args.word[15]);
    if (first >= n) return;
    uvec4 at = axes_split(first, 0, N_AXIS);
    uint to = axes_at(at, 11);
    if (WRAPS)
        at %= uvec4(args.word[16], args.word[17], args.word[18], args.word[19]);
    uint from = axes_at(at, 7);
    if (WIDTH == 1)
        move_one(from, to);
    else
        move_four(from, to);
}
