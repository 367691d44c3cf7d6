// SPDX-License-Identifier: MIT
//
// select_choose.comp: KV_SELECT: the list of a token, of keys of select_score.comp. A workgroup for
// each token and list. The least key that is chosen is found a byte at a time, from the highest, by
// counting. Then each thread writes the positions of its share of the slots, in their order. See
// kernel.h.
//
// With blocks, a block's first slot takes the greatest key of the block and stands for it; its
// other slots have none.
//
// With lists of tokens a chosen row of a strided cache gives the tokens of its run; the tokens
// behind the last row follow.
#version 460
#extension GL_GOOGLE_include_directive : require
#include "args.glsl"
#include "page.glsl"
#include "attention.glsl"
#include "select.glsl"

const int N_TOP = SPEC0;
const int BLOCK_LEN = SPEC1 > 0 ? SPEC1 : 1;
const int N_LOCAL = SPEC2;
const int RUN_LEN = SPEC3 != 0 ? STRIDE : 1; // tokens that a row of the list stands for

const int N_BIN = 256, MAX_THREADS = 256;
shared uint bins[2 * N_BIN];
shared uint shares[2 * MAX_THREADS];
shared uint found[2];

int threads() {
    return int(gl_WorkGroupSize.x);
}

// Keys that this workgroup has changed are seen by all of its threads.
void keys_barrier() {
    memoryBarrierBuffer();
    barrier();
}

step_entries e;
int pos; // of the token
int n;   // slots
int page_shift;

// ---- Slots and their positions ----

int entry_number = -1; // of `entry`, counted from the sequence's first
ivec4 entry;

void entry_get(int number) {
    if (number == entry_number) return;
    entry_number = number;
    entry = entry_read(e, e.first + number);
}

// The position of slot i; -1 where there is none that the token sees.
int position(int i) {
    entry_get(i >> page_shift);
    int of_entry = (i & page_len() - 1) - entry.y;
    if (of_entry < 0 || of_entry >= entry.z || entry.w > pos || of_entry > pos - entry.w) return -1;
    return entry.w + of_entry;
}

// Whether slot i, whose position is p, is the first slot of its block; earlier ones may be missing.
bool is_first(int i, int p) {
    if (p % BLOCK_LEN == 0) return true;
    if ((i & page_len() - 1) > entry.y) return false;
    for (int before = entry_number - 1; before >= 0; before--) {
        ivec4 other = entry_read(e, e.first + before);
        if (other.z > 0) return other.w + other.z <= p - p % BLOCK_LEN;
    }
    return true;
}

// Walks over the positions of a block, entry by entry.
struct Block {
    int number;   // of the present entry
    int at, last; // present position, and the last one in the entry
    int end;      // last position of the block that the token sees
    int to_slot;  // a position of the present entry plus this is its slot
};

void block_enter(inout Block b) {
    b.at = entry.w;
    b.last = min(entry.w + max(entry.z, 0) - 1, b.end);
    b.to_slot = (b.number << page_shift) + entry.y - entry.w;
}

Block block_begin(int i, int p) {
    Block b;
    int rest = BLOCK_LEN - 1 - p % BLOCK_LEN;
    entry_get(i >> page_shift);
    b.number = entry_number;
    b.end = pos - p < rest ? pos : p + rest;
    block_enter(b);
    b.at = p;
    return b;
}

// Moves to the next position; false where there is none.
bool block_next(inout Block b) {
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

int share_first() {
    return min(thread() * ((n + threads() - 1) / threads()), n);
}
int share_end() {
    return min(share_first() + (n + threads() - 1) / threads(), n);
}

// ---- Counting ----

// Turns bins into sums of a bin and those above it, in the half of `bins` that it returns.
int bins_sum() {
    int half_at = 0;
    for (int step = 1; step < N_BIN; step *= 2) {
        barrier();
        for (int i = thread(); i < N_BIN; i += threads()) {
            uint above = i + step < N_BIN ? bins[half_at * N_BIN + i + step] : 0u;
            bins[(1 - half_at) * N_BIN + i] = bins[half_at * N_BIN + i] + above;
        }
        half_at = 1 - half_at;
    }
    barrier();
    return half_at;
}

// The sum of x over the threads before this one; total: over all.
uint threads_before(uint x, out uint total) {
    int half_at = 0;
    barrier(); // the shares of an earlier call have been read
    shares[thread()] = x;
    for (int step = 1; step < threads(); step *= 2) {
        barrier();
        uint sum = shares[half_at * MAX_THREADS + thread()];
        if (thread() >= step) sum += shares[half_at * MAX_THREADS + thread() - step];
        half_at = 1 - half_at;
        shares[half_at * MAX_THREADS + thread()] = sum;
    }
    barrier();
    total = shares[half_at * MAX_THREADS + threads() - 1];
    return shares[half_at * MAX_THREADS + thread()] - x;
}

// ---- Choosing ----

// Moves the greatest key of each block to its first slot; KEY_LOCAL for the N_LOCAL last blocks.
void blocks_gather(Keys keys) {
    int local = (pos / BLOCK_LEN - N_LOCAL + 1) * BLOCK_LEN; // the first position of local blocks
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
    keys_barrier();
}

// The least key among the `want` greatest keys; KEY_LEAST where there are no more than `want`.
// tied: how many slots with that key are chosen.
uint key_find(Keys keys, uint want, out uint tied) {
    uint key = 0u, known = 0u;
    for (int shift = 24; shift >= 0; shift -= 8) {
        barrier();
        for (int i = thread(); i < N_BIN; i += threads()) bins[i] = 0u;
        barrier();
        for (int i = thread(); i < n; i += threads()) {
            uint x = keys.at[i];
            if (x != KEY_NONE && (x & known) == key) atomicAdd(bins[x >> uint(shift) & 255u], 1u);
        }
        int sums = bins_sum() * N_BIN;
        if (known == 0u && bins[sums] <= want) {
            tied = 0xffffffffu;
            return KEY_LEAST;
        }
        for (int i = thread(); i < N_BIN; i += threads()) {
            uint above = i + 1 < N_BIN ? bins[sums + i + 1] : 0u;
            if (bins[sums + i] >= want && above < want) {
                found[0] = uint(i);
                found[1] = want - above;
            }
        }
        barrier();
        key |= found[0] << uint(shift);
        known |= 255u << uint(shift);
        want = found[1];
    }
    tied = want;
    return key;
}

// Writes the chosen positions in order; returns how many.
int list_write(Keys keys, I32 list) {
    uint tied, total;
    uint least = key_find(keys, uint(N_TOP / RUN_LEN / BLOCK_LEN), tied);
    int first = share_first(), last = share_end();
    uint n_tied = 0u, n_position = 0u;
    for (int i = first; i < last; i++) n_tied += keys.at[i] == least ? 1u : 0u;
    uint tied_before = threads_before(n_tied, total), at = 0u;
    for (int pass = 0; pass < 2; pass++) { // count positions, then write them
        uint rank = tied_before;
        if (pass == 1) at = threads_before(n_position, total);
        for (int i = first; i < last; i++) {
            uint x = keys.at[i];
            if (x < least) continue;
            if (x == least && rank++ >= tied) continue;
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

void main() {
    int n_list = args.word[8], n_entry = args.word[17];
    uint number = group_number();
    int at = int(number / uint(n_list)), of_token = int(number) - at * n_list;
    if (at >= args.word[10]) return;
    int token = args.word[9] + at, written = 0;
    I32 list = I32(args.address[0] +
                   uint64_t(uint(of_token * args.word[7] + token)) * uint64_t(uint(N_TOP)) * 4);

    uint64_t step = args.address[2];
    int last = -1; // the position of the token; `pos` is that of the last row that it sees
    if (token < I32(step).at[STEP_N_TOK]) last = max(I32(step).at[args.word[12] + token], -1);
    pos = pos_row(last);
    if (pos >= 0) {
        e = entries_of(step, I32(step).at[args.word[13] + token],
                       ivec2(args.word[14], args.word[15]), ivec2(args.word[16], n_entry));
        n = (e.last - e.first) * page_len();
        page_shift = findMSB(uint(page_len()));
        Keys keys = key_row(args.address[1], int(number), n_entry * page_len());
        if (BLOCK_LEN > 1 || N_LOCAL > 0) blocks_gather(keys);
        written = list_write(keys, list);
    }
    if (SPEC3 != 0) {
        int tail = (last + 1) / RUN_LEN * RUN_LEN;
        for (int p = tail + thread(); p <= last; p += threads()) list.at[written + p - tail] = p;
        written += last + 1 - tail;
    }
    for (int i = written + thread(); i < N_TOP; i += threads()) list.at[i] = -1;
}
