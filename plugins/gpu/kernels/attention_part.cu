/* SPDX-License-Identifier: MIT
 *
 * attention_part.cu: ATTENTION of a token's query heads that share a KV head, over one part of its
 * sequence: m, l and o of each go to the part's record, and attention_merge.cu folds the records. A
 * workgroup for each token, KV head, block of ROWS heads and part. See kernel.h.
 *
 * Teams of CHUNK threads divide the heads of the block (attention_dot.h). For each chunk, a thread
 * computes the scores of one slot, then folds the chunk into the elements of o that it owns: those
 * of every CHUNK-th column of V.
 *
 * An entry is for up to MAX_ROWS heads and, of each, MAX_OWN elements of o of a thread: constants,
 * so that scores and sums lie in registers. Of longer rows it computes one slice of o after the
 * other, and the scores again for each. EXTRAS: it takes bias and lists.
 * There are few entries (entries.h), since a driver translates all of them.
 */
#include "attention_dot.h"
#include "entries.h"

template <int MAX_ROWS, int MAX_OWN, bool EXTRAS> struct AttentionPart : AttentionDot {
    inline explicit AttentionPart(const Args &args_) : AttentionDot(args_) {}

    const int TYPE_V = SPEC1;
    const int DIM_V = SPEC3; // elements of o
    const bool V_FROM_K = (SPEC5 & 2) != 0;
    const bool HAS_SLOPES = (SPEC5 & 16) != 0;
    const int WINDOW = SPEC6;
    const float SOFTCAP = EXTRAS && HAS_BIAS ? 0.0f : bits_to_float(SPEC7);

    /* column_is_pair(SPEC1), written out: the call costs registers (32 bytes more are spilled for
     * sm_80). */
    const bool IS_PAIR = SPEC1 != 0 && SPEC1 != 1 && SPEC1 != 30 && SPEC1 != 8;
    const int N_COLUMN = IS_PAIR ? SPEC3 / 2 : SPEC3;

    float *scores = shared_take<float>(2 * ROWS * CHUNK);
    int turn = 0; // which half of `scores` the present chunk has
    inline float &SCORE(int row, int slot) { return scores[(turn * ROWS + row) * CHUNK + slot]; }

    u64 listed; // bits: slots of the present chunk, where there are lists

    // [own row][MAX_OWN] sums of o: of columns lane(), lane() + CHUNK, ... of the slice. Where
    // columns have two elements, the first ones, then from HALF on the second ones.
    float acc[MAX_ROWS * MAX_OWN];
    static constexpr int HALF = MAX_OWN / 2;
    const int OWN_COLUMNS = IS_PAIR ? HALF : MAX_OWN;

    // Scores of the slot that this thread owns, `distance` positions away, of heads from `head` on.
    inline void score_slot(u64 region, int slot, int distance, int head, bool is_visible) {
        float s[MAX_ROWS];
        UNROLL for (int j = 0; j < MAX_ROWS; j++) s[j] = 0.0f;
        if (is_visible) slot_dot(region, slot, s);
        UNROLL for (int j = 0; j < MAX_ROWS; j++) {
            int r = own_row(j);
            if (r >= ROWS) break;
            // A row beyond the last head uses that head's slope; its result is not stored.
            int row_head = min(head + r, args.word[8] - 1);
            if (HAS_SLOPES) s[j] = score_biased(s[j], F32(args.address[4]).at[row_head], distance);
            if (EXTRAS && HAS_BIAS) s[j] += bias_of(row_head, distance);
            SCORE(r, lane()) = score_of(s[j], SOFTCAP, is_visible);
        }
    }

    // o = keep o + p V over slots first .. last - 1 of the chunk, which begins at slot `start` of
    // the page. column_first: the slice's first column.
    inline void fold(u64 region, int start, int first, int last, int column_first) {
        UNROLL for (int j = 0; j < MAX_ROWS; j++) {
            float keep = own_row(j) < ROWS ? row_keep[own_row(j)] : 0.0f;
            UNROLL for (int k = 0; k < MAX_OWN; k++) acc[j * MAX_OWN + k] *= keep;
        }
        if (V_FROM_K)
            fold_from_k(region, start, first, last, column_first);
        else if (kind_of(TYPE_V) == KIND_PLAIN)
            fold_add<KIND_PLAIN, 4>(region, start, first, last, column_first);
        else if (kind_of(TYPE_V) == KIND_BYTES)
            fold_add<KIND_BYTES, 4>(region, start, first, last, column_first);
        else
            fold_add<KIND_NIBBLES, 2>(region, start, first, last, column_first);
    }

    // The first of the quads quad .. end - 1 that has a listed slot; `end` where none has.
    inline int quad_next(int quad, int end) {
        if (EXTRAS && HAS_LIST)
            while (quad < end && (listed >> 4 * quad & 15u) == 0) quad++;
        return quad;
    }

    inline void fold_from_k(u64 region, int start, int first, int last, int column_first) {
        const int end = (last + 3) / 4;
        DONT_UNROLL for (int quad = quad_next(first / 4, end); quad < end;
                         quad = quad_next(quad + 1, end)) UNROLL for (int k = 0; k < MAX_OWN; k++) {
            int column = column_first + lane() + k * CHUNK;
            if (k >= OWN_COLUMNS || column >= N_COLUMN) break;
            vec4 a, b;
            column_load_from_k(TYPE_V, STORED_K / 32, region, start + 4 * quad, column, a, b);
            slots_add(4 * quad, first, last, k, a, b);
        }
    }

    // Adds p V of quads of slots in their order; quads without a listed slot are skipped. MAX_AHEAD
    // of them are loaded before the first is used, or one where a thread has many columns.
    template <int KIND, int MAX_AHEAD>
    inline void fold_add(u64 region, int start, int first, int last, int column_first) {
        constexpr int N_AHEAD = MAX_OWN <= 2 ? MAX_AHEAD : 1;
        constexpr int N_OWN = KIND == KIND_NIBBLES ? HALF : MAX_OWN;
        const int n_block = DIM_V / 32, end = (last + 3) / 4;
        DONT_UNROLL for (int next = quad_next(first / 4, end); next < end;) {
            int at[N_AHEAD];
            Quad quads[N_AHEAD][N_OWN];
            UNROLL for (int j = 0; j < N_AHEAD; j++) {
                at[j] = next;
                next = quad_next(next + 1, end);
                UNROLL for (int k = 0; k < N_OWN; k++) {
                    int column = min(column_first + lane() + k * CHUNK, N_COLUMN - 1);
                    quads[j][k] = column_fetch<KIND>(TYPE_V, N_COLUMN, n_block, region,
                                                     start + 4 * min(at[j], end - 1), column);
                }
            }
            UNROLL for (int j = 0; j < N_AHEAD; j++) {
                if (at[j] >= end) break;
                UNROLL for (int k = 0; k < N_OWN; k++) {
                    int column = column_first + lane() + k * CHUNK;
                    if (column >= N_COLUMN) break;
                    vec4 a, b;
                    column_decode<KIND>(TYPE_V, quads[j][k], column, a, b);
                    slots_add(4 * at[j], first, last, k, a, b);
                }
            }
        }
    }

    // Adds p V of the four slots from `slot` on to the sums of own column k.
    inline void slots_add(int slot, int first, int last, int k, vec4 a, vec4 b) {
        UNROLL for (int i = 0; i < 4; i++) if (slot + i < first || slot + i >= last) a[i] = b[i] =
            0.0f;
        if (EXTRAS && HAS_LIST)
            UNROLL for (int i = 0; i < 4; i++) if ((listed >> (slot + i) & 1u) == 0) a[i] = b[i] =
                0.0f;
        UNROLL for (int j = 0; j < MAX_ROWS; j++) {
            if (own_row(j) >= ROWS) break;
            vec4 p = *(const vec4 *)&SCORE(own_row(j), slot);
            float sum = acc[j * MAX_OWN + k];
            UNROLL for (int i = 0; i < 4; i++) sum = fma(p[i], a[i], sum);
            acc[j * MAX_OWN + k] = sum;
            if (k >= HALF || !IS_PAIR) continue;
            sum = acc[j * MAX_OWN + HALF + k];
            UNROLL for (int i = 0; i < 4; i++) sum = fma(p[i], b[i], sum);
            acc[j * MAX_OWN + HALF + k] = sum;
        }
    }

    // What a workgroup computes.
    struct Walk {
        step_entries e;
        int at, end;                         // the part's entries at .. end - 1
        int token, pos, first_pos, last_pos; // its position; positions that it sees
        // n_part: records of a row; kv: KV head, from 0; query heads head_first .. head_last - 1
        int part, n_part, kv, head_first, head_last;
    };

    // Computes and stores columns column_first .. + OWN_COLUMNS * CHUNK - 1 of o, and m and l, of
    // the part's record. The records of a part without visible slots have m = -inf and no o.
    inline void slice_run(const Walk &w, int column_first) {
        int n_head = args.word[8], n_part = w.n_part, part = w.part, token = w.token, pos = w.pos;
        int head_first = w.head_first, head_last = w.head_last, first_pos = w.first_pos,
            last_pos = w.last_pos;
        step_entries e = w.e;
        int at = w.at, end = w.end;
        bool is_begun = false;
        UNROLL for (int k = 0; k < MAX_ROWS * MAX_OWN; k++) acc[k] = 0.0f;
        for (; at < end; at++) {
            ivec4 entry = entry_read(e, at);
            if (entry.w > last_pos) break;
            if (entry.z <= 0 || entry.w + entry.z <= first_pos) continue;
            // Slots of the page that the token sees.
            int slot_first = entry.y + max(first_pos - entry.w, 0);
            int slot_last =
                entry.y +
                min(entry.z, last_pos - entry.w >= entry.z ? entry.z : last_pos - entry.w + 1);
            u64 region = page_region(args.address[2], entry.x, args.word[10] + w.kv);
            for (int start = slot_first / CHUNK * CHUNK; start < slot_last; start += CHUNK) {
                int first = max(slot_first - start, 0), last = min(slot_last - start, CHUNK);
                if (EXTRAS && HAS_LIST) {
                    U32 list = list_of(token, args.word[10] + w.kv);
                    listed = list_chunk(list, at - e.first, start);
                    if (listed == 0) continue;
                }
                if (!is_begun) {
                    F32x4 from = F32x4(args.address[1] +
                                       u64(uint(token * n_head + head_first)) * u64(STORED_K * 4));
                    for (int i = thread(); i < ROWS * STORED_K / 4; i += THREADS)
                        query[i] =
                            i < (head_last - head_first) * STORED_K / 4 ? from.at[i] : vec4(0.0f);
                    rows_clear();
                    is_begun = true;
                    barrier();
                }
                int slot_pos = entry.w + start + lane() - entry.y;
                score_slot(region, start + lane(), pos - slot_pos, head_first,
                           lane() >= first && lane() < last &&
                               !(EXTRAS && HAS_LIST && (listed >> lane() & 1u) == 0));
                chunk_softmax([&](int row, int slot) -> float & { return SCORE(row, slot); });
                fold(region, start, first, last, column_first);
                turn ^= 1;
            }
        }

        if (is_begun) barrier();
        int record = PART_HEAD + DIM_V;
        for (int r = 0; r < head_last - head_first; r++) {
            F32 to =
                F32(args.address[0] + u64(uint((token * n_head + head_first + r) * n_part + part)) *
                                          u64(uint(record * 4)));
            if (thread() == 0) {
                to.at[0] = is_begun ? row_m[r] : NEGATIVE_INFINITY;
                to.at[1] = is_begun ? row_l[r] : 0.0f;
            }
        }
        if (!is_begun) return;
        UNROLL for (int j = 0; j < MAX_ROWS; j++) {
            int r = own_row(j);
            if (r >= head_last - head_first) break;
            F32 to =
                F32(args.address[0] + u64(uint((token * n_head + head_first + r) * n_part + part)) *
                                          u64(uint(record * 4)));
            UNROLL for (int k = 0; k < MAX_OWN; k++) {
                int column = column_first + lane() + k * CHUNK;
                if (k >= OWN_COLUMNS || column >= N_COLUMN) break;
                int element = column_element(TYPE_V, column);
                to.at[PART_HEAD + element] = acc[j * MAX_OWN + k];
                if (k < HALF && IS_PAIR)
                    to.at[PART_HEAD + element + 16] = acc[j * MAX_OWN + HALF + k];
            }
        }
    }

    inline void run() {
        int n_tok = args.word[7], n_head = args.word[8], n_part = args.word[9];
        int heads_per_kv = args.word[11], n_kv = args.word[19];
        int n_block = (heads_per_kv + ROWS - 1) / ROWS; // of rows of a KV head
        // The workgroups of parts that no sequence reaches are the last of the grid. They write
        // nothing.
        u64 step = args.address[3];
        uint number = group_number(), n_of_part = uint(n_tok * n_kv * n_block);
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
        step_entries e = {I32(step), 0, 0};
        if (token < I32(step).at[STEP_N_TOK])
            pos = pos_row(max(I32(step).at[args.word[12] + token], -1));
        if (pos >= 0)
            e = entries_of(step, I32(step).at[args.word[13] + token],
                           ivec2(args.word[14], args.word[15]),
                           ivec2(args.word[16], args.word[17]));
        ivec2 sees = window_sees(pos, WINDOW, SPEC5);
        int first_pos = sees.x, last_pos = sees.y;
        int at = e.first, end = e.first;
        if (e.first < e.last) {
            int first_number = part_number(max(entry_base(e, e.first), 0));
            if (part > 0) at = entry_find(e, part_begin(first_number + part));
            end = part == n_used - 1 ? e.last : entry_find(e, part_begin(first_number + part + 1));
        }

        Walk w = {e,        at,   end,    token, pos,        first_pos,
                  last_pos, part, n_part, kv,    head_first, head_last};
        DONT_UNROLL for (int column = 0; column < N_COLUMN; column += OWN_COLUMNS * CHUNK) {
            if (column > 0) barrier();
            slice_run(w, column);
        }
    }
};

#define ENTRY(rows, own, extras, registers)                                                        \
    GPU_KERNEL_OF(attention_part_##rows##_##own##_##extras, 256, registers,                        \
                  AttentionPart<rows, own, extras != 0>)
GPU_PART_ENTRIES(ENTRY)
