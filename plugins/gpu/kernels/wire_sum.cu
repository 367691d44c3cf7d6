/* SPDX-License-Identifier: MIT
 *
 * wire_sum.cu: the sum of the senders' addends in member order, plus the residual, to the bits of
 * tdm_wire_sum (core/base/wire.c) on every driver. A thread computes an element. See
 * GPU_KERNEL_WIRE_SUM.
 */
#include "arena.h"
#include "wire.h"

struct WireSum : Arena {
    inline explicit WireSum(const Args &args_) : Arena(args_) {}

    const int TYPE = SPEC0;
    const int N_MEMBER = SPEC1;
    const bool HAS_RESIDUAL = SPEC2 != 0, HAS_VERDICT = SPEC3 != 0;

    // Element i of an addend.
    inline float addend_at(u64 addend, uint i) {
        if (TYPE == WIRE_F32) return F32(addend).at[i];
        if (TYPE == WIRE_F16) return bits_to_float(f32_bits_of_f16(uint(U16(addend).at[i])));
        if (TYPE == WIRE_BF16) return bits_to_float(uint(U16(addend).at[i]) << 16);
        u64 block = addend + u64(i / 32) * 34;
        float scale = bits_to_float(f32_bits_of_f16(uint(U16(block).at[0])));
        int code = int(uint(U8(block).at[2 + (i & 31u)]) << 24) >> 24;
        float x = scale * float(code);
        return x;
    }

    inline void run() {
        uint i = invocation_number();
        if (i >= uint(args.word[0])) return;
        if (HAS_VERDICT && U32(args.address[4]).at[0] != 1u) {
            U32(args.address[0]).at[i] = 0;
            return;
        }
        u64 arena = args.address[1] + area_off(args.address[2], 1);
        uint run = divide(i, args.word[5], args.word[6]);
        uint from = run * uint(args.word[7]) + uint(args.word[8]) + (i - run * uint(args.word[4]));
        u64 senders = pack64(uvec2(args.word[9], args.word[10]));
        u64 stride = pack64(uvec2(args.word[11], args.word[12]));
        float sum = 0.0f;
        bool is_first = true;
        for (int m = 0; m < N_MEMBER; m++) {
            if ((senders >> m & u64(1)) == u64(0)) continue;
            float addend = addend_at(arena + u64(m) * stride, from);
            sum = is_first ? wire_flushed(addend) : wire_add(sum, addend);
            is_first = false;
        }
        if (HAS_RESIDUAL) sum = wire_add(sum, F32(args.address[3]).at[i]);
        U32(args.address[0]).at[i] = wire_result(sum);
    }
};

GPU_KERNEL(wire_sum, WireSum)
