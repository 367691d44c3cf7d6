// SPDX-License-Identifier: MIT
//
// row.comp: ops that reduce a row: softmax, norms, and the two halves of a norm of a split row
// (SUM_SQ and RMS_APPLY). A workgroup computes a row, an invocation four neighbours at a time. See
// GPU_KERNEL_ROW.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "axes.glsl"
#include "math.glsl"
#include "reduce.glsl"

const int OP = SPEC0, LANE = SPEC1;
const bool HAS_WEIGHT = SPEC2 != 0, HAS_BIAS = SPEC3 != 0, HAS_TAIL = SPEC4 == 1;
const bool HAS_BYTES = SPEC4 == 2; // then rows are whole groups of 32
const int DST_LANE = SPEC5, WEIGHT_LANE = SPEC6, BIAS_LANE = SPEC7;
const int SOFTMAX = 0, RMS_NORM = 1, LAYER_NORM = 2, SUM_SQ = 3, RMS_APPLY = 4; // gpu_row_op

#define BYTES_ROOM (HAS_BYTES ? 2 * BYTES_THREADS : 1)
#include "bytes_store.glsl"

uint64_t dst, x;
uint n, n_unit, dst_at, x_at, weight_at;

uint count_of(uint unit) {
    return min(n - 4 * unit, 4u);
}

vec4 x_load(uint unit, float fill) {
    uint stride = uint(args.word[8]), at = x_at + 4 * unit * (LANE == LANE_STRIDED ? stride : 1);
    if (HAS_TAIL) return lanes_load_part(x, at, LANE, stride, count_of(unit), fill);
    return lanes_load(x, at, LANE, stride);
}

// Four elements of a weight or a bias.
vec4 factor_load(uint64_t base, uint unit, int lane, uint stride) {
    uint at = 4 * unit * (lane == LANE_STRIDED ? stride : 1);
    if (HAS_TAIL) return lanes_load_part(base, at, lane, stride, count_of(unit), 1.0);
    return lanes_load(base, at, lane, stride);
}

vec4 weight_load(uint unit) {
    return factor_load(args.address[2] + uint64_t(weight_at) * 4, unit, WEIGHT_LANE, uint(args.word[15]));
}

vec4 bias_load(uint unit) {
    return factor_load(args.address[3], unit, BIAS_LANE, uint(args.word[16]));
}

void store(uint unit, vec4 v) {
    if (HAS_TAIL)
        lanes_store_part(dst, dst_at + 4 * unit, count_of(unit), v);
    else
        lanes_store(dst, dst_at + 4 * unit, DST_LANE, v);
}

// The sum of (x * scale)^2.
float sum_sq(float scale) {
    float sum = 0.0;
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        vec4 v = x_load(u, 0.0) * scale;
        sum += dot(v, v);
    }
    return group_sum(sum);
}

// Stores (x - from - mean) * factor * weight + bias.
void apply(float from, float mean, float factor) {
    uint row = group_number(), n_group = n / 32, trip = 0;
    bool is_prompt =
        HAS_BYTES && args.address[4] != 0 && bytes_is_prompt(args.address[4], row, 12);
    for (uint first = 0; first < n_unit; first += gl_WorkGroupSize.x) {
        uint u = first + gl_LocalInvocationID.x;
        precise vec4 v = vec4(0.0);
        if (u < n_unit) {
            v = x_load(u, from) - from;
            v = (v - mean) * factor;
            if (HAS_WEIGHT) v *= weight_load(u);
            if (HAS_BIAS) v += bias_load(u);
            store(u, v);
        }
        if (HAS_BYTES)
            bytes_store(args.address[5], uint64_t(uint(args.word[19])) * n_group,
                        row * n_group + u / 8, v, is_prompt, u < n_unit, row, u < 8, trip++);
    }
}

float norm_factor(float sum) {
    return 1.0 / sqrt(sum * intBitsToFloat(args.word[18]) + intBitsToFloat(args.word[17]));
}

// 1 / sqrt(mean of x^2 + eps). Where the sum of squares overflows, or where it and eps are so small
// that squares are lost to underflow, it is computed again from scaled numbers.
float rms_factor() {
    float eps = intBitsToFloat(args.word[17]), sum = sum_sq(1.0), scale = 1.0;
    if (floatBitsToUint(sum) == 0x7f800000u) scale = 8.271806125530277e-25; // 2^-80
    if (sum < 8.271806125530277e-25 && eps < 8.271806125530277e-25) scale = 1.2089258196146292e24;
    if (scale != 1.0) sum = sum_sq(scale);
    return scale / sqrt(sum * intBitsToFloat(args.word[18]) + eps * scale * scale);
}

// Sums are of differences from the row's first element, so that a row far from 0 keeps its digits.
void layer_norm() {
    float first = n > 0 ? F32(x).at[x_at] : 0.0, sum = 0.0, about = 0.0;
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        precise vec4 d = x_load(u, first) - first;
        sum += dot(d, vec4(1.0));
    }
    float mean = group_sum(sum) * intBitsToFloat(args.word[18]);
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        precise vec4 d = x_load(u, first) - first;
        d -= mean;
        if (HAS_TAIL)
            d = mix(d, vec4(0.0), greaterThanEqual(uvec4(0, 1, 2, 3), uvec4(count_of(u))));
        about += dot(d, d);
    }
    apply(first, mean, norm_factor(group_sum(about)));
}

float without_nan(float v) {
    return is_nan(v) ? NEGATIVE_INFINITY : v;
}

vec4 exp4(vec4 v) {
    return vec4(exp_of(v.x), exp_of(v.y), exp_of(v.z), exp_of(v.w));
}

// A row of only -inf gives zeros. A NaN makes the whole row NaN.
void softmax() {
    float greatest = NEGATIVE_INFINITY, sum = 0.0, nan_count = 0.0;
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        vec4 v = x_load(u, NEGATIVE_INFINITY);
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
            sum += dot(exp4(x_load(u, NEGATIVE_INFINITY) - greatest), vec4(1.0));
        factor = 1.0 / group_sum(sum);
    }
    for (uint u = gl_LocalInvocationID.x; u < n_unit; u += gl_WorkGroupSize.x) {
        vec4 v = vec4(factor);
        if (!has_nan && !is_nothing) v *= exp4(x_load(u, NEGATIVE_INFINITY) - greatest);
        store(u, v);
    }
}

// Elements from a value's first one to that of a row; the strides of axes 1 to 3 begin at `stride`.
uint row_at(uvec3 at, int stride) {
    return at.x * uint(args.word[stride]) + at.y * uint(args.word[stride + 1]) +
           at.z * uint(args.word[stride + 2]);
}

void main() {
    uint row = group_number();
    if (row >= uint(args.word[19])) return;
    n = uint(args.word[0]);
    n_unit = (n + 3) / 4;
    uvec3 at = axes_split(row, 1, 3).xyz;
    dst = args.address[0];
    dst_at = row * n;
    x = args.address[1];
    x_at = row_at(at, 9);
    weight_at = 0;
    switch (OP) {
    case SOFTMAX: softmax(); break;
    case RMS_NORM:
        if (!HAS_BYTES) weight_at = row_at(at, 12);
        apply(0.0, 0.0, rms_factor() * intBitsToFloat(args.word[16]));
        break;
    case LAYER_NORM: layer_norm(); break;
    case RMS_APPLY: apply(0.0, 0.0, norm_factor(F32(args.address[4]).at[row_at(at, 12)])); break;
    default:
        float sum = sum_sq(1.0);
        if (gl_LocalInvocationID.x == 0) F32(dst).at[row] = sum;
    }
}
