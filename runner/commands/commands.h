/* SPDX-License-Identifier: MIT
 *
 * commands.h: the commands of `tandem`, as functions. Their names, flags and help are options.h's
 * tables; main.c finds the function by the command's bit.
 *
 * A command writes its result to app->out and everything else through app->terminal. Failing, it
 * returns a status with a one-line message, which main.c prints; the process then exits with 1, or
 * with 2 where runner_usage said that the command line was wrong, or with 130 after Ctrl-C.
 */
#ifndef TANDEM_RUNNER_COMMANDS_H
#define TANDEM_RUNNER_COMMANDS_H

#include "runner/config/config.h"
#include "runner/terminal.h"

typedef struct runner_app {
    const runner_command *command;
    runner_config *config;     /* parsed */
    runner_terminal *terminal; /* standard error */
    FILE *out;                 /* standard output */
    bool is_usage;             /* the failure is the command line's */
} runner_app;

typedef tdm_status (*runner_command_fn)(runner_app *app, tdm_error *err);

tdm_status runner_cmd_run(runner_app *app, tdm_error *err);
tdm_status runner_cmd_chat(runner_app *app, tdm_error *err);
tdm_status runner_cmd_plan(runner_app *app, tdm_error *err);
tdm_status runner_cmd_logits(runner_app *app, tdm_error *err);
tdm_status runner_cmd_bench(runner_app *app, tdm_error *err);
tdm_status runner_cmd_perplexity(runner_app *app, tdm_error *err);
tdm_status runner_cmd_quantize(runner_app *app, tdm_error *err);
/* quantize.c: the types that it knows, for --help. */
void runner_quantize_types_print(FILE *out);
tdm_status runner_cmd_info(runner_app *app, tdm_error *err);
tdm_status runner_cmd_tokenize(runner_app *app, tdm_error *err);
tdm_status runner_cmd_devices(runner_app *app, tdm_error *err);
/* certify.c: fails with what the suite found broken, after printing it all to app->out. */
tdm_status runner_cmd_certify(runner_app *app, tdm_error *err);

/* Fails with TDM_INVALID_ARGUMENT and makes the exit code 2. [setup] */
TDM_PRINTF(3, 4)
tdm_status runner_usage(runner_app *app, tdm_error *err, const char *format, ...);

/* Fails with TDM_IO unless all that was written to app->out has arrived. [setup] */
tdm_status runner_flush(runner_app *app, tdm_error *err);

#endif
