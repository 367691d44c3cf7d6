/* SPDX-License-Identifier: MIT
 *
 * row.cu: ops that reduce a row: softmax, the norms, and RMS_NORM in two steps (SUM_SQ, RMS_APPLY).
 * A workgroup computes a row, a thread four neighbouring elements at a time. See GPU_KERNEL_ROW.
 */
#include "bytes_store.h"
#include "math.h"
#include "reduce.h"

struct Row : Reduce {
    inline explicit Row(const Args &args_) : Reduce(args_) {}

    const int OP = SPEC0, LANE = SPEC1;
    const bool HAS_WEIGHT = SPEC2 != 0, HAS_BIAS = SPEC3 != 0, HAS_TAIL = SPEC4 == 1;
    const int DST_LANE = SPEC5, WEIGHT_LANE = SPEC6, BIAS_LANE = SPEC7;
    const bool HAS_BYTES = SPEC4 == 2; // then rows are whole groups of 32
    enum { SOFTMAX = 0, RMS_NORM, LAYER_NORM, SUM_SQ, RMS_APPLY }; // gpu_row_op

    u64 dst, x;
    uint n, n_unit, dst_at, x_at, weight_at;

    inline uint count_of(uint unit) { return min(n - 4 * unit, 4u); }

    // Elements 4 * unit .. + 3 of the row; those beyond its end are `fill`.
    inline vec4 x_load(uint unit, float fill) {
        uint stride = uint(args.word[8]),
             at = x_at + 4 * unit * (LANE == LANE_STRIDED ? stride : 1);
        if (HAS_TAIL) return lanes_load_part(x, at, LANE, stride, count_of(unit), fill);
        return lanes_load(x, at, LANE, stride);
    }

    // Four elements of a weight or a bias.
    inline vec4 factor_load(u64 base, uint unit, int lane, uint stride) {
        uint at = 4 * unit * (lane == LANE_STRIDED ? stride : 1);
        if (HAS_TAIL) return lanes_load_part(base, at, lane, stride, count_of(unit), 1.0f);
        return lanes_load(base, at, lane, stride);
    }

    inline vec4 weight_load(uint unit) {
        return factor_load(args.address[2] + u64(weight_at) * 4, unit, WEIGHT_LANE,
                           uint(args.word[15]));
    }

    inline vec4 bias_load(uint unit) {
        return factor_load(args.address[3], unit, BIAS_LANE, uint(args.word[16]));
    }

    inline void store(uint unit, vec4 v) {
        if (HAS_TAIL)
            lanes_store_part(dst, dst_at + 4 * unit, count_of(unit), v);
        else
            lanes_store(dst, dst_at + 4 * unit, DST_LANE, v);
    }

    // The sum of (x * scale)^2.
    inline float sum_sq(float scale) {
        float sum = 0.0f;
        for (uint u = thread_id(); u < n_unit; u += group_size()) {
            vec4 v = x_load(u, 0.0f) * scale;
            sum += dot(v, v);
        }
        return group_sum(sum);
    }

    // Stores (x - from - mean) * factor * weight + bias. All lanes of a wave call bytes_store()
    // together, so the loop is the same for all.
    inline void apply(float from, float mean, float factor) {
        uint row = group_number(), n_group = n / 32;
        bool prompt =
            HAS_BYTES && args.address[4] != 0 && bytes_is_prompt(args, args.address[4], row, 12);
        for (uint first = 0; first < n_unit; first += group_size()) {
            uint u = first + thread_id();
            vec4 v = vec4(0.0f);
            if (u < n_unit) {
                v = x_load(u, from) - from;
                v = (v - mean) * factor;
                if (HAS_WEIGHT) v *= weight_load(u);
                if (HAS_BIAS) v += bias_load(u);
                store(u, v);
            }
            if (HAS_BYTES)
                bytes_store(args.address[5], u64(uint(args.word[19])) * n_group,
                            row * n_group + u / 8, u % 8, v, prompt, u < n_unit, row, u < 8);
        }
    }

    inline float norm_factor(float sum) {
        return 1.0f / sqrt(sum * bits_to_float(args.word[18]) + bits_to_float(args.word[17]));
    }

    // 1 / sqrt(mean of x^2 + eps). Where the squares overflow, or are so small that they may lose
    // digits and eps is as small, they are summed again, of numbers scaled by 2^-80 or 2^80.
    inline float rms_factor() {
        float eps = bits_to_float(args.word[17]), sum = sum_sq(1.0f), scale = 1.0f;
        if (float_to_bits(sum) == 0x7f800000u) scale = 8.271806125530277e-25f; // 2^-80
        if (sum < 8.271806125530277e-25f && eps < 8.271806125530277e-25f)
            scale = 1.2089258196146292e24f;
        if (scale != 1.0f) sum = sum_sq(scale);
        return scale / sqrt(sum * bits_to_float(args.word[18]) + eps * scale * scale);
    }

    // The row's first element is subtracted from all before they are summed, so that a row far from
    // 0 loses no digits.
    inline void layer_norm() {
        float first = n > 0 ? F32(x).at[x_at] : 0.0f, sum = 0.0f, about = 0.0f;
        for (uint u = thread_id(); u < n_unit; u += group_size()) {
            vec4 d = x_load(u, first) - first;
            sum += dot(d, vec4(1.0f));
        }
        float mean = group_sum(sum) * bits_to_float(args.word[18]);
        for (uint u = thread_id(); u < n_unit; u += group_size()) {
            vec4 d = x_load(u, first) - first;
            d -= mean;
            if (HAS_TAIL)
                for (uint i = 0; i < 4; i++)
                    if (i >= count_of(u)) d[int(i)] = 0.0f;
            about += dot(d, d);
        }
        apply(first, mean, norm_factor(group_sum(about)));
    }

    inline float without_nan(float v) { return is_nan(v) ? NEGATIVE_INFINITY : v; }

    inline vec4 exp4(vec4 v) { return vec4(exp_of(v.x), exp_of(v.y), exp_of(v.z), exp_of(v.w)); }

    // A row of -inf alone gives zeros. A NaN or +inf makes the whole row NaN.
    inline void softmax() {
        float greatest = NEGATIVE_INFINITY, sum = 0.0f, nan_count = 0.0f;
        for (uint u = thread_id(); u < n_unit; u += group_size()) {
            vec4 v = x_load(u, NEGATIVE_INFINITY);
            if (is_nan(v.x) || is_nan(v.y) || is_nan(v.z) || is_nan(v.w)) nan_count = 1.0f;
            v = vec4(without_nan(v.x), without_nan(v.y), without_nan(v.z), without_nan(v.w));
            greatest = max(greatest, max(max(v.x, v.y), max(v.z, v.w)));
        }
        greatest = group_max(greatest);
        bool has_nan = group_max(nan_count) != 0.0f;
        // As on the CPU: +inf - +inf is NaN.
        if (float_to_bits(greatest) == 0x7f800000u) has_nan = true;
        bool is_nothing = float_to_bits(greatest) == 0xff800000u;
        float factor = has_nan ? nan_make() : 0.0f;
        if (!has_nan && !is_nothing) {
            for (uint u = thread_id(); u < n_unit; u += group_size())
                sum += dot(exp4(x_load(u, NEGATIVE_INFINITY) - greatest), vec4(1.0f));
            factor = 1.0f / group_sum(sum);
        }
        for (uint u = thread_id(); u < n_unit; u += group_size()) {
            vec4 v = vec4(factor);
            if (!has_nan && !is_nothing) v *= exp4(x_load(u, NEGATIVE_INFINITY) - greatest);
            store(u, v);
        }
    }

    // Elements from a value's first one to that of a row; the strides of axes 1 to 3 begin at
    // `stride`.
    inline uint row_at(uvec4 at, int stride) {
        return at.x * uint(args.word[stride]) + at.y * uint(args.word[stride + 1]) +
               at.z * uint(args.word[stride + 2]);
    }

    inline void run() {
        uint row = group_number();
        if (row >= uint(args.word[19])) return;
        n = uint(args.word[0]);
        n_unit = (n + 3) / 4;
        uvec4 at = axes_split(row, 1, 3);
        dst = args.address[0];
        dst_at = row * n;
        x = args.address[1];
        x_at = row_at(at, 9);
        weight_at = 0;
        switch (OP) {
        case SOFTMAX: softmax(); break;
        case RMS_NORM:
            if (!HAS_BYTES) weight_at = row_at(at, 12);
            apply(0.0f, 0.0f, rms_factor() * bits_to_float(args.word[16]));
            break;
        case LAYER_NORM: layer_norm(); break;
        case RMS_APPLY:
            apply(0.0f, 0.0f, norm_factor(F32(args.address[4]).at[row_at(at, 12)]));
            break;
        default:
            float sum = sum_sq(1.0f);
            if (thread_id() == 0) F32(dst).at[row] = sum;
        }
    }
};

GPU_KERNEL(row, Row)
