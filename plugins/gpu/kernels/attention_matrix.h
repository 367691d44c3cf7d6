/* SPDX-License-Identifier: MIT
 *
 * attention_matrix.h: ATTENTION on matrix hardware, for the rows of attention_walk.h. Queries, K, p
 * and V are f16; scores, m, l and o are f32. Each query is scaled by a power of two so that it fits
 * f16. Parts are not folded one by one: a row has one record for all the parts that its workgroup
 * walks over. For caches of f16 or of types with blocks. See kernel.h.
 *
 * A team of TEAM threads has 32 rows. The teams of a workgroup share K and V of a chunk, which are
 * decoded once for all of them.
 *
 * A chunk is folded in two halves, so that threads wait less for memory. K of a chunk is copied
 * while the scores of the chunk before become p and its V is added; V is copied while the scores
 * are computed. Types with blocks are copied as they are, and decoded before they are used
 * (attention_halves.h). Where V is part of K, the tiles of K serve as V too: nothing is copied for
 * V, and K of f16 is copied only after V of the chunk before has been added.
 *
 * A slot is "odd" (odd_slots) where its V, or its K where V is part of K, has an element that is
 * not finite. The element becomes 0 in the tile, and the slot's p, or its score where V is part of
 * K, becomes NaN. So rows that see the slot get NaN, and rows that do not see it are not affected.
 *
 * N_ROW: rows of a workgroup. MAX_DIM: elements of o, at most. IS_PLAIN: K and V are f16.
 * IS_LATENT: V is part of K.
 */
#ifndef TANDEM_GPU_ATTENTION_MATRIX_H
#define TANDEM_GPU_ATTENTION_MATRIX_H

#include "attention_halves.h"
#include "attention_merge.h"
#include "half_scale.h"

#ifdef HAS_HALF_MATS
template <int MAX_DIM, bool IS_PLAIN, bool IS_LATENT, int TEAM, int N_ROW>
struct AttentionMatrix : AttentionHalves {
    static constexpr int TEAM_ROWS = 32, OF_ROW = TEAM / TEAM_ROWS; // threads of a row
    static constexpr bool READS_AHEAD = !IS_LATENT;
    inline explicit AttentionMatrix(const Args &args_)
        : AttentionHalves(args_, N_ROW, N_ROW * OF_ROW) {}

    const int KIND_K = IS_PLAIN ? KIND_PLAIN : kind_of(TYPE_K);
    const int KIND_V = IS_PLAIN || IS_LATENT ? KIND_PLAIN : kind_of(TYPE_V);
    static constexpr uint BANDS = TEAM_ROWS / 16;  // of 16 rows
    const uint N_GROUP = uint(STORED_K + 31) / 32; // of 32 elements of K; the last ends with zeros
    const uint V_ROWS = uint(DIM_V + 15) / 16 * 16;

    // Tiles of half_mat_load. Those of Q and K: one for each 32 elements, [query row] and [slot].
    // Those of V and p: one for each 32 slots, [element of o] and [query row].
    uvec4 *q_tiles = shared_take<uvec4>(int(N_GROUP) * 4 * ROWS);
    uvec4 *k_tiles = shared_take<uvec4>(int(N_GROUP) * 4 * CHUNK);
    uvec4 *v_tiles = shared_take<uvec4>(IS_LATENT ? 0 : CHUNK / 32 * 4 * int(V_ROWS));
    uvec4 *p_tiles = shared_take<uvec4>(CHUNK / 32 * 4 * ROWS);
    static constexpr int S_PITCH = CHUNK + 4;
    float *scores = shared_take<float>(ROWS * S_PITCH);
    float *q_factor = shared_take<float>(ROWS);      // scores are multiplied by it: HalfScale
    uint *odd_slots = shared_take<uint>(CHUNK / 32); // a bit for each slot of the chunk
    // K or V of types with blocks as copied from the page. It is the last part of shared memory,
    // since its size is not stated here (shared.c).
    uvec4 *raw = shared_take<uvec4>(0);

    // Waves of a team, the number of this wave in its team, and the number of the team.
    inline uint n_wave() { return uint(TEAM) / wave_size(); }
    inline uint own_wave() { return recomputed(thread_id()) / wave_size() % n_wave(); }
    inline uint team() { return recomputed(thread_id()) / uint(TEAM); }

    // Scores of a team are bands of 16 rows and strips of 16 slots. A wave has score_bands() bands
    // and score_strips() strips; its r-th band and p-th strip are number score_band() and
    // score_strip().
    static constexpr uint MAX_SCORE_STRIP = TEAM == 128 ? 2 : 1; // of 64 lanes
    inline uint score_bands() { return n_wave() > 4 ? BANDS / 2 : BANDS; }
    inline uint score_strips() { return n_wave() > 4 ? 1 : CHUNK / 16 / n_wave(); }
    inline uint score_band(uint wave, uint r) { return n_wave() > 4 ? wave / 4 : r; }
    inline uint score_strip(uint wave, uint p) { return wave % 4 + n_wave() * p; }

    // o of a team is strips of 16 elements. A wave has every n_wave-th strip, of all bands.
    static constexpr uint MAX_STRIP = MAX_DIM / 16 * 64 / TEAM; // of 64 lanes
    float o[BANDS][MAX_STRIP][8];

    inline uint strip_number(uint wave, uint p) { return wave + n_wave() * p; }
    inline uint strip_count() {
        return MAX_DIM / 16 / n_wave();
    } // of registers, a constant; strip_is_used() says which are used
    inline bool strip_is_used(uint wave, uint p) {
        return p < strip_count() && 16 * strip_number(wave, p) < V_ROWS;
    }

    // The first row of the team in the tile, and the row of this thread's i-th sum of a band.
    inline uint team_row() { return TEAM_ROWS * team(); }
    static inline int sum_row(uint team_row, uint band, uint i) {
        return int(team_row + 16 * band + mat_row(i));
    }

    // ---- Queries ----

    inline vec4 query_load(int row, int quad) {
        if (!row_exists(row) || 4 * quad >= STORED_K) return vec4(0.0f);
        return F32x4(args.address[1] + u64(row_number(row)) * u64(STORED_K * 4)).at[quad];
    }

    // Stores the tiles of Q and q_factor. OF_ROW threads have a row.
    inline void queries_store() {
        int row = thread() / OF_ROW, own = thread() % OF_ROW;
        uint most = 0;
        DONT_UNROLL for (int quad = own; 4 * quad < STORED_K; quad += OF_ROW) {
            uvec4 size = float_to_bits(query_load(row, quad)) & 0x7fffffffu;
            UNROLL for (int i = 0; i < 4; i++) most = size[i] > most ? size[i] : most;
        }
        eighth[thread()] = float(most >> 23);
        barrier();
        float largest = 0.0f;
        UNROLL for (int i = 0; i < OF_ROW; i++) largest = max(largest, eighth[OF_ROW * row + i]);
        HalfScale scale = half_scale_of(uint(largest));
        if (own == 0) q_factor[row] = scale.factor;
        DONT_UNROLL for (uint quad = uint(own); quad < 8 * N_GROUP; quad += OF_ROW) {
            vec4 v = vec4(0.0f);
            if (scale.is_finite) v = query_load(row, int(quad)) * vec4(scale.times);
            uvec2 *to = (uvec2 *)(q_tiles + quad / 8 * uint(4 * ROWS) +
                                  half_tile_at(uint(row), quad / 2 % 4));
            to[quad % 2] = uvec2(pack_half2(v.x, v.y), pack_half2(v.z, v.w));
        }
        barrier();
    }

    // ---- Keys ----

    // The place of eight elements of K of a slot: elements 8 * chunk .. + 7.
    static inline uvec4 *key_at(uvec4 *k_tiles, uint slot, uint chunk) {
        return k_tiles + chunk / 4 * (4 * CHUNK) + half_tile_at(slot, chunk % 4);
    }

    // A thread has a slot, and every unit_step-th unit of its row of K.
    struct KeyPlace {
        uvec4 *tiles;
        int slot, unit, unit_step;
    };
    inline KeyPlace key_place() {
        const int own = phase_thread();
        return {phase_at(k_tiles), own % CHUNK, own / CHUNK, THREADS / CHUNK};
    }

    // Starts to copy K of f16. Slots that are not among first .. last - 1 get the K of another
    // slot: their scores are not used.
    inline void keys_copy(u64 region, int start, int first, int last) {
        const KeyPlace own = key_place();
        const int slot = start + min(max(own.slot, first), last - 1);
        copies_16(
            own.unit, STORED_K / 8, own.unit_step,
            [&](int u) { return key_at(own.tiles, uint(own.slot), uint(u)); },
            [&](int u) { return region + u64(uint(u * page_slots() + slot)) * 16; });
        // Zeros up to the end of the last tile.
        DONT_UNROLL for (int u = STORED_K / 8 + own.unit; u < 4 * int(N_GROUP); u += own.unit_step)
            shared_store_16(key_at(own.tiles, uint(own.slot), uint(u)), uvec4(0u));
    }

    // Where V is part of K: clears odd elements of the K of f16 that this thread has copied.
    inline void keys_check() {
        const KeyPlace own = key_place();
        DONT_UNROLL for (int u = own.unit; u < STORED_K / 8; u += own.unit_step) {
            uvec4 *at = key_at(own.tiles, uint(own.slot), uint(u)), words = *at;
            if (key_clear(own.slot, words)) *at = words;
        }
    }

    // Replaces elements that are not finite by 0, and notes the slot in odd_slots. True where there
    // were any.
    inline bool key_clear(int slot, uvec4 &words) {
        if (!has_odd(words)) return false;
        UNROLL for (int k = 0; k < 4; k++) {
            const uint odd = odd_halves(words[k]);
            if ((odd & 1u) != 0) words[k] &= 0xffff0000u;
            if ((odd & 2u) != 0) words[k] &= 0x0000ffffu;
        }
        shared_or(odd_slots + slot / 32, 1u << slot % 32);
        return true;
    }

    // Decodes K of a type with blocks from `raw`, after the copies of all threads have ended.
    template <int KIND> inline void keys_decode(int type) {
        constexpr int N_EIGHT = KIND == KIND_BYTES ? 2 : 4;
        const KeyPlace own = key_place();
        const Raw from = raw_at(raw, type, STORED_K);
        DONT_UNROLL for (int u = own.unit; u < STORED_K / (8 * N_EIGHT); u += own.unit_step) {
            uvec4 eights[4];
            key_halves<KIND>(type, raw_unit<KIND>(from, type, own.slot, u), eights);
            UNROLL for (int c = 0; c < N_EIGHT; c++) {
                if (IS_LATENT) key_clear(own.slot, eights[c]);
                shared_store_16(key_at(own.tiles, uint(own.slot), uint(N_EIGHT * u + c)),
                                eights[c]);
            }
        }
    }

    typedef float Scores[BANDS][MAX_SCORE_STRIP][8];

    // Stores place(score, row, slot) for the scores of this thread, s times q_factor. All factors
    // are loaded before the first store, so that loads do not wait for stores.
    template <class Place> inline void scores_each(Scores &s, Place place) {
        const uint wave = own_wave(), first_row = team_row();
        const float *factors = phase_at(q_factor);
        float *to = phase_at(scores);
        UNROLL for (uint r = 0; r < BANDS; r++) UNROLL for (uint i = 0; i < 8; i++) {
            if (r >= score_bands() || i >= mat_count()) break;
            const float factor = factors[sum_row(first_row, score_band(wave, r), i)];
            UNROLL for (uint p = 0; p < MAX_SCORE_STRIP; p++) s[r][p][i] *= factor;
        }
        UNROLL for (uint r = 0; r < BANDS; r++) UNROLL for (uint i = 0; i < 8; i++) {
            if (r >= score_bands() || i >= mat_count()) break;
            const int row = sum_row(first_row, score_band(wave, r), i);
            UNROLL for (uint p = 0; p < MAX_SCORE_STRIP; p++) {
                if (p >= score_strips()) break;
                const int slot = int(16 * score_strip(wave, p) + mat_column(i));
                to[row * S_PITCH + slot] = place(s[r][p][i], row, slot);
            }
        }
    }

    // Computes and stores the scores of a chunk. Arguments as of chunk_fold (attention_walk.h).
    inline void scores_store(int first, int last, int pos, bool is_whole) {
        Scores s;
        UNROLL for (uint r = 0; r < BANDS; r++) UNROLL for (uint p = 0; p < MAX_SCORE_STRIP; p++)
            UNROLL for (uint i = 0; i < 8; i++) s[r][p][i] = 0.0f;
        const uint wave = own_wave(), first_row = team_row();
        const uvec4 *queries = phase_at(q_tiles), *keys = phase_at(k_tiles);
        DONT_UNROLL for (uint g = 0; g < N_GROUP; g++)
            UNROLL for (uint step = 0; step < 2; step++) {
            HalfMat q[BANDS];
            UNROLL for (uint r = 0; r < BANDS; r++) if (r < score_bands()) q[r] = half_mat_load(
                queries + g * uint(4 * ROWS), first_row + 16 * score_band(wave, r), step);
            UNROLL for (uint p = 0; p < MAX_SCORE_STRIP; p++) {
                if (p >= score_strips()) break;
                HalfMat k = half_mat_load(keys + g * (4 * CHUNK), 16 * score_strip(wave, p), step);
                UNROLL for (uint r = 0; r < BANDS; r++) if (r < score_bands())
                    half_mat_mul(s[r][p], q[r], k);
            }
        }
        bool has_odd_slots = false;
        if (IS_LATENT) has_odd_slots = (odd_slots[0] | odd_slots[1]) != 0;
        const bool is_simple = (IS_LATENT || !HAS_SLOPES) && SOFTCAP <= 0.0f && !has_odd_slots;
        if (!is_simple || (is_whole && first == 0 && last == CHUNK)) {
            scores_each(s, [&](float score, int, int) { return score_of(score, 0.0f, true); });
        } else {
            const ivec2 *row_sees = phase_at(this->row_sees);
            scores_each(s, [&](float score, int row, int slot) {
                const ivec2 sees = row_sees[row];
                const int from = is_whole ? first : max(first, sees.x - pos);
                const int end = is_whole ? last - 1 : min(last - 1, sees.y - pos);
                return score_of(score, 0.0f, (slot >= from) & (slot <= end));
            });
        }
        if (is_simple) return;
        // Each thread finishes the scores that it has stored, one at a time, which takes few
        // registers.
        DONT_UNROLL for (uint j = 0; j < BANDS * 8 * MAX_SCORE_STRIP; j++) {
            uint r = j / 8 % BANDS, p = j / 8 / BANDS, i = j % 8;
            if (r >= score_bands() || i >= mat_count() || p >= score_strips()) continue;
            int row = sum_row(first_row, score_band(wave, r), i),
                slot = int(16 * score_strip(wave, p) + mat_column(i));
            float *at = scores + row * S_PITCH + slot, score = *at;
            if (IS_LATENT && (odd_slots[slot / 32] >> slot % 32 & 1u) != 0)
                score = bits_to_float(0x7fc00000u);
            *at = score_place<false, !IS_LATENT>(score, row, slot, first, last, pos);
        }
    }

    // ---- Values ----

    // 1 where the low f16 of a word is not finite, plus 2 where the high one is not.
    inline uint odd_halves(uint word) {
        uint odd = (word & 0x7c007c00u) + 0x04000400u & 0x80008000u;
        return odd >> 15 & 1u | odd >> 30;
    }

    // Whether one of eight f16 is not finite.
    inline bool has_odd(const uvec4 &words) {
        uint odd = 0;
        UNROLL for (int k = 0; k < 4; k++) odd |= (words[k] & 0x7c007c00u) + 0x04000400u;
        return (odd & 0x80008000u) != 0;
    }

    // The place of an element of V in slots 8 * octet .. + 7 of the chunk.
    inline uvec4 *value_at(uvec4 *v_tiles, int octet, int element) {
        return v_tiles + octet / 4 * int(4 * V_ROWS) + half_tile_at(uint(element), uint(octet % 4));
    }

    // words: an element of V in slots slot .. slot + 7. Replaces those that are not finite by 0,
    // and notes their slots in odd_slots. True where there were any. Finite contents of a slot that
    // no row sees do not matter: its p is 0.
    inline bool value_clear(int slot, uvec4 &words) {
        if (!has_odd(words)) return false;
        uint odd = 0;
        UNROLL for (int k = 0; k < 4; k++) odd |= odd_halves(words[k]) << 2 * k;
        shared_or(odd_slots + slot / 32, odd << slot % 32);
        UNROLL for (int k = 0; k < 4; k++) {
            if ((odd >> 2 * k & 1u) != 0) words[k] &= 0xffff0000u;
            if ((odd >> 2 * k & 2u) != 0) words[k] &= 0x0000ffffu;
        }
        return true;
    }

    // Calls each(column, octet) for this thread's columns and octets of slots. 64 or 128
    // neighbouring threads have neighbouring columns; other threads have other octets of the same
    // columns.
    template <class Each> inline void values_walk(int n_column, Each each) {
        const int own = phase_thread(), n_lane = n_column <= 64 ? 64 : 128;
        const int shift = n_column <= 64 ? 6 : 7, first = own >> shift, n_team = THREADS >> shift;
        DONT_UNROLL for (int column = own & (n_lane - 1); column < n_column; column += n_lane)
            DONT_UNROLL for (int octet = first; octet < CHUNK / 8; octet += n_team)
                each(column, octet);
    }

    // Starts to copy V of f16. Slots beyond the last one get the V of other slots: their p is 0.
    inline void values_copy(u64 region, int start, int last) {
        const int last_quad = (last - 1) / 4 * 4;
        const u64 codes = region + page_v_code();
        uvec4 *tiles = phase_at(v_tiles);
        const auto from = [&](int column, int octet, int k) {
            int quad = (start + min(8 * octet + 4 * k, last_quad)) / 4;
            return codes + u64(uint(quad * DIM_V + column)) * 8;
        };
        const auto copy = [&](int column, int octet) {
            uvec2 *to = (uvec2 *)value_at(tiles, octet, column);
            UNROLL for (int k = 0; k < 2; k++) copy_8(to + k, from(column, octet, k));
        };
        if (!COPIES_WAIT) return values_walk(DIM_V, copy);
        // As values_walk, but several octets of a column are loaded before the first is stored.
        constexpr int AT_ONCE = 4;
        const int own = phase_thread(), shift = DIM_V <= 64 ? 6 : 7, n_team = THREADS >> shift;
        DONT_UNROLL for (int column = own & (1 << shift) - 1; column < DIM_V;
                         column += 1 << shift) {
            int octet = own >> shift;
            DONT_UNROLL for (; octet + (AT_ONCE - 1) * n_team < CHUNK / 8;
                             octet += AT_ONCE * n_team) {
                uvec2 x[AT_ONCE][2];
                UNROLL for (int i = 0; i < AT_ONCE; i++) UNROLL for (int k = 0; k < 2; k++)
                    x[i][k] = U32x2(from(column, octet + i * n_team, k)).at[0];
                loads_begun();
                UNROLL for (int i = 0; i < AT_ONCE; i++) shared_store_16(
                    value_at(tiles, octet + i * n_team, column), uvec4(x[i][0], x[i][1]));
            }
            DONT_UNROLL for (; octet < CHUNK / 8; octet += n_team) copy(column, octet);
        }
    }

    // Clears odd elements of the V of f16 that this thread has copied, after its copies have ended.
    inline void values_check() {
        uvec4 *tiles = phase_at(v_tiles);
        values_walk(DIM_V, [&](int column, int octet) {
            uvec4 *at = value_at(tiles, octet, column), words = *at;
            if (value_clear(8 * octet, words)) *at = words;
        });
    }

    // Decodes V of q8_0 or q4_0 from `raw`, after the copies of all threads have ended.
    template <int KIND> inline void values_decode(int type) {
        constexpr bool IS_PAIR = KIND == KIND_NIBBLES;
        const int n_column = IS_PAIR ? DIM_V / 2 : DIM_V;
        const Raw from = raw_at(raw, type, DIM_V);
        uvec4 *tiles = phase_at(v_tiles);
        values_walk(n_column, [&](int column, int octet) {
            Quad quads[2];
            uvec2 a[2], b[2];
            raw_octet<KIND>(from, n_column, column, octet, quads);
            UNROLL for (int k = 0; k < 2; k++)
                value_halves<KIND>(type, quads[k], column, a[k], b[k]);
            UNROLL for (int k = 0; k < (IS_PAIR ? 2 : 1); k++) {
                uvec4 words = k == 0 ? uvec4(a[0].x, a[0].y, a[1].x, a[1].y)
                                     : uvec4(b[0].x, b[0].y, b[1].x, b[1].y);
                value_clear(8 * octet, words);
                shared_store_16(value_at(tiles, octet, column_element(type, column) + 16 * k),
                                words);
            }
        });
    }

    // The same for the other types, four slots at a time, which takes few registers.
    inline void values_decode_quads(int type) {
        const int n_column = DIM_V / 2;
        const Raw from = raw_at(raw, type, DIM_V);
        uvec4 *tiles = phase_at(v_tiles);
        values_walk(n_column, [&](int column, int octet) {
            DONT_UNROLL for (int k = 0; k < 2; k++) {
                const int element = column_element(type, column);
                uvec2 a, b;
                value_halves<KIND_NIBBLES>(
                    type, raw_quad(from, type, n_column, column, 2 * octet + k), column, a, b);
                DONT_UNROLL for (int i = 0; i < 2; i++) {
                    uvec4 words = uvec4(i == 0 ? a : b, uvec2(0u, 0u));
                    value_clear(8 * octet + 4 * k, words);
                    ((uvec2 *)value_at(tiles, octet, element + 16 * i))[k] =
                        uvec2(words.x, words.y);
                }
            }
        });
    }

    inline uvec4 eight_pack(vec4 a, vec4 b) {
        return uvec4(pack_half2(a.x, a.y), pack_half2(a.z, a.w), pack_half2(b.x, b.y),
                     pack_half2(b.z, b.w));
    }

    // The softmax of a chunk: turns scores into p = exp(score - m) as f16, and updates row_m, row_l
    // and row_keep. p is NaN where the slot's V is odd and the row sees the slot. OF_ROW threads of
    // one wave have a row.
    inline void scores_softmax() {
        constexpr int N_QUAD = CHUNK / OF_ROW / 4;
        const int thread = phase_thread();
        int row = thread / OF_ROW, own = thread % OF_ROW, slot = 4 * N_QUAD * own;
        const vec4 *from = (const vec4 *)(phase_at(scores) + row * S_PITCH + slot);
        float *row_m = phase_at(this->row_m);
        uvec4 *tiles = phase_at(p_tiles);
        vec4 s[N_QUAD];
        UNROLL for (int i = 0; i < N_QUAD; i++) s[i] = from[i];
        float old = row_m[row], m = old;
        UNROLL for (int i = 0; i < N_QUAD; i++) UNROLL for (int k = 0; k < 4; k++) m =
            max(m, s[i][k]);
        UNROLL for (uint mask = 1; mask < OF_ROW; mask *= 2) m =
            max(m, bits_to_float(wave_xchg(float_to_bits(m), mask)));
        // -inf - -inf would be NaN: for a row that has seen no slot yet, p is 0.
        float shift = m == NEGATIVE_INFINITY ? 0.0f : m;
        float keep = old == m ? 1.0f : exp_of(old - shift);
        float sum = 0.0f;
        UNROLL for (int i = 0; i < N_QUAD; i++) UNROLL for (int k = 0; k < 4; k++) {
            s[i][k] = exp_of(s[i][k] - shift);
            sum += s[i][k];
        }
        uint odd = 0; // where V is part of K, scores_store() has made the score NaN
        if (!IS_LATENT) odd = odd_slots[slot / 32] >> slot % 32 & (1u << 4 * N_QUAD) - 1u;
        if (odd != 0) UNROLL for (int i = 0; i < N_QUAD; i++) UNROLL for (int k = 0; k < 4; k++) {
                if ((odd >> 4 * i + k & 1u) == 0 || s[i][k] == 0.0f) continue;
                s[i][k] = bits_to_float(0x7fc00000u);
            }
        UNROLL for (int i = 0; i < N_QUAD / 2; i++) shared_store_16(
            tiles + slot / 32 * (4 * ROWS) + half_tile_at(uint(row), uint(slot % 32 / 8 + i)),
            eight_pack(s[2 * i], s[2 * i + 1]));
        UNROLL for (uint mask = 1; mask < OF_ROW; mask *= 2) sum +=
            bits_to_float(wave_xchg(float_to_bits(sum), mask));
        if (own != 0) return;
        row_m[row] = m;
        row_keep[row] = keep;
        row_l[row] = fma(row_l[row], keep, sum);
    }

    // p is rounded to f16, so the hardware's exp2 is precise enough.
    inline float exp_of(float x) { return exp2_roughly(x * 1.44269504f); }

    // A strip of V, of slots 32 * g + 16 * step .. + 15.
    inline HalfMat value_load(const uvec4 *tiles, uint g, uint step, uint strip) {
        if (!IS_LATENT) return half_mat_load(tiles + g * (4 * V_ROWS), 16 * strip, step);
        return half_mat_load_transposed(tiles + strip / 2 * (4 * CHUNK), 32 * g + 16 * step,
                                        strip % 2);
    }

    // o = keep o + p V for the chunk whose p and V are in shared memory.
    inline void values_add() {
        const uint wave = own_wave(), first_row = team_row();
        const float *row_keep = phase_at(this->row_keep);
        const uvec4 *of_p = phase_at(p_tiles), *of_v = phase_at(IS_LATENT ? k_tiles : v_tiles);
        UNROLL for (uint r = 0; r < BANDS; r++) UNROLL for (uint i = 0; i < 8; i++) {
            if (i >= mat_count()) break;
            float keep = row_keep[sum_row(first_row, r, i)];
            UNROLL for (uint p = 0; p < MAX_STRIP; p++) if (p < strip_count()) o[r][p][i] *= keep;
        }
        UNROLL for (uint g = 0; g < CHUNK / 32; g++) UNROLL for (uint step = 0; step < 2; step++) {
            HalfMat p_mat[BANDS];
            UNROLL for (uint r = 0; r < BANDS; r++) p_mat[r] =
                half_mat_load(of_p + g * uint(4 * ROWS), first_row + 16 * r, step);
            UNROLL for (uint p = 0; p < MAX_STRIP; p++) {
                if (!strip_is_used(wave, p)) break;
                HalfMat v = value_load(of_v, g, step, strip_number(wave, p));
                UNROLL for (uint r = 0; r < BANDS; r++) half_mat_mul(o[r][p], p_mat[r], v);
            }
        }
    }

    // ---- Walking ----

    bool is_held = false; // a chunk is half folded: its scores are stored, its V is not yet added

    inline void tile_begin(ivec3 parts) {
        if (thread() < CHUNK / 32) odd_slots[thread()] = 0;
        queries_store();
        // For tile_end, where no register holds it. `eighth` is not used in between.
        if (thread() == 0) eighth[0] = bits_to_float(uint(parts.x));
        UNROLL for (uint r = 0; r < BANDS; r++) UNROLL for (uint p = 0; p < MAX_STRIP; p++)
            UNROLL for (uint i = 0; i < 8; i++) o[r][p][i] = 0.0f;
    }

    inline void keys_decode() {
        if (KIND_K == KIND_BYTES)
            keys_decode<KIND_BYTES>(TYPE_Q8_0);
        else if (!IS_LATENT && TYPE_K == TYPE_Q4_0)
            keys_decode<KIND_NIBBLES>(TYPE_Q4_0);
        else
            keys_decode<KIND_NIBBLES>(int(recomputed(uint(TYPE_K))));
    }

    inline void values_decode() {
        if (KIND_V == KIND_BYTES)
            values_decode<KIND_BYTES>(TYPE_Q8_0);
        else if (TYPE_V == TYPE_Q4_0)
            values_decode<KIND_NIBBLES>(TYPE_Q4_0);
        else
            values_decode_quads(int(recomputed(uint(TYPE_V))));
    }

    // Adds V of the chunk that is held; this thread's copies for it must have ended. Calls copy()
    // after the barrier that ends the use of `raw`, so that copy() may start copies to it. After
    // the call, the caller needs a barrier before it changes V, p or, where V is part of K, K.
    template <class Copy> inline void chunk_end(Copy copy) {
        if (!is_held) return copy();
        if (!IS_LATENT && KIND_V == KIND_PLAIN) values_check();
        if (!IS_LATENT && KIND_V != KIND_PLAIN) {
            barrier(); // what was copied
            values_decode();
        }
        barrier(); // V, odd_slots, scores
        copy();
        if (IS_LATENT && thread() < CHUNK / 32) odd_slots[thread()] = 0;
        scores_softmax();
        barrier(); // p
        if (!IS_LATENT && thread() < CHUNK / 32) odd_slots[thread()] = 0;
        values_add();
    }

    // chunk_fold where V is part of K.
    inline void chunk_fold_latent(u64 region, int start, int first, int last, int pos,
                                  bool is_whole) {
        chunk_end([&]() {
            if (KIND_K != KIND_PLAIN) raw_copy_keys(raw, TYPE_K, STORED_K, region, start, last);
        });
        copies_mark();
        if (KIND_K == KIND_PLAIN) {
            barrier(); // K of the chunk before has been read
            keys_copy(region, start, first, last);
            copies_mark();
            copies_wait<0>();
            keys_check();
        } else {
            copies_wait<0>();
            barrier(); // what was copied; K of the chunk before has been read
            keys_decode();
        }
        barrier(); // K, odd_slots
        scores_store(first, last, pos, is_whole);
        is_held = true;
    }

    // chunk_fold where K and V are apart.
    inline void chunk_fold_two(u64 region, int start, int first, int last, int pos, bool is_whole) {
        if (KIND_K == KIND_PLAIN) {
            if (KIND_V != KIND_PLAIN) copies_wait<0>();
            barrier(); // K of the chunk before has been read
            keys_copy(region, start, first, last);
            copies_mark();
            if (KIND_V == KIND_PLAIN) copies_wait<1>();
        } else {
            copies_wait<0>();
        }
        chunk_end([&]() {
            if (KIND_K != KIND_PLAIN) raw_copy_keys(raw, TYPE_K, STORED_K, region, start, last);
        });
        copies_mark();
        if (KIND_K != KIND_PLAIN) {
            copies_wait<0>();
            barrier(); // what was copied; K of the chunk before has been read
            keys_decode();
        }
        barrier(); // V and p of the chunk before have been read
        if (KIND_V == KIND_PLAIN)
            values_copy(region, start, last);
        else
            raw_copy_values(raw, TYPE_V, DIM_V, region, start, last);
        copies_mark();
        if (KIND_K == KIND_PLAIN) {
            copies_wait<1>();
            barrier(); // K
        }
        scores_store(first, last, pos, is_whole);
        is_held = true;
    }

    inline void chunk_fold(u64 region, int start, int first, int last, int pos, bool is_whole) {
        if (IS_LATENT)
            chunk_fold_latent(region, start, first, last, pos, is_whole);
        else
            chunk_fold_two(region, start, first, last, pos, is_whole);
    }

    inline void part_end(int, int) {}

    // A record of each row, for the parts of this workgroup.
    inline void tile_end(ivec3) {
        int count = args.word[19] >> 17;
        int n_record = ((args.word[9] & 0xffff) + count - 1) / count;
        copies_wait<0>();
        chunk_end([]() {});
        barrier();
        const int number = int(float_to_bits(eighth[0])) / count;
        for (int row = thread(); row < ROWS; row += THREADS) {
            if (!row_exists(row)) continue;
            F32 to = F32(record_address(row, number, n_record));
            to.at[0] = row_m[row];
            to.at[1] = row_l[row];
        }
        const uint wave = own_wave(), first_row = team_row();
        UNROLL for (uint r = 0; r < BANDS; r++) UNROLL for (uint i = 0; i < 8; i++) {
            if (i >= mat_count()) break;
            int row = sum_row(first_row, r, i);
            if (!row_exists(row) || row_m[row] == NEGATIVE_INFINITY) continue;
            F32 to = F32(record_address(row, number, n_record));
            UNROLL for (uint p = 0; p < MAX_STRIP; p++) {
                if (!strip_is_used(wave, p)) break;
                int element = int(16 * strip_number(wave, p) + mat_column(i));
                if (element < DIM_V) to.at[PART_HEAD + element] = o[r][p][i];
            }
        }
        // Only tiles with few rows merge (MERGE_ROWS of ops/attention.c), never taller ones than
        // these.
        if (!IS_LATENT && N_ROW == 32 && merges()) rows_merge(count, n_record);
    }

    inline void rows_merge(int count, int n_record) {
        const int n_tile_token = (args.word[7] + TOKENS - 1) / TOKENS;
        const int n_tile =
            n_tile_token * (args.word[19] & 0x1ffff) * ((args.word[11] + HEADS - 1) / HEADS);
        const int n_used = (parts_used(args.address[3], args.word[9] & 0xffff) + count - 1) / count;
        parts_merge(
            args, group_number() % uint(n_tile), uint(n_used), n_record, n_used,
            min(TOKENS, args.word[7] - first_token) * HEADS,
            [&](int row) { return row_number(row); }, [&](int row) { return row_exists(row); });
    }

    inline void run() { walk(*this); }
};

#endif

#endif
