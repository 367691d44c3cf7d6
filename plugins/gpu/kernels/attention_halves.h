/* SPDX-License-Identifier: MIT
 *
 * attention_halves.h: rows of K and V of types with blocks as f16, for attention_tile_matrix.cu: what the
 * cache has of a unit of K, or of a column of four slots of V (attention.h), in words of two f16.
 *
 * Four codes are the bytes of a word. A code becomes f16 without a conversion: it is put among the bits
 * of 1024, of which 1024 and the type's offset are taken away; that is exact. Its product with the scale
 * is rounded; so is the sum with the least element, of types that have one.
 */
#ifndef TANDEM_GPU_ATTENTION_HALVES_H
#define TANDEM_GPU_ATTENTION_HALVES_H

#include "attention_walk.h"

#ifdef HAS_HALF_MATS
struct AttentionHalves : AttentionWalk {
    inline explicit AttentionHalves(const Args &args_) : AttentionWalk(args_) {}

    // Minus (1024 + the offset), twice.
    inline uint code_bias(int type) {
        return type == TYPE_Q8_0 || type == TYPE_IQ4_NL ? 0xe480e480u
               : type == TYPE_Q5_0                      ? 0xe410e410u
               : type == TYPE_Q4_0                      ? 0xe408e408u
                                                        : 0xe400e400u;
    }

    // Four codes times scales, and plus least elements: two words of each. `scales` are the same twice for K.
    inline uvec2 codes_decode(int type, uint codes, uvec2 scales, uvec2 least) {
        const uint bias = code_bias(type);
        uint low = halves_add(bytes_pick(codes, 0x64646464u, 0x04010400u), bias);
        uint high = halves_add(bytes_pick(codes, 0x64646464u, 0x04030402u), bias);
        uvec2 x = uvec2(halves_mul(low, scales.x), halves_mul(high, scales.y));
        if (type_has_min(type)) x = uvec2(halves_add(x.x, least.x), halves_add(x.y, least.y));
        return x;
    }

    // Four codes of four bits each as codes_decode takes them: with their fifth bits, which lie where they
    // belong, or as levels of iq4_nl, of which 128 is taken away.
    inline uint nibbles_complete(int type, uint nibbles, uint fifths) {
        if (type != TYPE_IQ4_NL) return nibbles | fifths;
        uint index = nibbles & 0x07070707u, is_high = (nibbles >> 3 & 0x01010101u) * 255u;
        uint low = bytes_pick(0xbfad9881u, 0xf6eaddcfu, index) ^ 0x80808080u;
        uint high = bytes_pick(0x26190d01u, 0x71594535u, index) ^ 0x80808080u;
        return low & ~is_high | high & is_high;
    }

    // The elements of a unit of K, eight at a time.
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

    // A column of four slots of V: its element in each, and its second one where it is a pair.
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
