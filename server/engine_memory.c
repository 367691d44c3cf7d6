/* SPDX-License-Identifier: MIT
 *
 * engine_memory.c: which sequence of the context a request runs in, what it finds there, and what
 * is given up when pages run out. All by the engine's thread.
 *
 * A sequence is free (empty), runs a request, or is held: finished, and kept for its prefix. There
 * are as many as may run and be held together, so a request always finds one.
 */
#include <stdlib.h>
#include <string.h>

#include "server/engine_internal.h"

static void seq_drop(server_engine *e, int32_t seq) {
    server_prefix_remove(e->prefix, seq);
    (void)llm_context_truncate(e->ctx, seq, 0, NULL); /* to 0 it cannot fail */
    server_draft_empty(e, seq);
    e->is_taken[seq] = false;
}

/* Evicts the held sequence that was used least recently, but not `but`. False: there is none. */
static bool evict_oldest(server_engine *e, int32_t but) {
    const int32_t seq = server_prefix_oldest(e->prefix, but);
    if (seq < 0) return false;
    seq_drop(e, seq);
    e->tally.n_evicted++;
    return true;
}

/* Evicts held sequences other than `but` (-1 = none) until n_page pages are free. */
static bool pages_free(server_engine *e, int32_t n_page, int32_t but) {
    for (;;) {
        int32_t n_free;
        (void)llm_context_pages(e->ctx, &n_free);
        if (n_free >= n_page) return true;
        if (!evict_oldest(e, but)) return false;
    }
}

bool server_memory_free(server_engine *e, int32_t n_page) {
    return pages_free(e, n_page, -1);
}

/* ---- Prefixes ---- */

/* The search for the sequence that shares the longest prefix with a request. */
typedef struct prefix_search {
    server_engine *e;
    const float *scales; /* the request's, of adapters. They are compared, since scopes mixed from
                            different scales may be equal by chance */
    int32_t most;        /* most tokens to share: all but the last, whose logits are needed */
    int32_t seq, n_tok;  /* the best so far, and the tokens that it shares; -1, 0 = none */
} prefix_search;

static bool prefix_try(void *user, int32_t seq, int32_t n_common) {
    prefix_search *s = user;
    const int32_t most = n_common < s->most ? n_common : s->most;
    if (most <= s->n_tok) return false; /* the ones that follow share no more */
    const int32_t n_adapter = s->e->model->n_adapter;
    if (n_adapter > 0 && memcmp(llm_context_scales(s->e->ctx, seq), s->scales,
                                (size_t)n_adapter * sizeof *s->scales) != 0)
        return true;
    const int32_t n = llm_context_reach(s->e->ctx, seq, most);
    if (n > s->n_tok) {
        s->seq = seq;
        s->n_tok = n;
    }
    return true;
}

static int32_t common_count(const int32_t *a, const int32_t *b, int32_t n) {
    int32_t i = 0;
    while (i < n && a[i] == b[i]) i++;
    return i;
}

/* Whether another request, whose prompt is being computed, will soon share at least a page more
 * than n_tok tokens with this one. Then this one waits instead of computing them, too. It does not
 * wait where that takes longer: for a prompt of which more is left to compute than twice what they
 * share, or with a short rest of its own, which the next step computes (schedule.h). The lock is
 * held. */
static bool prefix_comes(const server_engine *e, const server_job *job, int32_t n_tok) {
    const server_request *r = &job->request;
    const int32_t least = n_tok + llm_context_kv_desc(e->ctx)->page_len;
    if (job->n_tok - n_tok <= e->limits.n_prompt_step / 2) return false;
    for (const server_job *other = e->first; other != NULL; other = other->next) {
        const server_request *o = &other->request;
        if (other->seq < 0 || other->first_ns != 0 || o->is_uncached || o->scope != r->scope)
            continue;
        int32_t n = other->usage.n_prompt;
        /* With windows or recurrent states, others can share the whole prompt but its last token,
         * and nothing shorter. */
        const int32_t needed = e->is_restricted ? n - 1 : least;
        if (n > job->n_tok - 1) n = job->n_tok - 1;
        if (n < needed || n < least) continue;
        const int32_t n_common = common_count(job->tokens, other->tokens, n);
        const int32_t n_left =
            other->usage.n_prompt - server_schedule_done(e->schedule, other->entry);
        if (n_common >= (needed > least ? needed : least) && n_left <= 2 * n_common) return true;
    }
    return false;
}

void server_memory_share(server_engine *e, server_job *job) {
    /* It is not shared where there is no memory for the tree. */
    if (!job->request.is_uncached)
        (void)server_prefix_set(e->prefix, job->seq, job->request.scope, job->tokens,
                                job->usage.n_prompt, NULL);
}

/* ---- Sequences ---- */

static int32_t seq_find(const server_engine *e) {
    for (int32_t s = 0; s < e->n_seq; s++)
        if (!e->is_taken[s]) return s;
    return -1;
}

int32_t server_memory_borrow(server_engine *e) {
    if (!pages_free(e, 1, -1)) return -1;
    const int32_t seq = seq_find(e);
    if (seq >= 0) e->is_taken[seq] = true;
    return seq;
}

void server_memory_return(server_engine *e, int32_t seq) {
    (void)llm_context_truncate(e->ctx, seq, 0, NULL); /* to 0 it cannot fail */
    e->is_taken[seq] = false;
}

/* Whether the sequence that was found is held and has exactly the tokens to share. Then the request
 * runs in the sequence itself; a fork would copy its last page. The lock is held. */
static bool is_whole(const server_engine *e, const prefix_search *s) {
    const bool is_held = server_prefix_length(e->prefix, s->seq) > 0 &&
                         llm_context_length(e->ctx, s->seq) == s->n_tok;
    for (const server_job *job = e->first; is_held && job != NULL; job = job->next)
        if (job->seq == s->seq) return false;
    return is_held;
}

/* What the list of requests says about one that may be admitted. */
typedef struct admission_view {
    bool is_early;   /* another request's prompt will soon be shared: prefix_comes */
    bool is_moved;   /* it takes over the sequence that was found: is_whole */
    int32_t n_other; /* requests that run */
} admission_view;

static admission_view view_get(server_engine *e, const server_job *job,
                               const prefix_search *found) {
    admission_view view = {0};
    pthread_mutex_lock(&e->lock); /* of the list and the schedule */
    view.is_early =
        !job->has_begun && !job->request.is_uncached && prefix_comes(e, job, found->n_tok);
    view.is_moved = found->seq >= 0 && is_whole(e, found);
    for (const server_job *other = e->first; other != NULL; other = other->next)
        view.n_other += other->seq >= 0;
    pthread_mutex_unlock(&e->lock);
    return view;
}

/* Frees pages for a request: for all its known tokens but the full pages that it shares, one for
 * its next token, and one for the next token of each request that runs. False where there are too
 * few. is_first: no other request runs. Then the result is true, and where pages are short even the
 * prefix that was found is evicted: `found` then has none. */
static bool pages_reserve(server_engine *e, const server_job *job, bool is_first, int32_t n_other,
                          prefix_search *found) {
    const int32_t page_len = llm_context_kv_desc(e->ctx)->page_len;
    const int32_t n_new = (job->n_tok + page_len - 1) / page_len - found->n_tok / page_len;
    if (pages_free(e, n_new + 1 + n_other, found->seq)) return true;
    if (!is_first) return false;
    if (found->seq >= 0 && !pages_free(e, n_new + 1, found->seq)) {
        seq_drop(e, found->seq);
        found->seq = -1;
        found->n_tok = 0;
    }
    return true;
}

/* Gives a request an empty sequence with a copy of the prefix that was found. False where all
 * sequences are taken. */
static bool seq_fork(server_engine *e, server_job *job, prefix_search *found) {
    job->seq = seq_find(e);
    if (job->seq < 0) return false;
    e->is_taken[job->seq] = true;
    (void)llm_context_set_scales(e->ctx, job->seq, job->scales, NULL); /* it is empty */
    /* A prefix that cannot be forked is computed again. */
    if (found->seq >= 0 &&
        llm_context_fork(e->ctx, job->seq, found->seq, found->n_tok, NULL) != TDM_OK) {
        (void)llm_context_truncate(e->ctx, job->seq, 0, NULL);
        found->n_tok = 0;
    }
    if (found->n_tok > 0) server_draft_fork(e, job->seq, found->seq, found->n_tok);
    if (found->seq >= 0) server_prefix_use(e->prefix, found->seq);
    return true;
}

server_admission server_memory_admit(server_engine *e, server_job *job, bool is_first,
                                     int32_t *n_done_out) {
    prefix_search found = {e, job->scales, job->n_tok - 1, -1, 0};
    if (!job->request.is_uncached)
        server_prefix_find(e->prefix, job->request.scope, job->tokens, job->n_tok - 1, prefix_try,
                           &found);
    const admission_view view = view_get(e, job, &found);
    if (view.is_early) return SERVER_ADMIT_LATER;
    if (!pages_reserve(e, job, is_first, view.n_other, &found)) return SERVER_ADMIT_FULL;
    if (view.is_moved && found.seq >= 0)
        job->seq = found.seq;
    else if (!seq_fork(e, job, &found))
        return SERVER_ADMIT_FULL;
    server_prefix_pin(e->prefix, job->seq, true);
    *n_done_out = found.n_tok;
    return SERVER_ADMITTED;
}

/* The search for a sequence other than `seq` that has all n_tok tokens. */
typedef struct cover_search {
    int32_t seq, n_tok;
    bool is_covered;
} cover_search;

static bool cover_try(void *user, int32_t seq, int32_t n_common) {
    cover_search *s = user;
    if (seq == s->seq) return true;
    s->is_covered = n_common >= s->n_tok;
    return false;
}

void server_memory_leave(server_engine *e, server_job *job, bool keeps) {
    const int32_t seq = job->seq;
    if (seq < 0) return;
    job->seq = -1;
    const int32_t n = llm_context_length(e->ctx, seq);
    if (!keeps || job->request.is_uncached || e->limits.n_held == 0 || n == 0) {
        seq_drop(e, seq);
        return;
    }
    /* A second copy is of no use. In restricted models it may be: each sequence can be cut or
     * forked at other lengths. */
    cover_search search = {.seq = seq, .n_tok = n};
    if (!e->is_restricted)
        server_prefix_find(e->prefix, job->request.scope, job->tokens, n, cover_try, &search);
    if (search.is_covered ||
        server_prefix_set(e->prefix, seq, job->request.scope, job->tokens, n, NULL) != TDM_OK) {
        seq_drop(e, seq);
        return;
    }
    server_prefix_pin(e->prefix, seq, false);
    while (server_prefix_held(e->prefix) > e->limits.n_held && evict_oldest(e, -1)) {
    }
}
