// SPDX-License-Identifier: MIT
//
// rank.glsl: the order of TOP_K and MOE_ROUTE as numbers, and sorting in shared memory. An entry is
// 64 bits: the greater entry ranks first. Its upper half orders values (NaN lowest, -0 equal to
// +0), its lower half puts lower indices first. 0 is below all entries.

uint rank_of(float x) {
    uint bits = floatBitsToUint(x), size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) return 0u;
    if (size == 0u) return 0x80000000u;
    return (bits >> 31) != 0u ? ~bits : bits | 0x80000000u;
}

uint64_t entry_of(float x, uint index) {
    return uint64_t(rank_of(x)) << 32 | uint64_t(~index);
}

uint entry_index(uint64_t entry) {
    return ~uint(entry);
}

const uint LIST_LEN = 1024;
shared uint64_t list[LIST_LEN];

// Runs steps of a bitonic network on list[0 .. n), n a power of two: those for runs of `from` to
// `to` elements. The list is elements base .. base + n - 1 of the sequence that the network sorts.
// With from = 2, to = n and base = 0 the list is sorted, greatest first. All invocations of the
// workgroup call it. It begins and ends with barriers: callers need none around it.
void list_sort_steps(uint n, uint from, uint to, uint base) {
    for (uint size = from; size <= to; size *= 2) {
        for (uint stride = min(size, n) / 2; stride > 0; stride /= 2) {
            barrier();
            for (uint i = gl_LocalInvocationID.x; i < n / 2; i += gl_WorkGroupSize.x) {
                uint low = 2 * i - (i & stride - 1u), high = low + stride;
                uint64_t a = list[low], b = list[high];
                if ((a < b) == ((base + low & size) == 0u)) {
                    list[low] = b;
                    list[high] = a;
                }
            }
        }
    }
    barrier();
}

void list_sort(uint n) {
    list_sort_steps(n, 2, n, 0);
}

// The least power of two that is at least n, n >= 1.
uint power_above(uint n) {
    return n <= 1u ? 1u : 2u << findMSB(n - 1u);
}
