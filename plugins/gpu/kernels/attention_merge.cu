/* SPDX-License-Identifier: MIT
 *
 * attention_merge.cu: the last step of ATTENTION, where the kernel before does not do it itself
 * (GPU_ATTENTION_MERGES): attention_merge.h with a workgroup for each token and head. See kernel.h.
 */
#include "attention_merge.h"

struct AttentionMerge : Attention {
    inline explicit AttentionMerge(const Args &args_) : Attention(args_, 0) {}

    const int PARTS_EACH = SPEC3 > 1 ? SPEC3 : 1; // of a record
    const bool HAS_BYTES = SPEC4 != 0; // then head_dim is a multiple of 32, and there is no ml

    inline void run() {
        const int n_record = args.word[2];
        if (int(group_number()) >= args.word[0] * args.word[1]) return;
        MergeTask t;
        t.o = args.address[0];
        t.ml = HAS_BYTES ? 0 : args.address[1];
        t.bytes = HAS_BYTES ? args.address[1] : 0;
        t.records = args.address[2];
        t.sink = args.address[3];
        t.role = args.address[5];
        t.n_tok = args.word[0];
        t.n_head = args.word[1];
        t.n_record = n_record;
        // Records of parts that no sequence reaches are not written.
        t.n_used =
            (parts_used(args.address[4], n_record * PARTS_EACH) + PARTS_EACH - 1) / PARTS_EACH;
        t.stored = SPEC0 > 0 ? SPEC0 : 1;
        t.dim = SPEC1;
        t.rotation = SPEC2;
        t.sink_stride = args.word[3];
        t.role_stride = args.word[4];
        t.role_rows = args.word[5];
        AttentionMerging<16>(args, t, group_size(), 1).row_merge(group_number(), true);
    }
};

GPU_KERNEL_OF(attention_merge, 64, 128, AttentionMerge)
