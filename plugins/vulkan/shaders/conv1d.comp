// SPDX-License-Identifier: MIT
//
// conv1d.comp: CONV1D: y[c, t] = act(bias[c] + sum_i w[i, c] * x[c, t - k + 1 + i]), an invocation
// for each channel and token. Inputs before the sequence's first token come from its slot; the
// inputs that a later step reads go to the slot of the token. No slot is both read and written in a
// step (step.h), so that invocations may run in any order. State read and written: 4 * (k - 1)
// bytes each for each channel and sequence. See GPU_KERNEL_CONV1D.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "math.glsl"
#include "recurrent.glsl"

const int K = SPEC0;
const bool HAS_BIAS = SPEC1 != 0;
const int N_SEGMENT = SPEC2, ACT = SPEC3;

int unit_channels, unit, at; // of a unit of the state; this invocation's channel in it

void channel_find(int channel) {
    int before = 0;
    unit_channels = 0;
    for (int s = 0; s < N_SEGMENT; s++) unit_channels += args.word[12 + s];
    int n_unit = args.word[0] / unit_channels;
    unit = 0;
    at = 0;
    for (int s = 0; s < N_SEGMENT; s++) {
        int len = args.word[12 + s], within = channel - n_unit * before;
        if (within >= 0 && within < n_unit * len) {
            unit = within / len;
            at = before + within % len;
        }
        before += len;
    }
}

// Input i of the k - 1 that a slot keeps.
F32 slot_input(int slot, int i) {
    uint unit_size = (uint(unit_channels * (K - 1)) * 4u + 15u) / 16u * 16u;
    uint64_t n_unit = uint64_t(uint(args.word[0] / unit_channels));
    return F32(args.address[5] +
               (uint64_t(uint(slot)) * n_unit + uint64_t(uint(unit))) * uint64_t(unit_size) +
               uint64_t(uint(i * unit_channels + at)) * 4);
}

// The input at a token, which may lie before the sequence's first one.
float input_at(int channel, int token, int first, int slot) {
    if (token >= first)
        return F32(args.address[1]).at[uint(channel) * uint(args.word[4]) +
                                       uint(token) * uint(args.word[5])];
    return slot < 0 ? 0.0 : slot_input(slot, token - first + K - 1).at[0];
}

void main() {
    uint number = invocation_number(), n_ch = uint(args.word[0]);
    if (number >= n_ch * uint(args.word[1])) return;
    int token = int(number / n_ch), channel = int(number % n_ch);
    Block block = Block(args.address[4], args.word[1], args.word[2], args.word[9], args.word[11]);
    int seq = block_sequence_of(block, token);
    if (seq < 0) {
        F32(args.address[0]).at[number] = act_of(ACT, 0.0);
        return;
    }
    ivec2 range = block_tokens(block, seq);
    int from = I32(block.at).at[args.word[10] + seq];
    if (from >= args.word[3]) from = -1;
    channel_find(channel);
    float sum = HAS_BIAS ? F32(args.address[3]).at[uint(channel) * uint(args.word[8])] : 0.0;
    F32 w = F32(args.address[2] + uint64_t(uint(channel) * uint(args.word[7])) * 4);
    for (int i = 0; i < K; i++)
        sum += w.at[uint(i) * uint(args.word[6])] *
               input_at(channel, token - K + 1 + i, range.x, from);
    F32(args.address[0]).at[number] = act_of(ACT, sum);
    int to = block_written_slot(block, token, range.y, args.word[3]);
    if (to < 0) return;
    for (int i = 0; i < K - 1; i++)
        slot_input(to, i).at[0] = input_at(channel, token - K + 2 + i, range.x, from);
}
