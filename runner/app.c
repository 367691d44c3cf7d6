/* SPDX-License-Identifier: MIT
 *
 * app.c: how commands fail and end their output.
 */
#include "runner/app.h"

#include <errno.h>
#include <string.h>

tdm_status runner_usage(runner_app *app, tdm_error *err, const char *format, ...) {
    char text[TDM_ERROR_MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    app->is_usage = true;
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s", text);
}

tdm_status runner_flush(runner_app *app, tdm_error *err) {
    errno = 0;
    if (fflush(app->out) == 0 && ferror(app->out) == 0) return TDM_OK;
    return tdm_fail(err, TDM_IO, "cannot write to standard output: %s",
                    errno != 0 ? strerror(errno) : "an earlier write failed");
}
