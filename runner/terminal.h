/* SPDX-License-Identifier: MIT
 *
 * terminal.h: messages and progress on standard error. Results (text, tables) go to standard output
 * and do not pass through here.
 *
 * On a terminal, progress is a bar that is redrawn and removed at the end; elsewhere it is a few
 * plain lines. `quiet` drops progress and all messages below a warning. Colour is used on a
 * terminal unless NO_COLOR (https://no-color.org) is set to something or TERM is "dumb"; the key
 * `color` overrides both.
 */
#ifndef TANDEM_RUNNER_TERMINAL_H
#define TANDEM_RUNNER_TERMINAL_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tandem/status.h"

typedef enum runner_message {
    RUNNER_MESSAGE_ERROR,
    RUNNER_MESSAGE_WARNING,
    RUNNER_MESSAGE_NOTE, /* dropped with quiet */
    RUNNER_MESSAGE_DEBUG /* shown only with verbose */
} runner_message;

typedef enum runner_unit { RUNNER_UNIT_BYTES, RUNNER_UNIT_TOKENS } runner_unit;

typedef struct runner_terminal runner_terminal;

/* Zero means the default everywhere. */
typedef struct runner_terminal_params {
    FILE *stream; /* borrowed; NULL = stderr */
    int color;    /* 0 = by the environment, 1 = always, -1 = never */
    int tty;      /* 0 = as isatty says of the stream, 1 = a terminal, -1 = a file */
    int width;    /* columns; 0 = those of the terminal, else 80 */
    bool is_quiet;
    bool is_verbose;
    uint64_t (*clock)(void *); /* nanoseconds; NULL = CLOCK_MONOTONIC */
    void *clock_user;
} runner_terminal_params;

/* Makes a terminal; the caller destroys it. [setup] */
tdm_status runner_terminal_create(const runner_terminal_params *params,
                                  runner_terminal **terminal_out, tdm_error *err);
/* Ends a progress, which removes its bar, and frees the terminal. NULL is a no-op. [setup] */
void runner_terminal_destroy(runner_terminal *terminal);

/* Prints one line ("tandem: warning: ..."; notes and debug messages without the prefix). Removes a
 * bar, which the next update draws again. [any-thread] */
TDM_PRINTF(3, 4)
void runner_terminal_print(runner_terminal *terminal, runner_message message, const char *format,
                           ...);

/* Begins the progress of `what` ("loading", "prompt"), which is copied and cut to 47 bytes. `total`
 * is in `unit`; 0 = unknown. There is one progress at a time: beginning another one ends the first.
 * Nothing is shown during the first 200 ms. [any-thread] */
void runner_progress_begin(runner_terminal *terminal, const char *what, uint64_t total,
                           runner_unit unit);

/* Sets the progress to `done` of the total. May be called for every tensor or step: it writes at
 * most ten times a second to a terminal, and every two seconds to a file. A no-op outside a
 * progress. [any-thread] */
void runner_progress_update(runner_terminal *terminal, uint64_t done);

/* Ends the progress: removes the bar; in a file, prints a line with the time it took, if a line of
 * it was printed before. [any-thread] */
void runner_progress_end(runner_terminal *terminal);

/* Formats bytes: "1.21 GiB", "37 B". Always NUL-terminated. [any-thread] */
void runner_bytes_format(uint64_t n, char *text, size_t text_size);

#endif
