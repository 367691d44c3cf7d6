/* SPDX-License-Identifier: MIT
 *
 * context_cache.c: operations of a context on cached tokens: truncate, fork, shift, export, import.
 * kv_cache.c decides which pages are copied and shifted; this file runs these jobs on the devices.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llm/context_internal.h"

/* Computes tokens from .. to-1 again: takes them from ctx->tokens of sequence `of` and appends them
 * to sequence seq, which has `from` tokens. */
static tdm_status tokens_redo(llm_context *ctx, int32_t seq, int32_t of, int32_t from, int32_t to,
                              tdm_error *err) {
    const size_t at = (size_t)of * (size_t)ctx->n_ctx + (size_t)from;
    const int32_t n = to - from;
    if (n == 0) return TDM_OK;
    int32_t *tokens = malloc((size_t)n * 2 * sizeof *tokens);
    uint8_t *roles = malloc((size_t)n);
    bool *wanted = calloc((size_t)n, sizeof *wanted);
    tdm_status status = TDM_RESOURCE_EXHAUSTED;
    if (tokens == NULL || roles == NULL || wanted == NULL) {
        tdm_fail(err, status, "out of memory for %d tokens to compute again", n);
    } else {
        memcpy(tokens, ctx->tokens + at, (size_t)n * sizeof *tokens);
        memcpy(roles, ctx->roles + at, (size_t)n);
        for (int32_t i = 0; i < n; i++) tokens[n + i] = seq;
        const llm_batch batch = {
            .tokens = tokens, .seqs = tokens + n, .wanted = wanted, .n_tok = n, .roles = roles};
        status = llm_batch_append(ctx, &batch, err);
    }
    free(tokens);
    free(roles);
    free(wanted);
    return status;
}

/* Truncates a sequence with recurrent states to n_tok tokens: goes back to the last snapshot before
 * that, and computes the tokens from there again. */
static tdm_status states_truncate(llm_context *ctx, int32_t seq, int32_t n_tok, tdm_error *err) {
    int32_t slot;
    const int32_t from = llm_slots_find(ctx->slots, seq, n_tok, &slot);
    llm_tables_truncate(ctx, seq, from);
    llm_slots_hold(ctx->slots, slot);
    llm_slots_set(ctx->slots, seq, slot);
    llm_slots_drop(ctx->slots, seq, from);
    ctx->last_added[seq] = 2; /* keeps this state as a snapshot in the next batch (slots_commit) */
    return tokens_redo(ctx, seq, seq, from, n_tok, err);
}

void llm_tables_truncate(llm_context *ctx, int32_t seq, int32_t n_tok) {
    llm_kv_truncate(ctx->kv, seq, n_tok, NULL);
    if (ctx->window == NULL) return;
    llm_kv_truncate(ctx->window, seq, n_tok, NULL);
    if (ctx->marks[seq] > n_tok) ctx->marks[seq] = -1;
}

/* Whether the first n_tok tokens of a sequence (at least one) are the encoder's text or a part of
 * it, without the token that begins the decoder. A sequence must not keep these alone: another
 * token than that one could follow them. It would belong to the encoder's text, which is only
 * computed as a whole, and would be computed as the decoder's. */
static bool is_only_encoded(const llm_context *ctx, int32_t seq, int32_t n_tok) {
    return ctx->encoded != NULL && n_tok > 0 && n_tok <= ctx->encoded[seq];
}

tdm_status llm_context_truncate(llm_context *ctx, int32_t seq, int32_t n_tok, tdm_error *err) {
    tdm_status status = llm_seq_check(ctx, seq, err);
    if (status != TDM_OK) return status;
    const bool is_shorter = n_tok >= 0 && n_tok < llm_kv_length(ctx->kv, seq);
    if (is_shorter && is_only_encoded(ctx, seq, n_tok))
        return llm_encode_refuse(ctx, "keeping only text that it has read",
                                 "empty the sequence instead", err);
    if (ctx->slots != NULL && is_shorter) return states_truncate(ctx, seq, n_tok, err);
    if (ctx->window == NULL || n_tok < 0) return llm_kv_truncate(ctx->kv, seq, n_tok, err);
    const int32_t from = is_shorter ? llm_window_return(ctx, seq, n_tok) : n_tok;
    llm_tables_truncate(ctx, seq, from);
    return is_shorter ? tokens_redo(ctx, seq, seq, from, n_tok, err) : TDM_OK;
}

int32_t llm_context_pages(const llm_context *ctx, int32_t *n_free_out) {
    *n_free_out = llm_kv_free_count(ctx->kv);
    return (int32_t)ctx->cache.n_page;
}

int32_t llm_context_pages_needed(const llm_context *ctx, int32_t seq, int32_t n_tok) {
    const int64_t page_len = ctx->cache.desc.page_len;
    const int64_t tail = llm_kv_room(ctx->kv, seq) - llm_kv_free_count(ctx->kv) * page_len;
    return n_tok > tail ? (int32_t)((n_tok - tail + page_len - 1) / page_len) : 0;
}

int32_t llm_context_reach(llm_context *ctx, int32_t seq, int32_t n_tok) {
    const int32_t length = llm_kv_length(ctx->kv, seq);
    int32_t slot;
    if (n_tok >= length) n_tok = length;
    if (n_tok <= 0 || is_only_encoded(ctx, seq, n_tok)) return 0;
    if (ctx->slots != NULL && n_tok < length) return llm_slots_find(ctx->slots, seq, n_tok, &slot);
    return ctx->window != NULL ? llm_window_return(ctx, seq, n_tok) : n_tok;
}

static tdm_status copies_run(llm_context *ctx, int32_t cls, const tdm_page_job *jobs, int32_t n_job,
                             tdm_error *err);

/* After a fork: gives a sequence pages of its own for its last tokens (llm_kv_own_tail), and copies
 * the shared pages into them. */
static tdm_status tails_own(llm_context *ctx, int32_t seq, tdm_error *err) {
    int32_t n = llm_kv_own_tail(ctx->kv, seq, ctx->jobs);
    tdm_status status = n > 0 ? copies_run(ctx, LLM_CLASS_ALL, ctx->jobs, n, err) : TDM_OK;
    if (status == TDM_OK && n > 0 && ctx->encoded != NULL)
        status = copies_run(ctx, LLM_CLASS_ENCODED, ctx->jobs, n, err);
    if (status != TDM_OK || ctx->window == NULL) return status;
    n = llm_kv_own_tail(ctx->window, seq, ctx->window_jobs);
    return n > 0 ? copies_run(ctx, LLM_CLASS_WINDOW, ctx->window_jobs, n, err) : TDM_OK;
}

/* Copies the first n tokens and roles of src in ctx->tokens and ctx->roles to dst. */
static void tokens_copy(llm_context *ctx, int32_t dst, int32_t src, int32_t n) {
    const size_t to = (size_t)dst * (size_t)ctx->n_ctx, from = (size_t)src * (size_t)ctx->n_ctx;
    memcpy(ctx->tokens + to, ctx->tokens + from, (size_t)n * sizeof *ctx->tokens);
    memcpy(ctx->roles + to, ctx->roles + from, (size_t)n);
}

/* Makes dst hold the first n_tok tokens of src in a model with a window class: shares the tokens up
 * to a length for which src has the windows (llm_window_return), and computes the others again. */
static tdm_status window_fork(llm_context *ctx, int32_t dst, int32_t src, int32_t n_tok,
                              tdm_error *err) {
    const bool is_part = n_tok >= 0 && n_tok <= llm_kv_length(ctx->kv, src);
    const int32_t from = is_part ? llm_window_return(ctx, src, n_tok) : n_tok;
    tdm_status status = llm_kv_fork(ctx->kv, dst, src, from, err);
    if (status != TDM_OK) return status;
    llm_kv_truncate(ctx->window, dst, 0, NULL);
    status = llm_kv_fork(ctx->window, dst, src, from, err);
    if (status == TDM_OK) {
        tokens_copy(ctx, dst, src, from);
        ctx->marks[dst] = -1;
        llm_window_trim(ctx, dst);
        status = tails_own(ctx, dst, err);
        if (status == TDM_OK) status = tokens_redo(ctx, dst, src, from, n_tok, err);
    }
    if (status != TDM_OK) llm_tables_truncate(ctx, dst, 0);
    return status;
}

/* Makes dst hold the first n_tok tokens of src in a model without recurrent states and without a
 * window class. */
static tdm_status pages_fork(llm_context *ctx, int32_t dst, int32_t src, int32_t n_tok,
                             tdm_error *err) {
    if (is_only_encoded(ctx, src, n_tok))
        return llm_encode_refuse(ctx, "sharing only text that it has read",
                                 "share all of it with the token that begins the answer", err);
    tdm_status status = llm_kv_fork(ctx->kv, dst, src, n_tok, err);
    if (status != TDM_OK) return status;
    if (ctx->encoded != NULL) ctx->encoded[dst] = ctx->encoded[src];
    status = tails_own(ctx, dst, err);
    if (status != TDM_OK) llm_tables_truncate(ctx, dst, 0);
    return status;
}

/* Makes dst hold the first n_tok tokens of src in a model with recurrent states: shares the tokens
 * up to the last snapshot, and computes the others again. */
static tdm_status states_fork(llm_context *ctx, int32_t dst, int32_t src, int32_t n_tok,
                              tdm_error *err) {
    int32_t from = n_tok, slot = llm_slots_current(ctx->slots, src);
    const int32_t length = llm_kv_length(ctx->kv, src);
    if (n_tok >= 0 && n_tok < length) from = llm_slots_find(ctx->slots, src, n_tok, &slot);
    tdm_status status = llm_kv_fork(ctx->kv, dst, src, from, err);
    if (status != TDM_OK) return status;
    tokens_copy(ctx, dst, src, from);
    llm_slots_hold(ctx->slots, slot);
    llm_slots_set(ctx->slots, dst, slot);
    llm_slots_drop(ctx->slots, dst, -1);
    ctx->last_added[dst] = 2;
    status = tails_own(ctx, dst, err);
    if (status == TDM_OK) status = tokens_redo(ctx, dst, src, from, n_tok, err);
    if (status == TDM_OK) return TDM_OK;
    llm_kv_truncate(ctx->kv, dst, 0, NULL);
    llm_slots_set(ctx->slots, dst, -1);
    return status;
}

tdm_status llm_context_fork(llm_context *ctx, int32_t dst, int32_t src, int32_t n_tok,
                            tdm_error *err) {
    tdm_status status = llm_seq_check(ctx, dst, err);
    if (status == TDM_OK) status = llm_seq_check(ctx, src, err);
    if (status == TDM_OK && ctx->scales != NULL)
        status = llm_context_set_scales(ctx, dst, llm_context_scales(ctx, src), err);
    if (status != TDM_OK) return status;
    if (ctx->window != NULL) return window_fork(ctx, dst, src, n_tok, err);
    if (ctx->slots != NULL) return states_fork(ctx, dst, src, n_tok, err);
    return pages_fork(ctx, dst, src, n_tok, err);
}

/* Writes n_job jobs (at most llm_context_chunk) into the plan's step block. */
static tdm_status jobs_fill(llm_context *ctx, const llm_plan *plan, const tdm_page_job *jobs,
                            int32_t n_job, tdm_error *err) {
    tdm_status status = llm_step_begin(ctx, plan, err);
    if (status != TDM_OK) return status;
    memcpy(&ctx->step[plan->header.job_off], jobs, (size_t)n_job * sizeof *jobs);
    ((tdm_step_header *)(void *)ctx->step)->n_job = n_job;
    for (int32_t c = 0; c < plan->header.n_class; c++)
        ctx->step[plan->header.cls[c].first_entry_off] = 0;
    return TDM_OK;
}

static tdm_io step_input(const llm_context *ctx, const llm_plan *plan) {
    return (tdm_io){plan->step, ctx->step, (uint64_t)plan->header.size * sizeof(int32_t)};
}

/* Whether a layer of the class has rows that a plan of this kind changes or moves. */
static bool class_has_work(const llm_context *ctx, llm_plan_kind kind, int32_t cls) {
    const llm_model *m = ctx->model;
    for (int32_t l = 0; l < m->hparams.n_layer; l++)
        if (llm_layer_has_cache(&m->specs[l]) && llm_cache_class(m, &ctx->cache, l) == cls &&
            (kind != LLM_PLAN_SHIFT || m->specs[l].rope.n_rot > 0))
            return true;
    return false;
}

/* The plan that moves rows of a class of caches; NULL where there is nothing to do. */
static tdm_status class_plan_get(llm_context *ctx, llm_plan_kind kind, int32_t cls,
                                 llm_plan **plan_out, tdm_error *err) {
    const llm_step_shape shape = {.cls = cls};
    *plan_out = NULL;
    if (!class_has_work(ctx, kind, cls)) return TDM_OK;
    return llm_plan_get(ctx, kind, &shape, plan_out, err);
}

/* Runs jobs of a kind on the caches of a class, a chunk of them at a time. */
static tdm_status jobs_run(llm_context *ctx, llm_plan_kind kind, int32_t cls,
                           const tdm_page_job *jobs, int32_t n_job, tdm_error *err) {
    const int32_t chunk = llm_context_chunk(ctx);
    for (int32_t i = 0; i < n_job; i += chunk) {
        int32_t n = n_job - i < chunk ? n_job - i : chunk;
        llm_plan *plan = NULL;
        tdm_status status = class_plan_get(ctx, kind, cls, &plan, err);
        if (status == TDM_OK && plan == NULL) return TDM_OK;
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

/* Bytes of row i of a token, where i = LLM_ROW_KINDS * layer + LLM_ROW_*; 0 = the layer has no such
 * row. */
static size_t layer_row_size(const llm_context *ctx, int32_t i) {
    static const llm_state_kind kinds[LLM_ROW_KINDS] = {[LLM_ROW_K] = LLM_STATE_ROWS,
                                                        [LLM_ROW_V] = LLM_STATE_ROWS,
                                                        [LLM_ROW_INDEX] = LLM_STATE_INDEX,
                                                        [LLM_ROW_RUNS] = LLM_STATE_RUNS};
    const int32_t what = i % LLM_ROW_KINDS;
    tdm_kv_desc d;
    tdm_partition partition;
    if (!llm_state_desc(ctx->model, &ctx->cache, kinds[what], i / LLM_ROW_KINDS, &d, &partition))
        return 0;
    if (what != LLM_ROW_V) return row_size(d.type_k, d.head_dim_k, d.n_head_kv);
    return (d.flags & TDM_KV_V_FROM_K) != 0 ? 0 : row_size(d.type_v, d.head_dim_v, d.n_head_kv);
}

/* Whether exported rows of tokens up to `end` - 1 contain rows of this layer (context.h,
 * window_first). */
static bool layer_has_rows(const llm_context *ctx, int32_t layer, int32_t end,
                           int32_t window_first) {
    return llm_layer_has_cache(&ctx->model->specs[layer]) &&
           (end > window_first || llm_cache_class(ctx->model, &ctx->cache, layer) == LLM_CLASS_ALL);
}

size_t llm_context_rows_size_at(const llm_context *ctx, int32_t first, int32_t n_row,
                                int32_t window_first) {
    size_t size = 0;
    for (int32_t i = 0; i < LLM_ROW_KINDS * ctx->model->hparams.n_layer; i++)
        if (layer_has_rows(ctx, i / LLM_ROW_KINDS, first + n_row, window_first))
            size += layer_row_size(ctx, i);
    return size * (size_t)n_row;
}

size_t llm_context_rows_size(const llm_context *ctx, int32_t n_row) {
    return llm_context_rows_size_at(ctx, 0, n_row, 0);
}

double llm_context_read_size(const llm_context *ctx, int32_t n_past, int32_t n_tok) {
    double size = 0;
    for (int32_t l = 0; l < ctx->model->hparams.n_layer; l++) {
        const llm_layer_spec *s = &ctx->model->specs[l];
        if (!llm_layer_has_cache(s)) continue;
        const double all = (double)n_past + n_tok, seen = (double)s->window - 1 + n_tok;
        const double n = s->window > 0 && seen < all ? seen : all;
        double n_row[LLM_ROW_KINDS] = {n, n, all, all};
        if (s->index_run > 0) n_row[LLM_ROW_INDEX] = floor(all / s->index_run);
        if (s->run_len > 0) n_row[LLM_ROW_RUNS] = floor(all / s->run_len);
        for (int32_t i = 0; i < LLM_ROW_KINDS; i++)
            size += n_row[i] * (double)layer_row_size(ctx, LLM_ROW_KINDS * l + i);
    }
    return size;
}

void llm_context_rows_shorten(const llm_context *ctx, void *rows, int32_t first, int32_t n_row,
                              int32_t n_keep, int32_t window_first) {
    uint8_t *to = rows;
    const uint8_t *from = rows;
    for (int32_t i = 0; i < LLM_ROW_KINDS * ctx->model->hparams.n_layer; i++) {
        if (!layer_has_rows(ctx, i / LLM_ROW_KINDS, first + n_row, window_first)) continue;
        const size_t size = layer_row_size(ctx, i);
        const bool is_kept = layer_has_rows(ctx, i / LLM_ROW_KINDS, first + n_keep, window_first);
        if (is_kept) memmove(to, from, size * (size_t)n_keep);
        if (is_kept) to += size * (size_t)n_keep;
        from += size * (size_t)n_row;
    }
}

/* The tokens to which exported or imported rows belong. */
typedef struct row_range {
    int32_t first, n_row;
    int32_t window_first; /* of their sequence */
} row_range;

/* Zeros the rows of tokens before window_first in layers with a window. */
static void rows_clear(const llm_context *ctx, const row_range *r, void *rows) {
    uint8_t *at = rows;
    const int32_t end = r->first + r->n_row;
    const int32_t n = r->window_first < end ? r->window_first - r->first : r->n_row;
    for (int32_t i = 0; i < LLM_ROW_KINDS * ctx->model->hparams.n_layer && n > 0; i++) {
        if (!layer_has_rows(ctx, i / LLM_ROW_KINDS, end, r->window_first)) continue;
        const size_t size = layer_row_size(ctx, i);
        if (llm_cache_class(ctx->model, &ctx->cache, i / LLM_ROW_KINDS) == LLM_CLASS_WINDOW)
            memset(at, 0, size * (size_t)n);
        at += size * (size_t)r->n_row;
    }
}

/* Fills ctx->row_io: for each value of the plan its part of `rows`. Returns how many. */
static int32_t rows_map(llm_context *ctx, const llm_plan *plan, const row_range *r, void *rows) {
    uint8_t *at = rows;
    int32_t n_io = 0;
    for (int32_t i = 0; i < LLM_ROW_KINDS * ctx->model->hparams.n_layer; i++) {
        if (!layer_has_rows(ctx, i / LLM_ROW_KINDS, r->first + r->n_row, r->window_first)) continue;
        size_t size = layer_row_size(ctx, i) * (size_t)r->n_row;
        if (plan->rows[i] >= 0) ctx->row_io[n_io++] = (tdm_io){plan->rows[i], at, size};
        at += size;
    }
    return n_io;
}

/* Exports or imports the rows of a range in the layers of one class. The jobs say in which pages
 * the range's tokens are; `rows` has the rows of all classes. */
static tdm_status rows_move(llm_context *ctx, llm_plan_kind kind, int32_t cls, const row_range *r,
                            const tdm_page_job *jobs, int32_t n_job, void *rows, tdm_error *err) {
    llm_plan *plan = NULL;
    tdm_status status = class_plan_get(ctx, kind, cls, &plan, err);
    if (status != TDM_OK || plan == NULL || n_job == 0) return status;
    status = jobs_fill(ctx, plan, jobs, n_job, err);
    if (status != TDM_OK) return status;
    int32_t n_io = rows_map(ctx, plan, r, rows);
    tdm_io input = step_input(ctx, plan);
    if (kind == LLM_PLAN_EXPORT)
        return tdm_schedule_run(plan->schedule, &input, 1, ctx->row_io, n_io, err);
    ctx->row_io[n_io] = input;
    return tdm_schedule_run(plan->schedule, ctx->row_io, n_io + 1, NULL, 0, err);
}

/* Whether a layer keeps a row for each run of tokens. An index that no layer reads is not kept. */
static bool has_run_rows(const llm_context *ctx) {
    for (int32_t l = 0; l < ctx->model->hparams.n_layer; l++) {
        const int32_t at = LLM_ROW_KINDS * l;
        if (layer_row_size(ctx, at + LLM_ROW_RUNS) > 0) return true;
        if (ctx->model->specs[l].index_run > 0 && layer_row_size(ctx, at + LLM_ROW_INDEX) > 0)
            return true;
    }
    return false;
}

/* Copies pages. A device may refuse this with TDM_UNSUPPORTED, before it has changed anything: a
 * group whose pages belong to different members does. Then the rows are copied through the host. */
static tdm_status copies_run(llm_context *ctx, int32_t cls, const tdm_page_job *jobs, int32_t n_job,
                             tdm_error *err) {
    const int32_t chunk = llm_context_chunk(ctx);
    tdm_error why = {0};
    tdm_status status = jobs_run(ctx, LLM_PLAN_COPY, cls, jobs, n_job, &why);
    /* Rows of models with an encoder cannot be exported. Rows of runs are exported by the positions
     * of their tokens in the sequence, which a job does not contain. */
    const bool can_move = ctx->encoded == NULL && !has_run_rows(ctx);
    if (status != TDM_UNSUPPORTED || !can_move)
        return status == TDM_OK ? TDM_OK : tdm_fail(err, status, "%s", why.message);
    void *rows = malloc(llm_context_rows_size(ctx, chunk));
    if (rows == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "out of memory for copying pages of the cache");
    status = TDM_OK;
    for (int32_t i = 0; i < n_job; i++) {
        for (int32_t at = 0; at < jobs[i].count && status == TDM_OK; at += chunk) {
            int32_t n = jobs[i].count - at < chunk ? jobs[i].count - at : chunk;
            int32_t first = jobs[i].first + at;
            const row_range range = {0, n, 0};
            const tdm_page_job from = {jobs[i].arg, first, n, 0}, to = {jobs[i].page, first, n, 0};
            status = rows_move(ctx, LLM_PLAN_EXPORT, cls, &range, &from, 1, rows, err);
            if (status == TDM_OK)
                status = rows_move(ctx, LLM_PLAN_IMPORT, cls, &range, &to, 1, rows, err);
        }
    }
    free(rows);
    return status;
}

bool llm_context_can_shift(const llm_context *ctx) {
    return ctx->slots == NULL && ctx->encoded == NULL;
}

/* Removes the discarded tokens of a shift from ctx->tokens and ctx->roles. n_tok: the length of the
 * sequence before the shift. */
static void notes_shift(llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard,
                        int32_t n_tok) {
    const size_t at = (size_t)seq * (size_t)ctx->n_ctx + (size_t)n_keep;
    const size_t from = at + (size_t)n_discard, n = (size_t)(n_tok - n_keep - n_discard);
    memmove(ctx->tokens + at, ctx->tokens + from, n * sizeof *ctx->tokens);
    memmove(ctx->roles + at, ctx->roles + from, n);
}

/* Runs the jobs of a shift on the caches of a class. */
static tdm_status class_shift(llm_context *ctx, int32_t cls, const llm_kv_shift_jobs *jobs,
                              tdm_error *err) {
    tdm_status status = copies_run(ctx, cls, jobs->copies, jobs->n_copy, err);
    if (status == TDM_OK && ctx->cache.desc.n_rot > 0)
        status = jobs_run(ctx, LLM_PLAN_SHIFT, cls, jobs->shifts, jobs->n_shift, err);
    return status;
}

/* Checks that a shift will not be refused: by the page table of all tokens, or because a plan that
 * it needs cannot be made. */
static tdm_status shift_check(llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard,
                              tdm_error *err) {
    llm_plan *plan = NULL;
    tdm_status status = llm_kv_shift_check(ctx->kv, seq, n_keep, n_discard, err);
    for (int32_t c = 0; c < llm_cache_class_count(ctx->model, &ctx->cache); c++) {
        if (status == TDM_OK) status = class_plan_get(ctx, LLM_PLAN_COPY, c, &plan, err);
        if (status == TDM_OK && ctx->cache.desc.n_rot > 0)
            status = class_plan_get(ctx, LLM_PLAN_SHIFT, c, &plan, err);
    }
    return status;
}

/* Shifts a sequence of n_tok tokens by computing all remaining tokens again. Refuses it, before
 * anything changes, if pages for them are missing, since other sequences keep those that they share
 * with this one. */
static tdm_status shift_redo(llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard,
                             int32_t n_tok, tdm_error *err) {
    const int32_t page_len = ctx->cache.desc.page_len, n_left = n_tok - n_discard;
    const int32_t n_needed = (n_left + page_len - 1) / page_len;
    const int32_t n_there = llm_kv_free_count(ctx->kv) + llm_kv_own_count(ctx->kv, seq);
    if (n_needed > n_there)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "the cache is full: a shift of sequence %d computes %d tokens again, which "
                        "need %d pages, %d of %d can be used; use a larger ctx-size or fewer "
                        "sequences",
                        seq, n_left, n_needed, n_there, (int32_t)ctx->cache.n_page);
    notes_shift(ctx, seq, n_keep, n_discard, n_tok);
    llm_tables_truncate(ctx, seq, 0);
    return tokens_redo(ctx, seq, seq, 0, n_left, err);
}

tdm_status llm_context_shift(llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard,
                             tdm_error *err) {
    llm_kv_shift_jobs jobs = {ctx->jobs, ctx->jobs + ctx->max_job, ctx->max_job, 0, 0};
    llm_kv_shift_jobs window_jobs = {0};
    tdm_status status = llm_seq_check(ctx, seq, err);
    if (status == TDM_OK)
        status = llm_encode_refuse(ctx, "a context shift", "raise ctx-size instead", err);
    if (status == TDM_OK && !llm_context_can_shift(ctx))
        status = tdm_fail(err, TDM_UNSUPPORTED,
                          "architecture '%s' has recurrent states, from which no tokens can be "
                          "removed: a context shift is not possible; raise ctx-size",
                          ctx->model->hparams.arch);
    /* All refusals come before the page tables change. */
    if (status == TDM_OK) status = shift_check(ctx, seq, n_keep, n_discard, err);
    if (status != TDM_OK || n_discard == 0) return status;
    const int32_t n_tok = llm_kv_length(ctx->kv, seq);
    if (!llm_window_survives(ctx, seq, n_keep, n_discard))
        return shift_redo(ctx, seq, n_keep, n_discard, n_tok, err);
    if (ctx->window != NULL) notes_shift(ctx, seq, n_keep, n_discard, n_tok);
    status = llm_kv_shift(ctx->kv, seq, n_keep, n_discard, &jobs, err);
    if (status == TDM_OK && ctx->window != NULL) {
        window_jobs = (llm_kv_shift_jobs){ctx->window_jobs, ctx->window_jobs + ctx->max_window_job,
                                          ctx->max_window_job, 0, 0};
        status = llm_kv_shift(ctx->window, seq, n_keep, n_discard, &window_jobs, err);
        llm_window_move_mark(ctx, seq, n_keep, n_discard);
    }
    if (status == TDM_OK) status = class_shift(ctx, LLM_CLASS_ALL, &jobs, err);
    if (status == TDM_OK && ctx->window != NULL)
        status = class_shift(ctx, LLM_CLASS_WINDOW, &window_jobs, err);
    /* After a failure of a device the contents of the pages are unknown. The sequence is emptied,
     * so that nothing is computed from wrong data. */
    if (status != TDM_OK) llm_tables_truncate(ctx, seq, 0);
    return status;
}

/* ---- Export and import ---- */

int32_t llm_context_chunk(const llm_context *ctx) {
    return ctx->longest_run > LLM_STATE_CHUNK ? ctx->longest_run : LLM_STATE_CHUNK;
}

/* Whether `first` may begin a chunk (llm_context_chunk). */
static bool chunk_is_whole(const llm_context *ctx, int32_t first) {
    return ctx->longest_run == 0 || first % llm_context_chunk(ctx) == 0;
}

/* What to do instead, for llm_encode_refuse. */
static const char no_files[] = "leave out the file and compute the prompt again";

/* Fills in the jobs that name the cells of tokens first .. first+n_row-1 of a sequence: one for
 * each page table entry that has some of them, so at most n_row. Returns how many. */
static int32_t range_jobs(const llm_kv *kv, int32_t seq, int32_t first, int32_t n_row,
                          tdm_page_job *jobs) {
    const tdm_page_entry *entries = llm_kv_entries(kv, seq);
    int32_t n_entry = llm_kv_entry_count(kv, seq), n_job = 0;
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

size_t llm_context_slot_size(const llm_context *ctx) {
    size_t size = 0;
    for (int32_t i = LLM_RECURRENT_CONV * ctx->model->hparams.n_layer; i < ctx->n_state; i++) {
        tdm_kv_desc desc;
        tdm_partition partition;
        if (llm_state_desc(ctx->model, &ctx->cache,
                           (llm_state_kind)(i / ctx->model->hparams.n_layer),
                           i % ctx->model->hparams.n_layer, &desc, &partition))
            size += (size_t)desc.head_dim_k * (size_t)desc.n_head_kv * sizeof(float);
    }
    return size;
}

/* Runs the plan that exports slot `slot` of all recurrent states to `data`, or imports it. */
static tdm_status slot_move(llm_context *ctx, llm_plan_kind kind, int32_t slot, void *data,
                            tdm_error *err) {
    static const llm_step_shape no_shape = {0};
    const tdm_page_job job = {slot, 0, 1, 0};
    llm_plan *plan = NULL;
    uint8_t *at = data;
    int32_t n_io = 0;
    tdm_status status = llm_plan_get(ctx, kind, &no_shape, &plan, err);
    if (status == TDM_OK) status = jobs_fill(ctx, plan, &job, 1, err);
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < LLM_SLOT_KINDS * ctx->model->hparams.n_layer; i++) {
        tdm_kv_desc desc;
        tdm_partition partition;
        if (plan->rows[i] < 0) continue;
        llm_state_desc(ctx->model, &ctx->cache,
                       (llm_state_kind)(LLM_RECURRENT_CONV + i % LLM_SLOT_KINDS),
                       i / LLM_SLOT_KINDS, &desc, &partition);
        size_t size = (size_t)desc.head_dim_k * (size_t)desc.n_head_kv * sizeof(float);
        ctx->row_io[n_io++] = (tdm_io){plan->rows[i], at, size};
        at += size;
    }
    const tdm_io input = step_input(ctx, plan);
    if (kind == LLM_PLAN_SLOT_EXPORT)
        return tdm_schedule_run(plan->schedule, &input, 1, ctx->row_io, n_io, err);
    ctx->row_io[n_io] = input;
    return tdm_schedule_run(plan->schedule, ctx->row_io, n_io + 1, NULL, 0, err);
}

tdm_status llm_context_export_slot(llm_context *ctx, int32_t seq, void *data_out, tdm_error *err) {
    tdm_status status = llm_seq_check(ctx, seq, err);
    if (status != TDM_OK || ctx->slots == NULL) return status;
    const int32_t slot = llm_slots_current(ctx->slots, seq);
    if (slot >= 0) return slot_move(ctx, LLM_PLAN_SLOT_EXPORT, slot, data_out, err);
    memset(data_out, 0, llm_context_slot_size(ctx));
    return TDM_OK;
}

tdm_status llm_context_import_slot(llm_context *ctx, int32_t seq, const int32_t *tokens,
                                   const void *data, tdm_error *err) {
    tdm_status status = llm_seq_check(ctx, seq, err);
    if (status != TDM_OK || ctx->slots == NULL) return status;
    const int32_t slot = llm_slots_take(ctx->slots, false);
    if (slot < 0) return tdm_fail(err, TDM_INTERNAL, "context: no slot for a recurrent state");
    status = slot_move(ctx, LLM_PLAN_SLOT_IMPORT, slot, (void *)(uintptr_t)data, err);
    if (status != TDM_OK) {
        llm_slots_release(ctx->slots, slot);
        return status;
    }
    llm_context_import_tokens(ctx, seq, tokens);
    llm_slots_drop(ctx->slots, seq, -1);
    llm_slots_set(ctx->slots, seq, slot);
    ctx->last_added[seq] = 2;
    return TDM_OK;
}

int32_t llm_context_window_first(const llm_context *ctx, int32_t seq) {
    return ctx->window != NULL ? llm_kv_first(ctx->window, seq) : 0;
}

bool llm_context_has_window(const llm_context *ctx) {
    return ctx->window != NULL;
}

bool llm_context_window_suffices(const llm_context *ctx, int32_t n_tok, int32_t window_first) {
    return window_first == 0 ||
           (window_first <= n_tok && window_first <= n_tok - ctx->n_window + 1);
}

int32_t llm_context_free_pages(const llm_context *ctx) {
    return llm_kv_free_count(ctx->kv) + (ctx->window != NULL ? llm_kv_free_count(ctx->window) : 0);
}

tdm_status llm_context_export_rows(llm_context *ctx, int32_t seq, int32_t first, int32_t n_row,
                                   void *rows_out, tdm_error *err) {
    tdm_page_job jobs[LLM_MAX_STATE_CHUNK];
    tdm_status status = llm_seq_check(ctx, seq, err);
    if (status == TDM_OK) status = llm_encode_refuse(ctx, "saving a sequence", no_files, err);
    if (status != TDM_OK) return status;
    if (first < 0 || n_row < 1 || n_row > llm_context_chunk(ctx) || !chunk_is_whole(ctx, first) ||
        first > llm_kv_length(ctx->kv, seq) - n_row)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "export: tokens %d to %d of %d", first,
                        first + n_row - 1, llm_kv_length(ctx->kv, seq));
    const row_range range = {first, n_row, llm_context_window_first(ctx, seq)};
    int32_t n_job = range_jobs(ctx->kv, seq, first, n_row, jobs);
    status = rows_move(ctx, LLM_PLAN_EXPORT, LLM_CLASS_ALL, &range, jobs, n_job, rows_out, err);
    if (status != TDM_OK || ctx->window == NULL || first + n_row <= range.window_first)
        return status;
    n_job = range_jobs(ctx->window, seq, first, n_row, jobs);
    status = rows_move(ctx, LLM_PLAN_EXPORT, LLM_CLASS_WINDOW, &range, jobs, n_job, rows_out, err);
    rows_clear(ctx, &range, rows_out);
    return status;
}

void llm_context_import_begin(llm_context *ctx, int32_t seq, int32_t window_first) {
    if (ctx->window != NULL) llm_kv_skip(ctx->window, seq, window_first);
}

void llm_context_import_tokens(llm_context *ctx, int32_t seq, const int32_t *tokens) {
    if (ctx->tokens == NULL) return;
    const size_t n = (size_t)llm_kv_length(ctx->kv, seq), at = (size_t)seq * (size_t)ctx->n_ctx;
    memcpy(ctx->tokens + at, tokens, n * sizeof *tokens);
    memset(ctx->roles + at, TDM_ROLE_GENERATED, n);
}

/* Imports the rows of a range into the pages of one class. The range's tokens have been appended to
 * the sequence's page table. */
static tdm_status class_import(llm_context *ctx, int32_t cls, int32_t seq, const row_range *r,
                               const void *rows, tdm_error *err) {
    tdm_page_job jobs[LLM_MAX_STATE_CHUNK];
    const llm_kv *kv = cls == LLM_CLASS_WINDOW ? ctx->window : ctx->kv;
    const int32_t n_job = range_jobs(kv, seq, r->first, r->n_row, jobs);
    return rows_move(ctx, LLM_PLAN_IMPORT, cls, r, jobs, n_job, (void *)(uintptr_t)rows,
                     err); /* only read */
}

tdm_status llm_context_import_rows(llm_context *ctx, int32_t seq, int32_t n_row, const void *rows,
                                   tdm_error *err) {
    tdm_status status = llm_seq_check(ctx, seq, err);
    if (status == TDM_OK)
        status = llm_encode_refuse(ctx, "loading a saved sequence", no_files, err);
    if (status != TDM_OK) return status;
    int32_t first = llm_kv_length(ctx->kv, seq);
    if (n_row < 1 || n_row > llm_context_chunk(ctx) || first > ctx->n_ctx - n_row)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "import: %d tokens behind %d do not fit a context of %d; raise ctx-size",
                        n_row, first, ctx->n_ctx);
    if (!chunk_is_whole(ctx, first))
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "import: token %d is not the first of %d that are moved together", first,
                        llm_context_chunk(ctx));
    llm_plan *plan = NULL;
    row_range range = {first, n_row, 0};
    status = class_plan_get(ctx, LLM_PLAN_IMPORT, LLM_CLASS_ALL, &plan, err);
    if (status == TDM_OK) status = llm_kv_append(ctx->kv, seq, n_row, ctx->cells, err);
    if (status == TDM_OK && ctx->window != NULL) {
        /* While rows of tokens before window_first are imported, this page table is longer than
         * the other one (llm_kv_skip), and gets no pages for them. */
        range.window_first = llm_kv_length(ctx->window, seq);
        const int32_t n_new = first + n_row - range.window_first;
        if (n_new > 0) status = llm_kv_append(ctx->window, seq, n_new, ctx->window_cells, err);
    }
    if (status == TDM_OK) status = class_import(ctx, LLM_CLASS_ALL, seq, &range, rows, err);
    if (status == TDM_OK && ctx->window != NULL && first + n_row > range.window_first)
        status = class_import(ctx, LLM_CLASS_WINDOW, seq, &range, rows, err);
    if (status == TDM_OK)
        llm_window_trim(ctx, seq);
    else
        llm_tables_truncate(ctx, seq, first);
    return status;
}
