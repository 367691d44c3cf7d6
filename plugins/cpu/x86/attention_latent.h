/* SPDX-License-Identifier: MIT
 *
 * x86/attention_latent.h: attention's weighted sums where V is the first part of K: from K's
 * arrangement, in which a vector lane belongs to a token. Included behind attention_vector.h, whose
 * words it is written in; besides them
 *
 *   i_sra32(x, n)   shift of 32-bit lanes that keeps the sign
 *   f_transpose(x)  LANES vectors: element j of vector i changes places with element i of vector j
 *
 * Many query rows share the one row that is cached of a token, so a few elements of a chunk's
 * tokens are widened to floats and turned round once, on the stack, and then taken by all rows.
 * Products and sums are in f32.
 */
#ifndef TANDEM_CPU_X86_ATTENTION_LATENT_H
#define TANDEM_CPU_X86_ATTENTION_LATENT_H

#include "plugins/cpu/x86/attention_vector.h"

/* Elements of all tokens of a chunk: a block of codes. */
enum { LATENT_LEN = CPU_KV_BLOCK };
typedef struct latent_part {
    _Alignas(64) float x[CPU_CHUNK][LATENT_LEN];
} latent_part;

/* Vectors of LANES tokens from `slot` on, one for each element, into the part: tokens that do not
 * count become 0, whatever their bytes say. */
INLINE void latent_turn(const cpu_kv_span *v, int32_t slot, int n, vec_f *x, latent_part *part) {
    bool is_whole = v->first <= slot && v->last >= slot + LANES;
    for (int k = 0; k < n; k += LANES) {
        if (!is_whole) {
            UNROLL for (int i = 0; i < LANES; i++) x[k + i] =
                f_keep(x[k + i], v->first, v->last, slot);
        }
        f_transpose(x + k);
        UNROLL for (int i = 0; i < LANES; i++) f_store(part->x[slot + i] + k, x[k + i]);
    }
}

/* n elements from `first` on, a multiple of LANES; those behind the stored ones are 0. */
INLINE void latent_floats(const cpu_kv_span *v, int32_t first, int n, latent_part *part, int type) {
    const size_t size = plain_size(type);
    int32_t begin = v->first / LANES * LANES, left = v->side->padded - first;
    for (int32_t slot = begin; slot < v->last; slot += LANES) {
        vec_f x[LATENT_LEN];
        const uint8_t *data = v->data + cpu_kv_codes_off(v->side, slot / CPU_KV_TILE, 0) +
                              (size_t)(first * CPU_KV_TILE + slot % CPU_KV_TILE) * size;
        for (int i = 0; i < n; i++)
            x[i] = i < left ? plain_load(data + (size_t)(i * CPU_KV_TILE) * size, type) : f_zero();
        latent_turn(v, slot, n, x, part);
    }
}

/* x = d (code - offset) + m, of the two halves of a pair. */
INLINE void latent_pair(vec_i pair, vec_f d, vec_f base, vec_f *low, vec_f *high) {
    *low = f_fma(i_to_f(i_sra32(i_sll32(pair, 16), 16)), d, base);
    *high = f_fma(i_to_f(i_sra32(pair, 16)), d, base);
}

/* Block b. */
INLINE void latent_codes(const cpu_kv_span *v, int32_t b, latent_part *part, int type) {
    const cpu_kv_side *side = v->side;
    const int n_word = type == TDM_TYPE_Q8_0 ? 8 : 4, n_pair = word_pairs(type);
    const int n_scale = type_has_min(type) ? 2 : 1;
    vec_i table = i_table(code_values), fifth = i_set1(0);
    int32_t begin = v->first / LANES * LANES;
    for (int32_t slot = begin; slot < v->last; slot += LANES) {
        vec_f x[LATENT_LEN];
        int32_t tile = slot / CPU_KV_TILE, lane = slot % CPU_KV_TILE;
        const uint8_t *data = v->data + cpu_kv_codes_off(side, tile, b) + 4 * lane;
        const uint8_t *scale = v->scale + (size_t)tile * side->scale_size +
                               (size_t)(b * n_scale * CPU_KV_TILE + lane) * 2;
        vec_f d = f_from_f16(scale), base = f_mul(d, f_set1(-(float)code_offset(type)));
        if (type_has_min(type)) base = f_from_f16(scale + 2 * CPU_KV_TILE);
        if (type_has_fifth(type)) {
            fifth = i_load(data);
            data += 64;
        }
        UNROLL for (int c = 0; c < n_word; c++, data += 64) {
            vec_i word = i_load(data);
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
    vec_f acc[ADD_ROWS][4];
    UNROLL for (int r = 0; r < n_row; r++) {
        UNROLL for (int i = 0; i < n_vec; i++) acc[r][i] = f_zero();
    }
    for (int32_t slot = v->first; slot < v->last; slot++) {
        vec_f x[2];
        UNROLL for (int i = 0; i < n_vec; i++) x[i] = f_load(part->x[slot] + at + i * LANES);
        add_slot(rows, n_row, slot, x, n_vec, acc);
    }
    add_finish(rows, n_row, first + at, n_vec, acc);
}

INLINE void latent_group(const cpu_kv_span *v, const latent_part *part, int32_t first, int32_t n,
                         int n_row, const cpu_attention_rows *rows) {
    int32_t at = 0;
    for (; at + 2 * LANES <= n; at += 2 * LANES) latent_add(v, part, first, at, 2, n_row, rows);
    for (; at < n; at += LANES) latent_add(v, part, first, at, 1, n_row, rows);
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

#define LATENT_KERNEL(name, type)                                                                  \
    static void latent_##name(const cpu_kv_span *v, int32_t n_dim,                                 \
                              const cpu_attention_rows *rows) {                                    \
        latent_rows(v, n_dim, rows, type);                                                         \
    }
FOR_EACH_PLAIN(LATENT_KERNEL)
FOR_EACH_QUANTIZED(LATENT_KERNEL)

#endif
