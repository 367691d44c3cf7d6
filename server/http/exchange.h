/* SPDX-License-Identifier: MIT
 *
 * exchange.h: the fields of an exchange. Only the files of server/http include it.
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
    server_http *http;            /* NULL once the connection is detached; guarded by lock */
    struct lws *wsi;              /* of the HTTP thread */
    server_exchange *next, *prev; /* of the HTTP thread: the list server_http.first */
    /* The request: written by the HTTP thread before others get the exchange */
    server_method method;
    char *path, *host, *origin, *key;
    char *arguments; /* "NAME=VALUE" each, decoded, with a NUL behind; one more at the end */
    char peer[64];
    char *body;
    size_t body_len, body_size; /* bytes that have arrived; bytes by Content-Length */
    void *user;
    /* Reply, guarded by lock */
    pthread_mutex_t lock;
    int n_ref; /* the last release frees the exchange */
    exchange_header headers[EXCHANGE_N_HEADER];
    int n_header;
    int status; /* 0 = not begun */
    const char *type;
    bool is_chunked;
    bool has_ended;
    bool is_gone;
    bool was_full;  /* the queue exceeded SERVER_HTTP_QUEUE_FULL: `drained` is due when it
                       empties */
    bool is_listed; /* in the loop's list of exchanges to send */
    bool is_broken; /* the stream is incomplete: it gets no last chunk */
    size_t length;  /* bytes of a whole reply (not of a stream) */
    char *out;      /* a queue of bytes: out[out_at .. out_len) */
    size_t out_at, out_len, out_size;
    server_exchange *next_listed; /* guarded by the server's lock */
    uint64_t sent_ns; /* time (http_clock) from which write_timeout_s and ping_s count: when bytes
                         were last sent, or later added to an empty queue */
    /* Of the HTTP thread */
    bool is_head_sent, is_last_sent, has_request, has_body_end, is_watched;
    bool lingers; /* the reply is sent, and the rest of the body is still to be read */
    uint64_t n_announced, n_arrived; /* bytes of the body: by the head, and so far */
};

/* A new exchange with one reference; NULL = no memory. */
server_exchange *exchange_create(server_http *http);
/* Appends bytes to the queue of the reply; false = no memory. The lock of x is held. */
bool exchange_queue(server_exchange *x, const void *data, size_t len);
/* Nanoseconds of CLOCK_MONOTONIC. */
uint64_t http_clock(void);
/* Puts x into the list of exchanges with something to send and wakes the loop. The caller holds the
 * lock of x, and has set is_listed, which was false. */
void http_list(server_http *http, server_exchange *x);

#endif
