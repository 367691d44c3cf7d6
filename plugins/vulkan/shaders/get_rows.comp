// SPDX-License-Identifier: MIT
//
// get_rows.comp: y[:, i] = table[:, id[i] - first_row] as f32, zeros for a foreign id. An
// invocation writes 32 elements. One module for each WEIGHT_TYPE. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#define WEIGHT_MODULES WEIGHT_ANY // kernels.py
#include "args.glsl"
#include "dequant.glsl"

void main() {
    uint k = uint(args.word[0]), n_group = (k + 31) / 32;
    uint index = invocation_number() % n_group, i = invocation_number() / n_group;
    if (i >= uint(args.word[1])) return;
    F32 y = F32(args.address[0] + (uint64_t(i) * k + 32 * index) * 4);
    uint n = min(k - 32 * index, 32);
    // Without overflow, whatever the id is.
    int64_t r = int64_t(I32(args.address[2]).at[i * args.word[2]]) -
                pack64(ivec2(args.word[3], args.word[4]));
    if (r < 0 || r >= int64_t(args.word[5])) {
        [[unroll]] for (uint e = 0; e < 32; e++) if (e < n) y.at[e] = 0;
        return;
    }
    uint64_t block = uint64_t(r) * uint(args.word[7]);
    WeightRow row = weight_row(args.address[1], uint64_t(args.word[5]) * uint(args.word[7]), block,
                               uint(args.word[6]));
    WeightGroup g = weight_group(row, index);
    [[unroll]] for (int q = 0; q < 8; q++) {
        vec4 code = weight_quad(row, g, index, q, k);
        [[unroll]] for (int c = 0; c < 4; c++) {
            precise float product = code[c] * g.scale[q / 4];
            precise float element = WEIGHT_IS_PLAIN != 0 ? code[c] : product + g.offset[q / 4];
            if (4 * q + c < n) y.at[4 * q + c] = element;
        }
    }
}
