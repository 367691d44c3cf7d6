/* SPDX-License-Identifier: MIT
 *
 * get_rows.cu: y[:, i] = table[:, id[i] - first_row] as f32, zeros for a foreign id. A thread
 * writes 32 elements.
 * An entry for each WEIGHT_TYPE. See kernel.h.
 */
#ifndef WEIGHT_TYPE
#define WEIGHT_FILE "get_rows.cu"
#include "each_type.h"
#else
#include "dequant.h"

struct GetRows : Weight {
    inline explicit GetRows(const Args &args_) : Weight(args_) {}

    inline void run() {
        uint k = uint(args.word[0]), n_group = (k + 31) / 32;
        uint index = invocation_number() % n_group, i = invocation_number() / n_group;
        if (i >= uint(args.word[1])) return;
        F32 y = F32(args.address[0] + (u64(i) * k + 32 * index) * 4);
        uint n = min(k - 32 * index, 32u);
        // In 64 bits, so that no id overflows.
        i64 r = i64(I32(args.address[2]).at[i * args.word[2]]) -
                i64(pack64(uvec2(uint(args.word[3]), uint(args.word[4]))));
        if (r < 0 || r >= i64(args.word[5])) {
            UNROLL for (uint e = 0; e < 32; e++) if (e < n) y.at[e] = 0;
            return;
        }
        u64 block = u64(r) * uint(args.word[7]);
        WeightRow row = weight_row(args.address[1], u64(args.word[5]) * uint(args.word[7]), block,
                                   uint(args.word[6]));
        WeightGroup g = weight_group(row, index);
        UNROLL for (int q = 0; q < 8; q++) {
            vec4 code = weight_quad(row, g, index, q, k);
            UNROLL for (int c = 0; c < 4; c++) {
                float product = code[c] * g.scale[q / 4];
                // Adding an offset of 0 would make -0 a +0.
                float element = WEIGHT_IS_PLAIN     ? code[c]
                                : WEIGHT_HAS_OFFSET ? product + g.offset[q / 4]
                                                    : product;
                if (4 * q + c < n) y.at[4 * q + c] = element;
            }
        }
    }
};

GPU_TYPED_KERNEL(get_rows, GetRows)
#endif
