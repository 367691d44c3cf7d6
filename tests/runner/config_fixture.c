/* SPDX-License-Identifier: MIT
 *
 * config_fixture.c: see config_fixture.h.
 */
#include "config_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ARGS_MAX 32

char folder[64];

int folder_make(void **state) {
    (void)state;
    strcpy(folder, "/tmp/tandem-test-config-XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

int folder_remove(void **state) {
    (void)state;
    static const char *const names[] = {"x.ini", "y.ini", "model.gguf", "dir", NULL};
    for (size_t i = 0; names[i] != NULL; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (unlink(path) != 0) rmdir(path);
    }
    return rmdir(folder);
}

void file_write_bytes(const char *name, const char *bytes, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

void file_write(const char *name, const char *text) {
    file_write_bytes(name, text, strlen(text));
}

runner_config *parse(const char *line, tdm_status *status, tdm_error *err) {
    static char words[1024], ini[128];
    static char *argv[ARGS_MAX + 1];
    int argc = 0;
    snprintf(words, sizeof words, "%s", line);
    snprintf(ini, sizeof ini, "%s/x.ini", folder);
    static char config_word[] = "--config";
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(argc + 2 <= ARGS_MAX);
        if (strcmp(word, "@") == 0) {
            argv[argc++] = config_word;
            argv[argc++] = ini;
        } else {
            argv[argc++] = word;
        }
    }
    const runner_command *command = runner_command_find(argv[0]);
    assert_non_null(command);
    runner_config *config;
    assert_int_equal(runner_config_create(&config, err), TDM_OK);
    *status = runner_config_parse(config, command, argc - 1, argv + 1, err);
    return config;
}

runner_config *parse_ok(const char *line) {
    tdm_error err = {0};
    tdm_status status;
    runner_config *config = parse(line, &status, &err);
    if (status != TDM_OK) fail_msg("`%s`: %s", line, err.message);
    assert_int_equal(runner_config_exit_code(config), 0);
    return config;
}

runner_config *parse_file(const char *text, const char *line) {
    file_write("x.ini", text);
    return parse_ok(line);
}

void parse_fails(const char *line, int exit_code, const char *message) {
    char expected[TDM_ERROR_MESSAGE_SIZE] = "";
    const char *at = strchr(message, '@');
    if (at != NULL)
        snprintf(expected, sizeof expected, "%.*s%s/x.ini%s", (int)(at - message), message, folder,
                 at + 1);
    else
        snprintf(expected, sizeof expected, "%s", message);
    tdm_error err = {0};
    tdm_status status;
    runner_config *config = parse(line, &status, &err);
    assert_int_not_equal(status, TDM_OK);
    assert_int_equal(err.status, status);
    assert_string_equal(err.message, expected);
    assert_int_equal(runner_config_exit_code(config), exit_code);
    runner_config_destroy(config);
}

void file_fails(const char *text, const char *message) {
    file_write("x.ini", text);
    parse_fails("run @", 1, message);
}

void assert_origin(runner_config *config, const runner_section *section, const char *key,
                   const char *expected) {
    char text[256], full[256];
    runner_origin_format(runner_section_get_origin(config, section, key), text, sizeof text);
    if (expected[0] == ':')
        snprintf(full, sizeof full, "%s/x.ini%s", folder, expected);
    else
        snprintf(full, sizeof full, "%s", expected);
    assert_string_equal(text, full);
}

void assert_checked(runner_config *config) {
    tdm_error err = {0};
    if (runner_config_check(config, &err) != TDM_OK) fail_msg("%s", err.message);
    runner_config_destroy(config);
}
