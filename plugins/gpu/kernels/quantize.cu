/* SPDX-License-Identifier: MIT
 *
 * quantize.cu: stores rows of x as bytes (bytes_store.h), for products with integer dot products.
 * See kernel.h.
 */
#include "bytes_store.h"
#include "x_rows.h"

struct Quantize : Kernel {
    inline explicit Quantize(const Args &args_) : Kernel(args_) {}

    const bool HAS_ROLES = SPEC0 != 0;
    const bool X_IS_WIDE = SPEC1 != 0; // x is dense and aligned to 16 bytes in every row

    inline vec4 quad_load(u64 x, uint i) {
        if (X_IS_WIDE) return bits_to_float(load_16(x + 4 * i));
        uint stride = uint(args.word[10]);
        return vec4(F32(x).at[i * stride], F32(x).at[(i + 1) * stride], F32(x).at[(i + 2) * stride],
                    F32(x).at[(i + 3) * stride]);
    }

    // Eight neighbouring lanes have a group, four elements each.
    inline void run() {
        uint number = group_number() * (group_size() / 8) + thread_id() / 8;
        uint part = thread_id() % 8;
        uint n_row = uint(args.word[1]), n_group = uint(args.word[2]);
        bool is_group = number < n_row * n_group;
        if (!is_group) number = 0;
        uint row = number / n_group, g = number - row * n_group;
        bool prompt =
            HAS_ROLES && bytes_is_prompt(args, args.address[2], row % uint(args.word[9]), 11);
        vec4 v = quad_load(x_row_address(args, row), 32 * g + 4 * part);
        bytes_store(args.address[0], u64(n_row) * n_group, number, part, v, prompt, is_group, row,
                    g == 0);
    }
};

GPU_KERNEL_OF(quantize, 256, 64, Quantize)
