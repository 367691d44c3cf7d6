/* SPDX-License-Identifier: MIT
 *
 * engine.h: runs many requests on one model at a time. An engine owns a context, a queue of
 * requests, the scheduler (schedule/), the cache of prefixes (prefix/) and one thread. It works on
 * tokens, not on HTTP, chats or templates: callers give token ids and get token ids and their text.
 *
 * Threads. Functions marked [any-thread] may be called from any thread at the same time, also from
 * within an event; they take a lock for a moment and never wait for the device. Functions marked
 * [setup] are called by one thread while no other call is in progress. Events are called by the
 * engine's thread, one at a time, without a lock held. While an event runs, the engine computes
 * nothing. So an event copies what it needs and returns; it must not block.
 *
 * Ownership. server_engine_submit copies everything that a request points to, except the
 * constraint, which the engine owns from a successful call on, and `user`, which stays the
 * caller's. What an event points to is valid until the event returns.
 *
 * Each request that was accepted ends with exactly one call of `finished` or `failed`, and no event
 * of it comes after. A request that was refused (submit failed) has no events.
 */
#ifndef SERVER_ENGINE_H
#define SERVER_ENGINE_H

#include "llm/adapter.h"
#include "llm/constraint.h"
#include "llm/context.h"
#include "llm/embedding.h"
#include "llm/sampler.h"
#include "llm/tokenizer/vocab.h"

typedef struct server_engine server_engine;

/* Names a request for the life of an engine; never 0, never used twice. */
typedef uint64_t server_request_id;

#define SERVER_MAX_BIAS        4096
#define SERVER_MAX_STOP        64
#define SERVER_MAX_TOP_LOGPROB 256

/* Nanoseconds of the clock that deadlines and times refer to: CLOCK_MONOTONIC. [any-thread] */
uint64_t server_clock(void);

/* ---- Requests ---- */

/* A token and the natural logarithm of its probability. */
typedef struct server_logprob {
    int32_t token;
    float logprob;
} server_logprob;

/* A token of an answer. */
typedef struct server_token {
    int32_t token;
    int32_t index;    /* 0 for the first of the answer */
    const char *text; /* [len] whole code points that this token completes; may be empty. Tokens
                         that end the text, and control tokens, have none unless shows_special */
    size_t len;
    float logprob; /* of the softmax of the model's logits, without bias, constraint, penalties and
                      temperature; 0 without wants_logprobs and n_top */
    const server_logprob *top; /* [n_top] most likely first, equal ones by id */
    int32_t n_top;
} server_token;

typedef enum server_end {
    SERVER_END_STOP,       /* the model's end of generation, or a token of stop_tokens */
    SERVER_END_LENGTH,     /* max_tokens */
    SERVER_END_CONTEXT,    /* no room: the sequence has n_ctx tokens, or the cache has no page for
                              its next token although no other request runs */
    SERVER_END_CONSTRAINT, /* the constraint is complete */
    SERVER_END_SINK,       /* the token event returned false */
    SERVER_END_CANCELLED,  /* server_engine_cancel */
    SERVER_END_DEADLINE,   /* one of the request's deadlines, or that of the shutdown */
    SERVER_END_COUNT_
} server_end;

/* What a request cost. Times are nanoseconds. */
typedef struct server_usage {
    int32_t n_prompt;    /* tokens of the prompt */
    int32_t n_cached;    /* of those, found in the cache of prefixes instead of computed */
    int32_t n_generated; /* tokens of the answer, the one that ended it included */
    int32_t n_preempted; /* times that it lost its pages and was computed again */
    int32_t n_draft;     /* tokens that were drafted and checked */
    int32_t n_draft_accepted; /* of those, the ones that became tokens of the answer */
    uint64_t queue_ns;   /* from submit to the first step that computes for it */
    uint64_t prompt_ns;  /* from there to the first token */
    uint64_t answer_ns;  /* from the first token to the end */
} server_usage;

typedef struct server_result {
    server_end end;
    int32_t stop_token; /* with SERVER_END_STOP the token that ended the answer, which the last
                           token event had, too; else -1 */
    const char *text;   /* [len] U+FFFD where the answer ends within a code point, else empty */
    size_t len;
    server_usage usage;
} server_result;

/* The receiver of a request's events; each is called by the engine's thread. */
typedef struct server_sink {
    /* Returns false to end the request with SERVER_END_SINK, as for a stop string in the text. */
    bool (*token)(void *user, server_request_id id, const server_token *token);
    void (*finished)(void *user, server_request_id id, const server_result *result);
    /* A failure of the device, the constraint or the sampler, or lack of memory. */
    void (*failed)(void *user, server_request_id id, tdm_status status, const char *message);
    /* Called after each step that computes tokens of the prompt: n_done of its n_prompt tokens are
     * in the context now. NULL = not called. */
    void (*prompt)(void *user, server_request_id id, int32_t n_done, int32_t n_prompt);
    void *user;
} server_sink;

/* A request to continue a prompt. */
typedef struct server_request {
    size_t struct_size;    /* sizeof(server_request), or 0 */
    const int32_t *prompt; /* [n_prompt] at least 1, ids below n_vocab */
    int32_t n_prompt;      /* less than the context's n_ctx */
    int32_t max_tokens;    /* 0 = as many as the context has room for */
    llm_sampler_params sampler;
    const llm_logit_bias *bias; /* [n_bias] at most SERVER_MAX_BIAS */
    int32_t n_bias;
    const int32_t *stop_tokens; /* [n_stop] end the answer as the model's end of generation does; at
                                   most SERVER_MAX_STOP */
    int32_t n_stop;
    bool ignores_end;    /* the model's end of generation cannot be drawn */
    bool wants_logprobs; /* server_token.logprob is computed */
    int32_t n_top;      /* server_token.top; at most SERVER_MAX_TOP_LOGPROB and n_vocab; 0 = none */
    bool shows_special; /* control tokens have a text, too */
    bool continues_text; /* the answer goes on from the prompt's text (LLM_DETOKENIZE_CONTINUE) */
    bool is_uncached;    /* neither uses cached prefixes nor leaves any */
    const llm_constraint *constraint; /* the struct is copied; the state is the engine's after a
                                         successful submit, and its thread alone calls it; NULL =
                                         none */
    uint64_t key; /* for fairness: requests with different keys take turns (schedule/schedule.h). 0
                     has no special meaning */
    const float *scales; /* [n_adapter] of the model's adapters (llm/adapter.h), finite; NULL = the
                            engine's (server_engine_set_scales). Requests with different scales
                            share no prefixes */
    /* Drafts, where the engine has any. They change no answer. */
    int32_t max_draft; /* most drafts in a step; 0 = the engine's n_draft, which is also the limit;
                          -1 = none */
    int32_t min_draft; /* fewer drafts than these are not checked */
    float min_draft_p; /* 0 .. 1: drafts end before a token of a smaller probability */
    uint64_t scope;    /* Only requests of the same scope share cached prefixes. A server gives each
                          client a scope of its own where the time of a prompt must not show whether
                          another client has sent the same text. 0 has no special meaning */
    int32_t priority;    /* larger ones of the same key are admitted first; 0 is usual */
    /* Nanoseconds from submit on; 0 = no limit. A request that exceeds one ends with
     * SERVER_END_DEADLINE and keeps the tokens that it has. */
    uint64_t queue_limit; /* until the first step that computes for it */
    uint64_t first_limit; /* until its first token */
    uint64_t total_limit; /* until its end */
    server_sink sink;
} server_request;

/* A request for the vector of a text, or its scores. */
typedef struct server_embedding_request {
    size_t struct_size;    /* sizeof(server_embedding_request), or 0 */
    const int32_t *tokens; /* [n_tok] at least 1 */
    int32_t n_tok;         /* at most server_engine_text_max */
    llm_pooling pooling;   /* not LLM_POOLING_NONE; LLM_POOLING_RANK = scores (llm/score.h) */
    int32_t normalize;     /* llm_embedding_normalize */
    uint64_t total_limit;  /* as for server_request */
    /* Called once by the engine's thread: with TDM_OK the vector or the scores, [n]; else with the
     * status, a message, NULL and n = 0. TDM_CANCELLED, TDM_DEADLINE_EXCEEDED, or a failure of the
     * device or of memory. */
    void (*done)(void *user, server_request_id id, tdm_status status, const char *message,
                 const float *vector, int32_t n);
    void *user;
} server_embedding_request;

/* ---- The engine ---- */

/* 0 = the default, in every field. */
typedef struct server_limits {
    size_t struct_size;
    int32_t n_running;     /* most sequences in a step; 0 = 16 */
    int32_t n_held;        /* most finished sequences that are kept for their prefixes; 0 = 32, or
                              n_running where layers have windows or recurrent states, which take
                              memory for each sequence, or fewer where n_running leaves fewer;
                              -1 = none. n_running + n_held <= LLM_MAX_SEQ */
    int32_t n_queued;      /* most requests that wait; 0 = 256 */
    int32_t n_queued_key;  /* of them, most of one key; 0 = n_queued */
    int32_t n_prompt_step; /* most tokens of prompts in a step in which other requests generate; 0 =
                              128. A step without such requests has up to n_ubatch */
    uint64_t probe_ns;     /* from a failed step to the first probe; later ones come after twice,
                              four times ... 32 times as long; 0 = 1 s */
    uint64_t retry_ns;     /* the retry time of a full queue where nothing has finished yet; 0 =
                              1 s */
} server_limits;

typedef struct server_engine_params {
    size_t struct_size;
    llm_context_params context; /* n_seq is replaced: server_engine_n_seq */
    server_limits limits;
    bool gives_embeddings;        /* also takes embedding requests, with a context of their own */
    llm_context_params embedding; /* of that context; n_seq and what it gives are replaced */
    /* The model that proposes tokens (llm/draft.h). It is loaded and outlives the engine.
     * llm_draft_check accepts it, or it is a layer of the model. NULL = none. */
    llm_model *draft;
    llm_context_params draft_context; /* of `draft`; n_ctx and n_seq are replaced */
    /* Without `draft`: the draft is what followed the last n_gram tokens where they stand earlier
     * in the sequence (llm/draft_ngram.h), 1 .. LLM_MAX_DRAFT_NGRAM. 0 = no drafts. */
    int32_t n_gram;
    int32_t n_draft;       /* most drafts of a request in a step, 1 .. LLM_MAX_DRAFT; read where
                              there are drafts */
    bool gives_candidates; /* the device sends the best tokens of each row instead of all logits,
                              where all requests of a step allow it: for devices behind a bus */
    /* Called by the engine's thread with the reason when a step fails after others succeeded, and
     * with NULL when one succeeds again. NULL = not called. */
    void (*device_noted)(void *user, const char *failure);
    void *device_noted_user;
} server_engine_params;

/* The sequences of the context of an engine with these limits, which server_engine_create must
 * accept: n_running + n_held, with their defaults. For plans of its memory: the model is opened and
 * need not be loaded. [any-thread] */
int32_t server_engine_n_seq(const llm_model *model, const server_limits *limits);
/* Makes the context and starts the thread. The model is loaded and outlives the engine. A model
 * without a vocabulary gives tokens without text, and none ends an answer but stop_tokens. For an
 * encoder gives_embeddings is set, and requests to continue a prompt are refused. [setup] */
tdm_status server_engine_create(llm_model *model, const server_engine_params *params,
                                server_engine **engine_out, tdm_error *err);
/* Ends all requests (SERVER_END_CANCELLED; TDM_CANCELLED for embeddings) and the thread; no event
 * comes after it. Other threads may still call [any-thread] functions; what they submit is refused
 * (TDM_UNAVAILABLE). NULL is a no-op, and so is a second call. Not from within an event. [setup] */
void server_engine_stop(server_engine *engine);
/* Stops the engine and frees it. No other thread may call it any more. NULL is a no-op. Not from
 * within an event. [setup] */
void server_engine_destroy(server_engine *engine);

/* Queues a request. Never waits.
 * TDM_INVALID_ARGUMENT   a field is out of its range; the message names it
 * TDM_OUT_OF_RANGE       the prompt does not fit the context
 * TDM_RESOURCE_EXHAUSTED the queue is full: *retry_ns_out (may be NULL) is an estimate, from the
 *                        requests that ended lately, of the time until there is room; where it is
 *                        0, host memory is short
 * TDM_UNAVAILABLE        the engine drains, or was stopped
 * TDM_UNSUPPORTED        the model gives embeddings or scores only
 * Events may come before the call returns. [any-thread] */
tdm_status server_engine_submit(server_engine *engine, const server_request *request,
                                server_request_id *id_out, uint64_t *retry_ns_out, tdm_error *err);
/* As server_engine_submit. TDM_UNSUPPORTED without gives_embeddings, and for scores where the model
 * has no head for them. [any-thread] */
tdm_status server_engine_embed(server_engine *engine, const server_embedding_request *request,
                               server_request_id *id_out, uint64_t *retry_ns_out, tdm_error *err);
/* The scales of adapters of requests that come without any, and of embeddings: scales[n_adapter] of
 * the model, finite. They are the adapters' own at first. Requests that were accepted keep theirs.
 * [any-thread] */
tdm_status server_engine_set_scales(server_engine *engine, const float *scales, tdm_error *err);
void server_engine_get_scales(server_engine *engine, float *scales_out);
/* Ends a request before its next step, in any state. No-op where there is no such request any more.
 * [any-thread] */
void server_engine_cancel(server_engine *engine, server_request_id id);
/* Pauses a request or resumes it, as for a client that reads more slowly than the model writes. A
 * paused request is in no step. Its pages stay until others need them; what it loses is computed
 * again. Its deadlines go on. No-op where there is no such request any more, and for embeddings.
 * [any-thread] */
void server_engine_pause(server_engine *engine, server_request_id id, bool is_paused);

/* Refuses new requests from now on. Requests that were accepted go on; those that have not ended
 * limit_ns from now end with SERVER_END_DEADLINE. 0 = at once. Does not wait. [any-thread] */
void server_engine_drain(server_engine *engine, uint64_t limit_ns);
/* Waits until no accepted request is left, at most limit_ns. Returns whether that is so. Not from
 * within an event. [any-thread] */
bool server_engine_wait_idle(server_engine *engine, uint64_t limit_ns);

/* ---- What it does ---- */

typedef enum server_request_state {
    SERVER_QUEUED,
    SERVER_READING, /* its prompt is computed */
    SERVER_GENERATING,
    SERVER_PREEMPTED, /* has lost its pages and waits to be computed again */
    SERVER_PAUSED,
    SERVER_STATE_COUNT_
} server_request_state;

/* A request that has not ended. */
typedef struct server_request_info {
    server_request_id id;
    server_request_state state;
    int32_t seq; /* of the context; -1 = none */
    uint64_t key;
    server_usage usage; /* so far */
    int32_t n_done;     /* tokens of the prompt in the cache */
    int32_t max_tokens;
    uint64_t age_ns; /* since submit */
} server_request_info;

/* Totals since creation, and the present state. */
typedef struct server_stats {
    size_t struct_size;                    /* set by server_engine_snapshot */
    int32_t n_queued, n_running, n_paused; /* now; preempted ones count as queued */
    int32_t n_held;                        /* sequences kept for their prefixes */
    int32_t n_page, n_page_free;           /* of the cache */
    bool is_draining;
    bool has_failed;   /* the last step failed. While this is set and no request is computed, the
                        engine computes one token now and then (a probe). The first step or probe
                        that succeeds clears it. /health is not ok while it is set */
    tdm_error failure; /* of the last step or probe; all 0 = it succeeded */
    uint64_t n_submitted, n_refused;     /* requests of both kinds. Each one that was submitted ends
                                           once: it is then in n_ended or in n_failed */
    uint64_t n_ended[SERVER_END_COUNT_]; /* an embedding request that succeeds ends with
                                            SERVER_END_STOP */
    uint64_t n_failed;
    uint64_t n_step;
    uint64_t n_prompt_computed; /* tokens of prompts computed; those computed again after preemption
                                   count again */
    uint64_t n_prompt_cached;   /* tokens of prompts found in the cache */
    uint64_t n_generated;       /* tokens drawn */
    uint64_t n_replayed;        /* generated tokens computed again after preemption */
    uint64_t n_preempted, n_evicted;
    uint64_t n_draft;          /* tokens drafted and checked */
    uint64_t n_draft_accepted; /* of those, the ones that became tokens of an answer */
    uint64_t n_probe;      /* probes computed after failures */
    uint64_t n_embedded;   /* tokens of embedding requests */
    uint64_t busy_ns;      /* in steps */
    uint64_t last_step_ns; /* server_clock() at the end of the last step: for a watchdog */
} server_stats;

/* Writes the totals, and, where infos is not NULL, the requests that have not ended, the oldest
 * first, at most max_info of them. Returns how many have not ended, which may be more than
 * max_info. Embedding requests are not among them. Does not wait for a step. [any-thread] */
int32_t server_engine_snapshot(server_engine *engine, server_stats *stats,
                               server_request_info *infos, int32_t max_info);

/* The most tokens of a sequence, of the context and of the embedding context; 0 = there is no such
 * context. [any-thread] */
int32_t server_engine_n_ctx(const server_engine *engine);
int32_t server_engine_n_ctx_embedding(const server_engine *engine);
/* The most tokens of an embedding request's text: those of its context; where tokens attend to
 * later ones, those of a step, since the text is then computed whole. 0 without gives_embeddings.
 * [any-thread] */
int32_t server_engine_text_max(const server_engine *engine);
/* The name of an end for messages: "stop", "length", ... [any-thread] */
const char *server_end_name(server_end end);

#endif
