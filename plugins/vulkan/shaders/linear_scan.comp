// SPDX-License-Identifier: MIT
//
// linear_scan.comp: LINEAR_SCAN: for each row S of a head's matrix and each token, in order:
//
//   e = erase S,  S *= decay,  u = v or beta (v - k S),  S += k u + write e,  o = scale q S
//
// LANES invocations of a subgroup divide the dk elements of ROWS rows, which stay in registers
// while the tokens pass: k and q of a token are loaded once for ROWS rows. A token alone is bound
// by the state, which is read and written once: 8 * dk * dv bytes for each head of v. A prompt
// reads the state once too, and (2 * dk / ROWS + 1) * 4 bytes of k, q and v for each row and token,
// which neighbouring rows find in the cache. The only loop that counts is over the tokens. See
// GPU_KERNEL_LINEAR_SCAN.
#version 460
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#include "args.glsl"
#include "math.glsl"

const int DK = SPEC0, LANES = SPEC1 > 0 ? SPEC1 : 1, DECAY = SPEC4;
const int STEPS = SPEC2 > 0 ? SPEC2 : 1, ROWS = SPEC3 > 0 ? SPEC3 : 1;
const int ONE = 0, EACH = 1, FACTOR = 2; // gpu_scan_decay
const bool HAS_BETA = (SPEC5 & 1) != 0, IS_TILED = (SPEC5 & 2) != 0;
const bool IS_CONSTANT = (SPEC5 & 4) != 0, STATE_ALIGNED = (SPEC5 & 8) != 0;
const bool Q_ALIGNED = (SPEC5 & 16) != 0, K_ALIGNED = (SPEC5 & 32) != 0;
const bool HAS_ERASE = (SPEC5 & 64) != 0; // without beta

uint lane; // of the invocations that share rows
// head: of v; head_k: of q and k; row: the first of ROWS rows, of which n_live exist
int head, head_k, row, n_live;
uint64_t state; // of the first row, in slot 0
uint64_t rates; // of the table
vec4 s[ROWS * STEPS];
vec4 factors[STEPS];

// The first of the four elements of step e.
int element(int e) {
    return 4 * (int(lane) + LANES * e);
}

// Four elements from element i on of dk; those behind dk are 0.
vec4 load(uint64_t base, uint first, uint stride, bool is_aligned, int i) {
    vec4 x = vec4(0.0);
    if (is_aligned) {
        if (i < DK) x = F32x4(base + uint64_t(first + uint(i)) * 4).at[0];
        return x;
    }
    [[unroll]] for (int c = 0; c < 4; c++)
        if (i + c < DK) x[c] = F32(base).at[first + uint(i + c) * stride];
    return x;
}

uint64_t row_address(int slot, int r) {
    return state + uint64_t(uint(slot)) * uint64_t(uint(args.word[7])) + uint64_t(uint(r * DK)) * 4;
}

void rows_load(int slot) {
    [[unroll]] for (int r = 0; r < ROWS; r++)
        [[unroll]] for (int e = 0; e < STEPS; e++) {
            s[r * STEPS + e] = vec4(0.0);
            if (slot >= 0 && r < n_live)
                s[r * STEPS + e] = load(row_address(slot, r), 0, 1, STATE_ALIGNED, element(e));
        }
}

void rows_store(int slot) {
    [[unroll]] for (int r = 0; r < ROWS; r++)
        [[unroll]] for (int e = 0; e < STEPS; e++) {
            int i = element(e);
            uint64_t to = row_address(slot, r) + uint64_t(uint(i)) * 4;
            if (STATE_ALIGNED) {
                if (r < n_live && i < DK) F32x4(to).at[0] = s[r * STEPS + e];
            } else {
                [[unroll]] for (int c = 0; c < 4; c++)
                    if (r < n_live && i + c < DK) F32(to).at[c] = s[r * STEPS + e][c];
            }
        }
}

// The sum of the elements over the lanes that share rows.
float lanes_sum(vec4 each) {
    float x = each.x + each.y + each.z + each.w;
    if (LANES > 1) x += subgroupShuffleXor(x, 1);
    if (LANES > 2) x += subgroupShuffleXor(x, 2);
    if (LANES > 4) x += subgroupShuffleXor(x, 4);
    if (LANES > 8) x += subgroupShuffleXor(x, 8);
    if (LANES > 16) x += subgroupShuffleXor(x, 16);
    if (LANES > 32) x += subgroupShuffleXor(x, 32);
    if (LANES > 64) x += subgroupShuffleXor(x, 64);
    return x;
}

vec4 decay_get(float rate, uint64_t row_rates, int e) {
    if (DECAY == ONE) return vec4(rate);
    if (DECAY == EACH) return load(row_rates, 0, 1, false, element(e));
    vec4 x = factors[e] * rate;
    return vec4(exp_of(x.x), exp_of(x.y), exp_of(x.z), exp_of(x.w));
}

void token_run(int token) {
    uint n_v = uint(args.word[2]), at = uint(token) * n_v + uint(head);
    uint n_rate = DECAY == EACH ? uint(DK) : 1u;
    uint64_t row_rates = rates + uint64_t((IS_CONSTANT ? uint(head) : at) * n_rate) * 4;
    float rate = F32(row_rates).at[0];
    uint q_at = uint(head_k) * uint(args.word[11]) + uint(token) * uint(args.word[12]);
    uint k_at = uint(head_k) * uint(args.word[14]) + uint(token) * uint(args.word[15]);
    uint v_at = uint(head) * uint(args.word[17]) + uint(token) * uint(args.word[18]);
    uint64_t pair = args.address[4] + uint64_t(uint(args.word[9])) * 4 +
                    uint64_t(uint(token) * uint(args.word[19]) + uint(head_k)) *
                        uint64_t(uint(2 * DK)) * 4;
    vec4 held[ROWS], o[ROWS], k[STEPS];
    float u[ROWS], erased[ROWS];
    [[unroll]] for (int r = 0; r < ROWS; r++) {
        held[r] = vec4(0.0);
        o[r] = vec4(0.0);
    }
    [[unroll]] for (int e = 0; e < STEPS; e++) {
        vec4 decay = decay_get(rate, row_rates, e);
        k[e] = load(args.address[2], k_at, uint(args.word[13]), K_ALIGNED, element(e));
        vec4 erase = vec4(0.0);
        if (HAS_ERASE) erase = load(pair, 0, 1, STATE_ALIGNED, element(e));
        [[unroll]] for (int r = 0; r < ROWS; r++) {
            if (HAS_ERASE) held[r] += erase * s[r * STEPS + e];
            s[r * STEPS + e] *= decay;
            if (HAS_BETA) held[r] += k[e] * s[r * STEPS + e];
        }
    }
    float beta = 1.0;
    if (HAS_BETA) beta = F32(args.address[4] + uint64_t(uint(args.word[9]) + at) * 4).at[0];
    [[unroll]] for (int r = 0; r < ROWS; r++) {
        u[r] = 0.0;
        if (r < n_live) u[r] = F32(args.address[3]).at[v_at + uint(row + r) * uint(args.word[16])];
        if (HAS_BETA) u[r] = beta * (u[r] - lanes_sum(held[r]));
        erased[r] = 0.0;
        if (HAS_ERASE) erased[r] = lanes_sum(held[r]);
    }
    [[unroll]] for (int e = 0; e < STEPS; e++) {
        vec4 q = load(args.address[1], q_at, uint(args.word[10]), Q_ALIGNED, element(e));
        vec4 write = vec4(0.0);
        if (HAS_ERASE)
            write = load(pair + uint64_t(uint(DK)) * 4, 0, 1, STATE_ALIGNED, element(e));
        [[unroll]] for (int r = 0; r < ROWS; r++) {
            s[r * STEPS + e] += k[e] * u[r];
            if (HAS_ERASE) s[r * STEPS + e] += write * erased[r];
            o[r] += q * s[r * STEPS + e];
        }
    }
    F32 to = F32(args.address[0] + uint64_t(at * uint(args.word[3]) + uint(row)) * 4);
    [[unroll]] for (int r = 0; r < ROWS; r++) {
        float sum = lanes_sum(o[r]) * intBitsToFloat(SPEC6);
        if (lane == 0 && r < n_live) to.at[r] = sum;
    }
}

// Tokens of no sequence give zeros.
void unused_clear(I32 is_used) {
    for (int t = 0; t < args.word[0]; t++) {
        if (is_used.at[t] != 0) continue;
        uint at = uint(t) * uint(args.word[2]) + uint(head);
        F32 to = F32(args.address[0] + uint64_t(at * uint(args.word[3]) + uint(row)) * 4);
        [[unroll]] for (int r = 0; r < ROWS; r++)
            if (lane == 0 && r < n_live) to.at[r] = 0.0;
    }
}

// Finds the rows of this invocation. number: of the LANES invocations that share rows, in the
// sequence.
void rows_find(int number) {
    int n_v = args.word[2], dv = args.word[3], per_k = args.word[4], m = args.word[6];
    int n_part = (dv + ROWS - 1) / ROWS;
    head = number / n_part;
    row = number % n_part * ROWS;
    n_live = head < n_v ? min(dv - row, ROWS) : 0;
    if (head >= n_v) { // no rows, but it takes part in its subgroup's shuffles
        head = 0;
        row = 0;
    }
    int n_k = IS_TILED ? n_v / per_k : 1;
    head_k = IS_TILED ? head % n_k : (head + args.word[5]) / per_k;
    int unit = IS_TILED ? head % n_k : head / m, matrix = IS_TILED ? head / n_k : head % m;
    state = args.address[5] + uint64_t(uint(unit)) * uint64_t(uint(args.word[8])) +
            uint64_t(uint(matrix * dv + row)) * uint64_t(uint(DK)) * 4;
}

void main() {
    // Lanes of a subgroup share rows: workgroups are whole subgroups.
    uint thread = gl_SubgroupID * gl_SubgroupSize + gl_SubgroupInvocationID;
    int per_group = int(gl_WorkGroupSize.x) / LANES, n_v = args.word[2], n_seq = args.word[1];
    int n_row = n_v * ((args.word[3] + ROWS - 1) / ROWS);
    int n_group = (n_row + per_group - 1) / per_group;
    int number = int(group_number()), seq = number / n_group;
    if (seq > n_seq) return;
    lane = thread % uint(LANES);
    rows_find(number % n_group * per_group + int(thread / uint(LANES)));
    I32 table = I32(args.address[4]), slots = I32(args.address[4] + uint64_t(uint(3 * n_seq)) * 4);
    if (seq == n_seq) {
        unused_clear(I32(args.address[4] + uint64_t(uint(3 * n_seq + args.word[0])) * 4));
        return;
    }
    int begin = table.at[seq], end = table.at[n_seq + seq];
    if (begin >= end) return;
    rates = args.address[4] + uint64_t(uint(args.word[9])) * 4;
    if (HAS_BETA) rates += uint64_t(uint(n_v * args.word[0])) * 4;
    if (HAS_ERASE) rates += uint64_t(uint(2 * DK * args.word[19] * args.word[0])) * 4;
    if (DECAY == FACTOR) {
        uint64_t from = rates + uint64_t(uint((IS_CONSTANT ? 1 : args.word[0]) * n_v)) * 4;
        [[unroll]] for (int e = 0; e < STEPS; e++)
            factors[e] = load(from, uint(head * DK), 1, false, element(e));
    }
    rows_load(table.at[2 * n_seq + seq]);
    for (int t = begin; t < end; t++) {
        token_run(t);
        int slot = slots.at[t];
        if (slot >= 0) rows_store(slot);
    }
}
