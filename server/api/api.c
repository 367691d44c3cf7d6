/* SPDX-License-Identifier: MIT
 *
 * api.c: see api.h: which request goes to which handler, and the threads that run them.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/api/state.h"

typedef struct api_route {
    server_method method;
    const char *path;
    api_handler handler;
    api_shape shape;
    bool is_public;    /* no key is needed */
    bool is_immediate; /* cheap: the HTTP thread runs it, also while all else is busy */
    bool takes_array;  /* its body is an array; else an object */
} api_route;

#define GET  SERVER_METHOD_GET
#define POST SERVER_METHOD_POST

static const api_route routes[] = {
    {GET, "/", api_page, API_SHAPE_OPENAI, true, true},
    {GET, "/health", api_health, API_SHAPE_OPENAI, true, true},
    {GET, "/v1/health", api_health, API_SHAPE_OPENAI, true, true},
    {GET, "/v1/models", api_models, API_SHAPE_OPENAI, false, true},
    {GET, "/models", api_models, API_SHAPE_OPENAI, false, true},
    {POST, "/v1/chat/completions", api_chat_completions, API_SHAPE_OPENAI, false, false},
    {POST, "/chat/completions", api_chat_completions, API_SHAPE_OPENAI, false, false},
    {POST, "/v1/completions", api_completions, API_SHAPE_OPENAI, false, false},
    {POST, "/v1/responses", api_responses, API_SHAPE_OPENAI, false, false},
    {POST, "/v1/embeddings", api_embeddings, API_SHAPE_OPENAI, false, false},
    {POST, "/embeddings", api_embeddings, API_SHAPE_OPENAI, false, false},
    {POST, "/v1/rerank", api_rerank, API_SHAPE_OPENAI, false, false},
    {POST, "/v1/reranking", api_rerank, API_SHAPE_OPENAI, false, false},
    {POST, "/rerank", api_rerank, API_SHAPE_OPENAI, false, false},
    {POST, "/reranking", api_rerank, API_SHAPE_OPENAI, false, false},
    {POST, "/v1/messages", api_messages, API_SHAPE_ANTHROPIC, false, false},
    {POST, "/v1/messages/count_tokens", api_count_tokens, API_SHAPE_ANTHROPIC, false, false},
    {POST, "/api/chat", api_ollama_chat, API_SHAPE_OLLAMA, false, false},
    {POST, "/api/generate", api_ollama_generate, API_SHAPE_OLLAMA, false, false},
    {GET, "/api/tags", api_ollama_tags, API_SHAPE_OLLAMA, false, true},
    {POST, "/api/embed", api_ollama_embed, API_SHAPE_OLLAMA, false, false},
    {POST, "/api/embeddings", api_ollama_embeddings, API_SHAPE_OLLAMA, false, false},
    {POST, "/api/show", api_ollama_show, API_SHAPE_OLLAMA, false, false},
    {GET, "/api/ps", api_ollama_ps, API_SHAPE_OLLAMA, false, true},
    {GET, "/api/version", api_ollama_version, API_SHAPE_OLLAMA, false, true},
    {POST, "/completion", api_llama_completion, API_SHAPE_OPENAI, false, false},
    {POST, "/completions", api_llama_completion, API_SHAPE_OPENAI, false, false},
    {POST, "/tokenize", api_tokenize, API_SHAPE_OPENAI, false, false},
    {POST, "/detokenize", api_detokenize, API_SHAPE_OPENAI, false, false},
    {POST, "/apply-template", api_apply_template, API_SHAPE_OPENAI, false, false},
    {GET, "/lora-adapters", api_lora_get, API_SHAPE_OPENAI, false, true},
    {POST, "/lora-adapters", api_lora_set, API_SHAPE_OPENAI, false, true, true},
    {GET, "/props", api_props, API_SHAPE_OPENAI, false, true},
    {GET, "/slots", api_slots, API_SHAPE_OPENAI, false, true},
    {GET, "/metrics", api_metrics, API_SHAPE_OPENAI, false, true},
};

/* The route of a request; NULL = there is none, and *same_path is the first with its path, or NULL.
 * GET is HEAD, too. */
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

/* ---- Running handlers ---- */

/* A request that waits for a thread. */
typedef struct preparation {
    api_task task;
    server_api *api;
    server_exchange *x;
    const api_route *route;
} preparation;

static void run(server_api *api, server_exchange *x, const api_route *route) {
    api_context c = {.api = api, .x = x, .model = api->params.model, .shape = route->shape};
    tdm_error reason = {0};
    tdm_status status = TDM_OK;
    size_t len = 0;
    const char *text = server_exchange_body(x, &len);
    if (route->method == POST)
        status = api_body_parse(text, len, route->takes_array, &c.body, &reason);
    if (status == TDM_OK) status = route->handler(&c, &reason);
    json_decref(c.body);
    if (status != TDM_OK) api_fail_reply(x, route->shape, status, reason.message);
}

void api_fail_reply(server_exchange *x, api_shape shape, tdm_status status, const char *message) {
    api_error_reply(x, shape, api_http_status(status), message,
                    status == TDM_RESOURCE_EXHAUSTED ? 1 : 0);
}

void api_active_add(server_api *api, int n) {
    pthread_mutex_lock(&api->lock);
    api->n_active += n;
    pthread_mutex_unlock(&api->lock);
}

static void preparation_run(api_task *task) {
    preparation *p = (preparation *)task; /* its first member */
    if (!server_exchange_is_gone(p->x)) run(p->api, p->x, p->route);
    api_active_add(p->api, -1);
    server_exchange_release(p->x);
    if (api_pool_finish(p->api->readers, task)) free(p);
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
    if (route->is_immediate) {
        run(api, x, route);
        return;
    }
    if (__atomic_load_n(&api->is_draining, __ATOMIC_RELAXED)) {
        api_error_reply(x, route->shape, 503, "the server is shutting down", 1000000000u);
        return;
    }
    preparation *p = calloc(1, sizeof *p);
    if (p == NULL) {
        api_error_reply(x, route->shape, 503, "no memory for the request", 1000000000u);
        return;
    }
    *p = (preparation){.task.run = preparation_run, .api = api, .x = x, .route = route};
    server_exchange_hold(x);
    api_active_add(api, 1);
    api_pool_add(api->readers, &p->task);
}

/* ---- What happens to exchanges ---- */

void server_api_gone(void *user, server_exchange *x) {
    server_api *api = user;
    pthread_mutex_lock(&api->lock);
    api_answer *a = server_exchange_user(x);
    if (a != NULL) {
        pthread_mutex_lock(&a->lock);
        a->is_gone = true;
        api_answer_cancel(a);
        api_pool_add(api->writers, &a->task);
        pthread_mutex_unlock(&a->lock);
    }
    pthread_mutex_unlock(&api->lock);
}

void server_api_drained(void *user, server_exchange *x) {
    server_api *api = user;
    pthread_mutex_lock(&api->lock);
    api_answer *a = server_exchange_user(x);
    if (a != NULL) api_pool_add(api->writers, &a->task);
    pthread_mutex_unlock(&api->lock);
}

/* ---- The API ---- */

tdm_status server_api_create(const server_api_params *params, server_api **out, tdm_error *err) {
    *out = NULL;
    server_api *api = calloc(1, sizeof *api);
    if (api == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the API");
    api->params = *params;
    if (api->params.n_choice_max < 1) api->params.n_choice_max = 1;
    if (api->params.n_choice_max > ANSWER_CHOICE_MAX) api->params.n_choice_max = ANSWER_CHOICE_MAX;
    api->started = (int64_t)time(NULL);
    api->family = reply_family_find(params->model->tpl_text);
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
