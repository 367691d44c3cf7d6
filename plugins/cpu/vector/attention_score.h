/* SPDX-License-Identifier: MIT
 *
 * vector/attention_score.h: the queries of attention and their dot products with K.
 *
 * Integer arithmetic is exact: queries have 15 bits and a sign (with CPU_IS_Q8, option
 * activation-bits = 8: 7 bits and a sign), a block has 32 codes of at most 8 bits, so that no sum
 * reaches 2^31.
 */
#ifndef TANDEM_CPU_VECTOR_ATTENTION_SCORE_H
#define TANDEM_CPU_VECTOR_ATTENTION_SCORE_H

#include "plugins/cpu/vector/attention_codes.h"

/* ---- queries --------------------------------------------------------------------------------- */

/* A block's elements 0 .. 15 and 16 .. 31. Bytes are stored in their order. 16-bit codes are stored
 * in the order in which words of a K tile are split into pairs (kv_page.c): of four neighbours 0 2
 * 1 3; of nibbles, which share bytes with elements 16 further on, pairs of the lower and the upper
 * half alternate. */
INLINE void query_store(uint8_t *codes, halves low, halves high, bool is_bytes) {
    if (CPU_IS_Q8)
        halves_store_bytes(codes, low, high);
    else
        halves_store_pairs(codes, low, high, !is_bytes);
}

INLINE void query_codes(const cpu_kv_side *side, const float *x, uint8_t *q, int type) {
    const float top = CPU_IS_Q8 ? 127 : 32767;
    cpu_query_block *blocks = (cpu_query_block *)(void *)(q + cpu_query_codes_size(side));
    for (int32_t b = 0; b < side->n_block; b++, x += 32, q += QUERY_BLOCK) {
        lanes peak = lanes_zero(), sum = lanes_zero();
        ints total = ints_set(0), whole[HALVES];
        UNROLL for (int h = 0; h < HALVES; h++) {
            lanes part = lanes_load(x + h * N_LANE);
            peak = lanes_max(lanes_abs(part), peak);
            sum = lanes_add(sum, part);
        }
        float largest = lanes_max_of(peak), inverse = largest > 0 ? top / largest : 0;
        UNROLL for (int h = 0; h < HALVES; h++) {
            whole[h] = ints_from_lanes(lanes_mul(lanes_load(x + h * N_LANE), lanes_set(inverse)));
            total = ints_add(total, whole[h]);
        }
        query_store(q, halves_pack(whole), halves_pack(whole + HALVES / 2), type == TDM_TYPE_Q8_0);
        blocks[b] = (cpu_query_block){largest / top, 0, 0};
        if (type_has_min(type)) blocks[b].sum = lanes_sum(sum);
        if (score_offset(type) != 0) blocks[b].bias = -score_offset(type) * ints_sum(total);
    }
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* In how many steps the words of K in a vector are multiplied: one for each pair of codes, or with
 * CPU_IS_Q8 one for each four codes. */
INLINE int score_steps(int type) {
    return CPU_IS_Q8 ? word_pairs(type) / 2 : word_pairs(type);
}

/* The codes of words c, which are `x`, for step i. Without CPU_IS_Q8 that is pair i. With it, bytes
 * are elements 4c .. 4c+3 of the block; nibbles are the same elements in step 0, and those 16
 * further on in step 1. The fifth bits of the first and third code are those of pair 4c + i, of the
 * second and fourth those of pair 4c + i + 2 (kv_page.c). */
INLINE ints score_codes_get(ints x, ints fifth, ints table, int c, int i, int type) {
    if (!CPU_IS_Q8) return widen(x, fifth, table, c, i, type);
    if (type == TDM_TYPE_Q8_0) return score_bytes(x);
    x = ints_and(i == 0 ? x : ints_srl16(x, 4), ints_set(0x0f0f0f0f));
    if (type == TDM_TYPE_IQ4_NL) return bytes_lookup(table, x);
    if (!type_has_fifth(type)) return x;
    x = ints_or_and(x, fifth_bits(fifth, 4 * c + i), ints_set(0x00100010));
    return ints_or_and(x, fifth_bits(fifth, 4 * c + i + 2 - 8), ints_set(0x10001000));
}

/* Where in a block of a query the four bytes for step i of words c are. */
INLINE size_t score_query_at(int c, int i, int type) {
    return CPU_IS_Q8 ? (size_t)(4 * c + 16 * i) : 4 * (size_t)(word_pairs(type) * c + i);
}

/* True if the 16-bit sums are widened after words c. A word adds 4 products to each: 8 products of
 * 5-bit codes fit (8 * 31 * 127 < 2^15), or 16 of nibbles (16 * 15 * 127). */
INLINE bool score_sums_end(int c, int type) {
    return c == 3 || (c == 1 && type_has_fifth(type));
}

/* Input and output of one computation of scores: one or two runs of N_LANE tokens with n_row rows
 * of queries. */
typedef struct score_part {
    const uint8_t *data, *scale;  /* of the first run, in its first block */
    size_t data_step, scale_step; /* bytes from the first run to the second */
    size_t block_skip;            /* bytes between the blocks of a tile */
    ptrdiff_t ahead;              /* cpu_kv_span */
    int32_t n;                    /* blocks of codes, or elements of plain types */
    size_t codes_size;            /* bytes from a query to its blocks */
    const uint8_t *const *q;
    float *const *score;
    int32_t slot; /* of the first token */
} score_part;

/* score = sum_b d_b step_b (code_b . k_b) + m_b sum_b */
INLINE void score_codes(const score_part *p, int n_tile, int n_row, int type) {
    const uint8_t *data = p->data, *scale = p->scale, *const *q = p->q;
    const size_t data_step = p->data_step, scale_step = p->scale_step;
    ints table = bytes_table(code_values), fifth[2];
    lanes sum[2][SCORE_ROWS];
    table = score_bytes(table);
    UNROLL for (int t = 0; t < n_tile; t++) {
        fifth[t] = ints_set(0);
        UNROLL for (int r = 0; r < n_row; r++) sum[t][r] = lanes_zero();
    }
    for (int32_t b = 0; b < p->n; b++) {
        const bool is_narrow = CPU_IS_Q8 && DOT8_IS_NARROW;
        const int n_word = type == TDM_TYPE_Q8_0 ? 8 : 4, n_step = score_steps(type);
        ints acc[2][SCORE_ROWS], part[2][SCORE_ROWS];
        UNROLL for (int r = 0; r < n_row; r++) {
            const cpu_query_block *block =
                (const cpu_query_block *)(const void *)(q[r] + p->codes_size) + b;
            UNROLL for (int t = 0; t < n_tile; t++) {
                acc[t][r] = score_offset(type) != 0 ? ints_set(block->bias) : ints_set(0);
                part[t][r] = ints_set(0);
            }
        }
        if (type_has_fifth(type)) {
            UNROLL for (int t = 0; t < n_tile; t++) fifth[t] =
                ints_load(data + (size_t)t * data_step);
            data += 64;
        }
        UNROLL for (int c = 0; c < n_word; c++) {
            ints x[2];
            UNROLL for (int t = 0; t < n_tile; t++) {
                x[t] = ints_load(data + (size_t)t * data_step);
                prefetch_ahead(data + (size_t)t * data_step, p->ahead);
            }
            data += 64;
            UNROLL for (int i = 0; i < n_step; i++) {
                ints codes[2];
                UNROLL for (int t = 0; t < n_tile; t++) codes[t] =
                    score_codes_get(x[t], fifth[t], table, c, i, type);
                UNROLL for (int r = 0; r < n_row; r++) {
                    int32_t code;
                    memcpy(&code, q[r] + QUERY_BLOCK * (size_t)b + score_query_at(c, i, type), 4);
                    UNROLL for (int t = 0; t < n_tile; t++) {
                        if (is_narrow)
                            part[t][r] = ints_dot8(part[t][r], codes[t], ints_set(code));
                        else if (CPU_IS_Q8)
                            acc[t][r] = ints_dot8(acc[t][r], codes[t], ints_set(code));
                        else
                            acc[t][r] = ints_dot16(acc[t][r], codes[t], ints_set(code));
                    }
                }
            }
            if (!is_narrow || !score_sums_end(c, type)) continue;
            UNROLL for (int r = 0; r < n_row; r++) {
                UNROLL for (int t = 0; t < n_tile; t++) {
                    acc[t][r] = ints_dot8_add(acc[t][r], part[t][r]);
                    part[t][r] = ints_set(0);
                }
            }
        }
        UNROLL for (int t = 0; t < n_tile; t++) {
            lanes d = lanes_from_f16(scale + (size_t)t * scale_step), m = lanes_zero();
            if (type_has_min(type))
                m = lanes_from_f16(scale + (size_t)t * scale_step + 2 * CPU_KV_TILE);
            UNROLL for (int r = 0; r < n_row; r++) {
                const cpu_query_block *block =
                    (const cpu_query_block *)(const void *)(q[r] + p->codes_size) + b;
                sum[t][r] = lanes_fma(lanes_mul(lanes_from_ints(acc[t][r]), lanes_set(block->step)),
                                      d, sum[t][r]);
                if (type_has_min(type)) sum[t][r] = lanes_fma(m, lanes_set(block->sum), sum[t][r]);
            }
        }
        scale += (type_has_min(type) ? 4 : 2) * CPU_KV_TILE;
        data += p->block_skip;
    }
    UNROLL for (int t = 0; t < n_tile; t++) {
        UNROLL for (int r = 0; r < n_row; r++)
            lanes_store(p->score[r] + p->slot + t * N_LANE, sum[t][r]);
    }
}

/* Even and odd elements have sums of their own, so that additions need not wait for each other; how
 * many rows and runs are taken at once does not change the order of a sum. */
INLINE void score_floats(const score_part *p, int n_tile, int n_row, int type) {
    const uint8_t *data = p->data, *const *q = p->q;
    lanes sum[2][2][SCORE_ROWS];
    size_t step = CPU_KV_TILE * plain_size(type);
    int32_t i = 0;
    UNROLL for (int k = 0; k < 2; k++) {
        UNROLL for (int t = 0; t < n_tile; t++) {
            UNROLL for (int r = 0; r < n_row; r++) sum[k][t][r] = lanes_zero();
        }
    }
    for (; i + 2 <= p->n; i += 2) {
        UNROLL for (int k = 0; k < 2; k++, data += step) {
            UNROLL for (int t = 0; t < n_tile; t++) {
                const uint8_t *at = data + (size_t)t * p->data_step;
                lanes x = plain_load(at, type);
                if (k % (64 / step > 1 ? 2 : 1) == 0) prefetch_ahead(at, p->ahead);
                UNROLL for (int r = 0; r < n_row; r++) sum[k][t][r] = lanes_fma(
                    x, lanes_set(((const float *)(const void *)q[r])[i + k]), sum[k][t][r]);
            }
        }
    }
    if (i < p->n) {
        UNROLL for (int t = 0; t < n_tile; t++) {
            lanes x = plain_load(data + (size_t)t * p->data_step, type);
            UNROLL for (int r = 0; r < n_row; r++) sum[0][t][r] =
                lanes_fma(x, lanes_set(((const float *)(const void *)q[r])[i]), sum[0][t][r]);
        }
    }
    UNROLL for (int t = 0; t < n_tile; t++) {
        UNROLL for (int r = 0; r < n_row; r++)
            lanes_store(p->score[r] + p->slot + t * N_LANE, lanes_add(sum[0][t][r], sum[1][t][r]));
    }
}

/* n_row is a constant where this is inlined, at most SCORE_ROWS. Few rows take two runs of N_LANE
 * tokens at once, since a sum has to wait for its last addition. */
INLINE void score_group(const cpu_kv_span *k, int n_row, const uint8_t *const *q,
                        float *const *score, int type) {
    const cpu_kv_side *side = k->side;
    int32_t first = k->first / CPU_KV_TILE * (CPU_KV_TILE / N_LANE);
    int32_t last = (k->last + CPU_KV_TILE - 1) / CPU_KV_TILE * (CPU_KV_TILE / N_LANE);
    bool is_plain = type_is_plain(type);
    size_t lane_size = is_plain ? plain_size(type) : 4; /* of a token in a vector of codes */
    size_t tile_step = is_plain ? side->data_size : side->codes_size;
    size_t data_step = N_LANE < 16 ? lane_size * N_LANE : tile_step;
    size_t scale_step = N_LANE < 16 ? 2 * N_LANE : side->scale_size;
    for (int32_t i = first; i < last; i++) {
        int32_t slot = i * N_LANE, lane = slot % CPU_KV_TILE, tile = slot / CPU_KV_TILE;
        bool is_two = (is_plain ? 4 : 2) * n_row <= SCORE_SUMS && i % 2 == 0 && i + 1 < last;
        score_part part = {
            .data = k->data + cpu_kv_codes_off(side, tile, 0) + (size_t)lane * lane_size,
            .scale = k->scale + (size_t)tile * side->scale_size + 2 * lane,
            .data_step = is_two ? data_step : 0,
            .scale_step = is_two ? scale_step : 0,
            .block_skip = (size_t)(side->group - 1) * side->codes_size,
            .ahead = k->ahead,
            .n = is_plain ? side->padded : side->n_block,
            .codes_size = cpu_query_codes_size(side),
            .q = q,
            .score = score,
            .slot = slot,
        };
        if (is_plain && is_two)
            score_floats(&part, 2, n_row, type);
        else if (is_plain)
            score_floats(&part, 1, n_row, type);
        else if (is_two)
            score_codes(&part, 2, n_row, type);
        else
            score_codes(&part, 1, n_row, type);
        i += is_two;
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

#endif
