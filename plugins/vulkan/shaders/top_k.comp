// SPDX-License-Identifier: MIT
//
// top_k.comp: the k best entries of each chunk of a row, best first. Each invocation has a share of
// the chunk and finds its best entry. The k-th best of these entries is a lower bound of the k best
// of the chunk. Only entries from it on are ranked: they lie in k shares at most. See
// GPU_KERNEL_TOP_K.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "rank.glsl"

const bool IS_FIRST = SPEC0 != 0, IS_LAST = SPEC1 != 0;

shared uint64_t least;
shared uint list_count;

uint row, n, chunk_end;

uint64_t entry_load(uint i) {
    if (!IS_FIRST) return U64(args.address[2]).at[row * n + i];
    uint at = i * uint(args.word[2]) + row * uint(args.word[3]);
    return entry_of(F32(args.address[3]).at[at], i);
}

void entry_store(uint chunk, uint i, uint64_t entry) {
    uint k = uint(args.word[4]);
    if (!IS_LAST) {
        U64(args.address[0]).at[(row * uint(args.word[6]) + chunk) * k + i] = entry;
        return;
    }
    uint id = entry_index(entry);
    U32(args.address[0]).at[row * k + i] =
        U32(args.address[3]).at[id * uint(args.word[2]) + row * uint(args.word[3])];
    I32(args.address[1]).at[row * k + i] = int(id) + args.word[7];
}

void main() {
    uint group = group_number(), n_chunk = uint(args.word[6]), lid = gl_LocalInvocationID.x;
    uint size = gl_WorkGroupSize.x, k = uint(args.word[4]);
    row = group / n_chunk;
    if (row >= uint(args.word[1])) return;
    uint chunk = group - row * n_chunk, begin = chunk * uint(args.word[5]);
    n = uint(args.word[0]);
    chunk_end = min(begin + uint(args.word[5]), n);

    uint64_t best = 0ul;
    for (uint i = begin + lid; i < chunk_end; i += size) best = max(best, entry_load(i));
    list[lid] = best;
    if (k == 1) {
        for (uint half_size = size / 2; half_size > 0; half_size /= 2) {
            barrier();
            if (lid < half_size) list[lid] = max(list[lid], list[lid + half_size]);
        }
        if (lid == 0) entry_store(chunk, 0, list[0]);
        return;
    }
    if (lid == 0) {
        least = 1ul; // above the 0 of no entry
        list_count = 0;
    }
    barrier();
    uint above = 0;
    for (uint i = 0; i < size; i++) above += list[i] > best ? 1u : 0u;
    if (above == k - 1 && best != 0ul) least = best;
    barrier();
    for (uint i = begin + lid; i < chunk_end; i += size) {
        uint64_t entry = entry_load(i);
        if (entry >= least) list[atomicAdd(list_count, 1u)] = entry;
    }
    barrier();
    uint count = list_count;
    for (uint at = lid; at < count; at += size) {
        uint64_t entry = list[at];
        above = 0;
        for (uint i = 0; i < count; i++) above += list[i] > entry ? 1u : 0u;
        if (above < k) entry_store(chunk, above, entry);
    }
    for (uint i = count + lid; i < k; i += size) entry_store(chunk, i, 0ul);
}
