/* SPDX-License-Identifier: MIT
 *
 * test_breakers.c: the breakers of DRY are found as in the whole text, however it is cut into
 * tokens; what is too much is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "llm/sampler_breakers.h"
#include "tests/sampler/case_vocab.h"
#include "tests/support/random.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

static llm_sampler_breakers *make(const llm_vocab *vocab, const char *const *texts, int n) {
    llm_sampler_breakers *b = NULL;
    tdm_error err = {0};
    if (llm_sampler_breakers_create(vocab, texts, (size_t)n, &b, &err) != TDM_OK)
        fail_msg("%s", err.message);
    return b;
}

/* For each token 'e' where a breaker ends in it, 'w' where one also lies in it from beginning to
 * end, else '.'. */
static void marks_write(const llm_sampler_breakers *b, const int32_t *tokens, int n, char *marks) {
    int32_t state = 0;
    for (int i = 0; i < n; i++) {
        const llm_breaker_step step = llm_sampler_breakers_read(b, state, tokens[i]);
        state = step.state;
        assert_true(step.ends || !step.is_whole);
        marks[i] = step.is_whole ? 'w' : step.ends ? 'e' : '.';
    }
    marks[n] = '\0';
}

static const char *const words[] = {"the",  " the end", "en", "d",  " end", "\n", "\n\n", ".\n",
                                    "User", ":",        " ",  "aa", "aaa",  "b",  "\xC3", "\xA9"};

static void each_kind_is_found(void **state) {
    (void)state;
    const struct {
        const char *breakers[3];
        int32_t tokens[6];
        int n;
        const char *marks;
    } cases[] = {
        {{"he"}, {0, 1, 2}, 3, "ww."},           /* within a token */
        {{"the"}, {0}, 1, "w"},                  /* all of it */
        {{"\nUser:"}, {5, 8, 9}, 3, "..e"},      /* over tokens, from the beginning of one */
        {{"\nUser:"}, {7, 8, 9}, 3, "..e"},      /* and from within one */
        {{"\nUser:"}, {6, 8, 9}, 3, "..e"},      /* whose end begins it twice */
        {{"\nUse"}, {7, 8, 9}, 3, ".e."},        /* to within one */
        {{"e en"}, {0, 4, 3}, 3, ".e."},         /* from within one to within one */
        {{"\nUser:"}, {7, 8, 10, 9}, 4, "...."}, /* something between */
        {{"\nUser:"}, {7, 7, 8, 9}, 4, "...e"},  /* begun twice */
        {{"aab"}, {12, 13, 13}, 3, ".e."},
        {{"aab"}, {12, 12, 12, 13}, 4, "...e"},        /* the beginning repeats */
        {{"the end", "en"}, {0, 10, 2, 3}, 4, "..we"}, /* one is a part of another */
        {{"d", "the end"}, {0, 4, 3}, 3, ".ww"},
        {{"\xC3\xA9"}, {14, 15, 15}, 3, ".e."}, /* over the bytes of a character */
        {{"", "d", ""}, {0, 3}, 2, ".w"},       /* an empty one is none */
        {{"\nUser:"}, {5, 8, 16, -1}, 4, "...."},
        {{"\nUser:"}, {5, 99, 8, -1, 9}, 5, "....e"}, /* tokens without text */
    };
    llm_vocab *vocab = text_vocab_make(words, NULL, COUNT(words));
    assert_non_null(vocab);
    for (int i = 0; i < COUNT(cases); i++) {
        char marks[8];
        int n_breaker = 0;
        while (n_breaker < 3 && cases[i].breakers[n_breaker] != NULL) n_breaker++;
        llm_sampler_breakers *b = make(vocab, cases[i].breakers, n_breaker);
        llm_sampler_breakers *copy = llm_sampler_breakers_copy(b);
        assert_non_null(copy);
        marks_write(b, cases[i].tokens, cases[i].n, marks);
        if (strcmp(marks, cases[i].marks) != 0)
            fail_msg("case %d: %s, expected %s", i, marks, cases[i].marks);
        llm_sampler_breakers_destroy(b);
        marks_write(copy, cases[i].tokens, cases[i].n, marks);
        assert_string_equal(marks, cases[i].marks);
        llm_sampler_breakers_destroy(copy);
    }
    llm_vocab_destroy(vocab);
}

/* Whether one of the texts begins at or behind `from` and ends at `end`. */
static bool ends_at(const char *text, size_t from, size_t end, char breakers[][8], int n) {
    for (int i = 0; i < n; i++) {
        const size_t len = strlen(breakers[i]);
        if (len > 0 && len <= end - from && memcmp(text + end - len, breakers[i], len) == 0)
            return true;
    }
    return false;
}

/* Random breakers and tokens of two letters, against a search at each place of the text. */
static void random_texts(void **state) {
    (void)state;
    static const char *const pieces[] = {"a", "b", "ab", "ba", "aab", "abba", "bbb"};
    uint64_t random = 17;
    llm_vocab *vocab = text_vocab_make(pieces, NULL, COUNT(pieces));
    assert_non_null(vocab);
    for (int round = 0; round < 3000; round++) {
        enum { LEN = 40 };
        char own[5][8], text[LEN * 4 + 1], marks[LEN + 1], expected[LEN + 1];
        const char *breakers[5];
        int32_t tokens[LEN];
        size_t len = 0;
        const int n_breaker = 1 + (int)random_u32_below(&random, 5);
        for (int i = 0; i < n_breaker; i++) {
            const size_t n = random_u32_below(&random, 7);
            for (size_t k = 0; k < n; k++) own[i][k] = random_u32_below(&random, 2) ? 'a' : 'b';
            own[i][n] = '\0';
            breakers[i] = own[i];
        }
        for (int i = 0; i < LEN; i++) {
            tokens[i] = (int32_t)random_u32_below(&random, COUNT(pieces));
            const size_t begin = len, n = strlen(pieces[tokens[i]]);
            memcpy(text + len, pieces[tokens[i]], n);
            len += n;
            expected[i] = '.';
            for (size_t end = begin + 1; end <= len; end++) {
                if (ends_at(text, begin, end, own, n_breaker)) expected[i] = 'w';
                if (expected[i] == '.' && ends_at(text, 0, end, own, n_breaker)) expected[i] = 'e';
            }
        }
        expected[LEN] = '\0';
        llm_sampler_breakers *b = make(vocab, breakers, n_breaker);
        marks_write(b, tokens, LEN, marks);
        if (strcmp(marks, expected) != 0)
            fail_msg("round %d: %s, expected %s", round, marks, expected);
        llm_sampler_breakers_destroy(b);
    }
    llm_vocab_destroy(vocab);
}

/* SentencePiece: the mark of a space is a space, and a byte token its byte. */
static void sentencepiece_texts(void **state) {
    (void)state;
    static const llm_vocab_str tokens[] = {{"<unk>", 5},
                                           {"<s>", 3},
                                           {"</s>", 4},
                                           {"\xE2\x96\x81"
                                            "a",
                                            4},
                                           {"<0x0A>", 6},
                                           {"b", 1}};
    static const int32_t types[] = {LLM_TOKEN_UNKNOWN, LLM_TOKEN_CONTROL, LLM_TOKEN_CONTROL,
                                    LLM_TOKEN_NORMAL,  LLM_TOKEN_BYTE,    LLM_TOKEN_NORMAL};
    llm_vocab_params params = llm_vocab_params_default();
    llm_vocab *vocab = NULL;
    params.model = "llama";
    params.tokens = tokens;
    params.n_token = COUNT(tokens);
    params.types = types;
    assert_int_equal(llm_vocab_create(&params, &vocab, NULL), TDM_OK);
    const char *const texts[] = {"b\n a", "</s>b"};
    const int32_t text[] = {3, 5, 4, 3, 2, 5};
    char marks[8];
    llm_sampler_breakers *b = make(vocab, texts, 2);
    marks_write(b, text, 6, marks);
    assert_string_equal(marks, "...e.e");
    llm_sampler_breakers_destroy(b);
    llm_vocab_destroy(vocab);
}

static void too_much_is_refused(void **state) {
    (void)state;
    llm_vocab *vocab = text_vocab_make(words, NULL, COUNT(words));
    char text[LLM_BREAKER_LEN_MAX + 2];
    const char *texts[LLM_BREAKER_MAX + 1];
    llm_sampler_breakers *b = (llm_sampler_breakers *)(uintptr_t)1;
    tdm_error err = {0};
    memset(text, 'a', sizeof text);
    text[LLM_BREAKER_LEN_MAX + 1] = '\0';
    for (int i = 0; i <= LLM_BREAKER_MAX; i++) texts[i] = text + 1 + i;
    assert_int_equal(llm_sampler_breakers_create(vocab, texts, LLM_BREAKER_MAX + 1, &b, &err),
                     TDM_INVALID_ARGUMENT);
    assert_null(b);
    assert_non_null(strstr(err.message, "65 breakers of DRY: there may be at most 64"));
    texts[0] = text;
    assert_int_equal(llm_sampler_breakers_create(vocab, texts, 1, &b, &err), TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "has 257 bytes: it may have at most 256"));
    assert_null(b);
    /* As many and as long as may be; all of them begin as each other. */
    texts[0] = text + 1;
    b = make(vocab, texts, LLM_BREAKER_MAX);
    int32_t state_of = 0;
    for (int i = 1; i <= LLM_BREAKER_LEN_MAX / 2; i++) {
        const llm_breaker_step step = llm_sampler_breakers_read(b, state_of, 11); /* "aa" */
        state_of = step.state;
        assert_int_equal(step.ends, 2 * i >= LLM_BREAKER_LEN_MAX - LLM_BREAKER_MAX + 1);
        assert_false(step.is_whole);
    }
    llm_sampler_breakers_destroy(b);
    /* None at all, and nothing to free. */
    b = make(vocab, NULL, 0);
    assert_false(llm_sampler_breakers_read(b, 0, 3).ends);
    llm_sampler_breakers_destroy(b);
    llm_sampler_breakers_destroy(NULL);
    llm_vocab_destroy(vocab);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_found),
        cmocka_unit_test(random_texts),
        cmocka_unit_test(sentencepiece_texts),
        cmocka_unit_test(too_much_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
