/* SPDX-License-Identifier: MIT
 *
 * context.c: creates contexts and decodes batches. Plans: context_plan.c. Cached tokens:
 * context_cache.c.
 */
#include "llm/context.h"

#include <stdlib.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/context_internal.h"

static tdm_status out_of_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "context: out of memory");
}

/* ---- Creation ---- */

int32_t llm_context_hidden_kind(const llm_context *ctx) {
    if (!ctx->gives_hidden) return LLM_HIDDEN_NONE;
    return ctx->gives_embeddings ? LLM_HIDDEN_OUTPUT : LLM_HIDDEN_DRAFT;
}

int32_t llm_context_n_ctx_default(const llm_model *model) {
    const int32_t most = llm_hparams_n_ctx(&model->hparams);
    return most < LLM_N_CTX_DEFAULT ? most : LLM_N_CTX_DEFAULT;
}

tdm_status llm_context_measure(llm_context *ctx, const llm_model *m,
                               const llm_context_params *params, tdm_error *err) {
    static const llm_context_params defaults = {.struct_size = sizeof defaults};
    const llm_context_params *p = params != NULL ? params : &defaults;
    const int32_t n_select = m->hparams.n_select;
    ctx->n_ctx = p->n_ctx != 0 ? p->n_ctx : llm_context_n_ctx_default(m);
    ctx->n_ubatch = p->n_ubatch != 0 ? p->n_ubatch : LLM_N_UBATCH_DEFAULT;
    ctx->n_seq = p->n_seq != 0 ? p->n_seq : 1;
    ctx->gives_embeddings = p->gives_embeddings;
    ctx->product = p->product;
    ctx->product_user = p->product_user;
    ctx->gives_hidden = p->gives_hidden || p->gives_embeddings || m->lender != NULL;
    int32_t page_len = p->page_len != 0 ? p->page_len : TDM_KV_PAGE_LEN_DEFAULT;
    if (ctx->n_ctx < 1 || ctx->n_ctx > LLM_MAX_CTX)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "ctx-size %d: expected 1 to %d", ctx->n_ctx,
                        LLM_MAX_CTX);
    if (n_select > 0 && ctx->n_ctx > n_select && m->hparams.n_index_head == 0)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "ctx-size %d: '%s' selects %d tokens for attention in longer contexts, "
                        "which is not supported; set ctx-size to %d or less",
                        ctx->n_ctx, m->hparams.arch, n_select, n_select);
    if (ctx->n_ubatch < 1 || ctx->n_ubatch > LLM_MAX_UBATCH)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "ubatch-size %d: expected 1 to %d",
                        ctx->n_ubatch, LLM_MAX_UBATCH);
    if (ctx->n_seq < 1 || ctx->n_seq > LLM_MAX_SEQ)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "parallel %d: expected 1 to %d sequences",
                        ctx->n_seq, LLM_MAX_SEQ);
    if (page_len < 1 || page_len > 1024 || (page_len & (page_len - 1)) != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "page-size %d: expected a power of two up to 1024", page_len);
    if (ctx->n_ubatch > ctx->n_ctx) ctx->n_ubatch = ctx->n_ctx;
    tdm_kv_desc *d = &ctx->cache.desc;
    llm_cache_desc_fill(m, d);
    if (ctx->n_ctx <= n_select) d->flags &= ~(uint32_t)TDM_KV_SPARSE;
    if (p->type_k != NULL) d->type_k = *p->type_k;
    if (p->type_v != NULL) d->type_v = *p->type_v;
    bool is_latent = (d->flags & TDM_KV_V_FROM_K) != 0;
    if (is_latent && p->type_v == NULL) d->type_v = d->type_k;
    if (is_latent && d->type_v != d->type_k)
        return tdm_fail(
            err, TDM_INVALID_ARGUMENT,
            "cache-type-v %s: '%s' has one latent row for K and V, so V has the type of K; "
            "set cache-type-v to %s",
            tdm_type_name(d->type_v), m->hparams.arch, tdm_type_name(d->type_k));
    d->page_len = page_len;
    if (p->is_cache_in_host) d->flags |= TDM_KV_IN_HOST;
    if (!p->is_unrotated) d->flags |= TDM_KV_ROTATE_K | TDM_KV_ROTATE_V;
    /* Two more pages per sequence: a shift leaves up to two pages partly empty (kv_cache.h), and
     * copies a shared page first. */
    ctx->cache.n_ctx = ctx->n_ctx;
    /* A sequence reads one slot and writes another, and keeps the one from before the batch. */
    if (llm_model_is_recurrent(m)) ctx->cache.n_slot = 3 * (int64_t)ctx->n_seq + LLM_N_SNAPSHOT;
    ctx->cache.n_page = ((int64_t)ctx->n_ctx + page_len - 1) / page_len + 2 * ctx->n_seq;
    llm_window_measure(ctx, m, p);
    ctx->n_entry = LLM_MIN_ENTRIES;
    while (ctx->n_entry < ctx->cache.n_page + 2 * ctx->n_seq) ctx->n_entry *= 2;
    return TDM_OK;
}

/* Fills in the items of all states that layers have; returns how many. descs[n_state]. */
static tdm_status items_make(const llm_context *ctx, llm_store_item *items, tdm_kv_desc *descs,
                             int32_t *n_out, tdm_error *err) {
    const int32_t n_layer = ctx->model->hparams.n_layer;
    int32_t n = 0;
    for (int32_t i = 0; i < ctx->n_state; i++) {
        const llm_state_kind kind = (llm_state_kind)(i / n_layer);
        llm_store_item *item = &items[n];
        tdm_partition partition;
        if (!llm_state_desc(ctx->model, &ctx->cache.desc, kind, i % n_layer, &descs[n], &partition))
            continue;
        if (kind == LLM_STATE_ROWS) {
            /* Layers share the description but for the heads. */
            const tdm_kv_desc own = descs[n];
            if (own.head_dim_k == ctx->cache.desc.head_dim_k) {
                descs[n] = ctx->cache.desc;
                descs[n].n_head_kv = own.n_head_kv;
            }
        }
        *item = (llm_store_item){
            .dev = ctx->state_dev[i],
            .what = {.kv = &descs[n],
                     .n_page = llm_state_count(ctx->model, &ctx->cache, kind, i % n_layer),
                     .partition = partition}};
        if (__builtin_mul_overflow(ctx->page_size[i], (uint64_t)item->what.n_page,
                                   &item->what.size))
            return tdm_fail(err, TDM_OUT_OF_RANGE,
                            "ctx-size %d: the cache is larger than 2^64 bytes", ctx->n_ctx);
        n++;
    }
    *n_out = n;
    return TDM_OK;
}

/* The layer of item `index` of items_make. */
static int32_t item_layer(const llm_context *ctx, int32_t index) {
    for (int32_t i = 0; i < ctx->n_state; i++)
        if (ctx->page_size[i] > 0 && index-- == 0) return i % ctx->model->hparams.n_layer;
    return -1;
}

static tdm_status cache_store_make(llm_context *ctx, llm_store_item *items, tdm_kv_desc *descs,
                                   tdm_error *err) {
    const llm_model *m = ctx->model;
    tdm_error inner = {0};
    int32_t bad = -1, n = 0;
    tdm_status status = items_make(ctx, items, descs, &n, err);
    if (status != TDM_OK) return status;
    status =
        llm_store_place(m->devs, m->n_dev, LLM_STATE_ALIGN, items, n, &ctx->store, &bad, &inner);
    if (status == TDM_OUT_OF_RANGE)
        return tdm_fail(err, status, "ctx-size %d: the cache is larger than 2^64 bytes",
                        ctx->n_ctx);
    if (status != TDM_OK && bad >= 0)
        return tdm_fail(err, status,
                        "the cache of layer %d for %d tokens: %s; lower ctx-size or choose smaller "
                        "cache types",
                        item_layer(ctx, bad), ctx->n_ctx, inner.message);
    const uint64_t size = llm_store_size(&ctx->store);
    if (status == TDM_OK)
        status = llm_store_allocate(&ctx->store, TDM_BUFFER_STATE, items, n, &inner);
    if (status != TDM_OK)
        return tdm_fail(
            err, status,
            "no memory for %.1f MiB of cache for %d tokens: %s; lower ctx-size or choose "
            "smaller cache types",
            (double)size / 1048576.0, ctx->n_ctx, inner.message);
    for (int32_t i = 0, at = 0; i < ctx->n_state; i++) {
        if (ctx->page_size[i] == 0) continue;
        ctx->state_mem[i] = items[at].mem;
        ctx->state_off[i] = items[at++].what.off;
    }
    ctx->cache_size = size;
    return TDM_OK;
}

static tdm_status cache_allocate(llm_context *ctx, tdm_error *err) {
    llm_store_item *items = calloc((size_t)ctx->n_state + 1, sizeof *items);
    tdm_kv_desc *descs = calloc((size_t)ctx->n_state + 1, sizeof *descs);
    tdm_status status = items != NULL && descs != NULL ? cache_store_make(ctx, items, descs, err)
                                                       : out_of_memory(err);
    free(items);
    free(descs);
    return status;
}

/* What a model with recurrent states needs besides them, and one with a class of windows. */
static tdm_status slots_make(llm_context *ctx, tdm_error *err) {
    if (ctx->cache.n_slot == 0 && ctx->window == NULL) return TDM_OK;
    const size_t n = (size_t)ctx->n_seq * (size_t)ctx->n_ctx;
    ctx->tokens = malloc(n * sizeof *ctx->tokens);
    ctx->roles = malloc(n);
    if (ctx->tokens == NULL || ctx->roles == NULL) return out_of_memory(err);
    if (ctx->cache.n_slot == 0) return TDM_OK;
    ctx->last_added = calloc((size_t)ctx->n_seq, sizeof *ctx->last_added);
    if (ctx->last_added == NULL) return out_of_memory(err);
    return llm_slots_create((int32_t)ctx->cache.n_slot, ctx->n_seq, &ctx->slots, err);
}

/* Plans the largest step when the context is created. So a lack of memory is found before any work,
 * and compute memory does not grow later, except for logits of many rows. */
static tdm_status largest_plan(llm_context *ctx, tdm_error *err) {
    llm_step_shape shape = {ctx->n_ubatch, !ctx->gives_embeddings, ctx->n_seq, ctx->n_entry,
                            .has_hidden = llm_context_hidden_kind(ctx)};
    llm_plan *plan = NULL;
    tdm_status status = llm_plan_get(ctx, LLM_PLAN_FORWARD, &shape, &plan, err);
    return status == TDM_OK ? llm_step_begin(ctx, plan, err) : status;
}

tdm_status llm_context_create(llm_model *model, const llm_context_params *params,
                              llm_context **context_out, tdm_error *err) {
    if (model->n_dev == 0)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: the model is not loaded", model->path);
    if (model->arch->is_encoder && (params == NULL || !params->gives_embeddings))
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: '%s' is an encoder: it gives embeddings of texts and continues none; "
                        "use `tandem embed`",
                        model->path, model->hparams.arch);
    llm_context *ctx = calloc(1, sizeof *ctx);
    if (ctx == NULL) return out_of_memory(err);
    size_t n_layer = (size_t)model->hparams.n_layer;
    ctx->model = model;
    tdm_status status = llm_context_measure(ctx, model, params, err);
    if (status == TDM_OK) {
        size_t n_state = LLM_STATE_KINDS * n_layer;
        ctx->n_state = (int32_t)n_state;
        ctx->page_size = calloc(n_state, sizeof *ctx->page_size);
        ctx->state_dev = calloc(n_state, sizeof *ctx->state_dev);
        ctx->state_mem = calloc(n_state, sizeof *ctx->state_mem);
        ctx->state_off = calloc(n_state, sizeof *ctx->state_off);
        ctx->row_io = calloc(LLM_IO_KINDS * n_layer + 1, sizeof *ctx->row_io);
        ctx->cells =
            calloc((size_t)(ctx->n_ubatch > LLM_STATE_CHUNK ? ctx->n_ubatch : LLM_STATE_CHUNK),
                   sizeof *ctx->cells);
        ctx->order = calloc((size_t)ctx->n_ubatch, sizeof *ctx->order);
        ctx->row_of = calloc((size_t)ctx->n_ubatch, sizeof *ctx->row_of);
        ctx->cache.page_size = ctx->page_size;
        if (ctx->page_size == NULL || ctx->state_dev == NULL || ctx->state_mem == NULL ||
            ctx->state_off == NULL || ctx->row_io == NULL || ctx->cells == NULL ||
            ctx->order == NULL || ctx->row_of == NULL)
            status = out_of_memory(err);
    }
    if (status == TDM_OK)
        status = tdm_scratch_create(model->rt, model->devs, model->n_dev, &ctx->scratch, err);
    if (status == TDM_OK) status = llm_plan_place_cache(ctx, err);
    if (status == TDM_OK) status = cache_allocate(ctx, err);
    if (status == TDM_OK)
        status = llm_kv_create((int32_t)ctx->cache.n_page, ctx->cache.desc.page_len, ctx->n_seq,
                               &ctx->kv, err);
    if (status == TDM_OK) {
        ctx->max_job = llm_kv_max_jobs(ctx->kv);
        ctx->jobs = calloc((size_t)ctx->max_job * 2 + 1, sizeof *ctx->jobs);
        if (ctx->jobs == NULL) status = out_of_memory(err);
    }
    if (status == TDM_OK) status = llm_window_create(ctx, err);
    if (status == TDM_OK) status = slots_make(ctx, err);
    if (status == TDM_OK) status = largest_plan(ctx, err);
    if (status != TDM_OK) {
        llm_context_destroy(ctx);
        return status;
    }
    *context_out = ctx;
    return TDM_OK;
}

void llm_context_destroy(llm_context *ctx) {
    if (ctx == NULL) return;
    llm_plan_clear(ctx);
    tdm_scratch_destroy(ctx->scratch);
    llm_store_free(&ctx->store);
    llm_kv_destroy(ctx->kv);
    llm_window_destroy(ctx);
    llm_slots_destroy(ctx->slots);
    free(ctx->tokens);
    free(ctx->roles);
    free(ctx->last_added);
    free(ctx->page_size);
    free(ctx->state_dev);
    free(ctx->state_mem);
    free(ctx->state_off);
    free(ctx->row_io);
    free(ctx->ngram);
    free(ctx->cells);
    free(ctx->order);
    free(ctx->row_of);
    free(ctx->jobs);
    free(ctx->step);
    free(ctx->logits);
    free(ctx->logits_at);
    free(ctx->candidates);
    free(ctx->hidden);
    free(ctx->hidden_io);
    free(ctx);
}

int32_t llm_context_n_ctx(const llm_context *ctx) {
    return ctx->n_ctx;
}
const llm_model *llm_context_model(const llm_context *ctx) {
    return ctx->model;
}
const tdm_kv_desc *llm_context_kv_desc(const llm_context *ctx) {
    return &ctx->cache.desc;
}

llm_context_memory llm_context_get_memory(const llm_context *ctx) {
    llm_context_memory memory = {.cache = ctx->cache_size};
    for (int32_t l = 0; l < ctx->model->hparams.n_layer; l++)
        if (llm_cache_class(ctx->model, &ctx->cache, l) == LLM_CLASS_WINDOW)
            memory.window += ctx->page_size[l] * (uint64_t)ctx->cache.n_page_window;
    for (int32_t d = 0; d < ctx->model->n_dev; d++)
        memory.compute += tdm_scratch_size(ctx->scratch, d);
    uint64_t most = 0, scratch = 0;
    for (int32_t i = 0; i < ctx->n_plan; i++) {
        memory.compute += tdm_schedule_plan_size(ctx->plans[i].schedule, &scratch);
        if (most < scratch) most = scratch;
    }
    memory.compute += most;
    memory.output = (uint64_t)(ctx->logits_room + ctx->candidate_room + ctx->hidden_room +
                               ctx->hidden_io_room) *
                    4;
    return memory;
}

void llm_context_set_progress(llm_context *ctx, llm_progress_fn progress, void *progress_context) {
    ctx->progress = progress;
    ctx->progress_context = progress_context;
}

int32_t llm_context_length(const llm_context *ctx, int32_t seq) {
    return llm_kv_length(ctx->kv, seq);
}

/* ---- Decoding ---- */

static int32_t batch_seq(const llm_batch *batch, int32_t i) {
    return batch->seqs != NULL ? batch->seqs[i] : 0;
}

static bool batch_wants(const llm_context *ctx, const llm_batch *batch, int32_t i) {
    if (ctx->gives_embeddings) return false;
    return batch->wanted != NULL ? batch->wanted[i] : i == batch->n_tok - 1;
}

static tdm_role batch_role(const llm_batch *batch, int32_t i) {
    return batch->roles != NULL ? (tdm_role)batch->roles[i] : batch->role;
}

static tdm_status batch_check(const llm_context *ctx, const llm_batch *batch, tdm_error *err) {
    int64_t added[LLM_MAX_SEQ] = {0};
    if (ctx->model->lender != NULL && batch->hidden == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "a batch for the layer of '%s' that drafts has no hidden states",
                        ctx->model->hparams.arch);
    for (int32_t i = 0; i < batch->n_tok; i++) {
        int32_t seq = batch_seq(batch, i);
        if (seq < 0 || seq >= ctx->n_seq)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "token %d of the batch: sequence %d of %d; raise 'parallel'", i, seq,
                            ctx->n_seq);
        if (batch->tokens[i] < 0 || batch->tokens[i] >= ctx->model->hparams.n_vocab)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "token %d of the batch: id %d; the vocabulary ends at %d", i,
                            batch->tokens[i], ctx->model->hparams.n_vocab - 1);
        if (batch_role(batch, i) != TDM_ROLE_GENERATED && batch_role(batch, i) != TDM_ROLE_PROMPT)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "token %d of the batch: no role %d", i,
                            (int)batch_role(batch, i));
        added[seq]++;
    }
    /* A token of a later ubatch would not be seen by those before it. */
    if (ctx->model->hparams.is_bidirectional && batch->n_tok > ctx->n_ubatch)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "tokens of architecture '%s' see later ones: a batch of %d does not fit an "
                        "ubatch of %d; raise ubatch-size",
                        ctx->model->arch->name, batch->n_tok, ctx->n_ubatch);
    for (int32_t s = 0; s < ctx->n_seq; s++)
        if (added[s] > 0 && llm_kv_length(ctx->kv, s) + added[s] > ctx->n_ctx)
            return tdm_fail(err, TDM_OUT_OF_RANGE,
                            "%lld tokens behind the %d there are do not fit a context of %d; raise "
                            "ctx-size or shorten the prompt",
                            (long long)added[s], llm_kv_length(ctx->kv, s), ctx->n_ctx);
    return TDM_OK;
}

/* Grows *array to at least n elements. */
static bool array_reserve(void **array, int64_t *room, int64_t n, size_t size) {
    if (n <= *room) return true;
    void *grown = realloc(*array, (size_t)n * size);
    if (grown == NULL) return false;
    *array = grown;
    *room = n;
    return true;
}

/* Memory for n_row rows in all. */
static tdm_status rows_reserve(llm_context *ctx, int64_t n_row, tdm_error *err) {
    int64_t n = n_row * ctx->row_len;
    if (array_reserve((void **)&ctx->logits_at, &ctx->row_room, n_row, sizeof *ctx->logits_at) &&
        array_reserve((void **)&ctx->logits, &ctx->logits_room, n, sizeof *ctx->logits) &&
        (ctx->n_candidate == 0 || array_reserve((void **)&ctx->candidates, &ctx->candidate_room, n,
                                                sizeof *ctx->candidates)))
        return TDM_OK;
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the logits of %lld tokens",
                    (long long)n_row);
}

/* Puts tokens first .. last-1 of the batch into the order in which the step has them: by sequence,
 * those of one sequence as the batch has them. So tokens of a sequence are neighbours, and a device
 * can compute the attention of several of them with one reading of the cache. */
static void order_make(llm_context *ctx, const llm_batch *batch, int32_t first, int32_t last) {
    int32_t next[LLM_MAX_SEQ + 1] = {0};
    for (int32_t i = first; i < last; i++) next[batch_seq(batch, i) + 1]++;
    for (int32_t s = 0; s < ctx->n_seq; s++) next[s + 1] += next[s];
    for (int32_t i = first; i < last; i++) ctx->order[next[batch_seq(batch, i)]++] = i;
}

/* Finds cells for the n tokens of ctx->order, for all of one sequence at a time. */
static tdm_status cells_find(llm_context *ctx, const llm_batch *batch, int32_t n, tdm_error *err) {
    for (int32_t i = 0, end; i < n; i = end) {
        int32_t seq = batch_seq(batch, ctx->order[i]);
        for (end = i; end < n && batch_seq(batch, ctx->order[end]) == seq;) end++;
        tdm_status status = llm_kv_append(ctx->kv, seq, end - i, ctx->cells + i, err);
        if (status == TDM_OK && ctx->window != NULL)
            status = llm_kv_append(ctx->window, seq, end - i, ctx->window_cells + i, err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}

/* The number of entries of all sequences of the batch, in the class that has more. */
static int32_t entries_needed(const llm_context *ctx, const bool *is_used) {
    int32_t n = 0, n_window = 0;
    for (int32_t s = 0; s < ctx->n_seq; s++) {
        if (!is_used[s]) continue;
        n += llm_kv_entry_count(ctx->kv, s);
        if (ctx->window != NULL) n_window += llm_kv_entry_count(ctx->window, s);
    }
    return n > n_window ? n : n_window;
}

/* Writes the page tables of a class; returns the index in the block behind the last entry. */
static size_t tables_fill(const llm_context *ctx, const llm_kv *kv, const tdm_step_class *at,
                          const bool *is_used) {
    int32_t n_entry = 0;
    for (int32_t s = 0; s < ctx->n_seq; s++) {
        const int32_t count = is_used[s] ? llm_kv_entry_count(kv, s) : 0;
        ctx->step[at->first_entry_off + s] = n_entry;
        if (count > 0)
            memcpy(&ctx->step[at->entry_off + 4 * n_entry], llm_kv_entries(kv, s),
                   (size_t)count * sizeof(tdm_page_entry));
        n_entry += count;
    }
    ctx->step[at->first_entry_off + ctx->n_seq] = n_entry;
    return (size_t)at->entry_off + 4 * (size_t)n_entry;
}

/* Writes the n tokens of ctx->order, their positions and cells, and the page tables; returns the
 * size of the used part of the block. */
static size_t step_fill(llm_context *ctx, const llm_plan *plan, const llm_batch *batch, int32_t n,
                        const int32_t *start, const bool *is_used) {
    const tdm_step_header *h = &plan->header;
    int32_t *step = ctx->step, next[LLM_MAX_SEQ];
    int32_t n_out = 0;
    memcpy(next, start, (size_t)ctx->n_seq * sizeof *next);
    for (int32_t at = 0; at < n; at++) {
        int32_t i = ctx->order[at], seq = batch_seq(batch, i);
        step[h->token_off + at] = batch->tokens[i];
        step[h->pos_off + at] = next[seq]++;
        step[h->seq_off + at] = seq;
        step[h->role_off + at] = (int32_t)batch_role(batch, i);
        step[h->cls[LLM_CLASS_ALL].write_off + at] = ctx->cells[at];
        if (ctx->window != NULL)
            step[h->cls[LLM_CLASS_WINDOW].write_off + at] = ctx->window_cells[at];
        if (batch_wants(ctx, batch, i)) {
            if (plan->shape.n_out > 0) {
                step[h->out_row_off + n_out] = at;
                step[h->out_role_off + n_out] = (int32_t)batch_role(batch, i);
            }
            n_out++;
        }
    }
    int32_t longest = 0, n_before = 0;
    for (int32_t s = 0; s < ctx->n_seq; s++) {
        if (is_used[s] && next[s] > longest) longest = next[s];
        step[h->first_tok_off + s] = n_before;
        n_before += next[s] - start[s];
    }
    step[h->first_tok_off + ctx->n_seq] = n_before;
    for (int32_t s = 0; ctx->slots != NULL && s < ctx->n_seq; s++)
        step[h->rs_read_off + s] = llm_slots_current(ctx->slots, s);
    tdm_step_header *header = (tdm_step_header *)(void *)step;
    header->n_tok = n;
    header->n_seq = ctx->n_seq;
    header->n_out = n_out;
    header->longest = longest;
    size_t end = tables_fill(ctx, ctx->kv, &h->cls[LLM_CLASS_ALL], is_used);
    if (ctx->window != NULL) {
        /* The entries of the second class follow the room of the first. */
        memset(&step[end], 0xff, ((size_t)h->cls[LLM_CLASS_WINDOW].entry_off - end) * sizeof *step);
        end = tables_fill(ctx, ctx->window, &h->cls[LLM_CLASS_WINDOW], is_used);
    }
    return end * sizeof(int32_t);
}

/* Capacity of page tables for `needed` entries: so few sizes that a growing sequence needs a new
 * plan seldom, and so near the need that a device can divide the cached tokens by it. */
static int32_t entry_bucket(const llm_context *ctx, int32_t needed) {
    int32_t bucket = LLM_MIN_ENTRIES;
    while (bucket < needed) bucket *= 4;
    return bucket < ctx->n_entry ? bucket : ctx->n_entry;
}

/* Notes where the logits of the wanted tokens are, in the order of the batch. The step has a row
 * for each of its n tokens, or (row_of_token false) for the wanted ones alone. */
static void logits_note(llm_context *ctx, const llm_batch *batch, int32_t first, int32_t n,
                        bool row_of_token) {
    int32_t row = 0, n_wanted = ctx->n_logits;
    for (int32_t k = 0; k < n; k++) {
        ctx->row_of[ctx->order[k] - first] = row;
        row += row_of_token || batch_wants(ctx, batch, ctx->order[k]);
    }
    for (int32_t i = first; i < first + n; i++)
        if (batch_wants(ctx, batch, i))
            ctx->logits_at[n_wanted++] = ctx->n_row + ctx->row_of[i - first];
}

/* ---- Slots ---- */

/* Whether the state after token `at` of the step's n is to be kept: the last of a sequence, and
 * each of a few that may be drafts. */
static bool is_state_kept(const llm_context *ctx, const llm_batch *batch, int32_t at, int32_t n) {
    int32_t seq = batch_seq(batch, ctx->order[at]), first = at, last = at;
    if (at + 1 == n || batch_seq(batch, ctx->order[at + 1]) != seq) return true;
    if (batch_role(batch, ctx->order[at]) != TDM_ROLE_GENERATED) return false;
    while (first > 0 && at - first < LLM_MAX_DRAFT_SNAPSHOTS &&
           batch_seq(batch, ctx->order[first - 1]) == seq)
        first--;
    while (last + 1 < n && last - at < LLM_MAX_DRAFT_SNAPSHOTS &&
           batch_seq(batch, ctx->order[last + 1]) == seq)
        last++;
    return last - first < LLM_MAX_DRAFT_SNAPSHOTS;
}

/* Takes the slots that the step writes, the last ones of sequences first: the others are given up
 * where there are too few. */
static tdm_status slots_take(llm_context *ctx, const llm_plan *plan, const llm_batch *batch,
                             int32_t n, tdm_error *err) {
    int32_t *write = &ctx->step[plan->header.rs_write_off];
    for (int32_t turn = 0; turn < 2; turn++)
        for (int32_t at = 0; at < n; at++) {
            bool is_last = at + 1 == n ||
                           batch_seq(batch, ctx->order[at + 1]) != batch_seq(batch, ctx->order[at]);
            if (is_last != (turn == 0) || !is_state_kept(ctx, batch, at, n)) continue;
            write[at] = llm_slots_take(ctx->slots, !is_last);
            if (write[at] < 0 && is_last)
                return tdm_fail(err, TDM_INTERNAL, "context: no slot for a recurrent state");
        }
    return TDM_OK;
}

/* After the step: its last slots become the sequences' states, the others snapshots. After a
 * failure (is_ok false) all are given back. */
static void slots_finish(llm_context *ctx, const llm_plan *plan, const llm_batch *batch, int32_t n,
                         const int32_t *start, bool is_ok) {
    const int32_t *write = &ctx->step[plan->header.rs_write_off];
    int32_t count = 0;
    for (int32_t at = 0; at < n; at++) {
        int32_t seq = batch_seq(batch, ctx->order[at]);
        bool is_last = at + 1 == n || batch_seq(batch, ctx->order[at + 1]) != seq;
        count++;
        if (write[at] >= 0 && is_ok && is_last) {
            llm_slots_set(ctx->slots, seq, write[at]);
        } else if (write[at] >= 0) {
            if (is_ok) llm_slots_snapshot(ctx->slots, seq, start[seq] + count, write[at], true);
            llm_slots_release(ctx->slots, write[at]);
        }
        if (is_last) count = 0;
    }
}

/* ---- Hidden states ---- */

/* The hidden states that the step reads, in its order; zeros behind them. */
static tdm_status hidden_fill(llm_context *ctx, const llm_plan *plan, const llm_batch *batch,
                              int32_t n, tdm_io *io, tdm_error *err) {
    const size_t n_embd = (size_t)ctx->model->hparams.n_embd, n_row = (size_t)plan->shape.n_tok;
    if (!array_reserve((void **)&ctx->hidden_io, &ctx->hidden_io_room, (int64_t)(n_row * n_embd),
                       sizeof *ctx->hidden_io))
        return out_of_memory(err);
    for (int32_t at = 0; at < n; at++)
        memcpy(ctx->hidden_io + (size_t)at * n_embd,
               batch->hidden + (size_t)ctx->order[at] * n_embd, n_embd * sizeof(float));
    memset(ctx->hidden_io + (size_t)n * n_embd, 0, (n_row - (size_t)n) * n_embd * sizeof(float));
    *io = (tdm_io){plan->hidden_in, ctx->hidden_io, n_row * n_embd * sizeof(float)};
    return TDM_OK;
}

/* Where the step's hidden states go: behind those of the rows of logits before, or, for n_row < 0,
 * to a place from which hidden_scatter brings those of n tokens into the order of the batch. */
static tdm_status hidden_out(llm_context *ctx, const llm_plan *plan, int32_t n_row, int32_t n,
                             tdm_io *io, tdm_error *err) {
    const int64_t n_embd = ctx->model->hparams.n_embd;
    const bool is_of_rows = n_row >= 0;
    const int64_t row = is_of_rows ? ctx->n_row : ctx->n_hidden;
    const int64_t n_new = is_of_rows ? n_row : n;
    if (!array_reserve((void **)&ctx->hidden, &ctx->hidden_room, (row + n_new) * n_embd,
                       sizeof *ctx->hidden) ||
        (!is_of_rows && !array_reserve((void **)&ctx->hidden_io, &ctx->hidden_io_room,
                                       n_new * n_embd, sizeof *ctx->hidden_io)))
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "no memory for the hidden states of %lld tokens", (long long)(row + n_new));
    *io = (tdm_io){plan->hidden, is_of_rows ? ctx->hidden + row * n_embd : ctx->hidden_io,
                   (uint64_t)(n_new * n_embd) * sizeof(float)};
    return TDM_OK;
}

static void hidden_scatter(llm_context *ctx, int32_t first, int32_t n) {
    const size_t n_embd = (size_t)ctx->model->hparams.n_embd;
    for (int32_t at = 0; at < n; at++)
        memcpy(ctx->hidden + ((size_t)ctx->n_hidden + (size_t)(ctx->order[at] - first)) * n_embd,
               ctx->hidden_io + (size_t)at * n_embd, n_embd * sizeof(float));
    ctx->n_hidden += n;
}

/* Runs a filled step of n tokens, of the batch from `first` on, and appends its logits and hidden
 * states to those of the context. */
static tdm_status step_run(llm_context *ctx, const llm_plan *plan, const llm_batch *batch,
                           int32_t first, int32_t n, size_t size, tdm_error *err) {
    tdm_io inputs[3] = {{plan->step, ctx->step, size}}, few[3], *outputs = few;
    int32_t n_wanted = 0, n_row = 0, n_in = 1, n_out = 0;
    const bool is_draft = ctx->model->lender != NULL;
    tdm_status status = TDM_OK;
    for (int32_t i = first; i < first + n; i++) n_wanted += batch_wants(ctx, batch, i);
    if (plan->hidden_in >= 0) status = hidden_fill(ctx, plan, batch, n, &inputs[n_in++], err);
    if (plan->ngram >= 0 && status == TDM_OK)
        status = llm_ngram_fill(ctx, plan, n, &inputs[n_in++], err);

    /* A plan that gives logits of all tokens has a row per token. */
    bool row_of_token = plan->shape.n_out == plan->shape.n_tok;
    if (n_wanted > 0 && status == TDM_OK) {
        n_row = row_of_token ? n : n_wanted;
        status = rows_reserve(ctx, ctx->n_row + n_row, err);
        if (status != TDM_OK) return status;
        int64_t from = ctx->n_row * ctx->row_len;
        uint64_t bytes = (uint64_t)n_row * (uint64_t)ctx->row_len * 4;
        outputs[n_out++] = (tdm_io){plan->logits, ctx->logits + from, bytes};
        if (plan->candidates >= 0)
            outputs[n_out++] = (tdm_io){plan->candidates, ctx->candidates + from, bytes};
    }
    if (plan->hidden >= 0 && status == TDM_OK)
        status = hidden_out(ctx, plan, is_draft ? n_row : -1, n, &outputs[n_out++], err);
    if (plan->n_product > 0 && status == TDM_OK) {
        outputs = malloc(((size_t)n_out + 2 * (size_t)plan->n_product) * sizeof *outputs);
        if (outputs == NULL) return out_of_memory(err);
        memcpy(outputs, few, (size_t)n_out * sizeof *few);
        n_out += llm_products_outputs(plan, n, n_wanted, outputs + n_out);
    }
    if (status == TDM_OK)
        status = tdm_schedule_run(plan->schedule, inputs, n_in, outputs, n_out, err);
    if (outputs != few) free(outputs);
    if (status != TDM_OK) return status;
    if (plan->n_product > 0) llm_products_give(ctx, plan, n, n_wanted);
    if (plan->hidden >= 0 && !is_draft) hidden_scatter(ctx, first, n);
    if (n_wanted == 0) return TDM_OK;
    logits_note(ctx, batch, first, n, row_of_token);
    ctx->n_row += n_row;
    ctx->n_logits += n_wanted;
    return TDM_OK;
}

/* Computes tokens first .. last-1 of the batch; appends their logits to those of the context. */
static tdm_status ubatch_run(llm_context *ctx, const llm_batch *batch, int32_t first, int32_t last,
                             tdm_error *err) {
    int32_t start[LLM_MAX_SEQ], n_out = 0, n = last - first;
    bool is_used[LLM_MAX_SEQ] = {false};
    for (int32_t s = 0; s < ctx->n_seq; s++) start[s] = llm_kv_length(ctx->kv, s);
    for (int32_t i = first; i < last; i++) {
        is_used[batch_seq(batch, i)] = true;
        n_out += batch_wants(ctx, batch, i);
    }
    order_make(ctx, batch, first, last);
    tdm_status status = cells_find(ctx, batch, n, err);
    if (status != TDM_OK) return status;
    int32_t needed = entries_needed(ctx, is_used);
    while (ctx->n_entry < needed) ctx->n_entry *= 2;
    const int32_t n_room = batch->n_room > n ? batch->n_room : n;
    llm_step_shape shape = {llm_plan_bucket(n_room, ctx->n_ubatch), 0, ctx->n_seq,
                            entry_bucket(ctx, needed)};
    if (n_out > 0) {
        shape.n_out = llm_plan_bucket(n_out, shape.n_tok);
        shape.n_candidate = ctx->n_candidate;
    }
    /* A layer that drafts has those of rows of logits alone. */
    if (ctx->keeps_hidden && (n_out > 0 || ctx->model->lender == NULL))
        shape.has_hidden = llm_context_hidden_kind(ctx);
    llm_plan *plan = NULL;
    status = llm_plan_get(ctx, LLM_PLAN_FORWARD, &shape, &plan, err);
    if (status == TDM_OK) status = llm_step_begin(ctx, plan, err);
    if (status != TDM_OK) return status;
    size_t size = step_fill(ctx, plan, batch, n, start, is_used);
    if (ctx->slots != NULL) status = slots_take(ctx, plan, batch, n, err);
    if (status == TDM_OK) status = step_run(ctx, plan, batch, first, n, size, err);
    if (ctx->slots != NULL) slots_finish(ctx, plan, batch, n, start, status == TDM_OK);
    for (int32_t s = 0; s < ctx->n_seq && status == TDM_OK; s++)
        if (is_used[s]) llm_window_trim(ctx, s);
    return status;
}

/* Whether the tokens before and behind this length are both generated: the state there is wanted
 * only for drafts. Else a prompt or a message begins or ends there. */
static bool is_inside_answer(const llm_context *ctx, int32_t seq, int32_t n_tok) {
    const uint8_t *roles = ctx->roles + (size_t)seq * (size_t)ctx->n_ctx;
    return n_tok > 0 && roles[n_tok - 1] == TDM_ROLE_GENERATED &&
           roles[n_tok] == TDM_ROLE_GENERATED;
}

/* Marks the lengths before the batch that its sequences may go back to. */
static void marks_make(llm_context *ctx, const llm_batch *batch) {
    int32_t added[LLM_MAX_SEQ] = {0}, first[LLM_MAX_SEQ];
    if (ctx->window == NULL) return;
    for (int32_t i = 0; i < batch->n_tok; i++)
        if (added[batch_seq(batch, i)]++ == 0) first[batch_seq(batch, i)] = i;
    for (int32_t s = 0; s < ctx->n_seq; s++)
        if (added[s] > 0) llm_window_mark(ctx, s, added[s], batch_role(batch, first[s]));
}

/* Notes the batch's tokens, and keeps the states from before it that may be wanted again: behind a
 * prompt or a message, and before several tokens at once. Gives the held slots back. */
static void slots_commit(llm_context *ctx, const llm_batch *batch, const int32_t *before,
                         const int32_t *held) {
    int32_t next[LLM_MAX_SEQ];
    if (ctx->tokens == NULL) return;
    memcpy(next, before, (size_t)ctx->n_seq * sizeof *next);
    for (int32_t i = 0; i < batch->n_tok; i++) {
        const int32_t seq = batch_seq(batch, i);
        const size_t at = (size_t)seq * (size_t)ctx->n_ctx + (size_t)next[seq]++;
        ctx->tokens[at] = batch->tokens[i];
        ctx->roles[at] = (uint8_t)batch_role(batch, i);
    }
    for (int32_t s = 0; s < ctx->n_seq && ctx->slots != NULL; s++) {
        const int32_t added = next[s] - before[s];
        if (added > 1 || (added == 1 && ctx->last_added[s] > 1))
            llm_slots_snapshot(ctx->slots, s, before[s], held[s],
                               is_inside_answer(ctx, s, before[s]));
        if (added > 0) ctx->last_added[s] = added;
        llm_slots_release(ctx->slots, held[s]);
    }
}

tdm_status llm_batch_append(llm_context *ctx, const llm_batch *batch, tdm_error *err) {
    int32_t before[LLM_MAX_SEQ], held[LLM_MAX_SEQ];
    tdm_status status = TDM_OK;
    for (int32_t s = 0; s < ctx->n_seq; s++) {
        before[s] = llm_kv_length(ctx->kv, s);
        held[s] = ctx->slots != NULL ? llm_slots_current(ctx->slots, s) : -1;
        if (ctx->slots != NULL) llm_slots_hold(ctx->slots, held[s]);
    }
    marks_make(ctx, batch);
    for (int32_t i = 0; i < batch->n_tok && status == TDM_OK; i += ctx->n_ubatch) {
        int32_t end = batch->n_tok - i < ctx->n_ubatch ? batch->n_tok : i + ctx->n_ubatch;
        status = ubatch_run(ctx, batch, i, end, err);
        if (status == TDM_OK && ctx->progress != NULL && batch->n_tok > ctx->n_ubatch &&
            !ctx->progress(ctx->progress_context, (uint64_t)end, (uint64_t)batch->n_tok))
            status = tdm_fail(err, TDM_CANCELLED, "decoding was cancelled after %d of %d tokens",
                              end, batch->n_tok);
    }
    if (status == TDM_OK) {
        slots_commit(ctx, batch, before, held);
        return TDM_OK;
    }
    for (int32_t s = 0; s < ctx->n_seq; s++) {
        llm_tables_truncate(ctx, s, before[s]);
        if (ctx->slots == NULL) continue;
        llm_slots_drop(ctx->slots, s, before[s]);
        llm_slots_set(ctx->slots, s, held[s]);
    }
    return status;
}

tdm_status llm_context_decode(llm_context *ctx, const llm_batch *batch, tdm_error *err) {
    tdm_status status = batch_check(ctx, batch, err);
    if (status != TDM_OK) return status;
    ctx->n_logits = 0;
    ctx->n_row = 0;
    ctx->row_len = ctx->n_candidate > 0 ? ctx->n_candidate : ctx->model->hparams.n_vocab;
    ctx->n_hidden = 0;
    ctx->keeps_hidden = ctx->gives_hidden;
    status = llm_batch_append(ctx, batch, err);
    ctx->keeps_hidden = false; /* tokens that are computed again for states give none */
    if (status != TDM_OK) ctx->n_logits = ctx->n_hidden = 0;
    return status;
}

const float *llm_context_logits(const llm_context *ctx, int32_t i) {
    return ctx->n_candidate == 0 ? llm_context_row(ctx, i).logits : NULL;
}

llm_row llm_context_row(const llm_context *ctx, int32_t i) {
    if (i < 0 || i >= ctx->n_logits) return (llm_row){0};
    int64_t at = ctx->logits_at[i] * ctx->row_len;
    return (llm_row){ctx->logits + at, ctx->n_candidate > 0 ? ctx->candidates + at : NULL,
                     ctx->row_len};
}

const float *llm_context_hidden(const llm_context *ctx, int32_t i) {
    const bool is_draft = ctx->model->lender != NULL;
    if (i < 0 || i >= (is_draft ? ctx->n_logits : ctx->n_hidden)) return NULL;
    const int64_t row = is_draft ? ctx->logits_at[i] : i;
    return ctx->hidden + row * ctx->model->hparams.n_embd;
}

tdm_status llm_context_set_candidates(llm_context *ctx, int32_t n, tdm_error *err) {
    if (n < 0 || n > LLM_MAX_CANDIDATES || n > ctx->model->hparams.n_vocab)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%d candidates: expected 0 (whole rows) to %d, within a vocabulary of %d",
                        n, LLM_MAX_CANDIDATES, ctx->model->hparams.n_vocab);
    ctx->n_candidate = n;
    ctx->n_logits = 0;
    return TDM_OK;
}
