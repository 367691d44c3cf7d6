/* SPDX-License-Identifier: MIT
 *
 * plugin_path.h: the list of folders in which plugins are looked for, in order.
 */
#ifndef TANDEM_CORE_PLUGIN_PATH_H
#define TANDEM_CORE_PLUGIN_PATH_H

#include "tandem/status.h"

typedef struct tdm_plugin_path {
    char **folders; /* absolute */
    int32_t n_folder;
    int32_t n_configured; /* the first ones: `configured` names them */
    int32_t n_asked;      /* with those that TANDEM_PLUGIN_PATH names behind them */
} tdm_plugin_path;

/* Collects the folders of `configured` (nullable), of TANDEM_PLUGIN_PATH and of the installation.
 * A relative or empty entry is refused: what is loaded must not depend on the current directory.
 * So is a folder of `configured` that cannot be read (TDM_NOT_FOUND, TDM_IO): it was named for what
 * is in it. TANDEM_PLUGIN_PATH, set once for many programs, may name some that are not there.
 * Freed with tdm_plugin_path_free. [setup] */
tdm_status tdm_plugin_path_collect(const char *configured, tdm_plugin_path *path_out,
                                   tdm_error *err);
/* TDM_OK where a folder can be read; else the message says why it cannot, `source` before it.
 * [any-thread] */
tdm_status tdm_plugin_folder_check(const char *folder, const char *source, tdm_error *err);
void tdm_plugin_path_free(tdm_plugin_path *path);

/* The file of plugin `name`, from the first folder that has it; the caller frees *file_out.
 * TDM_NOT_FOUND lists the folders. [any-thread] */
tdm_status tdm_plugin_path_find(const tdm_plugin_path *path, const char *name, char **file_out,
                                tdm_error *err);

#endif
