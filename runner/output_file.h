/* SPDX-License-Identifier: MIT
 *
 * output_file.h: a file that is written whole or not at all. The bytes go to a temporary file in
 * the same folder, which replaces the old file at the end. Where the path is a link, its target is
 * replaced and the link stays.
 */
#ifndef TANDEM_RUNNER_OUTPUT_FILE_H
#define TANDEM_RUNNER_OUTPUT_FILE_H

#include <stdio.h>

#include "tandem/status.h"

/* A file being written; zeroed: none. */
typedef struct runner_output_file {
    FILE *stream; /* to write to; NULL: none */
    char *path;
    char *temporary; /* NULL: `path` is a pipe or device, which is written directly */
} runner_output_file;

/* Begins `path`. TDM_IO where nothing can be written there. [setup] */
tdm_status runner_output_open(runner_output_file *file, const char *path, tdm_error *err);

/* Reports a failed write by errno; returns TDM_IO. [setup] */
tdm_status runner_output_fail(const runner_output_file *file, tdm_error *err);

/* Closes the file. With TDM_OK the temporary file replaces `path`, else it is removed. Returns
 * `status`, or the failure of closing. A zeroed one is a no-op. [setup] */
tdm_status runner_output_close(runner_output_file *file, tdm_status status, tdm_error *err);

#endif
