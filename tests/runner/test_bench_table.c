/* SPDX-License-Identifier: MIT
 *
 * test_bench_table.c: the formats of a bench table byte for byte, with names that contain special
 * characters.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "runner/commands/bench_table.h"

static const uint64_t samples[] = {1000000000, 500000000, 2000000000};
static const double limits[] = {160, 400, 0};

static bench_row row_make(void) {
    bench_row row = {
        .version = "1.2.3",
        .model_filename = "a.gguf",
        .model_type = "llama 1.10B Q4_0",
        .model_size = 3u << 20,
        .model_n_params = 1500000,
        .device = "cpu0",
        .device_description = "CPU",
        .plugin = "cpu",
        .n_threads = 2,
        .n_batch = 2048,
        .n_ubatch = 512,
        .type_k = "f16",
        .type_v = "q8_0",
        .n_prompt = 100,
        .samples_ns = samples,
        .n_sample = 3,
        .kv_row_size = 6144,
        .load_ns = 1234567,
        .read_bandwidth = 32e9,
        .int8_peak = 1.45e12,
        .limit_kind = "bw",
        .limit_ts = 200,
        .limit_share = 0.625, /* a median: not the ratio of the means */
        .limits_ts = limits,
    };
    return row;
}

/* What a table of these rows is written as; the caller's to free(). */
static char *table_write(bench_format format, bench_columns columns, const bench_row *rows,
                         int32_t n) {
    static char *text; /* static: otherwise gcc warns that a local's address is returned */
    static size_t size;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    bench_table table = {.out = out, .format = format, .columns = columns};
    for (int32_t i = 0; i < n; i++) bench_table_add(&table, &rows[i]);
    bench_table_end(&table);
    assert_int_equal(fclose(out), 0);
    return text;
}

static void assert_has(const char *text, const char *part) {
    if (strstr(text, part) == NULL) fail_msg("no %s in:\n%s", part, text);
}

static void test_names(void **state) {
    (void)state;
    static const struct {
        int32_t n_prompt, n_gen, n_depth;
        const char *name;
    } tests[] = {{512, 0, 0, "pp512"},
                 {0, 128, 0, "tg128"},
                 {512, 128, 0, "pp512+tg128"},
                 {512, 0, 4096, "pp512 @ d4096"},
                 {INT32_MAX, INT32_MAX, INT32_MAX, "pp2147483647+tg2147483647 @ d2147483647"}};
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        bench_row row = row_make();
        row.n_prompt = tests[i].n_prompt;
        row.n_gen = tests[i].n_gen;
        row.n_depth = tests[i].n_depth;
        char text[80];
        bench_test_format(&row, text, sizeof text);
        assert_string_equal(text, tests[i].name);
    }
}

static void test_md(void **state) {
    (void)state;
    bench_row row = row_make();
    char *text = table_write(BENCH_FORMAT_MD, (bench_columns){.type_v = true}, &row, 1);
    /* speeds 100, 200 and 50: mean 116.67, sd of a sample 76.38 */
    assert_string_equal(text, "| model                          |       size |     params | device "
                              "    | threads | type_v |"
                              "            test |                  t/s |\n"
                              "| ------------------------------ | ---------: | ---------: | "
                              "---------- | ------: | -----: |"
                              " --------------: | -------------------: |\n"
                              "| llama 1.10B Q4_0               |   3.00 MiB |     1.50 M | cpu0   "
                              "    |       2 |   q8_0 |"
                              "           pp100 |       116.67 ± 76.38 |\n");
    free(text);
    row.n_sample = 1; /* no deviation, and no division by zero */
    text = table_write(BENCH_FORMAT_MD, (bench_columns){0}, &row, 1);
    assert_has(text, " 100.00 ± 0.00 |");
    assert_null(strstr(text, "type_v"));
    free(text);
}

/* The fraction of the limit; empty without a limit. */
static void test_limit(void **state) {
    (void)state;
    bench_row rows[2] = {row_make(), row_make()};
    const bench_columns columns = {.limit = true};
    rows[1].limit_kind = NULL;
    rows[1].limit_ts = rows[1].limit_share = 0;
    rows[1].limits_ts = NULL;
    char *text = table_write(BENCH_FORMAT_MD, columns, rows, 2);
    assert_has(text, "t/s |      limit |\n");
    assert_has(text, "-: | ---------: |\n");
    assert_has(text, "116.67 ± 76.38 |    62 % bw |\n");
    assert_has(text, "116.67 ± 76.38 |          - |\n");
    free(text);
    text = table_write(BENCH_FORMAT_MD, (bench_columns){0}, rows, 2);
    assert_null(strstr(text, "limit"));
    free(text);
    text = table_write(BENCH_FORMAT_CSV, columns, rows, 2);
    assert_has(
        text,
        "\"kv_row_size\",\"load_ns\",\"read_bandwidth\",\"int8_peak\",\"f32_peak\",\"limit_kind\","
        "\"limit_ts\",\"limit_share\"\n");
    assert_has(text, ",\"6144\",\"1234567\",\"32000000000\",\"1450000000000\",\"0\",\"bw\","
                     "\"200.000000\",\"0.625000\"\n");
    assert_has(text, ",\"0\",\"\",\"0.000000\",\"0.000000\"\n");
    free(text);
    text = table_write(BENCH_FORMAT_JSON, columns, rows, 2);
    assert_has(text, "\"limit_kind\": \"bw\",");
    assert_has(text, "\"limit_share\": 0.625000,");
    assert_has(text, "\"samples_limit_ts\": [160.000000, 400.000000, 0.000000]\n  },");
    assert_has(text, "\"samples_limit_ts\": []\n  }\n");
    assert_has(text, "\"limit_kind\": \"\",");
    free(text);
}

static void test_json(void **state) {
    (void)state;
    bench_row rows[2] = {row_make(), row_make()};
    rows[0].model_filename = "q\"b\\n\n\x01\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80";
    rows[1].model_filename = "\xff\xc3|\xed\xa0\x80|\xc0\xaf|\xf4\x90\x80\x80|\xe2\x82";
    char *text = table_write(BENCH_FORMAT_JSON, (bench_columns){0}, rows, 2);
    assert_has(text, "\"model_filename\": "
                     "\"q\\\"b\\\\n\\u000a\\u0001\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\",");
#define X "\xef\xbf\xbd"
    assert_has(text, "\"model_filename\": \"" X X "|" X X X "|" X X "|" X X X X "|" X X "\",");
#undef X
    assert_has(text, "\"samples_ns\": [1000000000, 500000000, 2000000000]");
    assert_has(text, "\"avg_ts\": 116.666667,");
    assert_has(text, "\"stddev_ts\": 76.376262,");
    assert_has(text, "\"test_time\": \"1970-01-01T00:00:00Z\"");
    assert_int_equal(strncmp(text, "[\n  {\n", 6), 0);
    assert_string_equal(text + strlen(text) - 8, "]\n  }\n]\n");
    free(text);
    text = table_write(BENCH_FORMAT_JSON, (bench_columns){0}, rows, 0);
    assert_string_equal(text, "[]\n");
    free(text);
    text = table_write(BENCH_FORMAT_JSONL, (bench_columns){0}, rows, 2);
    char *second = strchr(text, '\n');
    assert_non_null(second);
    assert_true(text[0] == '{' && second[-1] == '}' && second[1] == '{');
    assert_string_equal(strchr(second + 1, '\n'), "\n");
    free(text);
}

static void test_csv(void **state) {
    (void)state;
    bench_row row = row_make();
    row.model_filename = "a \"b\", c";
    char *text = table_write(BENCH_FORMAT_CSV, (bench_columns){0}, &row, 1);
    assert_has(text, "\"model_filename\",\"model_type\",");
    assert_has(text, ",\"a \"\"b\"\", c\",\"llama 1.10B Q4_0\",");
    char *second = strchr(text, '\n');
    assert_non_null(second);
    /* the file's name has a comma of its own */
    size_t n_name = 0, n_value = 0;
    for (const char *c = text; c < second; c++) n_name += *c == ',';
    for (const char *c = second; *c != '\0'; c++) n_value += *c == ',';
    assert_int_equal(n_name + 1, n_value);
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names), cmocka_unit_test(test_md),  cmocka_unit_test(test_limit),
        cmocka_unit_test(test_json),  cmocka_unit_test(test_csv),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
