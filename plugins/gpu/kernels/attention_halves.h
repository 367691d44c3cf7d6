/* SPDX-License-Identifier: MIT
 *
 * attention_halves.h: rows of K and V of types with blocks as f16, for attention_matrix.h. The
 * codes and scales of a chunk are copied to shared memory as they lie in the page, and decoded from
 * there into words of two f16: a unit of K, or a column of four slots of V at a time (attention.h).
 * So no thread waits for memory, no register holds what is loaded, and neighbouring threads copy
 * sixteen bytes each.
 *
 * Four codes are the bytes of a word. A code becomes f16 without a conversion: it is inserted into
 * the mantissa of 1024, and 1024 and the type's offset are subtracted; that is exact. Its product
 * with the scale is rounded to f16; so is the sum with the minimum, of types that have one.
 */
#ifndef TANDEM_GPU_ATTENTION_HALVES_H
#define TANDEM_GPU_ATTENTION_HALVES_H

#include "attention_walk.h"

#ifdef HAS_HALF_MATS
struct AttentionHalves : AttentionWalk {
    inline AttentionHalves(const Args &args_, int rows, int threads)
        : AttentionWalk(args_, rows, threads) {}

    // thread_id(), opaque to the compiler. A chunk has several phases; addresses that a phase
    // computes from this are computed again for each chunk, so that no register holds them
    // meanwhile.
    inline int phase_thread() { return int(recomputed(thread_id())); }

    // An address in shared memory, opaque in the same way.
    template <class T> static inline T *phase_at(T *at) {
        return (T *)(shared_memory() + recomputed(uint((char *)at - shared_memory())));
    }

    // ---- Copies of a chunk ----

    // The codes, scales [block][slot] and fifth bits [block][slot] of a chunk of K or V in shared
    // memory, one after the other.
    struct Raw {
        uvec4 *codes, *scales, *fifths;
    };

    // Bytes of the codes of a row of dim elements.
    static inline int raw_columns(int type, int dim) { return type == TYPE_Q8_0 ? dim : dim / 2; }

    // The parts of what lies at `raw`, for rows of dim elements, whole blocks.
    inline Raw raw_at(uvec4 *raw, int type, int dim) {
        raw = phase_at(raw);
        dim = int(recomputed(uint(dim)));
        uvec4 *scales = raw + raw_columns(type, dim) * CHUNK / 16;
        return {raw, scales, scales + dim / 32 * (type_has_min(type) ? CHUNK / 4 : CHUNK / 8)};
    }

    // Starts to copy the scales and fifth bits of the chunk's slots. plane: address of the scales
    // of the page; start: the chunk's first slot; last: the end of its slots that exist. Four slots
    // are copied at a time. In place of those beyond `last`, other slots' are copied: they are not
    // used.
    inline void raw_copy_scales(const Raw &raw, int type, int dim, u64 plane, int start, int last) {
        const int n_block = dim / 32, last_quad = (last - 1) / 4 * 4;
        const u64 fifths = plane + page_fifth(type, n_block);
        DONT_UNROLL for (int i = phase_thread(); i < n_block * (CHUNK / 4); i += THREADS) {
            int slot = start + min(i % (CHUNK / 4) * 4, last_quad);
            uint at = uint(i / (CHUNK / 4) * page_slots() + slot);
            if (type_has_min(type))
                copy_16(raw.scales + i, plane + at * 4);
            else
                copy_8((uvec2 *)raw.scales + i, plane + at * 2);
            if (type_has_fifth(type)) copy_16(raw.fifths + i, fifths + at * 4);
        }
    }

    // Starts to copy a chunk of K; codes become [unit][slot]. Arguments as of raw_copy_scales;
    // region: of the page and head.
    inline void raw_copy_keys(uvec4 *to, int type, int dim, u64 region, int start, int last) {
        type = int(recomputed(uint(type)));
        const Raw raw = raw_at(to, type, dim);
        const int own = phase_thread(), n_unit = raw_columns(type, dim) / 16;
        const int slot = min(own % CHUNK, last - 1);
        copies_16(
            own / CHUNK, n_unit, THREADS / CHUNK,
            [&](int u) { return raw.codes + u * CHUNK + own % CHUNK; },
            [&](int u) { return region + u64(uint(u * page_slots() + start + slot)) * 16; });
        raw_copy_scales(raw, type, dim, region + page_k_scale(), start, last);
    }

    // Starts to copy a chunk of V; codes are [slot / 4][column] of four bytes, as in the page.
    inline void raw_copy_values(uvec4 *to, int type, int dim, u64 region, int start, int last) {
        type = int(recomputed(uint(type)));
        const Raw raw = raw_at(to, type, dim);
        const int n_column = raw_columns(type, dim), n = (last + 3) / 4 * (n_column / 4);
        const u64 from = region + page_v_code() + u64(uint(start * n_column));
        copies_16(
            phase_thread(), n, THREADS, [&](int i) { return raw.codes + i; },
            [&](int i) { return from + u64(uint(i)) * 16; });
        raw_copy_scales(raw, type, dim, region + page_v_scale(), start, last);
    }

    // Unit u of K of a slot of the chunk.
    template <int KIND> inline Unit raw_unit(const Raw &raw, int type, int slot, int u) {
        const int at = (KIND == KIND_BYTES ? u / 2 : u) * CHUNK + slot;
        Unit unit;
        unit.words = raw.codes[u * CHUNK + slot];
        unit.scale = type_has_min(type) ? ((const uint *)raw.scales)[at]
                                        : uint(((const u16 *)raw.scales)[at]);
        unit.bits = type_has_fifth(type) ? ((const uint *)raw.fifths)[at] : 0u;
        return unit;
    }

    // A column of V of slots 8 * octet .. + 7, of types with a scale and neither minimum nor fifth
    // bits.
    template <int KIND>
    inline void raw_octet(const Raw &raw, int n_column, int column, int octet, Quad quads[2]) {
        const int block = column / (KIND == KIND_BYTES ? 32 : 16);
        const uvec4 scales = raw.scales[block * (CHUNK / 8) + octet];
        UNROLL for (int k = 0; k < 2; k++) {
            quads[k].words.x = ((const uint *)raw.codes)[(2 * octet + k) * n_column + column];
            quads[k].fifths = uvec4(0u);
        }
        quads[0].scales.x = scales.x, quads[0].scales.y = scales.y;
        quads[1].scales.x = scales.z, quads[1].scales.y = scales.w;
    }

    // A column of V of slots 4 * quad .. + 3, of types with two elements in a column.
    inline Quad raw_quad(const Raw &raw, int type, int n_column, int column, int quad) {
        const int at = column / 16 * (CHUNK / 4) + quad;
        Quad q;
        q.words.x = ((const uint *)raw.codes)[quad * n_column + column];
        if (type_has_min(type)) {
            q.scales = raw.scales[at];
        } else {
            const uvec2 scales = ((const uvec2 *)raw.scales)[at];
            q.scales.x = scales.x, q.scales.y = scales.y;
        }
        q.fifths = uvec4(0u);
        if (type_has_fifth(type)) q.fifths = raw.fifths[at];
        return q;
    }

    // ---- Decoding ----

    // Two f16 with the value -(1024 + the type's offset).
    inline uint code_bias(int type) {
        return type == TYPE_Q8_0 || type == TYPE_IQ4_NL ? 0xe480e480u
               : type == TYPE_Q5_0                      ? 0xe410e410u
               : type == TYPE_Q4_0                      ? 0xe408e408u
                                                        : 0xe400e400u;
    }

    // Four codes as f16: code * scale, plus the minimum (`least`) of types that have one. scales
    // and least: an f16 for each code. For K all four are the same.
    inline uvec2 codes_decode(int type, uint codes, uvec2 scales, uvec2 least) {
        const uint bias = code_bias(type);
        uint low = halves_add(bytes_pick(codes, 0x64646464u, 0x04010400u), bias);
        uint high = halves_add(bytes_pick(codes, 0x64646464u, 0x04030402u), bias);
        uvec2 x = uvec2(halves_mul(low, scales.x), halves_mul(high, scales.y));
        if (type_has_min(type)) x = uvec2(halves_add(x.x, least.x), halves_add(x.y, least.y));
        return x;
    }

    // Four codes of four bits each, a byte each, as codes_decode takes them: with their fifth bits,
    // which are bit 4 of each byte of `fifths`; or, of iq4_nl, the levels plus 128.
    inline uint nibbles_complete(int type, uint nibbles, uint fifths) {
        if (type != TYPE_IQ4_NL) return nibbles | fifths;
        uint index = nibbles & 0x07070707u, is_high = (nibbles >> 3 & 0x01010101u) * 255u;
        uint low = bytes_pick(iq4_word(0), iq4_word(1), index) ^ 0x80808080u;
        uint high = bytes_pick(iq4_word(2), iq4_word(3), index) ^ 0x80808080u;
        return low & ~is_high | high & is_high;
    }

    // The elements of a unit of K as f16, eight in each of eights[i]: two of them for KIND_BYTES,
    // else four.
    template <int KIND> inline void key_halves(int type, const Unit &unit, uvec4 eights[4]) {
        const uint d = bytes_pick(unit.scale, 0u, 0x01000100u);
        const uint m = bytes_pick(unit.scale, 0u, 0x03020302u);
        UNROLL for (int c = 0; c < (KIND == KIND_BYTES ? 2 : 4); c++) {
            uvec2 x[2];
            UNROLL for (int i = 0; i < 2; i++) {
                int w = 2 * (c % 2) + i;
                uint codes = unit.words[w] ^ 0x80808080u;
                if (KIND == KIND_NIBBLES) {
                    // Four bits become the lowest ones of four bytes.
                    uint fifths = unit.bits >> 16 * (c / 2) + 4 * w & 15u;
                    fifths = (fifths * 0x00204081u & 0x01010101u) << 4;
                    codes =
                        nibbles_complete(type, unit.words[w] >> 4 * (c / 2) & 0x0f0f0f0fu, fifths);
                }
                x[i] = codes_decode(type, codes, uvec2(d, d), uvec2(m, m));
            }
            eights[c] = uvec4(x[0].x, x[0].y, x[1].x, x[1].y);
        }
    }

    // A column of four slots of V as f16: its element in each slot, and in b the second one of a
    // pair.
    template <int KIND>
    inline void value_halves(int type, const Quad &quad, int column, uvec2 &a, uvec2 &b) {
        const uvec4 &s = quad.scales;
        if (KIND == KIND_BYTES) {
            a = codes_decode(type, quad.words.x ^ 0x80808080u, uvec2(s.x, s.y), uvec2(0u, 0u));
            return;
        }
        uvec2 scales = uvec2(s.x, s.y), least = uvec2(0u, 0u);
        if (type_has_min(type)) {
            scales = uvec2(bytes_pick(s.x, s.y, 0x05040100u), bytes_pick(s.z, s.w, 0x05040100u));
            least = uvec2(bytes_pick(s.x, s.y, 0x07060302u), bytes_pick(s.z, s.w, 0x07060302u));
        }
        uint low = 0u, high = 0u;
        UNROLL for (int i = 0; i < 4; i++) {
            uint bits = quad.fifths[i] >> column % 16;
            low |= (bits & 1u) << 8 * i + 4;
            high |= (bits >> 16 & 1u) << 8 * i + 4;
        }
        uint word = quad.words.x;
        a = codes_decode(type, nibbles_complete(type, word & 0x0f0f0f0fu, low), scales, least);
        b = codes_decode(type, nibbles_complete(type, word >> 4 & 0x0f0f0f0fu, high), scales,
                         least);
    }
};
#endif

#endif
