/* SPDX-License-Identifier: MIT
 *
 * attention_fold.h: the online softmax: m, the maximum, and l, the sum of p, of the query rows of a
 * workgroup, and how a chunk's scores become p. All threads call rows_clear() and chunk_softmax()
 * together.
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
    float *eighth;   // [rows][8] maxima, then sums, of 8 slots each
    float *row_m;    // [rows]
    float *row_l;    // [rows]
    float *row_keep; // [rows] the factor for o of the chunks before, since m has changed

    inline int thread() { return int(thread_id()); }

    // ---- Lists of slots, and a bias for each distance: SPEC5 of kernels of parts and tiles ----

    const bool HAS_BIAS = (SPEC5 & 64) != 0;
    const bool HAS_LIST = (SPEC5 & 128) != 0;

    // Whether the last workgroup that has parts of a row merges its records: attention_merge.h.
    inline bool merges() { return (recomputed(uint(SPEC5)) & 512u) != 0; }

    // The address of the records. With merges(), o [n_tok * n_head][dim] f32 lies before them.
    inline u64 records_begin(int dim) {
        const uint n_all = merges() ? recomputed(uint(args.word[7])) * uint(args.word[8]) : 0u;
        return args.address[0] + u64(n_all) * u64(uint(dim * 4));
    }

    // The bias of a query head for a slot `distance` positions before its token. SPEC7 is n_far.
    inline float bias_of(int head, int distance) {
        int n_far = SPEC7, at = n_far + min(max(-distance, -n_far), n_far);
        return F32(args.address[4]).at[head * (2 * n_far + 1) + at];
    }

    // Words of a list for each entry: a bit for each slot of the entry's page.
    inline int list_words() { return (page_len() + 31) / 32; }

    // The list of a token (select_slots.cu): bits of the slots of its sequence's entries, from the
    // first entry on. There is one list for each KV head of the state, or one for all.
    inline U32 list_of(int token, int kv) {
        int list = (SPEC5 & 256) != 0 ? kv : 0;
        return U32(args.address[5] + u64(uint(list * args.word[7] + token)) *
                                         u64(uint(args.word[17] * list_words() * 4)));
    }

    // The bits of the CHUNK slots of an entry from `start` on, a multiple of CHUNK. page_len() is a
    // power of two, so a list of more than one word has two for each chunk.
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

    // The softmax of a chunk: turns the scores of all rows, SCORE(row, slot), into p = exp(score -
    // m), and updates row_m, row_l and row_keep. It begins with a barrier. Another barrier is
    // needed before another thread's row_l is read.
    template <class Score> inline void chunk_softmax(Score SCORE) {
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
            row_keep[r] = keep_of(old, m);
        }
        barrier();
        for (int i = thread(); i < ROWS * 8; i += THREADS) {
            float m = row_m[i / 8];
            float sum = 0.0f;
            UNROLL for (int k = 0; k < 8; k++) {
                float p = p_of(SCORE(i / 8, i % 8 * 8 + k), m);
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
