/* SPDX-License-Identifier: MIT
 *
 * angle.cu: (cos, sin) * mscale of each pair and token. See GPU_KERNEL_ANGLE.
 */
#include "lang.h"
#include "angle.h"

struct Angle : Kernel {
    inline explicit Angle(const Args &args_) : Kernel(args_) {}

    const bool HAS_FACTOR = SPEC0 != 0;

    inline void run() {
        uint i = invocation_number(), n_pair = uint(args.word[0]);
        if (i >= uint(args.word[4])) return;
        uint tok = i / n_pair, pair = i - tok * n_pair;
        i64 pos = i64(I32(args.address[1]).at[tok * uint(args.word[1])]) + args.word[5];
        u64 turn = U64(args.address[2]).at[pair];
        bool is_bad = false;
        if (HAS_FACTOR)
            turn = turn_divided(turn, F32(args.address[3]).at[pair * uint(args.word[2])], is_bad);
        vec2 angle = turn_cos_sin(turn, pos) * bits_to_float(args.word[3]);
        if (args.word[6] != 0) angle.y = -angle.y;
        F32x2(args.address[0]).at[i] = is_bad ? vec2(bits_to_float(0x7fc00000u)) : angle;
    }
};

GPU_KERNEL(angle, Angle)
