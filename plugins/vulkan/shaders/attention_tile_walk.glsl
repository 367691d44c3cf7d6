// SPDX-License-Identifier: MIT
//
// attention_tile_walk.glsl: main() of the kernels that have a workgroup for TILE_ROWS query rows:
// neighbouring tokens, and the heads of each that share a KV head. Arguments are those of
// ATTENTION_TILE. The includer defines the constants TILE_ROWS, DIM_V, HEADS, WINDOW, HAS_LIST and
// IS_SPLIT, THREADS and thread(), and these functions, which all threads reach:
//   tile_begin(parts)            before the first chunk
//   chunk_attend(region, start, first, last, pos, is_whole)   slots first .. last - 1 behind slot
//                                `start` of the page, of which slot 0 would be at position `pos`;
//                                is_whole: every row sees all of them; a row sees row_sees
//   part_end(part, n_part)       behind the last chunk of a part of a run of tokens
//   tile_end(parts)              behind the last chunk
// parts: x .. y - 1 are those of the workgroup; z is how many the longest sequence has.

const int TOKENS = TILE_ROWS / HEADS;

shared ivec2 row_sees[TILE_ROWS]; // first and last position; none where last < first

// Stands for a position behind all others. It is less than MAX_POS, so that FAR less the position
// of a chunk's slot 0, which may be down to -(CHUNK - 1), does not overflow an int.
const int FAR = MAX_POS - CHUNK;

int first_token, head_first, n_head_tile;

int row_token(int row) {
    return first_token + row / HEADS;
}
bool row_exists(int row) {
    return row < TOKENS * HEADS && row % HEADS < n_head_tile && row_token(row) < args.word[7];
}
uint row_number(int row) {
    return uint(row_token(row) * args.word[8] + head_first + row % HEADS);
}

uint64_t record_address(int row, int part, int n_record) {
    return args.address[0] +
           uint64_t(row_number(row) * uint(n_record) + uint(part)) * uint64_t(uint((PART_HEAD + DIM_V) * 4));
}

int chunk_kv = 0, chunk_entry = 0; // KV head of the state, entry of the sequence

void tile_begin(ivec3 parts);
void chunk_attend(uint64_t region, int start, int first, int last, int pos, bool is_whole);
void part_end(int part, int n_part);
void tile_end(ivec3 parts);

// Computes the rows of tokens first .. last - 1 of the tile, all of sequence seq, over the parts
// parts.x .. parts.y - 1, counted from the sequence's first. n_part: parts that there are records
// for.
void run_attend(int seq, int first, int last, int kv, ivec3 parts) {
    int part_first = parts.x, part_last = parts.y, n_part = args.word[9] & 0xffff;
    uint64_t step = args.address[3];
    step_entries e = entries_of(step, seq, ivec2(args.word[14], args.word[15]),
                                ivec2(args.word[16], args.word[17]));
    if (e.first >= e.last) return;
    // Positions that any row sees, and that all see.
    ivec2 any = ivec2(MAX_POS, -1), all = ivec2(0, MAX_POS);
    barrier();
    for (int t = first; t < last; t++) {
        int pos = pos_row(I32(step).at[args.word[12] + t]);
        ivec2 sees = window_sees(pos, WINDOW, SPEC5);
        if (pos < 0) sees = ivec2(MAX_POS, -1);
        for (int h = thread(); h < HEADS; h += THREADS)
            row_sees[(t - first_token) * HEADS + h] = min(sees, ivec2(FAR));
        if (pos < 0) continue;
        any = ivec2(min(any.x, sees.x), max(any.y, sees.y));
        all = ivec2(max(all.x, sees.x), min(all.y, sees.y));
    }
    // Rows of other runs, and those that do not exist, see nothing.
    for (int row = thread(); row < TILE_ROWS; row += THREADS)
        if (row_token(row) < first || row_token(row) >= last || !row_exists(row))
            row_sees[row] = ivec2(FAR, -1);
    barrier();

    int first_number = part_number(max(entry_base(e, e.first), 0));
    int at = part_first == 0 ? e.first : entry_find(e, part_begin(first_number + part_first));
    at = max(at, entry_find(e, any.x - page_len() + 1));
    int present = -1;
    for (;; at++) {
        bool is_end = at >= e.last;
        ivec4 entry = ivec4(0);
        int part = -1;
        if (!is_end) {
            entry = entry_read(e, at);
            part = min(part_number(max(entry_base(e, at), 0)) - first_number, parts.z - 1);
            is_end = entry.w > any.y || part >= part_last;
        }
        if (!is_end && (entry.z <= 0 || entry.w + entry.z <= any.x)) continue;
        // Called in one place only, since compilers copy it into each.
        if (present >= 0 && (is_end || part != present)) part_end(present, n_part);
        if (is_end) break;
        present = part;
        int slot_first = entry.y + max(any.x - entry.w, 0);
        int slot_last =
            entry.y + (any.y - entry.w >= entry.z ? entry.z : any.y - entry.w + 1);
        uint64_t region = page_region(args.address[2], entry.x, args.word[10] + kv);
        for (int start = slot_first / CHUNK * CHUNK; start < slot_last; start += CHUNK) {
            int chunk_first = max(slot_first - start, 0), chunk_last = min(slot_last - start, CHUNK);
            int pos = entry.w + start - entry.y;
            bool is_whole =
                !HAS_LIST && pos + chunk_first >= all.x && pos + chunk_last - 1 <= all.y;
            chunk_kv = args.word[10] + kv;
            chunk_entry = at - e.first;
            chunk_attend(region, start, chunk_first, chunk_last, pos, is_whole);
        }
    }
}

void main() {
    int heads_per_kv = args.word[11], n_kv = args.word[19] & 0x1ffff, n_part = args.word[9] & 0xffff;
    int n_block = (heads_per_kv + HEADS - 1) / HEADS;
    uint number = group_number();
    ivec3 parts = ivec3(args.word[9] >> 16, 0, n_part);
    int count = args.word[19] >> 17;
    if (IS_SPLIT) { // parts that no sequence reaches are the last workgroups, and have no records
        uint n_tile = uint((args.word[7] + TOKENS - 1) / TOKENS * n_kv * n_block);
        parts.x = int(number / n_tile) * count;
        parts.z = parts_used(args.address[3], n_part);
        if (parts.x >= parts.z) return;
        number %= n_tile;
    }
    parts.y = min(parts.x + count, parts.z);
    int block = int(number % uint(n_block));
    number /= uint(n_block);
    int kv = int(number % uint(n_kv));
    first_token = int(number / uint(n_kv)) * TOKENS;
    int head_begin = args.word[18] + kv * heads_per_kv;
    head_first = max(head_begin + block * HEADS, 0);
    int head_last = min(min(head_begin + (block + 1) * HEADS, head_begin + heads_per_kv), args.word[8]);
    n_head_tile = head_last - head_first;
    if (first_token >= args.word[7] || n_head_tile <= 0) return;

    I32 step = I32(args.address[3]);
    int seq_off = args.word[13];
    int last_token = min(first_token + TOKENS, min(args.word[7], step.at[STEP_N_TOK]));
    tile_begin(parts);
    for (int first = first_token; first < last_token;) {
        int seq = step.at[seq_off + first], last = first + 1;
        if (step.at[args.word[12] + first] < 0) {
            first = last;
            continue;
        }
        while (last < last_token && (step.at[args.word[12] + last] < 0 ||
                                     step.at[seq_off + last] == seq))
            last++;
        run_attend(seq, first, last, kv, parts);
        first = last;
    }
    tile_end(parts);
}
