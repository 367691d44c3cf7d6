/* SPDX-License-Identifier: MIT
 *
 * vectors.h: one exchange whose texts the engine makes vectors or scores of, for the files of
 * server/api alone: embeddings.c, rerank.c.
 */
#ifndef TANDEM_SERVER_API_VECTORS_H
#define TANDEM_SERVER_API_VECTORS_H

#include "server/api/state.h"

typedef struct api_vectors api_vectors;

/* A text and what it gives. */
typedef struct api_vector {
    api_vectors *owner;
    int32_t *tokens; /* [n_tok] */
    int32_t n_tok;
    float *values; /* [n]; NULL = not done yet */
    int32_t n;
} api_vector;

/* The exchange; it is freed once all texts are done. */
struct api_vectors {
    api_task task;
    server_api *api;
    server_exchange *x;
    const server_model *model;
    /* Set by the handler before api_vectors_start. */
    api_shape shape;
    json_t *(*reply_make)(const api_vectors *v);
    llm_pooling pooling;
    int32_t normalize; /* as llm_embedding_normalize */
    bool is_base64;
    json_t *request; /* owned: what the reply is made from besides; NULL = nothing */

    uint64_t started_ns;
    int n_input;
    int64_t n_token;
    api_vector *inputs; /* [n_input] */
    int n_submitted;    /* of the task */
    pthread_mutex_t lock;
    int n_over;        /* guarded by lock: inputs that are done */
    tdm_status status; /* guarded by lock: the first failure */
    char message[512];
    uint64_t retry_ns;
    bool has_replied; /* of the task */
};

/* Starts on the prompts of the settings, which it takes, in the way of `kind`, and replies once all
 * are done. On failure `kind->request` is released, too. */
tdm_status api_vectors_start(api_context *c, const api_vectors *kind, api_settings *settings,
                             tdm_error *err);

#endif
