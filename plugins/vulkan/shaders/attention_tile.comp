// SPDX-License-Identifier: MIT
//
// attention_tile.comp: ATTENTION of many tokens: a workgroup has TILE_ROWS query rows (neighbouring
// tokens, and the heads of each that share a KV head) and walks over their sequences in chunks of
// CHUNK slots. Rows of K and V become floats once, in shared memory. It computes the bits of
// attention_part.comp. See kernel.h.
//
// Either it folds all parts into one record for each row, over several dispatches where a driver
// bounds loops; or it is given some parts and writes a record for each.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "page.glsl"
#include "attention.glsl"

const int TYPE_K = SPEC0;
const int TYPE_V = SPEC1;
const int STORED_K = SPEC2 > 0 ? SPEC2 : 32;
const int DIM_V = SPEC3;
const int HEADS = SPEC4 > 0 ? SPEC4 : 1; // query heads of a tile
const bool V_FROM_K = (SPEC5 & 2) != 0;
const bool IS_SPLIT = (SPEC5 & 4) != 0; // a record for each part
const bool HAS_SLOPES = (SPEC5 & 16) != 0;
const bool HAS_BIAS = (SPEC5 & 64) != 0;
const bool HAS_LIST = (SPEC5 & 128) != 0;
const int WINDOW = SPEC6;
#define SOFTCAP (HAS_BIAS ? 0.0 : intBitsToFloat(SPEC7))

const int TILE_ROWS = 32;
const int SLICE_K = 32; // elements of Q and K that are in shared memory at a time
const int SLICE_V = 64; // elements of V
const int SLOTS_V = 16; // slots of V
const int N_SLICE_V = (SPEC3 + SLICE_V - 1) / SLICE_V > 0 ? (SPEC3 + SLICE_V - 1) / SLICE_V : 1;
const bool IS_PAIR = COLUMN_IS_PAIR(TYPE_V);
const int N_COLUMN = IS_PAIR ? SPEC3 / 2 : SPEC3;

// Vectors, with one unused behind each row so that banks do not collide. First Q [TILE_ROWS][8],
// then K [CHUNK][8]; or scores [TILE_ROWS][16], then V [SLOTS_V][16].
const int Q_PITCH = SLICE_K / 4 + 1;
const int S_PITCH = CHUNK / 4 + 1;
const int V_PITCH = SLICE_V / 4 + 1;
const int K_AT = TILE_ROWS * Q_PITCH;
const int V_AT = TILE_ROWS * S_PITCH;
shared vec4 tile[TILE_ROWS * Q_PITCH + CHUNK * Q_PITCH];
#define SCORE(row, slot) tile[(row) * S_PITCH + (slot) / 4][(slot) % 4]
#define ROWS TILE_ROWS
#define THREADS int(gl_WorkGroupSize.x)
#include "attention_fold.glsl"
#include "attention_tile_walk.glsl"

shared float total_m[TILE_ROWS]; // of the parts before the present one
shared float total_l[TILE_ROWS];

// Sixteen threads share OWN_ROWS rows: each has 4 slots (16 apart) or 4 elements of them.
const int OWN_ROWS = TILE_ROWS * 16 / int(gl_WorkGroupSize.x);
int row_group() {
    return thread() / 16 * OWN_ROWS;
}
int column_group() {
    return thread() % 16;
}

vec4 acc[N_SLICE_V * OWN_ROWS];

// ---- Scores ----

void query_load(int first) {
    for (int i = thread(); i < TILE_ROWS * SLICE_K / 4; i += THREADS) {
        int row = i / (SLICE_K / 4), at = i % (SLICE_K / 4);
        vec4 q = vec4(0.0);
        if (row_exists(row) && first + 4 * at < STORED_K)
            q = F32x4(args.address[1] + uint64_t(row_number(row)) * uint64_t(STORED_K * 4))
                    .at[first / 4 + at];
        tile[row * Q_PITCH + at] = q;
    }
}

void key_load(uint64_t region, int start, int first, int last, int element) {
    int len = unit_len(TYPE_K);
    for (int i = thread(); i < SLICE_K / len * CHUNK; i += THREADS) {
        int slot = i % CHUNK, unit = i / CHUNK, u = element / len + unit;
        if (slot < first || slot >= last) continue;
        int at = K_AT + slot * Q_PITCH + unit * len / 4;
        if (u * len >= STORED_K) {
            [[unroll]] for (int k = 0; k < len / 4; k++) tile[at + k] = vec4(0.0);
            continue;
        }
        vec4 x[8];
        unit_load(TYPE_K, region, STORED_K / 32, start + slot, u, x);
        [[unroll]] for (int k = 0; k < len / 4; k++) tile[at + k] = x[k];
    }
}

// Scores of all rows over slots first .. last - 1, of which slot 0 would be at position `pos`.
void score_tile(uint64_t region, int start, int first, int last, int pos) {
    vec4 s[OWN_ROWS]; // of row i: slots column_group() + 16 k
    [[unroll]] for (int i = 0; i < OWN_ROWS; i++) s[i] = vec4(0.0);
    for (int element = 0; element < STORED_K; element += SLICE_K) {
        barrier();
        query_load(element);
        key_load(region, start, first, last, element);
        barrier();
        for (int d = 0; d < SLICE_K / 4; d++) {
            vec4 k[4];
            [[unroll]] for (int c = 0; c < 4; c++)
                k[c] = tile[K_AT + (column_group() + 16 * c) * Q_PITCH + d];
            [[unroll]] for (int i = 0; i < OWN_ROWS; i++) {
                vec4 q = tile[(row_group() + i) * Q_PITCH + d];
                [[unroll]] for (int c = 0; c < 4; c++) {
                    precise float sum = fma(q.x, k[c].x, s[i][c]);
                    sum = fma(q.y, k[c].y, sum);
                    sum = fma(q.z, k[c].z, sum);
                    s[i][c] = fma(q.w, k[c].w, sum);
                }
            }
        }
    }
    barrier();
    [[unroll]] for (int i = 0; i < OWN_ROWS; i++) {
        int row = row_group() + i;
        ivec2 sees = row_sees[row];
        float slope = 0.0;
        int row_pos = 0;
        if (HAS_SLOPES && row_exists(row))
            slope = F32(args.address[4]).at[head_first + row % HEADS];
        if ((HAS_SLOPES || HAS_BIAS) && row_exists(row))
            row_pos = I32(args.address[3]).at[args.word[12] + row_token(row)];
        uvec2 listed = uvec2(0u);
        if (HAS_LIST && row_exists(row))
            listed = list_chunk(list_of(args.address[5], row_token(row), chunk_kv), chunk_entry, start);
        [[unroll]] for (int c = 0; c < 4; c++) {
            int slot = column_group() + 16 * c;
            bool is_visible =
                slot >= first && slot < last && pos + slot >= sees.x && pos + slot <= sees.y;
            float score = s[i][c];
            if (HAS_SLOPES) score = score_biased(score, slope, row_pos - pos - slot);
            if (HAS_BIAS && row_exists(row)) {
                int head = head_first + row % HEADS;
                precise float biased =
                    score + bias_of(args.address[4], SPEC7, head, row_pos - pos - slot);
                score = biased;
            }
            if (HAS_LIST) is_visible = is_visible && chunk_has(listed, slot);
            SCORE(row, slot) = score_of(score, SOFTCAP, is_visible);
        }
    }
}

// ---- Values ----

void value_load(uint64_t region, int start, int slot_first, int first, int last, int slice) {
    int n = SLICE_V / (IS_PAIR ? 2 : 1);
    int n_block = V_FROM_K ? STORED_K / 32 : DIM_V / 32;
    for (int i = thread(); i < n * SLOTS_V / 4; i += THREADS) {
        int column = slice * n + i % n, quad = i / n, slot = slot_first + 4 * quad;
        vec4 a = vec4(0.0), b = vec4(0.0);
        if (column < N_COLUMN && slot < last && slot + 4 > first) {
            if (V_FROM_K)
                column_load_from_k(TYPE_V, n_block, region, start + slot, column, a, b);
            else
                column_load(TYPE_V, N_COLUMN, n_block, region, start + slot, column, a, b);
        }
        int element = column_element(TYPE_V, column) - slice * SLICE_V;
        [[unroll]] for (int k = 0; k < 4; k++) {
            bool is_seen = slot + k >= first && slot + k < last;
            int at = V_AT + (4 * quad + k) * V_PITCH;
            tile[at + element / 4][element % 4] = is_seen ? a[k] : 0.0;
            if (IS_PAIR) tile[at + (element + 16) / 4][element % 4] = is_seen ? b[k] : 0.0;
        }
    }
}

// acc of slice n += p V of slots slot_first .. slot_first + SLOTS_V - 1, which are in shared memory
void slice_fold(int slot_first, bool is_whole, int n) {
    for (int quad = 0; quad < SLOTS_V / 4; quad++) {
        vec4 p[OWN_ROWS];
        [[unroll]] for (int i = 0; i < OWN_ROWS; i++)
            p[i] = tile[(row_group() + i) * S_PITCH + slot_first / 4 + quad];
        [[unroll]] for (int k = 0; k < 4; k++) {
            vec4 v = tile[V_AT + (4 * quad + k) * V_PITCH + column_group()];
            [[unroll]] for (int i = 0; i < OWN_ROWS; i++) {
                vec4 old = acc[n * OWN_ROWS + i];
                precise vec4 sum = fma(vec4(p[i][k]), v, old);
                acc[n * OWN_ROWS + i] = is_whole || p[i][k] != 0.0 ? sum : old;
            }
        }
    }
}

// acc += p V of slots first .. last - 1. is_whole: every row sees all of them. Each slice is named
// by a constant: Mesa's compiler unrolls no loop that has loops inside, and keeps an array with
// another index in memory.
void fold_tile(uint64_t region, int start, int first, int last, bool is_whole) {
    [[unroll]] for (int i = 0; i < OWN_ROWS; i++) {
        float keep = row_keep[row_group() + i];
        [[unroll]] for (int n = 0; n < N_SLICE_V; n++) {
            precise vec4 kept = acc[n * OWN_ROWS + i] * keep;
            acc[n * OWN_ROWS + i] = kept;
        }
    }
    for (int at = first / SLOTS_V * SLOTS_V; at < last; at += SLOTS_V) {
        for (int n = 0; n < N_SLICE_V; n++) {
            barrier();
            value_load(region, start, at, first, last, n);
            barrier();
#define SLICE_FOLD(number)                                                                         \
    if (N_SLICE_V > number && n == number) slice_fold(at, is_whole, number)
            SLICE_FOLD(0);
            SLICE_FOLD(1);
            SLICE_FOLD(2);
            SLICE_FOLD(3);
            SLICE_FOLD(4);
            SLICE_FOLD(5);
            SLICE_FOLD(6);
            SLICE_FOLD(7);
        }
    }
}

// ---- Parts ----

// Writes m, l and o of the present part to its records. Rows that saw none of its slots keep what
// records_clear wrote: m = -inf.
void part_write(int part, int n_part) {
    barrier();
    [[unroll]] for (int i = 0; i < OWN_ROWS; i++) {
        int row = row_group() + i;
        if (!row_exists(row) || row_m[row] == NEGATIVE_INFINITY) continue;
        F32 to = F32(record_address(row, part, n_part));
        if (column_group() == 0) {
            to.at[0] = row_m[row];
            to.at[1] = row_l[row];
        }
        [[unroll]] for (int n = 0; n < N_SLICE_V; n++) {
            int element = n * SLICE_V + 4 * column_group();
            if (element >= DIM_V) continue;
            F32x4(record_address(row, part, n_part)).at[(PART_HEAD + element) / 4] = acc[n * OWN_ROWS + i];
        }
    }
    barrier();
}

// Folds the present part into the row's record: the sums of attention_merge.comp.
void part_fold() {
    barrier();
    [[unroll]] for (int i = 0; i < OWN_ROWS; i++) {
        int row = row_group() + i;
        float m = total_m[row], part_m = row_m[row];
        if (!row_exists(row) || part_m == NEGATIVE_INFINITY) continue;
        float larger = max(m, part_m);
        float keep = keep_of(m, larger), gain = keep_of(part_m, larger);
        F32x4 record = F32x4(record_address(row, 0, 1));
        [[unroll]] for (int n = 0; n < N_SLICE_V; n++) {
            int element = n * SLICE_V + 4 * column_group();
            if (element >= DIM_V) continue;
            vec4 sum = vec4(0.0);
            if (m != NEGATIVE_INFINITY) sum = record.at[(PART_HEAD + element) / 4];
            precise vec4 kept = sum * keep;
            precise vec4 folded = fma(acc[n * OWN_ROWS + i], vec4(gain), kept);
            record.at[(PART_HEAD + element) / 4] = folded;
        }
    }
    barrier();
    for (int row = thread(); row < TILE_ROWS; row += THREADS) {
        float m = total_m[row], part_m = row_m[row], larger = max(m, part_m);
        if (part_m == NEGATIVE_INFINITY) continue;
        float keep = keep_of(m, larger), gain = keep_of(part_m, larger);
        precise float kept = total_l[row] * keep;
        total_l[row] = fma(row_l[row], gain, kept);
        total_m[row] = larger;
    }
    barrier();
}

void part_end(int part, int n_part) {
    if (IS_SPLIT)
        part_write(part, n_part);
    else
        part_fold();
    rows_clear();
    [[unroll]] for (int k = 0; k < N_SLICE_V * OWN_ROWS; k++) acc[k] = vec4(0.0);
    barrier();
}

// ---- A tile ----

void chunk_attend(uint64_t region, int start, int first, int last, int pos, bool is_whole) {
    score_tile(region, start, first, last, pos);
    chunk_softmax();
    // Rows of other runs have m = -inf: their sums are not used.
    fold_tile(region, start, first, last, is_whole);
}

// Sets the records of parts part_first .. part_last - 1 to m = -inf, which parts that see no slot
// keep.
void records_clear(int part_first, int part_last, int n_part) {
    int n = part_last - part_first;
    for (int i = thread(); i < TILE_ROWS * n; i += THREADS) {
        int row = i / n;
        if (!row_exists(row)) continue;
        F32 to = F32(record_address(row, part_first + i % n, n_part));
        to.at[0] = NEGATIVE_INFINITY;
        to.at[1] = 0.0;
    }
    memoryBarrierBuffer();
    barrier();
}

// Begins the sums over parts; or goes on with the row's record, which an earlier dispatch wrote.
void totals_begin(bool is_first) {
    for (int row = thread(); row < TILE_ROWS; row += THREADS) {
        total_m[row] = NEGATIVE_INFINITY;
        total_l[row] = 0.0;
        if (is_first || !row_exists(row)) continue;
        F32 from = F32(record_address(row, 0, 1));
        total_m[row] = from.at[0];
        total_l[row] = from.at[1];
    }
}

// Writes the sums over parts to the row's record.
void totals_end() {
    barrier();
    for (int row = thread(); row < TILE_ROWS; row += THREADS) {
        if (!row_exists(row)) continue;
        F32 to = F32(record_address(row, 0, 1));
        to.at[0] = total_m[row];
        to.at[1] = total_l[row];
    }
}

void tile_begin(ivec3 parts) {
    rows_clear();
    if (IS_SPLIT)
        records_clear(parts.x, parts.y, args.word[9] & 0xffff);
    else
        totals_begin(parts.x == 0);
    [[unroll]] for (int k = 0; k < N_SLICE_V * OWN_ROWS; k++) acc[k] = vec4(0.0);
}

void tile_end(ivec3 parts) {
    if (!IS_SPLIT) totals_end();
}
