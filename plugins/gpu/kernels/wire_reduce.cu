/* SPDX-License-Identifier: MIT
 *
 * wire_reduce.cu: the exchange of a short sum in one kernel: the same threads publish this member's
 * addend, wait for the flags, and compute the sum. The bits are those of WIRE_STORE, WIRE_WAIT and
 * WIRE_SUM one after the other; between those three kernels the device would be idle twice. One
 * workgroup; a thread has four elements at a time. See GPU_KERNEL_WIRE_REDUCE.
 */
#include "flags.h"
#include "wire.h"

struct WireReduce : Flags {
    inline explicit WireReduce(const Args &args_) : Flags(args_) {}

    const int TYPE = SPEC0;
    const int N_MEMBER = SPEC1;
    const bool HAS_RESIDUAL = SPEC2 != 0;
    enum { BATCH = 4 }; // addends of others that a thread loads before it adds the first

    inline bool is_sender(int m) { return (words_at(15) >> m & u64(1)) != u64(0); }

    inline uint bits_of(uint x) {
        return TYPE == WIRE_F16 ? f16_of_f32_bits(x) : bf16_of_f32_bits(x) & 0xffffu;
    }
    inline float number_of(uint bits) {
        return bits_to_float(TYPE == WIRE_F16 ? f32_bits_of_f16(bits) : bits << 16);
    }

    // Four elements as they cross; those of 16 bits lie in the first two words, two in each.
    inline uvec4 packed(uvec4 x) {
        if (TYPE == WIRE_F32) return x;
        return uvec4(bits_of(x.x) | bits_of(x.y) << 16, bits_of(x.z) | bits_of(x.w) << 16, 0u, 0u);
    }
    inline vec4 unpacked(uvec4 word) {
        if (TYPE == WIRE_F32) return bits_to_float(word);
        return vec4(number_of(word.x & 0xffffu), number_of(word.x >> 16),
                    number_of(word.y & 0xffffu), number_of(word.y >> 16));
    }

    // Address of element i of an addend that begins at `address`.
    inline u64 place(u64 address, uint i) { return address + u64(i) * (TYPE == WIRE_F32 ? 4 : 2); }

    inline void addend_store(u64 at, uvec4 word) {
        if (TYPE == WIRE_F32)
            store_16(at, word);
        else
            U32x2(at).at[0] = uvec2(word.x, word.y);
    }

    inline uvec4 addend_load(u64 at) {
        if (TYPE == WIRE_F32) return load_16(at);
        const uvec2 word = U32x2(at).at[0];
        return uvec4(word.x, word.y, 0u, 0u);
    }

    // The sum of elements i to i + 3 over the senders, in the order of members. own: this member's
    // addend as it crosses, which is not read from memory again.
    inline vec4 sum_of(u64 addends, uint i, uvec4 own) {
        const int member = args.word[1];
        const u64 stride = words_at(17);
        vec4 sum = vec4(0.0f);
        bool is_first = true;
        for (int first = 0; first < N_MEMBER; first += BATCH) {
            uvec4 word[BATCH];
            UNROLL for (int k = 0; k < BATCH; k++) {
                const int m = first + k;
                word[k] = own;
                if (m < N_MEMBER && m != member && is_sender(m))
                    word[k] = addend_load(place(addends + u64(m) * stride, i));
            }
            UNROLL for (int k = 0; k < BATCH; k++) {
                const int m = first + k;
                if (m >= N_MEMBER || !is_sender(m)) continue;
                const vec4 x = unpacked(word[k]);
                sum = is_first ? wire_flushed(x) : wire_add(sum, x);
                is_first = false;
            }
        }
        return sum;
    }

    // Elements i to i + 3 of this member's addend, as they cross.
    inline uvec4 own_at(uint i) { return packed(load_16(args.address[1] + u64(i) * 4)); }

    inline void run() {
        const int member = args.word[1];
        const bool sends = is_sender(member);
        const u64 arena = args.address[3], step = args.address[4], data = args.address[5];
        const u64 addends = data + u64(uint(args.word[19])) + area_off(step, 11);
        const u64 own = addends + u64(member) * words_at(17);
        const uint n = uint(args.word[14]), first = 4 * thread_id(), pace = 4 * group_size();
        if (sends) {
            for (uint i = first; i < n; i += pace) addend_store(place(own, i), own_at(i));
            system_release();
        }
        barrier();
        const bool passes = flags_pass(arena, data, step);
        for (uint i = first; i < n; i += pace) {
            vec4 sum = sum_of(addends, i, sends && passes ? own_at(i) : uvec4(0u));
            if (HAS_RESIDUAL)
                sum = wire_add(sum, bits_to_float(load_16(args.address[2] + u64(i) * 4)));
            const uvec4 bits = passes ? wire_result(sum) : uvec4(0u);
            store_16(args.address[0] + u64(i) * 4, bits);
        }
    }
};

GPU_KERNEL(wire_reduce, WireReduce)
