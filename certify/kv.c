/* SPDX-License-Identifier: MIT
 *
 * kv.c: checks of the cache ops against the model of cache.h.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "certify/cache.h"
#include "certify/reference.h"
#include "certify/trial.h"

static const tdm_type kv_types[] = {
#define KV_TYPE(ID, name) TDM_TYPE_##ID,
    TDM_KV_TYPE_LIST(KV_TYPE)
#undef KV_TYPE
};
enum { N_TYPE = TDM_KV_TYPE_COUNT, ROTATED = TDM_KV_ROTATE_K | TDM_KV_ROTATE_V };

/* The bound on the NMSE of storing uniform numbers in a type: several times the loss of a plain
 * quantiser. */
static double storage_bound(tdm_type type) {
    switch ((int)type) {
    case TDM_TYPE_F32: return 1e-12;
    case TDM_TYPE_F16: return 3e-7;
    case TDM_TYPE_BF16: return 2e-5;
    case TDM_TYPE_Q8_0: return 2e-4;
    case TDM_TYPE_Q5_0:
    case TDM_TYPE_Q5_1: return 1e-2;
    default: return 4e-2;
    }
}

/* The bound on the NMSE of attention over the stored rows: queries and probabilities may be rounded
 * to the cache's precision. */
static double attention_bound(const tdm_kv_desc *desc) {
    double k = certify_trial_bound(desc->type_k), v = certify_trial_bound(desc->type_v);
    return k > v ? k : v;
}

static char label[128];

static const char *desc_text(const tdm_kv_desc *d) {
    snprintf(label, sizeof label, "%s/%s, %d heads of %d and %d%s%s%s", tdm_type_name(d->type_k),
             tdm_type_name(d->type_v), (int)d->n_head_kv, (int)d->head_dim_k, (int)d->head_dim_v,
             d->flags & ROTATED ? ", rotated" : "", d->flags & TDM_KV_V_FROM_K ? ", V from K" : "",
             d->flags & TDM_KV_IN_HOST ? ", in the host's memory" : "");
    return label;
}

static certify_verdict label_put(certify *c, const tdm_kv_desc *d, certify_verdict verdict) {
    return certify_prefix(c, verdict, "%s", desc_text(d));
}

/* ---- Caches to try ---- */

typedef certify_verdict (*cache_fn)(certify_cache *cache);

static certify_verdict desc_try(certify *c, const tdm_kv_desc *desc, cache_fn run, int *n_run) {
    certify_cache cache;
    certify_verdict verdict = certify_cache_create(c, desc, 8, &cache);
    if (verdict == CERTIFY_PASSED) verdict = run(&cache);
    if (verdict == CERTIFY_PASSED) verdict = certify_cache_guards_judge(&cache);
    if (verdict == CERTIFY_PASSED) (*n_run)++;
    certify_cache_destroy(&cache);
    return label_put(c, desc, verdict);
}

/* Runs a check on caches of every type with these flags, with and without rotation, with whole
 * blocks and with padding; a skip where the device supports none of them. */
static certify_verdict each_with(certify *c, cache_fn run, uint32_t flags) {
    static const int32_t dims[][2] = {{64, 64}, {80, 48}, {36, 20}};
    int n_run = 0;
    certify_verdict verdict = CERTIFY_PASSED;
    for (int t = 0; t < N_TYPE; t++)
        for (int v = 0; v < 2; v++)
            for (int rotated = 0; rotated < 2; rotated++) {
                int d = (t + v + rotated) % 3;
                tdm_kv_desc desc = {.struct_size = sizeof desc,
                                    .type_k = kv_types[t],
                                    .type_v = kv_types[v ? (t + 4) % N_TYPE : t],
                                    .head_dim_k = dims[d][0],
                                    .head_dim_v = dims[d][1],
                                    .n_head_kv = 1 + (t + rotated) % 3,
                                    .page_len = 16,
                                    .n_rot = d == 1 ? 32 : dims[d][0],
                                    .rope_offset = d == 1 ? 32 : 0,
                                    .flags = flags | (rotated ? ROTATED : 0)};
                verdict = desc_try(c, &desc, run, &n_run);
                if (verdict == CERTIFY_FAILED) return verdict;
            }
    tdm_kv_desc latent = {.struct_size = sizeof latent,
                          .type_k = TDM_TYPE_Q8_0,
                          .type_v = TDM_TYPE_Q8_0,
                          .head_dim_k = 96,
                          .head_dim_v = 64,
                          .n_head_kv = 1,
                          .page_len = 32,
                          .rope_offset = 64,
                          .n_rot = 32,
                          .flags = flags | TDM_KV_V_FROM_K | ROTATED};
    verdict = desc_try(c, &latent, run, &n_run);
    if (verdict == CERTIFY_FAILED) return verdict;
    latent.type_k = latent.type_v = TDM_TYPE_F16;
    latent.flags = flags | TDM_KV_V_FROM_K;
    latent.page_len = 0;
    verdict = desc_try(c, &latent, run, &n_run);
    if (verdict == CERTIFY_FAILED) return verdict;
    return n_run > 0 ? CERTIFY_PASSED : verdict;
}

static certify_verdict each(certify *c, cache_fn run) {
    certify_verdict verdict = certify_open(c);
    return verdict == CERTIFY_PASSED ? each_with(c, run, 0) : verdict;
}

/* Rows of n_tok tokens to write, k and v as in certify_cache_write, and the cell of each. */
typedef struct rows {
    int32_t n_tok;
    int32_t cells[64];
    float *k, *v;
} rows;

static certify_verdict rows_write(certify_cache *cache, rows *r, int32_t n_tok) {
    const tdm_kv_desc *d = &cache->desc;
    size_t nk = (size_t)(n_tok * d->n_head_kv * d->head_dim_k);
    size_t nv = (size_t)(n_tok * d->n_head_kv * d->head_dim_v);
    r->n_tok = n_tok;
    r->k = malloc(nk * sizeof *r->k);
    r->v = malloc(nv * sizeof *r->v);
    if (r->k == NULL || r->v == NULL) return certify_skip(cache->c, "out of memory");
    for (size_t i = 0; i < nk; i++) r->k[i] = (float)certify_random_in(cache->c, -999, 999) / 999;
    for (size_t i = 0; i < nv; i++) r->v[i] = (float)certify_random_in(cache->c, -999, 999) / 999;
    return certify_cache_write(cache, n_tok, r->cells, r->k, r->v);
}

static void rows_free(rows *r) {
    free(r->k);
    free(r->v);
}

/* Tokens 0 .. 15 in page 3, 16 .. 31 in page 0, 32 .. 39 in the middle of page 5. */
static void rows_place(const certify_cache *cache, rows *r) {
    for (int32_t t = 0; t < 40; t++) {
        int32_t page = t < 16 ? 3 : t < 32 ? 0 : 5;
        r->cells[t] = page * cache->page_len + (t < 32 ? t % 16 : t - 32 + 2);
    }
}

/* ---- Storage ---- */

static certify_verdict size_check(certify *c) {
    uint64_t size = 0, again = 0;
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (!TDM_HAS(ops, kv_page_size)) return certify_skip(c, "no slot kv_page_size");
    tdm_kv_desc desc = {.struct_size = sizeof desc,
                        .type_k = TDM_TYPE_F16,
                        .type_v = TDM_TYPE_F16,
                        .head_dim_k = 64,
                        .head_dim_v = 64,
                        .n_head_kv = 2};
    if (ops->kv_page_size(c->device, &desc, &size, NULL) == TDM_OK) {
        desc.page_len = TDM_KV_PAGE_LEN_DEFAULT;
        if (ops->kv_page_size(c->device, &desc, &again, NULL) != TDM_OK || again != size)
            return certify_fail(c, "page_len 0 takes %llu bytes, %d takes %llu",
                                (unsigned long long)size, TDM_KV_PAGE_LEN_DEFAULT,
                                (unsigned long long)again);
        if (size < (uint64_t)2 * 2 * 64 * 2 * TDM_KV_PAGE_LEN_DEFAULT)
            return certify_fail(c, "%llu bytes cannot hold the rows", (unsigned long long)size);
    }
    tdm_error err = {.struct_size = sizeof err};
    desc.type_k = TDM_TYPE_Q6_K; /* no cache type (kv.h) */
    size = 12345;
    tdm_status status = ops->kv_page_size(c->device, &desc, &size, &err);
    if (status != TDM_UNSUPPORTED)
        return certify_fail(c, "a cache of q6_K returned '%s'", tdm_status_text(status));
    if (err.message[0] == 0) return certify_fail(c, "refused q6_K without a reason");
    if (size != 12345) return certify_fail(c, "failed and wrote *size_out");
    return CERTIFY_PASSED;
}

/* Compares exported rows with the rows that were written, both rotated. */
static certify_verdict rows_judge(certify_cache *cache, bool is_v, const uint8_t *bytes,
                                  const float *x, int32_t n_row) {
    int32_t dim = is_v ? cache->desc.head_dim_v : cache->desc.head_dim_k;
    tdm_type type = is_v ? cache->desc.type_v : cache->desc.type_k;
    int32_t padded = tdm_kv_padded(type, dim), n = n_row * cache->desc.n_head_kv;
    double *got = malloc((size_t)(n * padded) * sizeof *got);
    double *want = calloc((size_t)(n * padded), sizeof *want);
    if (got == NULL || want == NULL) return certify_skip(cache->c, "out of memory");
    for (int32_t i = 0; i < n; i++) {
        certify_cache_row_read(cache, is_v, bytes + (size_t)i * certify_cache_row_size(cache, is_v),
                               false, got + (size_t)i * (size_t)padded);
        for (int32_t d = 0; d < dim; d++) want[i * padded + d] = (double)x[i * dim + d];
        certify_hadamard(want + (size_t)i * (size_t)padded, padded,
                         certify_cache_rotation(cache, is_v));
    }
    certify_verdict verdict = certify_numbers_judge(cache->c, is_v ? "V rows" : "K rows", got, want,
                                                    (size_t)(n * padded), storage_bound(type), 0);
    free(got);
    free(want);
    return verdict;
}

static const tdm_page_job all_jobs[] = {{3, 0, 16, 0}, {0, 0, 16, 16}, {5, 2, 8, 32}};

static certify_verdict write_run(certify_cache *cache) {
    rows r;
    uint8_t *k = NULL, *v = NULL;
    rows_place(cache, &r);
    certify_verdict verdict = rows_write(cache, &r, 40);
    if (verdict == CERTIFY_PASSED) verdict = certify_cache_export(cache, all_jobs, 3, 40, &k, &v);
    if (verdict == CERTIFY_PASSED) verdict = rows_judge(cache, false, k, r.k, 40);
    if (verdict == CERTIFY_PASSED && v != NULL) verdict = rows_judge(cache, true, v, r.v, 40);
    free(k);
    free(v);
    rows_free(&r);
    return verdict;
}

static certify_verdict write_check(certify *c) {
    return each(c, write_run);
}

/* A write to cell -1 and a job of page -1 must have no effect. */
static certify_verdict skip_run(certify_cache *cache) {
    rows r, more;
    uint8_t *k[2] = {NULL, NULL}, *v[2] = {NULL, NULL};
    const tdm_page_job jobs[] = {{3, 0, 16, 0}, {-1, 0, 16, 0}, {0, 0, 16, 16}, {-1, 5, 3, 2}};
    more.k = more.v = NULL;
    rows_place(cache, &r);
    certify_verdict verdict = rows_write(cache, &r, 40);
    if (verdict == CERTIFY_PASSED)
        verdict = certify_cache_export(cache, all_jobs, 2, 33, &k[0], &v[0]);
    for (int i = 0; i < 9; i++) more.cells[i] = -1;
    if (verdict == CERTIFY_PASSED) verdict = rows_write(cache, &more, 9);
    if (verdict == CERTIFY_PASSED) verdict = certify_cache_export(cache, jobs, 4, 33, &k[1], &v[1]);
    size_t size = certify_cache_row_size(cache, false) * (size_t)cache->desc.n_head_kv;
    if (verdict == CERTIFY_PASSED && memcmp(k[0], k[1], size * 32) != 0)
        verdict = certify_fail(cache->c, "a write to cell -1 or a job of page -1 changed rows");
    for (size_t i = 0; verdict == CERTIFY_PASSED && i < size; i++)
        if (k[1][size * 32 + i] != CERTIFY_RESULT_BYTE)
            verdict = certify_fail(cache->c, "a row that no job names was written");
    for (int i = 0; i < 2; i++) free(k[i]), free(v[i]);
    rows_free(&r);
    rows_free(&more);
    return verdict;
}

static certify_verdict skip_check(certify *c) {
    return each(c, skip_run);
}

/* A page that is copied or imported must be exported from its new place bit for bit. */
static certify_verdict move_run(certify_cache *cache, bool is_import) {
    rows r;
    uint8_t *k[2] = {NULL, NULL}, *v[2] = {NULL, NULL};
    const tdm_page_job copies[] = {{6, 0, 16, 3}, {-1, 0, 16, 0}, {7, 4, 5, 0}};
    const tdm_page_job imports[] = {{6, 0, 16, 0}, {-1, 0, 3, 0}, {7, 4, 5, 20}};
    const tdm_page_job back[] = {{6, 0, 16, 0}, {7, 4, 5, 16}};
    const tdm_page_job from[] = {{3, 0, 16, 0}, {0, 4, 5, 16}};
    rows_place(cache, &r);
    certify_verdict verdict = rows_write(cache, &r, 40);
    if (verdict == CERTIFY_PASSED && is_import) {
        verdict = certify_cache_export(cache, all_jobs, 3, 40, &k[0], &v[0]);
        if (verdict == CERTIFY_PASSED)
            verdict = certify_cache_import(cache, imports, 3, 40, k[0], v[0]);
        free(k[0]);
        free(v[0]);
        k[0] = v[0] = NULL;
    } else if (verdict == CERTIFY_PASSED) {
        verdict = certify_cache_jobs(cache, TDM_OP_KV_COPY, copies, 3, NULL, NULL);
    }
    if (verdict == CERTIFY_PASSED) verdict = certify_cache_export(cache, from, 2, 21, &k[0], &v[0]);
    if (verdict == CERTIFY_PASSED) verdict = certify_cache_export(cache, back, 2, 21, &k[1], &v[1]);
    size_t n = 21 * (size_t)cache->desc.n_head_kv;
    if (verdict == CERTIFY_PASSED &&
        (memcmp(k[0], k[1], n * certify_cache_row_size(cache, false)) != 0 ||
         (v[0] != NULL && memcmp(v[0], v[1], n * certify_cache_row_size(cache, true)) != 0)))
        verdict = certify_fail(cache->c, "other rows than those at the source");
    for (int i = 0; i < 2; i++) free(k[i]), free(v[i]);
    rows_free(&r);
    return verdict;
}

static certify_verdict copy_run(certify_cache *cache) {
    return move_run(cache, false);
}

static certify_verdict import_run(certify_cache *cache) {
    return move_run(cache, true);
}

static certify_verdict copy_check(certify *c) {
    return each(c, copy_run);
}

static certify_verdict import_check(certify *c) {
    return each(c, import_run);
}

/* ---- Shift ---- */

/* factor[n_rot / 2] NULL: none. */
static void row_turn(const tdm_rope_params *p, const float *factor, int32_t by, double *x) {
    for (int32_t i = 0; i < p->n_rot / 2; i++) {
        double cosine, sine;
        bool is_adjacent = p->mode == TDM_ROPE_ADJACENT;
        int32_t a = p->rope_offset + (is_adjacent ? 2 * i : i);
        int32_t b = a + (is_adjacent ? 1 : p->n_rot / 2);
        certify_rope_angle(p, by, i, factor != NULL ? (double)factor[i] : 1, false, &cosine, &sine);
        double u = x[a], w = x[b];
        x[a] = u * cosine - w * sine;
        x[b] = u * sine + w * cosine;
    }
}

static certify_verdict shift_by(certify_cache *cache, const float *factor) {
    rows r;
    uint8_t *k[2] = {NULL, NULL}, *v[2] = {NULL, NULL};
    const tdm_kv_desc *d = &cache->desc;
    tdm_rope_params rope = {.n_rot = d->n_rot,
                            .rope_offset = d->rope_offset,
                            .mode = d->n_head_kv % 2 ? TDM_ROPE_ADJACENT : TDM_ROPE_HALVES,
                            .attn_factor = 1.7f}; /* mscale: must not affect a shift */
    const tdm_page_job jobs[] = {{3, 0, 16, -7}, {-1, 0, 16, 5}, {0, 3, 9, 300}};
    int32_t padded = tdm_kv_padded(d->type_k, d->head_dim_k), n = 32 * d->n_head_kv;
    double *got = malloc((size_t)(n * padded) * sizeof *got);
    double *want = malloc((size_t)(n * padded) * sizeof *want);
    rows_place(cache, &r);
    certify_verdict verdict = rows_write(cache, &r, 40);
    if (got == NULL || want == NULL) verdict = certify_skip(cache->c, "out of memory");
    if (verdict == CERTIFY_PASSED)
        verdict = certify_cache_export(cache, all_jobs, 2, 32, &k[0], &v[0]);
    if (verdict == CERTIFY_PASSED)
        verdict = certify_cache_jobs(cache, TDM_OP_KV_SHIFT, jobs, 3, &rope, factor);
    if (verdict == CERTIFY_PASSED)
        verdict = certify_cache_export(cache, all_jobs, 2, 32, &k[1], &v[1]);
    for (int32_t i = 0; verdict == CERTIFY_PASSED && i < n; i++) {
        size_t at = (size_t)i * certify_cache_row_size(cache, false);
        int32_t slot = i / d->n_head_kv;
        double *x = want + (size_t)i * (size_t)padded;
        certify_cache_row_read(cache, false, k[0] + at, true, x);
        certify_cache_row_read(cache, false, k[1] + at, true, got + (size_t)i * (size_t)padded);
        if (slot < 16) row_turn(&rope, factor, -7, x);
        if (slot >= 16 + 3 && slot < 16 + 12) row_turn(&rope, factor, 300, x);
        bool is_meant = slot < 16 || (slot >= 16 + 3 && slot < 16 + 12);
        if (!is_meant && memcmp(k[0] + at, k[1] + at, certify_cache_row_size(cache, false)) != 0)
            verdict =
                certify_fail(cache->c, "changed K of slot %d, which no job names", (int)slot % 16);
    }
    if (verdict == CERTIFY_PASSED && v[0] != NULL &&
        memcmp(v[0], v[1], (size_t)n * certify_cache_row_size(cache, true)) != 0)
        verdict = certify_fail(cache->c, "changed V");
    if (verdict == CERTIFY_PASSED)
        verdict = certify_numbers_judge(cache->c, "K rows", got, want, (size_t)(n * padded),
                                        storage_bound(d->type_k) + 1e-10, 0);
    for (int i = 0; i < 2; i++) free(k[i]), free(v[i]);
    free(got);
    free(want);
    rows_free(&r);
    return verdict;
}

static certify_verdict shift_run(certify_cache *cache) {
    return shift_by(cache, NULL);
}

static certify_verdict shift_check(certify *c) {
    return each(c, shift_run);
}

static certify_verdict factor_run(certify_cache *cache) {
    float factor[64];
    for (int32_t i = 0; i < 64; i++) factor[i] = 1 + (float)(i * 5 % 11);
    return shift_by(cache, factor);
}

static certify_verdict factor_check(certify *c) {
    return each(c, factor_run);
}

/* ---- Attention ---- */

/* Sequence 0 has the 40 tokens of rows_place. Sequence 1 shares the first 10, and its tokens 10 ..
 * 15 are the rows in slots 2 .. 7 of page 5. Tokens 6 and 7 of the step are padding. */
static const tdm_page_entry entries[] = {
    {3, 0, 16, 0}, {0, 0, 16, 16}, {5, 2, 8, 32}, {3, 0, 10, 0}, {5, 2, 6, 10}};
static const int32_t first_entry[] = {0, 3, 5};
static const int32_t positions[] = {39, 20, 0, 15, 7, 33, -1, -1};
static const int32_t sequences[] = {0, 0, 0, 1, 1, 0, -1, -1};

static certify_attention attention_make(const certify_cache *cache) {
    int32_t share = cache->desc.flags & TDM_KV_V_FROM_K ? 5 : 1 + cache->desc.n_head_kv;
    return (certify_attention){
        .params = {.heads_per_kv = share,
                   .n_head_all = share * cache->desc.n_head_kv,
                   .is_causal = 1},
        .n_head = share * cache->desc.n_head_kv,
        .n_tok = 8,
        .n_tok_used = 6,
        .pos = positions,
        .seq = sequences,
        .n_seq = 2,
        .first_entry = first_entry,
        .entries = entries,
    };
}

/* Writes rows, reads back what the device stored, and runs an attention that `change` modifies. */
static certify_verdict attend(certify_cache *cache, void (*change)(certify_attention *a)) {
    rows r;
    certify_attention a = attention_make(cache);
    rows_place(cache, &r);
    certify_verdict verdict = rows_write(cache, &r, 40);
    if (verdict == CERTIFY_PASSED) verdict = certify_cache_learn(cache);
    if (change != NULL) change(&a);
    if (verdict == CERTIFY_PASSED)
        verdict = certify_cache_attend(cache, &a, attention_bound(&cache->desc));
    rows_free(&r);
    return verdict;
}

static certify_verdict plain_run(certify_cache *cache) {
    return attend(cache, NULL);
}

static certify_verdict attention_check(certify *c) {
    return each(c, plain_run);
}

static void with_ml(certify_attention *a) {
    a->has_ml = true;
}

static certify_verdict ml_run(certify_cache *cache) {
    return attend(cache, with_ml);
}

static certify_verdict ml_check(certify *c) {
    return each(c, ml_run);
}

static void with_window(certify_attention *a) {
    a->params.window = 9;
}

static void with_no_mask(certify_attention *a) {
    a->params.is_causal = 0;
}

static void with_softcap(certify_attention *a) {
    a->params.softcap = 5;
    a->params.scale = 0.4f;
}

static void with_sink(certify_attention *a) {
    a->has_sink = true;
}

/* Query heads first .. of more, and a state that begins at a later KV head. */
static void with_offsets(certify_attention *a) {
    a->params.first_head = 3 * a->params.heads_per_kv + 1;
    a->params.first_head_kv = 3;
    a->params.n_head_all = 64;
    a->n_head = a->n_head - 1;
}

static void with_chunks(certify_attention *a) {
    a->params.window = 7;
    a->params.window_kind = TDM_WINDOW_CHUNKED;
}

static void with_symmetric(certify_attention *a) {
    a->params.is_causal = 0;
    a->params.window = 7;
    a->params.window_kind = TDM_WINDOW_SYMMETRIC;
}

/* Some absolute heads are beyond the largest power of two, where ALiBi's slopes follow another
 * formula. */
static void with_alibi(certify_attention *a) {
    with_offsets(a);
    a->params.n_head_all = a->params.first_head + a->n_head;
    a->params.alibi_max_bias = 8;
}

static void with_temperature(certify_attention *a) {
    a->params.temperature_scale = 0.3f;
    a->params.temperature_length = 5;
    a->params.temperature_offset = 2;
}

/* Position and offset add up to more than 2^31. */
static void with_far_temperature(certify_attention *a) {
    a->params.temperature_scale = 0.03f;
    a->params.temperature_length = 5;
    a->params.temperature_offset = INT32_MAX - 10;
}

static certify_verdict variants_run(certify_cache *cache) {
    static void (*const changes[])(certify_attention *) = {
        with_window, with_no_mask,   with_softcap, with_sink,        with_offsets,
        with_chunks, with_symmetric, with_alibi,   with_temperature, with_far_temperature};
    static const char *const names[] = {"window",
                                        "not causal",
                                        "softcap",
                                        "sink",
                                        "head offsets",
                                        "windows in chunks",
                                        "a symmetric window",
                                        "ALiBi",
                                        "temperature",
                                        "temperature, large offset"};
    for (size_t i = 0; i < sizeof changes / sizeof changes[0]; i++) {
        certify_verdict verdict = attend(cache, changes[i]);
        if (verdict == CERTIFY_FAILED) return certify_prefix(cache->c, verdict, "%s", names[i]);
        if (verdict == CERTIFY_SKIPPED && i == 0) return verdict;
    }
    return CERTIFY_PASSED;
}

static certify_verdict variants_check(certify *c) {
    return each(c, variants_run);
}

/* Some tokens are further apart than the distances for which the bias has numbers. */
static void with_bias(certify_attention *a) {
    a->params.is_causal = 0;
    a->n_distance = 11;
}

static certify_verdict bias_run(certify_cache *cache) {
    return attend(cache, with_bias);
}

static certify_verdict bias_check(certify *c) {
    certify_verdict verdict = certify_open(c);
    return verdict == CERTIFY_PASSED ? each_with(c, bias_run, TDM_KV_BIASED) : verdict;
}

/* Ten pages in random order, tokens at the end of a long prompt and one in the middle. */
static certify_verdict long_run(certify_cache *cache) {
    enum { N_PAGE = 10, N_TOK = 37 };
    static const int32_t order[N_PAGE] = {7, 2, 9, 0, 4, 11, 1, 6, 3, 10};
    tdm_page_entry pages[N_PAGE];
    int32_t first[] = {0, N_PAGE}, pos[N_TOK], seq[N_TOK] = {0};
    certify_attention a = attention_make(cache);
    certify_verdict verdict = CERTIFY_PASSED;
    int32_t len = cache->page_len, n_cached = N_PAGE * len - 5;
    for (int32_t p = 0; p < N_PAGE; p++)
        pages[p] = (tdm_page_entry){order[p], 0, p == N_PAGE - 1 ? len - 5 : len, p * len};
    for (int32_t t = 0; t < n_cached && verdict == CERTIFY_PASSED; t += 32) {
        rows r;
        for (int32_t i = 0; i < 32; i++)
            r.cells[i] = t + i < n_cached ? order[(t + i) / len] * len + (t + i) % len : -1;
        verdict = rows_write(cache, &r, 32);
        rows_free(&r);
    }
    for (int32_t t = 0; t < N_TOK; t++) pos[t] = n_cached - N_TOK + t;
    pos[0] = n_cached / 2;
    a.n_tok = N_TOK;
    a.n_tok_used = N_TOK;
    a.pos = pos;
    a.seq = seq;
    a.n_seq = 1;
    a.first_entry = first;
    a.entries = pages;
    if (verdict == CERTIFY_PASSED) verdict = certify_cache_learn(cache);
    if (verdict == CERTIFY_PASSED)
        verdict = certify_cache_attend(cache, &a, attention_bound(&cache->desc));
    return verdict;
}

static certify_verdict long_check(certify *c) {
    /* The last two: V is part of K. */
    static const tdm_type pairs[][2] = {{TDM_TYPE_F16, TDM_TYPE_F16},
                                        {TDM_TYPE_Q8_0, TDM_TYPE_Q4_0},
                                        {TDM_TYPE_F16, TDM_TYPE_F16},
                                        {TDM_TYPE_Q4_0, TDM_TYPE_Q4_0}};
    certify_verdict verdict = certify_open(c), last = verdict;
    int n_run = 0;
    if (verdict != CERTIFY_PASSED) return verdict;
    for (int i = 0; i < 4; i++) {
        const bool is_latent = i >= 2;
        certify_cache cache;
        tdm_kv_desc desc = {.struct_size = sizeof desc,
                            .type_k = pairs[i][0],
                            .type_v = pairs[i][1],
                            .head_dim_k = is_latent ? 160 : 64,
                            .head_dim_v = is_latent ? 128 : 64,
                            .n_head_kv = is_latent ? 1 : 2,
                            .rope_offset = is_latent ? 128 : 0,
                            .n_rot = is_latent ? 32 : 64,
                            .flags = ROTATED | (is_latent ? TDM_KV_V_FROM_K : 0)};
        verdict = certify_cache_create(c, &desc, 12, &cache);
        if (verdict == CERTIFY_PASSED) verdict = long_run(&cache);
        certify_cache_destroy(&cache);
        last = label_put(c, &desc, verdict);
        if (verdict == CERTIFY_FAILED) return verdict;
        if (verdict == CERTIFY_PASSED) n_run++;
    }
    return n_run > 0 ? CERTIFY_PASSED : last;
}

/* ---- Classes ---- */

/* Each class, mostly with tables of other pages before and behind its own. */
static certify_verdict class_check(certify *c) {
    certify_verdict verdict = certify_open(c), last = verdict;
    int n_run = 0;
    if (verdict != CERTIFY_PASSED) return verdict;
    for (int32_t cls = 0; cls < TDM_STEP_MAX_CLASS; cls++) {
        tdm_kv_desc desc = {.struct_size = sizeof desc,
                            .type_k = TDM_TYPE_F16,
                            .type_v = TDM_TYPE_F16,
                            .head_dim_k = 64,
                            .head_dim_v = 64,
                            .n_head_kv = 2,
                            .page_len = 16,
                            .n_rot = 64,
                            .cls = cls};
        certify_cache cache;
        verdict = certify_cache_create(c, &desc, 8, &cache);
        if (cls != TDM_STEP_MAX_CLASS - 2) cache.n_class = TDM_STEP_MAX_CLASS;
        if (verdict == CERTIFY_PASSED) verdict = write_run(&cache);
        if (verdict == CERTIFY_PASSED) verdict = plain_run(&cache);
        if (verdict == CERTIFY_PASSED) verdict = certify_cache_guards_judge(&cache);
        certify_cache_destroy(&cache);
        last = certify_prefix(c, verdict, "class %d", (int)cls);
        if (verdict == CERTIFY_FAILED) return verdict;
        n_run += verdict == CERTIFY_PASSED;
    }
    return n_run > 0 ? CERTIFY_PASSED : last;
}

/* ---- In the host's memory ---- */

static uint32_t device_flags(certify *c) {
    tdm_device_info info = {.struct_size = sizeof info};
    return certify_device_info(c, &info, NULL) == TDM_OK ? info.flags : 0;
}

/* A device whose memory is host memory ignores the flag. One with TDM_DEVICE_HAS_HOST_KV must work
 * on such caches. */
static certify_verdict in_host_check(certify *c) {
    tdm_kv_desc desc = {.struct_size = sizeof desc,
                        .type_k = TDM_TYPE_F16,
                        .type_v = TDM_TYPE_F16,
                        .head_dim_k = 64,
                        .head_dim_v = 64,
                        .n_head_kv = 2};
    uint64_t size = 0, in_host = 0;
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (!TDM_HAS(ops, kv_page_size)) return certify_skip(c, "no slot kv_page_size");
    uint32_t flags = device_flags(c);
    bool is_host = (flags & (TDM_DEVICE_IS_HOST | TDM_DEVICE_IS_INTEGRATED)) != 0;
    if (!is_host && (flags & TDM_DEVICE_HAS_HOST_KV) == 0)
        return certify_skip(c, "has memory of its own, and no TDM_DEVICE_HAS_HOST_KV");
    if (ops->kv_page_size(c->device, &desc, &size, &err) != TDM_OK)
        return certify_skip(c, "kv_page_size: %.300s", err.message);
    desc.flags = TDM_KV_IN_HOST;
    if (ops->kv_page_size(c->device, &desc, &in_host, &err) != TDM_OK)
        return certify_fail(c, "refuses an f16 cache for TDM_KV_IN_HOST: %.300s", err.message);
    if (is_host && in_host != size)
        return certify_fail(c, "a page takes %llu bytes, with TDM_KV_IN_HOST %llu",
                            (unsigned long long)size, (unsigned long long)in_host);
    verdict = each_with(c, write_run, TDM_KV_IN_HOST);
    return verdict == CERTIFY_PASSED ? each_with(c, plain_run, TDM_KV_IN_HOST) : verdict;
}

static const certify_check checks[] = {
    {"kv.required", 4, "buffer.h: kv_page_size: \"Required of a device that claims any cache op.\"",
     certify_cache_required_check},
    {"kv.described", 4,
     "kv.h: \"A device without these ops refuses such a description\"; Bias, Strides, Erasing: "
     "\"Again a device without that refuses the description.\"",
     certify_cache_described_check},
    {"kv.page-size", 4,
     "buffer.h: kv_page_size: \"Bytes of one page of a cache like `desc`; TDM_UNSUPPORTED with the "
     "reason where the device has no cache of that kind.\"",
     size_check},
    {"kv.in-host", 4,
     "kv.h: TDM_KV_IN_HOST: \"no effect on a device that has no other\"; device.h: "
     "TDM_DEVICE_HAS_HOST_KV: \"keeps caches with TDM_KV_IN_HOST in the host's memory and works on "
     "them there\"",
     in_host_check},
    {"kv.write", 4,
     "op.h: KV_WRITE: \"each token's rows go to its cell of the step block\"; KV_EXPORT: "
     "\"canonical rows as stored (rotated if so)\"; kv.h: Storage",
     write_check},
    {"kv.skip", 4,
     "step.h: \"a write to cell -1 is skipped\"; tdm_page_job: \"A page of -1 is padding and "
     "skipped.\"",
     skip_check},
    {"kv.copy", 4,
     "op.h: KV_COPY: \"for each job, slots first .. + count of page `arg` -> `page`\"", copy_check},
    {"kv.import", 4, "op.h: KV_IMPORT: \"the inverse [of KV_EXPORT]\"", import_check},
    {"kv.shift", 4,
     "op.h: KV_SHIFT: \"the n_rot elements of each K row are turned on by `arg` positions, without "
     "mscale (V untouched), and stored as type_k again\"",
     shift_check},
    {"kv.shift-factor", 4,
     "op.h: KV_SHIFT: \"step, state, [factor]\"; tdm_rope_params: \"theta = p * freq_base^(-2i / "
     "n_rot) / factor[i]\"",
     factor_check},
    {"kv.class", 4, "kv.h: cls: \"which class of the step block its page table is\"", class_check},
    {"kv.attention", 4,
     "op.h: ATTENTION: \"For token t of sequence s at position p, over every "
     "cached token of s at position c with c <= p (when causal)\"",
     attention_check},
    {"kv.attention-ml", 4,
     "op.h: ATTENTION: \"m = max a_c, l = sum exp(a_c - m)\"; \"Over nothing, with a sink or "
     "without: o = 0, m = -inf, l = 0.\"",
     ml_check},
    {"kv.attention-long", 4,
     "step.h: tdm_page_entry: \"slots first .. first+count-1 of `page` hold positions base_pos .. "
     "+count-1 of the sequence\"",
     long_check},
    {"kv.attention-variants", 4,
     "op.h: ATTENTION: window, softcap, sink, ALiBi, temperature; tdm_attention_params: \"absolute "
     "head h reads KV "
     "head "
     "h / heads_per_kv - first_head_kv of the state\"",
     variants_check},
    {"kv.attention-bias", 4,
     "op.h: ATTENTION: \"bias: a finite number for each distance, the same for all from n_far on\"",
     bias_check},
};
const certify_table certify_cache_table = CERTIFY_SHARED_TABLE(checks);
