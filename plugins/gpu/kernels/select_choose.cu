/* SPDX-License-Identifier: MIT
 *
 * select_choose.cu: KV_SELECT: makes the list of a token from the keys of select_score.cu. A
 * workgroup for each token and list. It finds the least key that is chosen, a byte at a time from
 * the highest, by counting keys. Then each thread writes the positions of the chosen slots of its
 * share, in their order. See kernel.h.
 *
 * With blocks (spec 1), the first slot of a block gets the greatest key of the block and stands for
 * it; the keys of its other slots become KEY_NONE.
 *
 * With spec 3 the list of a strided cache has tokens: a chosen row gives the tokens of its run, and
 * the tokens after the last complete run are added.
 */
#include "select.h"

struct SelectChoose : Attention {
    inline explicit SelectChoose(const Args &args_) : Attention(args_, 0) {}

    const int N_TOP = SPEC0;
    const int BLOCK_LEN = SPEC1 > 0 ? SPEC1 : 1;
    const int N_LOCAL = SPEC2;
    const int RUN_LEN = SPEC3 != 0 ? STRIDE : 1; // tokens that a row of the list stands for

    static constexpr int N_BIN = 256, MAX_THREADS = 256;
    uint *bins = shared_take<uint>(2 * N_BIN);
    uint *shares = shared_take<uint>(2 * MAX_THREADS);
    uint *found = shared_take<uint>(2);

    inline int thread() { return int(thread_id()); }
    inline int threads() { return int(group_size()); }

    step_entries e = {I32(u64(0)), 0, 0};
    int pos; // of the token
    int n;   // slots
    int page_shift;

    // ---- Slots and their positions ----

    int entry_number = -1; // of `entry`, counted from the sequence's first
    ivec4 entry = ivec4(0, 0, 0, 0);

    inline void entry_get(int number) {
        if (number == entry_number) return;
        entry_number = number;
        entry = entry_read(e, e.first + number);
    }

    // The position of slot i; -1 where there is none that the token sees.
    inline int position(int i) {
        entry_get(i >> page_shift);
        int of_entry = (i & page_len() - 1) - entry.y;
        if (of_entry < 0 || of_entry >= entry.z || entry.w > pos || of_entry > pos - entry.w)
            return -1;
        return entry.w + of_entry;
    }

    // Whether slot i, whose position is p, is the first slot of its block that the sequence has.
    inline bool is_first(int i, int p) {
        if (p % BLOCK_LEN == 0) return true;
        if ((i & page_len() - 1) > entry.y) return false;
        for (int before = entry_number - 1; before >= 0; before--) {
            ivec4 other = entry_read(e, e.first + before);
            if (other.z > 0) return other.w + other.z <= p - p % BLOCK_LEN;
        }
        return true;
    }

    // Walks over the slots of a block, in the order of their positions.
    struct Block {
        int number;   // of the entry
        int at, last; // the present position, and the last one of the entry
        int end;      // the last one of the block
        int to_slot;  // from positions of the entry
    };

    inline void block_enter(Block &b) {
        b.at = entry.w;
        b.last = min(entry.w + max(entry.z, 0) - 1, b.end);
        b.to_slot = (b.number << page_shift) + entry.y - entry.w;
    }

    // A walk that begins at slot i, whose position is p, and ends at the end of the block or at
    // `pos`.
    inline Block block_begin(int i, int p) {
        Block b;
        int rest = BLOCK_LEN - 1 - p % BLOCK_LEN;
        entry_get(i >> page_shift);
        b.number = entry_number;
        b.end = pos - p < rest ? pos : p + rest;
        block_enter(b);
        b.at = p;
        return b;
    }

    // Goes to the next slot; false after the last one.
    inline bool block_next(Block &b) {
        b.at++;
        while (b.at > b.last) {
            b.number++;
            if (e.first + b.number >= e.last) return false;
            entry_get(b.number);
            if (entry.w > b.end) return false;
            block_enter(b);
        }
        return true;
    }

    // ---- Slots of a thread, one after the other ----

    inline int share_first() { return min(thread() * ((n + threads() - 1) / threads()), n); }
    inline int share_end() { return min(share_first() + (n + threads() - 1) / threads(), n); }

    // ---- Counting ----

    // Replaces each bin by the sum of it and all bins above it. Returns which half of `bins`, 0 or
    // 1, has the sums.
    inline int bins_sum() {
        int half_at = 0;
        for (int step = 1; step < N_BIN; step *= 2) {
            barrier();
            const uint *from = bins + half_at * N_BIN;
            uint *to = bins + (1 - half_at) * N_BIN;
            for (int i = thread(); i < N_BIN; i += threads())
                to[i] = from[i] + (i + step < N_BIN ? from[i + step] : 0u);
            half_at = 1 - half_at;
        }
        barrier();
        return half_at;
    }

    // The sum of x over the threads before this one; *total_out: over all.
    inline uint threads_before(uint x, uint *total_out) {
        int half_at = 0;
        barrier(); // the shares of an earlier call have been read
        shares[thread()] = x;
        for (int step = 1; step < threads(); step *= 2) {
            barrier();
            const uint *from = shares + half_at * MAX_THREADS;
            uint sum = from[thread()] + (thread() >= step ? from[thread() - step] : 0u);
            half_at = 1 - half_at;
            shares[half_at * MAX_THREADS + thread()] = sum;
        }
        barrier();
        *total_out = shares[half_at * MAX_THREADS + threads() - 1];
        return shares[half_at * MAX_THREADS + thread()] - x;
    }

    // ---- Choosing ----

    // Gives each block's first slot the block's key, and the others KEY_NONE. Ends with a barrier.
    inline void blocks_gather(U32 keys) {
        // The first position of the local blocks, which are chosen always.
        int local = (pos / BLOCK_LEN - N_LOCAL + 1) * BLOCK_LEN;
        for (int i = share_first(); i < share_end(); i++) {
            int p = position(i);
            if (p < 0 || !is_first(i, p)) continue;
            uint key = p >= local ? KEY_LOCAL : keys.at[i];
            Block b = block_begin(i, p);
            while (block_next(b)) {
                uint other = keys.at[b.at + b.to_slot];
                if (other > key) key = other;
                keys.at[b.at + b.to_slot] = KEY_NONE;
            }
            keys.at[i] = key;
        }
        barrier();
    }

    // The least key among the `want` greatest keys; *tied_out: how many slots with that key are
    // chosen, since more may have it. Where there are at most `want` keys, all are chosen:
    // KEY_LEAST.
    inline uint key_find(U32 keys, uint want, uint *tied_out) {
        uint key = 0u, known = 0u;
        for (int shift = 24; shift >= 0; shift -= 8) {
            barrier();
            for (int i = thread(); i < N_BIN; i += threads()) bins[i] = 0u;
            barrier();
            for (int i = thread(); i < n; i += threads()) {
                uint x = keys.at[i];
                if (x != KEY_NONE && (x & known) == key)
                    shared_add(&bins[x >> uint(shift) & 255u], 1u);
            }
            const uint *sums = bins + bins_sum() * N_BIN;
            if (known == 0u && sums[0] <= want) {
                *tied_out = 0xffffffffu;
                return KEY_LEAST;
            }
            for (int i = thread(); i < N_BIN; i += threads()) {
                uint above = i + 1 < N_BIN ? sums[i + 1] : 0u;
                if (sums[i] >= want && above < want) {
                    found[0] = uint(i);
                    found[1] = want - above;
                }
            }
            barrier();
            key |= found[0] << uint(shift);
            known |= 255u << uint(shift);
            want = found[1];
        }
        *tied_out = want;
        return key;
    }

    // Writes the chosen positions to the list; returns how many.
    inline int list_write(U32 keys, I32 list) {
        uint tied, total;
        uint least = key_find(keys, uint(N_TOP / RUN_LEN / BLOCK_LEN), &tied);
        int first = share_first(), last = share_end();
        uint n_tied = 0u, n_position = 0u;
        for (int i = first; i < last; i++) n_tied += keys.at[i] == least ? 1u : 0u;
        const uint tied_before = threads_before(n_tied, &total);
        uint at = 0u;
        DONT_UNROLL for (int pass = 0; pass < 2; pass++) { // count positions, then write them
            uint rank = tied_before;
            if (pass == 1) at = threads_before(n_position, &total);
            for (int i = first; i < last; i++) {
                uint x = keys.at[i];
                if (x < least || (x == least && rank++ >= tied)) continue;
                Block b = block_begin(i, position(i));
                do {
                    if (pass == 1)
                        for (int r = 0; r < RUN_LEN; r++) list.at[at++] = b.at * RUN_LEN + r;
                    else
                        n_position += uint(RUN_LEN);
                } while (block_next(b));
            }
        }
        return int(total);
    }

    inline void run() {
        int n_list = args.word[8], n_entry = args.word[17];
        uint number = group_number();
        int at = int(number / uint(n_list)), of_token = int(number) - at * n_list;
        if (at >= args.word[10]) return;
        int token = args.word[9] + at, written = 0;
        I32 list = I32(args.address[0] +
                       u64(uint(of_token * args.word[7] + token)) * u64(uint(N_TOP)) * 4);

        u64 step = args.address[2];
        int last = -1; // the position of the token; `pos` is that of the last row that it sees
        if (token < I32(step).at[STEP_N_TOK]) last = max(I32(step).at[args.word[12] + token], -1);
        pos = pos_row(last);
        if (pos >= 0) {
            e = entries_of(step, I32(step).at[args.word[13] + token],
                           ivec2(args.word[14], args.word[15]), ivec2(args.word[16], n_entry));
            n = (e.last - e.first) * page_len();
            page_shift = top_bit(uint(page_len()));
            U32 keys = key_row(args.address[1], int(number), n_entry * page_len());
            if (BLOCK_LEN > 1 || N_LOCAL > 0) blocks_gather(keys);
            written = list_write(keys, list);
        }
        if (SPEC3 != 0) {
            int tail = (last + 1) / RUN_LEN * RUN_LEN;
            for (int p = tail + thread(); p <= last; p += threads())
                list.at[written + p - tail] = p;
            written += last + 1 - tail;
        }
        for (int i = written + thread(); i < N_TOP; i += threads()) list.at[i] = -1;
    }
};

GPU_KERNEL_OF(select_choose, 256, 64, SelectChoose)
