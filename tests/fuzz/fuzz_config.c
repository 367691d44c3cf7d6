/* SPDX-License-Identifier: MIT
 *
 * fuzz_config.c: the input is an INI file. An accepted file must be printable. What `tandem
 * config` prints must give the same configuration when it is read: the same values, the same
 * device to run on, and the same options for the plugins of devices and groups. Groups must accept
 * shares that are written into the file.
 */
#include <string.h>
#include <unistd.h>

#include "runner/config/config.h"
#include "runner/config/share_file.h"
#include "tests/fuzz/fuzz.h"

/* The input is a real file, because shares replace it, alone in a folder, because paths in it are
 * relative to that: beside /proc/self/fd/N there would be files that are called 0, 1 and 2. */
static char folder[64], first_path[96];
static fuzz_file second;

/* Has loaded all plugins and lives until the end, so that none is unloaded: libFuzzer clears the
 * counters of every library that was ever loaded. */
static runner_config *keeper;

static void plugins_keep(void) {
    tdm_error err = {0};
    FUZZ_DEMAND(runner_config_create(&keeper, &err) == TDM_OK, "%s", err.message);
    FUZZ_DEMAND(runner_config_parse(keeper, runner_command_find("run"), 0, NULL, &err) == TDM_OK,
                "%s", err.message);
    runner_config_load_plugins(keeper, true);
}

static void folder_remove(void) {
    unlink(first_path);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    const char *temp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tandem-fuzz-XXXXXX",
             temp != NULL && strlen(temp) < 40 ? temp : "/tmp");
    FUZZ_DEMAND(mkdtemp(folder) != NULL, "%s: cannot be made", folder);
    snprintf(first_path, sizeof first_path, "%s/x.ini", folder);
    atexit(folder_remove);
    fuzz_file_create(&second);
    plugins_keep();
    return 0;
}

static void first_write(const uint8_t *data, size_t size) {
    FILE *f = fopen(first_path, "wb");
    FUZZ_DEMAND(f != NULL && fwrite(data, 1, size, f) == size && fclose(f) == 0,
                "%s: cannot be written", first_path);
}

/* Reads the file as `tandem run --config PATH` does; NULL where it is refused. */
static runner_config *config_read(const char *path, tdm_error *err) {
    static char flag[] = "--config", words[2][96];
    static int turn; /* the words must outlive the configuration; there are two at most */
    char *word = words[turn++ % 2];
    snprintf(word, sizeof words[0], "%s", path);
    char *argv[] = {flag, word, NULL};
    runner_config *config;
    FUZZ_DEMAND(runner_config_create(&config, err) == TDM_OK, "%s", err->message);
    tdm_status status = runner_config_parse(config, runner_command_find("run"), 2, argv, err);
    if (status == TDM_OK) return config;
    FUZZ_DEMAND(err->status == status && err->message[0] != '\0' &&
                    strchr(err->message, '\n') == NULL,
                "a message must be one line: '%s'", err->message);
    FUZZ_DEMAND(runner_config_exit_code(config) == 1, "the file is not the command line");
    runner_config_destroy(config);
    return NULL;
}

static void values_compare(runner_config *a, const runner_section *in_a, runner_config *b,
                           const runner_section *in_b, unsigned sections) {
    tdm_error err = {0};
    const runner_key_list *keys = runner_config_keys(a);
    for (size_t i = 0; i < keys->n; i++) {
        const runner_key *key = keys->items[i];
        char *text_a, *text_b;
        if ((key->sections & sections) == 0) continue;
        FUZZ_DEMAND(runner_config_format(a, in_a, key->name, &text_a, &err) == TDM_OK, "%s: %s",
                    key->name, err.message);
        FUZZ_DEMAND(runner_config_format(b, in_b, key->name, &text_b, &err) == TDM_OK, "%s: %s",
                    key->name, err.message);
        FUZZ_DEMAND(strcmp(text_a, text_b) == 0, "%s: '%s' reads back as '%s'", key->name, text_a,
                    text_b);
        free(text_a);
        free(text_b);
    }
}

/* What a device's plugin receives. */
static void device_compare(runner_config *a, const runner_section *in_a, runner_config *b,
                           const runner_section *in_b) {
    tdm_option told_a[64], told_b[64];
    const char *plugin = runner_section_get_string(a, in_a, "plugin");
    size_t n_a = runner_section_get_options(a, in_a, plugin, false, told_a, 64);
    size_t n_b = runner_section_get_options(b, in_b, plugin, false, told_b, 64);
    const char *name = runner_section_name(in_a);
    FUZZ_DEMAND(n_a == n_b, "[device %s]: %zu options are %zu when read back", name, n_a, n_b);
    for (size_t i = 0; i < n_a; i++)
        FUZZ_DEMAND(strcmp(told_a[i].key, told_b[i].key) == 0 &&
                        strcmp(told_a[i].value, told_b[i].value) == 0,
                    "[device %s]: option %s = %s reads back as %s = %s", name, told_a[i].key,
                    told_a[i].value, told_b[i].key, told_b[i].value);
}

/* The options that the plugin of groups receives for one, or the reason for none. */
static void group_compare(runner_config *a, const runner_section *in_a, runner_config *b,
                          const runner_section *in_b, bool is_main) {
    static runner_group_options told_a, told_b;
    const char *name = runner_section_name(in_a);
    tdm_error err_a = {0}, err_b = {0};
    tdm_status status_a = runner_section_get_group_options(a, in_a, is_main, &told_a, &err_a);
    tdm_status status_b = runner_section_get_group_options(b, in_b, is_main, &told_b, &err_b);
    FUZZ_DEMAND(status_a == status_b, "[group %s]: '%s' and when read back '%s'", name,
                err_a.message, err_b.message);
    FUZZ_DEMAND(runner_section_is_undivided(a, in_a, is_main) ==
                    runner_section_is_undivided(b, in_b, is_main),
                "[group %s]: split is another", name);
    if (status_a != TDM_OK) return;
    FUZZ_DEMAND(told_a.n == told_b.n, "[group %s]: %d options are %d when read back", name,
                (int)told_a.n, (int)told_b.n);
    for (int32_t i = 0; i < told_a.n; i++)
        FUZZ_DEMAND(strcmp(told_a.items[i].key, told_b.items[i].key) == 0 &&
                        strcmp(told_a.items[i].value, told_b.items[i].value) == 0,
                    "[group %s]: option %s = %s reads back as %s = %s", name, told_a.items[i].key,
                    told_a.items[i].value, told_b.items[i].key, told_b.items[i].value);
}

/* The section that a command runs on; NULL if there is none or it cannot be found. */
static const runner_section *device_pick(runner_config *config) {
    const runner_section *picked = NULL;
    return runner_config_pick_device(config, &picked, NULL) == TDM_OK ? picked : NULL;
}

/* Prints, reads back and compares. */
static void config_print(runner_config *config) {
    tdm_error err = {0};
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    FUZZ_DEMAND(out != NULL, "no memory");
    FUZZ_DEMAND(runner_cmd_config(config, out, &err) == TDM_OK, "%s", err.message);
    fclose(out);
    fuzz_file_write(&second, text, size);
    runner_config *again = config_read(second.path, &err);
    FUZZ_DEMAND(again != NULL, "%s\n%s", err.message, text);
    values_compare(config, NULL, again, NULL, RUNNER_IN_DEFAULTS);
    size_t n = runner_config_n_devices(config);
    FUZZ_DEMAND(n == runner_config_n_devices(again), "%zu devices", n);
    for (size_t i = 0; i < n; i++) {
        const runner_section *device = runner_config_device(config, i);
        const runner_section *same = runner_config_find_name(again, runner_section_name(device));
        values_compare(config, device, again, same, RUNNER_IN_DEVICE);
        device_compare(config, device, again, same);
    }
    const runner_section *picked = device_pick(config), *picked_again = device_pick(again);
    FUZZ_DEMAND((picked != NULL) == (picked_again != NULL) &&
                    (picked == NULL ||
                     strcmp(runner_section_name(picked), runner_section_name(picked_again)) == 0),
                "another device is picked");
    n = runner_config_n_groups(config);
    FUZZ_DEMAND(n == runner_config_n_groups(again), "%zu groups", n);
    for (size_t i = 0; i < n; i++) {
        const runner_section *group = runner_config_group(config, i);
        const runner_section *same = runner_config_find_name(again, runner_section_name(group));
        FUZZ_DEMAND(runner_section_is_group(same), "[group %s] is gone",
                    runner_section_name(group));
        group_compare(config, group, again, same, group == picked);
        group_compare(config, group, again, same, group != picked); /* were it chosen by a flag */
    }
    runner_config_destroy(again);
    free(text);
}

/* Shares that were found are written into the file that the configuration came from. */
static void share_write(const char *name, size_t n_member) {
    double shares[64];
    tdm_error err = {0};
    for (size_t i = 0; i < n_member; i++) shares[i] = 1.0 / (double)n_member;
    FUZZ_DEMAND(runner_share_file_write(first_path, name, shares, n_member, &err) == TDM_OK, "%s",
                err.message);
    runner_config *again = config_read(first_path, &err);
    FUZZ_DEMAND(again != NULL, "with its shares: %s", err.message);
    const runner_section *group = runner_config_find_name(again, name);
    FUZZ_DEMAND(group != NULL, "group %s is gone", name);
    FUZZ_DEMAND(runner_section_get_count(again, group, "share") == n_member, "other shares");
    runner_config_destroy(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tdm_error err = {0};
    first_write(data, size);
    runner_config *config = config_read(first_path, &err);
    if (config == NULL) return 0;
    for (size_t i = 0; i < runner_config_n_devices(config); i++) {
        tdm_option options[64];
        (void)runner_section_get_options(config, runner_config_device(config, i), "cpu", false,
                                         options, 64);
    }
    for (size_t i = 0; i < runner_config_n_groups(config); i++) {
        runner_group_options options;
        const runner_section *group = runner_config_group(config, i);
        (void)runner_section_get_group_options(config, group, i == 0, &options, &err);
        (void)runner_section_is_undivided(config, group, false);
        if (i == 0)
            share_write(runner_section_name(group),
                        runner_section_get_count(config, group, "members"));
    }
    (void)device_pick(config);
    FUZZ_DEMAND(runner_config_check(config, &err) == TDM_OK, "%s", err.message);
    config_print(config);
    runner_config_destroy(config);
    return 0;
}
