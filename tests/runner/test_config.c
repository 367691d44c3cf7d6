/* SPDX-License-Identifier: MIT
 *
 * test_config.c: files, command lines, levels, getters, error messages and `tandem config`.
 * Progress and messages are test_terminal.c's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runner/config.h"
#include "runner/config_value.h"

#define ARGS_MAX 32

static char folder[64];

static int folder_make(void **state) {
    (void)state;
    strcpy(folder, "/tmp/tandem-test-config-XXXXXX");
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static int folder_remove(void **state) {
    (void)state;
    static const char *const names[] = {"x.ini", "y.ini", "model.gguf", "dir", NULL};
    for (size_t i = 0; names[i] != NULL; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        if (unlink(path) != 0) rmdir(path);
    }
    return rmdir(folder);
}

static void file_write_bytes(const char *name, const char *bytes, size_t n) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static void file_write(const char *name, const char *text) {
    file_write_bytes(name, text, strlen(text));
}

/* Splits "run -c 3" at blanks and parses it; "@" stands for --config and x.ini of the folder. The
 * words must outlive the configuration, so they are static: one configuration at a time. */
static runner_config *parse(const char *line, tdm_status *status, tdm_error *err) {
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

static runner_config *parse_ok(const char *line) {
    tdm_error err = {0};
    tdm_status status;
    runner_config *config = parse(line, &status, &err);
    if (status != TDM_OK) fail_msg("`%s`: %s", line, err.message);
    assert_int_equal(runner_config_exit_code(config), 0);
    return config;
}

static runner_config *parse_file(const char *text, const char *line) {
    file_write("x.ini", text);
    return parse_ok(line);
}

/* The line must fail with exactly `message`, in which "@" stands for the folder's x.ini. */
static void parse_fails(const char *line, int exit_code, const char *message) {
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

static void file_fails(const char *text, const char *message) {
    file_write("x.ini", text);
    parse_fails("run @", 1, message);
}

static void assert_origin(runner_config *config, const runner_section *section, const char *key,
                          const char *expected) {
    char text[256], full[256];
    runner_origin_format(runner_section_get_origin(config, section, key), text, sizeof text);
    if (expected[0] == ':')
        snprintf(full, sizeof full, "%s/x.ini%s", folder, expected);
    else
        snprintf(full, sizeof full, "%s", expected);
    assert_string_equal(text, full);
}

static void assert_checked(runner_config *config) {
    tdm_error err = {0};
    if (runner_config_check(config, &err) != TDM_OK) fail_msg("%s", err.message);
    runner_config_destroy(config);
}

static void test_built_in_values(void **state) {
    (void)state;
    runner_config *config = parse_ok("run");
    assert_int_equal(runner_config_get_int(config, "ctx-size"), -1);
    assert_true(runner_config_is_auto(config, "ctx-size"));
    assert_int_equal(runner_config_get_int(config, "batch-size"), 2048);
    assert_false(runner_config_is_auto(config, "batch-size"));
    assert_int_equal(runner_config_get_int(config, "predict"), -1);
    assert_int_equal(runner_config_get_int(config, "n-predict"), -1);
    assert_true(runner_config_get_float(config, "temp") == 0.8);
    assert_string_equal(runner_config_get_string(config, "cache-type-k"), "f16");
    assert_int_equal(runner_config_get_enum(config, "cache-type-k"), 1);
    assert_string_equal(runner_config_get_string(config, "prompt"), "");
    assert_string_equal(runner_config_get_string(config, "model"), "");
    assert_string_equal(runner_config_get_string(config, "device"), "auto");
    assert_true(runner_config_get_bool(config, "kv-rotate"));
    assert_false(runner_config_get_bool(config, "quiet"));
    assert_true(runner_config_is_auto(config, "color"));
    assert_int_equal(runner_config_get_size(config, "reserve"), 0);
    assert_int_equal(runner_config_get_count(config, "plugin-path"), 0);
    assert_int_equal(runner_config_get_count(config, "cores"), 0);
    assert_origin(config, NULL, "ctx-size", "default");
    assert_int_equal(runner_config_n_devices(config), 0);
    const runner_section *device;
    assert_int_equal(runner_config_pick_device(config, &device, NULL), TDM_OK);
    assert_null(device);
    assert_checked(config);
}

static void test_levels(void **state) {
    (void)state;
    static const char text[] = "top-k = 1\n"        /* 1: every level has it */
                               "top-p = 0.5\n"      /* 2: not in the section */
                               "threads = 2\n"      /* 3 */
                               "[*]\n"              /* 4 */
                               "batch-size = 100\n" /* 5: before any section and [*] are one */
                               "[model a]\n"        /* 6 */
                               "model = a.gguf\n"   /* 7 */
                               "top-k = 2\n"        /* 8 */
                               "threads = 3\n"      /* 9 */
                               "[model b]\n"        /* 10 */
                               "model = /b.gguf\n"  /* 11 */
                               "[device d]\n"       /* 12 */
                               "plugin = cpu\n"     /* 13 */
                               "threads = 4\n"      /* 14 */
                               "[device e]\n"       /* 15 */
                               "plugin = cpu\n";    /* 16 */
    runner_config *config = parse_file(text, "run @ -m a --top-k 3 --seed=7");
    assert_int_equal(runner_config_get_int(config, "top-k"), 3);
    assert_origin(config, NULL, "top-k", "flag --top-k");
    assert_origin(config, NULL, "seed", "flag --seed");
    assert_true(runner_config_get_float(config, "top-p") == 0.5);
    assert_origin(config, NULL, "top-p", ":2");
    assert_int_equal(runner_config_get_int(config, "batch-size"), 100);
    assert_origin(config, NULL, "batch-size", ":5");
    assert_true(runner_config_get_float(config, "min-p") == 0.05);
    assert_origin(config, NULL, "min-p", "default");
    /* the section's path replaces the flag that gave only its name */
    char path[128];
    snprintf(path, sizeof path, "%s/a.gguf", folder);
    assert_string_equal(runner_config_get_string(config, "model"), path);
    assert_origin(config, NULL, "model", ":7");
    assert_string_equal(runner_section_name(runner_config_model(config)), "a");
    /* threads: device section > model section > [*] */
    const runner_section *d = runner_config_device(config, 0), *e = runner_config_device(config, 1);
    assert_int_equal(runner_section_get_int(config, d, "threads"), 4);
    assert_origin(config, d, "threads", ":14");
    assert_int_equal(runner_section_get_int(config, e, "threads"), 3);
    assert_origin(config, e, "threads", ":9");
    assert_int_equal(runner_section_get_int(config, NULL, "threads"), 3);
    assert_checked(config);

    config = parse_ok("run @ -m a");
    assert_int_equal(runner_config_get_int(config, "top-k"), 2);
    assert_origin(config, NULL, "top-k", ":8");
    assert_checked(config);

    config = parse_ok("run @ --model b -t 9");
    assert_int_equal(runner_config_get_int(config, "top-k"), 1);
    assert_string_equal(runner_config_get_string(config, "model"), "/b.gguf");
    assert_int_equal(runner_section_get_int(config, runner_config_device(config, 0), "threads"), 9);
    assert_int_equal(runner_section_get_int(config, runner_config_device(config, 1), "threads"), 9);
    assert_checked(config);

    /* no model named and two to choose from: none applies */
    config = parse_ok("run @");
    assert_null(runner_config_model(config));
    assert_string_equal(runner_config_get_string(config, "model"), "");
    assert_int_equal(runner_config_get_int(config, "top-k"), 1);
    assert_checked(config);
}

static void test_model_choice(void **state) {
    (void)state;
    /* the only one is chosen unasked */
    runner_config *config = parse_file("[model a]\nmodel = a.gguf\nseed = 5\n", "run @");
    assert_non_null(runner_config_model(config));
    assert_int_equal(runner_config_get_int(config, "seed"), 5);
    assert_checked(config);
    /* a path is a path: the section does not apply */
    config = parse_ok("run @ -m ./other.gguf");
    assert_null(runner_config_model(config));
    assert_string_equal(runner_config_get_string(config, "model"), "./other.gguf");
    assert_int_equal(runner_config_get_int(config, "seed"), -1);
    assert_checked(config);
    /* [*] may name it */
    config =
        parse_file("model = b\n[model a]\nmodel = a.gguf\n[model b]\nmodel = b.gguf\n", "run @");
    assert_string_equal(runner_section_name(runner_config_model(config)), "b");
    assert_checked(config);
    /* neither a file nor a section */
    parse_fails("run @ -m bb", 2,
                "-m bb: no such file, and no section [model bb]; did you mean 'b'?");
    parse_fails("run @ -m story", 2,
                "-m story: no such file, and no section [model story]; there are 'a', 'b'");
    file_fails("model = stroy\n[model story]\nmodel = a.gguf\n",
               "@:1: model = stroy: no such file, and no section [model stroy]; did you mean "
               "'story'?");
    /* a file of that name beside the INI file is one */
    file_write("model.gguf", "");
    config = parse_file("model = model.gguf\n[model story]\nmodel = a.gguf\n", "run @");
    assert_null(runner_config_model(config));
    assert_checked(config);
}

static void test_rivals(void **state) {
    (void)state;
    runner_config *config = parse_file("prompt = hello\n", "run @ -f /text");
    assert_string_equal(runner_config_get_string(config, "prompt"), "");
    assert_string_equal(runner_config_get_string(config, "file"), "/text");
    assert_checked(config);
    config = parse_file("file = text\n", "run @ -p hi");
    assert_string_equal(runner_config_get_string(config, "prompt"), "hi");
    assert_string_equal(runner_config_get_string(config, "file"), "");
    assert_checked(config);
    config = parse_file("file = text\nprompt =\n", "run @");
    assert_string_equal(runner_config_get_string(config, "prompt"), "");
    assert_checked(config);
    parse_fails("run -p a -f b", 2, "-p a: 'file' is given too (flag -f); only one of them can be");
    file_write("x.ini", "prompt = a\nfile = b\n");
    tdm_error err = {0};
    tdm_status status;
    config = parse("run @", &status, &err);
    assert_int_equal(status, TDM_INVALID_ARGUMENT);
    assert_int_equal(runner_config_exit_code(config), 1);
    assert_non_null(strstr(err.message, "x.ini:1: prompt = a: 'file' is given too"));
    runner_config_destroy(config);
}

static void test_line_forms(void **state) {
    (void)state;
    runner_config *config = parse_file("\xEF\xBB\xBF# first\r\n"
                                       "; second\r\n"
                                       "  # indented comment\n"
                                       "\n"
                                       "top-k=5\r\n"
                                       "\t  top-p  =  0.25   # why\n" /* would continue top-k */
                                       "prompt = a;b ; c#d # comment ; all\n"
                                       "seed = 3 # x # y\n"
                                       "keep: 4\n"
                                       "file = #nothing\n"
                                       " [device d0] # with a comment\n"
                                       "plugin = cpu\n"
                                       "[device\td1]; and another\n"
                                       "plugin = \"cpu\" # quoted",
                                       "run @");
    assert_int_equal(runner_config_get_int(config, "top-k"), 5);
    assert_true(runner_config_get_float(config, "top-p") == 0.25);
    assert_string_equal(runner_config_get_string(config, "prompt"), "a;b ; c#d");
    assert_int_equal(runner_config_get_int(config, "seed"), 3);
    assert_int_equal(runner_config_get_int(config, "keep"), 4);
    assert_string_equal(runner_config_get_string(config, "file"), "");
    assert_origin(config, NULL, "top-k", ":5");
    assert_origin(config, NULL, "keep", ":9");
    assert_int_equal(runner_config_n_devices(config), 2);
    const runner_section *d0 = runner_config_device(config, 0);
    const runner_section *d1 = runner_config_device(config, 1);
    assert_string_equal(runner_section_name(d0), "d0");
    assert_string_equal(runner_section_name(d1), "d1");
    assert_string_equal(runner_section_get_string(config, d1, "plugin"), "cpu");
    assert_origin(config, d1, "plugin", ":14");
    assert_null(runner_config_device(config, 2));
    assert_checked(config);
}

static void test_quotes(void **state) {
    (void)state;
    static const struct {
        const char *written, *meant;
    } rows[] = {
        {"\"  a # b ; c  \" # comment", "  a # b ; c  "},
        {"\"\"", ""},
        {"\"one\\ntwo\\t\\\"q\\\" \\\\n\\r\"", "one\ntwo\t\"q\" \\n\r"},
        {"it is \"so\"", "it is \"so\""},
        {"a\\nb", "a\\nb"},
        {"C:\\x = y : z", "C:\\x = y : z"},
        {"\xC3\xA4\xE2\x82\xAC [x]", "\xC3\xA4\xE2\x82\xAC [x]"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "prompt = %s\n", rows[i].written);
        runner_config *config = parse_file(text, "run @");
        assert_string_equal(runner_config_get_string(config, "prompt"), rows[i].meant);
        assert_checked(config);
    }
    file_fails("prompt = \"abc\n", "@:1: the text in quotes does not end");
    file_fails("prompt = \"abc\\\n", "@:1: unknown escape '\\' in quotes; there are \\n \\t \\r "
                                     "\\\" \\\\");
    file_fails("prompt = \"a\\qc\"\n", "@:1: unknown escape '\\q' in quotes; there are \\n \\t \\r "
                                       "\\\" \\\\");
    file_fails("prompt = \"a\" b\n",
               "@:1: text behind the closing quote; a quote inside is written \\\"");
    file_fails("prompt = \"a\"# b\n",
               "@:1: text behind the closing quote; a quote inside is written \\\"");
}

static void test_long_lines(void **state) {
    (void)state;
#ifndef RUNNER_INIH_HAS_LIMITS
    print_message("this inih has fixed limits: long lines are not tested\n");
    skip();
#endif
    /* far above inih's usual 200 bytes */
    size_t n = 60000;
    char *text = malloc(n + 100);
    assert_non_null(text);
    strcpy(text, "seed = 1\nprompt = ");
    size_t start = strlen(text);
    for (size_t i = 0; i < n; i++) text[start + i] = (char)('a' + i % 26);
    strcpy(text + start + n, "\ntop-k = 3\n");
    runner_config *config = parse_file(text, "run @");
    const char *prompt = runner_config_get_string(config, "prompt");
    assert_int_equal(strlen(prompt), n);
    assert_memory_equal(prompt, text + start, n);
    assert_int_equal(runner_config_get_int(config, "top-k"), 3);
    assert_origin(config, NULL, "top-k", ":3");
    assert_checked(config);
    free(text);

    n = 70000;
    text = malloc(n + 1);
    assert_non_null(text);
    memset(text, 'x', n);
    memcpy(text, "seed = 1\nprompt = ", 18);
    text[n] = '\0';
    file_fails(text, "@:2: a line of 69991 bytes; the most is 65534");
    free(text);
}

static void test_bad_files(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"a = 1\n", "@:1: unknown key 'a'; docs/config.md lists the keys"},
        {"\n\nctx-sise = 1\n", "@:3: unknown key 'ctx-sise'; did you mean 'ctx-size'?"},
        {"ctx_size = 1\n", "@:1: unknown key 'ctx_size'; did you mean 'ctx-size'?"},
        {"--ctx-size = 1\n", "@:1: unknown key '--ctx-size'; did you mean 'ctx-size'?"},
        {"ctk = f16\n", "@:1: unknown key 'ctk'; did you mean 'cache-type-k'?"},
        {"n-predic = 1\n", "@:1: unknown key 'n-predic'; did you mean 'predict'?"},
        {"[device d]\nplugn = cpu\n", "@:2: unknown key 'plugn'; did you mean 'plugin'?"},
        {"ctx-size = 32k\n", "@:1: bad value '32k' for 'ctx-size': expected a whole number from 0 "
                             "to 2147483647, or auto"},
        {"ctx-size = atuo\n", "@:1: bad value 'atuo' for 'ctx-size': expected a whole number from "
                              "0 to 2147483647, or auto; did you mean 'auto'?"},
        {"ctx-size =\n", "@:1: bad value '' for 'ctx-size': expected a whole number from 0 to "
                         "2147483647, or auto"},
        {"batch-size = 0\n", "@:1: bad value '0' for 'batch-size': expected a whole number from 1 "
                             "to 2147483647"},
        {"seed = 99999999999999999999\n", "@:1: bad value '99999999999999999999' for 'seed': "
                                          "expected a whole number from -1 to 4294967295"},
        {"page-size = 48\n",
         "@:1: bad value '48' for 'page-size': expected a power of two from 1 to 4096"},
        {"temp = nan\n", "@:1: bad value 'nan' for 'temp': expected a number from 0 to 1000"},
        {"temp = 1e999\n", "@:1: bad value '1e999' for 'temp': expected a number from 0 to 1000"},
        {"temp = 0x1\n", "@:1: bad value '0x1' for 'temp': expected a number from 0 to 1000"},
        {"top-p = 1.5\n", "@:1: bad value '1.5' for 'top-p': expected a number from 0 to 1"},
        {"quiet = yse\n",
         "@:1: bad value 'yse' for 'quiet': expected yes or no; did you mean 'yes'?"},
        {"quiet = auto\n", "@:1: bad value 'auto' for 'quiet': expected yes or no"},
        {"cache-type-k = q8\n",
         "@:1: bad value 'q8' for 'cache-type-k': expected one of f32, f16, bf16, q8_0, q5_1, "
         "q5_0, q4_1, q4_0, iq4_nl; did you mean 'q8_0'?"},
        {"isa = avx-512\n", "@:1: bad value 'avx-512' for 'isa': expected one of auto, plain, "
                            "avx2, avx512; did you mean 'avx512'?"},
        {"reserve = 5X\n", "@:1: bad value '5X' for 'reserve': expected bytes, or a number with K, "
                           "M, G or T (512M)"},
        {"reserve = 9000000000T\n", "@:1: bad value '9000000000T' for 'reserve': expected bytes, "
                                    "or a number with K, M, G or T (512M)"},
        {"reserve = -1\n", "@:1: bad value '-1' for 'reserve': expected bytes, or a number with K, "
                           "M, G or T (512M)"},
        {"cores = 3-1\n", "@:1: bad value '3-1' for 'cores': expected core numbers from 0 to 4095 "
                          "such as 0-3,5, none of them twice"},
        {"cores = 0-3,2\n", "@:1: bad value '0-3,2' for 'cores': expected core numbers from 0 to "
                            "4095 such as 0-3,5, none of them twice"},
        {"cores = 0-9999999999\n", "@:1: bad value '0-9999999999' for 'cores': expected core "
                                   "numbers from 0 to 4095 such as 0-3,5, none of them twice"},
        {"cores = 1,,2\n", "@:1: bad value '1,,2' for 'cores': expected core numbers from 0 to "
                           "4095 such as 0-3,5, none of them twice"},
        {"plugin-path = a::b\n", "@:1: bad value 'a::b' for 'plugin-path': expected folders "
                                 "separated by ':', none of them empty"},
        {"seed = 1\nseed = 1\n", "@:2: 'seed' was already given on line 1"},
        {"seed = 1\n[*]\nseed = 1\n", "@:3: 'seed' was already given on line 1"},
        {"predict = 1\nn-predict = 1\n", "@:2: 'predict' was already given on line 1"},
        {"[*]\n[*]\n", "@:2: section [*] was already given on line 1"},
        {"[device a]\nplugin = cpu\n[device a]\n",
         "@:3: section [device a] was already given on line 1"},
        {"[device a]\nplugin = cpu\n[group a]\n", "@:3: [group a] has the name of [device a] on "
                                                  "line 1; `device = a` would mean both"},
        {"[devise a]\n", "@:1: unknown section '[devise a]': there are [*], [device NAME], [group "
                         "NAME] and [model NAME]; did you mean '[device a]'?"},
        {"[story]\n", "@:1: unknown section '[story]': there are [*], [device NAME], [group NAME] "
                      "and [model NAME]"},
        {"[]\n", "@:1: unknown section '[]': there are [*], [device NAME], [group NAME] and [model "
                 "NAME]"},
        {"[device]\n", "@:1: section '[device]' has no name: [device NAME]"},
        {"[device  ]\n", "@:1: section '[device]' has no name: [device NAME]"},
        {"[device a b]\n", "@:1: bad section name 'a b': at most 40 letters, digits, '_', '.' and "
                           "'-', and not 'auto'"},
        {"[device auto]\n", "@:1: bad section name 'auto': at most 40 letters, digits, '_', '.' "
                            "and '-', and not 'auto'"},
        {"[device a;b]\n", "@:1: bad section name 'a;b': at most 40 letters, digits, '_', '.' and "
                           "'-', and not 'auto'"},
        {"[device a\nseed = 1\n", "@:1: the section heading '[device a' has no ']'"},
        {"[device a] plugin = cpu\n",
         "@:1: text behind the section heading '[device a]'; keys go on lines of their own"},
        {"seed = 1\njust text\nseed = 2\n", "@:2: expected 'key = value' or '[section]'"},
        {"seed = 1\njust text", "@:2: expected 'key = value' or '[section]'"},
        {"= 5\n", "@:1: expected 'key = value' or '[section]'"},
        {"plugin = cpu\n", "@:1: 'plugin' does not belong in [*]; it may stand in [device NAME]"},
        {"[device d]\nplugin = cpu\ntemp = 1\n",
         "@:3: 'temp' does not belong in [device d]; it may stand in [*], [model NAME]"},
        {"[model m]\nmodel = a\nplugin-path = b\n",
         "@:3: 'plugin-path' does not belong in [model m]; it may stand in [*]"},
        {"config = y.ini\n", "@:1: 'config' is only a flag (--config), not a key of a file"},
        {"\n[device d]\nthreads = 1\n", "@:2: [device d] needs 'plugin = NAME': plugin that drives "
                                        "the device, such as cpu"},
        {"[model m]\nseed = 1\n", "@:1: [model m] needs 'model = PATH': GGUF file, first part of a "
                                  "split one, or the NAME of a [model NAME] section"},
        {"[group g]\n", "@:1: [group g] needs 'members = A, B, ...': the [device NAME] sections "
                        "that work together as one device"},
        {"[device gpu0]\nplugin = cpu\n[group g]\nmembers = gpu0, gup0\n",
         "@:4: there is no section [device gup0]; did you mean 'gpu0'?"},
        {"[group g]\nmembers = x\n",
         "@:2: there is no section [device x] for this member of the group"},
        {"[device a]\nplugin = cpu\n[group g]\nmembers = a, a\n",
         "@:4: bad value 'a, a' for 'members': expected names separated by ',', none of them "
         "twice"},
        {"[device a]\nplugin = cpu\n[group g]\nmembers = a\nshare = 1, 2\n",
         "@:5: 'share' has 2 numbers for the 1 members of [group g]; give one for each, or auto"},
        {"[group g]\nshare = 0, 0\n", "@:2: bad value '0, 0' for 'share': expected numbers not "
                                      "below 0 separated by ',', not all 0, or auto"},
        {"[group g]\nshare = 1, -1\n", "@:2: bad value '1, -1' for 'share': expected numbers not "
                                       "below 0 separated by ',', not all 0, or auto"},
        {"seed = 1\x01\n", "@:1: byte 0x01: this is no text file"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        file_fails(rows[i].text, rows[i].message);
    /* a name that inih would have cut off, so that two sections looked like one */
    char text[256];
    snprintf(text, sizeof text, "[device %060d]\n", 1);
    file_write("x.ini", text);
    tdm_error err = {0};
    tdm_status status;
    runner_config *config = parse("run @", &status, &err);
    assert_int_equal(status, TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "is too long; a name has at most 40 letters"));
    runner_config_destroy(config);
}

static void test_unreadable_files(void **state) {
    (void)state;
    char line[256], message[256];
    snprintf(line, sizeof line, "run --config %s/none.ini", folder);
    snprintf(message, sizeof message,
             "%s/none.ini: cannot open the configuration: No such file or directory", folder);
    parse_fails(line, 1, message);

    char path[128];
    snprintf(path, sizeof path, "%s/dir", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(line, sizeof line, "run --config %s", path);
    snprintf(message, sizeof message, "%s: is a folder; --config takes an INI file", path);
    parse_fails(line, 1, message);

    file_write_bytes("x.ini", "seed = 1\nto\0p-k = 2\n", 20);
    parse_fails("run @", 1, "@:2: byte 0x00: this is no text file");

    size_t n = ((size_t)1 << 20) + 1;
    char *big = malloc(n);
    assert_non_null(big);
    memset(big, '\n', n);
    file_write_bytes("x.ini", big, n);
    parse_fails("run @", 1, "@: above 1024 KiB; this is no INI file of ours");
    file_write_bytes("x.ini", big, n - 1);
    runner_config_destroy(parse_ok("run @"));
    free(big);

    parse_fails("run --config=", 2, "--config needs a file");
    runner_config_destroy(parse_file("", "run @"));
}

/* No prefix of a file, and no single changed byte, may crash; sanitizers watch. */
static void test_damaged_files(void **state) {
    (void)state;
    static const char text[] = "top-k = 1 # c\nprompt = \"a\\n;#\"\n[*]\nseed=2\n[device d]\n"
                               "plugin = cpu\ncores = 0-3,5\n[group g]\nmembers = d\nshare=1\n"
                               "[model m]\nmodel = ~/x\n";
    unsigned seed = 20;
    print_message("seed %u\n", seed);
    size_t n_ok = 0, n_bad = 0;
    for (size_t i = 0; i < 3 * sizeof text; i++) {
        char copy[sizeof text];
        memcpy(copy, text, sizeof text);
        size_t n = sizeof text - 1;
        if (i < n) {
            n = i;
        } else {
            seed = seed * 1664525u + 1013904223u;
            copy[(seed >> 8) % n] = (char)(seed >> 24);
        }
        file_write_bytes("x.ini", copy, n);
        tdm_error err = {0};
        tdm_status status;
        runner_config *config = parse("run @", &status, &err);
        if (status == TDM_OK) {
            n_ok++;
        } else {
            n_bad++;
            assert_true(strlen(err.message) > 0);
            assert_null(strchr(err.message, '\n'));
        }
        runner_config_destroy(config);
    }
    assert_true(n_ok > 0 && n_bad > 0);
}

static void test_flags(void **state) {
    (void)state;
    runner_config *config =
        parse_ok("run -c 10 -n -1 --top-k=3 -ctk q4_0 -ctv iq4_nl -ub 7 -dev cpu1 --temperature 0");
    assert_int_equal(runner_config_get_int(config, "ctx-size"), 10);
    assert_origin(config, NULL, "ctx-size", "flag -c");
    assert_int_equal(runner_config_get_int(config, "predict"), -1);
    assert_origin(config, NULL, "predict", "flag -n");
    assert_int_equal(runner_config_get_int(config, "top-k"), 3);
    assert_string_equal(runner_config_get_string(config, "cache-type-k"), "q4_0");
    assert_string_equal(runner_config_get_string(config, "cache-type-v"), "iq4_nl");
    assert_int_equal(runner_config_get_int(config, "ubatch-size"), 7);
    assert_string_equal(runner_config_get_string(config, "device"), "cpu1");
    assert_true(runner_config_get_float(config, "temp") == 0);
    assert_checked(config);

    /* the last one counts */
    config = parse_ok("run --seed 1 -s 2");
    assert_int_equal(runner_config_get_int(config, "seed"), 2);
    assert_origin(config, NULL, "seed", "flag -s");
    assert_checked(config);

    config = parse_ok("run --cores 0-2,7 --reserve 2g --plugin-path a:/b");
    assert_int_equal(runner_config_get_count(config, "cores"), 4);
    assert_int_equal(runner_config_get_int_at(config, "cores", 2), 2);
    assert_int_equal(runner_config_get_int_at(config, "cores", 3), 7);
    assert_int_equal(runner_config_get_size(config, "reserve"), UINT64_C(2) << 30);
    assert_int_equal(runner_config_get_count(config, "plugin-path"), 2);
    assert_string_equal(runner_config_get_string_at(config, "plugin-path", 0), "a");
    assert_string_equal(runner_config_get_string_at(config, "plugin-path", 1), "/b");
    assert_checked(config);

    /* positional words, and the end of flags */
    config = parse_ok("certify plugin.so -v");
    assert_int_equal(runner_config_n_positional(config), 1);
    assert_string_equal(runner_config_positional(config, 0), "plugin.so");
    assert_null(runner_config_positional(config, 1));
    assert_true(runner_config_get_bool(config, "verbose"));
    assert_checked(config);
    config = parse_ok("certify -- -v");
    assert_string_equal(runner_config_positional(config, 0), "-v");
    assert_checked(config);

    config = parse_ok("run -c 3 --help --nonsense");
    assert_true(runner_config_wants_help(config));
    runner_config_destroy(config);
    config = parse_ok("run -p --help");
    assert_false(runner_config_wants_help(config));
    assert_string_equal(runner_config_get_string(config, "prompt"), "--help");
    assert_checked(config);
}

static void test_bool_flags(void **state) {
    (void)state;
    static const struct {
        const char *line;
        bool quiet;
    } rows[] = {
        {"run", false},
        {"run --quiet", true},
        {"run --no-quiet", false},
        {"run --quiet=no", false},
        {"run --quiet no", false},
        {"run --quiet yes", true},
        {"run --quiet=on", true},
        {"run --quiet off", false},
        {"run --quiet true", true},
        {"run --quiet 0", false},
        {"run --quiet -c 5", true},
        {"run --quiet --no-quiet", false},
        {"run --quiet 1", true},
        {"run --quiet=false", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        runner_config *config = parse_ok(rows[i].line);
        assert_int_equal(runner_config_get_bool(config, "quiet"), rows[i].quiet);
        assert_checked(config);
    }
    runner_config *config = parse_file("quiet = on\ncolor = no\n", "run @ --color");
    assert_true(runner_config_get_bool(config, "quiet"));
    assert_false(runner_config_is_auto(config, "color"));
    assert_true(runner_config_get_bool(config, "color"));
    assert_checked(config);
}

static void test_bad_flags(void **state) {
    (void)state;
    static const struct {
        const char *line, *message;
    } rows[] = {
        {"run --ctx-sise 5", "unknown flag '--ctx-sise'; did you mean '--ctx-size'?"},
        {"run --ctx-sise=5", "unknown flag '--ctx-sise=5'; did you mean '--ctx-size'?"},
        {"run -ctx-size 5", "unknown flag '-ctx-size'; did you mean '--ctx-size'?"},
        {"run --zzz", "unknown flag '--zzz'; `tandem run --help` lists the flags"},
        {"run --c 5", "unknown flag '--c'; did you mean '--ctx-size'?"},
        {"run --no-temp", "unknown flag '--no-temp'; did you mean '--temp'?"},
        {"run --no-quiet=yes", "'--no-quiet=yes': --no-quiet takes no value"},
        {"run -m", "'-m' needs a value: -m PATH"},
        {"run --cache-type-k", "'--cache-type-k' needs a value: --cache-type-k WORD"},
        {"run -c x", "-c: bad value 'x' for 'ctx-size': expected a whole number from 0 to "
                     "2147483647, or auto"},
        {"run --quiet=maybe", "--quiet: bad value 'maybe' for 'quiet': expected yes or no"},
        {"run --threads 0",
         "--threads: bad value '0' for 'threads': expected a whole number from 1 to 1024, or auto"},
        {"devices --ctx-size 5",
         "`tandem devices` does not take '--ctx-size'; `tandem devices --help` lists what it "
         "takes"},
        {"run --plugin cpu", "'--plugin' is not a flag: 'plugin' stands in [device NAME] of the "
                             "file given with --config"},
        {"run --share 1,2", "'--share' is not a flag: 'share' stands in [group NAME] of the file "
                            "given with --config"},
        {"run hello", "'hello': `tandem run` takes only flags; a prompt goes behind -p, in "
                      "quotes"},
        {"certify", "`tandem certify` needs PLUGIN.so"},
        {"run --top-k 5,6", "--top-k: bad value '5,6' for 'top-k': expected a whole number from 0 "
                            "to 2147483647"},
        {"bench -p 1-9999999", "'n-prompt' has more than 1048576 values"},
        {"bench -p 4-2", "-p: bad value '4-2' for 'n-prompt': expected whole numbers from 0 to "
                         "2147483647, separated by ',', or ranges (1-4)"},
        {"bench -p 4-8+0", "-p: bad value '4-8+0' for 'n-prompt': expected whole numbers from 0 to "
                           "2147483647, separated by ',', or ranges (1-4)"},
        {"bench -p 0-8*2", "-p: bad value '0-8*2' for 'n-prompt': expected whole numbers from 0 to "
                           "2147483647, separated by ',', or ranges (1-4)"},
        {"bench -p 1-8*1", "-p: bad value '1-8*1' for 'n-prompt': expected whole numbers from 0 to "
                           "2147483647, separated by ',', or ranges (1-4)"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *message = rows[i].message;
        if (strstr(rows[i].line, "9999999") != NULL)
            message = "-p: 'n-prompt' has more than 1048576 values";
        parse_fails(rows[i].line, 2, message);
    }
}

static void test_bench_lists(void **state) {
    (void)state;
    runner_config *config = parse_ok("bench -p 16,64-256*2,1-2 -n 8 -n 9 -ctk f16,q8_0 -t 1-3 "
                                     "-m a,b --kv-rotate yes,no -d 0-8+4");
    static const int64_t prompts[] = {16, 64, 128, 256, 1, 2};
    assert_int_equal(runner_config_get_count(config, "n-prompt"), 6);
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(runner_config_get_int_at(config, "n-prompt", i), prompts[i]);
    assert_int_equal(runner_config_get_count(config, "n-gen"), 2);
    assert_int_equal(runner_config_get_int_at(config, "n-gen", 1), 9);
    assert_int_equal(runner_config_get_count(config, "n-depth"), 3);
    assert_int_equal(runner_config_get_int_at(config, "n-depth", 2), 8);
    assert_int_equal(runner_config_get_count(config, "cache-type-k"), 2);
    assert_string_equal(runner_config_get_string_at(config, "cache-type-k", 1), "q8_0");
    assert_int_equal(runner_config_get_count(config, "cache-type-v"), 1);
    assert_string_equal(runner_config_get_string_at(config, "cache-type-v", 0), "f16");
    assert_int_equal(runner_config_get_count(config, "threads"), 3);
    assert_int_equal(runner_config_get_int_at(config, "threads", 2), 3);
    assert_int_equal(runner_config_get_count(config, "model"), 2);
    assert_string_equal(runner_config_get_string_at(config, "model", 1), "b");
    assert_int_equal(runner_config_get_count(config, "kv-rotate"), 2);
    assert_int_equal(runner_config_get_int_at(config, "kv-rotate", 1), 0);
    assert_string_equal(runner_config_get_string(config, "output"), "md");
    assert_checked(config);

    /* the same word, another command's key */
    config = parse_ok("logits -o out.f32 --tokens 1,2 --tokens 3");
    assert_string_equal(runner_config_get_string(config, "output"), "out.f32");
    assert_int_equal(runner_config_get_count(config, "tokens"), 3);
    assert_int_equal(runner_config_get_int_at(config, "tokens", 2), 3);
    assert_checked(config);
}

static void test_paths_follow_the_file(void **state) {
    (void)state;
    assert_int_equal(setenv("HOME", "/home/someone", 1), 0);
    runner_config *config = parse_file("model = ../m/x.gguf\nfile = ~/text\nplugin-path = "
                                       "a : /b : ~/c\n",
                                       "run @");
    char path[128];
    snprintf(path, sizeof path, "%s/../m/x.gguf", folder);
    assert_string_equal(runner_config_get_string(config, "model"), path);
    assert_string_equal(runner_config_get_string(config, "file"), "/home/someone/text");
    snprintf(path, sizeof path, "%s/a", folder);
    assert_string_equal(runner_config_get_string_at(config, "plugin-path", 0), path);
    assert_string_equal(runner_config_get_string_at(config, "plugin-path", 1), "/b");
    assert_string_equal(runner_config_get_string_at(config, "plugin-path", 2), "/home/someone/c");
    assert_checked(config);

    /* a file named without a folder lies in this one */
    char before[512];
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(folder), 0);
    config = parse_ok("run --config x.ini");
    assert_string_equal(runner_config_get_string(config, "model"), "./../m/x.gguf");
    assert_checked(config);
    assert_int_equal(chdir(before), 0);
}

static void test_wrong_questions(void **state) {
    (void)state;
    static const struct {
        const char *key;
        int how;
        const char *message;
    } rows[] = {
        {"ctx-sise", 0,
         "the program asked the configuration for 'ctx-sise', which is no key; "
         "please report this"},
        {"temp", 0,
         "the program asked the configuration for 'temp', which is not of the type "
         "asked for; please report this"},
        {"temp", 1,
         "the program asked the configuration for 'temp', which is not of the type "
         "asked for; please report this"},
        {"tokens", 2,
         "the program asked the configuration for 'tokens', which is not that long a "
         "list; please report this"},
        {"quiet", 0,
         "the program asked the configuration for 'quiet', which is not of the type "
         "asked for; please report this"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        runner_config *config = parse_ok("logits --tokens 5,6");
        assert_int_equal(runner_config_check(config, NULL), TDM_OK);
        if (rows[i].how == 0) assert_int_equal(runner_config_get_int(config, rows[i].key), 0);
        if (rows[i].how == 1)
            assert_string_equal(runner_config_get_string(config, rows[i].key), "");
        if (rows[i].how == 2) assert_int_equal(runner_config_get_int_at(config, rows[i].key, 2), 0);
        runner_config_get_float(config, "no such key"); /* the first one is what is reported */
        tdm_error err = {0};
        assert_int_equal(runner_config_check(config, &err), TDM_INTERNAL);
        assert_string_equal(err.message, rows[i].message);
        runner_config_destroy(config);
    }
}

static void test_located_failure(void **state) {
    (void)state;
    tdm_error err = {0};
    runner_config *config = parse_file("ctx-size = 77\n", "run @ -b 5");
    assert_int_equal(
        runner_config_fail(config, "batch-size", TDM_OUT_OF_RANGE, &err, "too %s", "small"),
        TDM_OUT_OF_RANGE);
    assert_string_equal(err.message, "-b 5: too small");
    char expected[128];
    snprintf(expected, sizeof expected, "%s/x.ini:1: ctx-size = 77: odd", folder);
    runner_config_fail(config, "ctx-size", TDM_OUT_OF_RANGE, &err, "odd");
    assert_string_equal(err.message, expected);
    runner_config_fail(config, "top-k", TDM_OUT_OF_RANGE, &err, "odd");
    assert_string_equal(err.message, "top-k = 40: odd");
    assert_checked(config);
}

static void test_device_choice(void **state) {
    (void)state;
    const runner_section *device;
    tdm_error err = {0};
    char expected[TDM_ERROR_MESSAGE_SIZE];
    /* the only one */
    runner_config *config = parse_file("[device a]\nplugin = cpu\nindex = 2\n", "run @");
    assert_int_equal(runner_config_pick_device(config, &device, &err), TDM_OK);
    assert_string_equal(runner_section_name(device), "a");
    assert_int_equal(runner_section_get_int(config, device, "index"), 2);
    assert_checked(config);
    /* by name */
    static const char two[] = "[device cpu0]\nplugin = cpu\n[device cpu1]\nplugin = cpu\n";
    config = parse_file(two, "run @ --device cpu1");
    assert_int_equal(runner_config_pick_device(config, &device, &err), TDM_OK);
    assert_string_equal(runner_section_name(device), "cpu1");
    assert_checked(config);
    /* a name that only a plugin can know, and then does not */
    config = parse_ok("run @ -dev cpu2");
    assert_int_equal(runner_config_pick_device(config, &device, &err), TDM_OK);
    assert_null(device);
    static const char *const found[] = {"cpu", "vulkan0"};
    assert_int_equal(runner_config_device_unknown(config, found, 2, &err), TDM_NOT_FOUND);
    assert_string_equal(err.message, "-dev cpu2: no such device; there are 'cpu0', 'cpu1', 'cpu', "
                                     "'vulkan0'; did you mean 'cpu0'?");
    assert_checked(config);
    config = parse_ok("run -dev cpu2");
    runner_config_device_unknown(config, NULL, 0, &err);
    assert_string_equal(err.message, "-dev cpu2: no such device; no plugin found any: see `tandem "
                                     "devices`");
    assert_checked(config);
    /* several and none chosen */
    config = parse_ok("run @");
    assert_int_equal(runner_config_pick_device(config, &device, &err), TDM_INVALID_ARGUMENT);
    snprintf(expected, sizeof expected,
             "%s/x.ini: several devices and none chosen: add `device = NAME` before the first "
             "section or give --device NAME, one of 'cpu0', 'cpu1'",
             folder);
    assert_string_equal(err.message, expected);
    assert_checked(config);
    /* a group, by name and as the only one */
    static const char group[] = "[device cpu0]\nplugin = cpu\n[device cpu1]\nplugin = cpu\n"
                                "[group duo]\nmembers = cpu0, cpu1\nshare = 3, 1.5\n";
    config = parse_file(group, "run @ --device duo");
    assert_int_equal(runner_config_pick_device(config, &device, &err), TDM_UNSUPPORTED);
    snprintf(expected, sizeof expected,
             "--device duo: [group duo] (%s/x.ini:5) needs the plugin 'meta', which is not part of "
             "this build; run on one device: --device cpu0",
             folder);
    assert_string_equal(err.message, expected);
    const runner_section *duo = runner_config_group(config, 0);
    assert_int_equal(runner_config_n_groups(config), 1);
    assert_string_equal(runner_section_name(duo), "duo");
    assert_int_equal(runner_section_get_count(config, duo, "members"), 2);
    assert_string_equal(runner_section_get_string_at(config, duo, "members", 1), "cpu1");
    assert_int_equal(runner_section_get_count(config, duo, "share"), 2);
    assert_true(runner_section_get_float_at(config, duo, "share", 1) == 1.5);
    assert_string_equal(runner_section_get_string(config, duo, "split"), "tensor");
    assert_checked(config);
    config = parse_ok("run @");
    assert_int_equal(runner_config_pick_device(config, &device, &err), TDM_UNSUPPORTED);
    snprintf(
        expected, sizeof expected,
        "%s/x.ini:5: [group duo] needs the plugin 'meta', which is not part of this build; run "
        "on one device: --device cpu0",
        folder);
    assert_string_equal(err.message, expected);
    assert_checked(config);
}

/* Runs `tandem config` with those arguments; the text is to be freed. */
static char *config_print(const char *line) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    runner_config *config = parse_ok(line);
    tdm_error err = {0};
    if (runner_cmd_config(config, out, &err) != TDM_OK) fail_msg("%s", err.message);
    assert_int_equal(fclose(out), 0);
    runner_config_destroy(config);
    return text;
}

/* Drops what differs when the print is printed again: origins and comments. */
static void comments_strip(char *text) {
    char *to = text;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (line[0] == '#') continue;
        char *comment = NULL, *next = line;
        while ((next = strstr(next, " # ")) != NULL) comment = next++;
        if (comment != NULL) *comment = '\0';
        size_t len = strlen(line);
        while (len > 0 && line[len - 1] == ' ') len--;
        memmove(to, line, len);
        to += len;
        *to++ = '\n';
    }
    *to = '\0';
}

static void test_config_command(void **state) {
    (void)state;
    file_write("x.ini", "prompt = \" a # \\\"b\\\"\\n;c\\\\ \"\n"
                        "ctx-size = 77\nplugin-path = p:/q\n"
                        "device = d0\nthreads = 2\n"
                        "[model m]\nmodel = m.gguf\nseed = 9\n"
                        "[device d0]\nplugin = cpu\ncores = 0-1\n"
                        "[device d1]\nplugin = cpu\nthreads = 5\n"
                        "[group g]\nmembers = d0,d1\nshare = 60, 40\n");
    char *first = config_print("config @ -m m --top-k 4 -v");
    char expected[256];
    static const char *const lines[] = {
        "\nctx-size = 77                       # %s/x.ini:2\n",
        "\ntop-k = 4                           # flag --top-k\n",
        "\nverbose = yes                       # flag -v\n",
        "\nseed = 9                            # %s/x.ini:8\n",
        "\ntemp = 0.8                          # default\n",
        "\ncores = 0-1                         # %s/x.ini:11\n",
        "\nthreads = 5                         # %s/x.ini:14\n",
        "\nshare = 60, 40                      # %s/x.ini:17\n",
        "\n[device d0]\n",
        "\n[group g]\n",
        "\n# With the values of [model m].\n",
        "\nprompt = \" a # \\\"b\\\"\\n;c\\\\ \"        # %s/x.ini:1\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        const char *folder_at = strstr(lines[i], "%s");
        if (folder_at != NULL)
            snprintf(expected, sizeof expected, "%.*s%s%s", (int)(folder_at - lines[i]), lines[i],
                     folder, folder_at + 2);
        else
            snprintf(expected, sizeof expected, "%s", lines[i]);
        if (strstr(first, expected) == NULL) fail_msg("not printed: %s in\n%s", expected, first);
    }
    /* every key that may stand before a section is there */
    for (size_t i = 0; i < n_runner_keys; i++) {
        if ((runner_keys[i].sections & RUNNER_IN_DEFAULTS) == 0) continue;
        snprintf(expected, sizeof expected, "\n%s = ", runner_keys[i].name);
        assert_non_null(strstr(first, expected));
    }
    /* read back, it means the same */
    file_write("x.ini", first);
    char *second = config_print("config @");
    comments_strip(first);
    comments_strip(second);
    assert_string_equal(first, second);
    free(first);
    free(second);

    FILE *full = fopen("/dev/full", "w");
    if (full == NULL) {
        print_message("no /dev/full: writing to a full disk is not tested\n");
        return;
    }
    runner_config *config = parse_ok("config");
    tdm_error err = {0};
    assert_int_equal(runner_cmd_config(config, full, &err), TDM_IO);
    assert_string_equal(err.message, "cannot write the configuration: No space left on device");
    fclose(full);
    runner_config_destroy(config);
}

static void test_values(void **state) {
    (void)state;
    static const struct {
        const char *key, *text;
        bool is_valid;
        int64_t value;
    } rows[] = {
        {"reserve", "0", true, 0},         {"reserve", "1K", true, 1024},
        {"reserve", "3m", true, 3 << 20},  {"reserve", "7T", true, INT64_C(7) << 40},
        {"reserve", "1KB", false, 0},      {"reserve", "K", false, 0},
        {"reserve", "1.5G", false, 0},     {"reserve", "8388607T", true, INT64_C(8388607) << 40},
        {"reserve", "8388608T", false, 0}, {"seed", "+1", false, 0},
        {"seed", " 1", false, 0},          {"seed", "1 ", false, 0},
        {"seed", "007", true, 7},          {"seed", "-1", true, -1},
        {"seed", "-2", false, 0},          {"seed", "4294967295", true, 4294967295},
        {"seed", "4294967296", false, 0},  {"page-size", "1", true, 1},
        {"page-size", "4096", true, 4096}, {"page-size", "0", false, 0},
        {"page-size", "65", false, 0},     {"threads", "auto", true, 0},
        {"ctx-size", "auto", true, -1},    {"cores", "5", true, 5},
        {"cores", "0-4095", true, 0},      {"cores", "4096", false, 0},
        {"cores", "1-2+1", false, 0},      {"cores", "-1", false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        runner_value value;
        tdm_error err = {0};
        const runner_key *key = runner_key_find(rows[i].key, NULL);
        tdm_status status = runner_value_parse(key, rows[i].text, false, &value, &err);
        if ((status == TDM_OK) != rows[i].is_valid)
            fail_msg("%s = %s: %s", rows[i].key, rows[i].text, err.message);
        if (status == TDM_OK) assert_int_equal(value.items[0].i, rows[i].value);
        runner_value_clear(&value);
    }
    char text[] = "a\\nb\\\\n\\t\\q\\\"\\'\\";
    runner_text_unescape(text);
    assert_string_equal(text, "a\nb\\n\t\\q\"'\\");
}

static void test_words(void **state) {
    (void)state;
    assert_int_equal(runner_word_distance("", ""), 0);
    assert_int_equal(runner_word_distance("abc", "abc"), 0);
    assert_int_equal(runner_word_distance("abc", ""), 3);
    assert_int_equal(runner_word_distance("", "ab"), 2);
    assert_int_equal(runner_word_distance("kitten", "sitting"), 3);
    assert_int_equal(runner_word_distance("sise", "size"), 1);
    assert_int_equal(runner_word_distance("szie", "size"), 1);
    char longer[128];
    memset(longer, 'a', sizeof longer);
    longer[100] = '\0';
    assert_int_equal(runner_word_distance(longer, "a"), SIZE_MAX);
    static const char *const words[] = {"device", NULL, "group", "model"};
    assert_string_equal(runner_word_nearest("modle", words, 4), "model");
    assert_string_equal(runner_word_nearest("dev", words, 4), "device");
    assert_null(runner_word_nearest("xyz", words, 4));
    assert_null(runner_word_nearest("", words, 4));
    assert_null(runner_word_nearest("model", words, 0));
}

/* The table itself: unambiguous for every command, defaults that parse, help that fits. */
static void test_table(void **state) {
    (void)state;
    for (size_t i = 0; i < n_runner_keys; i++) {
        const runner_key *a = &runner_keys[i];
        assert_true(a->help[0] != '\0' && a->topic[0] != '\0');
        assert_true(a->sections != 0 || a->commands != 0);
        assert_int_equal(a->words != NULL, a->type == RUNNER_KEY_ENUM);
        assert_int_equal(a->value_name == NULL,
                         a->type == RUNNER_KEY_ENUM || a->type == RUNNER_KEY_BOOL);
        assert_int_equal(strspn(a->name, "abcdefghijklmnopqrstuvwxyz-"), strlen(a->name));
        if (a->rival != NULL) assert_string_equal(runner_key_find(a->rival, NULL)->rival, a->name);
        /* `tandem config` shows every key that a file may have before its sections */
        if ((a->sections & RUNNER_IN_DEFAULTS) != 0)
            assert_true((a->commands & RUNNER_COMMAND_CONFIG) != 0);
        runner_value value;
        assert_int_equal(runner_value_parse(a, a->fallback, false, &value, NULL), TDM_OK);
        runner_value_clear(&value);
        for (size_t j = 0; j < i; j++) {
            const runner_key *b = &runner_keys[j];
            bool overlap = (a->commands & b->commands) != 0 || (a->sections & b->sections) != 0;
            if (!overlap) continue;
            assert_string_not_equal(a->name, b->name);
            if (a->flag != NULL && b->flag != NULL && (a->commands & b->commands) != 0)
                assert_string_not_equal(a->flag, b->flag);
            if (a->alias != NULL) assert_string_not_equal(a->alias, b->name);
        }
    }
}

static void test_help(void **state) {
    (void)state;
    for (size_t c = 0; c <= n_runner_commands; c++) {
        const runner_command *command = c < n_runner_commands ? &runner_commands[c] : NULL;
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        assert_non_null(out);
        runner_help_print(out, command);
        assert_int_equal(fclose(out), 0);
        for (size_t i = 0; command != NULL && i < n_runner_keys; i++) {
            char name[64];
            bool is_bool = runner_keys[i].type == RUNNER_KEY_BOOL;
            snprintf(name, sizeof name, "--%s%s%s", is_bool ? "[no-]" : "", runner_keys[i].name,
                     is_bool ? "" : " ");
            bool is_used = (runner_keys[i].commands & command->bit) != 0;
            /* `output` belongs to two commands */
            if (is_used) assert_non_null(strstr(text, name));
        }
        for (size_t i = 0; command == NULL && i < n_runner_commands; i++)
            assert_non_null(strstr(text, runner_commands[i].summary));
        for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
            if (strlen(line) > 100) fail_msg("too long: %s", line);
        free(text);
    }
}

static char *source_read(const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", TANDEM_SOURCE_ROOT, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("cannot open %s", path);
    char *text = calloc(1, 1 << 18);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 18) - 1, file) > 0);
    fclose(file);
    return text;
}

/* docs/config.md has a row for each key of the table, with its flags, words and default. */
static void test_docs_agree(void **state) {
    (void)state;
    char *text = source_read("docs/config.md");
    size_t n_row = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (strncmp(line, "| `", 3) != 0) continue;
        assert_true(n_row < n_runner_keys);
        const runner_key *key = &runner_keys[n_row++]; /* the same order, too */
        char cell[96];
        snprintf(cell, sizeof cell, "| `%s` | ", key->name);
        if (strncmp(line, cell, strlen(cell)) != 0) fail_msg("no %s in: %s", cell, line);
        if (key->commands != 0)
            snprintf(cell, sizeof cell, "`--%s`", key->name);
        else
            snprintf(cell, sizeof cell, "| none |");
        if (strstr(line, cell) == NULL) fail_msg("no %s in: %s", cell, line);
        if (key->flag != NULL) {
            snprintf(cell, sizeof cell, "`-%s`", key->flag);
            if (strstr(line, cell) == NULL) fail_msg("no %s in: %s", cell, line);
        }
        if (key->alias != NULL) {
            snprintf(cell, sizeof cell, "`--%s`", key->alias);
            if (strstr(line, cell) == NULL) fail_msg("no %s in: %s", cell, line);
        }
        for (size_t i = 0; key->words != NULL && key->words[i] != NULL; i++) {
            snprintf(cell, sizeof cell, "`%s`", key->words[i]);
            if (strstr(line, cell) == NULL) fail_msg("no %s in: %s", cell, line);
        }
        if (key->fallback[0] != '\0')
            snprintf(cell, sizeof cell, "| `%s` |", key->fallback);
        else
            snprintf(cell, sizeof cell,
                     (key->traits & RUNNER_KEY_REQUIRED) != 0 ? "| required |" : "| none |");
        if (strstr(line, cell) == NULL) fail_msg("no %s in: %s", cell, line);
    }
    assert_int_equal(n_row, n_runner_keys);
    free(text);
}

/* The examples parse, and demo.ini shows every key that it says it shows, at its default. */
static void test_examples(void **state) {
    (void)state;
    static const char *const names[] = {"demo", "cpu"};
    for (size_t i = 0; i < 2; i++) {
        char line[512];
        snprintf(line, sizeof line, "run --config %s/conf/%s.ini", TANDEM_SOURCE_ROOT, names[i]);
        runner_config *config = parse_ok(line);
        const runner_section *device;
        assert_int_equal(runner_config_pick_device(config, &device, NULL), TDM_OK);
        assert_non_null(device);
        assert_string_equal(runner_section_name(device), "cpu0");
        assert_string_equal(runner_section_get_string(config, device, "plugin"), "cpu");
        assert_checked(config);
    }
    char *text = source_read("conf/demo.ini");
    for (size_t i = 0; i < n_runner_keys; i++) {
        const runner_key *key = &runner_keys[i];
        if ((key->sections & ~(unsigned)RUNNER_IN_GROUP) == 0) continue;
        char set[64], unset[128];
        snprintf(set, sizeof set, "\n%s = ", key->name);
        snprintf(unset, sizeof unset, "\n#%s =%s%s\n", key->name,
                 key->fallback[0] != '\0' ? " " : "", key->fallback);
        bool is_text = strcmp(key->name, "prompt") == 0 || strcmp(key->name, "file") == 0;
        if (is_text) snprintf(unset, sizeof unset, "\n#%s = ", key->name);
        if (strstr(text, set) == NULL && strstr(text, unset) == NULL)
            fail_msg("conf/demo.ini does not show '%s'", key->name);
    }
    free(text);
    text = source_read("conf/cpu.ini");
    for (size_t i = 0; i < n_runner_keys; i++) {
        char set[64];
        snprintf(set, sizeof set, "\n%s = ", runner_keys[i].name);
        if ((runner_keys[i].sections & (RUNNER_IN_GROUP | RUNNER_IN_DEVICE)) != 0 &&
            strstr(text, set) == NULL)
            fail_msg("conf/cpu.ini does not show '%s'", runner_keys[i].name);
    }
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_in_values),
        cmocka_unit_test(test_levels),
        cmocka_unit_test(test_model_choice),
        cmocka_unit_test(test_rivals),
        cmocka_unit_test(test_line_forms),
        cmocka_unit_test(test_quotes),
        cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_unreadable_files),
        cmocka_unit_test(test_damaged_files),
        cmocka_unit_test(test_flags),
        cmocka_unit_test(test_bool_flags),
        cmocka_unit_test(test_bad_flags),
        cmocka_unit_test(test_bench_lists),
        cmocka_unit_test(test_paths_follow_the_file),
        cmocka_unit_test(test_wrong_questions),
        cmocka_unit_test(test_located_failure),
        cmocka_unit_test(test_device_choice),
        cmocka_unit_test(test_config_command),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_docs_agree),
        cmocka_unit_test(test_examples),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
