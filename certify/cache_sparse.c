/* SPDX-License-Identifier: MIT
 *
 * cache_sparse.c: checks of KV_SELECT, of positions and of blocks, and of ATTENTION with one list
 * or with a list for each KV head. The reference computes in double from the rows that the device
 * stored. Other checks of caches: kv.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "certify/cache_graph.h"
#include "certify/trial.h"

enum {
    N_CELL = 40,
    N_PAGE = 4,
    PAGE_LEN = 16,
    N_TOK = 6,
    N_HEAD = 3,
    N_TOP = 7,
    DIM = 40,
    DV = 24
};

/* Sequence 0 has 40 tokens in pages 3, 0 and 2; sequence 1 shares the first 10. Token 5 is
 * padding. */
static const tdm_page_entry entries[] = {
    {3, 0, 16, 0}, {0, 0, 16, 16}, {2, 4, 8, 32}, {3, 0, 10, 0}};
static const int32_t first_entry[] = {0, 3, 4};
static const int32_t positions[N_TOK] = {39, 20, 3, 9, 33, -1};
static const int32_t sequences[N_TOK] = {0, 0, 0, 1, 0, -1};

static int32_t cell_of(int32_t pos) {
    const tdm_page_entry *e = &entries[pos / PAGE_LEN];
    return e->page * PAGE_LEN + e->first + pos - e->base_pos;
}

/* The stored row of a KV head at a position. */
static const double *row_of(const certify_cache *cache, int32_t head_kv, int32_t pos) {
    return cache->k + (size_t)(cell_of(pos) * cache->desc.n_head_kv + head_kv) * DIM;
}

static double head_dot(const certify_cache *cache, int32_t head_kv, const double *q, int32_t pos) {
    const double *k = row_of(cache, head_kv, pos);
    double sum = 0;
    for (int32_t i = 0; i < DIM; i++) sum += q[i] * k[i];
    return sum;
}

static double dot_of(const certify_cache *cache, const double *q, int32_t pos) {
    return head_dot(cache, 0, q, pos);
}

/* The list of one token: rising, as long as it can be, and of the best scores within `margin`. */
static certify_verdict list_judge(const certify_cache *cache, int32_t pos, const double *q,
                                  const double *w, const int32_t *list, double margin) {
    double worst = INFINITY, best = -INFINITY;
    int32_t n = pos + 1 < N_TOP ? pos + 1 : N_TOP, at = 0;
    for (int32_t c = 0; c <= pos; c++) {
        double score = 0;
        for (int32_t h = 0; h < N_HEAD; h++) score += w[h] * fmax(dot_of(cache, q + h * DIM, c), 0);
        if (at < n && list[at] == c) {
            worst = fmin(worst, score);
            at++;
        } else {
            best = fmax(best, score);
        }
    }
    for (int32_t i = at; at == n && i < N_TOP; i++)
        if (list[i] != -1) at = -1;
    if (at != n)
        return certify_fail(cache->c,
                            "the list for position %d is not %d rising positions, then -1",
                            (int)pos, (int)n);
    if (best > worst + margin)
        return certify_fail(cache->c, "position %d: a score of %g is left out, %g is listed",
                            (int)pos, best, worst);
    return CERTIFY_PASSED;
}

static void attend_model(const certify_cache *cache, int32_t head_kv, const double *q,
                         const int32_t *list, double *o) {
    double a[N_TOP], m = -INFINITY, l = 0;
    int32_t n = 0;
    memset(o, 0, DV * sizeof *o);
    for (; n < N_TOP && list[n] >= 0; n++) {
        a[n] = head_dot(cache, head_kv, q, list[n]) / sqrt(DIM);
        m = fmax(m, a[n]);
    }
    for (int32_t i = 0; i < n; i++) l += exp(a[i] - m);
    for (int32_t i = 0; i < n; i++)
        for (int32_t d = 0; d < DV; d++)
            o[d] += exp(a[i] - m) / l * row_of(cache, head_kv, list[i])[d];
}

static certify_verdict judge(certify_cache *cache, const certify_rig *rig, const int32_t *values) {
    const double bound = certify_trial_bound(cache->desc.type_k);
    double *q = certify_numbers(TDM_TYPE_F32, rig->bytes[values[0]], DIM * N_HEAD * N_TOK);
    double *w = certify_numbers(TDM_TYPE_F32, rig->bytes[values[1]], N_HEAD * N_TOK);
    double *got = certify_numbers(TDM_TYPE_F32, rig->bytes[values[3]], DV * N_HEAD * N_TOK);
    double *want = malloc(DV * N_HEAD * N_TOK * sizeof *want);
    const int32_t *list = (const int32_t *)(const void *)rig->bytes[values[2]];
    certify_verdict verdict = CERTIFY_PASSED;
    if (q == NULL || w == NULL || got == NULL || want == NULL)
        verdict = certify_skip(cache->c, "out of memory");
    for (int32_t t = 0; t < N_TOK && verdict == CERTIFY_PASSED; t++) {
        verdict = list_judge(cache, positions[t], q + t * N_HEAD * DIM, w + t * N_HEAD,
                             list + t * N_TOP, 20 * sqrt(bound));
        for (int32_t h = 0; h < N_HEAD && verdict == CERTIFY_PASSED; h++)
            attend_model(cache, 0, q + (t * N_HEAD + h) * DIM, list + t * N_TOP,
                         want + (t * N_HEAD + h) * DV);
    }
    if (verdict == CERTIFY_PASSED)
        verdict = certify_numbers_judge(cache->c, "o", got, want, DV * N_HEAD * N_TOK, bound, 0);
    free(q);
    free(w);
    free(got);
    free(want);
    return verdict;
}

static void block_fill(certify_cache_graph *g) {
    g->header.n_tok = N_TOK;
    memcpy(g->block + g->header.pos_off, positions, sizeof positions);
    memcpy(g->block + g->header.seq_off, sequences, sizeof sequences);
    certify_cache_pages_put(g, first_entry, entries);
}

static certify_verdict select_run(certify_cache *cache) {
    const tdm_step_caps caps = {
        .n_tok = N_TOK, .n_seq = 2, .n_entry = 5, .n_class = cache->n_class};
    tdm_attention_params params = {.heads_per_kv = N_HEAD, .n_head_all = N_HEAD, .is_causal = 1};
    tdm_select_params select = {.n_top = N_TOP};
    certify_cache_graph g;
    int32_t values[4];
    certify_verdict verdict = certify_cache_graph_begin(cache, &caps, &g);
    if (verdict != CERTIFY_PASSED) return verdict;
    params.kv = select.kv = g.kv;
    values[0] = tdm_build_input(g.b, "q", TDM_TYPE_F32, (const int64_t[]){DIM, N_HEAD, N_TOK, 1});
    values[1] = tdm_build_input(g.b, "w", TDM_TYPE_F32, (const int64_t[]){N_HEAD, N_TOK, 1, 1});
    values[2] = tdm_build_kv_select(g.b, values[0], values[1], g.step, g.state, &select);
    values[3] =
        tdm_build_attention_sparse(g.b, values[0], g.step, g.state, -1, values[2], &params, NULL);
    tdm_build_output(g.b, values[2], "select");
    tdm_build_output(g.b, values[3], "o");
    verdict = certify_cache_graph_end(&g, NULL, 0);
    if (verdict == CERTIFY_PASSED) {
        certify_rig_fill(&g.rig, values[0], 1);
        certify_rig_fill(&g.rig, values[1], 1);
        block_fill(&g);
        verdict = certify_cache_graph_run(&g);
    }
    if (verdict == CERTIFY_PASSED) verdict = judge(cache, &g.rig, values);
    certify_rig_destroy(&g.rig);
    return verdict;
}

/* ---- Blocks, and a list for each head ---- */

enum { N_BLOCK = 3, BLOCK_LEN = 5, N_LISTED = N_BLOCK * BLOCK_LEN };

/* A list of blocks of one token and head: all that the token sees of each, the block of the token,
 * and the best others within `margin`. */
static certify_verdict blocks_judge(const certify_cache *cache, int32_t pos, const double *q,
                                    const int32_t *list, double margin) {
    const int32_t last = pos < 0 ? -1 : pos / BLOCK_LEN;
    double worst = INFINITY, best = -INFINITY;
    int32_t at = 0, n_chosen = 0;
    bool is_whole = true;
    for (int32_t b = 0; b <= last; b++) {
        const bool is_chosen = at < N_LISTED && list[at] == b * BLOCK_LEN;
        double score = -INFINITY;
        for (int32_t c = b * BLOCK_LEN; c < (b + 1) * BLOCK_LEN && c <= pos; c++) {
            score = fmax(score, dot_of(cache, q, c));
            if (is_chosen && (at >= N_LISTED || list[at++] != c)) is_whole = false;
        }
        n_chosen += is_chosen;
        if (b == last && !is_chosen) is_whole = false;
        if (b < last && is_chosen) worst = fmin(worst, score);
        if (b < last && !is_chosen) best = fmax(best, score);
    }
    for (; at < N_LISTED; at++)
        if (list[at] != -1) is_whole = false;
    if (!is_whole || n_chosen != (last + 1 < N_BLOCK ? last + 1 : N_BLOCK))
        return certify_fail(cache->c,
                            "the list for position %d is not %d whole blocks of %d positions with "
                            "that of the token, then -1",
                            (int)pos, (int)(last + 1 < N_BLOCK ? last + 1 : N_BLOCK), BLOCK_LEN);
    if (best > worst + margin)
        return certify_fail(cache->c, "position %d: a block of %g is left out, one of %g is listed",
                            (int)pos, best, worst);
    return CERTIFY_PASSED;
}

/* KV_SELECT without w. */
static certify_verdict blocks_run(certify_cache *cache) {
    const tdm_step_caps caps = {.n_tok = N_TOK, .n_seq = 2, .n_entry = 5, .n_class = 1};
    tdm_select_params select = {.n_top = N_LISTED, .block_len = BLOCK_LEN, .n_local = 1};
    certify_cache_graph g;
    certify_verdict verdict = certify_cache_graph_begin(cache, &caps, &g);
    if (verdict != CERTIFY_PASSED) return verdict;
    select.kv = g.kv;
    int32_t q = tdm_build_input(g.b, "q", TDM_TYPE_F32, (const int64_t[]){DIM, N_HEAD, N_TOK, 1});
    int32_t list = tdm_build_kv_select(g.b, q, -1, g.step, g.state, &select);
    tdm_build_output(g.b, list, "select");
    verdict = certify_cache_graph_end(&g, NULL, 0);
    if (verdict == CERTIFY_PASSED) {
        certify_rig_fill(&g.rig, q, 1);
        block_fill(&g);
        verdict = certify_cache_graph_run(&g);
    }
    double *numbers = NULL;
    if (verdict == CERTIFY_PASSED) {
        numbers = certify_numbers(TDM_TYPE_F32, g.rig.bytes[q], DIM * N_HEAD * N_TOK);
        if (numbers == NULL) verdict = certify_skip(cache->c, "out of memory");
    }
    for (int32_t i = 0; i < N_TOK * N_HEAD && verdict == CERTIFY_PASSED; i++) {
        const int32_t t = i / N_HEAD, h = i % N_HEAD;
        verdict = blocks_judge(cache, positions[t], numbers + i * DIM,
                               (const int32_t *)(const void *)g.rig.bytes[list] +
                                   (h * N_TOK + t) * N_LISTED,
                               20 * sqrt(certify_trial_bound(cache->desc.type_k)));
    }
    free(numbers);
    certify_rig_destroy(&g.rig);
    return verdict;
}

/* ATTENTION whose KV heads, N_HEAD of them with a query head each, have lists of their own: at the
 * positions of a token every second one, shifted by the head. */
static certify_verdict lists_run(certify_cache *cache) {
    const tdm_step_caps caps = {.n_tok = N_TOK, .n_seq = 2, .n_entry = 5, .n_class = 1};
    tdm_attention_params params = {.heads_per_kv = 1, .n_head_all = N_HEAD, .is_causal = 1};
    certify_cache_graph g;
    certify_verdict verdict = certify_cache_graph_begin(cache, &caps, &g);
    if (verdict != CERTIFY_PASSED) return verdict;
    params.kv = g.kv;
    int32_t q = tdm_build_input(g.b, "q", TDM_TYPE_F32, (const int64_t[]){DIM, N_HEAD, N_TOK, 1});
    int32_t list =
        tdm_build_input(g.b, "list", TDM_TYPE_I32, (const int64_t[]){N_TOP, N_TOK, N_HEAD, 1});
    int32_t o = tdm_build_attention_sparse(g.b, q, g.step, g.state, -1, list, &params, NULL);
    tdm_build_output(g.b, o, "o");
    verdict = certify_cache_graph_end(&g, NULL, 0);
    if (verdict == CERTIFY_PASSED) {
        int32_t *ids = (int32_t *)(void *)g.rig.bytes[list];
        for (int32_t i = 0; i < N_TOP * N_TOK * N_HEAD; i++) {
            const int32_t pos = i / N_TOP / N_TOK + i % N_TOP * 2;
            ids[i] = pos <= positions[i / N_TOP % N_TOK] ? pos : -1;
        }
        certify_rig_fill(&g.rig, q, 1);
        block_fill(&g);
        verdict = certify_cache_graph_run(&g);
    }
    double *numbers = NULL, *got = NULL, *want = malloc(DV * N_HEAD * N_TOK * sizeof *want);
    if (verdict == CERTIFY_PASSED) {
        numbers = certify_numbers(TDM_TYPE_F32, g.rig.bytes[q], DIM * N_HEAD * N_TOK);
        got = certify_numbers(TDM_TYPE_F32, g.rig.bytes[o], DV * N_HEAD * N_TOK);
        if (numbers == NULL || got == NULL || want == NULL)
            verdict = certify_skip(cache->c, "out of memory");
    }
    for (int32_t i = 0; i < N_TOK * N_HEAD && verdict == CERTIFY_PASSED; i++) {
        const int32_t t = i / N_HEAD, h = i % N_HEAD;
        attend_model(cache, h, numbers + i * DIM,
                     (const int32_t *)(const void *)g.rig.bytes[list] + (h * N_TOK + t) * N_TOP,
                     want + i * DV);
    }
    if (verdict == CERTIFY_PASSED)
        verdict = certify_numbers_judge(cache->c, "o", got, want, DV * N_HEAD * N_TOK,
                                        certify_trial_bound(cache->desc.type_k), 0);
    free(numbers);
    free(got);
    free(want);
    certify_rig_destroy(&g.rig);
    return verdict;
}

typedef certify_verdict (*run_fn)(certify_cache *cache);

static certify_verdict type_run(certify *c, tdm_type type, int32_t n_head_kv, int32_t cls,
                                run_fn run) {
    const tdm_kv_desc desc = {.struct_size = sizeof desc,
                              .type_k = type,
                              .type_v = type,
                              .head_dim_k = DIM,
                              .head_dim_v = DV,
                              .n_head_kv = n_head_kv,
                              .page_len = PAGE_LEN,
                              .flags = TDM_KV_V_FROM_K | TDM_KV_SPARSE,
                              .cls = cls};
    const int32_t n_row = N_CELL * DIM * n_head_kv;
    certify_cache cache;
    int32_t cells[N_CELL];
    float *rows = malloc((size_t)n_row * sizeof *rows);
    if (rows == NULL) return certify_skip(c, "out of memory");
    certify_verdict verdict = certify_cache_create(c, &desc, N_PAGE, &cache);
    if (verdict == CERTIFY_PASSED) {
        if (cls > 0) cache.n_class = TDM_STEP_MAX_CLASS;
        for (int32_t i = 0; i < N_CELL; i++) cells[i] = cell_of(i);
        for (int32_t i = 0; i < n_row; i++) rows[i] = (float)certify_random_in(c, -999, 999) / 999;
        verdict = certify_cache_write(&cache, N_CELL, cells, rows, rows);
        if (verdict == CERTIFY_PASSED) verdict = certify_cache_learn(&cache);
        if (verdict == CERTIFY_PASSED) verdict = run(&cache);
        if (verdict == CERTIFY_PASSED) verdict = certify_cache_guards_judge(&cache);
        certify_cache_destroy(&cache);
    }
    free(rows);
    return verdict;
}

static certify_verdict types_run(certify *c, int32_t n_head_kv, int32_t cls, run_fn run) {
    static const tdm_type types[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_Q8_0};
    certify_verdict verdict = certify_open(c);
    int n_run = 0;
    if (verdict != CERTIFY_PASSED) return verdict;
    for (size_t i = 0; i < sizeof types / sizeof *types && verdict != CERTIFY_FAILED; i++) {
        verdict = type_run(c, types[i], n_head_kv, cls, run);
        if (verdict == CERTIFY_PASSED) n_run++;
    }
    return verdict == CERTIFY_SKIPPED && n_run > 0 ? CERTIFY_PASSED : verdict;
}

static certify_verdict sparse_check(certify *c) {
    return types_run(c, 1, 0, select_run);
}

static certify_verdict class_check(certify *c) {
    return types_run(c, 1, 2, select_run);
}

static certify_verdict blocks_check(certify *c) {
    return types_run(c, 1, 0, blocks_run);
}

static certify_verdict lists_check(certify *c) {
    return types_run(c, N_HEAD, 0, lists_run);
}

static const certify_check checks[] = {
    {"sparse.select", 4,
     "op.h: KV_SELECT: \"The positions of the n_top highest scores, in rising order, then -1.\"; "
     "ATTENTION: \"With select, only cached tokens at the positions that it lists for t count\"",
     sparse_check},
    {"sparse.class", 4, "kv.h: cls: \"which class of the step block its page table is\"",
     class_check},
    {"sparse.blocks", 4,
     "op.h: KV_SELECT: \"The list has the tokens at positions up to p of the n_top / block_len "
     "blocks "
     "with the highest scores, of which the n_local last ones up to the block of p are always "
     "among "
     "them.\"",
     blocks_check},
    {"sparse.lists", 4,
     "op.h: ATTENTION: \"n_list is 1, or n_head_kv: each KV head of the state then has a list of "
     "its "
     "own.\"",
     lists_check},
};
const certify_table certify_sparse_table = CERTIFY_SHARED_TABLE(checks);
