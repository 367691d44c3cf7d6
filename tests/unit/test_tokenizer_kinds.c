/* SPDX-License-Identifier: MIT
 *
 * test_tokenizer_kinds.c: WordPiece, Unigram, RWKV, PLaMo-2 and BPE of code points with
 * vocabularies made by hand: ids, text, special tokens, ill-formed and empty text, and files that
 * are damaged. SentencePiece and byte-level BPE: test_tokenizer.c. Ids of llama.cpp:
 * tests/tokenizer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/tokenizer.h"
#include "tests/unit/tiny_kinds.h"

static tiny_vocab tiny;

static llm_vocab *vocab_make(void) {
    tdm_error err = {0};
    llm_vocab *vocab;
    if (llm_vocab_create(&tiny.params, &vocab, &err) != TDM_OK) fail_msg("%s", err.message);
    return vocab;
}

/* The ids of a text, and with `back` the text of these ids. */
static void expect(const llm_vocab *vocab, unsigned flags, const char *text, size_t len,
                   const int32_t *want, size_t n_want, const char *back, int line) {
    tdm_error err = {0};
    int32_t *ids;
    size_t n, n_shown;
    char *shown;
    if (llm_tokenize(vocab, text, len, flags, &ids, &n, &err) != TDM_OK)
        fail_msg("line %d: %s", line, err.message);
    if (n != n_want || (n > 0 && memcmp(ids, want, n * sizeof *ids) != 0)) {
        for (size_t i = 0; i < n; ++i) fprintf(stderr, " %d", ids[i]);
        fail_msg("\nline %d: '%.*s' gives other ids", line, (int)len, text);
    }
    if (llm_detokenize(vocab, ids, n, 0, &shown, &n_shown, &err) != TDM_OK)
        fail_msg("line %d: %s", line, err.message);
    if (back != NULL && strcmp(shown, back) != 0)
        fail_msg("line %d: '%.*s' comes back as '%s'", line, (int)len, text, shown);
    free(shown);
    free(ids);
}
#define EXPECT_FLAGS(flags, text, back, ...)                                                       \
    expect(vocab, flags, text, sizeof(text) - 1, (const int32_t[]){0, __VA_ARGS__} + 1,            \
           sizeof((const int32_t[]){0, __VA_ARGS__}) / sizeof(int32_t) - 1, back, __LINE__)
#define EXPECT(text, back, ...) EXPECT_FLAGS(0, text, back, __VA_ARGS__)
#define EXPECT_NOTHING(text, flags)                                                                \
    expect(vocab, flags, text, sizeof(text) - 1, NULL, 0, "", __LINE__)

static void refuse(tdm_status want, const char *named) {
    tdm_error err = {0};
    llm_vocab *vocab = (llm_vocab *)&err;
    assert_int_equal(llm_vocab_create(&tiny.params, &vocab, &err), want);
    assert_null(vocab);
    if (strstr(err.message, named) == NULL) fail_msg("no '%s' in: %s", named, err.message);
}

static void test_wpm(void **state) {
    (void)state;
    tiny_wpm(&tiny);
    llm_vocab *vocab = vocab_make();
    assert_string_equal(llm_vocab_model_name(vocab), "bert");
    EXPECT("Hello, HELLO", " hello , hello", WPM_HELLO, WPM_COMMA, WPM_HELLO);
    EXPECT("\thelo \n,", " helo ,", WPM_HE, WPM_LO, WPM_COMMA);
    EXPECT("hex hello", NULL, WPM_UNK, WPM_HELLO); /* "x" is no token: the word is unknown */
    EXPECT("\xE4\xB8\xADhello", NULL, WPM_HAN, WPM_HELLO);
    EXPECT("\xC3\x89", " e", WPM_E);              /* U+00C9: accent and case go */
    EXPECT("he\xCC\x81lo", NULL, WPM_HE, WPM_LO); /* a combining accent, too */
    EXPECT("hel\xC2\xADlo\xFF", NULL, WPM_HELLO); /* format characters and ill-formed bytes go */
    EXPECT_NOTHING("", 0);
    EXPECT_NOTHING(" \n\xC2\xA0", 0);
    EXPECT_FLAGS(LLM_TOKENIZE_ADD_SPECIAL, "", "", WPM_CLS, WPM_SEP);
    EXPECT_FLAGS(LLM_TOKENIZE_ADD_SPECIAL, "e", " e", WPM_CLS, WPM_E, WPM_SEP);
    EXPECT_FLAGS(LLM_TOKENIZE_PARSE_SPECIAL, "e[SEP]e", NULL, WPM_E, WPM_SEP, WPM_E);
    EXPECT("[SEP]", NULL, WPM_UNK, WPM_UNK, WPM_UNK);
    llm_vocab_destroy(vocab);

    tiny.params.lowers_case = 0;
    vocab = vocab_make();
    EXPECT("hello Hello \xC3\xA9", NULL, WPM_HELLO, WPM_UNK, WPM_UNK);
    llm_vocab_destroy(vocab);
    tiny.params.strips_accents = 1;
    vocab = vocab_make();
    EXPECT("\xC3\xA9 \xC3\x89", NULL, WPM_E, WPM_UNK);
    llm_vocab_destroy(vocab);
}

static void test_ugm(void **state) {
    (void)state;
    tiny_ugm(&tiny);
    llm_vocab *vocab = vocab_make();
    EXPECT("ab", "ab", UGM_SPACE_A, UGM_B); /* -4.75, "_ab" -6, "_" + "ab" -8 */
    EXPECT("a  b ", "a b", UGM_SPACE_A, UGM_SPACE, UGM_B);
    EXPECT("x", NULL, UGM_SPACE, UGM_UNK);
    EXPECT("xyz\xFF", NULL, UGM_SPACE, UGM_UNK);
    EXPECT("axa", NULL, UGM_SPACE_A, UGM_UNK, UGM_A);
    EXPECT("a<u>b", NULL, UGM_SPACE_A, UGM_USER, UGM_SPACE, UGM_B);
    EXPECT("<v>", NULL, UGM_SPACE, UGM_UNK); /* begins like a token, and is none */
    EXPECT_NOTHING("", 0);
    EXPECT_NOTHING("  ", 0);
    EXPECT_FLAGS(LLM_TOKENIZE_ADD_SPECIAL, "a", "a", UGM_SPACE_A, UGM_EOS);
    EXPECT_FLAGS(LLM_TOKENIZE_PARSE_SPECIAL, "a</s>", "a", UGM_SPACE_A, UGM_EOS);
    llm_vocab_destroy(vocab);

    tiny.params.add_space_prefix = LLM_FLAG_DEFAULT; /* none */
    tiny.params.merges_spaces = false;
    vocab = vocab_make();
    EXPECT("ab", "ab", UGM_AB);
    EXPECT("a  b", "a  b", UGM_A, UGM_SPACE, UGM_SPACE, UGM_B);
    EXPECT(" ab", " ab", UGM_SPACE_A, UGM_B);
    llm_vocab_destroy(vocab);
}

/* One rule: "A" becomes "ab". Entry 0 leads to 1 ^ 'A' = 64, that one to 66, the value. */
static void test_charsmap(void **state) {
    (void)state;
    static char bytes[4 + 4 * 67 + 3];
    const uint32_t array_size = 4 * 67, root = 1u << 10, node = 'A' | 1u << 8 | 2u << 10,
                   value = 1u << 31;
    memcpy(bytes, &array_size, 4);
    memcpy(bytes + 4, &root, 4);
    memcpy(bytes + 4 + 4 * 64, &node, 4);
    memcpy(bytes + 4 + 4 * 66, &value, 4);
    memcpy(bytes + 4 + array_size, "ab", 3);
    tiny_ugm(&tiny);
    tiny.params.charsmap = (llm_vocab_str){bytes, sizeof bytes};
    llm_vocab *vocab = vocab_make();
    EXPECT("A", "ab", UGM_SPACE_A, UGM_B);
    EXPECT("aAB", NULL, UGM_SPACE_A, UGM_AB, UGM_UNK);
    llm_vocab_destroy(vocab);

    const uint32_t far = 'A' | 1u << 8 | 0x1FFFu << 10; /* past the end: no rule */
    memcpy(bytes + 4 + 4 * 64, &far, 4);
    vocab = vocab_make();
    EXPECT("A", NULL, UGM_SPACE, UGM_UNK);
    llm_vocab_destroy(vocab);

    tiny.params.charsmap.len = sizeof bytes - 1;
    refuse(TDM_DATA_LOSS, "has no end");
    for (size_t size = 1; size < 4 + array_size + 1; size += 67) {
        tiny.params.charsmap.len = size;
        refuse(TDM_DATA_LOSS, "precompiled_charsmap");
    }
}

/* A rule may not make a text arbitrarily long: "A" becomes 200 bytes, and 200 of them too many. */
static void test_charsmap_growth(void **state) {
    (void)state;
    enum { ARRAY_SIZE = 4 * 67, LONG = 200 };
    static char bytes[4 + ARRAY_SIZE + LONG + 1];
    const uint32_t array_size = ARRAY_SIZE, root = 1u << 10, node = 'A' | 1u << 8 | 2u << 10,
                   value = 1u << 31;
    char text[LONG];
    int32_t *ids = NULL;
    size_t n = 0;
    tdm_error err = {0};
    memcpy(bytes, &array_size, 4);
    memcpy(bytes + 4, &root, 4);
    memcpy(bytes + 4 + 4 * 64, &node, 4);
    memcpy(bytes + 4 + 4 * 66, &value, 4);
    memset(bytes + 4 + ARRAY_SIZE, 'a', LONG);
    memset(text, 'A', sizeof text);
    tiny_ugm(&tiny);
    tiny.params.charsmap = (llm_vocab_str){bytes, sizeof bytes};
    llm_vocab *vocab = vocab_make();
    assert_int_equal(llm_tokenize(vocab, text, 10, 0, &ids, &n, &err), TDM_OK);
    assert_int_equal(n, 10 * LONG); /* the first has the space */
    free(ids);
    assert_int_equal(llm_tokenize(vocab, text, LONG, 0, &ids, &n, &err), TDM_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.message, "precompiled_charsmap"));
    assert_null(ids);
    llm_vocab_destroy(vocab);
}

static void test_rwkv(void **state) {
    (void)state;
    tiny_rwkv(&tiny);
    llm_vocab *vocab = vocab_make();
    EXPECT("hello", "hello", RWKV_HELLO);
    EXPECT("hellhello", "hellhello", RWKV_HE, RWKV_BYTE + 'l', RWKV_BYTE + 'l', RWKV_HELLO);
    EXPECT("\n\n\n", "\n\n\n", RWKV_LINES, RWKV_BYTE + '\n');
    EXPECT("\xC3\xA9\\", "\xC3\xA9\\", RWKV_BYTE + 0xC3, RWKV_BYTE + 0xA9, RWKV_BYTE + '\\');
    EXPECT("\xFF", "\xEF\xBF\xBD", RWKV_BYTE + 0xFF);
    EXPECT_FLAGS(LLM_TOKENIZE_PARSE_SPECIAL, "<s>he", "he", RWKV_S, RWKV_HE);
    EXPECT("<s>", "<s>", RWKV_BYTE + '<', RWKV_BYTE + 's', RWKV_BYTE + '>');
    EXPECT_NOTHING("", LLM_TOKENIZE_ADD_SPECIAL);
    llm_vocab_destroy(vocab);

    tiny.tokens[RWKV_BYTE + 'z'] = (llm_vocab_str){"unlikely", 8};
    vocab = vocab_make();
    EXPECT("hez", "he", RWKV_HE); /* no token and no unknown token: nothing */
    llm_vocab_destroy(vocab);
    tiny.params.unk_id = RWKV_S;
    vocab = vocab_make();
    EXPECT("hez", "he", RWKV_HE, RWKV_S);
    llm_vocab_destroy(vocab);
}

static void test_plamo(void **state) {
    (void)state;
    tiny_plamo(&tiny);
    llm_vocab *vocab = vocab_make();
    EXPECT("ab", "ab", PLAMO_AB);
    EXPECT("abc", "abc", PLAMO_AB, PLAMO_C);
    EXPECT("aa", "aa", PLAMO_AA); /* as cheap as "a", "a": the longer one counts */
    EXPECT("z\xC3\xA9", "z\xC3\xA9", PLAMO_BYTE + 'z', PLAMO_E_ACUTE);
    EXPECT("\xC3\xA8", "\xC3\xA8", PLAMO_BYTE + 0xC3, PLAMO_BYTE + 0xA8);
    EXPECT("\xEF\xBB\xBF"
           "a",
           "a", PLAMO_A); /* a byte order mark goes */
    EXPECT("\xFF", "\xEF\xBF\xBD", PLAMO_BYTE + 0xEF, PLAMO_BYTE + 0xBF, PLAMO_BYTE + 0xBD);
    EXPECT_FLAGS(LLM_TOKENIZE_PARSE_SPECIAL, "<eos>a", "a", 2, PLAMO_A);
    EXPECT_NOTHING("", 0);
    EXPECT_NOTHING("\xEF\xBB\xBF", 0);
    llm_vocab_destroy(vocab);

    tiny.tokens[PLAMO_BYTE + 0x7F] = (llm_vocab_str){"q", 1};
    refuse(TDM_DATA_LOSS, "<0x7F>");
}

static void test_raw(void **state) {
    (void)state;
    tiny_raw(&tiny);
    tiny.params.add_bos = 0; /* bos is added in spite of it */
    llm_vocab *vocab = vocab_make();
    assert_string_equal(llm_vocab_pre_name(vocab), "gemma4");
    EXPECT("a a", "a a", RAW_A, RAW_SPACE_A);
    EXPECT("a \n", "a \n", RAW_A, RAW_SPACE, RAW_LF);
    EXPECT("\n\n", "\n\n", RAW_LFLF);
    EXPECT("\n\n\n", "\n\n\n", RAW_LF, RAW_LF, RAW_LF); /* no token, and no merge leads there */
    EXPECT("\xE4\xB8\xAD", "\xE4\xB8\xAD", RAW_E4, RAW_B8, RAW_AD);
    EXPECT("\xC3\xA9"
           "a",
           "a", RAW_A); /* bytes without a token give nothing */
    EXPECT_FLAGS(LLM_TOKENIZE_ADD_SPECIAL, "", "", RAW_BOS);
    EXPECT_FLAGS(LLM_TOKENIZE_PARSE_SPECIAL, "a<eos> a", "a a", RAW_A, RAW_EOS, RAW_SPACE_A);
    assert_true(llm_vocab_ends_generation(vocab, RAW_EOS));
    llm_vocab_destroy(vocab);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wpm),      cmocka_unit_test(test_ugm),
        cmocka_unit_test(test_charsmap), cmocka_unit_test(test_charsmap_growth),
        cmocka_unit_test(test_rwkv),     cmocka_unit_test(test_plamo),
        cmocka_unit_test(test_raw),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
