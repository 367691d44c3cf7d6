// SPDX-License-Identifier: MIT
//
// wire_store.comp: this member's addend of a sum, converted to the type that crosses. An invocation
// converts an element, or a block of q8_0, which is filled up with zeros. See
// GPU_KERNEL_WIRE_STORE.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "arena.glsl"
#include "exact.glsl"
#include "half.glsl"
#include "number.glsl"

const int TYPE = SPEC0, F32_ = 0, F16_ = 1, BF16_ = 2; // gpu_wire

// An element as the CPU quantises it: NaN counts as 0, and numbers are limited to what the largest
// scale can express. 0 from n on.
float element_at(uint i, uint n) {
    const float limit = 65504.0 * 127.0;
    float x = i < n ? F32(args.address[1]).at[min(i, n - 1u)] : 0.0;
    return is_nan(x) ? 0.0 : clamp(x, -limit, limit);
}

int code_of(float x) {
    float whole = trunc(x);
    precise float rest = x - whole; // ties away from 0
    return int(whole) + (rest >= 0.5 ? 1 : rest <= -0.5 ? -1 : 0);
}

// scale = largest magnitude / 127, codes rounded to the nearest: the CPU's bits, which the trial of
// this kernel compares. GLSL's own division may be off, and a product may be fused with what
// follows.
void block_store(uint64_t to, uint first, uint n) {
    float most = 0.0;
    for (uint i = 0; i < 32; i++) most = max(most, abs(element_at(first + i, n)));
    float scale = exact_div(most, 127.0), inverse = scale > 0.0 ? exact_div(1.0, scale) : 0.0;
    U16(to).at[0] = uint16_t(f16_of_f32_bits(floatBitsToUint(scale)));
    for (uint i = 0; i < 32; i += 2) {
        precise float low = element_at(first + i, n) * inverse;
        precise float high = element_at(first + i + 1, n) * inverse;
        ivec2 code = clamp(ivec2(code_of(low), code_of(high)), -127, 127);
        U16(to).at[1 + i / 2] = uint16_t((code.x & 255) | (code.y & 255) << 8);
    }
}

void main() {
    uint i = invocation_number();
    if (i >= uint(args.word[1])) return;
    uint64_t to = args.address[0] + area_off(args.address[2], 2);
    if (TYPE == F32_)
        U32(to).at[i] = U32(args.address[1]).at[i];
    else if (TYPE == F16_)
        U16(to).at[i] = uint16_t(f16_of_f32_bits(U32(args.address[1]).at[i]));
    else if (TYPE == BF16_)
        U16(to).at[i] = uint16_t(bf16_of_f32_bits(U32(args.address[1]).at[i]));
    else
        block_store(to + uint64_t(i) * 34, i * 32, uint(args.word[0]));
}
