/* SPDX-License-Identifier: MIT
 *
 * wire_wait.cu: raises this member's flag and waits for those of all members (flags.h), then writes
 * the verdict. Earlier steps have written this member's part to the arena, or to the peer memory,
 * which then has the flags too; the abort word is always in the arena. One workgroup. See
 * GPU_KERNEL_WIRE_WAIT.
 */
#include "flags.h"

struct WireWait : Flags {
    inline explicit WireWait(const Args &args_) : Flags(args_) {}

    inline void run() {
        const u64 arena = args.address[0], peer = args.address[3];
        const bool passes = flags_pass(arena, peer != u64(0) ? peer : arena, args.address[2]);
        if (thread_id() == 0) U32(args.address[1]).at[0] = passes ? 1u : 0u;
    }
};

GPU_KERNEL_OF(wire_wait, 64, 128, WireWait)
