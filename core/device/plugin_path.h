/* SPDX-License-Identifier: MIT
 *
 * plugin_path.h: the folders that are searched for plugins, in order.
 */
#ifndef TANDEM_CORE_PLUGIN_PATH_H
#define TANDEM_CORE_PLUGIN_PATH_H

#include "tandem/status.h"

typedef struct tdm_plugin_path {
    char **folders; /* [n_folder] absolute, in the order of the search */
    int32_t n_folder;
    int32_t n_configured; /* folders 0 .. n_configured - 1 come from `configured` */
    int32_t n_asked;      /* folders n_configured .. n_asked - 1 come from TANDEM_PLUGIN_PATH */
} tdm_plugin_path;

/* Collects the folders of `configured` (nullable), of TANDEM_PLUGIN_PATH and of the installation.
 * Refuses a relative or empty entry: what is loaded must not depend on the current directory.
 * Refuses a folder of `configured` that cannot be read (TDM_NOT_FOUND, TDM_IO). Folders of
 * TANDEM_PLUGIN_PATH need not exist, since it is set once for many programs.
 * Freed with tdm_plugin_path_free. [setup] */
tdm_status tdm_plugin_path_collect(const char *configured, tdm_plugin_path *path_out,
                                   tdm_error *err);
/* TDM_OK where the folder can be read. Else the message begins with `source` and says why not.
 * [any-thread] */
tdm_status tdm_plugin_folder_check(const char *folder, const char *source, tdm_error *err);
void tdm_plugin_path_free(tdm_plugin_path *path);

/* The file of plugin `name`, from the first folder that has it; the caller frees *file_out.
 * TDM_NOT_FOUND lists the folders. [any-thread] */
tdm_status tdm_plugin_path_find(const tdm_plugin_path *path, const char *name, char **file_out,
                                tdm_error *err);

#endif
