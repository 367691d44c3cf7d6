/* SPDX-License-Identifier: MIT
 *
 * session.c: configuration to runtime, model, device and context, in that order, so that a wrong
 * file is known before a device is opened, and a wrong device before weights are read.
 */
#include "runner/session.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runner/interrupt.h"

#define OPTIONS_MAX   32
#define DEVICES_MAX   256              /* names offered where a device is unknown */
#define CPU_PLUGIN    "cpu"            /* what a machine without configuration runs on */
#define CPU_DEVICE    "cpu0"           /* and what `tandem devices` calls it */
#define FALLBACK_NAME "cpu (fallback)" /* no [device NAME] can be called so */

uint64_t runner_clock(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* ---- Runtime ---- */

static void log_print(void *context, int32_t level, const char *line) {
    static const runner_message messages[] = {RUNNER_MESSAGE_WARNING, RUNNER_MESSAGE_WARNING,
                                              RUNNER_MESSAGE_DEBUG, RUNNER_MESSAGE_DEBUG};
    runner_app *app = context;
    runner_message message =
        level >= 0 && level <= TDM_LOG_DEBUG ? messages[level] : RUNNER_MESSAGE_DEBUG;
    if (message == RUNNER_MESSAGE_WARNING && runner_config_get_bool(app->config, "quiet")) return;
    runner_terminal_print(app->terminal, message, "%s", line);
}

tdm_status runner_runtime_create(runner_app *app, tdm_runtime **rt_out, tdm_error *err) {
    char *folders = NULL;
    tdm_status status = runner_config_join_paths(app->config, "plugin-path", &folders, err);
    if (status != TDM_OK) return status;
    tdm_runtime_params params = {
        .struct_size = sizeof params,
        .plugin_path = folders,
        .log = log_print,
        .log_context = app,
        .log_level = runner_config_get_bool(app->config, "verbose") ? TDM_LOG_DEBUG : TDM_LOG_WARN,
    };
    status = tdm_runtime_create(&params, rt_out, err);
    free(folders);
    return status;
}

/* ---- Model file ---- */

tdm_status runner_session_open(runner_session *session, runner_app *app, const char *path,
                               tdm_error *err) {
    uint64_t start = runner_clock();
    session->app = app;
    if (path == NULL) path = runner_config_get_string(app->config, "model");
    tdm_status status = runner_config_check(app->config, err);
    if (status != TDM_OK) return status;
    if (path[0] == '\0')
        return runner_usage(app, err,
                            "no model given: use -m MODEL.gguf, or `model =` in a file given with "
                            "--config");
    status = llm_model_open(path, &session->model, err);
    session->load_ns = runner_clock() - start;
    return status;
}

/* ---- Device ---- */

/* Declares a device as its section says; `section` NULL = as flags and [*] say. */
static tdm_status device_declare(runner_session *session, const runner_section *section,
                                 const char *name, const char *plugin, int32_t index,
                                 int32_t threads, tdm_error *err) {
    tdm_option options[OPTIONS_MAX];
    char threads_text[16];
    runner_config *config = session->app->config;
    size_t n = runner_section_get_options(config, section, plugin, options, OPTIONS_MAX - 1);
    if (n > OPTIONS_MAX - 1)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "device '%s': more than %d options", name,
                        OPTIONS_MAX - 1);
    if (threads > 0 && strcmp(plugin, CPU_PLUGIN) == 0) {
        size_t at = 0;
        while (at < n && strcmp(options[at].key, "threads") != 0) at++;
        snprintf(threads_text, sizeof threads_text, "%d", (int)threads);
        options[at] = (tdm_option){"threads", threads_text};
        if (at == n) n++;
    }
    tdm_device_spec spec = {name, plugin, index, options, (int32_t)n};
    return tdm_runtime_declare(session->rt, &spec, err);
}

/* Looks for a name among what the plugins have. */
static tdm_status device_find(runner_session *session, const char *wanted, int32_t threads,
                              tdm_error *err) {
    runner_config *config = session->app->config;
    static char names[DEVICES_MAX][sizeof((tdm_device_info *)0)->name];
    const char *known[DEVICES_MAX];
    size_t n_known = 0;
    int32_t n_plugin = 0;
    tdm_status status = tdm_runtime_load_all(session->rt, &n_plugin, err);
    if (status != TDM_OK) return status;
    for (int32_t p = 0; p < n_plugin; p++) {
        int32_t n_device = 0;
        if (tdm_runtime_device_count(session->rt, p, &n_device, NULL) != TDM_OK) continue;
        for (int32_t i = 0; i < n_device && n_known < DEVICES_MAX; i++) {
            tdm_device_info info;
            if (tdm_runtime_device_describe(session->rt, p, i, &info, NULL) != TDM_OK) continue;
            if (strcmp(info.name, wanted) == 0)
                return device_declare(session, NULL, wanted,
                                      tdm_runtime_plugin(session->rt, p)->name, i, threads, err);
            memcpy(names[n_known], info.name, sizeof info.name);
            known[n_known] = names[n_known];
            n_known++;
        }
    }
    session->app->is_usage = runner_config_get_origin(config, "device").level == RUNNER_LEVEL_FLAG;
    return runner_config_device_unknown(config, wanted, known, n_known, err);
}

/* Declares what the configuration has; *name is a value of `device` and becomes what the chosen one
 * is called. */
static tdm_status devices_declare(runner_session *session, const char **name, int32_t threads,
                                  tdm_error *err) {
    runner_config *config = session->app->config;
    const runner_section *chosen = NULL;
    tdm_status status = runner_config_find_device(config, *name, &chosen, err);
    for (size_t i = 0; status == TDM_OK && i < runner_config_n_devices(config); i++) {
        const runner_section *section = runner_config_device(config, i);
        status = device_declare(session, section, runner_section_name(section),
                                runner_section_get_string(config, section, "plugin"),
                                (int32_t)runner_section_get_int(config, section, "index"),
                                section == chosen ? threads : 0, err);
    }
    if (status != TDM_OK) return status;
    session->section = chosen;
    if (chosen != NULL) {
        *name = runner_section_name(chosen);
        return TDM_OK;
    }
    if (strcmp(*name, "auto") != 0) return device_find(session, *name, threads, err);
    *name = CPU_DEVICE;
    return device_declare(session, NULL, CPU_DEVICE, CPU_PLUGIN, 0, threads, err);
}

/* Any device but the CPU may refuse an op, which the CPU then runs. */
static void fallback_open(runner_session *session) {
    tdm_error why = {0};
    if (strcmp(tdm_dev_plugin(session->dev)->name, CPU_PLUGIN) == 0) return;
    tdm_status status = device_declare(session, NULL, FALLBACK_NAME, CPU_PLUGIN, 0, 0, &why);
    if (status == TDM_OK)
        status = tdm_runtime_open(session->rt, FALLBACK_NAME, &session->fallback, &why);
    if (status != TDM_OK)
        runner_terminal_print(session->app->terminal, RUNNER_MESSAGE_DEBUG,
                              "no CPU to run what '%s' refuses: %s", tdm_dev_name(session->dev),
                              why.message);
}

static tdm_status reserve_check(runner_session *session, uint64_t memory_free, uint64_t size,
                                const char *what, tdm_error *err) {
    uint64_t reserve = runner_section_get_size(session->app->config, session->section, "reserve");
    if (reserve == 0 || memory_free == 0) return TDM_OK;
    if (memory_free >= reserve && memory_free - reserve >= size) return TDM_OK;
    char size_text[32], free_text[32], reserve_text[32];
    runner_bytes_format(size, size_text, sizeof size_text);
    runner_bytes_format(memory_free, free_text, sizeof free_text);
    runner_bytes_format(reserve, reserve_text, sizeof reserve_text);
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                    "device '%s': %s need %s; %s are free and `reserve` keeps %s of them; reserve "
                    "less, or use a smaller model, ctx-size or cache type",
                    tdm_dev_name(session->dev), what, size_text, free_text, reserve_text);
}

static bool loading_update(void *context, uint64_t done, uint64_t total) {
    runner_app *app = context;
    (void)total;
    runner_progress_update(app->terminal, done);
    return !runner_interrupt_came();
}

tdm_status runner_session_load(runner_session *session, const char *device, int32_t threads,
                               tdm_error *err) {
    uint64_t start = runner_clock();
    runner_app *app = session->app;
    const char *name = device != NULL ? device : runner_config_get_string(app->config, "device");
    tdm_status status = runner_runtime_create(app, &session->rt, err);
    if (status == TDM_OK) status = devices_declare(session, &name, threads, err);
    if (status == TDM_OK) status = runner_config_check(app->config, err);
    if (status == TDM_OK) status = tdm_runtime_open(session->rt, name, &session->dev, err);
    if (status == TDM_OK) status = tdm_dev_get_info(session->dev, &session->info, err);
    if (status == TDM_OK)
        status = reserve_check(session, session->info.memory_free, session->model->file_size,
                               "the weights", err);
    if (status != TDM_OK) return status;
    fallback_open(session);
    tdm_dev *devs[2] = {session->dev, session->fallback};
    runner_progress_begin(app->terminal, "loading", session->model->file_size, RUNNER_UNIT_BYTES);
    status = llm_model_load(session->model, session->rt, devs, session->fallback != NULL ? 2 : 1,
                            loading_update, app, err);
    runner_progress_end(app->terminal);
    session->load_ns += runner_clock() - start;
    return status;
}

/* ---- Context ---- */

/* The names of the table (options.c) are types' names, so a type that is not found is a bug. */
static tdm_status type_find(const char *name, tdm_type *type_out, tdm_error *err) {
    for (int type = 0; type < TDM_TYPE_LIMIT_; type++) {
        tdm_type_info info = tdm_type_get_info((tdm_type)type);
        if (info.name == NULL || strcmp(info.name, name) != 0) continue;
        *type_out = (tdm_type)type;
        return TDM_OK;
    }
    return tdm_fail(err, TDM_INTERNAL, "no type is called '%s'", name);
}

/* ctx-size in the language layer's terms: there 0 is what `auto` is here. */
static int32_t context_size(runner_session *session) {
    int64_t n_ctx = runner_config_get_int(session->app->config, "ctx-size");
    if (n_ctx == 0) return session->model->hparams.n_ctx_train;
    return n_ctx < 0 ? 0 : (int32_t)n_ctx;
}

tdm_status runner_session_begin(runner_session *session, const runner_context_wish *wish,
                                tdm_error *err) {
    static const runner_context_wish none;
    runner_config *config = session->app->config;
    if (wish == NULL) wish = &none;
    const char *type_k = wish->type_k, *type_v = wish->type_v;
    if (type_k == NULL) type_k = runner_config_get_string(config, "cache-type-k");
    if (type_v == NULL) type_v = runner_config_get_string(config, "cache-type-v");
    int32_t n_ubatch = wish->n_ubatch;
    if (n_ubatch == 0) n_ubatch = (int32_t)runner_config_get_int(config, "ubatch-size");
    bool is_rotated =
        wish->rotate != 0 ? wish->rotate > 0 : runner_config_get_bool(config, "kv-rotate");
    tdm_type k = TDM_TYPE_F16, v = TDM_TYPE_F16;
    llm_context_params params = {
        .struct_size = sizeof params,
        .n_ctx = wish->n_ctx != 0 ? wish->n_ctx : context_size(session),
        .n_ubatch = n_ubatch,
        .n_seq = wish->n_seq,
        .page_len = (int32_t)runner_config_get_int(config, "page-size"),
        .type_k = &k,
        .type_v = &v,
        .is_unrotated = !is_rotated,
    };
    tdm_device_info info = {0};
    tdm_status status = runner_config_check(config, err);
    if (status == TDM_OK) status = type_find(type_k, &k, err);
    if (status == TDM_OK) status = type_find(type_v, &v, err);
    if (status == TDM_OK) status = tdm_dev_get_info(session->dev, &info, err);
    if (status == TDM_OK) status = llm_context_create(session->model, &params, &session->ctx, err);
    if (status != TDM_OK) return status;
    /* How much a context needs is known only when it is there; its pages are untouched so far. */
    llm_context_memory memory = llm_context_get_memory(session->ctx);
    status = reserve_check(session, info.memory_free, memory.cache + memory.compute,
                           "cache and compute memory", err);
    if (status == TDM_OK) return TDM_OK;
    llm_context_destroy(session->ctx);
    session->ctx = NULL;
    return status;
}

typedef struct prefill_progress {
    runner_app *app;
    uint64_t done_before;
} prefill_progress;

static bool prefill_update(void *context, uint64_t done, uint64_t total) {
    const prefill_progress *progress = context;
    (void)total;
    runner_progress_update(progress->app->terminal, progress->done_before + done);
    return !runner_interrupt_came();
}

tdm_status runner_session_prefill(runner_session *session, const int32_t *tokens, int32_t n_tok,
                                  int32_t n_batch, bool wants_last, tdm_error *err) {
    runner_app *app = session->app;
    tdm_status status = TDM_OK;
    if (n_batch > n_tok) n_batch = n_tok;
    bool *unwanted = calloc((size_t)n_batch + 1, sizeof *unwanted);
    if (unwanted == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a batch of %d tokens", n_batch);
    prefill_progress progress = {app, 0};
    runner_progress_begin(app->terminal, "prompt", (uint64_t)n_tok, RUNNER_UNIT_TOKENS);
    llm_context_set_progress(session->ctx, prefill_update, &progress);
    for (int32_t at = 0, n; at < n_tok && status == TDM_OK; at += n) {
        n = n_tok - at < n_batch ? n_tok - at : n_batch;
        bool is_last = at + n == n_tok;
        llm_batch batch = {tokens + at, NULL, is_last && wants_last ? NULL : unwanted, n};
        progress.done_before = (uint64_t)at;
        status = llm_context_decode(session->ctx, &batch, err);
        runner_progress_update(app->terminal, (uint64_t)(at + n));
        if (status == TDM_OK && !is_last && runner_interrupt_came())
            status =
                tdm_fail(err, TDM_CANCELLED, "interrupted after %d of %d tokens", at + n, n_tok);
    }
    llm_context_set_progress(session->ctx, NULL, NULL);
    runner_progress_end(app->terminal);
    free(unwanted);
    return status;
}

void runner_session_close(runner_session *session) {
    llm_context_destroy(session->ctx);
    llm_model_close(session->model);
    tdm_runtime_destroy(session->rt);
    memset(session, 0, sizeof *session);
}
