// SPDX-License-Identifier: MIT
//
// sort.comp: rows sorted whole, for a TOP_K of many: the steps of a bitonic network. Strides within
// a block of LIST_LEN entries are done in shared memory. See GPU_KERNEL_SORT.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "rank.glsl"

const int STAGE = SPEC0; // gpu_sort_stage
const int LOAD = 0, EXCHANGE = 1, MERGE = 2;

void main() {
    uint lid = gl_LocalInvocationID.x, size = gl_WorkGroupSize.x;
    uint n = uint(args.word[0]), n_row = uint(args.word[1]), padded = uint(args.word[4]);
    uint k = uint(args.word[7]);
    U64 entries = U64(args.address[0]);
    if (STAGE == LOAD || STAGE == MERGE) {
        uint n_block = padded / LIST_LEN, group = group_number(), row = group / n_block;
        if (row >= n_row) return;
        uint base = (group - row * n_block) * LIST_LEN;
        for (uint i = lid; i < LIST_LEN; i += size) {
            uint at = base + i;
            uint64_t entry = 0ul;
            if (STAGE == MERGE)
                entry = entries.at[row * padded + at];
            else if (at < n)
                entry = entry_of(F32(args.address[3]).at[at * uint(args.word[2]) +
                                                         row * uint(args.word[3])], at);
            list[i] = entry;
        }
        uint run = STAGE == LOAD ? LIST_LEN : uint(args.word[5]);
        list_sort_steps(LIST_LEN, STAGE == LOAD ? 2 : run, run, base);
        for (uint i = lid; i < LIST_LEN; i += size) entries.at[row * padded + base + i] = list[i];
        return;
    }
    uint i = invocation_number();
    if (STAGE == EXCHANGE) {
        uint row = i / (padded / 2), pair = i - row * (padded / 2);
        uint run = uint(args.word[5]), stride = uint(args.word[6]);
        if (row >= n_row) return;
        uint low = 2 * pair - (pair & stride - 1u), at = row * padded + low;
        uint64_t a = entries.at[at], b = entries.at[at + stride];
        if ((a < b) == ((low & run) == 0u)) {
            entries.at[at] = b;
            entries.at[at + stride] = a;
        }
        return;
    }
    uint row = i / k, at = i - row * k;
    if (row >= n_row) return;
    uint id = entry_index(entries.at[row * padded + at]);
    U32(args.address[1]).at[i] =
        U32(args.address[3]).at[id * uint(args.word[2]) + row * uint(args.word[3])];
    I32(args.address[2]).at[i] = int(id) + args.word[8];
}
