/* SPDX-License-Identifier: MIT
 *
 * config.h: the configuration: the command line and one INI file.
 *
 * A value is looked up in four levels; the first that has it counts:
 *
 *     flag on the command line  >  section  >  [*] or before any section  >  built-in default
 *
 * The section is the chosen [model NAME]: the one that `model` names, or the only one if `model` is
 * not given. For the keys of a device, the device's [device NAME] comes before it. options.h and
 * the plugins have the tables of keys.
 *
 * Getters cannot fail, because every value was checked when it was read. A call for a key that does
 * not exist, or with a getter of the wrong type, is a bug of the caller: the getter returns 0 or
 * "", and runner_config_check then returns TDM_INTERNAL. A command reads all values that it needs,
 * then calls runner_config_check once.
 *
 * Ownership: a runner_config owns all that its functions return (strings, sections, origins), until
 * runner_config_destroy. The command and argv given to runner_config_parse must live as long. One
 * thread at a time.
 */
#ifndef TANDEM_RUNNER_CONFIG_H
#define TANDEM_RUNNER_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "runner/config/options.h"
#include "tandem/device.h"
#include "tandem/status.h"

typedef struct runner_config runner_config;

/* A [device NAME], [group NAME] or [model NAME] of the file. */
typedef struct runner_section runner_section;

typedef enum runner_level { /* weakest first, so that levels compare */
                            RUNNER_LEVEL_BUILT_IN,
                            RUNNER_LEVEL_DEFAULTS, /* before any section, or [*] */
                            RUNNER_LEVEL_SECTION,
                            RUNNER_LEVEL_FLAG
} runner_level;

typedef struct runner_origin {
    runner_level level;
    const char *file; /* as the user named it; NULL unless level is DEFAULTS or SECTION */
    int line;         /* of that file, from 1; 0 where file is NULL */
    const char *flag; /* as the user wrote it ("-c"); NULL unless level is FLAG */
} runner_origin;

/* An empty configuration: built-in defaults only. [setup] */
tdm_status runner_config_create(runner_config **config_out, tdm_error *err);

/* Releases it and all that its functions returned; NULL is a no-op. [setup] */
void runner_config_destroy(runner_config *config);

/* Reads the arguments of `command` (those behind its name) and the file that --config names,
 * checks every value, and chooses the model section. May be called once. At -h or --help the
 * reading ends with TDM_OK: see runner_config_wants_help. On failure the message names file, line
 * and key, or the flag, and the nearest valid word, and runner_config_exit_code gives the exit code
 * of the process. The configuration may then only be destroyed. [setup] */
tdm_status runner_config_parse(runner_config *config, const runner_command *command, int argc,
                               char *const *argv, tdm_error *err);

/* Reads one INI file into `config`, as runner_config_parse does for --config; relative paths in it
 * are relative to its folder. Fails with TDM_NOT_FOUND or TDM_IO where it cannot be read, with
 * TDM_INVALID_ARGUMENT where it is wrong. May be called once. [setup] */
tdm_status runner_config_read_file(runner_config *config, const char *path, tdm_error *err);

/* 0 after success, 2 where the command line was wrong, 1 for anything else. [setup] */
int runner_config_exit_code(const runner_config *config);

/* Whether runner_config_fail was called for a wrong value of a flag. A command that fails then ends
 * with exit code 2. [setup] */
bool runner_config_is_usage(const runner_config *config);

bool runner_config_wants_help(const runner_config *config);

/* Words of the command line that are neither flags nor their values; NULL past the last. */
size_t runner_config_n_positional(const runner_config *config);
const char *runner_config_positional(const runner_config *config, size_t i);

/* The value of a key, looked up as above without a device or group section. [setup] */
int64_t runner_config_get_int(runner_config *config, const char *key); /* INT, INTS: first */
double runner_config_get_float(runner_config *config, const char *key);
bool runner_config_get_bool(runner_config *config, const char *key); /* auto counts as true */
/* STRING, PATH, ENUM (the word); never NULL, "" where nothing was given. */
const char *runner_config_get_string(runner_config *config, const char *key);
/* ENUM: index of the word in runner_key.words. */
int runner_config_get_enum(runner_config *config, const char *key);
/* Whether the value is the word "auto" of a key that has RUNNER_KEY_AUTO. */
bool runner_config_is_auto(runner_config *config, const char *key);

/* What `quiet`, `verbose` and `verbosity` mean together. [setup] */
bool runner_config_is_quiet(runner_config *config);
bool runner_config_is_verbose(runner_config *config);

/* The values of a list, or of a flag of `bench` that holds several: their number, and value `i`. An
 * index past the end is a bug of the caller, too, unless it is 0. A bool counts as 0 or 1.
 * [setup] */
size_t runner_config_get_count(runner_config *config, const char *key);
int64_t runner_config_get_int_at(runner_config *config, const char *key, size_t i);
const char *runner_config_get_string_at(runner_config *config, const char *key, size_t i);

/* The getters above for a device or group: its section comes before the model's. `section` NULL = a
 * device without a section, for which flags, model section and [*] still count. [setup] */
int64_t runner_section_get_int(runner_config *config, const runner_section *section,
                               const char *key);
uint64_t runner_section_get_size(runner_config *config, const runner_section *section,
                                 const char *key);
const char *runner_section_get_string(runner_config *config, const runner_section *section,
                                      const char *key);
int runner_section_get_enum(runner_config *config, const runner_section *section, const char *key);
bool runner_section_is_auto(runner_config *config, const runner_section *section, const char *key);
size_t runner_section_get_count(runner_config *config, const runner_section *section,
                                const char *key);
int64_t runner_section_get_int_at(runner_config *config, const runner_section *section,
                                  const char *key, size_t i);
const char *runner_section_get_string_at(runner_config *config, const runner_section *section,
                                         const char *key, size_t i);

/* Where a value came from. An unknown key gives BUILT_IN, and a failure of runner_config_check.
 * [setup] */
runner_origin runner_config_get_origin(runner_config *config, const char *key);
runner_origin runner_section_get_origin(runner_config *config, const runner_section *section,
                                        const char *key);

/* "conf/demo.ini:3", "flag -c" or "default". Always terminated. [any-thread] */
void runner_origin_format(runner_origin origin, char *text, size_t text_size);

/* The value as text for a file, quoted where that is needed: reading it back gives the same value.
 * Paths are made absolute. *text_out is the caller's to free(). Fails with TDM_RESOURCE_EXHAUSTED,
 * or TDM_INTERNAL for a bad call. [setup] */
tdm_status runner_config_format(runner_config *config, const runner_section *section,
                                const char *key, char **text_out, tdm_error *err);

/* The value of a key that applies to the section of a device or group. */
typedef struct runner_effective {
    char *text; /* as of runner_config_format; the caller's to free() */
    runner_origin origin;
    bool is_own; /* it is set in that section, and no flag overrides it */
} runner_effective;

/* `is_main`: whether a group is the one that a command runs on. Only for that group do values
 * outside of its section count (flags, [*], the model's). Ignored for a device. Fails as
 * runner_config_format. [setup] */
tdm_status runner_section_get_effective(runner_config *config, const runner_section *section,
                                        const char *key, bool is_main, runner_effective *effective,
                                        tdm_error *err);

/* The folders of a key like `plugin-path`, absolute, with ':' between them, as tdm_runtime_params
 * takes them; NULL if there are none. *text_out is the caller's to free(). [setup] */
tdm_status runner_config_join_paths(runner_config *config, const char *key, char **text_out,
                                    tdm_error *err);

/* The options that a device of `plugin` is opened with: the values given for keys of that plugin,
 * in the form that tandem/option.h states. Values from outside the device's section (flags, [*],
 * the model's) count for every device whose plugin has the key; `is_main` is for groups: see
 * runner_section_get_effective. "auto", empty values and the default are left out, because they
 * mean the plugin's default. A flag of `bench` with several values is left out, too: the caller
 * adds the value that it measures. Returns the number of options and stores at most `capacity` of
 * them; the strings are the configuration's. Loads the plugin if any key of a plugin was given.
 * [setup] */
size_t runner_section_get_options(runner_config *config, const runner_section *section,
                                  const char *plugin, bool is_main, tdm_option *options,
                                  size_t capacity);

/* Whether a key called `name` is set at any level above the default. Loads no plugin: the plugin of
 * an option that was given is loaded already. [setup] */
bool runner_section_is_given(const runner_config *config, const runner_section *section,
                             const char *name);

/* Fails with TDM_INVALID_ARGUMENT if a flag is an option of a plugin and runner_section_get_options
 * has returned it for no device. Options of the CPU and of groups are allowed without one.
 * [setup] */
tdm_status runner_config_check_taken(const runner_config *config, tdm_error *err);

/* ---- Keys ---- */

#define RUNNER_CPU_PLUGIN   "cpu"  /* of the CPU devices and fallbacks that no section names */
#define RUNNER_GROUP_PLUGIN "meta" /* of groups */

/* The option of the CPU plugin that commands read themselves: `bench` takes a list of it, and
 * `quantize` works with so many threads. */
#define RUNNER_THREADS_KEY "threads"

/* The known keys: the program's, and those of the plugins that were loaded. Valid until the next
 * plugin is loaded, which a getter may do. [any-thread] */
const runner_key_list *runner_config_keys(const runner_config *config);

/* Loads a plugin for its options (dlopen and entry, nothing else) and adds them to the keys; a
 * plugin that was loaded before is not loaded again. The folders are those of `plugin-path` as far
 * as it is known, then TANDEM_PLUGIN_PATH and the installed ones. [setup] */
tdm_status runner_config_load_plugin(runner_config *config, const char *name, tdm_error *err);

/* Loads the plugins of the CPU, of groups, of the file's devices and, with `all`, every plugin that
 * can be found. A plugin that fails has no keys: runner_config_plugin_failure. [setup] */
void runner_config_load_plugins(runner_config *config, bool all);

/* Why the `i`th of the plugins that failed could not be loaded, and its name in *name; NULL past
 * the last. [setup] */
const char *runner_config_plugin_failure(const runner_config *config, size_t i, const char **name);

/* TDM_INTERNAL if a getter was called for a key or type that does not exist; else TDM_OK. [setup]
 * */
tdm_status runner_config_check(const runner_config *config, tdm_error *err);

/* Fails with `status` and a message that begins with the value's origin: "conf/x.ini:4: ctx-size
 * = 99999999: " or "--ctx-size 99999999: "; a default has "ctx-size = 4096: ". With
 * TDM_INVALID_ARGUMENT or TDM_NOT_FOUND the value itself is wrong: where a flag gave it, and it is
 * not the path of a file, runner_config_is_usage is true from then on. [setup] */
TDM_PRINTF(5, 6)
tdm_status runner_config_fail(runner_config *config, const char *key, tdm_status status,
                              tdm_error *err, const char *format, ...);

/* The sections of the file, in its order. [setup] */
size_t runner_config_n_devices(const runner_config *config);
const runner_section *runner_config_device(const runner_config *config, size_t i);
size_t runner_config_n_groups(const runner_config *config);
const runner_section *runner_config_group(const runner_config *config, size_t i);

/* The section of the chosen model; NULL = none is chosen. [setup] */
const runner_section *runner_config_model(const runner_config *config);

/* The [model NAME] sections of the file, in its order. [setup] */
size_t runner_config_n_models(const runner_config *config);
const runner_section *runner_config_model_at(const runner_config *config, size_t i);

/* A new configuration of the same command line and file, in which the section [model NAME] is the
 * chosen one: each thread that opens a model has its own. The file is read again. The caller
 * destroys *copy_out. Fails as runner_config_parse does. [setup] */
tdm_status runner_config_copy(const runner_config *config, const char *name,
                              runner_config **copy_out, tdm_error *err);

/* The NAME of [device NAME]. */
const char *runner_section_name(const runner_section *section);

/* The line of its heading in the file; 0 = the section is not in the file. */
int runner_section_line(const runner_section *section);

/* Whether the section is a group, of the file or made from several names. False for NULL. */
bool runner_section_is_group(const runner_section *section);

/* The [device NAME] or [group NAME] called `name`, or NULL. [setup] */
const runner_section *runner_config_find_name(const runner_config *config, const char *name);

/* Whether `name` is one of a group's members. */
bool runner_section_has_member(const runner_section *group, const char *name);

/* The device that a command runs on; `name` is the value of `device` (or one of its values, as a
 * flag of `bench`). *device_out is
 *   - the [device NAME] or [group NAME] so called;
 *   - where several names stand there ("a,b" or "a/b"), a group of them;
 *   - where `name` is "auto", the file's only group that is no other's member, or else the file's
 *     only device;
 *   - NULL where the file does not decide: `name` is "auto" and the devices are to be compared, or
 *     it is the name of a plugin's device (if no plugin has it: runner_config_device_unknown).
 * Fails with TDM_INVALID_ARGUMENT where `name` is "auto" and the file leaves several groups to
 * choose from, or where a list names a device twice. [setup] */
tdm_status runner_config_find_device(runner_config *config, const char *name,
                                     const runner_section **device_out, tdm_error *err);

/* Makes a group that is not in the file, of `members` ("a,b" or "a/b"), called `name` (NULL =
 * "a+b"). If there is a group of that name, *group_out is that one. TDM_INVALID_ARGUMENT for a
 * wrong list. The configuration owns the group. [setup] */
tdm_status runner_config_make_group(runner_config *config, const char *name, const char *members,
                                    const runner_section **group_out, tdm_error *err);

/* A group's options, for the plugin that runs it. */
typedef struct runner_group_options {
    tdm_option items[64];
    int32_t n;
    char text[8192]; /* holds the values of members, share, split and reserve */
} runner_group_options;

/* Fills *options with members, share, split, reserve (if a member has one) and the values given for
 * the plugin's own keys; they point into *options, so do not copy it. Flags and values outside of
 * its section count for the group that a command runs on (`is_main`), not for groups inside it.
 * TDM_INVALID_ARGUMENT if there is not one share for each member, or for `split = none`;
 * TDM_OUT_OF_RANGE if there is too much for *options. [setup] */
tdm_status runner_section_get_group_options(runner_config *config, const runner_section *group,
                                            bool is_main, runner_group_options *options,
                                            tdm_error *err);

/* Whether only the group's first member is used (`split = none`). [setup] */
bool runner_section_is_undivided(runner_config *config, const runner_section *group, bool is_main);

/* runner_config_find_device for the value of the key `device`. [setup] */
tdm_status runner_config_pick_device(runner_config *config, const runner_section **device_out,
                                     tdm_error *err);

/* Fails with TDM_NOT_FOUND: `name`, a value of `key` ("device"), is neither a section nor one of
 * the `n` names that the plugins' devices have; the message lists what there is and the nearest.
 * [setup] */
tdm_status runner_config_device_unknown(runner_config *config, const char *key, const char *name,
                                        const char *const *names, size_t n, tdm_error *err);

/* The same for a name among a group's members. [setup] */
tdm_status runner_config_member_unknown(runner_config *config, const runner_section *group,
                                        const char *name, const char *const *names, size_t n,
                                        tdm_error *err);

/* `tandem config`: writes the effective configuration to `out` as an INI file that means the same
 * when it is read back, each value with its origin as a comment. A line of a section that begins
 * with '#' is a value that applies to the section but is set elsewhere. TDM_IO if it cannot be
 * written. [setup] */
tdm_status runner_cmd_config(runner_config *config, FILE *out, tdm_error *err);

#endif
