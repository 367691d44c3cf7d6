/* SPDX-License-Identifier: MIT
 *
 * api.c: see api.h: the table of routes, the preparation of requests (their body, their model,
 * their handler), and the life of the API.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/api/state.h"

/* What a route needs of the model that a request names. */
typedef enum route_model {
    MODEL_NONE,  /* nothing: the name is not read */
    MODEL_NAMED, /* its number */
    MODEL_OPEN   /* its number, and that it is open */
} route_model;

typedef struct api_route {
    server_method method;
    const char *path;
    api_handler handler;
    api_shape shape;
    route_model model;
    bool is_public;    /* no key is needed */
    bool is_immediate; /* the handler is cheap, so the HTTP thread runs it, and a busy server still
                          answers; with MODEL_OPEN only where the model is open already */
    bool takes_array;  /* the body is an array; else an object */
} api_route;

#define GET  SERVER_METHOD_GET
#define POST SERVER_METHOD_POST

#define OPENAI    API_SHAPE_OPENAI
#define ANTHROPIC API_SHAPE_ANTHROPIC
#define OLLAMA    API_SHAPE_OLLAMA

static const api_route routes[] = {
    {GET, "/", api_page, OPENAI, MODEL_NONE, true, true},
    {GET, "/health", api_health, OPENAI, MODEL_NONE, true, true},
    {GET, "/v1/health", api_health, OPENAI, MODEL_NONE, true, true},
    {GET, "/v1/models", api_models, OPENAI, MODEL_NONE, false, true},
    {GET, "/models", api_models, OPENAI, MODEL_NONE, false, true},
    {POST, "/models/load", api_models_load, OPENAI, MODEL_OPEN, false, false},
    {POST, "/models/unload", api_models_unload, OPENAI, MODEL_NAMED, false, false},
    {POST, "/v1/chat/completions", api_chat_completions, OPENAI, MODEL_OPEN, false, false},
    {POST, "/chat/completions", api_chat_completions, OPENAI, MODEL_OPEN, false, false},
    {POST, "/v1/completions", api_completions, OPENAI, MODEL_OPEN, false, false},
    {POST, "/v1/fim/completions", api_fim_completions, OPENAI, MODEL_OPEN, false, false},
    {POST, "/v1/responses", api_responses, OPENAI, MODEL_OPEN, false, false},
    {POST, "/v1/embeddings", api_embeddings, OPENAI, MODEL_OPEN, false, false},
    {POST, "/embeddings", api_embeddings, OPENAI, MODEL_OPEN, false, false},
    {POST, "/v1/rerank", api_rerank, OPENAI, MODEL_OPEN, false, false},
    {POST, "/v1/reranking", api_rerank, OPENAI, MODEL_OPEN, false, false},
    {POST, "/rerank", api_rerank, OPENAI, MODEL_OPEN, false, false},
    {POST, "/reranking", api_rerank, OPENAI, MODEL_OPEN, false, false},
    {POST, "/v1/messages", api_messages, ANTHROPIC, MODEL_OPEN, false, false},
    {POST, "/v1/messages/count_tokens", api_count_tokens, ANTHROPIC, MODEL_OPEN, false, false},
    {POST, "/api/chat", api_ollama_chat, OLLAMA, MODEL_OPEN, false, false},
    {POST, "/api/generate", api_ollama_generate, OLLAMA, MODEL_OPEN, false, false},
    {GET, "/api/tags", api_ollama_tags, OLLAMA, MODEL_NONE, false, true},
    {POST, "/api/embed", api_ollama_embed, OLLAMA, MODEL_OPEN, false, false},
    {POST, "/api/embeddings", api_ollama_embeddings, OLLAMA, MODEL_OPEN, false, false},
    {POST, "/api/show", api_ollama_show, OLLAMA, MODEL_NAMED, false, false},
    {GET, "/api/ps", api_ollama_ps, OLLAMA, MODEL_NONE, false, true},
    {GET, "/api/version", api_ollama_version, OLLAMA, MODEL_NONE, false, true},
    {POST, "/completion", api_llama_completion, OPENAI, MODEL_OPEN, false, false},
    {POST, "/completions", api_llama_completion, OPENAI, MODEL_OPEN, false, false},
    {POST, "/infill", api_llama_infill, OPENAI, MODEL_OPEN, false, false},
    {POST, "/tokenize", api_tokenize, OPENAI, MODEL_OPEN, false, false},
    {POST, "/detokenize", api_detokenize, OPENAI, MODEL_OPEN, false, false},
    {POST, "/apply-template", api_apply_template, OPENAI, MODEL_OPEN, false, false},
    {GET, "/lora-adapters", api_lora_get, OPENAI, MODEL_OPEN, false, true},
    {POST, "/lora-adapters", api_lora_set, OPENAI, MODEL_OPEN, false, true, true},
    {GET, "/props", api_props, OPENAI, MODEL_OPEN, false, true},
    {GET, "/slots", api_slots, OPENAI, MODEL_NONE, false, true},
    {GET, "/metrics", api_metrics, OPENAI, MODEL_NONE, false, true},
};

/* The route of a request. NULL = there is none; then *same_path is the first route of its path with
 * another method, or NULL. A GET route serves HEAD, too. */
static const api_route *route_find(const server_exchange *x, const api_route **same_path) {
    const server_method method = server_exchange_method(x);
    *same_path = NULL;
    for (size_t i = 0; i < sizeof routes / sizeof routes[0]; i++) {
        if (strcmp(routes[i].path, server_exchange_path(x)) != 0) continue;
        if (*same_path == NULL) *same_path = &routes[i];
        if (routes[i].method == method || (method == SERVER_METHOD_HEAD && routes[i].method == GET))
            return &routes[i];
    }
    return NULL;
}

reply_family api_family(const server_model *model) {
    return reply_family_find(model->tpl_text);
}

/* ---- The model of a request ---- */

tdm_status api_model_find(const server_api *api, const char *name, int32_t *index_out,
                          tdm_error *err) {
    const server_models *models = api->params.models;
    const int32_t n = server_models_n(models);
    *index_out = server_models_first(models);
    if (n == 1 || name[0] == '\0') return TDM_OK;
    *index_out = server_models_find(models, name);
    if (*index_out >= 0) return TDM_OK;
    char list[TDM_ERROR_MESSAGE_SIZE] = "";
    size_t at = 0;
    for (int32_t i = 0; i < n && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s'%s'", i > 0 ? ", " : "",
                               server_models_name(models, i));
    return tdm_fail(err, TDM_NOT_FOUND, "there is no model '%.80s'; there are %s", name, list);
}

/* The name of the model: the field `model` of the body (which may be NULL), else the argument
 * `model` of the path; "" = neither is there. */
static tdm_status model_name(const server_exchange *x, api_shape shape, const json_t *body,
                             const char **name_out, tdm_error *err) {
    tdm_status status = TDM_OK;
    *name_out = server_exchange_argument(x, "model");
    if (json_is_object(body)) {
        if (shape == API_SHAPE_OLLAMA) /* its older name */
            status = api_get_string(body, "name", name_out, err);
        if (status == TDM_OK) status = api_get_string(body, "model", name_out, err);
    }
    return status;
}

/* ---- Running handlers ---- */

/* A request from its arrival until its handler has returned: it waits for a thread, then perhaps
 * for its model, then for a thread again. */
typedef struct preparation {
    api_task task;
    server_model_wait wait;
    server_api *api;
    server_exchange *x;
    const api_route *route;
    json_t *body;              /* NULL = not parsed yet, or none */
    int32_t index;             /* number of the model; -1 = none */
    const server_model *model; /* a reference; NULL = none yet */
    bool is_parsed;
    uint64_t deadline; /* of server_clock(): how long it waits for the model; 0 = no limit */
    tdm_status status; /* not TDM_OK: the model could not be opened, for the reason in `message` */
    char message[TDM_ERROR_MESSAGE_SIZE];
} preparation;

static preparation *preparation_of(const server_model_wait *wait) {
    return (preparation *)((char *)(uintptr_t)wait - offsetof(preparation, wait));
}

static bool wait_is_wanted(const server_model_wait *wait) {
    const preparation *p = preparation_of(wait);
    return !server_exchange_is_gone(p->x) && (p->deadline == 0 || server_clock() < p->deadline);
}

static void wait_ready(server_model_wait *wait, const server_model *model, tdm_status status,
                       const char *message) {
    preparation *p = preparation_of(wait);
    p->model = model;
    p->status = status;
    snprintf(p->message, sizeof p->message, "%s", message);
    api_pool_add(p->api->readers, &p->task);
}

/* Replies to a request whose model could not be opened. There is no Retry-After: another try is
 * expected to fail as well. */
static void model_fail_reply(const preparation *p) {
    const bool is_short = p->status == TDM_RESOURCE_EXHAUSTED || p->status == TDM_UNAVAILABLE ||
                          p->status == TDM_CANCELLED;
    api_error_reply(p->x, p->route->shape, is_short ? 503 : 500, p->message, 0);
}

static void handler_run(const preparation *p) {
    api_context c = {
        .api = p->api,
        .x = p->x,
        .model_index = p->index,
        .model = p->model,
        .body = p->body,
        .shape = p->route->shape,
    };
    tdm_error reason = {0};
    const tdm_status status = p->route->handler(&c, &reason);
    if (status != TDM_OK) api_fail_reply(p->x, p->route->shape, status, reason.message);
}

/* Reads the body and finds the number of the model. */
static tdm_status request_read(preparation *p, tdm_error *err) {
    size_t len = 0;
    const char *name = "", *text = server_exchange_body(p->x, &len);
    tdm_status status = TDM_OK;
    p->is_parsed = true;
    p->index = -1;
    if (p->route->method == POST)
        status = api_body_parse(text, len, p->route->takes_array, &p->body, err);
    if (status != TDM_OK || p->route->model == MODEL_NONE) return status;
    /* with one model the name is not read */
    if (server_models_n(p->api->params.models) > 1)
        status = model_name(p->x, p->route->shape, p->body, &name, err);
    return status == TDM_OK ? api_model_find(p->api, name, &p->index, err) : status;
}

/* Runs the handler, or replies to a failure, or queues the request for its model. Returns false in
 * the last case only; then another thread may already use or free the preparation. */
static bool work(preparation *p) {
    tdm_error reason = {0};
    tdm_status status = p->is_parsed ? TDM_OK : request_read(p, &reason);
    bool is_queue_full = false;
    if (status == TDM_OK && p->status != TDM_OK) {
        model_fail_reply(p);
        return true;
    }
    if (status == TDM_OK && p->model == NULL && p->route->model == MODEL_OPEN) {
        const server_model *model = NULL;
        status = server_models_take(p->api->params.models, p->index, &p->wait, &model, &reason);
        if (status == TDM_OK && model == NULL) return false;
        p->model = model;
        is_queue_full = status == TDM_RESOURCE_EXHAUSTED;
    }
    if (status == TDM_OK)
        handler_run(p);
    else if (is_queue_full)
        api_error_reply(p->x, p->route->shape, api_http_status(status, true), reason.message, 1);
    else
        api_fail_reply(p->x, p->route->shape, status, reason.message);
    return true;
}

void api_fail_reply(server_exchange *x, api_shape shape, tdm_status status, const char *message) {
    api_error_reply(x, shape, api_http_status(status, false), message, 0);
}

void api_active_add(server_api *api, int n) {
    pthread_mutex_lock(&api->lock);
    api->n_active += n;
    pthread_mutex_unlock(&api->lock);
}

static void preparation_clear(preparation *p) {
    json_decref(p->body);
    if (p->model != NULL) server_models_release(p->api->params.models, p->model);
}

static void preparation_run(api_task *task) {
    preparation *p = (preparation *)task; /* its first member */
    /* the client may have left while the request waited for its model */
    if (!server_exchange_is_gone(p->x) && !work(p)) return;
    api_active_add(p->api, -1);
    server_exchange_release(p->x);
    preparation_clear(p);
    if (api_pool_finish(p->api->readers, task)) free(p);
}

/* Runs the handler within this call, or replies to a failure. Returns false, and does neither,
 * where the route needs an open model and it is not open. */
static bool run_now(server_api *api, server_exchange *x, const api_route *route) {
    preparation p = {.api = api, .x = x, .route = route};
    tdm_error reason = {0};
    const tdm_status status = request_read(&p, &reason);
    if (status == TDM_OK && route->model == MODEL_OPEN)
        p.model = server_models_peek(api->params.models, p.index);
    const bool has_run = status != TDM_OK || route->model != MODEL_OPEN || p.model != NULL;
    if (status != TDM_OK)
        api_fail_reply(x, route->shape, status, reason.message);
    else if (has_run)
        handler_run(&p);
    preparation_clear(&p);
    return has_run;
}

void server_api_begin(void *user, server_exchange *x) {
    server_api *api = user;
    const api_route *same_path;
    const api_route *route = route_find(x, &same_path);
    const api_shape shape = route != NULL ? route->shape : API_SHAPE_OPENAI;
    if (!api_access_check(api, x, route != NULL && route->is_public, shape)) return;
    if (route != NULL) return;
    char message[160];
    if (same_path != NULL) {
        const bool has_both = same_path + 1 < routes + sizeof routes / sizeof routes[0] &&
                              strcmp(same_path[1].path, same_path->path) == 0;
        server_exchange_add_header(x, "allow:",
                                   has_both                   ? "GET, HEAD, POST"
                                   : same_path->method == GET ? "GET, HEAD"
                                                              : "POST");
        snprintf(message, sizeof message, "this method is not served at %.80s",
                 server_exchange_path(x));
    } else {
        snprintf(message, sizeof message, "nothing is served at %.80s", server_exchange_path(x));
    }
    api_error_reply(x, shape, same_path != NULL ? 405 : 404, message, 0);
}

void server_api_request(void *user, server_exchange *x) {
    server_api *api = user;
    const api_route *same_path;
    const api_route *route = route_find(x, &same_path);
    if (route == NULL) return; /* replied to by server_api_begin */
    if (route->is_immediate && run_now(api, x, route)) return;
    if (__atomic_load_n(&api->is_draining, __ATOMIC_RELAXED)) {
        api_error_reply(x, route->shape, 503, "the server is shutting down", 1000000000u);
        return;
    }
    preparation *p = calloc(1, sizeof *p);
    if (p == NULL) {
        api_error_reply(x, route->shape, 503, "no memory for the request", 1000000000u);
        return;
    }
    *p = (preparation){
        .task.run = preparation_run,
        .wait = {.ready = wait_ready, .is_wanted = wait_is_wanted},
        .api = api,
        .x = x,
        .route = route,
        .deadline = api->params.total_limit > 0 ? server_clock() + api->params.total_limit : 0,
    };
    server_exchange_hold(x);
    api_active_add(api, 1);
    api_pool_add(api->readers, &p->task);
}

/* ---- Events of exchanges ---- */

void server_api_gone(void *user, server_exchange *x) {
    server_api *api = user;
    pthread_mutex_lock(&api->lock);
    api_listener *listener = server_exchange_user(x);
    if (listener != NULL) listener->gone(listener);
    pthread_mutex_unlock(&api->lock);
}

void server_api_drained(void *user, server_exchange *x) {
    server_api *api = user;
    pthread_mutex_lock(&api->lock);
    api_listener *listener = server_exchange_user(x);
    if (listener != NULL) listener->drained(listener);
    pthread_mutex_unlock(&api->lock);
}

/* ---- The API ---- */

tdm_status server_api_create(const server_api_params *params, server_api **out, tdm_error *err) {
    *out = NULL;
    server_api *api = calloc(1, sizeof *api);
    if (api == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the API");
    api->params = *params;
    api->started = (int64_t)time(NULL);
    pthread_mutex_init(&api->lock, NULL);
    tdm_status status = api_access_create(api, params, err);
    const int n_thread = params->n_thread > 0 ? params->n_thread : 2;
    if (status == TDM_OK) status = api_pool_create(n_thread, &api->readers, err);
    if (status == TDM_OK) status = api_pool_create(n_thread, &api->compilers, err);
    if (status == TDM_OK) status = api_pool_create(1, &api->large_compiler, err);
    if (status == TDM_OK) status = api_pool_create(n_thread, &api->writers, err);
    if (status != TDM_OK) {
        server_api_destroy(api);
        return status;
    }
    *out = api;
    return TDM_OK;
}

void server_api_stop(server_api *api) {
    if (api == NULL) return;
    __atomic_store_n(&api->is_stopping, true, __ATOMIC_RELAXED);
    api_pool_destroy(api->readers); /* first: they add to the others */
    api->readers = NULL;
    api_pool_destroy(api->compilers);
    api->compilers = NULL;
    api_pool_destroy(api->large_compiler);
    api->large_compiler = NULL;
}

void server_api_settle(server_api *api) {
    if (api == NULL) return;
    __atomic_store_n(&api->is_settling, true, __ATOMIC_RELAXED);
    pthread_mutex_lock(&api->lock);
    for (api_answer *a = api->answers; a != NULL; a = a->next) api_pool_add(api->writers, &a->task);
    pthread_mutex_unlock(&api->lock);
    api_pool_destroy(api->writers);
    api->writers = NULL;
}

void server_api_destroy(server_api *api) {
    if (api == NULL) return;
    server_api_stop(api);
    server_api_settle(api);
    api_access_destroy(api);
    pthread_mutex_destroy(&api->lock);
    free(api);
}

void server_api_set_http(server_api *api, const server_http *http) {
    api->http = http;
}

void server_api_drain(server_api *api) {
    __atomic_store_n(&api->is_draining, true, __ATOMIC_RELAXED);
}

int server_api_n_active(server_api *api) {
    pthread_mutex_lock(&api->lock);
    const int n = api->n_active;
    pthread_mutex_unlock(&api->lock);
    return n;
}
