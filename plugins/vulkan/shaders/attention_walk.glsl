// SPDX-License-Identifier: MIT
//
// attention_walk.glsl: main() of the kernels that have a workgroup for each token, KV head, block
// of ROWS query heads and part of a sequence. The includer defines the constants ROWS, STORED_K,
// DIM_V, WINDOW and HAS_LIST, and these functions, which all threads reach:
//   rows_begin(queries, n_row)   before the first chunk; queries: where the first row's query is
//   chunk_attend(region, start, first, last)   slots first .. last - 1 behind slot `start` of the
//                                page; walk_head, walk_distance and walk_listed are set
//   rows_store(record, n_part, n_row, is_begun)   writes the rows' records, n_part records apart;
//                                is_begun false: no slot was seen, and rows_begin was not called

void main() {
    int n_tok = args.word[7], n_head = args.word[8], n_part = args.word[9];
    int heads_per_kv = args.word[11], n_kv = args.word[19];
    int n_block = (heads_per_kv + ROWS - 1) / ROWS; // of rows of a KV head
    // Parts that no sequence reaches are the last workgroups. They have no records.
    uint number = group_number(), n_of_part = uint(n_tok * n_kv * n_block);
    uint64_t step = args.address[3];
    int part = int(number / n_of_part), n_used = parts_used(step, n_part);
    if (part >= n_used) return;
    number %= n_of_part;
    int block = int(number % uint(n_block));
    number /= uint(n_block);
    int kv = int(number % uint(n_kv)), token = int(number / uint(n_kv));
    int head_begin = args.word[18] + kv * heads_per_kv;
    int head_end = min(head_begin + heads_per_kv, n_head);
    int head_first = max(head_begin + block * ROWS, 0); // of the block's rows
    int head_last = min(head_begin + (block + 1) * ROWS, head_end);
    if (head_first >= head_last) return;

    int pos = -1;
    step_entries e = step_entries(I32(step), 0, 0);
    if (token < I32(step).at[STEP_N_TOK]) pos = pos_row(I32(step).at[args.word[12] + token]);
    if (pos >= 0)
        e = entries_of(step, I32(step).at[args.word[13] + token],
                       ivec2(args.word[14], args.word[15]), ivec2(args.word[16], args.word[17]));
    ivec2 sees = window_sees(pos, WINDOW, SPEC5);
    int first_pos = sees.x, last_pos = sees.y;
    walk_head = head_first;
    int at = e.first, end = e.first;
    if (e.first < e.last) {
        int first_number = part_number(max(entry_base(e, e.first), 0));
        if (part > 0) at = entry_find(e, part_begin(first_number + part));
        end = part == n_used - 1 ? e.last : entry_find(e, part_begin(first_number + part + 1));
    }

    uint row = uint(token * n_head + head_first);
    int n_row = head_last - head_first;
    bool is_begun = false;
    for (; at < end; at++) {
        ivec4 entry = entry_read(e, at);
        if (entry.w > last_pos) break;
        if (entry.z <= 0 || entry.w + entry.z <= first_pos) continue;
        // Slots of the page that the token sees.
        int slot_first = entry.y + max(first_pos - entry.w, 0);
        bool is_all = last_pos - entry.w >= entry.z;
        int slot_last = entry.y + (is_all ? entry.z : min(entry.z, last_pos - entry.w + 1));
        uint64_t region = page_region(args.address[2], entry.x, args.word[10] + kv);
        for (int start = slot_first / CHUNK * CHUNK; start < slot_last; start += CHUNK) {
            if (HAS_LIST) {
                U32 list = list_of(args.address[5], token, args.word[10] + kv);
                walk_listed = list_chunk(list, at - e.first, start);
                if (walk_listed == uvec2(0u)) continue;
            }
            uint64_t queries = args.address[1] + uint64_t(row) * uint64_t(STORED_K * 4);
            if (!is_begun) rows_begin(queries, n_row);
            is_begun = true;
            walk_distance = pos - (entry.w + start - entry.y);
            chunk_attend(region, start, max(slot_first - start, 0), min(slot_last - start, CHUNK));
        }
    }
    uint64_t record_size = uint64_t(uint((PART_HEAD + DIM_V) * 4));
    uint64_t record = uint64_t(row) * uint64_t(n_part) + uint64_t(part);
    rows_store(args.address[0] + record * record_size, n_part, n_row, is_begun);
}
