/* SPDX-License-Identifier: MIT
 *
 * http.h: the HTTP/1.1 server: one event loop of libwebsockets, which reads requests and sends
 * replies. Models and APIs are not its part.
 *
 * A request and its reply are an exchange. A connection carries one exchange and closes after the
 * reply. The loop calls `begin` when the head of a request has arrived, and `request` when its body
 * has, too; both must return at once, and another thread may write the reply. Replies are queued in
 * the exchange by any thread and sent by the loop. The loop holds one reference to an exchange
 * until its connection closes; a thread that uses the exchange longer holds another
 * (server_exchange_hold).
 *
 * The HTTP thread is the one that runs the loop (server_http_run). It calls all functions of
 * server_http_params.
 */
#ifndef TANDEM_SERVER_HTTP_H
#define TANDEM_SERVER_HTTP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tandem/status.h"

#define SERVER_HTTP_HEAD_MAX   16384      /* bytes of a request's head */
#define SERVER_HTTP_QUEUE_FULL (64 << 10) /* bytes of a reply that a writer should not exceed */

typedef struct server_http server_http;
typedef struct server_exchange server_exchange;

typedef enum server_method {
    SERVER_METHOD_GET,
    SERVER_METHOD_POST,
    SERVER_METHOD_OPTIONS,
    SERVER_METHOD_HEAD,
    SERVER_METHOD_OTHER
} server_method;

typedef struct server_http_params {
    const char *host;                 /* of address.h */
    int port;                         /* 0 = a free one */
    const char *cert_path, *key_path; /* PEM files for TLS; NULL = plain HTTP */
    size_t body_max;                  /* most bytes of a request's body; a larger one gets 413 */
    int n_connection_max;             /* further connections are closed at once */
    int head_timeout_s;               /* most seconds for a head, and between pieces of a body */
    int write_timeout_s; /* seconds in which a client must take some bytes of a reply that has
                            any */
    int ping_s; /* a stream of events (text/event-stream) gets a comment after this many seconds
                   without bytes; 0 = never */
    /* The head has arrived. `begin` may reply; then `request` is not called. */
    void (*begin)(void *user, server_exchange *x);
    /* The body has arrived. */
    void (*request)(void *user, server_exchange *x);
    /* The client left before the reply was sent whole; later writes have no effect. Also called
     * where `request` was not. */
    void (*gone)(void *user, server_exchange *x);
    /* The queue of a reply that exceeded SERVER_HTTP_QUEUE_FULL has fallen below half of it. */
    void (*drained)(void *user, server_exchange *x);
    /* Called after each turn of the loop, about once a second or more often; false ends the loop.
     * NULL = it never ends. */
    bool (*tick)(void *user);
    void *user;
} server_http_params;

/* Raises the process's limit of open files so that n connections fit, where the hard limit lets it;
 * returns how many of them fit. [setup] */
int server_http_connections(int n);
/* Opens the socket. Strings are copied. TDM_UNAVAILABLE names address and reason;
 * TDM_RESOURCE_EXHAUSTED. [setup] */
tdm_status server_http_create(const server_http_params *params, server_http **out, tdm_error *err);
/* Closes all connections. Exchanges to which others hold references stay; their clients count as
 * gone. NULL is a no-op. [setup] */
void server_http_destroy(server_http *http);
/* Port of the socket. */
int server_http_port(const server_http *http);
/* Serves until `tick` returns false. The calling thread is the HTTP thread. */
void server_http_run(server_http *http);
/* Whether no exchange has a connection: none is in progress or being sent. [HTTP thread] */
bool server_http_is_idle(const server_http *http);
/* Connections open now. [any-thread] */
int server_http_n_connection(const server_http *http);

/* ---- The request. Strings are the exchange's. The head does not change from `begin` on, the body
 * from `request` on. [any-thread] ---- */

server_method server_exchange_method(const server_exchange *x);
/* The path: decoded, with a leading slash, without arguments. */
const char *server_exchange_path(const server_exchange *x);
/* The value, decoded, of the first argument NAME=VALUE behind the path; "" = there is none. */
const char *server_exchange_argument(const server_exchange *x, const char *name);
/* The headers Host and Origin; "" = absent. */
const char *server_exchange_host(const server_exchange *x);
const char *server_exchange_origin(const server_exchange *x);
/* The key of "Authorization: Bearer KEY", else of "X-Api-Key: KEY"; "" = absent. */
const char *server_exchange_key(const server_exchange *x);
/* The body: *len bytes with a NUL behind them. */
const char *server_exchange_body(const server_exchange *x, size_t *len);
/* Address of the client. */
const char *server_exchange_peer(const server_exchange *x);

/* A pointer for the caller's use, NULL at first. It has no lock of its own: the caller orders calls
 * of these two. */
void server_exchange_set_user(server_exchange *x, void *user);
void *server_exchange_user(const server_exchange *x);

/* ---- The reply. [any-thread], one thread at a time for an exchange ---- */

/* Adds a reference; gives one back, the last one frees the exchange (NULL is a no-op). */
void server_exchange_hold(server_exchange *x);
void server_exchange_release(server_exchange *x);

/* Adds a header to a reply that has not begun; at most eight. `name` ends in a colon and
 * outlives the exchange; the value is copied (at most 1023 bytes). No-op where there are
 * eight, the reply has begun, or memory is short. */
void server_exchange_add_header(server_exchange *x, const char *name, const char *value);
/* The whole reply. `type` outlives the exchange; NULL = no content type. No-op where a reply has
 * begun. Without memory for the body the status is 500 and the body empty. */
void server_exchange_reply(server_exchange *x, int status, const char *type, const void *body,
                           size_t len);
/* Begins a reply of unknown length (chunked, status 200). No-op where a reply has begun. */
void server_exchange_stream(server_exchange *x, const char *type);
/* Adds bytes to a stream. Returns how many bytes are queued now; SIZE_MAX where the client has
 * left, the stream has ended, or memory ran out, which breaks the stream. */
size_t server_exchange_write(server_exchange *x, const void *data, size_t len);
/* Ends a stream. */
void server_exchange_end(server_exchange *x);
/* Ends a stream that is incomplete: the connection closes without a last chunk, so the client
 * can see that bytes are missing. */
void server_exchange_break(server_exchange *x);
/* Whether a reply has begun; whether the client has left or the connection is closed; bytes that
 * are queued. */
bool server_exchange_has_begun(const server_exchange *x);
bool server_exchange_is_gone(const server_exchange *x);
size_t server_exchange_queued(const server_exchange *x);

#endif
