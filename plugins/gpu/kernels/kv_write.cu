/* SPDX-License-Identifier: MIT
 *
 * kv_write.cu: KV_WRITE: a workgroup for each token, head and side (K or V). See kernel.h.
 */
#include "page_row.h"

struct KvWrite : PageRow {
    inline explicit KvWrite(const Args &args_)
        : PageRow(args_, args_.spec[7] > 0 ? args_.spec[7] : 1) {}

    const int TYPE_K = SPEC0;
    const int TYPE_V = SPEC1;
    const int DIM_K = SPEC2;
    const int DIM_V = SPEC3;
    const int ROTATION_K = SPEC4;
    const int ROTATION_V = SPEC5;
    const int N_SIDE = SPEC6 & 3;
    const bool IS_STRIDED = (SPEC6 & 4) != 0;

    // row_x = the row of a token and head in operand `from`, whose strides begin at word
    // first_word; zeros from dim to `stored`. Ends with a barrier.
    inline void row_read(u64 from, int first_word, int head, int token, int dim, int stored) {
        u64 at =
            from +
            (i64(args.word[first_word + 1]) * head + i64(args.word[first_word + 2]) * token) * 4;
        for (int i = row_thread(); i < stored; i += row_group())
            row_x[i] = i < dim ? F32(at + i64(args.word[first_word]) * i * 4).at[0] : 0.0f;
        barrier();
    }

    inline void run() {
        int n_tok = args.word[7], n_head = args.word[8];
        uint number = group_number();
        int side = int(number % uint(N_SIDE)), head = int(number / uint(N_SIDE) % uint(n_head));
        int token = int(number / uint(N_SIDE * n_head));
        I32 step = I32(args.address[3]);
        if (token >= min(n_tok, step.at[STEP_N_TOK])) return;
        int cell = step.at[args.word[9] + token];
        int len = page_len(), stride = 1; // tokens of a page
        if (IS_STRIDED) {
            stride = args.word[17];
            len = args.word[18];
            int pos = step.at[args.word[19] + token];
            if (pos < 0 || pos % stride != stride - 1) return; // not the last of its run
        }
        if (cell < 0 || cell / len >= page_count()) return;
        u64 region = page_region(args.address[0], cell / len, head);
        int slot = IS_STRIDED ? cell % len / stride : cell % len;
        if (side == 0) {
            int stored = row_stored(TYPE_K, DIM_K);
            row_read(args.address[1], 10, head, token, DIM_K, stored);
            row_rope(token, 16, args.address[4], args.address[5]);
            row_rotate(0, stored, ROTATION_K);
            row_quantize(TYPE_K, 0, stored);
            row_store_k(TYPE_K, DIM_K, region, slot, 0, stored);
        } else {
            int stored = row_stored(TYPE_V, DIM_V);
            row_read(args.address[2], 13, head, token, DIM_V, stored);
            row_rotate(0, stored, ROTATION_V);
            row_quantize(TYPE_V, 0, stored);
            row_store_v(TYPE_V, DIM_V, region, slot);
        }
    }
};

GPU_KERNEL(kv_write, KvWrite)
