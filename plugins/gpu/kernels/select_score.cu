/* SPDX-License-Identifier: MIT
 *
 * select_score.cu: KV_SELECT: computes the scores of a token's slots and stores them as keys
 * (select.h). A workgroup for each token, entry of the page table and chunk of CHUNK slots of its
 * page; it computes with ROWS heads of the queries at a time. See kernel.h.
 */
#include "select.h"

struct SelectScore : AttentionDot {
    inline explicit SelectScore(const Args &args_) : AttentionDot(args_) {}

    static constexpr int MAX_ROWS = 8; // heads of a thread at a time

    const bool HAS_WEIGHTS = SPEC1 != 0;

    float *sums = shared_take<float>(int(group_size()));

    // Loads the queries of heads first .. + ROWS - 1 into `query`; zeros beyond the last head.
    inline void queries_load(int token, int first) {
        int n_head = args.word[8];
        F32x4 from =
            F32x4(args.address[1] + u64(uint(token * n_head + first)) * u64(uint(STORED_K * 4)));
        int n = min(ROWS, n_head - first) * STORED_K / 4;
        barrier(); // those before have been used
        for (int i = thread(); i < ROWS * STORED_K / 4; i += THREADS)
            query[i] = i < n ? from.at[i] : vec4(0.0f);
        barrier();
    }

    inline void run() {
        int n_chunk = args.word[11], n_entry = args.word[17], n_head = args.word[8];
        uint number = group_number();
        int start = int(number % uint(n_chunk)) * CHUNK;
        number /= uint(n_chunk);
        int entry_at = int(number % uint(n_entry)), at = int(number / uint(n_entry));
        if (at >= args.word[10]) return;
        int token = args.word[9] + at;

        u64 step = args.address[3];
        if (token >= I32(step).at[STEP_N_TOK]) return;
        int pos = pos_row(I32(step).at[args.word[12] + token]);
        if (pos < 0) return;
        step_entries e =
            entries_of(step, I32(step).at[args.word[13] + token],
                       ivec2(args.word[14], args.word[15]), ivec2(args.word[16], n_entry));
        if (e.first + entry_at >= e.last) return;
        ivec4 entry = entry_read(e, e.first + entry_at);

        int slot = start + lane(), of_entry = slot - entry.y;
        bool is_there = slot < page_len(), is_first_team = thread() < CHUNK;
        bool is_visible = is_there && of_entry >= 0 && of_entry < entry.z && entry.w <= pos &&
                          of_entry <= pos - entry.w;
        int n_key = n_entry * page_len(), key_at = entry_at * page_len() + slot;
        int n_list = HAS_WEIGHTS ? 1 : n_head;
        u64 region = page_region(args.address[2], is_visible ? entry.x : 0, 0);
        float total = 0.0f;
        DONT_UNROLL for (int first = 0; first < n_head; first += ROWS) {
            float s[MAX_ROWS];
            UNROLL for (int j = 0; j < MAX_ROWS; j++) s[j] = 0.0f;
            queries_load(token, first);
            if (is_visible) slot_dot(region, slot, s);
            UNROLL for (int j = 0; j < MAX_ROWS; j++) {
                int head = first + own_row(j);
                if (own_row(j) >= ROWS || head >= n_head) break;
                if (HAS_WEIGHTS) {
                    int w = head * args.word[18] + token * args.word[19];
                    float score = s[j] < 0.0f ? 0.0f : s[j];
                    total = fma(F32(args.address[4]).at[w], score, total);
                } else if (is_there) {
                    key_row(args.address[0], at * n_list + head, n_key).at[key_at] =
                        is_visible ? key_of(s[j]) : KEY_NONE;
                }
            }
        }
        if (!HAS_WEIGHTS) return;
        sums[thread()] = total;
        barrier();
        if (!is_first_team || !is_there) return;
        for (int team = 1; team < TEAMS; team++) total += sums[team * CHUNK + lane()];
        key_row(args.address[0], at, n_key).at[key_at] = is_visible ? key_of(total) : KEY_NONE;
    }
};

GPU_KERNEL_OF(select_score, 256, 168, SelectScore)
