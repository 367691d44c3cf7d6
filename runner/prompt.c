/* SPDX-License-Identifier: MIT
 *
 * prompt.c: see prompt.h.
 */
#include "runner/prompt.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/config/config_value.h"
#include "runner/interrupt.h"

#define PROMPT_SIZE_MAX ((size_t)256 << 20) /* limit of the tokenizer (llm/tokenizer/tokenizer.h) */

static tdm_status stream_read(FILE *stream, const char *name, char **text_out, size_t *len_out,
                              tdm_error *err) {
    size_t len = 0, capacity = 4096;
    char *text = malloc(capacity);
    while (text != NULL) {
        errno = 0;
        len += fread(text + len, 1, capacity - len - 1, stream);
        if (runner_interrupt_came() || ferror(stream) != 0 || len > PROMPT_SIZE_MAX) break;
        if (feof(stream) != 0) {
            text[len] = '\0';
            *text_out = text;
            *len_out = len;
            return TDM_OK;
        }
        if (len + 1 < capacity) continue;
        char *grown = realloc(text, capacity * 2);
        if (grown == NULL) free(text);
        text = grown;
        capacity *= 2;
    }
    tdm_status status;
    if (text == NULL)
        status =
            tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for %zu bytes", name, capacity);
    else if (runner_interrupt_came())
        status = tdm_fail(err, TDM_CANCELLED, "interrupted");
    else if (len > PROMPT_SIZE_MAX)
        status = tdm_fail(err, TDM_OUT_OF_RANGE, "%s: longer than 256 MiB", name);
    else
        status = tdm_fail(err, TDM_IO, "%s: cannot be read: %s", name, strerror(errno));
    free(text);
    return status;
}

tdm_status runner_file_read(const char *path, char **text_out, size_t *len_out, tdm_error *err) {
    FILE *stream = fopen(path, "rb");
    if (stream == NULL &&
        runner_interrupt_came()) /* Ctrl-C while opening a pipe without a writer */
        return tdm_fail(err, TDM_CANCELLED, "interrupted");
    if (stream == NULL)
        return tdm_fail(err, errno == ENOENT ? TDM_NOT_FOUND : TDM_IO, "%s: cannot be read: %s",
                        path, strerror(errno));
    tdm_status status = stream_read(stream, path, text_out, len_out, err);
    fclose(stream);
    return status;
}

tdm_status runner_prompt_read(runner_app *app, char **text_out, size_t *len_out, tdm_error *err) {
    const char *path = runner_config_get_string(app->config, "file");
    const char *text = runner_config_get_string(app->config, "prompt");
    bool is_given = runner_config_get_origin(app->config, "prompt").level != RUNNER_LEVEL_BUILT_IN;
    bool is_escaped = runner_config_get_bool(app->config, "escape");
    tdm_status status = runner_config_check(app->config, err);
    if (status != TDM_OK) return status;
    if (path[0] != '\0') return runner_file_read(path, text_out, len_out, err);
    if (!is_given) {
        if (isatty(STDIN_FILENO) == 1)
            runner_terminal_print(app->terminal, RUNNER_MESSAGE_NOTE,
                                  "type the prompt and end it with Ctrl-D");
        return stream_read(stdin, "standard input", text_out, len_out, err);
    }
    *text_out = strdup(text);
    if (*text_out == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "prompt: no memory");
    if (is_escaped) runner_text_unescape(*text_out);
    *len_out = strlen(*text_out);
    return TDM_OK;
}
