/* SPDX-License-Identifier: MIT
 *
 * serve.c: `tandem serve`: makes the table of models, the API and the HTTP server from the
 * configuration, and runs the HTTP loop on the main thread until a signal comes. Requests are
 * handled in server/.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runner/commands/serve_model.h"
#include "runner/interrupt.h"
#include "runner/lora.h"
#include "server/api/api.h"
#include "server/http/tls_files.h"

#define N_TEXT_MAX      64 /* keys, origins, hosts */
#define KEY_FILE_MAX    65536
#define HEAD_TIMEOUT_S  10
#define WRITE_TIMEOUT_S 60

typedef struct serve {
    runner_app *app;
    serve_model *items; /* [n_model] */
    int32_t n_model;
    server_models *models;
    server_api *api;
    server_http *http;
    char *key_file; /* its bytes; keys point into it */
    const char *keys[N_TEXT_MAX], *origins[N_TEXT_MAX], *hosts[N_TEXT_MAX + 1];
    int32_t n_key, n_origin, n_host;
    bool is_serving;    /* requests may arrive */
    bool is_draining;   /* a signal has come: running requests may finish */
    uint64_t drain_end; /* server_clock when the server ends in any case; ns */
} serve;

/* ---- Configuration ---- */

/* Appends the non-empty values of a list key to texts[N_TEXT_MAX], which point into the
 * configuration. */
static tdm_status texts_read(serve *s, const char *key, const char **texts, int32_t *n_text,
                             tdm_error *err) {
    const size_t n = runner_config_get_count(s->app->config, key);
    if (n > N_TEXT_MAX)
        return runner_usage(s->app, err, "%s: %zu entries, at most %d", key, n, N_TEXT_MAX);
    for (size_t i = 0; i < n; i++) {
        const char *text = runner_config_get_string_at(s->app->config, key, i);
        if (text[0] != '\0') texts[(*n_text)++] = text;
    }
    return TDM_OK;
}

/* Refuses origins that no request can have: an Origin header has a scheme and a host, and no
 * path. */
static tdm_status origins_check(serve *s, tdm_error *err) {
    for (int32_t i = 0; i < s->n_origin; i++) {
        const char *text = s->origins[i], *mark = strstr(text, "://");
        const bool is_origin =
            mark != NULL && mark > text && mark[3] != '\0' && strpbrk(mark + 3, "/?# ") == NULL;
        if (is_origin || strcmp(text, "*") == 0 || strcmp(text, "null") == 0) continue;
        return runner_config_fail(s->app->config, "allow-origin", TDM_INVALID_ARGUMENT, err,
                                  "'%.64s' is no origin of pages: expected SCHEME://HOST or "
                                  "SCHEME://HOST:PORT without anything behind, or *",
                                  text);
    }
    return TDM_OK;
}

/* Refuses hosts that no request can have: a Host header has a name or address, no scheme and no
 * path. */
static tdm_status hosts_check(serve *s, tdm_error *err) {
    for (int32_t i = 0; i < s->n_host; i++)
        if (strpbrk(s->hosts[i], "/?# ") != NULL)
            return runner_config_fail(s->app->config, "allow-host", TDM_INVALID_ARGUMENT, err,
                                      "'%.64s' is no name of a host: expected one such as "
                                      "example.org, without http:// and path",
                                      s->hosts[i]);
    return TDM_OK;
}

/* Reads the file of API keys: one on each line, without the white space around it. Skips empty
 * lines and those that begin with #. */
static tdm_status keys_read(serve *s, tdm_error *err) {
    const char *path = runner_config_get_string(s->app->config, "api-key-file");
    if (path[0] == '\0') return TDM_OK;
    errno = 0;
    FILE *file = fopen(path, "rb");
    if (file == NULL) return tdm_fail(err, TDM_IO, "%s: cannot be read: %s", path, strerror(errno));
    s->key_file = calloc(1, KEY_FILE_MAX + 1);
    const size_t len = s->key_file != NULL ? fread(s->key_file, 1, KEY_FILE_MAX, file) : 0;
    const int reason = s->key_file != NULL && ferror(file) != 0 ? errno : 0;
    fclose(file);
    if (s->key_file == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for API keys");
    if (reason != 0) return tdm_fail(err, TDM_IO, "%s: cannot be read: %s", path, strerror(reason));
    if (len == KEY_FILE_MAX)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "%s: is longer than 64 KiB; give a file of API keys",
                        path);
    char *rest = NULL, *all = s->key_file;
    if (strncmp(all, "\xef\xbb\xbf", 3) == 0) all += 3; /* editors of Windows write this mark */
    for (char *line = strtok_r(all, "\r\n", &rest); line != NULL;
         line = strtok_r(NULL, "\r\n", &rest)) {
        line += strspn(line, " \t");
        /* clients do not send white space at the ends of a header */
        for (size_t n = strlen(line); n > 0 && strchr(" \t", line[n - 1]) != NULL; n--)
            line[n - 1] = '\0';
        if (line[0] == '#' || line[0] == '\0') continue;
        if (s->n_key == N_TEXT_MAX)
            return tdm_fail(err, TDM_OUT_OF_RANGE, "%s: more than %d keys", path, N_TEXT_MAX);
        s->keys[s->n_key++] = line;
    }
    return s->n_key > 0
               ? TDM_OK
               : tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: has no key; write one on a line", path);
}

/* Whether only this machine reaches the address. A name such as 127.example.com is no address. */
static bool is_loopback(const char *host) {
    struct in_addr address;
    const bool is_v4 = strncmp(host, "127.", 4) == 0 && inet_pton(AF_INET, host, &address) == 1;
    return is_v4 || strcmp(host, "::1") == 0 || strcmp(host, "localhost") == 0;
}

static tdm_status access_read(serve *s, tdm_error *err) {
    runner_config *config = s->app->config;
    const char *host = runner_config_get_string(config, "host");
    const char *cert = runner_config_get_string(config, "ssl-cert-file");
    const char *ssl_key = runner_config_get_string(config, "ssl-key-file");
    tdm_status status = keys_read(s, err);
    if (status == TDM_OK) status = texts_read(s, "allow-origin", s->origins, &s->n_origin, err);
    if (status == TDM_OK) status = origins_check(s, err);
    if (status == TDM_OK) status = texts_read(s, "allow-host", s->hosts, &s->n_host, err);
    if (status == TDM_OK) status = hosts_check(s, err);
    /* Clients use the address that the command prints, such as 127.0.0.2, so it is a valid Host.
     * The API knows [::1], the only loopback address with ':'. */
    if (is_loopback(host) && strchr(host, ':') == NULL) s->hosts[s->n_host++] = host;
    if (status == TDM_OK) status = runner_config_check(config, err);
    if (status != TDM_OK) return status;
    if ((cert[0] != '\0') != (ssl_key[0] != '\0'))
        return runner_usage(s->app, err, "TLS takes both ssl-cert-file and ssl-key-file");
    if (!is_loopback(host) && s->n_key == 0)
        return runner_usage(s->app, err,
                            "host = %s serves other machines: give keys with --api-key-file FILE, "
                            "or serve this machine alone with --host 127.0.0.1",
                            host);
    return cert[0] != '\0' ? server_tls_files_check(cert, ssl_key, err) : TDM_OK;
}

/* ---- Serving ---- */

static void line_log(void *user, const char *line) {
    serve *s = user;
    runner_terminal_print(s->app->terminal, RUNNER_MESSAGE_NOTE, "%s", line);
}

static uint64_t seconds_get(serve *s, const char *key) {
    return (uint64_t)(runner_config_get_float(s->app->config, key) * 1e9);
}

/* Called by the HTTP loop now and then; false ends the loop. After the first signal, requests may
 * finish for shutdown-timeout; the second one kills the process. */
static bool tick(void *user) {
    serve *s = user;
    if (!runner_interrupt_came()) return true;
    if (!s->is_draining) {
        const uint64_t limit = seconds_get(s, "shutdown-timeout");
        s->is_draining = true;
        s->drain_end = server_clock() + limit + 1000000000u;
        server_api_drain(s->api);
        server_models_drain(s->models, limit);
        const int n_active = server_api_n_active(s->api);
        runner_terminal_print(s->app->terminal, RUNNER_MESSAGE_NOTE,
                              "shutting down: %d request%s may finish", n_active,
                              n_active == 1 ? "" : "s");
    }
    const bool is_busy = server_api_n_active(s->api) > 0 || !server_http_is_idle(s->http);
    return is_busy && server_clock() < s->drain_end;
}

static void api_begin(void *user, server_exchange *x) {
    server_api_begin(((serve *)user)->api, x);
}

static void api_request(void *user, server_exchange *x) {
    server_api_request(((serve *)user)->api, x);
}

static void api_gone(void *user, server_exchange *x) {
    server_api_gone(((serve *)user)->api, x);
}

static void api_drained(void *user, server_exchange *x) {
    server_api_drained(((serve *)user)->api, x);
}

static tdm_status api_make(serve *s, tdm_error *err) {
    runner_config *config = s->app->config;
    const server_api_params params = {
        .struct_size = sizeof params,
        .models = s->models,
        .keys = s->keys,
        .n_key = s->n_key,
        .origins = s->origins,
        .n_origin = s->n_origin,
        .hosts = s->hosts,
        .n_host = s->n_host,
        .checks_host = is_loopback(runner_config_get_string(config, "host")) || s->n_host > 0,
        .has_metrics = runner_config_get_bool(config, "metrics"),
        .has_slots = runner_config_get_bool(config, "slots"),
        .has_page = runner_config_get_bool(config, "webui"),
        .total_limit = seconds_get(s, "request-timeout"),
        .log = runner_config_is_verbose(config) ? line_log : NULL,
        .log_user = s,
    };
    return server_api_create(&params, &s->api, err);
}

static const char *path_or_null(serve *s, const char *key) {
    const char *path = runner_config_get_string(s->app->config, key);
    return path[0] != '\0' ? path : NULL;
}

static tdm_status http_make(serve *s, tdm_error *err) {
    runner_config *config = s->app->config;
    const char *host = runner_config_get_string(config, "host");
    const int n_wanted = (int)runner_config_get_int(config, "connections");
    const int n_connection = server_http_connections(n_wanted);
    if (n_connection < 1)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "this process may open too few files to serve; raise the limit (ulimit "
                        "-n)");
    if (n_connection < n_wanted)
        runner_terminal_print(s->app->terminal, RUNNER_MESSAGE_WARNING,
                              "this process may open files for %d of %d connections; raise the "
                              "limit (ulimit -Hn) or lower --connections",
                              n_connection, n_wanted);
    const server_http_params params = {
        .host = strcmp(host, "0.0.0.0") == 0     ? ""
                : strcmp(host, "localhost") == 0 ? "127.0.0.1"
                                                 : host,
        .port = (int)runner_config_get_int(config, "port"),
        .cert_path = path_or_null(s, "ssl-cert-file"),
        .key_path = path_or_null(s, "ssl-key-file"),
        .body_max = (size_t)runner_config_get_int(config, "body-max") << 20,
        .n_connection_max = n_connection,
        .head_timeout_s = HEAD_TIMEOUT_S,
        .write_timeout_s = WRITE_TIMEOUT_S,
        .ping_s = 15,
        .begin = api_begin,
        .request = api_request,
        .gone = api_gone,
        .drained = api_drained,
        .tick = tick,
        .user = s,
    };
    tdm_status status = server_http_create(&params, &s->http, err);
    if (status != TDM_OK) return status;
    server_api_set_http(s->api, s->http);
    char address[320]; /* a host name has up to 253 characters */
    const bool is_v6 = strchr(host, ':') != NULL;
    snprintf(address, sizeof address, "%s://%s%s%s:%d", params.cert_path != NULL ? "https" : "http",
             is_v6 ? "[" : "", host, is_v6 ? "]" : "", server_http_port(s->http));
    for (int32_t i = 0; i < s->n_model; i++)
        runner_terminal_print(s->app->terminal, RUNNER_MESSAGE_NOTE, "model       %s",
                              s->items[i].name);
    /* The only line on standard output: a script can wait for it. */
    fprintf(s->app->out, "%s\n", address);
    return runner_flush(s->app, err);
}

/* ---- Models ---- */

/* Cuts the folders off the paths in a message, since it is sent to clients: a word keeps what
 * follows its last slash. */
static void folders_cut(char *message) {
    for (char *at = message; *at != '\0';) {
        const size_t len = strcspn(at, " '\":;,()");
        char *name = at;
        for (size_t k = 0; k < len; k++)
            if (at[k] == '/') name = at + k + 1;
        char *behind = at + (at + len - name);
        memmove(at, name, strlen(name) + 1);
        at = *behind != '\0' ? behind + 1 : behind;
    }
}

static tdm_status model_open(void *user, int32_t i, const server_model **model_out,
                             tdm_error *err) {
    serve *s = user;
    serve_model *m = &s->items[i];
    const tdm_status status = serve_model_open(m, err);
    *model_out = status == TDM_OK ? &m->model : NULL;
    if (status != TDM_OK && s->is_serving) {
        /* Where memory is short, the table closes another model, if it can, and tries again. */
        runner_terminal_print(s->app->terminal,
                              status == TDM_RESOURCE_EXHAUSTED ? RUNNER_MESSAGE_NOTE
                                                               : RUNNER_MESSAGE_WARNING,
                              "model '%s' is not open: %s", m->name, err->message);
        folders_cut(err->message);
    } else if (status == TDM_OK && s->n_model > 1) {
        runner_terminal_print(s->app->terminal, RUNNER_MESSAGE_NOTE, "opened      %s", m->name);
    }
    return status;
}

static void model_close(void *user, int32_t i, const server_model *model) {
    serve *s = user;
    (void)model;
    serve_model_close(&s->items[i]);
    if (s->n_model > 1 && !runner_interrupt_came())
        runner_terminal_print(s->app->terminal, RUNNER_MESSAGE_NOTE, "closed      %s",
                              s->items[i].name);
}

/* Number of models that are served: 1 where `model` is a path or the file has less than two [model
 * NAME] sections; else each section is a model. */
static int32_t models_count(const serve *s) {
    runner_config *config = s->app->config;
    const size_t n = runner_config_n_models(config);
    const bool is_file =
        runner_config_model(config) == NULL && runner_config_get_string(config, "model")[0] != '\0';
    return n < 2 || is_file ? 1 : (int32_t)n;
}

/* Makes the table of models. The chosen model, or the only one, is opened before the server serves,
 * so that a mistake in it ends the command. */
static tdm_status models_make(serve *s, tdm_error *err) {
    runner_config *config = s->app->config;
    const runner_section *chosen = runner_config_model(config);
    const int32_t n = models_count(s);
    int32_t first = 0;
    tdm_status status = TDM_OK;
    const char **names = calloc((size_t)n, sizeof *names);
    s->items = calloc((size_t)n, sizeof *s->items);
    if (names == NULL || s->items == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %d models", (int)n);
    for (int32_t i = 0; i < n && status == TDM_OK; i++) {
        const runner_section *section = n > 1 ? runner_config_model_at(config, (size_t)i) : NULL;
        s->n_model = i + 1;
        status = serve_model_init(&s->items[i], s->app,
                                  section != NULL ? runner_section_name(section) : NULL, err);
        names[i] = s->items[i].name;
        if (section != NULL && section == chosen) first = i;
    }
    const server_models_params params = {
        .struct_size = sizeof params,
        .names = names,
        .n_name = n,
        .first = first,
        .n_open_max = (int32_t)runner_config_get_int(config, "models-max"),
        .n_wait_max = (int32_t)runner_config_get_int(config, "queue-size"),
        .open = model_open,
        .close = model_close,
        .user = s,
    };
    if (status == TDM_OK) status = server_models_create(&params, &s->models, err);
    free(names);
    if (status == TDM_OK && (n == 1 || chosen != NULL)) {
        status = server_models_load(s->models, first, err);
        const runner_app *item = &s->items[first].app;
        s->app->is_usage = s->app->is_usage || item->is_usage ||
                           (item->config != NULL && runner_config_is_usage(item->config));
    }
    return status;
}

static tdm_status serve_open(serve *s, tdm_error *err) {
    tdm_status status = access_read(s, err);
    if (status == TDM_OK) status = models_make(s, err);
    if (status == TDM_OK) status = api_make(s, err);
    return status == TDM_OK ? http_make(s, err) : status;
}

static tdm_status serve_main(runner_app *app, tdm_error *err) {
    serve s = {.app = app};
    tdm_status status = serve_open(&s, err);
    s.is_serving = status == TDM_OK;
    if (status == TDM_OK) server_http_run(s.http);
    if (status == TDM_OK && !server_models_is_idle(s.models))
        runner_terminal_print(app->terminal, RUNNER_MESSAGE_WARNING,
                              "requests were cut off: they took longer than shutdown-timeout");
    /* Callers are stopped before what they call: handlers of requests call the engines, and the
     * events of the engines call the API. */
    server_models_settle(s.models);
    server_api_stop(s.api);
    server_models_stop(s.models);
    server_api_settle(s.api);
    server_http_destroy(s.http);
    server_api_destroy(s.api);
    server_models_destroy(s.models);
    for (int32_t i = 0; i < s.n_model; i++) serve_model_clear(&s.items[i]);
    free(s.items);
    free(s.key_file);
    return status;
}

static const runner_key own_keys[] = {
    {.topic = "Only serve",
     .name = "host",
     .type = RUNNER_KEY_STRING,
     .default_value = "127.0.0.1",
     .value_name = "ADDRESS",
     .help = "address, host name or network interface of this machine to serve on; 0.0.0.0 = all of "
             "IPv4; other machines need an API key"},
    {.topic = "Only serve",
     .name = "port",
     .type = RUNNER_KEY_INT,
     .default_value = "8080",
     .value_name = "N",
     .max = 65535,
     .help = "port to serve on; 0 = a free one, which is printed"},
    {.topic = "Only serve",
     .name = "alias",
     .flag = "a",
     .type = RUNNER_KEY_STRING,
     .default_value = "",
     .value_name = "NAME",
     .help = "the model's name for clients; the default is the file's name"},
    {.topic = "Only serve",
     .name = "api-key-file",
     .type = RUNNER_KEY_PATH,
     .default_value = "",
     .value_name = "FILE",
     .help = "API keys, one on each line; requests without one of them are refused"},
    {.topic = "Only serve",
     .name = "ssl-cert-file",
     .type = RUNNER_KEY_PATH,
     .default_value = "",
     .value_name = "FILE",
     .help = "certificate (PEM) for TLS"},
    {.topic = "Only serve",
     .name = "ssl-key-file",
     .type = RUNNER_KEY_PATH,
     .default_value = "",
     .value_name = "FILE",
     .help = "private key (PEM) for TLS"},
    {.topic = "Only serve",
     .name = "allow-origin",
     .type = RUNNER_KEY_NAMES,
     .default_value = "",
     .value_name = "ORIGIN,...",
     .traits = RUNNER_KEY_REPEATABLE,
     .help = "pages of these origins may call the server (CORS): https://example.org; * = all"},
    {.topic = "Only serve",
     .name = "allow-host",
     .type = RUNNER_KEY_NAMES,
     .default_value = "",
     .value_name = "NAME,...",
     .traits = RUNNER_KEY_REPEATABLE,
     .help = "names besides localhost that a request's Host header may have"},
    {.topic = "Only serve",
     .name = "embeddings",
     .alias = "embedding",
     .type = RUNNER_KEY_BOOL,
     .default_value = "no",
     .help =
         "give embeddings, too, which takes a second context; encoders and rerankers always do"},
    {.topic = "Only serve",
     .name = "queue-size",
     .type = RUNNER_KEY_INT,
     .default_value = "256",
     .value_name = "N",
     .min = 1,
     .max = 65536,
     .help = "requests that may wait; more are refused with status 429"},
    {.topic = "Only serve",
     .name = "request-timeout",
     .type = RUNNER_KEY_FLOAT,
     .default_value = "3600",
     .value_name = "SECONDS",
     .max = 604800,
     .help = "how long a request may take; 0 = without limit"},
    {.topic = "Only serve",
     .name = "shutdown-timeout",
     .type = RUNNER_KEY_FLOAT,
     .default_value = "30",
     .value_name = "SECONDS",
     .max = 604800,
     .help = "how long requests may go on after the signal that ends the server"},
    {.topic = "Only serve",
     .name = "connections",
     .type = RUNNER_KEY_INT,
     .default_value = "1024",
     .value_name = "N",
     .min = 1,
     .max = 32768,
     .help = "connections that may be open"},
    {.topic = "Only serve",
     .name = "body-max",
     .type = RUNNER_KEY_INT,
     .default_value = "8",
     .value_name = "MIB",
     .min = 1,
     .max = 256,
     .help = "largest body of a request, in MiB"},
    {.topic = "Only serve",
     .name = "metrics",
     .type = RUNNER_KEY_BOOL,
     .default_value = "yes",
     .help = "serve /metrics for Prometheus"},
    {.topic = "Only serve",
     .name = "slots",
     .type = RUNNER_KEY_BOOL,
     .default_value = "yes",
     .help = "serve /slots, the requests at work"},
    {.topic = "Only serve",
     .name = "webui",
     .type = RUNNER_KEY_BOOL,
     .default_value = "yes",
     .help = "serve a page to chat with the model"},
};

const runner_command runner_command_serve = {
    .name = "serve",
    .summary = "serve models over HTTP, with the APIs of OpenAI and others",
    .run = serve_main,
    .keys = RUNNER_KEYS_COMPUTE RUNNER_KEYS_LORA RUNNER_KEYS_DRAFT
    " models-max ctx-size parallel predict template" RUNNER_KEYS_SAMPLING " mlock jinja warmup",
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
    .opens_devices = true,
};
