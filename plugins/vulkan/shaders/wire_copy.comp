// SPDX-License-Identifier: MIT
//
// wire_copy.comp: copies a member's part of a value into the whole value, which is in the arena, or
// copies out of the arena. An invocation copies a unit of bytes. See GPU_KERNEL_WIRE_COPY.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "arena.glsl"
#include "axes.glsl"

const int UNIT = SPEC0; // bytes: 16, 4, 2 or 1
const bool PUBLISHES = SPEC1 != 0;

void main() {
    uint i = invocation_number();
    if (i >= uint(args.word[0])) return;
    uint run = divide(i, args.word[5], args.word[6]);
    uint64_t in_whole = uint64_t(run) * uint64_t(uint(args.word[7])) +
                        uint64_t(uint(args.word[8]) + (i - run * uint(args.word[4])));
    uint64_t area = area_off(args.address[2], 1);
    uint64_t to = args.address[0], from = args.address[1];
    to += PUBLISHES ? area + in_whole * UNIT : uint64_t(i) * UNIT;
    from += PUBLISHES ? uint64_t(i) * UNIT : area + in_whole * UNIT;
    if (UNIT == 16)
        U64x2(to).at[0] = U64x2(from).at[0];
    else if (UNIT == 4)
        U32(to).at[0] = U32(from).at[0];
    else if (UNIT == 2)
        U16(to).at[0] = U16(from).at[0];
    else
        U8(to).at[0] = U8(from).at[0];
}
