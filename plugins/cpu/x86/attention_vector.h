/* SPDX-License-Identifier: MIT
 *
 * x86/attention_vector.h: attention's inner loops, written once for two vector widths. Included by
 * attention_avx2.c and attention_avx512.c, each of which defines the words it is written in:
 *
 *   LANES, vec_i, vec_f            32-bit lanes of a vector (8 or 16), and its types
 *   i_load, i_set1, i_and, i_add   unaligned load, broadcast of an int32, bitwise and, add
 *   i_or_and(a, b, mask)           a | (b & mask)
 *   i_srl16, i_sll16, i_sra16      shifts of 16-bit halves by a constant; i_srl32, i_sll32 of lanes
 *   i_lookup(table, x)             bytes of a 16-byte table, by bytes 0 .. 15 of x
 *   i_dot(acc, a, b)               acc + a.lo * b.lo + a.hi * b.hi of signed 16-bit halves
 *   i_to_f, f_to_i                 conversions; f_to_i rounds to nearest even
 *   i_store(p, x), i_store16(p, x) a vector; LANES int16 from lanes that fit
 *   i_pack16(x)                    16 int16 (__m256i) from one or two vectors of lanes that fit
 *   i_mul15(a, b)                  a * b / 2^15 of signed 16-bit halves, rounded
 *   i_sum(x), f_sum(x), f_peak(x)  sum of lanes, sum of lanes, largest magnitude
 *   f_zero, f_load, f_store, f_set1, f_add, f_mul, f_fma(a, b, c), f_max(a, b) = b where either
 *   is NaN, f_from_f16, f_from_bf16 (from memory), f_keep(x, first, last, at): lanes whose number,
 *   counted from `at`, lies in first .. last-1, else 0
 *   SCORE_ROWS, ADD_ROWS           rows taken at once: what the registers hold
 *   SCORE_SUMS, ADD_SUMS           sums at once
 *
 * Integer arithmetic is exact: queries and weights have 15 bits and a sign, a block has 32 codes
 * of at most 8 bits, a chunk 64 tokens, so that no sum reaches 2^31.
 */
#ifndef TANDEM_CPU_X86_ATTENTION_VECTOR_H
#define TANDEM_CPU_X86_ATTENTION_VECTOR_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "plugins/cpu/attention_kernel.h"
#include "plugins/cpu/x86/unroll.h"
#include "tandem/block.h"

static const int8_t code_values[16] = TDM_IQ4_VALUES;

enum { HALVES = 32 / LANES }; /* vectors that hold a block of 32 elements */
enum { ADD_BLOCKS = 4 };      /* blocks whose weights are made together */

/* Asks for the line `ahead` bytes from the one that is read (cpu_kv_span). */
INLINE void ask_ahead(const uint8_t *at, ptrdiff_t ahead) {
#if defined(__GNUC__)
    __builtin_prefetch(at + ahead, 0, 2);
#else
    (void)at, (void)ahead;
#endif
}

/* What a code stands for is the code less this. */
INLINE int32_t code_offset(int type) {
    return type == TDM_TYPE_Q4_0 ? 8 : type == TDM_TYPE_Q5_0 ? 16 : 0;
}
/* The middle of V's codes: counting from there keeps the rounding of weights small. */
INLINE int32_t code_middle(int type) {
    return type == TDM_TYPE_Q4_1 ? 8 : type == TDM_TYPE_Q5_1 ? 16 : code_offset(type);
}
INLINE bool type_has_fifth(int type) {
    return type == TDM_TYPE_Q5_0 || type == TDM_TYPE_Q5_1;
}
INLINE bool type_has_min(int type) {
    return type == TDM_TYPE_Q4_1 || type == TDM_TYPE_Q5_1;
}

/* ---- queries --------------------------------------------------------------------------------- */

/* A block's elements 0 .. 15 and 16 .. 31 in the order in which words of a K tile fall apart into
 * pairs (kv_page.c): of four neighbours 0 2 1 3; of nibbles, which share bytes with elements 16
 * further on, pairs of the lower and the upper half take turns. */
INLINE void store_query(int16_t *codes, __m256i low, __m256i high, bool is_bytes) {
    const __m256i quad = _mm256_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15, 0,
                                          1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    __m256i first = _mm256_shuffle_epi8(low, quad), second = _mm256_shuffle_epi8(high, quad);
    if (!is_bytes) {
        __m256i even = _mm256_unpacklo_epi32(first, second);
        __m256i odd = _mm256_unpackhi_epi32(first, second);
        first = _mm256_permute2x128_si256(even, odd, 0x20);
        second = _mm256_permute2x128_si256(even, odd, 0x31);
    }
    _mm256_storeu_si256((__m256i *)(void *)codes, first);
    _mm256_storeu_si256((__m256i *)(void *)(codes + 16), second);
}

INLINE void query_codes(const cpu_kv_side *side, const float *x, uint8_t *q, int type) {
    int16_t *codes = (int16_t *)(void *)q;
    cpu_query_block *blocks = (cpu_query_block *)(void *)(q + cpu_query_codes_size(side));
    for (int32_t b = 0; b < side->n_block; b++, x += 32, codes += 32) {
        vec_f peak = f_zero(), sum = f_zero();
        vec_i total = i_set1(0), whole[HALVES];
        UNROLL for (int h = 0; h < HALVES; h++) {
            vec_f part = f_load(x + h * LANES);
            peak = f_max_abs(part, peak);
            sum = f_add(sum, part);
        }
        float largest = f_peak(peak), inverse = largest > 0 ? 32767 / largest : 0;
        UNROLL for (int h = 0; h < HALVES; h++) {
            whole[h] = f_to_i(f_mul(f_load(x + h * LANES), f_set1(inverse)));
            total = i_add(total, whole[h]);
        }
        store_query(codes, i_pack16(whole), i_pack16(whole + HALVES / 2), type == TDM_TYPE_Q8_0);
        blocks[b] = (cpu_query_block){largest / 32767, 0, 0};
        if (type_has_min(type)) blocks[b].sum = f_sum(sum);
        if (code_offset(type) != 0) blocks[b].bias = -code_offset(type) * i_sum(total);
    }
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* The codes of a 4- or 5-bit word as pairs; pair i of the word. */
INLINE vec_i nibble_pair(vec_i x, vec_i fifth, int c, int i, int type) {
    vec_i low = i_set1(0x000f000f), pair;
    switch (i) {
    case 0: pair = i_and(x, low); break;
    case 1: pair = i_and(i_srl16(x, 4), low); break;
    case 2: pair = i_and(i_srl16(x, 8), low); break;
    default: pair = i_srl16(x, 12); break;
    }
    if (type_has_fifth(type)) {
        vec_i mask = i_set1(0x00100010), bits;
        switch (4 * c + i) { /* bits k and k + 16 of `fifth` to 4 and 20 */
        case 0: bits = i_sll32(fifth, 4); break;
        case 1: bits = i_sll32(fifth, 3); break;
        case 2: bits = i_sll32(fifth, 2); break;
        case 3: bits = i_sll32(fifth, 1); break;
        case 4: bits = fifth; break;
        case 5: bits = i_srl32(fifth, 1); break;
        case 6: bits = i_srl32(fifth, 2); break;
        case 7: bits = i_srl32(fifth, 3); break;
        case 8: bits = i_srl32(fifth, 4); break;
        case 9: bits = i_srl32(fifth, 5); break;
        case 10: bits = i_srl32(fifth, 6); break;
        case 11: bits = i_srl32(fifth, 7); break;
        case 12: bits = i_srl32(fifth, 8); break;
        case 13: bits = i_srl32(fifth, 9); break;
        case 14: bits = i_srl32(fifth, 10); break;
        default: bits = i_srl32(fifth, 11); break;
        }
        pair = i_or_and(pair, bits, mask);
    }
    return pair;
}

INLINE vec_i low_bytes(vec_i x) {
    return i_sra16(i_sll16(x, 8), 8);
}
INLINE vec_i high_bytes(vec_i x) {
    return i_sra16(x, 8);
}

/* How many pairs words of codes hold. */
INLINE int word_pairs(int type) {
    return type == TDM_TYPE_Q8_0 ? 2 : 4;
}

/* Pair i of words `x`. `c` numbers the words of a block: their fifth bits follow from it. */
INLINE vec_i widen(vec_i x, vec_i fifth, vec_i table, int c, int i, int type) {
    if (type == TDM_TYPE_Q8_0) return i == 0 ? low_bytes(x) : high_bytes(x);
    if (type != TDM_TYPE_IQ4_NL) return nibble_pair(x, fifth, c, i, type);
    if (i % 2 == 1) x = i_srl16(x, 4);
    x = i_lookup(table, i_and(x, i_set1(0x0f0f0f0f)));
    return i < 2 ? low_bytes(x) : high_bytes(x);
}

/* n_tile runs of LANES tokens, data_step and scale_step bytes apart:
 *   score = sum_b d_b step_b (code_b . k_b) + m_b sum_b
 * block_skip bytes lie between the blocks of a tile. */
INLINE void score_codes(const uint8_t *data, const uint8_t *scale, ptrdiff_t ahead,
                        size_t data_step, size_t scale_step, size_t block_skip, int32_t n_block,
                        size_t codes_size, int n_tile, int n_row, const uint8_t *const *q,
                        float *const *score, int32_t slot, int type) {
    vec_i table = i_table(code_values), fifth[2];
    vec_f sum[2][SCORE_ROWS];
    UNROLL for (int t = 0; t < n_tile; t++) {
        fifth[t] = i_set1(0);
        UNROLL for (int r = 0; r < n_row; r++) sum[t][r] = f_zero();
    }
    for (int32_t b = 0; b < n_block; b++) {
        vec_i acc[2][SCORE_ROWS];
        const int n_word = type == TDM_TYPE_Q8_0 ? 8 : 4;
        UNROLL for (int r = 0; r < n_row; r++) {
            const cpu_query_block *block =
                (const cpu_query_block *)(const void *)(q[r] + codes_size) + b;
            UNROLL for (int t = 0; t < n_tile; t++) acc[t][r] =
                code_offset(type) != 0 ? i_set1(block->bias) : i_set1(0);
        }
        if (type_has_fifth(type)) {
            UNROLL for (int t = 0; t < n_tile; t++) fifth[t] = i_load(data + (size_t)t * data_step);
            data += 64;
        }
        UNROLL for (int c = 0; c < n_word; c++) {
            const int n_pair = word_pairs(type);
            vec_i x[2];
            UNROLL for (int t = 0; t < n_tile; t++) {
                x[t] = i_load(data + (size_t)t * data_step);
                ask_ahead(data + (size_t)t * data_step, ahead);
            }
            data += 64;
            UNROLL for (int i = 0; i < n_pair; i++) {
                vec_i pair[2];
                UNROLL for (int t = 0; t < n_tile; t++) pair[t] =
                    widen(x[t], fifth[t], table, c, i, type);
                UNROLL for (int r = 0; r < n_row; r++) {
                    int32_t code;
                    memcpy(&code, q[r] + 64 * (size_t)b + 4 * (size_t)(n_pair * c + i), 4);
                    UNROLL for (int t = 0; t < n_tile; t++) acc[t][r] =
                        i_dot(acc[t][r], pair[t], i_set1(code));
                }
            }
        }
        UNROLL for (int t = 0; t < n_tile; t++) {
            vec_f d = f_from_f16(scale + (size_t)t * scale_step), m = f_zero();
            if (type_has_min(type))
                m = f_from_f16(scale + (size_t)t * scale_step + 2 * CPU_KV_TILE);
            UNROLL for (int r = 0; r < n_row; r++) {
                const cpu_query_block *block =
                    (const cpu_query_block *)(const void *)(q[r] + codes_size) + b;
                sum[t][r] = f_fma(f_mul(i_to_f(acc[t][r]), f_set1(block->step)), d, sum[t][r]);
                if (type_has_min(type)) sum[t][r] = f_fma(m, f_set1(block->sum), sum[t][r]);
            }
        }
        scale += (type_has_min(type) ? 4 : 2) * CPU_KV_TILE;
        data += block_skip;
    }
    UNROLL for (int t = 0; t < n_tile; t++) {
        UNROLL for (int r = 0; r < n_row; r++) f_store(score[r] + slot + t * LANES, sum[t][r]);
    }
}

INLINE vec_f plain_load(const uint8_t *at, int type) {
    if (type == TDM_TYPE_F16) return f_from_f16(at);
    if (type == TDM_TYPE_BF16) return f_from_bf16(at);
    return f_load((const float *)(const void *)at);
}

INLINE size_t plain_size(int type) {
    return type == TDM_TYPE_F32 ? 4 : 2;
}

/* Every second or fourth element goes to a sum of its own, so that additions need not wait for each
 * other. */
INLINE void score_floats(const uint8_t *data, ptrdiff_t ahead, int32_t n, int n_row,
                         const uint8_t *const *q, float *const *score, int32_t slot, int type) {
    const int n_sum = n_row <= 2 ? 4 : 2;
    vec_f sum[4][SCORE_ROWS];
    size_t step = CPU_KV_TILE * plain_size(type);
    int32_t i = 0;
    UNROLL for (int k = 0; k < n_sum; k++) {
        UNROLL for (int r = 0; r < n_row; r++) sum[k][r] = f_zero();
    }
    for (; i + n_sum <= n; i += n_sum) {
        UNROLL for (int k = 0; k < n_sum; k++, data += step) {
            vec_f x = plain_load(data, type);
            if (k % (64 / step > 1 ? 2 : 1) == 0) ask_ahead(data, ahead);
            UNROLL for (int r = 0; r < n_row; r++) sum[k][r] =
                f_fma(x, f_set1(((const float *)(const void *)q[r])[i + k]), sum[k][r]);
        }
    }
    for (; i < n; i++, data += step) {
        vec_f x = plain_load(data, type);
        UNROLL for (int r = 0; r < n_row; r++) sum[0][r] =
            f_fma(x, f_set1(((const float *)(const void *)q[r])[i]), sum[0][r]);
    }
    UNROLL for (int r = 0; r < n_row; r++) {
        vec_f total = f_add(sum[0][r], sum[1][r]);
        if (n_sum == 4) total = f_add(total, f_add(sum[2][r], sum[3][r]));
        f_store(score[r] + slot, total);
    }
}

INLINE bool type_is_plain(int type) {
    return type == TDM_TYPE_F32 || type == TDM_TYPE_F16 || type == TDM_TYPE_BF16;
}

/* n_row is a constant where this is inlined, at most SCORE_ROWS. Few rows take two runs of LANES
 * tokens at once, since a sum has to wait for its last addition. */
INLINE void score_group(const cpu_kv_span *k, int n_row, const uint8_t *const *q,
                        float *const *score, int type) {
    const cpu_kv_side *side = k->side;
    size_t codes_size = cpu_query_codes_size(side);
    int32_t first = k->first / CPU_KV_TILE * (CPU_KV_TILE / LANES);
    int32_t last = (k->last + CPU_KV_TILE - 1) / CPU_KV_TILE * (CPU_KV_TILE / LANES);
    size_t data_step = LANES < 16 ? 4 * LANES : side->codes_size;
    size_t scale_step = LANES < 16 ? 2 * LANES : side->scale_size;
    size_t block_skip = (size_t)(side->group - 1) * side->codes_size;
    for (int32_t i = first; i < last; i++) {
        int32_t slot = i * LANES, lane = slot % CPU_KV_TILE;
        const uint8_t *data = k->data + cpu_kv_codes_off(side, slot / CPU_KV_TILE, 0);
        const uint8_t *scale =
            k->scale + (size_t)(slot / CPU_KV_TILE) * side->scale_size + 2 * lane;
        if (type_is_plain(type)) {
            score_floats(data + (size_t)lane * plain_size(type), k->ahead, side->padded, n_row, q,
                         score, slot, type);
        } else if (2 * n_row <= SCORE_SUMS && i % 2 == 0 && i + 1 < last) {
            score_codes(data + 4 * lane, scale, k->ahead, data_step, scale_step, block_skip,
                        side->n_block, codes_size, 2, n_row, q, score, slot, type);
            i++;
        } else {
            score_codes(data + 4 * lane, scale, k->ahead, 0, 0, block_skip, side->n_block,
                        codes_size, 1, n_row, q, score, slot, type);
        }
    }
}

INLINE void score_rows(const cpu_kv_span *k, int32_t n_row, const uint8_t *const *q,
                       float *const *score, int type) {
    for (; n_row >= SCORE_ROWS; n_row -= SCORE_ROWS, q += SCORE_ROWS, score += SCORE_ROWS)
        score_group(k, SCORE_ROWS, q, score, type);
    if (SCORE_ROWS > 4 && n_row >= 4) {
        score_group(k, 4, q, score, type);
        n_row -= 4, q += 4, score += 4;
    }
    if (n_row >= 2) {
        score_group(k, 2, q, score, type);
        n_row -= 2, q += 2, score += 2;
    }
    if (n_row >= 1) score_group(k, 1, q, score, type);
}

/* ---- weighted sums --------------------------------------------------------------------------- */

/* 16-bit numbers, two to a word: tokens 2i and 2i + 1. */
typedef int32_t chunk16[CPU_CHUNK / 2];

/* What a group of rows shares: weights p as 16-bit numbers, and which tiles count. Then, for a few
 * blocks at once so that none waits for the other's maximum, what add_codes needs. */
typedef struct add_frame {
    int32_t tile_first, tile_last;
    chunk16 p16[ADD_ROWS];
    chunk16 weight[ADD_BLOCKS][ADD_ROWS]; /* w = p d / d_max, rounded to 15 bits and a sign */
    float step[ADD_BLOCKS];               /* d_max as the value of w c = 1 */
    int32_t w_sum[ADD_BLOCKS][ADD_ROWS];  /* sum w, where the codes have a middle */
    float p_m[ADD_BLOCKS][ADD_ROWS];      /* sum p (m + middle d), where the type has m */
} add_frame;

INLINE void add_begin(const cpu_kv_span *v, int n_row, const float *const *p, add_frame *f) {
    f->tile_first = v->first / CPU_KV_TILE;
    f->tile_last = (v->last + CPU_KV_TILE - 1) / CPU_KV_TILE;
    UNROLL for (int i = 0; i < CPU_CHUNK; i += LANES) {
        bool counts = i / CPU_KV_TILE >= f->tile_first && i / CPU_KV_TILE < f->tile_last;
        UNROLL for (int r = 0; r < n_row; r++) {
            vec_i w = i_set1(0);
            if (counts) w = f_to_i(f_mul(f_load(p[r] + i), f_set1(32767)));
            i_store16(f->p16[r] + i / 2, w);
        }
    }
}

/* Weights of block b, as the frame's block `at`. */
INLINE void add_weights(const cpu_kv_span *v, add_frame *f, int32_t b, int32_t at, int n_row,
                        const float *const *p, int type) {
    const cpu_kv_side *side = v->side;
    const int n_scale = type_has_min(type) ? 2 : 1;
    int32_t first = f->tile_first * CPU_KV_TILE, last = f->tile_last * CPU_KV_TILE;
    chunk16 d16;
    vec_f d[CPU_CHUNK / LANES], peak = f_zero(), p_m[ADD_ROWS];
    vec_i w_sum[ADD_ROWS];
    UNROLL for (int r = 0; r < n_row; r++) {
        p_m[r] = f_zero();
        w_sum[r] = i_set1(0);
    }
    UNROLL for (int i = 0; i < CPU_CHUNK; i += LANES) {
        d[i / LANES] = f_zero();
        if (i < first || i >= last) continue;
        const uint8_t *scale = v->scale + (size_t)(i / CPU_KV_TILE) * side->scale_size +
                               (size_t)(b * n_scale * CPU_KV_TILE + i % CPU_KV_TILE) * 2;
        d[i / LANES] = f_keep(f_from_f16(scale), v->first, v->last, i);
        peak = f_max_abs(d[i / LANES], peak);
        if (!type_has_min(type)) continue;
        vec_f m = f_keep(f_from_f16(scale + 2 * CPU_KV_TILE), v->first, v->last, i);
        m = f_fma(d[i / LANES], f_set1((float)code_middle(type)), m);
        UNROLL for (int r = 0; r < n_row; r++) p_m[r] = f_fma(f_load(p[r] + i), m, p_m[r]);
    }
    float d_max = f_peak(peak), inverse = d_max > 0 ? 32767 / d_max : 0;
    UNROLL for (int i = 0; i < CPU_CHUNK; i += LANES)
        i_store16(d16 + i / 2, f_to_i(f_mul(d[i / LANES], f_set1(inverse))));
    UNROLL for (int i = 0; i < CPU_CHUNK / 2; i += LANES) {
        vec_i scaled = i_load(d16 + i);
        UNROLL for (int r = 0; r < n_row; r++) {
            vec_i w = i_mul15(i_load(f->p16[r] + i), scaled);
            i_store(f->weight[at][r] + i, w);
            if (code_middle(type) != 0) w_sum[r] = i_dot(w_sum[r], w, i_set1(0x00010001));
        }
    }
    /* p and d have 32767 steps each, and their product was divided by 32768. */
    f->step[at] = d_max * (32768.0f / 32767 / 32767);
    UNROLL for (int r = 0; r < n_row; r++) {
        if (code_middle(type) != 0) f->w_sum[at][r] = i_sum(w_sum[r]);
        if (type_has_min(type)) f->p_m[at][r] = f_sum(p_m[r]);
    }
}

/* Two vectors of a block of 32 elements: of nibbles those at pass * LANES and 16 further on, which
 * share bytes, else the pass-th pair. With mid the middle of the codes (their offset, where the
 * type has one),
 *   sum_t p_t (d_t c_t + m_t) = d_max (sum w c - mid sum w) + sum p (m + mid d). */
INLINE void add_codes(const cpu_kv_span *v, const add_frame *f, int32_t b, int32_t at, int pass,
                      int n_row, float *const *o, const float *keep, const float *gain, int type) {
    const bool is_bytes = type == TDM_TYPE_Q8_0;
    const int n_pair = word_pairs(type), n_part = is_bytes ? 2 : 1;
    const size_t quad_size = is_bytes ? 128 : 64;
    vec_i table = i_table(code_values), fifth = i_set1(0), acc[ADD_ROWS][2];
    UNROLL for (int r = 0; r < n_row; r++) acc[r][0] = acc[r][1] = i_set1(0);
    for (int32_t tile = f->tile_first; tile < f->tile_last; tile++) {
        const uint8_t *data = v->data + cpu_kv_codes_off(v->side, tile, b);
        if (type_has_fifth(type)) {
            fifth = i_load(data + 4 * LANES * pass);
            data += 64;
        }
        UNROLL for (int quad = 0; quad < 4; quad++) {
            UNROLL for (int part = 0; part < n_part; part++) {
                vec_i x = i_load(data + 4 * LANES * (n_part * pass + part));
                if (pass % (16 / LANES) == 0) ask_ahead(data + 64 * part, v->ahead);
                UNROLL for (int i = 0; i < n_pair; i++) {
                    /* The last half of the pairs are tokens 2 and 3 of the quad. */
                    int half = is_bytes ? part : i % 2;
                    int word = tile * (CPU_KV_TILE / 2) + 2 * quad + 2 * i / n_pair;
                    vec_i pair = widen(x, fifth, table, quad, i, type);
                    UNROLL for (int r = 0; r < n_row; r++) acc[r][half] =
                        i_dot(acc[r][half], pair, i_set1(f->weight[at][r][word]));
                }
            }
            data += quad_size;
        }
    }
    UNROLL for (int r = 0; r < n_row; r++) {
        vec_f factor = f_set1(gain[r] * f->step[at]), old = f_set1(keep[r]), base = f_zero();
        vec_i offset = i_set1(0);
        if (code_middle(type) != 0) offset = i_set1(-code_middle(type) * f->w_sum[at][r]);
        if (type_has_min(type)) base = f_set1(gain[r] * f->p_m[at][r]);
        UNROLL for (int h = 0; h < 2; h++) {
            int first = is_bytes ? (2 * pass + h) * LANES : pass * LANES + 16 * h;
            float *out = o[r] + 32 * (size_t)b + first;
            vec_f sum = i_to_f(i_add(acc[r][h], offset));
            f_store(out, f_fma(f_load(out), old, f_fma(sum, factor, base)));
        }
    }
}

/* n_vec vectors of elements from `first` on. */
INLINE void add_floats(const cpu_kv_span *v, int32_t first, int n_vec, int n_row,
                       const float *const *p, float *const *o, const float *keep, const float *gain,
                       int type) {
    vec_f acc[ADD_ROWS][4];
    size_t step = (size_t)v->side->stride * plain_size(type);
    const uint8_t *at = v->data + (size_t)v->first * step + (size_t)first * plain_size(type);
    UNROLL for (int r = 0; r < n_row; r++) {
        UNROLL for (int i = 0; i < n_vec; i++) acc[r][i] = f_zero();
    }
    for (int32_t slot = v->first; slot < v->last; slot++, at += step) {
        vec_f x[4];
        UNROLL for (int i = 0; i < n_vec; i++) {
            x[i] = plain_load(at + (size_t)(i * LANES) * plain_size(type), type);
            if (i * LANES * (int)plain_size(type) % 64 == 0)
                ask_ahead(at + (size_t)(i * LANES) * plain_size(type), v->ahead);
        }
        UNROLL for (int r = 0; r < n_row; r++) {
            vec_f w = f_set1(p[r][slot]);
            UNROLL for (int i = 0; i < n_vec; i++) acc[r][i] = f_fma(x[i], w, acc[r][i]);
        }
    }
    UNROLL for (int r = 0; r < n_row; r++) {
        UNROLL for (int i = 0; i < n_vec; i++) {
            float *out = o[r] + first + i * LANES;
            vec_f sum = f_mul(acc[r][i], f_set1(gain[r]));
            f_store(out, f_fma(f_load(out), f_set1(keep[r]), sum));
        }
    }
}

INLINE void add_group(const cpu_kv_span *v, int32_t n_dim, int n_row, const float *const *p,
                      float *const *o, const float *keep, const float *gain, int type) {
    if (!type_is_plain(type)) {
        add_frame f;
        add_begin(v, n_row, p, &f);
        for (int32_t b = 0; b < n_dim / 32; b += ADD_BLOCKS) {
            int32_t n = n_dim / 32 - b < ADD_BLOCKS ? n_dim / 32 - b : ADD_BLOCKS;
            for (int32_t i = 0; i < n; i++) add_weights(v, &f, b + i, i, n_row, p, type);
            for (int32_t i = 0; i < n; i++) {
                UNROLL for (int pass = 0; pass < HALVES / 2; pass++)
                    add_codes(v, &f, b + i, i, pass, n_row, o, keep, gain, type);
            }
        }
        return;
    }
    const int n_vec = 4 * n_row <= ADD_SUMS ? 4 : 2;
    int32_t at = 0;
    for (; at + n_vec * LANES <= n_dim; at += n_vec * LANES)
        add_floats(v, at, n_vec, n_row, p, o, keep, gain, type);
    for (; at < n_dim; at += 16) add_floats(v, at, 16 / LANES, n_row, p, o, keep, gain, type);
}

INLINE void add_rows(const cpu_kv_span *v, int32_t n_dim, int32_t n_row, const float *const *p,
                     float *const *o, const float *keep, const float *gain, int type) {
    int32_t r = 0;
    for (; n_row - r >= ADD_ROWS; r += ADD_ROWS)
        add_group(v, n_dim, ADD_ROWS, p + r, o + r, keep + r, gain + r, type);
    if (ADD_ROWS > 4 && n_row - r >= 4) {
        add_group(v, n_dim, 4, p + r, o + r, keep + r, gain + r, type);
        r += 4;
    }
    if (ADD_ROWS > 2 && n_row - r >= 2) {
        add_group(v, n_dim, 2, p + r, o + r, keep + r, gain + r, type);
        r += 2;
    }
    if (n_row - r >= 1) add_group(v, n_dim, 1, p + r, o + r, keep + r, gain + r, type);
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* exp(x), x <= 0: x = n ln 2 + r with |r| <= ln 2 / 2, and the Taylor series of exp(r) to the sixth
 * power, whose remainder is below 1.3e-7. ln 2 as one f32 adds 2e-9 n, where the result is 2^-n. */
INLINE vec_f f_exp(vec_f x) {
    vec_f n = f_round(f_mul(x, f_set1(1.44269504f)));
    vec_f r = f_fma(n, f_set1(-0.693147182f), x);
    vec_f y = f_set1(1.0f / 720);
    y = f_fma(y, r, f_set1(1.0f / 120));
    y = f_fma(y, r, f_set1(1.0f / 24));
    y = f_fma(y, r, f_set1(1.0f / 6));
    y = f_fma(y, r, f_set1(0.5f));
    y = f_fma(y, r, f_set1(1));
    y = f_fma(y, r, f_set1(1));
    return f_scale2(y, n);
}

/* softcap tanh(x / softcap), tanh(y) = 1 - 2 / (exp(2 y) + 1). */
INLINE vec_f f_softcap(vec_f x, float softcap) {
    vec_f y = f_max(f_set1(-20), f_min(f_set1(20), f_mul(x, f_set1(2 / softcap))));
    vec_f part = f_div(f_set1(2), f_add(f_exp(y), f_set1(1)));
    return f_mul(f_set1(softcap), f_add(f_set1(1), f_mul(part, f_set1(-1))));
}

/* The largest score of a row, softcap applied in place. With is_whole every slot counts. */
INLINE float row_max(float *score, int32_t begin, int32_t end, int32_t first, int32_t last,
                     float softcap, bool is_whole) {
    vec_f peak = f_set1(-INFINITY);
    for (int32_t i = begin; i < end; i += LANES) {
        vec_f x = f_load(score + i);
        if (softcap > 0) {
            x = f_softcap(x, softcap);
            f_store(score + i, x);
        }
        if (!is_whole) x = f_choose(x, f_set1(-INFINITY), first, last, i);
        peak = f_max(x, peak);
    }
    return f_largest(peak);
}

/* p = exp(score - m) in place of a row's scores. Returns the sum. */
INLINE float row_exp(float *score, int32_t begin, int32_t end, int32_t first, int32_t last, float m,
                     bool is_whole) {
    vec_f sum = f_zero(), base = f_set1(m == -INFINITY ? 0 : -m);
    for (int32_t i = begin; i < end; i += LANES) {
        /* Over -inf alone exp(-inf - 0) is 0, and a NaN stays one. */
        vec_f x = f_exp(f_max(f_set1(-150), f_add(f_load(score + i), base)));
        if (!is_whole) x = f_keep(x, first, last, i);
        f_store(score + i, x);
        sum = f_add(sum, x);
    }
    return f_sum(sum);
}

/* Three passes over up to LANES rows: rows do not wait for each other's sums, and the numbers that
 * the last one loads as vectors were stored long before. */
INLINE void soften_rows(int32_t n_row, float *const *score, int32_t begin, int32_t end,
                        const int32_t *first, const int32_t *last, float softcap, float *m,
                        float *l, float *keep, float *gain) {
    for (int32_t at = 0; at < n_row; at += LANES) {
        float m_new[LANES], l_new[LANES], m_old[LANES], max[LANES], factors[2][LANES];
        int n = n_row - at < LANES ? n_row - at : LANES;
        f_store(m_new, f_zero());
        f_store(m_old, f_zero());
        for (int i = 0; i < n; i++) {
            int32_t r = at + i, lo = first[r], hi = last[r];
            bool is_whole = lo <= begin && hi >= end;
            m_old[i] = m[r];
            if (!is_whole)
                m_new[i] = row_max(score[r], begin, end, lo, hi, softcap, false);
            else if (softcap > 0)
                m_new[i] = row_max(score[r], begin, end, begin, end, softcap, true);
            else
                m_new[i] = row_max(score[r], begin, end, begin, end, 0, true);
        }
        for (int i = 0; i < n; i++) {
            int32_t r = at + i, lo = first[r], hi = last[r];
            l_new[i] = lo <= begin && hi >= end
                           ? row_exp(score[r], begin, end, begin, end, m_new[i], true)
                           : row_exp(score[r], begin, end, lo, hi, m_new[i], false);
        }
        vec_f both = f_max(f_load(m_new), f_load(m_old)), least = f_set1(-3e38f);
        vec_f base = f_mul(f_max(both, least), f_set1(-1)); /* -inf - -inf would be NaN */
        f_store(factors[0], f_exp(f_max(f_set1(-150), f_add(f_load(m_old), base))));
        f_store(factors[1], f_exp(f_max(f_set1(-150), f_add(f_load(m_new), base))));
        f_store(max, both);
        for (int i = 0; i < n; i++) {
            keep[at + i] = factors[0][i];
            gain[at + i] = factors[1][i];
            l[at + i] = l[at + i] * factors[0][i] + l_new[i] * factors[1][i];
            m[at + i] = max[i];
        }
    }
}

#define SCORE_KERNEL(name, type)                                                                   \
    static void score_##name(const cpu_kv_span *k, int32_t n_row, const uint8_t *const *q,         \
                             float *const *score) {                                                \
        score_rows(k, n_row, q, score, type);                                                      \
    }
#define QUERY_KERNEL(name, type)                                                                   \
    static void query_##name(const cpu_kv_side *side, const float *x, uint8_t *q) {                \
        query_codes(side, x, q, type);                                                             \
    }
#define ADD_KERNEL(name, type)                                                                     \
    static void add_##name(const cpu_kv_span *v, int32_t n_dim, int32_t n_row,                     \
                           const float *const *p, float *const *o, const float *keep,              \
                           const float *gain) {                                                    \
        add_rows(v, n_dim, n_row, p, o, keep, gain, type);                                         \
    }
#define FOR_EACH_PLAIN(KERNEL)                                                                     \
    KERNEL(f32, TDM_TYPE_F32)                                                                      \
    KERNEL(f16, TDM_TYPE_F16)                                                                      \
    KERNEL(bf16, TDM_TYPE_BF16)
#define FOR_EACH_QUANTIZED(KERNEL)                                                                 \
    KERNEL(q8_0, TDM_TYPE_Q8_0)                                                                    \
    KERNEL(q5_1, TDM_TYPE_Q5_1)                                                                    \
    KERNEL(q5_0, TDM_TYPE_Q5_0)                                                                    \
    KERNEL(q4_1, TDM_TYPE_Q4_1)                                                                    \
    KERNEL(q4_0, TDM_TYPE_Q4_0)                                                                    \
    KERNEL(iq4_nl, TDM_TYPE_IQ4_NL)

FOR_EACH_PLAIN(SCORE_KERNEL)
FOR_EACH_QUANTIZED(SCORE_KERNEL)
FOR_EACH_QUANTIZED(QUERY_KERNEL)
FOR_EACH_PLAIN(ADD_KERNEL)
FOR_EACH_QUANTIZED(ADD_KERNEL)

#endif
