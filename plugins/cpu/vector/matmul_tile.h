/* SPDX-License-Identifier: MIT
 *
 * matmul_tile.h: the matmul kernels for interleaved weights (weight.h), written once in the words
 * of vector.h and compiled once for each instruction set. Reference: matmul_reference.c.
 *
 * It is also compiled for each format of activations that an instruction set has kernels for;
 * CPU_IS_Q8 says which (LANES_MATMUL_H). A row of the group is a vector lane. For 32 elements at a
 * time a kernel unpacks the codes of all rows (eight vectors of four codes a row) and their scales;
 * every token of the tile then takes
 *   acc[t] += d[t] * (scale * dot(code, q[t]))  -  min * (d[t] * sum q[t])
 * with scale and min (where the type has one) per row and per 32 or per 16 elements. Codes that are
 * stored with an offset are not shifted back: the sum begins at -offset * sum q, which the
 * quantised activations bring along. The order of the sums is the same for every number of tokens,
 * so a token's result does not depend on its neighbours.
 */
#ifndef TANDEM_CPU_VECTOR_MATMUL_TILE_H
#define TANDEM_CPU_VECTOR_MATMUL_TILE_H

#include "plugins/cpu/ops/matmul.h"
#include "plugins/cpu/vector/vector.h"
#include "tandem/block.h"

#include LANES_MATMUL_H

#if !CPU_IS_Q8 && !CPU_IS_PANEL
#define HAS_FLOAT_KERNELS 1
#else
#define HAS_FLOAT_KERNELS 0
#endif

enum { N_VEC = CPU_X_LEN / 4 }; /* vectors of codes for 32 elements */

/* What 32 elements of a row have besides codes. */
enum { ONE_SCALE = 1, TWO_SCALES = 2, HAS_MIN = 4, HAS_BIAS = 8 };
enum { SIGNED_BIAS = SIGNED_OFFSET != 0 ? HAS_BIAS : 0 };

#if CPU_IS_PANEL
#include "plugins/cpu/vector/matmul_panel.h"
#else

/* The exact sums of `n` vectors of codes, from vector `first` on, times those elements of each
 * token's block; a bias is where they begin. */
INLINE void sums_get(int kind, int n_bit, const ints *codes, int first, int n, const x_block **x,
                     int n_tok, ints *sum) {
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        const cpu_x_sum *s = n == N_VEC ? &x[t]->s.all : &x[t]->s.half[first != 0];
        sum[t] = ints_set(kind & HAS_BIAS ? s->bias : 0);
    }
    dots_add(sum, codes, first, n, x, n_tok, n_bit);
}

/* Adds 32 elements, block ix of x, of tokens t0 .. t0 + n_tok - 1, at most STEP_TOK. `scale` and
 * `min` have one or two elements. */
INLINE void few_add(int kind, int n_bit, const ints *codes, const lanes *scale, const lanes *min,
                    const cpu_matmul_tile *tile, int t0, int n_tok, int64_t ix, lanes *acc) {
    const x_block *x[STEP_TOK];
    ints all[STEP_TOK], half[STEP_TOK];
    UNROLL
    for (int t = 0; t < n_tok; t++) x[t] = (const x_block *)tile->x[t0 + t] + ix;
    if (kind & ONE_SCALE) {
        sums_get(kind, n_bit, codes, 0, N_VEC, x, n_tok, all);
    } else {
        sums_get(kind, n_bit, codes, 0, N_VEC / 2, x, n_tok, all);
        sums_get(kind, n_bit, codes, N_VEC / 2, N_VEC / 2, x, n_tok, half);
    }
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        const cpu_x_scale *s = &x[t]->s;
        lanes sum = lanes_mul(lanes_from_ints(all[t]), scale[0]);
        if (kind & TWO_SCALES) {
            sum = lanes_fma(lanes_from_ints(half[t]), scale[1], sum);
            if (kind & HAS_MIN) acc[t] = lanes_fnma(min[0], lanes_set(s->half[0].sum), acc[t]);
            if (kind & HAS_MIN) acc[t] = lanes_fnma(min[1], lanes_set(s->half[1].sum), acc[t]);
        } else if (kind & HAS_MIN) {
            acc[t] = lanes_fnma(min[0], lanes_set(s->all.sum), acc[t]);
        }
        acc[t] = lanes_fma(sum, lanes_set(s->d), acc[t]);
    }
}

/* Tokens of a tile from t0 on. Whether each line of the weights is prefetched is a constant of most
 * bodies, like the number of tokens: a test in the loop cost prompts up to a fifth of their
 * speed. */
typedef struct tile_cut {
    const cpu_matmul_tile *tile;
    int t0;
    bool prefetch_each;
} tile_cut;

INLINE void tile_clear(lanes *acc, int n_tok) {
    UNROLL
    for (int t = 0; t < n_tok; t++) acc[t] = lanes_zero();
}

INLINE void tile_store(tile_cut cut, int n_tok, const lanes *acc) {
    UNROLL
    for (int t = 0; t < n_tok; t++)
        lanes_store_rows(cut.tile->y[cut.t0 + t], cut.tile->n_row, acc[t]);
}
#endif

/* Codes of the values that 4-bit indices stand for. */
INLINE ints codes_from_iq4(ints index) {
    static const int8_t values[16] = TDM_IQ4_VALUES;
    return codes_from_signed(bytes_lookup(bytes_table(values), index));
}
INLINE ints codes_from_mxfp4(ints index) {
    static const int8_t values[16] = TDM_MXFP4_VALUES;
    return codes_from_signed(bytes_lookup(bytes_table(values), index));
}

/* 32 nibbles of each row as blocks of 32 have them: low nibbles are elements 0 .. 15. */
INLINE void nibbles_load(const uint8_t *p, ints *codes) {
    UNROLL
    for (int c = 0; c < 4; c++) {
        ints v = ints_load(p + 4 * N_LANE * c);
        codes[c] = bytes_low4(v);
        codes[c + 4] = bytes_high4(v);
    }
}

INLINE void fifth_bits_add(const uint8_t *p, ints *codes) {
    ints bits = ints_load(p);
    UNROLL
    for (int c = 0; c < N_VEC; c++) codes[c] = bytes_add_bit(codes[c], bits, c, 16);
}

INLINE void iq4_apply(ints *codes) {
    UNROLL
    for (int c = 0; c < N_VEC; c++) codes[c] = codes_from_iq4(codes[c]);
}

INLINE void mxfp4_apply(ints *codes) {
    UNROLL
    for (int c = 0; c < N_VEC; c++) codes[c] = codes_from_mxfp4(codes[c]);
}

/* 2^(e - 128) as 2^(a - 64) * 2^(b - 64), a + b = e: exact where it is subnormal, too. */
INLINE lanes lanes_from_e8m0(const uint8_t *p) {
    ints e = ints_from_u8(p), a = ints_bits(e, 1, 127), b = ints_sub(e, a);
    ints bias = ints_set(127 - 64);
    return lanes_mul(lanes_from_bits(ints_shift_left(ints_add(a, bias), 23)),
                     lanes_from_bits(ints_shift_left(ints_add(b, bias), 23)));
}

/* ---- A kernel's body for n_tok tokens (a constant) of a tile ------------------------------------
 *
 * Offsets below are in units of N_LANE bytes: what one byte of every row takes. A body visits the
 * blocks of a group, and each block's elements in steps of 32:
 *   block_walk w = walk_begin(cut, front_size, body_size, n_step);
 *   for (; w.b < w.n_block; walk_leave(&w)) {
 *       walk_enter(&w, n_tok);
 *       ... step_add(&w, ...), n_step times
 * with those sizes for one row; a front_size of 0: all of a block is in its body.
 *
 * Weights that no cache holds are read in the order of their addresses and prefetched in one of two
 * ways (cpu_ahead). Where hardware prefetchers follow, one line in four is prefetched into the
 * second-level cache, so that they start early: to prefetch every line fills the buffers where the
 * hardware's own requests wait. Where there are enough buffers each line is prefetched into the
 * first-level cache, step by step: the lines of a whole superblock at once would not fit them. */
enum { AHEAD_SOME = 8192, AHEAD_SOME_STEP = 256, AHEAD_EACH = 4096, AHEAD_EACH_STEP = 64 };

typedef struct block_walk {
    tile_cut cut;
    int64_t b, n_block; /* the block's number in its row, and how many there are */
    int64_t ix;         /* of the next 32 elements, and so of the activations' block */
    const uint8_t *front, *body;
    const uint8_t *asked;      /* the next line to prefetch, with prefetch_each */
    int front_size, body_size; /* of all rows */
    int step_size;             /* of what a step takes of the body */
} block_walk;

INLINE block_walk walk_begin(tile_cut cut, int front_size, int body_size, int n_step) {
    return (block_walk){
        .cut = cut,
        .n_block = cut.tile->n_block,
        .front = cut.tile->group,
        .body = cut.tile->group,
        .front_size = front_size * N_LANE,
        .body_size = body_size * N_LANE,
        .step_size = body_size * N_LANE / n_step,
    };
}

/* A chunk begins with its fronts: the body of its first block is behind them. */
INLINE void walk_enter(block_walk *w, int n_tok) {
    enum { N_BLOCK = CPU_WEIGHT_CHUNK / N_LANE };
    if (w->front_size != 0 && w->b % N_BLOCK == 0) {
        int64_t n = w->n_block - w->b < N_BLOCK ? w->n_block - w->b : N_BLOCK;
        w->front = w->body;
        w->body += n * w->front_size;
    }
    w->asked = w->body + AHEAD_EACH;
    if (n_tok > 2 || w->cut.tile->ahead != CPU_AHEAD_SOME) return;
    UNROLL
    for (int i = 0; i < w->body_size; i += AHEAD_SOME_STEP) prefetch_l2(w->body + AHEAD_SOME + i);
}

INLINE void walk_leave(block_walk *w) {
    w->b++;
    w->front += w->front_size;
    w->body += w->body_size;
}

#if CPU_IS_PANEL
INLINE void step_add(block_walk *w, int kind, int n_bit, const ints *codes, const lanes *scale,
                     const lanes *min, int n_tok, lanes *acc) {
    (void)n_bit, (void)n_tok, (void)acc;
    step_unpack(w->cut, kind, codes, scale, min, w->ix++);
}
#else
/* Adds the next 32 elements to the sums of n_tok tokens; how many there are does not change what
 * becomes of each. */
INLINE void step_add(block_walk *w, int kind, int n_bit, const ints *codes, const lanes *scale,
                     const lanes *min, int n_tok, lanes *acc) {
    int most = (kind & TWO_SCALES) && (kind & HAS_MIN) ? STEP_TOK_MIN2 : STEP_TOK;
    int n = n_tok < most ? n_tok : most;
    UNROLL
    for (int t = 0; t < n_tok; t += n)
        few_add(kind, n_bit, codes, scale, min, w->cut.tile, w->cut.t0 + t, n, w->ix, acc + t);
    w->ix++;
    if (!w->cut.prefetch_each) return;
    UNROLL
    for (int i = 0; i < w->step_size; i += AHEAD_EACH_STEP) prefetch_l1(w->asked + i);
    w->asked += w->step_size;
}
#endif

/* ---- blocks of 32: d (and m), mxfp4's e in front; codes (and fifth bits) --------------------- */

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
    lanes acc[TILE_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        ints codes[N_VEC];
        lanes scale = is_mx ? lanes_from_e8m0(w.front) : lanes_from_f16(w.front),
              min = lanes_zero();
        if (has_min) min = lanes_sub(min, lanes_from_f16(w.front + 2 * N_LANE)); /* m is added */
        if (type == TDM_TYPE_Q8_0) {
            UNROLL
            for (int c = 0; c < N_VEC; c++) {
                codes[c] = codes_from_signed(ints_load(w.body + 4 * N_LANE * c));
            }
        } else {
            nibbles_load(w.body, codes);
            if (has_fifth) fifth_bits_add(w.body + 16 * N_LANE, codes);
            if (is_mx)
                mxfp4_apply(codes);
            else if (is_signed)
                iq4_apply(codes);
        }
        step_add(&w, kind, n_bit, codes, &scale, &min, n_tok, acc);
    }
    tile_store(cut, n_tok, acc);
}

/* ---- nvfp4: four scales at 0, codes at 4 ------------------------------------------------------ */

/* tdm_nvfp4_scale: E4M3's exponent and mantissa as those of an f16, whose exponent has a bias of 15
 * instead of 7, times 2^7, which is 2^8 / 2. */
INLINE lanes lanes_from_e4m3(const uint8_t *p) {
    ints e = ints_from_u8(p);
    /* All bits of a lane, except where the scale is 0x7f. */
    ints is_number = ints_bits(ints_sub(ints_xor(e, ints_set(0x7f)), ints_set(1)), 31, 1);
    is_number = ints_sub(is_number, ints_set(1));
    ints half = ints_and(ints_shift_left(ints_bits(e, 0, 127), 7), is_number);
    return lanes_mul(lanes_from_f16_bits(half), lanes_set(128));
}

/* Elements 32 * pair .. + 31: two sub-blocks of four vectors, the nibbles of each in two. */
INLINE void nvfp4_step(block_walk *w, int pair, int n_tok, lanes *acc) {
    ints codes[N_VEC];
    lanes scale[2];
    UNROLL
    for (int s = 0; s < 2; s++) {
        const uint8_t *qs = w->body + (4 + 16 * pair + 8 * s) * N_LANE;
        scale[s] = lanes_from_e4m3(w->body + (2 * pair + s) * N_LANE);
        UNROLL
        for (int c = 0; c < 2; c++) {
            ints v = ints_load(qs + 4 * N_LANE * c);
            codes[4 * s + c] = codes_from_mxfp4(bytes_low4(v));
            codes[4 * s + c + 2] = codes_from_mxfp4(bytes_high4(v));
        }
    }
    step_add(w, TWO_SCALES | SIGNED_BIAS, 8, codes, scale, NULL, n_tok, acc);
}

INLINE void nvfp4_tile(tile_cut cut, int n_tok) {
    block_walk w = walk_begin(cut, 0, 36, 2);
    lanes acc[TILE_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        nvfp4_step(&w, 0, n_tok, acc);
        nvfp4_step(&w, 1, n_tok, acc);
    }
    tile_store(cut, n_tok, acc);
}

/* ---- superblocks of 256 ---------------------------------------------------------------------- */

/* q4_K: scales at 0, d at 12, dmin at 14, codes at 16. q5_K: the same, with fifth bits at 16 and
 * codes at 48. The scales' packing: tdm_q4_K_scale. */
INLINE void q45_K_scales(const uint8_t *p, lanes *scale, lanes *min) {
    lanes d = lanes_from_f16(p + 12 * N_LANE), dmin = lanes_from_f16(p + 14 * N_LANE);
    ints a = ints_load(p), b = ints_load(p + 4 * N_LANE), c = ints_load(p + 8 * N_LANE);
    ints a_low = bytes_low6(a), a_high = ints_or(bytes_low4(c), bytes_pair_high(a, 3));
    ints b_low = bytes_low6(b), b_high = ints_or(bytes_high4(c), bytes_pair_high(b, 3));
    UNROLL
    for (int s = 0; s < 4; s++) {
        scale[s] = lanes_mul(d, lanes_from_ints(ints_widen(a_low, s)));
        min[s] = lanes_mul(dmin, lanes_from_ints(ints_widen(b_low, s)));
        scale[s + 4] = lanes_mul(d, lanes_from_ints(ints_widen(a_high, s)));
        min[s + 4] = lanes_mul(dmin, lanes_from_ints(ints_widen(b_high, s)));
    }
}

INLINE void q45_K_tile(bool has_fifth, tile_cut cut, int n_tok) {
    int block_size = has_fifth ? 176 : 144, code_off = (has_fifth ? 48 : 16) * N_LANE;
    int n_bit = has_fifth ? 5 : 4;
    block_walk w = walk_begin(cut, 0, block_size, 8);
    lanes acc[TILE_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        lanes scale[8], min[8];
        q45_K_scales(w.body, scale, min);
        for (int pair = 0; pair < 4; pair++) {
            const uint8_t *run = w.body + code_off + 32 * N_LANE * pair;
            ints codes[N_VEC];
            UNROLL
            for (int c = 0; c < N_VEC; c++) {
                codes[c] = bytes_low4(ints_load(run + 4 * N_LANE * c));
                if (!has_fifth) continue;
                ints bits = ints_load(w.body + (16 + 4 * c) * N_LANE);
                codes[c] = bytes_add_bit(codes[c], bits, 2 * pair, 16);
            }
            step_add(&w, ONE_SCALE | HAS_MIN, n_bit, codes, scale + 2 * pair, min + 2 * pair, n_tok,
                     acc);
            UNROLL
            for (int c = 0; c < N_VEC; c++) {
                codes[c] = bytes_high4(ints_load(run + 4 * N_LANE * c));
                if (!has_fifth) continue;
                ints bits = ints_load(w.body + (16 + 4 * c) * N_LANE);
                codes[c] = bytes_add_bit(codes[c], bits, 2 * pair + 1, 16);
            }
            step_add(&w, ONE_SCALE | HAS_MIN, n_bit, codes, scale + 2 * pair + 1,
                     min + 2 * pair + 1, n_tok, acc);
        }
    }
    tile_store(cut, n_tok, acc);
}

/* q2_K: scales at 0, d at 16, dmin at 18, codes at 20. */
INLINE void q2_K_step(block_walk *w, int half, int k, const lanes *scale, const lanes *min,
                      int n_tok, lanes *acc) {
    ints codes[N_VEC];
    UNROLL
    for (int c = 0; c < N_VEC; c++) {
        codes[c] = bytes_pair_low(ints_load(w->body + (20 + 32 * half + 4 * c) * N_LANE), k);
    }
    step_add(w, TWO_SCALES | HAS_MIN, 2, codes, scale, min, n_tok, acc);
}

INLINE void q2_K_tile(tile_cut cut, int n_tok) {
    block_walk w = walk_begin(cut, 0, 84, 8);
    lanes acc[TILE_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        lanes d = lanes_from_f16(w.body + 16 * N_LANE), dmin = lanes_from_f16(w.body + 18 * N_LANE);
        for (int half = 0; half < 2; half++) {
            lanes scale[8], min[8];
            for (int s = 0; s < 8; s++) {
                ints both = ints_from_u8(w.body + (8 * half + s) * N_LANE);
                scale[s] = lanes_mul(d, lanes_from_ints(ints_bits(both, 0, 15)));
                min[s] = lanes_mul(dmin, lanes_from_ints(ints_bits(both, 4, 15)));
            }
            q2_K_step(&w, half, 0, scale, min, n_tok, acc);
            q2_K_step(&w, half, 1, scale + 2, min + 2, n_tok, acc);
            q2_K_step(&w, half, 2, scale + 4, min + 4, n_tok, acc);
            q2_K_step(&w, half, 3, scale + 6, min + 6, n_tok, acc);
        }
    }
    tile_store(cut, n_tok, acc);
}

/* q3_K: d in front; scales at 0, third bits at 12, low bits at 44. The scales' packing is described
 * at tdm_q3_K_scale. */
INLINE void q3_K_step(block_walk *w, int half, int k, const lanes *scale, int n_tok, lanes *acc) {
    ints codes[N_VEC];
    UNROLL
    for (int c = 0; c < N_VEC; c++) {
        codes[c] = bytes_pair_low(ints_load(w->body + (44 + 32 * half + 4 * c) * N_LANE), k);
        codes[c] =
            bytes_add_bit(codes[c], ints_load(w->body + (12 + 4 * c) * N_LANE), 4 * half + k, 4);
    }
    step_add(w, TWO_SCALES | HAS_BIAS, 3, codes, scale, NULL, n_tok, acc);
}

INLINE void q3_K_tile(tile_cut cut, int n_tok) {
    block_walk w = walk_begin(cut, 2, 108, 8);
    lanes acc[TILE_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        lanes d = lanes_from_f16(w.front);
        for (int half = 0; half < 2; half++) {
            lanes scale[8];
            for (int s = 0; s < 8; s++) {
                ints low = ints_bits(ints_from_u8(w.body + s * N_LANE), 4 * half, 15);
                ints high = ints_from_u8(w.body + (8 + s % 4) * N_LANE);
                high = ints_shift_left(ints_bits(high, 2 * (2 * half + s / 4), 3), 4);
                scale[s] =
                    lanes_mul(d, lanes_from_ints(ints_sub(ints_or(low, high), ints_set(32))));
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
INLINE void q6_K_step(block_walk *w, int half, int k, const lanes *scale, int n_tok, lanes *acc) {
    ints codes[N_VEC];
    UNROLL
    for (int c = 0; c < N_VEC; c++) {
        ints low = ints_load(w->body + (48 + 96 * half + 32 * (k % 2) + 4 * c) * N_LANE);
        ints high = ints_load(w->body + (16 + 96 * half + 4 * c) * N_LANE);
        codes[c] = ints_or(k < 2 ? bytes_low4(low) : bytes_high4(low), bytes_pair_high(high, k));
    }
    step_add(w, TWO_SCALES | HAS_BIAS, 6, codes, scale, NULL, n_tok, acc);
}

INLINE void q6_K_tile(tile_cut cut, int n_tok) {
    block_walk w = walk_begin(cut, 2, 208, 8);
    lanes acc[TILE_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        lanes d = lanes_from_f16(w.front);
        for (int half = 0; half < 2; half++) {
            lanes scale[8];
            for (int s = 0; s < 8; s++) {
                scale[s] =
                    lanes_mul(d, lanes_from_ints(ints_from_i8(w.body + (8 * half + s) * N_LANE)));
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
    lanes acc[TILE_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        lanes d = lanes_from_f16(w.body + 6 * N_LANE);
        ints scales_h = ints_from_u16(w.body + 4 * N_LANE);
        for (int s = 0; s < 8; s++) {
            ints codes[N_VEC];
            ints low = ints_bits(ints_from_u8(w.body + s / 2 * N_LANE), 4 * (s % 2), 15);
            ints high = ints_shift_left(ints_bits(scales_h, 2 * s, 3), 4);
            lanes scale = lanes_mul(d, lanes_from_ints(ints_sub(ints_or(low, high), ints_set(32))));
            nibbles_load(w.body + (8 + 16 * s) * N_LANE, codes);
            iq4_apply(codes);
            step_add(&w, ONE_SCALE | SIGNED_BIAS, 8, codes, &scale, NULL, n_tok, acc);
        }
    }
    tile_store(cut, n_tok, acc);
}

/* tq2_0: d in front, codes at 0. */
INLINE void tq2_0_step(block_walk *w, int half, int k, const lanes *scale, int n_tok, lanes *acc) {
    ints codes[N_VEC];
    UNROLL
    for (int c = 0; c < N_VEC; c++)
        codes[c] = bytes_pair_low(ints_load(w->body + (32 * half + 4 * c) * N_LANE), k);
    step_add(w, ONE_SCALE | HAS_BIAS, 2, codes, scale, NULL, n_tok, acc);
}

INLINE void tq2_0_tile(tile_cut cut, int n_tok) {
    block_walk w = walk_begin(cut, 2, 64, 8);
    lanes acc[TILE_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        lanes d = lanes_from_f16(w.front);
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
INLINE void trits_take(ints *bytes, int n, ints *codes) {
    UNROLL
    for (int c = 0; c < n; c++) {
        codes[c] = bytes_trit(bytes[c]);
        bytes[c] = bytes_trit_rest(bytes[c]);
    }
}

INLINE void tq1_0_tile(tile_cut cut, int n_tok) {
    block_walk w = walk_begin(cut, 2, 52, 8);
    lanes acc[TILE_TOK];
    tile_clear(acc, n_tok);
    for (; w.b < w.n_block; walk_leave(&w)) {
        walk_enter(&w, n_tok);
        ints bytes[N_VEC], codes[N_VEC];
        lanes d = lanes_from_f16(w.front);
        UNROLL
        for (int c = 0; c < N_VEC; c++) bytes[c] = ints_load(w.body + 4 * N_LANE * c);
        for (int n = 0; n < 5; n++) {
            trits_take(bytes, N_VEC, codes);
            step_add(&w, ONE_SCALE | HAS_BIAS, 2, codes, &d, NULL, n_tok, acc);
        }
        UNROLL
        for (int c = 0; c < N_VEC / 2; c++) bytes[c] = ints_load(w.body + (32 + 4 * c) * N_LANE);
        for (int n = 0; n < 2; n++) {
            trits_take(bytes, N_VEC / 2, codes);
            trits_take(bytes, N_VEC / 2, codes + N_VEC / 2);
            step_add(&w, ONE_SCALE | HAS_BIAS, 2, codes, &d, NULL, n_tok, acc);
        }
        trits_take(bytes, N_VEC / 2, codes);
        bytes[0] = ints_load(w.body + 48 * N_LANE);
        UNROLL
        for (int c = N_VEC / 2; c < N_VEC; c++) trits_take(bytes, 1, codes + c);
        step_add(&w, ONE_SCALE | HAS_BIAS, 2, codes, &d, NULL, n_tok, acc);
    }
    tile_store(cut, n_tok, acc);
}

#if HAS_FLOAT_KERNELS
/* ---- plain types: [k][N_LANE] ---------------------------------------------------------------- */

INLINE lanes element_load(tdm_type type, const uint8_t *p) {
    if (type == TDM_TYPE_F32) return lanes_load((const void *)p);
    return type == TDM_TYPE_F16 ? lanes_from_f16(p) : lanes_from_bf16(p);
}

/* Even and odd elements have sums of their own, so that additions overlap. */
INLINE void float_tile(tdm_type type, tile_cut cut, int n_tok) {
    int size = (type == TDM_TYPE_F32 ? 4 : 2) * N_LANE;
    const uint8_t *p = cut.tile->group;
    lanes even[TILE_TOK_FLOAT], odd[TILE_TOK_FLOAT];
    int64_t i = 0;
    tile_clear(even, n_tok);
    tile_clear(odd, n_tok);
    for (; i + 2 <= cut.tile->n_block; i += 2, p += 2 * size) {
        lanes a = element_load(type, p), b = element_load(type, p + size);
        if (cut.prefetch_each) {
            UNROLL
            for (int k = 0; k < 2 * size; k += AHEAD_EACH_STEP) prefetch_l1(p + AHEAD_EACH + k);
        }
        UNROLL
        for (int t = 0; t < n_tok; t++) {
            const float *x = (const float *)cut.tile->x[cut.t0 + t] + i;
            even[t] = lanes_fma(a, lanes_set(x[0]), even[t]);
            odd[t] = lanes_fma(b, lanes_set(x[1]), odd[t]);
        }
    }
    lanes last = lanes_zero();
    if (i < cut.tile->n_block) last = element_load(type, p);
    UNROLL
    for (int t = 0; t < n_tok; t++) {
        if (i < cut.tile->n_block) {
            even[t] =
                lanes_fma(last, lanes_set(((const float *)cut.tile->x[cut.t0 + t])[i]), even[t]);
        }
        even[t] = lanes_add(even[t], odd[t]);
    }
    tile_store(cut, n_tok, even);
}
#endif

/* ---- entries --------------------------------------------------------------------------------- */

#if !CPU_IS_PANEL
/* Cuts a tile into pieces. */
#define CUTS_(name, body, n_max)                                                                   \
    INLINE void name##_cuts(const cpu_matmul_tile *tile, bool prefetch_each) {                     \
        tile_cut cut = {tile, 0, prefetch_each};                                                   \
        for (; n_max >= 8 && cut.t0 + 8 <= tile->n_tok; cut.t0 += 8)                               \
            body(cut, n_max >= 8 ? 8 : 1);                                                         \
        for (; cut.t0 + 4 <= tile->n_tok; cut.t0 += 4) body(cut, 4);                               \
        for (; cut.t0 + 2 <= tile->n_tok; cut.t0 += 2) body(cut, 2);                               \
        if (cut.t0 < tile->n_tok) body(cut, 1);                                                    \
    }
#define KERNEL_OF_(name, body, n_max)                                                              \
    CUTS_(name, body, n_max)                                                                       \
    void KERNEL_NAME(name)(const cpu_matmul_tile *tile) {                                          \
        if (tile->ahead == CPU_AHEAD_EACH)                                                         \
            name##_cuts(tile, true);                                                               \
        else                                                                                       \
            name##_cuts(tile, false);                                                              \
    }
/* The same with one body for both cases, and the test in its steps. For types of which four steps
 * unpack the same bytes: the test keeps compilers from unpacking for all four steps at once, for
 * which there are too few registers. With a body for each case prompts had 60 to 90 % of the
 * speed. */
#define KERNEL_TESTING_(name, body)                                                                \
    CUTS_(name, body, TILE_TOK)                                                                    \
    void KERNEL_NAME(name)(const cpu_matmul_tile *tile) {                                          \
        name##_cuts(tile, tile->ahead == CPU_AHEAD_EACH);                                          \
    }
#define KERNEL_(name, body) KERNEL_OF_(name, body, TILE_TOK)
#endif

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
KERNEL_(nvfp4, nvfp4_tile)

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

#if HAS_FLOAT_KERNELS
#define FLOAT_(name, TYPE)                                                                         \
    INLINE void name##_tile(tile_cut cut, int n_tok) {                                             \
        float_tile(TDM_TYPE_##TYPE, cut, n_tok);                                                   \
    }                                                                                              \
    KERNEL_OF_(name, name##_tile, TILE_TOK_FLOAT)

FLOAT_(f32, F32)
FLOAT_(f16, F16)
FLOAT_(bf16, BF16)
#endif

#endif
