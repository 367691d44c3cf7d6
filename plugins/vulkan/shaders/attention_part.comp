// SPDX-License-Identifier: MIT
//
// attention_part.comp: ATTENTION of a token's query heads that share a KV head, over one part of
// its sequence: m, l and o of each go to the part's record, and attention_merge.comp folds the
// records. A workgroup of CHUNK threads for each token, KV head, block of ROWS heads and part. See
// kernel.h.
//
// For each chunk, a thread computes the scores of one slot, then folds the chunk into the elements
// of o that it owns: those of every CHUNK-th column of V.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "page.glsl"
#include "attention.glsl"

const int TYPE_K = SPEC0;
const int TYPE_V = SPEC1;
const int STORED_K = SPEC2 > 0 ? SPEC2 : 32; // elements of a query row
const int DIM_V = SPEC3;                     // elements of o
const int ROWS = SPEC4 > 0 ? SPEC4 : 1;
const bool V_FROM_K = (SPEC5 & 2) != 0;
const bool HAS_SLOPES = (SPEC5 & 16) != 0;
const bool HAS_BIAS = (SPEC5 & 64) != 0;
const bool HAS_LIST = (SPEC5 & 128) != 0;
const int WINDOW = SPEC6;
#define SOFTCAP (HAS_BIAS ? 0.0 : intBitsToFloat(SPEC7))

const bool IS_PAIR = COLUMN_IS_PAIR(TYPE_V);
const int N_COLUMN = IS_PAIR ? SPEC3 / 2 : SPEC3;
const int OWN = (N_COLUMN + CHUNK - 1) / CHUNK > 0 ? (N_COLUMN + CHUNK - 1) / CHUNK : 1;

shared vec4 query[ROWS * STORED_K / 4];
shared float scores[2 * ROWS * CHUNK];
int turn = 0; // the half of `scores` that the present chunk uses; the one before uses the other
#define SCORE(row, slot) scores[(turn * ROWS + (row)) * CHUNK + (slot)]
#define THREADS CHUNK
#include "attention_fold.glsl"

float acc[ROWS * OWN];   // first elements of columns thread(), thread() + CHUNK, ...
float acc_b[ROWS * OWN]; // second ones, of pairs

// The scores of this thread's slot, for all rows.
void score_slot(uint64_t region, int slot, bool is_visible) {
    float s[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; r++) s[r] = 0.0;
    int n_block = STORED_K / 32;
    if (is_visible) {
        for (int u = 0; u < STORED_K / unit_len(TYPE_K); u++) {
            vec4 x[8];
            unit_load(TYPE_K, region, n_block, slot, u, x);
            [[unroll]] for (int i = 0; i < unit_len(TYPE_K) / 4; i++) {
                [[unroll]] for (int r = 0; r < ROWS; r++) {
                    vec4 q = query[(r * STORED_K + u * unit_len(TYPE_K)) / 4 + i];
                    precise float sum = fma(q.x, x[i].x, s[r]);
                    sum = fma(q.y, x[i].y, sum);
                    sum = fma(q.z, x[i].z, sum);
                    s[r] = fma(q.w, x[i].w, sum);
                }
            }
        }
    }
    [[unroll]] for (int r = 0; r < ROWS; r++) {
        // Rows behind the last head are not stored.
        int head = min(walk_head + r, args.word[8] - 1);
        if (HAS_SLOPES)
            s[r] = score_biased(s[r], F32(args.address[4]).at[head], walk_distance - thread());
        if (HAS_BIAS) {
            float bias = bias_of(args.address[4], SPEC7, head, walk_distance - thread());
            precise float biased = s[r] + bias;
            s[r] = biased;
        }
        SCORE(r, thread()) = score_of(s[r], SOFTCAP, is_visible);
    }
}

// o = keep o + p V over the chunk's slots first .. last - 1; they begin at `start` in the page.
void fold(uint64_t region, int start, int first, int last) {
    [[unroll]] for (int r = 0; r < ROWS; r++) {
        float keep = row_keep[r];
        [[unroll]] for (int k = 0; k < OWN; k++) {
            precise float a = acc[r * OWN + k] * keep, b = acc_b[r * OWN + k] * keep;
            acc[r * OWN + k] = a;
            if (IS_PAIR) acc_b[r * OWN + k] = b;
        }
    }
    int n_block = V_FROM_K ? STORED_K / 32 : DIM_V / 32;
    for (int quad = first / 4; quad < (last + 3) / 4; quad++) {
        if (HAS_LIST && !chunk_has_quad(walk_listed, quad)) continue;
        bvec4 is_seen = bvec4(4 * quad >= first, 4 * quad + 1 >= first && 4 * quad + 1 < last,
                              4 * quad + 2 >= first && 4 * quad + 2 < last, 4 * quad + 3 < last);
        [[unroll]] for (int k = 0; k < OWN; k++) {
            int column = thread() + k * CHUNK;
            if (N_COLUMN % CHUNK != 0 && column >= N_COLUMN) continue;
            vec4 a, b;
            if (V_FROM_K)
                column_load_from_k(TYPE_V, n_block, region, start + 4 * quad, column, a, b);
            else
                column_load(TYPE_V, N_COLUMN, n_block, region, start + 4 * quad, column, a, b);
            a = mix(vec4(0.0), a, is_seen);
            b = mix(vec4(0.0), b, is_seen);
            if (HAS_LIST) {
                [[unroll]] for (int i = 0; i < 4; i++)
                    if (!chunk_has(walk_listed, 4 * quad + i)) a[i] = b[i] = 0.0;
            }
            [[unroll]] for (int r = 0; r < ROWS; r++) {
                precise float sum = acc[r * OWN + k], sum_b = acc_b[r * OWN + k];
                [[unroll]] for (int i = 0; i < 4; i++) {
                    sum = fma(SCORE(r, 4 * quad + i), a[i], sum);
                    if (IS_PAIR) sum_b = fma(SCORE(r, 4 * quad + i), b[i], sum_b);
                }
                acc[r * OWN + k] = sum;
                acc_b[r * OWN + k] = sum_b;
            }
        }
    }
}

void rows_begin(uint64_t queries, int n_row) {
    for (int i = thread(); i < ROWS * STORED_K / 4; i += THREADS)
        query[i] = i < n_row * STORED_K / 4 ? F32x4(queries).at[i] : vec4(0.0);
    rows_clear();
    [[unroll]] for (int k = 0; k < ROWS * OWN; k++) acc[k] = acc_b[k] = 0.0;
    barrier();
}

void chunk_attend(uint64_t region, int start, int first, int last) {
    score_slot(region, start + thread(),
               thread() >= first && thread() < last &&
                   (!HAS_LIST || chunk_has(walk_listed, thread())));
    chunk_softmax();
    fold(region, start, first, last);
    turn ^= 1;
}

void rows_store(uint64_t record, int n_part, int n_row, bool is_begun) {
    if (is_begun) barrier();
    uint64_t row_size = uint64_t(uint((PART_HEAD + DIM_V) * 4)) * uint64_t(n_part);
    [[unroll]] for (int r = 0; r < ROWS; r++) {
        if (r >= n_row) break;
        F32 to = F32(record + uint64_t(r) * row_size);
        if (thread() == 0) {
            to.at[0] = is_begun ? row_m[r] : NEGATIVE_INFINITY;
            to.at[1] = is_begun ? row_l[r] : 0.0;
        }
        if (!is_begun) continue;
        [[unroll]] for (int k = 0; k < OWN; k++) {
            int column = thread() + k * CHUNK;
            if (column >= N_COLUMN) continue;
            int element = column_element(TYPE_V, column);
            to.at[PART_HEAD + element] = acc[r * OWN + k];
            if (IS_PAIR) to.at[PART_HEAD + element + 16] = acc_b[r * OWN + k];
        }
    }
}

#include "attention_walk.glsl"
