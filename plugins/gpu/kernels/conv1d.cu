/* SPDX-License-Identifier: MIT
 *
 * conv1d.cu: CONV1D: y[c, t] = act(bias[c] + sum_i w[i, c] * x[c, t - k + 1 + i]), a thread for
 * each channel and token. Inputs before the sequence's first token come from its slot; the inputs
 * that a later step reads go to the slot of the token. A slot is read once and written once:
 * 4 * (k - 1) bytes for each channel and sequence. See GPU_KERNEL_CONV1D.
 */
#include "math.h"
#include "recurrent.h"

struct Conv1d : Recurrent {
    inline explicit Conv1d(const Args &args_) : Recurrent(args_) {}

    const int K = SPEC0;
    const bool HAS_BIAS = SPEC1 != 0;
    const int N_SEGMENT = SPEC2, ACT = SPEC3;

    int unit_channels, unit, at; // of a unit of the state; this thread's channel in it

    inline void channel_find(int channel) {
        int before = 0;
        unit_channels = 0;
        for (int s = 0; s < N_SEGMENT; s++) unit_channels += args.word[12 + s];
        int n_unit = args.word[0] / unit_channels;
        unit = at = 0;
        for (int s = 0; s < N_SEGMENT; s++) {
            int len = args.word[12 + s], in = channel - n_unit * before;
            if (in >= 0 && in < n_unit * len) {
                unit = in / len;
                at = before + in % len;
            }
            before += len;
        }
    }

    // Where a slot keeps input i of the last k - 1.
    inline F32 slot_input(int slot, int i) {
        uint unit_size = (uint(unit_channels * (K - 1)) * 4u + 15u) / 16u * 16u;
        u64 n_unit = u64(uint(args.word[0] / unit_channels));
        return F32(args.address[5] + (u64(uint(slot)) * n_unit + u64(uint(unit))) * u64(unit_size) +
                   u64(uint(i * unit_channels + at)) * 4);
    }

    // The input at a token, which may be up to k - 1 before the sequence's first token: then it is
    // the slot's, or 0 where slot < 0.
    inline float input(int channel, int token, int first, int slot) {
        if (token >= first)
            return F32(args.address[1])
                .at[uint(channel) * uint(args.word[4]) + uint(token) * uint(args.word[5])];
        return slot < 0 ? 0.0f : slot_input(slot, token - first + K - 1).at[0];
    }

    inline void run() {
        uint number = invocation_number(), n_ch = uint(args.word[0]);
        if (number >= n_ch * uint(args.word[1])) return;
        int token = int(number / n_ch), channel = int(number % n_ch);
        Block block = {args.address[4], args.word[1], args.word[2], args.word[9], args.word[11]};
        int seq = block_sequence_of(block, token);
        if (seq < 0) {
            F32(args.address[0]).at[number] = act_of(ACT, 0.0f);
            return;
        }
        ivec2 range = block_tokens(block, seq);
        int from = I32(block.at).at[args.word[10] + seq];
        if (from >= args.word[3]) from = -1;
        channel_find(channel);
        float sum = HAS_BIAS ? F32(args.address[3]).at[uint(channel) * uint(args.word[8])] : 0.0f;
        F32 w = F32(args.address[2] + u64(uint(channel) * uint(args.word[7])) * 4);
        for (int i = 0; i < K; i++)
            sum = fma(w.at[uint(i) * uint(args.word[6])],
                      input(channel, token - K + 1 + i, range.x, from), sum);
        F32(args.address[0]).at[number] = act_of(ACT, sum);
        int to = block_written_slot(block, token, range.y, args.word[3]);
        if (to < 0) return;
        for (int i = 0; i < K - 1; i++)
            slot_input(to, i).at[0] = input(channel, token - K + 2 + i, range.x, from);
    }
};

GPU_KERNEL(conv1d, Conv1d)
