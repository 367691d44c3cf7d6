/* SPDX-License-Identifier: MIT
 *
 * quantize.cu: rows of x as bytes, for products with integer dot products (bytes.h, kernel.h). For
 * each group of 32 elements:
 *   x = scale * (128 * high + low)     scale = max |x| / 16256, high = -127 .. 127,
 *                                      low = -64 .. 63
 * A row of a prompt has 8 bits: low is 0. A group with a NaN or an infinity has the scale NaN.
 */
#include "x_rows.h"

struct Quantize : Kernel {
    inline explicit Quantize(const Args &args_) : Kernel(args_) {}

    static constexpr int ROLE_PROMPT = 1;
    const bool HAS_ROLES = SPEC0 != 0;
    const bool X_IS_WIDE = SPEC1 != 0; // x is dense and aligned to 16 bytes in every row

    inline vec4 quad_load(u64 x, uint i) {
        if (X_IS_WIDE) return bits_to_float(load_16(x + 4 * i));
        uint stride = uint(args.word[10]);
        return vec4(F32(x).at[i * stride], F32(x).at[(i + 1) * stride], F32(x).at[(i + 2) * stride],
                    F32(x).at[(i + 3) * stride]);
    }

    inline bool is_prompt(uint row) {
        if (!HAS_ROLES) return false;
        uint column = row % uint(args.word[9]);
        return I32(args.address[2]).at[column / uint(args.word[12]) * uint(args.word[11])] ==
               ROLE_PROMPT;
    }

    // Eight neighbouring lanes have a group, four elements each.
    inline void run() {
        uint number = group_number() * (group_size() / 8) + thread_id() / 8;
        uint part = thread_id() % 8;
        uint n_row = uint(args.word[1]), n_group = uint(args.word[2]);
        bool is_group = number < n_row * n_group;
        if (!is_group) number = 0;
        uint row = number / n_group, g = number - row * n_group;
        bool prompt = is_prompt(row);
        u64 x = x_row_address(args, row), n = u64(n_row) * n_group, to = args.address[0];
        vec4 v = quad_load(x, 32 * g + 4 * part);
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
            // What is not finite, and what its inverse made of it, must not reach the conversion.
            float scaled = inverse == 0 ? 0 : round_even(v[e] * inverse);
            int code = int(clamp(scaled, -16256.0f, 16256.0f));
            int upper = prompt ? code : (code + 64) >> 7;
            int lower = prompt ? 0 : code - upper * 128;
            high |= (uint(upper) & 255u) << 8 * e;
            low |= (uint(lower) & 255u) << 8 * e;
        }
        if (!is_group) return;
        U32(to + u64(32) * number).at[part] = high;
        U32(to + 32 * (n + number)).at[part] = low;
        if (part != 0) return;
        F32(to + 64 * n).at[number] = scale;
        if (g == 0) U32(to + 68 * n).at[row] = prompt ? 0u : 1u;
    }
};

GPU_KERNEL_OF(quantize, 256, 64, Quantize)
