/* SPDX-License-Identifier: MIT
 *
 * prompt.h: reads the text that a command works on: --prompt, --file, or standard input.
 */
#ifndef TANDEM_RUNNER_PROMPT_H
#define TANDEM_RUNNER_PROMPT_H

#include "runner/app.h"

/* Reads the configured text: *len_out bytes and a NUL. The caller frees *text_out with free().
 * TDM_IO or TDM_NOT_FOUND names a file that cannot be read; TDM_OUT_OF_RANGE = more than 256 MiB;
 * TDM_CANCELLED after Ctrl-C while reading. [setup] */
tdm_status runner_prompt_read(runner_app *app, char **text_out, size_t *len_out, tdm_error *err);

/* Reads a whole file, or a pipe to its end, with the same results. [setup] */
tdm_status runner_file_read(const char *path, char **text_out, size_t *len_out, tdm_error *err);

#endif
