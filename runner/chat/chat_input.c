/* SPDX-License-Identifier: MIT
 *
 * chat_input.c: see chat_input.h.
 */
#include "runner/chat/chat_input.h"

#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef RUNNER_HAS_LIBEDIT
#include <editline/readline.h>
#endif

#include "runner/interrupt.h"

#define MESSAGE_SIZE_MAX ((size_t)64 << 20)

void runner_chat_input_begin(void) {
#ifdef RUNNER_HAS_LIBEDIT
    /* libedit drops typed characters that the encoding of the locale lacks: in the locale in which
     * a program begins, all but ASCII. The text of models is UTF-8. */
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL) setlocale(LC_CTYPE, "");
#endif
}

bool runner_chat_is_typed(void) {
    return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
}

/* A line without its newline; NULL at the end of the input. */
static char *line_read(const char *prompt) {
    char *line = NULL;
    size_t capacity = 0;
#ifdef RUNNER_HAS_LIBEDIT
    if (runner_chat_is_typed()) {
        line = readline(prompt);
        if (line != NULL && line[0] != '\0') add_history(line);
        return line;
    }
#endif
    if (runner_chat_is_typed()) {
        fputs(prompt, stdout);
        fflush(stdout);
    }
    ssize_t n = getline(&line, &capacity, stdin);
    if (n < 0) {
        free(line);
        return NULL;
    }
    if (n > 0 && line[n - 1] == '\n') line[--n] = '\0';
    if (n > 0 && line[n - 1] == '\r') line[--n] = '\0';
    return line;
}

/* Appends `line` to *text, after a newline unless it is the first line (*text NULL). */
static tdm_status line_append(char **text, const char *line, tdm_error *err) {
    size_t before = *text != NULL ? strlen(*text) : 0, n = strlen(line);
    if (before + n > MESSAGE_SIZE_MAX)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "a message longer than 64 MiB");
    char *grown = realloc(*text, before + n + 2);
    if (grown == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the message");
    if (*text != NULL) grown[before++] = '\n';
    memcpy(grown + before, line, n + 1);
    *text = grown;
    return TDM_OK;
}

tdm_status runner_chat_read(char **text_out, tdm_error *err) {
    tdm_status status = TDM_OK;
    bool is_block = false;
    char *text = NULL;
    *text_out = NULL;
    for (bool goes_on = true; goes_on && status == TDM_OK;) {
        char *line = line_read(text == NULL && !is_block ? "> " : ". ");
        if (line == NULL) {
            if (runner_interrupt_came()) status = tdm_fail(err, TDM_CANCELLED, "interrupted");
            break;
        }
        size_t n = strlen(line);
        if (strcmp(line, "\"\"\"") == 0 && (is_block || text == NULL)) {
            goes_on = !is_block;
            is_block = true;
            if (!goes_on && text == NULL) status = line_append(&text, "", err);
        } else {
            goes_on = is_block || (n > 0 && line[n - 1] == '\\');
            if (!is_block && goes_on) line[n - 1] = '\0';
            status = line_append(&text, line, err);
        }
        free(line);
    }
    if (status != TDM_OK) {
        free(text);
        return status;
    }
    *text_out = text;
    return TDM_OK;
}
