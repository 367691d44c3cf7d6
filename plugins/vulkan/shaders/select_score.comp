// SPDX-License-Identifier: MIT
//
// select_score.comp: KV_SELECT: a key for each score of a token. A workgroup of CHUNK threads for
// each token, entry of the page table and chunk of CHUNK slots of its page; it computes with ROWS
// heads of the queries at a time. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "page.glsl"
#include "attention.glsl"
#include "select.glsl"

const int TYPE_K = SPEC0;
const bool HAS_WEIGHTS = SPEC1 != 0;
const int STORED_K = SPEC2 > 0 ? SPEC2 : 32;
const int ROWS = SPEC4 > 0 ? SPEC4 : 1;

shared vec4 query[ROWS * STORED_K / 4];

// Queries of heads first .. + ROWS - 1.
void queries_load(int token, int first) {
    int n_head = args.word[8], n = min(ROWS, n_head - first) * STORED_K / 4;
    F32x4 from = F32x4(args.address[1] + uint64_t(uint(token * n_head + first)) * uint64_t(STORED_K * 4));
    barrier(); // those before have been used
    for (int i = thread(); i < ROWS * STORED_K / 4; i += CHUNK)
        query[i] = i < n ? from.at[i] : vec4(0.0);
    barrier();
}

void main() {
    int n_chunk = args.word[11], n_entry = args.word[17], n_head = args.word[8];
    uint number = group_number();
    int start = int(number % uint(n_chunk)) * CHUNK;
    number /= uint(n_chunk);
    int entry_at = int(number % uint(n_entry)), at = int(number / uint(n_entry));
    if (at >= args.word[10]) return;
    int token = args.word[9] + at;

    uint64_t step = args.address[3];
    if (token >= I32(step).at[STEP_N_TOK]) return;
    int pos = pos_row(I32(step).at[args.word[12] + token]);
    if (pos < 0) return;
    step_entries e =
        entries_of(step, I32(step).at[args.word[13] + token],
                   ivec2(args.word[14], args.word[15]), ivec2(args.word[16], n_entry));
    if (e.first + entry_at >= e.last) return;
    ivec4 entry = entry_read(e, e.first + entry_at);

    int slot = start + thread(), of_entry = slot - entry.y;
    bool is_there = slot < page_len();
    bool is_visible = is_there && of_entry >= 0 && of_entry < entry.z && entry.w <= pos &&
                      of_entry <= pos - entry.w;
    int n_key = n_entry * page_len(), key_at = entry_at * page_len() + slot;
    int n_list = HAS_WEIGHTS ? 1 : n_head;
    uint64_t region = page_region(args.address[2], is_visible ? entry.x : 0, 0);
    float total = 0.0;
    for (int first = 0; first < n_head; first += ROWS) {
        float s[ROWS];
        [[unroll]] for (int r = 0; r < ROWS; r++) s[r] = 0.0;
        queries_load(token, first);
        if (is_visible) {
            for (int u = 0; u < STORED_K / unit_len(TYPE_K); u++) {
                vec4 x[8];
                unit_load(TYPE_K, region, STORED_K / 32, slot, u, x);
                [[unroll]] for (int i = 0; i < unit_len(TYPE_K) / 4; i++)
                    [[unroll]] for (int r = 0; r < ROWS; r++)
                        s[r] += dot(query[(r * STORED_K + u * unit_len(TYPE_K)) / 4 + i], x[i]);
            }
        }
        [[unroll]] for (int r = 0; r < ROWS; r++) {
            int head = first + r;
            if (head >= n_head || !is_there) break;
            if (HAS_WEIGHTS) {
                int w = head * args.word[18] + token * args.word[19];
                total += F32(args.address[4]).at[w] * (s[r] < 0.0 ? 0.0 : s[r]);
            } else {
                key_row(args.address[0], at * n_list + head, n_key).at[key_at] =
                    is_visible ? key_of(s[r]) : KEY_NONE;
            }
        }
    }
    if (HAS_WEIGHTS && is_there)
        key_row(args.address[0], at, n_key).at[key_at] = is_visible ? key_of(total) : KEY_NONE;
}
