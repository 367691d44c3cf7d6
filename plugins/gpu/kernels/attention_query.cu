/* SPDX-License-Identifier: MIT
 *
 * attention_query.cu: query rows as the kernels of ATTENTION read them: turned by ROPE where the
 * emitter says so, scaled, padded with zeros, rotated as K is. A workgroup for each token and head.
 * See kernel.h.
 */
#include "math.h"
#include "page_rotate.h"

struct AttentionQuery : PageRotate {
    inline explicit AttentionQuery(const Args &args_)
        : PageRotate(args_, args_.spec[1] > 0 ? args_.spec[1] : 1) {}

    const int DIM = SPEC0;
    const int STORED = SPEC1;
    const int ROTATION = SPEC2;

    inline void run() {
        int n_head = args.word[1], row = int(group_number());
        if (row >= args.word[0] * n_head) return;
        int head = row % n_head, token = row / n_head;
        float scale = bits_to_float(args.word[5]);
        if (args.address[4] != 0) { // a temperature by position
            uint at = uint(max(I32(args.address[4]).at[token], 0)) + uint(args.word[12]);
            at /= uint(args.word[11]);
            scale *= 1.0f + bits_to_float(args.word[10]) * log_of_number(1u + at);
        }
        u64 from = args.address[1] + (i64(args.word[3]) * head + i64(args.word[4]) * token) * 4;
        for (int i = row_thread(); i < STORED; i += row_group()) {
            float x = 0.0f;
            if (i < DIM) x = F32(from + i64(args.word[2]) * i * 4).at[0];
            row_x[i] = x;
        }
        row_rope(token, 6, args.address[2], args.address[3]);
        for (int i = row_thread(); i < DIM; i += row_group()) {
            float x = row_x[i] * scale;
            row_x[i] = x;
        }
        row_rotate(0, STORED, ROTATION);
        if (ROTATION <= 1) barrier();
        F32 to = F32(args.address[0] + u64(uint(row)) * u64(STORED * 4));
        for (int i = row_thread(); i < STORED; i += row_group()) to.at[i] = row_x[i];
    }
};

GPU_KERNEL(attention_query, AttentionQuery)
