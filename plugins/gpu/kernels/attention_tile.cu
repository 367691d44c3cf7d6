/* SPDX-License-Identifier: MIT
 *
 * attention_tile.cu: ATTENTION of many tokens, for the rows of attention_walk.h. Rows of K and V
 * become floats once, in shared memory. It computes the bits of attention_part.cu. See kernel.h.
 *
 * An entry is for up to MAX_SLICE_V slices of o: a constant, so that sums lie in registers. EXTRAS:
 * it takes bias and lists.
 *
 * Without GPU_ATTENTION_SPLIT it folds all parts into one record for each row; where a driver
 * bounds loops, in several launches, of which a later one goes on with the record. With
 * GPU_ATTENTION_SPLIT a workgroup has some parts and writes a record for each.
 */
#include "attention_walk.h"
#include "entries.h"

template <int MAX_SLICE_V, bool EXTRAS> struct AttentionTile : AttentionWalk {
    inline explicit AttentionTile(const Args &args_) : AttentionWalk(args_, TILE_ROWS, 128) {}

    static constexpr int TILE_ROWS = 32;
    static constexpr bool READS_AHEAD = true;
    const bool V_FROM_K = (SPEC5 & 2) != 0;

    static constexpr int SLICE_K = 32; // elements of Q and K that are in shared memory at a time
    static constexpr int SLICE_V = 64; // elements of o that 16 threads have, four each
    // Slots of V that are in shared memory at a time, with all of their elements.
    static constexpr int SLOTS_V = MAX_SLICE_V < 4 ? 16 / MAX_SLICE_V : 4;
    const int N_SLICE_V = (SPEC3 + SLICE_V - 1) / SLICE_V > 0 ? (SPEC3 + SLICE_V - 1) / SLICE_V : 1;
    /* column_is_pair(SPEC1), written out: the call costs registers (32 bytes more are spilled for
     * sm_80). */
    const bool IS_PAIR = SPEC1 != 0 && SPEC1 != 1 && SPEC1 != 30 && SPEC1 != 8;
    const int N_COLUMN = IS_PAIR ? SPEC3 / 2 : SPEC3;

    // The tile, in vectors of four floats. While scores are computed it is Q [TILE_ROWS][8], then K
    // [CHUNK][8]; afterwards scores [TILE_ROWS][16], then V [SLOTS_V][16 * MAX_SLICE_V]. One unused
    // vector ends each row, so that rows begin in different banks.
    enum {
        Q_PITCH = SLICE_K / 4 + 1,
        S_PITCH = CHUNK / 4 + 1,
        V_PITCH = MAX_SLICE_V * SLICE_V / 4 + 1,
        K_AT = TILE_ROWS * Q_PITCH,
        V_AT = TILE_ROWS * S_PITCH,
        N_SCORING = K_AT + CHUNK * Q_PITCH,
        N_FOLDING = V_AT + SLOTS_V * V_PITCH
    };
    vec4 *tile = shared_take<vec4>(N_SCORING > N_FOLDING ? N_SCORING : N_FOLDING);
    float *tile_floats = (float *)tile;
    inline float &SCORE(int row, int slot) { return tile_floats[row * (4 * S_PITCH) + slot]; }

    float *total_m = shared_take<float>(TILE_ROWS); // of the parts before the present one
    float *total_l = shared_take<float>(TILE_ROWS);

    // Threads are 8 by 16: each has 4 rows, and 4 slots (16 apart) or 4 elements.
    inline int row_base() { return thread() / 16 * 4; }
    inline int column_group() { return thread() % 16; }

    vec4 acc[MAX_SLICE_V * 4];

    // ---- Scores ----

    // Vector i of the queries' slice from element `first` on; a thread loads N_QUERY of them.
    static constexpr int N_QUERY = TILE_ROWS * SLICE_K / 4 / 128;
    inline vec4 query_fetch(int first, int i) {
        int row = i / (SLICE_K / 4), at = i % (SLICE_K / 4);
        if (!row_exists(row) || first + 4 * at >= STORED_K) return vec4(0.0f);
        return F32x4(args.address[1] + u64(row_number(row)) * u64(STORED_K * 4)).at[first / 4 + at];
    }

    // Unit i of the slice of K from `element` on: of slot i % CHUNK. Where there is no such unit,
    // another one: key_store() does not use it.
    template <int KIND>
    inline Unit key_fetch(u64 region, int start, int first, int last, int element, int i) {
        int len = unit_len(TYPE_K), slot = min(max(i % CHUNK, first), last - 1);
        int u = min(element / len + i / CHUNK, STORED_K / len - 1);
        return unit_fetch<KIND>(TYPE_K, region, STORED_K / 32, start + slot, u);
    }

    template <int KIND>
    inline void key_store(const Unit &key, int first, int last, int element, int i) {
        int len = unit_len(TYPE_K), slot = i % CHUNK, unit = i / CHUNK;
        if (slot < first || slot >= last) return;
        vec4 *to = tile + (K_AT + slot * Q_PITCH + unit * len / 4), x[8];
        UNROLL for (int k = 0; k < 8; k++) x[k] = vec4(0.0f);
        if (element + unit * len < STORED_K) unit_decode<KIND>(TYPE_K, key, x);
        UNROLL for (int k = 0; k < 8; k++) if (k < len / 4) to[k] = x[k];
    }

    // Loads the slice of Q and K from `element` on into the tile. A thread starts its first loads
    // together, before the barrier after which the tile may be overwritten.
    template <int KIND>
    inline void slice_load(u64 region, int start, int first, int last, int element) {
        constexpr int N_KEY = KIND == KIND_PLAIN ? 2 : 1;
        const int n_key = SLICE_K / unit_len(TYPE_K) * CHUNK;
        vec4 q[N_QUERY];
        Unit keys[N_KEY];
        UNROLL for (int k = 0; k < N_KEY; k++) keys[k] =
            key_fetch<KIND>(region, start, first, last, element, thread() + k * THREADS);
        UNROLL for (int k = 0; k < N_QUERY; k++) q[k] =
            query_fetch(element, thread() + k * THREADS);
        barrier();
        UNROLL for (int k = 0; k < N_QUERY; k++) {
            int i = thread() + k * THREADS;
            tile[i / (SLICE_K / 4) * Q_PITCH + i % (SLICE_K / 4)] = q[k];
        }
        UNROLL for (int k = 0; k < N_KEY; k++) {
            int i = thread() + k * THREADS;
            if (i < n_key) key_store<KIND>(keys[k], first, last, element, i);
        }
        DONT_UNROLL for (int i = thread() + N_KEY * THREADS; i < n_key; i += THREADS)
            key_store<KIND>(key_fetch<KIND>(region, start, first, last, element, i), first, last,
                            element, i);
        barrier();
    }

    // Computes the scores of all rows and the chunk's slots. Arguments as of chunk_fold.
    inline void score_tile(u64 region, int start, int first, int last, int pos) {
        vec4 s[4]; // of row i: slots column_group() + 16 k
        UNROLL for (int i = 0; i < 4; i++) s[i] = vec4(0.0f);
        DONT_UNROLL for (int element = 0; element < STORED_K; element += SLICE_K) {
            if (kind_of(TYPE_K) == KIND_PLAIN)
                slice_load<KIND_PLAIN>(region, start, first, last, element);
            else if (kind_of(TYPE_K) == KIND_BYTES)
                slice_load<KIND_BYTES>(region, start, first, last, element);
            else
                slice_load<KIND_NIBBLES>(region, start, first, last, element);
            DONT_UNROLL for (int d = 0; d < SLICE_K / 4; d++) {
                vec4 k[4];
                UNROLL for (int c = 0; c < 4; c++) k[c] =
                    tile[K_AT + (column_group() + 16 * c) * Q_PITCH + d];
                UNROLL for (int i = 0; i < 4; i++) {
                    vec4 q = tile[(row_base() + i) * Q_PITCH + d];
                    UNROLL for (int c = 0; c < 4; c++) {
                        float sum = fma(q.x, k[c].x, s[i][c]);
                        sum = fma(q.y, k[c].y, sum);
                        sum = fma(q.z, k[c].z, sum);
                        s[i][c] = fma(q.w, k[c].w, sum);
                    }
                }
            }
        }
        barrier();
        UNROLL for (int i = 0; i < 4; i++) UNROLL for (int c = 0; c < 4; c++)
            SCORE(row_base() + i, column_group() + 16 * c) = s[i][c];
        // Each thread finishes the scores that it has stored, one at a time, which takes few
        // registers.
        DONT_UNROLL for (int i = 0; i < 16; i++) {
            int row = row_base() + i / 4, slot = column_group() + 16 * (i % 4);
            SCORE(row, slot) = score_place<EXTRAS>(SCORE(row, slot), row, slot, first, last, pos);
        }
    }

    // ---- Values ----

    // Columns of V in shared memory. A pair's two elements count as one column.
    const int N_SHARED = N_SLICE_V * SLICE_V / (IS_PAIR ? 2 : 1);

    // Column i % N_SHARED of four of the SLOTS_V slots from slot_first on. Where there is no such
    // column or slot, another one: value_store() does not use it.
    template <int KIND>
    inline Quad value_fetch(u64 region, int start, int slot_first, int last, int i) {
        int column = min(i % N_SHARED, N_COLUMN - 1), slot = slot_first + 4 * (i / N_SHARED);
        return column_fetch<KIND>(TYPE_V, N_COLUMN, DIM_V / 32, region,
                                  start + min(slot, (last - 1) / 4 * 4), column);
    }

    inline void value_store(int slot_first, int first, int last, int i, vec4 a, vec4 b) {
        int column = i % N_SHARED, quad = i / N_SHARED, slot = slot_first + 4 * quad;
        float *to = tile_floats + 4 * (V_AT + 4 * quad * V_PITCH) + column_element(TYPE_V, column);
        UNROLL for (int k = 0; k < 4; k++) {
            bool is_seen = slot + k >= first && slot + k < last && column < N_COLUMN;
            to[4 * k * V_PITCH] = is_seen ? a[k] : 0.0f;
            if (IS_PAIR) to[4 * k * V_PITCH + 16] = is_seen ? b[k] : 0.0f;
        }
    }

    template <int KIND>
    inline void value_put(const Quad &value, int slot_first, int first, int last, int i) {
        vec4 a, b;
        column_decode<KIND>(TYPE_V, value, i % N_SHARED, a, b);
        value_store(slot_first, first, last, i, a, b);
    }

    // Loads V of slots slot_first .. + SLOTS_V - 1 into the tile; those before `first` and from
    // `last` on become zeros.
    template <int KIND>
    inline void values_load_of(u64 region, int start, int slot_first, int first, int last) {
        constexpr int N_VALUE = KIND == KIND_NIBBLES ? 1 : 2;
        const int n = N_SHARED * SLOTS_V / 4;
        Quad values[N_VALUE];
        UNROLL for (int k = 0; k < N_VALUE; k++) values[k] =
            value_fetch<KIND>(region, start, slot_first, last, min(thread() + k * THREADS, n - 1));
        barrier();
        UNROLL for (int k = 0; k < N_VALUE; k++) {
            int i = thread() + k * THREADS;
            if (i < n) value_put<KIND>(values[k], slot_first, first, last, i);
        }
        DONT_UNROLL for (int i = thread() + N_VALUE * THREADS; i < n; i += THREADS) value_put<KIND>(
            value_fetch<KIND>(region, start, slot_first, last, i), slot_first, first, last, i);
        barrier();
    }

    inline void values_load(u64 region, int start, int slot_first, int first, int last) {
        if (!V_FROM_K && kind_of(TYPE_V) == KIND_PLAIN)
            values_load_of<KIND_PLAIN>(region, start, slot_first, first, last);
        else if (!V_FROM_K && kind_of(TYPE_V) == KIND_BYTES)
            values_load_of<KIND_BYTES>(region, start, slot_first, first, last);
        else if (!V_FROM_K)
            values_load_of<KIND_NIBBLES>(region, start, slot_first, first, last);
        if (!V_FROM_K) return;
        barrier();
        DONT_UNROLL for (int i = thread(); i < N_SHARED * SLOTS_V / 4; i += THREADS) {
            int column = i % N_SHARED, slot = slot_first + 4 * (i / N_SHARED);
            vec4 a = vec4(0.0f), b = vec4(0.0f);
            if (column < N_COLUMN && slot < last && slot + 4 > first)
                column_load_from_k(TYPE_V, STORED_K / 32, region, start + slot, column, a, b);
            value_store(slot_first, first, last, i, a, b);
        }
        barrier();
    }

    // acc = keep acc + p V of slots first .. last - 1. is_whole: every row sees all of them; else
    // slots with p = 0 are left out, whatever they hold.
    inline void fold_tile(u64 region, int start, int first, int last, bool is_whole) {
        UNROLL for (int i = 0; i < 4; i++) {
            float keep = row_keep[row_base() + i];
            UNROLL for (int n = 0; n < MAX_SLICE_V; n++) {
                vec4 kept = acc[n * 4 + i] * keep;
                acc[n * 4 + i] = kept;
            }
        }
        DONT_UNROLL for (int slot_first = first / SLOTS_V * SLOTS_V; slot_first < last;
                         slot_first += SLOTS_V) {
            values_load(region, start, slot_first, first, last);
            DONT_UNROLL for (int quad = 0; quad < SLOTS_V / 4; quad++) {
                vec4 p[4];
                UNROLL for (int i = 0; i < 4; i++) p[i] =
                    tile[(row_base() + i) * S_PITCH + slot_first / 4 + quad];
                UNROLL for (int n = 0; n < MAX_SLICE_V; n++) {
                    if (n >= N_SLICE_V) break;
                    UNROLL for (int k = 0; k < 4; k++) {
                        vec4 v = tile[V_AT + (4 * quad + k) * V_PITCH + n * (SLICE_V / 4) +
                                      column_group()];
                        UNROLL for (int i = 0; i < 4; i++) {
                            vec4 sum = fma(vec4(p[i][k]), v, acc[n * 4 + i]);
                            if (is_whole || p[i][k] != 0.0f) acc[n * 4 + i] = sum;
                        }
                    }
                }
            }
        }
    }

    // ---- Parts ----

    // Writes m, l and o of the part to its record. A row that saw no slot keeps the empty record of
    // records_clear().
    inline void part_write(int part, int n_part) {
        barrier();
        UNROLL for (int i = 0; i < 4; i++) {
            int row = row_base() + i;
            if (!row_exists(row) || row_m[row] == NEGATIVE_INFINITY) continue;
            F32 to = F32(record_address(row, part, n_part));
            if (column_group() == 0) {
                to.at[0] = row_m[row];
                to.at[1] = row_l[row];
            }
            UNROLL for (int n = 0; n < MAX_SLICE_V; n++) {
                int element = n * SLICE_V + 4 * column_group();
                if (element >= DIM_V) break;
                F32x4(record_address(row, part, n_part)).at[(PART_HEAD + element) / 4] =
                    acc[n * 4 + i];
            }
        }
        barrier();
    }

    // Folds the part into the row's record, with the same sums in the same order as
    // attention_merge.h.
    inline void part_fold() {
        // Factors for o of the record, -1 = there is none yet, and for o of the part.
        float *keeps = eighth, *gains = eighth + TILE_ROWS;
        barrier();
        for (int row = thread(); row < TILE_ROWS; row += THREADS) {
            float m = total_m[row], part_m = row_m[row], larger = max(m, part_m);
            keeps[row] = -1.0f;
            if (part_m == NEGATIVE_INFINITY) continue;
            float keep = keep_of(m, larger), gain = keep_of(part_m, larger);
            float kept = total_l[row] * keep;
            total_l[row] = fma(row_l[row], gain, kept);
            total_m[row] = larger;
            if (m != NEGATIVE_INFINITY) keeps[row] = keep;
            gains[row] = gain;
        }
        barrier();
        UNROLL for (int i = 0; i < 4; i++) {
            int row = row_base() + i;
            if (!row_exists(row) || row_m[row] == NEGATIVE_INFINITY) continue;
            float keep = keeps[row], gain = gains[row];
            F32x4 record = F32x4(record_address(row, 0, 1));
            UNROLL for (int n = 0; n < MAX_SLICE_V; n++) {
                int element = n * SLICE_V + 4 * column_group();
                if (element >= DIM_V) break;
                vec4 kept = vec4(0.0f);
                if (keep >= 0.0f) kept = record.at[(PART_HEAD + element) / 4] * keep;
                record.at[(PART_HEAD + element) / 4] = fma(acc[n * 4 + i], vec4(gain), kept);
            }
        }
        barrier();
    }

    inline void part_end(int part, int n_part) {
        if (IS_SPLIT)
            part_write(part, n_part);
        else
            part_fold();
        rows_clear();
        UNROLL for (int k = 0; k < MAX_SLICE_V * 4; k++) acc[k] = vec4(0.0f);
        barrier();
    }

    // Makes the records of these parts empty, m = -inf and l = 0, before the parts that have slots
    // write theirs.
    inline void records_clear(int part_first, int part_last, int n_part) {
        int n = part_last - part_first;
        for (int i = thread(); i < TILE_ROWS * n; i += THREADS) {
            int row = i / n;
            if (!row_exists(row)) continue;
            F32 to = F32(record_address(row, part_first + i % n, n_part));
            to.at[0] = NEGATIVE_INFINITY;
            to.at[1] = 0.0f;
        }
        barrier();
    }

    // m and l of the row's record: empty in the first launch, else those of the launch before.
    inline void totals_begin(bool is_first) {
        for (int row = thread(); row < TILE_ROWS; row += THREADS) {
            total_m[row] = NEGATIVE_INFINITY;
            total_l[row] = 0.0f;
            if (is_first || !row_exists(row)) continue;
            F32 from = F32(record_address(row, 0, 1));
            total_m[row] = from.at[0];
            total_l[row] = from.at[1];
        }
    }

    inline void totals_end() {
        barrier();
        for (int row = thread(); row < TILE_ROWS; row += THREADS) {
            if (!row_exists(row)) continue;
            F32 to = F32(record_address(row, 0, 1));
            to.at[0] = total_m[row];
            to.at[1] = total_l[row];
        }
    }

    inline void tile_begin(ivec3 parts) {
        if (IS_SPLIT)
            records_clear(parts.x, parts.y, args.word[9] & 0xffff);
        else
            totals_begin(parts.x == 0);
        UNROLL for (int k = 0; k < MAX_SLICE_V * 4; k++) acc[k] = vec4(0.0f);
    }

    inline void chunk_fold(u64 region, int start, int first, int last, int pos, bool is_whole) {
        score_tile(region, start, first, last, pos);
        chunk_softmax([&](int row, int slot) -> float & { return SCORE(row, slot); });
        // is_whole says nothing of rows of other runs. They have m = -inf, and their sums are not
        // used.
        fold_tile(region, start, first, last, is_whole && !(EXTRAS && HAS_LIST));
    }

    inline void tile_end(ivec3) {
        if (!IS_SPLIT) totals_end();
    }

    inline void run() { walk(*this); }
};

#define ENTRY(elements, extras, registers)                                                         \
    GPU_KERNEL_OF(attention_tile_##elements##_##extras, 128, registers,                            \
                  AttentionTile<elements / 64, extras != 0>)
GPU_TILE_ENTRIES(ENTRY)
