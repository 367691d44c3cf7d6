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
    tdm_open_device *fallback;  /* the CPU, for what `dev` refuses; NULL where `dev` is the CPU */
    runner_placement placement; /* weights and cache on other devices */
    tdm_device_info info;       /* of dev, as it was before loading */
    llm_context *ctx;
    llm_layer_types *layer_types; /* [n_layer] by cache-budget or kv-rotate = auto; NULL = none, or
                                     not needed yet */
    bool is_guest;                /* rt, dev and fallback are another session's */
    /* Called by runner_session_prefill behind each batch, with its tokens; NULL = nothing is. */
    tdm_status (*batch_done)(void *user, const int32_t *tokens, int32_t n_tok, tdm_error *err);
    void *batch_user;
    uint64_t load_ns; /* time of reading the file, opening devices and loading */
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
 * *session. [setup] */
tdm_status runner_session_open_draft(runner_session *session, const runner_session *host,
                                     tdm_error *err);

/* Uploads the weights to the picked device, with a progress bar. TDM_CANCELLED after Ctrl-C.
 * [setup] */
tdm_status runner_session_load(runner_session *session, tdm_error *err);

/* Makes an opened session use the devices of session `host`, which outlives it. The next step is
 * runner_session_load. [setup] */
void runner_session_join(runner_session *session, const runner_session *host);

/* What a command sets of its context; a zero field is as configured. */
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
    /* What drafts for the model (runner/draft.h): a plan counts its weights, and a context of it as
     * large as the model's. NULL = nothing does, or it needs no memory. */
    runner_session *drafter;
    const char *draft_type_k, *draft_type_v; /* of that context; NULL = as configured */
} runner_context_wish;

/* Makes the context give only the candidates that `sampler` needs, and n_barred more, where the
 * device would otherwise send every row of logits across a bus; else whole rows. Call it before the
 * batches whose rows the sampler reads. */
tdm_status runner_session_candidates(runner_session *session, const llm_sampler *sampler,
                                     int32_t n_barred, tdm_error *err);

/* The parameters of a context. */
typedef struct runner_context_request {
    llm_context_params params; /* its types are the two below, or the session's layer_types */
    tdm_type type_k, type_v;
} runner_context_request;

/* Tokens of a step where no wish says another number: ubatch-size or, where that is not set, what the
 * picked device computes long prompts fastest in. [setup] */
int32_t runner_session_ubatch(const runner_session *session);

/* Whether cache-budget decides the cache types: the types themselves do where they are set at a
 * stronger level (a flag against a file). [setup] */
bool runner_session_has_budget(const runner_session *session);

/* The parameters by the wish (NULL: none) and the configuration. The table of layers, if there is
 * one, is the session's. Reads the file of `tandem calibrate` where it is needed: fails as
 * runner_cache_file_read and llm_cache_costs_choose. [setup] */
tdm_status runner_session_context(runner_session *session, const runner_context_wish *wish,
                                  runner_context_request *request, tdm_error *err);

/* Makes a context for the loaded model; `wish` may be NULL. After Ctrl-C, decoding ends after the
 * current ubatch with TDM_CANCELLED. [setup] */
tdm_status runner_session_begin(runner_session *session, const runner_context_wish *wish,
                                tdm_error *err);

/* Decodes tokens of sequence 0, n_batch at a time, with a progress bar where that takes long. Keeps
 * the logits of the last token if `wants_last`. TDM_CANCELLED after Ctrl-C. [setup] */
tdm_status runner_session_prefill(runner_session *session, const int32_t *tokens, int32_t n_tok,
                                  int32_t n_batch, bool wants_last, tdm_error *err);

/* Releases everything; a cleared session is a no-op. [setup] */
void runner_session_close(runner_session *session);

#endif
