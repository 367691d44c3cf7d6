/* SPDX-License-Identifier: MIT
 *
 * http.h: the HTTP/1.1 server: one event loop of libwebsockets, which reads requests and sends
 * replies. It knows no model and no API.
 *
 * A request and its reply are an exchange. A connection carries one, and closes behind the reply. The
 * loop calls `begin` when the head of a request has
 * arrived, and `request` when its body has, too; both return at once and may leave the reply to
 * another thread. Replies are queued in the exchange by any thread and sent by the loop. The loop
 * owns one reference of an exchange until its connection is through with it; whoever keeps one
 * longer holds another (server_exchange_hold).
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
    const char *host;                 /* an address; "" = all of IPv4 */
    int port;                         /* 0 = a free one */
    const char *cert_path, *key_path; /* PEM files for TLS; NULL = plain HTTP */
    size_t body_max;                  /* bytes of a request's body */
    int n_connection_max;
    int head_timeout_s;  /* for a head, and between pieces of a body */
    int write_timeout_s; /* in which a client must take some bytes of a reply, if there are any */
    int ping_s;          /* a stream of events without any for so long gets a comment; 0 = never */
    /* The head is there. It may reply; then `request` is not called. */
    void (*begin)(void *user, server_exchange *x);
    /* The body is there. */
    void (*request)(void *user, server_exchange *x);
    /* The client left before the reply ended; later writes have no effect. Also called for exchanges
     * that `begin` or `request` never passed on. */
    void (*gone)(void *user, server_exchange *x);
    /* A reply that exceeded SERVER_HTTP_QUEUE_FULL has room again. */
    void (*drained)(void *user, server_exchange *x);
    /* Called by the loop about once a second, and after each signal; false ends it. NULL = never
     * ends. */
    bool (*tick)(void *user);
    void *user;
} server_http_params;

/* Raises the process's limit of open files so that n connections fit, where the hard limit lets it;
 * returns how many of them fit. [setup] */
int server_http_connections(int n);
/* Opens the socket. Strings are copied. Failures name address and reason. [setup] */
tdm_status server_http_create(const server_http_params *params, server_http **out, tdm_error *err);
/* Closes all connections; exchanges that others hold stay, as gone. NULL is a no-op. [setup] */
void server_http_destroy(server_http *http);
/* Port of the socket. */
int server_http_port(const server_http *http);
/* Serves until `tick` returns false. The calling thread is the HTTP thread. */
void server_http_run(server_http *http);
/* Whether no request is in progress. The HTTP thread calls it. */
bool server_http_is_idle(const server_http *http);
/* Connections open now. [any-thread] */
int server_http_n_connection(const server_http *http);

/* ---- The request: does not change after `begin`, the body after `request`. [any-thread] ---- */

server_method server_exchange_method(const server_exchange *x);
/* Decoded, with a leading slash, without arguments. */
const char *server_exchange_path(const server_exchange *x);
/* The value, decoded, of the first argument NAME=VALUE behind the path; "" = there is none. */
const char *server_exchange_argument(const server_exchange *x, const char *name);
/* Headers; "" = absent. */
const char *server_exchange_host(const server_exchange *x);
const char *server_exchange_origin(const server_exchange *x);
/* The key of "Authorization: Bearer KEY" or "X-Api-Key: KEY". */
const char *server_exchange_key(const server_exchange *x);
/* *len bytes with a NUL behind them. */
const char *server_exchange_body(const server_exchange *x, size_t *len);
/* Address of the client. */
const char *server_exchange_peer(const server_exchange *x);

/* A pointer of the user's, NULL at first. Set before another thread gets the exchange. */
void server_exchange_set_user(server_exchange *x, void *user);
void *server_exchange_user(const server_exchange *x);

/* ---- The reply. [any-thread], one thread at a time for an exchange ---- */

void server_exchange_hold(server_exchange *x);
void server_exchange_release(server_exchange *x);

/* Adds a header, before the reply begins; at most eight. `name` is static and ends in a colon, the
 * value is copied (at most 1023 bytes). */
void server_exchange_add_header(server_exchange *x, const char *name, const char *value);
/* The whole reply. `type` is static. An exchange that has begun a reply is left alone. */
void server_exchange_reply(server_exchange *x, int status, const char *type, const void *body,
                           size_t len);
/* Begins a reply of unknown length (chunked). */
void server_exchange_stream(server_exchange *x, const char *type);
/* Adds bytes. Returns the bytes that are queued now, SIZE_MAX where the client has gone or memory
 * ran out. */
size_t server_exchange_write(server_exchange *x, const void *data, size_t len);
void server_exchange_end(server_exchange *x);
/* Ends a stream before its time: the client gets no last chunk, and the connection closes. */
void server_exchange_break(server_exchange *x);
bool server_exchange_has_begun(const server_exchange *x);
bool server_exchange_is_gone(const server_exchange *x);
size_t server_exchange_queued(const server_exchange *x);

#endif
