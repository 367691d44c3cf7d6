/* SPDX-License-Identifier: MIT
 *
 * http.c: see http.h: the loop: connections, heads and bodies of requests, sending, timeouts.
 *
 * HTTP/1.1 by RFC 9112. Requests with Transfer-Encoding are refused (411), so that no second length
 * exists. A reply of unknown length is chunked.
 *
 * A connection carries one request, because libwebsockets 4.1 cannot separate the next one: it
 * buffers what arrives before a reply is sent, and then takes the head of the next request for a
 * part of the present body, or calls back for it without end.
 */
#include <errno.h>
#include <libwebsockets.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/http/address.h"
#include "server/http/exchange.h"

#define SEND_MAX  16384 /* bytes given to the socket at a time */
#define TICK_US   ((lws_usec_t)1000000)
/* How many seconds the body of a request that was refused by its head is still read. */
#define LINGER_S  5
#define HEAD_SIZE 4096 /* of a reply */
/* Descriptors besides those of connections: of models, devices, the loop. */
#define N_OTHER_FILE 64

struct server_http {
    server_http_params params;
    server_address address; /* libwebsockets keeps a pointer to its text */
    char *cert_path, *key_path;
    struct lws_context *context;
    lws_sorted_usec_list_t timer;
    server_exchange *first; /* all exchanges that have a connection */
    pthread_mutex_t lock;
    server_exchange *listed; /* guarded by lock: exchanges with something to send, by next_listed */
    int n_connection;        /* atomic */
    int epoll_fd;            /* readable when the client of an exchange in progress has left */
    unsigned char buffer[LWS_PRE + SEND_MAX + 32];
};

/* What libwebsockets keeps for a connection. */
typedef struct http_connection {
    server_exchange *x; /* NULL = the request has not come, or the exchange was detached */
} http_connection;

/* ---- From other threads ---- */

void http_list(server_http *http, server_exchange *x) {
    pthread_mutex_lock(&http->lock);
    const bool was_empty = http->listed == NULL;
    x->next_listed = http->listed;
    http->listed = x;
    pthread_mutex_unlock(&http->lock);
    if (was_empty) lws_cancel_service(http->context);
}

/* ---- Clients that leave ----
 *
 * While a request is in progress libwebsockets does not read its connection, so it notices that the
 * client has closed it only when it writes. An epoll descriptor of our own, which the loop polls
 * like any other, reports it at once. */

static void leaving_watch(server_http *http, server_exchange *x) {
    struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.ptr = x};
    const int fd = lws_get_socket_fd(x->wsi);
    x->is_watched = fd >= 0 && epoll_ctl(http->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void leaving_forget(server_http *http, server_exchange *x) {
    if (x->is_watched) epoll_ctl(http->epoll_fd, EPOLL_CTL_DEL, lws_get_socket_fd(x->wsi), NULL);
    x->is_watched = false;
}

/* Closes the connections whose clients have left. */
static void leaving_take(server_http *http) {
    struct epoll_event events[64];
    const int n = epoll_wait(http->epoll_fd, events, 64, 0);
    for (int i = 0; i < n; i++) {
        server_exchange *x = events[i].data.ptr;
        lws_set_timeout(x->wsi, PENDING_TIMEOUT_HTTP_CONTENT, LWS_TO_KILL_ASYNC);
    }
}

/* ---- Exchanges ---- */

/* Takes x out of the list of what is to be sent. */
static void unlist(server_http *http, server_exchange *x) {
    pthread_mutex_lock(&http->lock);
    for (server_exchange **at = &http->listed; *at != NULL; at = &(*at)->next_listed)
        if (*at == x) {
            *at = x->next_listed;
            break;
        }
    pthread_mutex_unlock(&http->lock);
}

/* Separates an exchange from its connection, which is closed or will be; calls `gone` where the
 * reply was not sent whole. */
static void detach(server_http *http, http_connection *connection) {
    server_exchange *x = connection->x;
    if (x == NULL) return;
    connection->x = NULL;
    leaving_forget(http, x);
    if (x->prev != NULL)
        x->prev->next = x->next;
    else
        http->first = x->next;
    if (x->next != NULL) x->next->prev = x->prev;
    pthread_mutex_lock(&x->lock);
    const bool has_left = !x->is_last_sent;
    x->is_gone = true;
    x->http = NULL;
    pthread_mutex_unlock(&x->lock);
    unlist(http, x);
    if (has_left) http->params.gone(http->params.user, x);
    server_exchange_release(x);
}

static char *header_copy(struct lws *wsi, enum lws_token_indexes token) {
    const int len = lws_hdr_total_length(wsi, token);
    if (len <= 0) return NULL;
    char *text = malloc((size_t)len + 1);
    if (text != NULL && lws_hdr_copy(wsi, text, len + 1, token) < 0) {
        free(text);
        return NULL;
    }
    return text;
}

static char *custom_copy(struct lws *wsi, const char *name) {
    const int len = lws_hdr_custom_length(wsi, name, (int)strlen(name));
    if (len <= 0) return NULL;
    char *text = malloc((size_t)len + 1);
    if (text != NULL && lws_hdr_custom_copy(wsi, text, len + 1, name, (int)strlen(name)) < 0) {
        free(text);
        return NULL;
    }
    return text;
}

/* A copy of the key (server_exchange_key); NULL = none. */
static char *key_copy(struct lws *wsi) {
    char *text = header_copy(wsi, WSI_TOKEN_HTTP_AUTHORIZATION);
    if (text != NULL && strncasecmp(text, "Bearer ", 7) == 0) {
        memmove(text, text + 7, strlen(text + 7) + 1);
        return text;
    }
    free(text);
    return custom_copy(wsi, "x-api-key:");
}

static server_method method_of(int lws_method) {
    switch (lws_method) {
    case LWSHUMETH_GET: return SERVER_METHOD_GET;
    case LWSHUMETH_POST: return SERVER_METHOD_POST;
    case LWSHUMETH_OPTIONS: return SERVER_METHOD_OPTIONS;
    case LWSHUMETH_HEAD: return SERVER_METHOD_HEAD;
    default: return SERVER_METHOD_OTHER;
    }
}

static void refuse(server_exchange *x, int status, const char *message) {
    char text[256];
    const int len = snprintf(text, sizeof text,
                             "{\"error\":{\"code\":%d,\"message\":\"%s\","
                             "\"type\":\"invalid_request_error\"}}",
                             status, message);
    server_exchange_reply(x, status, "application/json", text, (size_t)len);
}

/* Reads Content-Length, which has digits only, and makes room for the body. false = the request was
 * refused, and the reply says why. */
static bool length_read(server_http *http, server_exchange *x, struct lws *wsi) {
    char text[24];
    const int len = lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_CONTENT_LENGTH);
    if (lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_TRANSFER_ENCODING) > 0) {
        refuse(x, 411, "a request has a Content-Length; Transfer-Encoding is not supported");
        return false;
    }
    if (len <= 0) {
        if (x->method != SERVER_METHOD_POST) return true;
        refuse(x, 411, "a POST request has a Content-Length");
        return false;
    }
    if (len >= (int)sizeof text ||
        lws_hdr_copy(wsi, text, sizeof text, WSI_TOKEN_HTTP_CONTENT_LENGTH) != len ||
        strspn(text, "0123456789") != (size_t)len) {
        refuse(x, 400, "Content-Length is not a number");
        return false;
    }
    const unsigned long long length = strtoull(text, NULL, 10);
    x->n_announced = length;
    if (length > http->params.body_max) {
        refuse(x, 413, "the body is larger than the server takes");
        return false;
    }
    x->body_size = (size_t)length;
    x->body = malloc(x->body_size + 1);
    if (x->body == NULL) {
        refuse(x, 503, "no memory for the body");
        return false;
    }
    x->body[0] = '\0';
    return true;
}

/* Refuses a head that libwebsockets reads otherwise than a browser wrote it. It decodes %0A in an
 * address to a line end, so that the text behind it becomes a header: a page of another site, which
 * chooses the address, could then add a Host of its own, and api_access_check would believe it. The
 * version, which ends the request line, is then missing. Two Hosts are refused as well (RFC 9112,
 * 3.2). false = the request was refused, and the reply says why. */
static bool head_check(server_exchange *x, struct lws *wsi) {
    if (lws_hdr_total_length(wsi, WSI_TOKEN_HTTP) <= 0)
        refuse(x, 400, "the request line has no HTTP version, or a line end in its address");
    else if (lws_hdr_fragment_length(wsi, WSI_TOKEN_HOST, 1) > 0)
        refuse(x, 400, "the request has more than one Host header");
    else
        return true;
    return false;
}

/* The whole request has arrived. */
static void request_pass(server_http *http, server_exchange *x, struct lws *wsi) {
    x->has_request = true;
    /* no limit for the time until the reply begins; http_tick closes connections that do not
     * read */
    lws_set_timeout(wsi, NO_PENDING_TIMEOUT, 0);
    leaving_watch(http, x);
    http->params.request(http->params.user, x);
}

/* Sends "100 Continue" where the client waits for that with its body, as curl does with more than 1
 * MiB (RFC 9110, 10.1.1). Returns -1 on failure. */
static int body_invite(const server_exchange *x, struct lws *wsi) {
    static const char line[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const size_t n = sizeof line - 1;
    unsigned char buffer[LWS_PRE + sizeof line];
    char expected[16] = "", version[16] = "";
    (void)lws_hdr_copy(wsi, expected, sizeof expected, WSI_TOKEN_HTTP_EXPECT);
    (void)lws_hdr_copy(wsi, version, sizeof version, WSI_TOKEN_HTTP);
    if (x->body_size == 0 || strcasecmp(expected, "100-continue") != 0) return 0;
    if (strcmp(version, "HTTP/1.1") != 0) return 0;
    memcpy(buffer + LWS_PRE, line, n);
    return lws_write(wsi, buffer + LWS_PRE, n, LWS_WRITE_HTTP_HEADERS) < 0 ? -1 : 0;
}

/* The arguments in the form of server_exchange.arguments; NULL = none, or no memory for them. */
static char *arguments_copy(struct lws *wsi) {
    const int most = lws_hdr_total_length(wsi, WSI_TOKEN_HTTP_URI_ARGS);
    if (most <= 0) return NULL;
    /* room for a NUL behind each part, of which there are at most `most` */
    const size_t size = (size_t)most * 2 + 2;
    char *text = calloc(1, size);
    size_t at = 0;
    for (int i = 0; text != NULL && at + 2 < size; i++) {
        const int len =
            lws_hdr_copy_fragment(wsi, text + at, (int)(size - at - 1), WSI_TOKEN_HTTP_URI_ARGS, i);
        if (len < 0) {
            text[at] = '\0';
            break;
        }
        const size_t n = strlen(text + at); /* a decoded NUL ends the part */
        if (n > 0) at += n + 1;
    }
    return text;
}

/* The head has arrived: makes the exchange and calls `begin`. Returns the callback's result: -1
 * closes the connection. */
static int head_take(server_http *http, http_connection *connection, struct lws *wsi) {
    char *uri = NULL;
    int uri_len = 0;
    if (connection->x != NULL) return -1; /* there are bytes behind the request */
    const int method = lws_http_get_uri_and_method(wsi, &uri, &uri_len);
    server_exchange *x = exchange_create(http);
    /* Without a limit the kernel queues megabytes for a client that reads slowly, and neither
     * write_timeout_s nor `drained` would notice it. */
    const int send_queue = SERVER_HTTP_QUEUE_FULL;
    (void)setsockopt(lws_get_socket_fd(wsi), SOL_SOCKET, SO_SNDBUF, &send_queue, sizeof send_queue);
    if (x == NULL || method < 0 || uri_len < 0) {
        server_exchange_release(x);
        return -1;
    }
    x->method = method_of(method);
    x->path = strndup(uri, (size_t)uri_len);
    if (x->path == NULL) {
        server_exchange_release(x);
        return -1;
    }
    connection->x = x;
    x->wsi = wsi;
    x->sent_ns = http_clock();
    x->next = http->first;
    if (http->first != NULL) http->first->prev = x;
    http->first = x;
    x->host = header_copy(wsi, WSI_TOKEN_HOST);
    x->origin = header_copy(wsi, WSI_TOKEN_ORIGIN);
    x->arguments = arguments_copy(wsi);
    x->key = key_copy(wsi);
    lws_get_peer_simple(wsi, x->peer, sizeof x->peer);
    if (length_read(http, x, wsi) && head_check(x, wsi)) http->params.begin(http->params.user, x);
    if (server_exchange_has_begun(x)) return 0;
    if (x->body_size > 0) return body_invite(x, wsi);
    request_pass(http, x, wsi);
    return 0;
}

/* A piece of the body has arrived. */
static int body_take(http_connection *connection, const void *data, size_t len) {
    server_exchange *x = connection->x;
    if (x == NULL) return -1;
    x->n_arrived += len;
    if (server_exchange_has_begun(x)) return 0; /* refused: the rest is dropped */
    if (len > x->body_size - x->body_len) return -1;
    if (len > 0) memcpy(x->body + x->body_len, data, len);
    x->body_len += len;
    x->body[x->body_len] = '\0';
    return 0;
}

/* The body is complete. */
static int body_end(server_http *http, http_connection *connection, struct lws *wsi) {
    server_exchange *x = connection->x;
    if (x == NULL) return -1;
    if (!x->has_request && server_exchange_has_begun(x)) { /* refused by its head */
        if (x->lingers) detach(http, connection);
        return connection->x == NULL ? -1 : 0;
    }
    if (x->has_body_end) return -1; /* there are bytes behind the request */
    x->has_body_end = true;
    if (x->has_request) return 0; /* the body is empty */
    if (x->body_len != x->body_size) return -1;
    request_pass(http, x, wsi);
    return 0;
}

/* ---- Sending ---- */

static bool head_add(struct lws *wsi, const char *name, const char *value, unsigned char **at,
                     unsigned char *end) {
    return lws_add_http_header_by_name(wsi, (const unsigned char *)name,
                                       (const unsigned char *)value, (int)strlen(value), at,
                                       end) == 0;
}

/* Sends the head of the reply. The lock is held. Returns -1 on failure. */
static int head_send(server_exchange *x, struct lws *wsi) {
    unsigned char head[LWS_PRE + HEAD_SIZE], *begin = head + LWS_PRE, *at = begin,
                                             *end = head + sizeof head - 1;
    char length[24];
    snprintf(length, sizeof length, "%zu", x->length);
    bool fits = lws_add_http_header_status(wsi, (unsigned)x->status, &at, end) == 0;
    if (fits && x->type != NULL) fits = head_add(wsi, "content-type:", x->type, &at, end);
    if (fits && x->is_chunked) fits = head_add(wsi, "transfer-encoding:", "chunked", &at, end);
    /* 204 has no body and so no length (RFC 9110, 8.6) */
    if (fits && !x->is_chunked && x->status != 204)
        fits = head_add(wsi, "content-length:", length, &at, end);
    fits = fits && head_add(wsi, "connection:", "close", &at, end) &&
           head_add(wsi, "x-content-type-options:", "nosniff", &at, end) &&
           head_add(wsi, "cache-control:", "no-store", &at, end);
    for (int i = 0; i < x->n_header && fits; i++)
        fits = head_add(wsi, x->headers[i].name, x->headers[i].value, &at, end);
    if (!fits || lws_finalize_write_http_header(wsi, begin, &at, end) != 0) return -1;
    x->is_head_sent = true;
    return 0;
}

/* Gives the socket some bytes of the queue, framed as a chunk where the reply is chunked. The lock
 * is held. Returns -1 on failure. */
static int some_send(server_http *http, server_exchange *x, struct lws *wsi) {
    unsigned char *begin = http->buffer + LWS_PRE, *at = begin;
    size_t n = x->out_len - x->out_at;
    if (n > SEND_MAX) n = SEND_MAX;
    if (x->method == SERVER_METHOD_HEAD) {
        x->out_at = x->out_len;
        n = 0;
    }
    if (x->is_chunked && n > 0) at += sprintf((char *)at, "%zx\r\n", n);
    if (n > 0) memcpy(at, x->out + x->out_at, n);
    at += n;
    x->out_at += n;
    if (x->is_chunked && n > 0) {
        memcpy(at, "\r\n", 2);
        at += 2;
    }
    const bool is_last = x->has_ended && x->out_at == x->out_len;
    /* without the last chunk the client sees that a broken stream is incomplete */
    if (is_last && x->is_chunked && !x->is_broken && x->method != SERVER_METHOD_HEAD) {
        memcpy(at, "0\r\n\r\n", 5);
        at += 5;
    }
    const size_t len = (size_t)(at - begin);
    if (len > 0 && lws_write(wsi, begin, len, is_last ? LWS_WRITE_HTTP_FINAL : LWS_WRITE_HTTP) < 0)
        return -1;
    x->sent_ns = http_clock();
    if (is_last) x->is_last_sent = true;
    return 0;
}

/* The socket takes bytes: sends some, or ends the exchange when the reply is sent. */
static int write_some(server_http *http, http_connection *connection, struct lws *wsi) {
    server_exchange *x = connection->x;
    if (x == NULL) return 0;
    /* The reply is sent: libwebsockets calls back only when it has no buffered bytes left. */
    if (x->is_last_sent) {
        /* A socket that is closed with unread bytes is reset, and the client loses the reply, too
         * (RFC 9112, 9.6). So the rest of a body is read first. http_tick ends that. */
        x->lingers = !x->has_request && x->n_arrived < x->n_announced;
        if (x->lingers) return 0;
        detach(http, connection);
        return -1;
    }
    int result = 0;
    bool is_drained = false, is_more = false;
    pthread_mutex_lock(&x->lock);
    if (x->status != 0) {
        if (!x->is_head_sent)
            result = head_send(x, wsi); /* libwebsockets allows one write per callback */
        else
            result = some_send(http, x, wsi);
        is_drained = x->was_full && x->out_len - x->out_at < SERVER_HTTP_QUEUE_FULL / 2;
        if (is_drained) x->was_full = false;
        is_more = x->out_len > x->out_at || x->has_ended;
    }
    pthread_mutex_unlock(&x->lock);
    if (result != 0) return -1;
    if (is_drained) http->params.drained(http->params.user, x);
    if (is_more) lws_callback_on_writable(wsi);
    return 0;
}

/* Requests a callback for each connection that has something to send. */
static void listed_take(server_http *http) {
    pthread_mutex_lock(&http->lock);
    server_exchange *x = http->listed;
    http->listed = NULL;
    pthread_mutex_unlock(&http->lock);
    while (x != NULL) {
        server_exchange *next = x->next_listed;
        pthread_mutex_lock(&x->lock);
        x->is_listed = false;
        pthread_mutex_unlock(&x->lock);
        if (x->wsi != NULL) lws_callback_on_writable(x->wsi);
        x = next;
    }
}

/* ---- The loop ---- */

/* Closes a connection whose client takes no bytes; adds a ping to an idle stream of events. */
static void tick_exchange(server_http *http, server_exchange *x, uint64_t now) {
    const server_http_params *params = &http->params;
    pthread_mutex_lock(&x->lock);
    const uint64_t idle_s = now > x->sent_ns ? (now - x->sent_ns) / 1000000000u : 0;
    const bool has_bytes = x->out_len > x->out_at;
    const bool is_stuck = x->status != 0 && (has_bytes || x->is_last_sent) &&
                          idle_s >= (uint64_t)(x->lingers ? LINGER_S : params->write_timeout_s);
    const bool is_events = x->is_chunked && x->is_head_sent && !x->has_ended && x->type != NULL &&
                           strcmp(x->type, "text/event-stream") == 0;
    if (is_events && !has_bytes && params->ping_s > 0 && idle_s >= (uint64_t)params->ping_s) {
        static const char ping[] = ": ping\n\n";
        if (exchange_queue(x, ping, sizeof ping - 1)) lws_callback_on_writable(x->wsi);
    }
    pthread_mutex_unlock(&x->lock);
    if (is_stuck) lws_set_timeout(x->wsi, PENDING_TIMEOUT_HTTP_CONTENT, LWS_TO_KILL_ASYNC);
}

static void http_tick(lws_sorted_usec_list_t *timer) {
    server_http *http = lws_container_of(timer, struct server_http, timer);
    const uint64_t now = http_clock();
    for (server_exchange *x = http->first, *next; x != NULL; x = next) {
        next = x->next;
        tick_exchange(http, x, now);
    }
    lws_sul_schedule(http->context, 0, &http->timer, http_tick, TICK_US);
}

/* Takes an offer to go on with another protocol, the word of the header Upgrade. Offers of HTTP/2,
 * which Java's HttpClient and curl's --http2 send with each request, are ignored, so that the
 * request is served (RFC 9110, 7.8). libwebsockets has no result for that: it would accept the
 * offer, or close the connection. But it compares the word once more after this call, and a word
 * that it does not know is ignored then. Other offers, of web sockets, close the connection. */
static int upgrade_take(char *word) {
    if (strcasecmp(word, "h2c") != 0) return -1;
    word[0] = '-';
    return 0;
}

static int callback(struct lws *wsi, enum lws_callback_reasons reason, void *user, void *in,
                    size_t len) {
    server_http *http = lws_context_user(lws_get_context(wsi));
    http_connection *connection = user;
    switch (reason) {
    case LWS_CALLBACK_FILTER_NETWORK_CONNECTION:
        return __atomic_load_n(&http->n_connection, __ATOMIC_RELAXED) >=
               http->params.n_connection_max;
    case LWS_CALLBACK_WSI_CREATE:
        __atomic_fetch_add(&http->n_connection, 1, __ATOMIC_RELAXED);
        return 0;
    case LWS_CALLBACK_WSI_DESTROY:
        __atomic_fetch_sub(&http->n_connection, 1, __ATOMIC_RELAXED);
        return 0;
    case LWS_CALLBACK_HTTP: return head_take(http, connection, wsi);
    case LWS_CALLBACK_HTTP_BODY: return body_take(connection, in, len);
    case LWS_CALLBACK_HTTP_BODY_COMPLETION: return body_end(http, connection, wsi);
    case LWS_CALLBACK_HTTP_WRITEABLE: return write_some(http, connection, wsi);
    case LWS_CALLBACK_CLOSED_HTTP:
    case LWS_CALLBACK_HTTP_DROP_PROTOCOL:
        if (connection != NULL) detach(http, connection);
        return 0;
    case LWS_CALLBACK_HTTP_CONFIRM_UPGRADE: return upgrade_take(in);
    case LWS_CALLBACK_RAW_RX_FILE: leaving_take(http); return 0;
    case LWS_CALLBACK_EVENT_WAIT_CANCELLED: listed_take(http); return 0;
    default: return 0;
    }
}

static const struct lws_protocols protocols[] = {
    {"http", callback, sizeof(http_connection), 0, 0, NULL, 0},
    {NULL, NULL, 0, 0, 0, NULL, 0},
};

int server_http_connections(int n) {
    struct rlimit limit;
    const rlim_t needed = (rlim_t)n + N_OTHER_FILE;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return n;
    if (limit.rlim_cur < needed) {
        limit.rlim_cur = limit.rlim_max < needed ? limit.rlim_max : needed;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
        if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return n;
    }
    if (limit.rlim_cur >= needed) return n;
    return limit.rlim_cur > N_OTHER_FILE ? (int)(limit.rlim_cur - N_OTHER_FILE) : 0;
}

/* The last error of libwebsockets, for the message of server_http_create. [setup] */
static char last_error[200];

static void log_keep(int level, const char *line) {
    if ((level & LLL_ERR) == 0) return;
    snprintf(last_error, sizeof last_error, "%s", line);
    last_error[strcspn(last_error, "\n")] = '\0';
}

static char *copy_of(const char *text) {
    return text != NULL ? strdup(text) : NULL;
}

tdm_status server_http_create(const server_http_params *params, server_http **out, tdm_error *err) {
    *out = NULL;
    server_address address;
    const tdm_status found = server_address_find(params->host, &address, err);
    if (found != TDM_OK) return found;
    server_http *http = calloc(1, sizeof *http);
    if (http == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the server");
    http->params = *params;
    http->address = address;
    http->cert_path = copy_of(params->cert_path);
    http->key_path = copy_of(params->key_path);
    pthread_mutex_init(&http->lock, NULL);
    const bool is_v6 = strchr(address.text, ':') != NULL;
    struct lws_context_creation_info info = {
        .port = params->port,
        .iface = address.text[0] != '\0' ? http->address.text : NULL,
        .protocols = protocols,
        .user = http,
        .max_http_header_data = SERVER_HTTP_HEAD_MAX,
        .max_http_header_pool =
            (unsigned short)(params->n_connection_max < UINT16_MAX ? params->n_connection_max
                                                                   : UINT16_MAX),
        .timeout_secs = (unsigned)params->head_timeout_s,
        .timeout_secs_ah_idle = (unsigned)params->head_timeout_s,
        .fd_limit_per_thread = (unsigned)params->n_connection_max + N_OTHER_FILE,
        .server_string = "tandem",
        .alpn = "http/1.1",
        .options = is_v6 ? 0 : LWS_SERVER_OPTION_DISABLE_IPV6,
    };
    if (http->cert_path != NULL) {
        info.options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
        info.ssl_cert_filepath = http->cert_path;
        info.ssl_private_key_filepath = http->key_path;
        info.ssl_options_set = (long)(1ul << 26 | 1ul << 28); /* SSL_OP_NO_TLSv1, _1_1 */
    }
    lws_set_log_level(LLL_ERR, log_keep);
    last_error[0] = '\0';
    errno = 0;
    http->context = lws_create_context(&info);
    if (http->context == NULL) {
        const tdm_status status =
            tdm_fail(err, TDM_UNAVAILABLE,
                     "cannot serve on %s, port %d: %s; is the port in use?",
                     params->host != NULL ? params->host : "", params->port,
                     last_error[0] != '\0' ? last_error : strerror(errno));
        server_http_destroy(http);
        return status;
    }
    lws_sul_schedule(http->context, 0, &http->timer, http_tick, TICK_US);
    http->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    lws_sock_file_fd_type descriptor = {.filefd = http->epoll_fd};
    if (http->epoll_fd < 0 ||
        lws_adopt_descriptor_vhost(lws_get_vhost_by_name(http->context, "default"),
                                   LWS_ADOPT_RAW_FILE_DESC, descriptor, "http", NULL) == NULL) {
        if (http->epoll_fd >= 0) close(http->epoll_fd);
        server_http_destroy(http);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "no descriptor to watch connections with; raise the limit of open files");
    }
    /* libwebsockets has announced the descriptor like a connection */
    __atomic_store_n(&http->n_connection, 0, __ATOMIC_RELAXED);
    *out = http;
    return TDM_OK;
}

void server_http_destroy(server_http *http) {
    if (http == NULL) return;
    if (http->context != NULL) lws_context_destroy(http->context);
    pthread_mutex_destroy(&http->lock);
    free(http->cert_path);
    free(http->key_path);
    free(http);
}

int server_http_port(const server_http *http) {
    return lws_get_vhost_listen_port(lws_get_vhost_by_name(http->context, "default"));
}

void server_http_run(server_http *http) {
    while (lws_service(http->context, 0) >= 0)
        if (http->params.tick != NULL && !http->params.tick(http->params.user)) break;
}

bool server_http_is_idle(const server_http *http) {
    return http->first == NULL;
}

int server_http_n_connection(const server_http *http) {
    return __atomic_load_n(&http->n_connection, __ATOMIC_RELAXED);
}
