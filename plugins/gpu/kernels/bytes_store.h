/* SPDX-License-Identifier: MIT
 *
 * bytes_store.h: stores x as bytes (the layout: bytes.h), for QUANTIZE and for kernels that compute
 * x. For each group of 32 elements:
 *   x = scale * (128 * high + low)     scale = max |x| / 16256, high = -127 .. 127,
 *                                      low = -64 .. 63
 * A row of a prompt has 8 bits: low is 0. A group with a NaN or an infinity has the scale NaN.
 */
#ifndef TANDEM_GPU_BYTES_STORE_H
#define TANDEM_GPU_BYTES_STORE_H

#include "lang.h"

/* Whether element `at` of the roles is that of a prompt. */
static inline bool role_is_prompt(u64 role, uint at) {
    constexpr int ROLE_PROMPT = 1;
    return I32(role).at[at] == ROLE_PROMPT;
}

/* Whether a row of x is one of a prompt. Words `at` and at + 1: stride of the roles, and rows that
 * share one. */
static inline bool bytes_is_prompt(const Args &args, u64 role, uint row, int at) {
    return role_is_prompt(role, row / uint(args.word[at + 1]) * uint(args.word[at]));
}

/* Stores elements 4 * part .. + 3, v, of group `number` of the n_group groups that x at `to` has in
 * all rows. Eight neighbouring lanes have parts 0 to 7 of one group. All lanes of the wave call it
 * together; those with is_group false store nothing. prompt: 8 bits instead of 15. is_first: the
 * group is the first of its row; it stores has_low of the row too. */
static inline void bytes_store(u64 to, u64 n_group, uint number, uint part, vec4 v, bool prompt,
                               bool is_group, uint row, bool is_first) {
    uint greatest = 0; // as bits without sign, of which a NaN has the greatest
    UNROLL for (int e = 0; e < 4; e++) {
        uint size = float_to_bits(v[e]) & 0x7fffffffu;
        greatest = size > greatest ? size : greatest;
    }
    UNROLL for (uint mask = 1; mask < 8; mask *= 2) {
        uint other = wave_xchg(greatest, mask);
        greatest = other > greatest ? other : greatest;
    }
    float scale = bits_to_float(greatest) * (1.0f / 16256.0f);
    float inverse = (prompt ? 127.0f : 16256.0f) / bits_to_float(greatest);
    if (greatest >= 0x7f800000u) {
        scale = bits_to_float(0x7fc00000u);
        inverse = 0;
    } else if (greatest < 0x06800000u) { // 2^-114, of which the inverse would overflow
        scale = inverse = 0;
    }
    uint high = 0, low = 0;
    UNROLL for (int e = 0; e < 4; e++) {
        // An infinity or a NaN must not reach the conversion to int. With scale NaN, codes are 0.
        float scaled = inverse == 0 ? 0 : round_even(v[e] * inverse);
        int code = int(clamp(scaled, -16256.0f, 16256.0f));
        int upper = prompt ? code : (code + 64) >> 7;
        int lower = prompt ? 0 : code - upper * 128;
        high |= (uint(upper) & 255u) << 8 * e;
        low |= (uint(lower) & 255u) << 8 * e;
    }
    if (!is_group) return;
    U32(to + u64(32) * number).at[part] = high;
    U32(to + 32 * (n_group + number)).at[part] = low;
    if (part != 0) return;
    F32(to + 64 * n_group).at[number] = scale;
    if (is_first) U32(to + 68 * n_group).at[row] = prompt ? 0u : 1u;
}

#endif
