/* SPDX-License-Identifier: MIT
 *
 * vector/attention_latent.h: attention's weighted sums where V is the first part of K: from K's
 * tiles, in which a vector lane belongs to a token.
 *
 * Only one row is cached of a token, which many query rows share. So a few elements of all tokens
 * of a chunk are widened to floats and transposed once, on the stack, and then used for all rows.
 * Products and sums are in f32.
 */
#ifndef TANDEM_CPU_VECTOR_ATTENTION_LATENT_H
#define TANDEM_CPU_VECTOR_ATTENTION_LATENT_H

#include "plugins/cpu/vector/attention_add.h"

/* Elements of all tokens of a chunk: a block of codes. */
enum { LATENT_LEN = CPU_KV_BLOCK };
typedef struct latent_part {
    _Alignas(64) float x[CPU_CHUNK][LATENT_LEN];
} latent_part;

/* Transposes n vectors of N_LANE tokens from `slot` on, one for each element, into the part. Tokens
 * outside the span become 0, whatever their bytes are. */
INLINE void latent_turn(const cpu_kv_span *v, int32_t slot, int n, lanes *x, latent_part *part) {
    bool is_whole = v->first <= slot && v->last >= slot + N_LANE;
    for (int k = 0; k < n; k += N_LANE) {
        if (!is_whole) {
            UNROLL for (int i = 0; i < N_LANE; i++) x[k + i] =
                lanes_keep(x[k + i], v->first, v->last, slot);
        }
        lanes_transpose(x + k);
        UNROLL for (int i = 0; i < N_LANE; i++) lanes_store(part->x[slot + i] + k, x[k + i]);
    }
}

/* Fills the part with n elements (a multiple of N_LANE) from `first` on; those behind the stored
 * ones are 0. */
INLINE void latent_floats(const cpu_kv_span *v, int32_t first, int n, latent_part *part, int type) {
    const size_t size = plain_size(type);
    int32_t begin = v->first / N_LANE * N_LANE, left = v->side->padded - first;
    for (int32_t slot = begin; slot < v->last; slot += N_LANE) {
        lanes x[LATENT_LEN];
        const uint8_t *data = v->data + cpu_kv_codes_off(v->side, slot / CPU_KV_TILE, 0) +
                              (size_t)(first * CPU_KV_TILE + slot % CPU_KV_TILE) * size;
        for (int i = 0; i < n; i++)
            x[i] =
                i < left ? plain_load(data + (size_t)(i * CPU_KV_TILE) * size, type) : lanes_zero();
        latent_turn(v, slot, n, x, part);
    }
}

/* x = d (code - offset) + m, of the two halves of a pair. */
INLINE void latent_pair(ints pair, lanes d, lanes base, lanes *low, lanes *high) {
    *low = lanes_fma(lanes_from_ints(ints_sra32(ints_sll32(pair, 16), 16)), d, base);
    *high = lanes_fma(lanes_from_ints(ints_sra32(pair, 16)), d, base);
}

/* Fills the part with block b. */
INLINE void latent_codes(const cpu_kv_span *v, int32_t b, latent_part *part, int type) {
    const cpu_kv_side *side = v->side;
    const int n_word = type == TDM_TYPE_Q8_0 ? 8 : 4, n_pair = word_pairs(type);
    const int n_scale = type_has_min(type) ? 2 : 1;
    ints table = bytes_table(code_values), fifth = ints_set(0);
    int32_t begin = v->first / N_LANE * N_LANE;
    for (int32_t slot = begin; slot < v->last; slot += N_LANE) {
        lanes x[LATENT_LEN];
        int32_t tile = slot / CPU_KV_TILE, lane = slot % CPU_KV_TILE;
        const uint8_t *data = v->data + cpu_kv_codes_off(side, tile, b) + 4 * lane;
        const uint8_t *scale = v->scale + (size_t)tile * side->scale_size +
                               (size_t)(b * n_scale * CPU_KV_TILE + lane) * 2;
        lanes d = lanes_from_f16(scale), base = lanes_mul(d, lanes_set(-(float)code_offset(type)));
        if (type_has_min(type)) base = lanes_from_f16(scale + 2 * CPU_KV_TILE);
        if (type_has_fifth(type)) {
            fifth = ints_load(data);
            data += 64;
        }
        UNROLL for (int c = 0; c < n_word; c++, data += 64) {
            ints word = ints_load(data);
            UNROLL for (int i = 0; i < n_pair; i++) {
                /* Which elements pairs hold: query_codes. */
                int at = n_pair == 2 ? 4 * c + i : 4 * c + i / 2 + 16 * (i % 2);
                latent_pair(widen(word, fifth, table, c, i, type), d, base, &x[at], &x[at + 2]);
            }
        }
        latent_turn(v, slot, LATENT_LEN, x, part);
    }
}

/* o = keep o + gain sum p x over n_vec vectors of elements from `at` on in the part, which are o's
 * from `first` + `at` on. */
INLINE void latent_add(const cpu_kv_span *v, const latent_part *part, int32_t first, int at,
                       int n_vec, int n_row, const cpu_attention_rows *rows) {
    lanes acc[ADD_ROWS][4];
    UNROLL for (int r = 0; r < n_row; r++) {
        UNROLL for (int i = 0; i < n_vec; i++) acc[r][i] = lanes_zero();
    }
    for (int32_t slot = v->first; slot < v->last; slot++) {
        lanes x[2];
        UNROLL for (int i = 0; i < n_vec; i++) x[i] = lanes_load(part->x[slot] + at + i * N_LANE);
        add_slot(rows, n_row, slot, x, n_vec, acc);
    }
    add_finish(rows, n_row, first + at, n_vec, acc);
}

INLINE void latent_group(const cpu_kv_span *v, const latent_part *part, int32_t first, int32_t n,
                         int n_row, const cpu_attention_rows *rows) {
    int32_t at = 0;
    for (; at + 2 * N_LANE <= n; at += 2 * N_LANE) latent_add(v, part, first, at, 2, n_row, rows);
    for (; at < n; at += N_LANE) latent_add(v, part, first, at, 1, n_row, rows);
}

INLINE void latent_rows(const cpu_kv_span *v, int32_t n_dim, const cpu_attention_rows *all,
                        int type) {
    latent_part part;
    for (int32_t first = 0; first < n_dim; first += LATENT_LEN) {
        int32_t n = n_dim - first < LATENT_LEN ? n_dim - first : LATENT_LEN;
        cpu_attention_rows rows = *all;
        if (!type_is_plain(type))
            latent_codes(v, first / LATENT_LEN, &part, type);
        else if (n == LATENT_LEN)
            latent_floats(v, first, LATENT_LEN, &part, type);
        else
            latent_floats(v, first, 16, &part, type);
        for (; rows.n >= ADD_ROWS; rows_skip(&rows, ADD_ROWS))
            latent_group(v, &part, first, n, ADD_ROWS, &rows);
        if (ADD_ROWS > 4 && rows.n >= 4) {
            latent_group(v, &part, first, n, 4, &rows);
            rows_skip(&rows, 4);
        }
        for (; rows.n > 0; rows_skip(&rows, 1)) latent_group(v, &part, first, n, 1, &rows);
    }
}

#endif
