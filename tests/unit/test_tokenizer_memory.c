/* SPDX-License-Identifier: MIT
 *
 * test_tokenizer_memory.c: every allocation of making and using a vocabulary fails in turn. Each
 * time there is an error, and nothing leaks (sanitizers).
 *
 * The linker sends this program's calls of malloc and its kin here (--wrap); libraries' own calls
 * stay as they are.
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

static long n_until_failure = -1; /* calls that still succeed; -1: all do */
static bool has_failed;

static bool allocation_fails(void) {
    if (n_until_failure < 0) return false;
    if (n_until_failure-- > 0) return false;
    n_until_failure = 0; /* after the first failure all allocations fail */
    has_failed = true;
    return true;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);

void *__wrap_malloc(size_t size) {
    return allocation_fails() ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t n, size_t size) {
    return allocation_fails() ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *old, size_t size) {
    return allocation_fails() ? NULL : __real_realloc(old, size);
}
char *__wrap_strdup(const char *text) {
    return allocation_fails() ? NULL : __real_strdup(text);
}

/* Every step of a round trip; the first that fails ends it. */
static tdm_status round_trip(const llm_vocab_params *params, const char *text, size_t len,
                             tdm_error *err) {
    llm_vocab *vocab = NULL;
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n = 0, back_len = 0;
    tdm_status status = llm_vocab_create(params, &vocab, err);
    if (status == TDM_OK)
        status = llm_tokenize(vocab, text, len,
                              LLM_TOKENIZE_ADD_SPECIAL | LLM_TOKENIZE_PARSE_SPECIAL, &ids, &n, err);
    if (status == TDM_OK) status = llm_detokenize(vocab, ids, n, 0, &back, &back_len, err);
    if (status == TDM_OK) {
        llm_detok *detok = NULL;
        status = llm_detok_create(vocab, 0, &detok, err);
        llm_vocab_str shown;
        for (size_t i = 0; i < n && status == TDM_OK; ++i)
            status = llm_detok_push(detok, ids[i], &shown, err);
        llm_detok_destroy(detok);
    }
    free(back);
    free(ids);
    llm_vocab_destroy(vocab);
    return status;
}

static void every_allocation_fails(const llm_vocab_params *params, const char *text, size_t len) {
    long n = 0;
    for (;; ++n) {
        tdm_error err = {0};
        has_failed = false;
        n_until_failure = n;
        const tdm_status status = round_trip(params, text, len, &err);
        n_until_failure = -1;
        if (!has_failed) {
            if (status != TDM_OK) fail_msg("%s", err.message);
            break;
        }
        if (status != TDM_RESOURCE_EXHAUSTED || strstr(err.message, "no memory") == NULL)
            fail_msg("allocation %ld failed: '%s' %s", n, tdm_status_text(status), err.message);
        assert_true(n < 10000);
    }
    printf("%ld allocations\n", n);
    assert_true(n > 10);
}

static tiny_vocab tiny;

/* Long words, special tokens, ill-formed bytes: whatever allocates. */
static size_t text_make(char *text, const char *special) {
    size_t n = 0;
    for (int i = 0; i < 90; ++i) text[n++] = "hela"[i % 4];
    n += (size_t)sprintf(text + n, " \xFF%s hello a", special);
    for (int i = 0; i < 200; ++i) text[n++] = i % 2 == 0 ? ' ' : 'a';
    return n;
}

static void test_spm(void **state) {
    (void)state;
    char text[512];
    tiny_spm(&tiny);
    every_allocation_fails(&tiny.params, text, text_make(text, "</s>"));
}

static void test_bpe(void **state) {
    (void)state;
    char text[512];
    tiny_bpe(&tiny, "gpt-2");
    every_allocation_fails(&tiny.params, text, text_make(text, "<|tool|>"));
    tiny_bpe(&tiny, "llama-bpe");
    every_allocation_fails(&tiny.params, text, text_make(text, "<|endoftext|>"));
}

static void test_kinds(void **state) {
    (void)state;
    static void (*const makers[])(tiny_vocab *) = {tiny_wpm, tiny_ugm, tiny_rwkv, tiny_plamo,
                                                   tiny_raw};
    char text[512];
    for (size_t i = 0; i < sizeof makers / sizeof *makers; ++i) {
        makers[i](&tiny);
        every_allocation_fails(&tiny.params, text, text_make(text, "<u>[SEP]<eos>"));
    }
}

static void test_empty(void **state) {
    (void)state;
    tiny_spm(&tiny);
    every_allocation_fails(&tiny.params, "", 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spm),
        cmocka_unit_test(test_bpe),
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
