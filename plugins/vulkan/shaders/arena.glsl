// SPDX-License-Identifier: MIT
//
// arena.glsl: the area of a group's arena that an exchange uses in this run (collective.h).

// Bytes from area 0 to the area of this run. Words: stage, area_stride (64 bits) from `area` on.
uint64_t area_off(uint64_t step, int area) {
    uint base = U32(step).at[15]; // tdm_step_header.exchange_base
    uint64_t stride = pack64(uvec2(args.word[area + 1], args.word[area + 2]));
    return (base + uint(args.word[area]) & 1u) != 0u ? stride : 0ul;
}
