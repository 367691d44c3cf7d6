/* SPDX-License-Identifier: MIT
 *
 * fake_context.c: see fake_context.h. The linker takes these functions instead of those of
 * llm/context*.c.
 */
#include "tests/server/fake_context.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "llm/arch/arch.h"

struct llm_context {
    const llm_model *model;
    llm_kv *kv;
    tdm_kv_desc desc;
    int32_t n_ctx, n_seq, n_ubatch, n_page;
    int32_t *cells; /* [n_page * page_len] tokens */
    int32_t *found; /* [n_ctx] cells of an append, then tokens of a sequence */
    float *rows;    /* [n_ubatch][FAKE_N_VOCAB] */
    int32_t n_row;
    tdm_page_job *jobs;
};

static atomic_int fail_every, n_step, lose_every, n_truncate;
static atomic_int fail_status = TDM_UNAVAILABLE;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t over;
    bool is_held; /* by lock */
} hold = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};

void fake_hold(bool is_held) {
    pthread_mutex_lock(&hold.lock);
    hold.is_held = is_held;
    if (!is_held) pthread_cond_broadcast(&hold.over);
    pthread_mutex_unlock(&hold.lock);
}

static void hold_wait(void) {
    pthread_mutex_lock(&hold.lock);
    while (hold.is_held) pthread_cond_wait(&hold.over, &hold.lock);
    pthread_mutex_unlock(&hold.lock);
}

void fake_fail_every(int n) {
    atomic_store(&fail_every, n);
}

void fake_fail_with(tdm_status status) {
    atomic_store(&fail_status, (int)status);
}

void fake_lose_every(int n) {
    atomic_store(&lose_every, n);
}

llm_model *fake_model(void) {
    static const llm_arch arch = {.name = "fake"};
    static llm_model model = {.path = (char *)"fake", .arch = &arch};
    model.hparams.n_vocab = FAKE_N_VOCAB;
    return &model;
}

llm_model *fake_draft_model(void) {
    static llm_model model;
    model = *fake_model();
    return &model;
}

int32_t fake_next(const int32_t *tokens, int32_t n) {
    uint64_t hash = (uint64_t)n;
    for (int32_t i = 0; i < n; i++)
        hash = (hash ^ (uint64_t)tokens[i]) * UINT64_C(0x100000001b3) + (hash >> 29);
    return (int32_t)((hash >> 20) % FAKE_N_VOCAB);
}

tdm_status llm_context_create(llm_model *model, const llm_context_params *params, llm_context **out,
                              tdm_error *err) {
    llm_context *ctx = calloc(1, sizeof *ctx);
    if (ctx == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "out of memory");
    ctx->model = model;
    const int32_t page_len = params->page_len;
    ctx->desc.page_len = page_len;
    ctx->n_ctx = params->n_ctx;
    ctx->n_seq = params->n_seq;
    ctx->n_ubatch = params->n_ubatch;
    ctx->n_page = (ctx->n_ctx + page_len - 1) / page_len + 2 * ctx->n_seq;
    const tdm_status status = llm_kv_create(ctx->n_page, page_len, ctx->n_seq, &ctx->kv, err);
    if (status == TDM_OK) ctx->jobs = calloc((size_t)llm_kv_max_jobs(ctx->kv), sizeof *ctx->jobs);
    ctx->cells = calloc((size_t)(ctx->n_page * page_len), sizeof *ctx->cells);
    ctx->found = calloc((size_t)ctx->n_ctx + 1, sizeof *ctx->found);
    ctx->rows = calloc((size_t)ctx->n_ubatch * FAKE_N_VOCAB, sizeof *ctx->rows);
    *out = ctx;
    return status;
}

void llm_context_destroy(llm_context *ctx) {
    if (ctx == NULL) return;
    llm_kv_destroy(ctx->kv);
    free(ctx->jobs);
    free(ctx->cells);
    free(ctx->found);
    free(ctx->rows);
    free(ctx);
}

int32_t llm_context_n_ctx(const llm_context *ctx) {
    return ctx->n_ctx;
}
int32_t llm_context_n_seq(const llm_context *ctx) {
    return ctx->n_seq;
}
const llm_model *llm_context_model(const llm_context *ctx) {
    return ctx->model;
}
const tdm_kv_desc *llm_context_kv_desc(const llm_context *ctx) {
    return &ctx->desc;
}
int32_t llm_context_length(const llm_context *ctx, int32_t seq) {
    return llm_kv_length(ctx->kv, seq);
}
bool llm_context_has_window(const llm_context *ctx) {
    (void)ctx;
    return false;
}
int32_t llm_context_pages(const llm_context *ctx, int32_t *n_free_out) {
    *n_free_out = llm_kv_free_count(ctx->kv);
    return ctx->n_page;
}
int32_t llm_context_pages_needed(const llm_context *ctx, int32_t seq, int32_t n_tok) {
    const int64_t tail =
        llm_kv_room(ctx->kv, seq) - (int64_t)llm_kv_free_count(ctx->kv) * ctx->desc.page_len;
    return n_tok > tail ? (int32_t)((n_tok - tail - 1) / ctx->desc.page_len) + 1 : 0;
}
int32_t llm_context_reach(llm_context *ctx, int32_t seq, int32_t n_tok) {
    const int32_t n = llm_kv_length(ctx->kv, seq);
    return n_tok < n ? n_tok : n;
}
tdm_status llm_context_truncate(llm_context *ctx, int32_t seq, int32_t n_tok, tdm_error *err) {
    const int loses = n_tok > 0 ? atomic_load(&lose_every) : 0;
    if (loses == 0 || atomic_fetch_add(&n_truncate, 1) % loses != loses - 1)
        return llm_kv_truncate(ctx->kv, seq, n_tok, err);
    (void)llm_kv_truncate(ctx->kv, seq, n_tok / 2, NULL);
    return tdm_fail(err, TDM_UNAVAILABLE, "the device is gone");
}
tdm_status llm_context_set_scales(llm_context *ctx, int32_t seq, const float *scales,
                                  tdm_error *err) {
    (void)ctx, (void)seq, (void)scales, (void)err; /* the model has no adapters */
    return TDM_OK;
}
const float *llm_context_scales(const llm_context *ctx, int32_t seq) {
    (void)ctx, (void)seq;
    return NULL;
}
tdm_status llm_context_set_candidates(llm_context *ctx, int32_t n, tdm_error *err) {
    (void)ctx;
    (void)n;
    return tdm_fail(err, TDM_UNSUPPORTED, "no candidates");
}
tdm_status llm_context_shift(llm_context *ctx, int32_t seq, int32_t n_keep, int32_t n_discard,
                             tdm_error *err) {
    (void)ctx, (void)seq, (void)n_keep, (void)n_discard;
    return tdm_fail(err, TDM_UNSUPPORTED, "no shifts");
}
const float *llm_context_hidden(const llm_context *ctx, int32_t i) {
    (void)ctx;
    (void)i;
    return NULL;
}

tdm_status llm_context_fork(llm_context *ctx, int32_t dst, int32_t src, int32_t n_tok,
                            tdm_error *err) {
    const tdm_status status = llm_kv_fork(ctx->kv, dst, src, n_tok, err);
    if (status != TDM_OK) return status;
    const int32_t n = llm_kv_own_tail(ctx->kv, dst, ctx->jobs);
    for (int32_t j = 0; j < n; j++) {
        const tdm_page_job *job = &ctx->jobs[j];
        memcpy(ctx->cells + job->page * ctx->desc.page_len + job->first,
               ctx->cells + job->arg * ctx->desc.page_len + job->first,
               (size_t)job->count * sizeof *ctx->cells);
    }
    return TDM_OK;
}

/* The next token of a sequence, from the cells that its table names. */
static int32_t seq_next(llm_context *ctx, int32_t seq) {
    const tdm_page_entry *entries = llm_kv_entries(ctx->kv, seq);
    int32_t n = 0;
    for (int32_t i = 0; i < llm_kv_entry_count(ctx->kv, seq); i++) {
        memcpy(ctx->found + n, ctx->cells + entries[i].page * ctx->desc.page_len + entries[i].first,
               (size_t)entries[i].count * sizeof *ctx->cells);
        n += entries[i].count;
    }
    const int32_t next = fake_next(ctx->found, n);
    /* One in four proposals of the draft is wrong. */
    return ctx->model != fake_model() && next % 4 == 0 ? (next + 1) % FAKE_N_VOCAB : next;
}

tdm_status llm_context_decode(llm_context *ctx, const llm_batch *batch, tdm_error *err) {
    int32_t before[LLM_MAX_SEQ];
    hold_wait();
    const int fails = atomic_load(&fail_every);
    const bool is_failed = fails > 0 && atomic_fetch_add(&n_step, 1) % fails == fails - 1;
    tdm_status status =
        is_failed ? tdm_fail(err, (tdm_status)atomic_load(&fail_status), "the device is gone")
                  : TDM_OK;
    for (int32_t s = 0; s < ctx->n_seq; s++) before[s] = llm_kv_length(ctx->kv, s);
    ctx->n_row = 0;
    if (batch->n_tok > ctx->n_ubatch)
        status = tdm_fail(err, TDM_INTERNAL, "a step of %d tokens", batch->n_tok);
    for (int32_t i = 0; i < batch->n_tok && status == TDM_OK; i++) {
        int32_t cell;
        status = llm_kv_append(ctx->kv, batch->seqs[i], 1, &cell, err);
        if (status != TDM_OK) break;
        ctx->cells[cell] = batch->tokens[i];
        if (!batch->wanted[i]) continue;
        float *row = ctx->rows + ctx->n_row++ * FAKE_N_VOCAB;
        memset(row, 0, FAKE_N_VOCAB * sizeof *row);
        row[seq_next(ctx, batch->seqs[i])] = 1;
    }
    for (int32_t s = 0; s < ctx->n_seq && status != TDM_OK; s++)
        (void)llm_kv_truncate(ctx->kv, s, before[s], NULL);
    return status;
}

llm_row llm_context_row(const llm_context *ctx, int32_t i) {
    if (i < 0 || i >= ctx->n_row) return (llm_row){0};
    return (llm_row){ctx->rows + i * FAKE_N_VOCAB, NULL, FAKE_N_VOCAB};
}
