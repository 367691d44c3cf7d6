/* SPDX-License-Identifier: MIT
 *
 * engine_embed.c: vectors and scores of texts, computed in a context of their own between the steps
 * of the other requests: one text at a time, in parts no larger than those of prompts. A text of a
 * model whose tokens attend to later ones is computed whole.
 */
#include <stdlib.h>
#include <string.h>

#include "server/engine_internal.h"

static void embed_destroy(server_embed_job *job) {
    if (job == NULL) return;
    free(job->tokens);
    free(job->rows);
    free(job);
}

static tdm_status request_check(const server_engine *e, const server_embedding_request *r,
                                tdm_error *err) {
    if (e->embed_ctx == NULL)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "this server gives no embeddings; start it with 'embeddings' on");
    if (r->struct_size != 0 && r->struct_size != sizeof *r)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "request of %zu bytes, expected %zu",
                        r->struct_size, sizeof *r);
    if (r->n_tok < 1 || r->tokens == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "the text has no tokens");
    if (r->done == NULL || r->normalize < -1 || r->pooling <= LLM_POOLING_NONE ||
        r->pooling > LLM_POOLING_RANK)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "an embedding with normalize %d, pooling %d: expected -1 or more, and a "
                        "pooling that gives one vector",
                        r->normalize, (int)r->pooling);
    if (r->pooling == LLM_POOLING_RANK && e->score_head == NULL)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s has no head that scores texts (tensors cls.weight, cls.output.weight): "
                        "it is no reranker",
                        e->model->path);
    const int32_t most = server_engine_text_max(e);
    if (r->n_tok > most)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "the text has %d tokens, there is room for %d; shorten it, or raise %s",
                        r->n_tok, most,
                        e->model->hparams.is_bidirectional ? "ubatch-size" : "ctx-size");
    for (int32_t i = 0; i < r->n_tok; i++)
        if (r->tokens[i] < 0 || r->tokens[i] >= e->n_vocab)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "token %d of the text: id %d; the vocabulary ends at %d", i,
                            r->tokens[i], e->n_vocab - 1);
    return TDM_OK;
}

static tdm_status embed_create(const server_embedding_request *r, uint64_t now,
                               server_embed_job **out, tdm_error *err) {
    server_embed_job *job = calloc(1, sizeof *job);
    if (job != NULL) job->tokens = malloc((size_t)r->n_tok * sizeof *job->tokens);
    if (job == NULL || job->tokens == NULL) {
        embed_destroy(job);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a request");
    }
    memcpy(job->tokens, r->tokens, (size_t)r->n_tok * sizeof *job->tokens);
    job->request = *r;
    job->request.tokens = job->tokens;
    job->deadline = server_engine_deadline(now, r->total_limit);
    *out = job;
    return TDM_OK;
}

tdm_status server_engine_embed(server_engine *e, const server_embedding_request *r,
                               server_request_id *id_out, uint64_t *retry_ns_out, tdm_error *err) {
    server_embed_job *job = NULL;
    tdm_status status = request_check(e, r, err);
    if (status == TDM_OK) status = embed_create(r, server_clock(), &job, err);
    pthread_mutex_lock(&e->lock);
    if (retry_ns_out != NULL) *retry_ns_out = 0;
    if (status == TDM_OK && (e->is_draining || e->is_stopping))
        status = tdm_fail(err, TDM_UNAVAILABLE, "the server is shutting down");
    if (status == TDM_OK && e->n_embed >= e->limits.n_queued) {
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%d texts wait, the most there may be",
                          e->n_embed);
        if (retry_ns_out != NULL) *retry_ns_out = server_engine_retry(e);
    }
    if (status == TDM_OK) {
        job->id = *id_out = e->next_id++;
        *e->embeds_link = job;
        e->embeds_link = &job->next;
        e->n_embed++;
        e->n_open++;
        e->stats.n_submitted++;
        pthread_cond_signal(&e->work);
    } else {
        e->stats.n_refused++;
    }
    pthread_mutex_unlock(&e->lock);
    if (status != TDM_OK) embed_destroy(job);
    return status;
}

int32_t server_engine_text_max(const server_engine *e) {
    return e->model->hparams.is_bidirectional ? e->n_embed_step : e->n_embed_ctx;
}

uint64_t server_embed_deadline(const server_engine *e) {
    uint64_t at = 0;
    for (const server_embed_job *job = e->embeds; job != NULL; job = job->next)
        if (job->deadline != 0 && (at == 0 || job->deadline < at)) at = job->deadline;
    return at;
}

/* Takes the request that *link points to out of the list. The lock is held. */
static server_embed_job *embed_unlink(server_engine *e, server_embed_job **link) {
    server_embed_job *job = *link;
    *link = job->next;
    if (e->embeds_link == &job->next) e->embeds_link = link;
    e->n_embed--;
    return job;
}

/* Counts the end of a request. The lock is held. */
static void end_count(server_stats *stats, tdm_status status) {
    switch (status) {
    case TDM_OK: stats->n_ended[SERVER_END_STOP]++; break;
    case TDM_CANCELLED: stats->n_ended[SERVER_END_CANCELLED]++; break;
    case TDM_DEADLINE_EXCEEDED: stats->n_ended[SERVER_END_DEADLINE]++; break;
    default: stats->n_failed++; break;
    }
}

/* Counts the end, sends the last event, with a vector of n numbers where the request succeeded, and
 * frees it. */
static void embed_end(server_engine *e, server_embed_job *job, tdm_status status,
                      const char *message, int32_t n) {
    const server_embedding_request *r = &job->request;
    pthread_mutex_lock(&e->lock);
    end_count(&e->stats, status);
    pthread_mutex_unlock(&e->lock);
    r->done(r->user, job->id, status, status == TDM_OK ? NULL : message, n > 0 ? e->vector : NULL,
            n);
    embed_destroy(job);
    server_engine_closed(e);
}

/* Ends those that were cancelled or are late. */
static void embeds_sweep(server_engine *e) {
    for (;;) {
        const uint64_t now = server_clock();
        tdm_status status = TDM_OK;
        server_embed_job *job = NULL;
        pthread_mutex_lock(&e->lock);
        for (server_embed_job **link = &e->embeds; *link != NULL; link = &(*link)->next) {
            const bool is_late = ((*link)->deadline != 0 && (*link)->deadline <= now) ||
                                 (e->is_draining && e->drain_at <= now);
            if (!is_late && !(*link)->is_cancelled && !e->is_stopping) continue;
            status = is_late ? TDM_DEADLINE_EXCEEDED : TDM_CANCELLED;
            job = embed_unlink(e, link);
            break;
        }
        pthread_mutex_unlock(&e->lock);
        if (job == NULL) return;
        embed_end(e, job, status,
                  status == TDM_CANCELLED ? "the request was cancelled"
                                          : "the request was not done before its deadline",
                  0);
    }
}

/* Computes the hidden states of the next n tokens of a text. The first part empties the context's
 * only sequence and sets the adapters' scales of this text. */
static tdm_status rows_compute(server_engine *e, server_embed_job *job, int32_t n, tdm_error *err) {
    const size_t n_embd = (size_t)e->n_embd;
    if (job->rows == NULL) {
        job->rows = malloc((size_t)job->request.n_tok * n_embd * sizeof *job->rows);
        if (job->rows == NULL)
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the states of %d tokens",
                            job->request.n_tok);
        float scales[LLM_MAX_ADAPTERS];
        (void)llm_context_truncate(e->embed_ctx, 0, 0, NULL);
        server_engine_get_scales(e, scales);
        (void)llm_context_set_scales(e->embed_ctx, 0, scales, NULL); /* it is empty */
    }
    const llm_batch batch = {
        .tokens = job->tokens + job->n_done, .n_tok = n, .role = TDM_ROLE_PROMPT};
    const tdm_status status = llm_context_decode(e->embed_ctx, &batch, err);
    server_probe_note(e, status, err);
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < n; i++)
        memcpy(job->rows + (size_t)(job->n_done + i) * n_embd, llm_context_hidden(e->embed_ctx, i),
               n_embd * sizeof *job->rows);
    job->n_done += n;
    return TDM_OK;
}

/* Writes the vector or the scores of a text whose tokens are all computed to e->vector; returns how
 * many numbers there are. */
static int32_t numbers_make(server_engine *e, const server_embed_job *job) {
    if (job->request.pooling == LLM_POOLING_RANK) {
        llm_score(e->score_head, job->rows, job->n_done, e->vector);
        return llm_score_count(e->score_head);
    }
    llm_pool(job->request.pooling, job->rows, job->n_done, e->n_embd, e->vector);
    llm_project(e->projection, e->vector);
    const int32_t n = llm_projection_width(e->projection, e->n_embd);
    llm_embedding_normalize(e->vector, n, job->request.normalize);
    return n;
}

bool server_embed_step(server_engine *e, bool is_shared) {
    tdm_error err = {0};
    embeds_sweep(e);
    pthread_mutex_lock(&e->lock);
    server_embed_job *job = e->embeds;
    pthread_mutex_unlock(&e->lock);
    if (job == NULL) return false;
    int32_t n = e->n_embed_step;
    if (is_shared && n > e->limits.n_prompt_step && !e->model->hparams.is_bidirectional)
        n = e->limits.n_prompt_step;
    if (n > job->request.n_tok - job->n_done) n = job->request.n_tok - job->n_done;
    const tdm_status status = rows_compute(e, job, n, &err);
    e->tally.n_embedded += status == TDM_OK ? (uint64_t)n : 0;
    if (status == TDM_OK && job->n_done < job->request.n_tok) return true;
    const int32_t n_number = status == TDM_OK ? numbers_make(e, job) : 0;
    pthread_mutex_lock(&e->lock);
    (void)embed_unlink(e, &e->embeds);
    pthread_mutex_unlock(&e->lock);
    embed_end(e, job, status, err.message, n_number);
    return true;
}
