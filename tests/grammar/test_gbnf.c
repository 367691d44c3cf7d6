/* SPDX-License-Identifier: MIT
 *
 * test_gbnf.c: which texts grammars match, and the messages of those that are wrong.
 */
#include <stdlib.h>

#include "tests/grammar/grammar_fixture.h"

static grammar_fixture fixture;

typedef struct match_case {
    const char *grammar;
    const char *whole[8];  /* texts that match */
    const char *begun[8];  /* beginnings of texts that match */
    const char *wrong[12]; /* others */
} match_case;

static const match_case cases[] = {
    {"root ::= \"ab\"", {"ab"}, {"a", ""}, {"b", "abc", "aa"}},
    {"root ::= \"\"", {""}, {NULL}, {"a"}},
    {"root ::= [a-c]+ [^a-c] .",
     {"abcx\n", "a\xE2\x82\xAC\xF0\x9F\x98\x80"},
     {"a", "ax", "a\xE2"},
     {"x", "axyz", "a\xFF", "a\xED\xA0\x80", "a\xC0\x80"}},
    {"root ::= (\"a\" | \"b\" \"c\"?)*", {"", "aabcb", "bb"}, {NULL}, {"c", "acb", "bcc"}},
    {"root ::= \"x\"{2} \"y\"{1,} \"z\"{0,2} \"w\"{,1}",
     {"xxy", "xxyyyzz", "xxyw"},
     {"x", "xx"},
     {"xy", "xxyzzz", "xxx", "xxyww"}},
    {"root ::= a | b\na ::= \"1\" a | \"!\" # comment\nb ::= (\n \"2\"\n b ) |\n \"?\"",
     {"11!", "?", "22?"},
     {"1", ""},
     {"12", "!!", "1?"}},
    {"root ::= value\nvalue ::= \"[\" (value (\",\" value)*)? \"]\"",
     {"[]", "[[],[[]]]"},
     {"[[[[[[", "[[],"},
     {"]", "[,]", "[]]", "[[] []]"}},
    {"root ::= [\\x41-\\u0043\\]\\-\\\\] \"\\\"\\u00e9\\U0001F600\"",
     {"A\"\xC3\xA9\xF0\x9F\x98\x80", "]\"\xC3\xA9\xF0\x9F\x98\x80"},
     {"A\"\xC3"},
     {"D", "A'", "A\"\xC3\xA8"}},
    {"root ::= (\"\" | \"a\"?){3,5} \"b\"", {"b", "aaaab", "aaaaab"}, {"aa"}, {"aaaaaab", "ba"}},
    {"root ::= ((\"a\"{2}){1,2}){2}", {"aaaa", "aaaaaaaa"}, {"aaa"}, {"aaaaaaaaa", "b"}},
    {"root ::= (\"a\" | \"aa\"){2,3}", {"aa", "aaaaaa", "aaa"}, {"a"}, {"aaaaaaa"}},
    {"root ::= [^]", {"a", "\xE2\x82\xAC"}, {""}, {"aa"}},
    {"root ::= nothing | some\nnothing ::= \"\"\nsome ::= nothing nothing \"s\" nothing",
     {"", "s"},
     {NULL},
     {"ss"}},
    {"root ::= \"a\"\n    | \"b\"\n    | \"c\"", {"a", "b", "c"}, {""}, {"d"}},
};

static void texts_match(void **state) {
    (void)state;
    for (size_t i = 0; i < TINY_COUNT(cases); i++) {
        const match_case *c = &cases[i];
        grammar *g = fixture_compile(&fixture, c->grammar);
        for (size_t k = 0; k < 12; k++) {
            const struct {
                const char *text;
                int result;
            } tries[] = {
                {k < 8 ? c->whole[k] : NULL, 2}, {k < 8 ? c->begun[k] : NULL, 1}, {c->wrong[k], 0}};
            for (size_t t = 0; t < 3; t++) {
                if (tries[t].text == NULL) continue;
                const int got = fixture_match(g, tries[t].text, strlen(tries[t].text));
                if (got == tries[t].result) continue;
                if (tries[t].result == 0 && got == 1)
                    fail_msg("'%s' begins '%s'", tries[t].text, c->grammar);
                fail_msg("'%s': %d instead of %d for\n%s", tries[t].text, got, tries[t].result,
                         c->grammar);
            }
        }
        grammar_release(g);
    }
}

static const struct {
    const char *grammar, *message; /* a part of it */
} errors[] = {
    {"root = \"a\"", "line 1, column 6: expected ::="},
    {"root ::= \"a", "line 1, column 10: the literal has no closing \""},
    {"root ::= \"a\nb\"", "a line end in it is \\n"},
    {"root ::= [a", "column 10: the set has no closing ]"},
    {"root ::= []", "the set [] is empty"},
    {"root ::= [z-a]", "column 11: the range ends before it begins"},
    {"root ::= (\"a\"", "column 10: the ( has no closing )"},
    {"root ::= \"a\")", "the ) has no opening ("},
    {"root ::= *", "* has nothing to repeat"},
    {"root ::= \"a\"{3,1}", "{3,1}: the larger number comes last"},
    {"root ::= \"a\"{x}", "a repetition is {m}"},
    {"root ::= \"a\"{1", "the { has no closing }"},
    {"root ::= \"a\"{9999999999}", "a repetition has at most"},
    {"root ::= \"\\q\"", "column 11: unknown escape"},
    {"root ::= \"\\xZZ\"", "\\x needs 2 hexadecimal digits"},
    {"root ::= \"\\uD800\"", "D800 is no code point"},
    {"root ::= \"\xFF\"", "the text is not UTF-8 here"},
    {"root ::= \"a\"\nroot ::= \"b\"",
     "line 2, column 1: rule 'root' is defined again; it was defined in line 1"},
    {"start ::= \"a\"", "there is no rule 'root'"},
    {"", "there is no rule 'root'"},
    {"root ::= \"a\"\n  other", "line 2"},
    {"root ::= a\na ::= b? c\nc ::= a \"x\" | \"y\"\nb ::= \"\"",
     "begins with itself (a -> c -> a)"},
    {"root ::= root \"a\" | \"b\"", "line 1: rule 'root' begins with itself"},
    {"root ::= (\"a\"? root) | \"b\"", "begins with itself"},
    {"root ::= x{0,3} root | \"b\"\nx ::= \"c\"", "begins with itself"},
    {"root ::= missing", "line 1: rule 'missing' is used and not defined"},
    {"root ::= \"a\" root", "no text of rule 'root' has an end"},
    {"root ::= <nope>", "the vocabulary has no token <nope>"},
    {"root ::= <[99999]>", "the vocabulary has no token <[99999]>"},
    {"root ::= <[1>", "a token by its number is <[NUMBER]>"},
    {"root ::= <[1]", "the token has no closing >"},
    {"root ::= \"a\" ! \"b\"", "expected the end of rule 'root'"},
    {"root ::= \"a\"*****", "more than 4 repetitions of repetitions"},
    {"1 2", "expected ::="},
    {"%", "expected the name of a rule"},
};

static void mistakes_are_named(void **state) {
    (void)state;
    for (size_t i = 0; i < TINY_COUNT(errors); i++) {
        tdm_error err = {0};
        grammar *g = (grammar *)1;
        const tdm_status status =
            grammar_compile(fixture.vocab, errors[i].grammar, strlen(errors[i].grammar), &g, &err);
        if (status != TDM_INVALID_ARGUMENT || g != NULL ||
            strstr(err.message, errors[i].message) == NULL)
            fail_msg("%s\ngives: %s\nexpected: %s", errors[i].grammar, err.message,
                     errors[i].message);
    }
}

static void depth_is_limited(void **state) {
    (void)state;
    char text[4096] = "root ::= ";
    tdm_error err = {0};
    grammar *g;
    memset(text + 9, '(', 1000);
    assert_int_equal(grammar_compile(fixture.vocab, text, strlen(text), &g, &err),
                     TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "more than 200 parentheses"));
}

/* Rules that double at each level have too many ways to be read; that is an error, not a hang. */
static void ambiguity_is_limited(void **state) {
    (void)state;
    char text[8192] = "root ::= r0 \"end\"\n";
    size_t n = strlen(text);
    for (int i = 0; i < 60; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "r%d ::= r%d r%d\n", i, i + 1, i + 1);
    snprintf(text + n, sizeof text - n, "r60 ::= \"\"\n");
    tdm_error err = {0};
    grammar *g;
    assert_int_equal(grammar_compile(fixture.vocab, text, strlen(text), &g, &err),
                     TDM_RESOURCE_EXHAUSTED);
    g = fixture_compile(&fixture, "root ::= \"x\" a{0,100000}\na ::= [a-z]* [a-y]* [a-x]*");
    assert_int_equal(fixture_match(g, "xabcabc", 7), 2);
    grammar_release(g);
}

/* Many rules, each of which ends where the next one does, are checked in one pass. */
static void long_chains_are_checked(void **state) {
    (void)state;
    const int n_rule = 100000;
    const size_t room = (size_t)n_rule * 32;
    char *text = malloc(room);
    assert_non_null(text);
    size_t n = (size_t)snprintf(text, room, "root ::= r0\n");
    for (int i = 0; i < n_rule; i++)
        n += (size_t)snprintf(text + n, room - n, "r%d ::= \"x\" r%d\n", i, i + 1);
    snprintf(text + n, room - n, "r%d ::= \"y\"\n", n_rule);
    grammar *g = fixture_compile(&fixture, text);
    assert_int_equal(fixture_match(g, "xxx", 3), 1);
    assert_int_equal(fixture_match(g, "xxy", 3), 0);
    grammar_release(g);
    free(text);
}

/* Large counts take no room. */
static void counts_are_counted(void **state) {
    (void)state;
    static char text[300001];
    memset(text, 'a', sizeof text - 1);
    grammar *g = fixture_compile(&fixture, "root ::= [a-z]{100000,300000} [a-b]{0,10}");
    assert_int_equal(fixture_match(g, text, 99999), 1);
    assert_int_equal(fixture_match(g, text, 100000), 2);
    assert_int_equal(fixture_match(g, text, 300000), 2);
    grammar_release(g);
    g = fixture_compile(&fixture, "root ::= (\"ab\"{3,} \"c\"){2,}");
    assert_int_equal(fixture_match(g, "abababcabababababc", 18), 2);
    assert_int_equal(fixture_match(g, "abababcababc", 12), 0);
    grammar_release(g);
}

static int setup(void **state) {
    (void)state;
    fixture_open(&fixture);
    return 0;
}

static int teardown(void **state) {
    (void)state;
    fixture_close(&fixture);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_match),        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(depth_is_limited),   cmocka_unit_test(ambiguity_is_limited),
        cmocka_unit_test(counts_are_counted), cmocka_unit_test(long_chains_are_checked),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
