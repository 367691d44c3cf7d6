/* SPDX-License-Identifier: MIT
 *
 * merge.cu: LSE_MERGE: M = max m_p, w_p = l_p exp(m_p - M), o = sum w_p o_p / sum w_p. An empty
 * part (l = 0) has no weight; where all parts are empty, o is 0. A thread computes an element. See
 * GPU_KERNEL_MERGE.
 */
#include "lang.h"
#include "math.h"

struct Merge : Kernel {
    inline explicit Merge(const Args &args_) : Kernel(args_) {}

    inline float ml_at(uint row, uint part, uint which) {
        return F32(args.address[2])
            .at[row + part * uint(args.word[10]) + which * uint(args.word[7])];
    }

    inline void run() {
        uint i = invocation_number();
        if (i >= uint(args.word[11])) return;
        uint head_dim = uint(args.word[0]), n_head = uint(args.word[1]),
             n_part = uint(args.word[2]);
        uint row = i / head_dim, element = i - row * head_dim, tok = row / n_head;
        uint head = row - tok * n_head;
        uint o_at =
            element * uint(args.word[3]) + head * uint(args.word[4]) + tok * uint(args.word[5]);
        uint ml_row = head * uint(args.word[8]) + tok * uint(args.word[9]);
        float greatest = NEGATIVE_INFINITY, total = 0.0f, sum = 0.0f;
        for (uint p = 0; p < n_part; p++) {
            float m = ml_at(ml_row, p, 0);
            if (ml_at(ml_row, p, 1) > 0.0f && m > greatest) greatest = m;
        }
        for (uint p = 0; p < n_part; p++) {
            float l = ml_at(ml_row, p, 1);
            if (l == 0.0f) continue;
            float weight = l * exp_of(ml_at(ml_row, p, 0) - greatest);
            total += weight;
            if (weight != 0.0f)
                sum += weight * F32(args.address[1]).at[o_at + p * uint(args.word[6])];
        }
        F32(args.address[0]).at[i] = total == 0.0f ? 0.0f : sum / total;
    }
};

GPU_KERNEL(merge, Merge)
