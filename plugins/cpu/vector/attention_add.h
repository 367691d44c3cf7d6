/* SPDX-License-Identifier: MIT
 *
 * vector/attention_add.h: attention's weighted sums of V.
 *
 * Integer arithmetic is exact: weights have 15 bits and a sign, codes at most 8 bits, a chunk 64
 * tokens, so that no sum reaches 2^31. Weights keep 15 bits with any value of activation-bits:
 * rounded to fewer, many small weights beside a large one would be lost together.
 */
#ifndef TANDEM_CPU_VECTOR_ATTENTION_ADD_H
#define TANDEM_CPU_VECTOR_ATTENTION_ADD_H

#include "plugins/cpu/vector/attention_codes.h"

/* 16-bit numbers, two to a word: tokens 2i and 2i + 1. Stored as whole vectors: a load that needs
 * the bytes of several recent stores would wait for them. */
typedef struct chunk16 {
    _Alignas(64) int32_t x[CPU_CHUNK / 2];
} chunk16;

enum { WIDE = 2 * N_LANE }; /* tokens of a vector of 16-bit numbers */

/* The intermediate results for a group of rows: the weights p as 16-bit numbers, and the tiles that
 * count; then what add_codes needs, for a few blocks at once, so that no block waits for another
 * one's maximum. */
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
            ints w[2];
            UNROLL for (int h = 0; h < 2; h++) {
                int tile = (i + h * N_LANE) / CPU_KV_TILE;
                w[h] = ints_set(0);
                if (tile >= f->tile_first && tile < f->tile_last)
                    w[h] = ints_from_lanes(
                        lanes_mul(lanes_load(rows->p[r] + i + h * N_LANE), lanes_set(32767)));
            }
            ints_store(f->p16[r].x + i / 2, ints_pack(w[0], w[1]));
        }
    }
}

/* Computes the weights of block b, as block `at` of the frame. */
INLINE void add_weights(const cpu_kv_span *v, add_frame *f, int32_t b, int32_t at, int n_row,
                        const cpu_attention_rows *rows, int type) {
    const cpu_kv_side *side = v->side;
    const int n_scale = type_has_min(type) ? 2 : 1;
    int32_t first = f->tile_first * CPU_KV_TILE, last = f->tile_last * CPU_KV_TILE;
    bool is_whole = v->first <= first && v->last >= last;
    lanes d[CPU_CHUNK / N_LANE], peak = lanes_zero(), p_m[ADD_ROWS];
    ints w_sum[ADD_ROWS];
    UNROLL for (int r = 0; r < n_row; r++) {
        p_m[r] = lanes_zero();
        w_sum[r] = ints_set(0);
    }
    UNROLL for (int i = 0; i < CPU_CHUNK; i += N_LANE) {
        d[i / N_LANE] = lanes_zero();
        if (i < first || i >= last) continue;
        const uint8_t *scale = v->scale + (size_t)(i / CPU_KV_TILE) * side->scale_size +
                               (size_t)(b * n_scale * CPU_KV_TILE + i % CPU_KV_TILE) * 2;
        d[i / N_LANE] = lanes_from_f16(scale);
        if (!is_whole) d[i / N_LANE] = lanes_keep(d[i / N_LANE], v->first, v->last, i);
        peak = lanes_max(lanes_abs(d[i / N_LANE]), peak);
        if (!type_has_min(type)) continue;
        lanes m = lanes_from_f16(scale + 2 * CPU_KV_TILE);
        if (!is_whole) m = lanes_keep(m, v->first, v->last, i);
        m = lanes_fma(d[i / N_LANE], lanes_set((float)code_middle(type)), m);
        UNROLL for (int r = 0; r < n_row; r++) p_m[r] =
            lanes_fma(lanes_load(rows->p[r] + i), m, p_m[r]);
    }
    float d_max = lanes_max_of(peak), inverse = d_max > 0 ? 32767 / d_max : 0;
    UNROLL for (int i = 0; i < CPU_CHUNK; i += WIDE) {
        lanes factor = lanes_set(inverse);
        ints scaled = ints_pack(ints_from_lanes(lanes_mul(d[i / N_LANE], factor)),
                                ints_from_lanes(lanes_mul(d[i / N_LANE + 1], factor)));
        UNROLL for (int r = 0; r < n_row; r++) {
            ints w = ints_mul15(ints_load(f->p16[r].x + i / 2), scaled);
            ints_store(f->weight[at][r].x + i / 2, w);
            if (code_middle(type) != 0) w_sum[r] = ints_dot16(w_sum[r], w, ints_set(0x00010001));
        }
    }
    /* p and d have 32767 steps each, and their product was divided by 32768. */
    f->step[at] = d_max * (32768.0f / 32767 / 32767);
    UNROLL for (int r = 0; r < n_row; r++) {
        if (code_middle(type) != 0) f->w_sum[at][r] = ints_sum(w_sum[r]);
        if (type_has_min(type)) f->p_m[at][r] = lanes_sum(p_m[r]);
    }
}

/* Adds two vectors of block b, which has 32 elements: of nibbles those at pass * N_LANE and 16
 * further on, which share bytes; of bytes the pass-th pair. With mid the middle of the codes (their
 * offset, where the type has one),
 *   sum_t p_t (d_t c_t + m_t) = d_max (sum w c - mid sum w) + sum p (m + mid d). */
INLINE void add_codes(const cpu_kv_span *v, const add_frame *f, int32_t b, int32_t at, int pass,
                      int n_row, const cpu_attention_rows *rows, int type) {
    const bool is_bytes = type == TDM_TYPE_Q8_0;
    const int n_pair = word_pairs(type), n_part = is_bytes ? 2 : 1;
    const size_t quad_size = is_bytes ? 128 : 64;
    ints table = bytes_table(code_values), fifth = ints_set(0), acc[ADD_ROWS][2];
    UNROLL for (int r = 0; r < n_row; r++) acc[r][0] = acc[r][1] = ints_set(0);
    for (int32_t tile = f->tile_first; tile < f->tile_last; tile++) {
        const uint8_t *data = v->data + cpu_kv_codes_off(v->side, tile, b);
        if (type_has_fifth(type)) {
            fifth = ints_load(data + 4 * N_LANE * pass);
            data += 64;
        }
        UNROLL for (int quad = 0; quad < 4; quad++) {
            UNROLL for (int part = 0; part < n_part; part++) {
                ints x = ints_load(data + 4 * N_LANE * (n_part * pass + part));
                if (pass % (16 / N_LANE) == 0) prefetch_ahead(data + 64 * part, v->ahead);
                UNROLL for (int i = 0; i < n_pair; i++) {
                    /* The last half of the pairs are tokens 2 and 3 of the quad. */
                    int half = is_bytes ? part : i % 2;
                    int word = tile * (CPU_KV_TILE / 2) + 2 * quad + 2 * i / n_pair;
                    ints pair = widen_value(x, fifth, table, quad, i, type);
                    UNROLL for (int r = 0; r < n_row; r++) acc[r][half] =
                        ints_dot16(acc[r][half], pair, ints_set(f->weight[at][r].x[word]));
                }
            }
            data += quad_size;
        }
    }
    UNROLL for (int r = 0; r < n_row; r++) {
        lanes factor = lanes_set(rows->gain[r] * f->step[at]), old = lanes_set(rows->keep[r]),
              base = lanes_zero();
        ints offset = ints_set(0);
        if (code_middle(type) != 0) offset = ints_set(-code_middle(type) * f->w_sum[at][r]);
        if (type_has_min(type)) base = lanes_set(rows->gain[r] * f->p_m[at][r]);
        UNROLL for (int h = 0; h < 2; h++) {
            int first = is_bytes ? (2 * pass + h) * N_LANE : pass * N_LANE + 16 * h;
            float *out = rows->o[r] + 32 * (size_t)b + first;
            lanes sum = lanes_from_ints(ints_add(acc[r][h], offset));
            lanes_store(out, lanes_fma(lanes_load(out), old, lanes_fma(sum, factor, base)));
        }
    }
}

/* acc += p x. */
INLINE void add_slot(const cpu_attention_rows *rows, int n_row, int32_t slot, const lanes *x,
                     int n_vec, lanes (*acc)[4]) {
    UNROLL for (int r = 0; r < n_row; r++) {
        lanes w = lanes_set(rows->p[r][slot]);
        UNROLL for (int i = 0; i < n_vec; i++) acc[r][i] = lanes_fma(x[i], w, acc[r][i]);
    }
}

/* o = keep o + gain acc, for n_vec vectors of elements from `first` on. */
INLINE void add_finish(const cpu_attention_rows *rows, int n_row, int32_t first, int n_vec,
                       lanes (*acc)[4]) {
    UNROLL for (int r = 0; r < n_row; r++) {
        UNROLL for (int i = 0; i < n_vec; i++) {
            float *out = rows->o[r] + first + i * N_LANE;
            lanes sum = lanes_mul(acc[r][i], lanes_set(rows->gain[r]));
            lanes_store(out, lanes_fma(lanes_load(out), lanes_set(rows->keep[r]), sum));
        }
    }
}

/* Adds n_vec vectors of elements of a plain type, from `first` on. */
INLINE void add_floats(const cpu_kv_span *v, int32_t first, int n_vec, int n_row,
                       const cpu_attention_rows *rows, int type) {
    lanes acc[ADD_ROWS][4];
    size_t step = (size_t)v->side->stride * plain_size(type);
    const uint8_t *at = v->data + (size_t)first * plain_size(type) + (size_t)v->first * step;
    UNROLL for (int r = 0; r < n_row; r++) {
        UNROLL for (int i = 0; i < n_vec; i++) acc[r][i] = lanes_zero();
    }
    for (int32_t slot = v->first; slot < v->last; slot++, at += step) {
        lanes x[4];
        UNROLL for (int i = 0; i < n_vec; i++) {
            const uint8_t *part = at + (size_t)(i * N_LANE) * plain_size(type);
            x[i] = plain_load(part, type);
            if (i * N_LANE * (int)plain_size(type) % 64 == 0) prefetch_ahead(part, v->ahead);
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
    for (; at + n_vec * N_LANE <= n_dim; at += n_vec * N_LANE)
        add_floats(v, at, n_vec, n_row, rows, type);
    for (; at < n_dim; at += 16) add_floats(v, at, 16 / N_LANE, n_row, rows, type);
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

#endif
