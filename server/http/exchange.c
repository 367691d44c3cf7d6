/* SPDX-License-Identifier: MIT
 *
 * exchange.c: see http.h: the fields of a request, and the queue of its reply. http.c sends it.
 */
#include "server/http/exchange.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t http_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

server_exchange *exchange_create(server_http *http) {
    server_exchange *x = calloc(1, sizeof *x);
    if (x == NULL) return NULL;
    pthread_mutex_init(&x->lock, NULL);
    x->http = http;
    x->n_ref = 1;
    return x;
}

void server_exchange_hold(server_exchange *x) {
    pthread_mutex_lock(&x->lock);
    x->n_ref++;
    pthread_mutex_unlock(&x->lock);
}

void server_exchange_release(server_exchange *x) {
    if (x == NULL) return;
    pthread_mutex_lock(&x->lock);
    const bool is_last = --x->n_ref == 0;
    pthread_mutex_unlock(&x->lock);
    if (!is_last) return;
    pthread_mutex_destroy(&x->lock);
    for (int i = 0; i < x->n_header; i++) free(x->headers[i].value);
    free(x->path);
    free(x->arguments);
    free(x->host);
    free(x->origin);
    free(x->key);
    free(x->body);
    free(x->out);
    free(x);
}

/* ---- The request ---- */

server_method server_exchange_method(const server_exchange *x) {
    return x->method;
}

const char *server_exchange_path(const server_exchange *x) {
    return x->path;
}

const char *server_exchange_argument(const server_exchange *x, const char *name) {
    const size_t n = strlen(name);
    for (const char *at = x->arguments; at != NULL && *at != '\0'; at += strlen(at) + 1)
        if (strncmp(at, name, n) == 0 && at[n] == '=') return at + n + 1;
    return "";
}

const char *server_exchange_host(const server_exchange *x) {
    return x->host != NULL ? x->host : "";
}

const char *server_exchange_origin(const server_exchange *x) {
    return x->origin != NULL ? x->origin : "";
}

const char *server_exchange_key(const server_exchange *x) {
    return x->key != NULL ? x->key : "";
}

const char *server_exchange_body(const server_exchange *x, size_t *len) {
    *len = x->body_len;
    return x->body != NULL ? x->body : "";
}

const char *server_exchange_peer(const server_exchange *x) {
    return x->peer;
}

void server_exchange_set_user(server_exchange *x, void *user) {
    x->user = user;
}

void *server_exchange_user(const server_exchange *x) {
    return x->user;
}

/* ---- The reply ---- */

/* Lists the exchange, so that the loop sends what is queued, and unlocks. A listed exchange must
 * have the loop's reference. So both listing it here and setting is_gone, after which the loop
 * drops its reference, happen under the exchange's lock. */
static void list_and_unlock(server_exchange *x) {
    if (!x->is_gone && !x->is_listed && x->http != NULL) {
        x->is_listed = true;
        http_list(x->http, x);
    }
    pthread_mutex_unlock(&x->lock);
}

bool exchange_queue(server_exchange *x, const void *data, size_t len) {
    /* Time during which there was nothing to send does not count towards write_timeout_s. */
    if (x->out_at == x->out_len) x->sent_ns = http_clock();
    if (x->out_at > 0 && x->out_at == x->out_len) x->out_at = x->out_len = 0;
    if (x->out_size - x->out_len < len) {
        const size_t used = x->out_len - x->out_at;
        if (x->out_at > 0) memmove(x->out, x->out + x->out_at, used);
        x->out_at = 0;
        x->out_len = used;
    }
    if (x->out_size - x->out_len < len) {
        const size_t size = (x->out_len + len) * 2;
        char *grown = realloc(x->out, size);
        if (grown == NULL) return false;
        x->out = grown;
        x->out_size = size;
    }
    if (len > 0) memcpy(x->out + x->out_len, data, len);
    x->out_len += len;
    return true;
}

void server_exchange_add_header(server_exchange *x, const char *name, const char *value) {
    pthread_mutex_lock(&x->lock);
    if (x->status == 0 && x->n_header < EXCHANGE_N_HEADER) {
        char *copy = strndup(value, EXCHANGE_HEADER_MAX);
        if (copy != NULL) x->headers[x->n_header++] = (exchange_header){name, copy};
    }
    pthread_mutex_unlock(&x->lock);
}

void server_exchange_reply(server_exchange *x, int status, const char *type, const void *body,
                           size_t len) {
    pthread_mutex_lock(&x->lock);
    if (x->status == 0) {
        x->status = exchange_queue(x, body, len) ? status : 500;
        x->type = type;
        x->length = x->out_len - x->out_at;
        x->has_ended = true;
    }
    list_and_unlock(x);
}

void server_exchange_stream(server_exchange *x, const char *type) {
    pthread_mutex_lock(&x->lock);
    if (x->status == 0) {
        x->status = 200;
        x->type = type;
        x->is_chunked = true;
    }
    list_and_unlock(x);
}

size_t server_exchange_write(server_exchange *x, const void *data, size_t len) {
    size_t queued = SIZE_MAX;
    pthread_mutex_lock(&x->lock);
    if (!x->is_gone && !x->has_ended && x->is_chunked) {
        if (exchange_queue(x, data, len)) {
            queued = x->out_len - x->out_at;
            if (queued > SERVER_HTTP_QUEUE_FULL) x->was_full = true;
        } else {
            x->has_ended = x->is_broken = true;
        }
    }
    list_and_unlock(x);
    return queued;
}

void server_exchange_end(server_exchange *x) {
    pthread_mutex_lock(&x->lock);
    x->has_ended = true;
    list_and_unlock(x);
}

void server_exchange_break(server_exchange *x) {
    pthread_mutex_lock(&x->lock);
    x->has_ended = x->is_broken = true;
    list_and_unlock(x);
}

bool server_exchange_has_begun(const server_exchange *x) {
    server_exchange *own = (server_exchange *)x;
    pthread_mutex_lock(&own->lock);
    const bool has_begun = x->status != 0;
    pthread_mutex_unlock(&own->lock);
    return has_begun;
}

bool server_exchange_is_gone(const server_exchange *x) {
    server_exchange *own = (server_exchange *)x;
    pthread_mutex_lock(&own->lock);
    const bool is_gone = x->is_gone;
    pthread_mutex_unlock(&own->lock);
    return is_gone;
}

size_t server_exchange_queued(const server_exchange *x) {
    server_exchange *own = (server_exchange *)x;
    pthread_mutex_lock(&own->lock);
    const size_t queued = x->out_len - x->out_at;
    pthread_mutex_unlock(&own->lock);
    return queued;
}
