/* SPDX-License-Identifier: MIT
 *
 * share_file.h: writes the shares in use into the configuration file.
 */
#ifndef TANDEM_RUNNER_SHARE_FILE_H
#define TANDEM_RUNNER_SHARE_FILE_H

#include <stddef.h>

#include "tandem/status.h"

/* Sets `share` of [group `name`] in the INI file `path` to the n shares (together 1): its line is
 * replaced, or one is added behind the heading; everything else stays as it is, comments included.
 * The file is replaced as a whole or not at all; if `path` is a link, its target is replaced. Fails
 * with TDM_NOT_FOUND if there is no such section, with TDM_IO if the file cannot be read or
 * written. [setup] */
tdm_status runner_share_file_write(const char *path, const char *name, const double *shares,
                                   size_t n, tdm_error *err);

#endif
