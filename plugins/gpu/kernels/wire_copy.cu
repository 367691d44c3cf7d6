/* SPDX-License-Identifier: MIT
 *
 * wire_copy.cu: copies this member's part into the whole value in the arena, or a value out of the
 * arena. A thread copies a unit of bytes. See GPU_KERNEL_WIRE_COPY.
 */
#include "arena.h"

struct WireCopy : Arena {
    inline explicit WireCopy(const Args &args_) : Arena(args_) {}

    const int UNIT = SPEC0; // bytes: 16, 4, 2 or 1
    const bool PUBLISHES = SPEC1 != 0, HAS_VERDICT = SPEC2 != 0;

    inline void run() {
        uint i = invocation_number();
        if (i >= uint(args.word[0])) return;
        uint run = divide(i, args.word[5], args.word[6]);
        u64 in_whole = u64(run) * u64(uint(args.word[7])) +
                       u64(uint(args.word[8]) + (i - run * uint(args.word[4])));
        u64 area = area_off(args.address[2], 1);
        u64 to = args.address[0], from = args.address[1];
        to += PUBLISHES ? area + in_whole * UNIT : u64(i) * UNIT;
        from += PUBLISHES ? u64(i) * UNIT : area + in_whole * UNIT;
        // Later kernels use some results as indices. So after a failed wait the results are zeros,
        // not bytes of another exchange.
        const bool is_there = !HAS_VERDICT || U32(args.address[3]).at[0] == 1u;
        if (UNIT == 16)
            store_16(to, is_there ? load_16(from) : uvec4(0));
        else if (UNIT == 4)
            U32(to).at[0] = is_there ? U32(from).at[0] : 0;
        else if (UNIT == 2)
            U16(to).at[0] = is_there ? U16(from).at[0] : u16(0);
        else
            U8(to).at[0] = is_there ? U8(from).at[0] : u8(0);
    }
};

GPU_KERNEL(wire_copy, WireCopy)
