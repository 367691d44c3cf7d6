/* SPDX-License-Identifier: MIT
 *
 * cache.c: cache graphs, step blocks, and the memory of a cache on the device. Attention is in
 * cache_attention.c.
 */
#include "certify/cache.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/convert.h"
#include "certify/cache_graph.h"

enum { GUARD_BYTE = 0x6b };

/* ---- Rows ---- */

static tdm_type side_type(const certify_cache *cache, bool is_v) {
    return is_v ? cache->desc.type_v : cache->desc.type_k;
}

static int32_t side_dim(const certify_cache *cache, bool is_v) {
    return is_v ? cache->desc.head_dim_v : cache->desc.head_dim_k;
}

static int32_t side_padded(const certify_cache *cache, bool is_v) {
    return tdm_kv_padded(side_type(cache, is_v), side_dim(cache, is_v));
}

size_t certify_cache_row_size(const certify_cache *cache, bool is_v) {
    return tdm_type_row_size(side_type(cache, is_v), side_padded(cache, is_v));
}

int32_t certify_cache_rotation(const certify_cache *cache, bool is_v) {
    uint32_t flag = is_v ? TDM_KV_ROTATE_V : TDM_KV_ROTATE_K;
    if ((cache->desc.flags & flag) == 0) return 1;
    if (!tdm_type_get_info(side_type(cache, is_v)).is_quantized) return 1;
    return is_v ? tdm_kv_rotation_block(side_padded(cache, true), 0, 0)
                : tdm_kv_rotation_block(side_padded(cache, false), cache->desc.rope_offset,
                                        cache->desc.n_rot);
}

void certify_hadamard(double *x, int32_t n, int32_t block) {
    for (int32_t at = 0; at + block <= n; at += block)
        for (int32_t half = 1; half < block; half *= 2)
            for (int32_t i = 0; i < block; i++) {
                if (i & half) continue;
                double a = x[at + i], b = x[at + i + half];
                x[at + i] = (a + b) * sqrt(0.5);
                x[at + i + half] = (a - b) * sqrt(0.5);
            }
}

void certify_cache_row_read(const certify_cache *cache, bool is_v, const uint8_t *bytes,
                            bool unrotate, double *out) {
    int32_t padded = side_padded(cache, is_v);
    double *row = certify_numbers(side_type(cache, is_v), bytes, (size_t)padded);
    for (int32_t i = 0; i < padded; i++) out[i] = row != NULL ? row[i] : NAN;
    free(row);
    if (unrotate) certify_hadamard(out, padded, certify_cache_rotation(cache, is_v));
}

/* A head as the core's quantiser stores it. */
static void row_round(const certify_cache *cache, bool is_v, const float *x, double *out) {
    int32_t dim = side_dim(cache, is_v), padded = side_padded(cache, is_v);
    double *row = calloc((size_t)padded, sizeof *row);
    float *narrow = calloc((size_t)padded, sizeof *narrow);
    uint8_t *bytes = malloc(certify_cache_row_size(cache, is_v));
    if (row != NULL && narrow != NULL && bytes != NULL) {
        for (int32_t i = 0; i < dim; i++) row[i] = (double)x[i];
        certify_hadamard(row, padded, certify_cache_rotation(cache, is_v));
        for (int32_t i = 0; i < padded; i++) narrow[i] = (float)row[i];
        (void)tdm_row_quantize(side_type(cache, is_v), narrow, bytes, padded, NULL);
        certify_cache_row_read(cache, is_v, bytes, true, row);
        memcpy(out, row, (size_t)dim * sizeof *out);
    }
    free(row);
    free(narrow);
    free(bytes);
}

/* ---- Memory ---- */

/* Allocates the pages. With TDM_KV_IN_HOST an item describes them, since the device must know that
 * they are such a cache. */
static certify_verdict pages_alloc(certify_cache *cache, uint64_t total) {
    certify *c = cache->c;
    if ((cache->desc.flags & TDM_KV_IN_HOST) == 0) return certify_alloc(c, total, &cache->buffer);
    const tdm_buffer_item item = {.off = cache->guard,
                                  .size = total - 2 * cache->guard,
                                  .kv = &cache->desc,
                                  .n_page = cache->n_page};
    const tdm_buffer_params params = {sizeof params, total, TDM_BUFFER_STATE, 1, &item};
    tdm_error err = {.struct_size = sizeof err};
    tdm_status status = c->plugin->buffer->alloc(c->device, &params, &cache->buffer, &err);
    if (status == TDM_OK) return CERTIFY_PASSED;
    cache->buffer = NULL;
    return certify_skip(c, "alloc: %.300s", err.message);
}

certify_verdict certify_cache_create(certify *c, const tdm_kv_desc *desc, int32_t n_page,
                                     certify_cache *cache) {
    const tdm_buffer_ops *ops = c->plugin->buffer;
    tdm_error err = {.struct_size = sizeof err};
    *cache = (certify_cache){.c = c, .desc = *desc, .n_page = n_page, .n_class = desc->cls + 1};
    cache->desc.struct_size = sizeof cache->desc;
    cache->page_len = desc->page_len != 0 ? desc->page_len : TDM_KV_PAGE_LEN_DEFAULT;
    cache->guard = c->align > 256 ? c->align : 256;
    if (!TDM_HAS(ops, kv_page_size)) return certify_skip(c, "no slot kv_page_size");
    tdm_status status = ops->kv_page_size(c->device, &cache->desc, &cache->page_size, &err);
    if (status == TDM_UNSUPPORTED) return certify_skip(c, "%s", err.message);
    if (status != TDM_OK) return certify_fail(c, "kv_page_size: %.300s", err.message);
    size_t n_head = (size_t)n_page * (size_t)cache->page_len * (size_t)desc->n_head_kv;
    uint64_t total = 2 * cache->guard + cache->page_size * (uint64_t)n_page;
    cache->k = calloc(n_head * (size_t)desc->head_dim_k, sizeof *cache->k);
    cache->v = calloc(n_head * (size_t)desc->head_dim_v, sizeof *cache->v);
    uint8_t *raw = malloc(total);
    certify_verdict verdict = CERTIFY_PASSED;
    if (cache->k == NULL || cache->v == NULL || raw == NULL)
        verdict = certify_skip(c, "out of memory");
    if (verdict == CERTIFY_PASSED) verdict = pages_alloc(cache, total);
    if (verdict == CERTIFY_PASSED) {
        memset(raw, GUARD_BYTE, total);
        /* Reads as NaN in f32, f16 and bf16 and in a quantised block's scale. */
        memset(raw + cache->guard, 0xff, total - 2 * cache->guard);
        if (ops->upload(cache->buffer, 0, raw, total, &err) != TDM_OK)
            verdict = certify_skip(c, "upload: %.300s", err.message);
    }
    free(raw);
    return verdict;
}

void certify_cache_destroy(certify_cache *cache) {
    if (cache->buffer != NULL) cache->c->plugin->buffer->free(cache->buffer);
    free(cache->k);
    free(cache->v);
    memset(cache, 0, sizeof *cache);
}

certify_verdict certify_cache_guards_judge(certify_cache *cache) {
    uint64_t end = cache->guard + cache->page_size * (uint64_t)cache->n_page;
    uint8_t *raw = malloc(cache->guard * 2);
    if (raw == NULL) return certify_skip(cache->c, "out of memory");
    const tdm_buffer_ops *ops = cache->c->plugin->buffer;
    certify_verdict verdict = CERTIFY_PASSED;
    if (ops->download(cache->buffer, 0, raw, cache->guard, NULL) != TDM_OK ||
        ops->download(cache->buffer, end, raw + cache->guard, cache->guard, NULL) != TDM_OK)
        verdict = certify_skip(cache->c, "download failed");
    for (uint64_t i = 0; verdict == CERTIFY_PASSED && i < cache->guard * 2; i++)
        if (raw[i] != GUARD_BYTE)
            verdict = certify_fail(cache->c, "wrote %s the pages",
                                   i < cache->guard ? "before" : "behind");
    free(raw);
    return verdict;
}

/* ---- Graphs ---- */

certify_verdict certify_cache_graph_begin(certify_cache *cache, const tdm_step_caps *caps,
                                          certify_cache_graph *g) {
    *g = (certify_cache_graph){.cache = cache, .caps = *caps};
    if (tdm_builder_create(&g->b, NULL) != TDM_OK) return certify_skip(cache->c, "out of memory");
    g->step = tdm_build_step(g->b, caps);
    g->state =
        tdm_build_state(g->b, "state", &cache->desc, cache->page_size, cache->n_page, &g->kv);
    return CERTIFY_PASSED;
}

certify_verdict certify_cache_graph_end(certify_cache_graph *g, const tdm_page_job *jobs,
                                        int32_t n_job) {
    certify_cache *cache = g->cache;
    certify_verdict verdict = certify_rig_create(cache->c, g->b, &g->rig);
    g->b = NULL;
    if (verdict != CERTIFY_PASSED) return verdict;
    if (!certify_rig_is_supported(&g->rig))
        return certify_skip(cache->c, "%.300s", cache->c->failure.message);
    certify_rig_bind(&g->rig, g->state, cache->buffer, cache->guard,
                     cache->page_size * (uint64_t)cache->n_page);
    g->block = (int32_t *)(void *)g->rig.bytes[g->step];
    if (tdm_step_layout(&g->caps, &g->header, NULL) != TDM_OK)
        return certify_skip(cache->c, "the suite's own step block");
    g->header.n_tok = g->caps.n_tok;
    g->header.n_seq = g->caps.n_seq;
    g->header.n_job = n_job;
    g->header.epoch = 1;
    size_t header_len = sizeof g->header / sizeof(int32_t);
    memset(g->block + header_len, 0xff, ((size_t)g->header.size - header_len) * sizeof(int32_t));
    for (int32_t t = 0; t < g->caps.n_tok; t++) {
        g->block[g->header.seq_off + t] = 0; /* KV_WRITE ignores tokens of no sequence */
        g->block[g->header.pos_off + t] = t;
    }
    for (int32_t q = 0; q < g->caps.n_class; q++)
        memset(g->block + g->header.cls[q].first_entry_off, 0,
               ((size_t)g->caps.n_seq + 1) * sizeof(int32_t));
    if (n_job > 0) memcpy(g->block + g->header.job_off, jobs, (size_t)n_job * sizeof jobs[0]);
    return CERTIFY_PASSED;
}

certify_verdict certify_cache_graph_run(certify_cache_graph *g) {
    memcpy(g->block, &g->header, sizeof g->header);
    return certify_rig_run(&g->rig);
}

/* A page that classes other than the cache's have in the place of `page`; a wrong one, but inside
 * the cache. */
static int32_t other_page(const certify_cache *cache, int32_t page) {
    return page < 0 ? page : (page + 1) % cache->n_page;
}

void certify_cache_cells_put(certify_cache_graph *g, const int32_t *cells) {
    const certify_cache *cache = g->cache;
    const int32_t len = cache->page_len;
    for (int32_t c = 0; c < g->caps.n_class; c++)
        for (int32_t t = 0; t < g->caps.n_tok; t++)
            g->block[g->header.cls[c].write_off + t] =
                c == cache->desc.cls || cells[t] < 0
                    ? cells[t]
                    : other_page(cache, cells[t] / len) * len + cells[t] % len;
}

void certify_cache_pages_put(certify_cache_graph *g, const int32_t *first_entry,
                             const tdm_page_entry *entries) {
    const int32_t n_entry = first_entry[g->caps.n_seq];
    for (int32_t c = 0; c < g->caps.n_class; c++) {
        const tdm_step_class *cls = &g->header.cls[c];
        memcpy(g->block + cls->first_entry_off, first_entry,
               ((size_t)g->caps.n_seq + 1) * sizeof *first_entry);
        for (int32_t i = 0; i < n_entry; i++) {
            tdm_page_entry entry = entries[i];
            if (c != g->cache->desc.cls) entry.page = other_page(g->cache, entry.page);
            memcpy(g->block + cls->entry_off + 4 * i, &entry, sizeof entry);
        }
    }
}

/* ---- Ops ---- */

static void model_write(certify_cache *cache, int32_t n_tok, const int32_t *cells, const float *k,
                        const float *v) {
    int32_t n_head = cache->desc.n_head_kv, dk = cache->desc.head_dim_k,
            dv = cache->desc.head_dim_v;
    for (int32_t t = 0; t < n_tok; t++)
        for (int32_t h = 0; h < n_head && cells[t] >= 0; h++) {
            size_t from = (size_t)(t * n_head + h), to = (size_t)(cells[t] * n_head + h);
            row_round(cache, false, k + from * (size_t)dk, cache->k + to * (size_t)dk);
            if (cache->desc.flags & TDM_KV_V_FROM_K)
                memcpy(cache->v + to * (size_t)dv, cache->k + to * (size_t)dk,
                       (size_t)dv * sizeof *cache->v);
            else
                row_round(cache, true, v + from * (size_t)dv, cache->v + to * (size_t)dv);
        }
}

certify_verdict certify_cache_write(certify_cache *cache, int32_t n_tok, const int32_t *cells,
                                    const float *k, const float *v) {
    tdm_step_caps caps = {.n_tok = n_tok, .n_seq = 1, .n_entry = 1, .n_class = cache->n_class};
    certify_cache_graph g;
    int32_t x, y = -1;
    certify_verdict verdict = certify_cache_graph_begin(cache, &caps, &g);
    if (verdict != CERTIFY_PASSED) return verdict;
    x = tdm_build_input(g.b, "k", TDM_TYPE_F32,
                        (const int64_t[]){cache->desc.head_dim_k, cache->desc.n_head_kv, n_tok, 1});
    if ((cache->desc.flags & TDM_KV_V_FROM_K) == 0)
        y = tdm_build_input(
            g.b, "v", TDM_TYPE_F32,
            (const int64_t[]){cache->desc.head_dim_v, cache->desc.n_head_kv, n_tok, 1});
    tdm_build_kv_write(g.b, x, y, g.step, g.state, g.kv);
    verdict = certify_cache_graph_end(&g, NULL, 0);
    if (verdict == CERTIFY_PASSED) {
        memcpy(g.rig.bytes[x], k, g.rig.sizes[x]);
        if (y >= 0) memcpy(g.rig.bytes[y], v, g.rig.sizes[y]);
        certify_cache_cells_put(&g, cells);
        verdict = certify_cache_graph_run(&g);
    }
    if (verdict == CERTIFY_PASSED) model_write(cache, n_tok, cells, k, v);
    certify_rig_destroy(&g.rig);
    return verdict;
}

static tdm_step_caps job_caps(const certify_cache *cache, int32_t n_job) {
    return (tdm_step_caps){
        .n_tok = 1, .n_seq = 1, .n_entry = 1, .n_job = n_job, .n_class = cache->n_class};
}

certify_verdict certify_cache_jobs(certify_cache *cache, int32_t op, const tdm_page_job *jobs,
                                   int32_t n_job, const tdm_rope_params *rope,
                                   const float *factor) {
    tdm_step_caps caps = job_caps(cache, n_job);
    certify_cache_graph g;
    int32_t f = -1;
    certify_verdict verdict = certify_cache_graph_begin(cache, &caps, &g);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (factor != NULL)
        f = tdm_build_weight(g.b, "factor", TDM_TYPE_F32,
                             (const int64_t[]){rope->n_rot / 2, 1, 1, 1}, 0);
    if (op == TDM_OP_KV_SHIFT)
        tdm_build_kv_shift(g.b, g.step, g.state, f, g.kv, rope);
    else
        tdm_build_kv_copy(g.b, g.step, g.state, g.kv);
    verdict = certify_cache_graph_end(&g, jobs, n_job);
    if (verdict == CERTIFY_PASSED && f >= 0) memcpy(g.rig.bytes[f], factor, g.rig.sizes[f]);
    if (verdict == CERTIFY_PASSED) verdict = certify_cache_graph_run(&g);
    certify_rig_destroy(&g.rig);
    return verdict;
}

certify_verdict certify_cache_export(certify_cache *cache, const tdm_page_job *jobs, int32_t n_job,
                                     int32_t n_row, uint8_t **k_out, uint8_t **v_out) {
    tdm_step_caps caps = job_caps(cache, n_job);
    bool has_v = (cache->desc.flags & TDM_KV_V_FROM_K) == 0;
    certify_cache_graph g;
    int32_t y = -1;
    certify_verdict verdict = certify_cache_graph_begin(cache, &caps, &g);
    if (verdict != CERTIFY_PASSED) return verdict;
    int32_t x = tdm_build_kv_export(g.b, g.step, g.state, g.kv, n_row, has_v ? &y : NULL);
    tdm_build_output(g.b, x, "k");
    if (has_v) tdm_build_output(g.b, y, "v");
    verdict = certify_cache_graph_end(&g, jobs, n_job);
    if (verdict == CERTIFY_PASSED) verdict = certify_cache_graph_run(&g);
    *k_out = NULL;
    *v_out = NULL;
    if (verdict == CERTIFY_PASSED) { /* taken from the rig */
        *k_out = g.rig.bytes[x];
        g.rig.bytes[x] = NULL;
        if (has_v) *v_out = g.rig.bytes[y], g.rig.bytes[y] = NULL;
    }
    certify_rig_destroy(&g.rig);
    return verdict;
}

certify_verdict certify_cache_import(certify_cache *cache, const tdm_page_job *jobs, int32_t n_job,
                                     int32_t n_row, const uint8_t *k, const uint8_t *v) {
    tdm_step_caps caps = job_caps(cache, n_job);
    certify_cache_graph g;
    int32_t x, y = -1;
    certify_verdict verdict = certify_cache_graph_begin(cache, &caps, &g);
    if (verdict != CERTIFY_PASSED) return verdict;
    x = tdm_build_input(
        g.b, "k", cache->desc.type_k,
        (const int64_t[]){side_padded(cache, false), cache->desc.n_head_kv, n_row, 1});
    if (v != NULL)
        y = tdm_build_input(
            g.b, "v", cache->desc.type_v,
            (const int64_t[]){side_padded(cache, true), cache->desc.n_head_kv, n_row, 1});
    tdm_build_kv_import(g.b, x, y, g.step, g.state, g.kv);
    verdict = certify_cache_graph_end(&g, jobs, n_job);
    if (verdict == CERTIFY_PASSED) {
        memcpy(g.rig.bytes[x], k, g.rig.sizes[x]);
        if (y >= 0) memcpy(g.rig.bytes[y], v, g.rig.sizes[y]);
        verdict = certify_cache_graph_run(&g);
    }
    certify_rig_destroy(&g.rig);
    return verdict;
}

certify_verdict certify_cache_learn(certify_cache *cache) {
    int32_t n_cell = cache->n_page * cache->page_len, n_head = cache->desc.n_head_kv;
    tdm_page_job *jobs = calloc((size_t)cache->n_page, sizeof *jobs);
    uint8_t *bytes[2] = {NULL, NULL};
    double row[4096];
    if (jobs == NULL) return certify_skip(cache->c, "out of memory");
    for (int32_t p = 0; p < cache->n_page; p++)
        jobs[p] = (tdm_page_job){p, 0, cache->page_len, p * cache->page_len};
    certify_verdict verdict =
        certify_cache_export(cache, jobs, cache->n_page, n_cell, &bytes[0], &bytes[1]);
    free(jobs);
    if (verdict == CERTIFY_SKIPPED) return CERTIFY_PASSED;
    for (int side = 0; side < 2 && verdict == CERTIFY_PASSED; side++) {
        size_t dim = (size_t)side_dim(cache, side), size = certify_cache_row_size(cache, side);
        double *model = side ? cache->v : cache->k;
        for (size_t i = 0; i < (size_t)(n_cell * n_head); i++) {
            bool is_v = side && bytes[1] != NULL;
            const uint8_t *from =
                is_v ? bytes[1] + i * size : bytes[0] + i * certify_cache_row_size(cache, false);
            if (dim > 4096) break;
            certify_cache_row_read(cache, is_v, from, true, row);
            memcpy(model + i * dim, row, dim * sizeof *model);
        }
    }
    free(bytes[0]);
    free(bytes[1]);
    return verdict;
}
