/* SPDX-License-Identifier: MIT
 *
 * main.c: finds the command, reads its configuration and runs it. Exit codes: 0 = done, 1 = failed,
 * 2 = wrong command line, 128 + the number of the signal that ended it (130: Ctrl-C).
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "runner/app.h"
#include "runner/interrupt.h"
#include "runner/llama_flags.h"

#define COMMANDS_MAX 32

/* Reports a failure before there is a terminal, hence without colour. */
static int fail_early(const char *message, int exit_code) {
    fprintf(stderr, "tandem: error: %s\n", message);
    return exit_code;
}

static int command_unknown(const char *word) {
    const char *names[COMMANDS_MAX];
    size_t n = 0;
    for (; n < n_runner_commands && n < COMMANDS_MAX - 1; n++) names[n] = runner_commands[n]->name;
    names[n++] = "help";
    const char *nearest = runner_word_nearest(word, names, n);
    tdm_error err = {0};
    if (nearest != NULL)
        tdm_fail(&err, TDM_NOT_FOUND, "unknown command '%.64s'; did you mean '%s'?", word, nearest);
    else
        tdm_fail(&err, TDM_NOT_FOUND, "unknown command '%.64s'; `tandem --help` lists the commands",
                 word);
    return fail_early(err.message, 2);
}

/* Prints the help of a command, or (NULL) the list of commands. `config` has the flags before
 * --help, of which plugin-path counts; NULL = no flags. Options of plugins are flags of a command,
 * too, so all plugins are loaded for its help. */
static int help(const runner_command *command, runner_config *config) {
    runner_app app = {.out = stdout};
    tdm_error err = {0};
    runner_config *own = NULL;
    if (config == NULL && runner_config_create(&own, &err) != TDM_OK)
        return fail_early(err.message, 1);
    if (config == NULL) config = own;
    if (command != NULL) runner_config_load_plugins(config, true);
    runner_help_print(stdout, command, runner_config_keys(config));
    runner_config_destroy(own);
    if (command != NULL && command->help_print != NULL) command->help_print(stdout);
    return runner_flush(&app, &err) == TDM_OK ? 0 : fail_early(err.message, 1);
}

static int version(void) {
    runner_app app = {.out = stdout};
    tdm_error err = {0};
    printf("tandem %s (plugin ABI %d)\n", TANDEM_VERSION, TDM_ABI_VERSION);
    return runner_flush(&app, &err) == TDM_OK ? 0 : fail_early(err.message, 1);
}

static int command_run(runner_app *app, const runner_command *command) {
    tdm_error err = {0};
    runner_terminal_params params = {
        .is_quiet = runner_config_is_quiet(app->config),
        .is_verbose = runner_config_is_verbose(app->config),
    };
    if (!runner_config_is_auto(app->config, "color"))
        params.color = runner_config_get_bool(app->config, "color") ? 1 : -1;
    tdm_status status = runner_terminal_create(&params, &app->terminal, &err);
    if (status != TDM_OK) return fail_early(err.message, 1);
    runner_interrupt_watch();
    runner_llama_flags_note(app);
    status = command->run(app, &err);
    if (status == TDM_OK) status = runner_flush(app, &err);
    const bool is_usage = app->is_usage || runner_config_is_usage(app->config);
    int exit_code = status == TDM_OK ? 0 : is_usage ? 2 : 1;
    if (status == TDM_CANCELLED && runner_interrupt_came())
        exit_code = runner_interrupt_exit_code();
    else if (status != TDM_OK && !app->is_reported)
        runner_terminal_print(app->terminal, RUNNER_MESSAGE_ERROR, "%s", err.message);
    runner_terminal_destroy(app->terminal);
    return exit_code;
}

/* Opens /dev/null in place of a closed standard stream. Otherwise the next opened file would get
 * its descriptor, and what is printed would be written to that file. The file is opened for the
 * wrong direction, so that reading standard input, or writing to the others, still fails. */
static void streams_occupy(void) {
    for (int fd = 0; fd <= 2; fd++)
        if (fcntl(fd, F_GETFD) == -1 &&
            open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
            return; /* without /dev/null the stream stays closed */
}

int main(int argc, char **argv) {
    streams_occupy();
    const char *word = argc > 1 ? argv[1] : "";
    if (argc < 2) {
        runner_help_print(stderr, NULL, NULL);
        return 2;
    }
    if (strcmp(word, "--version") == 0) return version();
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) return help(NULL, NULL);
    if (strcmp(word, "help") == 0) {
        if (argc < 3 || strcmp(argv[2], "help") == 0) return help(NULL, NULL);
        const runner_command *asked = runner_command_find(argv[2]);
        return asked != NULL ? help(asked, NULL) : command_unknown(argv[2]);
    }
    const runner_command *command = runner_command_find(word);
    if (command == NULL) return command_unknown(word);
    runner_app app = {.command = command, .out = stdout};
    tdm_error err = {0};
    if (runner_config_create(&app.config, &err) != TDM_OK) return fail_early(err.message, 1);
    int exit_code;
    if (runner_config_parse(app.config, command, argc - 2, argv + 2, &err) != TDM_OK)
        exit_code = fail_early(err.message, runner_config_exit_code(app.config));
    else if (runner_config_wants_help(app.config))
        exit_code = help(command, app.config);
    else
        exit_code = command_run(&app, command);
    runner_config_destroy(app.config);
    return exit_code;
}
