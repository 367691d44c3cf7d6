/* SPDX-License-Identifier: MIT
 *
 * engine_internal.h: the engine's state, and what its files call of each other. Only engine*.c
 * include it.
 *
 * The lock guards what other threads read or write: the schedule, the lists of requests, the
 * totals. It is held for moments, never during a step or an event. The rest belongs to the engine's
 * thread, which calls all functions below without the lock held unless they say otherwise.
 */
#ifndef SERVER_ENGINE_INTERNAL_H
#define SERVER_ENGINE_INTERNAL_H

#include <pthread.h>

#include "llm/draft.h"
#include "llm/projection.h"
#include "llm/score.h"
#include "server/job.h"
#include "server/prefix/prefix.h"
#include "server/schedule/schedule.h"

/* A request for a vector. */
typedef struct server_embed_job {
    server_embedding_request request; /* its tokens are a copy */
    server_request_id id;
    int32_t *tokens;
    float *rows;       /* [n_tok][n_embd] hidden states, of which n_done are computed; NULL = none
                       is */
    int32_t n_done;    /* tokens computed */
    bool is_cancelled; /* guarded by the lock */
    uint64_t deadline; /* of server_clock(); 0 = none */
    struct server_embed_job *next; /* guarded by the lock */
} server_embed_job;

struct server_engine {
    llm_model *model;
    const llm_vocab *vocab;
    llm_context *ctx;       /* NULL for an encoder */
    llm_context *embed_ctx; /* NULL = no embeddings */
    llm_context *draft_ctx; /* NULL = no drafts, or n-grams */
    server_limits limits;   /* with the defaults filled in */
    void (*device_noted)(void *user, const char *failure); /* as in the parameters */
    void *device_noted_user;
    int32_t n_vocab, n_ctx, n_embd;
    int32_t n_seq, n_step; /* sequences of the context; most tokens of a step, drafts included */
    int32_t n_encode; /* tokens that the model's encoder reads at most; 0 = it has none */
    int32_t n_embed_ctx, n_embed_step; /* of embed_ctx: tokens of a text, of a step; 0 without it */
    bool is_restricted; /* the model has windows or recurrent states: a sequence can be cut or
                           forked at some lengths only (llm_context_reach) */
    bool is_recurrent;
    bool gives_candidates;
    int32_t n_draft; /* most drafts of a request in a step */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work; /* the engine's thread waits on it */
    pthread_cond_t idle; /* server_engine_wait_idle waits on it */

    /* Guarded by the lock. */
    float scales[LLM_MAX_ADAPTERS]; /* of requests without any */
    server_schedule *schedule;
    server_job *first, **last_link; /* requests that have not ended, oldest first; the link that the
                                       next one is appended to */
    server_job **by_entry;          /* [n_by_entry] of the schedule's entries; NULL = none */
    int32_t n_by_entry;
    server_embed_job *embeds, **embeds_link; /* requests for vectors, oldest first; as last_link */
    int32_t n_embed;
    int32_t n_open; /* requests of both kinds whose last event has not returned */
    server_request_id next_id;
    bool is_draining, is_stopping;
    uint64_t drain_at; /* with is_draining: when what is left ends */
    server_stats stats;
    uint64_t end_interval; /* a running mean of the time between ends, ns; 0 = none has ended */
    uint64_t last_end;     /* when a request last ended; 0 = none has */

    /* Of the engine's thread. */
    server_prefix *prefix;
    bool *is_taken;              /* [n_seq] a request runs in the sequence, or it is held */
    server_schedule_item *items; /* [n_running] of the step */
    server_job **jobs;           /* [n_running] the request of each item */
    int32_t *tokens, *seqs;      /* [n_step] the batch (llm_batch), as roles and wanted */
    uint8_t *roles;
    bool *wanted;
    /* Tokens that are not drawn: first those of llm_vocab_suppressed, then those that end
     * generation, for requests that ignore the end. [n_suppressed + n_end] */
    int32_t *bars;
    int32_t n_suppressed, n_end;
    float *logits;              /* [n_vocab] a row with biases, without barred tokens */
    uint64_t *mask;             /* [(n_vocab + 63) / 64] */
    server_logprob *top;        /* [SERVER_MAX_TOP_LOGPROB] */
    float *vector;              /* of a text; or its scores */
    llm_score_head *score_head; /* NULL = the model has none */
    llm_projection *projection; /* of vectors; NULL = the model has none */
    llm_draft *draft;           /* NULL = no drafts */
    llm_draft_item *draft_items; /* [n_running] */
    llm_draft_part *draft_parts; /* [n_running] */
    int32_t *draft_tokens;       /* [n_running][n_draft] */
    server_job *over;     /* requests that were taken out of the list and whose last event is due,
                             the last one taken out first */
    server_stats tally;   /* what the thread has counted since it last added it to stats */
    bool has_failed;      /* the last step or probe failed */
    tdm_error failure;    /* of that; all 0 = it has not failed */
    uint64_t probe_at;    /* when a probe is due, of server_clock(); 0 = none */
    uint64_t probe_delay; /* nanoseconds between the failure and probe_at */
};

/* ---- engine_memory.c: sequences, pages, prefixes ---- */

typedef enum server_admission {
    SERVER_ADMITTED,
    SERVER_ADMIT_FULL, /* too few pages */
    SERVER_ADMIT_LATER /* another request computes a prefix of it now: try again after a step */
} server_admission;

/* Gives a request a sequence that holds as many of its tokens as are cached: *n_done_out of them,
 * and never the last one, whose logits are needed. Evicts held sequences, the least recently used
 * first, where pages are short. is_first: no other request runs; then it is admitted even if its
 * pages are too few. Sets job->seq with SERVER_ADMITTED only. Takes the lock. */
server_admission server_memory_admit(server_engine *e, server_job *job, bool is_first,
                                     int32_t *n_done_out);
/* Evicts held sequences, the least recently used first, until n_page pages are free. Returns false
 * if fewer are free when all held ones are gone. */
bool server_memory_free(server_engine *e, int32_t n_page);
/* Enters a request whose prompt is computed into the cache of prefixes, so that others share it
 * while it runs. */
void server_memory_share(server_engine *e, server_job *job);
/* Takes a request out of its sequence. With `keeps` the sequence is held for its prefix where that
 * is of use, else it is emptied. No-op where the request has no sequence. */
void server_memory_leave(server_engine *e, server_job *job, bool keeps);

/* An empty sequence and a free page for it, so that a token can be computed while no request runs;
 * -1 where there is none. The caller gives it to server_memory_return, which empties it. */
int32_t server_memory_borrow(server_engine *e);
void server_memory_return(server_engine *e, int32_t seq);

/* ---- engine_step.c ---- */

/* Plans the next step and makes room for it; returns the number of items in e->items and e->jobs.
 * Preempts requests where pages are short; one that has no room alone ends. Takes the lock. */
int32_t server_step_plan(server_engine *e);
/* Computes a step of n items, draws tokens and sends their events. Takes the lock. */
void server_step_run(server_engine *e, int32_t n);

/* ---- engine_draw.c ---- */

/* Draws the next token of a request from its row of logits (job->row), appends it and sends its
 * event. Sets job->is_over where the token ends the answer, or drawing fails. */
void server_draw(server_engine *e, server_job *job);
/* The first tokens of server_engine.bars that the request does not draw. */
int32_t server_n_bar(const server_engine *e, const server_job *job);
/* How many candidates the request's sampler needs; 0 = the whole row. */
int32_t server_draw_candidates(const server_engine *e, const server_job *job);

/* ---- engine_draft.c ---- */

/* Makes the draft and its context; nothing where the parameters have no draft. After a failure
 * server_draft_free frees what was made. */
tdm_status server_draft_create(server_engine *e, const server_engine_params *params,
                               tdm_error *err);
void server_draft_free(server_engine *e);
/* To be called after a sequence of the context was emptied, or dst, which was empty, was forked
 * from src: the draft's sequences follow. */
void server_draft_empty(server_engine *e, int32_t seq);
void server_draft_fork(server_engine *e, int32_t dst, int32_t src, int32_t n_tok);
/* Sets job->n_draft of the n requests of the planned step: the most drafts that each may have. */
void server_draft_plan(server_engine *e, int32_t n);
/* Writes drafts to job->drafts, and their number, at most what was planned, to job->n_draft. */
void server_draft_propose(server_engine *e, int32_t n);
/* After a step that had n_tok tokens of a request and its drafts, of which job->n_drawn - 1 were
 * drawn: takes the other drafts out of the sequence. False: the context could not cut the sequence
 * at that length, so the request must be computed again. */
bool server_draft_settle(server_engine *e, server_job *job, int32_t n_tok);
/* After a step of n requests: the drafts decode tokens of their sequences that they lack. */
void server_draft_follow(server_engine *e, int32_t n);

/* ---- engine_embed.c ---- */

/* Ends requests for vectors that are cancelled or late, then computes a part of the oldest one.
 * is_shared: other requests have just had a step, so the part is at most n_prompt_step tokens where
 * the model can divide a text. False where there is no request for a vector. Takes the lock. */
bool server_embed_step(server_engine *e, bool is_shared);
/* The earliest deadline of these requests; 0 = none. The lock is held. */
uint64_t server_embed_deadline(const server_engine *e);

/* ---- engine_probe.c ---- */

/* To be called after each step with its status: a failure starts probes, a success ends them. With
 * TDM_RESOURCE_EXHAUSTED it rewrites the message of `err` so that it names the device and what to
 * do. `err` is not read with TDM_OK. */
void server_probe_note(server_engine *e, tdm_status status, tdm_error *err);
/* Whether a probe is due now. */
bool server_probe_is_due(const server_engine *e, uint64_t now);
/* Computes one token, only to find out whether the device works. No request runs. */
void server_probe_step(server_engine *e);

/* ---- engine.c ---- */

/* For a request that a full queue refuses: nanoseconds after which to try again. The lock is
 * held. */
uint64_t server_engine_retry(const server_engine *e);
/* The deadline of a limit that begins now; 0 = no limit, no deadline. */
uint64_t server_engine_deadline(uint64_t now, uint64_t limit);
/* Notes that a request's last event has returned. Takes the lock. */
void server_engine_closed(server_engine *e);

#endif
