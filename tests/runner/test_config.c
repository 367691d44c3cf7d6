/* SPDX-License-Identifier: MIT
 *
 * test_config.c: levels and origins of values, getters, sections, and `tandem config`. The form
 * of files is test_config_file.c's, that of command lines test_options.c's.
 */
#include "config_fixture.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    assert_int_equal(runner_section_get_size(config, NULL, "reserve"), 0);
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

/* A configuration for each model of a file: the same flags and defaults, another section. */
static void test_copies(void **state) {
    (void)state;
    runner_config *config = parse_file("seed = 1\ntop-k = 3\n"
                                       "[model a]\nmodel = a.gguf\nseed = 5\n"
                                       "[model b]\nmodel = b.gguf\ntop-k = 7\n",
                                       "serve @ -m a --min-p 0.25");
    assert_int_equal(runner_config_n_models(config), 2);
    assert_string_equal(runner_section_name(runner_config_model_at(config, 1)), "b");
    assert_null(runner_config_model_at(config, 2));
    runner_config *copies[2];
    assert_int_equal(runner_config_copy(config, "a", &copies[0], NULL), TDM_OK);
    assert_int_equal(runner_config_copy(config, "b", &copies[1], NULL), TDM_OK);
    for (int i = 0; i < 2; i++) {
        const char *path = runner_config_get_string(copies[i], "model");
        assert_string_equal(strrchr(path, '/'), i == 0 ? "/a.gguf" : "/b.gguf");
        assert_int_equal(runner_config_get_int(copies[i], "seed"), i == 0 ? 5 : 1);
        assert_int_equal(runner_config_get_int(copies[i], "top-k"), i == 0 ? 3 : 7);
        assert_true(runner_config_get_float(copies[i], "min-p") == 0.25);
        assert_checked(copies[i]);
    }
    tdm_error err;
    assert_int_equal(runner_config_copy(config, "c", &copies[0], &err), TDM_NOT_FOUND);
    assert_null(copies[0]);
    assert_string_equal(err.message, "the file has no section [model c]");
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

static void test_bad_calls(void **state) {
    (void)state;
    static const struct {
        const char *key;
        int how;
        const char *message;
    } rows[] = {
        {"ctx-sise", 0, "'ctx-sise' of the configuration, which is not a key"},
        {"temp", 0, "'temp' of the configuration, which is of another type"},
        {"temp", 1, "'temp' of the configuration, which is of another type"},
        {"tokens", 2, "'tokens' of the configuration, which is a shorter list"},
        {"quiet", 0, "'quiet' of the configuration, which is of another type"},
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
        char expected[160];
        snprintf(expected, sizeof expected, "the program read the key %s; please report this",
                 rows[i].message);
        assert_string_equal(err.message, expected);
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
    /* a name that could be a plugin's key, and is not */
    config = parse_ok("run @ -dev cpu2");
    assert_int_equal(runner_config_pick_device(config, &device, &err), TDM_OK);
    assert_null(device);
    static const char *const found[] = {"cpu", "vulkan0"};
    assert_int_equal(runner_config_device_unknown(config, "device", "cpu2", found, 2, &err),
                     TDM_NOT_FOUND);
    assert_string_equal(err.message,
                        "-dev cpu2: no device 'cpu2'; there are 'cpu0', 'cpu1', 'cpu', "
                        "'vulkan0'; did you mean 'cpu0'?");
    assert_checked(config);
    config = parse_ok("run -dev cpu2");
    runner_config_device_unknown(config, "device", "cpu2", NULL, 0, &err);
    assert_string_equal(err.message,
                        "-dev cpu2: no device 'cpu2'; no plugin found any: see `tandem "
                        "devices`");
    assert_checked(config);
    /* several and none chosen: they are compared */
    config = parse_ok("run @");
    assert_int_equal(runner_config_pick_device(config, &device, &err), TDM_OK);
    assert_null(device);
    assert_checked(config);
}

static void test_device_options(void **state) {
    (void)state;
    tdm_option options[8];
    static const char text[] = "isa = plain\nthreads = auto\ncores =\n"
                               "[device a]\nplugin = cpu\ncores = 0-1\nreserve = 1G\n"
                               "[device b]\nplugin = example\nmemory = 2K\n";
    runner_config *config = parse_file(text, "run @ --path reference");
    const runner_section *a = runner_config_device(config, 0), *b = runner_config_device(config, 1);
    assert_int_equal(runner_section_get_options(config, a, "cpu", false, options, 8), 3);
    assert_string_equal(options[0].key, "cores");
    assert_string_equal(options[0].value, "0-1");
    assert_string_equal(options[1].key, "isa");
    assert_string_equal(options[1].value, "plain");
    assert_string_equal(options[2].key, "path");
    assert_string_equal(options[2].value, "reference");
    /* values outside sections count for devices whose plugin has the key; a size is in bytes */
    assert_int_equal(runner_section_get_options(config, b, "example", false, options, 8), 1);
    assert_string_equal(options[0].key, "memory");
    assert_string_equal(options[0].value, "2048");
    assert_int_equal(runner_config_check_taken(config, NULL), TDM_OK);
    /* a device without a section; and a buffer too short for the text */
    options[1].key = "untouched";
    assert_int_equal(runner_section_get_options(config, NULL, "cpu", false, options, 1), 2);
    assert_string_equal(options[0].key, "isa");
    assert_string_equal(options[1].key, "untouched");
    assert_checked(config);
    config = parse_ok("bench -t 1,2 --isa avx2");
    assert_int_equal(runner_section_get_options(config, NULL, "cpu", false, options, 8), 1);
    assert_string_equal(options[0].key, "isa");
    assert_checked(config);

    char *joined;
    tdm_error err = {0};
    config = parse_file("plugin-path = a:/b\n", "run @");
    char expected[128];
    snprintf(expected, sizeof expected, "%s/a:/b", folder);
    assert_int_equal(runner_config_join_paths(config, "plugin-path", &joined, &err), TDM_OK);
    assert_string_equal(joined, expected);
    free(joined);
    assert_checked(config);
    config = parse_ok("devices --plugin-path build");
    assert_int_equal(runner_config_join_paths(config, "plugin-path", &joined, &err), TDM_OK);
    assert_int_equal(joined[0], '/');
    assert_string_equal(joined + strlen(joined) - 6, "/build");
    free(joined);
    assert_checked(config);
    config = parse_ok("run");
    assert_int_equal(runner_config_join_paths(config, "plugin-path", &joined, &err), TDM_OK);
    assert_null(joined);
    assert_int_equal(runner_config_join_paths(config, "model", &joined, &err), TDM_INTERNAL);
    runner_config_destroy(config);
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

/* Removes comments and origins: they differ when a printed configuration is read and printed. */
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
                        "ctx-size = 77\nplugin-path = /tmp:/\n"
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
    runner_config *known = parse_ok("config");
    const runner_key_list *keys = runner_config_keys(known);
    size_t n_key = keys->n;
    runner_config_load_plugins(known, false);
    assert_int_equal(keys->n, n_key + 12); /* five of the CPU's, seven of the group's */
    for (size_t i = 0; i < keys->n; i++) {
        if ((keys->items[i]->sections & RUNNER_IN_DEFAULTS) == 0) continue;
        snprintf(expected, sizeof expected, "\n%s = ", keys->items[i]->name);
        assert_non_null(strstr(first, expected));
    }
    runner_config_destroy(known);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_built_in_values), cmocka_unit_test(test_levels),
        cmocka_unit_test(test_model_choice),    cmocka_unit_test(test_copies),
        cmocka_unit_test(test_rivals),          cmocka_unit_test(test_paths_follow_the_file),
        cmocka_unit_test(test_bad_calls),       cmocka_unit_test(test_located_failure),
        cmocka_unit_test(test_device_choice),   cmocka_unit_test(test_device_options),
        cmocka_unit_test(test_config_command),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
