/* SPDX-License-Identifier: MIT
 *
 * prompt.h: the text that a command works on: --prompt, --file, or standard input.
 */
#ifndef TANDEM_RUNNER_PROMPT_H
#define TANDEM_RUNNER_PROMPT_H

#include "runner/app.h"

/* Reads the text: *len_out bytes and a NUL. The caller frees *text_out with free(). TDM_IO names
 * the file that cannot be read. TDM_CANCELLED after Ctrl-C while reading standard input. [setup] */
tdm_status runner_prompt_read(runner_app *app, char **text_out, size_t *len_out, tdm_error *err);

/* Reads a whole file, or what a pipe of that name gives, in the same way. [setup] */
tdm_status runner_file_read(const char *path, char **text_out, size_t *len_out, tdm_error *err);

#endif
