/* SPDX-License-Identifier: MIT
 *
 * engine_draw.c: from a row of logits to the next token of a request and its event: biases, the
 * constraint, the sampler, probabilities, text. By the engine's thread.
 */
#include <math.h>
#include <string.h>

#include "server/engine_internal.h"

int32_t server_n_bar(const server_engine *e, const server_job *job) {
    return e->n_suppressed + (job->request.ignores_end ? e->n_end : 0);
}

int32_t server_draw_candidates(const server_engine *e, const server_job *job) {
    const server_request *r = &job->request;
    if (!e->gives_candidates || r->n_bias > 0 || r->constraint != NULL || r->wants_logprobs ||
        r->n_top > 0)
        return 0;
    const int32_t n = llm_sampler_candidates(job->sampler), n_bar = server_n_bar(e, job);
    return n > 0 && n + n_bar <= LLM_MAX_CANDIDATES ? n + n_bar : 0;
}

/* Makes *row the row from which the request samples, with its logits in e->logits where it is
 * changed. */
static tdm_status row_change(server_engine *e, server_job *job, llm_row *row, tdm_error *err) {
    const server_request *r = &job->request;
    llm_row_change change = {
        .barred = e->bars, .n_barred = server_n_bar(e, job), .bias = r->bias, .n_bias = r->n_bias};
    if (r->constraint != NULL) {
        bool is_limited = false;
        const tdm_status status =
            r->constraint->mask(r->constraint->state, e->mask, &is_limited, err);
        if (status != TDM_OK) return status;
        if (is_limited) change.mask = e->mask;
    }
    *row = llm_row_changed(row, &change, e->logits);
    return TDM_OK;
}

/* The logarithm of the sum of the exponentials of a row. NaN counts as -inf. */
static double log_sum(const llm_row *row) {
    float most = -INFINITY;
    double sum = 0;
    for (int32_t i = 0; i < row->n; i++)
        if (row->logits[i] > most) most = row->logits[i];
    if (most == -INFINITY) return 0;
    for (int32_t i = 0; i < row->n; i++)
        if (row->logits[i] > -INFINITY) sum += exp((double)row->logits[i] - (double)most);
    return (double)most + log(sum);
}

/* The n most likely tokens of a row, the best first; returns how many have a probability. */
static int32_t top_find(const llm_row *row, int32_t n, server_logprob *top) {
    int32_t count = 0;
    for (int32_t i = 0; i < row->n; i++) {
        const float logit = row->logits[i];
        if (!(logit > -INFINITY) || (count == n && !(logit > top[n - 1].logprob))) continue;
        int32_t at = count < n ? count++ : n - 1;
        for (; at > 0 && logit > top[at - 1].logprob; at--) top[at] = top[at - 1];
        top[at] = (server_logprob){i, logit};
    }
    return count;
}

/* Fills in the probabilities of an event. */
static void probabilities_fill(server_engine *e, const server_job *job, const llm_row *row,
                               server_token *event) {
    const server_request *r = &job->request;
    if (!r->wants_logprobs && r->n_top == 0) return;
    const double sum = log_sum(row);
    event->logprob = (float)((double)row->logits[event->token] - sum);
    if (r->n_top == 0) return;
    event->n_top = top_find(row, r->n_top, e->top);
    for (int32_t i = 0; i < event->n_top; i++)
        e->top[i].logprob = (float)((double)e->top[i].logprob - sum);
    event->top = e->top;
}

/* Picks a token from the row as the request changes it, and appends it. */
static tdm_status token_pick(server_engine *e, server_job *job, const llm_row *whole,
                             int32_t *token_out, tdm_error *err) {
    llm_row row = *whole;
    tdm_status status = row_change(e, job, &row, err);
    if (status == TDM_OK) status = llm_sampler_pick(job->sampler, &row, token_out, err);
    if (status == TDM_OK) status = server_job_append(job, *token_out, err);
    if (status != TDM_OK) return status;
    llm_sampler_accept(job->sampler, *token_out);
    const llm_constraint *c = job->request.constraint;
    return c != NULL ? c->accept(c->state, *token_out, err) : TDM_OK;
}

void server_draw(server_engine *e, server_job *job) {
    const server_request *r = &job->request;
    const llm_row whole = llm_context_row(e->ctx, job->row);
    tdm_error err = {0};
    server_token event = {.index = job->usage.n_generated};
    tdm_status status = whole.n > 0 ? token_pick(e, job, &whole, &event.token, &err)
                                    : tdm_fail(&err, TDM_INTERNAL, "a request has no logits");
    /* Models may have more logits than the tokenizer has tokens: such an id has no text. */
    llm_vocab_str text = {0};
    if (status == TDM_OK && job->detok != NULL && event.token < llm_vocab_n_token(e->vocab))
        status = llm_detok_push(job->detok, event.token, &text, &err);
    if (status != TDM_OK) {
        server_job_fail(job, status, &err);
        return;
    }
    if (job->first_ns == 0) job->first_ns = server_clock();
    job->usage.n_generated++;
    e->tally.n_generated++;
    probabilities_fill(e, job, &whole, &event);
    event.text = text.ptr;
    event.len = text.len;
    const bool goes_on = r->sink.token(r->sink.user, job->id, &event);
    if (server_job_ends(job, e->vocab, event.token)) {
        job->stop_token = event.token;
        server_job_end(job, SERVER_END_STOP);
    } else if (!goes_on) {
        server_job_end(job, SERVER_END_SINK);
    } else if (r->constraint != NULL && r->constraint->is_done != NULL &&
               r->constraint->is_done(r->constraint->state)) {
        server_job_end(job, SERVER_END_CONSTRAINT);
    } else if (job->usage.n_generated >= job->max_tokens) {
        /* max_tokens may be less than the client gave: then the context is the limit. */
        server_job_end(job,
                       job->max_tokens == r->max_tokens ? SERVER_END_LENGTH : SERVER_END_CONTEXT);
    }
}
