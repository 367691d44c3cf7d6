/* SPDX-License-Identifier: MIT
 *
 * config.c: a configuration with the settings of all levels, and its getters. Files are read in
 * config_file.c, command lines in config_args.c, keys of plugins in config_plugin.c, values in
 * config_value.c; which device a command runs on is decided in config_device.c.
 */
#include "runner/config/config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/config/config_state.h"

static tdm_status out_of_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the configuration");
}

const char *runner_section_kind_word(runner_section_kind kind) {
    static const char *const words[] = {"*", "model", "device", "group"};
    return words[kind];
}

unsigned runner_section_kind_bit(runner_section_kind kind) {
    static const unsigned bits[] = {RUNNER_IN_DEFAULTS, RUNNER_IN_MODEL, RUNNER_IN_DEVICE,
                                    RUNNER_IN_GROUP};
    return bits[kind];
}

runner_section *runner_config_find_section(const runner_config *config, runner_section_kind kind,
                                           const char *name) {
    for (runner_section *at = config->sections; at != NULL; at = at->next)
        if (at->kind == kind && strcmp(at->name, name) == 0) return at;
    return NULL;
}

static void section_destroy(runner_section *section) {
    if (section == NULL) return;
    runner_settings_destroy(section->settings);
    free(section->name);
    free(section);
}

tdm_status runner_config_add_section(runner_config *config, runner_section_kind kind,
                                     const char *name, int line, runner_section **section_out,
                                     tdm_error *err) {
    runner_section *section = calloc(1, sizeof *section);
    if (section != NULL) {
        section->kind = kind;
        section->line = line;
        section->name = strdup(name);
    }
    if (section == NULL || section->name == NULL) {
        section_destroy(section);
        return out_of_memory(err);
    }
    runner_section **end = &config->sections;
    while (*end != NULL) end = &(*end)->next;
    *end = section;
    *section_out = section;
    return TDM_OK;
}

tdm_status runner_config_add_key(runner_config *config, const runner_key *key, tdm_error *err) {
    size_t n = config->keys.n;
    if ((n & (n - 1)) == 0) { /* capacity is the next power of two */
        const runner_key **grown =
            realloc(config->keys.items, (n == 0 ? 1 : n * 2) * sizeof *grown);
        if (grown == NULL) return out_of_memory(err);
        config->keys.items = grown;
    }
    runner_setting *setting;
    tdm_status status =
        runner_setting_make(key, key->default_value, false, (runner_origin){0}, &setting, err);
    if (status != TDM_OK) return status;
    /* not runner_settings_put: keys of the same name have their own defaults */
    setting->next = config->built_in;
    config->built_in = setting;
    config->keys.items[config->keys.n++] = key;
    return TDM_OK;
}

tdm_status runner_config_create(runner_config **config_out, tdm_error *err) {
    *config_out = NULL;
    runner_config *config = calloc(1, sizeof *config);
    if (config == NULL) return out_of_memory(err);
    runner_section *defaults;
    tdm_status status =
        runner_config_add_section(config, RUNNER_SECTION_DEFAULTS, "", 0, &defaults, err);
    for (size_t i = 0; i < n_runner_keys && status == TDM_OK; i++)
        status = runner_config_add_key(config, &runner_keys[i], err);
    for (size_t c = 0; c < n_runner_commands; c++)
        for (size_t i = 0; i < runner_commands[c]->n_own_key && status == TDM_OK; i++)
            status = runner_config_add_key(config, &runner_commands[c]->own_keys[i], err);
    if (status != TDM_OK) {
        runner_config_destroy(config);
        return status;
    }
    *config_out = config;
    return TDM_OK;
}

void runner_config_destroy(runner_config *config) {
    if (config == NULL) return;
    while (config->sections != NULL) {
        runner_section *next = config->sections->next;
        section_destroy(config->sections);
        config->sections = next;
    }
    runner_settings_destroy(config->built_in);
    runner_settings_destroy(config->flags);
    runner_pending_clear(config);
    runner_plugins_unload(config);
    free(config->keys.items);
    free(config->positional);
    free(config->file);
    free(config);
}

int runner_config_exit_code(const runner_config *config) {
    if (config->status == TDM_OK) return 0;
    return config->is_usage ? 2 : 1;
}

bool runner_config_is_usage(const runner_config *config) {
    return config->is_usage;
}

bool runner_config_wants_help(const runner_config *config) {
    return config->wants_help;
}

size_t runner_config_n_positional(const runner_config *config) {
    return config->n_positional;
}

const char *runner_config_positional(const runner_config *config, size_t i) {
    return i < config->n_positional ? config->positional[i] : NULL;
}

const runner_key_list *runner_config_keys(const runner_config *config) {
    return &config->keys;
}

static runner_setting *default_find(const runner_config *config, const runner_key *key) {
    runner_setting *at = config->built_in;
    while (at->key != key) at = at->next;
    return at;
}

/* The setting of a key in the model's section, or before the sections; NULL = not set there. */
static runner_setting *outer_find(const runner_config *config, const runner_key *key) {
    runner_setting *setting =
        config->model != NULL ? runner_settings_find(config->model->settings, key) : NULL;
    return setting != NULL ? setting : runner_settings_find(config->sections->settings, key);
}

/* The setting of a key by all levels, down to the default; rivals are not considered. Never
 * NULL. */
static runner_setting *setting_find(const runner_config *config, const runner_section *section,
                                    const runner_key *key) {
    runner_setting *setting = runner_settings_find(config->flags, key);
    if (setting == NULL && section != NULL) setting = runner_settings_find(section->settings, key);
    if (setting == NULL) setting = outer_find(config, key);
    return setting != NULL ? setting : default_find(config, key);
}

runner_setting *runner_group_setting(const runner_config *config, const runner_section *group,
                                     const runner_key *key, bool is_main) {
    if (is_main) return setting_find(config, group, key);
    runner_setting *own = runner_settings_find(group->settings, key);
    return own != NULL ? own : default_find(config, key);
}

/* The setting that applies. With a chosen model section, the key `model` is its path: the flag or
 * setting that chose the section gave only its name. */
static const runner_setting *setting_get(const runner_config *config, const runner_section *section,
                                         const runner_key *key) {
    if (config->model != NULL && strcmp(key->name, "model") == 0)
        return runner_settings_find(config->model->settings, key);
    const runner_setting *setting = setting_find(config, section, key);
    if (key->rival != NULL) {
        const runner_key *rival = runner_key_find(&config->keys, key->rival, config->command);
        const runner_setting *other = setting_find(config, section, rival);
        if (other->text[0] != '\0' && other->origin.level > setting->origin.level)
            return default_find(config, key);
    }
    return setting;
}

tdm_status runner_config_check_rivals(runner_config *config, tdm_error *err) {
    for (size_t i = 0; i < config->keys.n; i++) {
        const runner_key *key = config->keys.items[i];
        if (key->rival == NULL) continue;
        const runner_key *rival = runner_key_find(&config->keys, key->rival, config->command);
        const runner_setting *setting = setting_find(config, NULL, key);
        const runner_setting *other = setting_find(config, NULL, rival);
        if (setting->text[0] == '\0' || other->text[0] == '\0' ||
            setting->origin.level != other->origin.level)
            continue;
        config->is_usage = setting->origin.level == RUNNER_LEVEL_FLAG;
        char where[512];
        runner_origin_format(other->origin, where, sizeof where);
        return runner_config_fail(config, key->name, TDM_INVALID_ARGUMENT, err,
                                  "'%s' is given too (%s); only one of them can be", rival->name,
                                  where);
    }
    return TDM_OK;
}

static void bad_call_note(runner_config *config, const char *key, const char *what) {
    if (config->bad_call[0] == '\0')
        snprintf(config->bad_call, sizeof config->bad_call,
                 "the program read the key '%.48s' of the configuration, which is %s", key, what);
}

#define TYPE_BIT(type) (1u << (type))
#define TYPES_INT                                                                                  \
    (TYPE_BIT(RUNNER_KEY_INT) | TYPE_BIT(RUNNER_KEY_INTS) | TYPE_BIT(RUNNER_KEY_CORES) |           \
     TYPE_BIT(RUNNER_KEY_BOOL))
#define TYPES_STRING                                                                               \
    (TYPE_BIT(RUNNER_KEY_STRING) | TYPE_BIT(RUNNER_KEY_PATH) | TYPE_BIT(RUNNER_KEY_PATHS) |        \
     TYPE_BIT(RUNNER_KEY_NAMES) | TYPE_BIT(RUNNER_KEY_FILES) | TYPE_BIT(RUNNER_KEY_ENUM))
#define TYPES_FLOAT (TYPE_BIT(RUNNER_KEY_FLOAT) | TYPE_BIT(RUNNER_KEY_SHARES))
#define TYPES_ANY   (~0u)

/* The setting of a key whose type is one of `types` (bits); NULL = a bad call, which
 * runner_config_check reports. */
static const runner_setting *ask(runner_config *config, const runner_section *section,
                                 const char *name, unsigned types) {
    const runner_key *key = runner_config_find_key(config, name);
    if (key == NULL) {
        bad_call_note(config, name, "not a key");
        return NULL;
    }
    if ((TYPE_BIT(key->type) & types) == 0) {
        bad_call_note(config, name, "of another type");
        return NULL;
    }
    return setting_get(config, section, key);
}

/* Item `i` of a value. For a bad call it is an empty item (0, ""); also for item 0 of an empty
 * list, which a getter of one value may ask for. */
static runner_item ask_item(runner_config *config, const runner_section *section, const char *name,
                            unsigned types, size_t i) {
    static char empty[1] = "";
    const runner_item nothing = {0, 0, empty};
    const runner_setting *setting = ask(config, section, name, types);
    if (setting == NULL) return nothing;
    if (i < setting->value.n) {
        runner_item item = setting->value.items[i];
        if (item.s == NULL) item.s = empty;
        return item;
    }
    if (i > 0) bad_call_note(config, name, "a shorter list");
    return nothing;
}

int64_t runner_section_get_int(runner_config *config, const runner_section *section,
                               const char *key) {
    return ask_item(config, section, key, TYPES_INT & ~TYPE_BIT(RUNNER_KEY_BOOL), 0).i;
}

uint64_t runner_section_get_size(runner_config *config, const runner_section *section,
                                 const char *key) {
    return (uint64_t)ask_item(config, section, key, TYPE_BIT(RUNNER_KEY_SIZE), 0).i;
}

const char *runner_section_get_string(runner_config *config, const runner_section *section,
                                      const char *key) {
    return ask_item(config, section, key, TYPES_STRING, 0).s;
}

int runner_section_get_enum(runner_config *config, const runner_section *section, const char *key) {
    return (int)ask_item(config, section, key, TYPE_BIT(RUNNER_KEY_ENUM), 0).i;
}

bool runner_section_is_auto(runner_config *config, const runner_section *section, const char *key) {
    const runner_setting *setting = ask(config, section, key, TYPES_ANY);
    return setting != NULL && setting->value.is_auto;
}

size_t runner_section_get_count(runner_config *config, const runner_section *section,
                                const char *key) {
    const runner_setting *setting = ask(config, section, key, TYPES_ANY);
    return setting != NULL ? setting->value.n : 0;
}

int64_t runner_section_get_int_at(runner_config *config, const runner_section *section,
                                  const char *key, size_t i) {
    return ask_item(config, section, key, TYPES_INT, i).i;
}

const char *runner_section_get_string_at(runner_config *config, const runner_section *section,
                                         const char *key, size_t i) {
    return ask_item(config, section, key, TYPES_STRING, i).s;
}

int64_t runner_config_get_int(runner_config *config, const char *key) {
    return runner_section_get_int(config, NULL, key);
}

double runner_config_get_float(runner_config *config, const char *key) {
    return ask_item(config, NULL, key, TYPES_FLOAT, 0).f;
}

bool runner_config_get_bool(runner_config *config, const char *key) {
    return ask_item(config, NULL, key, TYPE_BIT(RUNNER_KEY_BOOL), 0).i != 0;
}

const char *runner_config_get_string(runner_config *config, const char *key) {
    return runner_section_get_string(config, NULL, key);
}

int runner_config_get_enum(runner_config *config, const char *key) {
    return runner_section_get_enum(config, NULL, key);
}

bool runner_config_is_auto(runner_config *config, const char *key) {
    return runner_section_is_auto(config, NULL, key);
}

bool runner_config_is_quiet(runner_config *config) {
    return runner_config_get_bool(config, "quiet") ||
           runner_config_get_int(config, "verbosity") <= 1;
}

bool runner_config_is_verbose(runner_config *config) {
    return runner_config_get_bool(config, "verbose") ||
           runner_config_get_int(config, "verbosity") >= 4;
}

size_t runner_config_get_count(runner_config *config, const char *key) {
    return runner_section_get_count(config, NULL, key);
}

int64_t runner_config_get_int_at(runner_config *config, const char *key, size_t i) {
    return runner_section_get_int_at(config, NULL, key, i);
}

const char *runner_config_get_string_at(runner_config *config, const char *key, size_t i) {
    return runner_section_get_string_at(config, NULL, key, i);
}

runner_origin runner_section_get_origin(runner_config *config, const runner_section *section,
                                        const char *key) {
    const runner_setting *setting = ask(config, section, key, TYPES_ANY);
    return setting != NULL ? setting->origin : (runner_origin){0};
}

runner_origin runner_config_get_origin(runner_config *config, const char *key) {
    return runner_section_get_origin(config, NULL, key);
}

void runner_origin_format(runner_origin origin, char *text, size_t text_size) {
    if (origin.flag != NULL)
        snprintf(text, text_size, "flag %s", origin.flag);
    else if (origin.file != NULL)
        snprintf(text, text_size, "%s:%d", origin.file, origin.line);
    else
        snprintf(text, text_size, "default");
}

/* Appends `more` at text[at] as snprintf would, and returns the new end: bytes that do not fit
 * count. */
static size_t text_append(char *text, size_t text_size, size_t at, const char *more) {
    for (; *more != '\0'; more++, at++)
        if (at + 1 < text_size) text[at] = *more;
    if (text_size > 0) text[at < text_size ? at : text_size - 1] = '\0';
    return at;
}

/* Whether a text needs quotes in a file to be read back unchanged by config_file.c. */
static bool text_needs_quotes(const char *text) {
    size_t len = strlen(text);
    if (len == 0 || text[0] == '"' || text[0] == '#' || strchr(" \t", text[0]) != NULL ||
        strchr(" \t", text[len - 1]) != NULL)
        return true;
    for (size_t i = 0; i < len; i++)
        if (text[i] == '\n' || text[i] == '\r' || text[i] == '\t' ||
            (text[i] == '#' && text[i - 1] == ' '))
            return true;
    return false;
}

static size_t text_append_quoted(char *text, size_t text_size, size_t at, const char *more) {
    if (!text_needs_quotes(more)) return text_append(text, text_size, at, more);
    at = text_append(text, text_size, at, "\"");
    for (; *more != '\0'; more++) {
        char escaped[3] = {'\\', *more, '\0'};
        switch (*more) {
        case '\n': escaped[1] = 'n'; break;
        case '\r': escaped[1] = 'r'; break;
        case '\t': escaped[1] = 't'; break;
        case '"':
        case '\\': break;
        default: escaped[0] = *more, escaped[1] = '\0';
        }
        at = text_append(text, text_size, at, escaped);
    }
    return text_append(text, text_size, at, "\"");
}

/* The paths of a value, absolute, with a separator between them; NULL = no memory. */
static char *paths_join(const runner_value *value, const char *separator) {
    char here[4096];
    bool has_here = getcwd(here, sizeof here) != NULL;
    size_t size = 1, at = 0;
    for (size_t i = 0; i < value->n; i++) size += strlen(value->items[i].s) + sizeof here + 2;
    char *joined = calloc(1, size);
    if (joined == NULL) return NULL;
    for (size_t i = 0; i < value->n; i++) {
        const char *path = value->items[i].s;
        if (i > 0) at = text_append(joined, size, at, separator);
        if (path[0] != '/' && path[0] != '\0' && has_here) {
            at = text_append(joined, size, at, here);
            at = text_append(joined, size, at, "/");
        }
        at = text_append(joined, size, at, path);
    }
    return joined;
}

/* The setting as text for a file; the caller frees *text_out. */
static tdm_status setting_format(const runner_setting *setting, const runner_key *key,
                                 char **text_out, tdm_error *err) {
    char *paths = NULL;
    const char *plain = setting->text;
    if (key->type == RUNNER_KEY_BOOL && setting->value.n == 1 && !setting->value.is_auto)
        plain = setting->value.items[0].i != 0 ? "yes" : "no";
    if (key->type == RUNNER_KEY_PATH || key->type == RUNNER_KEY_PATHS ||
        key->type == RUNNER_KEY_FILES) {
        plain = paths = paths_join(&setting->value, key->type == RUNNER_KEY_FILES ? "," : ":");
        if (paths == NULL) return out_of_memory(err);
    }
    size_t size = text_append_quoted(NULL, 0, 0, plain) + 1;
    char *text = malloc(size);
    if (text != NULL) text_append_quoted(text, size, 0, plain);
    free(paths);
    if (text == NULL) return out_of_memory(err);
    *text_out = text;
    return TDM_OK;
}

tdm_status runner_config_format(runner_config *config, const runner_section *section,
                                const char *name, char **text_out, tdm_error *err) {
    *text_out = NULL;
    const runner_setting *setting = ask(config, section, name, TYPES_ANY);
    if (setting == NULL) return runner_config_check(config, err);
    return setting_format(setting, runner_config_find_key(config, name), text_out, err);
}

/* The key called `name` for a section. If several plugins have one, a device takes its own
 * plugin's. */
static const runner_key *section_key(runner_config *config, const runner_section *section,
                                     const char *name) {
    const runner_key *key = runner_config_find_key(config, name);
    if (key->plugin == NULL || runner_section_is_group(section)) return key;
    const runner_key *own = runner_key_find_of(
        &config->keys, name, runner_section_get_string(config, section, "plugin"));
    return own != NULL ? own : key;
}

tdm_status runner_section_get_effective(runner_config *config, const runner_section *section,
                                        const char *name, bool is_main, runner_effective *effective,
                                        tdm_error *err) {
    *effective = (runner_effective){0};
    const runner_setting *setting = ask(config, section, name, TYPES_ANY);
    if (setting == NULL) return runner_config_check(config, err);
    const runner_key *key = section_key(config, section, name);
    if (key->plugin != NULL) setting = setting_find(config, section, key);
    if (runner_section_is_group(section))
        setting = runner_group_setting(config, section, key, is_main);
    effective->origin = setting->origin;
    effective->is_own = setting == runner_settings_find(section->settings, key);
    return setting_format(setting, key, &effective->text, err);
}

tdm_status runner_config_join_paths(runner_config *config, const char *key, char **text_out,
                                    tdm_error *err) {
    *text_out = NULL;
    const runner_setting *setting = ask(config, NULL, key, TYPE_BIT(RUNNER_KEY_PATHS));
    if (setting == NULL) return runner_config_check(config, err);
    if (setting->value.n == 0) return TDM_OK;
    for (size_t i = 0; i < setting->value.n; i++)
        if (strchr(setting->value.items[i].s, ':') != NULL)
            return runner_config_fail(config, key, TDM_INVALID_ARGUMENT, err,
                                      "%s: a ':' in the name of a folder would end it; move the "
                                      "file or give an absolute path",
                                      setting->value.items[i].s);
    *text_out = paths_join(&setting->value, ":");
    return *text_out != NULL ? TDM_OK : out_of_memory(err);
}

/* Whether a setting is passed to its plugin: not if it equals the default, nor if a flag of `bench`
 * holds several values. */
static bool setting_is_option(const runner_setting *setting) {
    runner_key_type type = setting->key->type;
    return setting->origin.level != RUNNER_LEVEL_BUILT_IN && !setting->value.is_auto &&
           setting->text[0] != '\0' && strcmp(setting->text, setting->key->default_value) != 0 &&
           (type == RUNNER_KEY_CORES || setting->value.n == 1);
}

static bool has_plugin_settings(const runner_setting *list) {
    while (list != NULL && list->key->plugin == NULL) list = list->next;
    return list != NULL;
}

size_t runner_section_get_options(runner_config *config, const runner_section *section,
                                  const char *plugin, bool is_main, tdm_option *options,
                                  size_t capacity) {
    size_t n = 0;
    bool is_group = runner_section_is_group(section);
    if (!has_plugin_settings(config->flags) && !has_plugin_settings(config->sections->settings) &&
        (config->model == NULL || !has_plugin_settings(config->model->settings)) &&
        (section == NULL || !has_plugin_settings(section->settings)))
        return 0;
    /* A plugin that cannot be loaded has no options here; opening the device reports the
     * failure. */
    if (runner_config_load_plugin(config, plugin, NULL) != TDM_OK) return 0;
    for (size_t i = 0; i < config->keys.n; i++) {
        const runner_key *key = config->keys.items[i];
        if (key->plugin == NULL || strcmp(key->plugin, plugin) != 0) continue;
        runner_setting *setting = is_group ? runner_group_setting(config, section, key, is_main)
                                           : setting_find(config, section, key);
        setting->is_taken = true;
        if (!setting_is_option(setting)) continue;
        if (n < capacity)
            options[n] =
                (tdm_option){key->name, setting->key == key ? setting->given : setting->text};
        n++;
    }
    return n;
}

bool runner_section_is_given(const runner_config *config, const runner_section *section,
                             const char *name) {
    for (size_t i = 0; i < config->keys.n; i++) {
        const runner_key *key = config->keys.items[i];
        if (strcmp(key->name, name) == 0 &&
            setting_find(config, section, key)->origin.level != RUNNER_LEVEL_BUILT_IN)
            return true;
    }
    return false;
}

tdm_status runner_config_check_taken(const runner_config *config, tdm_error *err) {
    for (const runner_setting *at = config->flags; at != NULL; at = at->next) {
        if (at->key->plugin == NULL || at->is_taken ||
            strcmp(at->key->plugin, RUNNER_CPU_PLUGIN) == 0 ||
            strcmp(at->key->plugin, RUNNER_GROUP_PLUGIN) == 0)
            continue;
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "%s %.64s: an option of the plugin '%s', and no device of this command has "
                        "such an option",
                        at->flag, at->text, at->key->plugin);
    }
    return TDM_OK;
}

tdm_status runner_config_check(const runner_config *config, tdm_error *err) {
    if (config->bad_call[0] == '\0') return TDM_OK;
    return tdm_fail(err, TDM_INTERNAL, "%s; please report this", config->bad_call);
}

tdm_status runner_config_fail(runner_config *config, const char *key, tdm_status status,
                              tdm_error *err, const char *format, ...) {
    char message[TDM_ERROR_MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    const runner_setting *setting = ask(config, NULL, key, TYPES_ANY);
    /* These statuses say that the value itself is wrong. The path of a file is excepted: its
     * content may be wrong instead. */
    if (setting != NULL && setting->origin.level == RUNNER_LEVEL_FLAG &&
        setting->key->type != RUNNER_KEY_PATH &&
        (status == TDM_INVALID_ARGUMENT || status == TDM_NOT_FOUND))
        config->is_usage = true;
    const char *text = setting != NULL ? setting->text : "?";
    const char *more = strlen(text) > 64 ? "..." : "";
    if (setting != NULL && setting->origin.flag != NULL)
        return tdm_fail(err, status, "%s %.64s%s: %s", setting->origin.flag, text, more, message);
    if (setting != NULL && setting->origin.file != NULL)
        return tdm_fail(err, status, "%s:%d: %s = %.64s%s: %s", setting->origin.file,
                        setting->origin.line, key, text, more, message);
    return tdm_fail(err, status, "%s = %.64s%s: %s", key, text, more, message);
}

static const runner_section *section_at(const runner_config *config, runner_section_kind kind,
                                        size_t i) {
    for (const runner_section *at = config->sections; at != NULL; at = at->next)
        if (at->kind == kind && i-- == 0) return at;
    return NULL;
}

static size_t section_count(const runner_config *config, runner_section_kind kind) {
    size_t n = 0;
    for (const runner_section *at = config->sections; at != NULL; at = at->next)
        n += at->kind == kind;
    return n;
}

size_t runner_config_n_devices(const runner_config *config) {
    return section_count(config, RUNNER_SECTION_DEVICE);
}

const runner_section *runner_config_device(const runner_config *config, size_t i) {
    return section_at(config, RUNNER_SECTION_DEVICE, i);
}

size_t runner_config_n_groups(const runner_config *config) {
    return section_count(config, RUNNER_SECTION_GROUP);
}

const runner_section *runner_config_group(const runner_config *config, size_t i) {
    return section_at(config, RUNNER_SECTION_GROUP, i);
}

size_t runner_config_n_models(const runner_config *config) {
    return section_count(config, RUNNER_SECTION_MODEL);
}

const runner_section *runner_config_model_at(const runner_config *config, size_t i) {
    return section_at(config, RUNNER_SECTION_MODEL, i);
}

const runner_section *runner_config_model(const runner_config *config) {
    return config->model;
}

const char *runner_section_name(const runner_section *section) {
    return section->name;
}

int runner_section_line(const runner_section *section) {
    return section->line;
}

bool runner_section_is_group(const runner_section *section) {
    return section != NULL && section->kind == RUNNER_SECTION_GROUP;
}

const runner_section *runner_config_find_name(const runner_config *config, const char *name) {
    const runner_section *section = runner_config_find_section(config, RUNNER_SECTION_DEVICE, name);
    return section != NULL ? section
                           : runner_config_find_section(config, RUNNER_SECTION_GROUP, name);
}
