/* SPDX-License-Identifier: MIT
 *
 * engine.h: runs many requests on one model at a time. An engine owns a context, a queue of
 * requests, the scheduler (schedule/), the cache of prefixes (prefix/) and one thread. It knows
 * tokens, not HTTP, chats or templates: callers give token ids and get token ids and their text.
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
                      temperature; 0 where none was asked for (wants_logprobs) */
    const server_logprob *top; /* [n_top] most likely first, equal ones by id */
    int32_t n_top;
} server_token;

typedef enum server_end {
    SERVER_END_STOP,       /* the model's end of generation, or a token of stop_tokens */
    SERVER_END_LENGTH,     /* max_tokens */
    SERVER_END_CONTEXT,    /* no room: the sequence is as long as the context, or alone in it */
    SERVER_END_CONSTRAINT, /* the constraint is complete */
    SERVER_END_SINK,       /* the token event returned false */
    SERVER_END_CANCELLED,  /* server_engine_cancel */
    SERVER_END_DEADLINE,   /* one of the request's deadlines, or that of the shutdown */
    SERVER_END_COUNT_
} server_end;

/* What a request cost. Times are nanoseconds. */
typedef struct server_usage {
    int32_t n_prompt;    /* tokens of the prompt */
    int32_t n_cached;    /* of those, not computed: found in the cache of prefixes */
    int32_t n_generated; /* tokens of the answer, the one that ended it included */
    int32_t n_preempted; /* times that it gave its pages back and was computed again */
    int32_t n_draft;     /* tokens that were drafted and checked */
    int32_t n_draft_accepted; /* of those, drawn */
    uint64_t queue_ns;   /* from submit to the first step that computes for it */
    uint64_t prompt_ns;  /* from there to the first token */
    uint64_t answer_ns;  /* from the first token to the end */
} server_usage;

typedef struct server_result {
    server_end end;
    int32_t stop_token; /* with SERVER_END_STOP the token, which was also the last event; else -1 */
    const char *text;   /* [len] what is left of an unfinished code point: U+FFFD; may be empty */
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
    /* Tokens of the prompt that are in the cache now, after each step that computes some. NULL =
     * not called. */
    void (*prompt)(void *user, server_request_id id, int32_t n_done, int32_t n_prompt);
    void *user;
} server_sink;

/* A request to continue a prompt. */
typedef struct server_request {
    size_t struct_size;
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
    bool shows_special; /* texts of control tokens are text, too */
    bool continues_text; /* the answer goes on from the prompt's text (LLM_DETOKENIZE_CONTINUE) */
    bool is_uncached;    /* neither reads nor leaves cached prefixes */
    const llm_constraint *constraint; /* the struct is copied; the state is the engine's after a
                                         successful submit, and its thread alone calls it; NULL =
                                         none */
    uint64_t key; /* of fairness: requests of unlike keys take turns. 0 is a key like others */
    const float *scales; /* [n_adapter] of the model's adapters (llm/adapter.h), finite; NULL = the
                            engine's (server_engine_set_scales). Requests of other scales share no
                            prefixes */
    /* Drafts, where the engine has any. They change no answer. */
    int32_t max_draft; /* at a time; 0 = the engine's n_draft, which is also the most; -1 = none */
    int32_t min_draft; /* fewer are not checked */
    float min_draft_p; /* 0 .. 1: drafts end before a token of a smaller probability */
    uint64_t scope;      /* of prefixes: only requests of the same scope share cached prefixes (a
                       client's, so that times do not tell one client what another has asked). 0 is
                       a scope like others */
    int32_t priority;    /* larger ones of the same key are admitted first; 0 is usual */
    /* Nanoseconds from submit on; 0 = no limit. A request that is over one ends with
     * SERVER_END_DEADLINE, with the tokens that it has. */
    uint64_t queue_limit; /* until the first step that computes for it */
    uint64_t first_limit; /* until its first token */
    uint64_t total_limit; /* until its end */
    server_sink sink;
} server_request;

/* A request for the vector of a text, or its scores. */
typedef struct server_embedding_request {
    size_t struct_size;
    const int32_t *tokens; /* [n_tok] at least 1 */
    int32_t n_tok;         /* at most n_ctx of the embedding context */
    llm_pooling pooling;   /* not LLM_POOLING_NONE; LLM_POOLING_RANK = scores (llm/score.h) */
    int32_t normalize;     /* llm_embedding_normalize */
    uint64_t total_limit;  /* as for server_request */
    /* Called once by the engine's thread: the vector [n], or a failed status with a message and
     * NULL. TDM_CANCELLED, TDM_DEADLINE_EXCEEDED. */
    void (*done)(void *user, server_request_id id, tdm_status status, const char *message,
                 const float *vector, int32_t n);
    void *user;
} server_embedding_request;

/* ---- The engine ---- */

/* Zero means the default everywhere. */
typedef struct server_limits {
    size_t struct_size;
    int32_t n_running;     /* most sequences in a step; 0 = 16 */
    int32_t n_held;        /* most finished sequences that are kept for their prefixes; 0 = 32, or
                              n_running where layers have windows or recurrent states, whose memory
                              grows with it; -1 = none. n_running + n_held <= LLM_MAX_SEQ */
    int32_t n_queued;      /* most requests that wait; 0 = 256 */
    int32_t n_queued_key;  /* of them, most of one key; 0 = n_queued */
    int32_t n_prompt_step; /* most tokens of prompts in a step that has generated ones, too; 0 =
                              128. A step without them has up to n_ubatch */
    uint64_t probe_ns;     /* from a failed step to the first probe; later ones come after twice,
                              four times ... 32 times as long; 0 = 1 s */
    uint64_t retry_ns;     /* the retry time of a full queue where nothing has finished yet; 0 =
                              1 s */
} server_limits;

typedef struct server_engine_params {
    size_t struct_size;
    llm_context_params context; /* n_seq is replaced: n_running + n_held */
    server_limits limits;
    bool gives_embeddings;        /* also takes embedding requests, with a context of their own */
    llm_context_params embedding; /* of that; n_seq and what it gives are replaced */
    llm_model
        *draft; /* proposes tokens (llm/draft.h): loaded, and outlives the engine; llm_draft_check
                         accepts it, or it is a layer of the model. NULL = none */
    llm_context_params draft_context; /* of that; n_ctx and n_seq are replaced */
    int32_t n_gram; /* without `draft`: n-grams draft, where so many tokens are alike, 1 ..
                       LLM_MAX_DRAFT_NGRAM; 0 = nothing drafts */
    int32_t n_draft;                  /* proposals at a time, 1 .. LLM_MAX_DRAFT */
    bool gives_candidates; /* the device sends the best tokens of each row instead of all logits,
                              where all requests of a step allow it: for devices behind a bus */
    /* Called by the engine's thread when a step fails after others worked, with the reason, and when
     * one works again, with NULL. NULL = not called. */
    void (*device_noted)(void *user, const char *failure);
    void *device_noted_user;
} server_engine_params;

/* Makes the context and starts the thread. The model is loaded and outlives the engine. A model
 * without a vocabulary gives tokens without text, and none ends an answer but stop_tokens. For an
 * encoder gives_embeddings is set, and requests to continue a prompt are refused. [setup] */
tdm_status server_engine_create(llm_model *model, const server_engine_params *params,
                                server_engine **engine_out, tdm_error *err);
/* Ends what still runs (SERVER_END_CANCELLED), and the thread: no event comes after it. Other threads may
 * call the engine still; what they submit is refused (TDM_UNAVAILABLE). NULL is a no-op, and so is a
 * second call. Not from within an event. [setup] */
void server_engine_stop(server_engine *engine);
/* Stops it and frees all. NULL is a no-op. Not from within an event. [setup] */
void server_engine_destroy(server_engine *engine);

/* Queues a request. Never waits.
 * TDM_INVALID_ARGUMENT   a field is out of its range; the message names it
 * TDM_OUT_OF_RANGE       the prompt does not fit the context
 * TDM_RESOURCE_EXHAUSTED the queue is full: *retry_ns_out (may be NULL) is a guess, from what has
 *                        finished lately, of when there is room; where it is 0, host memory is short
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
/* Ends a request before its next step, queued ones and prompts being read too. No-op where there is
 * no such request any more. [any-thread] */
void server_engine_cancel(server_engine *engine, server_request_id id);
/* Takes a request out of steps, or back into them, as for a reader that is slower than the model.
 * Its pages stay while others don't need them. Deadlines go on. [any-thread] */
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
    SERVER_PREEMPTED, /* gave its pages back, waits to be computed again */
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

/* Totals since creation, and what is so now. */
typedef struct server_stats {
    size_t struct_size;
    int32_t n_queued, n_running, n_paused; /* now; preempted ones count as queued */
    int32_t n_held;                        /* sequences kept for their prefixes */
    int32_t n_page, n_page_free;           /* of the cache */
    bool is_draining;
    bool has_failed; /* the last step or probe. While that is so and nothing else is computed, the
                        engine probes: it computes one token; a success ends the state, as that of
                        a request's step does. /health is not ok meanwhile */
    tdm_error failure; /* of that step or probe; all 0 = it has not failed */
    uint64_t n_submitted, n_refused;
    uint64_t n_ended[SERVER_END_COUNT_];
    uint64_t n_failed;
    uint64_t n_step;
    uint64_t n_prompt_computed; /* tokens of prompts computed, again after preemption too */
    uint64_t n_prompt_cached;   /* and found in the cache */
    uint64_t n_generated;       /* tokens drawn */
    uint64_t n_replayed;        /* generated tokens computed again after preemption */
    uint64_t n_preempted, n_evicted;
    uint64_t n_draft;          /* tokens drafted and checked */
    uint64_t n_draft_accepted; /* of those, drawn */
    uint64_t n_probe;      /* probes computed after failures */
    uint64_t n_embedded;   /* tokens of embedding requests */
    uint64_t busy_ns;      /* in steps */
    uint64_t last_step_ns; /* server_clock() at the end of the last step: for a watchdog */
} server_stats;

/* Totals, and, where infos is not NULL, the requests that have not ended, oldest first, at most
 * max_info; returns how many there are. Does not wait for a step. [any-thread] */
int32_t server_engine_snapshot(server_engine *engine, server_stats *stats,
                               server_request_info *infos, int32_t max_info);

/* Tokens of a sequence at most: of the context and of the embedding context; 0 = there is none.
 * [any-thread] */
int32_t server_engine_n_ctx(const server_engine *engine);
int32_t server_engine_n_ctx_embedding(const server_engine *engine);
/* Tokens of an embedding request's text at most: the context, or the step where tokens attend to
 * later ones; 0 without gives_embeddings. [any-thread] */
int32_t server_engine_text_max(const server_engine *engine);
/* The name of an end for messages: "stop", "length", ... [any-thread] */
const char *server_end_name(server_end end);

#endif
