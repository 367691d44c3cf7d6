// SPDX-License-Identifier: MIT
//
// attention_lane.comp: ATTENTION on devices with small subgroups. It gives the bits of
// attention_part.comp. A workgroup is 8 threads of one subgroup, and needs no barrier. A thread has
// 8 neighbouring slots of a chunk, with the scores of up to 4 query heads in registers, and then 4
// elements of o at a time. Numbers that all threads need go from thread to thread by shuffles. See
// kernel.h.
//
// Loads take most of the time on such devices. So a load of K serves all heads, a load of a query 8
// slots, and a load of V all heads. The page's slots are a multiple of 8. V has planes of its own.
// There are no slopes of ALiBi, no bias and no lists.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#include "args.glsl"
#include "page.glsl"
#include "attention.glsl"

const int TYPE_K = SPEC0;
const int TYPE_V = SPEC1;
const int STORED_K = SPEC2 > 0 ? SPEC2 : 32; // a multiple of 8
const int DIM_V = SPEC3;
const int ROWS = SPEC4 > 0 ? SPEC4 : 1; // up to 4
const bool HAS_LIST = false;
const int WINDOW = SPEC6;
#define SOFTCAP intBitsToFloat(SPEC7)

const int LANES = 8;
const bool K_IS_PLAIN = TYPE_IS_PLAIN(TYPE_K);
const bool V_IS_PLAIN = TYPE_IS_PLAIN(TYPE_V);
const bool IS_PAIR = COLUMN_IS_PAIR(TYPE_V);
const int N_COLUMN = IS_PAIR ? SPEC3 / 2 : SPEC3;
const int GROUP = IS_PAIR ? 16 : 32; // columns that the threads have at a time: of one block
const int N_GROUP = (N_COLUMN + GROUP - 1) / GROUP > 0 ? (N_COLUMN + GROUP - 1) / GROUP : 1;

// o, a vector of each thread for each head and group; no thread reads another's.
shared vec4 sums[ROWS * N_GROUP * LANES];

uint64_t query;
int n_own;             // heads of this workgroup
float m[4], l[4];      // the same in all threads
vec4 p_low[4], p_high[4]; // scores, then p, of the thread's slots 0 .. 3 and 4 .. 7

int lane() {
    return int(gl_SubgroupInvocationID);
}

vec4 halves(uint64_t four) {
    uvec2 words = unpackUint2x32(four);
    return vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y));
}
vec4 plain_four(int type, uint64_t four) {
    if (type == TYPE_F16) return halves(four);
    uvec2 words = unpackUint2x32(four);
    return uintBitsToFloat(uvec4(words.x << 16, words.x & 0xffff0000u, words.y << 16,
                                 words.y & 0xffff0000u));
}
vec4 floats_four(uint64_t low, uint64_t high) {
    return vec4(uintBitsToFloat(unpackUint2x32(low)), uintBitsToFloat(unpackUint2x32(high)));
}

// The scales d of 8 slots, and their minima m where the type has them, else 0.
void scales_eight(int type, uint64_t plane, uint at, out float d[8], out float low[8]) {
    if (type_has_min(type)) {
        [[unroll]] for (int i = 0; i < 4; i++) {
            vec4 two = halves(U64(plane + uint64_t(at) * 4).at[i]);
            d[2 * i] = two.x;
            low[2 * i] = two.y;
            d[2 * i + 1] = two.z;
            low[2 * i + 1] = two.w;
        }
    } else {
        [[unroll]] for (int i = 0; i < 2; i++) {
            vec4 four = halves(U64(plane + uint64_t(at) * 2).at[i]);
            [[unroll]] for (int k = 0; k < 4; k++) {
                d[4 * i + k] = four[k];
                low[4 * i + k] = 0.0;
            }
        }
    }
}
// The fifth bits of 8 slots.
void fifths_eight(uint64_t plane, uint at, out uint bits[8]) {
    [[unroll]] for (int i = 0; i < 4; i++) {
        uvec2 two = unpackUint2x32(U64(plane + uint64_t(at) * 4).at[i]);
        bits[2 * i] = two.x;
        bits[2 * i + 1] = two.y;
    }
}

// ---- Scores ----

void rows_begin(uint64_t queries, int n_row) {
    query = queries;
    n_own = n_row;
    [[unroll]] for (int r = 0; r < 4; r++) {
        m[r] = NEGATIVE_INFINITY;
        l[r] = 0.0;
    }
    [[dont_unroll]] for (int i = 0; i < ROWS * N_GROUP; i++) sums[i * LANES + lane()] = vec4(0.0);
}

// Elements 8 e .. 8 e + 7 of a block (plain types: e = 0) of slot c of the thread. at: their
// address for slot 0; next: bytes from a unit to the next.
void key_eight(uint64_t at, uint64_t next, int c, int e, float d, float low, uint fifth, out vec4 a,
               out vec4 b) {
    if (TYPE_K == TYPE_F32) {
        a = floats_four(U64(at).at[2 * c], U64(at).at[2 * c + 1]);
        b = floats_four(U64(at + next).at[2 * c], U64(at + next).at[2 * c + 1]);
    } else if (K_IS_PLAIN) {
        a = plain_four(TYPE_K, U64(at).at[2 * c]);
        b = plain_four(TYPE_K, U64(at).at[2 * c + 1]);
    } else {
        uvec2 words = unpackUint2x32(U64(at).at[2 * c]);
        bool is_pair = column_is_pair(TYPE_K);
        int shift = is_pair ? e / 2 * 4 : 0;
        uint mask = is_pair ? 15u : 255u;
        [[unroll]] for (int i = 0; i < 4; i++) {
            uint x = words.x >> 8 * i + shift & mask, y = words.y >> 8 * i + shift & mask;
            if (type_has_fifth(TYPE_K)) {
                x |= (fifth >> 8 * e + i & 1u) << 4;
                y |= (fifth >> 8 * e + i + 4 & 1u) << 4;
            }
            a[i] = code_scaled(TYPE_K, x, vec2(d, low));
            b[i] = code_scaled(TYPE_K, y, vec2(d, low));
        }
    }
}

void dot_eight(vec4 a, vec4 b, vec4 q_low, vec4 q_high, inout float s) {
    precise float sum = fma(q_low.x, a.x, s);
    sum = fma(q_low.y, a.y, sum);
    sum = fma(q_low.z, a.z, sum);
    sum = fma(q_low.w, a.w, sum);
    sum = fma(q_high.x, b.x, sum);
    sum = fma(q_high.y, b.y, sum);
    sum = fma(q_high.z, b.z, sum);
    sum = fma(q_high.w, b.w, sum);
    s = sum;
}

void score_slots(uint64_t region, int start) {
    int n_slot = page_slots();
    int slot = min(start + 8 * lane(), n_slot - 8); // those beyond the page are not seen
    uint64_t next = uint64_t(uint(n_slot * 16)), plane = region + page_k_scale();
    float s[32]; // of row r and slot c: 8 r + c
    [[unroll]] for (int i = 0; i < 32; i++) s[i] = 0.0;
    float d[8], low[8];
    uint fifth[8];
    [[unroll]] for (int c = 0; c < 8; c++) {
        d[c] = low[c] = 0.0;
        fifth[c] = 0u;
    }
    int len = K_IS_PLAIN ? 8 : 32, n_part = len / 8;
    [[dont_unroll]] for (int block = 0; block < STORED_K / len; block++) {
        if (!K_IS_PLAIN) {
            uint at = uint(block * n_slot + slot);
            scales_eight(TYPE_K, plane, at, d, low);
            if (type_has_fifth(TYPE_K))
                fifths_eight(plane + page_fifth(TYPE_K, STORED_K / 32), at, fifth);
        }
        [[dont_unroll]] for (int e = 0; e < n_part; e++) {
            int unit = TYPE_K == TYPE_F32    ? 2 * block
                       : TYPE_K == TYPE_Q8_0 ? 2 * block + e / 2
                                             : block;
            uint64_t at = region + uint64_t(uint((unit * n_slot + slot) * 16));
            if (!K_IS_PLAIN) at += uint64_t(e % 2 * 8);
            vec4 q_low[4], q_high[4];
            [[unroll]] for (int r = 0; r < 4; r++) {
                if (r >= ROWS) continue;
                int first = min(r, n_own - 1) * STORED_K + block * len + 8 * e;
                float q = F32(query).at[first + lane()];
                [[unroll]] for (int i = 0; i < 4; i++) {
                    q_low[r][i] = subgroupShuffle(q, i);
                    q_high[r][i] = subgroupShuffle(q, i + 4);
                }
            }
            [[unroll]] for (int c = 0; c < 8; c++) {
                vec4 a, b;
                key_eight(at, next, c, e, d[c], low[c], fifth[c], a, b);
                [[unroll]] for (int r = 0; r < 4; r++)
                    if (r < ROWS) dot_eight(a, b, q_low[r], q_high[r], s[8 * r + c]);
            }
        }
    }
    [[unroll]] for (int r = 0; r < 4; r++) {
        p_low[r] = vec4(s[8 * r], s[8 * r + 1], s[8 * r + 2], s[8 * r + 3]);
        p_high[r] = vec4(s[8 * r + 4], s[8 * r + 5], s[8 * r + 6], s[8 * r + 7]);
    }
}

// The softmax of a chunk for row r: scores become p, m and l are updated (chunk_softmax of
// attention_fold.glsl). Returns the factor for o of the chunks before.
float row_softmax(int r, int first, int last) {
    float largest = NEGATIVE_INFINITY;
    [[unroll]] for (int i = 0; i < 4; i++) {
        int slot = 8 * lane() + i;
        p_low[r][i] = score_of(p_low[r][i], SOFTCAP, slot >= first && slot < last);
        p_high[r][i] = score_of(p_high[r][i], SOFTCAP, slot + 4 >= first && slot + 4 < last);
        largest = max(largest, max(p_low[r][i], p_high[r][i]));
    }
    float old = m[r];
    m[r] = max(old, subgroupMax(largest));
    precise float eighth = 0.0;
    [[unroll]] for (int i = 0; i < 4; i++) {
        float p = p_of(p_low[r][i], m[r]);
        p_low[r][i] = p;
        eighth = eighth + p;
    }
    [[unroll]] for (int i = 0; i < 4; i++) {
        float p = p_of(p_high[r][i], m[r]);
        p_high[r][i] = p;
        eighth = eighth + p;
    }
    float keep = keep_of(old, m[r]);
    precise float kept = l[r] * keep, sum = 0.0;
    [[unroll]] for (int k = 0; k < LANES; k++) sum = sum + subgroupShuffle(eighth, k);
    l[r] = kept + sum;
    return keep;
}

// ---- o ----

// The elements of slots slot .. slot + 7 in this thread's columns of the group: v[slot] has four
// columns, or, of pairs, the first elements of two columns in x and y and their second ones in z
// and w.
void value_load(uint64_t region, int slot, int group, out vec4 v[8]) {
    uint64_t codes = region + page_v_code();
    int n_slot = page_slots(), quad = slot / 4 * N_COLUMN;
    if (V_IS_PLAIN) {
        [[unroll]] for (int k = 0; k < 4; k++) {
            int column = min(group * GROUP + 8 * k + lane(), N_COLUMN - 1);
            [[unroll]] for (int h = 0; h < 2; h++) {
                uint at = uint(quad + h * N_COLUMN + column);
                vec4 four = TYPE_V == TYPE_F32
                                ? floats_four(U64(codes).at[2 * at], U64(codes).at[2 * at + 1])
                                : plain_four(TYPE_V, U64(codes).at[at]);
                [[unroll]] for (int i = 0; i < 4; i++) v[4 * h + i][k] = four[i];
            }
        }
        return;
    }
    float d[8], low[8];
    uint fifth[8];
    uint at = uint(group * n_slot + slot);
    uint64_t plane = region + page_v_scale();
    scales_eight(TYPE_V, plane, at, d, low);
    if (type_has_fifth(TYPE_V)) fifths_eight(plane + page_fifth(TYPE_V, DIM_V / 32), at, fifth);
    [[unroll]] for (int k = 0; k < 4; k++) {
        if (IS_PAIR && k >= 2) continue;
        uint column = uint(group * GROUP + 8 * k + lane());
        [[unroll]] for (int h = 0; h < 2; h++) {
            uint word = U32(codes).at[uint(quad + h * N_COLUMN) + column];
            [[unroll]] for (int i = 0; i < 4; i++) {
                int c = 4 * h + i;
                uint code = word >> 8 * i & (IS_PAIR ? 15u : 255u);
                uint second = word >> 8 * i + 4 & 15u;
                if (type_has_fifth(TYPE_V)) {
                    code |= (fifth[c] >> 8 * k + lane() & 1u) << 4;
                    second |= (fifth[c] >> 8 * k + lane() + 16 & 1u) << 4;
                }
                v[c][k] = code_scaled(TYPE_V, code, vec2(d[c], low[c]));
                if (IS_PAIR) v[c][k + 2 & 3] = code_scaled(TYPE_V, second, vec2(d[c], low[c]));
            }
        }
    }
}

void chunk_attend(uint64_t region, int start, int first, int last) {
    score_slots(region, start);
    float keep[4];
    [[unroll]] for (int r = 0; r < 4; r++)
        if (r < ROWS) keep[r] = row_softmax(r, first, last);
    [[dont_unroll]] for (int group = 0; group < N_GROUP; group++) {
        vec4 acc[4];
        [[unroll]] for (int r = 0; r < 4; r++) {
            if (r >= ROWS) continue;
            precise vec4 kept = sums[(r * N_GROUP + group) * LANES + lane()] * keep[r];
            acc[r] = kept;
        }
        [[dont_unroll]] for (int eight = first / 8; eight < (last + 7) / 8; eight++) {
            vec4 v[8];
            value_load(region, start + 8 * eight, group, v);
            [[unroll]] for (int i = 0; i < 8; i++) {
                int slot = 8 * eight + i;
                // What is not seen may hold anything.
                vec4 x = slot >= first && slot < last ? v[i] : vec4(0.0);
                [[unroll]] for (int r = 0; r < 4; r++) {
                    if (r >= ROWS) continue;
                    float p = subgroupShuffle(i < 4 ? p_low[r][i & 3] : p_high[r][i & 3], eight);
                    precise vec4 next = fma(vec4(p), x, acc[r]);
                    acc[r] = next;
                }
            }
        }
        [[unroll]] for (int r = 0; r < 4; r++)
            if (r < ROWS) sums[(r * N_GROUP + group) * LANES + lane()] = acc[r];
    }
}

void rows_store(uint64_t record, int n_part, int n_row, bool is_begun) {
    uint64_t row_size = uint64_t(uint((PART_HEAD + DIM_V) * 4)) * uint64_t(n_part);
    [[unroll]] for (int r = 0; r < 4; r++) {
        if (r >= ROWS || r >= n_row) continue;
        F32 to = F32(record + uint64_t(r) * row_size);
        if (lane() == 0) {
            to.at[0] = is_begun ? m[r] : NEGATIVE_INFINITY;
            to.at[1] = is_begun ? l[r] : 0.0;
        }
        if (!is_begun) continue;
        [[dont_unroll]] for (int group = 0; group < N_GROUP; group++) {
            vec4 x = sums[(r * N_GROUP + group) * LANES + lane()];
            [[unroll]] for (int k = 0; k < 4; k++) {
                int column = group * GROUP + 8 * (IS_PAIR ? k % 2 : k) + lane();
                int element = column_element(TYPE_V, column) + (IS_PAIR ? k / 2 * 16 : 0);
                if (column < N_COLUMN) to.at[PART_HEAD + element] = x[k];
            }
        }
    }
}

#include "attention_walk.glsl"
