// SPDX-License-Identifier: MIT
//
// add_norm.comp: sum = a + b and its RMS norm. A workgroup computes a row, an invocation four
// neighbours at a time. An invocation reads back only elements that it has written itself. See
// GPU_KERNEL_ADD_NORM.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "axes.glsl"
#include "reduce.glsl"

const bool HAS_WEIGHT = SPEC0 != 0, HAS_TAIL = SPEC1 != 0;
const int WEIGHT_LANE = SPEC2, LANE = SPEC3; // LANE: of the others
const bool HAS_ROWS = SPEC4 != 0;            // a row of the weight for each row
const bool HAS_BYTES = SPEC5 != 0;           // then rows are whole groups of 32

#define BYTES_ROOM (HAS_BYTES ? 2 * BYTES_THREADS : 1)
#include "bytes_store.glsl"

uint64_t weight; // of this row

vec4 load(uint64_t base, uint at, uint count) {
    if (HAS_TAIL) return lanes_load_part(base, at, LANE, 1, count, 0.0);
    return lanes_load(base, at, LANE, 1);
}

void store(uint64_t base, uint at, uint count, vec4 v) {
    if (HAS_TAIL)
        lanes_store_part(base, at, count, v);
    else
        lanes_store(base, at, LANE, v);
}

vec4 weight_load(uint unit, uint count) {
    uint stride = uint(args.word[2]), at = 4 * unit * (WEIGHT_LANE == LANE_STRIDED ? stride : 1);
    if (HAS_TAIL) return lanes_load_part(weight, at, WEIGHT_LANE, stride, count, 1.0);
    return lanes_load(weight, at, WEIGHT_LANE, stride);
}

void main() {
    uint row = group_number(), n = uint(args.word[0]), n_unit = (n + 3) / 4;
    if (row >= uint(args.word[1])) return;
    uint at = row * n;
    weight = args.address[4];
    if (HAS_ROWS) {
        uvec4 of = axes_split(row, 5, 3);
        weight += uint64_t(of.x * uint(args.word[12]) + of.y * uint(args.word[13]) +
                           of.z * uint(args.word[14])) *
                  4;
    }
    float sum_sq = 0.0;
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        uint count = min(n - 4 * u, 4u);
        vec4 v = load(args.address[2], at + 4 * u, count) + load(args.address[3], at + 4 * u, count);
        store(args.address[1], at + 4 * u, count, v);
        sum_sq += dot(v, v);
    }
    float factor = 1.0 / sqrt(group_sum(sum_sq) * intBitsToFloat(args.word[4]) +
                              intBitsToFloat(args.word[3]));
    bool is_prompt =
        HAS_BYTES && args.address[5] != 0 && bytes_is_prompt(args.address[5], row, 15);
    uint64_t n_all = uint64_t(uint(args.word[1])) * n;
    uint trip = 0;
    for (uint first = 0; first < n_unit; first += gl_WorkGroupSize.x) {
        uint u = first + gl_LocalInvocationID.x;
        vec4 v = vec4(0.0);
        if (u < n_unit) {
            uint count = min(n - 4 * u, 4u);
            v = load(args.address[1], at + 4 * u, count) * factor;
            if (HAS_WEIGHT) v *= weight_load(u, count);
            store(args.address[0], at + 4 * u, count, v);
        }
        if (HAS_BYTES)
            bytes_store(args.address[0] + 4 * n_all, n_all / 32, at / 32 + u / 8, v, is_prompt,
                        u < n_unit, row, u < 8, trip++);
    }
}
