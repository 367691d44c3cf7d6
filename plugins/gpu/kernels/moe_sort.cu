/* SPDX-License-Identifier: MIT
 *
 * moe_sort.cu: sorts pairs (a token and one of its experts) by expert, and divides the pairs of
 * each expert into tiles of SPEC1 pairs. One workgroup. See kernel.h.
 */
#include "lang.h"

struct MoeSort : Kernel {
    inline explicit MoeSort(const Args &args_) : Kernel(args_) {}

    const int N_EXPERT = SPEC0 < 1 ? 1 : SPEC0;
    const uint TILE = uint(SPEC1 < 1 ? 1 : SPEC1);

    uint *n_pair_of = shared_take<uint>(N_EXPERT);
    // Slot of the expert's first pair; while pairs are stored, of the expert's next pair.
    uint *first_of = shared_take<uint>(N_EXPERT);

    // The expert of a pair, from 0; N_EXPERT for one that this device does not hold.
    inline uint expert_of(uint pair) {
        uint token = pair / uint(args.word[2]);
        int id = I32(args.address[1])
                     .at[(pair - token * args.word[2]) * args.word[3] + token * args.word[4]];
        i64 expert = i64(id) - args.word[5];
        return expert >= 0 && expert < N_EXPERT ? uint(expert) : N_EXPERT;
    }

    inline void run() {
        uint n_pair = uint(args.word[0]), n_tile = uint(args.word[1]);
        U32 tiles = U32(args.address[0]);
        for (uint e = thread_id(); e < N_EXPERT; e += group_size()) n_pair_of[e] = 0;
        barrier();
        for (uint p = thread_id(); p < n_pair; p += group_size()) {
            uint e = expert_of(p);
            if (e < N_EXPERT) shared_add(&n_pair_of[e], 1);
        }
        barrier();
        if (thread_id() == 0) {
            uint slot = 0, tile = 0;
            for (uint e = 0; e < N_EXPERT; e++) {
                first_of[e] = slot;
                for (uint first = 0; first < n_pair_of[e]; first += TILE, tile++) {
                    tiles.at[3 * tile] = e;
                    tiles.at[3 * tile + 1] = slot + first;
                    tiles.at[3 * tile + 2] = min(n_pair_of[e] - first, TILE);
                }
                slot += n_pair_of[e];
            }
            for (; tile < n_tile; tile++) tiles.at[3 * tile + 2] = 0;
        }
        barrier();
        for (uint p = thread_id(); p < n_pair; p += group_size()) {
            uint e = expert_of(p);
            if (e < N_EXPERT) tiles.at[3 * n_tile + shared_add(&first_of[e], 1)] = p;
        }
    }
};

GPU_KERNEL(moe_sort, MoeSort)
