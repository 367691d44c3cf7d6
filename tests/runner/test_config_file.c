/* SPDX-License-Identifier: MIT
 *
 * test_config_file.c: what an INI file may contain, and the message for each kind of error.
 */
#include "config_fixture.h"
#include "tests/support/random.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
               "@:1: text after the closing quote; a quote inside is written \\\"");
    file_fails("prompt = \"a\"# b\n",
               "@:1: text after the closing quote; a quote inside is written \\\"");
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
                             "to 268435456, or auto"},
        {"ctx-size = atuo\n", "@:1: bad value 'atuo' for 'ctx-size': expected a whole number from "
                              "0 to 268435456, or auto; did you mean 'auto'?"},
        {"ctx-size =\n", "@:1: bad value '' for 'ctx-size': expected a whole number from 0 to "
                         "268435456, or auto"},
        {"batch-size = 0\n", "@:1: bad value '0' for 'batch-size': expected a whole number from 1 "
                             "to 2147483647"},
        {"seed = 99999999999999999999\n", "@:1: bad value '99999999999999999999' for 'seed': "
                                          "expected a whole number from -1 to 4294967295"},
        {"page-size = 48\n",
         "@:1: bad value '48' for 'page-size': expected a power of two from 1 to 1024"},
        {"temp = nan\n", "@:1: bad value 'nan' for 'temp': expected a number from 0 to 1000"},
        {"temp = 1e999\n", "@:1: bad value '1e999' for 'temp': expected a number from 0 to 1000"},
        {"temp = 0x1\n", "@:1: bad value '0x1' for 'temp': expected a number from 0 to 1000"},
        {"top-p = 1.5\n", "@:1: bad value '1.5' for 'top-p': expected a number from 0 to 1"},
        {"quiet = yse\n",
         "@:1: bad value 'yse' for 'quiet': expected yes or no; did you mean 'yes'?"},
        {"quiet = auto\n", "@:1: bad value 'auto' for 'quiet': expected yes or no"},
        {"quiet = \"a\\nb\\t\"\n", "@:1: bad value 'a?b?' for 'quiet': expected yes or no"},
        {"cache-type-k = q8\n",
         "@:1: bad value 'q8' for 'cache-type-k': expected one of f32, f16, bf16, q8_0, q5_1, "
         "q5_0, q4_1, q4_0, iq4_nl; did you mean 'q8_0'?"},
        {"isa = avx-512\n", "@:1: bad value 'avx-512' for 'isa': expected one of auto, plain, "
                            "avx2, avx512, amx, neon; did you mean 'avx512'?"},
        {"reserve = 5X\n", "@:1: bad value '5X' for 'reserve': expected bytes, or a number with K, "
                           "M, G or T (512M)"},
        {"reserve = 9000000000T\n", "@:1: bad value '9000000000T' for 'reserve': expected bytes, "
                                    "or a number with K, M, G or T (512M)"},
        {"reserve = -1\n", "@:1: bad value '-1' for 'reserve': expected bytes, or a number with K, "
                           "M, G or T (512M)"},
        {"cores = 3-1\n",
         "@:1: bad value '3-1' for 'cores': expected numbers from 0 to 1023 such as "
         "0-3,5, none of them twice"},
        {"cores = 0-3,2\n", "@:1: bad value '0-3,2' for 'cores': expected numbers from 0 to 1023 "
                            "such as 0-3,5, none of them twice"},
        {"cores = 0-9999999999\n", "@:1: bad value '0-9999999999' for 'cores': expected numbers "
                                   "from 0 to 1023 such as 0-3,5, none of them twice"},
        {"cores = 1,,2\n",
         "@:1: bad value '1,,2' for 'cores': expected numbers from 0 to 1023 such "
         "as 0-3,5, none of them twice"},
        {"[device d]\nplugin = example\nmemory = x\n",
         "@:3: bad value 'x' for 'memory': expected bytes, or a number with K, M, G or T (512M)"},
        {"[device d]\nplugin = example\nmemroy = 1K\n",
         "@:3: unknown key 'memroy'; did you mean 'memory'?"},
        {"[device d]\nplugin = example\nthreads = 1\n",
         "@:3: 'threads' is an option of the plugin 'cpu', not of 'example'"},
        {"[device d]\nmemory = 1K\nplugin = example\nmemory = 2K\n",
         "@:4: 'memory' was already given on line 2"},
        {"[group g]\nmembers = a\nthreads = 1\n",
         "@:3: 'threads' does not belong in [group g]; it may stand in [*], [model NAME], [device "
         "NAME]"},
        {"[device d]\nplugin = cpu\ntimeout = 1\n",
         "@:3: 'timeout' does not belong in [device d]; it may stand in [*], [model NAME], [group "
         "NAME]"},
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
        {"[device a b]\n", "@:1: bad section name 'a b': at most 31 letters, digits, '_', '.' and "
                           "'-', and not 'auto'"},
        {"[device abcdefghijklmnopqrstuvwxyz012345]\n",
         "@:1: bad section name 'abcdefghijklmnopqrstuvwxyz012345': at most 31 letters, digits, "
         "'_', "
         "'.' and '-', and not 'auto'"},
        {"[device auto]\n", "@:1: bad section name 'auto': at most 31 letters, digits, '_', '.' "
                            "and '-', and not 'auto'"},
        {"[device a;b]\n", "@:1: bad section name 'a;b': at most 31 letters, digits, '_', '.' and "
                           "'-', and not 'auto'"},
        {"[device a\nseed = 1\n", "@:1: the section heading '[device a' has no ']'"},
        {"[device a] plugin = cpu\n",
         "@:1: text after the section heading '[device a]'; keys go on lines of their own"},
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
        {"[group g]\n", "@:1: [group g] needs 'members = A, B, ...': devices that work together "
                        "as one: sections [device NAME] or [group NAME], or names from `tandem "
                        "devices`; up to 64"},
        {"[group g]\nmembers = x, auto\n",
         "@:2: members of [group g]: 'auto' is not a device; name the members"},
        {"[group g]\nmembers = x, g\n",
         "@:2: [group g] has [group g] for a member, which has it for a member too, directly or "
         "through others; take it out of one of them"},
        {"[group g]\nmembers = h\n[group h]\nmembers = i, x\n[group i]\nmembers = g\n",
         "@:6: [group i] has [group g] for a member, which has it for a member too, directly or "
         "through others; take it out of one of them"},
        {"[device a]\nplugin = cpu\n[group g]\nmembers = a, a\n",
         "@:4: bad value 'a, a' for 'members': expected names separated by ',', none of them "
         "twice"},
        {"[device a]\nplugin = cpu\n[group g]\nmembers = a\nshare = 1, 2\n",
         "@:5: 'share' has 2 numbers for the 1 member of [group g]; give one for each, or auto"},
        {"[group g]\nshare = 0, 0\n", "@:2: bad value '0, 0' for 'share': expected numbers not "
                                      "below 0 separated by ',', not all 0, or auto"},
        {"[group g]\nshare = 1, -1\n", "@:2: bad value '1, -1' for 'share': expected numbers not "
                                       "below 0 separated by ',', not all 0, or auto"},
        {"seed = 1\x01\n", "@:1: byte 0x01: this is not a text file"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        file_fails(rows[i].text, rows[i].message);
    /* a name that inih would truncate, so that two sections would have one name */
    char text[256];
    snprintf(text, sizeof text, "[device %060d]\n", 1);
    file_write("x.ini", text);
    tdm_error err = {0};
    tdm_status status;
    runner_config *config = parse("run @", &status, &err);
    assert_int_equal(status, TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "is too long; a name has at most 31 letters"));
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
    parse_fails("run @", 1, "@:2: byte 0x00: this is not a text file");

    size_t n = ((size_t)1 << 20) + 1;
    char *big = malloc(n);
    assert_non_null(big);
    memset(big, '\n', n);
    file_write_bytes("x.ini", big, n);
    parse_fails("run @", 1, "@: larger than 1024 KiB; this is not a configuration file");
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
    uint64_t seed = test_seed("config_file", 20);
    size_t n_ok = 0, n_bad = 0;
    for (size_t i = 0; i < 3 * sizeof text; i++) {
        char copy[sizeof text];
        memcpy(copy, text, sizeof text);
        size_t n = sizeof text - 1;
        if (i < n) {
            n = i;
        } else {
            const uint64_t word = random_u64(&seed);
            copy[(word >> 8) % n] = (char)(word >> 56);
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_line_forms),       cmocka_unit_test(test_quotes),
        cmocka_unit_test(test_long_lines),       cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_unreadable_files), cmocka_unit_test(test_damaged_files),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
