// SPDX-License-Identifier: MIT
//
// linear_scan_table.comp: what all rows of a scan's matrices read: slots and tokens of the
// sequences, beta or erase and write, and the decay of each head and token, computed once. See
// GPU_KERNEL_LINEAR_SCAN_TABLE.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "math.glsl"
#include "recurrent.glsl"

const int FACTOR = 2; // gpu_scan_decay
const int DECAY = SPEC0;
const bool HAS_BETA = SPEC1 == 1, HAS_ERASE = SPEC1 == 2;
const uint DK = SPEC2 > 0 ? uint(SPEC2) : 1u, N_K = SPEC3 > 0 ? uint(SPEC3) : 1u;

float g_at(uint i, uint head, uint token) {
    return F32(args.address[1]).at[i * uint(args.word[6]) + head * uint(args.word[7]) +
                                   token * uint(args.word[8])];
}
// Element i of erase and write, [dk, 2, n_k, n_tok].
float pair_at(uint i) {
    uint c = i % DK, row = i / DK, head = row / 2u % N_K, token = row / 2u / N_K;
    if (row % 2u == 0u)
        return F32(args.address[3]).at[c * uint(SPEC4) + head * uint(args.word[11]) +
                                       token * uint(args.word[12])];
    return F32(args.address[5]).at[c * uint(SPEC5) + head * uint(args.word[18]) +
                                   token * uint(args.word[19])];
}
float a_at(uint i, uint head) {
    return F32(args.address[2]).at[i * uint(args.word[9]) + head * uint(args.word[10])];
}

void sequence_write(Block block, int seq, int n_seq) {
    I32 to = I32(args.address[0]);
    ivec2 range = ivec2(0, 0);
    int slot = -1;
    if (seq < n_seq) {
        range = block_tokens(block, seq);
        slot = I32(block.at).at[args.word[15] + seq];
    }
    to.at[seq] = range.x;
    to.at[block.n_seq + seq] = range.y;
    to.at[2 * block.n_seq + seq] = slot < args.word[13] ? slot : -1;
}

void token_write(Block block, int token) {
    I32 to = I32(args.address[0] + uint64_t(uint(3 * block.n_seq)) * 4);
    int seq = block_sequence_of(block, token), slot = -1;
    if (seq >= 0)
        slot = block_written_slot(block, token, block_tokens(block, seq).y, args.word[13]);
    to.at[token] = slot;
    to.at[block.n_tok + token] = seq >= 0 ? 1 : 0;
}

// Writes number i of the f32 numbers of the table: beta, or erase and write; then rates; then
// factors.
void number_write(uint i) {
    F32 to = F32(args.address[0] + uint64_t(uint(args.word[17]) + i) * 4);
    uint n_v = uint(args.word[2]), n_tok = uint(args.word[1]);
    uint n_beta = HAS_BETA ? n_v * n_tok : HAS_ERASE ? 2u * DK * N_K * n_tok : 0u;
    uint n_i = uint(args.word[3]), n_rate = n_i * n_v * uint(args.word[5]);
    uint n_factor = uint(args.word[4]) * n_v;
    if (i < n_beta && HAS_ERASE) {
        to.at[0] = pair_at(i);
    } else if (i < n_beta) {
        to.at[0] = F32(args.address[3]).at[i % n_v * uint(args.word[11]) +
                                           i / n_v * uint(args.word[12])];
    } else if (i - n_beta < n_rate) {
        uint at = i - n_beta, row = at / n_i, head = row % n_v;
        float g = g_at(at % n_i, head, row / n_v);
        if (DECAY != FACTOR && args.address[2] != 0) g *= a_at(at % n_i, head);
        to.at[0] = DECAY == FACTOR ? g : exp_of(g);
    } else if (i - n_beta - n_rate < n_factor) {
        uint at = i - n_beta - n_rate;
        to.at[0] = a_at(at % uint(args.word[4]), at / uint(args.word[4]));
    }
}

void main() {
    Block block = Block(args.address[4], args.word[1], args.word[0], args.word[14], args.word[16]);
    uint number = invocation_number();
    if (number < uint(block.n_seq)) sequence_write(block, int(number), block_sequences(block));
    if (number < uint(block.n_tok)) token_write(block, int(number));
    number_write(number);
}
