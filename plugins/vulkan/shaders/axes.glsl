// SPDX-License-Identifier: MIT
//
// axes.glsl: where the elements of a strided value lie, and four of them at a time.

// Four neighbours at any address of an f32; F32x4 is aligned to 16 bytes.
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer Floats4 { vec4 at[]; };

// How the elements along axis 0 follow each other: gpu_lane of plugins/gpu/plan/kernel.h.
const int LANE_STRIDED = 0, LANE_DENSE = 1, LANE_REPEATED = 2, LANE_ALIGNED = 3;

// i / ne, where gpu_divisor (plugins/gpu/ops/axes.h) gives multiplier and shift: integer division
// takes tens of instructions, on some devices one lane after the other.
uint divide(uint i, int multiplier, int shift) {
    uint high, low;
    umulExtended(i, uint(multiplier), high, low);
    return multiplier == 0 ? i : high >> shift;
}

// The coordinates of element i of a shape, whose words (gpu_axes_shape) begin at word `ne`; axes
// from n_axis on are 1.
uvec4 axes_split(uint i, int ne, int n_axis) {
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
uint axes_at(uvec4 at, int stride) {
    return at.x * uint(args.word[stride]) + at.y * uint(args.word[stride + 1]) +
           at.z * uint(args.word[stride + 2]) + at.w * uint(args.word[stride + 3]);
}

// Four elements from element `first` on. Sixteen bytes in a row are moved as two numbers of 64
// bits: the same instruction on most devices, and half as many on those that move components one by
// one.
vec4 lanes_load(uint64_t base, uint first, int lane, uint stride) {
    if (lane == LANE_ALIGNED) {
        u64vec2 x = U64x2(base + uint64_t(first) * 4).at[0];
        return vec4(uintBitsToFloat(unpack32(x.x)), uintBitsToFloat(unpack32(x.y)));
    }
    if (lane == LANE_DENSE) return Floats4(base + uint64_t(first) * 4).at[0];
    F32 x = F32(base);
    if (lane == LANE_REPEATED) return vec4(x.at[first]);
    return vec4(x.at[first], x.at[first + stride], x.at[first + 2 * stride],
                x.at[first + 3 * stride]);
}

// The first `count` of them; the rest is `fill`.
vec4 lanes_load_part(uint64_t base, uint first, int lane, uint stride, uint count, float fill) {
    F32 x = F32(base);
    if (lane == LANE_REPEATED) stride = 0;
    if (lane == LANE_DENSE || lane == LANE_ALIGNED) stride = 1;
    vec4 v = vec4(fill);
    for (uint i = 0; i < 4; i++)
        if (i < count) v[i] = x.at[first + i * stride];
    return v;
}

void lanes_store(uint64_t base, uint first, int lane, vec4 v) {
    if (lane == LANE_ALIGNED)
        U64x2(base + uint64_t(first) * 4).at[0] =
            u64vec2(pack64(floatBitsToUint(v.xy)), pack64(floatBitsToUint(v.zw)));
    else
        Floats4(base + uint64_t(first) * 4).at[0] = v;
}

void lanes_store_part(uint64_t base, uint first, uint count, vec4 v) {
    for (uint i = 0; i < 4; i++)
        if (i < count) F32(base).at[first + i] = v[i];
}
