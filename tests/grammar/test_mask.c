/* SPDX-License-Identifier: MIT
 *
 * test_mask.c: a mask has exactly the tokens that can be accepted, on random texts of many
 * grammars.
 */
#include "tests/grammar/grammar_fixture.h"
#include "tests/support/random.h"

static grammar_fixture fixture;

enum { WORDS = (FIXTURE_COUNT + 5 + 63) / 64 };

static bool has(const uint64_t *mask, int32_t t) {
    return mask[t / 64] >> (t % 64) & 1;
}

/* Compares the mask with accepting each token; returns the number of allowed ones. */
static int mask_check(grammar_state *s, uint64_t *mask, const char *text) {
    tdm_error err = {0};
    int n = 0;
    if (grammar_state_mask(s, mask, &err) != TDM_OK) fail_msg("%s\nin\n%s", err.message, text);
    for (int32_t t = 0; t < FIXTURE_COUNT + 5; t++) {
        grammar_state *next = NULL;
        assert_int_equal(grammar_state_clone(s, &next, &err), TDM_OK);
        const bool is_taken = grammar_state_accept(next, t, &err) == TDM_OK;
        if (is_taken != has(mask, t))
            fail_msg("token %d is %s accepted, and the mask says otherwise, in\n%s", t,
                     is_taken ? "" : "not", text);
        n += is_taken;
        grammar_state_destroy(next);
    }
    for (int32_t t = FIXTURE_COUNT + 5; t < WORDS * 64; t++) assert_false(has(mask, t));
    return n;
}

static const char *const grammars[] = {
    "root ::= object\n"
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n"
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)*)? \"}\" ws\n"
    "array ::= \"[\" ws (value (\",\" ws value)*)? \"]\" ws\n"
    "string ::= \"\\\"\" ([^\"\\\\\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" [0-9a-fA-F]{4}))* "
    "\"\\\"\" ws\n"
    "number ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15}) (\".\" [0-9]+)? ([eE] [-+]? [0-9]+)? ws\n"
    "ws ::= [ \\t\\n]*",
    "root ::= \"\\\"\" [^\"\\\\\\x00-\\x1F\\x7F]{3,45} \"\\\"\"",
    "root ::= [^\\n]{0,7} \"\\n\" .{2}",
    "root ::= ([a-z]{1,3} | .{2,40}) \"\\\"\"",
    "root ::= <think> [a-z ]* !<think> \"x\" | \"hello\" \" world\"?",
    "root ::= ([0-9]{4} \"-\" [0-1] [0-9] | [a-z]+ \"@\" [a-z]+ \".com\")*",
    "root ::= [\\u20AC-\\U0001F600]{1,5} [^a]",
    "root ::= [^\"\\\\]* \"\\\\\" root | \"\\\"\"",
};

static void masks_are_exact(void **state) {
    (void)state;
    uint64_t seed = test_seed("grammar_mask", 16);
    for (size_t i = 0; i < TINY_COUNT(grammars); i++)
        for (int run = 0; run < 6; run++) {
            grammar *g = fixture_compile(&fixture, grammars[i]);
            grammar_state *s = NULL;
            tdm_error err = {0};
            uint64_t mask[WORDS];
            assert_int_equal(grammar_state_create(g, &s, &err), TDM_OK);
            for (int step = 0; step < 25; step++) {
                const int n = mask_check(s, mask, grammars[i]);
                assert_int_equal(has(mask, FIXTURE_END), grammar_state_can_end(s));
                if (n == 1 && has(mask, FIXTURE_END)) break;
                int32_t t = 0;
                /* Pieces rather than bytes: they are longer. */
                const bool wants_piece = random_u32_below(&seed, 3) > 0;
                for (int tries = 0; tries < 20000; tries++) {
                    t = (int32_t)random_u32_below(&seed, FIXTURE_COUNT);
                    if (has(mask, t) && (t >= 256 || !wants_piece || tries > 2000) &&
                        (t != FIXTURE_END || n == 1))
                        break;
                }
                assert_true(has(mask, t));
                assert_int_equal(grammar_state_accept(s, t, &err), TDM_OK);
            }
            grammar_state_destroy(s);
            grammar_release(g);
        }
}

/* After the end there is the end only; a state can be put back. */
static void the_end_is_final(void **state) {
    (void)state;
    grammar *g = fixture_compile(&fixture, "root ::= \"a\" \"b\"?");
    grammar_state *s = NULL, *begin = NULL;
    tdm_error err = {0};
    uint64_t mask[WORDS];
    assert_int_equal(grammar_state_create(g, &s, &err), TDM_OK);
    grammar_release(g); /* the states own it */
    assert_int_equal(grammar_state_clone(s, &begin, &err), TDM_OK);
    assert_int_equal(grammar_state_accept(s, FIXTURE_END, &err), TDM_INVALID_ARGUMENT);
    assert_int_equal(grammar_state_accept(s, 'a', &err), TDM_OK);
    assert_true(grammar_state_can_end(s));
    assert_false(grammar_state_must_end(s));
    assert_int_equal(grammar_state_accept(s, FIXTURE_END, &err), TDM_OK);
    assert_true(grammar_state_must_end(s));
    assert_int_equal(mask_check(s, mask, "the end"), 1);
    grammar_state_assign(s, begin);
    assert_int_equal(grammar_state_accept(s, 'b', &err), TDM_INVALID_ARGUMENT);
    assert_int_equal(grammar_state_accept(s, 'a', &err), TDM_OK);
    assert_int_equal(grammar_state_accept(s, 'b', &err), TDM_OK);
    assert_true(grammar_state_must_end(s));
    assert_int_equal(grammar_state_accept(s, -1, &err), TDM_INVALID_ARGUMENT);
    assert_int_equal(grammar_state_accept(s, 1 << 30, &err), TDM_INVALID_ARGUMENT);
    grammar_state_destroy(s);
    grammar_state_destroy(begin);
}

/* What no token can continue is an error. */
static void no_token_is_an_error(void **state) {
    (void)state;
    grammar *g = fixture_compile(&fixture, "root ::= <[0]>");
    grammar_state *s = NULL;
    tdm_error err = {0};
    uint64_t mask[WORDS];
    assert_int_equal(grammar_state_create(g, &s, &err), TDM_OK);
    assert_int_equal(mask_check(s, mask, "<[0]>"), 1);
    grammar_state_destroy(s);
    grammar_release(g);

    /* A vocabulary of one token. */
    llm_vocab_params params = llm_vocab_params_default();
    const llm_vocab_str token = {"a", 1};
    llm_vocab *tokens;
    grammar_vocab *vocab;
    params.model = "whitespace";
    params.tokens = &token;
    params.n_token = 1;
    params.eos_id = params.bos_id = params.unk_id = LLM_TOKEN_NONE;
    if (llm_vocab_create(&params, &tokens, &err) != TDM_OK) fail_msg("%s", err.message);
    assert_int_equal(grammar_vocab_create(tokens, 1, &vocab, &err), TDM_OK);
    assert_int_equal(grammar_compile(vocab, "root ::= \"b\"", 12, &g, &err), TDM_OK);
    assert_int_equal(grammar_state_create(g, &s, &err), TDM_OK);
    assert_int_equal(grammar_state_mask(s, mask, &err), TDM_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "no token of the vocabulary"));
    grammar_state_destroy(s);
    grammar_release(g);
    grammar_vocab_destroy(vocab);
    llm_vocab_destroy(tokens);
}

/* A token may begin with more plain text than any token of plain text has. */
static void long_beginnings_are_allowed(void **state) {
    (void)state;
    const llm_vocab_str texts[] = {{"a", 1}, {"bb\"", 3}, {"bbb\"", 4}};
    llm_vocab_params params = llm_vocab_params_default();
    grammar_vocab *vocab;
    llm_vocab *tokens;
    grammar *g = NULL;
    grammar_state *s = NULL;
    tdm_error err = {0};
    uint64_t mask[WORDS];
    const char *text = "root ::= [^\"\\\\\\x00-\\x1F\\x7F]* \"\\\"\"";
    params.model = "whitespace";
    params.tokens = texts;
    params.n_token = TINY_COUNT(texts);
    params.eos_id = params.bos_id = params.unk_id = LLM_TOKEN_NONE;
    if (llm_vocab_create(&params, &tokens, &err) != TDM_OK) fail_msg("%s", err.message);
    assert_int_equal(grammar_vocab_create(tokens, TINY_COUNT(texts), &vocab, &err), TDM_OK);
    assert_int_equal(grammar_compile(vocab, text, strlen(text), &g, &err), TDM_OK);
    assert_int_equal(grammar_state_create(g, &s, &err), TDM_OK);
    assert_int_equal(grammar_state_mask(s, mask, &err), TDM_OK);
    assert_int_equal(mask[0], 7);
    assert_int_equal(grammar_state_accept(s, 2, &err), TDM_OK);
    grammar_state_destroy(s);
    grammar_release(g);
    grammar_vocab_destroy(vocab);
    llm_vocab_destroy(tokens);
}

/* What is kept is forgotten when it gets large, and states stay where they are. */
static void memory_is_limited(void **state) {
    (void)state;
    grammar *g = fixture_compile(
        &fixture, "root ::= a\na ::= \"[\" a? \"]\" | \"(\" a \")\" | [a-z]{0,1000000} \"!\"");
    grammar_state *s = NULL, *deep = NULL;
    tdm_error err = {0};
    uint64_t before[WORDS], after[WORDS];
    assert_int_equal(grammar_state_create(g, &s, &err), TDM_OK);
    assert_int_equal(grammar_state_create(g, &deep, &err), TDM_OK);
    assert_int_equal(grammar_state_accept_text(deep, "[([[", 4, &err), TDM_OK);
    assert_int_equal(grammar_state_mask(deep, before, &err), TDM_OK);
    for (int i = 0; i < 100000; i++)
        assert_int_equal(grammar_state_accept_text(s, "abc", 3, &err), TDM_OK);
    assert_int_equal(grammar_state_mask(deep, after, &err), TDM_OK);
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(grammar_state_accept_text(deep, "!]])]", 5, &err), TDM_OK);
    assert_true(grammar_state_must_end(deep));
    assert_int_equal(grammar_state_accept_text(s, "!", 1, &err), TDM_OK);
    assert_true(grammar_state_must_end(s));
    grammar_state_destroy(s);
    grammar_state_destroy(deep);
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
        cmocka_unit_test(masks_are_exact),      cmocka_unit_test(the_end_is_final),
        cmocka_unit_test(no_token_is_an_error), cmocka_unit_test(long_beginnings_are_allowed),
        cmocka_unit_test(memory_is_limited),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
