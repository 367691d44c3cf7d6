// SPDX-License-Identifier: MIT
//
// attention_merge.comp: the last part of ATTENTION: folds the records of a token and head, adds the
// sink, divides, and undoes the rotation of V. A workgroup for each token and head. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "page.glsl"
#include "attention.glsl"

const int STORED = SPEC0; // elements of o in a record
const int DIM_V = SPEC1;
const int ROTATION = SPEC2;
const int ROW_LEN = SPEC0 > 0 ? SPEC0 : 1;
#define ROW_GROUP int(gl_WorkGroupSize.x)
#include "page_rotate.glsl"

void main() {
    int n_head = args.word[1], n_part = args.word[2], row = int(group_number());
    if (row >= args.word[0] * n_head) return;
    int record = PART_HEAD + STORED;
    F32 parts = F32(args.address[2] + uint64_t(uint(row * n_part)) * uint64_t(uint(record * 4)));
    precise float m = NEGATIVE_INFINITY, l = 0.0;
    for (int part = 0; part < n_part; part++) {
        int at = part * record;
        float part_m = parts.at[at], part_l = parts.at[at + 1];
        if (part_m == NEGATIVE_INFINITY) continue; // its o was not written
        float larger = max(m, part_m);
        float keep = m == larger ? 1.0 : exp_of_negative(m - larger);
        float gain = part_m == larger ? 1.0 : exp_of_negative(part_m - larger);
        for (int i = row_thread(); i < STORED; i += ROW_GROUP) {
            float sum = m == NEGATIVE_INFINITY ? 0.0 : row_x[i];
            precise float kept = sum * keep;
            row_x[i] = fma(parts.at[at + PART_HEAD + i], gain, kept);
        }
        precise float kept_l = l * keep;
        l = fma(part_l, gain, kept_l);
        m = larger;
    }

    float factor = 0.0, total = l;
    if (m != NEGATIVE_INFINITY) {
        factor = 1.0 / l;
        if (args.address[3] != 0) {
            float sink = F32(args.address[3] + int64_t(args.word[3]) * (row % n_head) * 4).at[0];
            // Relative to the larger of the two nothing overflows.
            float extra = sink - m, by = exp_of_negative(-abs(extra));
            total = l + exp(extra);
            factor = extra > 0.0 ? by / (l * by + 1.0) : 1.0 / (l + by);
        }
        for (int i = row_thread(); i < STORED; i += ROW_GROUP) row_x[i] *= factor;
        row_rotate(0, STORED, ROTATION);
    }
    if (ROTATION <= 1) barrier();
    F32 to = F32(args.address[0] + uint64_t(uint(row)) * uint64_t(uint(DIM_V * 4)));
    for (int i = row_thread(); i < DIM_V; i += ROW_GROUP)
        to.at[i] = m == NEGATIVE_INFINITY ? 0.0 : row_x[i];
    if (args.address[1] == 0 || row_thread() != 0) return;
    F32 ml = F32(args.address[1] + uint64_t(uint(row)) * 8);
    ml.at[0] = m;
    ml.at[1] = total;
}
