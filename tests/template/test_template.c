/* SPDX-License-Identifier: MIT
 *
 * test_template.c: failures of templates with their lines, and hostile templates, which must end
 * with a failure, in time and without much memory. test_template.sh compares results with Jinja.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "llm/template/template.h"

static tdm_status render(const char *text, const char *context, char **out, tdm_error *err) {
    llm_template *tpl = NULL;
    size_t len = 0;
    *out = NULL;
    tdm_status status = llm_template_create("t", text, strlen(text), &tpl, err);
    if (status != TDM_OK) {
        assert_null(tpl);
        return status;
    }
    status = llm_template_render(tpl, context, strlen(context), 0, out, &len, err);
    assert_true((*out != NULL) == (status == TDM_OK));
    if (*out != NULL) assert_int_equal((*out)[len], '\0');
    llm_template_destroy(tpl);
    return status;
}

static void expect(const char *text, const char *context, const char *wanted) {
    tdm_error err = {0};
    char *out;
    if (render(text, context, &out, &err) != TDM_OK) fail_msg("%s: %s", text, err.message);
    assert_string_equal(out, wanted);
    free(out);
}

static void expect_failure(const char *text, const char *context, tdm_status wanted,
                           const char *message) {
    tdm_error err = {0};
    char *out;
    tdm_status status = render(text, context, &out, &err);
    free(out);
    if (status != wanted || strstr(err.message, message) == NULL)
        fail_msg("%.80s: status %d, '%s'", text, (int)status, err.message);
}

static void test_render(void **state) {
    (void)state;
    expect("", "{}", "");
    expect("plain", "{}", "plain");
    expect("{{ x }}", "{\"x\": \"\\u00e9\\ud83d\\ude42\\n\"}", "é🙂\n");
    expect("{{ x }}{{ y }}", "{\"x\": 1, \"x\": 2, \"y\": null}", "2None");
    expect("{{ strftime_now('%Y') | length }}", "{}", "4");
    expect("{{ '0x10'|float }} {{ '0X10'|float }} {{ '0X10'|int }}", "{}", "0.0 0.0 0");
    expect("{{ x|int }} {{ x|float }} {{ 'nan(1)'|float }}", "{\"x\": \"1\\u0000a\"}", "0 0.0 0.0");
    expect("{{ '%x|%#06X|%#o|%d|%08.3d|%.0d' % (-255, 255, -8, -1, 5, 0) }}", "{}",
           "-ff|0X00FF|-0o10|-1|00000005|0");
    expect("{{ '%5.1f|%-6.2f|%+d|%i' % (1.25, 2, 3, 4.9) }}", "{}", "  1.2|2.00  |+3|4");
}

static void test_failures(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
        tdm_status status;
    } rows[] = {
        {"a\n{{ x", "t, line 2: '}}' is missing", TDM_INVALID_ARGUMENT},
        {"a\n\n{% if x %}b", "t, line 3: the template ends where '{% endif %}'",
         TDM_INVALID_ARGUMENT},
        {"{% frob %}", "not 'frob'", TDM_INVALID_ARGUMENT},
        {"{% include 'x' %}", "not 'include'", TDM_INVALID_ARGUMENT},
        {"\n{{ nope.x }}", "t, line 2: 'nope' is undefined", TDM_INVALID_ARGUMENT},
        {"{{ raise_exception('roles\nmust alternate') }}", "line 1: roles must alternate",
         TDM_INVALID_ARGUMENT},
        {"{% for i in [1] %}\n{{ i|frob }}{% endfor %}", "line 2: there is no filter 'frob'",
         TDM_UNSUPPORTED},
        {"{{ 1 is frob }}", "there is no test 'frob'", TDM_UNSUPPORTED},
        {"{{ [1].extend([2]) }}", "'extend' is undefined", TDM_INVALID_ARGUMENT},
        {"{{ (1, 2).append(3) }}", "a tuple cannot be changed", TDM_INVALID_ARGUMENT},
        {"{{ ([1]|map('int')).append(3) }}", "a generator cannot be changed", TDM_INVALID_ARGUMENT},
        {"{{ [1].append() }}", "append takes one argument", TDM_INVALID_ARGUMENT},
        {"{{ [1, 2].pop(2) }}", "pop from a list of 2", TDM_OUT_OF_RANGE},
        {"{{ [].pop() }}", "pop from a list of 0", TDM_OUT_OF_RANGE},
        {"{% set l = [1] %}{% for x in l %}{% set _ = l.append(x) %}{% endfor %}", "128 MiB",
         TDM_OUT_OF_RANGE},
        {"{% set l = [1] %}{% set _ = l.append(l) %}{{ l }}", "nested", TDM_OUT_OF_RANGE},
        {"{% set l = [1] %}{% set _ = l.append(l) %}{{ l|tojson }}", "nested", TDM_OUT_OF_RANGE},
        {"{{ '{'|from_json }}", "JSON", TDM_DATA_LOSS},
        {"{{ 1|from_json }}", "from_json of a int", TDM_INVALID_ARGUMENT},
        {"{% set x.y = 1 %}", "only a namespace", TDM_INVALID_ARGUMENT},
        {"{{ 9223372036854775807 + 1 }}", "more than 64 bits", TDM_OUT_OF_RANGE},
        {"{{ (0 - 9223372036854775807 - 1) // -1 }}", "more than 64 bits", TDM_OUT_OF_RANGE},
        {"{{ 3 ** 99999999999 }}", "more than 64 bits", TDM_OUT_OF_RANGE},
        {"{{ range(100001) }}", "more than 100000", TDM_OUT_OF_RANGE},
        {"{{ 'a'|upper('x') }}", "upper takes 0 arguments, not 1", TDM_INVALID_ARGUMENT},
        {"{{ 'a'|trim(frob=1) }}", "trim takes no argument 'frob'", TDM_INVALID_ARGUMENT},
        {"{{ 'a'|trim(n234567890123456789012345678901234567890123456789012345678901234=1) }}",
         "no argument 'n234567890123456789012345678901234567890123456789012345678901234'",
         TDM_INVALID_ARGUMENT},
        {"{{ '{n234567890123456789012345678901234567890123456789012345678901234}'.format(1) }}",
         "'{n234567890123456789012345678901234567890123456789012345678901234}'", TDM_UNSUPPORTED},
        {"{% for x in [1] recursive %}{% endfor %}", "recursive loops are not supported",
         TDM_INVALID_ARGUMENT},
        {"{{ f(*x) }}", "an argument", TDM_INVALID_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_failure(rows[i].text, "{}", rows[i].status, rows[i].message);
}

static void test_bad_context(void **state) {
    (void)state;
    static const char *const rows[] = {
        "",
        "[]",
        "{",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{\"a\":01}",
        "nul",
        "{} x",
        "{\"a",
        "{\"a\\",
        "{\"\\u12",
        "{\"\\q\":1}",
        "{\"a\":1e}",
        "{\"a\":99999999999999999999}",
        "{\"a\":\"\n\"}",
        "{a:1}",
        "{\"a\":[1 2]}",
        "{\"a\":-}",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_failure("x", rows[i], TDM_DATA_LOSS, "");
    char deep[1000];
    memset(deep, '[', sizeof deep);
    deep[sizeof deep - 1] = '\0';
    expect_failure("x", deep, TDM_DATA_LOSS, "nested too deeply");
}

/* `part` n times between `begin` and `end`. */
static char *many(const char *begin, const char *part, size_t n, const char *end) {
    char *text = malloc(strlen(begin) + strlen(part) * n + strlen(end) + 1);
    assert_non_null(text);
    char *at = stpcpy(text, begin);
    for (size_t i = 0; i < n; i++) at = stpcpy(at, part);
    strcpy(at, end);
    return text;
}

static void test_bounds(void **state) {
    (void)state;
    static const char *const rows[] = {
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{% macro f(x) %}{{ f(x ~ x) }}{% endmacro %}{{ f('aaaa') }}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'a' * 999999999999 }}",
        "{{ [1] * 999999999999 }}",
        "{{ 'a'|center(999999999999) }}",
        "{{ 'a'|indent(999999999999) }}",
        "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}"
        "{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(99) %}"
        "{% set ns.s = ns.s.replace('a', ns.s) %}{% endfor %}",
        "{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% endfor %}{{ ns.l }}",
        "{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
        "{% endfor %}{{ ns.l | tojson }}",
        "{% set ns = namespace() %}{% set ns.a = ns %}{{ ns }}",
        "{% for i in range(9999) %}{{ range(99999)|list|length }}{% endfor %}",
        "{% set ns = namespace(a=[], b=[]) %}{% for i in range(99) %}{% set ns.a = [ns.a, ns.a] %}"
        "{% set ns.b = [ns.b, ns.b] %}{% endfor %}"
        "{% for i in range(99999) %}{% if ns.a == ns.b %}{% endif %}{% endfor %}",
        "{% set l = [] %}{% set x = l.append(l) %}{{ l }}",
        "{% set l = [1] %}{% for x in l %}{% set y = l.append(x) %}{% endfor %}",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        expect_failure(rows[i], "{}", TDM_OUT_OF_RANGE, "line 1");
    /* a comparison has a budget of its own, and is false beyond it */
    expect(
        "{% set ns = namespace(a=[], b=[]) %}{% for i in range(99) %}{% set ns.a = [ns.a, ns.a] %}"
        "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
        "{}", "False");
}

static void test_depth(void **state) {
    (void)state;
    static const struct {
        const char *begin, *part, *end;
    } rows[] = {
        {"{{ ", "(", "1"},
        {"{{ ", "[", "1"},
        {"{{ ", "not ", "1 }}"},
        {"{{ ", "-", "1 }}"},
        {"{{ ", "1 if 1 else ", "1 }}"},
        {"", "{% if 1 %}", ""},
        {"", "{% for x in y %}", ""},
        {"{{ ", "{1:", "1"},
        {"{{ ", "a[", "1"},
        {"{{ ", "a(", "1"},
        {"{{ ", "x|f(", "1"},
        {"{% set ", "(", "x"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tdm_error err = {0};
        char *out, *text = many(rows[i].begin, rows[i].part, 100000, rows[i].end);
        tdm_status status = render(text, "{}", &out, &err);
        if (status == TDM_OK) fail_msg("%s was taken", rows[i].part);
        free(out);
        free(text);
    }
    /* long is not deep: this many are walked, and more than the limit is refused, not a crash */
    char *chain = many("{% if 0 %}", "{% elif 0 %}", 5000, "{% else %}x{% endif %}");
    expect(chain, "{}", "x");
    free(chain);
    chain = many("{{ 1", " + 1", 500, " }}");
    expect(chain, "{}", "501");
    free(chain);
    chain = many("{{ 1", " + 1", 100000, " }}");
    expect_failure(chain, "{}", TDM_OUT_OF_RANGE, "deep");
    free(chain);
    chain = many("{{ x", ".y", 100000, " }}");
    expect_failure(chain, "{}", TDM_OUT_OF_RANGE, "deep");
    free(chain);
}

/* Every beginning of a template is a template or a failure. */
static void test_cut_off(void **state) {
    (void)state;
    static const char text[] =
        "{%- macro m(a, b='c') -%}{{ a ~ b }}{%- endmacro -%}{# note #}{% set x = [1, {'k': "
        "2.5e1}] %}"
        "{% for i, j in x|items if i is not none %}{{ loop.index }}{% else %}{{ m('a\\n\\u00e9', "
        "b=1) "
        "if x[0:-1:2] and not 'a' in 'b' else \"q\"|trim }}{% endfor %}{% raw %}{{{% endraw %}";
    for (size_t n = 0; n < sizeof text; n++) {
        char *cut = strndup(text, n), *out;
        assert_non_null(cut);
        render(cut, "{}", &out, NULL);
        free(out);
        free(cut);
    }
}

static void test_bytes(void **state) {
    (void)state;
    expect("{{ x|length }}\xff{{ '\xc3' }}", "{\"x\": \"\xff\xfe\"}", "2\xff\xc3");
    expect("{{ '\xf0\x9f'|upper|reverse|tojson }}", "{}", "\"\x9f\xf0\"");
    expect_failure("{{ \xff }}", "{}", TDM_INVALID_ARGUMENT, "0xff");
    char *out;
    assert_int_equal(render("{{ \xff }}", "{}", &out, NULL), TDM_INVALID_ARGUMENT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_render),      cmocka_unit_test(test_failures),
        cmocka_unit_test(test_bad_context), cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_depth),       cmocka_unit_test(test_cut_off),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
