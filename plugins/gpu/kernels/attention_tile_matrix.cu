/* SPDX-License-Identifier: MIT
 *
 * attention_tile_matrix.cu: ATTENTION on matrix hardware, for the rows of attention_walk.h. Queries, K, p
 * and V are f16; scores, m, l and o are f32. The queries of a row are scaled by a power of two so that
 * they fit. Parts are not folded one by one: a row has one record of all the parts that its workgroup
 * walks over. For caches of f16 or of types with blocks whose V is not part of K. See kernel.h.
 *
 * A chunk of slots is folded in two halves, so that memory is waited for less: K of f16 is copied while
 * the scores of the chunk before become p and its V is added; V of f16 while the scores are computed.
 * Other types are decoded on the way.
 *
 * An entry is for up to MAX_DIM elements of K and of o, and where IS_PLAIN for K and V of f16.
 */
#include "attention_halves.h"
#include "entries.h"
#include "half_scale.h"

#ifdef HAS_HALF_MATS
template <int MAX_DIM, bool IS_PLAIN> struct AttentionTileMatrix : AttentionHalves {
    inline explicit AttentionTileMatrix(const Args &args_) : AttentionHalves(args_) {}

    const int KIND_K = IS_PLAIN ? KIND_PLAIN : kind_of(TYPE_K);
    const int KIND_V = IS_PLAIN ? KIND_PLAIN : kind_of(TYPE_V);
    static constexpr uint BANDS = TILE_ROWS / 16;  // of 16 rows
    const uint N_GROUP = uint(STORED_K + 31) / 32; // of K, whose last is filled up with zeros
    const uint V_ROWS = uint(DIM_V + 15) / 16 * 16;

    // Tiles of half_mat_load, one for each 32 elements: of Q, of K or of V with slots for elements, of p.
    uvec4 *q_tiles = shared_take<uvec4>(int(N_GROUP) * 4 * TILE_ROWS);
    uvec4 *k_tiles = shared_take<uvec4>(int(N_GROUP) * 4 * CHUNK);
    uvec4 *v_tiles = shared_take<uvec4>(CHUNK / 32 * 4 * int(V_ROWS));
    uvec4 *p_tiles = shared_take<uvec4>(CHUNK / 32 * 4 * TILE_ROWS);
    static constexpr int S_PITCH = CHUNK + 4;
    float *scores = shared_take<float>(TILE_ROWS * S_PITCH);
    float *q_factor = shared_take<float>(TILE_ROWS); // of what Q was divided by
    uint *odd_slots = shared_take<uint>(CHUNK / 32); // bits: V has an element that is not finite

    inline float &SCORE(int row, int slot) { return scores[row * S_PITCH + slot]; }

    // Strips are 16 slots of the scores, or 16 elements of o. A wave has every n_wave-th.
    inline uint n_wave() { return uint(THREADS) / wave_size(); }
    static constexpr uint MAX_SCORE_STRIP = CHUNK / 16 / 2,
                          MAX_STRIP = MAX_DIM / 16 / 2; // of 64 lanes
    float o[BANDS][MAX_STRIP][8];

    inline uint strip_number(uint p) { return wave_id() + n_wave() * p; }
    inline uint strip_count() {
        return MAX_DIM / 16 / n_wave();
    } // a constant, unlike what is used of them
    inline bool strip_is_used(uint p) { return p < strip_count() && 16 * strip_number(p) < V_ROWS; }

    // ---- Queries ----

    inline vec4 query_load(int row, int quad) {
        if (!row_exists(row) || 4 * quad >= STORED_K) return vec4(0.0f);
        return F32x4(args.address[1] + u64(row_number(row)) * u64(STORED_K * 4)).at[quad];
    }

    // Four threads have a row.
    inline void queries_store() {
        int row = thread() / 4, own = thread() % 4;
        uint most = 0;
        DONT_UNROLL for (int quad = own; 4 * quad < STORED_K; quad += 4) {
            uvec4 size = float_to_bits(query_load(row, quad)) & 0x7fffffffu;
            UNROLL for (int i = 0; i < 4; i++) most = size[i] > most ? size[i] : most;
        }
        eighth[thread()] = float(most >> 23);
        barrier();
        float largest = 0.0f;
        UNROLL for (int i = 0; i < 4; i++) largest = max(largest, eighth[4 * row + i]);
        HalfScale scale = half_scale_of(uint(largest));
        if (own == 0) q_factor[row] = scale.factor;
        DONT_UNROLL for (uint quad = uint(own); quad < 8 * N_GROUP; quad += 4) {
            vec4 v = vec4(0.0f);
            if (scale.is_finite) v = query_load(row, int(quad)) * vec4(scale.times);
            uvec2 *to = (uvec2 *)(q_tiles + quad / 8 * (4 * TILE_ROWS) +
                                  half_tile_at(uint(row), quad / 2 % 4));
            to[quad % 2] = uvec2(pack_half2(v.x, v.y), pack_half2(v.z, v.w));
        }
        barrier();
    }

    // ---- Keys ----

    // Eight elements of K, the chunk-th of a slot.
    inline uvec4 *key_at(uint slot, uint chunk) {
        return k_tiles + chunk / 4 * (4 * CHUNK) + half_tile_at(slot, chunk % 4);
    }

    // A thread has a slot, and every UNIT_STEP-th unit of its row of K.
    static constexpr int UNIT_STEP = TILE_THREADS / CHUNK;
    inline int key_slot() { return thread() % CHUNK; }
    inline int key_unit(int i) { return thread() / CHUNK + i * UNIT_STEP; }

    // Of slots that are not among first .. last - 1, some slot's: their scores are not used.
    inline int key_source(int start, int first, int last) {
        return start + min(max(key_slot(), first), last - 1);
    }

    // Begins to copy K of f16.
    inline void keys_copy(u64 region, int slot) {
        DONT_UNROLL for (int u = key_unit(0); u < STORED_K / 8; u += UNIT_STEP) copy_16(
            key_at(uint(key_slot()), uint(u)), region + u64(uint(u * page_slots() + slot)) * 16);
        // The last tile is filled up.
        DONT_UNROLL for (uint c = uint(STORED_K / 8 + key_unit(0)); c < 4 * N_GROUP;
                         c += uint(UNIT_STEP))
            shared_store_16(key_at(uint(key_slot()), c), uvec4(0u));
    }

    // Of a type with blocks. Units are fetched before the first is decoded.
    template <int KIND> inline void keys_load(u64 region, int slot) {
        constexpr int N_AHEAD = 2, N_EIGHT = KIND == KIND_BYTES ? 2 : 4;
        const int n_unit = STORED_K / (8 * N_EIGHT);
        DONT_UNROLL for (int at = 0; key_unit(at) < n_unit; at += N_AHEAD) {
            Unit units[N_AHEAD];
            UNROLL for (int i = 0; i < N_AHEAD; i++) units[i] = unit_fetch<KIND>(
                TYPE_K, region, STORED_K / 32, slot, min(key_unit(at + i), n_unit - 1));
            UNROLL for (int i = 0; i < N_AHEAD; i++) {
                const int u = key_unit(at + i);
                if (u >= n_unit) break;
                uvec4 eights[4];
                key_halves<KIND>(TYPE_K, units[i], eights);
                UNROLL for (int c = 0; c < N_EIGHT; c++)
                    shared_store_16(key_at(uint(key_slot()), uint(N_EIGHT * u + c)), eights[c]);
            }
        }
    }

    // is_whole: every row sees all slots of the chunk.
    inline void scores_store(int first, int last, int pos, bool is_whole) {
        float s[BANDS][MAX_SCORE_STRIP][8];
        UNROLL for (uint r = 0; r < BANDS; r++) UNROLL for (uint p = 0; p < MAX_SCORE_STRIP; p++)
            UNROLL for (uint i = 0; i < 8; i++) s[r][p][i] = 0.0f;
        DONT_UNROLL for (uint g = 0; g < N_GROUP; g++)
            UNROLL for (uint step = 0; step < 2; step++) {
            HalfMat q[BANDS];
            UNROLL for (uint r = 0; r < BANDS; r++) q[r] =
                half_mat_load(q_tiles + g * (4 * TILE_ROWS), 16 * r, step);
            UNROLL for (uint p = 0; p < MAX_SCORE_STRIP; p++) {
                if (p >= CHUNK / 16 / n_wave()) break;
                HalfMat k = half_mat_load(k_tiles + g * (4 * CHUNK), 16 * strip_number(p), step);
                UNROLL for (uint r = 0; r < BANDS; r++) half_mat_mul(s[r][p], q[r], k);
            }
        }
        const bool is_simple = !HAS_SLOPES && SOFTCAP <= 0.0f;
        UNROLL for (uint r = 0; r < BANDS; r++) UNROLL for (uint i = 0; i < 8; i++) {
            if (i >= mat_count()) break;
            int row = int(16 * r + mat_row(i));
            float factor = q_factor[row];
            ivec2 sees = ivec2(first, last - 1); // as slots
            if (!is_whole && is_simple)
                sees =
                    ivec2(max(sees.x, row_sees[row].x - pos), min(sees.y, row_sees[row].y - pos));
            UNROLL for (uint p = 0; p < MAX_SCORE_STRIP; p++) {
                if (p >= CHUNK / 16 / n_wave()) break;
                int slot = int(16 * strip_number(p) + mat_column(i));
                bool is_visible = slot >= sees.x && slot <= sees.y;
                SCORE(row, slot) = score_of(s[r][p][i] * factor, 0.0f, is_visible || !is_simple);
            }
        }
        if (is_simple) return;
        // Each thread goes on with the scores that it has stored, one at a time: few registers.
        DONT_UNROLL for (uint j = 0; j < BANDS * 8 * MAX_SCORE_STRIP; j++) {
            uint r = j / 8 % BANDS, p = j / 8 / BANDS, i = j % 8;
            if (i >= mat_count() || p >= CHUNK / 16 / n_wave()) continue;
            int row = int(16 * r + mat_row(i)), slot = int(16 * strip_number(p) + mat_column(i));
            SCORE(row, slot) = score_place<false>(SCORE(row, slot), row, slot, first, last, pos);
        }
    }

    // ---- Values ----

    // Of two f16, those of which the exponent has all bits: 1 and 2.
    inline uint odd_halves(uint word) {
        uint odd = (word & 0x7c007c00u) + 0x04000400u & 0x80008000u;
        return odd >> 15 & 1u | odd >> 30;
    }

    // Slots 8 * octet .. + 7 of the chunk, of an element of V.
    inline uvec4 *value_at(int octet, int element) {
        return v_tiles + octet / 4 * int(4 * V_ROWS) + half_tile_at(uint(element), uint(octet % 4));
    }

    // Makes those zeros that are not seen, and those that are not finite. True where there are any.
    inline bool value_clear(int octet, int first, int last, uvec4 &words) {
        int from = first - 8 * octet, to = last - 8 * octet;
        bool is_part = from > 0 || to < 8;
        if (is_part) UNROLL for (int k = 0; k < 4; k++) {
                if (2 * k < from || 2 * k >= to) words[k] &= 0xffff0000u;
                if (2 * k + 1 < from || 2 * k + 1 >= to) words[k] &= 0x0000ffffu;
            }
        uint odd = 0;
        UNROLL for (int k = 0; k < 4; k++) odd |= odd_halves(words[k]) << 2 * k;
        if (odd == 0) return is_part;
        shared_or(odd_slots + octet / 4, odd << 8 * (octet % 4));
        UNROLL for (int k = 0; k < 4; k++) {
            if ((odd >> 2 * k & 1u) != 0) words[k] &= 0xffff0000u;
            if ((odd >> 2 * k & 2u) != 0) words[k] &= 0x0000ffffu;
        }
        return true;
    }

    inline void value_store(int octet, int first, int last, int element, uvec4 words) {
        value_clear(octet, first, last, words);
        shared_store_16(value_at(octet, element), words);
    }

    // Threads that have a column each; the others have other octets of the same columns.
    inline int value_lanes(int n_column) { return n_column <= 64 ? 64 : 128; }

    // Calls each(column, octet) for those of this thread. Lanes have neighbouring columns.
    template <class Each> inline void values_walk(int n_column, Each each) {
        const int n_lane = value_lanes(n_column), n_team = THREADS / n_lane;
        DONT_UNROLL for (int column = thread() % n_lane; column < n_column; column += n_lane)
            DONT_UNROLL for (int octet = thread() / n_lane; octet < CHUNK / 8; octet += n_team)
                each(column, octet);
    }

    // Begins to copy V of f16. What lies behind the last slot is some slot's.
    inline void values_copy(u64 region, int start, int last) {
        const int last_quad = (last - 1) / 4 * 4;
        const u64 codes = region + page_v_code();
        values_walk(DIM_V, [&](int column, int octet) {
            uvec2 *to = (uvec2 *)value_at(octet, column);
            UNROLL for (int k = 0; k < 2; k++) {
                int quad = (start + min(8 * octet + 4 * k, last_quad)) / 4;
                copy_8(to + k, codes + u64(uint(quad * DIM_V + column)) * 8);
            }
        });
    }

    // When the copies have ended.
    inline void values_check(int first, int last) {
        values_walk(DIM_V, [&](int column, int octet) {
            uvec4 *at = value_at(octet, column), words = *at;
            if (value_clear(octet, first, last, words)) *at = words;
        });
    }

    // Two octets or more are fetched before the first is decoded.
    template <int KIND> inline void values_load(u64 region, int start, int first, int last) {
        constexpr bool IS_PAIR = KIND == KIND_NIBBLES;
        constexpr int N_AHEAD = 2;
        const int n_column = IS_PAIR ? DIM_V / 2 : DIM_V, last_quad = (last - 1) / 4 * 4;
        const int n_lane = value_lanes(n_column), n_team = THREADS / n_lane;
        DONT_UNROLL for (int column = thread() % n_lane; column < n_column; column += n_lane)
            DONT_UNROLL for (int at = thread() / n_lane; at < CHUNK / 8; at += N_AHEAD * n_team) {
            Quad quads[N_AHEAD][2];
            UNROLL for (int j = 0; j < N_AHEAD; j++) UNROLL for (int k = 0; k < 2; k++) {
                int slot = 8 * (at + j * n_team) + 4 * k;
                quads[j][k] = column_fetch<KIND>(TYPE_V, n_column, DIM_V / 32, region,
                                                 start + min(slot, last_quad), column);
            }
            UNROLL for (int j = 0; j < N_AHEAD; j++) {
                int element = column_element(TYPE_V, column), octet = at + j * n_team;
                uvec2 a[2], b[2];
                UNROLL for (int k = 0; k < 2; k++)
                    value_halves<KIND>(TYPE_V, quads[j][k], column, a[k], b[k]);
                value_store(octet, first, last, element, uvec4(a[0].x, a[0].y, a[1].x, a[1].y));
                if (!IS_PAIR) continue;
                value_store(octet, first, last, element + 16,
                            uvec4(b[0].x, b[0].y, b[1].x, b[1].y));
            }
        }
    }

    inline uvec4 eight_pack(vec4 a, vec4 b) {
        return uvec4(pack_half2(a.x, a.y), pack_half2(a.z, a.w), pack_half2(b.x, b.y),
                     pack_half2(b.z, b.w));
    }

    // Turns scores into p = exp(score - m) as f16, and updates m and l. p is NaN where the slot's V is not
    // finite, so that o of a row that sees it is NaN, and that of others is not. Four threads have a row,
    // all of one wave.
    inline void scores_soften() {
        int row = thread() / 4, own = thread() % 4;
        const vec4 *from = (const vec4 *)(scores + row * S_PITCH + 16 * own);
        vec4 s[4];
        UNROLL for (int i = 0; i < 4; i++) s[i] = from[i];
        float old = row_m[row], m = old;
        UNROLL for (int i = 0; i < 4; i++) UNROLL for (int k = 0; k < 4; k++) m = max(m, s[i][k]);
        UNROLL for (uint mask = 1; mask < 4; mask *= 2) m =
            max(m, bits_to_float(wave_xchg(float_to_bits(m), mask)));
        // Of a row that has seen nothing, p is to be 0.
        float shift = m == NEGATIVE_INFINITY ? 0.0f : m;
        float keep = old == m ? 1.0f : exp_of(old - shift);
        uint odd = odd_slots[own / 2] >> 16 * (own % 2) & 0xffffu;
        float sum = 0.0f;
        UNROLL for (int i = 0; i < 4; i++) UNROLL for (int k = 0; k < 4; k++) {
            s[i][k] = exp_of(s[i][k] - shift);
            sum += s[i][k];
        }
        if (odd != 0) UNROLL for (int i = 0; i < 4; i++) UNROLL for (int k = 0; k < 4; k++) {
                if ((odd >> 4 * i + k & 1u) == 0 || s[i][k] == 0.0f) continue;
                s[i][k] = bits_to_float(0x7fc00000u);
            }
        UNROLL for (int i = 0; i < 2; i++) shared_store_16(
            p_tiles + own / 2 * (4 * TILE_ROWS) + half_tile_at(uint(row), uint(2 * (own % 2) + i)),
            eight_pack(s[2 * i], s[2 * i + 1]));
        UNROLL for (uint mask = 1; mask < 4; mask *= 2) sum +=
            bits_to_float(wave_xchg(float_to_bits(sum), mask));
        if (own != 0) return;
        row_m[row] = m;
        row_keep[row] = keep;
        row_l[row] = fma(row_l[row], keep, sum);
    }

    // p is rounded to f16: the hardware's exp2 is precise enough.
    inline float exp_of(float x) { return exp2_roughly(x * 1.44269504f); }

    inline void values_add() {
        UNROLL for (uint r = 0; r < BANDS; r++) UNROLL for (uint i = 0; i < 8; i++) {
            if (i >= mat_count()) break;
            float keep = row_keep[16 * r + mat_row(i)];
            UNROLL for (uint p = 0; p < MAX_STRIP; p++) if (p < strip_count()) o[r][p][i] *= keep;
        }
        UNROLL for (uint g = 0; g < CHUNK / 32; g++) UNROLL for (uint step = 0; step < 2; step++) {
            HalfMat p_mat[BANDS];
            UNROLL for (uint r = 0; r < BANDS; r++) p_mat[r] =
                half_mat_load(p_tiles + g * (4 * TILE_ROWS), 16 * r, step);
            UNROLL for (uint p = 0; p < MAX_STRIP; p++) {
                if (!strip_is_used(p)) break;
                HalfMat v = half_mat_load(v_tiles + g * (4 * V_ROWS), 16 * strip_number(p), step);
                UNROLL for (uint r = 0; r < BANDS; r++) half_mat_mul(o[r][p], p_mat[r], v);
            }
        }
    }

    // ---- Walking ----

    int held_first = 0, held_last = 0; // slots of a chunk that has scores; its V is not added yet

    inline void tile_begin(ivec3) {
        UNROLL for (uint r = 0; r < BANDS; r++) UNROLL for (uint p = 0; p < MAX_STRIP; p++)
            UNROLL for (uint i = 0; i < 8; i++) o[r][p][i] = 0.0f;
        if (thread() < CHUNK / 32) odd_slots[thread()] = 0;
        queries_store();
    }

    // Adds V of the chunk that is held. Batches of copies behind that of its V may be under way.
    template <int N_LATER> inline void chunk_end() {
        if (held_last == 0) return;
        copies_wait<N_LATER>();
        if (KIND_V == KIND_PLAIN) values_check(held_first, held_last);
        barrier(); // V, odd_slots, scores
        scores_soften();
        barrier(); // p
        if (thread() < CHUNK / 32) odd_slots[thread()] = 0;
        values_add();
    }

    inline void chunk_fold(u64 region, int start, int first, int last, int pos, bool is_whole) {
        barrier(); // K of the chunk before has been read
        const int slot = key_source(start, first, last);
        if (KIND_K == KIND_PLAIN) keys_copy(region, slot);
        copies_mark();
        chunk_end<1>();
        if (KIND_K == KIND_BYTES) keys_load<KIND_BYTES>(region, slot);
        if (KIND_K == KIND_NIBBLES) keys_load<KIND_NIBBLES>(region, slot);
        barrier(); // V and p of the chunk before have been read
        if (KIND_V == KIND_PLAIN) values_copy(region, start, last);
        copies_mark();
        copies_wait<1>();
        barrier(); // K
        scores_store(first, last, pos, is_whole);
        if (KIND_V == KIND_BYTES) values_load<KIND_BYTES>(region, start, first, last);
        if (KIND_V == KIND_NIBBLES) values_load<KIND_NIBBLES>(region, start, first, last);
        held_first = first;
        held_last = last;
    }

    inline void part_end(int, int) {}

    // A record of each row, for the parts of this workgroup.
    inline void tile_end(ivec3 parts) {
        int count = args.word[19] >> 17;
        int n_record = ((args.word[9] & 0xffff) + count - 1) / count;
        int number = parts.x / count;
        chunk_end<0>();
        barrier();
        for (int row = thread(); row < TILE_ROWS; row += THREADS) {
            if (!row_exists(row)) continue;
            F32 to = F32(record_address(row, number, n_record));
            to.at[0] = row_m[row];
            to.at[1] = row_l[row];
        }
        UNROLL for (uint r = 0; r < BANDS; r++) UNROLL for (uint i = 0; i < 8; i++) {
            if (i >= mat_count()) break;
            int row = int(16 * r + mat_row(i));
            if (!row_exists(row) || row_m[row] == NEGATIVE_INFINITY) continue;
            F32 to = F32(record_address(row, number, n_record));
            UNROLL for (uint p = 0; p < MAX_STRIP; p++) {
                if (!strip_is_used(p)) break;
                int element = int(16 * strip_number(p) + mat_column(i));
                if (element < DIM_V) to.at[PART_HEAD + element] = o[r][p][i];
            }
        }
    }

    inline void run() { walk(*this); }
};

#define ENTRY(elements, is_plain, registers)                                                       \
    GPU_KERNEL_OF(attention_tile_matrix_##elements##_##is_plain, 128, registers,                   \
                  AttentionTileMatrix<elements, is_plain>)
GPU_TILE_MATRIX_ENTRIES(ENTRY)
#endif
