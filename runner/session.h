/* SPDX-License-Identifier: MIT
 *
 * session.h: makes runtime, devices, model and context from the configuration, for all commands
 * that compute.
 *
 * A session is filled in this order, as far as a command needs it:
 *
 *     runner_session_open    the model file is read and checked
 *     runner_session_pick    runtime and device (plan/pick.h)
 *     runner_session_load    weights
 *     runner_session_begin   a context
 *
 * and released by runner_session_close from any of these states.
 */
#ifndef TANDEM_RUNNER_SESSION_H
#define TANDEM_RUNNER_SESSION_H

#include "llm/context.h"
#include "runner/app.h"
#include "runner/plan/placement.h"

typedef struct runner_session {
    runner_app *app;
    llm_model *model;
    const runner_section *section; /* of the device or group; NULL = it has none */
    tdm_runtime *rt;
    runner_roster roster;       /* the devices declared in rt */
    tdm_open_device *dev;       /* runs the model */
    /* The CPU that runs the ops that `dev` refuses. NULL where `dev` is a CPU or a group, which has
     * fallbacks of its own, where the placement has a CPU, or where no CPU could be opened. */
    tdm_open_device *fallback;
    runner_placement placement; /* weights and cache on other devices */
    tdm_device_info info; /* of dev, read before loading: memory_free is without the weights */
    llm_context *ctx;
    /* [n_layer] of cache-budget or kv-rotate = auto; NULL = all layers have the same types, or
     * runner_session_context was not called yet; owned */
    llm_layer_types *layer_types;
    bool is_guest; /* rt, dev and fallback belong to another session */
    /* Called by runner_session_prefill after each batch, with its tokens; NULL = no call. A failure
     * ends the prefill. */
    tdm_status (*batch_done)(void *user, const int32_t *tokens, int32_t n_tok, tdm_error *err);
    void *batch_user;
    uint64_t load_ns; /* nanoseconds of reading the file, opening devices and loading, so far */
} runner_session;

/* Nanoseconds of a monotonic clock. [any-thread] */
uint64_t runner_clock(void);

/* Makes a runtime with the configured plugin folders, which logs to the terminal. The caller
 * destroys it. [setup] */
tdm_status runner_runtime_create(runner_app *app, tdm_runtime **rt_out, tdm_error *err);

/* Opens `path`, NULL = the configured model with its adapters, into the cleared *session. Call
 * runner_session_close in any case, also on failure. [setup] */
tdm_status runner_session_open(runner_session *session, runner_app *app, const char *path,
                               tdm_error *err);

/* Opens the layer of the host's model that drafts tokens (llm_model_open_draft) into the cleared
 * *session. Close it before `host`. [setup] */
tdm_status runner_session_open_draft(runner_session *session, const runner_session *host,
                                     tdm_error *err);

/* Uploads the weights to the picked device and those of the placement, with a progress bar. With
 * mlock it locks them (runner_weights_lock). TDM_CANCELLED after Ctrl-C. [setup] */
tdm_status runner_session_load(runner_session *session, tdm_error *err);

/* Makes an opened session use the devices of session `host`, which outlives it. The next step is
 * runner_session_load. [setup] */
void runner_session_join(runner_session *session, const runner_session *host);

/* What a command sets of its context itself. A field that is 0 or NULL is as configured, and a flag
 * that is false is off. */
typedef struct runner_context_wish {
    int32_t n_ctx; /* instead of ctx-size */
    int32_t n_ubatch;
    int32_t n_seq;
    const char *type_k, *type_v;        /* names of cache types, of all layers */
    int rotate;                         /* 1 = on, -1 = off, of all layers */
    const llm_layer_types *layer_types; /* [n_layer] instead of the configured types */
    bool begins_decoder;                /* llm_context_params.begins_decoder */
    bool gives_hidden;                  /* llm_context_params.gives_hidden */
    bool has_all_logits;                /* llm_context_params.has_all_logits */
    bool gives_embeddings;              /* llm_context_params.gives_embeddings */
    llm_product_fn product;             /* llm_context_params.product */
    void *product_user;
    /* Of the model or layer that drafts (runner/draft.h). A plan then also counts its weights, and
     * a context of it that is as large as the model's. NULL = no drafter, or n-grams. */
    runner_session *drafter;
    const char *draft_type_k, *draft_type_v; /* cache types of that context; NULL = as configured */
} runner_context_wish;

/* Makes the context return only the candidates that `sampler` needs, and n_barred more, if the
 * device would otherwise send whole rows of logits over a bus; else it returns whole rows.
 * n_barred: tokens that the caller may remove from a row before sampling. Call it before the
 * batches whose rows the sampler reads. [setup] */
tdm_status runner_session_candidates(runner_session *session, const llm_sampler *sampler,
                                     int32_t n_barred, tdm_error *err);

/* The parameters of a context. `params` and its copies point to the fields below, which must live
 * as long. */
typedef struct runner_context_request {
    llm_context_params params; /* layer_types: the wish's or the session's, else NULL */
    tdm_type type_k, type_v;
} runner_context_request;

/* Tokens of a step if the wish gives no other number: ubatch-size. If that is not set, and
 * prompt_step of the picked device (tdm_device_info) is larger than the default, it is prompt_step.
 * [setup] */
int32_t runner_session_ubatch(const runner_session *session);

/* Whether cache-budget chooses the cache types. It does not where cache-type-k or cache-type-v is
 * set at a stronger level (a flag against a file). [setup] */
bool runner_session_has_budget(const runner_session *session);

/* Fills *request from the wish (NULL = none) and the configuration. Where cache-budget or kv-rotate
 * = auto chooses the types of layers, the first call reads the file of `tandem calibrate` and keeps
 * the table in session->layer_types; then it fails as runner_cache_file_read and
 * llm_cache_costs_choose. [setup] */
tdm_status runner_session_context(runner_session *session, const runner_context_wish *wish,
                                  runner_context_request *request, tdm_error *err);

/* Makes session->ctx for the loaded model; `wish` may be NULL. After Ctrl-C, a batch in this
 * context ends after the ubatch at work with TDM_CANCELLED. [setup] */
tdm_status runner_session_begin(runner_session *session, const runner_context_wish *wish,
                                tdm_error *err);

/* Appends n_tok tokens (0 = none) to sequence 0, n_batch at a time, with a progress bar where that
 * takes long. Computes the logits of the last token if `wants_last`, and no others. On failure the
 * context holds the batches before the failed one. TDM_CANCELLED after Ctrl-C. [setup] */
tdm_status runner_session_prefill(runner_session *session, const int32_t *tokens, int32_t n_tok,
                                  int32_t n_batch, bool wants_last, tdm_error *err);

/* Releases everything; a cleared session is a no-op. [setup] */
void runner_session_close(runner_session *session);

#endif
