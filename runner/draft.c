/* SPDX-License-Identifier: MIT
 *
 * draft.c: see draft.h.
 */
#include "runner/draft.h"

#include <stdlib.h>
#include <string.h>

struct runner_draft {
    runner_session *session;
    llm_sampler *sampler; /* samples as the large model's does, from the same state */
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

/* ---- Proposals ---- */

tdm_status runner_draft_create(runner_session *session, const llm_sampler_params *params,
                               const int32_t *bars, int32_t n_bar, runner_draft **draft_out,
                               tdm_error *err) {
    *draft_out = NULL;
    runner_draft *draft = calloc(1, sizeof *draft);
    if (draft == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "draft: no memory");
    size_t n_ctx = (size_t)llm_context_n_ctx(session->ctx);
    draft->session = session;
    draft->n_vocab = session->model->hparams.n_vocab;
    draft->n_bar = n_bar;
    draft->tokens = calloc(n_ctx + 1, sizeof *draft->tokens);
    draft->wanted = calloc(n_ctx + 1, sizeof *draft->wanted);
    draft->bars = calloc((size_t)n_bar + 1, sizeof *draft->bars);
    if (n_bar > 0) draft->logits = malloc((size_t)draft->n_vocab * sizeof *draft->logits);
    tdm_status status = TDM_OK;
    if (draft->tokens == NULL || draft->wanted == NULL || draft->bars == NULL ||
        (n_bar > 0 && draft->logits == NULL))
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "draft: no memory");
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
    llm_sampler_destroy(draft->sampler);
    free(draft->bars);
    free(draft->logits);
    free(draft->tokens);
    free(draft->wanted);
    free(draft);
}

/* Decodes n tokens; logits of the last one are kept. */
static tdm_status decode(runner_draft *draft, const int32_t *tokens, int32_t n, tdm_error *err) {
    draft->wanted[n - 1] = true;
    llm_batch batch = {tokens, NULL, draft->wanted, n};
    tdm_status status = llm_context_decode(draft->session->ctx, &batch, err);
    draft->wanted[n - 1] = false;
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
    tdm_status status = n > 0 ? decode(draft, draft->tokens, n_new + 1, err) : TDM_OK;
    for (int32_t i = 0; i < n && status == TDM_OK; i++) {
        status = pick(draft, &tokens_out[i], err);
        if (status != TDM_OK) break;
        llm_sampler_accept(draft->sampler, tokens_out[i]);
        /* the logits after the last proposal are not needed */
        if (i + 1 < n) status = decode(draft, &tokens_out[i], 1, err);
    }
    return status;
}

tdm_status runner_draft_truncate(runner_draft *draft, int32_t n_tok, tdm_error *err) {
    llm_context *ctx = draft->session->ctx;
    if (n_tok >= llm_context_length(ctx, 0)) return TDM_OK;
    return llm_context_truncate(ctx, 0, n_tok, err);
}
