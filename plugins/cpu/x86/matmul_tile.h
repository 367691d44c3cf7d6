/* SPDX-License-Identifier: MIT
 *
 * matmul_tile.h: the matmul kernels for interleaved weights (weight.h), written once in the words of
 * tile_vec_*.h and compiled once for each instruction set. Reference: matmul_reference.c.
 *
 * It is also compiled for each form of activations that an instruction set has kernels for; V_IS_Q8
 * says which (tile_vec_*.h). A row of the group is a vector lane. For 32 elements at a time a kernel
 * unpacks the codes of all rows (eight vectors of four codes a row) and their scales; every token of
 * the tile then takes
 *   acc[t] += d[t] * (scale * dot(code, q[t]))  -  min * (d[t] * sum q[t])
 * with scale and min (where the type has one) per row and per 32 or per 16 elements. Codes that
 * are stored with an offset are not shifted back: the sum begins at -offset * sum q, which the
 * quantised activations bring along. The order of the sums is the same for every number of tokens,
 * so a token's result does not depend on its neighbours.
 */
#ifndef TANDEM_CPU_MATMUL_TILE_H
#define TANDEM_CPU_MATMUL_TILE_H

#include "plugins/cpu/ops/matmul.h"

enum { N_VEC = CPU_X_LEN / 4 }; /* vectors of codes for 32 elements */

/* What 32 elements of a row have besides codes. */
enum { ONE_SCALE = 1, TWO_SCALES = 2, HAS_MIN = 4, HAS_BIAS = 8 };
enum { SIGNED_BIAS = V_SIGNED_OFFSET != 0 ? HAS_BIAS : 0 };

/* The exact sums of `n` vectors of codes, from vector `first` on, times those elements of each
 * token's block; a bias is where they begin. */
INLINE void sums_get(int kind, int n_bit, const v_u8 *codes, int first, int n, const v_x_block **x,
                     int n_tok, v_i32 *sum) {
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        const cpu_x_sum *s = n == N_VEC ? &x[t]->s.all : &x[t]->s.half[first != 0];
        sum[t] = v_set_i32(kind & HAS_BIAS ? s->bias : 0);
    }
    v_dots(sum, codes, first, n, x, n_tok, n_bit);
}

/* Adds 32 elements, block ix of x, of tokens t0 .. t0 + n_tok - 1, at most V_STEP. `scale` and `min`
 * have one or two elements. */
INLINE void few_add(int kind, int n_bit, const v_u8 *codes, const v_f32 *scale, const v_f32 *min,
                    const cpu_matmul_tile *tile, int t0, int n_tok, int64_t ix, v_f32 *acc) {
    const v_x_block *x[V_STEP];
    v_i32 all[V_STEP], half[V_STEP];
    UNROLL
    for (int t = 0; t < n_tok; t++) x[t] = (const v_x_block *)tile->x[t0 + t] + ix;
    if (kind & ONE_SCALE) {
        sums_get(kind, n_bit, codes, 0, N_VEC, x, n_tok, all);
    } else {
        sums_get(kind, n_bit, codes, 0, N_VEC / 2, x, n_tok, all);
        sums_get(kind, n_bit, codes, N_VEC / 2, N_VEC / 2, x, n_tok, half);
    }
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        const cpu_x_scale *s = &x[t]->s;
        v_f32 sum = v_mul(v_from_i32(all[t]), scale[0]);
        if (kind & TWO_SCALES) {
            sum = v_madd(v_from_i32(half[t]), scale[1], sum);
            if (kind & HAS_MIN) acc[t] = v_nmadd(min[0], v_set(s->half[0].sum), acc[t]);
            if (kind & HAS_MIN) acc[t] = v_nmadd(min[1], v_set(s->half[1].sum), acc[t]);
        } else if (kind & HAS_MIN) {
            acc[t] = v_nmadd(min[0], v_set(s->all.sum), acc[t]);
        }
        acc[t] = v_madd(sum, v_set(s->d), acc[t]);
    }
}

/* Tokens of a tile from t0 on. Whether each line of the weights is asked for ahead is a constant of
 * most bodies, like the number of tokens: the test cost prompts up to a fifth of their speed. */
typedef struct tile_cut {
    const cpu_matmul_tile *tile;
    int t0;
    bool asks_each;
} tile_cut;

INLINE void tile_clear(v_f32 *acc, int n_tok) {
    UNROLL
    for (int t = 0; t < n_tok; t++) acc[t] = v_zero();
}

INLINE void tile_store(tile_cut cut, int n_tok, const v_f32 *acc) {
    UNROLL
    for (int t = 0; t < n_tok; t++) v_store(cut.tile->y[cut.t0 + t], cut.tile->n_row, acc[t]);
}

/* 32 nibbles of each row as blocks of 32 have them: low nibbles are elements 0 .. 15. */
INLINE void nibbles_load(const uint8_t *p, v_u8 *codes) {
    UNROLL
    for (int c = 0; c < 4; c++) {
        v_u8 v = v_load_codes(p + 4 * V_LANE * c);
        codes[c] = v_low4(v);
        codes[c + 4] = v_high4(v);
    }
}

INLINE void fifth_bits_add(const uint8_t *p, v_u8 *codes) {
    v_u8 bits = v_load_codes(p);
    UNROLL
    for (int c = 0; c < N_VEC; c++) codes[c] = v_add_bit(codes[c], bits, c, 16);
}

INLINE void codebook_apply(v_u8 *codes) {
    UNROLL
    for (int c = 0; c < N_VEC; c++) codes[c] = v_from_codebook(codes[c]);
}

INLINE void e2m1_apply(v_u8 *codes) {
    UNROLL
    for (int c = 0; c < N_VEC; c++) codes[c] = v_from_e2m1(codes[c]);
}

/* 2^(e - 128) as 2^(a - 64) * 2^(b - 64), a + b = e: exact where it is subnormal, too. */
INLINE v_f32 v_load_e8m0(const uint8_t *p) {
    v_i32 e = v_load_u8(p), a = v_bits_i32(e, 1, 127), b = v_sub_i32(e, a);
    v_i32 bias = v_set_i32(127 - 64);
    return v_mul(v_as_f32(v_shift_left(v_add_i32(a, bias), 23)),
                 v_as_f32(v_shift_left(v_add_i32(b, bias), 23)));
}

/* ---- A kernel's body for n_tok tokens (a constant) of a tile ------------------------------------
 *
 * Offsets below are in units of V_LANE bytes: what one byte of every row takes. A body visits the
 * blocks of a group, and each block's elements in steps of 32:
 *   block_walk w = walk_begin(cut, front_size, body_size, n_step);
 *   for (; w.b < w.n_block; walk_leave(&w)) {
 *       walk_enter(&w, n_tok);
 *       ... step_add(&w, ...), n_step times
 * with those sizes for one row; a front_size of 0: all of a block is in its body.
 *
 * Weights that no cache has are read in the order of their addresses and asked for ahead of that, in
 * one of two ways (cpu_ahead). Where hardware prefetchers follow by themselves they are only told
 * early where it goes on, one line in four, into the second-level cache: asking for every line takes
 * the places in which their requests wait. Where there are places enough each line is asked for into
 * the first-level cache, step by step: a whole superblock's at once would find them taken. */
enum { AHEAD_SOME = 8192, AHEAD_SOME_STEP = 256, AHEAD_EACH = 4096, AHEAD_EACH_STEP = 64 };

typedef struct block_walk {
    tile_cut cut;
    int64_t b, n_block; /* the block's number in its row, and how many there are */
    int64_t ix;         /* of the next 32 elements, and so of the activations' block */
    const uint8_t *front, *body;
    const uint8_t *asked;      /* up to here each line was asked for */
    int front_size, body_size; /* of all rows */
    int step_size;             /* of what a step takes of the body */
} block_walk;

INLINE block_walk walk_begin(tile_cut cut, int front_size, int body_size, int n_step) {
    return (block_walk){
        .cut = cut,
        .n_block = cut.tile->n_block,
        .front = cut.tile->group,
        .body = cut.tile->group,
        .front_size = front_size * V_LANE,
        .body_size = body_size * V_LANE,
        .step_size = body_size * V_LANE / n_step,
    };
}

/* A chunk begins with its fronts: the body of its first block is behind them. */
INLINE void walk_enter(block_walk *w, int n_tok) {
    enum { N_BLOCK = CPU_WEIGHT_CHUNK / V_LANE };
    if (w->front_size != 0 && w->b % N_BLOCK == 0) {
        int64_t n = w->n_block - w->b < N_BLOCK ? w->n_block - w->b : N_BLOCK;
        w->front = w->body;
        w->body += n * w->front_size;
    }
    w->asked = w->body + AHEAD_EACH;
    if (n_tok > 2 || w->cut.tile->ahead != CPU_AHEAD_SOME) return;
    UNROLL
    for (int i = 0; i < w->body_size; i += AHEAD_SOME_STEP)
        _mm_prefetch((const void *)(w->body + AHEAD_SOME + i), _MM_HINT_T1);
}

INLINE void walk_leave(block_walk *w) {
    w->b++;
    w->front += w->front_size;
    w->body += w->body_size;
}

/* Adds the next 32 elements to the sums of n_tok tokens; how many there are does not change what
 * becomes of each. */
INLINE void step_add(block_walk *w, int kind, int n_bit, const v_u8 *codes, const v_f32 *scale,
                     const v_f32 *min, int n_tok, v_f32 *acc) {
    int most = (kind & TWO_SCALES) && (kind & HAS_MIN) ? V_STEP_MIN2 : V_STEP;
    int n = n_tok < most ? n_tok : most;
    UNROLL
    for (int t = 0; t < n_tok; t += n)
        few_add(kind, n_bit, codes, scale, min, w->cut.tile, w->cut.t0 + t, n, w->ix, acc + t);
    w->ix++;
    if (!w->cut.asks_each) return;
    UNROLL
    for (int i = 0; i < w->step_size; i += AHEAD_EACH_STEP)
        _mm_prefetch((const void *)(w->asked + i), _MM_HINT_T0);
    w->asked += w->step_size;
}

/* ---- blocks of 32: d (and m), mxfp4's e in front; codes (and fifth bits) ------------------------ */

INLINE void block32_tile(tdm_type type, tile_cut cut, int n_tok) {
    bool has_min = type == TDM_TYPE_Q4_1 || type == TDM_TYPE_Q5_1;
    bool has_fifth = type == TDM_TYPE_Q5_0 || type == TDM_TYPE_Q5_1;
    bool is_mx = type == TDM_TYPE_MXFP4;
    bool is_signed = type == TDM_TYPE_Q8_0 || type == TDM_TYPE_IQ4_NL || is_mx;
    int kind = ONE_SCALE | (has_min ? HAS_MIN : is_signed ? SIGNED_BIAS : HAS_BIAS);
    int n_bit = is_signed ? 8 : has_fifth ? 5 : 4;
    int code_size = type == TDM_TYPE_Q8_0 ? 32 : has_fifth ? 20 : 16;
    int scale_size = has_min ? 4 : is_mx ? 1 : 2;
    block_walk w = walk_begin(cut, scale_size, code_size, 1);
    v_f32 acc[V_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        v_u8 codes[N_VEC];
        v_f32 scale = is_mx ? v_load_e8m0(w.front) : v_load_f16(w.front), min = v_zero();
        if (has_min) min = v_sub(min, v_load_f16(w.front + 2 * V_LANE)); /* m is added */
        if (type == TDM_TYPE_Q8_0) {
            UNROLL
            for (int c = 0; c < N_VEC; c++) {
                codes[c] = v_from_signed(v_load_codes(w.body + 4 * V_LANE * c));
            }
        } else {
            nibbles_load(w.body, codes);
            if (has_fifth) fifth_bits_add(w.body + 16 * V_LANE, codes);
            if (is_mx)
                e2m1_apply(codes);
            else if (is_signed)
                codebook_apply(codes);
        }
        step_add(&w, kind, n_bit, codes, &scale, &min, n_tok, acc);
    }
    tile_store(cut, n_tok, acc);
}

/* ---- superblocks of 256 ---------------------------------------------------------------------- */

/* q4_K: scales at 0, d at 12, dmin at 14, codes at 16. q5_K: the same, with fifth bits at 16 and
 * codes at 48. The scales' packing is told at tdm_q4_K_scale. */
INLINE void q45_K_scales(const uint8_t *p, v_f32 *scale, v_f32 *min) {
    v_f32 d = v_load_f16(p + 12 * V_LANE), dmin = v_load_f16(p + 14 * V_LANE);
    v_u8 a = v_load_codes(p), b = v_load_codes(p + 4 * V_LANE), c = v_load_codes(p + 8 * V_LANE);
    v_u8 a_low = v_low6(a), a_high = v_or(v_low4(c), v_pair_high(a, 3));
    v_u8 b_low = v_low6(b), b_high = v_or(v_high4(c), v_pair_high(b, 3));
    UNROLL
    for (int s = 0; s < 4; s++) {
        scale[s] = v_mul(d, v_from_i32(v_widen(a_low, s)));
        min[s] = v_mul(dmin, v_from_i32(v_widen(b_low, s)));
        scale[s + 4] = v_mul(d, v_from_i32(v_widen(a_high, s)));
        min[s + 4] = v_mul(dmin, v_from_i32(v_widen(b_high, s)));
    }
}

INLINE void q45_K_tile(bool has_fifth, tile_cut cut, int n_tok) {
    int block_size = has_fifth ? 176 : 144, code_off = (has_fifth ? 48 : 16) * V_LANE;
    int n_bit = has_fifth ? 5 : 4;
    block_walk w = walk_begin(cut, 0, block_size, 8);
    v_f32 acc[V_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        v_f32 scale[8], min[8];
        q45_K_scales(w.body, scale, min);
        for (int pair = 0; pair < 4; pair++) {
            const uint8_t *run = w.body + code_off + 32 * V_LANE * pair;
            v_u8 codes[N_VEC];
            UNROLL
            for (int c = 0; c < N_VEC; c++) {
                codes[c] = v_low4(v_load_codes(run + 4 * V_LANE * c));
                if (!has_fifth) continue;
                v_u8 bits = v_load_codes(w.body + (16 + 4 * c) * V_LANE);
                codes[c] = v_add_bit(codes[c], bits, 2 * pair, 16);
            }
            step_add(&w, ONE_SCALE | HAS_MIN, n_bit, codes, scale + 2 * pair, min + 2 * pair, n_tok,
                     acc);
            UNROLL
            for (int c = 0; c < N_VEC; c++) {
                codes[c] = v_high4(v_load_codes(run + 4 * V_LANE * c));
                if (!has_fifth) continue;
                v_u8 bits = v_load_codes(w.body + (16 + 4 * c) * V_LANE);
                codes[c] = v_add_bit(codes[c], bits, 2 * pair + 1, 16);
            }
            step_add(&w, ONE_SCALE | HAS_MIN, n_bit, codes, scale + 2 * pair + 1,
                     min + 2 * pair + 1, n_tok, acc);
        }
    }
    tile_store(cut, n_tok, acc);
}

/* q2_K: scales at 0, d at 16, dmin at 18, codes at 20. */
INLINE void q2_K_step(block_walk *w, int half, int k, const v_f32 *scale, const v_f32 *min,
                      int n_tok, v_f32 *acc) {
    v_u8 codes[N_VEC];
    UNROLL
    for (int c = 0; c < N_VEC; c++) {
        codes[c] = v_pair_low(v_load_codes(w->body + (20 + 32 * half + 4 * c) * V_LANE), k);
    }
    step_add(w, TWO_SCALES | HAS_MIN, 2, codes, scale, min, n_tok, acc);
}

INLINE void q2_K_tile(tile_cut cut, int n_tok) {
    block_walk w = walk_begin(cut, 0, 84, 8);
    v_f32 acc[V_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        v_f32 d = v_load_f16(w.body + 16 * V_LANE), dmin = v_load_f16(w.body + 18 * V_LANE);
        for (int half = 0; half < 2; half++) {
            v_f32 scale[8], min[8];
            for (int s = 0; s < 8; s++) {
                v_i32 both = v_load_u8(w.body + (8 * half + s) * V_LANE);
                scale[s] = v_mul(d, v_from_i32(v_bits_i32(both, 0, 15)));
                min[s] = v_mul(dmin, v_from_i32(v_bits_i32(both, 4, 15)));
            }
            q2_K_step(&w, half, 0, scale, min, n_tok, acc);
            q2_K_step(&w, half, 1, scale + 2, min + 2, n_tok, acc);
            q2_K_step(&w, half, 2, scale + 4, min + 4, n_tok, acc);
            q2_K_step(&w, half, 3, scale + 6, min + 6, n_tok, acc);
        }
    }
    tile_store(cut, n_tok, acc);
}

/* q3_K: d in front; scales at 0, third bits at 12, low bits at 44. The scales' packing is told at
 * tdm_q3_K_scale. */
INLINE void q3_K_step(block_walk *w, int half, int k, const v_f32 *scale, int n_tok, v_f32 *acc) {
    v_u8 codes[N_VEC];
    UNROLL
    for (int c = 0; c < N_VEC; c++) {
        codes[c] = v_pair_low(v_load_codes(w->body + (44 + 32 * half + 4 * c) * V_LANE), k);
        codes[c] =
            v_add_bit(codes[c], v_load_codes(w->body + (12 + 4 * c) * V_LANE), 4 * half + k, 4);
    }
    step_add(w, TWO_SCALES | HAS_BIAS, 3, codes, scale, NULL, n_tok, acc);
}

INLINE void q3_K_tile(tile_cut cut, int n_tok) {
    block_walk w = walk_begin(cut, 2, 108, 8);
    v_f32 acc[V_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        v_f32 d = v_load_f16(w.front);
        for (int half = 0; half < 2; half++) {
            v_f32 scale[8];
            for (int s = 0; s < 8; s++) {
                v_i32 low = v_bits_i32(v_load_u8(w.body + s * V_LANE), 4 * half, 15);
                v_i32 high = v_load_u8(w.body + (8 + s % 4) * V_LANE);
                high = v_shift_left(v_bits_i32(high, 2 * (2 * half + s / 4), 3), 4);
                scale[s] = v_mul(d, v_from_i32(v_sub_i32(v_or(low, high), v_set_i32(32))));
            }
            q3_K_step(&w, half, 0, scale, n_tok, acc);
            q3_K_step(&w, half, 1, scale + 2, n_tok, acc);
            q3_K_step(&w, half, 2, scale + 4, n_tok, acc);
            q3_K_step(&w, half, 3, scale + 6, n_tok, acc);
        }
    }
    tile_store(cut, n_tok, acc);
}

/* q6_K: d in front; scales at 0; for each half high two bits at 16, low four at 48. */
INLINE void q6_K_step(block_walk *w, int half, int k, const v_f32 *scale, int n_tok, v_f32 *acc) {
    v_u8 codes[N_VEC];
    UNROLL
    for (int c = 0; c < N_VEC; c++) {
        v_u8 low = v_load_codes(w->body + (48 + 96 * half + 32 * (k % 2) + 4 * c) * V_LANE);
        v_u8 high = v_load_codes(w->body + (16 + 96 * half + 4 * c) * V_LANE);
        codes[c] = v_or(k < 2 ? v_low4(low) : v_high4(low), v_pair_high(high, k));
    }
    step_add(w, TWO_SCALES | HAS_BIAS, 6, codes, scale, NULL, n_tok, acc);
}

INLINE void q6_K_tile(tile_cut cut, int n_tok) {
    block_walk w = walk_begin(cut, 2, 208, 8);
    v_f32 acc[V_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        v_f32 d = v_load_f16(w.front);
        for (int half = 0; half < 2; half++) {
            v_f32 scale[8];
            for (int s = 0; s < 8; s++) {
                scale[s] = v_mul(d, v_from_i32(v_load_i8(w.body + (8 * half + s) * V_LANE)));
            }
            q6_K_step(&w, half, 0, scale, n_tok, acc);
            q6_K_step(&w, half, 1, scale + 2, n_tok, acc);
            q6_K_step(&w, half, 2, scale + 4, n_tok, acc);
            q6_K_step(&w, half, 3, scale + 6, n_tok, acc);
        }
    }
    tile_store(cut, n_tok, acc);
}

/* iq4_xs: scales_l at 0, scales_h at 4, d at 6, codes at 8; see tdm_iq4_xs_scale. */
INLINE void iq4_xs_tile(tile_cut cut, int n_tok) {
    block_walk w = walk_begin(cut, 0, 136, 8);
    v_f32 acc[V_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        v_f32 d = v_load_f16(w.body + 6 * V_LANE);
        v_i32 scales_h = v_load_u16(w.body + 4 * V_LANE);
        for (int s = 0; s < 8; s++) {
            v_u8 codes[N_VEC];
            v_i32 low = v_bits_i32(v_load_u8(w.body + s / 2 * V_LANE), 4 * (s % 2), 15);
            v_i32 high = v_shift_left(v_bits_i32(scales_h, 2 * s, 3), 4);
            v_f32 scale = v_mul(d, v_from_i32(v_sub_i32(v_or(low, high), v_set_i32(32))));
            nibbles_load(w.body + (8 + 16 * s) * V_LANE, codes);
            codebook_apply(codes);
            step_add(&w, ONE_SCALE | SIGNED_BIAS, 8, codes, &scale, NULL, n_tok, acc);
        }
    }
    tile_store(cut, n_tok, acc);
}

/* tq2_0: d in front, codes at 0. */
INLINE void tq2_0_step(block_walk *w, int half, int k, const v_f32 *scale, int n_tok, v_f32 *acc) {
    v_u8 codes[N_VEC];
    UNROLL
    for (int c = 0; c < N_VEC; c++)
        codes[c] = v_pair_low(v_load_codes(w->body + (32 * half + 4 * c) * V_LANE), k);
    step_add(w, ONE_SCALE | HAS_BIAS, 2, codes, scale, NULL, n_tok, acc);
}

INLINE void tq2_0_tile(tile_cut cut, int n_tok) {
    block_walk w = walk_begin(cut, 2, 64, 8);
    v_f32 acc[V_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        v_f32 d = v_load_f16(w.front);
        for (int half = 0; half < 2; half++) {
            tq2_0_step(&w, half, 0, &d, n_tok, acc);
            tq2_0_step(&w, half, 1, &d, n_tok, acc);
            tq2_0_step(&w, half, 2, &d, n_tok, acc);
            tq2_0_step(&w, half, 3, &d, n_tok, acc);
        }
    }
    tile_store(cut, n_tok, acc);
}

/* tq1_0: d in front, qs at 0, qh at 48. The next trits of n vectors of bytes, which move on. */
INLINE void trits_take(v_u8 *bytes, int n, v_u8 *codes) {
    UNROLL
    for (int c = 0; c < n; c++) {
        codes[c] = v_trit(bytes[c]);
        bytes[c] = v_trit_rest(bytes[c]);
    }
}

INLINE void tq1_0_tile(tile_cut cut, int n_tok) {
    block_walk w = walk_begin(cut, 2, 52, 8);
    v_f32 acc[V_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        v_u8 bytes[N_VEC], codes[N_VEC];
        v_f32 d = v_load_f16(w.front);
        UNROLL
        for (int c = 0; c < N_VEC; c++) bytes[c] = v_load_codes(w.body + 4 * V_LANE * c);
        for (int n = 0; n < 5; n++) {
            trits_take(bytes, N_VEC, codes);
            step_add(&w, ONE_SCALE | HAS_BIAS, 2, codes, &d, NULL, n_tok, acc);
        }
        UNROLL
        for (int c = 0; c < N_VEC / 2; c++) bytes[c] = v_load_codes(w.body + (32 + 4 * c) * V_LANE);
        for (int n = 0; n < 2; n++) {
            trits_take(bytes, N_VEC / 2, codes);
            trits_take(bytes, N_VEC / 2, codes + N_VEC / 2);
            step_add(&w, ONE_SCALE | HAS_BIAS, 2, codes, &d, NULL, n_tok, acc);
        }
        trits_take(bytes, N_VEC / 2, codes);
        bytes[0] = v_load_codes(w.body + 48 * V_LANE);
        UNROLL
        for (int c = N_VEC / 2; c < N_VEC; c++) trits_take(bytes, 1, codes + c);
        step_add(&w, ONE_SCALE | HAS_BIAS, 2, codes, &d, NULL, n_tok, acc);
    }
    tile_store(cut, n_tok, acc);
}

#if !V_IS_Q8
/* ---- plain types: [k][V_LANE] -------------------------------------------------------------------- */

INLINE v_f32 element_load(tdm_type type, const uint8_t *p) {
    if (type == TDM_TYPE_F32) return v_load_f32(p);
    return type == TDM_TYPE_F16 ? v_load_f16(p) : v_load_bf16(p);
}

/* Even and odd elements have sums of their own, so that additions overlap. */
INLINE void float_tile(tdm_type type, tile_cut cut, int n_tok) {
    int size = (type == TDM_TYPE_F32 ? 4 : 2) * V_LANE;
    const uint8_t *p = cut.tile->group;
    v_f32 even[V_TOK_FLOAT], odd[V_TOK_FLOAT];
    int64_t i = 0;
    tile_clear(even, n_tok);
    tile_clear(odd, n_tok);
    for (; i + 2 <= cut.tile->n_block; i += 2, p += 2 * size) {
        v_f32 a = element_load(type, p), b = element_load(type, p + size);
        if (cut.asks_each) {
            UNROLL
            for (int k = 0; k < 2 * size; k += AHEAD_EACH_STEP)
                _mm_prefetch((const void *)(p + AHEAD_EACH + k), _MM_HINT_T0);
        }
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            const float *x = (const float *)cut.tile->x[cut.t0 + t] + i;
            even[t] = v_madd(a, v_set(x[0]), even[t]);
            odd[t] = v_madd(b, v_set(x[1]), odd[t]);
        }
    }
    v_f32 last = v_zero();
    if (i < cut.tile->n_block) last = element_load(type, p);
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        if (i < cut.tile->n_block) {
            even[t] = v_madd(last, v_set(((const float *)cut.tile->x[cut.t0 + t])[i]), even[t]);
        }
        even[t] = v_add(even[t], odd[t]);
    }
    tile_store(cut, n_tok, even);
}
#endif

/* ---- entries ----------------------------------------------------------------------------------- */

/* Cuts a tile into pieces. */
#define CUTS_(name, body, n_max)                                                                   \
    INLINE void name##_cuts(const cpu_matmul_tile *tile, bool asks_each) {                         \
        tile_cut cut = {tile, 0, asks_each};                                                       \
        for (; n_max >= 8 && cut.t0 + 8 <= tile->n_tok; cut.t0 += 8)                               \
            body(cut, n_max >= 8 ? 8 : 1);                                                         \
        for (; cut.t0 + 4 <= tile->n_tok; cut.t0 += 4) body(cut, 4);                               \
        for (; cut.t0 + 2 <= tile->n_tok; cut.t0 += 2) body(cut, 2);                               \
        if (cut.t0 < tile->n_tok) body(cut, 1);                                                    \
    }
#define KERNEL_OF_(name, body, n_max)                                                              \
    CUTS_(name, body, n_max)                                                                       \
    void V_NAME(name)(const cpu_matmul_tile *tile) {                                               \
        if (tile->ahead == CPU_AHEAD_EACH)                                                         \
            name##_cuts(tile, true);                                                               \
        else                                                                                       \
            name##_cuts(tile, false);                                                              \
    }
/* The same with one body for both, and the test in its steps. Where four steps take apart the same
 * bytes it keeps compilers from doing so for all of them at once, for which registers are too few:
 * with a body for each, prompts had 60 to 90 % of the speed. */
#define KERNEL_TESTING_(name, body)                                                                \
    CUTS_(name, body, V_TOK)                                                                       \
    void V_NAME(name)(const cpu_matmul_tile *tile) {                                               \
        name##_cuts(tile, tile->ahead == CPU_AHEAD_EACH);                                          \
    }
#define KERNEL_(name, body) KERNEL_OF_(name, body, V_TOK)

#define BLOCK32_(name, TYPE)                                                                       \
    INLINE void name##_tile(tile_cut cut, int n_tok) {                                             \
        block32_tile(TDM_TYPE_##TYPE, cut, n_tok);                                                 \
    }                                                                                              \
    KERNEL_(name, name##_tile)

BLOCK32_(q4_0, Q4_0)
BLOCK32_(q4_1, Q4_1)
BLOCK32_(q5_0, Q5_0)
BLOCK32_(q5_1, Q5_1)
BLOCK32_(q8_0, Q8_0)
BLOCK32_(iq4_nl, IQ4_NL)
BLOCK32_(mxfp4, MXFP4)

INLINE void q4_K_tile(tile_cut cut, int n_tok) {
    q45_K_tile(false, cut, n_tok);
}
INLINE void q5_K_tile(tile_cut cut, int n_tok) {
    q45_K_tile(true, cut, n_tok);
}
KERNEL_TESTING_(q2_K, q2_K_tile)
KERNEL_TESTING_(q3_K, q3_K_tile)
KERNEL_(q4_K, q4_K_tile)
KERNEL_(q5_K, q5_K_tile)
KERNEL_(q6_K, q6_K_tile)
KERNEL_(iq4_xs, iq4_xs_tile)
KERNEL_(tq1_0, tq1_0_tile)
KERNEL_(tq2_0, tq2_0_tile)

#if !V_IS_Q8
#define FLOAT_(name, TYPE)                                                                         \
    INLINE void name##_tile(tile_cut cut, int n_tok) {                                             \
        float_tile(TDM_TYPE_##TYPE, cut, n_tok);                                                   \
    }                                                                                              \
    KERNEL_OF_(name, name##_tile, V_TOK_FLOAT)

FLOAT_(f32, F32)
FLOAT_(f16, F16)
FLOAT_(bf16, BF16)
#endif

#endif
