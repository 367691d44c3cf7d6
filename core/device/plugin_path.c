/* SPDX-License-Identifier: MIT
 *
 * plugin_path.c: the folders that are searched for plugins. runtime.c loads them.
 *
 * The installed folder is found from the running program (BINDIR/../lib/tandem/plugins), so that
 * an installation may be moved, then at the prefix given when it was built. A program run from its
 * build folder finds the plugins built beside it (../plugins/NAME).
 */
#include "core/device/plugin_path.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static tdm_status out_of_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plugin path: out of memory");
}

static tdm_status folder_add(tdm_plugin_path *path, const char *folder, size_t len,
                             tdm_error *err) {
    char **grown = realloc(path->folders, (size_t)(path->n_folder + 1) * sizeof *grown);
    if (grown == NULL) return out_of_memory(err);
    path->folders = grown;
    char *copy = strndup(folder, len);
    if (copy == NULL) return out_of_memory(err);
    path->folders[path->n_folder++] = copy;
    return TDM_OK;
}

static tdm_status list_add(tdm_plugin_path *path, const char *list, const char *source,
                           tdm_error *err) {
    if (list == NULL || list[0] == 0) return TDM_OK;
    for (const char *at = list;; at++) {
        size_t len = strcspn(at, ":");
        if (len == 0 || at[0] != '/')
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "%s: '%.*s' is not an absolute folder; plugins are never loaded "
                            "relative to the current directory",
                            source, (int)len, at);
        tdm_status status = folder_add(path, at, len, err);
        if (status != TDM_OK) return status;
        at += len;
        if (*at == 0) return TDM_OK;
    }
}

/* As folder_add, unless the folder is in the list already, perhaps by another path. Otherwise a
 * plugin that fails would be loaded, and its failure logged, twice. */
static tdm_status folder_add_once(tdm_plugin_path *path, const char *folder, tdm_error *err) {
    char *real = realpath(folder, NULL);
    bool is_known = false;
    for (int32_t i = 0; i < path->n_folder && real != NULL && !is_known; i++) {
        char *other = realpath(path->folders[i], NULL);
        is_known = other != NULL && strcmp(other, real) == 0;
        free(other);
    }
    free(real);
    return is_known ? TDM_OK : folder_add(path, folder, strlen(folder), err);
}

static tdm_status program_relative_add(tdm_plugin_path *path, tdm_error *err) {
    char program[4096], folder[4200];
    ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    if (len <= 0) return TDM_OK;
    program[len] = 0;
    char *slash = strrchr(program, '/');
    if (slash == NULL) return TDM_OK;
    *slash = 0;
    snprintf(folder, sizeof folder, "%s/../lib/tandem/plugins", program);
    tdm_status status = folder_add_once(path, folder, err);
    if (status != TDM_OK) return status;
    snprintf(folder, sizeof folder, "%s/../plugins", program);
    return folder_add_once(path, folder, err);
}

tdm_status tdm_plugin_folder_check(const char *folder, const char *source, tdm_error *err) {
    DIR *dir = opendir(folder);
    if (dir != NULL) {
        closedir(dir);
        return TDM_OK;
    }
    if (errno == ENOMEM) return out_of_memory(err);
    return tdm_fail(err, errno == ENOENT || errno == ENOTDIR ? TDM_NOT_FOUND : TDM_IO,
                    "%s: folder %s cannot be read: %s", source, folder, strerror(errno));
}

tdm_status tdm_plugin_path_collect(const char *configured, tdm_plugin_path *path_out,
                                   tdm_error *err) {
    tdm_plugin_path path = {0};
    tdm_status status = list_add(&path, configured, "plugin-path", err);
    path.n_configured = path.n_folder;
    for (int32_t i = 0; i < path.n_configured && status == TDM_OK; i++)
        status = tdm_plugin_folder_check(path.folders[i], "plugin-path", err);
    if (status == TDM_OK)
        status = list_add(&path, getenv("TANDEM_PLUGIN_PATH"), "TANDEM_PLUGIN_PATH", err);
    path.n_asked = path.n_folder;
    if (status == TDM_OK) status = program_relative_add(&path, err);
    if (status == TDM_OK) status = folder_add_once(&path, TDM_INSTALLED_PLUGIN_DIR, err);
    if (status != TDM_OK) {
        tdm_plugin_path_free(&path);
        return status;
    }
    *path_out = path;
    return TDM_OK;
}

void tdm_plugin_path_free(tdm_plugin_path *path) {
    if (path == NULL) return;
    for (int32_t i = 0; i < path->n_folder; i++) free(path->folders[i]);
    free(path->folders);
    memset(path, 0, sizeof *path);
}

tdm_status tdm_plugin_path_find(const tdm_plugin_path *path, const char *name, char **file_out,
                                tdm_error *err) {
    char searched[TDM_ERROR_MESSAGE_SIZE / 2] = "";
    size_t used = 0;
    if (name[0] == 0 || strchr(name, '/') != NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "plugin '%s': a name, not a path, is needed",
                        name);
    for (int32_t i = 0; i < path->n_folder; i++) {
        /* The second form is the build folder's: plugins/cpu/cpu.so. */
        for (int nested = 0; nested < 2; nested++) {
            char file[8500];
            int n = nested
                        ? snprintf(file, sizeof file, "%s/%s/%s.so", path->folders[i], name, name)
                        : snprintf(file, sizeof file, "%s/%s.so", path->folders[i], name);
            if (n < 0 || (size_t)n >= sizeof file || access(file, R_OK) != 0) continue;
            *file_out = strdup(file);
            return *file_out != NULL ? TDM_OK : out_of_memory(err);
        }
        int n = snprintf(searched + used, sizeof searched - used, "%s%s", i > 0 ? ", " : "",
                         path->folders[i]);
        if (n > 0 && used + (size_t)n < sizeof searched) used += (size_t)n;
    }
    return tdm_fail(err, TDM_NOT_FOUND,
                    "plugin '%s': no %s.so in %s; set plugin-path or TANDEM_PLUGIN_PATH", name,
                    name, searched);
}
