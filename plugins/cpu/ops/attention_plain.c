/* SPDX-License-Identifier: MIT
 *
 * attention_plain.c: attention's inner loops in plain C, for every type at once: rows are loaded
 * from the page, dequantised by quant/convert.h, and used as floats. Also the tables from which a
 * device chooses the fastest kernels that it may use.
 */
#include <math.h>
#include <string.h>

#include "quant/convert.h"
#include "plugins/cpu/ops/attention_kernel.h"
#include "plugins/cpu/kv/hadamard.h"

/* Heads longer than this are taken in pieces, so that a row fits the stack. A multiple of 32. */
enum { PIECE = 256 };

/* Elements first .. first+n-1 (whole blocks) of the row in `slot` of a span. */
static void load_piece(const cpu_kv_span *span, int32_t slot, int32_t first, int32_t n, float *x) {
    const cpu_kv_side *side = span->side;
    cpu_kv_side piece = *side; /* the region begins with the span's tiles */
    _Alignas(float) uint8_t row[PIECE * sizeof(float)];
    int32_t unit = side->n_block > 0 ? CPU_KV_BLOCK : 1;
    piece.data_off = 0;
    piece.scale_off = side->n_block > 0 ? (size_t)(span->scale - span->data) : 0;
    cpu_kv_load(&piece, span->data, slot, row, first / unit, n / unit);
    tdm_row_codec_get(side->type).dequantize(row, x, n);
}

void cpu_score_plain(const cpu_kv_span *k, int32_t n_row, const uint8_t *const *q,
                     float *const *score) {
    float x[PIECE];
    int32_t padded = k->side->padded;
    for (int32_t slot = k->first; slot < k->last; slot++) {
        for (int32_t at = 0; at < padded; at += PIECE) {
            int32_t n = padded - at < PIECE ? padded - at : PIECE;
            load_piece(k, slot, at, n, x);
            for (int32_t r = 0; r < n_row; r++) {
                const float *row = (const float *)(const void *)q[r] + at;
                float sum = 0;
                for (int32_t i = 0; i < n; i++) sum += row[i] * x[i];
                score[r][slot] = (at == 0 ? 0 : score[r][slot]) + sum;
            }
        }
    }
}

void cpu_add_plain(const cpu_kv_span *v, int32_t n_dim, const cpu_attention_rows *rows) {
    float x[PIECE];
    int32_t stored = n_dim < v->side->padded ? n_dim : v->side->padded;
    for (int32_t r = 0; r < rows->n; r++)
        for (int32_t i = 0; i < n_dim; i++) rows->o[r][i] *= rows->keep[r];
    for (int32_t slot = v->first; slot < v->last; slot++) {
        for (int32_t at = 0; at < stored; at += PIECE) {
            int32_t n = stored - at < PIECE ? stored - at : PIECE;
            load_piece(v, slot, at, n, x);
            for (int32_t r = 0; r < rows->n; r++) {
                float weight = rows->p[r][slot] * rows->gain[r];
                for (int32_t i = 0; i < n; i++) rows->o[r][at + i] += weight * x[i];
            }
        }
    }
}

static void softmax_row(float *score, int32_t begin, int32_t end, int32_t first, int32_t last,
                        float softcap, float *m_out, float *l_out) {
    float m = -INFINITY, l = 0;
    for (int32_t i = first; i < last; i++) {
        if (softcap > 0) score[i] = softcap * tanhf(score[i] / softcap);
        if (score[i] > m) m = score[i];
    }
    for (int32_t i = begin; i < end; i++) {
        bool is_inside = i >= first && i < last;
        if (is_inside && m != -INFINITY)
            score[i] = expf(score[i] - m);
        else if (!is_inside || !isnan(score[i]))
            score[i] = 0;
        l += score[i];
    }
    *m_out = m;
    *l_out = l;
}

void cpu_attention_softmax_plain(const cpu_softmax_rows *rows, int32_t begin, int32_t end,
                                 float softcap) {
    for (int32_t r = 0; r < rows->n; r++) {
        float m = rows->m[r], m_new, l_new;
        softmax_row(rows->score[r], begin, end, rows->first[r], rows->last[r], softcap, &m_new,
                    &l_new);
        float max = m_new > m ? m_new : m;
        rows->keep[r] = m == -INFINITY ? 0 : expf(m - max);
        rows->gain[r] = m_new == -INFINITY ? 0 : expf(m_new - max);
        rows->l[r] = rows->l[r] * rows->keep[r] + l_new * (isnan(l_new) ? 1 : rows->gain[r]);
        rows->m[r] = max;
    }
}

/* ---- choice ----------------------------------------------------------------------------------
 * The first row that fits wins. */

#define ROWS_(rows) rows, sizeof(rows) / sizeof *(rows) /* a table and how many rows it has */

static const cpu_score_row score_plain[1] = {{0, -1, cpu_score_plain, NULL, "score_plain"}};

static const struct {
    const cpu_score_row *rows;
    size_t n;
    bool is_q8;
} score_tables[] = {
#if defined(__x86_64__)
    {ROWS_(cpu_score_q8_avx512), true}, {ROWS_(cpu_score_avx512), false},
    {ROWS_(cpu_score_q8_avx2), true},   {ROWS_(cpu_score_avx2), false},
#elif defined(__aarch64__)
    {ROWS_(cpu_score_q8_neon), true},
    {ROWS_(cpu_score_neon), false},
#endif
    {ROWS_(score_plain), false},
};

static const cpu_add_row add_plain[2] = {{0, -1, false, cpu_add_plain, "add_plain"},
                                         {0, -1, true, cpu_add_plain, "add_key_plain"}};

static const struct {
    const cpu_add_row *rows;
    size_t n;
} add_tables[] = {
#if defined(__x86_64__)
    {ROWS_(cpu_add_avx512)},
    {ROWS_(cpu_add_avx2)},
#elif defined(__aarch64__)
    {ROWS_(cpu_add_neon)},
#endif
    {ROWS_(add_plain)},
};

static const struct {
    uint32_t isa;
    cpu_attention_softmax_fn softmax;
    const char *name;
} softmax_table[] = {
#if defined(__x86_64__)
    {CPU_ISA_AVX512, cpu_attention_softmax_avx512, "attention_softmax_avx512"},
    {CPU_ISA_AVX2, cpu_attention_softmax_avx2, "attention_softmax_avx2"},
#elif defined(__aarch64__)
    {CPU_ISA_NEON, cpu_attention_softmax_neon, "attention_softmax_neon"},
#endif
    {0, cpu_attention_softmax_plain, "attention_softmax_plain"},
};

cpu_attention_kernels cpu_attention_choose(uint32_t isa, bool has_q8, const cpu_kv_layout *layout) {
    cpu_attention_kernels out = {0};
    for (size_t t = 0; t < sizeof score_tables / sizeof *score_tables && !out.score; t++) {
        for (size_t i = 0; i < score_tables[t].n && !out.score; i++) {
            const cpu_score_row *row = &score_tables[t].rows[i];
            if ((row->isa & ~isa) != 0 || (score_tables[t].is_q8 && !has_q8)) continue;
            if (row->type != -1 && row->type != (int32_t)layout->k.type) continue;
            out.score = row->fn;
            out.query = row->query;
        }
    }
    for (size_t t = 0; t < sizeof add_tables / sizeof *add_tables && !out.add; t++) {
        for (size_t i = 0; i < add_tables[t].n && !out.add; i++) {
            const cpu_add_row *row = &add_tables[t].rows[i];
            if ((row->isa & ~isa) != 0 || row->from_key != layout->v_from_k ||
                (row->type != -1 && row->type != (int32_t)layout->v.type))
                continue;
            out.add = row->fn;
        }
    }
    for (size_t i = 0; i < sizeof softmax_table / sizeof *softmax_table && !out.softmax; i++) {
        if ((softmax_table[i].isa & ~isa) != 0) continue;
        out.softmax = softmax_table[i].softmax;
    }
    out.rotate = cpu_hadamard_choose(isa);
    return out;
}
