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
 *   i_store(p, x)                  unaligned store
 *   i_pack(a, b)                   16-bit halves from the lanes of a, then those of b, that fit
 *   i_pack16(x)                    16 int16 (__m256i) from one or two vectors of lanes that fit
 *   i_mul15(a, b)                  a * b / 2^15 of signed 16-bit halves, rounded
 *   i_xor                          bitwise exclusive or
 *   i_dot8(acc, a, b)              acc + products of unsigned bytes of a and signed ones of b, summed
 *                                  in lanes, or where DOT8_IS_NARROW in 16-bit halves
 *   i_dot8_add(sum, acc)           sum + the lanes' sums of such halves
 *   i_sum(x), f_sum(x), f_peak(x)  sum of lanes, sum of lanes, largest magnitude
 *   f_zero, f_load, f_store, f_set1, f_add, f_mul, f_fma(a, b, c), f_max(a, b) = b where either
 *   is NaN, f_from_f16, f_from_bf16 (from memory), f_keep(x, first, last, at): lanes whose number,
 *   counted from `at`, lies in first .. last-1, else 0
 *   SCORE_ROWS, ADD_ROWS           rows taken at once: what the registers hold
 *   SCORE_SUMS, ADD_SUMS           sums at once
 *   QUERY_IS_Q8                    queries have 7 bits and a sign (option activation-bits = 8), not 15
 *
 * Integer arithmetic is exact: queries and weights have 15 bits and a sign, a block has 32 codes
 * of at most 8 bits, a chunk 64 tokens, so that no sum reaches 2^31. Weights of V keep 15 bits in any
 * case: rounded to fewer, many small ones beside a large one would be lost together.
 */
#ifndef TANDEM_CPU_X86_ATTENTION_VECTOR_H
#define TANDEM_CPU_X86_ATTENTION_VECTOR_H

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "plugins/cpu/ops/attention_kernel.h"
#include "plugins/cpu/vector/unroll.h"
#include "tandem/block.h"

static const int8_t code_values[16] = TDM_IQ4_VALUES;

enum { HALVES = 32 / LANES };                 /* vectors that hold a block of 32 elements */
enum { ADD_BLOCKS = 4 };                      /* blocks whose weights are made together */
enum { QUERY_BLOCK = QUERY_IS_Q8 ? 32 : 64 }; /* bytes of a query's codes */

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
    return type == TDM_TYPE_Q4_1 ? 8 : type == TDM_TYPE_Q5_1 || type == TDM_TYPE_Q5_0 ? 16 : 0;
}
/* How far the codes that K's dot products see lie above what they stand for: bytes are multiplied
 * unsigned. */
INLINE int32_t score_offset(int type) {
    return QUERY_IS_Q8 && (type == TDM_TYPE_Q8_0 || type == TDM_TYPE_IQ4_NL) ? 128
                                                                             : code_offset(type);
}
INLINE bool type_has_fifth(int type) {
    return type == TDM_TYPE_Q5_0 || type == TDM_TYPE_Q5_1;
}
INLINE bool type_has_min(int type) {
    return type == TDM_TYPE_Q4_1 || type == TDM_TYPE_Q5_1;
}

/* ---- queries --------------------------------------------------------------------------------- */

/* A block's elements 0 .. 15 and 16 .. 31: bytes in their order, else in the order in which words of
 * a K tile fall apart into pairs (kv_page.c): of four neighbours 0 2 1 3; of nibbles, which share
 * bytes with elements 16 further on, pairs of the lower and the upper half take turns. */
INLINE void store_query(uint8_t *codes, __m256i low, __m256i high, bool is_bytes) {
    if (QUERY_IS_Q8) {
        __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xd8);
        _mm256_storeu_si256((__m256i *)(void *)codes, bytes);
        return;
    }
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
    _mm256_storeu_si256((__m256i *)(void *)(codes + 32), second);
}

INLINE void query_codes(const cpu_kv_side *side, const float *x, uint8_t *q, int type) {
    const float top = QUERY_IS_Q8 ? 127 : 32767;
    cpu_query_block *blocks = (cpu_query_block *)(void *)(q + cpu_query_codes_size(side));
    for (int32_t b = 0; b < side->n_block; b++, x += 32, q += QUERY_BLOCK) {
        vec_f peak = f_zero(), sum = f_zero();
        vec_i total = i_set1(0), whole[HALVES];
        UNROLL for (int h = 0; h < HALVES; h++) {
            vec_f part = f_load(x + h * LANES);
            peak = f_max_abs(part, peak);
            sum = f_add(sum, part);
        }
        float largest = f_peak(peak), inverse = largest > 0 ? top / largest : 0;
        UNROLL for (int h = 0; h < HALVES; h++) {
            whole[h] = f_to_i(f_mul(f_load(x + h * LANES), f_set1(inverse)));
            total = i_add(total, whole[h]);
        }
        store_query(q, i_pack16(whole), i_pack16(whole + HALVES / 2), type == TDM_TYPE_Q8_0);
        blocks[b] = (cpu_query_block){largest / top, 0, 0};
        if (type_has_min(type)) blocks[b].sum = f_sum(sum);
        if (score_offset(type) != 0) blocks[b].bias = -score_offset(type) * i_sum(total);
    }
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Bits k and k + 16 of `fifth` to 4 and 20; of bytes, bits k + 8 and k + 24 to 12 and 28. */
INLINE vec_i fifth_bits(vec_i fifth, int k) {
    switch (k) {
    case -6: return i_sll32(fifth, 10);
    case -5: return i_sll32(fifth, 9);
    case -2: return i_sll32(fifth, 6);
    case -1: return i_sll32(fifth, 5);
    case 0: return i_sll32(fifth, 4);
    case 1: return i_sll32(fifth, 3);
    case 2: return i_sll32(fifth, 2);
    case 3: return i_sll32(fifth, 1);
    case 4: return fifth;
    case 5: return i_srl32(fifth, 1);
    case 6: return i_srl32(fifth, 2);
    case 7: return i_srl32(fifth, 3);
    case 8: return i_srl32(fifth, 4);
    case 9: return i_srl32(fifth, 5);
    case 10: return i_srl32(fifth, 6);
    case 11: return i_srl32(fifth, 7);
    case 12: return i_srl32(fifth, 8);
    case 13: return i_srl32(fifth, 9);
    case 14: return i_srl32(fifth, 10);
    default: return i_srl32(fifth, 11);
    }
}

/* The codes of a 4- or 5-bit word as pairs; pair i of the word. */
INLINE vec_i nibble_pair(vec_i x, vec_i fifth, int c, int i, int type) {
    vec_i low = i_set1(0x000f000f), pair;
    switch (i) {
    case 0: pair = i_and(x, low); break;
    case 1: pair = i_and(i_srl16(x, 4), low); break;
    case 2: pair = i_and(i_srl16(x, 8), low); break;
    default: pair = i_srl16(x, 12); break;
    }
    if (type_has_fifth(type))
        pair = i_or_and(pair, fifth_bits(fifth, 4 * c + i), i_set1(0x00100010));
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

/* Pair i of words of V, whose nibbles of q4_0 are signed (kv_page.h). */
INLINE vec_i widen_value(vec_i x, vec_i fifth, vec_i table, int c, int i, int type) {
    if (type != TDM_TYPE_Q4_0) return widen(x, fifth, table, c, i, type);
    switch (i) {
    case 0: return i_sra16(i_sll16(x, 12), 12);
    case 1: return i_sra16(i_sll16(x, 8), 12);
    case 2: return i_sra16(i_sll16(x, 4), 12);
    default: return i_sra16(x, 12);
    }
}

/* How many vectors of query codes meet words of K: pairs, or with QUERY_IS_Q8 bytes of four
 * elements. */
INLINE int score_steps(int type) {
    return QUERY_IS_Q8 ? word_pairs(type) / 2 : word_pairs(type);
}

/* Step i of words `x`: of bytes elements 4c .. 4c+3 of the block, of nibbles those for i = 0, and 16
 * further on. The fifth bits of its first and third code are pair 4c + i's, of the others pair
 * 4c + i + 2's (kv_page.c). */
INLINE vec_i score_codes_get(vec_i x, vec_i fifth, vec_i table, int c, int i, int type) {
    if (!QUERY_IS_Q8) return widen(x, fifth, table, c, i, type);
    if (type == TDM_TYPE_Q8_0) return i_xor(x, i_set1((int32_t)0x80808080));
    x = i_and(i == 0 ? x : i_srl16(x, 4), i_set1(0x0f0f0f0f));
    if (type == TDM_TYPE_IQ4_NL) return i_lookup(table, x);
    if (!type_has_fifth(type)) return x;
    x = i_or_and(x, fifth_bits(fifth, 4 * c + i), i_set1(0x00100010));
    return i_or_and(x, fifth_bits(fifth, 4 * c + i + 2 - 8), i_set1(0x10001000));
}

/* Where in a block of a query the four bytes for step i of words c are. */
INLINE size_t score_query_at(int c, int i, int type) {
    return QUERY_IS_Q8 ? (size_t)(4 * c + 16 * i) : 4 * (size_t)(word_pairs(type) * c + i);
}

/* Whether 16-bit sums end behind words c: 16 products of 5-bit codes or 32 of nibbles fit them. */
INLINE bool score_sums_end(int c, int type) {
    return c == 3 || (c == 1 && type_has_fifth(type));
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
    if (QUERY_IS_Q8) table = i_xor(table, i_set1((int32_t)0x80808080));
    UNROLL for (int t = 0; t < n_tile; t++) {
        fifth[t] = i_set1(0);
        UNROLL for (int r = 0; r < n_row; r++) sum[t][r] = f_zero();
    }
    for (int32_t b = 0; b < n_block; b++) {
        const bool is_narrow = QUERY_IS_Q8 && DOT8_IS_NARROW;
        const int n_word = type == TDM_TYPE_Q8_0 ? 8 : 4, n_step = score_steps(type);
        vec_i acc[2][SCORE_ROWS], part[2][SCORE_ROWS];
        UNROLL for (int r = 0; r < n_row; r++) {
            const cpu_query_block *block =
                (const cpu_query_block *)(const void *)(q[r] + codes_size) + b;
            UNROLL for (int t = 0; t < n_tile; t++) {
                acc[t][r] = score_offset(type) != 0 ? i_set1(block->bias) : i_set1(0);
                part[t][r] = i_set1(0);
            }
        }
        if (type_has_fifth(type)) {
            UNROLL for (int t = 0; t < n_tile; t++) fifth[t] = i_load(data + (size_t)t * data_step);
            data += 64;
        }
        UNROLL for (int c = 0; c < n_word; c++) {
            vec_i x[2];
            UNROLL for (int t = 0; t < n_tile; t++) {
                x[t] = i_load(data + (size_t)t * data_step);
                ask_ahead(data + (size_t)t * data_step, ahead);
            }
            data += 64;
            UNROLL for (int i = 0; i < n_step; i++) {
                vec_i codes[2];
                UNROLL for (int t = 0; t < n_tile; t++) codes[t] =
                    score_codes_get(x[t], fifth[t], table, c, i, type);
                UNROLL for (int r = 0; r < n_row; r++) {
                    int32_t code;
                    memcpy(&code, q[r] + QUERY_BLOCK * (size_t)b + score_query_at(c, i, type), 4);
                    UNROLL for (int t = 0; t < n_tile; t++) {
                        if (is_narrow)
                            part[t][r] = i_dot8(part[t][r], codes[t], i_set1(code));
                        else if (QUERY_IS_Q8)
                            acc[t][r] = i_dot8(acc[t][r], codes[t], i_set1(code));
                        else
                            acc[t][r] = i_dot(acc[t][r], codes[t], i_set1(code));
                    }
                }
            }
            if (!is_narrow || !score_sums_end(c, type)) continue;
            UNROLL for (int r = 0; r < n_row; r++) {
                UNROLL for (int t = 0; t < n_tile; t++) {
                    acc[t][r] = i_dot8_add(acc[t][r], part[t][r]);
                    part[t][r] = i_set1(0);
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

/* n_tile runs of LANES tokens, data_step bytes apart. Even and odd elements have sums of their own, so
 * that additions need not wait for each other; how many rows and runs are taken at once does not
 * change the order of a sum. */
INLINE void score_floats(const uint8_t *data, ptrdiff_t ahead, size_t data_step, int32_t n,
                         int n_tile, int n_row, const uint8_t *const *q, float *const *score,
                         int32_t slot, int type) {
    vec_f sum[2][2][SCORE_ROWS];
    size_t step = CPU_KV_TILE * plain_size(type);
    int32_t i = 0;
    UNROLL for (int k = 0; k < 2; k++) {
        UNROLL for (int t = 0; t < n_tile; t++) {
            UNROLL for (int r = 0; r < n_row; r++) sum[k][t][r] = f_zero();
        }
    }
    for (; i + 2 <= n; i += 2) {
        UNROLL for (int k = 0; k < 2; k++, data += step) {
            UNROLL for (int t = 0; t < n_tile; t++) {
                const uint8_t *at = data + (size_t)t * data_step;
                vec_f x = plain_load(at, type);
                if (k % (64 / step > 1 ? 2 : 1) == 0) ask_ahead(at, ahead);
                UNROLL for (int r = 0; r < n_row; r++) sum[k][t][r] =
                    f_fma(x, f_set1(((const float *)(const void *)q[r])[i + k]), sum[k][t][r]);
            }
        }
    }
    if (i < n) {
        UNROLL for (int t = 0; t < n_tile; t++) {
            vec_f x = plain_load(data + (size_t)t * data_step, type);
            UNROLL for (int r = 0; r < n_row; r++) sum[0][t][r] =
                f_fma(x, f_set1(((const float *)(const void *)q[r])[i]), sum[0][t][r]);
        }
    }
    UNROLL for (int t = 0; t < n_tile; t++) {
        UNROLL for (int r = 0; r < n_row; r++)
            f_store(score[r] + slot + t * LANES, f_add(sum[0][t][r], sum[1][t][r]));
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
    bool is_plain = type_is_plain(type);
    size_t lane_size = is_plain ? plain_size(type) : 4; /* of a token in a vector of codes */
    size_t tile_step = is_plain ? side->data_size : side->codes_size;
    size_t data_step = LANES < 16 ? lane_size * LANES : tile_step;
    size_t scale_step = LANES < 16 ? 2 * LANES : side->scale_size;
    size_t block_skip = (size_t)(side->group - 1) * side->codes_size;
    for (int32_t i = first; i < last; i++) {
        int32_t slot = i * LANES, lane = slot % CPU_KV_TILE;
        const uint8_t *data =
            k->data + cpu_kv_codes_off(side, slot / CPU_KV_TILE, 0) + (size_t)lane * lane_size;
        const uint8_t *scale =
            k->scale + (size_t)(slot / CPU_KV_TILE) * side->scale_size + 2 * lane;
        bool is_two = (is_plain ? 4 : 2) * n_row <= SCORE_SUMS && i % 2 == 0 && i + 1 < last;
        if (is_plain && is_two)
            score_floats(data, k->ahead, data_step, side->padded, 2, n_row, q, score, slot, type);
        else if (is_plain)
            score_floats(data, k->ahead, 0, side->padded, 1, n_row, q, score, slot, type);
        else if (is_two)
            score_codes(data, scale, k->ahead, data_step, scale_step, block_skip, side->n_block,
                        codes_size, 2, n_row, q, score, slot, type);
        else
            score_codes(data, scale, k->ahead, 0, 0, block_skip, side->n_block, codes_size, 1,
                        n_row, q, score, slot, type);
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

/* ---- weighted sums --------------------------------------------------------------------------- */

/* 16-bit numbers, two to a word: tokens 2i and 2i + 1. Stored as whole vectors, since what is
 * loaded soon after must not be pieced together from several stores. */
typedef struct chunk16 {
    _Alignas(64) int32_t x[CPU_CHUNK / 2];
} chunk16;

enum { WIDE = 2 * LANES }; /* tokens of a vector of 16-bit numbers */

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

INLINE void add_begin(const cpu_kv_span *v, int n_row, const cpu_attention_rows *rows,
                      add_frame *f) {
    f->tile_first = v->first / CPU_KV_TILE;
    f->tile_last = (v->last + CPU_KV_TILE - 1) / CPU_KV_TILE;
    UNROLL for (int i = 0; i < CPU_CHUNK; i += WIDE) {
        UNROLL for (int r = 0; r < n_row; r++) {
            vec_i w[2];
            UNROLL for (int h = 0; h < 2; h++) {
                int tile = (i + h * LANES) / CPU_KV_TILE;
                w[h] = i_set1(0);
                if (tile >= f->tile_first && tile < f->tile_last)
                    w[h] = f_to_i(f_mul(f_load(rows->p[r] + i + h * LANES), f_set1(32767)));
            }
            i_store(f->p16[r].x + i / 2, i_pack(w[0], w[1]));
        }
    }
}

/* Weights of block b, as the frame's block `at`. */
INLINE void add_weights(const cpu_kv_span *v, add_frame *f, int32_t b, int32_t at, int n_row,
                        const cpu_attention_rows *rows, int type) {
    const cpu_kv_side *side = v->side;
    const int n_scale = type_has_min(type) ? 2 : 1;
    int32_t first = f->tile_first * CPU_KV_TILE, last = f->tile_last * CPU_KV_TILE;
    bool is_whole = v->first <= first && v->last >= last;
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
        d[i / LANES] = f_from_f16(scale);
        if (!is_whole) d[i / LANES] = f_keep(d[i / LANES], v->first, v->last, i);
        peak = f_max_abs(d[i / LANES], peak);
        if (!type_has_min(type)) continue;
        vec_f m = f_from_f16(scale + 2 * CPU_KV_TILE);
        if (!is_whole) m = f_keep(m, v->first, v->last, i);
        m = f_fma(d[i / LANES], f_set1((float)code_middle(type)), m);
        UNROLL for (int r = 0; r < n_row; r++) p_m[r] = f_fma(f_load(rows->p[r] + i), m, p_m[r]);
    }
    float d_max = f_peak(peak), inverse = d_max > 0 ? 32767 / d_max : 0;
    UNROLL for (int i = 0; i < CPU_CHUNK; i += WIDE) {
        vec_f factor = f_set1(inverse);
        vec_i scaled =
            i_pack(f_to_i(f_mul(d[i / LANES], factor)), f_to_i(f_mul(d[i / LANES + 1], factor)));
        UNROLL for (int r = 0; r < n_row; r++) {
            vec_i w = i_mul15(i_load(f->p16[r].x + i / 2), scaled);
            i_store(f->weight[at][r].x + i / 2, w);
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
                      int n_row, const cpu_attention_rows *rows, int type) {
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
                    vec_i pair = widen_value(x, fifth, table, quad, i, type);
                    UNROLL for (int r = 0; r < n_row; r++) acc[r][half] =
                        i_dot(acc[r][half], pair, i_set1(f->weight[at][r].x[word]));
                }
            }
            data += quad_size;
        }
    }
    UNROLL for (int r = 0; r < n_row; r++) {
        vec_f factor = f_set1(rows->gain[r] * f->step[at]), old = f_set1(rows->keep[r]),
              base = f_zero();
        vec_i offset = i_set1(0);
        if (code_middle(type) != 0) offset = i_set1(-code_middle(type) * f->w_sum[at][r]);
        if (type_has_min(type)) base = f_set1(rows->gain[r] * f->p_m[at][r]);
        UNROLL for (int h = 0; h < 2; h++) {
            int first = is_bytes ? (2 * pass + h) * LANES : pass * LANES + 16 * h;
            float *out = rows->o[r] + 32 * (size_t)b + first;
            vec_f sum = i_to_f(i_add(acc[r][h], offset));
            f_store(out, f_fma(f_load(out), old, f_fma(sum, factor, base)));
        }
    }
}

/* acc += p x. */
INLINE void add_slot(const cpu_attention_rows *rows, int n_row, int32_t slot, const vec_f *x,
                     int n_vec, vec_f (*acc)[4]) {
    UNROLL for (int r = 0; r < n_row; r++) {
        vec_f w = f_set1(rows->p[r][slot]);
        UNROLL for (int i = 0; i < n_vec; i++) acc[r][i] = f_fma(x[i], w, acc[r][i]);
    }
}

/* o = keep o + gain acc, for n_vec vectors of elements from `first` on. */
INLINE void add_finish(const cpu_attention_rows *rows, int n_row, int32_t first, int n_vec,
                       vec_f (*acc)[4]) {
    UNROLL for (int r = 0; r < n_row; r++) {
        UNROLL for (int i = 0; i < n_vec; i++) {
            float *out = rows->o[r] + first + i * LANES;
            vec_f sum = f_mul(acc[r][i], f_set1(rows->gain[r]));
            f_store(out, f_fma(f_load(out), f_set1(rows->keep[r]), sum));
        }
    }
}

/* n_vec vectors of elements from `first` on. */
INLINE void add_floats(const cpu_kv_span *v, int32_t first, int n_vec, int n_row,
                       const cpu_attention_rows *rows, int type) {
    vec_f acc[ADD_ROWS][4];
    size_t step = (size_t)v->side->stride * plain_size(type);
    const uint8_t *at = v->data + (size_t)first * plain_size(type) + (size_t)v->first * step;
    UNROLL for (int r = 0; r < n_row; r++) {
        UNROLL for (int i = 0; i < n_vec; i++) acc[r][i] = f_zero();
    }
    for (int32_t slot = v->first; slot < v->last; slot++, at += step) {
        vec_f x[4];
        UNROLL for (int i = 0; i < n_vec; i++) {
            const uint8_t *part = at + (size_t)(i * LANES) * plain_size(type);
            x[i] = plain_load(part, type);
            if (i * LANES * (int)plain_size(type) % 64 == 0) ask_ahead(part, v->ahead);
        }
        add_slot(rows, n_row, slot, x, n_vec, acc);
    }
    add_finish(rows, n_row, first, n_vec, acc);
}

INLINE void add_group(const cpu_kv_span *v, int32_t n_dim, int n_row,
                      const cpu_attention_rows *rows, int type) {
    if (!type_is_plain(type)) {
        add_frame f;
        add_begin(v, n_row, rows, &f);
        for (int32_t b = 0; b < n_dim / 32; b += ADD_BLOCKS) {
            int32_t n = n_dim / 32 - b < ADD_BLOCKS ? n_dim / 32 - b : ADD_BLOCKS;
            for (int32_t i = 0; i < n; i++) add_weights(v, &f, b + i, i, n_row, rows, type);
            for (int32_t i = 0; i < n; i++) {
                UNROLL for (int pass = 0; pass < HALVES / 2; pass++)
                    add_codes(v, &f, b + i, i, pass, n_row, rows, type);
            }
        }
        return;
    }
    const int n_vec = 4 * n_row <= ADD_SUMS ? 4 : 2;
    int32_t at = 0;
    for (; at + n_vec * LANES <= n_dim; at += n_vec * LANES)
        add_floats(v, at, n_vec, n_row, rows, type);
    for (; at < n_dim; at += 16) add_floats(v, at, 16 / LANES, n_row, rows, type);
}

/* The rows behind the first n. */
INLINE void rows_skip(cpu_attention_rows *rows, int n) {
    rows->n -= n;
    rows->p += n, rows->o += n, rows->keep += n, rows->gain += n;
}

INLINE void add_rows(const cpu_kv_span *v, int32_t n_dim, const cpu_attention_rows *all, int type) {
    cpu_attention_rows rows = *all;
    for (; rows.n >= ADD_ROWS; rows_skip(&rows, ADD_ROWS))
        add_group(v, n_dim, ADD_ROWS, &rows, type);
    if (ADD_ROWS > 4 && rows.n >= 4) {
        add_group(v, n_dim, 4, &rows, type);
        rows_skip(&rows, 4);
    }
    if (ADD_ROWS > 2 && rows.n >= 2) {
        add_group(v, n_dim, 2, &rows, type);
        rows_skip(&rows, 2);
    }
    if (rows.n >= 1) add_group(v, n_dim, 1, &rows, type);
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
    static void add_##name(const cpu_kv_span *v, int32_t n_dim, const cpu_attention_rows *rows) {  \
        add_rows(v, n_dim, rows, type);                                                            \
    }
#define FOR_EACH_PLAIN(KERNEL)                                                                     \
    KERNEL(f32, TDM_TYPE_F32)                                                                      \
    KERNEL(f16, TDM_TYPE_F16)                                                                      \
    KERNEL(bf16, TDM_TYPE_BF16)
#define FOR_EACH_UNSIGNED(KERNEL)                                                                  \
    KERNEL(q5_1, TDM_TYPE_Q5_1)                                                                    \
    KERNEL(q5_0, TDM_TYPE_Q5_0)                                                                    \
    KERNEL(q4_1, TDM_TYPE_Q4_1)                                                                    \
    KERNEL(q4_0, TDM_TYPE_Q4_0)
#define FOR_EACH_QUANTIZED(KERNEL)                                                                 \
    KERNEL(q8_0, TDM_TYPE_Q8_0)                                                                    \
    FOR_EACH_UNSIGNED(KERNEL)                                                                      \
    KERNEL(iq4_nl, TDM_TYPE_IQ4_NL)

/* Codes of 8 bits overflow 16-bit sums; the other kernels would be as many steps as 15 bits take. */
#if QUERY_IS_Q8 && DOT8_IS_NARROW
#define FOR_EACH_SCORED(KERNEL) FOR_EACH_UNSIGNED(KERNEL)
#else
#define FOR_EACH_SCORED(KERNEL) FOR_EACH_QUANTIZED(KERNEL)
#endif

FOR_EACH_SCORED(SCORE_KERNEL)
FOR_EACH_SCORED(QUERY_KERNEL)
#if !QUERY_IS_Q8
FOR_EACH_PLAIN(SCORE_KERNEL)
FOR_EACH_PLAIN(ADD_KERNEL)
FOR_EACH_QUANTIZED(ADD_KERNEL)
#endif

#endif
