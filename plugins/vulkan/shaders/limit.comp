// SPDX-License-Identifier: MIT
//
// limit.comp: what a device can do at most: streams of loads, or multiply-adds. A store depends on
// the result, so that the compiler keeps the loads and the arithmetic; its condition is never true.
// See GPU_KERNEL_LIMIT.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "axes.glsl"
#extension GL_KHR_shader_subgroup_basic : require

const bool READS = SPEC0 == 0;

void main() {
    uint i = invocation_number(), n = uint(args.word[0]), trips = uint(args.word[1]);
    if (i >= n) return;
    if (READS) {
        // A subgroup reads bytes that lie together.
        uint lane = gl_SubgroupInvocationID;
        uint64_t first = uint64_t(i - lane) * 4 * trips + lane;
        uint64_t at = args.address[1] + first * 16, next = uint64_t(gl_SubgroupSize * 16);
        u64vec2 all = u64vec2(0ul);
        for (uint p = 0; p < trips; p++) {
            [[unroll]] for (uint k = 0; k < 4; k++) {
                all ^= U64x2(at).at[0];
                at += next;
            }
        }
        if ((all.x ^ all.y) == 0x9e3779b97f4a7c15ul) U32(args.address[0]).at[0] = i;
        return;
    }
    vec4 a = vec4(i), b = a + 1.0, c = a + 2.0, d = a + 3.0;
    const vec4 times = vec4(0.9990234375), plus = vec4(0.0009765625);
    for (uint p = 0; p < trips; p++) {
        [[unroll]] for (int k = 0; k < 4; k++) {
            a = fma(a, times, plus);
            b = fma(b, times, plus);
            c = fma(c, times, plus);
            d = fma(d, times, plus);
        }
    }
    if (dot(a + b + c + d, vec4(1.0)) == -1.0) U32(args.address[0]).at[0] = i;
}
