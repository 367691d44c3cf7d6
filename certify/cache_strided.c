/* SPDX-License-Identifier: MIT
 *
 * cache_strided.c: checks of the cache ops on TDM_KV_STRIDED caches. The model has a row only for
 * tokens that are the last of their runs, in the cell of that token. Caches with a row for each
 * token: kv.c, cache_sparse.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "certify/cache_graph.h"
#include "certify/trial.h"

enum {
    N_PAGE = 14,
    N_SEQ = 3,
    MAX_ENTRY = 12,
    N_TOK = 12,
    MAX_WRITE = 128, /* tokens of a KV_WRITE */
    N_HEAD = 4,
    N_TOP = 6,
    BLOCK_LEN = 2
};

/* Sequence 0 has pages in no order, of which some are not full and some begin at a later slot.
 * Sequence 1 shares its first tokens. Sequence 2 has no tokens before position stride + 1. Pages 12
 * and 13 are free. */
typedef struct scene {
    certify_cache *cache;
    int32_t stride, page_len, end[N_SEQ]; /* positions behind the last ones */
    tdm_page_entry entries[MAX_ENTRY];
    int32_t first_entry[N_SEQ + 1];
    float *k, *v;    /* what was written: [n_cell][n_head_kv][head_dim] */
    uint8_t *row[2]; /* of sequence 0 as exported, K and V */
} scene;

static void entry_add(scene *s, int32_t seq, int32_t page, int32_t first, int32_t count) {
    const int32_t n = s->first_entry[seq + 1]++;
    s->entries[n] = (tdm_page_entry){page, first, count, s->end[seq]};
    s->end[seq] += count;
}

static certify_verdict scene_make(certify_cache *cache, scene *s) {
    static const int32_t order[] = {7, 2, 9, 0, 4, 11, 1, 6};
    const int32_t len = cache->page_len, n_own = len > 64 ? 4 : 8;
    const size_t n_cell = (size_t)(N_PAGE * len * cache->desc.n_head_kv);
    *s = (scene){.cache = cache, .stride = cache->desc.stride, .page_len = len};
    for (int32_t i = 0; i < n_own; i++) {
        const int32_t first = i % 3 == 1 ? 3 : 0;
        entry_add(s, 0, order[i], first, len - first - (i % 3 == 2));
    }
    s->first_entry[2] = s->first_entry[1];
    entry_add(s, 1, 7, 0, len - 5);
    entry_add(s, 1, 3, 2, len - 2);
    s->first_entry[3] = s->first_entry[2];
    s->end[2] = s->stride + 1;
    entry_add(s, 2, 10, 1, len - 1);
    entry_add(s, 2, 8, 0, len);
    s->k = calloc(n_cell * (size_t)cache->desc.head_dim_k, sizeof *s->k);
    s->v = calloc(n_cell * (size_t)cache->desc.head_dim_v, sizeof *s->v);
    return s->k != NULL && s->v != NULL ? CERTIFY_PASSED : certify_skip(cache->c, "out of memory");
}

static void scene_free(scene *s) {
    free(s->k);
    free(s->v);
    for (int i = 0; i < 2; i++) free(s->row[i]);
}

static bool is_row(const scene *s, int32_t pos) {
    return (pos + 1) % s->stride == 0;
}

/* Rows that a token at `pos` sees, cached or not. */
static int32_t rows_seen(const scene *s, int32_t pos) {
    return (pos + 1) / s->stride;
}

/* The cell of row b of a sequence; -1 = it is not cached. */
static int32_t row_cell(const scene *s, int32_t seq, int32_t b) {
    const int32_t pos = b * s->stride + s->stride - 1;
    for (int32_t e = s->first_entry[seq]; e < s->first_entry[seq + 1]; e++) {
        const int32_t i = pos - s->entries[e].base_pos;
        if (i >= 0 && i < s->entries[e].count)
            return s->entries[e].page * s->page_len + s->entries[e].first + i;
    }
    return -1;
}

/* ---- Writing and reading back ---- */

static void random_fill(certify *c, float *x, size_t n) {
    for (size_t i = 0; i < n; i++) x[i] = (float)certify_random_in(c, -999, 999) / 999;
}

/* KV_WRITE of n tokens at positions pos[n] to cells[n]. */
static certify_verdict tokens_write(scene *s, int32_t n, const int32_t *pos, const int32_t *cells) {
    certify_cache *cache = s->cache;
    const tdm_kv_desc *d = &cache->desc;
    const tdm_step_caps caps = {.n_tok = MAX_WRITE, .n_seq = 1, .n_entry = 1, .n_class = 1};
    const bool has_v = (d->flags & TDM_KV_V_FROM_K) == 0;
    certify_cache_graph g;
    certify_verdict verdict = certify_cache_graph_begin(cache, &caps, &g);
    if (verdict != CERTIFY_PASSED) return verdict;
    const int64_t ne[2][4] = {{d->head_dim_k, d->n_head_kv, MAX_WRITE, 1},
                              {d->head_dim_v, d->n_head_kv, MAX_WRITE, 1}};
    int32_t x = tdm_build_input(g.b, "k", TDM_TYPE_F32, ne[0]);
    int32_t y = has_v ? tdm_build_input(g.b, "v", TDM_TYPE_F32, ne[1]) : -1;
    tdm_build_kv_write(g.b, x, y, g.step, g.state, g.kv);
    verdict = certify_cache_graph_end(&g, NULL, 0);
    if (verdict == CERTIFY_PASSED) {
        for (int side = 0; side < 1 + has_v; side++) {
            const size_t len = (size_t)ne[side][0] * (size_t)ne[side][1];
            float *from = (float *)(void *)g.rig.bytes[side ? y : x], *to = side ? s->v : s->k;
            random_fill(cache->c, from, len * MAX_WRITE);
            for (int32_t t = 0; t < n; t++)
                if (cells[t] >= 0 && is_row(s, pos[t]))
                    memcpy(to + (size_t)cells[t] * len, from + (size_t)t * len, len * sizeof *to);
        }
        g.header.n_tok = n;
        memcpy(g.block + g.header.pos_off, pos, (size_t)n * sizeof *pos);
        memcpy(g.block + g.header.cls[0].write_off, cells, (size_t)n * sizeof *cells);
        verdict = certify_cache_graph_run(&g);
    }
    certify_rig_destroy(&g.rig);
    return verdict;
}

/* The tokens of all entries, the last page first, with some to cell -1 between them. */
static certify_verdict scene_write(scene *s) {
    certify_verdict verdict = CERTIFY_PASSED;
    for (int32_t e = s->first_entry[N_SEQ] - 1; e >= 0; e--) {
        const tdm_page_entry *entry = &s->entries[e];
        if (e == s->first_entry[1]) continue; /* shared, and written with sequence 0 */
        for (int32_t i = 0; i < entry->count && verdict == CERTIFY_PASSED;) {
            int32_t pos[MAX_WRITE], cells[MAX_WRITE], n = 0;
            for (; i < entry->count && n < MAX_WRITE - 1; i++, n++) {
                pos[n] = entry->base_pos + i;
                cells[n] = entry->page * s->page_len + entry->first + i;
            }
            pos[n] = s->stride - 1;
            cells[n++] = -1;
            verdict = tokens_write(s, n, pos, cells);
        }
    }
    return verdict;
}

/* Row `pos` of an exported tensor. */
static const uint8_t *exported(const scene *s, const uint8_t *tensor, bool is_v, int32_t pos) {
    return tensor +
           certify_cache_row_size(s->cache, is_v) * (size_t)s->cache->desc.n_head_kv * (size_t)pos;
}

/* Compares the exported rows of a sequence with those that were written, and takes them as the
 * model. */
static certify_verdict side_take(scene *s, int32_t seq, bool is_v, const uint8_t *tensor) {
    const tdm_kv_desc *d = &s->cache->desc;
    const int32_t dim = is_v ? d->head_dim_v : d->head_dim_k;
    const int32_t padded = tdm_kv_padded(is_v ? d->type_v : d->type_k, dim);
    const tdm_type type = is_v ? d->type_v : d->type_k;
    const double bound = tdm_type_get_info(type).is_quantized ? 2e-4 : 3e-7;
    certify_verdict verdict = CERTIFY_PASSED;
    double *row = calloc((size_t)padded * 2, sizeof *row), *want = row + padded;
    if (row == NULL) return certify_skip(s->cache->c, "out of memory");
    for (int32_t e = s->first_entry[seq]; e < s->first_entry[seq + 1]; e++)
        for (int32_t i = 0; i < s->entries[e].count * d->n_head_kv; i++) {
            const int32_t at = i / d->n_head_kv, head = i % d->n_head_kv;
            const int32_t pos = s->entries[e].base_pos + at;
            const int32_t cell = s->entries[e].page * s->page_len + s->entries[e].first + at;
            const size_t to = (size_t)(cell * d->n_head_kv + head) * (size_t)dim;
            certify_cache_row_read(s->cache, is_v,
                                   exported(s, tensor, is_v, pos) +
                                       certify_cache_row_size(s->cache, is_v) * (size_t)head,
                                   true, row);
            bool is_zero = true;
            for (int32_t k = 0; k < padded; k++) {
                if (row[k] != 0) is_zero = false;
                want[k] = k < dim ? (double)(is_v ? s->v : s->k)[to + (size_t)k] : 0;
            }
            if (verdict == CERTIFY_PASSED && !is_row(s, pos) && !is_zero)
                verdict = certify_fail(s->cache->c,
                                       "sequence %d: exported row %d is not zeros, and no last one "
                                       "of a run of %d",
                                       (int)seq, (int)pos, (int)s->stride);
            if (!is_row(s, pos) || verdict != CERTIFY_PASSED) continue;
            verdict = certify_numbers_judge(s->cache->c, is_v ? "V row" : "K row", row, want,
                                            (size_t)padded, bound, 0.5);
            memcpy((is_v ? s->cache->v : s->cache->k) + to, row, (size_t)dim * sizeof *row);
        }
    free(row);
    return verdict;
}

/* Exports, with positions as rows of the tensor. */
static certify_verdict sequence_take(scene *s, int32_t seq) {
    const tdm_kv_desc *d = &s->cache->desc;
    const int32_t first = s->first_entry[seq], n_job = s->first_entry[seq + 1] - first;
    tdm_page_job jobs[MAX_ENTRY];
    uint8_t *tensor[2] = {NULL, NULL};
    for (int32_t i = 0; i < n_job; i++) {
        const tdm_page_entry *e = &s->entries[first + i];
        jobs[i] = (tdm_page_job){e->page, e->first, e->count, e->base_pos};
    }
    certify_verdict verdict =
        certify_cache_export(s->cache, jobs, n_job, s->end[seq] + 1, &tensor[0], &tensor[1]);
    for (int side = 0; side < 2 && verdict == CERTIFY_PASSED; side++)
        if (tensor[side] != NULL) verdict = side_take(s, seq, side, tensor[side]);
    for (size_t i = 0; verdict == CERTIFY_PASSED && i < certify_cache_row_size(s->cache, false);
         i++)
        if (exported(s, tensor[0], false, s->end[seq])[i] != CERTIFY_RESULT_BYTE)
            verdict = certify_fail(s->cache->c, "a row that no job names was written");
    if (verdict == CERTIFY_PASSED && (d->flags & TDM_KV_V_FROM_K) != 0)
        for (int32_t i = 0; i < N_PAGE * s->page_len * d->n_head_kv; i++)
            memcpy(s->cache->v + (size_t)i * (size_t)d->head_dim_v,
                   s->cache->k + (size_t)i * (size_t)d->head_dim_k,
                   (size_t)d->head_dim_v * sizeof *s->cache->v);
    for (int side = 0; side < 2; side++) {
        if (seq == 0) s->row[side] = tensor[side], tensor[side] = NULL;
        free(tensor[side]);
    }
    return verdict;
}

/* ---- Moving pages ---- */

/* Exports `jobs` and compares the tensors' rows at their positions with those of sequence 0. */
static certify_verdict places_judge(scene *s, const tdm_page_job *jobs, int32_t n_job) {
    uint8_t *tensor[2] = {NULL, NULL};
    certify_verdict verdict =
        certify_cache_export(s->cache, jobs, n_job, s->end[0] + 1, &tensor[0], &tensor[1]);
    for (int side = 0; side < 2; side++)
        for (int32_t j = 0; j < n_job && tensor[side] != NULL; j++)
            for (int32_t pos = jobs[j].arg; pos < jobs[j].arg + jobs[j].count; pos++)
                if (verdict == CERTIFY_PASSED &&
                    memcmp(exported(s, tensor[side], side, pos),
                           exported(s, s->row[side], side, pos),
                           (size_t)s->cache->desc.n_head_kv *
                               certify_cache_row_size(s->cache, side)) != 0)
                    verdict = certify_fail(
                        s->cache->c, "position %d has other bytes than at the source", (int)pos);
    for (int side = 0; side < 2; side++) free(tensor[side]);
    return verdict;
}

/* A whole page, and a page without its first and last slots in use. */
static certify_verdict copy_run(scene *s) {
    const tdm_page_entry *whole = &s->entries[0], *part = &s->entries[1];
    const int32_t first = part->first + 1, count = part->count - 2;
    const tdm_page_job jobs[] = {
        {12, 0, s->page_len, whole->page}, {-1, 0, s->page_len, 0}, {13, first, count, part->page}};
    const tdm_page_job back[] = {{12, 0, s->page_len, 0}, {13, first, count, part->base_pos + 1}};
    certify_verdict verdict = certify_cache_jobs(s->cache, TDM_OP_KV_COPY, jobs, 3, NULL, NULL);
    return verdict == CERTIFY_PASSED ? places_judge(s, back, 2) : verdict;
}

/* Imports rows of sequence 0 to other slots. Rows that are not the last of a run must not be read:
 * they are 0xff in the tensor. */
static certify_verdict import_run(scene *s) {
    const int32_t len = s->page_len, from = s->entries[2].base_pos - 1;
    const tdm_page_job jobs[] = {{12, 1, len - 1, from}, {-1, 0, len, 0}, {13, 0, len - 2, 1}};
    const tdm_page_job back[] = {jobs[0], jobs[2]};
    for (int side = 0; side < 2; side++)
        for (int32_t pos = 0; pos < s->end[0] && s->row[side] != NULL; pos++)
            if (!is_row(s, pos))
                memset((uint8_t *)(uintptr_t)exported(s, s->row[side], side, pos), 0xff,
                       (size_t)s->cache->desc.n_head_kv * certify_cache_row_size(s->cache, side));
    certify_verdict verdict =
        certify_cache_import(s->cache, jobs, 3, s->end[0] + 1, s->row[0], s->row[1]);
    for (int side = 0; side < 2; side++)
        for (int32_t pos = 0; pos < s->end[0] && s->row[side] != NULL; pos++)
            if (!is_row(s, pos))
                memset((uint8_t *)(uintptr_t)exported(s, s->row[side], side, pos), 0,
                       (size_t)s->cache->desc.n_head_kv * certify_cache_row_size(s->cache, side));
    return verdict == CERTIFY_PASSED ? places_judge(s, back, 2) : verdict;
}

/* ---- Queries ---- */

typedef struct queries {
    int32_t pos[N_TOK], seq[N_TOK], n;
} queries;

static void query_add(const scene *s, queries *q, int32_t seq, int32_t pos) {
    if (pos < 0 || pos >= s->end[seq]) return;
    q->pos[q->n] = pos;
    q->seq[q->n++] = seq;
}

/* Of tokens that see all rows of their sequence, some, one and none. The rest is padding. */
static queries queries_make(const scene *s) {
    queries q = {.n = 0};
    query_add(s, &q, 0, 0);
    query_add(s, &q, 0, s->stride - 2);
    query_add(s, &q, 0, s->stride - 1);
    query_add(s, &q, 0, 2 * s->stride - 2);
    query_add(s, &q, 0, 2 * s->stride - 1);
    query_add(s, &q, 0, s->end[0] / 2);
    query_add(s, &q, 0, s->end[0] - 1);
    query_add(s, &q, 1, s->end[1] - 1);
    query_add(s, &q, 2, s->entries[s->first_entry[2]].base_pos);
    query_add(s, &q, 2, s->end[2] - 1);
    for (int32_t t = q.n; t < N_TOK; t++) q.pos[t] = q.seq[t] = -1;
    return q;
}

static const tdm_step_caps query_caps = {
    .n_tok = N_TOK, .n_seq = N_SEQ, .n_entry = MAX_ENTRY, .n_class = 1};

static void query_fill(certify_cache_graph *g, const scene *s, const queries *q) {
    const tdm_step_class *cls = &g->header.cls[0];
    g->header.n_tok = q->n;
    g->header.longest = s->end[0] > s->end[2] ? s->end[0] : s->end[2];
    if (s->end[1] > g->header.longest) g->header.longest = s->end[1];
    memcpy(g->block + g->header.pos_off, q->pos, sizeof q->pos);
    memcpy(g->block + g->header.seq_off, q->seq, sizeof q->seq);
    memcpy(g->block + cls->first_entry_off, s->first_entry, sizeof s->first_entry);
    memcpy(g->block + cls->entry_off, s->entries,
           (size_t)s->first_entry[N_SEQ] * sizeof *s->entries);
}

static double bound_of(const certify_cache *cache) {
    return certify_trial_bound(cache->desc.type_k);
}

static double cell_dot(const scene *s, int32_t cell, int32_t head_kv, const double *q) {
    const tdm_kv_desc *d = &s->cache->desc;
    const double *k = s->cache->k + (size_t)(cell * d->n_head_kv + head_kv) * (size_t)d->head_dim_k;
    double sum = 0;
    for (int32_t i = 0; i < d->head_dim_k; i++) sum += q[i] * k[i];
    return sum;
}

/* One head of one token over the rows of `list`, NULL = all that it sees. */
static void attend_model(const scene *s, int32_t seq, int32_t pos, int32_t head_kv, const double *q,
                         const double *sink, const int32_t *list, double *o, double ml[2]) {
    const tdm_kv_desc *d = &s->cache->desc;
    const int32_t n = seq < 0 ? 0 : rows_seen(s, pos);
    memset(o, 0, (size_t)d->head_dim_v * sizeof *o);
    ml[0] = -INFINITY;
    ml[1] = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t b = 0; b < n; b++) {
            const int32_t cell = row_cell(s, seq, b);
            bool is_listed = list == NULL;
            for (int32_t i = 0; list != NULL && i < N_TOP; i++)
                if (list[i] == b) is_listed = true;
            if (cell < 0 || !is_listed) continue;
            const double a = cell_dot(s, cell, head_kv, q) / sqrt(d->head_dim_k);
            if (pass == 0) ml[0] = fmax(ml[0], a);
            if (pass == 0) continue;
            ml[1] += exp(a - ml[0]);
            for (int32_t i = 0; i < d->head_dim_v; i++)
                o[i] +=
                    exp(a - ml[0]) *
                    s->cache->v[(size_t)(cell * d->n_head_kv + head_kv) * (size_t)d->head_dim_v +
                                (size_t)i];
        }
    if (ml[0] == -INFINITY) return;
    if (sink != NULL) ml[1] += exp(*sink - ml[0]);
    for (int32_t i = 0; i < d->head_dim_v; i++) o[i] /= ml[1];
}

/* Results of an ATTENTION with their sources as values of a rig; -1 = absent. */
typedef struct attention {
    int32_t q, sink, list, o, ml;
} attention;

static certify_verdict ml_judge(const scene *s, const double *got, double *want, double *sums) {
    for (int32_t i = 0; i < N_TOK * N_HEAD; i++) {
        const bool is_empty = want[2 * i] == -INFINITY;
        if (is_empty && (got[2 * i] != -INFINITY || got[2 * i + 1] != 0))
            return certify_fail(s->cache->c, "over nothing m = %g and l = %g, not -inf and 0",
                                got[2 * i], got[2 * i + 1]);
        sums[i] = is_empty ? 0 : got[2 * i] + log(got[2 * i + 1]);
        want[i] = is_empty ? 0 : want[2 * i] + log(want[2 * i + 1]);
    }
    return certify_numbers_judge(s->cache->c, "m + log(l)", sums, want, N_TOK * N_HEAD,
                                 bound_of(s->cache) * 10, 0);
}

static certify_verdict attention_judge(const scene *s, const queries *q, const certify_rig *rig,
                                       const attention *a) {
    const size_t dk = (size_t)s->cache->desc.head_dim_k, dv = (size_t)s->cache->desc.head_dim_v;
    const size_t n = N_TOK * N_HEAD;
    double *x = certify_numbers(TDM_TYPE_F32, rig->bytes[a->q], n * dk);
    double *got = certify_numbers(TDM_TYPE_F32, rig->bytes[a->o], n * dv);
    double *ml = a->ml >= 0 ? certify_numbers(TDM_TYPE_F32, rig->bytes[a->ml], 2 * n) : NULL;
    double *sink = a->sink >= 0 ? certify_numbers(TDM_TYPE_F32, rig->bytes[a->sink], N_HEAD) : NULL;
    double *want = malloc((n * dv + 3 * n) * sizeof *want);
    const int32_t *list = a->list >= 0 ? (const int32_t *)(const void *)rig->bytes[a->list] : NULL;
    certify_verdict verdict = CERTIFY_PASSED;
    if (x == NULL || got == NULL || want == NULL || (a->ml >= 0 && ml == NULL) ||
        (a->sink >= 0 && sink == NULL))
        verdict = certify_skip(s->cache->c, "out of memory");
    for (size_t i = 0; i < n && verdict == CERTIFY_PASSED; i++) {
        const size_t t = i / N_HEAD, h = i % N_HEAD;
        attend_model(s, q->seq[t], q->pos[t], (int32_t)h / (N_HEAD / s->cache->desc.n_head_kv),
                     x + i * dk, sink != NULL ? sink + h : NULL,
                     list != NULL ? list + t * N_TOP : NULL, want + i * dv, want + n * dv + 2 * i);
    }
    if (verdict == CERTIFY_PASSED)
        verdict = certify_numbers_judge(s->cache->c, "o", got, want, n * dv, bound_of(s->cache), 0);
    if (verdict == CERTIFY_PASSED && ml != NULL) verdict = ml_judge(s, ml, want + n * dv, want);
    free(x);
    free(got);
    free(ml);
    free(sink);
    free(want);
    return verdict;
}

static certify_verdict attend(scene *s, bool has_sink, bool has_ml) {
    const tdm_kv_desc *d = &s->cache->desc;
    const queries q = queries_make(s);
    tdm_attention_params params = {
        .heads_per_kv = N_HEAD / d->n_head_kv, .n_head_all = N_HEAD, .is_causal = 1};
    attention a = {-1, -1, -1, -1, -1};
    certify_cache_graph g;
    certify_verdict verdict = certify_cache_graph_begin(s->cache, &query_caps, &g);
    if (verdict != CERTIFY_PASSED) return verdict;
    params.kv = g.kv;
    a.q =
        tdm_build_input(g.b, "q", TDM_TYPE_F32, (const int64_t[]){d->head_dim_k, N_HEAD, N_TOK, 1});
    if (has_sink)
        a.sink = tdm_build_weight(g.b, "sink", TDM_TYPE_F32, (const int64_t[]){N_HEAD, 1, 1, 1}, 0);
    a.o = tdm_build_attention(g.b, a.q, g.step, g.state, a.sink, &params, has_ml ? &a.ml : NULL);
    tdm_build_output(g.b, a.o, "o");
    if (has_ml) tdm_build_output(g.b, a.ml, "ml");
    verdict = certify_cache_graph_end(&g, NULL, 0);
    if (verdict == CERTIFY_PASSED) {
        certify_rig_fill(&g.rig, a.q, 3);
        if (has_sink) certify_rig_fill(&g.rig, a.sink, 2);
        query_fill(&g, s, &q);
        verdict = certify_cache_graph_run(&g);
    }
    if (verdict == CERTIFY_PASSED) verdict = attention_judge(s, &q, &g.rig, &a);
    certify_rig_destroy(&g.rig);
    return verdict;
}

static certify_verdict attend_run(scene *s) {
    certify_verdict verdict = attend(s, false, false);
    if (verdict == CERTIFY_PASSED) verdict = attend(s, true, false);
    return verdict == CERTIFY_PASSED ? attend(s, false, true) : verdict;
}

/* ---- Lists ---- */

/* The score of the row in `cell` for one token with q[N_HEAD][head_dim_k] and w[N_HEAD]. w NULL:
 * the product with head 0 of q alone. */
static double row_score(const scene *s, int32_t cell, const double *q, const double *w) {
    const int32_t dk = s->cache->desc.head_dim_k;
    double score = 0;
    if (w == NULL) return cell_dot(s, cell, 0, q);
    for (int32_t h = 0; h < N_HEAD; h++)
        score += w[h] * fmax(cell_dot(s, cell, 0, q + (size_t)h * (size_t)dk), 0);
    return score;
}

/* A list of one token: rows in blocks of `len`, of which the last one is in the list where len > 1;
 * the best others within `margin`. */
static certify_verdict list_judge(const scene *s, int32_t seq, int32_t pos, const double *q,
                                  const double *w, int32_t len, const int32_t *list) {
    const double margin = 20 * sqrt(bound_of(s->cache));
    const int32_t n_seen = seq < 0 ? 0 : rows_seen(s, pos), n_block = (n_seen + len - 1) / len;
    double worst = INFINITY, best = -INFINITY;
    int32_t at = 0, n_chosen = 0, n_there = 0;
    bool is_whole = true;
    for (int32_t b = 0; b < n_block; b++) {
        double score = -INFINITY;
        bool is_there = false, is_chosen = false;
        for (int32_t c = b * len; c < (b + 1) * len && c < n_seen; c++) {
            const int32_t cell = row_cell(s, seq, c);
            if (cell < 0) continue;
            if (!is_there) is_chosen = at < N_TOP && list[at] == c;
            is_there = true;
            score = fmax(score, row_score(s, cell, q, w));
            if (is_chosen && (at >= N_TOP || list[at++] != c)) is_whole = false;
        }
        n_there += is_there;
        n_chosen += is_chosen;
        const bool is_local = len > 1 && b == n_block - 1;
        if (is_local && !is_chosen) is_whole = false;
        if (is_there && is_chosen && !is_local) worst = fmin(worst, score);
        if (is_there && !is_chosen) best = fmax(best, score);
    }
    for (; at < N_TOP; at++)
        if (list[at] != -1) is_whole = false;
    const int32_t n_want = n_there < N_TOP / len ? n_there : N_TOP / len;
    if (!is_whole || n_chosen != n_want)
        return certify_fail(s->cache->c,
                            "sequence %d, position %d: the list is not %d rising runs of %d rows, "
                            "then -1",
                            (int)seq, (int)pos, (int)n_want, (int)len);
    if (best > worst + margin)
        return certify_fail(s->cache->c, "position %d: a score of %g is left out, %g is listed",
                            (int)pos, best, worst);
    return CERTIFY_PASSED;
}

/* Reads the rows from a list of tokens, which has the runs of the rows, then the tokens behind the
 * last row that the token at `pos` sees. rows_out[N_TOP]: -1 behind the last. */
static certify_verdict runs_take(const scene *s, int32_t pos, bool is_there, const int32_t *list,
                                 int32_t rows_out[N_TOP]) {
    const int32_t len = s->stride, n_top = N_TOP * len + len - 1;
    const int32_t tail = is_there ? (pos + 1) / len * len : 0, end = is_there ? pos + 1 : 0;
    int32_t at = 0, n = 0;
    bool is_good = true;
    for (; n < N_TOP && at < n_top && list[at] >= 0 && list[at] < tail; n++) {
        rows_out[n] = list[at] / len;
        for (int32_t i = 0; i < len; i++, at++)
            if (at >= n_top || list[at] != rows_out[n] * len + i) is_good = false;
    }
    for (; n < N_TOP; n++) rows_out[n] = -1;
    for (int32_t p = tail; p < end; p++, at++)
        if (at >= n_top || list[at] != p) is_good = false;
    for (; at < n_top; at++)
        if (list[at] != -1) is_good = false;
    return is_good
               ? CERTIFY_PASSED
               : certify_fail(s->cache->c,
                              "position %d: the list is not the tokens of whole runs, those from "
                              "%d on, then -1",
                              (int)pos, (int)tail);
}

/* What a KV_SELECT chooses: rows by w, over which ATTENTION follows; blocks of rows, without w; or
 * tokens by w. */
typedef enum choice { ROWS, BLOCKS, TOKENS } choice;

static certify_verdict select_with(scene *s, choice what) {
    const bool is_block = what == BLOCKS;
    const size_t dk = (size_t)s->cache->desc.head_dim_k;
    const queries q = queries_make(s);
    tdm_attention_params params = {.heads_per_kv = N_HEAD, .n_head_all = N_HEAD, .is_causal = 1};
    tdm_select_params select = {.n_top = N_TOP};
    if (what == TOKENS)
        select = (tdm_select_params){.n_top = N_TOP * s->stride + s->stride - 1, .is_of_tokens = 1};
    attention a = {-1, -1, -1, -1, -1};
    int32_t w = -1;
    certify_cache_graph g;
    certify_verdict verdict = certify_cache_graph_begin(s->cache, &query_caps, &g);
    if (verdict != CERTIFY_PASSED) return verdict;
    params.kv = select.kv = g.kv;
    if (is_block) select.block_len = BLOCK_LEN, select.n_local = 1;
    a.q = tdm_build_input(g.b, "q", TDM_TYPE_F32, (const int64_t[]){(int64_t)dk, N_HEAD, N_TOK, 1});
    /* A weight for each head and token, or one for all. */
    const int64_t w_ne[2][4] = {{N_HEAD, N_TOK, 1, 1}, {1, 1, 1, 1}};
    if (!is_block) w = tdm_build_input(g.b, "w", TDM_TYPE_F32, w_ne[what == TOKENS]);
    a.list = tdm_build_kv_select(g.b, a.q, w, g.step, g.state, &select);
    tdm_build_output(g.b, a.list, "select");
    if (what == ROWS) {
        a.o = tdm_build_attention_sparse(g.b, a.q, g.step, g.state, -1, a.list, &params, &a.ml);
        tdm_build_output(g.b, a.o, "o");
        tdm_build_output(g.b, a.ml, "ml");
    }
    verdict = certify_cache_graph_end(&g, NULL, 0);
    if (verdict == CERTIFY_PASSED) {
        certify_rig_fill(&g.rig, a.q, 1);
        if (w >= 0) certify_rig_fill(&g.rig, w, 1);
        query_fill(&g, s, &q);
        verdict = certify_cache_graph_run(&g);
    }
    double *x = NULL, *weights = NULL;
    if (verdict == CERTIFY_PASSED) {
        x = certify_numbers(TDM_TYPE_F32, g.rig.bytes[a.q], N_TOK * N_HEAD * dk);
        if (w >= 0) weights = calloc(N_TOK * N_HEAD, sizeof *weights);
        if (x == NULL || (w >= 0 && weights == NULL))
            verdict = certify_skip(s->cache->c, "out of memory");
        for (int32_t i = 0; weights != NULL && i < N_TOK * N_HEAD; i++)
            weights[i] = ((const float *)(const void *)g.rig.bytes[w])[what == TOKENS ? 0 : i];
    }
    for (int32_t i = 0; i < N_TOK * (is_block ? N_HEAD : 1) && verdict == CERTIFY_PASSED; i++) {
        const int32_t t = i % N_TOK, h = i / N_TOK;
        const int32_t *list = (const int32_t *)(const void *)g.rig.bytes[a.list] + i * select.n_top;
        int32_t rows[N_TOP];
        if (is_block && q.seq[t] == 2) continue; /* a block of which rows are not cached */
        if (what == TOKENS) {
            verdict = runs_take(s, q.pos[t], q.seq[t] >= 0, list, rows);
            list = rows;
            if (verdict != CERTIFY_PASSED) break;
        }
        verdict = list_judge(s, q.seq[t], q.pos[t], x + (size_t)(t * N_HEAD + h) * dk,
                             weights != NULL ? weights + t * N_HEAD : NULL,
                             is_block ? BLOCK_LEN : 1, list);
    }
    if (verdict == CERTIFY_PASSED && what == ROWS) verdict = attention_judge(s, &q, &g.rig, &a);
    free(x);
    free(weights);
    certify_rig_destroy(&g.rig);
    return verdict;
}

static certify_verdict select_run(scene *s) {
    certify_verdict verdict = select_with(s, ROWS);
    if (verdict == CERTIFY_PASSED) verdict = select_with(s, BLOCKS);
    return verdict == CERTIFY_PASSED ? select_with(s, TOKENS) : verdict;
}

/* ---- Caches to try ---- */

typedef certify_verdict (*run_fn)(scene *s);

static certify_verdict nothing_run(scene *s) {
    (void)s;
    return CERTIFY_PASSED;
}

static certify_verdict desc_run(certify *c, const tdm_kv_desc *desc, run_fn run) {
    certify_cache cache;
    scene s = {.cache = NULL};
    certify_verdict verdict = certify_cache_create(c, desc, N_PAGE, &cache);
    if (verdict == CERTIFY_PASSED) verdict = scene_make(&cache, &s);
    if (verdict == CERTIFY_PASSED) verdict = scene_write(&s);
    for (int32_t seq = 0; seq < N_SEQ && verdict == CERTIFY_PASSED; seq++)
        verdict = sequence_take(&s, seq);
    if (verdict == CERTIFY_PASSED) verdict = run(&s);
    if (verdict == CERTIFY_PASSED) verdict = certify_cache_guards_judge(&cache);
    scene_free(&s);
    certify_cache_destroy(&cache);
    return certify_prefix(c, verdict, "%s, stride %d, pages of %d", tdm_type_name(desc->type_k),
                          (int)desc->stride, (int)desc->page_len);
}

/* With `flags` of a latent cache, else with V of its own. */
static certify_verdict each(certify *c, uint32_t flags, run_fn run) {
    static const tdm_type types[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_Q8_0};
    static const int32_t sizes[][2] = {{2, 16}, {4, 16}, {128, 64}, {128, 256}, {3, 32}};
    const bool is_latent = (flags & TDM_KV_V_FROM_K) != 0;
    certify_verdict verdict = certify_open(c);
    int n_run = 0;
    if (verdict != CERTIFY_PASSED) return verdict;
    for (size_t i = 0; i < 15 && verdict != CERTIFY_FAILED; i++) {
        const tdm_type type = types[i % 3];
        const uint32_t turned = i / 3 % 2 != 0 ? TDM_KV_ROTATE_K | TDM_KV_ROTATE_V : 0;
        verdict =
            desc_run(c,
                     &(tdm_kv_desc){.struct_size = sizeof(tdm_kv_desc),
                                    .type_k = type,
                                    .type_v = type,
                                    .head_dim_k = is_latent ? 40 : 64,
                                    .head_dim_v = is_latent ? 24 : 64,
                                    .n_head_kv = is_latent ? 1 : 2,
                                    .page_len = sizes[i / 3][1],
                                    .flags = TDM_KV_STRIDED | flags | (is_latent ? 0 : turned),
                                    .stride = sizes[i / 3][0]},
                     run);
        if (verdict == CERTIFY_PASSED) n_run++;
    }
    return verdict == CERTIFY_SKIPPED && n_run > 0 ? CERTIFY_PASSED : verdict;
}

static certify_verdict write_check(certify *c) {
    const certify_verdict verdict = each(c, 0, nothing_run);
    return verdict == CERTIFY_PASSED ? each(c, TDM_KV_V_FROM_K, nothing_run) : verdict;
}

static certify_verdict copy_check(certify *c) {
    return each(c, 0, copy_run);
}

static certify_verdict import_check(certify *c) {
    return each(c, 0, import_run);
}

static certify_verdict attention_check(certify *c) {
    const certify_verdict verdict = each(c, 0, attend_run);
    return verdict == CERTIFY_PASSED ? each(c, TDM_KV_V_FROM_K, attend_run) : verdict;
}

static certify_verdict select_check(certify *c) {
    return each(c, TDM_KV_V_FROM_K | TDM_KV_SPARSE, select_run);
}

static const certify_check checks[] = {
    {"strided.write", 4,
     "kv.h: Strides: \"row b is that of the token at position b * stride + stride - 1, the last of "
     "its run. KV_WRITE skips all other tokens.\"; \"KV_EXPORT and KV_IMPORT take arg + i as a "
     "position\"",
     write_check},
    {"strided.copy", 4,
     "kv.h: Strides: \"the row of slot i of a page is the page's row i / stride\"", copy_check},
    {"strided.import", 4,
     "kv.h: Strides: \"where it is not the last of its run, the row of the tensor is zeros, or not "
     "read\"",
     import_check},
    {"strided.attention", 4,
     "kv.h: Strides: \"ATTENTION and KV_SELECT compute as if the rows were tokens at positions 0, "
     "1, .., and a token at position p were at (p + 1) / stride - 1, rounded down\"",
     attention_check},
    {"strided.select", 4,
     "kv.h: Strides: \"lists hold numbers of rows\"; op.h: KV_SELECT: \"the `stride` positions of "
     "each chosen row's run, then those behind the last row that the token sees, up to p\"",
     select_check},
};
const certify_table certify_strided_table = CERTIFY_SHARED_TABLE(checks);
