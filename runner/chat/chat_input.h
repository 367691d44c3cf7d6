/* SPDX-License-Identifier: MIT
 *
 * chat_input.h: reads the user's messages: lines with editing and a history on a terminal, where
 * the program was built with libedit; otherwise plain lines.
 */
#ifndef TANDEM_RUNNER_CHAT_INPUT_H
#define TANDEM_RUNNER_CHAT_INPUT_H

#include <stdbool.h>

#include "tandem/status.h"

/* Reads a message: a line; several lines, where each but the last ends in a backslash; or the lines
 * between two lines of three quotes ("""). *text_out has no final newline; NULL at the end of the
 * input. The caller frees it with free(). TDM_CANCELLED after Ctrl-C. [setup] */
tdm_status runner_chat_read(char **text_out, tdm_error *err);

/* Whether input and output are terminals. [any-thread] */
bool runner_chat_is_typed(void);

#endif
