/* SPDX-License-Identifier: MIT
 *
 * output_file.h: a file that is written whole or not at all. The bytes go to a temporary file in
 * the same folder, which replaces the old file at the end. Where the path is a link, its target is
 * replaced and the link stays.
 */
#ifndef TANDEM_RUNNER_OUTPUT_FILE_H
#define TANDEM_RUNNER_OUTPUT_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "tandem/status.h"

/* A file that is being written; cleared = none. */
typedef struct runner_output_file {
    FILE *stream;    /* for the caller to write to; NULL = none */
    char *path;      /* of the file in the end, links resolved; owned */
    char *temporary; /* NULL = `path` is a pipe or device, which is written directly; owned */
} runner_output_file;

/* Opens a file that will become `path`; *file need not be cleared. TDM_IO where nothing can be
 * written there. On success the caller calls runner_output_close. [setup] */
tdm_status runner_output_open(runner_output_file *file, const char *path, tdm_error *err);

/* For the caller, after a write to file->stream has failed: reports errno and returns TDM_IO.
 * [setup] */
tdm_status runner_output_fail(const runner_output_file *file, tdm_error *err);

/* Writes n f32 in little-endian order, on any machine, to any stream. False = a write failed; errno
 * says why. [setup] */
bool runner_output_floats(FILE *stream, const float *values, int32_t n);

/* Closes the file. If `status` is TDM_OK and all writes have succeeded, the temporary file replaces
 * `path`; otherwise it is removed and `path` stays as it was. Returns `status`, or the failure of a
 * write or of the replacement. With a cleared *file it only returns `status`. [setup] */
tdm_status runner_output_close(runner_output_file *file, tdm_status status, tdm_error *err);

#endif
