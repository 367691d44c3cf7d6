/* SPDX-License-Identifier: MIT
 *
 * top_k.cu: the k best entries of each chunk of a row, best first. Each thread has a share of the
 * chunk and finds its best entry. `least` is the k-th best of these entries. All entries >= least
 * lie in the shares of at most k threads, so they fit into `list`, and the k best entries of the
 * chunk are among them: they are ranked there. See GPU_KERNEL_TOP_K.
 */
#include "rank.h"

struct TopK : Rank {
    inline explicit TopK(const Args &args_) : Rank(args_) {}

    const bool IS_FIRST = SPEC0 != 0, IS_LAST = SPEC1 != 0;

    u64 &least = *shared_take<u64>(1);
    uint &list_count = *shared_take<uint>(1);

    uint row, n, chunk_end;

    inline u64 entry_load(uint i) {
        if (!IS_FIRST) return U64(args.address[2]).at[row * n + i];
        uint at = i * uint(args.word[2]) + row * uint(args.word[3]);
        return entry_of(F32(args.address[3]).at[at], i);
    }

    inline void entry_store(uint chunk, uint i, u64 entry) {
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

    inline void run() {
        uint group = group_number(), n_chunk = uint(args.word[6]), lid = thread_id();
        uint size = group_size(), k = uint(args.word[4]);
        row = group / n_chunk;
        if (row >= uint(args.word[1])) return;
        uint chunk = group - row * n_chunk, begin = chunk * uint(args.word[5]);
        n = uint(args.word[0]);
        chunk_end = min(begin + uint(args.word[5]), n);

        u64 best = u64(0);
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
            least = u64(1); // above the 0 of no entry
            list_count = 0;
        }
        barrier();
        uint above = 0;
        for (uint i = 0; i < size; i++) above += list[i] > best ? 1u : 0u;
        if (above == k - 1 && best != u64(0)) least = best;
        barrier();
        for (uint i = begin + lid; i < chunk_end; i += size) {
            u64 entry = entry_load(i);
            if (entry >= least) list[shared_add(&list_count, 1u)] = entry;
        }
        barrier();
        uint count = list_count;
        for (uint at = lid; at < count; at += size) {
            u64 entry = list[at];
            above = 0;
            for (uint i = 0; i < count; i++) above += list[i] > entry ? 1u : 0u;
            if (above < k) entry_store(chunk, above, entry);
        }
        for (uint i = count + lid; i < k; i += size) entry_store(chunk, i, u64(0));
    }
};

GPU_KERNEL(top_k, TopK)
