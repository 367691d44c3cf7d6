/* SPDX-License-Identifier: MIT
 *
 * context_cache.c: operations of a context on cached tokens: truncate, fork, shift, export, import.
 * kv_cache.c determines the pages; this file runs the jobs on the devices.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/context_internal.h"

static tdm_status seq_check(const llm_context *ctx, int32_t seq, tdm_error *err) {
    if (seq >= 0 && seq < ctx->n_seq) return TDM_OK;
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "sequence %d of %d; raise 'parallel'", seq,
                    ctx->n_seq);
}

tdm_status llm_context_truncate(llm_context *ctx, int32_t seq, int32_t n_tok, tdm_error *err) {
    tdm_status status = seq_check(ctx, seq, err);
    return status == TDM_OK ? llm_kv_truncate(ctx->kv, seq, n_tok, err) : status;
}

tdm_status llm_context_fork(llm_context *ctx, int32_t dst, int32_t src, int32_t n_tok,
                            tdm_error *err) {
    tdm_status status = seq_check(ctx, dst, err);
    if (status == TDM_OK) status = seq_check(ctx, src, err);
    return status == TDM_OK ? llm_kv_fork(ctx->kv, dst, src, n_tok, err) : status;
}

/* Writes n_job jobs (at most LLM_STATE_CHUNK) into the plan's step block. */
static tdm_status jobs_fill(llm_context *ctx, const llm_plan *plan, const tdm_page_job *jobs,
                            int32_t n_job, tdm_error *err) {
    tdm_status status = llm_step_begin(ctx, plan, err);
    if (status != TDM_OK) return status;
    memcpy(&ctx->step[plan->header.job_off], jobs, (size_t)n_job * sizeof *jobs);
    ((tdm_step_header *)(void *)ctx->step)->n_job = n_job;
    ctx->step[plan->header.cls[0].first_entry_off] = 0;
    return TDM_OK;
}

static tdm_io step_input(const llm_context *ctx, const llm_plan *plan) {
    return (tdm_io){plan->step, ctx->step, (uint64_t)plan->header.size * sizeof(int32_t)};
}

static tdm_status jobs_run(llm_context *ctx, llm_plan_kind kind, const tdm_page_job *jobs,
                           int32_t n_job, tdm_error *err) {
    static const llm_step_shape no_shape = {0};
    for (int32_t i = 0; i < n_job; i += LLM_STATE_CHUNK) {
        int32_t n = n_job - i < LLM_STATE_CHUNK ? n_job - i : LLM_STATE_CHUNK;
        llm_plan *plan = NULL;
        tdm_status status = llm_plan_get(ctx, kind, &no_shape, &plan, err);
        if (status == TDM_OK) status = jobs_fill(ctx, plan, jobs + i, n, err);
        if (status != TDM_OK) return status;
        tdm_io input = step_input(ctx, plan);
        status = tdm_schedule_run(plan->schedule, &input, 1, NULL, 0, err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}

static size_t row_size(tdm_type type, int32_t head_dim, int32_t n_head_kv) {
    return tdm_type_row_size(type, tdm_kv_padded(type, head_dim)) * (size_t)n_head_kv;
}

static size_t k_row_size(const llm_context *ctx) {
    const tdm_kv_desc *d = &ctx->cache.desc;
    return row_size(d->type_k, d->head_dim_k, d->n_head_kv);
}

static size_t v_row_size(const llm_context *ctx) {
    const tdm_kv_desc *d = &ctx->cache.desc;
    if ((d->flags & TDM_KV_V_FROM_K) != 0) return 0;
    return row_size(d->type_v, d->head_dim_v, d->n_head_kv);
}

size_t llm_context_rows_size(const llm_context *ctx, int32_t n_row) {
    return (k_row_size(ctx) + v_row_size(ctx)) * (size_t)n_row *
           (size_t)ctx->model->hparams.n_layer;
}

/* Maps the K values of every layer, and the V values if there are any, to their parts of `rows`;
 * returns the number of values. */
static int32_t rows_map(llm_context *ctx, const llm_plan *plan, int32_t n_row, void *rows) {
    uint8_t *at = rows;
    int32_t n_io = 0;
    for (int32_t i = 0; i < 2 * ctx->model->hparams.n_layer; i++) {
        size_t size = (i % 2 == 0 ? k_row_size(ctx) : v_row_size(ctx)) * (size_t)n_row;
        if (plan->rows[i] < 0) continue;
        ctx->row_io[n_io++] = (tdm_io){plan->rows[i], at, size};
        at += size;
    }
    return n_io;
}

/* Exports or imports rows first .. first+n_row-1 of a page. */
static tdm_status page_rows_move(llm_context *ctx, llm_plan_kind kind, int32_t page, int32_t first,
                                 int32_t n_row, void *rows, tdm_error *err) {
    static const llm_step_shape no_shape = {0};
    tdm_page_job job = {page, first, n_row, 0};
    llm_plan *plan = NULL;
    tdm_status status = llm_plan_get(ctx, kind, &no_shape, &plan, err);
    if (status == TDM_OK) status = jobs_fill(ctx, plan, &job, 1, err);
    if (status != TDM_OK) return status;
    int32_t n_io = rows_map(ctx, plan, n_row, rows);
    tdm_io input = step_input(ctx, plan);
    if (kind == LLM_PLAN_EXPORT)
        return tdm_schedule_run(plan->schedule, &input, 1, ctx->row_io, n_io, err);
    ctx->row_io[n_io] = input;
    return tdm_schedule_run(plan->schedule, ctx->row_io, n_io + 1, NULL, 0, err);
}

/* Copies pages. A device may not support it: a group whose pages belong to different members
 * refuses before it changes any. Then the rows are copied through the host. */
static tdm_status copies_run(llm_context *ctx, const tdm_page_job *jobs, int32_t n_job,
                             tdm_error *err) {
    tdm_error why = {0};
    tdm_status status = jobs_run(ctx, LLM_PLAN_COPY, jobs, n_job, &why);
    if (status != TDM_UNSUPPORTED)
        return status == TDM_OK ? TDM_OK : tdm_fail(err, status, "%s", why.message);
    void *rows = malloc(llm_context_rows_size(ctx, LLM_STATE_CHUNK));
    if (rows == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "out of memory for copying pages of the cache");
    status = TDM_OK;
    for (int32_t i = 0; i < n_job; i++) {
        for (int32_t at = 0; at < jobs[i].count && status == TDM_OK; at += LLM_STATE_CHUNK) {
            int32_t n = jobs[i].count - at < LLM_STATE_CHUNK ? jobs[i].count - at : LLM_STATE_CHUNK;
            int32_t first = jobs[i].first + at;
            status = page_rows_move(ctx, LLM_PLAN_EXPORT, jobs[i].arg, first, n, rows, err);
            if (status == TDM_OK)
                status = page_rows_move(ctx, LLM_PLAN_IMPORT, jobs[i].page, first, n, rows, err);
        }
    }
    free(rows);
    return status;
}

tdm_status llm_context_shift(llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard,
                             tdm_error *err) {
    static const llm_step_shape no_shape = {0};
    llm_kv_shift_jobs jobs = {ctx->jobs, ctx->jobs + ctx->max_job, ctx->max_job, 0, 0};
    llm_plan *plan = NULL;
    tdm_status status = seq_check(ctx, seq, err);
    /* All refusals come before the page table changes. */
    if (status == TDM_OK) status = llm_plan_get(ctx, LLM_PLAN_COPY, &no_shape, &plan, err);
    if (status == TDM_OK && ctx->cache.desc.n_rot > 0)
        status = llm_plan_get(ctx, LLM_PLAN_SHIFT, &no_shape, &plan, err);
    if (status == TDM_OK) status = llm_kv_shift(ctx->kv, seq, n_keep, n_discard, &jobs, err);
    if (status != TDM_OK) return status;
    status = copies_run(ctx, jobs.copies, jobs.n_copy, err);
    if (status == TDM_OK && ctx->cache.desc.n_rot > 0)
        status = jobs_run(ctx, LLM_PLAN_SHIFT, jobs.shifts, jobs.n_shift, err);
    /* After a failure of a device the contents of the pages are unknown. Empty the sequence instead
     * of continuing with wrong data. */
    if (status != TDM_OK) llm_kv_truncate(ctx->kv, seq, 0, NULL);
    return status;
}

/* ---- Export and import ---- */

/* The jobs for tokens first .. first+n_row-1 of a sequence; at most one per token. */
static int32_t range_jobs(const llm_context *ctx, int32_t seq, int32_t first, int32_t n_row,
                          tdm_page_job *jobs) {
    const tdm_page_entry *entries = llm_kv_entries(ctx->kv, seq);
    int32_t n_entry = llm_kv_entry_count(ctx->kv, seq), n_job = 0;
    for (int32_t e = 0; e < n_entry; e++) {
        int32_t from = entries[e].base_pos > first ? entries[e].base_pos : first;
        int32_t to = entries[e].base_pos + entries[e].count;
        if (to > first + n_row) to = first + n_row;
        if (from >= to) continue;
        jobs[n_job++] =
            (tdm_page_job){entries[e].page, entries[e].first + from - entries[e].base_pos,
                           to - from, from - first};
    }
    return n_job;
}

tdm_status llm_context_export_rows(llm_context *ctx, int32_t seq, int32_t first, int32_t n_row,
                                   void *rows_out, tdm_error *err) {
    static const llm_step_shape no_shape = {0};
    tdm_page_job jobs[LLM_STATE_CHUNK];
    tdm_status status = seq_check(ctx, seq, err);
    if (status != TDM_OK) return status;
    if (first < 0 || n_row < 1 || n_row > LLM_STATE_CHUNK ||
        first > llm_kv_length(ctx->kv, seq) - n_row)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "export: tokens %d to %d of %d", first,
                        first + n_row - 1, llm_kv_length(ctx->kv, seq));
    llm_plan *plan = NULL;
    int32_t n_job = range_jobs(ctx, seq, first, n_row, jobs);
    status = llm_plan_get(ctx, LLM_PLAN_EXPORT, &no_shape, &plan, err);
    if (status == TDM_OK) status = jobs_fill(ctx, plan, jobs, n_job, err);
    if (status != TDM_OK) return status;
    int32_t n_io = rows_map(ctx, plan, n_row, rows_out);
    tdm_io input = step_input(ctx, plan);
    return tdm_schedule_run(plan->schedule, &input, 1, ctx->row_io, n_io, err);
}

tdm_status llm_context_import_rows(llm_context *ctx, int32_t seq, int32_t n_row, const void *rows,
                                   tdm_error *err) {
    static const llm_step_shape no_shape = {0};
    tdm_page_job jobs[LLM_STATE_CHUNK];
    tdm_status status = seq_check(ctx, seq, err);
    if (status != TDM_OK) return status;
    int32_t first = llm_kv_length(ctx->kv, seq);
    if (n_row < 1 || n_row > LLM_STATE_CHUNK || first > ctx->n_ctx - n_row)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "import: %d tokens behind %d do not fit a context of %d; raise ctx-size",
                        n_row, first, ctx->n_ctx);
    llm_plan *plan = NULL;
    status = llm_plan_get(ctx, LLM_PLAN_IMPORT, &no_shape, &plan, err);
    if (status == TDM_OK) status = llm_kv_append(ctx->kv, seq, n_row, ctx->cells, err);
    if (status != TDM_OK) return status;
    int32_t n_job = range_jobs(ctx, seq, first, n_row, jobs);
    status = jobs_fill(ctx, plan, jobs, n_job, err);
    if (status == TDM_OK) {
        int32_t n_io = rows_map(ctx, plan, n_row, (void *)(uintptr_t)rows); /* only read */
        ctx->row_io[n_io] = step_input(ctx, plan);
        status = tdm_schedule_run(plan->schedule, ctx->row_io, n_io + 1, NULL, 0, err);
    }
    if (status != TDM_OK) llm_kv_truncate(ctx->kv, seq, first, NULL);
    return status;
}
