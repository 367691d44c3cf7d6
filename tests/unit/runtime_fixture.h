/* SPDX-License-Identifier: MIT
 *
 * runtime_fixture.h: a runtime with the fake plugin (tests/plugins/fakes) and a log that tests
 * read. Include it first. FAKE_PLUGIN_DIR is the folder of the built plugins.
 */
#ifndef TANDEM_TEST_RUNTIME_FIXTURE_H
#define TANDEM_TEST_RUNTIME_FIXTURE_H

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/graph/builder.h"
#include "core/counters.h"
#include "core/runtime.h"

/* The call works; it names its error `err`. */
#define OK(call)                                                                                   \
    do {                                                                                           \
        tdm_error ok_err = {0}, *err = &ok_err;                                                    \
        if ((call) != TDM_OK) fail_msg("%s", ok_err.message);                                      \
    } while (0)

/* The call fails with this status and a message that has `text`. */
#define FAILS(status_, text, call)                                                                 \
    do {                                                                                           \
        tdm_error fails_err = {0}, *err = &fails_err;                                              \
        const tdm_status fails_status = (call);                                                    \
        if (fails_status != (status_) || strstr(fails_err.message, text) == NULL)                  \
            fail_msg("expected %s with '%s', found %s: %s", tdm_status_text(status_), text,        \
                     tdm_status_text(fails_status), fails_err.message);                            \
    } while (0)

/* ---- The log ---- */

typedef struct log_text {
    pthread_mutex_t mutex;
    char text[16384]; /* a line each */
    size_t len;
} log_text;

static log_text the_log = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static inline void log_write(void *context, int32_t level, const char *line) {
    log_text *log = context;
    (void)level;
    pthread_mutex_lock(&log->mutex);
    const size_t left = sizeof log->text - log->len;
    const int n = snprintf(log->text + log->len, left, "%s\n", line);
    if (n > 0 && (size_t)n < left) log->len += (size_t)n;
    pthread_mutex_unlock(&log->mutex);
}

static inline void log_clear(void) {
    the_log.len = 0;
    the_log.text[0] = 0;
}

/* How often `text` stands in the log. */
static inline int log_count(const char *text) {
    int n = 0;
    for (const char *at = the_log.text; (at = strstr(at, text)) != NULL; at += strlen(text)) n++;
    return n;
}

static inline void log_has(const char *text, int n) {
    if (log_count(text) != n)
        fail_msg("'%s' stands in the log %d times, expected %d:\n%s", text, log_count(text), n,
                 the_log.text);
}

/* ---- The runtime ---- */

static inline tdm_runtime *runtime_make(const char *plugin_path) {
    tdm_runtime *rt = NULL;
    const tdm_runtime_params params = {.struct_size = sizeof params,
                                       .plugin_path = plugin_path,
                                       .log = log_write,
                                       .log_context = &the_log,
                                       .log_level = TDM_LOG_INFO};
    log_clear();
    OK(tdm_runtime_create(&params, &rt, err));
    return rt;
}

/* Declares device `name` of a variant of the fake plugin; `options` are up to three "key=value". */
static inline void declare_of(tdm_runtime *rt, const char *plugin, const char *name,
                              const char *const options[3]) {
    char text[3][160];
    tdm_option list[4] = {{"name", name}};
    tdm_device_spec spec = {.name = name, .plugin = plugin, .options = list, .n_option = 1};
    for (int i = 0; i < 3 && options != NULL && options[i] != NULL; i++) {
        snprintf(text[i], sizeof text[i], "%s", options[i]);
        char *value = strchr(text[i], '=');
        assert_non_null(value);
        *value = 0;
        list[spec.n_option++] = (tdm_option){text[i], value + 1};
    }
    OK(tdm_runtime_declare(rt, &spec, err));
}

static inline void declare(tdm_runtime *rt, const char *name, const char *const options[3]) {
    declare_of(rt, "fake", name, options);
}

static inline tdm_open_device *open_fake(tdm_runtime *rt, const char *name, const char *option0,
                                         const char *option1) {
    tdm_open_device *dev = NULL;
    declare(rt, name, (const char *const[3]){option0, option1, NULL});
    OK(tdm_runtime_open(rt, name, &dev, err));
    return dev;
}

#endif
