/* SPDX-License-Identifier: MIT
 *
 * engine_internal.h: shared by the engine's files only.
 *
 * The lock guards what other threads see: the schedule, the lists of requests, the totals. It is
 * held for moments, never during a step or an event. The rest belongs to the engine's thread.
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
    float *rows; /* [n_tok][n_embd] hidden states so far */
    int32_t n_done;
    bool is_cancelled; /* guarded by the lock */
    uint64_t deadline; /* 0 = none */
    struct server_embed_job *next;
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
    int32_t n_seq, n_step;
    int32_t n_encode; /* tokens that the model's encoder reads at most; 0 = it has none */
    int32_t n_embed_ctx, n_embed_step;
    bool is_restricted; /* prefixes can be had only at some lengths: windows, recurrent states */
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
    server_job *first, **last_link; /* requests that have not ended, oldest first */
    server_job **by_entry;          /* [n_by_entry] of the schedule's entries */
    int32_t n_by_entry;
    server_embed_job *embeds, **embeds_link;
    int32_t n_embed;
    int32_t n_open; /* requests of both kinds whose last event has not returned */
    server_request_id next_id;
    bool is_draining, is_stopping;
    uint64_t drain_at; /* with is_draining */
    server_stats stats;
    uint64_t end_interval; /* a running mean of the time between ends, ns; 0 = none has ended */
    uint64_t last_end;

    /* Of the engine's thread. */
    server_prefix *prefix;
    bool *is_taken;              /* [n_seq] a request runs in the sequence, or it is held */
    server_schedule_item *items; /* [n_running] of the step */
    server_job **jobs;           /* [n_running] of the items */
    int32_t *tokens, *seqs;      /* [n_step] the batch */
    uint8_t *roles;
    bool *wanted;
    int32_t *ends; /* [n_end] tokens that end generation */
    int32_t n_end;
    float *logits;              /* [n_vocab] a row with biases, without barred tokens */
    uint64_t *mask;             /* [(n_vocab + 63) / 64] */
    server_logprob *top;        /* [SERVER_MAX_TOP_LOGPROB] */
    float *vector;              /* of a text: [n_embd], or its scores */
    llm_score_head *score_head; /* NULL = the model has none */
    llm_projection *projection; /* of vectors; NULL = the model has none */
    llm_draft *draft;           /* NULL = none; it and what follows */
    llm_draft_item *draft_items; /* [n_running] */
    llm_draft_part *draft_parts; /* [n_running] */
    int32_t *draft_tokens;       /* [n_running][n_draft] */
    server_job *over;     /* requests that have ended and are in no list; their event is due */
    server_stats tally;   /* what the thread has counted since it last added it to stats */
    bool has_failed;      /* the last step, or the probe after it */
    tdm_error failure;    /* of that; all 0 = it has not failed */
    uint64_t probe_at;    /* when a probe is due; 0 = none */
    uint64_t probe_delay; /* before it */
};

/* ---- engine_memory.c: sequences, pages, prefixes ---- */

typedef enum server_admission {
    SERVER_ADMITTED,
    SERVER_ADMIT_FULL, /* too few pages */
    SERVER_ADMIT_LATER /* another request computes its prefix now */
} server_admission;

/* Gives a request a sequence with as many of its tokens as are cached; *n_done_out of them. Frees
 * pages and sequences by age. is_first: no other runs. */
server_admission server_memory_admit(server_engine *e, server_job *job, bool is_first,
                                     int32_t *n_done_out);
/* Frees n_page pages by giving up held sequences, the oldest first; false if there are not enough
 * after all. */
bool server_memory_free(server_engine *e, int32_t n_page);
/* The request has computed all of its prompt: others may share it. */
void server_memory_share(server_engine *e, server_job *job);
/* Takes a request out of its sequence, which is kept for its prefix, or (keeps = false) emptied. */
void server_memory_leave(server_engine *e, server_job *job, bool keeps);

/* An empty sequence and a free page for it, so that a token can be computed while no request runs;
 * -1 where there is none. server_memory_return empties it again. */
int32_t server_memory_borrow(server_engine *e);
void server_memory_return(server_engine *e, int32_t seq);

/* ---- engine_step.c ---- */

/* Plans the next step and makes room for it; returns the number of items. */
int32_t server_step_plan(server_engine *e);
/* Computes a step of n items and sends what follows from it. */
void server_step_run(server_engine *e, int32_t n);

/* ---- engine_draw.c ---- */

/* Draws the next token of a request from its row of logits, appends it and sends it. Sets
 * job->is_over where it ends the answer. */
void server_draw(server_engine *e, server_job *job);
/* How many candidates the request's sampler needs; 0 = the whole row. */
int32_t server_draw_candidates(const server_engine *e, const server_job *job);

/* ---- engine_draft.c ---- */

/* Makes the context of drafts, if there is to be one. */
tdm_status server_draft_create(server_engine *e, const server_engine_params *params,
                               tdm_error *err);
void server_draft_free(server_engine *e);
/* The context's sequence was emptied; it was forked. */
void server_draft_empty(server_engine *e, int32_t seq);
void server_draft_fork(server_engine *e, int32_t dst, int32_t src, int32_t n_tok);
/* Sets job->n_draft, the most drafts of each of the n requests of the planned step. */
void server_draft_plan(server_engine *e, int32_t n);
/* Makes drafts for a step: job->drafts; lowers job->n_draft to their number. */
void server_draft_propose(server_engine *e, int32_t n);
/* After a step that had n_tok tokens of a request and its drafts, of which job->n_drawn - 1 were
 * drawn: takes the other drafts out of the sequence. False: the sequence has lost more, so that its
 * request has to be computed again. */
bool server_draft_settle(server_engine *e, server_job *job, int32_t n_tok);
/* After a step of n requests: drafts read what they lack. */
void server_draft_follow(server_engine *e, int32_t n);

/* ---- engine_embed.c ---- */

/* Computes a part of the oldest request for a vector; is_shared: others generate meanwhile. False
 * where there is no such request. */
bool server_embed_step(server_engine *e, bool is_shared);
/* The earliest deadline of these requests; 0 = none. The lock is held. */
uint64_t server_embed_deadline(const server_engine *e);

/* ---- engine_probe.c ---- */

/* Notes how a step has ended, so that probes begin or end. `err` is read where it failed; where
 * memory is short, it then names the device and what to do. */
void server_probe_note(server_engine *e, tdm_status status, tdm_error *err);
/* Whether a probe is due now. */
bool server_probe_is_due(const server_engine *e, uint64_t now);
/* Computes one token, for nothing else than to see whether the device works. No request runs. */
void server_probe_step(server_engine *e);

/* ---- engine.c ---- */

/* The time of the retry for a queue that is full. The lock is held. */
uint64_t server_engine_retry(const server_engine *e);
/* Notes that a request's last event has returned. Takes the lock. */
void server_engine_closed(server_engine *e);

#endif
