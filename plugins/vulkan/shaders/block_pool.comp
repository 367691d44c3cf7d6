// SPDX-License-Identifier: MIT
//
// block_pool.comp: BLOCK_POOL: an invocation for each channel and some neighbouring tokens. An
// invocation begins where the block of its first token begins, or where the block before begins if
// blocks overlap, and computes their means again: so many invocations can share a prompt, and a
// token's mean does not depend on where one begins. See GPU_KERNEL_BLOCK_POOL.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "math.glsl"
#include "recurrent.glsl"

const bool OVERLAPS = SPEC0 > 1;

// Of a block: the highest exponent, the sum of weights and the weighted sum.
struct Mean {
    float greatest, weight, sum;
};

uint channel, n_ch;

// Number i (greatest, weight, sum) of the mean of the present block (part 0), or of the next one
// (part 1), in a slot.
F32 kept(int slot, int part, int i) {
    return F32(args.address[5] + uint64_t(uint(slot)) * uint64_t(uint(args.word[17])) +
               uint64_t(uint(3 * part + i) * n_ch + channel) * 4);
}
Mean mean_load(int slot, int part) {
    return Mean(kept(slot, part, 0).at[0], kept(slot, part, 1).at[0], kept(slot, part, 2).at[0]);
}
void mean_store(int slot, int part, Mean m) {
    kept(slot, part, 0).at[0] = m.greatest;
    kept(slot, part, 1).at[0] = m.weight;
    kept(slot, part, 2).at[0] = m.sum;
}

// The place of a token in its block.
int place(int token) {
    int pos = I32(args.address[4]).at[args.word[13] + token];
    return pos > 0 ? pos % args.word[14] : 0;
}

// Adds row `row` of a token at place `at` of its block.
void mean_add(inout Mean m, int token, int at, uint row) {
    float x = F32(args.address[1]).at[row * uint(args.word[4]) + uint(token) * uint(args.word[5])];
    float s =
        F32(args.address[2]).at[row * uint(args.word[6]) + uint(token) * uint(args.word[7])] +
        F32(args.address[3]).at[row * uint(args.word[8]) + uint(at) * uint(args.word[9])];
    bool is_first = m.weight == 0.0;
    if (is_first || s > m.greatest) {
        float scale = is_first ? 0.0 : exp_of(m.greatest - s);
        m.greatest = s;
        m.weight = m.weight * scale + 1.0;
        m.sum = m.weight == 1.0 ? x : m.sum * scale + x;
    } else {
        float w = exp_of(s - m.greatest);
        m.weight += w;
        m.sum += w * x;
    }
}

// Tokens first .. last - 1 of a sequence that has the tokens `range`.
void tokens_run(Block block, int seq, ivec2 range, int first, int last) {
    const Mean none = Mean(0.0, 0.0, 0.0);
    Mean present = none, behind = none;
    int begin = first, n_begun = 0;
    for (; begin > range.x; begin--)
        if (place(begin) == 0 && ++n_begun == (OVERLAPS ? 2 : 1)) break;
    int from = I32(block.at).at[args.word[11] + seq];
    if (begin == range.x && from >= 0 && from < args.word[3]) {
        present = mean_load(from, 0);
        if (OVERLAPS) behind = mean_load(from, 1);
    }
    for (int t = begin; t < last; t++) {
        int at = place(t);
        if (at == 0) {
            present = behind;
            behind = none;
        }
        mean_add(present, t, at, OVERLAPS ? n_ch + channel : channel);
        if (OVERLAPS) mean_add(behind, t, at, channel);
        if (t < first) continue;
        F32(args.address[0]).at[uint(t) * n_ch + channel] = present.sum / present.weight;
        int to = block_written_slot(block, t, range.y, args.word[3]);
        if (to < 0) continue;
        mean_store(to, 0, present);
        if (OVERLAPS) mean_store(to, 1, behind);
    }
}

void main() {
    uint number = invocation_number();
    n_ch = uint(args.word[0]);
    if (number >= n_ch * uint(args.word[16])) return;
    channel = number % n_ch;
    int first = int(number / n_ch) * args.word[15];
    int last = min(first + args.word[15], args.word[1]);
    Block block = Block(args.address[4], args.word[1], args.word[2], args.word[10], args.word[12]);
    for (int t = first; t < last;) {
        int seq = block_sequence_of(block, t);
        if (seq < 0) {
            F32(args.address[0]).at[uint(t++) * n_ch + channel] = 0.0;
            continue;
        }
        ivec2 range = block_tokens(block, seq);
        int end = min(range.y, last);
        tokens_run(block, seq, range, t, end);
        t = end;
    }
}
