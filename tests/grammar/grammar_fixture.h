/* SPDX-License-Identifier: MIT
 *
 * grammar_fixture.h: a small vocabulary for tests of grammars, and matching a text without tokens.
 */
#ifndef TESTS_GRAMMAR_FIXTURE_H
#define TESTS_GRAMMAR_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "server/grammar/grammar.h"
#include "tests/unit/tiny_vocab.h"

/* Tokens besides the 256 bytes: pieces of JSON, words, parts of code points, twins, control. */
static const char *const fixture_pieces[] = {"he",
                                             "hello",
                                             " world",
                                             "{\"",
                                             "\": ",
                                             "\", \"",
                                             "\"}",
                                             "}",
                                             "true",
                                             "false",
                                             "null",
                                             "tru",
                                             "12",
                                             "123",
                                             ".5",
                                             "-1",
                                             "e+",
                                             "[",
                                             "]",
                                             "[]",
                                             "{}",
                                             ", ",
                                             ",",
                                             "\n",
                                             "\n  ",
                                             "  ",
                                             "    ",
                                             "name",
                                             "age",
                                             "id",
                                             "\"name",
                                             "\"id\"",
                                             "\":\"",
                                             "\xC3\xA9t\xC3\xA9",
                                             "\xE2\x82",
                                             "\x82\xAC",
                                             "\xE2\x82\xAC",
                                             "\xF0\x9F\x98",
                                             "\xF0\x9F\x98\x80",
                                             "\\n",
                                             "\\\"",
                                             "\\u00",
                                             "abc",
                                             "abcabc",
                                             "aaaaaaaa",
                                             "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                                             "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\"",
                                             "hello",
                                             "a\"",
                                             "\"a",
                                             "1,2",
                                             "20",
                                             "24-01",
                                             "T12:",
                                             "@",
                                             ".com",
                                             "-",
                                             "00"};

enum { FIXTURE_PIECES = TINY_COUNT(fixture_pieces), FIXTURE_EXTRA = 3 };
enum {
    FIXTURE_THINK = 256 + FIXTURE_PIECES, /* "<think>", a control token */
    FIXTURE_END,                          /* ends generation */
    FIXTURE_UNUSED,
    FIXTURE_COUNT
};

typedef struct grammar_fixture {
    tiny_vocab parts;
    char letters[FIXTURE_PIECES][128];
    llm_vocab *tokens;
    grammar_vocab *vocab;
} grammar_fixture;

static inline void fixture_open(grammar_fixture *f) {
    tiny_vocab *v = &f->parts;
    tdm_error err = {0};
    tiny_vocab_begin(v, "gpt2");
    v->params.pre = "default";
    for (size_t b = 0; b < 256; b++) {
        const size_t n = llm_byte_letter_write((unsigned char)b, v->letters[b]);
        v->tokens[b] = (llm_vocab_str){v->letters[b], n};
        v->types[b] = LLM_TOKEN_NORMAL;
    }
    v->params.n_token = 256;
    for (size_t i = 0; i < FIXTURE_PIECES; i++) {
        size_t n = 0;
        for (const char *c = fixture_pieces[i]; *c != '\0'; c++)
            n += llm_byte_letter_write((unsigned char)*c, f->letters[i] + n);
        v->tokens[v->params.n_token] = (llm_vocab_str){f->letters[i], n};
        v->types[v->params.n_token++] = LLM_TOKEN_NORMAL;
    }
    tiny_vocab_add(v, &(tiny_token){"<think>", 0, LLM_TOKEN_CONTROL});
    tiny_vocab_add(v, &(tiny_token){"<|endoftext|>", 0, LLM_TOKEN_CONTROL});
    tiny_vocab_add(v, &(tiny_token){"unused", 0, LLM_TOKEN_UNUSED});
    v->params.eos_id = FIXTURE_END;
    if (llm_vocab_create(&v->params, &f->tokens, &err) != TDM_OK) fail_msg("%s", err.message);
    /* The model has more rows than the tokenizer has tokens. */
    if (grammar_vocab_create(f->tokens, FIXTURE_COUNT + 5, &f->vocab, &err) != TDM_OK)
        fail_msg("%s", err.message);
}

static inline void fixture_close(grammar_fixture *f) {
    grammar_vocab_destroy(f->vocab);
    llm_vocab_destroy(f->tokens);
}

static inline grammar *fixture_compile(const grammar_fixture *f, const char *text) {
    tdm_error err = {0};
    grammar *g = NULL;
    if (grammar_compile(f->vocab, text, strlen(text), &g, &err) != TDM_OK)
        fail_msg("%s\nin:\n%s", err.message, text);
    return g;
}

/* 2 = the whole text matches, 1 = it is the beginning of one, 0 = neither. */
static inline int fixture_match(grammar *g, const char *text, size_t len) {
    tdm_error err = {0};
    grammar_state *s = NULL;
    assert_int_equal(grammar_state_create(g, &s, &err), TDM_OK);
    const tdm_status status = grammar_state_accept_text(s, text, len, &err);
    const int result = status != TDM_OK ? 0 : grammar_state_can_end(s) ? 2 : 1;
    grammar_state_destroy(s);
    return result;
}

#endif
