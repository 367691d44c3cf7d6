/* SPDX-License-Identifier: MIT
 *
 * output_file.c: see output_file.h.
 */
#include "runner/output_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void names_free(runner_output_file *file) {
    free(file->path);
    free(file->temporary);
    *file = (runner_output_file){0};
}

tdm_status runner_output_fail(const runner_output_file *file, tdm_error *err) {
    return tdm_fail(err, TDM_IO, "%s: cannot be written: %s", file->path,
                    errno != 0 ? strerror(errno) : "an earlier write failed");
}

tdm_status runner_output_open(runner_output_file *file, const char *path, tdm_error *err) {
    struct stat info;
    bool is_special = stat(path, &info) == 0 && !S_ISREG(info.st_mode);
    *file = (runner_output_file){0};
    /* Follows a link, so that the file is replaced and not the link; /dev/stdout is a link. */
    if (!is_special && lstat(path, &info) == 0 && S_ISLNK(info.st_mode)) {
        file->path = realpath(path, NULL);
        if (file->path == NULL)
            return tdm_fail(err, TDM_IO, "%s: cannot be written: where this link leads: %s", path,
                            strerror(errno));
    } else {
        file->path = strdup(path);
    }
    size_t size = (file->path != NULL ? strlen(file->path) : 0) + 32;
    if (!is_special) file->temporary = malloc(size);
    if (file->path == NULL || (!is_special && file->temporary == NULL)) {
        names_free(file);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", path);
    }
    if (is_special) {
        file->stream = fopen(path, "wb");
    } else {
        snprintf(file->temporary, size, "%s.%ld.tmp", file->path, (long)getpid());
        file->stream = fopen(file->temporary, "wbx"); /* "x": never an existing file */
    }
    if (file->stream != NULL) return TDM_OK;
    tdm_status status = runner_output_fail(file, err);
    names_free(file);
    return status;
}

bool runner_output_floats(FILE *stream, const float *values, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        const uint8_t bytes[4] = {(uint8_t)bits, (uint8_t)(bits >> 8), (uint8_t)(bits >> 16),
                                  (uint8_t)(bits >> 24)};
        if (fwrite(bytes, 1, sizeof bytes, stream) != sizeof bytes) return false;
    }
    return true;
}

tdm_status runner_output_close(runner_output_file *file, tdm_status status, tdm_error *err) {
    if (file->stream == NULL) return status;
    errno = 0;
    bool is_whole = fflush(file->stream) == 0 && ferror(file->stream) == 0;
    if (fclose(file->stream) != 0) is_whole = false;
    if (status == TDM_OK && !is_whole) status = runner_output_fail(file, err);
    if (status == TDM_OK && file->temporary != NULL && rename(file->temporary, file->path) != 0)
        status = runner_output_fail(file, err);
    if (status != TDM_OK && file->temporary != NULL) unlink(file->temporary);
    names_free(file);
    return status;
}
