/* SPDX-License-Identifier: MIT
 *
 * wire_store.cu: this member's addend of a sum, converted to the type that crosses. A thread
 * converts an element, or a block of q8_0, which is filled up with zeros. See
 * GPU_KERNEL_WIRE_STORE.
 */
#include "arena.h"
#include "wire.h"

struct WireStore : Arena {
    inline explicit WireStore(const Args &args_) : Arena(args_) {}

    const int TYPE = SPEC0;

    // As the CPU quantises: a NaN counts as 0, and magnitudes above what the largest f16 scale
    // expresses are limited to it.
    inline float element_at(uint i, uint n) {
        const float limit = 65504.0f * 127.0f;
        float x = i < n ? F32(args.address[1]).at[min(i, n - 1u)] : 0.0f;
        return is_nan(x) ? 0.0f : clamp(x, -limit, limit);
    }

    // x to the nearest integer.
    inline int code_of(float x) {
        float whole = truncate(x), rest = x - whole; // ties away from 0
        return int(whole) + (rest >= 0.5f ? 1 : rest <= -0.5f ? -1 : 0);
    }

    // scale = largest magnitude / 127, codes rounded to the nearest.
    inline void block_store(u64 to, uint first, uint n) {
        float most = 0.0f;
        for (uint i = 0; i < 32; i++) most = max(most, abs(element_at(first + i, n)));
        float scale = most / 127.0f, inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
        U16(to).at[0] = u16(f16_of_f32_bits(float_to_bits(scale)));
        for (uint i = 0; i < 32; i += 2) {
            int low = code_of(element_at(first + i, n) * inverse);
            int high = code_of(element_at(first + i + 1, n) * inverse);
            low = min(max(low, -127), 127);
            high = min(max(high, -127), 127);
            U16(to).at[1 + i / 2] = u16((low & 255) | (high & 255) << 8);
        }
    }

    inline void run() {
        uint i = invocation_number();
        if (i >= uint(args.word[1])) return;
        u64 to = args.address[0] + area_off(args.address[2], 2);
        if (TYPE == WIRE_F32)
            U32(to).at[i] = U32(args.address[1]).at[i];
        else if (TYPE == WIRE_F16)
            U16(to).at[i] = u16(f16_of_f32_bits(U32(args.address[1]).at[i]));
        else if (TYPE == WIRE_BF16)
            U16(to).at[i] = u16(bf16_of_f32_bits(U32(args.address[1]).at[i]));
        else
            block_store(to + u64(i) * 34, i * 32, uint(args.word[0]));
    }
};

GPU_KERNEL(wire_store, WireStore)
