/* SPDX-License-Identifier: MIT
 *
 * chat_input.h: what the user types: lines with editing and a history on a terminal (where the
 * program was built with libedit), plain lines from anything else.
 */
#ifndef TANDEM_RUNNER_CHAT_INPUT_H
#define TANDEM_RUNNER_CHAT_INPUT_H

#include <stdbool.h>

#include "tandem/status.h"

/* Reads a message: a line; several where each but the last ends in a backslash; or everything
 * between two lines that are three quotes ("""). *text_out is without the last newline, NULL at the
 * end of the input, and the caller's to free(). TDM_CANCELLED after Ctrl-C. [setup] */
tdm_status runner_chat_read(char **text_out, tdm_error *err);

/* Whether somebody types: a terminal at both ends. [any-thread] */
bool runner_chat_is_typed(void);

#endif
