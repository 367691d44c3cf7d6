/* SPDX-License-Identifier: MIT
 *
 * wire_wait.cu: raises this member's flag and waits for those of all members (collective.h). Steps
 * before it have written this member's part to the arena, or to the peer memory, which then has the
 * flags; the abort word is in the arena always. One workgroup; lane m waits for member m. See
 * GPU_KERNEL_WIRE_WAIT, and rt/wait.h for the report.
 */
#include "arena.h"

struct WireWait : Arena {
    inline explicit WireWait(const Args &args_) : Arena(args_) {}

    enum { ABORTED = 1, LATE = 2 };                       // rt_wait_code
    enum { N_SLOT = 256, SLOTS_AT = 64, SLOT_SIZE = 32 }; // rt_wait_report
    enum { FLAG_STEP = 64, ABORT_POLLS = 8 }; // bytes between flags; flag reads between abort reads

    // Returns 0 once the flag has at least the value `wanted`.
    inline uint flag_await(u64 flag, u64 wanted) {
        const u64 timeout = pack64(uvec2(args.word[7], args.word[8])), begin = ticks();
        const uint most_polls = uint(args.word[9]);
        for (uint n = 1;; n++) {
            // By the signed difference, since epochs wrap.
            if (i64(load_system(flag) - wanted) >= 0) return 0;
            if (n % ABORT_POLLS == 0 && load_system(args.address[0]) != u64(0)) return ABORTED;
            if (ticks() - begin > timeout || (most_polls != 0 && n == most_polls)) return LATE;
            spin_pause();
        }
    }

    inline void run() {
        uint *shared = shared_take<uint>(4); // members that are missing (2), why, the run's number
        const uint lane = thread_id(), n_member = uint(args.word[0]), member = uint(args.word[1]);
        const u64 arena = args.address[0], report = args.address[3], peer = args.address[4];
        const u64 flag_off = pack64(uvec2(args.word[2], args.word[3]));
        const u64 flags = (peer != u64(0) ? peer : arena) + flag_off;
        const u64 wanted = pack64(uvec2(uint(args.word[4]), U32(args.address[2]).at[2])); // epoch
        if (lane == 0) {
            const uint run = U32(report).at[0] + uint(args.word[6]);
            const U32 slot(report + SLOTS_AT + u64(run % N_SLOT) * SLOT_SIZE);
            uint why = slot.at[0] == run ? slot.at[1] : 0; // of an earlier exchange of this run
            if (why == 0 && load_system(arena) != u64(0)) why = ABORTED;
            if (why == 0) store_system(flags + u64(member) * FLAG_STEP, wanted);
            U32(report).at[0] = run;
            shared[0] = shared[1] = 0;
            shared[2] = why;
            shared[3] = run;
        }
        // Behind the barrier the flag is raised, so that no two members wait for each other.
        barrier();
        // For the host. A release takes time: the lane that waits for no flag does it meanwhile.
        if (peer != u64(0) && shared[2] == 0 && lane == member)
            store_system(arena + flag_off + u64(member) * FLAG_STEP, wanted);
        if (shared[2] == 0 && lane < n_member && lane != member) {
            const uint why = flag_await(flags + u64(lane) * FLAG_STEP, wanted);
            if (why != 0) shared_or(&shared[lane / 32], 1u << lane % 32);
            // Written behind the barrier: other lanes may not have read the word yet.
            if (why != 0) failed_as = why;
        }
        barrier();
        if (failed_as != 0) shared_or(&shared[2], failed_as);
        barrier();
        if (lane != 0) return;
        const uint why = shared[2], run = shared[3];
        U32(args.address[1]).at[0] = why == 0 ? 1u : 0u;
        const U32 slot(report + SLOTS_AT + u64(run % N_SLOT) * SLOT_SIZE);
        if (why == 0 || slot.at[0] == run) return;
        slot.at[1] = why;
        slot.at[2] = uint(args.word[5]);
        slot.at[3] = shared[0];
        slot.at[4] = shared[1];
        slot.at[0] = run;
    }

    uint failed_as = 0;
};

GPU_KERNEL_OF(wire_wait, 64, 128, WireWait)
