/* SPDX-License-Identifier: MIT
 *
 * test_pretokenizer.c: where each pre-tokenizer cuts. The words were worked out by hand from the
 * expressions in the models' tokenizer.json files.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/pretokenizer.h"

/* `words` are the expected ones, separated by U+2502; the text is the same without these. */
static void split_expect(const char *name, const char *words, int line) {
    static const char bar[] = "\xE2\x94\x82";
    char text[512];
    uint32_t want[128];
    size_t len = 0, n_want = 0;
    for (const char *at = words; *at != '\0';) {
        const char *end = strstr(at, bar);
        const size_t n = end != NULL ? (size_t)(end - at) : strlen(at);
        memcpy(text + len, at, n);
        len += n;
        want[n_want++] = (uint32_t)len;
        at += n + (end != NULL ? strlen(bar) : 0);
    }
    tdm_error err = {0};
    llm_pretokenizer *pre;
    if (llm_pretokenizer_create(name, &pre, &err) != TDM_OK) fail_msg("%s", err.message);
    uint32_t *ends;
    size_t n;
    if (llm_pretokenizer_split(pre, text, len, &ends, &n, &err) != TDM_OK)
        fail_msg("%s", err.message);
    if (n != n_want || (n > 0 && memcmp(ends, want, n * sizeof *ends) != 0)) {
        fprintf(stderr, "want %s\nhave ", words);
        for (size_t i = 0, begin = 0; i < n; begin = ends[i++])
            fprintf(stderr, "%s%.*s", i > 0 ? bar : "", (int)(ends[i] - begin), text + begin);
        fail_msg("\n%s, line %d", name, line);
    }
    free(ends);
    llm_pretokenizer_destroy(pre);
}
#define SPLIT(name, words) split_expect(name, words, __LINE__)

static void test_gpt2(void **state) {
    (void)state;
    static const char *const names[] = {"gpt-2", "phi-2", "mpt", "olmo", "jais"};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        SPLIT(names[i], "");
        SPLIT(names[i], "Hello│ world");
        SPLIT(names[i], "we│'re│ I│'ll│ it│'s│ WE│'│RE"); /* contractions in lower case only */
        SPLIT(names[i], "abc│123│ 4567│ !?│x");
        SPLIT(names[i], "5²Ⅷ");
        SPLIT(names[i], "a│  │ b│   ");
        SPLIT(names[i], "a│\n│\n│b│\n");
        SPLIT(names[i], "a│\t│b"); /* only a space joins the word behind it */
        SPLIT(names[i], "中文│。│ é");
        SPLIT(names[i], "a│\xC2\xA0│b│\xE3\x80\x80│c"); /* no-break and ideographic space */
        SPLIT(names[i], "a│ \xE1\xA0\x8E│ b");          /* U+180E is not white space */
        SPLIT(names[i], "e│\xCC\x81│e");                /* a combining mark is no letter */
    }
}

/* One newline at a time; letters, signs, Chinese and numbers apart, a space with the first two. */
static void test_deepseek(void **state) {
    (void)state;
    SPLIT("deepseek-llm", "");
    SPLIT("deepseek-llm", "Hello│ world│!│\n│\n│x");
    SPLIT("deepseek-llm", "a│12345│ │7│  ");
    SPLIT("deepseek-llm", "ü│ber│ Ω│mega│，│中文字"); /* its signs hold A to z too */
    SPLIT("deepseek-llm", "don│'│t│ (│it│)");
    SPLIT("deepseek-coder", "Hello│ world│!│\n│x│ │1│2│中文");
    SPLIT("deepseek-coder", "a│ _│b│ +│ (");
    static const char *const names[] = {"deepseek-v3", "hunyuan-dense"};
    for (size_t i = 0; i < 2; ++i) {
        SPLIT(names[i], "Hello│ world│!\n\n│x");
        SPLIT(names[i], "a│123│45│ │7");
        SPLIT(names[i], ".com│'s│ it│'s│ +=│ a");
        SPLIT(names[i], "中文かな│x│ \n│   │ b");
    }
}

static void test_llama3(void **state) {
    (void)state;
    static const char *const names[] = {"llama-bpe", "llama3",    "llama-v3", "falcon3",
                                        "pixtral",   "smaug-bpe", "dbrx"};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        SPLIT(names[i], "");
        SPLIT(names[i], "Hello│ world");
        SPLIT(names[i], "WE│'RE│ I│'Ll│ x│'t│is");
        SPLIT(names[i], "123│456│7│ │890");    /* three digits, no space before them */
        SPLIT(names[i], "\tfoo│(bar│)\n\n│x"); /* any sign joins the word behind it */
        SPLIT(names[i], "a│ +=\r\n│b");        /* line ends join the signs before them */
        SPLIT(names[i], "a│ \n \n│ │ b│  ");
        SPLIT(names[i], "e│\xCC\x81"
                        "a");
        SPLIT(names[i], "中文│。│ é│\xC2\xA0"
                        "b");
    }
}

static void test_qwen2(void **state) {
    (void)state;
    static const char *const names[] = {"qwen2", "deepseek-r1-qwen", "stablelm2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        SPLIT(names[i], "1│2│3│ │4");
        SPLIT(names[i], "don│'T│ (│x│)\n│y");
        SPLIT(names[i], "a│ !\xCC\x81│b");
        SPLIT(names[i], "e│\xCC\x81"
                        "a");
    }
}

static void test_qwen35(void **state) {
    (void)state;
    /* Combining marks belong to words. */
    SPLIT("qwen35", "a│ !│\xCC\x81"
                    "b");
    SPLIT("qwen35", "e\xCC\x81"
                    "a│1│2");
    SPLIT("qwen35", "don│'T│ (│x│)\n│y");
}

static void test_several_passes(void **state) {
    (void)state;
    SPLIT("falcon", "Hello│,│ world│'│s│ │123│45│ │$│x");
    SPLIT("falcon", "a│`│b│  │ 12│.│345│6");
    SPLIT("default", "a│`│b│ │123│4");
    SPLIT("default", "Hello│,│ world│'│s");
    static const char *const names[] = {"starcoder", "refact", "command-r", "smollm", "codeshell"};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        SPLIT(names[i], "ab│ │1│2│ cd│'s");
        SPLIT(names[i], "1│  │ x");
    }
}

static void test_tekken(void **state) {
    (void)state;
    SPLIT("tekken", "Hello│World│ XMLHttp│ ABC");
    SPLIT("tekken", "don│'t│ a│/b│ //\n/│1│2");
    SPLIT("tekken", "中文│。│ Éa│\n│b");
}

static void test_unknown(void **state) {
    (void)state;
    static const char *const names[] = {"gpt-5",  "",       "llama", "gpt-2 phi-2",
                                        " ",      "qwen2 ", "GPT-2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
        tdm_error err = {0};
        llm_pretokenizer *pre = (llm_pretokenizer *)&err;
        assert_int_equal(llm_pretokenizer_create(names[i], &pre, &err), TDM_UNSUPPORTED);
        assert_null(pre);
        assert_non_null(strstr(err.message, names[i]));
        assert_non_null(strstr(err.message, "llama-bpe"));
        assert_non_null(strstr(err.message, "tekken"));
        assert_non_null(strstr(err.message, "token ids")); /* nothing is cut off */
        assert_null(strchr(err.message, '\n'));
    }
    assert_int_equal(llm_pretokenizer_create("gpt-5", &(llm_pretokenizer *){NULL}, NULL),
                     TDM_UNSUPPORTED);
    llm_pretokenizer_destroy(NULL);
}

static void test_properties(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool ignores_merges, adds_bos;
    } want[] = {{"gpt-2", false, false}, {"llama-bpe", true, true}, {"smaug-bpe", false, false},
                {"qwen2", false, false}, {"falcon", false, false},  {"tekken", true, true}};
    for (size_t i = 0; i < sizeof want / sizeof *want; ++i) {
        llm_pretokenizer *pre;
        assert_int_equal(llm_pretokenizer_create(want[i].name, &pre, NULL), TDM_OK);
        assert_int_equal(llm_pretokenizer_ignores_merges(pre), want[i].ignores_merges);
        assert_int_equal(llm_pretokenizer_adds_bos(pre), want[i].adds_bos);
        llm_pretokenizer_destroy(pre);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),       cmocka_unit_test(test_deepseek),
        cmocka_unit_test(test_llama3),     cmocka_unit_test(test_qwen2),
        cmocka_unit_test(test_qwen35),     cmocka_unit_test(test_several_passes),
        cmocka_unit_test(test_tekken),     cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_properties),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
