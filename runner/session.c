/* SPDX-License-Identifier: MIT
 *
 * session.c: see session.h. A wrong file is reported before a device is opened, and a wrong device
 * before weights are read.
 */
#include "runner/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/runtime.h"
#include "llm/arch/forward_graph.h"
#include "runner/cache_file.h"
#include "runner/interrupt.h"
#include "runner/llama_flags.h"
#include "runner/lora.h"

uint64_t runner_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- Runtime ---- */

static void log_print(void *context, int32_t level, const char *line) {
    static const runner_message messages[] = {RUNNER_MESSAGE_WARNING, RUNNER_MESSAGE_WARNING,
                                              RUNNER_MESSAGE_DEBUG, RUNNER_MESSAGE_DEBUG};
    runner_app *app = context;
    runner_message message =
        level >= 0 && level <= TDM_LOG_DEBUG ? messages[level] : RUNNER_MESSAGE_DEBUG;
    if (message == RUNNER_MESSAGE_WARNING && runner_config_is_quiet(app->config)) return;
    runner_terminal_print(app->terminal, message, "%s", line);
}

tdm_status runner_runtime_create(runner_app *app, tdm_runtime **rt_out, tdm_error *err) {
    char *folders = NULL;
    tdm_status status = runner_config_join_paths(app->config, "plugin-path", &folders, err);
    if (status != TDM_OK) return status;
    tdm_runtime_params params = {
        .struct_size = sizeof params,
        .plugin_path = folders,
        .log = log_print,
        .log_context = app,
        .log_level = runner_config_is_verbose(app->config) ? TDM_LOG_DEBUG : TDM_LOG_WARN,
    };
    const double timeout = runner_config_get_float(app->config, "device-timeout");
    params.wait_limit_ns = timeout > 0 ? (uint64_t)(timeout * 1e9) : TDM_WAIT_FOREVER;
    status = tdm_runtime_create(&params, rt_out, err);
    free(folders);
    return status;
}

/* ---- Model file ---- */

/* For --verbose: prints the vocabulary's kind, its special tokens, and what a prompt gets. */
static void vocab_print(const runner_app *app, const llm_vocab *vocab) {
    const struct {
        const char *name;
        int32_t id;
    } special[] = {{"bos", llm_vocab_bos(vocab)},
                   {"eos", llm_vocab_eos(vocab)},
                   {"eot", llm_vocab_eot(vocab)},
                   {"unk", llm_vocab_unk(vocab)},
                   {"pad", llm_vocab_pad(vocab)}};
    char text[160] = "";
    for (size_t i = 0, n = 0; i < sizeof special / sizeof special[0]; i++)
        if (special[i].id != LLM_TOKEN_NONE)
            n += (size_t)snprintf(text + n, sizeof text - n, ", %s %d", special[i].name,
                                  special[i].id);
    runner_terminal_print(
        app->terminal, RUNNER_MESSAGE_DEBUG, "vocabulary  %s%s%s, %d tokens%s; a prompt gets %s",
        llm_vocab_model_name(vocab), *llm_vocab_pre_name(vocab) ? " " : "",
        llm_vocab_pre_name(vocab), llm_vocab_n_token(vocab), text,
        llm_vocab_adds_bos(vocab)   ? llm_vocab_adds_eos(vocab) ? "bos and eos" : "bos"
        : llm_vocab_adds_eos(vocab) ? "eos"
                                    : "none of them");
}

tdm_status runner_session_open(runner_session *session, runner_app *app, const char *path,
                               tdm_error *err) {
    uint64_t start = runner_clock();
    const bool is_configured = path == NULL;
    session->app = app;
    if (is_configured) path = runner_config_get_string(app->config, "model");
    tdm_status status = runner_config_check(app->config, err);
    if (status != TDM_OK) return status;
    if (path[0] == '\0')
        return runner_usage(app, err,
                            "no model given: use -m MODEL.gguf, or `model =` in a file given with "
                            "--config");
    status = llm_model_open(path, &session->model, err);
    if (status == TDM_OK && is_configured) status = runner_lora_add(app, session->model, err);
    if (status == TDM_OK && session->model->vocab != NULL) vocab_print(app, session->model->vocab);
    session->load_ns = runner_clock() - start;
    return status;
}

tdm_status runner_session_open_draft(runner_session *session, const runner_session *host,
                                     tdm_error *err) {
    session->app = host->app;
    return llm_model_open_draft(host->model, &session->model, err);
}

/* ---- Device ---- */

static bool loading_update(void *context, uint64_t done, uint64_t total) {
    runner_app *app = context;
    (void)total;
    runner_progress_update(app->terminal, done);
    return !runner_interrupt_came();
}

tdm_status runner_session_candidates(runner_session *session, const llm_sampler *sampler,
                                     int32_t n_barred, tdm_error *err) {
    const uint32_t near = TDM_DEVICE_IS_HOST | TDM_DEVICE_IS_INTEGRATED | TDM_DEVICE_IS_GROUP;
    int32_t n = llm_sampler_candidates(sampler);
    if (n > 0) n += n_barred;
    if ((session->info.flags & near) != 0 || n > LLM_MAX_CANDIDATES ||
        n >= session->model->hparams.n_vocab)
        n = 0;
    return llm_context_set_candidates(session->ctx, n, err);
}

void runner_session_join(runner_session *session, const runner_session *host) {
    session->is_guest = true;
    session->section = host->section;
    session->rt = host->rt;
    session->dev = host->dev;
    session->fallback = host->fallback;
    if (session->fallback == NULL && host->placement.cache_dev > 0)
        session->fallback = host->placement.devs[host->placement.cache_dev];
    session->info = host->info;
}

tdm_status runner_session_load(runner_session *session, tdm_error *err) {
    runner_app *app = session->app;
    uint64_t start = runner_clock();
    tdm_open_device *devs[TDM_MAX_STAGE_DEVICES] = {session->dev};
    int32_t n_dev = 1;
    /* A guest session uses the devices of its host session, but not its placement. */
    for (; n_dev < session->placement.n_dev; n_dev++) devs[n_dev] = session->placement.devs[n_dev];
    if (session->fallback != NULL) devs[n_dev++] = session->fallback;
    /* A layer that drafts uses weights of the model, so it is on the same devices. */
    const llm_model *lender = session->model->lender;
    if (lender != NULL) {
        n_dev = lender->n_dev;
        memcpy(devs, lender->devs, sizeof devs);
    }
    if (!session->is_guest) runner_placement_apply(&session->placement, session->model);
    runner_progress_begin(app->terminal, "loading",
                          session->model->file_size + session->model->adapter_size,
                          RUNNER_UNIT_BYTES);
    tdm_status status =
        llm_model_load(session->model, session->rt, devs, n_dev, loading_update, app, err);
    runner_progress_end(app->terminal);
    if (status == TDM_OK) status = runner_weights_lock(app, session->model, err);
    session->load_ns += runner_clock() - start;
    return status;
}

/* ---- Context ---- */

/* The configuration accepts only names of types, so an unknown name is a bug. */
static tdm_status type_find(const char *name, tdm_type *type_out, tdm_error *err) {
    for (int type = 0; type < TDM_TYPE_LIMIT_; type++) {
        tdm_type_info info = tdm_type_get_info((tdm_type)type);
        if (info.name == NULL || strcmp(info.name, name) != 0) continue;
        *type_out = (tdm_type)type;
        return TDM_OK;
    }
    return tdm_fail(err, TDM_INTERNAL, "no type is called '%s'", name);
}

/* ctx-size for llm_context_params: `auto` is 0 there. */
static int32_t context_size(runner_session *session) {
    int64_t n_ctx = runner_config_get_int(session->app->config, "ctx-size");
    if (n_ctx == 0) return llm_hparams_n_ctx(&session->model->hparams);
    return n_ctx < 0 ? 0 : (int32_t)n_ctx;
}

bool runner_session_has_budget(const runner_session *session) {
    runner_config *config = session->app->config;
    const runner_level level = runner_config_get_origin(config, "cache-budget").level;
    return runner_config_get_float(config, "cache-budget") > 0 &&
           runner_config_get_origin(config, "cache-type-k").level <= level &&
           runner_config_get_origin(config, "cache-type-v").level <= level;
}

/* Refuses cache types that are set at the same level as cache-budget: they would have no effect. */
static tdm_status budget_check(runner_config *config, tdm_error *err) {
    static const char *const keys[] = {"cache-type-k", "cache-type-v"};
    const runner_level level = runner_config_get_origin(config, "cache-budget").level;
    for (int i = 0; i < 2; i++)
        if (runner_config_get_origin(config, keys[i]).level == level)
            return runner_config_fail(config, keys[i], TDM_INVALID_ARGUMENT, err,
                                      "cache-budget chooses the types of K and V; leave out one of "
                                      "the two keys");
    return TDM_OK;
}

/* Chooses the types and rotation of each layer from the file of `tandem calibrate`. Not for guests:
 * their model, a draft model or one layer of the host's, is not the one that the file was measured
 * with. */
static tdm_status layer_types_find(runner_session *session, const runner_context_request *request,
                                   bool is_budget, tdm_error *err) {
    runner_config *config = session->app->config;
    const llm_model *m = session->model;
    const bool is_auto = runner_config_is_auto(config, "kv-rotate");
    const bool is_rotated = runner_config_get_bool(config, "kv-rotate");
    const double bits = runner_config_get_float(config, "cache-budget");
    llm_cache_costs *costs = NULL;
    char *path = NULL;
    if (session->layer_types != NULL) return TDM_OK;
    tdm_status status = runner_cache_file_path(session->app, m->path, &path, err);
    if (status == TDM_OK) status = runner_cache_file_read(path, m, &costs, err);
    free(path);
    if (status != TDM_OK) return status;
    llm_layer_types *layers = calloc((size_t)m->hparams.n_layer, sizeof *layers);
    if (layers == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %d cache types",
                          m->hparams.n_layer);
    else if (is_budget)
        status = llm_cache_costs_choose(costs, m, bits,
                                        is_auto      ? LLM_ROTATION_AUTO
                                        : is_rotated ? LLM_ROTATION_YES
                                                     : LLM_ROTATION_NO,
                                        layers, err);
    else
        status = llm_cache_costs_rotate(costs, m, request->type_k, request->type_v, layers, err);
    llm_cache_costs_destroy(costs);
    if (status == TDM_OK)
        session->layer_types = layers;
    else
        free(layers);
    return status;
}

int32_t runner_session_ubatch(const runner_session *session) {
    runner_config *config = session->app->config;
    const int32_t n = (int32_t)runner_config_get_int(config, "ubatch-size");
    if (runner_config_get_origin(config, "ubatch-size").level != RUNNER_LEVEL_BUILT_IN) return n;
    return session->info.prompt_step > n ? session->info.prompt_step : n;
}

tdm_status runner_session_context(runner_session *session, const runner_context_wish *wish,
                                  runner_context_request *request, tdm_error *err) {
    static const runner_context_wish none;
    runner_config *config = session->app->config;
    if (wish == NULL) wish = &none;
    const char *type_k = wish->type_k, *type_v = wish->type_v;
    if (type_k == NULL) type_k = runner_config_get_string(config, "cache-type-k");
    if (type_v == NULL) type_v = runner_config_get_string(config, "cache-type-v");
    int32_t n_ubatch = wish->n_ubatch;
    if (n_ubatch == 0) n_ubatch = runner_session_ubatch(session);
    bool is_rotated =
        wish->rotate != 0 ? wish->rotate > 0 : runner_config_get_bool(config, "kv-rotate");
    request->params = (llm_context_params){
        .struct_size = sizeof request->params,
        .n_ctx = wish->n_ctx != 0 ? wish->n_ctx : context_size(session),
        .n_ubatch = n_ubatch,
        .n_seq = wish->n_seq,
        .page_len = (int32_t)runner_config_get_int(config, "page-size"),
        .type_k = &request->type_k,
        .type_v = &request->type_v,
        .is_unrotated = !is_rotated,
        .begins_decoder = wish->begins_decoder,
        .gives_hidden = wish->gives_hidden,
        .has_all_logits = wish->has_all_logits,
        .gives_embeddings = wish->gives_embeddings,
        .product = wish->product,
        .product_user = wish->product_user,
        .is_cache_in_host = !runner_config_get_bool(config, "kv-offload"),
        .is_window_whole = runner_config_get_bool(config, "swa-full"),
    };
    tdm_status status = runner_config_check(config, err);
    if (status == TDM_OK) status = type_find(type_k, &request->type_k, err);
    if (status == TDM_OK) status = type_find(type_v, &request->type_v, err);
    /* In a latent cache V is a part of K, so V has K's type unless it is set. The description of
     * the whole cache is read, because the first layer of such a model may have no latent cache. */
    tdm_kv_desc cache;
    llm_cache_desc_fill(session->model, &cache);
    if ((cache.flags & TDM_KV_V_FROM_K) != 0 &&
        runner_config_get_origin(config, "cache-type-v").level == RUNNER_LEVEL_BUILT_IN)
        request->type_v = request->type_k;
    request->params.layer_types = wish->layer_types;
    const bool is_set = wish->layer_types != NULL || wish->type_k != NULL || wish->rotate != 0;
    if (status != TDM_OK || is_set || session->is_guest || session->model->lender != NULL)
        return status;
    const bool is_budget = runner_session_has_budget(session);
    if (is_budget) status = budget_check(config, err);
    if (status != TDM_OK) return status;
    const bool is_quantised = tdm_type_get_info(request->type_k).is_quantized ||
                              tdm_type_get_info(request->type_v).is_quantized;
    if (is_budget || (is_quantised && runner_config_is_auto(config, "kv-rotate"))) {
        status = layer_types_find(session, request, is_budget, err);
        request->params.layer_types = session->layer_types;
    }
    return status;
}

/* An llm_progress_fn: after Ctrl-C it ends a batch between two of its ubatches. */
static bool batch_goes_on(void *context, uint64_t done, uint64_t total) {
    (void)context, (void)done, (void)total;
    return !runner_interrupt_came();
}

tdm_status runner_session_begin(runner_session *session, const runner_context_wish *wish,
                                tdm_error *err) {
    runner_context_request request;
    tdm_status status = runner_session_context(session, wish, &request, err);
    if (status == TDM_OK)
        status = llm_context_create(session->model, &request.params, &session->ctx, err);
    if (status == TDM_OK) llm_context_set_progress(session->ctx, batch_goes_on, NULL);
    return status;
}

typedef struct prefill_progress {
    runner_app *app;
    uint64_t done_before;
} prefill_progress;

static bool prefill_update(void *context, uint64_t done, uint64_t total) {
    const prefill_progress *progress = context;
    (void)total;
    runner_progress_update(progress->app->terminal, progress->done_before + done);
    return !runner_interrupt_came();
}

tdm_status runner_session_prefill(runner_session *session, const int32_t *tokens, int32_t n_tok,
                                  int32_t n_batch, bool wants_last, tdm_error *err) {
    runner_app *app = session->app;
    tdm_status status = TDM_OK;
    /* An encoder reads its text in one batch. */
    if (n_batch > n_tok || session->model->hparams.n_layer_encoder > 0) n_batch = n_tok;
    bool *unwanted = calloc((size_t)n_batch + 1, sizeof *unwanted);
    if (unwanted == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a batch of %d tokens", n_batch);
    prefill_progress progress = {app, 0};
    runner_progress_begin(app->terminal, "prompt", (uint64_t)n_tok, RUNNER_UNIT_TOKENS);
    llm_context_set_progress(session->ctx, prefill_update, &progress);
    for (int32_t at = 0, n; at < n_tok && status == TDM_OK; at += n) {
        n = n_tok - at < n_batch ? n_tok - at : n_batch;
        bool is_last = at + n == n_tok;
        llm_batch batch = {tokens + at, NULL, is_last && wants_last ? NULL : unwanted, n,
                           TDM_ROLE_PROMPT};
        progress.done_before = (uint64_t)at;
        status = llm_context_decode(session->ctx, &batch, err);
        if (status == TDM_OK && session->batch_done != NULL)
            status = session->batch_done(session->batch_user, tokens + at, n, err);
        runner_progress_update(app->terminal, (uint64_t)(at + n));
        if (status == TDM_OK && !is_last && runner_interrupt_came())
            status =
                tdm_fail(err, TDM_CANCELLED, "interrupted after %d of %d tokens", at + n, n_tok);
    }
    llm_context_set_progress(session->ctx, batch_goes_on, NULL);
    runner_progress_end(app->terminal);
    free(unwanted);
    return status;
}

void runner_session_close(runner_session *session) {
    llm_context_destroy(session->ctx);
    free(session->layer_types);
    llm_model_close(session->model);
    runner_placement_clear(&session->placement);
    runner_roster_clear(&session->roster);
    if (!session->is_guest) tdm_runtime_destroy(session->rt);
    memset(session, 0, sizeof *session);
}
