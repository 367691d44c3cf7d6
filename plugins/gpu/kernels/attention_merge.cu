/* SPDX-License-Identifier: MIT
 *
 * attention_merge.cu: the last part of ATTENTION: folds the records of a token and head, adds the
 * sink, divides, and undoes the rotation of V. A workgroup for each token and head. See kernel.h.
 */
#include "attention.h"
#include "math.h"

struct AttentionMerge : Attention {
    explicit AttentionMerge(const Args &args_)
        : Attention(args_, args_.spec[0] > 0 ? args_.spec[0] : 1) {}

    const int STORED = SPEC0; // elements of o in a record
    const int DIM_V = SPEC1;
    const int ROTATION = SPEC2;

    void run() {
        int n_head = args.word[1], n_part = args.word[2], row = int(group_number());
        if (row >= args.word[0] * n_head) return;
        int record = PART_HEAD + STORED;
        F32 parts = F32(args.address[2] + u64(uint(row * n_part)) * u64(uint(record * 4)));
        float m = NEGATIVE_INFINITY, l = 0.0f;
        for (int part = 0; part < n_part; part++) {
            int at = part * record;
            float part_m = parts.at[at], part_l = parts.at[at + 1];
            if (part_m == NEGATIVE_INFINITY) continue; // its o was not written
            float larger = max(m, part_m);
            float keep = m == larger ? 1.0f : exp_of_negative(m - larger);
            float gain = part_m == larger ? 1.0f : exp_of_negative(part_m - larger);
            for (int i = row_thread(); i < STORED; i += row_group()) {
                float sum = m == NEGATIVE_INFINITY ? 0.0f : row_x[i];
                float kept = sum * keep;
                row_x[i] = fma(parts.at[at + PART_HEAD + i], gain, kept);
            }
            float kept_l = l * keep;
            l = fma(part_l, gain, kept_l);
            m = larger;
        }

        float factor = 0.0f, total = l;
        if (m != NEGATIVE_INFINITY) {
            factor = 1.0f / l;
            if (args.address[3] != 0) {
                float sink = F32(args.address[3] + i64(args.word[3]) * (row % n_head) * 4).at[0];
                // Relative to the larger of the two nothing overflows.
                float extra = sink - m, by = exp_of_negative(-abs(extra));
                total = l + exp_of(extra);
                factor = extra > 0.0f ? by / (l * by + 1.0f) : 1.0f / (l + by);
            }
            for (int i = row_thread(); i < STORED; i += row_group()) row_x[i] *= factor;
            row_rotate(0, STORED, ROTATION);
        }
        if (ROTATION <= 1) barrier();
        F32 to = F32(args.address[0] + u64(uint(row)) * u64(uint(DIM_V * 4)));
        for (int i = row_thread(); i < DIM_V; i += row_group())
            to.at[i] = m == NEGATIVE_INFINITY ? 0.0f : row_x[i];
        if (args.address[1] == 0 || row_thread() != 0) return;
        F32 ml = F32(args.address[1] + u64(uint(row)) * 8);
        ml.at[0] = m;
        ml.at[1] = total;
    }
};

GPU_KERNEL(attention_merge, AttentionMerge)
