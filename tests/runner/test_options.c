/* SPDX-License-Identifier: MIT
 *
 * test_options.c: flags, values, the table of keys, and that help, documentation and examples agree
 * with it.
 */
#include "config_fixture.h"

#include <stdlib.h>
#include <string.h>

#include "runner/config/config_value.h"

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

    config = parse_ok("run --cores 0-2,7 --reserve 2g --plugin-path /tmp:/");
    assert_int_equal(runner_config_get_count(config, "cores"), 4);
    assert_int_equal(runner_config_get_int_at(config, "cores", 2), 2);
    assert_int_equal(runner_config_get_int_at(config, "cores", 3), 7);
    assert_int_equal(runner_section_get_size(config, NULL, "reserve"), UINT64_C(2) << 30);
    assert_int_equal(runner_config_get_count(config, "plugin-path"), 2);
    assert_string_equal(runner_config_get_string_at(config, "plugin-path", 0), "/tmp");
    assert_string_equal(runner_config_get_string_at(config, "plugin-path", 1), "/");
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
        {"run --ctx-sise=5", "unknown flag '--ctx-sise'; did you mean '--ctx-size'?"},
        {"run -ctx-size 5", "unknown flag '-ctx-size'; did you mean '--ctx-size'?"},
        {"run --zzz", "unknown flag '--zzz'; `tandem run --help` lists the flags"},
        {"run --c 5", "unknown flag '--c'; did you mean '--ctx-size'?"},
        {"run --no-temp", "unknown flag '--no-temp'; did you mean '--temp'?"},
        {"run --no-quiet=yes", "'--no-quiet=yes': --no-quiet takes no value"},
        {"run -m", "'-m' needs a value: -m PATH"},
        {"run --cache-type-k", "'--cache-type-k' needs a value: --cache-type-k WORD"},
        {"run -c x", "-c: bad value 'x' for 'ctx-size': expected a whole number from 0 to "
                     "268435456, or auto"},
        {"run --quiet=maybe", "--quiet: bad value 'maybe' for 'quiet': expected yes or no"},
        {"run --threads 0",
         "--threads: bad value '0' for 'threads': expected a whole number from 1 to 1024, or auto"},
        {"devices --ctx-size 5",
         "`tandem devices` does not take '--ctx-size'; `tandem devices --help` lists what it "
         "takes"},
        {"run --plugin cpu", "'--plugin' is not a flag: 'plugin' stands in [device NAME] of the "
                             "file given with --config"},
        {"run --members a,b", "'--members' is not a flag: 'members' stands in [group NAME] of the "
                              "file given with --config"},
        {"run -ts 0/0", "-ts: bad value '0/0' for 'share': expected numbers not below 0 separated "
                        "by ',', not all 0, or auto"},
        {"run -sm row", "-sm: bad value 'row' for 'split': expected one of tensor, layer, none"},
        {"run --timeout 0",
         "--timeout: bad value '0' for 'timeout': expected a whole number from 1 to 86400"},
        {"run hello", "'hello': `tandem run` takes only flags; give a prompt with -p, in "
                      "quotes"},
        {"convert-info", "`tandem convert-info` needs MODEL.gguf"},
        {"certify a b", "'b': `tandem certify` takes only PLUGIN.so"},
        {"devices x", "'x': `tandem devices` takes only flags"},
        {"run -c 268435457",
         "-c: bad value '268435457' for 'ctx-size': expected a whole number from "
         "0 to 268435456, or auto"},
        {"run -ub 65537", "-ub: bad value '65537' for 'ubatch-size': expected a whole number from "
                          "1 to 65536"},
        {"run --top-k 5,6", "--top-k: bad value '5,6' for 'top-k': expected a whole number from -1 "
                            "to 2147483647"},
        {"bench -p 1-9999999", "-p: 'n-prompt' has more than 1048576 values"},
        {"bench -p 4-2", "-p: bad value '4-2' for 'n-prompt': expected whole numbers from 0 to "
                         "268435456, separated by ',', or ranges (1-4)"},
        {"bench -p 4-8+0", "-p: bad value '4-8+0' for 'n-prompt': expected whole numbers from 0 to "
                           "268435456, separated by ',', or ranges (1-4)"},
        {"bench -p 0-8*2", "-p: bad value '0-8*2' for 'n-prompt': expected whole numbers from 0 to "
                           "268435456, separated by ',', or ranges (1-4)"},
        {"bench -p 1-8*1", "-p: bad value '1-8*1' for 'n-prompt': expected whole numbers from 0 to "
                           "268435456, separated by ',', or ranges (1-4)"},
        /* joined lists keep the rules of one list */
        {"run --lora a --lora b,a", "--lora: bad value 'a,b,a' for 'lora': expected files "
                                    "separated by ',', none of them twice"},
        {"bench -p 0-1000000 -p 0-99999", "-p: 'n-prompt' has more than 1048576 values"},
        {"bench --kv-rotate auto --kv-rotate yes",
         "--kv-rotate: bad value 'auto,yes' for 'kv-rotate': 'auto' stands alone"},
        {"bench --kv-rotate no --kv-rotate auto",
         "--kv-rotate: bad value 'no,auto' for 'kv-rotate': 'auto' stands alone"},
        {"bench -t 1 -t auto", "-t: bad value '1,auto' for 'threads': 'auto' stands alone"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        parse_fails(rows[i].line, 2, rows[i].message);
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

/* Our plugins that were built, in the order of docs/config.md. */
static const char *const plugins[] = {TANDEM_PLUGINS};
#define N_PLUGIN (sizeof plugins / sizeof plugins[0])

/* A configuration that has the keys of our plugins. */
static runner_config *plugins_load(void) {
    runner_config *config = parse_ok("run");
    tdm_error err = {0};
    for (size_t i = 0; i < N_PLUGIN; i++)
        if (runner_config_load_plugin(config, plugins[i], &err) != TDM_OK)
            fail_msg("%s", err.message);
    return config;
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
        {"page-size", "1024", true, 1024}, {"page-size", "0", false, 0},
        {"page-size", "65", false, 0},     {"threads", "auto", true, 0},
        {"ctx-size", "auto", true, -1},    {"cores", "5", true, 5},
        {"cores", "0-1023", true, 0},      {"cores", "1024", false, 0},
        {"cores", "1-2+1", false, 0},      {"cores", "-1", false, 0},
    };
    runner_config *config = plugins_load();
    const runner_key_list *keys = runner_config_keys(config);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        runner_value value;
        tdm_error err = {0};
        const runner_key *key = runner_key_find(keys, rows[i].key, NULL);
        assert_non_null(key);
        tdm_status status = runner_value_parse(key, rows[i].text, false, &value, &err);
        if ((status == TDM_OK) != rows[i].is_valid)
            fail_msg("%s = %s: %s", rows[i].key, rows[i].text, err.message);
        if (status == TDM_OK) assert_int_equal(value.items[0].i, rows[i].value);
        runner_value_clear(&value);
    }
    assert_checked(config);
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

static void test_llama_flags(void **state) {
    (void)state;
    runner_config *config = parse_ok("run -no-cnv -fa -ngl 0 -cmoe -ncmoe 3 -ctkd q8_0 -lv 1");
    assert_false(runner_config_is_auto(config, "conversation"));
    assert_false(runner_config_get_bool(config, "conversation"));
    assert_origin(config, NULL, "conversation", "flag -no-cnv");
    assert_true(runner_config_get_bool(config, "flash-attn"));
    assert_int_equal(runner_config_get_int(config, "gpu-layers"), 0);
    assert_true(runner_config_get_bool(config, "cpu-moe"));
    assert_int_equal(runner_config_get_int(config, "n-cpu-moe"), 3);
    assert_string_equal(runner_config_get_string(config, "cache-type-k-draft"), "q8_0");
    assert_true(runner_config_is_auto(config, "cache-type-v-draft"));
    assert_true(runner_config_is_quiet(config));
    assert_false(runner_config_is_verbose(config));
    assert_checked(config);
    config = parse_ok("run -ngl all");
    assert_int_equal(runner_config_get_int(config, "gpu-layers"), 2147483647);
    assert_checked(config);
    parse_fails(
        "run -ngl al", 2,
        "-ngl: bad value 'al' for 'gpu-layers': expected a whole number from -1 to 2147483647, "
        "auto or all; did you mean 'all'?");
    parse_fails(
        "run -c all", 2,
        "-c: bad value 'all' for 'ctx-size': expected a whole number from 0 to 268435456, or "
        "auto");
    config = parse_file("gpu-layers = 7\nmlock = yes\nverbosity = 4\n", "run @ -cnv -fa off");
    assert_true(runner_config_get_bool(config, "conversation"));
    assert_false(runner_config_get_bool(config, "flash-attn"));
    assert_int_equal(runner_config_get_int(config, "gpu-layers"), 7);
    assert_true(runner_config_get_bool(config, "mlock"));
    assert_true(runner_config_is_verbose(config));
    assert_false(runner_config_is_quiet(config));
    assert_checked(config);
    parse_fails("run -no-m", 2, "unknown flag '-no-m'; `tandem run --help` lists the flags");
}

/* Options of a plugin that is not ours are keys and flags as those of ours are. */
static void test_plugin_options(void **state) {
    (void)state;
    tdm_option options[8];
    tdm_error err = {0};
    runner_config *config = parse_ok("run");
    const size_t n_key = runner_config_keys(config)->n; /* without plugins */
    assert_checked(config);
    config = parse_ok("run --memory 3K -t 4 --no-quiet");
    assert_int_equal(runner_section_get_options(config, NULL, "cpu", false, options, 8), 1);
    assert_string_equal(options[0].value, "4");
    /* no device has taken --memory yet */
    assert_int_equal(runner_config_check_taken(config, &err), TDM_INVALID_ARGUMENT);
    assert_string_equal(err.message,
                        "--memory 3K: an option of the plugin 'example', and no device "
                        "of this command has such an option");
    assert_int_equal(runner_section_get_options(config, NULL, "example", false, options, 8), 1);
    assert_string_equal(options[0].key, "memory");
    assert_string_equal(options[0].value, "3072");
    assert_int_equal(runner_config_check_taken(config, &err), TDM_OK);
    assert_checked(config);
    parse_fails("run --memory -1", 2,
                "--memory: bad value '-1' for 'memory': expected bytes, or a "
                "number with K, M, G or T (512M)");
    parse_fails("run --memory", 2, "'--memory' needs a value: --memory SIZE");
    parse_fails("run --memroy 3", 2, "unknown flag '--memroy'; did you mean '--memory'?");
    parse_fails("tokenize --memory 3", 2,
                "unknown flag '--memory'; `tandem tokenize --help` lists "
                "the flags");
    /* nothing is loaded for a command line without such keys */
    config = parse_ok("run -c 5 --temp 1");
    assert_int_equal(runner_config_keys(config)->n, n_key);
    assert_int_equal(runner_section_get_options(config, NULL, "cpu", false, options, 8), 0);
    assert_int_equal(runner_config_keys(config)->n, n_key);
    assert_checked(config);
    /* the plugin cannot be loaded: its reason */
    const char *const line = "[device d]\nplugin = none\ntile = 3\n";
    file_write("x.ini", line);
    tdm_status status;
    config = parse("run @", &status, &err);
    assert_int_equal(status, TDM_UNAVAILABLE);
    assert_int_equal(runner_config_exit_code(config), 1);
    assert_non_null(strstr(err.message, "x.ini:3: 'tile' can only be an option of the plugin "
                                        "'none', which cannot be loaded: plugin 'none': no none.so "
                                        "in "));
    runner_config_destroy(config);
}

/* Whether a command takes `a` and, unless that is NULL, `b`. */
static bool is_taken(const runner_key *a, const runner_key *b) {
    for (size_t i = 0; i < n_runner_commands; i++)
        if (runner_command_takes(runner_commands[i], a) &&
            (b == NULL || runner_command_takes(runner_commands[i], b)))
            return true;
    return false;
}

/* Every name in a command's list of keys is a key, and its own keys are flags only. */
static void test_commands(void **state) {
    (void)state;
    runner_config *config = plugins_load();
    const runner_key_list *keys = runner_config_keys(config);
    for (size_t i = 0; i < n_runner_commands; i++) {
        const runner_command *command = runner_commands[i];
        assert_non_null(command->run);
        assert_ptr_equal(runner_command_find(command->name), command);
        char words[2048];
        snprintf(words, sizeof words, "%s", command->keys);
        for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " ")) {
            const runner_key *key = runner_key_find(keys, word, command);
            if (strcmp(word, "*") == 0) continue;
            if (key == NULL || !runner_command_takes(command, key))
                fail_msg("%s: no key '%s'", command->name, word);
        }
        for (size_t k = 0; k < command->n_own_key; k++)
            assert_int_equal(command->own_keys[k].sections, 0);
    }
    assert_checked(config);
}

/* The table itself: unambiguous for every command, defaults that parse, help that fits. */
static void test_table(void **state) {
    (void)state;
    runner_config *config = plugins_load();
    const runner_key_list *keys = runner_config_keys(config);
    for (size_t i = 0; i < keys->n; i++) {
        const runner_key *a = keys->items[i];
        assert_true(a->help[0] != '\0' && a->topic[0] != '\0');
        assert_true(a->sections != 0 || is_taken(a, NULL));
        assert_int_equal(a->words != NULL, a->type == RUNNER_KEY_ENUM);
        assert_int_equal(a->value_name == NULL,
                         a->type == RUNNER_KEY_ENUM || a->type == RUNNER_KEY_BOOL);
        assert_int_equal(strspn(a->name, "abcdefghijklmnopqrstuvwxyz-"), strlen(a->name));
        if (a->rival != NULL)
            assert_string_equal(runner_key_find(keys, a->rival, NULL)->rival, a->name);
        /* `tandem config` shows every key that a file may have before its sections */
        if ((a->sections & RUNNER_IN_DEFAULTS) != 0)
            assert_true(runner_command_takes(runner_command_find("config"), a));
        runner_value value;
        if (a->plugin == NULL || a->default_value[0] != '\0')
            assert_int_equal(runner_value_parse(a, a->default_value, false, &value, NULL), TDM_OK);
        else
            value = (runner_value){0};
        runner_value_clear(&value);
        for (size_t j = 0; j < i; j++) {
            const runner_key *b = keys->items[j];
            bool overlap = is_taken(a, b) || (a->sections & b->sections) != 0;
            /* an option that two plugins have is a key of each */
            bool is_shared = a->plugin != NULL && b->plugin != NULL &&
                             strcmp(a->plugin, b->plugin) != 0 && strcmp(a->name, b->name) == 0;
            if (!overlap || is_shared) continue;
            assert_string_not_equal(a->name, b->name);
            if (a->flag != NULL && b->flag != NULL && is_taken(a, b))
                assert_string_not_equal(a->flag, b->flag);
            if (a->alias != NULL) assert_string_not_equal(a->alias, b->name);
        }
    }
    assert_checked(config);
}

static void test_help(void **state) {
    (void)state;
    runner_config *config = plugins_load();
    const runner_key_list *keys = runner_config_keys(config);
    for (size_t c = 0; c <= n_runner_commands; c++) {
        const runner_command *command = c < n_runner_commands ? runner_commands[c] : NULL;
        char *text = NULL;
        size_t size = 0;
        FILE *out = open_memstream(&text, &size);
        assert_non_null(out);
        runner_help_print(out, command, keys);
        assert_int_equal(fclose(out), 0);
        for (size_t i = 0; command != NULL && i < keys->n; i++) {
            char name[64];
            const runner_key *key = keys->items[i];
            bool is_bool = key->type == RUNNER_KEY_BOOL;
            snprintf(name, sizeof name, "--%s%s%s", is_bool ? "[no-]" : "", key->name,
                     is_bool ? "" : " ");
            bool is_used = runner_command_takes(command, key);
            /* that help has no other keys is not checked: two commands have their own `output` */
            if (is_used) assert_non_null(strstr(text, name));
        }
        for (size_t i = 0; command == NULL && i < n_runner_commands; i++)
            assert_non_null(strstr(text, runner_commands[i]->summary));
        for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
            if (strlen(line) > 100) fail_msg("too long: %s", line);
        free(text);
    }
    assert_checked(config);
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

/* Whether a line begins the section of a plugin that was not built. */
static bool is_absent_plugin(const char *line) {
    static const char heading[] = "### Plugin ";
    if (strncmp(line, heading, sizeof heading - 1) != 0) return false;
    for (size_t i = 0; i < N_PLUGIN; i++)
        if (strcmp(line + sizeof heading - 1, plugins[i]) == 0) return false;
    return true;
}

/* docs/config.md has a row for each key of the table, with its flags, words and default. The rows
 * of a plugin that was not built are left out. */
static void test_docs_agree(void **state) {
    (void)state;
    char *text = source_read("docs/config.md");
    size_t n_row = 0;
    runner_config *config = plugins_load();
    const runner_key_list *keys = runner_config_keys(config);
    bool is_absent = false;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        if (line[0] == '#') is_absent = is_absent_plugin(line);
        if (is_absent || strncmp(line, "| `", 3) != 0) continue;
        assert_true(n_row < keys->n);
        const runner_key *key = keys->items[n_row++]; /* the same order, too */
        char cell[96];
        snprintf(cell, sizeof cell, "| `%s` | ", key->name);
        if (strncmp(line, cell, strlen(cell)) != 0) fail_msg("no %s in: %s", cell, line);
        if (is_taken(key, NULL))
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
        if (key->default_value[0] != '\0')
            snprintf(cell, sizeof cell, "| `%s` |", key->default_value);
        else
            snprintf(cell, sizeof cell,
                     (key->traits & RUNNER_KEY_REQUIRED) != 0 ? "| required |" : "| none |");
        if (strstr(line, cell) == NULL) fail_msg("no %s in: %s", cell, line);
    }
    assert_int_equal(n_row, keys->n);
    free(text);
    assert_checked(config);
}

static bool is_of_gpu(const runner_key *key) {
    return key->plugin != NULL && strcmp(key->plugin, "cpu") != 0 &&
           strcmp(key->plugin, "meta") != 0;
}

/* Keys that name a card: a CPU device has neither a PCI address nor a UUID. */
static bool names_card(const runner_key *key) {
    return strcmp(key->name, "pci") == 0 || strcmp(key->name, "uuid") == 0;
}

/* The examples parse, and demo.ini lists every key that it claims to list, with its default.
 * demo.ini and cpu.ini are about CPU devices and groups of them, so they have no keys of GPU
 * plugins. */
static void test_examples(void **state) {
    (void)state;
    static const char *const examples[][2] = {{"demo", "pair"},
                                              {"cpu", "cpu0"},
                                              {"two-sockets", "sockets"},
                                              {"gpus", "all"},
                                              {"cpu-and-vulkan", "both"},
                                              {"nvidia-amd-cpu", "all"},
                                              {"two-nvidia", "both"},
                                              {"nvidia-and-integrated", "both"}};
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        char line[512];
        snprintf(line, sizeof line, "run --config %s/conf/%s.ini", TANDEM_SOURCE_ROOT,
                 examples[i][0]);
        runner_config *config = parse_ok(line);
        const runner_section *device;
        assert_int_equal(runner_config_pick_device(config, &device, NULL), TDM_OK);
        assert_non_null(device);
        assert_string_equal(runner_section_name(device), examples[i][1]);
        if (!runner_section_is_group(device))
            assert_string_equal(runner_section_get_string(config, device, "plugin"), "cpu");
        assert_checked(config);
    }
    char *text = source_read("conf/demo.ini");
    runner_config *known = plugins_load();
    const runner_key_list *keys = runner_config_keys(known);
    for (size_t i = 0; i < keys->n; i++) {
        const runner_key *key = keys->items[i];
        if ((key->sections & ~(unsigned)RUNNER_IN_GROUP) == 0 || is_of_gpu(key)) continue;
        char set[64], unset[128];
        snprintf(set, sizeof set, "\n%s = ", key->name);
        snprintf(unset, sizeof unset, "\n#%s =%s%s\n", key->name,
                 key->default_value[0] != '\0' ? " " : "", key->default_value);
        bool is_text = strcmp(key->name, "prompt") == 0 || strcmp(key->name, "file") == 0;
        if (is_text) snprintf(unset, sizeof unset, "\n#%s = ", key->name);
        if (strstr(text, set) == NULL && strstr(text, unset) == NULL)
            fail_msg("conf/demo.ini does not show '%s'", key->name);
    }
    free(text);
    text = source_read("conf/cpu.ini");
    for (size_t i = 0; i < keys->n; i++) {
        char set[64];
        snprintf(set, sizeof set, "\n%s = ", keys->items[i]->name);
        if ((keys->items[i]->sections & (RUNNER_IN_GROUP | RUNNER_IN_DEVICE)) != 0 &&
            !is_of_gpu(keys->items[i]) && !names_card(keys->items[i]) && strstr(text, set) == NULL)
            fail_msg("conf/cpu.ini does not show '%s'", keys->items[i]->name);
    }
    free(text);
    assert_checked(known);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flags),          cmocka_unit_test(test_bool_flags),
        cmocka_unit_test(test_bad_flags),      cmocka_unit_test(test_bench_lists),
        cmocka_unit_test(test_values),         cmocka_unit_test(test_words),
        cmocka_unit_test(test_table),          cmocka_unit_test(test_help),
        cmocka_unit_test(test_docs_agree),     cmocka_unit_test(test_examples),
        cmocka_unit_test(test_plugin_options), cmocka_unit_test(test_commands),
        cmocka_unit_test(test_llama_flags),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
