/* SPDX-License-Identifier: MIT
 *
 * copy.cu: dst = x, with any strides on both sides; converts between f32, f16 and bf16, or repeats
 * x. See GPU_KERNEL_COPY.
 */
#include "axes.h"
#include "half.h"

struct Copy : Axes {
    inline explicit Copy(const Args &args_) : Axes(args_) {}

    const int FROM = SPEC0, TO = SPEC1, N_AXIS = SPEC2, WIDTH = SPEC3;
    const bool WRAPS = SPEC4 != 0, FROM_IS_ALIGNED = SPEC5 != 0, TO_IS_ALIGNED = SPEC6 != 0;
    enum { WORD32 = 0, F16 = 1, BF16 = 2 }; // gpu_copy_type

    // The bits of an element; where dst has another type, converted to those of an f32.
    inline uint widen(uint x) {
        if (FROM == TO || FROM == WORD32) return x;
        return FROM == F16 ? f32_bits_of_f16(x) : x << 16;
    }

    inline uint narrow(uint x) {
        if (FROM == TO || TO == WORD32) return x;
        return TO == F16 ? f16_of_f32_bits(x) : bf16_of_f32_bits(x);
    }

    inline void move_one(uint from, uint to) {
        uint x =
            FROM == WORD32 ? U32(args.address[1]).at[from] : uint(U16(args.address[1]).at[from]);
        x = narrow(widen(x));
        if (TO == WORD32)
            U32(args.address[0]).at[to] = x;
        else
            U16(args.address[0]).at[to] = u16(x);
    }

    inline uvec4 four_load(u64 at) {
        if (FROM == WORD32 && FROM_IS_ALIGNED) {
            return load_16(at);
        }
        if (FROM == WORD32) {
            U32 x = U32(at);
            return uvec4(x.at[0], x.at[1], x.at[2], x.at[3]);
        }
        if (FROM_IS_ALIGNED) {
            uvec2 x = unpack32(U64(at).at[0]);
            return uvec4(x.x & 0xffffu, x.x >> 16, x.y & 0xffffu, x.y >> 16);
        }
        U16 x = U16(at);
        return uvec4(x.at[0], x.at[1], x.at[2], x.at[3]);
    }

    inline void four_store(u64 at, uvec4 x) {
        if (TO == WORD32 && TO_IS_ALIGNED)
            store_16(at, x);
        else if (TO == WORD32)
            for (int i = 0; i < 4; i++) U32(at).at[i] = x[i];
        else if (TO_IS_ALIGNED)
            U64(at).at[0] = pack64(uvec2(x.x | x.y << 16, x.z | x.w << 16));
        else
            for (int i = 0; i < 4; i++) U16(at).at[i] = u16(x[i]);
    }

    inline void move_four(uint from, uint to) {
        uvec4 x = four_load(args.address[1] + u64(from) * (FROM == WORD32 ? 4 : 2));
        x = uvec4(narrow(widen(x.x)), narrow(widen(x.y)), narrow(widen(x.z)), narrow(widen(x.w)));
        four_store(args.address[0] + u64(to) * (TO == WORD32 ? 4 : 2), x);
    }

    inline void run() {
        uint first = invocation_number() * WIDTH, n = uint(args.word[15]);
        if (first >= n) return;
        uvec4 at = axes_split(first, 0, N_AXIS);
        uint to = axes_at(at, 11);
        if (WRAPS) at %= uvec4(args.word[16], args.word[17], args.word[18], args.word[19]);
        uint from = axes_at(at, 7);
        if (WIDTH == 1)
            move_one(from, to);
        else
            move_four(from, to);
    }
};

GPU_KERNEL(copy, Copy)
