/* SPDX-License-Identifier: MIT
 *
 * attention_merge.cu: the last part of ATTENTION: folds the records of a token and head, adds the
 * sink, divides, and undoes the rotation of V. A workgroup for each token and head. See kernel.h.
 */
#include "attention.h"
#include "bytes_store.h"
#include "math.h"

struct AttentionMerge : Attention {
    inline explicit AttentionMerge(const Args &args_)
        : Attention(args_, args_.spec[0] > 0 ? args_.spec[0] : 1) {}

    const int STORED = SPEC0; // elements of o in a record
    const int DIM_V = SPEC1;
    const int ROTATION = SPEC2;
    const int PARTS_EACH = SPEC3 > 1 ? SPEC3 : 1; // of a record
    const bool HAS_BYTES = SPEC4 != 0; // then head_dim is a multiple of 32, and there is no ml

    // Of a part: m and l, what o of the parts before is multiplied by, and its own o (-1: it was not
    // written), and the greatest m so far.
    static constexpr int PARTS_AT_ONCE = 64, N_AHEAD = 16;
    float *part_m = shared_take<float>(PARTS_AT_ONCE), *part_l = shared_take<float>(PARTS_AT_ONCE);
    float *keep = shared_take<float>(PARTS_AT_ONCE), *gain = shared_take<float>(PARTS_AT_ONCE);
    float *most = shared_take<float>(PARTS_AT_ONCE);

    float m = NEGATIVE_INFINITY, l = 0.0f;

    // Factors of `count` parts, a part of each thread, and l.
    inline void parts_begin(F32 parts, int record, int count) {
        barrier();
        for (int i = row_thread(); i < count; i += row_group()) {
            part_m[i] = parts.at[i * record];
            part_l[i] = parts.at[i * record + 1];
        }
        barrier();
        for (int i = row_thread(); i < count; i += row_group()) {
            float before = m, own = part_m[i];
            for (int k = 0; k < i; k++) before = max(before, part_m[k]);
            float larger = max(before, own);
            keep[i] = before == larger ? 1.0f : exp_of_negative(before - larger);
            gain[i] = own == larger ? 1.0f : exp_of_negative(own - larger);
            if (own == NEGATIVE_INFINITY) gain[i] = -1.0f;
            most[i] = larger;
        }
        barrier();
        for (int i = 0; i < count; i++) {
            if (gain[i] < 0.0f) continue;
            float kept = l * keep[i];
            l = fma(part_l[i], gain[i], kept);
        }
        m = most[count - 1];
    }

    // Elements of o, of which N_AHEAD parts are loaded before the first is added.
    inline void parts_add(F32 parts, int record, int count) {
        for (int i = row_thread(); i < STORED; i += row_group()) {
            float sum = row_x[i];
            DONT_UNROLL for (int first = 0; first < count; first += N_AHEAD) {
                float o[N_AHEAD];
                UNROLL for (int k = 0; k < N_AHEAD; k++) o[k] =
                    parts.at[min(first + k, count - 1) * record + PART_HEAD + i];
                UNROLL for (int k = 0; k < N_AHEAD; k++) {
                    if (first + k >= count) break;
                    float kept = sum * keep[first + k];
                    if (!(gain[first + k] < 0.0f)) sum = fma(o[k], gain[first + k], kept);
                }
            }
            row_x[i] = sum;
        }
    }

    // o of the head as bytes, which follow those of the token's other heads.
    inline void bytes_add(uint row) {
        uint n_head = uint(args.word[1]), token = row / n_head, n_group = uint(DIM_V) / 32;
        bool prompt = args.address[5] != 0 && bytes_is_prompt(args, args.address[5], token, 4);
        for (uint first = 0; first < 8 * n_group; first += group_size()) {
            uint u = first + thread_id();
            vec4 v = vec4(0.0f);
            if (u < 8 * n_group && m != NEGATIVE_INFINITY)
                v = vec4(row_x[4 * u], row_x[4 * u + 1], row_x[4 * u + 2], row_x[4 * u + 3]);
            bytes_store(args.address[1], u64(uint(args.word[0]) * n_head) * n_group,
                        row * n_group + u / 8, u % 8, v, prompt, u < 8 * n_group, token,
                        row == token * n_head && u < 8);
        }
    }

    inline void run() {
        int n_head = args.word[1], n_record = args.word[2], row = int(group_number());
        if (row >= args.word[0] * n_head) return;
        // Records of parts that no sequence reaches are not written.
        int n_used = (parts_used(args.address[4], n_record * PARTS_EACH) + PARTS_EACH - 1) / PARTS_EACH;
        int record = PART_HEAD + STORED;
        u64 parts = args.address[2] + u64(uint(row * n_record)) * u64(uint(record * 4));
        for (int i = row_thread(); i < STORED; i += row_group()) row_x[i] = 0.0f;
        for (int first = 0; first < n_used; first += PARTS_AT_ONCE) {
            F32 from = F32(parts + u64(uint(first * record)) * 4);
            int count = min(n_used - first, PARTS_AT_ONCE);
            parts_begin(from, record, count);
            parts_add(from, record, count);
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
        if (HAS_BYTES) {
            bytes_add(uint(row));
            return;
        }
        if (args.address[1] == 0 || row_thread() != 0) return;
        F32 ml = F32(args.address[1] + u64(uint(row)) * 8);
        ml.at[0] = m;
        ml.at[1] = total;
    }
};

GPU_KERNEL_OF(attention_merge, 64, 128, AttentionMerge)
