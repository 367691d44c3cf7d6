/* SPDX-License-Identifier: MIT
 *
 * test_json_numbers.c: numbers of JSON that are larger than those of jansson: in requests, in the
 * arguments of calls, and in schemas.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/api/answer.h"
#include "server/api/body.h"
#include "server/grammar/grammar.h"
#include "server/json/json_load.h"
#include "server/reply/json_scan.h"

#define DIGITS_40 "1234567890123456789012345678901234567890"
#define DIGITS_400                                                                                 \
    DIGITS_40 DIGITS_40 DIGITS_40 DIGITS_40 DIGITS_40 DIGITS_40 DIGITS_40 DIGITS_40 DIGITS_40      \
        DIGITS_40

static void load_check(const char *text, const char *expected) {
    json_t *value = server_json_load(text, strlen(text), JSON_DECODE_ANY, NULL);
    char *found = value != NULL ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (expected == NULL) {
        assert_null(found);
        return;
    }
    assert_non_null(found);
    assert_string_equal(found, expected);
    free(found);
    json_decref(value);
}

/* Many digits that are no number, behind one that is too large: in time in proportion to their
 * number. In its square this would not end within the time of a test. */
static void zeros_check(void) {
    enum { N = 8 << 20 };
    static const char begin[] = "[1e400,";
    char *text = malloc(N);
    assert_non_null(text);
    memset(text, '0', N);
    memcpy(text, begin, sizeof begin - 1);
    assert_null(server_json_load(text, N, 0, NULL));
    memset(text + sizeof begin - 1, '1', N - sizeof begin);
    text[N - 1] = '.';
    assert_null(server_json_load(text, N, 0, NULL));
    free(text);
}

static void test_load(void **state) {
    (void)state;
    load_check("[9223372036854775807,-9223372036854775808]",
               "[9223372036854775807,-9223372036854775808]");
    load_check("[9223372036854775808,-9223372036854775809,7]",
               "[9.2233720368547758e18,-9.2233720368547758e18,7]");
    load_check("{\"a\": " DIGITS_40 "}", "{\"a\":1.2345678901234568e39}");
    load_check("-" DIGITS_40, "-1.2345678901234568e39");
    load_check("[1e400, -1.5E+999, 18446744073709551615]",
               "[\"1e400\",\"-1.5E+999\",1.8446744073709552e19]");
    load_check("[" DIGITS_400 "]", "[\"" DIGITS_400 "\"]");
    /* digits within strings and keys are no numbers */
    load_check("{\"\\\"" DIGITS_40 "\":[" DIGITS_40 ",\"\\\\\",\"" DIGITS_40 "\"]}",
               "{\"\\\"" DIGITS_40 "\":[1.2345678901234568e39,\"\\\\\",\"" DIGITS_40 "\"]}");
    /* what is no JSON stays none */
    load_check("[" DIGITS_40 ",]", NULL);
    load_check("[" DIGITS_40 "", NULL);
    load_check("[" DIGITS_40 ",01]", NULL);
    load_check("[" DIGITS_40 ",1.]", NULL);
    load_check("[" DIGITS_40 ",1.e5]", NULL);
    load_check("[" DIGITS_40 ",1e]", NULL);
    load_check("[" DIGITS_40 ",-]", NULL);
    load_check("[" DIGITS_40 ",\"a", NULL);
    load_check("[" DIGITS_40 ",\"\\", NULL);
    zeros_check();
    static const char cut[] = "[" DIGITS_40 "]\0]";
    assert_null(server_json_load(cut, sizeof cut - 1, 0, NULL));
}

static void arguments_check(const char *text, const char *expected) {
    api_call call = {0};
    api_buffer_add(&call.arguments, text, strlen(text));
    json_t *value = api_call_arguments(&call);
    char *found = json_dumps(value, JSON_COMPACT);
    assert_string_equal(found, expected);
    free(found);
    json_decref(value);
    api_buffer_clear(&call.arguments);
}

/* The calls of Anthropic's and ollama's API have their arguments as JSON, not as text. */
static void test_arguments(void **state) {
    (void)state;
    arguments_check("{\"id\": " DIGITS_40 ", \"city\": \"Bonn\"}",
                    "{\"id\":1.2345678901234568e39,\"city\":\"Bonn\"}");
    arguments_check("{\"id\": 18446744073709551615}", "{\"id\":1.8446744073709552e19}");
    arguments_check("{\"id\": 1e400}", "{\"id\":\"1e400\"}");
    arguments_check("{\"text\": \"a\\u0000b\"}", "{\"text\":\"a\\u0000b\"}");
    arguments_check("[1]", "{}");
    arguments_check("{\"id\": ", "{}");
}

/* A parameter between marks is a number where it is written as one. */
static void test_is_value(void **state) {
    (void)state;
    assert_true(json_scan_is_value(DIGITS_40, strlen(DIGITS_40)));
    assert_true(json_scan_is_value("-1e400", 6));
    assert_false(json_scan_is_value(DIGITS_40 " x", strlen(DIGITS_40) + 2));
}

static void test_body(void **state) {
    (void)state;
    static const char body[] =
        "{\"seed\": 18446744073709551615, \"n\": 1e300, \"half\": 0.5, \"temperature\": 1e400}";
    tdm_error err = {0};
    json_t *object = NULL;
    int64_t n = 0;
    double number = 0;
    assert_int_equal(api_body_parse(body, strlen(body), false, &object, &err), TDM_OK);
    assert_int_equal(api_get_int(object, "seed", -1, 4294967295, &n, &err), TDM_INVALID_ARGUMENT);
    assert_string_equal(err.message, "'seed' is 1.84467e+19, expected -1 to 4294967295");
    assert_int_equal(api_get_int(object, "n", 0, INT64_MAX, &n, &err), TDM_INVALID_ARGUMENT);
    assert_string_equal(err.message, "'n' is 1e+300, expected 0 to 9223372036854775807");
    assert_int_equal(api_get_int(object, "half", 0, 9, &n, &err), TDM_INVALID_ARGUMENT);
    assert_string_equal(err.message, "'half' must be a whole number");
    assert_int_equal(api_get_number(object, "temperature", 0, 9, &number, &err),
                     TDM_INVALID_ARGUMENT);
    json_decref(object);
}

/* The limit that code generators write for unsigned numbers of 64 bits. */
static void test_schema(void **state) {
    (void)state;
    static const char schema[] =
        "{\"type\":\"integer\",\"minimum\":0,\"maximum\":18446744073709551615}";
    tdm_error err = {0};
    char *rules = NULL;
    assert_int_equal(grammar_schema_to_gbnf(schema, strlen(schema), "root", &rules, &err), TDM_OK);
    assert_non_null(strstr(rules, "root"));
    free(rules);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),     cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_is_value), cmocka_unit_test(test_body),
        cmocka_unit_test(test_schema),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
