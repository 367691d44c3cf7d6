// SPDX-License-Identifier: MIT
//
// recurrent.glsl: the step block as the ops on recurrent states read it (step.h): the tokens of
// each sequence, and the slots of the recurrent states.

// Where the parts of the step block are, and the capacities.
struct Block {
    uint64_t at;
    int n_tok, n_seq, first_tok_off, rs_write_off;
};

// Sequences in use; 0 where the tokens are not sorted.
int block_sequences(Block b) {
    if (b.n_seq == 0 || I32(b.at).at[b.first_tok_off] < 0) return 0;
    return min(max(I32(b.at).at[4], 0), b.n_seq); // tdm_step_header.n_seq
}
// Tokens x .. y-1 of a sequence in use.
ivec2 block_tokens(Block b, int seq) {
    int n_tok = min(I32(b.at).at[3], b.n_tok); // tdm_step_header.n_tok
    ivec2 range = ivec2(I32(b.at).at[b.first_tok_off + seq],
                        min(I32(b.at).at[b.first_tok_off + seq + 1], n_tok));
    if (range.x < 0 || range.y < range.x) range = ivec2(0, 0);
    return range;
}
// The sequence that a token belongs to; -1 = none.
int block_sequence_of(Block b, int token) {
    int n_seq = block_sequences(b), found = -1;
    for (int s = 0; s < n_seq && found < 0; s++) {
        ivec2 range = block_tokens(b, s);
        if (token >= range.x && token < range.y) found = s;
    }
    return found;
}
// The slot to which the state after a token is stored. -1 where it is not kept, or where a later
// token of the same sequence, whose tokens end at `end`, is stored to the same slot.
int block_written_slot(Block b, int token, int end, int n_slot) {
    I32 slots = I32(b.at + uint64_t(uint(b.rs_write_off)) * 4);
    int slot = slots.at[token];
    if (slot < 0 || slot >= n_slot) return -1;
    for (int t = token + 1; t < end; t++)
        if (slots.at[t] == slot) return -1;
    return slot;
}
