/* SPDX-License-Identifier: MIT
 *
 * rope.cu: turns pairs of elements by the angles of angle.cu, and copies the rest. A token at
 * position -1 is copied. A thread computes a pair or copies an element. See GPU_KERNEL_ROPE.
 */
#include "axes.h"

struct Rope : Axes {
    inline explicit Rope(const Args &args_) : Axes(args_) {}

    const bool IS_ADJACENT = SPEC0 == 0; // tdm_rope_mode
    const bool HAS_REST = SPEC1 != 0;

    inline void run() {
        uint i = invocation_number();
        if (i >= uint(args.word[9])) return;
        uint head_dim = uint(args.word[0]), n_head = uint(args.word[1]);
        uint n_rot = uint(args.word[7]), offset = uint(args.word[8]), n_unit = uint(args.word[10]);
        uint row = divide(i, args.word[11], args.word[12]), unit = i - row * n_unit;
        uint tok = divide(row, args.word[13], args.word[14]), head = row - tok * n_head;
        uint stride = uint(args.word[3]);
        uint x_at = head * uint(args.word[4]) + tok * uint(args.word[5]), dst_at = row * head_dim;
        uint n_pair = n_rot / 2;
        if (HAS_REST && unit >= n_pair) {
            uint rest = unit - n_pair, element = rest < offset ? rest : rest + n_rot;
            U32(args.address[0]).at[dst_at + element] =
                U32(args.address[1]).at[x_at + element * stride];
            return;
        }
        uint a = offset + (IS_ADJACENT ? 2 * unit : unit), b = a + (IS_ADJACENT ? 1 : n_pair);
        bool is_turned = I32(args.address[2]).at[tok * uint(args.word[6])] != -1;
        vec2 angle = F32x2(args.address[3]).at[tok * n_pair + unit];
        float x = F32(args.address[1]).at[x_at + a * stride];
        float y = F32(args.address[1]).at[x_at + b * stride];
        F32(args.address[0]).at[dst_at + a] = is_turned ? x * angle.x - y * angle.y : x;
        F32(args.address[0]).at[dst_at + b] = is_turned ? x * angle.y + y * angle.x : y;
    }
};

GPU_KERNEL(rope, Rope)
