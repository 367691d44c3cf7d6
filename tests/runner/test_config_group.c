/* SPDX-License-Identifier: MIT
 *
 * test_config_group.c: groups of devices in files and on the command line, and the options that
 * their plugin receives.
 */
#include <stdlib.h>
#include <string.h>

#include "config_fixture.h"
#include "runner/config/share_file.h"

static const char duo_text[] = "reserve = 1K\n"
                               "[device cpu0]\nplugin = cpu\nreserve = 2M\n"
                               "[device cpu1]\nplugin = cpu\n"
                               "[group duo]\nmembers = cpu0, cpu1\nshare = 3, 1.5\n";

/* The value of an option, or NULL. */
static const char *option_find(const runner_group_options *options, const char *key) {
    const char *value = NULL;
    for (int32_t i = 0; i < options->n; i++) {
        if (strcmp(options->items[i].key, key) != 0) continue;
        assert_null(value); /* given once */
        value = options->items[i].value;
    }
    return value;
}

/* The options of a group. Values point into a static text, until the next call. */
static runner_group_options options_get(runner_config *config, const runner_section *group,
                                        bool is_main) {
    static runner_group_options options;
    tdm_error err = {0};
    if (runner_section_get_group_options(config, group, is_main, &options, &err) != TDM_OK)
        fail_msg("%s", err.message);
    return options;
}

static const runner_section *picked(runner_config *config) {
    const runner_section *section = NULL;
    tdm_error err = {0};
    if (runner_config_pick_device(config, &section, &err) != TDM_OK) fail_msg("%s", err.message);
    return section;
}

static void test_section(void **state) {
    (void)state;
    static const char *const lines[] = {"run @ --device duo", "run @"};
    for (size_t i = 0; i < 2; i++) { /* by name and as the only one */
        runner_config *config = parse_file(duo_text, lines[i]);
        const runner_section *duo = picked(config);
        assert_non_null(duo);
        assert_string_equal(runner_section_name(duo), "duo");
        assert_true(runner_section_is_group(duo));
        assert_false(runner_section_is_group(runner_config_find_name(config, "cpu0")));
        assert_true(runner_section_has_member(duo, "cpu1"));
        assert_false(runner_section_has_member(duo, "cpu"));
        assert_false(runner_section_is_undivided(config, duo, true));
        assert_int_equal(runner_section_get_count(config, duo, "members"), 2);
        static const char *const expected[][2] = {
            {"members", "cpu0,cpu1"},
            {"share", "3,1.5"},
            {"split", "tensor"},
            {"reserve", "2097152,1024"},
        };
        static runner_group_options options;
        tdm_error err = {0};
        assert_int_equal(runner_section_get_group_options(config, duo, true, &options, &err),
                         TDM_OK);
        for (size_t k = 0; k < sizeof expected / sizeof expected[0]; k++)
            assert_string_equal(option_find(&options, expected[k][0]), expected[k][1]);
        assert_int_equal(options.n, sizeof expected / sizeof expected[0]);
        assert_checked(config);
    }
}

/* Flags and values outside sections are for the group that a command runs on. */
static void test_levels(void **state) {
    (void)state;
    runner_config *config =
        parse_file("share = 5, 1\ncheck = replicas\ndevice = outer\n"
                   "[device a]\nplugin = cpu\n[device b]\nplugin = cpu\n[device c]\nplugin = cpu\n"
                   "[group inner]\nmembers = a, b\nreduce-type = f16\n"
                   "[group outer]\nmembers = inner, c\nattention = sequence\nreduce-type = bf16\n",
                   "run @ --timeout 5 -sm layer --reduce-type q8_0");
    const runner_section *outer = picked(config);
    assert_string_equal(runner_section_name(outer), "outer");
    runner_group_options options = options_get(config, outer, true);
    assert_string_equal(option_find(&options, "members"), "inner,c");
    assert_string_equal(option_find(&options, "share"), "5,1");
    assert_string_equal(option_find(&options, "check"), "replicas");
    assert_string_equal(option_find(&options, "attention"), "sequence");
    assert_string_equal(option_find(&options, "reduce-type"), "q8_0");
    assert_string_equal(option_find(&options, "split"), "layer");
    assert_string_equal(option_find(&options, "timeout"), "5");
    assert_null(option_find(&options, "reserve"));
    options = options_get(config, runner_config_find_name(config, "inner"), false);
    assert_string_equal(option_find(&options, "share"), "auto");
    assert_null(option_find(&options, "check")); /* the plugin's default */
    assert_string_equal(option_find(&options, "reduce-type"), "f16");
    assert_string_equal(option_find(&options, "split"), "tensor");
    assert_null(option_find(&options, "timeout"));
    assert_checked(config);
    /* a group inside another is not selected by default: only outer is on its own */
    config = parse_file("[device a]\nplugin = cpu\n[group i]\nmembers = a\n"
                        "[group o]\nmembers = i, x\nsplit = none\n",
                        "run @");
    assert_string_equal(runner_section_name(picked(config)), "o");
    assert_true(runner_section_is_undivided(config, picked(config), true));
    assert_false(runner_section_is_undivided(config, runner_config_find_name(config, "i"), true));
    assert_checked(config);
}

/* `tandem config` prints a file with the same meaning: flags about the group that runs appear in
 * that group and in no other. */
static void test_config_command(void **state) {
    (void)state;
    file_write("x.ini", "[device a]\nplugin = cpu\n[device b]\nplugin = cpu\n"
                        "[group i]\nmembers = a, x, y\ncheck = replicas\n"
                        "[group o]\nmembers = i, b\nshare = 1, 2\n");
    runner_config *config = parse_ok("config @ -ts 3,1 -sm layer");
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    tdm_error err = {0};
    assert_int_equal(runner_cmd_config(config, out, &err), TDM_OK);
    assert_int_equal(fclose(out), 0);
    assert_checked(config);
    const char *inner = strstr(text, "\n[group i]\n"), *outer = strstr(text, "\n[group o]\n");
    assert_non_null(inner);
    assert_true(outer > inner);
    const char *share = strstr(inner, "\n#share = auto  ");
    assert_true(share != NULL && share < outer);
    assert_non_null(strstr(outer, "\n#share = 3,1  "));
    assert_non_null(strstr(outer, "\n#split = layer "));
    file_write("x.ini", text);
    free(text);
    config = parse_ok("run @");
    runner_group_options options = options_get(config, picked(config), true);
    assert_string_equal(option_find(&options, "share"), "3,1");
    assert_string_equal(option_find(&options, "split"), "layer");
    options = options_get(config, runner_config_find_name(config, "i"), false);
    assert_string_equal(option_find(&options, "share"), "auto");
    assert_string_equal(option_find(&options, "split"), "tensor");
    assert_string_equal(option_find(&options, "check"), "replicas");
    assert_checked(config);
}

/* The same for what a printed section cannot repeat: a share of [*] that has too many numbers for
 * the group, names that need quotes, values of [*] that only the CPU's plugin takes. */
static void test_config_command_odd(void **state) {
    (void)state;
    file_write("x.ini", "share = 1, 1\nthreads = 3\n[device x]\nplugin = other\n"
                        "[group odd]\nmembers = \"a # \\\"b\\n\"\n");
    for (int turn = 0; turn < 3; turn++) {
        runner_config *config = parse_ok("config @");
        const runner_section *group = picked(config);
        assert_string_equal(runner_section_name(group), "odd");
        assert_int_equal(runner_section_get_count(config, group, "members"), 1);
        assert_string_equal(runner_section_get_string_at(config, group, "members", 0), "a # \"b\n");
        static runner_group_options options;
        tdm_error err = {0};
        assert_int_equal(runner_section_get_group_options(config, group, true, &options, &err),
                         TDM_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "2 numbers for the 1 member of the group 'odd'"));
        tdm_option told[8];
        const runner_section *device = runner_config_find_name(config, "x");
        assert_int_equal(runner_section_get_options(config, device, "other", false, told, 8), 0);
        assert_int_equal(runner_config_get_int(config, "threads"), 3);
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        assert_non_null(out);
        assert_int_equal(runner_cmd_config(config, out, &err), TDM_OK);
        assert_int_equal(fclose(out), 0);
        assert_checked(config);
        file_write("x.ini", text);
        free(text);
    }
}

/* The text of x.ini; to be freed. */
static char *file_read(void) {
    char path[96], *text = calloc(1, 4096);
    snprintf(path, sizeof path, "%s/x.ini", folder);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    assert_non_null(text);
    assert_in_range(fread(text, 1, 4095, f), 1, 4094);
    fclose(f);
    return text;
}

/* Shares are written to the named section alone. They replace a share that is there already, in any
 * form that the reader accepts. */
static void test_share_file(void **state) {
    (void)state;
    static const char *const files[][2] = {
        {"[group g]\nmembers = a, b # c\n", "[group g]\nshare = 0.75, 0.25\nmembers = a, b # c\n"},
        {"\xEF\xBB\xBF[group g]\nmembers = a, b",
         "\xEF\xBB\xBF[group g]\nshare = 0.75, 0.25\nmembers = a, b"},
        {"\xEF\xBB\xBFshare = 1\n[group g]\nmembers = a, b",
         "\xEF\xBB\xBFshare = 1\n[group g]\nshare = 0.75, 0.25\nmembers = a, b"},
        {"[group g]\nmembers = a, b\n share : 1, 2 # c\n",
         "[group g]\nmembers = a, b\nshare = 0.75, 0.25\n"},
        {"share: 1,1\r\n[group h]\r\nmembers = c, d\r\nshare = 1, 1\r\n"
         "[ group\tg ] # x\r\nmembers = a, b\r\ntensor-split=3/1\r\n",
         "share: 1,1\r\n[group h]\r\nmembers = c, d\r\nshare = 1, 1\r\n"
         "[ group\tg ] # x\r\nmembers = a, b\r\nshare = 0.75, 0.25\n"},
    };
    static const double shares[] = {0.75, 0.25};
    char path[96];
    snprintf(path, sizeof path, "%s/x.ini", folder);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        assert_checked(parse_file(files[i][0], "run @"));
        tdm_error err = {0};
        if (runner_share_file_write(path, "g", shares, 2, &err) != TDM_OK)
            fail_msg("file %zu: %s", i, err.message);
        char *text = file_read();
        assert_string_equal(text, files[i][1]);
        free(text);
        runner_config *config = parse_ok("run @");
        const runner_section *group = runner_config_find_name(config, "g");
        assert_int_equal(runner_section_get_count(config, group, "share"), 2);
        assert_checked(config);
        assert_int_equal(runner_share_file_write(path, "i", shares, 2, &err), TDM_NOT_FOUND);
    }
}

/* Several names on the command line or behind `device`. */
static void test_lists(void **state) {
    (void)state;
    static const char *const lines[] = {"run --device cpu0,gpu0 -ts 3,1",
                                        "run -dev cpu0/gpu0 --tensor-split 3/1",
                                        "bench -dev x,cpu0/gpu0 -ts 3/1"};
    for (size_t i = 0; i < 3; i++) {
        runner_config *config = parse_ok(lines[i]);
        const runner_section *group = NULL, *again = NULL;
        tdm_error err = {0};
        const char *name = runner_config_get_string_at(config, "device", i == 2);
        assert_int_equal(runner_config_find_device(config, name, &group, &err), TDM_OK);
        assert_string_equal(runner_section_name(group), "cpu0+gpu0");
        assert_int_equal(runner_config_find_device(config, name, &again, &err), TDM_OK);
        assert_ptr_equal(group, again); /* made once */
        runner_group_options options = options_get(config, group, true);
        assert_string_equal(option_find(&options, "members"), "cpu0,gpu0");
        assert_string_equal(option_find(&options, "share"), "3,1");
        assert_checked(config);
    }
    /* in a file, with blanks; its sections are members like any other */
    runner_config *config = parse_file(
        "device = a, b\n[device a]\nplugin = cpu\nreserve = 7\n[group g]\nmembers = a\n", "run @");
    const runner_section *group = picked(config);
    assert_string_equal(runner_section_name(group), "a+b");
    runner_group_options options = options_get(config, group, true);
    assert_string_equal(option_find(&options, "reserve"), "7,0");
    assert_string_equal(option_find(&options, "share"), "auto");
    assert_checked(config);
}

static void choice_fails(const char *line, const char *message) {
    char expected[TDM_ERROR_MESSAGE_SIZE] = "";
    const char *at = strchr(message, '@');
    snprintf(expected, sizeof expected, "%.*s%s%s", (int)(at != NULL ? at - message : 0), message,
             at != NULL ? folder : "", at != NULL ? at + 1 : message);
    runner_config *config = parse_ok(line);
    const runner_section *group = NULL;
    static runner_group_options options;
    tdm_error err = {0};
    tdm_status status = runner_config_pick_device(config, &group, &err);
    if (status == TDM_OK)
        status = runner_section_get_group_options(config, group, true, &options, &err);
    assert_int_not_equal(status, TDM_OK);
    assert_string_equal(err.message, expected);
    assert_checked(config);
}

static void test_mistakes(void **state) {
    (void)state;
    file_write("x.ini", duo_text);
    choice_fails("run --device a,b,a", "--device a,b,a: bad value 'a,b,a' for 'device': expected "
                                       "names separated by ',', none of them twice");
    choice_fails("run --device ,", "--device ,: no names");
    choice_fails("run --device a,,b", "--device a,,b: bad value 'a,,b' for 'device': expected "
                                      "names separated by ',', none of them twice");
    choice_fails("run --device auto,b",
                 "--device auto,b: 'auto' stands alone, or names the devices itself");
    choice_fails("run --device a,b -ts 1,2,3", "-ts 1,2,3: 3 numbers for the 2 members of the "
                                               "group 'a+b'; give one for each, or auto");
    choice_fails(
        "run @ -ts 1",
        "-ts 1: 1 number for the 2 members of the group 'duo'; give one for each, or auto");
    file_write("x.ini", "[group g]\nmembers = a\n[group h]\nmembers = b\n");
    choice_fails("run @", "@/x.ini: several groups and none chosen: add `device = NAME` before the "
                          "first section or give --device NAME, one of 'g', 'h'");
    /* one that is no section and that no plugin has */
    runner_config *config = parse_file("[device cpu1]\nplugin = cpu\n"
                                       "[group g]\nmembers = cpu1, gup0\n",
                                       "run @");
    static const char *const found[] = {"cpu0", "gpu0"};
    char expected[TDM_ERROR_MESSAGE_SIZE];
    tdm_error err = {0};
    assert_int_equal(runner_config_member_unknown(config, picked(config), "gup0", found, 2, &err),
                     TDM_NOT_FOUND);
    snprintf(expected, sizeof expected,
             "%s/x.ini:4: members of [group g]: no device 'gup0'; there are 'cpu1', 'g', "
             "'cpu0', 'gpu0'; did you mean 'gpu0'?",
             folder);
    assert_string_equal(err.message, expected);
    assert_checked(config);
    config = parse_ok("run --device cpu0,gup0");
    runner_config_member_unknown(config, picked(config), "gup0", found, 2, &err);
    assert_string_equal(err.message, "--device cpu0,gup0: no device 'gup0'; there are "
                                     "'cpu0', 'gpu0'; did you mean 'gpu0'?");
    assert_checked(config);
    /* more members than a group can have; groups too deep */
    char text[4096] = "[group g]\nmembers = m0";
    for (int i = 1; i <= 64; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), ",m%d", i);
    strcat(text, "\n");
    file_fails(text, "@:2: [group g] has 65 members; the most is 64; make groups of groups");
    text[0] = '\0';
    for (int i = 0; i < 9; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "[group g%d]\nmembers = g%d\n", i,
                 i + 1);
    file_fails(text, "@:16: [group g7]: groups inside one another, more than 8 deep");
}

/* The options of the largest group fit in the array that its plugin receives. */
static void test_large(void **state) {
    (void)state;
    char text[8192] = "device = g\nreserve = 100G\nshare = 0.123456789";
    for (int i = 1; i < 64; i++) strcat(text, ",0.123456789");
    strcat(text, "\n[group g]\nmembers = ");
    for (int i = 0; i < 64; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "%sa-name-that-is-as-long-as-they-are-%05d", i > 0 ? "," : "", i);
    strcat(text, "\n");
    runner_config *config = parse_file(text, "run @");
    runner_group_options options = options_get(config, picked(config), true);
    assert_int_equal(strlen(option_find(&options, "members")), 64 * 41 - 1);
    assert_int_equal(strlen(option_find(&options, "share")), 64 * 12 - 1);
    assert_checked(config);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_section),    cmocka_unit_test(test_levels),
        cmocka_unit_test(test_lists),      cmocka_unit_test(test_config_command),
        cmocka_unit_test(test_mistakes),   cmocka_unit_test(test_large),
        cmocka_unit_test(test_share_file), cmocka_unit_test(test_config_command_odd),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
