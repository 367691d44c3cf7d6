/* SPDX-License-Identifier: MIT
 *
 * vectors.h: one exchange for whose texts the engine computes vectors or scores. Only embeddings.c
 * and rerank.c use it. Its task (API's writers) submits the texts, some at a time, and replies.
 */
#ifndef TANDEM_SERVER_API_VECTORS_H
#define TANDEM_SERVER_API_VECTORS_H

#include "server/api/state.h"

typedef struct api_vectors api_vectors;

/* A text and its vector or scores. */
typedef struct api_vector {
    api_vectors *owner;
    int32_t *tokens; /* [n_tok] */
    int32_t n_tok;
    server_request_id id; /* guarded by the owner's lock; 0 = not submitted */
    float *values; /* [n] all finite; NULL = not computed */
    int32_t n;
} api_vector;

/* The exchange. Its task frees it once all texts are done. */
struct api_vectors {
    api_task task;
    api_listener listener;
    server_api *api;
    server_exchange *x;
    const server_model *model;
    /* Set by the handler before api_vectors_start. */
    api_shape shape;
    json_t *(*reply_make)(const api_vectors *v); /* a new value; NULL = no memory */
    llm_pooling pooling;
    int32_t normalize; /* as llm_embedding_normalize */
    bool is_base64;
    json_t *request; /* owned: more that reply_make reads; NULL = nothing */

    uint64_t started_ns; /* of server_clock() */
    int n_input;
    int64_t n_token;    /* of all inputs */
    api_vector *inputs; /* [n_input] */
    int n_submitted;    /* of the task */
    pthread_mutex_t lock;
    int n_over;        /* guarded by lock: inputs that are done, or have failed */
    tdm_status status; /* guarded by lock: the first failure, as its message */
    char message[512];
    uint64_t retry_ns; /* of the task: of an engine that refused an input; 0 = none */
    bool has_replied;  /* of the task */
};

/* Starts an exchange for the prompts of the settings, which it takes; it replies once all are done.
 * `kind` has the fields that the handler sets; kind->request is taken over, and released on
 * failure. TDM_RESOURCE_EXHAUSTED. */
tdm_status api_vectors_start(api_context *c, const api_vectors *kind, api_settings *settings,
                             tdm_error *err);

#endif
