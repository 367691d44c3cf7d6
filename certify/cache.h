/* SPDX-License-Identifier: MIT
 *
 * cache.h: a cache on the device under test, and a model of its content, for the checks of kv.c and
 * cache_*.c. The model is independent of every plugin: a row of doubles for each cell, and the
 * formula of op.h for attention over them.
 */
#ifndef TANDEM_CERTIFY_CACHE_H
#define TANDEM_CERTIFY_CACHE_H

#include "certify/rig.h"

typedef struct certify_cache {
    certify *c;
    tdm_kv_desc desc;
    int32_t n_page;
    int32_t page_len;
    int32_t n_class; /* of step blocks; classes other than desc.cls have tables of other pages */
    uint64_t page_size;
    uint64_t guard; /* bytes of GUARD before and after the pages */
    tdm_buffer *buffer;
    double *k; /* [n_cell][n_head_kv][head_dim_k] as stored, rotation undone */
    double *v; /* [n_cell][n_head_kv][head_dim_v] */
} certify_cache;

/* Pages of undefined content; n_class is desc->cls + 1. SKIPPED where the device has no cache like
 * `desc`. The caller destroys it. */
certify_verdict certify_cache_create(certify *c, const tdm_kv_desc *desc, int32_t n_page,
                                     certify_cache *cache_out);
void certify_cache_destroy(certify_cache *cache);
/* Checks that the guard bytes around the pages are unchanged. */
certify_verdict certify_cache_guards_judge(certify_cache *cache);

/* KV_WRITE of n_tok rows to cells[n_tok] (-1: skipped); rows are [n_tok][n_head_kv][head_dim]. The
 * model then contains what the core's quantiser would store. SKIPPED where the device refuses the
 * op, here and below. */
certify_verdict certify_cache_write(certify_cache *cache, int32_t n_tok, const int32_t *cells,
                                    const float *k, const float *v);
/* KV_COPY or KV_SHIFT; of the latter `rope` and factor[n_rot / 2], NULL = none. The caller updates
 * the model. */
certify_verdict certify_cache_jobs(certify_cache *cache, int32_t op, const tdm_page_job *jobs,
                                   int32_t n_job, const tdm_rope_params *rope, const float *factor);
/* KV_EXPORT to malloc'd canonical rows; *v_out NULL for a V_FROM_K cache. Rows that no job names
 * hold CERTIFY_RESULT_BYTE. */
certify_verdict certify_cache_export(certify_cache *cache, const tdm_page_job *jobs, int32_t n_job,
                                     int32_t n_row, uint8_t **k_out, uint8_t **v_out);
certify_verdict certify_cache_import(certify_cache *cache, const tdm_page_job *jobs, int32_t n_job,
                                     int32_t n_row, const uint8_t *k, const uint8_t *v);
/* Replaces the model by what the device exports, so that a check of attention does not depend on
 * how the device rounds stored rows. PASSED without an effect where the device does not export. */
certify_verdict certify_cache_learn(certify_cache *cache);

/* Bytes of an exported row of one head. */
size_t certify_cache_row_size(const certify_cache *cache, bool is_v);
/* Exported bytes of one head as numbers, padding included; the rotation undone where `unrotate`. */
void certify_cache_row_read(const certify_cache *cache, bool is_v, const uint8_t *bytes,
                            bool unrotate, double *out);
/* The size of the rotation's blocks of K or V as the cache stores them; 1 = none. */
int32_t certify_cache_rotation(const certify_cache *cache, bool is_v);
/* x[n] times a normalised Walsh-Hadamard matrix in blocks; its own inverse. */
void certify_hadamard(double *x, int32_t n, int32_t block);

/* One attention: queries of tokens with sequence and position over page tables. */
typedef struct certify_attention {
    tdm_attention_params params; /* kv is filled in */
    int32_t n_head;
    int32_t n_tok; /* padding included */
    int32_t n_tok_used;
    const int32_t *pos; /* [n_tok] */
    const int32_t *seq; /* [n_tok] */
    int32_t n_seq;
    const int32_t *first_entry; /* [n_seq + 1] */
    const tdm_page_entry *entries;
    bool has_ml;
    bool has_sink;
    int32_t n_distance; /* of the bias, odd; 0 = none */
} certify_attention;

/* Runs it on random queries and compares with the model. */
certify_verdict certify_cache_attend(certify_cache *cache, const certify_attention *a, double nmse);

/* Rows of the table of kv.c; in cache_claims.c. */
certify_verdict certify_cache_required_check(certify *c);
certify_verdict certify_cache_described_check(certify *c);

#endif
