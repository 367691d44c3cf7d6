/* SPDX-License-Identifier: MIT
 *
 * cache_pool.c: checks of BLOCK_POOL against sums over the tokens of a block in double. Two
 * sequences run for several steps and keep their state in the slots. The model keeps in a slot the
 * list of the tokens that the sequence had so far. Other ops on slots: cache_recurrent.c.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "certify/cache_graph.h"
#include "certify/trial.h"

enum {
    N_TOK = 9, /* of the step block */
    N_SEQ = 2,
    N_SLOT = 6,
    N_STEP = 5,
    MAX_CHANNEL = 160, /* rows of x */
    MAX_TOKEN = 48     /* of all steps */
};

/* Sequence 0 continues in step 2 from an earlier token than its last one, and sequence 1 starts
 * anew in step 3. Tokens before the first sequence and behind the last belong to no sequence. -7
 * and N_SLOT are no slots. */
static const int32_t first_tok[N_STEP][N_SEQ + 1] = {
    {0, 5, 8}, {0, 1, 2}, {0, 7, 9}, {1, 4, 9}, {0, 0, 6}};
static const int32_t rs_read[N_STEP][N_SEQ] = {{-1, -1}, {0, 1}, {2, 3}, {4, -7}, {-1, 1}};
static const int32_t rs_write[N_STEP][N_TOK] = {{-1, 2, -1, -1, 0, -1, -1, 1, -1},
                                                {5, 3, -1, -1, -1, -1, -1, -1, -1},
                                                {-1, -1, 0, -1, -1, -1, 4, N_SLOT, 1},
                                                {2, -1, -1, -1, -1, 5, -1, -1, 1},
                                                {-1, -1, -1, -1, -1, 0, -1, -1, -1}};

typedef struct pooling {
    int32_t n, n_part, block_len;
    int32_t first[N_SEQ]; /* positions at which the sequences start from nothing */
    double scale;         /* of the scores */
    bool is_view;         /* x and score are slices of one value */
} pooling;

static const pooling cases[] = {
    {.n = 5, .n_part = 1, .block_len = 4, .scale = 2},
    {.n = 5, .n_part = 2, .block_len = 4, .scale = 2},
    {.n = 64, .n_part = 2, .block_len = 4, .first = {3, 1}, .scale = 60, .is_view = true},
    {.n = 70, .n_part = 2, .block_len = 3, .first = {7, 11}, .scale = 9, .is_view = true},
    {.n = 130, .n_part = 1, .block_len = 2, .first = {0, 1}, .scale = 4},
    {.n = 33, .n_part = 1, .block_len = 128, .first = {123, 0}, .scale = 3, .is_view = true},
    {.n = 17, .n_part = 2, .block_len = 128, .first = {380, 126}, .scale = 3},
    {.n = 8, .n_part = 2, .block_len = 1, .first = {2, 0}, .scale = 3},
};

/* ---- The model ---- */

typedef struct token {
    int32_t pos;
    double x[MAX_CHANNEL], exponent[MAX_CHANNEL]; /* of its weight: score + bias */
} token;

/* The tokens that a sequence had, as indices of model.log. */
typedef struct history {
    int32_t n;
    int32_t next_pos;
    int32_t at[MAX_TOKEN];
} history;

typedef struct model {
    const pooling *p;
    int32_t n_logged;
    token log[MAX_TOKEN];
    history slots[N_SLOT];
} model;

static bool is_slot(int32_t slot) {
    return slot >= 0 && slot < N_SLOT;
}

static history start_of(const model *m, int32_t step, int32_t seq) {
    const int32_t slot = rs_read[step][seq];
    if (is_slot(slot)) return m->slots[slot];
    return (history){.next_pos = m->p->first[seq]};
}

/* op.h, BLOCK_POOL: channel c after the last token of the history. */
static double mean_of(const model *m, const history *h, int32_t c) {
    const int32_t n = m->p->n, n_part = m->p->n_part, len = m->p->block_len;
    const int32_t block = m->log[h->at[h->n - 1]].pos / len;
    double max = -INFINITY, weight = 0, sum = 0;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < h->n; i++) {
            const token *t = &m->log[h->at[i]];
            const bool is_own = t->pos / len == block;
            const bool is_earlier = n_part == 2 && t->pos / len == block - 1;
            const int32_t row = is_own ? (n_part - 1) * n + c : c;
            if (!is_own && !is_earlier) continue;
            if (pass == 0) max = fmax(max, t->exponent[row]);
            if (pass == 0) continue;
            weight += exp(t->exponent[row] - max);
            sum += exp(t->exponent[row] - max) * t->x[row];
        }
    return sum / weight;
}

/* Channels of x or score, `row_len` floats from token to token. */
typedef struct rows {
    const float *at;
    int32_t row_len;
} rows;

/* want[N_TOK][n] is zero before. */
static void step_model(model *m, int32_t step, const rows *x, const rows *score, const float *bias,
                       double *want) {
    const int32_t n_row = m->p->n * m->p->n_part;
    for (int32_t s = 0; s < N_SEQ; s++) {
        history h = start_of(m, step, s);
        for (int32_t t = first_tok[step][s]; t < first_tok[step][s + 1]; t++) {
            token *now = &m->log[m->n_logged];
            h.at[h.n++] = m->n_logged++;
            now->pos = h.next_pos++;
            for (int32_t i = 0; i < n_row; i++) {
                now->x[i] = (double)x->at[t * x->row_len + i];
                now->exponent[i] = (double)score->at[t * score->row_len + i] +
                                   (double)bias[now->pos % m->p->block_len * n_row + i];
            }
            for (int32_t c = 0; c < m->p->n; c++) want[t * m->p->n + c] = mean_of(m, &h, c);
            if (is_slot(rs_write[step][t])) m->slots[rs_write[step][t]] = h;
        }
    }
}

/* ---- The device ---- */

static tdm_kv_desc desc_of(const pooling *p) {
    return (tdm_kv_desc){.struct_size = sizeof(tdm_kv_desc),
                         .type_k = TDM_TYPE_F32,
                         .type_v = TDM_TYPE_F32,
                         .head_dim_k = 3 * p->n * p->n_part,
                         .head_dim_v = 3 * p->n * p->n_part,
                         .n_head_kv = 1,
                         .page_len = 1,
                         .flags = TDM_KV_V_FROM_K | TDM_KV_RECURRENT | TDM_KV_POOLED};
}

/* A part of a value: where x or score lies in it. */
typedef struct part {
    int32_t value, off, row_len;
} part;

static int32_t part_add(certify_cache_graph *g, const pooling *p, const part *at) {
    const int64_t n_row = p->n * p->n_part;
    if (!p->is_view) return at->value;
    return tdm_build_slice(g->b, at->value, (const int64_t[]){at->off, 0, 0, 0},
                           (const int64_t[]){n_row, N_TOK, 1, 1});
}

static part part_make(certify_cache_graph *g, const pooling *p, const part *whole) {
    const int32_t n_row = p->n * p->n_part, row_len = p->is_view ? 2 * n_row + 5 : n_row;
    if (p->is_view && whole != NULL) return (part){whole->value, n_row + 3, row_len};
    return (part){
        tdm_build_input(g->b, NULL, TDM_TYPE_F32, (const int64_t[]){row_len, N_TOK, 1, 1}),
        p->is_view ? 1 : 0, row_len};
}

static rows rows_of(const certify_cache_graph *g, const part *p) {
    return (rows){(const float *)(const void *)g->rig.bytes[p->value] + p->off, p->row_len};
}

static void block_fill(certify_cache_graph *g, const model *m, int32_t step) {
    g->header.n_tok = N_TOK;
    memcpy(g->block + g->header.first_tok_off, first_tok[step], sizeof first_tok[step]);
    memcpy(g->block + g->header.rs_read_off, rs_read[step], sizeof rs_read[step]);
    memcpy(g->block + g->header.rs_write_off, rs_write[step], sizeof rs_write[step]);
    for (int32_t t = 0; t < N_TOK; t++)
        g->block[g->header.pos_off + t] = g->block[g->header.seq_off + t] = -1;
    for (int32_t s = 0; s < N_SEQ; s++) {
        const int32_t pos = start_of(m, step, s).next_pos, first = first_tok[step][s];
        for (int32_t t = first; t < first_tok[step][s + 1]; t++) {
            g->block[g->header.pos_off + t] = pos + t - first;
            g->block[g->header.seq_off + t] = s;
        }
    }
}

static certify_verdict step_judge(certify_cache_graph *g, model *m, int32_t step, const part *x,
                                  const part *score, int32_t bias, int32_t y) {
    const size_t n = (size_t)m->p->n * N_TOK;
    const rows x_rows = rows_of(g, x), score_rows = rows_of(g, score);
    double *got = certify_numbers(TDM_TYPE_F32, g->rig.bytes[y], n);
    double *want = calloc(n, sizeof *want);
    char what[64];
    certify_verdict verdict = CERTIFY_PASSED;
    snprintf(what, sizeof what, "step %d, %d part%s of %d, blocks of %d", (int)step,
             (int)m->p->n_part, m->p->n_part == 1 ? "" : "s", (int)m->p->n, (int)m->p->block_len);
    if (got == NULL || want == NULL) {
        verdict = certify_skip(g->cache->c, "out of memory");
    } else {
        step_model(m, step, &x_rows, &score_rows, (const float *)(const void *)g->rig.bytes[bias],
                   want);
        verdict = certify_numbers_judge(g->cache->c, what, got, want, n, 1e-9, 0);
    }
    free(got);
    free(want);
    return verdict;
}

static certify_verdict step_run(certify_cache *cache, model *m, int32_t step) {
    const pooling *p = m->p;
    const tdm_step_caps caps = {
        .n_tok = N_TOK, .n_seq = N_SEQ, .n_entry = 1, .n_class = 1, .has_rs = 1};
    certify_cache_graph g;
    certify_verdict verdict = certify_cache_graph_begin(cache, &caps, &g);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_pool_params params = {.kv = g.kv, .n_part = p->n_part};
    const part x = part_make(&g, p, NULL), score = part_make(&g, p, &x);
    const int32_t bias = tdm_build_weight(
        g.b, "bias", TDM_TYPE_F32, (const int64_t[]){p->n * p->n_part, p->block_len, 1, 1}, 0);
    const int32_t y = tdm_build_block_pool(g.b, part_add(&g, p, &x), part_add(&g, p, &score), bias,
                                           g.step, g.state, &params);
    tdm_build_output(g.b, y, "y");
    verdict = certify_cache_graph_end(&g, NULL, 0);
    if (verdict == CERTIFY_PASSED) {
        certify_rig_fill(&g.rig, x.value, p->scale);
        if (score.value != x.value) certify_rig_fill(&g.rig, score.value, p->scale);
        certify_rig_fill(&g.rig, bias, 2);
        block_fill(&g, m, step);
        verdict = certify_cache_graph_run(&g);
    }
    if (verdict == CERTIFY_PASSED) verdict = step_judge(&g, m, step, &x, &score, bias, y);
    certify_rig_destroy(&g.rig);
    return verdict;
}

static certify_verdict case_run(certify *c, const pooling *p) {
    const tdm_kv_desc desc = desc_of(p);
    certify_cache cache;
    model *m = calloc(1, sizeof *m);
    if (m == NULL) return certify_skip(c, "out of memory");
    m->p = p;
    certify_verdict verdict = certify_cache_create(c, &desc, N_SLOT, &cache);
    for (int32_t step = 0; step < N_STEP && verdict == CERTIFY_PASSED; step++)
        verdict = step_run(&cache, m, step);
    if (verdict == CERTIFY_PASSED) verdict = certify_cache_guards_judge(&cache);
    certify_cache_destroy(&cache);
    free(m);
    return verdict;
}

static certify_verdict block_pool_check(certify *c) {
    certify_verdict verdict = certify_open(c);
    int n_run = 0;
    if (verdict != CERTIFY_PASSED) return verdict;
    for (size_t i = 0; i < sizeof cases / sizeof *cases && verdict != CERTIFY_FAILED; i++) {
        verdict = case_run(c, &cases[i]);
        if (verdict == CERTIFY_PASSED) n_run++;
    }
    return verdict == CERTIFY_SKIPPED && n_run > 0 ? CERTIFY_PASSED : verdict;
}

static const certify_check checks[] = {
    {"recurrent.block-pool", 4,
     "op.h: BLOCK_POOL: \"for each channel a mean of x over blocks of block_len positions\"; "
     "\"with "
     "n_part = 2 the first n count for the block behind it\"; \"y of a token is the mean over its "
     "block so far\"",
     block_pool_check},
};
const certify_table certify_pool_table = CERTIFY_SHARED_TABLE(checks);
