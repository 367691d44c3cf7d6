/* SPDX-License-Identifier: MIT
 *
 * certify.c: `tandem certify PLUGIN.so`: the conformance suite, configured from the command
 * line. The checks are in certify/.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "certify/certify.h"
#include "runner/app.h"

/* The values of --option, a list of key=value. A word without '=' continues the value before it,
 * which has a comma in it ("cores=0-3,5"). */
typedef struct option_list {
    tdm_option *options;
    char **texts; /* [n] "key" NUL "value", owned; options point into them */
    size_t n;
} option_list;

static void options_free(option_list *list) {
    for (size_t i = 0; i < list->n; i++) free(list->texts[i]);
    free(list->texts);
    free(list->options);
}

static char *text_join(const char *a, const char *between, const char *b) {
    size_t size = strlen(a) + strlen(between) + strlen(b) + 1;
    char *text = malloc(size);
    if (text != NULL) snprintf(text, size, "%s%s%s", a, between, b);
    return text;
}

static tdm_status options_read(runner_app *app, option_list *list, tdm_error *err) {
    size_t n = runner_config_get_count(app->config, "option");
    list->options = calloc(n + 1, sizeof *list->options);
    list->texts = calloc(n + 1, sizeof *list->texts);
    if (list->options == NULL || list->texts == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "certify: out of memory");
    for (size_t i = 0; i < n; i++) {
        const char *word = runner_config_get_string_at(app->config, "option", i);
        bool is_new = strchr(word, '=') != NULL;
        if (!is_new && list->n == 0)
            return runner_usage(app, err, "--option %s: not of the form key=value", word);
        char *text =
            is_new ? text_join(word, "", "") : text_join(list->texts[list->n - 1], ",", word);
        if (text == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "certify: out of memory");
        if (!is_new) free(list->texts[--list->n]);
        list->texts[list->n++] = text;
    }
    for (size_t i = 0; i < list->n; i++) {
        char *at = strchr(list->texts[i], '=');
        *at = 0;
        list->options[i] = (tdm_option){list->texts[i], at + 1};
    }
    return TDM_OK;
}

/* Fails for a missing file before the suite runs, in which every check would fail. A file that is
 * no plugin is reported by the suite. */
static tdm_status file_check(const char *file, tdm_error *err) {
    struct stat info = {0};
    int fd = open(file, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a pipe without a writer opens too */
    int cause = fd < 0 ? errno : 0;
    if (fd >= 0 && fstat(fd, &info) != 0) cause = errno;
    if (fd >= 0) close(fd);
    if (cause != 0)
        return tdm_fail(err, cause == ENOENT ? TDM_NOT_FOUND : TDM_IO, "%s: cannot be read: %s",
                        file, strerror(cause));
    if (!S_ISREG(info.st_mode))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: is not a file; a plugin is a NAME.so",
                        file);
    return TDM_OK;
}

static tdm_status suite_run(runner_app *app, const option_list *list, tdm_error *err) {
    runner_config *config = app->config;
    int64_t seed = runner_config_get_int(config, "seed");
    const char *file = runner_config_positional(config, 0);
    certify_result result;
    certify_params params = {
        .file = file,
        .level = (int32_t)runner_config_get_int(config, "level"),
        .device = (int32_t)runner_config_get_int(config, "device-index"),
        .options = list->options,
        .n_option = (int32_t)list->n,
        .limit_s = (int32_t)runner_config_get_int(config, "check-timeout"),
        .only = runner_config_get_string(config, "only"),
        .is_batch = runner_config_get_bool(config, "batch"),
        .seed = seed >= 0 ? (uint64_t)seed : (uint64_t)time(NULL),
    };
    char *found = NULL;
    tdm_status status = runner_config_check(config, err);
    if (status == TDM_OK) status = file_check(file, err);
    if (status != TDM_OK) return status;
    /* dlopen searches the system's folders for a name without '/': make it a path */
    if (strchr(file, '/') == NULL && (found = text_join("./", "", file)) != NULL)
        params.file = found;
    status = certify_run(&params, app->out, &result, err);
    free(found);
    if (status == TDM_OK && result.n_failed > 0)
        status = tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: %d of %d checks failed", file,
                          (int)result.n_failed, (int)(result.n_failed + result.n_passed));
    else if (status == TDM_OK && result.n_passed == 0)
        status = tdm_fail(err, TDM_FAILED_PRECONDITION,
                          "%s: every check was skipped: nothing is known; the reasons stand above",
                          file);
    return status;
}

static tdm_status certify_command(runner_app *app, tdm_error *err) {
    option_list list = {0};
    if (runner_config_get_bool(app->config, "list")) return certify_list(app->out, err);
    if (runner_config_n_positional(app->config) == 0)
        return runner_usage(app, err, "`tandem certify` needs PLUGIN.so");
    tdm_status status = options_read(app, &list, err);
    if (status == TDM_OK) status = suite_run(app, &list, err);
    options_free(&list);
    return status;
}

static const runner_key own_keys[] = {
    {.topic = "Only certify",
     .name = "level",
     .type = RUNNER_KEY_INT,
     .default_value = "6",
     .value_name = "N",
     .max = 6,
     .help = "run the checks of levels 0 to N; docs/abi.md says what a level is"},
    {.topic = "Only certify",
     .name = "only",
     .type = RUNNER_KEY_STRING,
     .default_value = "",
     .value_name = "ID",
     .help = "run the checks whose id begins with this, such as buffer or op.rope"},
    {.topic = "Only certify",
     .name = "list",
     .type = RUNNER_KEY_BOOL,
     .default_value = "no",
     .help = "list all checks with their levels and the sentences that they rest on; run none"},
    {.topic = "Only certify",
     .name = "device-index",
     .type = RUNNER_KEY_INT,
     .default_value = "0",
     .value_name = "N",
     .max = 1023,
     .help = "which of the plugin's devices, counted from 0"},
    {.topic = "Only certify",
     .name = "check-timeout",
     .type = RUNNER_KEY_INT,
     .default_value = "120",
     .value_name = "SECONDS",
     .min = 1,
     .max = 86400,
     .help =
         "processor time, or time of waiting, after which a check has hung; drivers that compile "
         "on a processor need more"},
    {.topic = "Only certify",
     .name = "batch",
     .type = RUNNER_KEY_BOOL,
     .default_value = "no",
     .help = "run checks that can share a device in one process: faster where drivers load slowly"},
    {.topic = "Only certify",
     .name = "option",
     .type = RUNNER_KEY_NAMES,
     .default_value = "",
     .value_name = "KEY=VALUE",
     .traits = RUNNER_KEY_REPEATABLE,
     .help = "open the device with this option, such as threads=2"},
};

const runner_command runner_command_certify = {
    .name = "certify",
    .positional = "PLUGIN.so",
    .n_positional_min = 0,
    .n_positional_max = 1,
    .summary = "run the conformance suite against a plugin",
    .run = certify_command,
    .keys = RUNNER_KEYS_EVERY " seed",
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
};
