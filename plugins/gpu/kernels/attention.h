/* SPDX-License-Identifier: MIT
 *
 * attention.h: what the kernels of ATTENTION share: parts and entries of a sequence, visibility,
 * and rows of K and V as floats. The bits of a token's result must not depend on which other tokens
 * are in its step. One step uses attention_part.cu, another attention_tile.cu: both must give the
 * same bits. So both keep this order of sums:
 *   - a sequence falls into parts by positions (part_number); parts are folded one after the other
 *   - a part is folded entry by entry, an entry in chunks of CHUNK slots of its page
 *   - a dot product adds element after element, o slot after slot, both by fma
 *   - l adds 8 sums of 8 slots each
 * A slot that a row does not see has p = 0 and is left out of o: its contents, even NaN, have no
 * effect.
 */
#ifndef TANDEM_GPU_ATTENTION_H
#define TANDEM_GPU_ATTENTION_H

#include "page_code.h"
#include "page_rotate.h"

struct Attention : PageRotate {
    inline Attention(const Args &args_, int row_len) : PageRotate(args_, row_len) {}

    static constexpr int CHUNK = 64;
    // Positions of each of the first PARTS parts; each of the next PARTS parts has twice as many.
    static constexpr int PART_LEN = 128;
    static constexpr int PARTS = 64;
    // Floats of a part's record before o: m, l and two that are not used.
    static constexpr int PART_HEAD = 4;
    static constexpr int MAX_POS = 0x7fffffff;

    // exp(x) for x <= 0, to 2 units in the last place; 0 for x below -87. A NaN stays a NaN.
    inline float exp_of_negative(float x) {
        float at = max(x, -87.0f);
        float n = round_even(at * 1.44269504f);
        float r = fma(n, 2.12194440e-4f, fma(n, -0.693359375f, at));
        float p = fma(1.392617612e-3f, r, 8.363173075e-3f);
        p = fma(p, r, 4.166655466e-2f);
        p = fma(p, r, 1.666657703e-1f);
        p = fma(p, r, 0.5f);
        float e = 1.0f + fma(r * r, p, r);
        float y = e * bits_to_float(uint(int(n) + 127) << 23);
        return is_nan(x) ? x : x < -87.0f ? 0.0f : y;
    }

    // p of a score that is at most m; 0 where the row does not see the slot.
    inline float p_of(float score, float m) {
        return score == NEGATIVE_INFINITY ? 0.0f : exp_of_negative(score - m);
    }
    // What l and o with the maximum m are multiplied by when the maximum becomes `larger`.
    inline float keep_of(float m, float larger) {
        return m == larger ? 1.0f : exp_of_negative(m - larger);
    }

    inline float tanh_of_score(float x) {
        float a = abs(x), t = x * x;
        if (a < 0.625f) {
            float p = fma(-6.045165091e-3f, t, 2.09613291e-2f);
            p = fma(p, t, -5.384326317e-2f);
            p = fma(p, t, 1.333271885e-1f);
            p = fma(p, t, -3.333332843e-1f);
            return fma(x * t, p, x);
        }
        float e = exp_of_negative(-2.0f * a);
        float y = (1.0f - e) / (1.0f + e);
        return x < 0.0f ? -y : y;
    }

    // The positions that a token at `pos` sees, first and last; window 0: all. flags: SPEC5.
    inline ivec2 window_sees(int pos, int window, int flags) {
        bool is_causal = (flags & 1) != 0, is_chunked = (flags & 8) != 0;
        bool is_symmetric = (flags & 32) != 0;
        ivec2 sees = ivec2(0, is_causal ? pos : MAX_POS);
        if (window <= 0) return sees;
        sees.x = is_chunked ? max(pos, 0) / window * window : max(pos - window + 1, 0);
        if (!is_symmetric) return sees;
        sees.x = max(pos - window / 2, 0);
        if (!is_causal && pos < MAX_POS - window / 2) sees.y = pos + window / 2;
        return sees;
    }

    // A score with ALiBi. distance: position of the token minus that of the slot.
    inline float score_biased(float a, float slope, int distance) {
        return fma(-slope, float(distance < 0 ? -distance : distance), a);
    }

    // The final score: softcap applied (0 = none), and -inf where the slot is not seen. A NaN
    // becomes inf: it takes part in the maximum m, and p = exp(inf - inf) is NaN again.
    inline float score_of(float a, float softcap, bool is_visible) {
        if (softcap > 0.0f) a = softcap * tanh_of_score(a / softcap);
        if (is_nan(a)) a = bits_to_float(0x7f800000u);
        return is_visible ? a : NEGATIVE_INFINITY;
    }

    // ---- Parts ----

    // The part that a position (of a cache with a stride: a row) belongs to. Parts PARTS * level to
    // PARTS * (level + 1) - 1 have PART_LEN << level positions each.
    inline int part_number(int pos) {
        int level = top_bit(uint(pos) / uint(PARTS * PART_LEN) + 1u);
        int first = PARTS * PART_LEN * ((1 << level) - 1);
        return PARTS * level + int(uint(pos - first) / uint(PART_LEN << level));
    }

    // The first position of a part; MAX_POS where it would be beyond all positions.
    inline int part_begin(int number) {
        int level = number / PARTS;
        if (level > 17) return MAX_POS;
        int first = PARTS * PART_LEN * ((1 << level) - 1);
        return first + number % PARTS * (PART_LEN << level);
    }

    // ---- Rows of a cache with a stride (kv.h): entries, positions and slots count them ----

    const int STRIDE = SPEC5 >> 16 > 1 ? SPEC5 >> 16 : 1;

    // How many parts the longest sequence of the step may fall into, at most n_part: a plan has
    // room for more (ops/attention.c). It is one more than for a sequence that begins at position
    // 0, since a window may begin inside a part. The last part reaches to the end of the sequence,
    // so that positions with gaps between them are covered too.
    inline int parts_used(u64 step, int n_part) {
        int longest = I32(step).at[STEP_LONGEST];
        return longest > 0 ? min(n_part, part_number((longest - 1) / STRIDE) + 2) : n_part;
    }

    // The last row that a token at `pos` sees; -1 = none. Without a stride that is `pos`. With one,
    // a row stands for STRIDE positions and exists when the last of them does.
    inline int pos_row(int pos) {
        return STRIDE > 1 && pos >= 0 ? int((uint(pos) + 1u) / uint(STRIDE)) - 1 : pos;
    }

    // An entry (page, first slot, count, base position) of tokens, as an entry of rows: those rows
    // whose last position is one of the entry's. Base and slots count rows then.
    inline ivec4 entry_rows(ivec4 entry) {
        int row = entry.w / STRIDE, to_end = STRIDE - 1 - entry.w % STRIDE;
        int count = entry.z > 0 ? (entry.w + entry.z) / STRIDE - row : 0;
        return ivec4(entry.x, (entry.y + to_end) / STRIDE, count, row);
    }

    // ---- Entries of a sequence ----

    struct step_entries {
        I32 words;       // [n_entry][4] page, first slot, count, base position
        int first, last; // entries first .. last - 1
    };

    // The entries of a sequence, none where the step block is wrong: whatever the block contains,
    // nothing outside it is read. off: words at which first_entry and the entries begin; cap: the
    // capacities n_seq and n_entry.
    inline step_entries entries_of(u64 step, int seq, ivec2 off, ivec2 cap) {
        step_entries e = {I32(step + u64(uint(off.y)) * 4), 0, 0};
        if (seq < 0 || seq >= min(cap.x, I32(step).at[STEP_N_SEQ])) return e;
        int first = I32(step).at[off.x + seq], last = I32(step).at[off.x + seq + 1];
        if (first < 0 || last > cap.y || first >= last) return e;
        e.first = first;
        e.last = last;
        return e;
    }

    inline int entry_base(step_entries e, int at) {
        int base = e.words.at[4 * at + 3];
        return STRIDE > 1 ? base / STRIDE : base;
    }

    // The first entry whose base position is not below pos. Most sequences have whole pages without
    // gaps. So the place that it has then is tested first, before a binary search.
    inline int entry_find(step_entries e, int pos) {
        int low = e.first, high = e.last;
        if (low >= high) return low;
        uint len = uint(page_len());
        int guess = low + int(min((uint(pos) + len - 1u) / len, uint(high - low)));
        int before = guess > e.first ? entry_base(e, guess - 1) : -1;
        int at = guess < e.last ? entry_base(e, guess) : MAX_POS;
        if (before < pos && at >= pos) return guess;
        while (low < high) {
            int middle = (low + high) / 2;
            if (entry_base(e, middle) < pos)
                low = middle + 1;
            else
                high = middle;
        }
        return low;
    }

    // Entry `at`, limited to slots that the state holds: page, first slot, count, base position.
    // Count is 0 or less where nothing is left.
    inline ivec4 entry_read(step_entries e, int at) {
        ivec4 entry = ivec4(e.words.at[4 * at], e.words.at[4 * at + 1], e.words.at[4 * at + 2],
                            e.words.at[4 * at + 3]);
        int len = page_len() * STRIDE;
        if (entry.x < 0 || entry.x >= page_count() || entry.y < 0 || entry.y >= len || entry.w < 0)
            entry.z = 0;
        entry.z = min(min(entry.z, len - max(entry.y, 0)), MAX_POS - max(entry.w, 0));
        return STRIDE > 1 ? entry_rows(entry) : entry;
    }

    // ---- Rows of the cache ----

    // d and m of a block, from the bits of its f16 scale or scales; m is 0 for types without a
    // minimum.
    inline vec2 scale_decode(int type, uint bits) {
        vec2 scale = unpack_half2(bits);
        if (!type_has_min(type)) scale.y = 0.0f;
        return scale;
    }

    inline vec2 scale_load(int type, u64 plane, uint at) {
        return scale_decode(type, type_has_min(type) ? U32(plane).at[at] : uint(U16(plane).at[at]));
    }

    // Elements of a unit of K: 16 bytes of codes or elements of one slot.
    inline int unit_len(int type) {
        return type == TYPE_F32 ? 4 : type == TYPE_Q8_0 ? 16 : type_is_plain(type) ? 8 : 32;
    }

    // How the elements of a type are stored. Kernels have a loop for each, which loads what it
    // needs of several units before it decodes the first.
    static constexpr int KIND_PLAIN = 0, KIND_BYTES = 1, KIND_NIBBLES = 2;
    inline int kind_of(int type) {
        return type_is_plain(type) ? KIND_PLAIN : type == TYPE_Q8_0 ? KIND_BYTES : KIND_NIBBLES;
    }

    // A unit of K of a slot as the cache stores it.
    struct Unit {
        uvec4 words;      // codes or elements
        uint scale, bits; // f16 scale (and minimum), fifth bits; undefined for types without them
    };

    // Unit u of a slot in K's arrangement.
    template <int KIND> inline Unit unit_fetch(int type, u64 region, int n_block, int slot, int u) {
        int n_slot = page_slots();
        Unit unit;
        unit.words = U32x4(region).at[uint(u * n_slot + slot)];
        if (KIND == KIND_PLAIN) return unit;
        uint at = uint((KIND == KIND_BYTES ? u / 2 : u) * n_slot + slot);
        u64 plane = region + page_k_scale();
        unit.bits = 0u;
        if (KIND == KIND_BYTES || !type_has_min(type))
            unit.scale = uint(U16(plane).at[at]);
        else
            unit.scale = U32(plane).at[at];
        if (KIND == KIND_NIBBLES && type_has_fifth(type))
            unit.bits = U32(plane + page_fifth(type, n_block)).at[at];
        return unit;
    }

    // The elements of a unit: unit_len / 4 vectors.
    template <int KIND> inline void unit_decode(int type, const Unit &unit, vec4 x[8]) {
        const uvec4 &words = unit.words;
        if (KIND == KIND_BYTES) {
            vec2 scale = scale_decode(TYPE_Q8_0, unit.scale);
            UNROLL for (int w = 0; w < 4; w++) UNROLL for (int i = 0; i < 4; i++) x[w][i] =
                byte_scaled(words[w] >> 8 * i & 255u, scale);
        } else if (KIND == KIND_NIBBLES) {
            vec2 scale = scale_decode(type, unit.scale);
            UNROLL for (int w = 0; w < 4; w++)
                nibbles_load(type, words[w], unit.bits >> 4 * w, scale, x[w], x[w + 4]);
        } else if (type == TYPE_F32) {
            x[0] = bits_to_float(words);
        } else if (type == TYPE_F16) {
            x[0] = vec4(unpack_half2(words.x), unpack_half2(words.y));
            x[1] = vec4(unpack_half2(words.z), unpack_half2(words.w));
        } else {
            x[0] = bits_to_float(
                uvec4(words.x << 16, words.x & 0xffff0000u, words.y << 16, words.y & 0xffff0000u));
            x[1] = bits_to_float(
                uvec4(words.z << 16, words.z & 0xffff0000u, words.w << 16, words.w & 0xffff0000u));
        }
    }

    // The eight codes of a word as numbers: a[i] of the low nibble of byte i, b[i], 16 elements
    // further on, of the high one. Their fifth bits are bits i and i + 16 of `bits`, 0 for types
    // without. There is one branch on the type for all eight.
    inline void nibbles_load(int type, uint word, uint bits, vec2 scale, vec4 &a, vec4 &b) {
        if (type == TYPE_IQ4_NL) {
            UNROLL for (int i = 0; i < 4; i++) {
                a[i] = iq4_value(word >> 8 * i & 15u) * scale.x;
                b[i] = iq4_value(word >> 8 * i + 4 & 15u) * scale.x;
            }
            return;
        }
        float offset = code_offset(type);
        UNROLL for (int i = 0; i < 4; i++) {
            uint low = (word >> 8 * i & 15u) | (bits >> i & 1u) << 4;
            uint high = (word >> 8 * i + 4 & 15u) | (bits >> i + 16 & 1u) << 4;
            a[i] = value_scaled(type, code_minus(low, offset), scale);
            b[i] = value_scaled(type, code_minus(high, offset), scale);
        }
    }

    // Whether a column of V, a byte of each slot, has two codes: of elements i and i + 16 of a
    // block.
    inline bool column_is_pair(int type) {
        return !type_is_plain(type) && type != TYPE_Q8_0;
    }
    // The (first) element of a column.
    inline int column_element(int type, int column) {
        return column_is_pair(type) ? column / 16 * 32 + column % 16 : column;
    }

    // The codes of a column in four slots, a byte each, as numbers: a, and of a pair b the second
    // ones. fifths: words of fifth bits, of which bits `bit` and, for b, bit + 16 are the column's.
    // scale: d and m of each slot.
    inline void codes_scale(int type, uvec4 codes, uvec4 fifths, int bit, const vec2 scale[4],
                            vec4 &a, vec4 &b) {
        b = vec4(0.0f);
        if (type == TYPE_Q8_0) {
            UNROLL for (int i = 0; i < 4; i++) a[i] = byte_scaled(codes[i], scale[i]);
            return;
        }
        if (type == TYPE_IQ4_NL) {
            UNROLL for (int i = 0; i < 4; i++) {
                a[i] = iq4_value(codes[i] & 15u) * scale[i].x;
                b[i] = iq4_value(codes[i] >> 4) * scale[i].x;
            }
            return;
        }
        float offset = code_offset(type);
        UNROLL for (int i = 0; i < 4; i++) {
            uint low = (codes[i] & 15u) | (fifths[i] >> bit & 1u) << 4;
            uint high = codes[i] >> 4 | (fifths[i] >> bit + 16 & 1u) << 4;
            a[i] = value_scaled(type, code_minus(low, offset), scale[i]);
            b[i] = value_scaled(type, code_minus(high, offset), scale[i]);
        }
    }

    // A column of V of four slots as the cache stores it.
    struct Quad {
        uvec4 words, scales, fifths; // as many words of them as kind and type have
    };

    // A column of the four slots from `slot` on, a multiple of 4.
    template <int KIND>
    inline Quad column_fetch(int type, int n_column, int n_block, u64 region, int slot,
                             int column) {
        u64 codes = region + page_v_code();
        uint at = uint(slot / 4 * n_column + column);
        Quad quad;
        if (KIND == KIND_PLAIN) {
            if (type == TYPE_F32) {
                quad.words = U32x4(codes).at[at];
            } else {
                uvec2 words = U32x2(codes).at[at];
                quad.words.x = words.x;
                quad.words.y = words.y;
            }
            return quad;
        }
        int n_slot = page_slots(), block = column / (KIND == KIND_BYTES ? 32 : 16);
        uint of_block = uint(block * n_slot + slot) / 4u;
        u64 plane = region + page_v_scale();
        quad.words.x = U32(codes).at[at];
        if (KIND == KIND_NIBBLES && type_has_min(type)) {
            quad.scales = U32x4(plane).at[of_block];
        } else {
            uvec2 scales = U32x2(plane).at[of_block];
            quad.scales.x = scales.x;
            quad.scales.y = scales.y;
        }
        quad.fifths = uvec4(0u);
        if (KIND == KIND_NIBBLES && type_has_fifth(type))
            quad.fifths = U32x4(plane + page_fifth(type, n_block)).at[of_block];
        return quad;
    }

    // The column's element in each of the four slots, and the second one in b where it is a pair.
    template <int KIND>
    inline void column_decode(int type, const Quad &quad, int column, vec4 &a, vec4 &b) {
        const uvec4 &words = quad.words;
        b = vec4(0.0f);
        if (KIND == KIND_PLAIN) {
            if (type == TYPE_F32)
                a = bits_to_float(words);
            else if (type == TYPE_F16)
                a = vec4(unpack_half2(words.x), unpack_half2(words.y));
            else
                a = bits_to_float(uvec4(words.x << 16, words.x & 0xffff0000u, words.y << 16,
                                        words.y & 0xffff0000u));
            return;
        }
        vec2 scale[4];
        if (KIND == KIND_NIBBLES && type_has_min(type)) {
            UNROLL for (int i = 0; i < 4; i++) scale[i] = unpack_half2(quad.scales[i]);
        } else {
            vec4 d = vec4(unpack_half2(quad.scales.x), unpack_half2(quad.scales.y));
            UNROLL for (int i = 0; i < 4; i++) scale[i] = vec2(d[i], 0.0f);
        }
        uint word = words.x;
        uvec4 bytes = uvec4(word & 255u, word >> 8 & 255u, word >> 16 & 255u, word >> 24);
        codes_scale(KIND == KIND_BYTES ? TYPE_Q8_0 : type, bytes, quad.fifths, column % 16, scale,
                    a, b);
    }

    // The same for V that is part of K: a column of four slots in K's arrangement, at once.
    inline void column_load_from_k(int type, int n_block, u64 region, int slot, int column, vec4 &a,
                                   vec4 &b) {
        int n_slot = page_slots(), size = type_is_plain(type) ? type_size(type) : 1;
        int block = column / (type == TYPE_Q8_0 ? 32 : 16);
        uint off = uint(column * size);
        u64 plane = region + page_k_scale();
        uvec4 codes, fifths = uvec4(0u);
        vec2 scale[4];
        b = vec4(0.0f);
        UNROLL for (int i = 0; i < 4; i++) {
            u64 at = region + (off / 16u * uint(n_slot) + uint(slot + i)) * 16u + off % 16u;
            codes[i] = size == 4   ? U32(at).at[0]
                       : size == 2 ? uint(U16(at).at[0])
                                   : uint(U8(at).at[0]);
            scale[i] = vec2(0.0f);
            if (type_is_plain(type)) continue;
            uint scale_at = uint(block * n_slot + slot + i);
            scale[i] = scale_load(type, plane, scale_at);
            if (type_has_fifth(type))
                fifths[i] = U32(plane + page_fifth(type, n_block)).at[scale_at];
        }
        if (type == TYPE_F32)
            a = bits_to_float(codes);
        else if (type == TYPE_BF16)
            a = bits_to_float(codes << 16);
        else if (type == TYPE_F16)
            a = vec4(unpack_half2(codes.x | codes.y << 16), unpack_half2(codes.z | codes.w << 16));
        else
            codes_scale(type, codes, fifths, column % 16, scale, a, b);
    }
};

#endif
