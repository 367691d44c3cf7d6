/* SPDX-License-Identifier: MIT
 *
 * api.h: the APIs that programs speak to a language model: those of OpenAI, llama-server, Anthropic
 * and ollama. It turns a request of HTTP into requests of the engine, and the engine's tokens into
 * replies.
 *
 * Threads. The HTTP thread calls the functions below and returns at once. A few threads of the
 * API's own read JSON, render templates and make tokens; others compile grammars; others write
 * replies. The engine's thread only
 * adds text to a queue (queue.c). So neither a client nor a template slows the device.
 */
#ifndef TANDEM_SERVER_API_H
#define TANDEM_SERVER_API_H

#include "server/http/http.h"
#include "server/models.h"

typedef struct server_api server_api;

typedef struct server_api_params {
    size_t struct_size;
    server_models *models;   /* that requests name. With one, any name is its name */
    const char *const *keys; /* [n_key] API keys; none = every request is served */
    int32_t n_key;
    const char *const *origins; /* [n_origin] origins of pages that may call; "*" = all */
    int32_t n_origin;
    const char *const *hosts; /* [n_host] names in Host headers, besides those of this machine's
                                 own loopback, that are served */
    int32_t n_host;
    bool checks_host; /* refuses requests whose Host header names another machine */
    bool has_metrics, has_slots, has_page;
    uint64_t queue_limit, first_limit, total_limit; /* of requests, in ns; 0 = none */
    int32_t n_thread; /* that prepare requests and write replies; 0 = 2 */
    /* A line about what was done, never a prompt or a key; NULL = none. [any-thread] */
    void (*log)(void *user, const char *line);
    void *log_user;
} server_api_params;

/* Copies the params, but for the models, which outlive the API; starts the threads. [setup] */
tdm_status server_api_create(const server_api_params *params, server_api **out, tdm_error *err);
/* Ends the threads that read requests and compile their grammars, so that no more come to the
 * engines. After server_models_settle, so that no request waits for a model, and before
 * server_models_stop. NULL is a no-op. [setup] */
void server_api_stop(server_api *api);
/* Ends the threads that write replies; what is not written by now is given up. After
 * server_models_stop and before the HTTP server is destroyed. NULL is a no-op. [setup] */
void server_api_settle(server_api *api);
/* The HTTP server is destroyed. NULL is a no-op. [setup] */
void server_api_destroy(server_api *api);

/* For server_http_params, with the API as `user`. The HTTP thread calls them. */
void server_api_begin(void *api, server_exchange *x);
void server_api_request(void *api, server_exchange *x);
void server_api_gone(void *api, server_exchange *x);
void server_api_drained(void *api, server_exchange *x);

/* The server, for numbers of connections; before the first request. [setup] */
void server_api_set_http(server_api *api, const server_http *http);
/* From now on /health says that the server ends, and no request is taken. [any-thread] */
void server_api_drain(server_api *api);
/* Requests that are being answered. [any-thread] */
int server_api_n_active(server_api *api);

#endif
