/* SPDX-License-Identifier: MIT
 *
 * terminal.h: what the runner says besides its result: messages and progress, on standard error.
 *
 * The result itself (text, tables) goes to standard output and is none of this file's business.
 * On a terminal, progress is a bar that redraws itself and disappears; elsewhere it is a few plain
 * lines; with `quiet` there is none, nor any message below a warning. Colour is used on a terminal
 * unless NO_COLOR (https://no-color.org) is set to something or TERM is "dumb"; the key `color`
 * overrides both.
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
    int color;    /* 0 = as the environment says, 1 = always, -1 = never */
    int tty;      /* 0 = ask the stream, 1 = treat as a terminal, -1 = as a file */
    int width;    /* columns; 0 = ask the terminal (80 where it does not know) */
    bool is_quiet;
    bool is_verbose;
    uint64_t (*clock)(void *); /* nanoseconds, never backwards; NULL = CLOCK_MONOTONIC */
    void *clock_user;
} runner_terminal_params;

/* Destroyed with runner_terminal_destroy (NULL allowed), which also takes a bar that is still
 * there off the screen. [setup] */
tdm_status runner_terminal_create(const runner_terminal_params *params,
                                  runner_terminal **terminal_out, tdm_error *err);
void runner_terminal_destroy(runner_terminal *terminal);

/* Prints one line ("tandem: warning: ..."); a bar makes room and comes back with its next update.
 * [any-thread] */
TDM_PRINTF(3, 4)
void runner_terminal_print(runner_terminal *terminal, runner_message message, const char *format,
                           ...);

/* Begins showing how far `what` ("loading", "prefill") is; `total` 0 = unknown. Only one progress
 * at a time: beginning another ends the first. Nothing appears before 200 ms have passed, so that
 * short work leaves no trace. [any-thread] */
void runner_progress_begin(runner_terminal *terminal, const char *what, uint64_t total,
                           runner_unit unit);

/* `done` of the total so far. Cheap enough to call for every tensor or step: a terminal is
 * written to at most ten times a second, a file at most every two seconds. Without a progress that
 * has begun, nothing happens. [any-thread] */
void runner_progress_update(runner_terminal *terminal, uint64_t done);

/* Takes the bar away; on a file, closes with a line that says how long it took, if any line of
 * it was shown. [any-thread] */
void runner_progress_end(runner_terminal *terminal);

/* "1.21 GiB", "37 B": bytes for people. Always terminated. [any-thread] */
void runner_bytes_format(uint64_t n, char *text, size_t text_size);

#endif
