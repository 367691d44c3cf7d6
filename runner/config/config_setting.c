/* SPDX-License-Identifier: MIT
 *
 * config_setting.c: a setting, which is one value given for one key, and lists of settings.
 * config.c decides which list counts.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "runner/config/config_state.h"

static tdm_status out_of_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the configuration");
}

void runner_setting_destroy(runner_setting *setting) {
    if (setting == NULL) return;
    runner_value_clear(&setting->value);
    free(setting->text);
    free(setting->given);
    free(setting->flag);
    free(setting);
}

void runner_settings_destroy(runner_setting *list) {
    while (list != NULL) {
        runner_setting *next = list->next;
        runner_setting_destroy(list);
        list = next;
    }
}

/* Options of different plugins with the same name are one key: see runner_settings_find. */
static bool key_is_same(const runner_key *a, const runner_key *b) {
    return a == b || (a->plugin != NULL && b->plugin != NULL && strcmp(a->name, b->name) == 0);
}

runner_setting *runner_settings_find(runner_setting *list, const runner_key *key) {
    while (list != NULL && !key_is_same(list->key, key)) list = list->next;
    return list;
}

void runner_settings_put(runner_setting **list, runner_setting *setting) {
    while (*list != NULL && !key_is_same((*list)->key, setting->key)) list = &(*list)->next;
    runner_setting *old = *list;
    setting->next = old != NULL ? old->next : NULL;
    *list = setting;
    runner_setting_destroy(old);
}

/* The value in the form in which a plugin receives it. */
static char *given_make(const runner_key *key, const char *text, const runner_value *value) {
    char number[32];
    if (value->n != 1 || value->is_auto) return strdup(text);
    switch (key->type) {
    case RUNNER_KEY_BOOL: return strdup(value->items[0].i != 0 ? "yes" : "no");
    case RUNNER_KEY_PATH: return strdup(value->items[0].s);
    case RUNNER_KEY_SIZE:
        snprintf(number, sizeof number, "%" PRId64, value->items[0].i);
        return strdup(number);
    default: return strdup(text);
    }
}

/* Paths in a file are relative to the file's folder. */
static tdm_status value_rebase(const runner_key *key, runner_value *value, const char *file,
                               tdm_error *err) {
    const char *slash = strrchr(file, '/');
    /* "/x.ini" lies in "/", "x.ini" in "." */
    char *folder =
        slash == NULL ? strdup(".") : strndup(file, slash == file ? 1 : (size_t)(slash - file));
    tdm_status status =
        folder == NULL ? out_of_memory(err) : runner_value_rebase(key, value, folder, err);
    free(folder);
    return status;
}

tdm_status runner_setting_make(const runner_key *key, const char *text, bool is_list,
                               runner_origin origin, runner_setting **setting_out, tdm_error *err) {
    runner_setting *setting = calloc(1, sizeof *setting);
    if (setting == NULL) return out_of_memory(err);
    /* An empty option of a plugin means its default, whatever its type. */
    bool is_empty = key->plugin != NULL && text[0] == '\0';
    tdm_status status =
        is_empty ? TDM_OK : runner_value_parse(key, text, is_list, &setting->value, err);
    if (status == TDM_OK && origin.file != NULL)
        status = value_rebase(key, &setting->value, origin.file, err);
    if (status == TDM_OK && ((setting->text = strdup(text)) == NULL ||
                             (setting->given = given_make(key, text, &setting->value)) == NULL))
        status = out_of_memory(err);
    if (status == TDM_OK && origin.flag != NULL && (setting->flag = strdup(origin.flag)) == NULL)
        status = out_of_memory(err);
    if (status != TDM_OK) {
        runner_setting_destroy(setting);
        return status;
    }
    setting->key = key;
    setting->origin = origin;
    setting->origin.flag = setting->flag;
    *setting_out = setting;
    return TDM_OK;
}
