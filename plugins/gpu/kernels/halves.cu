/* SPDX-License-Identifier: MIT
 *
 * halves.cu: rows of x as f16, for products on matrix hardware (product_tile_matrix.cu, kernel.h).
 * A workgroup for each row:
 *   x = factor * half     factor = a power of two, |half| below 2^15
 * A row of dst has k elements and then zeros up to the next multiple of 32. A row with a NaN or an
 * infinity has zeros and the factor NaN.
 */
#include "lang.h"
#include "half_scale.h"
#include "math.h"
#include "reduce.h"
#include "x_rows.h"

struct Halves : Reduce {
    inline explicit Halves(const Args &args_) : Reduce(args_) {}

    // x is dense and aligned to 16 bytes in every row, k a multiple of 32.
    const bool X_IS_WIDE = SPEC1 != 0;

    inline float one_load(u64 x, uint i) {
        return i < uint(args.word[0]) ? F32(x).at[i * uint(args.word[10])] : 0.0f;
    }

    inline vec4 quad_load(u64 x, uint i) {
        if (X_IS_WIDE) return bits_to_float(load_16(x + 4 * i));
        return vec4(one_load(x, i), one_load(x, i + 1), one_load(x, i + 2), one_load(x, i + 3));
    }

    inline void run() {
        uint row = group_number(), n_row = uint(args.word[1]), n_quad = 8 * uint(args.word[2]);
        if (row >= n_row) return;
        u64 x = x_row_address(args, row);
        uint most = 0; // largest |x| as bits; those of a NaN are the largest of all
        for (uint q = thread_id(); q < n_quad; q += group_size()) {
            uvec4 size = float_to_bits(quad_load(x, 4 * q)) & 0x7fffffffu;
            UNROLL for (int i = 0; i < 4; i++) most = size[i] > most ? size[i] : most;
        }
        HalfScale scale = half_scale_of(uint(group_max(float(most >> 23))));
        u64 to = args.address[0] + u64(64) * row * uint(args.word[2]);
        for (uint q = thread_id(); q < n_quad; q += group_size()) {
            vec4 v = vec4(0.0f);
            if (scale.is_finite) v = quad_load(x, 4 * q) * vec4(scale.times);
            U64(to).at[q] = pack64(uvec2(pack_half2(v.x, v.y), pack_half2(v.z, v.w)));
        }
        if (thread_id() == 0)
            F32(args.address[0] + u64(64) * n_row * uint(args.word[2])).at[row] = scale.factor;
    }
};

GPU_KERNEL_OF(halves, 256, 128, Halves)
