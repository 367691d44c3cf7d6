/* SPDX-License-Identifier: MIT
 *
 * config_state.h: the fields of a runner_config, for the files that fill it (config_file.c,
 * config_args.c, config_plugin.c, config_setting.c) and those that read it (config.c,
 * config_device.c, config_group.c). No other file includes it.
 */
#ifndef TANDEM_RUNNER_CONFIG_STATE_H
#define TANDEM_RUNNER_CONFIG_STATE_H

#include "core/device/runtime.h"
#include "runner/config/config.h"
#include "runner/config/config_value.h"

typedef struct runner_setting runner_setting;

/* A value that was given for a key. Each level has a list of settings. */
struct runner_setting {
    const runner_key *key;
    runner_value value;
    char *text;  /* as written, without quotes; for messages and to match section names; owned */
    char *given; /* the value as a plugin receives it (tandem/option.h); owned */
    char *flag;  /* what origin.flag points to; owned */
    runner_origin origin;
    bool is_taken; /* runner_section_get_options has returned it for a device */
    runner_setting *next;
};

typedef enum runner_section_kind {
    RUNNER_SECTION_DEFAULTS,
    RUNNER_SECTION_MODEL,
    RUNNER_SECTION_DEVICE,
    RUNNER_SECTION_GROUP
} runner_section_kind;

struct runner_section {
    runner_section_kind kind;
    char *name;               /* "" for the defaults; owned */
    int line;                 /* of its heading; 0 = there was none */
    int height;               /* of a group: levels of groups in it, itself included; 0 = not known
                                 yet, -1 = being counted (height_find) */
    runner_setting *settings; /* a list; owned */
    runner_section *next;     /* in the order of the file */
};

/* A key that is not the program's. It is resolved once all plugins can be found. */
typedef struct runner_pending runner_pending;
struct runner_pending {
    runner_section *section; /* of the file; NULL = a flag */
    char *name;              /* of the key, without dashes; owned */
    char *text;              /* the value; NULL = a flag without one; owned */
    char *flag;              /* as the user wrote it; NULL in a file; owned */
    bool is_long;            /* a flag with two dashes */
    int line;                /* of the file; 0 = a flag */
    runner_pending *next;
};

/* A plugin whose options were read, or could not be. */
typedef struct runner_plugin_keys runner_plugin_keys;
struct runner_plugin_keys {
    char *name;       /* owned */
    char *failure;    /* why it cannot be loaded or its table is broken; NULL = no failure; owned */
    char *topic;      /* the heading of its keys; owned */
    runner_key *keys; /* [n]; texts are the plugin's, which stays loaded; owned */
    size_t n;
    runner_plugin_keys *next;
};

struct runner_config {
    const runner_command *command; /* NULL before runner_config_parse */
    runner_key_list keys;          /* the program's, then those of `plugins`; owned, as all below */
    runner_plugin_keys *plugins;   /* in the order in which they were read */
    tdm_runtime *runtime;          /* that loaded them; NULL = none is loaded */
    runner_pending *pending;       /* keys that are not resolved yet */
    runner_setting *built_in;      /* one for each of `keys` */
    runner_setting *flags;
    runner_section *sections;    /* the defaults first; never NULL */
    const runner_section *model; /* chosen; NULL = none */
    char *file;                  /* NULL = none read */
    const char **positional;     /* [argc]; the words are the caller's */
    size_t n_positional;
    int argc; /* of runner_config_parse, for runner_config_copy; borrowed */
    char *const *argv;
    tdm_status status; /* how runner_config_parse ended */
    bool is_usage;     /* the command line is wrong: a failure ends with exit code 2 */
    bool wants_help;
    char bad_call[160]; /* the first bad call of a getter; "" = none */
};

/* The word for a kind, and the RUNNER_IN_* bit of its keys. */
const char *runner_section_kind_word(runner_section_kind kind);
unsigned runner_section_kind_bit(runner_section_kind kind);

/* The section of that kind and name, or NULL. */
runner_section *runner_config_find_section(const runner_config *config, runner_section_kind kind,
                                           const char *name);

/* Appends an empty section. */
tdm_status runner_config_add_section(runner_config *config, runner_section_kind kind,
                                     const char *name, int line, runner_section **section_out,
                                     tdm_error *err);

/* Makes a setting of `key` from `text`. Messages have no location: the caller adds it. Relative
 * paths from a file (origin.file) are taken from the folder of the file. origin.flag is copied,
 * origin.file must live as long as the setting. Released with runner_setting_destroy. */
tdm_status runner_setting_make(const runner_key *key, const char *text, bool is_list,
                               runner_origin origin, runner_setting **setting_out, tdm_error *err);

void runner_setting_destroy(runner_setting *setting);
void runner_settings_destroy(runner_setting *list);

/* The setting of `key` in a list, or NULL. Keys of plugins are the same where their names are: a
 * value outside a device's section is for every device that has such a key. */
runner_setting *runner_settings_find(runner_setting *list, const runner_key *key);

/* Puts a setting into a list, which then owns it; one of the same key is destroyed. */
void runner_settings_put(runner_setting **list, runner_setting *setting);

/* Stores `text` as a flag's value; joins it with an earlier one where the key says so. */
tdm_status runner_flag_assign(runner_config *config, const runner_key *key, const char *flag,
                              const char *text, tdm_error *err);

/* Fails for `word`, which is no flag of the command; the message says what may have been meant.
 * `name` is the word without dashes and value. */
tdm_status runner_flag_unknown(const runner_config *config, const char *word, const char *name,
                               tdm_error *err);

/* Stores the value of a key of the file. Fails, with file and line, where it does not belong there
 * or was given before. */
tdm_status runner_file_assign(runner_config *config, runner_section *section, const runner_key *key,
                              const char *name, const char *text, int line, tdm_error *err);

/* Appends a key, and its default to config->built_in. */
tdm_status runner_config_add_key(runner_config *config, const runner_key *key, tdm_error *err);

/* Keeps a copy of *entry, which may be a key of a plugin. `text` and `flag` may be NULL. */
tdm_status runner_pending_add(runner_config *config, const runner_pending *entry, tdm_error *err);
void runner_pending_clear(runner_config *config);

/* Resolves the pending keys of the file, or (are_flags) the pending flags, and loads the plugins
 * that may have them. Loads nothing if nothing is pending. */
tdm_status runner_pending_resolve(runner_config *config, bool are_flags, tdm_error *err);

/* Fails where a pending key of `section` looks like a misspelt `key`, which the section needs and
 * does not have. */
tdm_status runner_pending_check(const runner_config *config, const runner_section *section,
                                const runner_key *key, tdm_error *err);

/* Releases what runner_config_load_plugin has loaded. */
void runner_plugins_unload(runner_config *config);

/* The key called `name`, for a getter. If no loaded one is called so, it loads the plugins of
 * runner_config_load_plugins (not all). NULL = there is none. */
const runner_key *runner_config_find_key(runner_config *config, const char *name);

/* Fills config->flags from the arguments; any failure is a usage error. */
tdm_status runner_config_read_args(runner_config *config, int argc, char *const *argv,
                                   tdm_error *err);

/* Refuses two keys that exclude each other, given at the same level. */
tdm_status runner_config_check_rivals(runner_config *config, tdm_error *err);

/* Checks that a group of the file has at most TDM_MAX_MEMBERS members, a share for each, and does
 * not contain itself. Call it after the whole file was read. */
tdm_status runner_group_check(const runner_config *config, runner_section *group, tdm_error *err);

/* The setting that applies to a group. For a group inside another one (not `is_main`) that is its
 * own setting, else the default. */
runner_setting *runner_group_setting(const runner_config *config, const runner_section *group,
                                     const runner_key *key, bool is_main);

/* Chooses the [model NAME] section. Call it after flags and file were read. */
tdm_status runner_config_choose_model(runner_config *config, tdm_error *err);

#endif
