/* SPDX-License-Identifier: MIT
 *
 * models.h: the table of the models that a server has, by name. A model is opened when the first
 * request for it comes. Where there is no room for it, the least recently used other one is closed.
 * How a model is opened is the owner's part: the table calls its `open` and `close`.
 *
 * Threads. Functions marked [any-thread] take a lock for a moment; they never wait for a model. A
 * thread of the table's own opens and closes models, one at a time. So a request for an open model
 * does not wait while another one is opened.
 *
 * Ownership. What `open` has made is the table's until it calls `close`. A model is closed only
 * while no reference of it is held. Each model that a function gives is a reference: whoever got it
 * calls server_models_release.
 */
#ifndef TANDEM_SERVER_MODELS_H
#define TANDEM_SERVER_MODELS_H

#include "llm/template/template.h"
#include "server/engine.h"

struct grammar_vocab;

/* A model that requests are answered with. It does not change while it is open. */
typedef struct server_model {
    const char *name; /* as clients call it */
    const llm_model *model;
    const llm_vocab *vocab;
    server_engine *engine;               /* NULL = it takes no requests (tests only) */
    const llm_template *tpl;             /* NULL = none: no chats */
    const char *tpl_text;                /* its source; "" = none */
    const char *bos, *eos;               /* texts of the tokens, for the template */
    const char *stop;                    /* text that ends a turn; "" = none */
    int32_t stop_id;                     /* token that ends one; LLM_TOKEN_NONE = none */
    struct grammar_vocab *grammar_vocab; /* NULL = no constrained decoding */
    bool is_encoder;                     /* it gives embeddings only */
    llm_pooling pooling;                 /* of embeddings */
    const char *device;                  /* description of what runs it */
    llm_sampler_params sampler;          /* where a request names none; its seed is not used */
    int32_t n_predict; /* tokens of an answer where a request names none; 0 = no limit */
    int32_t n_running; /* requests that run at a time, at least 1 */
    int32_t min_draft; /* server_request.min_draft where a request names none, and min_draft_p */
    float min_draft_p;
} server_model;

typedef struct server_models server_models;

typedef enum server_model_state {
    SERVER_MODEL_CLOSED,
    SERVER_MODEL_WAITING, /* to be opened */
    SERVER_MODEL_OPENING,
    SERVER_MODEL_OPEN,
    SERVER_MODEL_LEAVING, /* open until its requests have ended, then closed; new requests wait
                             until it is opened again */
    SERVER_MODEL_CLOSING,
    SERVER_MODEL_STATE_COUNT_
} server_model_state;

/* A model of the table. */
typedef struct server_model_info {
    server_model_state state;
    bool has_failed;                       /* the last try to open it failed */
    int32_t n_ref;                         /* references: requests that use it */
    int32_t n_wait;                        /* requests that wait for it */
    uint64_t n_opened, n_closed, n_failed; /* totals */
} server_model_info;

/* A request that waits for a model. The caller owns it and keeps it until `ready` is called. */
typedef struct server_model_wait server_model_wait;
struct server_model_wait {
    /* Called once, without a lock held, by the table's thread or by a thread that calls
     * server_models_take or server_models_drain. With TDM_OK `model` is a reference; else it is
     * NULL, and status and message say why. `ready` may free the wait. It must not block. */
    void (*ready)(server_model_wait *wait, const server_model *model, tdm_status status,
                  const char *message);
    /* Returns whether the request still waits. Where it does not (its client has left), `ready` is
     * called with TDM_CANCELLED. Called with the table's lock held, so it must not call the table.
     * NULL = it always waits. */
    bool (*is_wanted)(const server_model_wait *wait);
    server_model_wait *next; /* for the table only */
};

typedef struct server_models_params {
    size_t struct_size;
    const char *const *names; /* [n_name] all different; copied */
    int32_t n_name;           /* at least 1 */
    int32_t first;            /* number of the model of requests that name none */
    int32_t n_open_max;       /* models that are open at a time; 0 = no limit */
    int32_t n_wait_max;       /* requests that wait for models, all together; 0 = 256 */
    /* Opens names[i] into *model_out. TDM_RESOURCE_EXHAUSTED = memory is short: another model is
     * closed, and this one is tried again. Called by the table's thread. */
    tdm_status (*open)(void *user, int32_t i, const server_model **model_out, tdm_error *err);
    /* Frees a model; its engine was destroyed before. Called by the table's thread, or within
     * server_models_destroy. */
    void (*close)(void *user, int32_t i, const server_model *model);
    void *user;
} server_models_params;

/* Makes a table with all models closed, and starts its thread. Copies the params and names.
 * TDM_RESOURCE_EXHAUSTED. [setup] */
tdm_status server_models_create(const server_models_params *params, server_models **out,
                                tdm_error *err);
/* Drains the table and ends its thread; waits for a model that is being opened or closed. No
 * `ready` is called after it. NULL is a no-op. [setup] */
void server_models_settle(server_models *models);
/* Settles, then stops the engines, which ends their requests. References may still be held; the
 * engines refuse what is submitted. NULL is a no-op. [setup] */
void server_models_stop(server_models *models);
/* Stops, destroys the engines, closes all models and frees the table. No reference may be held.
 * NULL is a no-op. [setup] */
void server_models_destroy(server_models *models);

/* How many models there are; the name of number i; the number of the first. [any-thread] */
int32_t server_models_n(const server_models *models);
const char *server_models_name(const server_models *models, int32_t i);
int32_t server_models_first(const server_models *models);
/* The number of a name, also of NAME:latest; -1 = there is none. [any-thread] */
int32_t server_models_find(const server_models *models, const char *name);
/* Writes the present state of model i to *info. [any-thread] */
void server_models_info(server_models *models, int32_t i, server_model_info *info);

/* Model i with a reference, or NULL where it is not open. Opens nothing. [any-thread] */
const server_model *server_models_peek(server_models *models, int32_t i);
/* Where model i is open, writes it to *model_out with a reference; `wait` is not used. Else writes
 * NULL, queues `wait`, and the table opens the model. Where that fails, all requests that wait for
 * the model fail; the next request tries again.
 * TDM_RESOURCE_EXHAUSTED n_wait_max requests wait
 * TDM_UNAVAILABLE        the table drains
 * [any-thread] */
tdm_status server_models_take(server_models *models, int32_t i, server_model_wait *wait,
                              const server_model **model_out, tdm_error *err);
/* Adds a reference to a model of which the caller holds one; gives one back. [any-thread] */
void server_models_hold(server_models *models, const server_model *model);
void server_models_release(server_models *models, const server_model *model);

/* Opens a model and waits until it is open. A failure has the message of `open`, preceded by the
 * model's name where there are several. [setup] */
tdm_status server_models_load(server_models *models, int32_t i, tdm_error *err);
/* Closes a model once its requests have ended. False where it is not open. [any-thread] */
bool server_models_unload(server_models *models, int32_t i);

/* From now on no model is opened, and none taken; requests that wait for one fail with
 * TDM_UNAVAILABLE. The engines drain (server_engine_drain with limit_ns); a second call does not
 * change their limit. [any-thread] */
void server_models_drain(server_models *models, uint64_t limit_ns);
/* Whether no engine has a request left. [any-thread] */
bool server_models_is_idle(server_models *models);

#endif
