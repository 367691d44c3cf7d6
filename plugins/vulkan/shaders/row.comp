// SPDX-License-Identifier: MIT
//
// row.comp: what reduces a row: softmax, norms and their halves. A workgroup computes a row, an
// invocation four neighbours at a time. See GPU_KERNEL_ROW.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "axes.glsl"
#include "math.glsl"
#include "reduce.glsl"

const int OP = SPEC0, LANE = SPEC1;
const bool HAS_WEIGHT = SPEC2 != 0, HAS_BIAS = SPEC3 != 0;
const int SOFTMAX = 0, RMS_NORM = 1, LAYER_NORM = 2, SUM_SQ = 3, RMS_APPLY = 4; // gpu_row_op

uint64_t dst, x;
uint n, n_unit, dst_at, x_at;

uint count_of(uint unit) {
    return min(n - 4 * unit, 4u);
}

vec4 x_load(uint unit, float fill) {
    uint stride = uint(args.word[4]);
    uint at = x_at + 4 * unit * (LANE == LANE_DENSE ? 1 : stride);
    return lanes_load(x, at, LANE, stride, count_of(unit), fill);
}

// Four elements of a weight or a bias, whose stride is in word `stride`.
vec4 factor_load(uint64_t base, int stride, uint unit) {
    uint step = uint(args.word[stride]);
    return lanes_load(base, 4 * unit * step, step == 1 ? LANE_DENSE : LANE_STRIDED, step,
                      count_of(unit), 1.0);
}

float sum_sq() {
    float sum = 0.0;
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        vec4 v = x_load(u, 0.0);
        sum += dot(v, v);
    }
    return group_sum(sum);
}

// Stores x * factor * weight + bias, x counted from `from` on.
void apply(float from, float factor) {
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        vec4 v = (x_load(u, 0.0) - from) * factor;
        if (HAS_WEIGHT) v *= factor_load(args.address[2], 12, u);
        if (HAS_BIAS) v += factor_load(args.address[3], 13, u);
        lanes_store(dst, dst_at + 4 * u, count_of(u), v);
    }
}

float norm_factor(float sum) {
    return 1.0 / sqrt(sum * intBitsToFloat(args.word[15]) + intBitsToFloat(args.word[14]));
}

// Sums are of differences from the row's first element, so that a row far from 0 keeps its digits.
void layer_norm() {
    float first = n > 0 ? F32(x).at[x_at] : 0.0, sum = 0.0, about = 0.0;
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        precise vec4 d = x_load(u, first) - first;
        sum += dot(d, vec4(1.0));
    }
    float mean = group_sum(sum) * intBitsToFloat(args.word[15]);
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        precise vec4 d = x_load(u, first) - first;
        d -= mean;
        uint count = count_of(u);
        if (count < 4) d = mix(d, vec4(0.0), greaterThanEqual(uvec4(0, 1, 2, 3), uvec4(count)));
        about += dot(d, d);
    }
    float factor = norm_factor(group_sum(about));
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        precise vec4 d = x_load(u, first) - first;
        d = (d - mean) * factor;
        if (HAS_WEIGHT) d *= factor_load(args.address[2], 12, u);
        if (HAS_BIAS) d += factor_load(args.address[3], 13, u);
        lanes_store(dst, dst_at + 4 * u, count_of(u), d);
    }
}

float without_nan(float v) {
    return is_nan(v) ? intBitsToFloat(0xff800000) : v;
}

vec4 exp4(vec4 v) {
    return vec4(exp_of(v.x), exp_of(v.y), exp_of(v.z), exp_of(v.w));
}

// A row of only -inf gives zeros. A NaN makes the whole row NaN.
void softmax() {
    const float lowest = intBitsToFloat(0xff800000);
    float greatest = lowest, sum = 0.0, nan_count = 0.0;
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        vec4 v = x_load(u, lowest);
        if (is_nan(v.x) || is_nan(v.y) || is_nan(v.z) || is_nan(v.w)) nan_count = 1.0;
        v = vec4(without_nan(v.x), without_nan(v.y), without_nan(v.z), without_nan(v.w));
        greatest = max(greatest, max(max(v.x, v.y), max(v.z, v.w)));
    }
    greatest = group_max(greatest);
    bool has_nan = group_max(nan_count) != 0.0;
    // +inf - +inf is NaN on the CPU too.
    if (floatBitsToUint(greatest) == 0x7f800000u) has_nan = true;
    bool is_nothing = floatBitsToUint(greatest) == 0xff800000u;
    float factor = has_nan ? nan_make() : 0.0;
    if (!has_nan && !is_nothing) {
        for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x)
            sum += dot(exp4(x_load(u, lowest) - greatest), vec4(1.0));
        factor = 1.0 / group_sum(sum);
    }
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        vec4 v = vec4(factor);
        if (!has_nan && !is_nothing) v *= exp4(x_load(u, lowest) - greatest);
        lanes_store(dst, dst_at + 4 * u, count_of(u), v);
    }
}

void main() {
    uint row = group_number();
    if (row >= uint(args.word[16])) return;
    n = uint(args.word[0]);
    n_unit = (n + 3) / 4;
    uvec4 at = uvec4(0);
    at.y = row % uint(args.word[1]);
    at.z = row / uint(args.word[1]) % uint(args.word[2]);
    at.w = row / uint(args.word[1]) / uint(args.word[2]);
    dst = args.address[0];
    dst_at = row * n;
    x = args.address[1];
    x_at = axes_at(at, 4);
    switch (OP) {
    case SOFTMAX: softmax(); break;
    case RMS_NORM: apply(0.0, norm_factor(sum_sq())); break;
    case LAYER_NORM: layer_norm(); break;
    case RMS_APPLY: apply(0.0, norm_factor(F32(args.address[4]).at[axes_at(at, 8)])); break;
    default:
        float sum = sum_sq();
        if (gl_LocalInvocationID.x == 0) F32(dst).at[row] = sum;
    }
}
