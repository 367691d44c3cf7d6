/* SPDX-License-Identifier: MIT
 *
 * commands.c: the table of commands, made from list.h.
 */
#include "runner/config/options.h"

#define RUNNER_COMMAND(name) extern const runner_command runner_command_##name;
#include "runner/commands/list.h"
#undef RUNNER_COMMAND

const runner_command *const runner_commands[] = {
#define RUNNER_COMMAND(name) &runner_command_##name,
#include "runner/commands/list.h"
#undef RUNNER_COMMAND
};
const size_t n_runner_commands = sizeof runner_commands / sizeof runner_commands[0];
