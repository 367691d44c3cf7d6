// SPDX-License-Identifier: MIT
//
// wire_sum.comp: the sum of the senders' addends in member order, plus the residual, to the bits of
// tdm_wire_sum (core/base/wire.c) on every driver. An invocation computes an element. See
// GPU_KERNEL_WIRE_SUM.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "arena.glsl"
#include "axes.glsl"
#include "half.glsl"

const int TYPE = SPEC0, F32_ = 0, F16_ = 1, BF16_ = 2; // gpu_wire
const int N_MEMBER = SPEC1;
const bool HAS_RESIDUAL = SPEC2 != 0;

// Denormal numbers and -0 count as +0 (tandem/collective.h), whether the driver keeps them or not.
float flushed(float x) {
    return (floatBitsToUint(x) & 0x7f800000u) == 0u ? 0.0 : x;
}

float sum_of(float sum, float x) {
    precise float next = sum + flushed(x);
    return flushed(next);
}

float addend_at(uint64_t addend, uint i) {
    if (TYPE == F32_) return F32(addend).at[i];
    if (TYPE == F16_) return uintBitsToFloat(f32_bits_of_f16(uint(U16(addend).at[i])));
    if (TYPE == BF16_) return uintBitsToFloat(uint(U16(addend).at[i]) << 16);
    uint64_t block = addend + uint64_t(i / 32) * 34;
    float scale = uintBitsToFloat(f32_bits_of_f16(uint(U16(block).at[0])));
    int code = int(uint(U8(block).at[2 + (i & 31u)]) << 24) >> 24;
    precise float x = scale * float(code);
    return x;
}

void main() {
    uint i = invocation_number();
    if (i >= uint(args.word[0])) return;
    uint64_t arena = args.address[1] + area_off(args.address[2], 1);
    uint run = divide(i, args.word[5], args.word[6]);
    uint from = run * uint(args.word[7]) + uint(args.word[8]) + (i - run * uint(args.word[4]));
    uint64_t senders = pack64(uvec2(args.word[9], args.word[10]));
    uint64_t stride = pack64(uvec2(args.word[11], args.word[12]));
    float sum = 0.0;
    bool is_first = true;
    for (int m = 0; m < N_MEMBER; m++) {
        if ((senders >> m & 1ul) == 0ul) continue;
        float addend = addend_at(arena + uint64_t(m) * stride, from);
        sum = is_first ? flushed(addend) : sum_of(sum, addend);
        is_first = false;
    }
    if (HAS_RESIDUAL) sum = sum_of(sum, F32(args.address[3]).at[i]);
    uint bits = floatBitsToUint(sum);
    if ((bits & 0x7fffffffu) > 0x7f800000u) bits = 0x7fc00000u;
    U32(args.address[0]).at[i] = bits;
}
