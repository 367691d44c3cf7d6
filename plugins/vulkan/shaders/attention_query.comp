// SPDX-License-Identifier: MIT
//
// attention_query.comp: query rows as the kernels of ATTENTION read them: turned by ROPE where the
// emitter says so, scaled, padded with zeros, rotated as K is. A workgroup for each token and head.
// See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"

const int DIM = SPEC0;
const int STORED = SPEC1;
const int ROTATION = SPEC2;
const int ROW_LEN = SPEC1 > 0 ? SPEC1 : 1;
#define ROW_GROUP int(gl_WorkGroupSize.x)
#include "page_rotate.glsl"
#include "page_rope.glsl"
#include "math.glsl"

void main() {
    int n_head = args.word[1], row = int(group_number());
    if (row >= args.word[0] * n_head) return;
    int head = row % n_head, token = row / n_head;
    float scale = intBitsToFloat(args.word[5]);
    if (args.address[4] != 0ul) { // a temperature by position
        uint pos = uint(max(I32(args.address[4]).at[token], 0));
        uint at = (pos + uint(args.word[12])) / uint(args.word[11]);
        scale *= 1.0 + intBitsToFloat(args.word[10]) * log_of_number(1u + at);
    }
    uint64_t from = args.address[1] +
                    (int64_t(args.word[3]) * head + int64_t(args.word[4]) * token) * 4;
    for (int i = row_thread(); i < STORED; i += ROW_GROUP) {
        float x = 0.0;
        if (i < DIM) x = F32(from + int64_t(args.word[2]) * i * 4).at[0];
        row_x[i] = x;
    }
    row_rope(token, 6, args.address[2], args.address[3]);
    for (int i = row_thread(); i < DIM; i += ROW_GROUP) {
        precise float x = row_x[i] * scale;
        row_x[i] = x;
    }
    row_rotate(0, STORED, ROTATION);
    if (ROTATION <= 1) barrier();
    F32 to = F32(args.address[0] + uint64_t(uint(row)) * uint64_t(STORED * 4));
    for (int i = row_thread(); i < STORED; i += ROW_GROUP) to.at[i] = row_x[i];
}
