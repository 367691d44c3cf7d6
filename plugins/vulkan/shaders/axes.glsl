// SPDX-License-Identifier: MIT
//
// axes.glsl: where the elements of a strided value lie, and four of them at a time.
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer F32x4 { vec4 at[]; };

// How the elements along axis 0 follow each other: gpu_lane of plugins/gpu/plan/kernel.h.
const int LANE_STRIDED = 0, LANE_DENSE = 1, LANE_REPEATED = 2;

// The coordinates of element i of a shape that begins at word `ne`; axes from n_axis on are 1.
uvec4 axes_split(uint i, int ne, int n_axis) {
    uvec4 at = uvec4(i, 0, 0, 0);
    if (n_axis > 1) {
        at.y = at.x / uint(args.word[ne]);
        at.x -= at.y * uint(args.word[ne]);
    }
    if (n_axis > 2) {
        at.z = at.y / uint(args.word[ne + 1]);
        at.y -= at.z * uint(args.word[ne + 1]);
    }
    if (n_axis > 3) {
        at.w = at.z / uint(args.word[ne + 2]);
        at.z -= at.w * uint(args.word[ne + 2]);
    }
    return at;
}

// Elements from a value's first one to that at the coordinates; strides begin at word `stride`.
uint axes_at(uvec4 at, int stride) {
    return at.x * uint(args.word[stride]) + at.y * uint(args.word[stride + 1]) +
           at.z * uint(args.word[stride + 2]) + at.w * uint(args.word[stride + 3]);
}

// The first `count` of four elements from element `first` on; the rest is `fill`.
vec4 lanes_load(uint64_t base, uint first, int lane, uint stride, uint count, float fill) {
    F32 x = F32(base);
    if (lane == LANE_REPEATED) return vec4(x.at[first]);
    if (lane == LANE_DENSE && count == 4) return F32x4(base + uint64_t(first) * 4).at[0];
    if (lane == LANE_DENSE) stride = 1;
    vec4 v = vec4(fill);
    v.x = x.at[first];
    if (count > 1) v.y = x.at[first + stride];
    if (count > 2) v.z = x.at[first + 2 * stride];
    if (count > 3) v.w = x.at[first + 3 * stride];
    return v;
}

void lanes_store(uint64_t base, uint first, uint count, vec4 v) {
    F32 y = F32(base);
    if (count == 4) {
        F32x4(base + uint64_t(first) * 4).at[0] = v;
        return;
    }
    y.at[first] = v.x;
    if (count > 1) y.at[first + 1] = v.y;
    if (count > 2) y.at[first + 2] = v.z;
}
