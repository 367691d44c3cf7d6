/* SPDX-License-Identifier: MIT
 *
 * config_state.h: the inside of a runner_config, shared by the files that fill it (config_file.c,
 * config_args.c) and those that answer from it (config.c, config_device.c, config_group.c). Nobody else includes this.
 */
#ifndef TANDEM_RUNNER_CONFIG_STATE_H
#define TANDEM_RUNNER_CONFIG_STATE_H

#include "runner/config/config.h"
#include "runner/config/config_value.h"

typedef struct runner_setting {
    runner_value value;
    char *text; /* as written, without quotes; for messages and to match section names; owned */
    char *flag; /* what origin.flag points to; owned */
    runner_origin origin;
    bool is_set;
} runner_setting;

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
    int height;               /* of a group: groups inside one another, itself included; 0 = not
                                 known yet, -1 = being counted */
    runner_setting *settings; /* [n_runner_keys], in the order of the table; owned */
    runner_section *next;     /* in the order of the file */
};

struct runner_config {
    const runner_command *command; /* NULL before runner_config_parse */
    runner_setting *built_in;      /* [n_runner_keys]; owned, like all below */
    runner_setting *flags;         /* [n_runner_keys] */
    runner_section *sections;      /* the defaults first; never NULL */
    const runner_section *model;   /* chosen; NULL = none */
    char *file;                    /* NULL = none read */
    const char **positional;       /* [argc]; the words are the caller's */
    size_t n_positional;
    tdm_status status; /* how runner_config_parse ended */
    bool is_usage;     /* a failure was the command line's */
    bool wants_help;
    char wrong_question[160]; /* the first wrong question to a getter; "" = none */
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

/* Reads `text` into the (unset) setting of `key`; the message of a failure has no location. Values
 * of files (origin.file) have their paths made relative to the file's folder. origin.flag is
 * copied, origin.file must live as long as the setting. */
tdm_status runner_setting_assign(runner_setting *setting, const runner_key *key, const char *text,
                                 bool is_list, runner_origin origin, tdm_error *err);

/* Releases what a setting owns and unsets it. */
void runner_setting_clear(runner_setting *setting);

/* Fills config->flags from the arguments; any failure is a usage error. */
tdm_status runner_config_read_args(runner_config *config, int argc, char *const *argv,
                                   tdm_error *err);

/* Refuses two keys that exclude each other, given at the same level. */
tdm_status runner_config_check_rivals(runner_config *config, tdm_error *err);

/* Whether a group of the file has at most TDM_MAX_MEMBERS members, a share for each, and is not a
 * member of itself. Once the whole file is read. */
tdm_status runner_group_check(const runner_config *config, runner_section *group, tdm_error *err);

/* The setting that counts for a group: for one inside another (not `is_main`) its own, or else the
 * default. */
const runner_setting *runner_group_setting(runner_config *config, const runner_section *group,
                                           const char *key, bool is_main);

/* Finds the [model NAME] that applies, once flags and file are read. */
tdm_status runner_config_choose_model(runner_config *config, tdm_error *err);

#endif
