/* SPDX-License-Identifier: MIT
 *
 * block_pool.cu: BLOCK_POOL: a thread for each channel and chunk of neighbouring tokens. The thread
 * begins with the block of its first token, or, where blocks overlap, with the block before, and
 * computes their means again from their first tokens on. So a prompt has many threads, and the bits
 * of a token's mean do not depend on where a thread begins. See GPU_KERNEL_BLOCK_POOL.
 */
#include "math.h"
#include "recurrent.h"

struct BlockPool : Recurrent {
    inline explicit BlockPool(const Args &args_) : Recurrent(args_) {}

    const bool OVERLAPS = SPEC0 > 1;

    // Weighted mean of a block so far: the greatest score, the sum of the weights exp(score -
    // greatest), and the weighted sum. weight 0: no token yet.
    struct Mean {
        float greatest, weight, sum;
    };

    uint channel, n_ch;

    // Number i, 0 .. 2, of a Mean in a slot: of the present block (part 0) or of the next one (part
    // 1).
    inline F32 kept(int slot, int part, int i) {
        return F32(args.address[5] + u64(uint(slot)) * u64(uint(args.word[17])) +
                   u64(uint(3 * part + i) * n_ch + channel) * 4);
    }
    inline Mean mean_load(int slot, int part) {
        Mean m = {kept(slot, part, 0).at[0], kept(slot, part, 1).at[0], kept(slot, part, 2).at[0]};
        return m;
    }
    inline void mean_store(int slot, int part, const Mean &m) {
        kept(slot, part, 0).at[0] = m.greatest;
        kept(slot, part, 1).at[0] = m.weight;
        kept(slot, part, 2).at[0] = m.sum;
    }

    // The place of a token in its block.
    inline int place(int token) {
        int pos = I32(args.address[4]).at[args.word[13] + token];
        return pos > 0 ? pos % args.word[14] : 0;
    }

    // Adds element `row` of a token, which is at place `at` of its block.
    inline void mean_add(Mean &m, int token, int at, uint row) {
        float x =
            F32(args.address[1]).at[row * uint(args.word[4]) + uint(token) * uint(args.word[5])];
        float s =
            F32(args.address[2]).at[row * uint(args.word[6]) + uint(token) * uint(args.word[7])] +
            F32(args.address[3]).at[row * uint(args.word[8]) + uint(at) * uint(args.word[9])];
        bool is_first = m.weight == 0.0f;
        if (is_first || s > m.greatest) {
            float scale = is_first ? 0.0f : exp_of(m.greatest - s);
            m.greatest = s;
            m.weight = m.weight * scale + 1.0f;
            m.sum = m.weight == 1.0f ? x : m.sum * scale + x;
        } else {
            float w = exp_of(s - m.greatest);
            m.weight += w;
            m.sum += w * x;
        }
    }

    // Computes tokens first .. last - 1 of a sequence that has the tokens range.x .. range.y - 1.
    inline void tokens_run(const Block &block, int seq, ivec2 range, int first, int last) {
        const Mean none = {0.0f, 0.0f, 0.0f};
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

    inline void run() {
        uint number = invocation_number();
        n_ch = uint(args.word[0]);
        if (number >= n_ch * uint(args.word[16])) return;
        channel = number % n_ch;
        int first = int(number / n_ch) * args.word[15];
        int last = min(first + args.word[15], args.word[1]);
        Block block = {args.address[4], args.word[1], args.word[2], args.word[10], args.word[12]};
        for (int t = first; t < last;) {
            int seq = block_sequence_of(block, t);
            if (seq < 0) {
                F32(args.address[0]).at[uint(t++) * n_ch + channel] = 0.0f;
                continue;
            }
            ivec2 range = block_tokens(block, seq);
            int end = min(range.y, last);
            tokens_run(block, seq, range, t, end);
            t = end;
        }
    }
};

GPU_KERNEL(block_pool, BlockPool)
