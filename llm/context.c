/* SPDX-License-Identifier: MIT
 *
 * context.c: creates and destroys contexts, and returns their properties. Batches:
 * context_decode.c. Plans: context_plan.c. Cached tokens: context_cache.c.
 */
#include "llm/context.h"

#include <stdlib.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/context_internal.h"

tdm_status llm_context_no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "context: out of memory");
}

tdm_status llm_seq_check(const llm_context *ctx, int32_t seq, tdm_error *err) {
    if (seq >= 0 && seq < ctx->n_seq) return TDM_OK;
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "sequence %d of %d; raise 'parallel'", seq,
                    ctx->n_seq);
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

/* Checks the types of layers (NULL = no table) and takes them over. If all layers have the same
 * types, they go into the shared description instead, so that such a context is equal to one
 * without a table. */
static tdm_status layer_types_take(llm_context *ctx, const llm_model *m,
                                   const llm_layer_types *layers, tdm_error *err) {
    tdm_kv_desc *d = &ctx->cache.desc;
    const llm_layer_types *first = NULL;
    bool is_uniform = true;
    ctx->cache.layers = NULL;
    for (int32_t l = 0; l < m->hparams.n_layer && layers != NULL; l++) {
        const llm_layer_types *t = &layers[l];
        if (!llm_layer_has_cache(&m->specs[l])) continue;
        if (!tdm_kv_type_is_storable(t->k) || !tdm_kv_type_is_storable(t->v))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "layer %d: a cache cannot keep K in type %d and V in type %d", l,
                            (int)t->k, (int)t->v);
        if ((d->flags & TDM_KV_V_FROM_K) != 0 && (t->k != t->v || t->rotates_k != t->rotates_v))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "layer %d: '%s' has one latent row for K and V, so both have one type "
                            "and one rotation",
                            l, m->hparams.arch);
        if (first == NULL) first = t;
        if (t->k != first->k || t->v != first->v || t->rotates_k != first->rotates_k ||
            t->rotates_v != first->rotates_v)
            is_uniform = false;
    }
    if (first == NULL) return TDM_OK;
    llm_layer_types_apply(first, d);
    /* The table also stays if K and V differ in rotation: a state file without a table has one bit
     * for both. */
    if (!is_uniform || first->rotates_k != first->rotates_v) ctx->cache.layers = layers;
    return TDM_OK;
}

/* The most tokens that a row of the cache stands for in any layer; 0 = rows stand for one each. */
static int32_t longest_run(const llm_model *m) {
    int32_t longest = 0;
    for (int32_t l = 0; l < m->hparams.n_layer; l++) {
        const llm_layer_spec *s = &m->specs[l];
        const int32_t run = s->run_len > s->index_run ? s->run_len : s->index_run;
        if (run > longest) longest = run;
    }
    return longest;
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
    ctx->has_all_logits = p->has_all_logits;
    ctx->product = p->product;
    ctx->product_user = p->product_user;
    ctx->gives_hidden = p->gives_hidden || p->gives_embeddings || m->lender != NULL;
    int32_t page_len = p->page_len != 0 ? p->page_len : TDM_KV_PAGE_LEN_DEFAULT;
    if (ctx->n_ctx < 1 || ctx->n_ctx > LLM_MAX_CTX)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "ctx-size %d: expected 1 to %d", ctx->n_ctx,
                        LLM_MAX_CTX);
    if (llm_hparams_n_unselected(&m->hparams) > 0 && ctx->n_ctx > n_select)
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
    tdm_status status = layer_types_take(ctx, m, p->layer_types, err);
    if (status != TDM_OK) return status;
    ctx->cache.n_ctx = ctx->n_ctx;
    ctx->longest_run = longest_run(m);
    if (ctx->longest_run > LLM_MAX_STATE_CHUNK)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: a row of the cache stands for %d tokens; at most %d are supported",
                        m->path, ctx->longest_run, (int)LLM_MAX_STATE_CHUNK);
    /* Three slots for each sequence: a step reads one and writes another, and the one from before
     * the batch is kept until the batch has succeeded. */
    if (llm_model_is_recurrent(m)) ctx->cache.n_slot = 3 * (int64_t)ctx->n_seq + LLM_N_SNAPSHOT;
    /* Two more pages for each sequence: a shift leaves up to two pages partly empty (kv_cache.h),
     * and copies a shared page first. */
    ctx->cache.n_page = ((int64_t)ctx->n_ctx + page_len - 1) / page_len + 2 * ctx->n_seq;
    llm_window_measure(ctx, m, p);
    ctx->n_entry = LLM_MIN_ENTRIES;
    while (ctx->n_entry < ctx->cache.n_page + 2 * ctx->n_seq) ctx->n_entry *= 2;
    return TDM_OK;
}

/* Fills in the items of all states that layers have, and their descriptions; *n_out = how many.
 * items[n_state], descs[n_state]. */
static tdm_status items_make(const llm_context *ctx, llm_store_item *items, tdm_kv_desc *descs,
                             int32_t *n_out, tdm_error *err) {
    const int32_t n_layer = ctx->model->hparams.n_layer;
    int32_t n = 0;
    for (int32_t i = 0; i < ctx->n_state; i++) {
        const llm_state_kind kind = (llm_state_kind)(i / n_layer);
        llm_store_item *item = &items[n];
        tdm_partition partition;
        if (!llm_state_desc(ctx->model, &ctx->cache, kind, i % n_layer, &descs[n], &partition))
            continue;
        if (kind == LLM_STATE_ROWS) {
            /* Layers with heads of the usual length share one description, except for the number of
             * heads and the types: the layer's own RoPE is left out. */
            const tdm_kv_desc own = descs[n];
            if (own.head_dim_k == ctx->cache.desc.head_dim_k) {
                const llm_layer_types types = llm_layer_types_of(&own);
                descs[n] = ctx->cache.desc;
                descs[n].n_head_kv = own.n_head_kv;
                llm_layer_types_apply(&types, &descs[n]);
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

/* The layer of item number `index` that items_make has filled in. */
static int32_t item_layer(const llm_context *ctx, int32_t index) {
    for (int32_t i = 0; i < ctx->n_state; i++)
        if (ctx->page_size[i] > 0 && index-- == 0) return i % ctx->model->hparams.n_layer;
    return -1;
}

/* Places and allocates the buffers of the cache, and fills in state_mem and state_off. items,
 * descs: scratch as for items_make. */
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
                                                       : llm_context_no_memory(err);
    free(items);
    free(descs);
    return status;
}

/* Allocates what models with recurrent states or with a window class need besides the cache: the
 * sequences' tokens and roles, and the slots. */
static tdm_status slots_make(llm_context *ctx, tdm_error *err) {
    if (ctx->cache.n_slot == 0 && ctx->window == NULL) return TDM_OK;
    const size_t n = (size_t)ctx->n_seq * (size_t)ctx->n_ctx;
    ctx->tokens = malloc(n * sizeof *ctx->tokens);
    ctx->roles = malloc(n);
    if (ctx->tokens == NULL || ctx->roles == NULL) return llm_context_no_memory(err);
    if (ctx->cache.n_slot == 0) return TDM_OK;
    ctx->last_added = calloc((size_t)ctx->n_seq, sizeof *ctx->last_added);
    if (ctx->last_added == NULL) return llm_context_no_memory(err);
    return llm_slots_create((int32_t)ctx->cache.n_slot, ctx->n_seq, &ctx->slots, err);
}

/* Allocates ctx->encoded for a model with an encoder. */
static tdm_status encoded_make(llm_context *ctx, tdm_error *err) {
    if (ctx->model->hparams.n_layer_encoder == 0) return TDM_OK;
    ctx->encoded = calloc((size_t)ctx->n_seq, sizeof *ctx->encoded);
    return ctx->encoded != NULL ? TDM_OK : llm_context_no_memory(err);
}

/* Plans the largest step when the context is created. So missing memory is found before any work,
 * and compute memory does not grow later, except for logits of many rows without has_all_logits. */
static tdm_status largest_plan(llm_context *ctx, tdm_error *err) {
    const int32_t n_out = ctx->has_all_logits ? ctx->n_ubatch : 1;
    llm_step_shape shape = {ctx->n_ubatch,
                            ctx->gives_embeddings ? 0 : n_out,
                            ctx->n_seq,
                            ctx->n_entry,
                            .has_hidden = llm_context_hidden_kind(ctx),
                            .adapters = llm_adapters_all(ctx->model)};
    llm_plan *plan = NULL;
    tdm_status status = TDM_OK;
    if (ctx->encoded != NULL) {
        llm_step_shape encoder = shape;
        encoder.n_out = 0;
        encoder.part = LLM_PART_ENCODER;
        shape.part = LLM_PART_DECODER;
        status = llm_plan_get(ctx, LLM_PLAN_FORWARD, &encoder, &plan, err);
    }
    if (status == TDM_OK) status = llm_plan_get(ctx, LLM_PLAN_FORWARD, &shape, &plan, err);
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
    if (model->hparams.n_layer_encoder > 0 &&
        (params == NULL || !params->begins_decoder || params->gives_embeddings ||
         params->gives_hidden || params->product != NULL))
        return tdm_fail(
            err, TDM_UNSUPPORTED,
            "%s: '%s' has an encoder, which reads a text, and a decoder, which answers "
            "it; no other use is supported: use `tandem run` or `tandem serve`, and for "
            "embeddings a model of its encoder alone",
            model->path, model->hparams.arch);
    llm_context *ctx = calloc(1, sizeof *ctx);
    if (ctx == NULL) return llm_context_no_memory(err);
    size_t n_layer = (size_t)model->hparams.n_layer;
    ctx->model = model;
    tdm_status status = llm_context_measure(ctx, model, params, err);
    if (status == TDM_OK && ctx->cache.layers != NULL) {
        ctx->layer_types = malloc(n_layer * sizeof *ctx->layer_types);
        if (ctx->layer_types != NULL)
            memcpy(ctx->layer_types, ctx->cache.layers, n_layer * sizeof *ctx->layer_types);
        else
            status = llm_context_no_memory(err);
        ctx->cache.layers = ctx->layer_types;
    }
    if (status == TDM_OK) {
        const int32_t chunk = llm_context_chunk(ctx);
        size_t n_state = LLM_STATE_KINDS * n_layer;
        ctx->n_state = (int32_t)n_state;
        ctx->page_size = calloc(n_state, sizeof *ctx->page_size);
        ctx->state_dev = calloc(n_state, sizeof *ctx->state_dev);
        ctx->state_mem = calloc(n_state, sizeof *ctx->state_mem);
        ctx->state_off = calloc(n_state, sizeof *ctx->state_off);
        ctx->row_io = calloc(LLM_IO_KINDS * n_layer + 1, sizeof *ctx->row_io);
        ctx->cells =
            calloc((size_t)(ctx->n_ubatch > chunk ? ctx->n_ubatch : chunk), sizeof *ctx->cells);
        ctx->order = calloc((size_t)ctx->n_ubatch, sizeof *ctx->order);
        ctx->row_of = calloc((size_t)ctx->n_ubatch, sizeof *ctx->row_of);
        ctx->cache.page_size = ctx->page_size;
        if (ctx->page_size == NULL || ctx->state_dev == NULL || ctx->state_mem == NULL ||
            ctx->state_off == NULL || ctx->row_io == NULL || ctx->cells == NULL ||
            ctx->order == NULL || ctx->row_of == NULL)
            status = llm_context_no_memory(err);
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
        if (ctx->jobs == NULL) status = llm_context_no_memory(err);
    }
    if (status == TDM_OK) status = llm_window_create(ctx, err);
    if (status == TDM_OK) status = slots_make(ctx, err);
    if (status == TDM_OK) status = encoded_make(ctx, err);
    if (status == TDM_OK) status = llm_lora_create(ctx, err);
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
    free(ctx->encoded);
    free(ctx->layer_types);
    free(ctx->page_size);
    free(ctx->state_dev);
    free(ctx->state_mem);
    free(ctx->state_off);
    free(ctx->row_io);
    free(ctx->file_rows);
    free(ctx->file_row_ids);
    free(ctx->expert_ids);
    free(ctx->next_row);
    free(ctx->has_next);
    free(ctx->scales);
    free(ctx->lora_io);
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

int32_t llm_context_n_seq(const llm_context *ctx) {
    return ctx->n_seq;
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

llm_layer_types llm_context_layer_types(const llm_context *ctx, int32_t layer) {
    return ctx->cache.layers != NULL ? ctx->cache.layers[layer]
                                     : llm_layer_types_of(&ctx->cache.desc);
}
bool llm_context_has_layer_types(const llm_context *ctx) {
    return ctx->cache.layers != NULL;
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
