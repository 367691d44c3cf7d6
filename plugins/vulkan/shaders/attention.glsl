// SPDX-License-Identifier: MIT
//
// attention.glsl: what the kernels of ATTENTION share: parts and entries of a sequence, visibility,
// and rows of K and V as floats. What a token computes must not depend on what else is in its step,
// so that attention_part.comp, attention_lane.comp and attention_tile.comp give the same bits.
// Hence this order of sums, which all keep:
//   - a sequence falls into parts by positions (part_number); parts are folded one after the other
//   - a part is folded entry by entry, an entry in chunks of CHUNK slots of its page
//   - a dot product adds element after element, o slot after slot, both by fma
//   - l adds 8 sums of 8 slots each
// A slot that a row does not see has p = 0 and is left out, whatever it holds.

const int CHUNK = 64;
// The first PARTS parts of a sequence have PART_LEN positions each, the next PARTS parts twice as
// many, and so on.
const int PART_LEN = 128;
const int PARTS = 64;
const int PART_HEAD = 4; // floats of a part's record before o: m, l and two that are not used
const int MAX_POS = 0x7fffffff;

#include "number.glsl"
#include "page_code.glsl"

int thread() {
    return int(gl_LocalInvocationID.x);
}

// exp(x) for x <= 0, to 2 units in the last place; below -87 it is 0. A NaN stays one.
float exp_of_negative(float x) {
    precise float at = max(x, -87.0);
    precise float n = roundEven(at * 1.44269504);
    precise float r = fma(n, 2.12194440e-4, fma(n, -0.693359375, at));
    precise float p = fma(1.392617612e-3, r, 8.363173075e-3);
    p = fma(p, r, 4.166655466e-2);
    p = fma(p, r, 1.666657703e-1);
    p = fma(p, r, 0.5);
    // All kernels must give the same bits. Some drivers add three terms in another order, `precise`
    // or not, and in one kernel only. This max, which changes nothing, prevents it.
    precise float e = 1.0 + max(fma(r * r, p, r), -0.5);
    precise float y = e * uintBitsToFloat(uint(int(n) + 127) << 23);
    return is_nan(x) ? x : x < -87.0 ? 0.0 : y;
}

float tanh_of_score(float x) {
    precise float a = abs(x), t = x * x;
    if (a < 0.625) {
        precise float p = fma(-6.045165091e-3, t, 2.09613291e-2);
        p = fma(p, t, -5.384326317e-2);
        p = fma(p, t, 1.333271885e-1);
        p = fma(p, t, -3.333332843e-1);
        return fma(x * t, p, x);
    }
    precise float e = exp_of_negative(-2.0 * a);
    precise float y = (1.0 - e) / (1.0 + e);
    return x < 0.0 ? -y : y;
}

// The positions that a token at `pos` sees, first and last; window 0: all. flags: SPEC5.
ivec2 window_sees(int pos, int window, int flags) {
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

// Set by attention_walk.glsl before each chunk: the query head of the first row, the distance in
// positions from the chunk's first slot to the token, and the bits of the chunk's slots that are in
// the token's list.
int walk_head = 0, walk_distance = 0;
uvec2 walk_listed = uvec2(0u);

// A score with ALiBi: less slope times distance.
float score_biased(float a, float slope, int distance) {
    precise float y = fma(-slope, float(abs(distance)), a);
    return y;
}

// The score that enters the softmax: with softcap (0 = none); -inf where the slot is not seen. A
// NaN becomes inf: max() might drop a NaN, while an infinite maximum gives p = NaN.
float score_of(float a, float softcap, bool is_visible) {
    if (softcap > 0.0) a = softcap * tanh_of_score(a / softcap);
    if (is_nan(a)) a = uintBitsToFloat(0x7f800000u);
    return is_visible ? a : NEGATIVE_INFINITY;
}

// ---- Softmax, step by step: m is the greatest score so far, l the sum of p = exp(score - m) ----

// p of a score that is at most m; 0 where the row does not see the slot.
float p_of(float score, float m) {
    precise float below = score - m;
    return score == NEGATIVE_INFINITY ? 0.0 : exp_of_negative(below);
}

// What l and o with the maximum m are multiplied by when the maximum becomes `larger`.
float keep_of(float m, float larger) {
    precise float below = m - larger;
    return m == larger ? 1.0 : exp_of_negative(below);
}

// ---- Parts ----

int part_number(int pos) {
    int level = findMSB(uint(pos) / uint(PARTS * PART_LEN) + 1u);
    int first = PARTS * PART_LEN * ((1 << level) - 1);
    return PARTS * level + int(uint(pos - first) / uint(PART_LEN << level));
}

// The first position of a part; MAX_POS where there is none so far.
int part_begin(int number) {
    int level = number / PARTS;
    if (level > 17) return MAX_POS;
    int first = PARTS * PART_LEN * ((1 << level) - 1);
    return first + number % PARTS * (PART_LEN << level);
}

// ---- Rows of a cache with a stride (kv.h): entries, positions and slots count them ----

const int STRIDE = SPEC5 >> 16 > 1 ? SPEC5 >> 16 : 1;

// The last row that a token at `pos` sees, -1 = none: its position, but for a cache with a stride.
int pos_row(int pos) {
    return STRIDE > 1 && pos >= 0 ? int((uint(pos) + 1u) / uint(STRIDE)) - 1 : pos;
}

// An entry whose slots and positions count tokens, as one that counts rows: a row belongs to the
// run of STRIDE positions that ends at one of the entry's positions.
ivec4 entry_rows(ivec4 entry) {
    int row = entry.w / STRIDE, to_end = STRIDE - 1 - entry.w % STRIDE;
    int count = entry.z > 0 ? (entry.w + entry.z) / STRIDE - row : 0;
    return ivec4(entry.x, (entry.y + to_end) / STRIDE, count, row);
}

// How many parts the longest sequence of the step may have; a plan has room for n_part
// (attention.c). Parts are counted from that of the sequence's first entry, which may begin inside
// a part where a window has dropped earlier pages: hence one more than for a sequence from position
// 0 on. The last part goes on to the end of the sequence, in case there are gaps between its
// positions.
int parts_used(uint64_t step, int n_part) {
    int longest = I32(step).at[STEP_LONGEST];
    return longest > 0 ? min(n_part, part_number((longest - 1) / STRIDE) + 2) : n_part;
}

// ---- Entries of a sequence ----

struct step_entries {
    I32 words;       // of the entries: page, first, count, base position
    int first, last; // entries first .. last - 1
};

// Words of the step block: where pos, seq, first_entry and entries begin, then the capacities n_seq
// and n_entry. No content of the block leads outside it.
step_entries entries_of(uint64_t step, int seq, ivec2 off, ivec2 cap) {
    step_entries e = step_entries(I32(step + uint64_t(uint(off.y)) * 4), 0, 0);
    if (seq < 0 || seq >= min(cap.x, I32(step).at[STEP_N_SEQ])) return e;
    int first = I32(step).at[off.x + seq], last = I32(step).at[off.x + seq + 1];
    if (first < 0 || last > cap.y || first >= last) return e;
    e.first = first;
    e.last = last;
    return e;
}

int entry_base(step_entries e, int at) {
    int base = e.words.at[4 * at + 3];
    return STRIDE > 1 ? base / STRIDE : base;
}

// The first entry whose base position is not below pos.
int entry_find(step_entries e, int pos) {
    int low = e.first, high = e.last;
    while (low < high) {
        int middle = (low + high) / 2;
        if (entry_base(e, middle) < pos)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

// An entry limited to what the state holds: page, first, count, base; count 0 where nothing is
// left.
ivec4 entry_read(step_entries e, int at) {
    ivec4 entry = ivec4(e.words.at[4 * at], e.words.at[4 * at + 1], e.words.at[4 * at + 2],
                        e.words.at[4 * at + 3]);
    int len = page_len() * STRIDE;
    if (entry.x < 0 || entry.x >= page_count() || entry.y < 0 || entry.y >= len ||
        entry.w < 0)
        entry.z = 0;
    entry.z = min(min(entry.z, len - max(entry.y, 0)), MAX_POS - max(entry.w, 0));
    return STRIDE > 1 ? entry_rows(entry) : entry;
}

// ---- Lists of slots, and a bias for each distance: SPEC5 of kernels of parts and tiles ----

// The bias of a query head for a slot `distance` positions before its token.
// table: [2 * n_far + 1, n_head]
float bias_of(uint64_t table, int n_far, int head, int distance) {
    int at = n_far + clamp(-distance, -n_far, n_far);
    return F32(table).at[head * (2 * n_far + 1) + at];
}

// The list of a token (select_slots.comp): for each entry of its sequence, from the first on, a bit
// for each slot of the entry's page. There is one list for each KV head of the state, or one for
// all.
U32 list_of(uint64_t lists, int token, int kv) {
    int list = (SPEC5 & 256) != 0 ? kv : 0, n_word = (page_len() + 31) / 32;
    return U32(lists + uint64_t(uint(list * args.word[7] + token)) *
                           uint64_t(uint(args.word[17] * n_word * 4)));
}

// The bits of the CHUNK slots from `start` on, a multiple of CHUNK, of entry number `entry` of the
// sequence.
uvec2 list_chunk(U32 list, int entry, int start) {
    int at = entry * ((page_len() + 31) / 32) + start / 32;
    return uvec2(list.at[at], page_len() > 32 ? list.at[at + 1] : 0u);
}

bool chunk_has(uvec2 chunk, int slot) {
    return ((slot < 32 ? chunk.x : chunk.y) >> (slot & 31) & 1u) != 0u;
}
// Whether one of the four slots from 4 * quad on is listed.
bool chunk_has_quad(uvec2 chunk, int quad) {
    return ((quad < 8 ? chunk.x : chunk.y) >> (4 * quad & 31) & 15u) != 0u;
}

// ---- Rows of the cache ----

// d and m of block `at` of a plane of scales; m is 0 for types without it.
vec2 scale_load(int type, uint64_t plane, uint at) {
    if (type_has_min(type)) return unpackHalf2x16(U32(plane).at[at]);
    return vec2(unpackHalf2x16(uint(U16(plane).at[at])).x, 0.0);
}

int unit_len(int type) {
    return type == TYPE_F32 ? 4 : type == TYPE_Q8_0 ? 16 : type_is_plain(type) ? 8 : 32;
}

// The elements of unit u of a slot in K's arrangement: unit_len / 4 vectors.
void unit_load(int type, uint64_t region, int n_block, int slot, int u, out vec4 x[8]) {
    int n_slot = page_slots();
    uvec4 words = U32x4(region).at[uint(u * n_slot + slot)];
    if (type == TYPE_F32) {
        x[0] = uintBitsToFloat(words);
    } else if (type == TYPE_F16) {
        x[0] = vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y));
        x[1] = vec4(unpackHalf2x16(words.z), unpackHalf2x16(words.w));
    } else if (type == TYPE_BF16) {
        x[0] = uintBitsToFloat(uvec4(words.x << 16, words.x & 0xffff0000u, words.y << 16,
                                     words.y & 0xffff0000u));
        x[1] = uintBitsToFloat(uvec4(words.z << 16, words.z & 0xffff0000u, words.w << 16,
                                     words.w & 0xffff0000u));
    } else if (type == TYPE_Q8_0) {
        vec2 scale = scale_load(type, region + page_k_scale(), uint(u / 2 * n_slot + slot));
        [[unroll]] for (int w = 0; w < 4; w++) [[unroll]] for (int i = 0; i < 4; i++)
            x[w][i] = code_scaled(type, words[w] >> 8 * i & 255u, scale);
    } else {
        uint at = uint(u * n_slot + slot), bits = 0u;
        uint64_t plane = region + page_k_scale();
        vec2 scale = scale_load(type, plane, at);
        if (type_has_fifth(type)) bits = U32(plane + page_fifth(type, n_block)).at[at];
        [[unroll]] for (int w = 0; w < 4; w++) [[unroll]] for (int i = 0; i < 4; i++) {
            uint low = words[w] >> 8 * i & 15u, high = words[w] >> 8 * i + 4 & 15u;
            if (type_has_fifth(type)) {
                low |= (bits >> 4 * w + i & 1u) << 4;
                high |= (bits >> 4 * w + i + 16 & 1u) << 4;
            }
            x[w][i] = code_scaled(type, low, scale);
            x[w + 4][i] = code_scaled(type, high, scale);
        }
    }
}

// Whether a column of V has two elements, i and i + 16 of its block; as a constant expression where
// the type is constant.
#define COLUMN_IS_PAIR(type) (!TYPE_IS_PLAIN(type) && (type) != TYPE_Q8_0)
bool column_is_pair(int type) {
    return COLUMN_IS_PAIR(type);
}
// The first element of a column.
int column_element(int type, int column) {
    return column_is_pair(type) ? column / 16 * 32 + column % 16 : column;
}

// Codes of four slots as numbers: the first elements of a column, and the second ones (0 where it
// is no pair). bit: of the first element in `fifths`.
void pair_scale(int type, uvec4 codes, uvec4 fifths, int bit, vec2 scale[4], out vec4 a, out vec4 b) {
    [[unroll]] for (int i = 0; i < 4; i++) {
        uint low = codes[i] & 15u, high = codes[i] >> 4;
        if (type_has_fifth(type)) {
            low |= (fifths[i] >> bit & 1u) << 4;
            high |= (fifths[i] >> bit + 16 & 1u) << 4;
        }
        if (column_is_pair(type)) {
            a[i] = code_scaled(type, low, scale[i]);
            b[i] = code_scaled(type, high, scale[i]);
        } else {
            a[i] = code_scaled(type, codes[i], scale[i]);
            b[i] = 0.0;
        }
    }
}

// A column of the four slots from `slot` on: its element, and its second one where it is a pair.
void column_load(int type, int n_column, int n_block, uint64_t region, int slot, int column,
                 out vec4 a, out vec4 b) {
    uint64_t codes = region + page_v_code();
    uint at = uint(slot / 4 * n_column + column);
    b = vec4(0.0);
    if (type == TYPE_F32) {
        a = uintBitsToFloat(U32x4(codes).at[at]);
        return;
    }
    if (type_is_plain(type)) {
        uvec2 words = U32x2(codes).at[at];
        a = type == TYPE_F16
                ? vec4(unpackHalf2x16(words.x), unpackHalf2x16(words.y))
                : uintBitsToFloat(uvec4(words.x << 16, words.x & 0xffff0000u, words.y << 16,
                                        words.y & 0xffff0000u));
        return;
    }
    int n_slot = page_slots(), block = column / (type == TYPE_Q8_0 ? 32 : 16);
    uint word = U32(codes).at[at], quad = uint(block * n_slot + slot) / 4u;
    uint64_t plane = region + page_v_scale();
    vec2 scale[4];
    uvec4 fifths = uvec4(0u);
    if (type_has_min(type)) {
        uvec4 scales = U32x4(plane).at[quad];
        [[unroll]] for (int i = 0; i < 4; i++) scale[i] = unpackHalf2x16(scales[i]);
    } else {
        uvec2 scales = U32x2(plane).at[quad];
        vec4 d = vec4(unpackHalf2x16(scales.x), unpackHalf2x16(scales.y));
        [[unroll]] for (int i = 0; i < 4; i++) scale[i] = vec2(d[i], 0.0);
    }
    if (type_has_fifth(type)) fifths = U32x4(plane + page_fifth(type, n_block)).at[quad];
    uvec4 bytes = uvec4(word & 255u, word >> 8 & 255u, word >> 16 & 255u, word >> 24);
    pair_scale(type, bytes, fifths, column % 16, scale, a, b);
}

// The same from K's arrangement.
void column_load_from_k(int type, int n_block, uint64_t region, int slot, int column, out vec4 a,
                        out vec4 b) {
    int n_slot = page_slots(), size = type_is_plain(type) ? type_size(type) : 1;
    int block = column / (type == TYPE_Q8_0 ? 32 : 16);
    uint off = uint(column * size);
    uint64_t plane = region + page_k_scale();
    uvec4 codes, fifths = uvec4(0u);
    vec2 scale[4];
    b = vec4(0.0);
    [[unroll]] for (int i = 0; i < 4; i++) {
        uint64_t at = region + (off / 16u * uint(n_slot) + uint(slot + i)) * 16u + off % 16u;
        codes[i] = size == 4 ? U32(at).at[0] : size == 2 ? uint(U16(at).at[0]) : uint(U8(at).at[0]);
        scale[i] = vec2(0.0);
        if (type_is_plain(type)) continue;
        uint scale_at = uint(block * n_slot + slot + i);
        scale[i] = scale_load(type, plane, scale_at);
        if (type_has_fifth(type)) fifths[i] = U32(plane + page_fifth(type, n_block)).at[scale_at];
    }
    if (type == TYPE_F32)
        a = uintBitsToFloat(codes);
    else if (type == TYPE_BF16)
        a = uintBitsToFloat(codes << 16);
    else if (type == TYPE_F16)
        a = vec4(unpackHalf2x16(codes.x | codes.y << 16), unpackHalf2x16(codes.z | codes.w << 16));
    else
        pair_scale(type, codes, fifths, column % 16, scale, a, b);
}
