/* SPDX-License-Identifier: MIT
 *
 * chat_input.h: reads the user's messages. On a terminal lines can be edited and have a history, if
 * the program was built with libedit; otherwise they are plain lines.
 */
#ifndef TANDEM_RUNNER_CHAT_INPUT_H
#define TANDEM_RUNNER_CHAT_INPUT_H

#include <stdbool.h>

#include "tandem/status.h"

/* Makes the editing of lines take UTF-8, whatever the locale. Called once, while there are no other
 * threads. [setup] */
void runner_chat_input_begin(void);

/* Reads a message: one line; several lines, of which each but the last ends in a backslash; or the
 * lines between two lines of three quotes ("""). *text_out has no final newline and is NULL at the
 * end of the input; the caller frees it with free(). TDM_CANCELLED after Ctrl-C, TDM_OUT_OF_RANGE
 * for more than 64 MiB. [setup] */
tdm_status runner_chat_read(char **text_out, tdm_error *err);

/* Whether both standard input and standard output are terminals. [any-thread] */
bool runner_chat_is_typed(void);

#endif
