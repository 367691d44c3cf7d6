/* SPDX-License-Identifier: MIT
 *
 * test_tokenizer_corpus.c: real vocabularies against published ids. Needs ../shared, is skipped
 * without it: `tokenizers/ggml-vocab-*.gguf` hold vocabularies, `.inp` strings with a line
 * `__ggml_vocab_test__` after each, `.out` the ids that llama.cpp gives, a line for each string.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "llm/gguf/gguf.h"
#include "llm/tokenizer/tokenizer.h"
#include "llm/tokenizer/vocab.h"

static char shared[1024];

static char *file_read(const char *path, size_t *len) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail_msg("%s: cannot open", path);
    size_t n = 0, capacity = 1 << 16;
    char *text = malloc(capacity + 1);
    assert_non_null(text);
    for (size_t got; (got = fread(text + n, 1, capacity - n, f)) > 0;) {
        n += got;
        if (n < capacity) continue;
        capacity *= 2;
        text = realloc(text, capacity + 1);
        assert_non_null(text);
    }
    fclose(f);
    text[n] = '\0';
    *len = n;
    return text;
}

static llm_vocab *vocab_open_at(const char *path, tdm_status want, tdm_error *err) {
    llm_gguf *gguf;
    if (llm_gguf_open(path, &gguf, err) != TDM_OK) fail_msg("%s", err->message);
    llm_vocab *vocab;
    const tdm_status status = llm_vocab_from_gguf(gguf, &vocab, err);
    if (status != want)
        fail_msg("%s: status '%s' (%s)", path, tdm_status_text(status), err->message);
    llm_gguf_close(gguf);
    return vocab;
}

static llm_vocab *vocab_open(const char *name, tdm_status want, tdm_error *err) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", shared, name);
    return vocab_open_at(path, want, err);
}

static void ids_print(const char *what, const int32_t *ids, size_t n) {
    fprintf(stderr, "  %s:", what);
    for (size_t i = 0; i < n; ++i) fprintf(stderr, " %d", ids[i]);
    fprintf(stderr, "\n");
}

/* Encodes every string of one vocabulary in `folder`, and decodes its ids. Prints the number of
 * strings, so that a run of none is visible. n_expected 0 = more than 40. */
static void corpus_run_in(const char *folder, const char *name, size_t n_expected,
                          bool comes_back) {
    static const char separator[] = "\n__ggml_vocab_test__\n";
    char path[1200];
    tdm_error err = {0};
    size_t in_len, out_len;
    snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf", folder, name);
    llm_vocab *vocab = vocab_open_at(path, TDM_OK, &err);
    snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf.inp", folder, name);
    char *in = file_read(path, &in_len);
    snprintf(path, sizeof path, "%s/ggml-vocab-%s.gguf.out", folder, name);
    char *out = file_read(path, &out_len);

    size_t n = 0, n_wrong = 0, n_unlike = 0;
    char *line = out;
    for (char *text = in, *end; (end = strstr(text, separator)) != NULL;
         text = end + strlen(separator), ++n) {
        int32_t want[1024];
        size_t n_want = 0;
        char *line_end = strchr(line, '\n');
        assert_non_null(line_end);
        *line_end = '\0';
        for (char *at = line, *next; n_want < 1024; at = next) {
            const long id = strtol(at, &next, 10);
            if (next == at) break;
            want[n_want++] = (int32_t)id;
        }
        line = line_end + 1;

        int32_t *ids;
        size_t n_ids;
        const size_t len = (size_t)(end - text);
        if (llm_tokenize(vocab, text, len, 0, &ids, &n_ids, &err) != TDM_OK)
            fail_msg("%s", err.message);
        if (n_ids != n_want || memcmp(ids, want, n_ids * sizeof *ids) != 0) {
            fprintf(stderr, "%s, string %zu: '%.*s'\n", name, n, (int)len, text);
            ids_print("want", want, n_want);
            ids_print("have", ids, n_ids);
            ++n_wrong;
        }
        char *back;
        size_t back_len;
        if (llm_detokenize(vocab, ids, n_ids, LLM_DETOKENIZE_SPECIAL, &back, &back_len, &err) !=
            TDM_OK)
            fail_msg("%s", err.message);
        if (comes_back && (back_len != len || memcmp(back, text, len) != 0)) {
            fprintf(stderr, "%s, string %zu: '%.*s' comes back as '%s'\n", name, n, (int)len, text,
                    back);
            ++n_unlike;
        }
        free(back);
        free(ids);
    }
    printf("%s: %zu strings, %zu wrong, %zu not the same on the way back\n", name, n, n_wrong,
           n_unlike);
    free(in);
    free(out);
    llm_vocab_destroy(vocab);
    assert_true(n_expected == 0 ? n > 40 : n == n_expected);
    assert_int_equal(n_wrong, 0);
    assert_int_equal(n_unlike, 0);
}

static void corpus_run(const char *name, size_t n_expected) {
    char folder[1100];
    snprintf(folder, sizeof folder, "%s/tokenizers", shared);
    corpus_run_in(folder, name, n_expected, true);
}

/* The vocabularies in llama.cpp's source, where TANDEM_PEER names its folder. */
static void test_peer(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool comes_back; /* WordPiece changes the text */
    } vocabs[] = {{"bert-bge", false},      {"gemma-4", true},   {"llama-spm", true},
                  {"llama-bpe", true},      {"mpt", true},       {"refact", true},
                  {"starcoder", true},      {"command-r", true}, {"deepseek-llm", true},
                  {"deepseek-coder", true}, {"falcon", true},    {"qwen35", true}};
    const char *peer = getenv("TANDEM_PEER");
    if (peer == NULL || peer[0] == '\0') {
        printf("SKIP: the vocabularies of llama.cpp's source: TANDEM_PEER names no folder\n");
        skip();
    }
    char folder[1024];
    snprintf(folder, sizeof folder, "%s/src/models", peer);
    for (size_t i = 0; i < sizeof vocabs / sizeof *vocabs; ++i)
        corpus_run_in(folder, vocabs[i].name, 0, vocabs[i].comes_back);
}

static void test_phi3(void **state) {
    (void)state;
    corpus_run("phi-3", 46);
}

static void test_gpt2(void **state) {
    (void)state;
    corpus_run("gpt-2", 46);
}

static void test_qwen2(void **state) {
    (void)state;
    corpus_run("qwen2", 46);
}

static void test_qwen35(void **state) {
    (void)state;
    corpus_run("qwen35", 50);
}

static void test_falcon(void **state) {
    (void)state;
    corpus_run("falcon", 46);
}

static void ids_expect(const llm_vocab *vocab, const char *text, unsigned flags,
                       const int32_t *want, size_t n_want) {
    tdm_error err = {0};
    int32_t *ids;
    size_t n;
    if (llm_tokenize(vocab, text, strlen(text), flags, &ids, &n, &err) != TDM_OK)
        fail_msg("%s", err.message);
    if (n != n_want || memcmp(ids, want, n * sizeof *ids) != 0) {
        ids_print("want", want, n_want);
        ids_print("have", ids, n);
        fail_msg("'%s' gives other ids", text);
    }
    free(ids);
}
#define IDS_EXPECT(vocab, text, flags, ...)                                                        \
    ids_expect(vocab, text, flags, (const int32_t[]){__VA_ARGS__},                                 \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

/* 105 tokens, no bytes, no newline: what cannot be written is the unknown token, 0. */
static void test_no_newline(void **state) {
    (void)state;
    tdm_error err = {0};
    llm_vocab *vocab =
        vocab_open("models/babyllama-tok105/babyllama-tok105-f32.gguf", TDM_OK, &err);
    const int32_t space = llm_vocab_find(vocab, "\xE2\x96\x81", 3),
                  a = llm_vocab_find(vocab, "a", 1), b = llm_vocab_find(vocab, "b", 1);
    IDS_EXPECT(vocab, "a\nb", LLM_TOKENIZE_ADD_SPECIAL, 1, space, a, 0, b);
    IDS_EXPECT(vocab, "\n", 0, space, 0);
    IDS_EXPECT(vocab, "\xF0\x9F\xA6\x99", 0, space, 0);
    llm_vocab_destroy(vocab);
}

/* Ids of the text that the model is known to write: bos and then 200 tokens. */
static void test_stories260k(void **state) {
    (void)state;
    tdm_error err = {0};
    llm_vocab *vocab = vocab_open("models/stories260K/stories260K-f32.gguf", TDM_OK, &err);
    char path[1200];
    size_t len, n, back_len;
    snprintf(path, sizeof path, "%s/models/stories260K/greedy_200_expected.txt", shared);
    char *text = file_read(path, &len), *back;
    int32_t *ids;
    assert_int_equal(llm_tokenize(vocab, text, len, LLM_TOKENIZE_ADD_SPECIAL, &ids, &n, &err),
                     TDM_OK);
    assert_int_equal(ids[0], llm_vocab_bos(vocab));
    assert_int_equal(llm_detokenize(vocab, ids, n, 0, &back, &back_len, &err), TDM_OK);
    assert_int_equal(back_len, len);
    assert_memory_equal(back, text, len);
    free(back);
    free(ids);
    free(text);
    llm_vocab_destroy(vocab);
}

/* CPU time: other load on the machine does not count. */
static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A megabyte of prose there and back, in a time that only a quadratic step would exceed. */
static void test_megabyte(void **state) {
    (void)state;
    static const char *const files[] = {
        "tokenizers/ggml-vocab-phi-3.gguf", "tokenizers/ggml-vocab-gpt-2.gguf",
        "tokenizers/ggml-vocab-qwen2.gguf", "tokenizers/ggml-vocab-falcon.gguf"};
    char path[1200];
    size_t len;
    snprintf(path, sizeof path, "%s/text/wikitext-2-test.raw", shared);
    char *text = file_read(path, &len);
    for (size_t i = 0; i < sizeof files / sizeof *files; ++i) {
        tdm_error err = {0};
        double t0 = seconds_now();
        llm_vocab *vocab = vocab_open(files[i], TDM_OK, &err);
        const double t_open = seconds_now() - t0;
        int32_t *ids;
        size_t n, back_len;
        char *back;
        t0 = seconds_now();
        assert_int_equal(llm_tokenize(vocab, text, len, 0, &ids, &n, &err), TDM_OK);
        const double t_in = seconds_now() - t0;
        t0 = seconds_now();
        assert_int_equal(llm_detokenize(vocab, ids, n, 0, &back, &back_len, &err), TDM_OK);
        const double t_out = seconds_now() - t0;
        printf("%s: opened in %.3f s, %zu bytes to %zu tokens in %.3f s, back in %.3f s\n",
               files[i], t_open, len, n, t_in, t_out);
        assert_int_equal(back_len, len);
        assert_memory_equal(back, text, len);
        assert_true(t_open < 30 && t_in < 30 && t_out < 30);
        free(back);
        free(ids);
        llm_vocab_destroy(vocab);
    }
    free(text);
}

int main(void) {
    const char *given = getenv("TANDEM_SHARED"), *root = getenv("TANDEM_SOURCE_ROOT");
    if (given != NULL && given[0] != '\0')
        snprintf(shared, sizeof shared, "%s", given);
    else
        snprintf(shared, sizeof shared, "%s/../shared", root != NULL ? root : ".");
    char path[1200];
    snprintf(path, sizeof path, "%s/tokenizers/ggml-vocab-gpt-2.gguf", shared);
    if (access(path, R_OK) != 0) {
        printf("SKIP: %s is not there (TANDEM_SHARED names the folder)\n", path);
        return 77;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_phi3),     cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_qwen2),    cmocka_unit_test(test_qwen35),
        cmocka_unit_test(test_falcon),   cmocka_unit_test(test_no_newline),
        cmocka_unit_test(test_peer),     cmocka_unit_test(test_stories260k),
        cmocka_unit_test(test_megabyte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
