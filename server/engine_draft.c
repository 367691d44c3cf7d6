/* SPDX-License-Identifier: MIT
 *
 * engine_draft.c: tokens that a draft proposes to requests that generate, so that a step may give
 * several (llm/draft.h). Each is drawn as it would be without drafts, so the answers are the same.
 * By the engine's thread.
 *
 * The draft has a sequence for each sequence of the context, which holds a prefix of its tokens: it
 * is forked, shortened and emptied with it. A draft model decodes a prompt after the steps that
 * compute the prompt, at most as many tokens as such a step has of prompts. A layer that drafts
 * decodes all tokens of each step at once, since it needs hidden states that only that step gives.
 *
 * Drafts make a step longer for all its requests. So the requests of a step have, drafts included,
 * at most as many tokens together as two requests with all their drafts, in even parts: where many
 * generate, none has drafts. How many each has follows from how many were right before
 * (llm/draft_pace.h).
 *
 * Where the draft fails, its requests go on without it.
 */
#include <stdlib.h>
#include <string.h>

#include "server/engine_internal.h"

/* ---- Setup ---- */

tdm_status server_draft_create(server_engine *e, const server_engine_params *p, tdm_error *err) {
    if ((p->draft == NULL && p->n_gram == 0) || e->ctx == NULL) return TDM_OK;
    llm_context_params params = p->draft_context;
    if (p->n_draft < 1 || p->n_draft > LLM_MAX_DRAFT)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%d drafts at a time: expected 1 to %d",
                        p->n_draft, LLM_MAX_DRAFT);
    params.n_ctx = e->n_ctx;
    params.n_seq = e->n_seq;
    const size_t n = (size_t)e->limits.n_running;
    e->n_draft = p->n_draft;
    e->draft_items = calloc(n, sizeof *e->draft_items);
    e->draft_parts = calloc(n, sizeof *e->draft_parts);
    e->draft_tokens = calloc(n * (size_t)e->n_draft, sizeof *e->draft_tokens);
    if (e->draft_items == NULL || e->draft_parts == NULL || e->draft_tokens == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for drafts");
    if (p->draft == NULL && (p->n_gram < 1 || p->n_gram > LLM_MAX_DRAFT_NGRAM))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "n-grams of %d tokens: expected 1 to %d",
                        p->n_gram, LLM_MAX_DRAFT_NGRAM);
    tdm_status status = TDM_OK;
    if (p->draft != NULL) status = llm_context_create(p->draft, &params, &e->draft_ctx, err);
    if (status != TDM_OK) return status;
    const llm_draft_params draft = {
        .ctx = e->draft_ctx, .target = e->ctx, .n_max = e->n_draft, .n_gram = p->n_gram};
    return llm_draft_create(&draft, &e->draft, err);
}

void server_draft_free(server_engine *e) {
    llm_draft_destroy(e->draft);
    llm_context_destroy(e->draft_ctx);
    free(e->draft_items);
    free(e->draft_parts);
    free(e->draft_tokens);
}

/* ---- Sequences ---- */

void server_draft_empty(server_engine *e, int32_t seq) {
    if (e->draft != NULL) (void)llm_draft_truncate(e->draft, seq, 0, NULL); /* it cannot fail */
}

void server_draft_fork(server_engine *e, int32_t dst, int32_t src, int32_t n_tok) {
    if (e->draft != NULL && llm_draft_fork(e->draft, dst, src, n_tok, NULL) != TDM_OK)
        server_draft_empty(e, dst);
}

/* A request goes on without drafts. */
static void draft_give_up(server_engine *e, server_job *job) {
    job->has_draft = false;
    job->n_draft = 0;
    if (job->seq >= 0) server_draft_empty(e, job->seq);
}

/* ---- Before a step ---- */

/* The most drafts of each request in a step of n requests; 0 or less = none. */
static int32_t drafts_each(const server_engine *e, int32_t n) {
    const int32_t each = 2 * (e->n_draft + 1) / n - 1;
    return each < e->n_draft ? each : e->n_draft;
}

/* How many drafts a request that generates may have now, 0 .. most. It has none where its draft
 * still lacks a part of its tokens (server_draft_follow). */
static int32_t drafts_of(const server_engine *e, const server_job *job, int32_t most) {
    const server_request *r = &job->request;
    const int32_t length = llm_context_length(e->ctx, job->seq);
    const int32_t n_missing = llm_draft_missing(e->draft, job->seq, length);
    int32_t n = r->max_draft > 0 && r->max_draft < most ? r->max_draft : most;
    if (!job->has_draft || r->max_draft < 0 || length + 1 != job->n_tok || n_missing < 0 ||
        n_missing > e->n_draft + 1)
        return 0;
    /* A step with n drafts draws n + 1 tokens at most. The last of them needs no room in the
     * context. */
    if (n > job->max_tokens - job->usage.n_generated - 1)
        n = job->max_tokens - job->usage.n_generated - 1;
    if (n > e->n_ctx - length - 1) n = e->n_ctx - length - 1;
    return n < r->min_draft ? 0 : n;
}

void server_draft_plan(server_engine *e, int32_t n) {
    int32_t n_tok = 0;
    for (int32_t i = 0; i < n; i++) {
        e->jobs[i]->n_draft = 0;
        n_tok += e->items[i].n_tok;
    }
    if (e->draft == NULL || n == 0) return;
    const int32_t each = drafts_each(e, n);
    for (int32_t i = 0; i < n && each > 0; i++) {
        server_job *job = e->jobs[i];
        const int32_t room = e->n_step - n_tok;
        if (!e->items[i].is_last || e->items[i].n_tok != 1 || job->usage.n_generated == 0) continue;
        job->n_draft =
            drafts_of(e, job, llm_draft_pace_next(&job->draft_pace, each < room ? each : room));
        n_tok += job->n_draft;
    }
}

void server_draft_propose(server_engine *e, int32_t n) {
    int32_t n_item = 0;
    for (int32_t i = 0; i < n; i++) {
        server_job *job = e->jobs[i];
        if (job->n_draft == 0) continue;
        const llm_constraint *constraint = NULL;
        job->drafts = e->draft_tokens + (size_t)n_item * (size_t)e->n_draft;
        if (job->draft_constraint.mask != NULL) {
            constraint = &job->draft_constraint;
            constraint->assign(constraint->state, job->request.constraint->state);
        }
        e->draft_items[n_item++] = (llm_draft_item){
            .seq = job->seq,
            .sampler = job->draft_sampler,
            .model = job->sampler,
            .history = job->tokens,
            .n_history = job->n_tok - 1,
            .next = job->tokens[job->n_tok - 1],
            .n = job->n_draft,
            .p_min = job->request.min_draft_p,
            .bars = e->bars,
            .n_bar = server_n_bar(e, job),
            .bias = job->bias,
            .n_bias = job->request.n_bias,
            .constraint = constraint,
            .tokens_out = job->drafts,
        };
    }
    if (n_item == 0) return;
    const tdm_status status = llm_draft_propose(e->draft, e->draft_items, n_item, NULL);
    for (int32_t i = 0, k = 0; i < n; i++) {
        server_job *job = e->jobs[i];
        if (job->n_draft == 0) continue;
        job->n_draft = e->draft_items[k++].n_out;
        if (job->n_draft < job->request.min_draft) job->n_draft = 0;
        if (status != TDM_OK) draft_give_up(e, job);
    }
}

/* ---- Behind a step ---- */

bool server_draft_settle(server_engine *e, server_job *job, int32_t n_tok) {
    const int32_t length = llm_context_length(e->ctx, job->seq);
    const int32_t before = length - n_tok - job->n_draft;
    const int32_t n_accepted = job->n_draft > 0 ? job->n_drawn - 1 : 0;
    job->usage.n_draft += job->n_draft;
    job->usage.n_draft_accepted += n_accepted;
    e->tally.n_draft += (uint64_t)job->n_draft;
    e->tally.n_draft_accepted += (uint64_t)n_accepted;
    if (job->has_draft && llm_draft_accept(e->draft, job->seq, e->ctx, job->first, before,
                                           n_tok + n_accepted, NULL) != TDM_OK)
        draft_give_up(e, job);
    llm_draft_pace_note(&job->draft_pace, job->n_draft, n_accepted, job->request.min_draft);
    return n_accepted == job->n_draft ||
           llm_context_truncate(e->ctx, job->seq, before + n_tok + n_accepted, NULL) == TDM_OK;
}

/* How many tokens the draft of a request decodes now. Few are left to llm_draft_propose. A draft
 * model always leaves it the last one, so that its batches have the same shape as after accepted
 * drafts (llm_draft_accept). */
static int32_t part_size(const server_engine *e, const server_job *job, int32_t budget) {
    const int32_t n = llm_draft_missing(e->draft, job->seq, llm_context_length(e->ctx, job->seq));
    if (n <= e->n_draft + 1) return 0;
    if (llm_draft_is_layer(e->draft)) return n;
    return n - 1 < budget ? n - 1 : budget;
}

void server_draft_follow(server_engine *e, int32_t n) {
    int32_t n_part = 0, budget = 0;
    if (e->draft == NULL || (!llm_draft_is_layer(e->draft) && drafts_each(e, n) < 1)) return;
    for (int32_t i = 0; i < n; i++)
        if (e->jobs[i]->usage.n_generated == 0) budget += e->items[i].n_tok;
    if (budget < e->limits.n_prompt_step) budget = e->limits.n_prompt_step;
    for (int32_t i = 0; i < n; i++) {
        server_job *job = e->jobs[i];
        const int32_t n_tok =
            job->has_draft && !job->is_over && job->seq >= 0 ? part_size(e, job, budget) : 0;
        if (n_tok == 0) continue;
        budget -= n_tok;
        e->draft_parts[n_part++] =
            (llm_draft_part){job->seq, job->tokens + llm_draft_length(e->draft, job->seq), n_tok};
    }
    if (n_part == 0 || llm_draft_follow(e->draft, e->draft_parts, n_part, NULL) == TDM_OK) return;
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < n_part; k++)
            if (e->jobs[i]->seq == e->draft_parts[k].seq) draft_give_up(e, e->jobs[i]);
}
