/* SPDX-License-Identifier: MIT
 *
 * config_plugin.c: the options of plugins as keys of a configuration. A plugin is loaded for its
 * table of options when a key appears that is not the program's; this calls only dlopen and its
 * entry, which have no side effects. Such keys wait (runner_pending) until the file is read,
 * because `plugin-path` and `plugin` may stand behind them.
 */
#include <stdlib.h>
#include <string.h>

#include "runner/config/config_state.h"
#include "core/runtime.h"

static tdm_status out_of_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the options of a plugin");
}

/* ---- A plugin's table as keys ---- */

static runner_key_type key_type(int32_t kind) {
    switch (kind) {
    case TDM_OPTION_INT: return RUNNER_KEY_INT;
    case TDM_OPTION_REAL: return RUNNER_KEY_FLOAT;
    case TDM_OPTION_BOOL: return RUNNER_KEY_BOOL;
    case TDM_OPTION_SIZE: return RUNNER_KEY_SIZE;
    case TDM_OPTION_WORD: return RUNNER_KEY_ENUM;
    case TDM_OPTION_PATH: return RUNNER_KEY_PATH;
    case TDM_OPTION_INTS: return RUNNER_KEY_CORES;
    default: return RUNNER_KEY_STRING; /* also kinds of a later ABI: the plugin checks the value */
    }
}

static const char *value_name(runner_key_type type) {
    switch (type) {
    case RUNNER_KEY_BOOL:
    case RUNNER_KEY_ENUM: return NULL;
    case RUNNER_KEY_FLOAT: return "X";
    case RUNNER_KEY_SIZE: return "SIZE";
    case RUNNER_KEY_PATH: return "PATH";
    case RUNNER_KEY_CORES: return "LIST";
    case RUNNER_KEY_STRING: return "TEXT";
    default: return "N";
    }
}

static runner_key key_make(const runner_plugin_keys *plugin, const tdm_option_desc *desc) {
    bool is_group = strcmp(plugin->name, RUNNER_GROUP_PLUGIN) == 0;
    bool is_threads =
        strcmp(plugin->name, RUNNER_CPU_PLUGIN) == 0 && strcmp(desc->name, RUNNER_THREADS_KEY) == 0;
    runner_key key = {
        .topic = plugin->topic,
        .name = desc->name,
        .flag = desc->short_flag,
        .default_value = desc->default_value != NULL ? desc->default_value : "",
        .words = desc->kind == TDM_OPTION_WORD ? desc->words : NULL,
        .help = desc->help != NULL ? desc->help : "",
        .min = desc->min,
        .max = desc->max,
        .type = key_type(desc->kind),
        .sections =
            RUNNER_IN_DEFAULTS | RUNNER_IN_MODEL | (is_group ? RUNNER_IN_GROUP : RUNNER_IN_DEVICE),
        .traits = ((desc->flags & TDM_OPTION_HAS_AUTO) != 0 ? RUNNER_KEY_AUTO : 0) |
                  (is_threads ? RUNNER_KEY_BENCH_LIST : 0),
        .plugin = plugin->name,
    };
    if (key.type != RUNNER_KEY_BOOL && key.type != RUNNER_KEY_ENUM)
        key.value_name = desc->value_name != NULL ? desc->value_name : value_name(key.type);
    if (desc->min == 0 && desc->max == 0) {
        key.min = -9007199254740992.0; /* 2^53 */
        key.max = 9007199254740992.0;
        if (key.type == RUNNER_KEY_CORES || key.type == RUNNER_KEY_SIZE) key.min = 0;
    }
    return key;
}

/* Adds the options of a loaded plugin. Fails at an entry that is broken; the options before it
 * stay. `tandem certify` reports such a table, too. */
static tdm_status options_add(runner_config *config, runner_plugin_keys *plugin,
                              const tdm_plugin *loaded, tdm_error *err) {
    const tdm_option_table *table = TDM_HAS(loaded, options) ? loaded->options : NULL;
    int32_t n = table != NULL && TDM_HAS(table, descs) ? table->n_desc : 0;
    plugin->keys = calloc((size_t)(n > 0 ? n : 1), sizeof *plugin->keys);
    if (plugin->keys == NULL) return out_of_memory(err);
    for (int32_t i = 0; i < n; i++) {
        tdm_option_desc desc = tdm_option_desc_at(table, i);
        runner_key *key = &plugin->keys[plugin->n];
        if (desc.name == NULL || (desc.kind == TDM_OPTION_WORD && desc.words == NULL))
            return tdm_fail(err, TDM_FAILED_PRECONDITION,
                            "its table of options is broken at entry %d", (int)i);
        *key = key_make(plugin, &desc);
        tdm_status status = runner_config_add_key(config, key, err);
        if (status != TDM_OK) return status;
        plugin->n++;
    }
    return TDM_OK;
}

/* ---- Loading ---- */

static runner_plugin_keys *plugin_find(const runner_config *config, const char *name) {
    runner_plugin_keys *at = config->plugins;
    while (at != NULL && strcmp(at->name, name) != 0) at = at->next;
    return at;
}

static tdm_status runtime_make(runner_config *config, tdm_error *err) {
    if (config->runtime != NULL) return TDM_OK;
    char *folders = NULL;
    tdm_status status = runner_config_join_paths(config, "plugin-path", &folders, err);
    if (status != TDM_OK) return status;
    tdm_runtime_params params = {
        .struct_size = sizeof params, .plugin_path = folders, .reads_only = true};
    status = tdm_runtime_create(&params, &config->runtime, err);
    free(folders);
    return status;
}

/* Appends an entry for a plugin to the list; NULL = no memory. */
static runner_plugin_keys *plugin_add(runner_config *config, const char *name) {
    runner_plugin_keys *plugin = calloc(1, sizeof *plugin);
    if (plugin == NULL) return NULL;
    size_t size = strlen(name) + sizeof "Plugin ";
    plugin->name = strdup(name);
    plugin->topic = malloc(size);
    if (plugin->name == NULL || plugin->topic == NULL) {
        free(plugin->name);
        free(plugin->topic);
        free(plugin);
        return NULL;
    }
    snprintf(plugin->topic, size, "Plugin %s", name);
    runner_plugin_keys **end = &config->plugins;
    while (*end != NULL) end = &(*end)->next;
    *end = plugin;
    return plugin;
}

static const tdm_plugin *loaded_find(const tdm_runtime *rt, const char *name) {
    for (int32_t i = 0; i < tdm_runtime_plugin_count(rt); i++)
        if (strcmp(tdm_runtime_plugin(rt, i)->name, name) == 0) return tdm_runtime_plugin(rt, i);
    return NULL;
}

tdm_status runner_config_load_plugin(runner_config *config, const char *name, tdm_error *err) {
    runner_plugin_keys *plugin = plugin_find(config, name);
    if (plugin != NULL)
        return plugin->failure == NULL ? TDM_OK
                                       : tdm_fail(err, TDM_UNAVAILABLE, "%s", plugin->failure);
    if ((plugin = plugin_add(config, name)) == NULL) return out_of_memory(err);
    tdm_error why = {0};
    tdm_status status = runtime_make(config, &why);
    if (status == TDM_OK) status = tdm_runtime_load(config->runtime, name, &why);
    if (status == TDM_OK)
        status = options_add(config, plugin, loaded_find(config->runtime, name), &why);
    if (status == TDM_OK) return TDM_OK;
    plugin->failure = strdup(why.message);
    return plugin->failure != NULL ? tdm_fail(err, status, "%s", why.message) : out_of_memory(err);
}

void runner_config_load_plugins(runner_config *config, bool all) {
    const runner_key *key = runner_key_find_in(&config->keys, "plugin", RUNNER_IN_DEVICE);
    runner_config_load_plugin(config, RUNNER_CPU_PLUGIN, NULL);
    runner_config_load_plugin(config, RUNNER_GROUP_PLUGIN, NULL);
    for (const runner_section *at = config->sections; at != NULL; at = at->next) {
        const runner_setting *plugin =
            at->kind == RUNNER_SECTION_DEVICE ? runner_settings_find(at->settings, key) : NULL;
        if (plugin != NULL) runner_config_load_plugin(config, plugin->text, NULL);
    }
    if (!all || runtime_make(config, NULL) != TDM_OK) return;
    int32_t n = 0;
    if (tdm_runtime_load_all(config->runtime, &n, NULL) != TDM_OK) return;
    for (int32_t i = 0; i < n; i++)
        runner_config_load_plugin(config, tdm_runtime_plugin(config->runtime, i)->name, NULL);
}

const char *runner_config_plugin_failure(const runner_config *config, size_t i, const char **name) {
    for (const runner_plugin_keys *at = config->plugins; at != NULL; at = at->next) {
        if (at->failure == NULL || i-- > 0) continue;
        *name = at->name;
        return at->failure;
    }
    return NULL;
}

void runner_plugins_unload(runner_config *config) {
    while (config->plugins != NULL) {
        runner_plugin_keys *next = config->plugins->next;
        free(config->plugins->name);
        free(config->plugins->failure);
        free(config->plugins->topic);
        free(config->plugins->keys);
        free(config->plugins);
        config->plugins = next;
    }
    tdm_runtime_destroy(config->runtime);
    config->runtime = NULL;
}

const runner_key *runner_config_find_key(runner_config *config, const char *name) {
    const runner_key *key = runner_key_find(&config->keys, name, config->command);
    if (key != NULL) return key;
    runner_config_load_plugins(config, false);
    return runner_key_find(&config->keys, name, config->command);
}

/* ---- Keys that wait ---- */

static void pending_free(runner_pending *entry) {
    free(entry->name);
    free(entry->text);
    free(entry->flag);
    free(entry);
}

void runner_pending_clear(runner_config *config) {
    while (config->pending != NULL) {
        runner_pending *next = config->pending->next;
        pending_free(config->pending);
        config->pending = next;
    }
}

tdm_status runner_pending_add(runner_config *config, const runner_pending *entry, tdm_error *err) {
    runner_pending *copy = calloc(1, sizeof *copy);
    if (copy == NULL) return out_of_memory(err);
    *copy = *entry;
    copy->next = NULL;
    copy->name = strdup(entry->name);
    copy->text = entry->text != NULL ? strdup(entry->text) : NULL;
    copy->flag = entry->flag != NULL ? strdup(entry->flag) : NULL;
    if (copy->name == NULL || (copy->text == NULL) != (entry->text == NULL) ||
        (copy->flag == NULL) != (entry->flag == NULL)) {
        pending_free(copy);
        return out_of_memory(err);
    }
    runner_pending **end = &config->pending;
    while (*end != NULL) end = &(*end)->next;
    *end = copy;
    return TDM_OK;
}

/* "[*], [model NAME]": the places where a key may stand. */
static void places_format(const runner_key *key, char *text, size_t text_size) {
    static const char *const places[] = {"[*]", "[model NAME]", "[device NAME]", "[group NAME]"};
    size_t n = 0;
    text[0] = '\0';
    for (int k = RUNNER_SECTION_DEFAULTS; k <= RUNNER_SECTION_GROUP && n < text_size; k++)
        if ((key->sections & runner_section_kind_bit((runner_section_kind)k)) != 0)
            n += (size_t)snprintf(text + n, text_size - n, "%s%s", n > 0 ? ", " : "", places[k]);
}

tdm_status runner_file_assign(runner_config *config, runner_section *section, const runner_key *key,
                              const char *name, const char *text, int line, tdm_error *err) {
    if (key->sections == 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s:%d: '%s' is only a flag (--%s), not a key of a file", config->file,
                        line, name, key->name);
    if ((key->sections & runner_section_kind_bit(section->kind)) == 0) {
        char places[96];
        places_format(key, places, sizeof places);
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s:%d: '%s' does not belong in [%s%s%s]; it may stand in %s", config->file,
                        line, name, runner_section_kind_word(section->kind),
                        section->name[0] != '\0' ? " " : "", section->name, places);
    }
    runner_setting *setting = runner_settings_find(section->settings, key);
    if (setting != NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s:%d: '%s' was already given on line %d",
                        config->file, line, key->name, setting->origin.line);
    runner_origin origin = {.level = section->kind == RUNNER_SECTION_DEFAULTS
                                         ? RUNNER_LEVEL_DEFAULTS
                                         : RUNNER_LEVEL_SECTION,
                            .file = config->file,
                            .line = line};
    tdm_error why = {0};
    tdm_status status = runner_setting_make(key, text, false, origin, &setting, &why);
    if (status != TDM_OK)
        return tdm_fail(err, status, "%s:%d: %s", config->file, line, why.message);
    runner_settings_put(&section->settings, setting);
    return TDM_OK;
}

/* The keys of the program and of `plugin` (NULL = of all plugins). The caller frees the items. */
static runner_key_list keys_of(const runner_config *config, const char *plugin) {
    runner_key_list list = {calloc(config->keys.n, sizeof *list.items), 0};
    for (size_t i = 0; list.items != NULL && i < config->keys.n; i++) {
        const runner_key *key = config->keys.items[i];
        if (plugin == NULL || key->plugin == NULL || strcmp(key->plugin, plugin) == 0)
            list.items[list.n++] = key;
    }
    return list;
}

/* The key of a file that may have been meant: one that may stand in the section, else any. */
static const char *key_nearest(const runner_config *config, const runner_pending *entry,
                               const char *plugin) {
    runner_key_list list = keys_of(config, plugin);
    unsigned bit = runner_section_kind_bit(entry->section->kind);
    const char *nearest = runner_key_nearest(&list, entry->name, bit, NULL);
    if (nearest == NULL)
        nearest = runner_key_nearest(
            &config->keys, entry->name,
            RUNNER_IN_DEFAULTS | RUNNER_IN_MODEL | RUNNER_IN_DEVICE | RUNNER_IN_GROUP, NULL);
    free(list.items);
    return nearest;
}

/* Fails for an unknown key of the file. The message names the key that may have been meant, or the
 * plugin that could not be loaded. `plugin` is that of the section; NULL = any plugin could have
 * the key. */
static tdm_status key_unknown(const runner_config *config, const runner_pending *entry,
                              const char *plugin, tdm_error *err) {
    const runner_plugin_keys *own = plugin != NULL ? plugin_find(config, plugin) : NULL;
    if (own != NULL && own->failure != NULL)
        return tdm_fail(err, TDM_UNAVAILABLE,
                        "%s:%d: '%.64s' can only be an option of the plugin '%.32s', which cannot "
                        "be loaded: %s",
                        config->file, entry->line, entry->name, plugin, own->failure);
    const char *nearest = key_nearest(config, entry, plugin), *failed = NULL;
    const char *reason = nearest == NULL ? runner_config_plugin_failure(config, 0, &failed) : NULL;
    if (reason != NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s:%d: unknown key '%.64s'; the plugin '%.32s' cannot be loaded: %s",
                        config->file, entry->line, entry->name, failed, reason);
    return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s:%d: unknown key '%.64s'%s%s%s", config->file,
                    entry->line, entry->name, nearest != NULL ? "; did you mean '" : "",
                    nearest != NULL ? nearest : "",
                    nearest != NULL ? "'?" : "; docs/config.md lists the keys");
}

/* The plugin whose options a section may have; NULL = any plugin's. */
static const char *section_plugin(const runner_config *config, const runner_section *section) {
    if (section->kind == RUNNER_SECTION_GROUP) return RUNNER_GROUP_PLUGIN;
    if (section->kind != RUNNER_SECTION_DEVICE) return NULL;
    const runner_key *key = runner_key_find_in(&config->keys, "plugin", RUNNER_IN_DEVICE);
    return runner_settings_find(section->settings, key)->text;
}

/* Reads a key of a device's or group's section. It must be an option of `plugin`; any other known
 * key fails with a message that says where it belongs. */
static tdm_status own_key_resolve(runner_config *config, const runner_pending *entry,
                                  const char *plugin, tdm_error *err) {
    tdm_status loaded = runner_config_load_plugin(config, plugin, NULL);
    const runner_key *key = runner_key_find_of(&config->keys, entry->name, plugin);
    if (key == NULL && loaded == TDM_OK) {
        runner_config_load_plugins(config, false);
        key = runner_key_find(&config->keys, entry->name, NULL);
    }
    if (key == NULL) return key_unknown(config, entry, plugin, err);
    if (key->plugin != NULL && strcmp(key->plugin, plugin) != 0 &&
        (key->sections & runner_section_kind_bit(entry->section->kind)) != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s:%d: '%s' is an option of the plugin '%s', not of '%s'", config->file,
                        entry->line, entry->name, key->plugin, plugin);
    return runner_file_assign(config, entry->section, key, entry->name, entry->text, entry->line,
                              err);
}

/* Reads a key before the sections, or of a model's section: an option of any plugin. A known key in
 * the wrong place fails with a message that says where it belongs. */
static tdm_status shared_key_resolve(runner_config *config, const runner_pending *entry,
                                     tdm_error *err) {
    unsigned bit = runner_section_kind_bit(entry->section->kind);
    const runner_key *key = NULL;
    for (int all = 0; all < 2 && key == NULL; all++) {
        runner_config_load_plugins(config, all > 0);
        key = runner_key_find_in(&config->keys, entry->name, bit);
        if (key == NULL) key = runner_key_find(&config->keys, entry->name, NULL);
    }
    if (key == NULL) return key_unknown(config, entry, NULL, err);
    return runner_file_assign(config, entry->section, key, entry->name, entry->text, entry->line,
                              err);
}

static tdm_status file_key_resolve(runner_config *config, const runner_pending *entry,
                                   tdm_error *err) {
    const char *plugin = section_plugin(config, entry->section);
    return plugin != NULL ? own_key_resolve(config, entry, plugin, err)
                          : shared_key_resolve(config, entry, err);
}

/* The key of a flag among the loaded ones, or NULL; *is_negated: the flag is --no-NAME of a
 * bool. */
static const runner_key *flag_find(const runner_config *config, const runner_pending *entry,
                                   bool *is_negated) {
    const runner_command *command = config->command;
    *is_negated = false;
    if (!entry->is_long) return runner_key_find_flag(&config->keys, entry->name, command);
    const runner_key *key = runner_key_find(&config->keys, entry->name, command);
    if (key == NULL && strncmp(entry->name, "no-", 3) == 0) {
        key = runner_key_find(&config->keys, entry->name + 3, command);
        *is_negated = key != NULL && key->type == RUNNER_KEY_BOOL;
        if (!*is_negated) key = NULL;
    }
    return key != NULL && runner_command_takes(command, key) ? key : NULL;
}

static tdm_status flag_resolve(runner_config *config, const runner_pending *entry, tdm_error *err) {
    bool is_negated;
    const runner_key *key = NULL;
    for (int all = 0; all < 2 && key == NULL; all++) {
        runner_config_load_plugins(config, all > 0);
        key = flag_find(config, entry, &is_negated);
    }
    if (key == NULL) return runner_flag_unknown(config, entry->flag, entry->name, err);
    const char *text = entry->text;
    if (is_negated) {
        if (text != NULL)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%.64s': --no-%s takes no value",
                            entry->flag, key->name);
        text = "no";
    } else if (text == NULL && key->type == RUNNER_KEY_BOOL) {
        text = "yes";
    } else if (text == NULL) {
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' needs a value: %s %s", entry->flag,
                        entry->flag, key->value_name != NULL ? key->value_name : "WORD");
    }
    return runner_flag_assign(config, key, entry->flag, text, err);
}

tdm_status runner_pending_resolve(runner_config *config, bool are_flags, tdm_error *err) {
    runner_pending **at = &config->pending;
    while (*at != NULL) {
        runner_pending *entry = *at;
        if ((entry->section == NULL) != are_flags) {
            at = &entry->next;
            continue;
        }
        tdm_status status =
            are_flags ? flag_resolve(config, entry, err) : file_key_resolve(config, entry, err);
        if (status != TDM_OK) return status;
        *at = entry->next;
        pending_free(entry);
    }
    return TDM_OK;
}

tdm_status runner_pending_check(const runner_config *config, const runner_section *section,
                                const runner_key *key, tdm_error *err) {
    unsigned bit = runner_section_kind_bit(section->kind);
    for (const runner_pending *at = config->pending; at != NULL; at = at->next) {
        if (at->section != section) continue;
        const char *nearest = runner_key_nearest(&config->keys, at->name, bit, NULL);
        if (nearest != NULL && strcmp(nearest, key->name) == 0)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "%s:%d: unknown key '%.64s'; did you mean '%s'?", config->file,
                            at->line, at->name, nearest);
    }
    return TDM_OK;
}

/* ---- Flags ---- */

tdm_status runner_flag_unknown(const runner_config *config, const char *word, const char *name,
                               tdm_error *err) {
    const runner_command *command = config->command;
    bool is_long = word[0] == '-' && word[1] == '-';
    const runner_key *key = is_long ? runner_key_find(&config->keys, name, command) : NULL;
    if (key == NULL && is_long && strncmp(name, "no-", 3) == 0)
        key = runner_key_find(&config->keys, name + 3, command);
    if (key != NULL && (key->sections & ~(unsigned)(RUNNER_IN_DEVICE | RUNNER_IN_GROUP)) == 0 &&
        key->sections != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'%s' is not a flag: '%s' stands in [%s NAME] of the file given with "
                        "--config",
                        word, key->name,
                        (key->sections & RUNNER_IN_GROUP) != 0 ? "group" : "device");
    if (key != NULL && runner_command_takes(command, key)) /* --no-key of a key that is no bool */
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "unknown flag '%.64s'; did you mean '--%s'?",
                        word, key->name);
    if (key != NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "`tandem %s` does not take '%.64s'; `tandem %s --help` lists what it takes",
                        command->name, word, command->name);
    const char *nearest = runner_key_nearest(&config->keys, name, 0, command);
    if (nearest != NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "unknown flag '%.64s'; did you mean '--%s'?",
                        word, nearest);
    const char *failed = NULL;
    const char *reason = runner_config_plugin_failure(config, 0, &failed);
    if (reason != NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "unknown flag '%.64s'; the plugin '%.32s' cannot be loaded: %s", word,
                        failed, reason);
    return tdm_fail(err, TDM_INVALID_ARGUMENT,
                    "unknown flag '%.64s'; `tandem %s --help` lists the flags", word,
                    command->name);
}

/* Appends the values of `more` to those of an earlier flag of the same key. */
static tdm_status flag_join(runner_setting *setting, runner_setting *more, const char *flag,
                            tdm_error *err) {
    size_t size = strlen(setting->text) + strlen(more->text) + 2;
    char *joined = malloc(size);
    if (joined == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", flag);
    snprintf(joined, size, "%s,%s", setting->text, more->text);
    tdm_error why = {0};
    tdm_status status =
        runner_value_append(setting->key, joined, &setting->value, &more->value, &why);
    if (status != TDM_OK) {
        free(joined);
        return tdm_fail(err, status, "%s: %s", flag, why.message);
    }
    free(setting->text);
    setting->text = joined;
    return TDM_OK;
}

tdm_status runner_flag_assign(runner_config *config, const runner_key *key, const char *flag,
                              const char *text, tdm_error *err) {
    bool is_list = config->command->has_lists && (key->traits & RUNNER_KEY_BENCH_LIST) != 0;
    tdm_error why = {0};
    runner_setting *next = NULL;
    runner_origin origin = {.level = RUNNER_LEVEL_FLAG, .flag = flag};
    tdm_status status = runner_setting_make(key, text, is_list, origin, &next, &why);
    if (status != TDM_OK) return tdm_fail(err, status, "%s: %s", flag, why.message);
    runner_setting *setting = runner_settings_find(config->flags, key);
    if (setting == NULL || (!is_list && (key->traits & RUNNER_KEY_REPEATABLE) == 0)) {
        runner_settings_put(&config->flags, next);
        return TDM_OK;
    }
    status = flag_join(setting, next, flag, err);
    runner_setting_destroy(next);
    return status;
}
