/* SPDX-License-Identifier: MIT
 *
 * app.h: what the functions of a command share: the configuration, the terminal and the output. A
 * command is a file of runner/commands and a line of commands/list.h.
 *
 * A command writes its result to app->out and everything else through app->terminal. A command that
 * fails returns a status with a one-line message, which main.c prints unless is_reported is set.
 * The process then exits with 1, with 2 where runner_usage or runner_config_fail has marked the
 * command line as wrong, or with 128 + the number of the signal that ended it (130: Ctrl-C).
 */
#ifndef TANDEM_RUNNER_APP_H
#define TANDEM_RUNNER_APP_H

#include "runner/config/config.h"
#include "runner/terminal.h"

struct runner_app {
    const runner_command *command;
    runner_config *config;     /* parsed */
    runner_terminal *terminal; /* standard error */
    FILE *out;                 /* standard output */
    bool is_usage;             /* the command line is wrong: a failure ends with exit code 2 */
    bool is_reported;          /* the result in app->out states the failure: main.c prints none */
};

/* Fails with TDM_INVALID_ARGUMENT and makes the exit code 2. [setup] */
TDM_PRINTF(3, 4)
tdm_status runner_usage(runner_app *app, tdm_error *err, const char *format, ...);

/* Flushes app->out. TDM_IO if this write or an earlier one failed. [setup] */
tdm_status runner_flush(runner_app *app, tdm_error *err);

#endif
