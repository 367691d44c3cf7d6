/* SPDX-License-Identifier: MIT
 *
 * context_decode.c: computes batches, n_ubatch tokens in a step, and gives their logits and hidden
 * states. It fills the step block, takes slots for recurrent states, and undoes a batch that fails.
 * Contexts are created by context.c, plans by context_plan.c.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/context_internal.h"

/* ---- Batches ---- */

/* Refuses a batch that the context cannot compute; nothing has changed then. */
static tdm_status batch_check(const llm_context *ctx, const llm_batch *batch, tdm_error *err) {
    int64_t added[LLM_MAX_SEQ] = {0};
    if (ctx->model->lender != NULL && batch->hidden == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "a batch for the layer of '%s' that drafts has no hidden states",
                        ctx->model->hparams.arch);
    for (int32_t i = 0; i < batch->n_tok; i++) {
        int32_t seq = llm_batch_seq(batch, i);
        if (seq < 0 || seq >= ctx->n_seq)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "token %d of the batch: sequence %d of %d; raise 'parallel'", i, seq,
                            ctx->n_seq);
        if (batch->tokens[i] < 0 || batch->tokens[i] >= ctx->model->hparams.n_vocab)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "token %d of the batch: id %d; the vocabulary ends at %d", i,
                            batch->tokens[i], ctx->model->hparams.n_vocab - 1);
        if (llm_batch_role(batch, i) != TDM_ROLE_GENERATED &&
            llm_batch_role(batch, i) != TDM_ROLE_PROMPT)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "token %d of the batch: no role %d", i,
                            (int)llm_batch_role(batch, i));
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
    return llm_encode_check(ctx, batch, err);
}

/* Grows *array, which has memory for *room elements of `size` bytes, to at least n elements. False
 * without memory; the array is unchanged then. */
static bool array_reserve(void **array, int64_t *room, int64_t n, size_t size) {
    if (n <= *room) return true;
    void *grown = realloc(*array, (size_t)n * size);
    if (grown == NULL) return false;
    *array = grown;
    *room = n;
    return true;
}

/* Makes room for n_row rows of logits in all. */
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

/* Fills ctx->order with tokens first .. last-1 of the batch in the order of the step: by sequence,
 * and within a sequence as in the batch. So tokens of a sequence are neighbours, and a device can
 * compute the attention of several of them while it reads the cache once. */
static void order_make(llm_context *ctx, const llm_batch *batch, int32_t first, int32_t last) {
    int32_t next[LLM_MAX_SEQ + 1] = {0};
    for (int32_t i = first; i < last; i++) next[llm_batch_seq(batch, i) + 1]++;
    for (int32_t s = 0; s < ctx->n_seq; s++) next[s + 1] += next[s];
    for (int32_t i = first; i < last; i++) ctx->order[next[llm_batch_seq(batch, i)]++] = i;
}

/* Appends the n tokens of ctx->order to the page tables, and fills in their cells. All tokens of a
 * sequence are appended at once. */
static tdm_status cells_find(llm_context *ctx, const llm_batch *batch, int32_t n, tdm_error *err) {
    for (int32_t i = 0, end; i < n; i = end) {
        int32_t seq = llm_batch_seq(batch, ctx->order[i]);
        for (end = i; end < n && llm_batch_seq(batch, ctx->order[end]) == seq;) end++;
        tdm_status status = llm_kv_append(ctx->kv, seq, end - i, ctx->cells + i, err);
        if (status == TDM_OK && ctx->window != NULL)
            status = llm_kv_append(ctx->window, seq, end - i, ctx->window_cells + i, err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}

/* Page table entries of all used sequences, in the class that has more of them. */
static int32_t entries_needed(const llm_context *ctx, const bool *is_used) {
    int32_t n = 0, n_window = 0;
    for (int32_t s = 0; s < ctx->n_seq; s++) {
        if (!is_used[s]) continue;
        n += llm_kv_entry_count(ctx->kv, s);
        if (ctx->window != NULL) n_window += llm_kv_entry_count(ctx->window, s);
    }
    return n > n_window ? n : n_window;
}

/* Writes the page tables of a class into the step block; returns the index behind the last
 * entry. */
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

/* Fills the step block: the n tokens of ctx->order, their positions and cells, the page tables.
 * start[n_seq]: the sequences' lengths before the step. Returns the used bytes of the block. */
static size_t step_fill(llm_context *ctx, const llm_plan *plan, const llm_batch *batch, int32_t n,
                        const int32_t *start, const bool *is_used) {
    const tdm_step_header *h = &plan->header;
    int32_t *step = ctx->step, next[LLM_MAX_SEQ];
    int32_t n_out = 0;
    memcpy(next, start, (size_t)ctx->n_seq * sizeof *next);
    for (int32_t at = 0; at < n; at++) {
        int32_t i = ctx->order[at], seq = llm_batch_seq(batch, i);
        step[h->token_off + at] = batch->tokens[i];
        const bool is_encoded = llm_is_encoded(ctx, seq, next[seq]);
        step[h->pos_off + at] = next[seq]++;
        step[h->seq_off + at] = seq;
        step[h->role_off + at] = (int32_t)llm_batch_role(batch, i);
        step[h->cls[is_encoded ? LLM_CLASS_ENCODED : LLM_CLASS_ALL].write_off + at] =
            ctx->cells[at];
        if (ctx->window != NULL)
            step[h->cls[LLM_CLASS_WINDOW].write_off + at] = ctx->window_cells[at];
        if (llm_batch_wants(ctx, batch, i)) {
            if (plan->shape.n_out > 0) {
                step[h->out_row_off + n_out] = at;
                step[h->out_role_off + n_out] = (int32_t)llm_batch_role(batch, i);
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
    if (ctx->encoded != NULL) return llm_encode_tables_fill(ctx, plan, is_used) * sizeof *step;
    size_t end = tables_fill(ctx, ctx->kv, &h->cls[LLM_CLASS_ALL], is_used);
    if (ctx->window != NULL) {
        /* The entries of the second class are behind the room of the first, which is padded. */
        memset(&step[end], 0xff, ((size_t)h->cls[LLM_CLASS_WINDOW].entry_off - end) * sizeof *step);
        end = tables_fill(ctx, ctx->window, &h->cls[LLM_CLASS_WINDOW], is_used);
    }
    return end * sizeof(int32_t);
}

/* The capacity of page tables of a plan for a step that needs `needed` entries. Capacities grow by
 * factors of 4, so that a growing sequence seldom needs a new plan. They are still near enough to
 * the need that a device can divide its work by them. */
static int32_t entry_bucket(const llm_context *ctx, int32_t needed) {
    int32_t bucket = LLM_MIN_ENTRIES;
    while (bucket < needed) bucket *= 4;
    return bucket < ctx->n_entry ? bucket : ctx->n_entry;
}

/* Appends to ctx->logits_at the rows of the wanted tokens, in the order of the batch. The step's
 * tokens are first .. first+n-1 of the batch. row_of_token: the step has given a row for each
 * token; else only for the wanted ones. */
static void logits_note(llm_context *ctx, const llm_batch *batch, int32_t first, int32_t n,
                        bool row_of_token) {
    int32_t row = 0, n_wanted = ctx->n_logits;
    for (int32_t k = 0; k < n; k++) {
        ctx->row_of[ctx->order[k] - first] = row;
        row += row_of_token || llm_batch_wants(ctx, batch, ctx->order[k]);
    }
    for (int32_t i = first; i < first + n; i++)
        if (llm_batch_wants(ctx, batch, i))
            ctx->logits_at[n_wanted++] = ctx->n_row + ctx->row_of[i - first];
}

/* ---- Slots ---- */

/* Whether the state after token `at` of the step's n tokens is kept: after the last token of a
 * sequence, and after each generated token if the step has at most LLM_MAX_DRAFT_SNAPSHOTS tokens
 * of the sequence, since these may be drafts. */
static bool is_state_kept(const llm_context *ctx, const llm_batch *batch, int32_t at, int32_t n) {
    int32_t seq = llm_batch_seq(batch, ctx->order[at]), first = at, last = at;
    if (at + 1 == n || llm_batch_seq(batch, ctx->order[at + 1]) != seq) return true;
    if (llm_batch_role(batch, ctx->order[at]) != TDM_ROLE_GENERATED) return false;
    while (first > 0 && at - first < LLM_MAX_DRAFT_SNAPSHOTS &&
           llm_batch_seq(batch, ctx->order[first - 1]) == seq)
        first--;
    while (last + 1 < n && last - at < LLM_MAX_DRAFT_SNAPSHOTS &&
           llm_batch_seq(batch, ctx->order[last + 1]) == seq)
        last++;
    return last - first < LLM_MAX_DRAFT_SNAPSHOTS;
}

/* Takes the slots that the step writes. Those for the last tokens of sequences are taken first,
 * since they are needed; the others are snapshots, and are left out if slots run out. */
static tdm_status slots_take(llm_context *ctx, const llm_plan *plan, const llm_batch *batch,
                             int32_t n, tdm_error *err) {
    int32_t *write = &ctx->step[plan->header.rs_write_off];
    for (int32_t turn = 0; turn < 2; turn++)
        for (int32_t at = 0; at < n; at++) {
            bool is_last = at + 1 == n || llm_batch_seq(batch, ctx->order[at + 1]) !=
                                              llm_batch_seq(batch, ctx->order[at]);
            if (is_last != (turn == 0) || !is_state_kept(ctx, batch, at, n)) continue;
            write[at] = llm_slots_take(ctx->slots, !is_last);
            if (write[at] < 0 && is_last)
                return tdm_fail(err, TDM_INTERNAL, "context: no slot for a recurrent state");
        }
    return TDM_OK;
}

/* After the step: the slots of the sequences' last tokens become the sequences' states, the others
 * snapshots. After a failure (is_ok false) all slots of the step are released. */
static void slots_finish(llm_context *ctx, const llm_plan *plan, const llm_batch *batch, int32_t n,
                         const int32_t *start, bool is_ok) {
    const int32_t *write = &ctx->step[plan->header.rs_write_off];
    int32_t count = 0;
    for (int32_t at = 0; at < n; at++) {
        int32_t seq = llm_batch_seq(batch, ctx->order[at]);
        bool is_last = at + 1 == n || llm_batch_seq(batch, ctx->order[at + 1]) != seq;
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

/* Floats of a hidden state. */
static size_t hidden_len(const llm_context *ctx) {
    const bool is_draft = llm_context_hidden_kind(ctx) == LLM_HIDDEN_DRAFT;
    return (size_t)(is_draft ? llm_model_hidden_len(ctx->model) : ctx->model->hparams.n_embd);
}

/* Copies the hidden states that the step reads into hidden_io, in the order of the step; zeros for
 * the rows of the plan without a token. */
static tdm_status hidden_fill(llm_context *ctx, const llm_plan *plan, const llm_batch *batch,
                              int32_t n, tdm_io *io, tdm_error *err) {
    const size_t len = hidden_len(ctx), n_row = (size_t)plan->shape.n_tok;
    if (!array_reserve((void **)&ctx->hidden_io, &ctx->hidden_io_room, (int64_t)(n_row * len),
                       sizeof *ctx->hidden_io))
        return llm_context_no_memory(err);
    for (int32_t at = 0; at < n; at++)
        memcpy(ctx->hidden_io + (size_t)at * len, batch->hidden + (size_t)ctx->order[at] * len,
               len * sizeof(float));
    memset(ctx->hidden_io + (size_t)n * len, 0, (n_row - (size_t)n) * len * sizeof(float));
    *io = (tdm_io){plan->hidden_in, ctx->hidden_io, n_row * len * sizeof(float)};
    return TDM_OK;
}

/* Sets where the step writes its hidden states. n_row >= 0 (a layer that drafts): there are n_row,
 * and they go behind those of earlier rows of logits. n_row < 0: there is one for each of the n
 * tokens, and they go to hidden_io; hidden_scatter then copies them into the order of the batch. */
static tdm_status hidden_out(llm_context *ctx, const llm_plan *plan, int32_t n_row, int32_t n,
                             tdm_io *io, tdm_error *err) {
    const int64_t len = (int64_t)hidden_len(ctx);
    const bool is_of_rows = n_row >= 0;
    const int64_t row = is_of_rows ? ctx->n_row : ctx->n_hidden;
    const int64_t n_new = is_of_rows ? n_row : n;
    if (!array_reserve((void **)&ctx->hidden, &ctx->hidden_room, (row + n_new) * len,
                       sizeof *ctx->hidden) ||
        (!is_of_rows && !array_reserve((void **)&ctx->hidden_io, &ctx->hidden_io_room, n_new * len,
                                       sizeof *ctx->hidden_io)))
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "no memory for the hidden states of %lld tokens", (long long)(row + n_new));
    *io = (tdm_io){plan->hidden, is_of_rows ? ctx->hidden + row * len : ctx->hidden_io,
                   (uint64_t)(n_new * len) * sizeof(float)};
    return TDM_OK;
}

/* Appends the hidden states of the step's tokens, which are first .. first+n-1 of the batch. */
static void hidden_scatter(llm_context *ctx, int32_t first, int32_t n) {
    const size_t len = hidden_len(ctx);
    for (int32_t at = 0; at < n; at++)
        memcpy(ctx->hidden + ((size_t)ctx->n_hidden + (size_t)(ctx->order[at] - first)) * len,
               ctx->hidden_io + (size_t)at * len, len * sizeof(float));
    ctx->n_hidden += n;
}

/* ---- A step ---- */

/* The inputs and outputs of a step. */
typedef struct step_io {
    tdm_io inputs[7 + LLM_MAX_ADAPTERS];
    int32_t n_in;
    tdm_io few[3];   /* memory of `outputs` in a context that gives no products */
    tdm_io *outputs; /* [n_out] `few`, or allocated */
    int32_t n_out;
    int32_t n_wanted;  /* tokens of the step whose logits are wanted */
    int32_t n_row;     /* rows of logits that the step gives; 0 = no token's are wanted */
    bool row_of_token; /* a row of each token, wanted or not: the plan has as many rows as tokens */
} step_io;

/* Fills the inputs of a step of n tokens, which are in the step block. Appends them to
 * io->inputs. */
static tdm_status inputs_gather(llm_context *ctx, const llm_plan *plan, const llm_batch *batch,
                                int32_t n, step_io *io, tdm_error *err) {
    tdm_status status = TDM_OK;
    if (plan->hidden_in >= 0)
        status = hidden_fill(ctx, plan, batch, n, &io->inputs[io->n_in++], err);
    if (plan->file_rows >= 0 && status == TDM_OK) {
        status = llm_file_rows_fill(ctx, plan, n, &io->inputs[io->n_in], err);
        io->n_in += 2;
    }
    if (plan->expert_ids >= 0 && status == TDM_OK)
        status = llm_expert_ids_fill(ctx, plan, n, &io->inputs[io->n_in++], err);
    if (plan->next_row >= 0 && status == TDM_OK) {
        status = llm_next_rows_fill(ctx, plan, n, &io->inputs[io->n_in], err);
        io->n_in += 2;
    }
    if (status == TDM_OK) io->n_in += llm_lora_fill(ctx, plan, n, &io->inputs[io->n_in]);
    return status;
}

/* Makes room for what a step of n tokens gives, and sets io->outputs to it. */
static tdm_status outputs_choose(llm_context *ctx, const llm_plan *plan, int32_t n, step_io *io,
                                 tdm_error *err) {
    const bool is_draft = ctx->model->lender != NULL;
    tdm_status status = TDM_OK;
    if (io->n_row > 0) {
        status = rows_reserve(ctx, ctx->n_row + io->n_row, err);
        if (status != TDM_OK) return status;
        const int64_t from = ctx->n_row * ctx->row_len;
        const uint64_t bytes = (uint64_t)io->n_row * (uint64_t)ctx->row_len * 4;
        io->few[io->n_out++] = (tdm_io){plan->logits, ctx->logits + from, bytes};
        if (plan->candidates >= 0)
            io->few[io->n_out++] = (tdm_io){plan->candidates, ctx->candidates + from, bytes};
    }
    if (plan->hidden >= 0)
        status = hidden_out(ctx, plan, is_draft ? io->n_row : -1, n, &io->few[io->n_out++], err);
    if (plan->n_product == 0 || status != TDM_OK) return status;
    const size_t n_most = (size_t)io->n_out + 2 * (size_t)plan->n_product;
    io->outputs = malloc(n_most * sizeof *io->outputs);
    if (io->outputs == NULL) return llm_context_no_memory(err);
    memcpy(io->outputs, io->few, (size_t)io->n_out * sizeof *io->few);
    io->n_out += llm_products_outputs(plan, n, io->n_wanted, io->outputs + io->n_out);
    return TDM_OK;
}

/* Runs a filled step of tokens first .. first+n-1 of the batch, and appends its logits and hidden
 * states to those of the context. size: used bytes of the step block. */
static tdm_status step_run(llm_context *ctx, const llm_plan *plan, const llm_batch *batch,
                           int32_t first, int32_t n, size_t size, tdm_error *err) {
    step_io io = {.inputs = {{plan->step, ctx->step, size}},
                  .n_in = 1,
                  .row_of_token = plan->shape.n_out == plan->shape.n_tok};
    io.outputs = io.few;
    for (int32_t i = first; i < first + n; i++) io.n_wanted += llm_batch_wants(ctx, batch, i);
    if (io.n_wanted > 0) io.n_row = io.row_of_token ? n : io.n_wanted;
    tdm_status status = inputs_gather(ctx, plan, batch, n, &io, err);
    if (status == TDM_OK) status = outputs_choose(ctx, plan, n, &io, err);
    if (status == TDM_OK)
        status = tdm_schedule_run(plan->schedule, io.inputs, io.n_in, io.outputs, io.n_out, err);
    if (io.outputs != io.few) free(io.outputs);
    if (status != TDM_OK) return status;
    if (plan->n_product > 0) llm_products_give(ctx, plan, n, io.n_wanted);
    if (plan->hidden >= 0 && ctx->model->lender == NULL) hidden_scatter(ctx, first, n);
    if (io.n_wanted == 0) return TDM_OK;
    logits_note(ctx, batch, first, n, io.row_of_token);
    ctx->n_row += io.n_row;
    ctx->n_logits += io.n_wanted;
    return TDM_OK;
}

/* Computes tokens first .. last-1 of the batch in one step by a part of the model (LLM_PART_*), and
 * appends their logits to those of the context. After a failure the page tables may have tokens of
 * the step: llm_batch_append removes them. */
static tdm_status ubatch_run(llm_context *ctx, const llm_batch *batch, int32_t part, int32_t first,
                             int32_t last, tdm_error *err) {
    int32_t start[LLM_MAX_SEQ], n_out = 0, n = last - first;
    bool is_used[LLM_MAX_SEQ] = {false};
    for (int32_t s = 0; s < ctx->n_seq; s++) start[s] = llm_kv_length(ctx->kv, s);
    for (int32_t i = first; i < last; i++) {
        is_used[llm_batch_seq(batch, i)] = true;
        n_out += llm_batch_wants(ctx, batch, i);
    }
    order_make(ctx, batch, first, last);
    tdm_status status = cells_find(ctx, batch, n, err);
    if (status != TDM_OK) return status;
    int32_t needed = entries_needed(ctx, is_used);
    while (ctx->n_entry < needed) ctx->n_entry *= 2;
    const int32_t n_room = batch->n_room > n ? batch->n_room : n;
    llm_step_shape shape = {llm_plan_bucket(n_room, ctx->n_ubatch),
                            0,
                            ctx->n_seq,
                            entry_bucket(ctx, needed),
                            .part = part,
                            .adapters = llm_lora_choose(ctx, is_used)};
    if (n_out > 0) {
        shape.n_out = llm_plan_bucket(n_out, shape.n_tok);
        shape.n_candidate = ctx->n_candidate;
    }
    /* A layer that drafts gives hidden states of the rows of logits only. */
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

/* Whether the tokens before and after this length are both generated. Then the state there is only
 * needed if drafts are rejected; otherwise a prompt or a message begins or ends there, and the
 * state may be needed in the whole conversation. */
static bool is_inside_answer(const llm_context *ctx, int32_t seq, int32_t n_tok) {
    const uint8_t *roles = ctx->roles + (size_t)seq * (size_t)ctx->n_ctx;
    return n_tok > 0 && roles[n_tok - 1] == TDM_ROLE_GENERATED &&
           roles[n_tok] == TDM_ROLE_GENERATED;
}

/* Updates the marks of the batch's sequences (context_window.c), before it is computed. */
static void marks_make(llm_context *ctx, const llm_batch *batch) {
    int32_t added[LLM_MAX_SEQ] = {0}, first[LLM_MAX_SEQ];
    if (ctx->window == NULL) return;
    for (int32_t i = 0; i < batch->n_tok; i++)
        if (added[llm_batch_seq(batch, i)]++ == 0) first[llm_batch_seq(batch, i)] = i;
    for (int32_t s = 0; s < ctx->n_seq; s++)
        if (added[s] > 0) llm_window_mark(ctx, s, added[s], llm_batch_role(batch, first[s]));
}

/* After a batch: stores its tokens and roles. Keeps the state from before the batch as a snapshot
 * if the sequence may go back to it: if the batch appended several tokens, or if the batch before
 * did, which was then a prompt or a message. Releases the held slots. before[n_seq]: lengths before
 * the batch; held[n_seq]: slots of the states at those lengths. */
static void slots_commit(llm_context *ctx, const llm_batch *batch, const int32_t *before,
                         const int32_t *held) {
    int32_t next[LLM_MAX_SEQ];
    if (ctx->tokens == NULL) return;
    memcpy(next, before, (size_t)ctx->n_seq * sizeof *next);
    for (int32_t i = 0; i < batch->n_tok; i++) {
        const int32_t seq = llm_batch_seq(batch, i);
        const size_t at = (size_t)seq * (size_t)ctx->n_ctx + (size_t)next[seq]++;
        ctx->tokens[at] = batch->tokens[i];
        ctx->roles[at] = (uint8_t)llm_batch_role(batch, i);
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

/* Computes a batch n_ubatch tokens at a time. */
static tdm_status ubatches_run(llm_context *ctx, const llm_batch *batch, int32_t part,
                               tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < batch->n_tok && status == TDM_OK; i += ctx->n_ubatch) {
        int32_t end = batch->n_tok - i < ctx->n_ubatch ? batch->n_tok : i + ctx->n_ubatch;
        status = ubatch_run(ctx, batch, part, i, end, err);
        if (status == TDM_OK && ctx->progress != NULL && batch->n_tok > ctx->n_ubatch &&
            !ctx->progress(ctx->progress_context, (uint64_t)end, (uint64_t)batch->n_tok))
            status = tdm_fail(err, TDM_CANCELLED, "decoding was cancelled after %d of %d tokens",
                              end, batch->n_tok);
    }
    return status;
}

/* Computes a batch of a model with an encoder: the encoder's tokens first, since the decoder's
 * tokens read their results. */
static tdm_status parts_run(llm_context *ctx, const llm_batch *batch, tdm_error *err) {
    llm_encode_parts parts;
    llm_encode_begin(ctx, batch);
    tdm_status status = llm_encode_split(ctx, batch, &parts, err);
    for (int32_t i = 0, end; i < parts.encoder.n_tok && status == TDM_OK; i = end) {
        end = llm_encode_end(ctx, &parts.encoder, i);
        status = ubatch_run(ctx, &parts.encoder, LLM_PART_ENCODER, i, end, err);
    }
    if (status == TDM_OK) status = ubatches_run(ctx, &parts.decoder, LLM_PART_DECODER, err);
    llm_encode_free(&parts);
    return status;
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
    status = ctx->encoded != NULL ? parts_run(ctx, batch, err)
                                  : ubatches_run(ctx, batch, LLM_PART_ALL, err);
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
    return ctx->hidden + row * (int64_t)hidden_len(ctx);
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
