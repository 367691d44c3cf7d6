/* SPDX-License-Identifier: MIT
 *
 * submit.c: submits the settings of a request. Its grammar is compiled first, by threads that do
 * nothing else: a large one takes seconds, during which other requests must be read and answered.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/state.h"

/* A grammar of so many bytes or more is large: one of this size takes a part of a second, one of 3
 * MB several seconds. Large ones have one thread of their own, so that they never delay small
 * ones. */
#define LARGE_SIZE ((size_t)64 << 10)

/* A request whose grammar waits to be compiled or is being compiled. */
typedef struct compilation {
    api_task task;
    api_pool *pool;
    server_api *api;
    server_exchange *x;
    const server_model *model;
    const api_dialect *dialect;
    const char *id_prefix;
    json_t *request; /* NULL = the dialect does not keep it */
    api_settings settings;
    char *text;
} compilation;

/* Compiles the grammar and starts the answer, unless the client has left. A failure has sent no
 * reply. Takes c->text over. */
static tdm_status compile(compilation *c, tdm_error *err) {
    tdm_status status = TDM_OK;
    if (__atomic_load_n(&c->api->is_stopping, __ATOMIC_RELAXED))
        status = tdm_fail(err, TDM_UNAVAILABLE, "the server is shutting down");
    if (status == TDM_OK) status = api_grammar_compile(c->api, c->model, &c->settings, err);
    if (status == TDM_OK && !server_exchange_is_gone(c->x))
        return api_answer_start(c->api, c->x, c->model, c->dialect, c->id_prefix, c->request,
                                &c->settings, c->text, err);
    free(c->text);
    return status;
}

static void compilation_run(api_task *task) {
    compilation *c = (compilation *)task; /* its first member */
    tdm_error reason = {0};
    tdm_status status = TDM_OK;
    if (server_exchange_is_gone(c->x))
        free(c->text);
    else
        status = compile(c, &reason);
    if (status != TDM_OK) api_fail_reply(c->x, c->dialect->shape, status, reason.message);
    api_settings_clear(&c->settings);
    json_decref(c->request);
    api_active_add(c->api, -1);
    server_models_release(c->api->params.models, c->model);
    server_exchange_release(c->x);
    if (api_pool_finish(c->pool, task)) free(c);
}

tdm_status api_submit(api_context *c, const api_dialect *dialect, const char *id_prefix,
                      api_settings *settings, char *text, tdm_error *err) {
    if (settings->grammar_text == NULL && !settings->constrains_calls)
        return api_answer_start(c->api, c->x, c->model, dialect, id_prefix, c->body, settings, text,
                                err);
    compilation *work = calloc(1, sizeof *work);
    /* Copies, since two threads must not count references of the same JSON (api_answer_start). */
    json_t *request = dialect->keeps_request ? json_deep_copy(c->body) : NULL;
    json_t *tools = json_deep_copy(settings->tools);
    if (work == NULL || (dialect->keeps_request && request == NULL) ||
        (settings->tools != NULL && tools == NULL)) {
        free(work);
        free(text);
        json_decref(request);
        json_decref(tools);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the request");
    }
    json_decref(settings->tools);
    settings->tools = tools;
    const size_t size = settings->grammar_text != NULL
                            ? strlen(settings->grammar_text)
                            : json_dumpb(settings->tools, NULL, 0, JSON_COMPACT);
    *work = (compilation){
        .task.run = compilation_run,
        .pool = size >= LARGE_SIZE ? c->api->large_compiler : c->api->compilers,
        .api = c->api,
        .x = c->x,
        .model = c->model,
        .dialect = dialect,
        .id_prefix = id_prefix,
        .request = request,
        .settings = *settings,
        .text = text,
    };
    *settings = (api_settings){0};
    server_exchange_hold(c->x);
    server_models_hold(c->api->params.models, c->model);
    api_active_add(c->api, 1);
    api_pool_add(work->pool, &work->task);
    return TDM_OK;
}
