/* SPDX-License-Identifier: MIT
 *
 * engine_step.c: a step of the engine: plans it, makes room for it, fills its batch, computes it
 * and hands its rows to engine_draw.c. By the engine's thread.
 */
#include "server/engine_internal.h"

/* The free pages that the n planned items need, with their drafts. */
static int32_t pages_needed(const server_engine *e, int32_t n) {
    int32_t n_page = 0;
    for (int32_t i = 0; i < n; i++)
        n_page += llm_context_pages_needed(e->ctx, e->jobs[i]->seq,
                                           e->items[i].n_tok + e->jobs[i]->n_draft);
    return n_page;
}

/* Takes a request out of its sequence, which is emptied. It waits, and is computed again. */
static void job_preempt(server_engine *e, server_job *job) {
    pthread_mutex_lock(&e->lock);
    server_schedule_preempt(e->schedule, job->entry);
    pthread_mutex_unlock(&e->lock);
    job->usage.n_preempted++;
    e->tally.n_preempted++;
    server_memory_leave(e, job, false);
}

/* Preempts the youngest request; false if no other runs. */
static bool youngest_preempt(server_engine *e) {
    pthread_mutex_lock(&e->lock);
    const int32_t entry = server_schedule_victim(e->schedule);
    server_job *job = entry >= 0 ? e->by_entry[entry] : NULL;
    pthread_mutex_unlock(&e->lock);
    if (job != NULL) job_preempt(e, job);
    return job != NULL;
}

/* Makes room for a step of n items, without drafts where they do not fit. */
static bool room_make(server_engine *e, int32_t n) {
    server_draft_plan(e, n);
    if (server_memory_free(e, pages_needed(e, n))) return true;
    for (int32_t i = 0; i < n; i++) e->jobs[i]->n_draft = 0;
    return server_memory_free(e, pages_needed(e, n));
}

int32_t server_step_plan(server_engine *e) {
    for (;;) {
        pthread_mutex_lock(&e->lock);
        const int32_t n = server_schedule_plan(e->schedule, e->items);
        for (int32_t i = 0; i < n; i++) e->jobs[i] = e->by_entry[e->items[i].entry];
        pthread_mutex_unlock(&e->lock);
        if (n == 0 || room_make(e, n)) return n;
        if (youngest_preempt(e)) continue;
        /* Only one request runs and all else is evicted. The cache has pages for n_ctx tokens, so
         * this does not happen; if it did, planning again would not help. */
        for (int32_t i = 0; i < n; i++) server_job_end(e->jobs[i], SERVER_END_CONTEXT);
        return 0;
    }
}

/* Fills the batch; returns its tokens. */
static int32_t batch_fill(server_engine *e, int32_t n) {
    int32_t n_tok = 0, n_row = 0;
    for (int32_t i = 0; i < n; i++) {
        server_job *job = e->jobs[i];
        const int32_t from = llm_context_length(e->ctx, job->seq), count = e->items[i].n_tok;
        for (int32_t k = 0; k < count; k++, n_tok++) {
            const bool is_prompt = from + k < job->usage.n_prompt;
            e->tokens[n_tok] = job->tokens[from + k];
            e->seqs[n_tok] = job->seq;
            e->roles[n_tok] = is_prompt ? TDM_ROLE_PROMPT : TDM_ROLE_GENERATED;
            e->wanted[n_tok] = false;
            e->tally.n_prompt_computed += is_prompt;
            e->tally.n_replayed += !is_prompt && from + k + 1 < job->n_tok;
        }
        job->row = e->items[i].is_last ? n_row : -1;
        job->first = n_tok - count;
        job->n_drawn = 0;
        e->wanted[n_tok - 1] = e->items[i].is_last;
        for (int32_t k = 0; k < job->n_draft; k++, n_tok++) {
            e->tokens[n_tok] = job->drafts[k];
            e->seqs[n_tok] = job->seq;
            e->roles[n_tok] = TDM_ROLE_GENERATED;
            e->wanted[n_tok] = true;
        }
        if (e->items[i].is_last) n_row += 1 + job->n_draft;
    }
    return n_tok;
}

/* Makes the step give candidates where all of its requests allow it. */
static tdm_status candidates_set(server_engine *e, int32_t n, tdm_error *err) {
    int32_t most = 0;
    if (!e->gives_candidates) return TDM_OK;
    for (int32_t i = 0; i < n; i++) {
        if (!e->items[i].is_last) continue;
        const int32_t needed = server_draw_candidates(e, e->jobs[i]);
        if (needed == 0) return llm_context_set_candidates(e->ctx, 0, err);
        if (needed > most) most = needed;
    }
    int32_t bucket = most > 0 ? 8 : 0; /* powers of 2: the context keeps plans for each size */
    while (bucket < most) bucket *= 2;
    const int32_t limit = e->n_vocab < LLM_MAX_CANDIDATES ? e->n_vocab : LLM_MAX_CANDIDATES;
    if (bucket > limit) bucket = most <= limit ? limit : 0;
    return llm_context_set_candidates(e->ctx, bucket, err);
}

/* Notes in the schedule what the step has computed and drawn. */
static void step_note(server_engine *e, int32_t n) {
    pthread_mutex_lock(&e->lock);
    for (int32_t i = 0; i < n; i++) {
        const server_job *job = e->jobs[i];
        const server_schedule_item *item = &e->items[i];
        const int32_t n_more = job->n_drawn > 1 ? job->n_drawn - 1 : 0; /* drafts that stay */
        server_schedule_computed(e->schedule, item->entry, item->n_tok + n_more);
        for (int32_t k = 0; k < job->n_drawn && job->status == TDM_OK; k++)
            server_schedule_drawn(e->schedule, item->entry);
    }
    pthread_mutex_unlock(&e->lock);
}

/* Draws a token behind the last known one. While the drawn token equals the next draft, draws one
 * from the row behind that draft, too. */
static void tokens_draw(server_engine *e, server_job *job) {
    do {
        server_draw(e, job);
        job->row++;
        job->n_drawn++;
    } while (!job->is_over && job->n_drawn <= job->n_draft &&
             job->tokens[job->n_tok - 1] == job->drafts[job->n_drawn - 1]);
}

void server_step_run(server_engine *e, int32_t n) {
    tdm_error err = {0};
    server_draft_propose(e, n);
    const int32_t n_tok = batch_fill(e, n);
    const llm_batch batch = {.tokens = e->tokens,
                             .seqs = e->seqs,
                             .wanted = e->wanted,
                             .n_tok = n_tok,
                             .roles = e->roles};
    tdm_status status = candidates_set(e, n, &err);
    if (status == TDM_OK) status = llm_context_decode(e->ctx, &batch, &err);
    server_probe_note(e, status, &err);
    e->tally.n_step++;
    for (int32_t i = 0; i < n && status != TDM_OK; i++) server_job_fail(e->jobs[i], status, &err);
    for (int32_t i = 0; i < n && status == TDM_OK; i++) {
        server_job *job = e->jobs[i];
        const server_sink *sink = &job->request.sink;
        const int32_t n_done = llm_context_length(e->ctx, job->seq);
        const bool was_reading = n_done - e->items[i].n_tok < job->usage.n_prompt;
        /* From now on others share its prompt. */
        if (was_reading && n_done >= job->usage.n_prompt) server_memory_share(e, job);
        if (was_reading && sink->prompt != NULL)
            sink->prompt(sink->user, job->id,
                         n_done < job->usage.n_prompt ? n_done : job->usage.n_prompt,
                         job->usage.n_prompt);
        if (job->row >= 0) tokens_draw(e, job);
    }
    if (status != TDM_OK) return;
    step_note(e, n);
    for (int32_t i = 0; i < n; i++) {
        server_job *job = e->jobs[i];
        if (job->status == TDM_OK && !server_draft_settle(e, job, e->items[i].n_tok) &&
            !job->is_over)
            job_preempt(e, job);
    }
    server_draft_follow(e, n);
}
