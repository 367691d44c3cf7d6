/* SPDX-License-Identifier: MIT
 *
 * draft.c: see draft.h.
 */
#include "runner/draft.h"

#include <stdlib.h>
#include <string.h>

struct runner_draft {
    runner_session *session;
    int32_t n_max;      /* proposals at a time */
    bool is_layer;      /* of the large model; it has what follows */
    int32_t hidden_len; /* floats of a hidden state */
    /* [n_hidden, hidden_len] hidden states of the large model, from that of the last token that the
     * draft holds; zeros where it holds none. Each is decoded with the token behind its own. */
    float *hidden;
    int32_t n_hidden, hidden_room;
    runner_session *target; /* that it follows in a prompt; NULL = none */
    llm_sampler *sampler;   /* samples as the large model's does, from the same state */
    int32_t n_vocab;
    int32_t *bars; /* [n_bar] */
    int32_t n_bar;
    float *logits;   /* [n_vocab] a row without these tokens; NULL where there are none */
    int32_t *tokens; /* [n_ctx + 1] tokens that the draft has not decoded yet */
    bool *wanted;    /* [n_ctx + 1] */
};

/* ---- Vocabulary ---- */

static tdm_status differ(const llm_model *draft, const llm_model *model, const char *what,
                         tdm_error *err) {
    return tdm_fail(err, TDM_INVALID_ARGUMENT,
                    "%s cannot draft for %s: %s; a draft model must have the same vocabulary",
                    draft->path, model->path, what);
}

tdm_status runner_draft_check(const llm_model *draft, const llm_model *model, tdm_error *err) {
    const llm_vocab *a = NULL, *b = NULL;
    char what[256];
    const llm_model *encoder = model->hparams.n_layer_encoder > 0 ? model : draft;
    if (encoder->hparams.n_layer_encoder > 0)
        return tdm_fail(
            err, TDM_UNSUPPORTED,
            "%s cannot draft for %s: architecture '%s' has an encoder, with which drafts "
            "are not supported; leave out model-draft",
            draft->path, model->path, encoder->hparams.arch);
    tdm_status status = llm_model_vocab(draft, &a, err);
    if (status == TDM_OK) status = llm_model_vocab(model, &b, err);
    if (status != TDM_OK) return status;
    int32_t n_token = llm_vocab_n_token(a);
    if (n_token != llm_vocab_n_token(b) || draft->hparams.n_vocab != model->hparams.n_vocab) {
        bool is_rows = n_token == llm_vocab_n_token(b);
        snprintf(what, sizeof what, "it has %d %s, not %d",
                 is_rows ? draft->hparams.n_vocab : n_token,
                 is_rows ? "rows in its embedding" : "tokens",
                 is_rows ? model->hparams.n_vocab : llm_vocab_n_token(b));
        return differ(draft, model, what, err);
    }
    for (int32_t id = 0; id < n_token; id++) {
        llm_vocab_str s = llm_vocab_token_text(a, id), t = llm_vocab_token_text(b, id);
        if (s.len == t.len && (s.len == 0 || memcmp(s.ptr, t.ptr, s.len) == 0) &&
            llm_vocab_ends_generation(a, id) == llm_vocab_ends_generation(b, id))
            continue;
        snprintf(what, sizeof what, "its token %d is '%.*s'%s, not '%.*s'%s", id,
                 (int)(s.len < 40 ? s.len : 40), s.len > 0 ? s.ptr : "",
                 llm_vocab_ends_generation(a, id) ? " (an end)" : "",
                 (int)(t.len < 40 ? t.len : 40), t.len > 0 ? t.ptr : "",
                 llm_vocab_ends_generation(b, id) ? " (an end)" : "");
        return differ(draft, model, what, err);
    }
    return TDM_OK;
}

/* ---- Hidden states ---- */

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "draft: no memory");
}

/* Makes room for n hidden states. */
static tdm_status hidden_reserve(runner_draft *draft, int32_t n, tdm_error *err) {
    if (n <= draft->hidden_room) return TDM_OK;
    float *grown =
        realloc(draft->hidden, (size_t)n * (size_t)draft->hidden_len * sizeof *draft->hidden);
    if (grown == NULL) return no_memory(err);
    draft->hidden = grown;
    draft->hidden_room = n;
    return TDM_OK;
}

/* Appends the states of the first n tokens of the large model's last batch. */
static tdm_status hidden_append(runner_draft *draft, const llm_context *target, int32_t n,
                                tdm_error *err) {
    const size_t len = (size_t)draft->hidden_len;
    tdm_status status = hidden_reserve(draft, draft->n_hidden + n, err);
    for (int32_t i = 0; i < n && status == TDM_OK; i++) {
        const float *row = llm_context_hidden(target, i);
        if (row == NULL)
            return tdm_fail(err, TDM_INTERNAL, "the model gave no hidden state of token %d", i);
        memcpy(draft->hidden + (size_t)draft->n_hidden++ * len, row, len * sizeof *row);
    }
    return status;
}

/* Forgets the first n states. */
static void hidden_drop(runner_draft *draft, int32_t n) {
    const size_t len = (size_t)draft->hidden_len;
    draft->n_hidden -= n;
    memmove(draft->hidden, draft->hidden + (size_t)n * len,
            (size_t)draft->n_hidden * len * sizeof *draft->hidden);
}

/* ---- Proposals ---- */

tdm_status runner_draft_create(runner_session *session, const llm_sampler_params *params,
                               int32_t n_max, const int32_t *bars, int32_t n_bar,
                               runner_draft **draft_out, tdm_error *err) {
    *draft_out = NULL;
    runner_draft *draft = calloc(1, sizeof *draft);
    if (draft == NULL) return no_memory(err);
    size_t n_ctx = (size_t)llm_context_n_ctx(session->ctx);
    draft->session = session;
    draft->n_vocab = session->model->hparams.n_vocab;
    draft->hidden_len = llm_model_hidden_len(session->model);
    draft->is_layer = session->model->lender != NULL;
    draft->n_max = n_max;
    draft->n_bar = n_bar;
    draft->tokens = calloc(n_ctx + 1, sizeof *draft->tokens);
    draft->wanted = calloc(n_ctx + 1, sizeof *draft->wanted);
    draft->bars = calloc((size_t)n_bar + 1, sizeof *draft->bars);
    if (n_bar > 0) draft->logits = malloc((size_t)draft->n_vocab * sizeof *draft->logits);
    tdm_status status = TDM_OK;
    if (draft->tokens == NULL || draft->wanted == NULL || draft->bars == NULL ||
        (n_bar > 0 && draft->logits == NULL))
        status = no_memory(err);
    if (status == TDM_OK && draft->is_layer) status = hidden_reserve(draft, n_max + 1, err);
    if (status == TDM_OK && draft->is_layer) {
        memset(draft->hidden, 0, (size_t)draft->hidden_len * sizeof *draft->hidden);
        draft->n_hidden = 1;
    }
    if (status == TDM_OK)
        status = llm_sampler_create(params, draft->n_vocab, (int32_t)n_ctx, &draft->sampler, err);
    if (status == TDM_OK) status = runner_session_candidates(session, draft->sampler, n_bar, err);
    if (status != TDM_OK) {
        runner_draft_destroy(draft);
        return status;
    }
    if (n_bar > 0) memcpy(draft->bars, bars, (size_t)n_bar * sizeof *bars);
    *draft_out = draft;
    return TDM_OK;
}

void runner_draft_destroy(runner_draft *draft) {
    if (draft == NULL) return;
    if (draft->target != NULL) draft->target->batch_done = NULL;
    llm_sampler_destroy(draft->sampler);
    free(draft->hidden);
    free(draft->bars);
    free(draft->logits);
    free(draft->tokens);
    free(draft->wanted);
    free(draft);
}

/* Decodes n tokens with the hidden states in `hidden` (NULL for a draft model); logits of the last
 * one are kept if `wants_last`. n_room: llm_batch.n_room. */
static tdm_status decode(runner_draft *draft, const int32_t *tokens, const float *hidden, int32_t n,
                         int32_t n_room, bool wants_last, tdm_error *err) {
    draft->wanted[n - 1] = wants_last;
    const llm_batch batch = {
        .tokens = tokens, .wanted = draft->wanted, .n_tok = n, .hidden = hidden, .n_room = n_room};
    tdm_status status = llm_context_decode(draft->session->ctx, &batch, err);
    draft->wanted[n - 1] = false;
    return status;
}

/* Decodes the tokens that the draft does not hold, which stand in draft->tokens. A layer that drafts
 * has a hidden state for each; all numbers that a step can accept share a plan. */
static tdm_status missing_decode(runner_draft *draft, int32_t n, bool wants_last, tdm_error *err) {
    if (n == 0) return TDM_OK;
    if (!draft->is_layer) return decode(draft, draft->tokens, NULL, n, 0, wants_last, err);
    if (n > draft->n_hidden)
        return tdm_fail(err, TDM_INTERNAL, "%d hidden states for %d tokens", draft->n_hidden, n);
    tdm_status status =
        decode(draft, draft->tokens, draft->hidden, n, draft->n_max + 1, wants_last, err);
    if (status == TDM_OK) hidden_drop(draft, n);
    return status;
}

static tdm_status pick(runner_draft *draft, int32_t *token_out, tdm_error *err) {
    llm_row row = llm_context_row(draft->session->ctx, 0);
    if (row.n == 0) return tdm_fail(err, TDM_INTERNAL, "the draft model gave no logits");
    if (draft->n_bar > 0) row = llm_row_without(&row, draft->bars, draft->n_bar, draft->logits);
    return llm_sampler_pick(draft->sampler, &row, token_out, err);
}

tdm_status runner_draft_propose(runner_draft *draft, const llm_sampler *sampler,
                                const int32_t *history, int32_t n_history, int32_t next, int32_t n,
                                int32_t *tokens_out, tdm_error *err) {
    int32_t n_held = llm_context_length(draft->session->ctx, 0), n_new = n_history - n_held;
    if (n_new < 0 || n_history + n > llm_context_n_ctx(draft->session->ctx))
        return tdm_fail(err, TDM_INTERNAL, "the draft model holds %d tokens of %d", n_held,
                        n_history);
    memcpy(draft->tokens, history + n_held, (size_t)n_new * sizeof *history);
    draft->tokens[n_new] = next;
    llm_sampler_copy(draft->sampler, sampler);
    tdm_status status = n > 0 ? missing_decode(draft, n_new + 1, true, err) : TDM_OK;
    for (int32_t i = 0; i < n && status == TDM_OK; i++) {
        status = pick(draft, &tokens_out[i], err);
        if (status != TDM_OK) break;
        llm_sampler_accept(draft->sampler, tokens_out[i]);
        /* The logits after the last proposal are not needed. The layer's own hidden state stands
         * for that of the model. */
        if (i + 1 < n)
            status = decode(draft, &tokens_out[i], llm_context_hidden(draft->session->ctx, 0), 1, 0,
                            true, err);
    }
    return status;
}

static tdm_status truncate(runner_draft *draft, int32_t n_tok, tdm_error *err) {
    llm_context *ctx = draft->session->ctx;
    if (n_tok >= llm_context_length(ctx, 0)) return TDM_OK;
    return llm_context_truncate(ctx, 0, n_tok, err);
}

tdm_status runner_draft_accept(runner_draft *draft, const llm_context *target, int32_t length,
                               int32_t n_kept, tdm_error *err) {
    /* One token less than the model holds: then the draft's next step has the same shape whether
     * all proposals were accepted or not. */
    if (!draft->is_layer) return truncate(draft, length + n_kept - 1, err);
    /* Tokens behind the first were decoded with states of the layer; those of the model are
     * better. */
    tdm_status status = truncate(draft, length + 1, err);
    return status == TDM_OK ? hidden_append(draft, target, n_kept, err) : status;
}

tdm_status runner_draft_shift(runner_draft *draft, const int32_t *history, int32_t n_history,
                              int32_t n_keep, int32_t n_discard, tdm_error *err) {
    /* A draft model decodes the tokens again whose positions change. */
    if (!draft->is_layer) return truncate(draft, n_keep, err);
    llm_context *ctx = draft->session->ctx;
    const int32_t n_held = llm_context_length(ctx, 0), n_new = n_history - n_held;
    memcpy(draft->tokens, history + n_held, (size_t)n_new * sizeof *history);
    tdm_status status = missing_decode(draft, n_new, false, err);
    return status == TDM_OK ? llm_context_shift(ctx, 0, n_keep, n_discard, err) : status;
}

/* ---- Prompt ---- */

tdm_status runner_draft_prefill(runner_draft *draft, const int32_t *tokens, int32_t n_tok,
                                int32_t n_batch, tdm_error *err) {
    if (draft->is_layer || n_tok == 0) return TDM_OK; /* it has followed */
    return runner_session_prefill(draft->session, tokens, n_tok, n_batch, false, err);
}

/* Behind a batch of the large model: decodes its tokens, each with the state of the one before. */
static tdm_status batch_follow(void *user, const int32_t *tokens, int32_t n_tok, tdm_error *err) {
    runner_draft *draft = user;
    tdm_status status = hidden_append(draft, draft->target->ctx, n_tok, err);
    if (status == TDM_OK) status = decode(draft, tokens, draft->hidden, n_tok, 0, false, err);
    if (status == TDM_OK) hidden_drop(draft, n_tok);
    return status;
}

void runner_draft_follow(runner_draft *draft, runner_session *target) {
    if (!draft->is_layer) return;
    draft->target = target;
    target->batch_done = batch_follow;
    target->batch_user = draft;
}
