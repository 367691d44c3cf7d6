/* SPDX-License-Identifier: MIT
 *
 * linear_scan.cu: LINEAR_SCAN: for each row S of a head's matrix and each token, in order:
 *
 *   e = erase S,  S *= decay,  u = v or beta (v - k S),  S += k u + write e,  o = scale q S
 *
 * LANES threads of a wave divide the dk elements of ROWS rows. The rows stay in registers from
 * token to token; k and q of a token are loaded once for ROWS rows. The time of a single token is
 * that of reading and writing the state once: 8 * dk * dv bytes for each head of v. A prompt reads
 * the state once too, and (2 * dk / ROWS + 1) * 4 bytes of k, q and v for each row and token,
 * mostly from the device's cache. See GPU_KERNEL_LINEAR_SCAN.
 */
#include "entries.h"
#include "math.h"
#include "lang.h"

template <int STEPS, int ROWS> struct LinearScan : Kernel {
    inline explicit LinearScan(const Args &args_) : Kernel(args_) {}

    enum { ONE = 0, EACH, FACTOR }; // gpu_scan_decay
    const int DK = SPEC0;
    const uint LANES = uint(SPEC1);
    const int DECAY = SPEC4;
    const bool HAS_BETA = (SPEC5 & 1) != 0, IS_TILED = (SPEC5 & 2) != 0;
    const bool IS_CONSTANT = (SPEC5 & 4) != 0, STATE_ALIGNED = (SPEC5 & 8) != 0;
    const bool Q_ALIGNED = (SPEC5 & 16) != 0, K_ALIGNED = (SPEC5 & 32) != 0;
    const bool HAS_ERASE = (SPEC5 & 64) != 0; // without beta

    uint lane; // of the threads that share rows
    int head, head_k, row, n_live; // row: the first; n_live: rows of this thread, up to ROWS
    u64 state; // of the first row, in slot 0
    u64 rates; // of the table
    vec4 s[ROWS * STEPS];

    // The first of the four elements of step e.
    inline int element(int e) { return 4 * (int(lane) + int(LANES) * e); }

    // Elements i to i + 3 of dk; those from dk on are 0. first: element 0 of the dk, in elements.
    inline vec4 load(u64 base, uint first, uint stride, bool is_aligned, int i) {
        if (is_aligned)
            return i < DK ? bits_to_float(load_16(base + u64(first + uint(i)) * 4)) : vec4(0.0f);
        vec4 x = vec4(0.0f);
        UNROLL for (int c = 0; c < 4; c++) if (i + c < DK) x[c] =
            F32(base).at[first + uint(i + c) * stride];
        return x;
    }

    inline void rows_load(int slot) {
        UNROLL for (int r = 0; r < ROWS; r++) {
            u64 from = state + u64(uint(slot)) * u64(uint(args.word[7])) + u64(uint(r * DK)) * 4;
            UNROLL for (int e = 0; e < STEPS; e++) s[r * STEPS + e] =
                slot >= 0 && r < n_live ? load(from, 0, 1, STATE_ALIGNED, element(e)) : vec4(0.0f);
        }
    }

    inline void rows_store(int slot) {
        UNROLL for (int r = 0; r < ROWS; r++) {
            if (r >= n_live) break;
            u64 to = state + u64(uint(slot)) * u64(uint(args.word[7])) + u64(uint(r * DK)) * 4;
            UNROLL for (int e = 0; e < STEPS; e++) {
                int i = element(e);
                vec4 x = s[r * STEPS + e];
                if (STATE_ALIGNED && i < DK) store_16(to + u64(uint(i)) * 4, float_to_bits(x));
                UNROLL for (int c = 0; c < 4; c++) if (!STATE_ALIGNED && i + c < DK) F32(to)
                    .at[i + c] = x[c];
            }
        }
    }

    // The sum of the elements over the lanes that share rows.
    inline float lanes_sum(vec4 each) {
        float x = each.x + each.y + each.z + each.w;
        for (uint mask = 1; mask < LANES; mask *= 2)
            x += bits_to_float(wave_xchg(float_to_bits(x), mask));
        return x;
    }

    // The decay of the four elements of step e.
    inline vec4 decay_get(float rate, u64 row_rates, const vec4 *factor, int e) {
        if (DECAY == ONE) return vec4(rate);
        if (DECAY == EACH) return load(row_rates, 0, 1, false, element(e));
        vec4 x = factor[e] * vec4(rate);
        return vec4(exp_of(x.x), exp_of(x.y), exp_of(x.z), exp_of(x.w));
    }

    inline void token_run(int token, const vec4 *factor) {
        uint n_v = uint(args.word[2]), at = uint(token) * n_v + uint(head);
        uint n_rate = DECAY == EACH ? uint(DK) : 1u;
        u64 row_rates = rates + u64((IS_CONSTANT ? uint(head) : at) * n_rate) * 4;
        float rate = F32(row_rates).at[0];
        uint q_at = uint(head_k) * uint(args.word[11]) + uint(token) * uint(args.word[12]);
        uint k_at = uint(head_k) * uint(args.word[14]) + uint(token) * uint(args.word[15]);
        uint v_at = uint(head) * uint(args.word[17]) + uint(token) * uint(args.word[18]);
        u64 pair = args.address[4] + u64(uint(args.word[9])) * 4 +
                   u64(uint(token) * uint(args.word[19]) + uint(head_k)) * u64(uint(2 * DK)) * 4;
        vec4 held[ROWS], o[ROWS], k[STEPS];
        UNROLL for (int r = 0; r < ROWS; r++) held[r] = o[r] = vec4(0.0f);
        UNROLL for (int e = 0; e < STEPS; e++) {
            vec4 decay = decay_get(rate, row_rates, factor, e);
            k[e] = load(args.address[2], k_at, uint(args.word[13]), K_ALIGNED, element(e));
            vec4 erase = HAS_ERASE ? load(pair, 0, 1, STATE_ALIGNED, element(e)) : vec4(0.0f);
            UNROLL for (int r = 0; r < ROWS; r++) {
                if (HAS_ERASE) held[r] = fma(erase, s[r * STEPS + e], held[r]);
                s[r * STEPS + e] *= decay;
                if (HAS_BETA) held[r] = fma(k[e], s[r * STEPS + e], held[r]);
            }
        }
        float beta = 1.0f;
        if (HAS_BETA) beta = F32(args.address[4] + u64(uint(args.word[9]) + at) * 4).at[0];
        float u[ROWS], erased[ROWS];
        UNROLL for (int r = 0; r < ROWS; r++) {
            u[r] = r < n_live ? F32(args.address[3]).at[v_at + uint(row + r) * uint(args.word[16])]
                              : 0.0f;
            if (HAS_BETA) u[r] = beta * (u[r] - lanes_sum(held[r]));
            erased[r] = HAS_ERASE ? lanes_sum(held[r]) : 0.0f;
        }
        UNROLL for (int e = 0; e < STEPS; e++) {
            vec4 q = load(args.address[1], q_at, uint(args.word[10]), Q_ALIGNED, element(e));
            vec4 write = HAS_ERASE ? load(pair + u64(uint(DK)) * 4, 0, 1, STATE_ALIGNED, element(e))
                                   : vec4(0.0f);
            UNROLL for (int r = 0; r < ROWS; r++) {
                s[r * STEPS + e] = fma(k[e], vec4(u[r]), s[r * STEPS + e]);
                if (HAS_ERASE) s[r * STEPS + e] = fma(write, vec4(erased[r]), s[r * STEPS + e]);
                o[r] = fma(q, s[r * STEPS + e], o[r]);
            }
        }
        float scale = bits_to_float(uint(SPEC6));
        F32 to = F32(args.address[0] + u64(at * uint(args.word[3]) + uint(row)) * 4);
        UNROLL for (int r = 0; r < ROWS; r++) {
            float sum = lanes_sum(o[r]) * scale;
            if (lane == 0 && r < n_live) to.at[r] = sum;
        }
    }

    // Tokens of no sequence give zeros.
    inline void unused_clear(I32 is_used) {
        for (int t = 0; t < args.word[0]; t++) {
            if (is_used.at[t] != 0) continue;
            F32 to = F32(
                args.address[0] +
                u64((uint(t) * uint(args.word[2]) + uint(head)) * uint(args.word[3]) + uint(row)) *
                    4);
            UNROLL for (int r = 0; r < ROWS; r++) if (lane == 0 && r < n_live) to.at[r] = 0.0f;
        }
    }

    // Finds the rows of this thread; number: which LANES threads these are, counted over the
    // sequence's workgroups.
    inline void rows_find(int number) {
        int n_v = args.word[2], dv = args.word[3], per_k = args.word[4], m = args.word[6];
        int n_part = (dv + ROWS - 1) / ROWS;
        head = number / n_part;
        row = number % n_part * ROWS;
        n_live = head < n_v ? min(dv - row, ROWS) : 0;
        if (head >= n_v) head = row = 0; // no rows, but lanes_sum() needs all lanes of the wave
        int n_k = IS_TILED ? n_v / per_k : 1;
        head_k = IS_TILED ? head % n_k : (head + args.word[5]) / per_k;
        int unit = IS_TILED ? head % n_k : head / m, matrix = IS_TILED ? head / n_k : head % m;
        state = args.address[5] + u64(uint(unit)) * u64(uint(args.word[8])) +
                u64(uint(matrix * dv + row)) * u64(uint(DK)) * 4;
    }

    inline void run() {
        int per_group = int(group_size() / LANES), n_v = args.word[2], n_seq = args.word[1];
        int n_row = n_v * ((args.word[3] + ROWS - 1) / ROWS);
        int n_group = (n_row + per_group - 1) / per_group;
        int number = int(group_number()), seq = number / n_group;
        I32 table = I32(args.address[4]);
        if (seq > n_seq) return;
        lane = thread_id() % LANES;
        rows_find(number % n_group * per_group + int(thread_id() / LANES));
        I32 slots = I32(args.address[4] + u64(uint(3 * n_seq)) * 4);
        if (seq == n_seq) {
            unused_clear(I32(args.address[4] + u64(uint(3 * n_seq + args.word[0])) * 4));
            return;
        }
        int begin = table.at[seq], end = table.at[n_seq + seq];
        if (begin >= end) return;
        rates = args.address[4] + u64(uint(args.word[9])) * 4;
        if (HAS_BETA) rates += u64(uint(n_v * args.word[0])) * 4;
        if (HAS_ERASE) rates += u64(uint(2 * DK * args.word[19] * args.word[0])) * 4;
        vec4 factor[STEPS];
        u64 n_rate_tok = u64(uint(IS_CONSTANT ? 1 : args.word[0]));
        UNROLL for (int e = 0; e < STEPS; e++) factor[e] =
            DECAY == FACTOR ? load(rates + n_rate_tok * u64(uint(n_v)) * 4, uint(head * DK), 1,
                                   false, element(e))
                            : vec4(0.0f);
        rows_load(table.at[2 * n_seq + seq]);
        DONT_UNROLL for (int t = begin; t < end; t++) {
            token_run(t, factor);
            if (slots.at[t] >= 0) rows_store(slots.at[t]);
        }
    }
};

#define ENTRY(steps, rows)                                                                         \
    GPU_KERNEL_OF(linear_scan_##steps##_##rows, 128, 255, LinearScan<steps, rows>)
GPU_SCAN_ENTRIES(ENTRY)
