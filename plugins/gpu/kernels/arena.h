/* SPDX-License-Identifier: MIT
 *
 * arena.h: which of the two areas of a group's arena an exchange uses in this run (collective.h).
 */
#ifndef TANDEM_GPU_ARENA_H
#define TANDEM_GPU_ARENA_H

#include "axes.h"

struct Arena : Axes {
    inline explicit Arena(const Args &args_) : Axes(args_) {}

    // Bytes from area 0 to the area of this run; step: address of the step block. Words from `area`
    // on: the exchange's stage, area_stride (64 bits).
    inline u64 area_off(u64 step, int area) {
        uint base = U32(step).at[15]; // tdm_step_header.exchange_base
        u64 stride = pack64(uvec2(args.word[area + 1], args.word[area + 2]));
        return (base + uint(args.word[area]) & 1u) != 0u ? stride : u64(0);
    }
};

#endif
