/* SPDX-License-Identifier: MIT
 *
 * attention_walk.h: what the kernels of ATTENTION for many tokens share. A workgroup has a tile of
 * ROWS query rows: neighbouring tokens, and HEADS query heads of each that share a KV head. It
 * walks over the tokens' sequences in chunks of CHUNK slots, from part to part. Neighbouring tokens
 * of one sequence are a run; a tile may have several runs, which are walked over one after the
 * other.
 *
 * A kernel calls walk(*this) and has
 *   tile_begin(parts)   before the first sequence; parts: the first, the end, and how many there
 *                       are
 *   chunk_fold(region, start, first, last, pos, is_whole)
 *                       folds slots start + first .. start + last - 1 of a page's region of a KV
 *                       head into the rows that see them. pos: the position that slot `start` has,
 *                       or would have. is_whole: every row of the tile sees all of these slots
 *   part_end(part, n_part)
 *                       after the last chunk of a part, for each run. n_part: records of a row
 *   tile_end(parts)     after the last sequence
 *   READS_AHEAD         whether the next entry is loaded, into four registers, before one is folded
 * All threads of a workgroup call all of these together.
 */
#ifndef TANDEM_GPU_ATTENTION_WALK_H
#define TANDEM_GPU_ATTENTION_WALK_H

#include "attention_fold.h"

struct AttentionWalk : AttentionFold {
    inline AttentionWalk(const Args &args_, int rows, int threads)
        : AttentionFold(args_, rows, threads) {}

    const int TYPE_K = SPEC0;
    const int TYPE_V = SPEC1;
    const int STORED_K = SPEC2 > 0 ? SPEC2 : 32;
    const int DIM_V = SPEC3;
    const int HEADS = SPEC4 > 0 ? SPEC4 : 1; // query heads of a tile
    const bool HAS_SLOPES = (SPEC5 & 16) != 0;
    const bool IS_SPLIT = (SPEC5 & 4) != 0; // a workgroup for some parts
    const int WINDOW = SPEC6;
    const float SOFTCAP = bits_to_float(SPEC7);

    const int TOKENS = ROWS / HEADS;

    // A position beyond all. The difference from the position of a chunk's first slot, which may be
    // as low as -(CHUNK - 1), still fits an int.
    static constexpr int FAR = MAX_POS - CHUNK;
    ivec2 *row_sees = shared_take<ivec2>(ROWS); // first and last position; none where last < first

    // ---- Rows ----

    int first_token, head_first, n_head_tile;

    inline int row_token(int row) { return first_token + row / HEADS; }
    inline bool row_exists(int row) {
        return row < TOKENS * HEADS && row % HEADS < n_head_tile && row_token(row) < args.word[7];
    }
    inline uint row_number(int row) {
        return uint(row_token(row) * args.word[8] + head_first + row % HEADS);
    }

    inline u64 record_address(int row, int part, int n_record) {
        return records_begin(DIM_V) + u64(row_number(row) * uint(n_record) + uint(part)) *
                                          u64(uint((PART_HEAD + DIM_V) * 4));
    }

    // ---- Scores ----

    // Of the chunk: KV head of the state, entry of the sequence from its first on, first slot.
    int chunk_kv, chunk_entry, chunk_start;

    // The final score (score_of) of a row and a slot of the chunk. first, last, pos: as of
    // chunk_fold. EXTRAS: the kernel takes bias and lists; SLOPES: it takes ALiBi. Each applies
    // where the step has it.
    template <bool EXTRAS, bool SLOPES = true>
    inline float score_place(float score, int row, int slot, int first, int last, int pos) {
        ivec2 sees = row_sees[row];
        if (SLOPES && HAS_SLOPES && row_exists(row)) {
            float slope = F32(args.address[4]).at[head_first + row % HEADS];
            int row_pos = I32(args.address[3]).at[args.word[12] + row_token(row)];
            score = score_biased(score, slope, row_pos - pos - slot);
        }
        bool is_visible =
            slot >= first && slot < last && pos + slot >= sees.x && pos + slot <= sees.y;
        if (EXTRAS && HAS_BIAS && is_visible) {
            int row_pos = I32(args.address[3]).at[args.word[12] + row_token(row)];
            score += bias_of(head_first + row % HEADS, row_pos - pos - slot);
        }
        if (EXTRAS && HAS_LIST && is_visible)
            is_visible =
                (list_chunk(list_of(row_token(row), chunk_kv), chunk_entry, chunk_start) >> slot &
                 1u) != 0;
        return score_of(score, EXTRAS && HAS_BIAS ? 0.0f : SOFTCAP, is_visible);
    }

    // ---- Walking ----

    // Walks a run: tokens first .. last - 1 of the tile, all of sequence seq, over the parts
    // parts.x .. parts.y - 1 of parts.z, counted from the sequence's first. kv: KV head, from 0.
    template <class Self>
    inline void run_attend(Self &self, int seq, int first, int last, int kv, ivec3 parts) {
        int part_first = parts.x, part_last = parts.y, n_part = args.word[9] & 0xffff;
        u64 step = args.address[3];
        step_entries e = entries_of(step, seq, ivec2(args.word[14], args.word[15]),
                                    ivec2(args.word[16], args.word[17]));
        if (e.first >= e.last) return;
        // Positions that some row of the tile sees, and those that all rows see: none where the
        // tile has rows of other runs too.
        ivec2 any = ivec2(MAX_POS, -1), all = ivec2(0, MAX_POS);
        if (first > first_token || last < min(first_token + TOKENS, args.word[7])) all.y = -1;
        barrier();
        for (int t = first; t < last; t++) {
            int pos = pos_row(max(I32(step).at[args.word[12] + t], -1));
            ivec2 sees = window_sees(pos, WINDOW, SPEC5);
            if (pos < 0) sees = ivec2(MAX_POS, -1);
            for (int h = thread(); h < HEADS; h += THREADS)
                row_sees[(t - first_token) * HEADS + h] = ivec2(min(sees.x, FAR), min(sees.y, FAR));
            all = ivec2(max(all.x, sees.x), min(all.y, sees.y));
            if (pos < 0) continue;
            any = ivec2(min(any.x, sees.x), max(any.y, sees.y));
        }
        // Rows of other runs, and those that do not exist, see nothing.
        for (int row = thread(); row < ROWS; row += THREADS)
            if (row_token(row) < first || row_token(row) >= last || !row_exists(row))
                row_sees[row] = ivec2(FAR, -1);
        barrier();

        int first_number = part_number(max(entry_base(e, e.first), 0));
        int at = part_first == 0 ? e.first : entry_find(e, part_begin(first_number + part_first));
        at = max(at, entry_find(e, any.x - page_len() + 1));
        int present = -1;
        ivec4 ahead;
        if (Self::READS_AHEAD) ahead = entry_read(e, min(at, e.last - 1));
        for (;; at++) { // one place calls part_end, so that it is inlined
            bool is_end = at >= e.last;
            const ivec4 entry = Self::READS_AHEAD ? ahead : entry_read(e, min(at, e.last - 1));
            int part = part_last;
            if (!is_end) {
                part = min(part_number(max(entry.w, 0)) - first_number, parts.z - 1);
                is_end = entry.w > any.y || part >= part_last;
            }
            if (Self::READS_AHEAD) ahead = entry_read(e, min(at + 1, e.last - 1));
            if (!is_end && (entry.z <= 0 || entry.w + entry.z <= any.x)) continue;
            if (present >= 0 && (is_end || part != present)) self.part_end(present, n_part);
            if (is_end) break;
            present = part;
            int slot_first = entry.y + max(any.x - entry.w, 0);
            int slot_last = entry.y + (any.y - entry.w >= entry.z ? entry.z : any.y - entry.w + 1);
            u64 region = page_region(args.address[2], entry.x, args.word[10] + kv);
            for (int start = slot_first / CHUNK * CHUNK; start < slot_last; start += CHUNK) {
                int chunk_first = max(slot_first - start, 0),
                    chunk_last = min(slot_last - start, CHUNK);
                int pos = entry.w + start - entry.y;
                bool is_whole = pos + chunk_first >= all.x && pos + chunk_last - 1 <= all.y;
                chunk_kv = args.word[10] + kv;
                chunk_entry = at - e.first;
                chunk_start = start;
                self.chunk_fold(region, start, chunk_first, chunk_last, pos, is_whole);
            }
        }
    }

    template <class Self> inline void walk(Self &self) {
        int heads_per_kv = args.word[11], n_kv = args.word[19] & 0x1ffff,
            n_part = args.word[9] & 0xffff;
        int n_block = (heads_per_kv + HEADS - 1) / HEADS;
        uint number = group_number();
        ivec3 parts = ivec3(args.word[9] >> 16, 0, n_part);
        int count = args.word[19] >> 17;
        if (IS_SPLIT) { // parts that no sequence reaches are the last workgroups, without records
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
        int head_last =
            min(min(head_begin + (block + 1) * HEADS, head_begin + heads_per_kv), args.word[8]);
        n_head_tile = head_last - head_first;
        if (first_token >= args.word[7] || n_head_tile <= 0) return;

        I32 step = I32(args.address[3]);
        int seq_off = args.word[13];
        int last_token = min(first_token + TOKENS, min(args.word[7], step.at[STEP_N_TOK]));
        rows_clear();
        self.tile_begin(parts);
        for (int first = first_token; first < last_token;) {
            int seq = step.at[seq_off + first], last = first + 1;
            if (step.at[args.word[12] + first] < 0) {
                first = last;
                continue;
            }
            while (last < last_token &&
                   (step.at[args.word[12] + last] < 0 || step.at[seq_off + last] == seq))
                last++;
            run_attend(self, seq, first, last, kv, parts);
            first = last;
        }
        self.tile_end(parts);
    }
};

#endif
