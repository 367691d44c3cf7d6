/* SPDX-License-Identifier: MIT
 *
 * flags.h: raises this member's flag of an exchange and waits for those of all members, steps 2 and
 * 3 of collective.h. One workgroup does it, with at least as many threads as the group has members.
 * The data of the exchange is the business of the kernels that include this file.
 *
 * A read of host memory takes one to several microseconds, so a thread reads it only where it
 * waits. The number of the run, and whether a wait of the run has failed before, lie in device
 * memory (rt_wait_state of rt/wait.h). This member's lane reads the abort word while the other
 * lanes read flags.
 */
#ifndef TANDEM_GPU_FLAGS_H
#define TANDEM_GPU_FLAGS_H

#include "arena.h"

struct Flags : Arena {
    inline explicit Flags(const Args &args_) : Arena(args_) {}

    enum { ABORTED = 1, LATE = 2 };                                  // rt_wait_code
    enum { N_SLOT = 256, SLOTS_AT = 64, SLOT_SIZE = 32 };            // rt_wait_report
    enum { RUN, FAILED_RUN, CODE, UNUSED, REPORT_LOW, REPORT_HIGH }; // rt_wait_state
    enum { FLAG_STEP = 64, SLOW_POLLS = 8 }; // bytes between flags; flag reads between other reads

    // The 64-bit number in words i and i + 1.
    inline u64 words_at(int i) { return pack64(uvec2(args.word[i], args.word[i + 1])); }

    // Polls a flag. Returns 0 once it has at least the value `wanted`, ABORTED once the abort word
    // of the arena is set, or LATE after the timeout or the most polls.
    inline uint flag_await(u64 arena, u64 flag, u64 wanted) {
        const u64 timeout = words_at(6);
        const uint most_polls = uint(args.word[8]);
        u64 begin = 0;
        for (uint n = 1;; n++) {
            // Epochs wrap around, so the signed difference is compared.
            if (i64(load_system(flag) - wanted) >= 0) return 0;
            if (n % SLOW_POLLS == 0) {
                if (load_system(arena) != u64(0)) return ABORTED;
                const u64 now = ticks();
                if (n == SLOW_POLLS) begin = now;
                if (now - begin > timeout) return LATE;
            }
            if (most_polls != 0 && n == most_polls) return LATE;
            spin_pause();
        }
    }

    inline u64 report_of(U32 state) {
        return pack64(uvec2(state.at[REPORT_LOW], state.at[REPORT_HIGH]));
    }

    // Writes the first failed wait of a run to the rt_wait_report, for the host.
    inline void failure_report(U32 state, uint run, uint why, const uint *missing) {
        if (state.at[FAILED_RUN] == run) return;
        const U32 slot(report_of(state) + SLOTS_AT + u64(run % N_SLOT) * SLOT_SIZE);
        state.at[CODE] = why;
        state.at[FAILED_RUN] = run;
        slot.at[1] = why;
        slot.at[2] = uint(args.word[11]);
        slot.at[3] = missing[0];
        slot.at[4] = missing[1];
        slot.at[0] = run;
    }

    // Raises this member's flag and waits for the others. True: every member has published, and all
    // threads of this workgroup may read what the members have published. False: an abort or a
    // timeout, now or in an earlier wait of the run; the failure has been reported. Flags lie in
    // `data`, which is the arena or peer memory; this member's flag is raised in the arena too. All
    // threads call it.
    inline bool flags_pass(u64 arena, u64 data, u64 step) {
        uint *shared = shared_take<uint>(4); // members that are missing (2), why, the run's number
        const uint lane = thread_id(), n_member = uint(args.word[0]), member = uint(args.word[1]);
        const u64 flag_off = words_at(2), flags = data + flag_off;
        const u64 wanted = pack64(uvec2(uint(args.word[4]), U32(step).at[2])); // epoch
        const U32 state(words_at(9));
        if (lane == 0) {
            const bool is_first = args.word[5] != 0;
            const uint run = state.at[RUN] + (is_first ? 1u : 0u);
            const uint why = state.at[FAILED_RUN] == run ? state.at[CODE] : 0;
            if (why == 0) store_system(flags + u64(member) * FLAG_STEP, wanted);
            state.at[RUN] = run;
            if (is_first) U32(report_of(state)).at[0] = run;
            shared[0] = shared[1] = 0;
            shared[2] = why;
            shared[3] = run;
        }
        // Every flag is raised before its member waits, so that no two members wait for each other.
        barrier();
        uint why = 0;
        if (shared[2] == 0 && lane < n_member && lane != member) {
            why = flag_await(arena, flags + u64(lane) * FLAG_STEP, wanted);
            if (why != 0) shared_or(&shared[lane / 32], 1u << lane % 32);
        } else if (shared[2] == 0 && lane == member) {
            // The flag in the arena is for the host. A release takes time, so the lane that waits
            // for no flag does it.
            if (data != arena) store_system(arena + flag_off + u64(member) * FLAG_STEP, wanted);
            if (load_system(arena) != u64(0)) why = ABORTED;
        }
        // shared[2] is changed after the barrier only: before it, other lanes may still read it.
        barrier();
        if (why != 0) shared_or(&shared[2], why);
        barrier();
        // Some lanes may have found the abort, others the timeout: the host expects one
        // rt_wait_code.
        why = (shared[2] & ABORTED) != 0 ? uint(ABORTED) : shared[2];
        if (lane == 0 && why != 0) failure_report(state, shared[3], why, shared);
        return why == 0;
    }
};

#endif
