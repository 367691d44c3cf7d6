// SPDX-License-Identifier: MIT
//
// attention_merge.comp: the last step of ATTENTION: folds the records of a token and head, adds the
// sink, divides, undoes the rotation of V, and stores o; with HAS_BYTES as bytes too. A workgroup
// for each token and head. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "page.glsl"
#include "attention.glsl"

const int STORED = SPEC0; // elements of o in a record
const int DIM_V = SPEC1;
const int ROTATION = SPEC2;
const int PARTS_EACH = SPEC3 > 1 ? SPEC3 : 1; // of a record
const bool HAS_BYTES = SPEC4 != 0; // then DIM_V is a multiple of 32, and there is no ml
const int ROW_LEN = SPEC0 > 0 ? SPEC0 : 1;
#define ROW_GROUP int(gl_WorkGroupSize.x)
#include "page_rotate.glsl"
#define BYTES_ROOM (HAS_BYTES ? 2 * BYTES_THREADS : 1)
#include "bytes_store.glsl"

// Of each of PARTS_AT_ONCE parts:
//   part_m, part_l   m and l of its record
//   keep             factor for o and l of the parts before it
//   gain             factor for its own o and l; -1 where it saw no slot, so that it has no o
//   most             the greatest m of the parts up to it
const int PARTS_AT_ONCE = 64, N_AHEAD = 16;
shared float part_m[PARTS_AT_ONCE], part_l[PARTS_AT_ONCE], keep[PARTS_AT_ONCE], gain[PARTS_AT_ONCE],
    most[PARTS_AT_ONCE];

float m, l; // of the parts so far

// Fills these arrays for `count` parts, and adds the parts to l and m.
void parts_begin(F32 parts, int record, int count) {
    barrier();
    for (int i = row_thread(); i < count; i += ROW_GROUP) {
        part_m[i] = parts.at[i * record];
        part_l[i] = parts.at[i * record + 1];
    }
    barrier();
    for (int i = row_thread(); i < count; i += ROW_GROUP) {
        float before = m, own = part_m[i];
        for (int k = 0; k < i; k++) before = max(before, part_m[k]);
        float larger = max(before, own);
        keep[i] = keep_of(before, larger);
        gain[i] = keep_of(own, larger);
        if (own == NEGATIVE_INFINITY) gain[i] = -1.0;
        most[i] = larger;
    }
    barrier();
    for (int i = 0; i < count; i++) {
        if (gain[i] < 0.0) continue;
        precise float kept = l * keep[i];
        precise float sum = fma(part_l[i], gain[i], kept);
        l = sum;
    }
    m = most[count - 1];
}

// Adds `count` parts to o, which is in row_x. N_AHEAD parts are loaded before the first is added.
void parts_add(F32 parts, int record, int count) {
    for (int i = row_thread(); i < STORED; i += ROW_GROUP) {
        float sum = row_x[i];
        [[dont_unroll]] for (int first = 0; first < count; first += N_AHEAD) {
            float o[N_AHEAD];
            [[unroll]] for (int k = 0; k < N_AHEAD; k++)
                o[k] = parts.at[min(first + k, count - 1) * record + PART_HEAD + i];
            [[unroll]] for (int k = 0; k < N_AHEAD; k++) {
                if (first + k >= count) break;
                precise float kept = sum * keep[first + k];
                if (!(gain[first + k] < 0.0)) sum = fma(o[k], gain[first + k], kept);
            }
        }
        row_x[i] = sum;
    }
}

// o of the head as bytes, which follow those of the token's other heads.
void bytes_add(uint row) {
    uint n_head = uint(args.word[1]), token = row / n_head, n_group = uint(DIM_V) / 32, trip = 0;
    bool is_prompt = args.address[5] != 0 && bytes_is_prompt(args.address[5], token, 4);
    for (uint first = 0; first < 8 * n_group; first += gl_WorkGroupSize.x) {
        uint u = first + gl_LocalInvocationID.x;
        vec4 v = vec4(0.0);
        if (u < 8 * n_group && m != NEGATIVE_INFINITY)
            v = vec4(row_x[4 * u], row_x[4 * u + 1], row_x[4 * u + 2], row_x[4 * u + 3]);
        bytes_store(args.address[1], uint64_t(uint(args.word[0]) * n_head) * n_group,
                    row * n_group + u / 8, v, is_prompt, u < 8 * n_group, token,
                    row == token * n_head && u < 8, trip++);
    }
}

void main() {
    int n_head = args.word[1], n_record = args.word[2], row = int(group_number());
    if (row >= args.word[0] * n_head) return;
    // Records of parts that no sequence reaches are not written.
    int n_used = (parts_used(args.address[4], n_record * PARTS_EACH) + PARTS_EACH - 1) / PARTS_EACH;
    int record = PART_HEAD + STORED;
    uint64_t parts = args.address[2] + uint64_t(uint(row * n_record)) * uint64_t(uint(record * 4));
    m = NEGATIVE_INFINITY;
    l = 0.0;
    for (int i = row_thread(); i < STORED; i += ROW_GROUP) row_x[i] = 0.0;
    for (int first = 0; first < n_used; first += PARTS_AT_ONCE) {
        F32 from = F32(parts + uint64_t(uint(first * record)) * 4);
        int count = min(n_used - first, PARTS_AT_ONCE);
        parts_begin(from, record, count);
        parts_add(from, record, count);
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
    if (HAS_BYTES) bytes_add(uint(row));
    if (HAS_BYTES || args.address[1] == 0 || row_thread() != 0) return;
    F32 ml = F32(args.address[1] + uint64_t(uint(row)) * 8);
    ml.at[0] = m;
    ml.at[1] = total;
}
