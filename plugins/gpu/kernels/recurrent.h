/* SPDX-License-Identifier: MIT
 *
 * recurrent.h: the step block as the ops on recurrent states read it (step.h): the tokens of each
 * sequence, and the slots of the recurrent states.
 */
#ifndef TANDEM_GPU_RECURRENT_H
#define TANDEM_GPU_RECURRENT_H

#include "lang.h"

struct Recurrent : Kernel {
    inline explicit Recurrent(const Args &args_) : Kernel(args_) {}

    // The step block's address, its capacities, and the words at which its parts begin.
    struct Block {
        u64 at;
        int n_tok, n_seq, first_tok_off, rs_write_off;
    };

    // Sequences in use; 0 where the tokens are not sorted.
    inline int block_sequences(const Block &b) {
        if (b.n_seq == 0 || I32(b.at).at[b.first_tok_off] < 0) return 0;
        return min(max(I32(b.at).at[4], 0), b.n_seq); // tdm_step_header.n_seq
    }
    // The tokens of a sequence in use: from x to y - 1; none where the step block is wrong.
    inline ivec2 block_tokens(const Block &b, int seq) {
        int n_tok = min(I32(b.at).at[3], b.n_tok); // tdm_step_header.n_tok
        ivec2 range = ivec2(I32(b.at).at[b.first_tok_off + seq],
                            min(I32(b.at).at[b.first_tok_off + seq + 1], n_tok));
        if (range.x < 0 || range.y < range.x) range = ivec2(0, 0);
        return range;
    }
    // The sequence that a token belongs to; -1 = none.
    inline int block_sequence_of(const Block &b, int token) {
        int n_seq = block_sequences(b), found = -1;
        for (int s = 0; s < n_seq && found < 0; s++) {
            ivec2 range = block_tokens(b, s);
            if (token >= range.x && token < range.y) found = s;
        }
        return found;
    }
    // The slot in which the state is stored after a token of a sequence whose tokens end before
    // `end`. -1 where the state is not kept, or where a later token of the sequence has the same
    // slot: only the last state for a slot is stored.
    inline int block_written_slot(const Block &b, int token, int end, int n_slot) {
        I32 slots = I32(b.at + u64(uint(b.rs_write_off)) * 4);
        int slot = slots.at[token];
        if (slot < 0 || slot >= n_slot) return -1;
        for (int t = token + 1; t < end; t++)
            if (slots.at[t] == slot) return -1;
        return slot;
    }
};

#endif
