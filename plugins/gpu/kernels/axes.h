/* SPDX-License-Identifier: MIT
 *
 * axes.h: where the elements of a strided value lie, and four of them at a time.
 */
#ifndef TANDEM_GPU_AXES_H
#define TANDEM_GPU_AXES_H

#include "lang.h"

struct Axes : Kernel {
    inline explicit Axes(const Args &args_) : Kernel(args_) {}

    // How the elements along axis 0 follow each other: gpu_lane of plugins/gpu/plan/kernel.h.
    enum { LANE_STRIDED = 0, LANE_DENSE = 1, LANE_REPEATED = 2, LANE_ALIGNED = 3 };

    // i / ne, where gpu_divisor (plugins/gpu/ops/axes.h) gives multiplier and shift: integer
    // division takes tens of instructions, on some devices one lane after the other.
    inline uint divide(uint i, int multiplier, int shift) {
        uint high = uint(u64(i) * uint(multiplier) >> 32);
        return multiplier == 0 ? i : high >> shift;
    }

    // The coordinates of element i of a shape, whose words (gpu_axes_shape) begin at word `ne`;
    // axes from n_axis on are 1.
    inline uvec4 axes_split(uint i, int ne, int n_axis) {
        uvec4 at = uvec4(i, 0, 0, 0);
        if (n_axis > 1) {
            at.y = divide(at.x, args.word[ne + 3], args.word[ne + 6] & 255);
            at.x -= at.y * uint(args.word[ne]);
        }
        if (n_axis > 2) {
            at.z = divide(at.y, args.word[ne + 4], args.word[ne + 6] >> 8 & 255);
            at.y -= at.z * uint(args.word[ne + 1]);
        }
        if (n_axis > 3) {
            at.w = divide(at.z, args.word[ne + 5], args.word[ne + 6] >> 16 & 255);
            at.z -= at.w * uint(args.word[ne + 2]);
        }
        return at;
    }

    // Elements from a value's first one to that at the coordinates; strides begin at word `stride`.
    inline uint axes_at(uvec4 at, int stride) {
        return at.x * uint(args.word[stride]) + at.y * uint(args.word[stride + 1]) +
               at.z * uint(args.word[stride + 2]) + at.w * uint(args.word[stride + 3]);
    }

    // Four elements from element `first` on.
    inline vec4 lanes_load(u64 base, uint first, int lane, uint stride) {
        if (lane == LANE_ALIGNED) {
            return bits_to_float(load_16(base + u64(first) * 4));
        }
        F32 x = F32(base);
        if (lane == LANE_DENSE) stride = 1;
        if (lane == LANE_REPEATED) return vec4(x.at[first]);
        return vec4(x.at[first], x.at[first + stride], x.at[first + 2 * stride],
                    x.at[first + 3 * stride]);
    }

    // The first `count` of the four; the others are `fill`. Loads nothing beyond the first `count`.
    inline vec4 lanes_load_part(u64 base, uint first, int lane, uint stride, uint count,
                                float fill) {
        F32 x = F32(base);
        if (lane == LANE_REPEATED) stride = 0;
        if (lane == LANE_DENSE || lane == LANE_ALIGNED) stride = 1;
        vec4 v = vec4(fill);
        for (uint i = 0; i < 4; i++)
            if (i < count) v[i] = x.at[first + i * stride];
        return v;
    }

    inline void lanes_store(u64 base, uint first, int lane, vec4 v) {
        if (lane == LANE_ALIGNED)
            store_16(base + u64(first) * 4, float_to_bits(v));
        else
            for (uint i = 0; i < 4; i++) F32(base).at[first + i] = v[i];
    }

    inline void lanes_store_part(u64 base, uint first, uint count, vec4 v) {
        for (uint i = 0; i < 4; i++)
            if (i < count) F32(base).at[first + i] = v[i];
    }
};

#endif
