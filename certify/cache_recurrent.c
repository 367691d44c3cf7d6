/* SPDX-License-Identifier: MIT
 *
 * cache_recurrent.c: checks of CONV1D and LINEAR_SCAN against a model in double, which has a state
 * for each slot. Two steps of two sequences. In the second, sequence 0 continues from an earlier
 * token than its last one, and sequence 1 from the slot that the last token of sequence 0 wrote.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "certify/cache_graph.h"
#include "certify/trial.h"

enum { N_TOK = 6, N_USED = 5, N_SEQ = 2, N_SLOT = 5, N_STEP = 2, MAX_STATE = 4096, MAX_SRC = 8 };

static const int32_t first_tok[N_STEP][N_SEQ + 1] = {{0, 3, 5}, {0, 2, 5}};
static const int32_t rs_read[N_STEP][N_SEQ] = {{-1, -1}, {2, 0}};
static const int32_t rs_write[N_STEP][N_TOK] = {{-1, 2, 0, -1, 1, -1}, {-1, 3, -1, -1, 4, -1}};

/* The numbers of a check. A CONV1D has channels in two segments, a LINEAR_SCAN heads. */
typedef struct recurrence {
    bool is_conv, is_tiled, has_a, has_beta, has_bias, has_erase;
    int32_t k, n_unit, unit_len[2];           /* CONV1D */
    int32_t dk, dv, n_k, per_k, ng, n_unit_v; /* LINEAR_SCAN; ng: elements of g */
    float scale;
} recurrence;

static const recurrence conv_cases[] = {
    {.is_conv = true, .k = 4, .n_unit = 3, .unit_len = {5, 10}},
    {.is_conv = true, .k = 2, .n_unit = 2, .unit_len = {1, 32}, .has_bias = true},
};
static const recurrence scan_cases[] = {
    {.dk = 16,
     .dv = 24,
     .n_k = 2,
     .per_k = 2,
     .ng = 1,
     .n_unit_v = 4,
     .has_beta = true,
     .scale = 0.25f},
    {.dk = 32,
     .dv = 8,
     .n_k = 3,
     .per_k = 2,
     .ng = 1,
     .n_unit_v = 3,
     .has_beta = true,
     .is_tiled = true},
    {.dk = 16, .dv = 16, .n_k = 2, .per_k = 1, .ng = 16, .n_unit_v = 2, .has_beta = true},
    {.dk = 33, .dv = 5, .n_k = 1, .per_k = 4, .ng = 1, .n_unit_v = 2},
    {.dk = 4, .dv = 1, .n_k = 1, .per_k = 12, .ng = 1, .n_unit_v = 3, .has_a = true},
};
static const recurrence erase_cases[] = {
    {.dk = 16, .dv = 16, .n_k = 3, .per_k = 1, .ng = 16, .n_unit_v = 3, .has_erase = true},
    {.dk = 33,
     .dv = 7,
     .n_k = 2,
     .per_k = 2,
     .ng = 1,
     .n_unit_v = 4,
     .has_erase = true,
     .scale = 0.5f},
    {.dk = 8,
     .dv = 5,
     .n_k = 2,
     .per_k = 3,
     .ng = 8,
     .n_unit_v = 2,
     .has_erase = true,
     .is_tiled = true},
    {.dk = 64,
     .dv = 9,
     .n_k = 1,
     .per_k = 2,
     .ng = 1,
     .n_unit_v = 1,
     .has_a = true,
     .has_erase = true},
};

static int32_t channels(const recurrence *r) {
    return r->n_unit * (r->unit_len[0] + r->unit_len[1]);
}

static tdm_kv_desc desc_of(const recurrence *r) {
    int32_t n_v = r->n_k * r->per_k;
    int32_t len =
        r->is_conv ? channels(r) / r->n_unit * (r->k - 1) : n_v / r->n_unit_v * r->dk * r->dv;
    return (tdm_kv_desc){.struct_size = sizeof(tdm_kv_desc),
                         .type_k = TDM_TYPE_F32,
                         .type_v = TDM_TYPE_F32,
                         .head_dim_k = len,
                         .head_dim_v = len,
                         .n_head_kv = r->is_conv ? r->n_unit : r->n_unit_v,
                         .page_len = 1,
                         .rope_offset = r->is_conv ? 0 : r->dk,
                         .flags = TDM_KV_V_FROM_K | TDM_KV_RECURRENT |
                                  (r->has_erase ? TDM_KV_ERASED : 0)};
}

/* ---- The model ---- */

/* Numbers of the node's sources, in the order of node_add; NULL = absent. */
typedef struct sources {
    const float *at[MAX_SRC];
} sources;

/* state: [n_ch][k - 1] inputs, the oldest first. */
static void conv_token(const recurrence *r, const sources *in, int32_t t, double *state,
                       double *out) {
    int32_t n_ch = channels(r), k = r->k;
    for (int32_t c = 0; c < n_ch; c++) {
        double *held = state + c * (k - 1), x = (double)in->at[0][t * n_ch + c];
        double sum = in->at[2] != NULL ? (double)in->at[2][c] : 0;
        for (int32_t i = 0; i < k; i++)
            sum += (double)in->at[1][c * k + i] * (i < k - 1 ? held[i] : x);
        memmove(held, held + 1, (size_t)(k - 2) * sizeof *held);
        held[k - 2] = x;
        out[t * n_ch + c] = sum;
    }
}

/* state: [n_v][dv][dk]. */
static void scan_token(const recurrence *r, const sources *in, int32_t t, double *state,
                       double *out) {
    enum { Q, K, V, G, A, BETA, ERASE, WRITE };
    const int32_t dk = r->dk, dv = r->dv, n_v = r->n_k * r->per_k;
    for (int32_t h = 0; h < n_v; h++) {
        int32_t hk = r->is_tiled ? h % r->n_k : h / r->per_k;
        const float *q = in->at[Q] + (t * r->n_k + hk) * dk,
                    *k = in->at[K] + (t * r->n_k + hk) * dk;
        const float *g = in->at[G] + (t * n_v + h) * r->ng;
        for (int32_t j = 0; j < dv; j++) {
            double *s = state + (h * dv + j) * dk, held = 0, erased = 0, sum = 0;
            double u = (double)in->at[V][(t * n_v + h) * dv + j];
            for (int32_t i = 0; i < dk; i++) {
                if (r->has_erase)
                    erased += (double)in->at[ERASE][(t * r->n_k + hk) * dk + i] * s[i];
                double a = in->at[A] != NULL ? (double)in->at[A][h * dk + i] : 1;
                s[i] *= exp((double)g[r->ng > 1 ? i : 0] * a);
                held += (double)k[i] * s[i];
            }
            if (in->at[BETA] != NULL) u = (double)in->at[BETA][t * n_v + h] * (u - held);
            for (int32_t i = 0; i < dk; i++) {
                s[i] += (double)k[i] * u;
                if (r->has_erase)
                    s[i] += (double)in->at[WRITE][(t * r->n_k + hk) * dk + i] * erased;
                sum += (double)q[i] * s[i];
            }
            out[(t * n_v + h) * dv + j] = sum * (r->scale != 0 ? (double)r->scale : 1);
        }
    }
}

/* A step over slots[N_SLOT][MAX_STATE]; out is zero before. */
static void step_model(const recurrence *r, const sources *in, int32_t step, double *slots,
                       double *state, double *out) {
    for (int32_t s = 0; s < N_SEQ; s++) {
        if (rs_read[step][s] >= 0)
            memcpy(state, slots + rs_read[step][s] * MAX_STATE, MAX_STATE * sizeof *state);
        else
            memset(state, 0, MAX_STATE * sizeof *state);
        for (int32_t t = first_tok[step][s]; t < first_tok[step][s + 1]; t++) {
            (r->is_conv ? conv_token : scan_token)(r, in, t, state, out);
            if (rs_write[step][t] >= 0)
                memcpy(slots + rs_write[step][t] * MAX_STATE, state, MAX_STATE * sizeof *state);
        }
    }
}

/* ---- The device ---- */

static int32_t input(certify_cache_graph *g, int64_t n0, int64_t n1, int64_t n2) {
    return tdm_build_input(g->b, NULL, TDM_TYPE_F32, (const int64_t[]){n0, n1, n2, 1});
}

/* Adds the op; src[MAX_SRC] receives its sources, -1 = absent. */
static int32_t node_add(certify_cache_graph *g, const recurrence *r, int32_t *src) {
    const int32_t n_v = r->n_k * r->per_k, n_ch = channels(r);
    for (int32_t i = 0; i < MAX_SRC; i++) src[i] = -1;
    if (r->is_conv) {
        tdm_conv_params p = {.kv = g->kv, .n_segment = 2};
        memcpy(p.unit_len, r->unit_len, sizeof r->unit_len);
        src[0] = input(g, n_ch, N_TOK, 1);
        src[1] = input(g, r->k, n_ch, 1);
        if (r->has_bias) src[2] = input(g, n_ch, 1, 1);
        return tdm_build_conv1d(g->b, src[0], src[1], src[2], g->step, g->state, &p);
    }
    tdm_scan_params p = {
        .kv = g->kv, .heads_per_k = r->per_k, .is_tiled = r->is_tiled, .scale = r->scale};
    src[0] = input(g, r->dk, r->n_k, N_TOK);
    src[1] = input(g, r->dk, r->n_k, N_TOK);
    src[2] = input(g, r->dv, n_v, N_TOK);
    src[3] = input(g, r->ng, n_v, N_TOK);
    if (r->has_a) src[4] = input(g, r->dk, n_v, 1);
    if (r->has_beta) src[5] = input(g, 1, n_v, N_TOK);
    const tdm_scan_sources all = {src[0], src[1], src[2], src[3], src[4], src[5]};
    if (!r->has_erase) return tdm_build_linear_scan(g->b, &all, g->step, g->state, &p);
    for (int32_t i = 6; i < MAX_SRC; i++) src[i] = input(g, r->dk, r->n_k, N_TOK);
    return tdm_build_linear_scan_erased(g->b, &all, src[6], src[7], g->step, g->state, &p);
}

static void block_fill(certify_cache_graph *g, int32_t step) {
    g->header.n_tok = N_USED;
    memcpy(g->block + g->header.first_tok_off, first_tok[step], sizeof first_tok[step]);
    memcpy(g->block + g->header.rs_read_off, rs_read[step], sizeof rs_read[step]);
    memcpy(g->block + g->header.rs_write_off, rs_write[step], sizeof rs_write[step]);
}

static certify_verdict step_judge(certify_cache_graph *g, const recurrence *r, int32_t step,
                                  const int32_t *src, int32_t y, double *slots) {
    const size_t n = (size_t)tdm_shape_count(tdm_graph_value(g->rig.graph, y)->ne);
    double *got = certify_numbers(TDM_TYPE_F32, g->rig.bytes[y], n);
    double *want = calloc(n + MAX_STATE, sizeof *want);
    certify_verdict verdict = CERTIFY_PASSED;
    sources in = {{NULL}};
    for (int32_t i = 0; i < MAX_SRC; i++)
        if (src[i] >= 0) in.at[i] = (const float *)(const void *)g->rig.bytes[src[i]];
    if (got == NULL || want == NULL) {
        verdict = certify_skip(g->cache->c, "out of memory");
    } else {
        step_model(r, &in, step, slots, want + n, want);
        verdict = certify_numbers_judge(g->cache->c, step == 0 ? "from zeros" : "from slots", got,
                                        want, n, 1e-9, 0);
    }
    free(got);
    free(want);
    return verdict;
}

static certify_verdict step_run(certify_cache *cache, const recurrence *r, int32_t step,
                                double *slots) {
    const tdm_step_caps caps = {
        .n_tok = N_TOK, .n_seq = N_SEQ, .n_entry = 1, .n_class = 1, .has_rs = 1};
    certify_cache_graph g;
    int32_t src[MAX_SRC];
    certify_verdict verdict = certify_cache_graph_begin(cache, &caps, &g);
    if (verdict != CERTIFY_PASSED) return verdict;
    int32_t y = node_add(&g, r, src);
    tdm_build_output(g.b, y, "y");
    verdict = certify_cache_graph_end(&g, NULL, 0);
    if (verdict == CERTIFY_PASSED) {
        for (int32_t i = 0; i < MAX_SRC; i++)
            if (src[i] >= 0) certify_rig_fill(&g.rig, src[i], r->is_conv ? 1 : 0.6);
        block_fill(&g, step);
        verdict = certify_cache_graph_run(&g);
    }
    if (verdict == CERTIFY_PASSED) verdict = step_judge(&g, r, step, src, y, slots);
    certify_rig_destroy(&g.rig);
    return verdict;
}

static certify_verdict case_run(certify *c, const recurrence *r) {
    const tdm_kv_desc desc = desc_of(r);
    certify_cache cache;
    double *slots = calloc((size_t)N_SLOT * MAX_STATE, sizeof *slots);
    if (slots == NULL) return certify_skip(c, "out of memory");
    certify_verdict verdict = certify_cache_create(c, &desc, N_SLOT, &cache);
    for (int32_t step = 0; step < N_STEP && verdict == CERTIFY_PASSED; step++)
        verdict = step_run(&cache, r, step, slots);
    if (verdict == CERTIFY_PASSED) verdict = certify_cache_guards_judge(&cache);
    certify_cache_destroy(&cache);
    free(slots);
    return verdict;
}

static certify_verdict cases_run(certify *c, const recurrence *cases, size_t n) {
    certify_verdict verdict = certify_open(c);
    int n_run = 0;
    if (verdict != CERTIFY_PASSED) return verdict;
    for (size_t i = 0; i < n && verdict != CERTIFY_FAILED; i++) {
        verdict = case_run(c, &cases[i]);
        if (verdict == CERTIFY_PASSED) n_run++;
    }
    return verdict == CERTIFY_SKIPPED && n_run > 0 ? CERTIFY_PASSED : verdict;
}

static certify_verdict conv1d_check(certify *c) {
    return cases_run(c, conv_cases, sizeof conv_cases / sizeof conv_cases[0]);
}

static certify_verdict linear_scan_check(certify *c) {
    return cases_run(c, scan_cases, sizeof scan_cases / sizeof scan_cases[0]);
}

static certify_verdict erase_check(certify *c) {
    return cases_run(c, erase_cases, sizeof erase_cases / sizeof erase_cases[0]);
}

static const certify_check checks[] = {
    {"recurrent.conv1d", 4,
     "op.h: CONV1D: \"inputs of earlier steps come from the state\"; \"A sequence starts from slot "
     "rs_read of the step block, or from zeros where that is -1\"",
     conv1d_check},
    {"recurrent.linear-scan", 4,
     "op.h: LINEAR_SCAN: \"each head of v has a matrix S[i, j] of dk x dv.\"; \"after a token "
     "whose "
     "rs_write is not -1 the state is stored in that slot\"; \"Tokens that belong to no sequence "
     "give zeros.\"",
     linear_scan_check},
    {"recurrent.linear-scan-erased", 4,
     "op.h: LINEAR_SCAN: \"S[i, j] += k[i] * u[j] + write[i] * e[j]\"; \"erase and write are there "
     "exactly when the state is TDM_KV_ERASED\"",
     erase_check},
};
const certify_table certify_recurrent_table = CERTIFY_SHARED_TABLE(checks);
