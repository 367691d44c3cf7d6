/* SPDX-License-Identifier: MIT
 *
 * engine.c: the engine's thread and its loop, and the calls of other threads. Sequences and pages:
 * engine_memory.c. A step: engine_step.c. Sampling: engine_draw.c. Vectors: engine_embed.c.
 * Drafts: engine_draft.c. What follows a failed step: engine_probe.c.
 *
 * The thread repeats: take out what has ended; admit; compute a step; draw and send tokens. It
 * waits on a condition variable while there is nothing to do.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "llm/arch/arch.h"
#include "llm/arch/forward_graph.h"
#include "server/engine_internal.h"

#define DEFAULT_RUNNING     16
#define DEFAULT_HELD        32
#define DEFAULT_QUEUED      256
#define DEFAULT_PROMPT_STEP 128
#define DEFAULT_RETRY_NS    ((uint64_t)1000000000)
#define DEFAULT_PROBE_NS    ((uint64_t)1000000000)
#define RETRY_LEAST_NS      ((uint64_t)50000000)
#define RETRY_MOST_NS       ((uint64_t)60000000000)

uint64_t server_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const char *server_end_name(server_end end) {
    static const char *const names[SERVER_END_COUNT_] = {
        "stop", "length", "context", "constraint", "sink", "cancelled", "deadline"};
    return (unsigned)end < SERVER_END_COUNT_ ? names[end] : "?";
}

/* ---- Ends ---- */

/* Takes a request out of the lists, for jobs_close. The lock is held. */
static void job_unlink(server_engine *e, server_job **link) {
    server_job *job = *link;
    *link = job->next;
    if (e->last_link == &job->next) e->last_link = link;
    e->by_entry[job->entry] = NULL;
    server_schedule_remove(e->schedule, job->entry);
    job->entry = -1;
    job->next = e->over;
    e->over = job;
}

/* Ends requests that are cancelled or late, and takes them, and those that ended in the last step,
 * out of the list. The lock is held. */
static void jobs_sweep(server_engine *e, uint64_t now) {
    const bool is_late = e->is_draining && e->drain_at <= now;
    for (int32_t entry; (entry = server_schedule_expired(e->schedule, now)) >= 0;) {
        server_job **link = &e->first;
        while (*link != e->by_entry[entry]) link = &(*link)->next;
        server_job_end(*link, SERVER_END_DEADLINE);
        job_unlink(e, link);
    }
    for (server_job **link = &e->first; *link != NULL;) {
        server_job *job = *link;
        if (job->is_cancelled || e->is_stopping) server_job_end(job, SERVER_END_CANCELLED);
        if (is_late) server_job_end(job, SERVER_END_DEADLINE);
        if (job->is_over)
            job_unlink(e, link);
        else
            link = &job->next;
    }
}

static void usage_finish(server_job *job, uint64_t now) {
    server_usage *u = &job->usage;
    u->queue_ns = (job->begin_ns != 0 ? job->begin_ns : now) - job->submit_ns;
    if (job->begin_ns != 0)
        u->prompt_ns = (job->first_ns != 0 ? job->first_ns : now) - job->begin_ns;
    if (job->first_ns != 0) u->answer_ns = now - job->first_ns;
}

void server_engine_closed(server_engine *e) {
    pthread_mutex_lock(&e->lock);
    if (--e->n_open == 0) pthread_cond_broadcast(&e->idle);
    pthread_mutex_unlock(&e->lock);
}

/* Sends the last event of a request and frees it. */
static void job_close(server_engine *e, server_job *job) {
    const server_sink *sink = &job->request.sink;
    const uint64_t now = server_clock();
    server_memory_leave(e, job, job->status == TDM_OK);
    usage_finish(job, now);
    pthread_mutex_lock(&e->lock);
    if (job->status == TDM_OK)
        e->stats.n_ended[job->end]++;
    else
        e->stats.n_failed++;
    if (e->last_end != 0) {
        const uint64_t interval = now - e->last_end;
        e->end_interval = e->end_interval == 0 ? interval : (7 * e->end_interval + interval) / 8;
    }
    e->last_end = now;
    pthread_mutex_unlock(&e->lock);
    if (job->status != TDM_OK) {
        sink->failed(sink->user, job->id, job->status, job->error.message);
    } else {
        llm_vocab_str text = {0};
        if (job->detok != NULL) text = llm_detok_flush(job->detok);
        const server_result result = {.end = job->end,
                                      .stop_token = job->stop_token,
                                      .text = text.ptr,
                                      .len = text.len,
                                      .usage = job->usage};
        sink->finished(sink->user, job->id, &result);
    }
    server_job_destroy(job);
    server_engine_closed(e);
}

/* Closes what job_unlink has taken out, the oldest first. */
static void jobs_close(server_engine *e) {
    server_job *oldest = NULL;
    while (e->over != NULL) {
        server_job *job = e->over;
        e->over = job->next;
        job->next = oldest;
        oldest = job;
    }
    while (oldest != NULL) {
        server_job *job = oldest;
        oldest = job->next;
        job_close(e, job);
    }
}

/* ---- Admission ---- */

/* Takes requests that are paused out of their sequences, which are then held as finished ones
 * are. */
static void paused_leave(server_engine *e) {
    for (;;) {
        server_job *job;
        pthread_mutex_lock(&e->lock);
        for (job = e->first; job != NULL; job = job->next)
            if (job->is_paused && job->seq >= 0) break;
        if (job != NULL) server_schedule_preempt(e->schedule, job->entry);
        pthread_mutex_unlock(&e->lock);
        if (job == NULL) return;
        server_memory_leave(e, job, true);
    }
}

/* Notes what counts only when a request is admitted for the first time. */
static void job_begin(server_engine *e, server_job *job, int32_t n_done) {
    const int32_t n_cached = n_done < job->usage.n_prompt ? n_done : job->usage.n_prompt;
    if (job->has_begun) return;
    job->has_begun = true;
    job->begin_ns = server_clock();
    job->usage.n_cached = n_cached;
    e->tally.n_prompt_cached += (uint64_t)n_cached;
    for (int32_t i = 0; i < job->n_tok; i++) llm_sampler_accept(job->sampler, job->tokens[i]);
}

/* Admits requests while there is room. */
static void jobs_admit(server_engine *e) {
    paused_leave(e);
    for (;;) {
        int32_t n_done = 0;
        pthread_mutex_lock(&e->lock);
        const int32_t entry = server_schedule_next(e->schedule);
        server_job *job = entry >= 0 ? e->by_entry[entry] : NULL;
        const bool is_first = server_schedule_count(e->schedule).n_running == 0;
        pthread_mutex_unlock(&e->lock);
        if (job == NULL) break;
        const server_admission admission = server_memory_admit(e, job, is_first, &n_done);
        if (admission == SERVER_ADMITTED) job_begin(e, job, n_done);
        pthread_mutex_lock(&e->lock);
        if (admission == SERVER_ADMITTED)
            server_schedule_admit(e->schedule, entry, n_done);
        else if (admission == SERVER_ADMIT_LATER)
            server_schedule_defer(e->schedule, entry);
        pthread_mutex_unlock(&e->lock);
        if (admission == SERVER_ADMIT_FULL) break;
    }
    pthread_mutex_lock(&e->lock);
    server_schedule_defer_end(e->schedule);
    pthread_mutex_unlock(&e->lock);
}

/* ---- The thread ---- */

static server_request_state state_of(const server_engine *e, const server_job *job) {
    if (job->is_paused) return SERVER_PAUSED;
    switch (server_schedule_state(e->schedule, job->entry)) {
    case SERVER_ENTRY_READING: return SERVER_READING;
    case SERVER_ENTRY_GENERATING: return SERVER_GENERATING;
    case SERVER_ENTRY_PREEMPTED: return SERVER_PREEMPTED;
    default: return SERVER_QUEUED;
    }
}

/* Adds what the thread has counted to the totals that other threads read. The lock is held. */
static void publish(server_engine *e) {
    server_stats *s = &e->stats, *t = &e->tally;
    s->n_step += t->n_step;
    s->n_prompt_computed += t->n_prompt_computed;
    s->n_prompt_cached += t->n_prompt_cached;
    s->n_generated += t->n_generated;
    s->n_replayed += t->n_replayed;
    s->n_preempted += t->n_preempted;
    s->n_evicted += t->n_evicted;
    s->n_draft += t->n_draft;
    s->n_draft_accepted += t->n_draft_accepted;
    s->n_probe += t->n_probe;
    s->n_embedded += t->n_embedded;
    s->busy_ns += t->busy_ns;
    memset(t, 0, sizeof *t);
    s->has_failed = e->has_failed;
    s->failure = e->failure;
    s->n_held = e->prefix != NULL ? server_prefix_held(e->prefix) : 0;
    if (e->ctx != NULL) s->n_page = llm_context_pages(e->ctx, &s->n_page_free);
    for (server_job *job = e->first; job != NULL; job = job->next) {
        job->info.seq = job->seq;
        job->info.usage = job->usage;
        job->info.n_done = server_schedule_done(e->schedule, job->entry);
    }
}

static bool has_work(const server_engine *e) {
    const server_schedule_counts c = server_schedule_count(e->schedule);
    return c.n_queued + c.n_running + c.n_preempted > c.n_paused || e->embeds != NULL;
}

/* Sets *at to the earlier of two times; 0 = no time. */
static void earliest(uint64_t *at, uint64_t other) {
    if (other != 0 && (*at == 0 || other < *at)) *at = other;
}

/* Waits for work, or for the next deadline or probe. The lock is held. */
static void work_wait(server_engine *e) {
    uint64_t at = server_schedule_next_deadline(e->schedule);
    earliest(&at, e->probe_at);
    earliest(&at, server_embed_deadline(e));
    if (e->n_open > 0 && e->is_draining) earliest(&at, e->drain_at);
    if (at == 0) {
        pthread_cond_wait(&e->work, &e->lock);
        return;
    }
    const struct timespec until = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
    (void)pthread_cond_timedwait(&e->work, &e->lock, &until);
}

/* Computes the next step of requests and a part of a vector. Where there is neither, a probe that
 * is due. */
static void work_do(server_engine *e) {
    const uint64_t start = server_clock();
    int32_t n = 0;
    if (e->ctx != NULL) {
        jobs_admit(e);
        n = server_step_plan(e);
        if (n > 0) server_step_run(e, n);
    }
    const bool has_text = server_embed_step(e, n > 0);
    if (!has_text && n == 0 && server_probe_is_due(e, start)) server_probe_step(e);
    const uint64_t now = server_clock();
    e->tally.busy_ns += now - start;
    pthread_mutex_lock(&e->lock);
    e->stats.last_step_ns = now;
    publish(e);
    pthread_mutex_unlock(&e->lock);
}

static void *engine_main(void *argument) {
    server_engine *e = argument;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        for (;;) {
            jobs_sweep(e, server_clock());
            if (e->over != NULL || has_work(e) || e->is_stopping ||
                server_probe_is_due(e, server_clock()))
                break;
            work_wait(e);
        }
        const bool is_done = e->is_stopping && e->over == NULL && e->n_open == 0;
        pthread_mutex_unlock(&e->lock);
        if (is_done) return NULL;
        jobs_close(e);
        work_do(e);
    }
}

/* ---- Creation ---- */

static int32_t or_default(int32_t value, int32_t otherwise) {
    return value != 0 ? value : otherwise;
}

static bool model_has_window(const llm_model *m) {
    for (int32_t l = 0; l < m->hparams.n_layer; l++)
        if (llm_layer_has_window(&m->specs[l])) return true;
    return false;
}

/* Fills in the defaults of the numbers of sequences. */
static void sequences_fill(const llm_model *model, server_limits *l) {
    const bool grows = llm_model_is_recurrent(model) || model_has_window(model);
    l->n_running = or_default(l->n_running, DEFAULT_RUNNING);
    if (l->n_held == 0) {
        l->n_held = grows ? l->n_running : DEFAULT_HELD;
        /* limits_fill refuses negative numbers later */
        const int32_t room = l->n_running < 0 ? 0 : LLM_MAX_SEQ - l->n_running;
        if (l->n_held > room) l->n_held = room;
    }
    if (l->n_held < 0) l->n_held = 0;
}

int32_t server_engine_n_seq(const llm_model *model, const server_limits *limits) {
    server_limits l = *limits;
    sequences_fill(model, &l);
    return l.n_running + l.n_held;
}

static tdm_status limits_fill(server_engine *e, const server_limits *given, tdm_error *err) {
    server_limits *l = &e->limits;
    *l = *given;
    sequences_fill(e->model, l);
    l->n_queued = or_default(l->n_queued, DEFAULT_QUEUED);
    l->n_queued_key = or_default(l->n_queued_key, l->n_queued);
    l->n_prompt_step = or_default(l->n_prompt_step, DEFAULT_PROMPT_STEP);
    if (l->retry_ns == 0) l->retry_ns = DEFAULT_RETRY_NS;
    if (l->probe_ns == 0) l->probe_ns = DEFAULT_PROBE_NS;
    if (l->n_running < 1 || l->n_running > LLM_MAX_SEQ || l->n_held > LLM_MAX_SEQ - l->n_running)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%d running and %d held sequences: at least 1 and 0, at most %d together",
                        l->n_running, l->n_held, LLM_MAX_SEQ);
    e->n_seq = l->n_running + l->n_held;
    return TDM_OK;
}

/* Tokens of a step of a context. */
static int32_t step_size(const llm_context_params *p, const llm_context *ctx) {
    const int32_t n = p->n_ubatch != 0 ? p->n_ubatch : LLM_N_UBATCH_DEFAULT;
    return n < llm_context_n_ctx(ctx) ? n : llm_context_n_ctx(ctx);
}

/* For models with an encoder, which reads a prompt whole. A step takes every prompt whole, however
 * many there are; the context divides a batch that does not fit its own steps. So the largest step
 * is that of n_running prompts, and one prompt is limited by the context's step. */
static tdm_status whole_prompts_make(server_engine *e, tdm_error *err) {
    const int64_t n = (int64_t)e->limits.n_running * e->n_ctx;
    if (n > LLM_MAX_CTX)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "%d requests of %d tokens are more than %d at once; lower ctx-size or "
                        "parallel",
                        e->limits.n_running, e->n_ctx, LLM_MAX_CTX);
    e->n_encode = e->n_step;
    e->n_step = (int32_t)n + 1; /* the schedule takes only more than n_running */
    e->limits.n_prompt_step = e->n_step;
    return TDM_OK;
}

static tdm_status contexts_create(server_engine *e, const server_engine_params *p, tdm_error *err) {
    const bool is_encoder = e->model->arch->is_encoder;
    if (is_encoder && !p->gives_embeddings)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: '%s' is an encoder: it gives embeddings of texts and continues none; "
                        "turn 'embeddings' on",
                        e->model->path, e->model->hparams.arch);
    llm_context_params params = p->context;
    params.n_seq = e->n_seq;
    params.gives_embeddings = false;
    params.gives_hidden = p->draft != NULL && p->draft->lender != NULL;
    tdm_status status = is_encoder ? TDM_OK : llm_context_create(e->model, &params, &e->ctx, err);
    if (status == TDM_OK && e->ctx != NULL) {
        e->n_ctx = llm_context_n_ctx(e->ctx);
        e->n_step = step_size(&params, e->ctx);
        if (e->model->hparams.n_layer_encoder > 0) status = whole_prompts_make(e, err);
    }
    if (status == TDM_OK && e->ctx != NULL) {
        e->is_recurrent = llm_model_is_recurrent(e->model);
        e->is_restricted = e->is_recurrent || llm_context_has_window(e->ctx);
    }
    if (status == TDM_OK) status = server_draft_create(e, p, err);
    if (status != TDM_OK || !p->gives_embeddings) return status;
    params = p->embedding;
    params.n_seq = 1;
    params.gives_hidden = false;
    params.gives_embeddings = true;
    status = llm_context_create(e->model, &params, &e->embed_ctx, err);
    if (status != TDM_OK) return status;
    e->n_embed_ctx = llm_context_n_ctx(e->embed_ctx);
    e->n_embed_step = step_size(&params, e->embed_ctx);
    status = llm_projection_read(e->model, &e->projection, err);
    return status == TDM_OK ? llm_score_head_read(e->model, &e->score_head, err) : status;
}

static void *array_make(int32_t n, size_t size, bool *is_ok) {
    void *array = calloc((size_t)(n > 0 ? n : 1), size);
    *is_ok = *is_ok && array != NULL;
    return array;
}

static tdm_status arrays_create(server_engine *e, tdm_error *err) {
    bool is_ok = true;
    int32_t n_token = e->vocab != NULL ? llm_vocab_n_token(e->vocab) : 0;
    if (n_token > e->n_vocab) n_token = e->n_vocab;
    const int32_t *suppressed =
        e->vocab != NULL ? llm_vocab_suppressed(e->vocab, &e->n_suppressed) : NULL;
    for (int32_t id = 0; id < n_token; id++) e->n_end += llm_vocab_ends_generation(e->vocab, id);
    e->is_taken = array_make(e->n_seq, sizeof *e->is_taken, &is_ok);
    e->items = array_make(e->limits.n_running, sizeof *e->items, &is_ok);
    e->jobs = array_make(e->limits.n_running, sizeof(server_job *), &is_ok);
    e->tokens = array_make(e->n_step, sizeof *e->tokens, &is_ok);
    e->seqs = array_make(e->n_step, sizeof *e->seqs, &is_ok);
    e->roles = array_make(e->n_step, sizeof *e->roles, &is_ok);
    e->wanted = array_make(e->n_step, sizeof *e->wanted, &is_ok);
    e->bars = array_make(e->n_suppressed + e->n_end, sizeof *e->bars, &is_ok);
    e->logits = array_make(e->n_vocab, sizeof *e->logits, &is_ok);
    e->mask = array_make((e->n_vocab + 63) / 64, sizeof *e->mask, &is_ok);
    e->top = array_make(SERVER_MAX_TOP_LOGPROB, sizeof *e->top, &is_ok);
    const int32_t n_score = e->score_head != NULL ? llm_score_count(e->score_head) : 0;
    int32_t n_most = llm_projection_width(e->projection, e->n_embd);
    if (n_most < e->n_embd) n_most = e->n_embd;
    e->vector = array_make(n_score > n_most ? n_score : n_most, sizeof *e->vector, &is_ok);
    if (!is_ok) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the engine");
    int32_t n = 0;
    for (; n < e->n_suppressed; n++) e->bars[n] = suppressed[n];
    for (int32_t id = 0; id < n_token; id++)
        if (llm_vocab_ends_generation(e->vocab, id)) e->bars[n++] = id;
    return TDM_OK;
}

static tdm_status schedule_create(server_engine *e, tdm_error *err) {
    const server_limits *l = &e->limits;
    const server_schedule_params params = {
        .n_running = l->n_running,
        .n_queued = l->n_queued,
        .n_queued_key = l->n_queued_key,
        /* An encoder has no steps, but the schedule takes only more than n_running. */
        .n_step = e->ctx != NULL ? e->n_step : l->n_running + 1,
        .n_prompt_step = l->n_prompt_step,
        .splits_end = e->is_recurrent,
    };
    tdm_status status = server_schedule_create(&params, &e->schedule, err);
    if (status == TDM_OK) status = server_prefix_create(e->n_seq, &e->prefix, err);
    return status;
}

static void engine_free(server_engine *e) {
    server_draft_free(e);
    llm_context_destroy(e->ctx);
    llm_context_destroy(e->embed_ctx);
    server_schedule_destroy(e->schedule);
    server_prefix_destroy(e->prefix);
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->work);
    pthread_cond_destroy(&e->idle);
    free(e->by_entry);
    free(e->is_taken);
    free(e->items);
    free(e->jobs);
    free(e->tokens);
    free(e->seqs);
    free(e->roles);
    free(e->wanted);
    free(e->bars);
    free(e->logits);
    free(e->mask);
    free(e->top);
    free(e->vector);
    llm_projection_free(e->projection);
    llm_score_head_free(e->score_head);
    free(e);
}

/* Makes the lock, and condition variables whose timeouts are times of server_clock. */
static void conditions_create(server_engine *e) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&e->work, &attr);
    pthread_cond_init(&e->idle, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_init(&e->lock, NULL);
}

tdm_status server_engine_create(llm_model *model, const server_engine_params *params,
                                server_engine **engine_out, tdm_error *err) {
    *engine_out = NULL;
    server_engine *e = calloc(1, sizeof *e);
    if (e == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the engine");
    conditions_create(e);
    e->model = model;
    e->n_vocab = model->hparams.n_vocab;
    e->n_embd = model->hparams.n_embd;
    e->gives_candidates = params->gives_candidates;
    for (int32_t i = 0; i < model->n_adapter; i++) e->scales[i] = model->adapters[i].scale;
    e->next_id = 1;
    e->last_link = &e->first;
    e->embeds_link = &e->embeds;
    (void)llm_model_vocab(model, &e->vocab, NULL); /* without it, answers have no text */
    e->device_noted = params->device_noted;
    e->device_noted_user = params->device_noted_user;
    tdm_status status = limits_fill(e, &params->limits, err);
    if (status == TDM_OK) status = contexts_create(e, params, err);
    if (status == TDM_OK) status = arrays_create(e, err);
    if (status == TDM_OK) status = schedule_create(e, err);
    if (status == TDM_OK) publish(e); /* no other thread has it yet */
    if (status == TDM_OK) {
        const int failed = pthread_create(&e->thread, NULL, engine_main, e);
        if (failed != 0)
            status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no thread for the engine: %s",
                              strerror(failed));
    }
    if (status != TDM_OK) {
        engine_free(e);
        return status;
    }
    *engine_out = e;
    return TDM_OK;
}

void server_engine_stop(server_engine *e) {
    if (e == NULL) return;
    pthread_mutex_lock(&e->lock);
    const bool is_first = !e->is_stopping;
    e->is_stopping = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
    if (is_first) pthread_join(e->thread, NULL);
}

void server_engine_destroy(server_engine *e) {
    if (e == NULL) return;
    server_engine_stop(e);
    engine_free(e);
}

/* ---- Other threads ---- */

uint64_t server_engine_retry(const server_engine *e) {
    if (e->end_interval == 0) return e->limits.retry_ns;
    if (e->end_interval < RETRY_LEAST_NS) return RETRY_LEAST_NS;
    return e->end_interval < RETRY_MOST_NS ? e->end_interval : RETRY_MOST_NS;
}

/* now + limit, or the largest time where that overflows. */
static uint64_t time_after(uint64_t now, uint64_t limit) {
    return limit < UINT64_MAX - now ? now + limit : UINT64_MAX;
}

uint64_t server_engine_deadline(uint64_t now, uint64_t limit) {
    return limit == 0 ? 0 : time_after(now, limit);
}

/* Makes room for an entry in by_entry. The lock is held. */
static tdm_status entry_room(server_engine *e, int32_t entry, tdm_error *err) {
    if (entry < e->n_by_entry) return TDM_OK;
    const int32_t n = entry + 64;
    server_job **grown = realloc(e->by_entry, (size_t)n * sizeof(server_job *));
    if (grown == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a request");
    memset(grown + e->n_by_entry, 0, (size_t)(n - e->n_by_entry) * sizeof(server_job *));
    e->by_entry = grown;
    e->n_by_entry = n;
    return TDM_OK;
}

tdm_status server_engine_set_scales(server_engine *e, const float *scales, tdm_error *err) {
    const int32_t n = e->model->n_adapter;
    for (int32_t i = 0; i < n; i++)
        if (!isfinite(scales[i]))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "the scale of adapter %d is not a finite number", i);
    pthread_mutex_lock(&e->lock);
    if (n > 0) memcpy(e->scales, scales, (size_t)n * sizeof *scales);
    pthread_mutex_unlock(&e->lock);
    return TDM_OK;
}

void server_engine_get_scales(server_engine *e, float *scales_out) {
    const int32_t n = e->model->n_adapter;
    pthread_mutex_lock(&e->lock);
    if (n > 0) memcpy(scales_out, e->scales, (size_t)n * sizeof *scales_out);
    pthread_mutex_unlock(&e->lock);
}

/* Queues a checked request. The lock is held. */
static tdm_status job_queue(server_engine *e, server_job *job, uint64_t *retry_ns, tdm_error *err) {
    const server_request *r = &job->request;
    const uint64_t now = server_clock();
    const server_entry_params params = {
        .n_known = job->n_tok,
        .key = r->key,
        .priority = r->priority,
        .queue_deadline = server_engine_deadline(now, r->queue_limit),
        .first_deadline = server_engine_deadline(now, r->first_limit),
        .total_deadline = server_engine_deadline(now, r->total_limit)};
    if (e->is_draining || e->is_stopping)
        return tdm_fail(err, TDM_UNAVAILABLE, "the server is shutting down");
    tdm_status status = server_schedule_add(e->schedule, &params, &job->entry, err);
    const bool is_full = status == TDM_RESOURCE_EXHAUSTED;
    if (status == TDM_OK) {
        status = entry_room(e, job->entry, err);
        if (status != TDM_OK) server_schedule_remove(e->schedule, job->entry);
    }
    if (status != TDM_OK) {
        if (is_full) *retry_ns = server_engine_retry(e);
        return status;
    }
    e->by_entry[job->entry] = job;
    job->id = e->next_id++;
    job->submit_ns = now;
    job->info = (server_request_info){
        .id = job->id, .seq = -1, .key = r->key, .max_tokens = job->max_tokens};
    job->info.usage.n_prompt = r->n_prompt;
    *e->last_link = job;
    e->last_link = &job->next;
    e->n_open++;
    pthread_cond_signal(&e->work);
    return TDM_OK;
}

/* Refuses a request to continue a prompt: the model is an encoder. */
static tdm_status text_refuse(const server_engine *e, tdm_error *err) {
    if (e->score_head != NULL)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "the model is a reranker ('%s'): it gives scores of texts, at /v1/rerank, "
                        "and continues none",
                        e->model->hparams.arch);
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "'%s' is an encoder: it gives embeddings only, at /v1/embeddings",
                    e->model->hparams.arch);
}

tdm_status server_engine_submit(server_engine *e, const server_request *request,
                                server_request_id *id_out, uint64_t *retry_ns_out, tdm_error *err) {
    float scales[LLM_MAX_ADAPTERS];
    const server_job_bounds bounds = {
        .vocab = e->vocab,
        .n_vocab = e->n_vocab,
        .n_ctx = e->n_ctx,
        .model = e->model,
        .n_encode = e->n_encode,
        .n_adapter = e->model->n_adapter,
        .scales = scales,
        .has_draft = e->draft != NULL,
        .is_draft_layer = e->draft != NULL && llm_draft_is_layer(e->draft),
    };
    server_job *job = NULL;
    uint64_t retry_ns = 0;
    server_engine_get_scales(e, scales);
    tdm_status status =
        e->ctx == NULL ? text_refuse(e, err) : server_job_create(&bounds, request, &job, err);
    pthread_mutex_lock(&e->lock);
    if (status == TDM_OK) status = job_queue(e, job, &retry_ns, err);
    if (status == TDM_OK) {
        *id_out = job->id;
        e->stats.n_submitted++;
    } else {
        e->stats.n_refused++;
    }
    pthread_mutex_unlock(&e->lock);
    if (status != TDM_OK) server_job_refuse(job);
    if (retry_ns_out != NULL) *retry_ns_out = retry_ns;
    return status;
}

/* The request of that id; NULL = there is none any more. The lock is held. */
static server_job *job_find(const server_engine *e, server_request_id id) {
    server_job *job = e->first;
    while (job != NULL && job->id != id) job = job->next;
    return job;
}

void server_engine_cancel(server_engine *e, server_request_id id) {
    pthread_mutex_lock(&e->lock);
    server_job *job = job_find(e, id);
    if (job != NULL) job->is_cancelled = true;
    for (server_embed_job *embed = e->embeds; embed != NULL; embed = embed->next)
        if (embed->id == id) embed->is_cancelled = true;
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

void server_engine_pause(server_engine *e, server_request_id id, bool is_paused) {
    pthread_mutex_lock(&e->lock);
    server_job *job = job_find(e, id);
    if (job != NULL) {
        job->is_paused = is_paused;
        server_schedule_pause(e->schedule, job->entry, is_paused);
    }
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

void server_engine_drain(server_engine *e, uint64_t limit_ns) {
    pthread_mutex_lock(&e->lock);
    e->is_draining = true;
    e->drain_at = time_after(server_clock(), limit_ns);
    pthread_cond_signal(&e->work);
    pthread_mutex_unlock(&e->lock);
}

bool server_engine_wait_idle(server_engine *e, uint64_t limit_ns) {
    const uint64_t at = time_after(server_clock(), limit_ns);
    const struct timespec until = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
    pthread_mutex_lock(&e->lock);
    while (e->n_open > 0 && pthread_cond_timedwait(&e->idle, &e->lock, &until) != ETIMEDOUT) {
    }
    const bool is_idle = e->n_open == 0;
    pthread_mutex_unlock(&e->lock);
    return is_idle;
}

int32_t server_engine_snapshot(server_engine *e, server_stats *stats, server_request_info *infos,
                               int32_t max_info) {
    const uint64_t now = server_clock();
    int32_t n = 0;
    pthread_mutex_lock(&e->lock);
    const server_schedule_counts c = server_schedule_count(e->schedule);
    *stats = e->stats;
    stats->struct_size = sizeof *stats;
    stats->n_queued = c.n_queued + c.n_preempted;
    stats->n_running = c.n_running;
    stats->n_paused = c.n_paused;
    stats->is_draining = e->is_draining;
    for (const server_job *job = e->first; job != NULL; job = job->next, n++) {
        if (infos == NULL || n >= max_info) continue;
        infos[n] = job->info;
        infos[n].state = state_of(e, job);
        infos[n].age_ns = now > job->submit_ns ? now - job->submit_ns : 0;
    }
    pthread_mutex_unlock(&e->lock);
    return n;
}

int32_t server_engine_n_ctx(const server_engine *e) {
    return e->n_ctx;
}
int32_t server_engine_n_ctx_embedding(const server_engine *e) {
    return e->n_embed_ctx;
}
