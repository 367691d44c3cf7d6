/* SPDX-License-Identifier: MIT
 *
 * iq4.h: the codebook of iq4_nl and iq4_xs: TDM_IQ4_VALUES of core/include/tandem/block.h. It has
 * 16 levels, which ascend from -127 to 113; a code is the number of a level.
 */
#ifndef TANDEM_GPU_IQ4_H
#define TANDEM_GPU_IQ4_H

#include "lang.h"

// Word i of the levels as int8: level k is byte k % 4 of word k / 4.
static constexpr inline uint iq4_word(int i) {
    return i == 0 ? 0xbfad9881u : i == 1 ? 0xf6eaddcfu : i == 2 ? 0x26190d01u : 0x71594535u;
}
static inline uvec4 iq4_book() {
    return uvec4(iq4_word(0), iq4_word(1), iq4_word(2), iq4_word(3));
}

// Level k as a number; k is a constant.
static constexpr inline float iq4_level(int k) {
    return float(int(iq4_word(k / 4) << (24 - k % 4 * 8)) >> 24);
}

#endif
