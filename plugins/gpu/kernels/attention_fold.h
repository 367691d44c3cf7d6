/* SPDX-License-Identifier: MIT
 *
 * attention_fold.h: m and l of the query rows of a workgroup, and how a chunk's scores become p.
 * Every function must be reached by all threads.
 */
#ifndef TANDEM_GPU_ATTENTION_FOLD_H
#define TANDEM_GPU_ATTENTION_FOLD_H

#include "attention.h"

struct AttentionFold : Attention {
    inline AttentionFold(const Args &args_, int rows, int threads)
        : Attention(args_, 0), ROWS(rows), THREADS(threads), eighth(shared_take<float>(8 * rows)),
          row_m(shared_take<float>(rows)), row_l(shared_take<float>(rows)),
          row_keep(shared_take<float>(rows)) {}

    const int ROWS, THREADS;
    float *eighth; // a maximum, then a sum, of 8 slots
    float *row_m;
    float *row_l;
    float *row_keep; // what o of before the chunk is multiplied by

    inline int thread() { return int(thread_id()); }

    // ---- Lists of slots, and a bias for each distance: SPEC5 of kernels of parts and tiles ----

    const bool HAS_BIAS = (SPEC5 & 64) != 0;
    const bool HAS_LIST = (SPEC5 & 128) != 0;

    // The last workgroup that has parts of a row merges its records: attention_merge.h.
    inline bool merges() { return (recomputed(uint(SPEC5)) & 512u) != 0; }

    // Where records of `dim` elements begin.
    inline u64 records_begin(int dim) {
        const uint n_all = merges() ? recomputed(uint(args.word[7])) * uint(args.word[8]) : 0u;
        return args.address[0] + u64(n_all) * u64(uint(dim * 4));
    }

    // The bias of a query head for a slot `distance` positions before its token. SPEC7 is n_far.
    inline float bias_of(int head, int distance) {
        int n_far = SPEC7, at = n_far + min(max(-distance, -n_far), n_far);
        return F32(args.address[4]).at[head * (2 * n_far + 1) + at];
    }

    // Words of a list that an entry has: a bit for each slot of its page.
    inline int list_words() { return (page_len() + 31) / 32; }

    // The list of a token (select_slots.cu), from the first entry of its sequence on. There is one for
    // each KV head of the state, or one for all.
    inline U32 list_of(int token, int kv) {
        int list = (SPEC5 & 256) != 0 ? kv : 0;
        return U32(args.address[5] + u64(uint(list * args.word[7] + token)) *
                                         u64(uint(args.word[17] * list_words() * 4)));
    }

    // Those of the CHUNK slots from `start` on, a multiple of it, of an entry: bits.
    inline u64 list_chunk(U32 list, int entry, int start) {
        int at = entry * list_words() + start / 32;
        return u64(list.at[at]) | (page_len() > 32 ? u64(list.at[at + 1]) << 32 : u64(0));
    }

    inline void rows_clear() {
        for (int r = thread(); r < ROWS; r += THREADS) {
            row_m[r] = NEGATIVE_INFINITY;
            row_l[r] = 0.0f;
        }
    }

    // Turns scores into p = exp(score - m) and updates m and l. Begins with a barrier; another one
    // is needed before row_l is read.
    template <class Score> inline void soften(Score SCORE) {
        barrier();
        for (int i = thread(); i < ROWS * 8; i += THREADS) {
            float m = SCORE(i / 8, i % 8 * 8);
            UNROLL for (int k = 1; k < 8; k++) m = max(m, SCORE(i / 8, i % 8 * 8 + k));
            eighth[i] = m;
        }
        barrier();
        for (int r = thread(); r < ROWS; r += THREADS) {
            float old = row_m[r], m = old;
            UNROLL for (int k = 0; k < 8; k++) m = max(m, eighth[r * 8 + k]);
            row_m[r] = m;
            row_keep[r] = old == m ? 1.0f : exp_of_negative(old - m);
        }
        barrier();
        for (int i = thread(); i < ROWS * 8; i += THREADS) {
            float m = row_m[i / 8];
            float sum = 0.0f;
            UNROLL for (int k = 0; k < 8; k++) {
                float s = SCORE(i / 8, i % 8 * 8 + k);
                float p = s == NEGATIVE_INFINITY ? 0.0f : exp_of_negative(s - m);
                SCORE(i / 8, i % 8 * 8 + k) = p;
                sum = sum + p;
            }
            eighth[i] = sum;
        }
        barrier();
        for (int r = thread(); r < ROWS; r += THREADS) {
            float l = row_l[r] * row_keep[r];
            float sum = 0.0f;
            UNROLL for (int k = 0; k < 8; k++) sum = sum + eighth[r * 8 + k];
            row_l[r] = l + sum;
        }
    }
};

#endif
