/* SPDX-License-Identifier: MIT
 *
 * api.h: the APIs by which programs use a language model: those of OpenAI, llama-server, Anthropic
 * and ollama. It turns a request of HTTP into requests of the engine, and the engine's tokens into
 * replies.
 *
 * Threads. The HTTP thread calls the functions below, which return at once. The API has threads of
 * its own: some read JSON, render templates and tokenize; others compile grammars; others write
 * replies. The engine's thread only adds text to a queue (queue.c). So neither a client nor a
 * template slows the device.
 */
#ifndef TANDEM_SERVER_API_H
#define TANDEM_SERVER_API_H

#include "server/http/http.h"
#include "server/models.h"

typedef struct server_api server_api;

typedef struct server_api_params {
    size_t struct_size;
    server_models *models;   /* the models that requests name; where there is one, any name is
                                its */
    const char *const *keys; /* [n_key] API keys; none = every request is served */
    int32_t n_key;
    const char *const *origins; /* [n_origin] origins of pages that may call; "*" = all */
    int32_t n_origin;
    const char *const *hosts; /* [n_host] names in Host headers that are served, besides those of
                                 the loopback (localhost, 127.0.0.1, [::1]) */
    int32_t n_host;
    bool checks_host; /* refuses requests whose Host header has another name */
    bool has_metrics, has_slots, has_page;
    uint64_t queue_limit, first_limit, total_limit; /* as in server_request, ns; 0 = none */
    int32_t n_thread; /* of each kind: to prepare requests, compile grammars, write replies; 0 =
                         2 */
    /* Gets a line about what was done, never with a prompt or a key; NULL = not called.
     * [any-thread] */
    void (*log)(void *user, const char *line);
    void *log_user;
} server_api_params;

/* Copies the params, but not the models, which outlive the API; starts the threads.
 * TDM_RESOURCE_EXHAUSTED. [setup] */
tdm_status server_api_create(const server_api_params *params, server_api **out, tdm_error *err);
/* Ends the threads that prepare requests and compile their grammars: the engines get no more
 * requests. Called after server_models_settle, so that no request waits for a model, and before
 * server_models_stop. NULL is a no-op. [setup] */
void server_api_stop(server_api *api);
/* Ends the threads that write replies; replies that are not written by now are dropped. Called
 * after server_models_stop, so that all answers end, and before the HTTP server is destroyed, which
 * still calls server_api_gone. NULL is a no-op. [setup] */
void server_api_settle(server_api *api);
/* Frees the API. Called after the HTTP server was destroyed. NULL is a no-op. [setup] */
void server_api_destroy(server_api *api);

/* For server_http_params, with the API as `user`. The HTTP thread calls them. */
void server_api_begin(void *api, server_exchange *x);
void server_api_request(void *api, server_exchange *x);
void server_api_gone(void *api, server_exchange *x);
void server_api_drained(void *api, server_exchange *x);

/* Sets the server whose connections /metrics counts; before the first request. [setup] */
void server_api_set_http(server_api *api, const server_http *http);
/* From now on /health reports that the server is shutting down, and new requests get 503, but for
 * those that the HTTP thread answers itself. [any-thread] */
void server_api_drain(server_api *api);
/* How many requests are in preparation or being answered. [any-thread] */
int server_api_n_active(server_api *api);

#endif
