/* SPDX-License-Identifier: MIT
 *
 * rank.h: the order of TOP_K and MOE_ROUTE, and sorting in shared memory. An entry is a value and
 * its index as one number of 64 bits: the greater entry ranks first. The upper half orders values
 * (NaN lowest, -0 equal to +0), the lower half puts lower indices first. 0 is below all entries and
 * means none; its index reads as 2^32 - 1.
 */
#ifndef TANDEM_GPU_RANK_H
#define TANDEM_GPU_RANK_H

#include "reduce.h"

struct Rank : Reduce {
    inline explicit Rank(const Args &args_) : Reduce(args_) {}

    inline uint rank_of(float x) {
        uint bits = float_to_bits(x), size = bits & 0x7fffffffu;
        if (size > 0x7f800000u) return 0u;
        if (size == 0u) return 0x80000000u;
        return (bits >> 31) != 0u ? ~bits : bits | 0x80000000u;
    }

    inline u64 entry_of(float x, uint index) { return u64(rank_of(x)) << 32 | u64(~index); }

    inline uint entry_index(u64 entry) { return ~uint(entry); }

    static constexpr uint LIST_LEN = 1024;
    u64 *list = shared_take<u64>(LIST_LEN);

    // The steps of a bitonic network on list[0 .. n), n a power of two, which is the part of a
    // longer sequence that begins at element `base`: the steps that merge runs of `from` to `to`
    // elements. With from = 2, to = n and base = 0 the list is sorted, greatest first. All threads
    // of the workgroup call it. It begins and ends with a barrier.
    inline void list_sort_steps(uint n, uint from, uint to, uint base) {
        for (uint size = from; size <= to; size *= 2) {
            for (uint stride = min(size, n) / 2; stride > 0; stride /= 2) {
                barrier();
                for (uint i = thread_id(); i < n / 2; i += group_size()) {
                    uint low = 2 * i - (i & stride - 1u), high = low + stride;
                    u64 a = list[low], b = list[high];
                    if ((a < b) == ((base + low & size) == 0u)) {
                        list[low] = b;
                        list[high] = a;
                    }
                }
            }
        }
        barrier();
    }

    inline void list_sort(uint n) { list_sort_steps(n, 2, n, 0); }

    // The smallest power of two >= n, for n >= 1.
    inline uint power_above(uint n) { return n <= 1u ? 1u : 2u << top_bit(n - 1u); }
};

#endif
