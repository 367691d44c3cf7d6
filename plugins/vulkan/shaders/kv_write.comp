// SPDX-License-Identifier: MIT
//
// kv_write.comp: KV_WRITE: a workgroup for each token, head and side (K or V). See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "exact.glsl"
#include "page.glsl"

const int TYPE_K = SPEC0;
const int TYPE_V = SPEC1;
const int DIM_K = SPEC2;
const int DIM_V = SPEC3;
const int ROTATION_K = SPEC4;
const int ROTATION_V = SPEC5;
const int N_SIDE = SPEC6 & 3;
const bool IS_STRIDED = (SPEC6 & 4) != 0;
const int ROW_LEN = SPEC7 > 0 ? SPEC7 : 1;
#define ROW_GROUP  int(gl_WorkGroupSize.x)
#define ROW_TYPE_K TYPE_K
#define ROW_TYPE_V (N_SIDE > 1 ? TYPE_V : TYPE_K)
#include "page_row.glsl"
#include "page_rope.glsl"

// stride: along elements, heads and tokens
void row_read(uint64_t from, ivec3 stride, int head, int token, int dim, int stored) {
    uint64_t at = from + (int64_t(stride.y) * head + int64_t(stride.z) * token) * 4;
    for (int i = row_thread(); i < stored; i += ROW_GROUP)
        row_x[i] = i < dim ? F32(at + int64_t(stride.x) * i * 4).at[0] : 0.0;
    barrier();
}

void main() {
    int n_tok = args.word[7], n_head = args.word[8];
    uint number = group_number();
    int side = int(number % uint(N_SIDE)), head = int(number / uint(N_SIDE) % uint(n_head));
    int token = int(number / uint(N_SIDE * n_head));
    I32 step = I32(args.address[3]);
    if (token >= min(n_tok, step.at[STEP_N_TOK])) return;
    int cell = step.at[args.word[9] + token];
    int len = page_len(), stride = 1; // tokens of a page
    if (IS_STRIDED) {
        stride = args.word[17];
        len = args.word[18];
        int pos = step.at[args.word[19] + token];
        if (pos < 0 || pos % stride != stride - 1) return; // not the last of its run
    }
    if (cell < 0 || cell / len >= page_count()) return;
    uint64_t region = page_region(args.address[0], cell / len, head);
    int slot = IS_STRIDED ? cell % len / stride : cell % len;
    // One call for both sides, since compilers copy functions into each.
    bool is_v = side != 0;
    int type = is_v ? ROW_TYPE_V : TYPE_K, dim = is_v ? DIM_V : DIM_K;
    int stored = row_stored(type, dim);
    ivec3 strides = is_v ? ivec3(args.word[13], args.word[14], args.word[15])
                         : ivec3(args.word[10], args.word[11], args.word[12]);
    row_read(is_v ? args.address[2] : args.address[1], strides, head, token, dim, stored);
    if (!is_v) row_rope(token, 16, args.address[4], args.address[5]);
    row_rotate(0, stored, is_v ? ROTATION_V : ROTATION_K);
    row_quantize(type, 0, stored);
    if (is_v)
        row_store_v(TYPE_V, DIM_V, region, slot);
    else
        row_store_k(TYPE_K, DIM_K, region, slot, 0, stored);
}
