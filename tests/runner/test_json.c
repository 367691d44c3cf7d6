/* SPDX-License-Identifier: MIT
 *
 * test_json.c: the JSON writer: brackets, commas, escapes and numbers, byte for byte.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "runner/json.h"

static char *text;
static size_t text_size;

static runner_json_writer begin(void) {
    runner_json_writer w = {.out = open_memstream(&text, &text_size)};
    assert_non_null(w.out);
    return w;
}

static void end(runner_json_writer *w, const char *expected) {
    assert_int_equal(fclose(w->out), 0);
    assert_string_equal(text, expected);
    free(text);
}

static void test_structure(void **state) {
    (void)state;
    runner_json_writer w = begin();
    runner_json_begin_object(&w, NULL);
    runner_json_begin_array(&w, "none");
    runner_json_end_array(&w);
    runner_json_begin_array(&w, "rows");
    for (int i = 0; i < 2; i++) {
        runner_json_begin_object(&w, NULL);
        runner_json_int(&w, "i", -i);
        runner_json_bool(&w, "last", i == 1);
        runner_json_end_object(&w);
    }
    runner_json_null(&w, NULL);
    runner_json_end_array(&w);
    runner_json_begin_object(&w, "empty");
    runner_json_end_object(&w);
    runner_json_uint(&w, "most", UINT64_MAX);
    runner_json_end_object(&w);
    end(&w, "{\n"
            "  \"none\": [],\n"
            "  \"rows\": [\n"
            "    {\n      \"i\": 0,\n      \"last\": false\n    },\n"
            "    {\n      \"i\": -1,\n      \"last\": true\n    },\n"
            "    null\n"
            "  ],\n"
            "  \"empty\": {},\n"
            "  \"most\": 18446744073709551615\n"
            "}\n");
}

static void test_texts(void **state) {
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"", "\"\""},
        {"a \"b\" \\ /", "\"a \\\"b\\\" \\\\ /\""},
        {"\n\t\x01\x7f", "\"\\u000a\\u0009\\u0001\\u007f\""},
        {"w\xc3\xb6rld \xf0\x9f\x98\x80", "\"w\xc3\xb6rld \xf0\x9f\x98\x80\""},
        {"\xff"
         "a",
         "\"\xef\xbf\xbd"
         "a\""},                                                      /* no UTF-8 at all */
        {"\xc3", "\"\xef\xbf\xbd\""},                                 /* cut off */
        {"\xc0\xaf", "\"\xef\xbf\xbd\xef\xbf\xbd\""},                 /* overlong */
        {"\xed\xa0\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""}, /* surrogate */
        {"\xf4\x90\x80\x80", "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        runner_json_writer w = begin();
        runner_json_string(&w, NULL, rows[i].text);
        end(&w, rows[i].expected);
    }
    runner_json_writer w = begin();
    runner_json_begin_object(&w, NULL);
    runner_json_string(&w, "k\"", "v");
    runner_json_end_object(&w);
    end(&w, "{\n  \"k\\\"\": \"v\"\n}\n");
}

static void test_numbers(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *expected;
    } rows[] = {
        {0, "0"},      {1.5, "1.5"},       {-0.125, "-0.125"},  {1e300, "1e+300"},
        {NAN, "null"}, {INFINITY, "null"}, {-INFINITY, "null"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        runner_json_writer w = begin();
        runner_json_number(&w, NULL, rows[i].value);
        end(&w, rows[i].expected);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_structure),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
