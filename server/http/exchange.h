/* SPDX-License-Identifier: MIT
 *
 * exchange.h: what an exchange consists of, for the files of server/http alone.
 */
#ifndef TANDEM_SERVER_EXCHANGE_H
#define TANDEM_SERVER_EXCHANGE_H

#include <pthread.h>

#include "server/http/http.h"

#define EXCHANGE_N_HEADER   8
#define EXCHANGE_HEADER_MAX 1023 /* bytes of a reply's header that is added */

struct lws;

typedef struct exchange_header {
    const char *name;
    char *value;
} exchange_header;

struct server_exchange {
    server_http *http;            /* NULL once the loop has let go; guarded by lock */
    struct lws *wsi;              /* of the HTTP thread */
    server_exchange *next, *prev; /* of the HTTP thread: all of the server */
    /* Request */
    server_method method;
    char *path, *host, *origin, *key;
    char *arguments; /* "NAME=VALUE" each, decoded, with a NUL behind; one more at the end */
    char peer[64];
    char *body;
    size_t body_len, body_size;
    void *user;
    /* Reply, guarded by lock */
    pthread_mutex_t lock;
    int n_ref;
    exchange_header headers[EXCHANGE_N_HEADER];
    int n_header;
    int status; /* 0 = not begun */
    const char *type;
    bool is_chunked;
    bool has_ended;
    bool is_gone;
    bool was_full;  /* `drained` is due */
    bool is_listed; /* in the loop's list of exchanges to send */
    bool is_broken; /* a stream that ends before its time: it gets no last chunk */
    size_t length;  /* of a whole reply */
    char *out;      /* a queue of bytes: out[out_at .. out_len) */
    size_t out_at, out_len, out_size;
    server_exchange *next_listed; /* guarded by the server's lock */
    uint64_t sent_ns; /* when the client last took bytes, or the first of those that wait came */
    /* Of the HTTP thread */
    bool is_head_sent, is_last_sent, has_request, has_body_end, is_watched;
    bool lingers; /* the reply has left, and the rest of the body is still to be read */
    uint64_t n_announced, n_arrived; /* bytes of the body: by the head, and so far */
};

/* A new exchange with one reference; NULL = no memory. */
server_exchange *exchange_create(server_http *http);
/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t http_clock(void);
/* Puts x into the list of the server and wakes the loop. The caller holds the lock of x. */
void http_list(server_http *http, server_exchange *x);

#endif
