/* SPDX-License-Identifier: MIT
 *
 * vectors.c: see vectors.h.
 */
#include "server/api/vectors.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define N_AT_ONCE 16 /* most inputs of an exchange that are submitted and not done */

static void vectors_free(api_vectors *v) {
    for (int i = 0; i < v->n_input; i++) {
        free(v->inputs[i].values);
        free(v->inputs[i].tokens);
    }
    free(v->inputs);
    json_decref(v->request);
    server_exchange_release(v->x);
    server_models_release(v->api->params.models, v->model);
    pthread_mutex_destroy(&v->lock);
    free(v);
}

static void vectors_reply(api_vectors *v) {
    if (v->status != TDM_OK) {
        const int http_status = api_http_status(v->status, v->retry_ns > 0);
        api_error_reply(v->x, v->shape, http_status, v->message,
                        http_status == 429 || http_status == 503 ? v->retry_ns + 1 : 0);
        return;
    }
    api_json_reply(v->x, 200, v->reply_make(v));
}

/* Notes that one more input is done or has failed. After it the exchange may be freed. */
static void input_over(api_vectors *v, tdm_status status, const char *message) {
    pthread_mutex_lock(&v->lock);
    if (status != TDM_OK && v->status == TDM_OK) {
        v->status = status;
        snprintf(v->message, sizeof v->message, "%s", message);
    }
    v->n_over++;
    api_pool_add(v->api->writers, &v->task);
    pthread_mutex_unlock(&v->lock);
}

/* server_embedding_request.done. */
static void done_take(void *user, server_request_id id, tdm_status status, const char *message,
                      const float *vector, int32_t n) {
    api_vector *input = user;
    (void)id;
    /* JSON has no such numbers */
    for (int32_t i = 0; i < n && status == TDM_OK; i++)
        if (!isfinite(vector[i])) {
            status = TDM_INTERNAL;
            message = "the vector of a text has values that are not finite";
        }
    if (status == TDM_OK) {
        input->values = malloc((size_t)n * sizeof *vector);
        if (input->values != NULL) {
            memcpy(input->values, vector, (size_t)n * sizeof *vector);
            input->n = n;
        } else {
            status = TDM_RESOURCE_EXHAUSTED;
            message = "no memory for a vector";
        }
    }
    input_over(input->owner, status, message);
}

static tdm_status input_submit(api_vectors *v, api_vector *input, tdm_error *err) {
    const server_embedding_request request = {
        .struct_size = sizeof request,
        .tokens = input->tokens,
        .n_tok = input->n_tok,
        .pooling = v->pooling,
        .normalize = v->normalize,
        .total_limit = v->api->params.total_limit,
        .done = done_take,
        .user = input,
    };
    /* The lock keeps vectors_gone from missing an input that is just being submitted. */
    pthread_mutex_lock(&v->lock);
    const tdm_status status =
        server_engine_embed(v->model->engine, &request, &input->id, &v->retry_ns, err);
    pthread_mutex_unlock(&v->lock);
    return status;
}

/* api_listener.gone: cancels what was submitted. The task submits no more, and ends as usual. */
static void vectors_gone(api_listener *listener) {
    api_vectors *v = (api_vectors *)((char *)listener - offsetof(api_vectors, listener));
    pthread_mutex_lock(&v->lock);
    for (int i = 0; i < v->n_input; i++)
        if (v->inputs[i].id != 0) server_engine_cancel(v->model->engine, v->inputs[i].id);
    pthread_mutex_unlock(&v->lock);
}

/* api_listener.drained: the reply is written at once, whole. */
static void vectors_drained(api_listener *listener) {
    (void)listener;
}

/* The task: submits some inputs; once all are done, replies. After a failure, or where the client
 * has left, the inputs that are left are not submitted and count as failed. */
static void vectors_run(api_task *task) {
    api_vectors *v = (api_vectors *)task; /* its first member */
    pthread_mutex_lock(&v->lock);
    int n_over = v->n_over;
    bool has_failed = v->status != TDM_OK;
    pthread_mutex_unlock(&v->lock);
    while (!v->has_replied && v->n_submitted < v->n_input && v->n_submitted - n_over < N_AT_ONCE) {
        tdm_error reason = {0};
        tdm_status status = TDM_CANCELLED;
        if (!has_failed && !server_exchange_is_gone(v->x))
            status = input_submit(v, &v->inputs[v->n_submitted], &reason);
        v->n_submitted++;
        if (status != TDM_OK) {
            has_failed = true;
            input_over(v, status, reason.message);
            n_over++;
        }
    }
    if (n_over < v->n_input) return;
    server_api *api = v->api;
    if (!v->has_replied) {
        v->has_replied = true;
        vectors_reply(v);
        pthread_mutex_lock(&api->lock);
        server_exchange_set_user(v->x, NULL);
        api->n_active--;
        pthread_mutex_unlock(&api->lock);
    }
    if (api_pool_finish(api->writers, task)) vectors_free(v);
}

tdm_status api_vectors_start(api_context *c, const api_vectors *kind, api_settings *settings,
                             tdm_error *err) {
    api_vectors *v = calloc(1, sizeof *v);
    if (v != NULL) *v = *kind;
    if (v != NULL) v->inputs = calloc((size_t)settings->n_prompt + 1, sizeof *v->inputs);
    if (v == NULL || v->inputs == NULL) {
        free(v);
        json_decref(kind->request);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the vectors");
    }
    v->task.run = vectors_run;
    v->listener = (api_listener){.gone = vectors_gone, .drained = vectors_drained};
    v->api = c->api;
    v->x = c->x;
    v->model = c->model;
    v->started_ns = server_clock();
    v->n_input = settings->n_prompt;
    pthread_mutex_init(&v->lock, NULL);
    for (int i = 0; i < v->n_input; i++) {
        v->inputs[i].owner = v;
        v->inputs[i].tokens = settings->prompts[i];
        v->inputs[i].n_tok = settings->prompt_lens[i];
        v->n_token += settings->prompt_lens[i];
        settings->prompts[i] = NULL;
    }
    server_exchange_hold(c->x);
    server_models_hold(c->api->params.models, c->model);
    pthread_mutex_lock(&c->api->lock);
    server_exchange_set_user(c->x, &v->listener);
    c->api->n_active++;
    pthread_mutex_unlock(&c->api->lock);
    api_pool_add(c->api->writers, &v->task);
    return TDM_OK;
}
