/* SPDX-License-Identifier: MIT
 *
 * job.c: checks and copies requests. What is done with them: engine.c.
 */
#include "server/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "llm/prompt.h"

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a request");
}

static tdm_status token_check(const char *what, int32_t i, int32_t token, int32_t n_vocab,
                              tdm_error *err) {
    if (token >= 0 && token < n_vocab) return TDM_OK;
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s %d: id %d; the vocabulary ends at %d", what, i,
                    token, n_vocab - 1);
}

static tdm_status count_check(const char *what, int32_t n, int32_t most, const void *items,
                              tdm_error *err) {
    if (n >= 0 && n <= most && (n == 0 || items != NULL)) return TDM_OK;
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "%d %s: expected 0 to %d", n, what, most);
}

/* Checks a prompt of a model with an encoder: the encoder's text, then the token that begins the
 * decoder's. A model without an encoder takes any prompt. */
static tdm_status encoded_check(const server_job_bounds *b, const server_request *r,
                                tdm_error *err) {
    const int32_t n = (int32_t)llm_prompt_encoded(b->model, r->prompt, (size_t)r->n_prompt);
    if (b->n_encode == 0) return TDM_OK;
    if (n == 0 || n == r->n_prompt)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "the prompt has %s token %d, which begins the decoder's text of '%s'",
                        n == 0 ? "nothing before" : "no", b->model->hparams.decoder_start,
                        b->model->hparams.arch);
    if (n <= b->n_encode) return TDM_OK;
    return tdm_fail(
        err, TDM_OUT_OF_RANGE,
        "prompt is too long: %d tokens > %d maximum; the encoder of '%s' reads it in one "
        "step: shorten the prompt or raise ubatch-size",
        n, b->n_encode, b->model->hparams.arch);
}

static tdm_status request_check(const server_job_bounds *b, const server_request *r,
                                tdm_error *err) {
    if (r->struct_size != 0 && r->struct_size != sizeof *r)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "request of %zu bytes, expected %zu",
                        r->struct_size, sizeof *r);
    if (r->n_prompt < 1 || r->prompt == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "the prompt has no tokens");
    /* Clients shorten a conversation when a message has these words: "prompt is too long" is
     * Anthropic's, which Claude Code reads, "exceeds the available context size" llama-server's. */
    if (r->n_prompt >= b->n_ctx)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "prompt is too long: %d tokens > %d maximum; it exceeds the available "
                        "context size: shorten the prompt or raise ctx-size",
                        r->n_prompt, b->n_ctx - 1);
    if (r->max_tokens < 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "max_tokens %d: expected 1 or more, or 0 for no limit", r->max_tokens);
    if (r->sink.token == NULL || r->sink.finished == NULL || r->sink.failed == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "the request has no receiver of events");
    if (r->constraint != NULL && (r->constraint->mask == NULL || r->constraint->accept == NULL))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "the constraint has no functions");
    tdm_status status = count_check("biases", r->n_bias, SERVER_MAX_BIAS, r->bias, err);
    if (status == TDM_OK)
        status = count_check("stop tokens", r->n_stop, SERVER_MAX_STOP, r->stop_tokens, err);
    if (status == TDM_OK)
        status = count_check(
            "most likely tokens", r->n_top,
            b->n_vocab < SERVER_MAX_TOP_LOGPROB ? b->n_vocab : SERVER_MAX_TOP_LOGPROB, r, err);
    for (int32_t i = 0; i < r->n_prompt && status == TDM_OK; i++)
        status = token_check("token of the prompt", i, r->prompt[i], b->n_vocab, err);
    if (status == TDM_OK) status = encoded_check(b, r, err);
    for (int32_t i = 0; i < r->n_stop && status == TDM_OK; i++)
        status = token_check("stop token", i, r->stop_tokens[i], b->n_vocab, err);
    for (int32_t i = 0; i < r->n_bias && status == TDM_OK; i++) {
        status = token_check("bias", i, r->bias[i].token, b->n_vocab, err);
        if (status == TDM_OK && (isnan(r->bias[i].bias) || r->bias[i].bias == INFINITY))
            status = tdm_fail(err, TDM_INVALID_ARGUMENT, "bias %d: %g is no number to add", i,
                              (double)r->bias[i].bias);
    }
    if (status == TDM_OK &&
        (r->max_draft < -1 || r->min_draft < 0 || !(r->min_draft_p >= 0 && r->min_draft_p <= 1)))
        status =
            tdm_fail(err, TDM_INVALID_ARGUMENT,
                     "drafts: %d at most, %d at least, of probability %g: expected -1 or more, "
                     "0 or more, 0 to 1",
                     r->max_draft, r->min_draft, (double)r->min_draft_p);
    for (int32_t i = 0; i < b->n_adapter && r->scales != NULL && status == TDM_OK; i++)
        if (!isfinite(r->scales[i]))
            status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                              "the scale of adapter %d is not a finite number", i);
    return status;
}

/* The scope that a request has inside the engine: its own, mixed with its scales of adapters, so
 * that requests with different scales share no prefixes. */
static uint64_t scope_mix(uint64_t scope, const float *scales, int32_t n) {
    return n > 0 ? tdm_hash_add(scope ^ TDM_HASH_BEGIN, scales, (size_t)n * sizeof *scales) : scope;
}

/* A copy of n items; NULL for none. */
static void *items_copy(const void *items, int32_t n, size_t size, bool *is_ok) {
    if (n == 0) return NULL;
    void *copy = malloc((size_t)n * size);
    if (copy == NULL) {
        *is_ok = false;
        return NULL;
    }
    return memcpy(copy, items, (size_t)n * size);
}

tdm_status server_job_create(const server_job_bounds *b, const server_request *r,
                             server_job **job_out, tdm_error *err) {
    *job_out = NULL;
    tdm_status status = request_check(b, r, err);
    if (status != TDM_OK) return status;
    server_job *job = calloc(1, sizeof *job);
    if (job == NULL) return no_memory(err);
    bool is_ok = true;
    job->request = *r;
    job->entry = job->seq = job->row = job->stop_token = -1;
    job->tokens = items_copy(r->prompt, r->n_prompt, sizeof *job->tokens, &is_ok);
    job->n_tok = job->n_room = r->n_prompt;
    /* The last token of an answer needs no room in the context. */
    const int32_t room = b->n_ctx - r->n_prompt + 1;
    job->max_tokens = r->max_tokens > 0 && r->max_tokens < room ? r->max_tokens : room;
    job->bias = items_copy(r->bias, r->n_bias, sizeof *job->bias, &is_ok);
    job->stop_tokens = items_copy(r->stop_tokens, r->n_stop, sizeof *job->stop_tokens, &is_ok);
    job->request.prompt = job->tokens;
    job->request.bias = job->bias;
    job->request.stop_tokens = job->stop_tokens;
    job->request.constraint = NULL;
    if (b->n_adapter > 0)
        memcpy(job->scales, r->scales != NULL ? r->scales : b->scales,
               (size_t)b->n_adapter * sizeof *job->scales);
    job->request.scales = job->scales;
    job->request.scope = scope_mix(r->scope, job->scales, b->n_adapter);
    if (r->constraint != NULL) {
        llm_constraint *c = malloc(sizeof *c);
        if (c != NULL) *c = *r->constraint;
        is_ok = is_ok && c != NULL;
        job->request.constraint = c;
    }
    status = is_ok ? llm_sampler_create(&r->sampler, b->n_vocab, b->n_ctx, &job->sampler, err)
                   : no_memory(err);
    job->has_draft = b->has_draft && (b->is_draft_layer || r->max_draft >= 0);
    if (status == TDM_OK && b->has_draft && r->max_draft >= 0)
        status = llm_sampler_create(&r->sampler, b->n_vocab, b->n_ctx, &job->draft_sampler, err);
    if (status == TDM_OK && job->draft_sampler != NULL && r->constraint != NULL &&
        r->constraint->clone != NULL) {
        job->draft_constraint = *r->constraint;
        status = r->constraint->clone(r->constraint->state, &job->draft_constraint.state, err);
        if (status != TDM_OK) job->draft_constraint = (llm_constraint){0};
    }
    const unsigned flags = (r->shows_special ? LLM_DETOKENIZE_SPECIAL : 0u) |
                           (r->continues_text ? LLM_DETOKENIZE_CONTINUE : 0u);
    if (status == TDM_OK && b->vocab != NULL)
        status = llm_detok_create(b->vocab, flags, &job->detok, err);
    if (status != TDM_OK) {
        server_job_refuse(job);
        return status;
    }
    job->usage.n_prompt = r->n_prompt;
    *job_out = job;
    return TDM_OK;
}

void server_job_refuse(server_job *job) {
    if (job == NULL) return;
    free(job->tokens);
    free(job->bias);
    free(job->stop_tokens);
    free((void *)(uintptr_t)job->request.constraint); /* the copy of the struct */
    llm_sampler_destroy(job->sampler);
    llm_sampler_destroy(job->draft_sampler);
    if (job->draft_constraint.destroy != NULL)
        job->draft_constraint.destroy(job->draft_constraint.state);
    llm_detok_destroy(job->detok);
    free(job);
}

void server_job_destroy(server_job *job) {
    if (job == NULL) return;
    const llm_constraint *c = job->request.constraint;
    if (c != NULL && c->destroy != NULL) c->destroy(c->state);
    server_job_refuse(job);
}

void server_job_end(server_job *job, server_end end) {
    if (job->is_over) return;
    job->is_over = true;
    job->end = end;
}

void server_job_fail(server_job *job, tdm_status status, const tdm_error *error) {
    if (job->is_over) return;
    job->is_over = true;
    job->status = status;
    job->error = *error;
}

bool server_job_ends(const server_job *job, const llm_vocab *vocab, int32_t token) {
    for (int32_t i = 0; i < job->request.n_stop; i++)
        if (job->stop_tokens[i] == token) return true;
    return vocab != NULL && !job->request.ignores_end && llm_vocab_ends_generation(vocab, token);
}

tdm_status server_job_append(server_job *job, int32_t token, tdm_error *err) {
    if (job->n_tok == job->n_room) {
        const int32_t n_room = job->n_room + (job->n_room < 256 ? 256 : job->n_room / 2);
        int32_t *grown = realloc(job->tokens, (size_t)n_room * sizeof *grown);
        if (grown == NULL) return no_memory(err);
        job->tokens = grown;
        job->request.prompt = grown;
        job->n_room = n_room;
    }
    job->tokens[job->n_tok++] = token;
    return TDM_OK;
}
