/* SPDX-License-Identifier: MIT
 *
 * output_file.h: a file that is written whole or not at all. What is written gathers beside it, under
 * a name that nobody has; the file that was there before stays as it is until then. Where a link
 * leads, the file there is written, and the link stays.
 */
#ifndef TANDEM_RUNNER_OUTPUT_FILE_H
#define TANDEM_RUNNER_OUTPUT_FILE_H

#include <stdio.h>

#include "tandem/status.h"

/* In the making; zeroed: none. */
typedef struct runner_output_file {
    FILE *stream; /* to write to; NULL: none */
    char *path;
    char *temporary; /* NULL: `path` is no regular file (a pipe, a device), written as it is */
} runner_output_file;

/* Begins `path`. TDM_IO where nothing can be written there. [setup] */
tdm_status runner_output_open(runner_output_file *file, const char *path, tdm_error *err);

/* The failure of a write, as errno has it; returns TDM_IO. [setup] */
tdm_status runner_output_fail(const runner_output_file *file, tdm_error *err);

/* Closes what was begun. The file gets its name where `status` is TDM_OK, else nothing of it is left.
 * Returns `status`, or what went wrong here. Nothing to do for a zeroed one. [setup] */
tdm_status runner_output_close(runner_output_file *file, tdm_status status, tdm_error *err);

#endif
