/* SPDX-License-Identifier: MIT
 *
 * app.h: what the functions of a command share: the configuration, the terminal and the output. A
 * command is a file of runner/commands and a line of commands/list.h.
 *
 * A command writes its result to app->out and everything else through app->terminal. Failing, it
 * returns a status with a one-line message, which main.c prints (not where the result states it:
 * is_reported); the process then exits with 1, or with 2 where runner_usage or runner_config_fail
 * said that the command line was wrong, or with 130 after Ctrl-C.
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
    bool is_usage;             /* the failure is the command line's */
    bool is_reported;          /* what app->out has states the failure; no message follows */
};

/* Fails with TDM_INVALID_ARGUMENT and makes the exit code 2. [setup] */
TDM_PRINTF(3, 4)
tdm_status runner_usage(runner_app *app, tdm_error *err, const char *format, ...);

/* Fails with TDM_IO unless all that was written to app->out has arrived. [setup] */
tdm_status runner_flush(runner_app *app, tdm_error *err);

#endif
