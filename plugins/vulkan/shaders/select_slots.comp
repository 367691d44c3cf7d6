// SPDX-License-Identifier: MIT
//
// select_slots.comp: lists of positions, which ATTENTION is given, as a bit for each slot of the
// pages of a token's sequence. An invocation for each word. See kernel.h.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "page.glsl"
#include "attention.glsl"

const int N_TOP = SPEC0;

int position(I32 list, int i) {
    return list.at[i * args.word[9]];
}

// The first element of a list that is not below pos: positions rise, and -1 follows them.
int find(I32 list, int pos) {
    int low = 0, high = N_TOP;
    while (low < high) {
        int middle = (low + high) / 2, at = position(list, middle);
        if (at >= 0 && at < pos)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void main() {
    int n_word = (page_len() + 31) / 32, n_entry = args.word[17], n_tok = args.word[7];
    uint number = invocation_number();
    if (number >= uint(args.word[12])) return;
    uint at = number / uint(n_word), of_token = at / uint(n_entry);
    int first_slot = int(number - at * uint(n_word)) * 32;
    int entry_at = int(at - of_token * uint(n_entry));
    int n_list = int(of_token / uint(n_tok)), token = int(of_token - uint(n_list * n_tok));

    I32 step = I32(args.address[2]);
    if (token >= step.at[STEP_N_TOK]) return;
    step_entries e =
        entries_of(args.address[2], step.at[args.word[13] + token],
                   ivec2(args.word[14], args.word[15]), ivec2(args.word[16], n_entry));
    if (e.first + entry_at >= e.last) return;
    ivec4 entry = entry_read(e, e.first + entry_at);
    int first = max(first_slot, entry.y), last = min(first_slot + 32, entry.y + entry.z);
    uint bits = 0;
    if (first < last) {
        I32 list = I32(args.address[1] +
                       4 * uint64_t(uint(token * args.word[10] + n_list * args.word[11])));
        int pos = entry.w + first - entry.y, end = entry.w + last - entry.y;
        for (int i = find(list, pos); i < N_TOP; i++) {
            int listed = position(list, i);
            if (listed < 0 || listed >= end) break;
            bits |= 1u << uint(listed - pos + first - first_slot);
        }
    }
    U32(args.address[0]).at[number] = bits;
}
