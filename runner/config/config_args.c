/* SPDX-License-Identifier: MIT
 *
 * config_args.c: reads the command line into a runner_config, and the file that it names.
 *
 * The forms of a flag: `--key value`, `--key=value`, `-k value`; for a bool also `--key`,
 * `--no-key`, and a following word counts as its value only if it is one (yes, no, ...). What
 * follows any other flag is its value, whatever it begins with (`-n -1`). A flag given twice
 * counts as given the second time; the lists of `bench` and RUNNER_KEY_REPEATABLE ones (`--tokens`,
 * `-ot`) are joined instead. `--` ends the flags.
 *
 * A flag that is not the program's may be an option of a plugin. Plugins cannot be loaded before
 * the file is read, because `plugin-path` may stand there. So such a flag is kept for later, and
 * the word behind it counts as its value unless that looks like a flag; `--key=value` takes any
 * value.
 */
#include <stdlib.h>
#include <string.h>

#include "runner/config/config_state.h"

typedef struct args_reader {
    runner_config *config;
    int argc, at; /* at: the word that is read */
    char *const *argv;
} args_reader;

static const runner_command *command_of(const args_reader *reader) {
    return reader->config->command;
}

/* Whether the word after an unknown flag looks like its value rather than the next flag. */
static bool word_is_value(const char *word) {
    return word != NULL && (word[0] != '-' || strchr("0123456789.", word[1]) != NULL);
}

/* A flag as it is written. */
typedef struct flag_word {
    const char *word;
    const char *text; /* the value: behind the `=` of a long flag, or what text_find sets */
    char flag[72];    /* the word without `=` and value */
    char name[64];    /* without dashes either */
    bool is_long;     /* two dashes */
    bool is_negated;  /* its key is the bool of --no-KEY */
} flag_word;

static flag_word flag_split(const char *word) {
    flag_word f = {.word = word, .is_long = word[1] == '-'};
    const char *equals = f.is_long ? strchr(word, '=') : NULL;
    const size_t len = equals != NULL ? (size_t)(equals - word) : strlen(word);
    const size_t dashes = f.is_long ? 2 : 1, n = len - dashes;
    if (equals != NULL) f.text = equals + 1;
    snprintf(f.flag, sizeof f.flag, "%.*s", (int)(len < 71 ? len : 71), word);
    snprintf(f.name, sizeof f.name, "%.*s", (int)(n < 63 ? n : 63), word + dashes);
    return f;
}

/* The word behind the flag; NULL = none. */
static const char *word_next(const args_reader *reader) {
    return reader->at + 1 < reader->argc ? reader->argv[reader->at + 1] : NULL;
}

/* Keeps a flag that may be a plugin's, until all plugins can be found. */
static tdm_status flag_postpone(args_reader *reader, flag_word *f, tdm_error *err) {
    runner_pending entry = {
        .name = f->name, .flag = f->flag, .text = (char *)f->text, .is_long = f->is_long};
    if (f->text == NULL && word_is_value(word_next(reader)))
        entry.text = reader->argv[++reader->at];
    return runner_pending_add(reader->config, &entry, err);
}

static const runner_key *key_named(const args_reader *reader, const flag_word *f,
                                   const char *name) {
    const runner_key_list *keys = &reader->config->keys;
    return f->is_long ? runner_key_find(keys, name, command_of(reader))
                      : runner_key_find_flag(keys, name, command_of(reader));
}

/* The bool that a flag negates; NULL where it negates none. -nkvo is --no-kv-offload, and -no-cnv
 * --no-conversation; single letters have no such form, because -n is a flag itself. */
static const runner_key *key_negated(const args_reader *reader, const flag_word *f) {
    size_t n_skip = strncmp(f->name, "no-", 3) == 0                           ? 3
                    : !f->is_long && f->name[0] == 'n' && strlen(f->name) > 2 ? 1
                                                                              : 0;
    const runner_key *key = n_skip > 0 ? key_named(reader, f, f->name + n_skip) : NULL;
    return key != NULL && key->type == RUNNER_KEY_BOOL ? key : NULL;
}

/* The key of a flag, with f->is_negated; NULL where none is known. */
static const runner_key *key_find(args_reader *reader, flag_word *f) {
    const runner_command *command = command_of(reader);
    const runner_key *key = key_named(reader, f, f->name);
    if (key != NULL) return key;
    key = key_negated(reader, f);
    f->is_negated = key != NULL;
    if (key != NULL || command->opens_devices || strstr(command->keys, RUNNER_THREADS_KEY) == NULL)
        return key;
    /* A command with words besides flags (quantize) cannot keep the flag for later: the word behind
     * it may be no value. Its only option of a plugin is this one, so that plugin is loaded now. */
    runner_config_load_plugin(reader->config, RUNNER_CPU_PLUGIN, NULL);
    return key_named(reader, f, f->name);
}

/* Sets f->text, and moves on to the next word where that is the value. */
static tdm_status text_find(args_reader *reader, const runner_key *key, flag_word *f,
                            tdm_error *err) {
    const runner_command *command = command_of(reader);
    const char *next = word_next(reader);
    if (f->is_negated) {
        if (f->text != NULL)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%.64s': --no-%s takes no value", f->word,
                            key->name);
        f->text = "no";
        return TDM_OK;
    }
    if (f->text != NULL) return TDM_OK;
    if (key->type == RUNNER_KEY_BOOL) {
        runner_value value;
        bool is_list = command->has_lists && (key->traits & RUNNER_KEY_BENCH_LIST) != 0;
        f->text = "yes";
        if (next == NULL || runner_value_parse(key, next, is_list, &value, NULL) != TDM_OK)
            return TDM_OK;
        runner_value_clear(&value);
    } else if (next == NULL) {
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%s' needs a value: %s %s", f->word, f->word,
                        key->value_name != NULL ? key->value_name : "WORD");
    }
    f->text = next;
    reader->at++;
    return TDM_OK;
}

/* Reads the flag at reader->at, and moves on to its value if that is a word of its own. */
static tdm_status flag_read(args_reader *reader, tdm_error *err) {
    flag_word f = flag_split(reader->argv[reader->at]);
    const runner_command *command = command_of(reader);
    const runner_key *key = key_find(reader, &f);
    if (key == NULL && command->opens_devices) return flag_postpone(reader, &f, err);
    if (key == NULL || !runner_command_takes(command, key))
        return runner_flag_unknown(reader->config, f.word, f.name, err);
    tdm_status status = text_find(reader, key, &f, err);
    return status == TDM_OK ? runner_flag_assign(reader->config, key, f.flag, f.text, err) : status;
}

/* Refuses empty words, which a script gives for an unset variable and which name no file. */
static tdm_status positional_check(const runner_config *config, tdm_error *err) {
    const char *word = config->command->positional;
    for (size_t i = 0; i < config->n_positional; i++) {
        size_t len = strcspn(word, " ");
        if (config->positional[i][0] == '\0')
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "%.*s is empty; `tandem %s` needs %s",
                            (int)len, word, config->command->name, config->command->positional);
        word += len + strspn(word + len, " ");
    }
    return TDM_OK;
}

/* Checks the number of words that are no flags. */
static tdm_status words_check(const runner_config *config, tdm_error *err) {
    const runner_command *command = config->command;
    bool has_prompt = runner_command_takes(command, runner_key_find(&config->keys, "prompt", NULL));
    if (config->n_positional > command->n_positional_max)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'%.64s': `tandem %s` takes only %s%s",
                        config->positional[command->n_positional_max], command->name,
                        command->n_positional_max == 0 ? "flags" : command->positional,
                        has_prompt ? "; give a prompt with -p, in quotes" : "");
    if (config->n_positional < command->n_positional_min)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "`tandem %s` needs %s", command->name,
                        command->positional);
    return positional_check(config, err);
}

tdm_status runner_config_read_args(runner_config *config, int argc, char *const *argv,
                                   tdm_error *err) {
    args_reader reader = {.config = config, .argc = argc, .argv = argv};
    config->positional = calloc((size_t)argc + 1, sizeof *config->positional);
    if (config->positional == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the command line");
    bool flags_end = false;
    for (; reader.at < argc; reader.at++) {
        const char *word = argv[reader.at];
        if (!flags_end && strcmp(word, "--") == 0) {
            flags_end = true;
        } else if (!flags_end && (strcmp(word, "-h") == 0 || strcmp(word, "--help") == 0)) {
            config->wants_help = true;
            return TDM_OK;
        } else if (!flags_end && word[0] == '-' && word[1] != '\0') {
            tdm_status status = flag_read(&reader, err);
            if (status != TDM_OK) return status;
        } else {
            config->positional[config->n_positional++] = word;
        }
    }
    /* A flag that was kept for later may have taken a word that is no value of it: then the words
     * are checked after it was resolved. */
    return config->pending == NULL ? words_check(config, err) : TDM_OK;
}

tdm_status runner_config_parse(runner_config *config, const runner_command *command, int argc,
                               char *const *argv, tdm_error *err) {
    config->command = command;
    config->argc = argc;
    config->argv = argv;
    config->status = runner_config_read_args(config, argc, argv, err);
    config->is_usage = config->status == TDM_INVALID_ARGUMENT;
    if (config->status != TDM_OK || config->wants_help) return config->status;
    const runner_setting *file =
        runner_settings_find(config->flags, runner_key_find(&config->keys, "config", command));
    if (file != NULL && file->text[0] == '\0') {
        config->is_usage = true;
        return config->status = tdm_fail(err, TDM_INVALID_ARGUMENT, "--config needs a file");
    }
    if (file != NULL) config->status = runner_config_read_file(config, file->text, err);
    if (config->status == TDM_OK && config->pending != NULL) {
        config->status = runner_pending_resolve(config, true, err);
        if (config->status == TDM_OK) config->status = words_check(config, err);
        config->is_usage = config->status == TDM_INVALID_ARGUMENT;
    }
    if (config->status == TDM_OK) config->status = runner_config_choose_model(config, err);
    if (config->status == TDM_OK) config->status = runner_config_check_rivals(config, err);
    return config->status;
}

tdm_status runner_config_copy(const runner_config *config, const char *name,
                              runner_config **copy_out, tdm_error *err) {
    runner_config *copy = NULL;
    *copy_out = NULL;
    tdm_status status = runner_config_create(&copy, err);
    if (status != TDM_OK) return status;
    status = runner_config_parse(copy, config->command, config->argc, config->argv, err);
    if (status == TDM_OK) {
        copy->model = runner_config_find_section(copy, RUNNER_SECTION_MODEL, name);
        status = copy->model != NULL
                     ? runner_config_check_rivals(copy, err)
                     : tdm_fail(err, TDM_NOT_FOUND, "the file has no section [model %.64s]", name);
    }
    if (status == TDM_OK)
        *copy_out = copy;
    else
        runner_config_destroy(copy);
    return status;
}
