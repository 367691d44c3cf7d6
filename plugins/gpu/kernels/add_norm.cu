/* SPDX-License-Identifier: MIT
 *
 * add_norm.cu: sum = a + b and its RMS norm. A workgroup computes a row, a thread four neighbouring
 * elements at a time. A thread reads of sum only what it has stored itself. See
 * GPU_KERNEL_ADD_NORM.
 */
#include "bytes_store.h"
#include "reduce.h"

struct AddNorm : Reduce {
    inline explicit AddNorm(const Args &args_) : Reduce(args_) {}

    const bool HAS_WEIGHT = SPEC0 != 0, HAS_TAIL = SPEC1 != 0;
    const int WEIGHT_LANE = SPEC2, LANE = SPEC3; // LANE: of the others
    const bool HAS_ROWS = SPEC4 != 0;            // a row of the weight for each row
    const bool HAS_BYTES = SPEC5 != 0;           // then rows are whole groups of 32

    u64 weight; // of this row

    inline vec4 load(u64 base, uint at, uint count) {
        if (HAS_TAIL) return lanes_load_part(base, at, LANE, 1, count, 0.0f);
        return lanes_load(base, at, LANE, 1);
    }

    inline void store(u64 base, uint at, uint count, vec4 v) {
        if (HAS_TAIL)
            lanes_store_part(base, at, count, v);
        else
            lanes_store(base, at, LANE, v);
    }

    inline vec4 weight_load(uint unit, uint count) {
        uint stride = uint(args.word[2]),
             at = 4 * unit * (WEIGHT_LANE == LANE_STRIDED ? stride : 1);
        if (HAS_TAIL) return lanes_load_part(weight, at, WEIGHT_LANE, stride, count, 1.0f);
        return lanes_load(weight, at, WEIGHT_LANE, stride);
    }

    inline void run() {
        uint row = group_number(), n = uint(args.word[0]), n_unit = (n + 3) / 4;
        if (row >= uint(args.word[1])) return;
        uint at = row * n;
        weight = args.address[4];
        if (HAS_ROWS) {
            uvec4 of = axes_split(row, 5, 3);
            weight += u64(of.x * uint(args.word[12]) + of.y * uint(args.word[13]) +
                          of.z * uint(args.word[14])) *
                      4;
        }
        float sum_sq = 0.0f;
        for (uint u = thread_id(); u < n_unit; u += group_size()) {
            uint count = min(n - 4 * u, 4u);
            vec4 v =
                load(args.address[2], at + 4 * u, count) + load(args.address[3], at + 4 * u, count);
            store(args.address[1], at + 4 * u, count, v);
            sum_sq += dot(v, v);
        }
        float factor = 1.0f / sqrt(group_sum(sum_sq) * bits_to_float(args.word[4]) +
                                   bits_to_float(args.word[3]));
        bool prompt =
            HAS_BYTES && args.address[5] != 0 && bytes_is_prompt(args, args.address[5], row, 15);
        u64 n_all = u64(uint(args.word[1])) * n;
        // All lanes of a wave call bytes_store() together, so the loop is the same for all.
        for (uint first = 0; first < n_unit; first += group_size()) {
            uint u = first + thread_id();
            vec4 v = vec4(0.0f);
            if (u < n_unit) {
                uint count = min(n - 4 * u, 4u);
                v = load(args.address[1], at + 4 * u, count) * factor;
                if (HAS_WEIGHT) v *= weight_load(u, count);
                store(args.address[0], at + 4 * u, count, v);
            }
            if (HAS_BYTES)
                bytes_store(args.address[0] + 4 * n_all, n_all / 32, at / 32 + u / 8, u % 8, v,
                            prompt, u < n_unit, row, u < 8);
        }
    }
};

GPU_KERNEL(add_norm, AddNorm)
