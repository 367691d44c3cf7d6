/* SPDX-License-Identifier: MIT
 *
 * config_device.c: finds the section of the chosen model, and that of the device that a command
 * runs on. The caller searches the names of devices that plugins enumerate (roster.c).
 */
#include <string.h>
#include <unistd.h>

#include "runner/config/config_state.h"

#define NAMES_MAX 128 /* names considered for a suggestion */

/* Collects the names of sections of one kind behind names[0..n), and returns the new n. */
static size_t names_add(const runner_config *config, runner_section_kind kind, const char **names,
                        size_t n) {
    for (const runner_section *at = config->sections; at != NULL && n < NAMES_MAX; at = at->next)
        if (at->kind == kind) names[n++] = at->name;
    return n;
}

/* "'a', 'b', 'c'" */
static void names_format(const char *const *names, size_t n, char *text, size_t text_size) {
    size_t at = 0;
    text[0] = '\0';
    for (size_t i = 0; i < n && at < text_size; i++)
        at += (size_t)snprintf(text + at, text_size - at, "%s'%s'", i > 0 ? ", " : "", names[i]);
}

tdm_status runner_config_choose_model(runner_config *config, tdm_error *err) {
    const runner_key *key = runner_key_find(&config->keys, "model", NULL);
    const runner_setting *setting = runner_settings_find(config->flags, key);
    if (setting == NULL) setting = runner_settings_find(config->sections->settings, key);
    const char *names[NAMES_MAX];
    size_t n = names_add(config, RUNNER_SECTION_MODEL, names, 0);
    if (n == 0) return TDM_OK;
    if (setting == NULL || setting->text[0] == '\0') {
        /* With several models and no name none is chosen; a command that needs one reports it. */
        if (n == 1)
            config->model = runner_config_find_section(config, RUNNER_SECTION_MODEL, *names);
        return TDM_OK;
    }
    config->model = runner_config_find_section(config, RUNNER_SECTION_MODEL, setting->text);
    if (config->model != NULL || setting->value.n != 1 || strchr(setting->text, '/') != NULL ||
        access(setting->value.items[0].s, F_OK) == 0)
        return TDM_OK;
    const char *nearest = runner_word_nearest(setting->text, names, n);
    char list[160];
    names_format(names, n, list, sizeof list);
    config->is_usage = setting->origin.level == RUNNER_LEVEL_FLAG;
    return runner_config_fail(config, "model", TDM_NOT_FOUND, err,
                              "no such file, and no section [model %.64s]; %s%s%s", setting->text,
                              nearest != NULL ? "did you mean '" : "there are ",
                              nearest != NULL ? nearest : list, nearest != NULL ? "'?" : "");
}

tdm_status runner_config_pick_device(runner_config *config, const runner_section **device_out,
                                     tdm_error *err) {
    return runner_config_find_device(config, runner_config_get_string(config, "device"), device_out,
                                     err);
}

/* Whether `name` is a member of a group of the file. */
static bool is_member(const runner_config *config, const char *name) {
    for (const runner_section *at = config->sections; at != NULL; at = at->next)
        if (at->kind == RUNNER_SECTION_GROUP && runner_section_has_member(at, name)) return true;
    return false;
}

/* The section that `auto` means: the file's only group that is no member of another, or its only
 * device; NULL where the devices are to be compared. */
static tdm_status auto_find(const runner_config *config, const runner_section **device_out,
                            tdm_error *err) {
    const char *names[NAMES_MAX];
    size_t n_group = 0;
    for (const runner_section *at = config->sections; at != NULL; at = at->next) {
        if (at->kind != RUNNER_SECTION_GROUP || at->line == 0 || is_member(config, at->name))
            continue;
        if (n_group < NAMES_MAX) names[n_group] = at->name;
        n_group++;
        *device_out = at;
    }
    if (n_group == 1) return TDM_OK;
    *device_out = NULL;
    if (n_group == 0) {
        if (runner_config_n_devices(config) == 1) *device_out = runner_config_device(config, 0);
        return TDM_OK;
    }
    char list[200];
    names_format(names, n_group < NAMES_MAX ? n_group : NAMES_MAX, list, sizeof list);
    return tdm_fail(err, TDM_INVALID_ARGUMENT,
                    "%s: several groups and none chosen: add `device = NAME` before the first "
                    "section or give --device NAME, one of %s",
                    config->file, list);
}

tdm_status runner_config_find_device(runner_config *config, const char *name,
                                     const runner_section **device_out, tdm_error *err) {
    *device_out = NULL;
    if (strcmp(name, "auto") == 0) return auto_find(config, device_out, err);
    if (strpbrk(name, ",/") != NULL) {
        size_t len = strspn(name, " \t,/");
        if (name[len] == '\0')
            return runner_config_fail(config, "device", TDM_INVALID_ARGUMENT, err, "no names");
        tdm_error why = {0};
        tdm_status status = runner_config_make_group(config, NULL, name, device_out, &why);
        if (status == TDM_OK) return TDM_OK;
        return runner_config_fail(config, "device", status, err, "%s", why.message);
    }
    *device_out = runner_config_find_section(config, RUNNER_SECTION_GROUP, name);
    if (*device_out == NULL)
        *device_out = runner_config_find_section(config, RUNNER_SECTION_DEVICE, name);
    return TDM_OK;
}

/* "there are 'a', 'b'; did you mean 'a'?" of sections and the `n` names of plugins. */
static void known_format(const runner_config *config, const char *name, const char *const *names,
                         size_t n, char *text, size_t text_size) {
    const char *all[NAMES_MAX] = {0};
    size_t n_all = names_add(config, RUNNER_SECTION_DEVICE, all, 0);
    for (const runner_section *at = config->sections; at != NULL && n_all < NAMES_MAX;
         at = at->next)
        if (at->kind == RUNNER_SECTION_GROUP && at->line != 0) all[n_all++] = at->name;
    for (size_t i = 0; i < n && n_all < NAMES_MAX; i++) all[n_all++] = names[i];
    const char *nearest = runner_word_nearest(name, all, n_all);
    char list[200];
    names_format(all, n_all, list, sizeof list);
    snprintf(text, text_size, "%s%s%s%s%s",
             n_all > 0 ? "there are " : "no plugin found any: see `tandem devices`", list,
             nearest != NULL ? "; did you mean '" : "", nearest != NULL ? nearest : "",
             nearest != NULL ? "'?" : "");
}

tdm_status runner_config_device_unknown(runner_config *config, const char *key, const char *name,
                                        const char *const *names, size_t n, tdm_error *err) {
    char known[400];
    known_format(config, name, names, n, known, sizeof known);
    return runner_config_fail(config, key, TDM_NOT_FOUND, err, "no device '%.64s'; %s", name,
                              known);
}

tdm_status runner_config_member_unknown(runner_config *config, const runner_section *group,
                                        const char *name, const char *const *names, size_t n,
                                        tdm_error *err) {
    if (group->line == 0)
        return runner_config_device_unknown(config, "device", name, names, n, err);
    char known[400], where[320];
    known_format(config, name, names, n, known, sizeof known);
    runner_origin_format(runner_section_get_origin(config, group, "members"), where, sizeof where);
    return tdm_fail(err, TDM_NOT_FOUND, "%s: members of [group %s]: no device '%.64s'; %s", where,
                    group->name, name, known);
}
