/* SPDX-License-Identifier: MIT
 *
 * test_reply.c: stop strings, the words of errors, messages for strict templates, and the parts of
 * answers by family. Every text of an answer is passed whole, byte by byte and in random pieces;
 * the parts must be the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/api/state.h"
#include "server/reply/parse.h"
#include "server/reply/stop.h"

/* The linker sends the server's calls here (--wrap). */
static size_t realloc_fails_of; /* bytes; 0 = none fails */
void *__real_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_realloc(void *old, size_t size) {
    return size == realloc_fails_of ? NULL : __real_realloc(old, size);
}

/* Parts as one text: reasoning in ( ), a call as {NAME|ARGUMENTS}. */
typedef struct parts {
    char text[4096];
    size_t len;
    reply_piece last;
    bool is_cut; /* reply_parser_is_cut */
} parts;

static void add(parts *p, const char *text, size_t len) {
    assert_true(p->len + len < sizeof p->text);
    memcpy(p->text + p->len, text, len);
    p->len += len;
    p->text[p->len] = '\0';
}

static void take(void *user, reply_piece piece, const char *text, size_t len) {
    parts *p = user;
    if (piece == REPLY_REASONING && p->last != REPLY_REASONING) add(p, "(", 1);
    if (piece != REPLY_REASONING && p->last == REPLY_REASONING) add(p, ")", 1);
    if (piece == REPLY_CALL) add(p, "{", 1);
    add(p, text, len);
    if (piece == REPLY_CALL) add(p, "|", 1);
    if (piece == REPLY_CALL_END) add(p, "}", 1);
    p->last = piece;
}

static bool is_string(void *user, const char *tool, const char *parameter) {
    (void)user, (void)tool;
    return strcmp(parameter, "zip") == 0;
}

static uint32_t random_next(uint32_t *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 16;
}

/* step 0: random pieces. */
static void parse(reply_parser_params params, const char *text, size_t step, uint32_t seed,
                  parts *out) {
    *out = (parts){.last = REPLY_TEXT};
    params.take = take;
    params.is_string = is_string;
    params.user = out;
    reply_parser *parser = reply_parser_create(&params);
    assert_non_null(parser);
    const size_t len = strlen(text);
    for (size_t at = 0; at < len;) {
        size_t n = step > 0 ? step : 1 + random_next(&seed) % 7;
        if (n > len - at) n = len - at;
        assert_true(reply_parser_push(parser, text + at, n));
        at += n;
    }
    assert_false(reply_parser_is_cut(parser));
    reply_parser_end(parser);
    out->is_cut = reply_parser_is_cut(parser);
    reply_parser_destroy(parser);
    if (out->last == REPLY_REASONING) add(out, ")", 1);
}

static void expect(reply_parser_params params, const char *text, const char *expected) {
    parts p;
    for (uint32_t i = 0; i < 20; i++) {
        const size_t step = i == 0 ? strlen(text) + 1 : i == 1 ? 1 : 0;
        parse(params, text, step, i, &p);
        if (strcmp(p.text, expected) == 0) continue;
        print_error("seed %u, text %s\n", i, text);
        assert_string_equal(p.text, expected);
    }
}

static reply_parser_params family(reply_family family) {
    return (reply_parser_params){.family = family, .parses_calls = true, .parses_reasoning = true};
}

static void test_plain(void **state) {
    (void)state;
    expect(family(REPLY_PLAIN), "  a <think", "  a <think");
    expect(family(REPLY_PLAIN), "<think>\nwhy\n</think>\n\nbecause", "(why\n)because");
    expect(family(REPLY_PLAIN), "a <think>b</think>", "a <think>b</think>");
    reply_parser_params open = family(REPLY_PLAIN);
    open.is_reasoning = true;
    expect(open, "why</think>x", "(why)x");
    expect(open, "never ends", "(never ends)");
    open.parses_reasoning = false;
    expect(open, "why</think>x", "why</think>x");
}

static void test_hermes(void **state) {
    (void)state;
    expect(family(REPLY_HERMES),
           "Yes.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": \"}\\\"\"}}\n</tool_call>\n"
           "<tool_call>{\"arguments\": [1, {}], \"id\": 3, \"name\": \"g\"}</tool_call>",
           "Yes.{f|{\"a\": \"}\\\"\"}}{g|[1, {}]}");
    expect(family(REPLY_HERMES), "<tool_call>{\"name\": \"now\"}</tool_call> Done", "{now|{}}Done");
    /* no calls: text as it came */
    expect(family(REPLY_HERMES), "a <tool_call>b</tool_call>", "a <tool_call>b</tool_call>");
    expect(family(REPLY_HERMES), "<tool_call>{\"name\": 3}", "<tool_call>{\"name\": 3}");
    expect(family(REPLY_HERMES), "x <tool", "x <tool");
    /* cut off within arguments */
    expect(family(REPLY_HERMES), "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1",
           "{f|{\"a\":1}");
    reply_parser_params off = family(REPLY_HERMES);
    off.parses_calls = false;
    expect(off, "<tool_call>{}</tool_call> ", "<tool_call>{}</tool_call> ");
    reply_parser_params must = family(REPLY_HERMES);
    must.is_call = true;
    expect(must, "{\"name\": \"f\", \"arguments\": {}}", "{f|{}}");
    must.is_reasoning = true;
    expect(must, "hm</think>\n\n{\"name\": \"f\", \"arguments\": {}}", "(hm){f|{}}");
}

static void test_xml(void **state) {
    (void)state;
    expect(family(REPLY_QWEN_XML),
           "<tool_call>\n<function=f>\n<parameter=n>\n42\n</parameter>\n<parameter=zip>\n007\n"
           "</parameter>\n<parameter=s>\na \"b\"\nc\n</parameter>\n</function>\n</tool_call>",
           "{f|{\"n\":42,\"zip\":\"007\",\"s\":\"a \\u0022b\\u0022\\u000ac\"}}");
    expect(family(REPLY_QWEN_XML), "<tool_call><function=f></function></tool_call>ok", "{f|{}}ok");
    expect(family(REPLY_GLM),
           "<think>x</think><tool_call>get\n<arg_key>city</arg_key>\n<arg_value>Bonn</arg_value>\n"
           "<arg_key>n</arg_key>\n<arg_value>[1]</arg_value>\n</tool_call>",
           "(x){get|{\"city\":\"Bonn\",\"n\":[1]}}");
    expect(family(REPLY_GLM), "<tool_call>now</tool_call>", "{now|{}}");
}

/* A name of a parameter that does not end is the end of the call, before the answer ends. */
static void test_endless_name(void **state) {
    static const struct {
        reply_family family;
        const char *head;
    } cases[] = {{REPLY_QWEN_XML, "<tool_call>\n<function=f>\n<parameter="},
                 {REPLY_GLM, "<tool_call>f\n<arg_key>"}};
    static const char name[] = "0123456789", tail[] = "</tool_call>ok";
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        parts p = {.last = REPLY_TEXT};
        reply_parser_params params = family(cases[i].family);
        params.take = take;
        params.user = &p;
        reply_parser *parser = reply_parser_create(&params);
        assert_non_null(parser);
        assert_true(reply_parser_push(parser, cases[i].head, strlen(cases[i].head)));
        for (size_t n = 0; n < 5000; n += strlen(name))
            assert_true(reply_parser_push(parser, name, strlen(name)));
        assert_string_equal(p.text, "{f|{}}");
        assert_true(reply_parser_push(parser, tail, strlen(tail)));
        reply_parser_end(parser);
        assert_string_equal(p.text, "{f|{}}ok");
        reply_parser_destroy(parser);
    }
}

static void test_llama(void **state) {
    (void)state;
    expect(family(REPLY_LLAMA), "{\"name\": \"f\", \"parameters\": {\"a\": 1}}", "{f|{\"a\": 1}}");
    expect(family(REPLY_LLAMA),
           "<|python_tag|>{\"type\": \"function\", \"name\": \"f\", \"parameters\": {}}", "{f|{}}");
    expect(family(REPLY_LLAMA), "{\"title\": \"x\"}", "{\"title\": \"x\"}");
    expect(family(REPLY_LLAMA), "Use {\"name\": \"f\"}", "Use {\"name\": \"f\"}");
}

static void test_mistral(void **state) {
    (void)state;
    expect(family(REPLY_MISTRAL),
           "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {\"a\": [1]}, \"id\": \"x\"}]",
           "{f|{\"a\": [1]}}");
    expect(family(REPLY_MISTRAL),
           "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": "
           "{\"b\": 2}}]",
           "{f|{}}{g|{\"b\": 2}}");
    expect(family(REPLY_MISTRAL), "[TOOL_CALLS]f[CALL_ID]123456789[ARGS]{\"a\": 1}",
           "{f|{\"a\": 1}}");
    expect(family(REPLY_MISTRAL), "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[ARGS]{}", "{f|{}}{g|{}}");
    expect(family(REPLY_MISTRAL), "a [TOOL", "a [TOOL");
}

#define B "\xef\xbd\x9c"
#define L "\xe2\x96\x81"

static void test_deepseek(void **state) {
    (void)state;
    expect(family(REPLY_DEEPSEEK),
           "Ok<" B "tool" L "calls" L "begin" B "><" B "tool" L "call" L "begin" B ">function<" B
           "tool" L "sep" B ">f\n```json\n{\"a\": 1}\n```<" B "tool" L "call" L "end" B ">\n<" B
           "tool" L "call" L "begin" B ">function<" B "tool" L "sep" B ">g\n```json\n{}\n```<" B
           "tool" L "call" L "end" B "><" B "tool" L "calls" L "end" B ">",
           "Ok{f|{\"a\": 1}}{g|{}}");
    expect(family(REPLY_DEEPSEEK),
           "<" B "tool" L "calls" L "begin" B "><" B "tool" L "call" L "begin" B ">f<" B "tool" L
           "sep" B ">{\"a\": 1}<" B "tool" L "call" L "end" B "><" B "tool" L "calls" L "end" B ">",
           "{f|{\"a\": 1}}");
}

static void test_gpt_oss(void **state) {
    (void)state;
    expect(family(REPLY_GPT_OSS),
           "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hi",
           "(hm)Hi");
    expect(family(REPLY_GPT_OSS),
           "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary "
           "to=functions.f <|constrain|>json<|message|>{\"a\":1}<|call|>",
           "(a){f|{\"a\":1}}");
    expect(family(REPLY_GPT_OSS),
           "<|channel|>commentary to=functions.f<|message|>{}<|call|><|start|>assistant<|channel|>"
           "commentary to=functions. <|message|>x<|call|>",
           "{f|{}}x");
    expect(family(REPLY_GPT_OSS), "no format", "no format");
}

static void test_cut(void **state) {
    (void)state;
    static const struct {
        reply_family family;
        const char *text;
        bool is_cut;
    } cases[] = {
        {REPLY_PLAIN, "a", false},
        {REPLY_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"b", true},
        {REPLY_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": {}", true},
        {REPLY_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {}", false},
        {REPLY_HERMES, "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call> and", false},
        {REPLY_LLAMA, "{\"name\": \"f\", \"parameters\": {\"a\": 1", true},
        {REPLY_LLAMA, "{\"name\": \"f\", \"parameters\": {\"a\": 1}", false},
        {REPLY_MISTRAL, "[TOOL_CALLS]f[ARGS]{\"a\": [1, 2", true},
        {REPLY_MISTRAL, "[TOOL_CALLS]f[ARGS]{\"a\": [1, 2]}", false},
        {REPLY_QWEN_XML, "<tool_call><function=f>", true},
        {REPLY_QWEN_XML, "<tool_call><function=f><parameter=a>1", true},
        {REPLY_QWEN_XML, "<tool_call><function=f><parameter=a>1</parameter>\n", true},
        {REPLY_QWEN_XML, "<tool_call><function=f><parameter=a>1</parameter>\n</function>", false},
        {REPLY_GLM, "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1", true},
        {REPLY_GLM, "<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value></tool", false},
        {REPLY_GPT_OSS, "<|channel|>commentary to=functions.f<|message|>{\"a\": 1", true},
        {REPLY_GPT_OSS, "<|channel|>commentary to=functions.f<|message|>{}<|call|>", false},
        {REPLY_GPT_OSS, "<|channel|>final<|message|>a", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (uint32_t seed = 0; seed < 10; seed++) {
            parts p;
            parse(family(cases[i].family), cases[i].text, seed == 0 ? 1 : 0, seed, &p);
            if (p.is_cut != cases[i].is_cut) print_error("seed %u: %s\n", seed, cases[i].text);
            assert_int_equal(p.is_cut, cases[i].is_cut);
        }
}

static void test_families(void **state) {
    (void)state;
    assert_int_equal(reply_family_find(""), REPLY_PLAIN);
    assert_int_equal(reply_family_find("... <tool_call>\n<function="), REPLY_QWEN_XML);
    assert_int_equal(reply_family_find("... <tool_call>{"), REPLY_HERMES);
    assert_int_equal(reply_family_find("... [TOOL_CALLS]"), REPLY_MISTRAL);
    assert_string_equal(reply_family_name(REPLY_GLM), "glm");
}

/* Random marks, in any order: the parts do not depend on how the text was cut into pieces. */
static void test_random(void **state) {
    (void)state;
    static const char *const words[] = {"<think>",     "</think>",
                                        "<tool_call>", "</tool_call>",
                                        "{",           "}",
                                        "\"name\"",    ":",
                                        "\"f\"",       "[TOOL_CALLS]",
                                        "<|message|>", "<|channel|>",
                                        "<arg_key>",   "</arg_key>",
                                        "\n",          "x",
                                        "<function=",  ">",
                                        ",",           "\"arguments\""};
    for (uint32_t seed = 0; seed < 4000; seed++) {
        uint32_t random = seed;
        char text[512] = "";
        for (int i = 0; i < 24; i++) strcat(text, words[random_next(&random) % 20]);
        const reply_parser_params params = family((reply_family)(seed % 8));
        parts whole, pieces;
        parse(params, text, strlen(text), 0, &whole);
        parse(params, text, 0, seed, &pieces);
        if (strcmp(whole.text, pieces.text) != 0) print_error("seed %u\n", seed);
        assert_string_equal(whole.text, pieces.text);
    }
}

static void text_take(void *user, const char *text, size_t len) {
    add(user, text, len);
}

static void stop_expect(const char *const *strings, int n, const char *text, const char *expected,
                        int found) {
    for (uint32_t seed = 0; seed < 10; seed++) {
        reply_stop stop = {0};
        parts p = {.last = REPLY_TEXT};
        uint32_t random = seed;
        bool goes_on = true;
        for (int i = 0; i < n; i++) assert_true(reply_stop_add(&stop, strings[i]));
        for (size_t at = 0, len = strlen(text), k; at < len && goes_on; at += k) {
            k = seed == 0 ? len : 1 + random_next(&random) % 5;
            if (k > len - at) k = len - at;
            goes_on = reply_stop_push(&stop, text + at, k, text_take, &p);
        }
        if (goes_on) reply_stop_flush(&stop, text_take, &p);
        assert_string_equal(p.text, expected);
        assert_int_equal(stop.found, found);
        reply_stop_clear(&stop);
    }
}

static void test_stop(void **state) {
    (void)state;
    const char *const two[] = {"STOP", "aab"};
    stop_expect(two, 2, "some STO text", "some STO text", -1);
    stop_expect(two, 2, "some STOP text", "some ", 0);
    stop_expect(two, 2, "aaab STOP", "a", 1);
    stop_expect(two, 2, "aa", "aa", -1);
    char longest[REPLY_STOP_MAX + 2], text[3 * REPLY_STOP_MAX];
    memset(longest, 'x', REPLY_STOP_MAX);
    longest[REPLY_STOP_MAX] = '\0';
    snprintf(text, sizeof text, "y%sz", longest);
    const char *const one[] = {longest};
    stop_expect(one, 1, text, "y", 0);
    reply_stop stop = {0};
    strcat(longest, "x");
    assert_false(reply_stop_add(&stop, longest));
    assert_false(reply_stop_add(&stop, ""));
}

/* As many strings as a request may have, and the template's. */
static void test_stop_count(void **state) {
    char words[REPLY_N_STOP_MAX + 1][8];
    const char *strings[REPLY_N_STOP_MAX + 1];
    reply_stop stop = {0};
    (void)state;
    for (int i = 0; i <= REPLY_N_STOP_MAX; i++) {
        snprintf(words[i], sizeof words[i], "<%d>", i);
        strings[i] = words[i];
    }
    stop_expect(strings, REPLY_N_STOP_MAX + 1, "a <1 <15> b", "a <1 ", 15);
    stop_expect(strings, REPLY_N_STOP_MAX + 1, "a <1 <16> b", "a <1 ", 16);
    for (int i = 0; i <= REPLY_N_STOP_MAX; i++) assert_true(reply_stop_add(&stop, strings[i]));
    assert_false(reply_stop_add(&stop, "more"));
    reply_stop_clear(&stop);
}

/* ---- Errors ---- */

/* HTTP status and type of an error in both APIs. 429 is for a full queue alone: other exhausted
 * resources are no fault of the client. */
static void test_errors(void **state) {
    static const struct {
        tdm_status status;
        bool is_queue_full;
        int http_status;
        const char *openai, *anthropic;
    } cases[] = {
        {TDM_RESOURCE_EXHAUSTED, true, 429, "rate_limit_error", "rate_limit_error"},
        {TDM_RESOURCE_EXHAUSTED, false, 500, "server_error", "api_error"},
        {TDM_UNAVAILABLE, false, 503, "unavailable_error", "overloaded_error"},
        {TDM_CANCELLED, false, 503, "unavailable_error", "overloaded_error"},
        {TDM_INVALID_ARGUMENT, true, 400, "invalid_request_error", "invalid_request_error"},
        {TDM_INTERNAL, false, 500, "server_error", "api_error"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int http_status = api_http_status(cases[i].status, cases[i].is_queue_full);
        assert_int_equal(http_status, cases[i].http_status);
        for (int k = 0; k < 2; k++) {
            json_t *reply =
                api_error_json(k == 0 ? API_SHAPE_OPENAI : API_SHAPE_ANTHROPIC, http_status, "why");
            const json_t *error = json_object_get(reply, "error");
            assert_string_equal(json_string_value(json_object_get(error, "type")),
                                k == 0 ? cases[i].openai : cases[i].anthropic);
            assert_string_equal(json_string_value(json_object_get(error, "message")), "why");
            json_decref(reply);
        }
    }
}

/* ---- Messages ---- */

/* A template that refuses two user messages in a row gets them joined, or, without memory for that,
 * none of them. */
static void test_joined(void **state) {
    static const char text[] =
        "{% for m in messages %}"
        "{% if loop.index0 > 0 and m.role == messages[loop.index0 - 1].role %}"
        "{{ raise_exception('twice') }}{% endif %}[{{ m.content }}]{% endfor %}";
    enum { N_FIRST = 1000, N_SECOND = 2000 };
    char first[N_FIRST + 1] = "", second[N_SECOND + 1] = "", expected[N_FIRST + N_SECOND + 8];
    llm_template *tpl = NULL;
    tdm_error err = {0};
    char *prompt = NULL;
    size_t len = 0;
    (void)state;
    memset(first, 'a', N_FIRST);
    memset(second, 'b', N_SECOND);
    snprintf(expected, sizeof expected, "[%s\n\n%s]", first, second);
    assert_int_equal(llm_template_create("t", text, strlen(text), &tpl, &err), TDM_OK);
    const server_model model = {.name = "m", .tpl = tpl, .bos = "", .eos = ""};
    const api_context context = {.model = &model};
    api_chat chat = {.messages = json_pack("[{s:s, s:s}, {s:s, s:s}]", "role", "user", "content",
                                           first, "role", "user", "content", second)};
    assert_int_equal(api_chat_render(&context, &chat, &prompt, &len, &err), TDM_OK);
    assert_string_equal(prompt, expected);
    free(prompt);
    /* The buffer has room for the first message and not for both. */
    prompt = NULL;
    realloc_fails_of = (N_FIRST + 2 + N_SECOND + 1) * 2;
    const tdm_status status = api_chat_render(&context, &chat, &prompt, &len, &err);
    realloc_fails_of = 0;
    assert_int_equal(status, TDM_RESOURCE_EXHAUSTED);
    assert_null(prompt);
    api_chat_clear(&chat);
    llm_template_destroy(tpl);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain),      cmocka_unit_test(test_hermes),
        cmocka_unit_test(test_xml),        cmocka_unit_test(test_llama),
        cmocka_unit_test(test_mistral),    cmocka_unit_test(test_deepseek),
        cmocka_unit_test(test_gpt_oss),    cmocka_unit_test(test_families),
        cmocka_unit_test(test_cut),        cmocka_unit_test(test_random),
        cmocka_unit_test(test_stop),       cmocka_unit_test(test_errors),
        cmocka_unit_test(test_joined),     cmocka_unit_test(test_endless_name),
        cmocka_unit_test(test_stop_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
