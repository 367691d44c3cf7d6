/* SPDX-License-Identifier: MIT
 *
 * test_calls.c: the grammars of calls (server/api/calls.c, call_forms.c), by family: calls as models
 * write them are accepted, others are not; random texts that a grammar allows are parsed
 * (reply/parse.h) to a call of one of the tools whose arguments fit its schema.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/api/state.h"
#include "server/grammar/grammar.h"
#include "tests/unit/tiny_vocab.h"

#define B "\xef\xbd\x9c"
#define L "\xe2\x96\x81"

#define CALLS_OPEN "<" B "tool" L "calls" L "begin" B ">"
#define CALL_OPEN  "<" B "tool" L "call" L "begin" B ">"
#define CALL_CLOSE "<" B "tool" L "call" L "end" B ">"
#define SEP        "<" B "tool" L "sep" B ">"

/* Control tokens, and texts that end values, so that random texts end. */
static const char *const controls[] = {
    "[TOOL_CALLS]", "[ARGS]",      "[CALL_ID]",     CALLS_OPEN,    CALL_OPEN,     CALL_CLOSE, SEP,
    "<|channel|>",  "<|message|>", "<|constrain|>", "<tool_call>", "</tool_call>"};
static const char *const pieces[] = {
    "</arg_value>", "</parameter>", "</function>", "</arg_", "</para", "\"}",
    "\n```",        "Bonn",         "\"",          "}",      "7"};

enum {
    N_CONTROL = TINY_COUNT(controls),
    N_PIECE = TINY_COUNT(pieces),
    N_TOKEN = 256 + N_PIECE + N_CONTROL + 1
};

static struct {
    tiny_vocab parts;
    char letters[N_TOKEN][64];
    llm_vocab *tokens;
    server_model model;
    grammar_vocab *vocab;
    json_t *tools;
} fixture;

static const char tools_text[] =
    "[{\"function\":{\"name\":\"weather\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"city\":{\"type\":\"string\",\"maxLength\":4},\"days\":{\"type\":\"integer\",\"minimum\":1,"
    "\"maximum\":9},\"unit\":{\"type\":\"string\",\"enum\":[\"C\",\"F\"]}},"
    "\"required\":[\"city\",\"unit\"],\"additionalProperties\":false}}},"
    "{\"function\":{\"name\":\"now\"}}]";

static int open_all(void **state) {
    (void)state;
    tiny_vocab *v = &fixture.parts;
    tdm_error err = {0};
    tiny_vocab_begin(v, "gpt2");
    v->params.pre = "default";
    for (size_t b = 0; b < 256 + N_PIECE; b++) {
        const char byte = (char)b;
        const char *text = b < 256 ? &byte : pieces[b - 256];
        const size_t n_text = b < 256 ? 1 : strlen(text);
        size_t n = 0;
        for (size_t i = 0; i < n_text; i++)
            n += llm_byte_letter_write((unsigned char)text[i], fixture.letters[b] + n);
        v->tokens[b] = (llm_vocab_str){fixture.letters[b], n};
        v->types[b] = LLM_TOKEN_NORMAL;
        v->params.n_token++;
    }
    for (size_t i = 0; i < N_CONTROL; i++)
        tiny_vocab_add(v, &(tiny_token){controls[i], 0, LLM_TOKEN_CONTROL});
    tiny_vocab_add(v, &(tiny_token){"<|endoftext|>", 0, LLM_TOKEN_CONTROL});
    v->params.eos_id = N_TOKEN - 1;
    assert_int_equal(llm_vocab_create(&v->params, &fixture.tokens, &err), TDM_OK);
    assert_int_equal(grammar_vocab_create(fixture.tokens, N_TOKEN, &fixture.vocab, &err), TDM_OK);
    fixture.model =
        (server_model){.name = "m", .vocab = fixture.tokens, .grammar_vocab = fixture.vocab};
    fixture.tools = json_loads(tools_text, 0, NULL);
    assert_non_null(fixture.tools);
    return 0;
}

static int close_all(void **state) {
    (void)state;
    json_decref(fixture.tools);
    grammar_vocab_destroy(fixture.vocab);
    llm_vocab_destroy(fixture.tokens);
    return 0;
}

static grammar *grammar_of(reply_family family, const char *tpl) {
    tdm_error err = {0};
    grammar *g = NULL;
    fixture.model.tpl_text = tpl;
    if (api_call_grammar(&fixture.model, family, fixture.tools, &g, &err) != TDM_OK)
        fail_msg("%s: %s", reply_family_name(family), err.message);
    return g;
}

/* ---- Calls that models write ---- */

/* 2 = a whole call that must end, 1 = the beginning of one, 0 = none. */
static int match(grammar *g, const char *text) {
    tdm_error err = {0};
    grammar_state *s = NULL;
    assert_int_equal(grammar_state_create(g, &s, &err), TDM_OK);
    const tdm_status status = grammar_state_accept_text(s, text, strlen(text), &err);
    const int result = status != TDM_OK ? 0 : grammar_state_must_end(s) ? 2 : 1;
    grammar_state_destroy(s);
    return result;
}

typedef struct example {
    reply_family family;
    const char *tpl, *text;
    int result;
} example;

#define GLM(arguments)  "weather\n" arguments "</tool_call>"
#define QWEN(arguments) "\n<function=weather>\n" arguments "</function>\n</tool_call>"

static const example examples[] = {
    {REPLY_HERMES, "", "\n{\"name\":\"now\",\"arguments\":{}}\n</tool_call>", 2},
    {REPLY_LLAMA, "", "{\"name\":\"now\",\"parameters\":{}}", 2},
    {REPLY_MISTRAL, "", "[{\"name\": \"now\", \"arguments\": {}}]", 2},
    {REPLY_MISTRAL, "",
     "[{\"name\": \"weather\", \"arguments\": {\"city\": \"Bonn\", \"unit\": \"C\"}}, {\"name\": "
     "\"now\", \"arguments\": {}}]",
     2},
    {REPLY_MISTRAL, "", "[{\"name\": \"never\"", 0},
    {REPLY_MISTRAL, "", "[{\"name\": \"weather\", \"arguments\": {}", 0},
    {REPLY_MISTRAL, "", "now[ARGS]{}", 0},
    {REPLY_MISTRAL, "[ARGS]", "now[ARGS]{}", 2},
    {REPLY_MISTRAL, "[CALL_ID][ARGS]", "now[CALL_ID]abc123DEF[ARGS]{}", 2},
    {REPLY_MISTRAL, "[CALL_ID][ARGS]", "weather[ARGS]{\"city\": \"Bonn\", \"unit\": \"K", 0},
    {REPLY_DEEPSEEK, "```json", "function" SEP "now\n```json\n{}\n```" CALL_CLOSE, 2},
    {REPLY_DEEPSEEK, "```json", "function" SEP "never", 0},
    {REPLY_DEEPSEEK, "", "now" SEP "{}" CALL_CLOSE, 2},
    {REPLY_DEEPSEEK, "", "weather" SEP "{\"city\": 3", 0},
    {REPLY_GLM, "", "now\n</tool_call>", 2},
    {REPLY_GLM, "", "now</tool_call>", 2},
    {REPLY_GLM, "",
     GLM("<arg_key>city</arg_key>\n<arg_value>a < b </arg</arg_value>\n<arg_key>days</arg_key>\n"
         "<arg_value>3</arg_value>\n<arg_key>unit</arg_key>\n<arg_value>F</arg_value>\n"),
     2},
    {REPLY_GLM, "",
     GLM("<arg_key>city</arg_key><arg_value></arg_value><arg_key>unit</arg_key><arg_value>C"
         "</arg_value>"),
     2},
    {REPLY_GLM, "",
     GLM("<arg_key>city</arg_key><arg_value></arg_value><arg_key>unit</arg_key><arg_value>C\n"
         "</arg_value>"),
     0},
    {REPLY_GLM, "", GLM("<arg_key>unit</arg_key>\n<arg_value>C</arg_value>\n"), 0},
    {REPLY_GLM, "", GLM("<arg_key>city</arg_key>\n<arg_value>Bonn</arg_value>\n"), 0},
    {REPLY_GLM, "",
     GLM("<arg_key>city</arg_key>\n<arg_value>B</arg_value>\n<arg_key>days</arg_key>\n"
         "<arg_value>many"),
     0},
    {REPLY_QWEN_XML, "", "\n<function=now>\n</function>\n</tool_call>", 2},
    {REPLY_QWEN_XML, "",
     QWEN("<parameter=city>\na\n<</para</parameters>\n</parameter>\n<parameter=unit>\nC\n"
          "</parameter>\n"),
     2},
    {REPLY_QWEN_XML, "", QWEN("<parameter=unit>"), 0},
    {REPLY_QWEN_XML, "", "\n<function=never>", 0},
    {REPLY_GPT_OSS, "", "now <|constrain|>json<|message|>{}", 2},
    {REPLY_GPT_OSS, "", "now<|channel|>commentary json<|message|>{}", 2},
    {REPLY_GPT_OSS, "", "now<|message|>{}", 2},
    {REPLY_GPT_OSS, "", "now<|message|>{\"a", 0},
    {REPLY_GPT_OSS, "", "nowhere", 0},
};

static void test_examples(void **state) {
    (void)state;
    for (size_t i = 0; i < TINY_COUNT(examples); i++) {
        const example *e = &examples[i];
        grammar *g = grammar_of(e->family, e->tpl);
        const int result = match(g, e->text);
        if (result != e->result)
            fail_msg("%s, template '%s': %d, expected %d: %s", reply_family_name(e->family), e->tpl,
                     result, e->result, e->text);
        grammar_release(g);
    }
}

/* ---- Random calls ---- */

typedef struct parsed {
    api_buffer text, name, arguments;
    int n_call;
} parsed;

static void part_take(void *user, reply_piece piece, const char *text, size_t len) {
    parsed *p = user;
    if (piece == REPLY_TEXT) api_buffer_add(&p->text, text, len);
    if (piece == REPLY_CALL && p->n_call++ == 0) api_buffer_add(&p->name, text, len);
    if (piece == REPLY_ARGUMENTS && p->n_call == 1) api_buffer_add(&p->arguments, text, len);
}

static bool is_string(void *user, const char *tool, const char *parameter) {
    (void)user;
    return strcmp(tool, "weather") == 0 && strcmp(parameter, "days") != 0;
}

/* xorshift */
static uint32_t random_next(uint32_t *random) {
    *random ^= *random << 13;
    *random ^= *random >> 17;
    *random ^= *random << 5;
    return *random;
}

/* A random text of a grammar. Half of the tokens are of those that end values, where they may. */
static void text_draw(grammar *g, uint32_t *random, api_buffer *out) {
    tdm_error err = {0};
    grammar_state *s = NULL;
    uint64_t mask[(N_TOKEN + 63) / 64];
    bool has_ended = false;
    assert_int_equal(grammar_state_create(g, &s, &err), TDM_OK);
    while (!has_ended && out->len < 4000) {
        int32_t allowed[N_TOKEN], n = 0, first = 0;
        assert_int_equal(grammar_state_mask(s, mask, &err), TDM_OK);
        has_ended = (mask[(N_TOKEN - 1) / 64] >> ((N_TOKEN - 1) % 64) & 1) != 0;
        if (has_ended) break; /* it may: more calls could follow */
        for (int32_t t = 0; t < N_TOKEN - 1; t++) {
            if ((mask[t / 64] >> (t % 64) & 1) == 0) continue;
            if (t == '<') continue; /* else values would hardly end */
            if (t < 256) first++;
            allowed[n++] = t;
        }
        if (n == 0) allowed[n++] = '<';
        const bool is_long = n > first && random_next(random) % 2 == 0;
        const int32_t from = is_long ? first : 0;
        const int32_t token = allowed[from + (int32_t)(random_next(random) % (uint32_t)(n - from))];
        const llm_vocab_str bytes = llm_vocab_token_bytes(fixture.tokens, token);
        api_buffer_add(out, bytes.ptr, bytes.len);
        assert_int_equal(grammar_state_accept(s, token, &err), TDM_OK);
        has_ended = grammar_state_must_end(s);
    }
    assert_true(has_ended);
    grammar_state_destroy(s);
}

static void arguments_check(const char *what, const parsed *p, const char *text) {
    json_t *value = json_loads(api_buffer_text(&p->arguments), 0, NULL);
    bool is_good = p->n_call >= 1 && p->text.len == 0 && json_is_object(value);
    if (is_good && strcmp(p->name.data, "weather") == 0) {
        const json_t *city = json_object_get(value, "city"), *unit = json_object_get(value, "unit"),
                     *days = json_object_get(value, "days");
        is_good = json_is_string(city) && json_is_string(unit) &&
                  (strcmp(json_string_value(unit), "C") == 0 ||
                   strcmp(json_string_value(unit), "F") == 0) &&
                  (days == NULL || (json_is_integer(days) && json_integer_value(days) >= 1 &&
                                    json_integer_value(days) <= 9)) &&
                  json_object_size(value) == 2u + (days != NULL);
    } else if (is_good) {
        is_good = strcmp(p->name.data, "now") == 0 && json_object_size(value) == 0;
    }
    if (!is_good)
        fail_msg("%s: %d calls, '%s' %s, text '%s', of: %s", what, p->n_call,
                 api_buffer_text(&p->name), api_buffer_text(&p->arguments),
                 api_buffer_text(&p->text), text);
    json_decref(value);
}

static void random_check(reply_family family, const char *tpl, bool is_whole, uint32_t seed) {
    tdm_error err = {0};
    char *rules = NULL;
    grammar *g = NULL;
    fixture.model.tpl_text = tpl;
    assert_int_equal(
        api_call_text(&fixture.model, family, fixture.tools, NULL, true, is_whole, &rules, &err),
        TDM_OK);
    assert_int_equal(grammar_compile(fixture.vocab, rules, strlen(rules), &g, &err), TDM_OK);
    free(rules);
    for (int i = 0; i < 40; i++) {
        uint32_t random = seed * 1000 + (uint32_t)i + 1;
        api_buffer text = {0};
        parsed p = {0};
        const reply_parser_params params = {.family = family,
                                            .parses_calls = true,
                                            .is_string = is_string,
                                            .take = part_take,
                                            .user = &p};
        if (!is_whole && family == REPLY_GPT_OSS)
            api_buffer_add(&text, "<|channel|>commentary", 21);
        if (!is_whole)
            api_buffer_add(&text, api_call_behind(family), strlen(api_call_behind(family)));
        text_draw(g, &random, &text);
        if (family == REPLY_GPT_OSS) api_buffer_add(&text, "<|call|>", 8);
        reply_parser *parser = reply_parser_create(&params);
        reply_parser_push(parser, text.data, text.len);
        reply_parser_end(parser);
        reply_parser_destroy(parser);
        arguments_check(reply_family_name(family), &p, text.data);
        api_buffer_clear(&text);
        api_buffer_clear(&p.text);
        api_buffer_clear(&p.name);
        api_buffer_clear(&p.arguments);
    }
    grammar_release(g);
}

static void test_random(void **state) {
    (void)state;
    static const struct {
        reply_family family;
        const char *tpl;
    } forms[] = {{REPLY_HERMES, ""},
                 {REPLY_LLAMA, ""},
                 {REPLY_MISTRAL, ""},
                 {REPLY_MISTRAL, "[CALL_ID][ARGS]"},
                 {REPLY_DEEPSEEK, "```json"},
                 {REPLY_DEEPSEEK, ""},
                 {REPLY_GLM, ""},
                 {REPLY_QWEN_XML, ""},
                 {REPLY_GPT_OSS, ""}};
    for (uint32_t i = 0; i < TINY_COUNT(forms); i++) {
        random_check(forms[i].family, forms[i].tpl, false, i);
        random_check(forms[i].family, forms[i].tpl, true, i + 100);
    }
}

/* Where an answer has a format, it is of that format or calls a tool. */
static void test_answer_or_call(void **state) {
    (void)state;
    json_t *answer =
        json_loads("{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"const\":7}}}", 0, NULL);
    for (int f = REPLY_HERMES; f < REPLY_GPT_OSS; f++) {
        tdm_error err = {0};
        char *rules = NULL;
        grammar *g = NULL;
        int n_answer = 0, n_call = 0;
        fixture.model.tpl_text = "";
        assert_int_equal(api_call_text(&fixture.model, (reply_family)f, fixture.tools, answer, true,
                                       true, &rules, &err),
                         TDM_OK);
        assert_int_equal(grammar_compile(fixture.vocab, rules, strlen(rules), &g, &err), TDM_OK);
        free(rules);
        for (uint32_t i = 1; i <= 60; i++) {
            uint32_t random = (uint32_t)f * 1000 + i;
            api_buffer text = {0};
            parsed p = {0};
            const reply_parser_params params = {.family = (reply_family)f,
                                                .parses_calls = true,
                                                .is_string = is_string,
                                                .take = part_take,
                                                .user = &p};
            text_draw(g, &random, &text);
            reply_parser *parser = reply_parser_create(&params);
            reply_parser_push(parser, text.data, text.len);
            reply_parser_end(parser);
            reply_parser_destroy(parser);
            if (strcmp(text.data, "7") == 0)
                n_answer++;
            else if (p.n_call > 0)
                n_call++;
            else
                fail_msg("%s: neither 7 nor a call: %s", reply_family_name((reply_family)f),
                         text.data);
            api_buffer_clear(&text);
            api_buffer_clear(&p.text);
            api_buffer_clear(&p.name);
            api_buffer_clear(&p.arguments);
        }
        if (n_answer == 0 || n_call == 0)
            fail_msg("%s: %d answers, %d calls", reply_family_name((reply_family)f), n_answer,
                     n_call);
        grammar_release(g);
    }
    json_decref(answer);
}

/* A tool whose schema is not supported takes any arguments, or is refused by name. */
static void test_unsupported(void **state) {
    (void)state;
    json_t *tools =
        json_loads("[{\"function\":{\"name\":\"odd\",\"parameters\":{\"type\":\"object\","
                   "\"patternProperties\":{\"x\":{}}}}}]",
                   0, NULL);
    fixture.model.tpl_text = "";
    for (int f = REPLY_HERMES; f <= REPLY_GPT_OSS; f++) {
        tdm_error err = {0};
        char *rules = NULL;
        assert_int_equal(
            api_call_text(&fixture.model, (reply_family)f, tools, NULL, false, true, &rules, &err),
            TDM_UNSUPPORTED);
        assert_non_null(strstr(err.message, "patternProperties"));
        assert_null(rules);
        assert_int_equal(
            api_call_text(&fixture.model, (reply_family)f, tools, NULL, true, true, &rules, &err),
            TDM_OK);
        free(rules);
    }
    json_t *saved = fixture.tools;
    fixture.tools = tools;
    grammar *g = grammar_of(REPLY_GLM, "");
    assert_int_equal(match(g, "odd\n<arg_key>any</arg_key>\n<arg_value>x</arg_value>\n"
                              "</tool_call>"),
                     2);
    grammar_release(g);
    fixture.tools = saved;
    json_decref(tools);
}

/* ---- Where the grammar holds ---- */

static void feed(const llm_constraint *c, const char *text) {
    tdm_error err = {0};
    for (const char *at = text; *at != '\0'; at++) /* ids of bytes are the bytes */
        assert_int_equal(c->accept(c->state, (unsigned char)*at, &err), TDM_OK);
}

static bool is_limited(const llm_constraint *c) {
    uint64_t mask[(N_TOKEN + 63) / 64];
    tdm_error err = {0};
    bool limited = false;
    assert_int_equal(c->mask(c->state, mask, &limited, &err), TDM_OK);
    return limited;
}

static void constraint_check(reply_family family, const char *tpl, const char *before,
                             const char *call) {
    tdm_error err = {0};
    llm_constraint c = {0};
    api_settings settings = {.constrains_calls = true, .grammar_behind = api_call_behind(family)};
    settings.grammar = grammar_of(family, tpl);
    assert_int_equal(api_constraint_make(&fixture.model, &settings, &c, &err), TDM_OK);
    for (int i = 0; i < 2; i++) {
        feed(&c, before);
        assert_false(is_limited(&c));
        feed(&c, api_call_behind(family));
        assert_true(is_limited(&c));
        feed(&c, call);
        assert_false(is_limited(&c));
        assert_false(c.is_done(c.state));
        /* a call of no tool ends the grammar, not the answer */
        feed(&c, before);
        feed(&c, api_call_behind(family));
        feed(&c, "?");
        assert_false(is_limited(&c));
    }
    c.destroy(c.state);
    grammar_release(settings.grammar);
}

static void test_constraint(void **state) {
    (void)state;
    constraint_check(REPLY_HERMES, "", "A text. <think><tool_call>no</think>",
                     "{\"name\":\"now\",\"arguments\":{}}</tool_call>");
    constraint_check(REPLY_MISTRAL, "", "", "[{\"name\": \"now\", \"arguments\": {}}]");
    constraint_check(REPLY_MISTRAL, "[ARGS]", "TOOL_CALLS]", "now[ARGS]{}");
    constraint_check(REPLY_DEEPSEEK, "", CALLS_OPEN, "now" SEP "{}" CALL_CLOSE);
    constraint_check(REPLY_GLM, "", "<think><tool_call>x</think>\n", "now\n</tool_call>");
    constraint_check(REPLY_QWEN_XML, "", "x", "\n<function=now>\n</function>\n</tool_call>");
    /* a recipient within a message is text */
    constraint_check(REPLY_GPT_OSS, "<|channel|>",
                     "<|channel|>analysis<|message|>say to=functions.x<|end|><|start|>assistant"
                     "<|channel|>commentary",
                     "now <|constrain|>json<|message|>{}");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_examples),       cmocka_unit_test(test_random),
        cmocka_unit_test(test_answer_or_call), cmocka_unit_test(test_unsupported),
        cmocka_unit_test(test_constraint),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
