// SPDX-License-Identifier: MIT
//
// iq4.glsl: the codebook of iq4_nl and iq4_xs: TDM_IQ4_VALUES of core/include/tandem/block.h. It
// has 16 levels, which ascend from -127 to 113; a code is the number of a level.
#ifndef IQ4_GLSL
#define IQ4_GLSL

// The levels as int8: level k is byte k % 4 of word k / 4.
const uvec4 IQ4_BOOK = uvec4(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u);

// A level as a number; k is a constant.
#define IQ4_LEVEL(k) float(int(IQ4_BOOK[(k) / 4] << 24 - (k) % 4 * 8) >> 24)

// The level of a code.
float iq4_value(uint code) {
    uint low = (code & 4u) != 0u ? IQ4_BOOK.y : IQ4_BOOK.x;
    uint high = (code & 4u) != 0u ? IQ4_BOOK.w : IQ4_BOOK.z;
    uint word = (code & 8u) != 0u ? high : low;
    return float(int(word << 24u - 8u * (code & 3u)) >> 24);
}

#endif
