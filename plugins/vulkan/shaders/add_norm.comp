// SPDX-License-Identifier: MIT
//
// add_norm.comp: sum = a + b and its RMS norm. A workgroup computes a row, an invocation four
// neighbours at a time; it reads back only what it has written itself. See GPU_KERNEL_ADD_NORM.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "axes.glsl"
#include "reduce.glsl"

const bool HAS_WEIGHT = SPEC0 != 0;

void main() {
    uint row = group_number(), n = uint(args.word[0]), n_unit = (n + 3) / 4;
    if (row >= uint(args.word[1])) return;
    uint at = row * n;
    float sum_sq = 0.0;
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        uint count = min(n - 4 * u, 4u);
        vec4 v = lanes_load(args.address[2], at + 4 * u, LANE_DENSE, 1, count, 0.0) +
                 lanes_load(args.address[3], at + 4 * u, LANE_DENSE, 1, count, 0.0);
        lanes_store(args.address[1], at + 4 * u, count, v);
        sum_sq += dot(v, v);
    }
    float factor = 1.0 / sqrt(group_sum(sum_sq) * intBitsToFloat(args.word[4]) +
                              intBitsToFloat(args.word[3]));
    uint step = uint(args.word[2]);
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        uint count = min(n - 4 * u, 4u);
        vec4 v = lanes_load(args.address[1], at + 4 * u, LANE_DENSE, 1, count, 0.0) * factor;
        if (HAS_WEIGHT)
            v *= lanes_load(args.address[4], 4 * u * step, step == 1 ? LANE_DENSE : LANE_STRIDED, step,
                            count, 1.0);
        lanes_store(args.address[0], at + 4 * u, count, v);
    }
}
