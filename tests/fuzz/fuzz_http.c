/* SPDX-License-Identifier: MIT
 *
 * fuzz_http.c: the input is what a client sends to `tandem serve` over a connection: any bytes,
 * with all of the server behind the socket (HTTP, APIs, a small model on the CPU). The first byte
 * says in which pieces they are sent and when the client leaves. A connection ends by itself, soon,
 * with a reply of HTTP or none; afterwards the server has no connection and no request left.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <libwebsockets.h>
#include <sched.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "bench/random_model.h"
#include "core/runtime.h"
#include "llm/context.h"
#include "server/api/api.h"
#include "server/grammar/grammar.h"
#include "tests/fuzz/fuzz.h"

enum {
    N_CTX = 96,
    N_VOCAB = 259,
    REPLY_MAX = 1 << 20, /* bytes of a reply that are kept */
    QUIET = 4,           /* turns without any progress until the server is seen to wait */
    LIMIT_S = 15         /* for anything the server does by itself */
};

/* Bits of the first byte. '0' has none of them, so that seeds are text. */
enum {
    PIECES = 3,      /* 0 all at once, 1 by bytes, 2 cut in two, 3 in pieces of seven bytes */
    LEAVES = 3 << 2, /* see `leaving` */
};
enum leaving {
    LEAVES_NOT = 0,       /* the client waits; it ends its side where the server waits for more */
    LEAVES_HALF = 1 << 2, /* it ends its side behind the last byte */
    LEAVES_ALL = 2 << 2,  /* it closes behind the last byte, one turn of the server later */
    LEAVES_SLOW = 3 << 2, /* as LEAVES_NOT, and it reads slowly, into a small buffer */
};

static llm_model *model;
static server_model served = {
    .name = "m",
    .tpl_text = "<tool_call><think></think>",
    .bos = "<s>",
    .eos = "</s>",
    .stop = "",
    .stop_id = LLM_TOKEN_NONE,
    .pooling = LLM_POOLING_LAST,
    .device = "fuzz",
    .n_predict = 4,
    .n_running = 4,
};
static server_models *models;
static server_api *api;
static server_http *http;
static struct lws_context *loop;

/* What the server has called for the present connection. */
static struct { int n_begin, n_request, n_gone; } calls;

/* ---- The server ---- */

/* Linked in place of the library's function: so that one thread can be client and server, the loop
 * has to return without waiting, which server_http_run does not. */
struct lws_context *__real_lws_create_context(const struct lws_context_creation_info *info);
struct lws_context *__wrap_lws_create_context(const struct lws_context_creation_info *info);
struct lws_context *__wrap_lws_create_context(const struct lws_context_creation_info *info) {
    loop = __real_lws_create_context(info);
    return loop;
}

/* Serves what is there. */
static void server_turn(void) {
    (void)lws_service(loop, -1);
}

static llm_context_params context_params(void) {
    static const tdm_type f16 = TDM_TYPE_F16;
    return (llm_context_params){.struct_size = sizeof(llm_context_params),
                                .n_ctx = N_CTX,
                                .n_ubatch = 32,
                                .page_len = 8,
                                .type_k = &f16,
                                .type_v = &f16};
}

/* Also after a request has had the model unloaded. */
static tdm_status model_open(void *user, int32_t i, const server_model **model_out,
                             tdm_error *err) {
    (void)user, (void)i;
    const server_engine_params params = {.struct_size = sizeof params,
                                         .context = context_params(),
                                         .limits = {.struct_size = sizeof params.limits,
                                                    .n_running = 4,
                                                    .n_held = 4,
                                                    .n_queued = 16},
                                         .gives_embeddings = true,
                                         .embedding = context_params()};
    const tdm_status status = server_engine_create(model, &params, &served.engine, err);
    *model_out = status == TDM_OK ? &served : NULL;
    return status;
}

static void model_close(void *user, int32_t i, const server_model *closed) {
    (void)user, (void)i, (void)closed;
    served.engine = NULL;
}

static void model_make(tdm_error *err) {
    const random_model_spec spec = {.name = "fuzz",
                                    .n_layer = 1,
                                    .n_embd = 32,
                                    .n_head = 1,
                                    .n_head_kv = 1,
                                    .head_dim = 32,
                                    .n_ff = 32,
                                    .n_vocab = N_VOCAB,
                                    .n_ctx = 4 * N_CTX,
                                    .seed = 1,
                                    .n_thread = 1,
                                    .type = TDM_TYPE_F32,
                                    .rope_base = 10000,
                                    .rope_factor = 1,
                                    .is_tied = true};
    const tdm_runtime_params runtime_params = {.struct_size = sizeof runtime_params};
    const tdm_option options[] = {{"threads", "1"}};
    const tdm_device_spec device = {"fuzz", "cpu", 0, options, 1};
    static const char tpl[] = "{% for m in messages %}{{ m.role + ': ' + (m.content or '') }}\n"
                              "{% endfor %}{% if tools %}{{ tools[0].function.name }}{% endif %}";
    char folder[96], path[128];
    const char *temp = getenv("TMPDIR");
    tdm_runtime *rt;
    tdm_open_device *dev;
    llm_template *parsed;
    snprintf(folder, sizeof folder, "%s/tandem-fuzz-XXXXXX",
             temp != NULL && strlen(temp) < 60 ? temp : "/tmp");
    FUZZ_DEMAND(mkdtemp(folder) != NULL, "%s: cannot be made", folder);
    snprintf(path, sizeof path, "%s/model", folder);
    FUZZ_DEMAND(random_model_write(&spec, path, NULL, NULL, NULL, err) == TDM_OK, "%s",
                err->message);
    FUZZ_DEMAND(tdm_runtime_create(&runtime_params, &rt, err) == TDM_OK, "%s", err->message);
    FUZZ_DEMAND(tdm_runtime_declare(rt, &device, err) == TDM_OK, "%s", err->message);
    FUZZ_DEMAND(tdm_runtime_open(rt, "fuzz", &dev, err) == TDM_OK, "%s", err->message);
    FUZZ_DEMAND(llm_model_open(path, &model, err) == TDM_OK, "%s", err->message);
    FUZZ_DEMAND(llm_model_load(model, rt, &dev, 1, NULL, NULL, err) == TDM_OK, "%s", err->message);
    unlink(path);
    rmdir(folder);
    served.model = model;
    FUZZ_DEMAND(llm_model_vocab(model, &served.vocab, err) == TDM_OK, "%s", err->message);
    FUZZ_DEMAND(grammar_vocab_create(served.vocab, N_VOCAB, &served.grammar_vocab, err) == TDM_OK,
                "%s", err->message);
    FUZZ_DEMAND(llm_template_create("fuzz", tpl, sizeof tpl - 1, &parsed, err) == TDM_OK, "%s",
                err->message);
    served.tpl = parsed;
}

static void begin_take(void *user, server_exchange *x) {
    calls.n_begin++;
    server_api_begin(user, x);
}

static void request_take(void *user, server_exchange *x) {
    calls.n_request++;
    server_api_request(user, x);
}

static void gone_take(void *user, server_exchange *x) {
    calls.n_gone++;
    server_api_gone(user, x);
}

/* All of it lives as long as the program. */
int LLVMFuzzerInitialize(int *argc, char ***argv) {
    static const char *const names[] = {"m"};
    static const char *const origins[] = {"http://allowed.test"};
    tdm_error err = {0};
    (void)argc, (void)argv;
    model_make(&err);
    const server_models_params table = {.struct_size = sizeof table,
                                        .names = names,
                                        .n_name = 1,
                                        .open = model_open,
                                        .close = model_close};
    FUZZ_DEMAND(server_models_create(&table, &models, &err) == TDM_OK, "%s", err.message);
    const server_api_params params = {.struct_size = sizeof params,
                                      .models = models,
                                      .origins = origins,
                                      .n_origin = 1,
                                      .checks_host = true,
                                      .has_metrics = true,
                                      .has_slots = true,
                                      .has_page = true,
                                      .n_thread = 1};
    FUZZ_DEMAND(server_api_create(&params, &api, &err) == TDM_OK, "%s", err.message);
    /* Longer than the target waits: a connection that only a timeout would end is a finding. */
    const server_http_params listen_params = {.host = "127.0.0.1",
                                              .body_max = 1 << 16,
                                              .n_connection_max = 8,
                                              .head_timeout_s = 10 * LIMIT_S,
                                              .write_timeout_s = 10 * LIMIT_S,
                                              .ping_s = 15,
                                              .begin = begin_take,
                                              .request = request_take,
                                              .gone = gone_take,
                                              .drained = server_api_drained,
                                              .user = api};
    FUZZ_DEMAND(server_http_create(&listen_params, &http, &err) == TDM_OK, "%s", err.message);
    server_api_set_http(api, http);
    return 0;
}

/* ---- The client ---- */

typedef struct client {
    int fd;
    const uint8_t *data; /* [size] to send, of it n_sent are sent */
    size_t size, n_sent;
    unsigned choice;
    char *reply; /* [n_reply] */
    size_t n_reply;
    bool has_ended_side; /* the server knows that no more comes */
    bool is_over;        /* the server has closed */
} client;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void client_connect(client *c) {
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)server_http_port(http)),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FUZZ_DEMAND(c->fd >= 0, "no socket: %s", strerror(errno));
    if ((c->choice & LEAVES) == LEAVES_SLOW) {
        const int small = 2048;
        (void)setsockopt(c->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    }
    int error = connect(c->fd, (const struct sockaddr *)&address, sizeof address) == 0 ? 0 : errno;
    /* A signal of libFuzzer's clock has come; the connection is made nevertheless (connect(2)). */
    while (error == EINTR) {
        struct pollfd made = {.fd = c->fd, .events = POLLOUT};
        socklen_t size = sizeof error;
        if (poll(&made, 1, -1) == 1) (void)getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
    }
    FUZZ_DEMAND(error == 0, "cannot connect: %s", strerror(error));
}

/* By a reset, so that the port is free at once: a million of them come. */
static void client_close(client *c) {
    const struct linger reset = {.l_onoff = 1};
    if (c->fd < 0) return;
    (void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(c->fd);
    c->fd = -1;
}

static size_t piece_size(const client *c) {
    const size_t left = c->size - c->n_sent;
    size_t n = left;
    switch (c->choice & PIECES) {
    case 1: n = 1; break;
    case 2: n = c->n_sent == 0 ? c->size / 2 + 1 : left; break;
    case 3: n = 7; break;
    default: break;
    }
    return n < left ? n : left;
}

/* Returns whether bytes were sent. */
static bool client_send(client *c) {
    const size_t n = piece_size(c);
    if (n == 0 || c->is_over) return false;
    const ssize_t sent = send(c->fd, c->data + c->n_sent, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (sent < 0) {
        c->is_over = true; /* the server has closed before it had all */
        return true;
    }
    c->n_sent += (size_t)sent;
    if (c->n_sent == c->size && (c->choice & LEAVES) == LEAVES_HALF) {
        shutdown(c->fd, SHUT_WR);
        c->has_ended_side = true;
    }
    return true;
}

/* Returns whether something came. */
static bool client_receive(client *c) {
    const size_t most = (c->choice & LEAVES) == LEAVES_SLOW ? 509 : 65536;
    if (c->is_over) return false;
    FUZZ_DEMAND(c->n_reply + most < REPLY_MAX, "a reply of more than %zu bytes", c->n_reply);
    const ssize_t n = recv(c->fd, c->reply + c->n_reply, most, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return false;
    if (n <= 0)
        c->is_over = true;
    else
        c->n_reply += (size_t)n;
    return true;
}

/* Sends, receives and lets the server work until one of the two has closed the connection. */
static void client_run(client *c) {
    int n_quiet = 0;
    double end = seconds() + LIMIT_S;
    while (!c->is_over) {
        const int n_call = calls.n_begin + calls.n_request;
        bool is_moving = client_send(c);
        server_turn();
        if (c->n_sent == c->size && (c->choice & LEAVES) == LEAVES_ALL) return;
        is_moving = client_receive(c) || is_moving || calls.n_begin + calls.n_request != n_call;
        n_quiet = is_moving ? 0 : n_quiet + 1;
        if (is_moving) end = seconds() + LIMIT_S;
        if (n_quiet < QUIET) continue;
        if (calls.n_request == 0 && c->n_sent == c->size && !c->has_ended_side) {
            shutdown(c->fd, SHUT_WR); /* the server waits for bytes that do not come */
            c->has_ended_side = true;
            n_quiet = 0;
        }
        FUZZ_DEMAND(seconds() < end,
                    "the server does nothing: %zu of %zu bytes sent, %d heads, %d requests, "
                    "%zu bytes of reply",
                    c->n_sent, c->size, calls.n_begin, calls.n_request, c->n_reply);
        sched_yield(); /* other threads answer */
    }
}

/* ---- The reply ---- */

static const char *find(const char *text, size_t len, const char *what) {
    return memmem(text, len, what, strlen(what));
}

/* Whether the body is all chunks of HTTP and the last one. */
static bool chunks_are_whole(const char *at, const char *end) {
    for (;;) {
        char *line = NULL;
        if (at == end) return false;
        const unsigned long n = strtoul(at, &line, 16); /* a NUL is behind the reply */
        if (line == at || end - line < 2 || memcmp(line, "\r\n", 2) != 0) return false;
        at = line + 2;
        if (n > (size_t)(end - at) || (size_t)(end - at) - n < 2) return false;
        at += n;
        if (memcmp(at, "\r\n", 2) != 0) return false;
        at += 2;
        if (n == 0) return at == end;
    }
}

/* Whether the request may be a HEAD. libwebsockets itself sends its page on bad heads with it. */
static bool may_be_head(const client *c) {
    for (size_t i = 0; i + 5 <= c->size; i++)
        if (strncasecmp((const char *)c->data + i, "head ", 5) == 0) return true;
    return false;
}

/* The reply to a client that left by itself may be cut anywhere, and is not checked. Others get a
 * whole reply, or no byte where what they sent was no HTTP, such as bytes behind the body. Before
 * that a client may be asked for its body. */
static void reply_check(const client *c) {
    static const char length_name[] = "\r\ncontent-length: ";
    static const char invitation[] = "HTTP/1.1 100 Continue\r\n\r\n";
    const unsigned leaves = c->choice & LEAVES;
    if (c->n_reply == 0 || leaves == LEAVES_HALF || leaves == LEAVES_ALL) return;
    c->reply[c->n_reply] = '\0';
    const bool is_invited = strncmp(c->reply, invitation, sizeof invitation - 1) == 0;
    const char *reply = c->reply + (is_invited ? sizeof invitation - 1 : 0);
    const size_t n_reply = c->n_reply - (size_t)(reply - c->reply);
    if (n_reply == 0) return;
    FUZZ_DEMAND(n_reply > 12 && memcmp(reply, "HTTP/1.", 7) == 0 &&
                    strchr("2345", reply[9]) != NULL,
                "no reply of HTTP: '%.60s'", c->reply);
    const char *head_end = find(reply, n_reply, "\r\n\r\n");
    FUZZ_DEMAND(head_end != NULL, "the head of the reply has no end: '%.400s'", reply);
    const size_t head_len = (size_t)(head_end - reply) + 2;
    const char *body = head_end + 4, *length = find(reply, head_len, length_name);
    const size_t body_len = n_reply - head_len - 2;
    if (length != NULL) {
        const size_t n = strtoul(length + sizeof length_name - 1, NULL, 10);
        FUZZ_DEMAND(body_len == n || (body_len == 0 && may_be_head(c)),
                    "a body of %zu bytes, said to have %zu: '%.400s'", body_len, n, reply);
    } else if (find(reply, head_len, "\r\ntransfer-encoding: chunked") != NULL && !may_be_head(c)) {
        FUZZ_DEMAND(chunks_are_whole(body, body + body_len), "a broken stream: '%.400s'", reply);
    }
}

/* Nothing of the connection is left. */
static void server_settle(void) {
    const double end = seconds() + LIMIT_S;
    server_turn(); /* it may not have seen the end yet */
    while (server_http_n_connection(http) > 0 || server_api_n_active(api) > 0) {
        server_turn();
        FUZZ_DEMAND(seconds() < end, "%d connections and %d requests are left",
                    server_http_n_connection(http), server_api_n_active(api));
        sched_yield();
    }
    FUZZ_DEMAND(server_http_is_idle(http), "an exchange is left without its connection");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static char reply[REPLY_MAX];
    if (size < 1) return 0;
    client c = {.data = data + 1, .size = size - 1, .choice = data[0], .reply = reply};
    memset(&calls, 0, sizeof calls);
    client_connect(&c);
    client_run(&c);
    client_close(&c);
    server_settle();
    FUZZ_DEMAND(calls.n_begin <= 1 && calls.n_request <= calls.n_begin && calls.n_gone <= 1,
                "%d heads, %d requests, %d gone of one connection", calls.n_begin, calls.n_request,
                calls.n_gone);
    reply_check(&c);
    return 0;
}
