/* SPDX-License-Identifier: MIT
 *
 * options.h: the commands and the keys of the program, an ordered table each.
 *
 * A key is one word with one meaning, whether it stands in an INI file (`ctx-size = 4096`) or on
 * the command line (`--ctx-size 4096`, `-c 4096`). The tables define the names, where they may
 * stand, the form of their values and the text of `--help`; config.h reads files and command lines
 * by them. docs/config.md has a row for each key, and a test compares the two.
 */
#ifndef TANDEM_RUNNER_OPTIONS_H
#define TANDEM_RUNNER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "tandem/status.h"

typedef struct runner_app runner_app; /* app.h */
typedef struct runner_key runner_key;

/* The largest whole number of most keys. */
#define RUNNER_KEY_INT_MAX 2147483647.0

/* A command, as --help, the reader of the command line and main.c use it. */
typedef struct runner_command {
    const char *name;
    const char *positional;  /* how the words that are no flags are shown in --help; NULL = none */
    size_t n_positional_min; /* words that are no flags: at least, and at most, this many */
    size_t n_positional_max;
    const char *summary;                                /* one line */
    tdm_status (*run)(runner_app *app, tdm_error *err); /* main.c prints the error */
    const char *keys;           /* names of the keys of options.c that are its flags, separated by
                                   blanks; "*" = all that may stand before the sections of a file */
    const runner_key *own_keys; /* [n_own_key] keys of no other command, flags only */
    size_t n_own_key;
    bool opens_devices;            /* options of plugins are flags of it, too */
    bool has_lists;                /* keys with RUNNER_KEY_BENCH_LIST take lists */
    void (*help_print)(FILE *out); /* what --help shows besides; NULL = nothing */
} runner_command;

/* Keys that all commands take, and those of all that compute with a model. */
#define RUNNER_KEYS_EVERY "config verbosity quiet verbose color"
#define RUNNER_KEYS_COMPUTE                                                                        \
    RUNNER_KEYS_EVERY                                                                              \
    " model device override-tensor device-timeout plugin-path batch-size ubatch-size cache-type-k" \
    " cache-type-v cache-budget cache-file kv-rotate kv-offload swa-full page-size gpu-layers"     \
    " cpu-moe n-cpu-moe"                                                                           \
    " mmap flash-attn main-gpu reserve share split"

/* Where in a file a key may stand. A key with none of them exists only as a flag. */
enum {
    RUNNER_IN_DEFAULTS = 1u << 0, /* before any section or in [*] */
    RUNNER_IN_MODEL = 1u << 1,
    RUNNER_IN_DEVICE = 1u << 2,
    RUNNER_IN_GROUP = 1u << 3
};

typedef enum runner_key_type {
    RUNNER_KEY_INT,    /* a whole number from min to max */
    RUNNER_KEY_FLOAT,  /* a finite number from min to max */
    RUNNER_KEY_BOOL,   /* yes no on off true false 1 0 */
    RUNNER_KEY_STRING, /* any text */
    RUNNER_KEY_ENUM,   /* one of `words` */
    RUNNER_KEY_PATH,   /* a file; in an INI file relative to that file's folder */
    RUNNER_KEY_SIZE,   /* bytes, with K, M, G or T for powers of 1024 */
    RUNNER_KEY_PATHS,  /* folders separated by ':' */
    RUNNER_KEY_NAMES,  /* names separated by ',' */
    RUNNER_KEY_FILES,  /* files separated by ','; in an INI file relative to that file's folder. A
                          file may be followed by ':' and more */
    RUNNER_KEY_INTS,   /* whole numbers from min to max, separated by ',', or ranges (7-9) */
    RUNNER_KEY_SHARES, /* numbers >= 0 separated by ',', not all 0 */
    RUNNER_KEY_CORES   /* CPU numbers: "0-3,5" */
} runner_key_type;

enum {
    RUNNER_KEY_AUTO = 1u << 0,         /* the word "auto" is a value too; getters give auto_value */
    RUNNER_KEY_BENCH_LIST = 1u << 1,   /* as a flag of `bench`, a list: every combination is run */
    RUNNER_KEY_REQUIRED = 1u << 2,     /* a section of the kind it belongs to must have it */
    RUNNER_KEY_POWER_OF_TWO = 1u << 3, /* RUNNER_KEY_INT only */
    RUNNER_KEY_REPEATABLE = 1u << 4,   /* the flag may be repeated; its lists are joined */
    RUNNER_KEY_AT_FILE = 1u << 5, /* RUNNER_KEY_INTS only: "@PATH" is a file that holds the list */
    RUNNER_KEY_ALL = 1u << 6      /* RUNNER_KEY_INT with RUNNER_KEY_AUTO only: "all" is `max` */
};

struct runner_key {
    const char *topic; /* heading that it stands under in --help and docs/config.md */
    const char *name;  /* long flag without dashes, and the word in a file */
    const char *flag;  /* short flag without its dash; NULL = none */
    const char *alias; /* a second long name; NULL = none */
    /* built-in default, as one would write it; "" = empty or not given */
    const char *default_value;
    const char *value_name;   /* "N", "PATH", …; NULL for a bool and for an enum */
    const char *const *words; /* RUNNER_KEY_ENUM: NULL-terminated; else NULL */
    /* A key that excludes this one: set at a stronger level, it resets this key to its default; set
     * at the same level, it is an error. NULL = none. */
    const char *rival;
    const char *help;  /* one sentence, lower case, without the default */
    double min; /* RUNNER_KEY_INT, _INTS, _FLOAT, _CORES, inclusive; whole numbers up to 2^53 */
    double max; /* also RUNNER_KEY_SIZE, where 0 = no limit */
    long auto_value; /* what getters give for "auto" */
    runner_key_type type;
    unsigned sections;  /* RUNNER_IN_* */
    unsigned traits;    /* RUNNER_KEY_AUTO … */
    const char *plugin; /* whose option it is; NULL = a key of the program itself */
};

/* The keys that a configuration has: those of the program, then those of plugins. */
typedef struct runner_key_list {
    const runner_key **items; /* [n]; owned by whoever made the list */
    size_t n;
} runner_key_list;

/* The tables, in the order in which they are shown; constant, alive for the whole process. The
 * second has the program's own keys; those of plugins are read from the plugins (config.h). */
extern const runner_command *const runner_commands[];
extern const size_t n_runner_commands;
extern const runner_key runner_keys[];
extern const size_t n_runner_keys;

/* Whether a key is one of the command's flags. [any-thread] */
bool runner_command_takes(const runner_command *command, const runner_key *key);

/* The command called `name`, or NULL. [any-thread] */
const runner_command *runner_command_find(const char *name);

/* The key called `name` (or whose alias it is), or NULL. Two keys may share a name (`output` of
 * logits and of bench): one of `command` is preferred, then the first; NULL = any command.
 * [any-thread] */
const runner_key *runner_key_find(const runner_key_list *keys, const char *name,
                                  const runner_command *command);

/* The same among the keys that may stand in one of `sections`. [any-thread] */
const runner_key *runner_key_find_in(const runner_key_list *keys, const char *name,
                                     unsigned sections);

/* The key of a plugin's devices, or NULL. [any-thread] */
const runner_key *runner_key_find_of(const runner_key_list *keys, const char *name,
                                     const char *plugin);

/* The key whose short flag, among those of `command`, is `flag` (without dash), or NULL.
 * [any-thread] */
const runner_key *runner_key_find_flag(const runner_key_list *keys, const char *flag,
                                       const runner_command *command);

/* Number of single-letter insertions, deletions, replacements and swaps of neighbours that turn
 * `a` into `b`. Words longer than 63 bytes are far from everything (SIZE_MAX). [any-thread] */
size_t runner_word_distance(const char *a, const char *b);

/* The word nearest to `word` among `words` (n of them, NULL entries skipped), or NULL where none
 * is near enough to be meant: at most a third of its letters differ, or one begins with the
 * other. Borrowed from `words`. [any-thread] */
const char *runner_word_nearest(const char *word, const char *const *words, size_t n);

/* The name of the key nearest to `word` among those that may stand in one of `sections` or, with
 * sections 0, that `command` takes as flags; a short flag or a word with dashes before it counts
 * as the key that it means. NULL = none near. [any-thread] */
const char *runner_key_nearest(const runner_key_list *keys, const char *word, unsigned sections,
                               const runner_command *command);

/* Prints what `command` does and those of `keys` that it takes as flags; NULL = the program's
 * general usage with all commands. Text only: no colour, at most 100 columns. Write errors are the
 * stream's to report (ferror). [setup] */
void runner_help_print(FILE *out, const runner_command *command, const runner_key_list *keys);

#endif
