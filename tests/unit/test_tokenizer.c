/* SPDX-License-Identifier: MIT
 *
 * test_tokenizer.c: text to ids and back with vocabularies made by hand, with random ones against
 * the plainest possible encoder, and with text that is broken, long, or hostile.
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

#include "llm/tokenizer/tokenizer.h"
#include "tests/unit/tiny_vocab.h"
#include "tests/support/random.h"

static tiny_vocab tiny;

static llm_vocab *vocab_make(const llm_vocab_params *params) {
    tdm_error err = {0};
    llm_vocab *vocab;
    if (llm_vocab_create(params, &vocab, &err) != TDM_OK) fail_msg("%s", err.message);
    return vocab;
}

static void ids_print(const char *what, const int32_t *ids, size_t n) {
    fprintf(stderr, "  %s:", what);
    for (size_t i = 0; i < n; ++i) fprintf(stderr, " %d", ids[i]);
    fprintf(stderr, "\n");
}

static void ids_expect(const llm_vocab *vocab, const char *text, size_t len, unsigned flags,
                       const int32_t *want, size_t n_want, int line) {
    tdm_error err = {0};
    int32_t *ids;
    size_t n;
    if (llm_tokenize(vocab, text, len, flags, &ids, &n, &err) != TDM_OK)
        fail_msg("%s", err.message);
    assert_non_null(ids);
    if (n != n_want || (n > 0 && memcmp(ids, want, n * sizeof *ids) != 0)) {
        ids_print("want", want, n_want);
        ids_print("have", ids, n);
        fail_msg("line %d: '%.*s' gives other ids", line, (int)len, text);
    }
    free(ids);
}
#define IDS_EXPECT_FLAGS(vocab, flags, text, ...)                                                  \
    ids_expect(vocab, text, sizeof(text) - 1, flags, (const int32_t[]){__VA_ARGS__},               \
               sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), __LINE__)
#define IDS_EXPECT(vocab, text, ...) IDS_EXPECT_FLAGS(vocab, 0, text, __VA_ARGS__)

static void text_expect(const llm_vocab *vocab, unsigned flags, const int32_t *ids, size_t n,
                        const char *want, int line) {
    tdm_error err = {0};
    char *text;
    size_t len;
    if (llm_detokenize(vocab, ids, n, flags, &text, &len, &err) != TDM_OK)
        fail_msg("line %d: %s", line, err.message);
    if (len != strlen(want) || strcmp(text, want) != 0)
        fail_msg("line %d: want '%s', have '%s'", line, want, text);
    free(text);
}
#define TEXT_EXPECT(vocab, flags, want, ...)                                                       \
    text_expect(vocab, flags, (const int32_t[]){__VA_ARGS__},                                      \
                sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t), want, __LINE__)

/* ---- SentencePiece ---- */

static void test_spm_merges(void **state) {
    (void)state;
    tiny_spm(&tiny);
    tiny.params.add_space_prefix = 0;
    llm_vocab *vocab = vocab_make(&tiny.params);
    /* bc is the best pair, then a with bc. */
    IDS_EXPECT(vocab, "abc", SPM_ABC);
    IDS_EXPECT(vocab, "ab", SPM_AB); /* not its twin */
    /* Equal scores: the leftmost first. */
    IDS_EXPECT(vocab, "aaa", SPM_AA, SPM_A);
    IDS_EXPECT(vocab, "aaaaa", SPM_AAAA, SPM_A);
    IDS_EXPECT(vocab, "aaaaaaa", SPM_AAAA, SPM_AA, SPM_A);
    IDS_EXPECT(vocab, " a  b", SPM_SPACE_A, SPM_SPACE, SPM_SPACE, SPM_B);
    ids_expect(vocab, "", 0, 0, NULL, 0, __LINE__);
    ids_expect(vocab, NULL, 0, 0, NULL, 0, __LINE__);
    llm_vocab_destroy(vocab);
}

static void test_spm_prefix(void **state) {
    (void)state;
    tiny_spm(&tiny);
    llm_vocab *vocab = vocab_make(&tiny.params);
    assert_true(llm_vocab_adds_space(vocab));
    assert_true(llm_vocab_adds_bos(vocab));
    assert_false(llm_vocab_adds_eos(vocab));
    IDS_EXPECT(vocab, "abc", SPM_SPACE_A, SPM_BC);
    ids_expect(vocab, "", 0, 0, NULL, 0, __LINE__);
    IDS_EXPECT_FLAGS(vocab, LLM_TOKENIZE_ADD_SPECIAL, "b", SPM_BOS, SPM_SPACE, SPM_B);
    IDS_EXPECT_FLAGS(vocab, LLM_TOKENIZE_ADD_SPECIAL, "", SPM_BOS);
    /* The space comes after special tokens too. */
    IDS_EXPECT_FLAGS(vocab, LLM_TOKENIZE_PARSE_SPECIAL, "b</s>b", SPM_SPACE, SPM_B, SPM_EOS,
                     SPM_SPACE, SPM_B);
    llm_vocab_destroy(vocab);

    tiny_spm(&tiny);
    tiny.params.add_bos = 0;
    tiny.params.add_eos = 1;
    vocab = vocab_make(&tiny.params);
    IDS_EXPECT_FLAGS(vocab, LLM_TOKENIZE_ADD_SPECIAL, "b", SPM_SPACE, SPM_B, SPM_EOS);
    llm_vocab_destroy(vocab);
}

static void test_spm_bytes(void **state) {
    (void)state;
    tiny_spm(&tiny);
    tiny.params.add_space_prefix = 0;
    llm_vocab *vocab = vocab_make(&tiny.params);
    IDS_EXPECT(vocab,
               "\xC3\xA9"
               "a\n",
               SPM_C3, SPM_A9, SPM_A, SPM_LF);
    /* One unknown token per character, even where some of its bytes have tokens. */
    IDS_EXPECT(vocab, "\xC3\xA8", SPM_UNK);
    IDS_EXPECT(vocab, "a\xF0\x9F\xA6\x99zb", SPM_A, SPM_UNK, SPM_UNK, SPM_B);
    /* Ill-formed: each byte for itself, and what follows is not swallowed. */
    IDS_EXPECT(vocab,
               "\xC3"
               "a\xA9"
               "b",
               SPM_C3, SPM_A, SPM_A9, SPM_B);
    IDS_EXPECT(vocab,
               "\xE2\x96"
               "a",
               SPM_UNK, SPM_UNK, SPM_A);
    IDS_EXPECT(vocab, "a\0b", SPM_A, SPM_UNK, SPM_B);
    llm_vocab_destroy(vocab);

    tiny.params.unk_id = LLM_TOKEN_NONE;
    vocab = vocab_make(&tiny.params);
    IDS_EXPECT(vocab, "azb", SPM_A, SPM_B);
    llm_vocab_destroy(vocab);
}

static void test_special(void **state) {
    (void)state;
    tiny_spm(&tiny);
    tiny.params.add_space_prefix = 0;
    llm_vocab *vocab = vocab_make(&tiny.params);
    const unsigned parse = LLM_TOKENIZE_PARSE_SPECIAL;
    IDS_EXPECT(vocab, "a<|x|>a", SPM_A, SPM_X, SPM_A);
    /* A longer control token wins, but only where those are looked for. */
    IDS_EXPECT_FLAGS(vocab, parse, "<|x|>y", SPM_XY);
    IDS_EXPECT(vocab, "<|x|>y", SPM_X, SPM_UNK);
    IDS_EXPECT_FLAGS(vocab, parse, "<s><s>a</s>", SPM_BOS, SPM_BOS, SPM_A, SPM_EOS);
    IDS_EXPECT(vocab, "<s>", SPM_UNK, SPM_UNK, SPM_UNK);
    IDS_EXPECT_FLAGS(vocab, parse, "<unk", SPM_UNK, SPM_UNK, SPM_UNK, SPM_UNK);
    IDS_EXPECT_FLAGS(vocab, parse, "<unk>", SPM_UNK);
    IDS_EXPECT_FLAGS(vocab, parse, "<|x|><|x|>y<|x|>", SPM_X, SPM_XY, SPM_X);
    IDS_EXPECT_FLAGS(vocab, parse, "</s> \n a", SPM_EOS, SPM_SPACE, SPM_LF, SPM_SPACE_A);
    llm_vocab_destroy(vocab);

    tiny.params.special_drops_space = true;
    vocab = vocab_make(&tiny.params);
    IDS_EXPECT_FLAGS(vocab, parse, "</s> \n a b", SPM_EOS, SPM_A, SPM_SPACE, SPM_B);
    IDS_EXPECT_FLAGS(vocab, parse, "<s> a</s> \n", SPM_BOS, SPM_SPACE_A, SPM_EOS);
    llm_vocab_destroy(vocab);
}

/* ---- BPE ---- */

static void test_bpe_merges(void **state) {
    (void)state;
    tiny_bpe(&tiny, "gpt-2");
    llm_vocab *vocab = vocab_make(&tiny.params);
    assert_false(llm_vocab_adds_bos(vocab));
    IDS_EXPECT(vocab, "hello world", BPE_HELLO, BPE_SPACE_W, 'o', 'r', 'l', 'd');
    IDS_EXPECT(vocab, "hell hel", BPE_HELL, ' ', BPE_HE, 'l');
    IDS_EXPECT(vocab, "lll", BPE_LL, 'l');
    IDS_EXPECT(vocab, "hey", BPE_HE, 'y');
    /* A merge through what is no token, and one that ends there. */
    IDS_EXPECT(vocab, "xyz", BPE_XYZ);
    IDS_EXPECT(vocab, "xyqr", 'x', 'y', 'q', 'r');
    IDS_EXPECT(vocab, "\xC3\xA9\n", 0xC3, 0xA9, '\n');
    IDS_EXPECT(vocab, "a\0b", 'a', 0, 'b');
    /* Each ill-formed byte is a U+FFFD. */
    IDS_EXPECT(vocab, "a\xFFz", 'a', 0xEF, 0xBF, 0xBD, 'z');
    IDS_EXPECT(vocab, "\xE2\x82", 0xEF, 0xBF, 0xBD, 0xEF, 0xBF, 0xBD);
    IDS_EXPECT(vocab, "<|tool|>hello", BPE_TOOL, BPE_HELLO);
    IDS_EXPECT_FLAGS(vocab, LLM_TOKENIZE_PARSE_SPECIAL, "hello<|endoftext|>", BPE_HELLO, BPE_EOT);
    llm_vocab_destroy(vocab);

    tiny_bpe(&tiny, "llama-bpe");
    vocab = vocab_make(&tiny.params);
    assert_true(llm_vocab_adds_bos(vocab));
    IDS_EXPECT_FLAGS(vocab, LLM_TOKENIZE_ADD_SPECIAL, "hey", BPE_EOT, BPE_HEY);
    IDS_EXPECT(vocab, "heyhey", BPE_HE, 'y', BPE_HE, 'y');
    llm_vocab_destroy(vocab);
}

/* Without most of the byte letters: those missing are unknown, or nothing. */
static void test_bpe_few_bytes(void **state) {
    (void)state;
    static const llm_vocab_str tokens[] = {{"a", 1}, {"b", 1}, {"ab", 2}, {"?", 1}};
    static const llm_vocab_str merges[] = {{"a b", 3}, {"c d", 3}};
    llm_vocab_params params = llm_vocab_params_default();
    params.model = "gpt2";
    params.pre = "qwen2";
    params.tokens = tokens;
    params.n_token = TINY_COUNT(tokens);
    params.merges = merges;
    params.n_merge = TINY_COUNT(merges);
    llm_vocab *vocab = vocab_make(&params);
    IDS_EXPECT(vocab, "abacdzb", 2, 0, 1);
    llm_vocab_destroy(vocab);
    params.unk_id = 3;
    vocab = vocab_make(&params);
    IDS_EXPECT(vocab, "abacdzb", 2, 0, 3, 3, 3, 1);
    llm_vocab_destroy(vocab);
}

/* ---- Against the plainest encoder ---- */

static uint64_t seed;

static uint32_t random_below(uint32_t n) {
    return random_u32_below(&seed, n);
}

enum { RANDOM_TOKENS = 60, RANDOM_TEXT = 300 };

typedef struct random_vocab {
    tiny_vocab tiny;
    char text[RANDOM_TOKENS][16];
    char merge_text[RANDOM_TOKENS][20];
    llm_vocab_str merges[RANDOM_TOKENS];
} random_vocab;

static int32_t random_find(const random_vocab *v, const char *text, size_t len) {
    for (size_t i = 0; i < v->tiny.params.n_token; ++i) {
        if (v->tiny.tokens[i].len == len && memcmp(v->tiny.tokens[i].ptr, text, len) == 0)
            return (int32_t)i;
    }
    return -1;
}

/* Letters a to c, then unions of tokens that are there. */
static void random_vocab_make(random_vocab *v, const char *model) {
    tiny_vocab_begin(&v->tiny, model);
    v->tiny.params.pre = "gpt-2";
    v->tiny.params.scores = v->tiny.scores;
    v->tiny.params.types = NULL;
    v->tiny.params.add_space_prefix = 0;
    v->tiny.params.bos_id = v->tiny.params.eos_id = v->tiny.params.unk_id = LLM_TOKEN_NONE;
    v->tiny.params.add_bos = 0;
    for (size_t i = 0; i < RANDOM_TOKENS; ++i) {
        char *text = v->text[i];
        if (i < 3) {
            snprintf(text, 16, "%c", (char)('a' + i));
        } else {
            char l[8], r[9]; /* the first letters of two earlier tokens */
            memcpy(l, v->text[random_below((uint32_t)i)], 7);
            memcpy(r, v->text[random_below((uint32_t)i)], 8);
            l[7] = r[8] = '\0';
            snprintf(text, 16, "%s%s", l, r);
            const size_t m = v->tiny.params.n_merge++;
            snprintf(v->merge_text[m], sizeof v->merge_text[m], "%s %s", l, r);
            v->merges[m] = (llm_vocab_str){v->merge_text[m], strlen(v->merge_text[m])};
        }
        /* Few scores, so that ties are common. */
        const tiny_token token = {text, -(float)random_below(8), LLM_TOKEN_NORMAL};
        tiny_vocab_add(&v->tiny, &token);
    }
    v->tiny.params.merges = v->merges;
}

/* Merges the best pair, the leftmost of equals, until there is none; O(n^2). */
static size_t plain_encode(const random_vocab *v, bool by_score, const char *text, size_t len,
                           int32_t *ids) {
    size_t begin[RANDOM_TEXT + 1];
    size_t n = len;
    for (size_t i = 0; i <= n; ++i) begin[i] = i;
    for (;;) {
        size_t best = n;
        double best_order = 0;
        for (size_t i = 0; i + 1 < n; ++i) {
            const char *l = text + begin[i], *r = text + begin[i + 1];
            const size_t n_l = begin[i + 1] - begin[i], n_r = begin[i + 2] - begin[i + 1];
            double order = -1;
            if (by_score) {
                const int32_t id = random_find(v, l, n_l + n_r);
                if (id >= 0) order = -(double)v->tiny.scores[id];
            } else {
                for (size_t m = 0; m < v->tiny.params.n_merge && order < 0; ++m) {
                    const char *merge = v->merges[m].ptr;
                    if (v->merges[m].len == n_l + 1 + n_r && merge[n_l] == ' ' &&
                        memcmp(merge, l, n_l) == 0 && memcmp(merge + n_l + 1, r, n_r) == 0)
                        order = (double)m;
                }
            }
            if (order >= 0 && (best == n || order < best_order)) {
                best = i;
                best_order = order;
            }
        }
        if (best == n) break;
        memmove(begin + best + 1, begin + best + 2, (n - best - 1) * sizeof *begin);
        --n;
    }
    for (size_t i = 0; i < n; ++i)
        ids[i] = random_find(v, text + begin[i], begin[i + 1] - begin[i]);
    return n;
}

static void random_run(const char *model) {
    static random_vocab v;
    for (int round = 0; round < 40; ++round) {
        memset(&v, 0, sizeof v);
        random_vocab_make(&v, model);
        llm_vocab *vocab = vocab_make(&v.tiny.params);
        for (int t = 0; t < 25; ++t) {
            char text[RANDOM_TEXT];
            int32_t want[RANDOM_TEXT];
            const size_t len = 1 + random_below(t % 2 == 0 ? 40 : RANDOM_TEXT - 1);
            for (size_t i = 0; i < len; ++i) text[i] = (char)('a' + random_below(3));
            const size_t n = plain_encode(&v, strcmp(model, "llama") == 0, text, len, want);
            ids_expect(vocab, text, len, 0, want, n, __LINE__);
        }
        llm_vocab_destroy(vocab);
    }
}

static void test_random(void **state) {
    (void)state;
    seed = test_seed("tokenizer", 20261123);
    random_run("gpt2");
    random_run("llama");
}

/* ---- The way back ---- */

static void test_detokenize(void **state) {
    (void)state;
    tiny_spm(&tiny);
    llm_vocab *vocab = vocab_make(&tiny.params);
    const unsigned special = LLM_DETOKENIZE_SPECIAL, go_on = LLM_DETOKENIZE_CONTINUE;
    TEXT_EXPECT(vocab, 0, "abc", SPM_SPACE_A, SPM_BC);
    TEXT_EXPECT(vocab, go_on, " abc", SPM_SPACE_A, SPM_BC);
    TEXT_EXPECT(vocab, 0, "abc", SPM_BOS, SPM_SPACE_A, SPM_BC, SPM_EOS);
    TEXT_EXPECT(vocab, special, "<s> abc</s>", SPM_BOS, SPM_SPACE_A, SPM_BC, SPM_EOS);
    TEXT_EXPECT(vocab, 0, " a", SPM_SPACE, SPM_SPACE_A); /* one space only */
    TEXT_EXPECT(vocab, 0, "b a", SPM_B, SPM_SPACE_A);
    TEXT_EXPECT(vocab, 0, "\xC3\xA9\n", SPM_C3, SPM_A9, SPM_LF);
    TEXT_EXPECT(vocab, 0, "<|x|>", SPM_X); /* user-defined: text as any other */
    TEXT_EXPECT(vocab, 0, "ab", SPM_TWIN, SPM_UNUSED, SPM_EMPTY, SPM_UNK);
    TEXT_EXPECT(vocab, special, "<unk>", SPM_UNK);
    text_expect(vocab, 0, NULL, 0, "", __LINE__);
    llm_vocab_destroy(vocab);

    tiny_bpe(&tiny, "gpt-2");
    vocab = vocab_make(&tiny.params);
    TEXT_EXPECT(vocab, 0, "hello world", BPE_HELLO, BPE_SPACE_W, 'o', 'r', 'l', 'd', BPE_EOT);
    TEXT_EXPECT(vocab, 0, " w", BPE_SPACE_W);
    TEXT_EXPECT(vocab, special, "<|endoftext|>", BPE_EOT);
    llm_vocab_destroy(vocab);
}

typedef struct stream_step {
    int32_t id; /* -1: flush */
    const char *shown;
} stream_step;

static void stream_expect(llm_detok *detok, const stream_step *steps, size_t n) {
    for (size_t i = 0; i < n; ++i) {
        llm_vocab_str text = {NULL, 0};
        tdm_error err = {0};
        if (steps[i].id < 0)
            text = llm_detok_flush(detok);
        else
            assert_int_equal(llm_detok_push(detok, steps[i].id, &text, &err), TDM_OK);
        if (text.len != strlen(steps[i].shown) ||
            (text.len > 0 && memcmp(text.ptr, steps[i].shown, text.len) != 0))
            fail_msg("step %zu: want '%s', have '%.*s'", i, steps[i].shown, (int)text.len,
                     text.ptr);
    }
}

#define FFFD "\xEF\xBF\xBD"

static void test_stream(void **state) {
    (void)state;
    tiny_bpe(&tiny, "gpt-2");
    llm_vocab *vocab = vocab_make(&tiny.params);
    llm_detok *detok;
    assert_int_equal(llm_detok_create(vocab, 0, &detok, NULL), TDM_OK);
    static const stream_step steps[] = {
        /* A llama, U+1F999, a byte at a time; then a text token right behind. */
        {0xF0, ""},
        {0x9F, ""},
        {0xA6, ""},
        {0x99, "\xF0\x9F\xA6\x99"},
        {BPE_HELLO, "hello"},
        /* An unfinished code point, broken by text, by another, and by the end. */
        {0xF0, ""},
        {0x9F, ""},
        {BPE_HE, FFFD "he"},
        {0xE2, ""},
        {0xC3, FFFD},
        {0xA9, "\xC3\xA9"},
        {0xE2, ""},
        {0x82, ""},
        {-1, FFFD},
        {-1, ""},
        {0xAC, FFFD},
        /* Bytes that begin nothing; a surrogate, an overlong form, beyond U+10FFFF. */
        {0xFF, FFFD},
        {0x80, FFFD},
        {0xED, ""},
        {0xA0, FFFD FFFD},
        {0xC0, FFFD},
        {0xAF, FFFD},
        {0xF4, ""},
        {0x90, FFFD FFFD},
        /* Tokens that show nothing do not disturb what is held. */
        {0xC3, ""},
        {BPE_EOT, ""},
        {0xA9, "\xC3\xA9"},
    };
    stream_expect(detok, steps, TINY_COUNT(steps));

    llm_vocab_str text;
    tdm_error err = {0};
    assert_int_equal(llm_detok_push(detok, BPE_COUNT, &text, &err), TDM_OUT_OF_RANGE);
    assert_non_null(strstr(err.message, "265"));
    assert_int_equal(llm_detok_push(detok, -1, &text, NULL), TDM_OUT_OF_RANGE);
    static const stream_step held[] = {{0xE2, ""}};
    stream_expect(detok, held, 1);
    llm_detok_reset(detok);
    static const stream_step after_reset[] = {{'a', "a"}, {-1, ""}};
    stream_expect(detok, after_reset, TINY_COUNT(after_reset));
    llm_detok_destroy(detok);
    llm_detok_destroy(NULL);
    llm_vocab_destroy(vocab);

    tiny_spm(&tiny);
    vocab = vocab_make(&tiny.params);
    assert_int_equal(llm_detok_create(vocab, 0, &detok, NULL), TDM_OK);
    static const stream_step spm[] = {{SPM_BOS, ""}, {SPM_SPACE, ""}, {SPM_SPACE_A, " a"}};
    stream_expect(detok, spm, TINY_COUNT(spm));
    llm_detok_reset(detok);
    stream_expect(detok, spm, TINY_COUNT(spm));
    llm_detok_destroy(detok);
    llm_vocab_destroy(vocab);
}

/* The parts that a stream gives for the ids are the text. */
static void stream_check(const llm_vocab *vocab, const int32_t *ids, size_t n, const char *text,
                         size_t len) {
    llm_detok *detok;
    llm_vocab_str part;
    size_t at = 0;
    assert_int_equal(llm_detok_create(vocab, 0, &detok, NULL), TDM_OK);
    for (size_t i = 0; i <= n; ++i) {
        if (i < n)
            assert_int_equal(llm_detok_push(detok, ids[i], &part, NULL), TDM_OK);
        else
            part = llm_detok_flush(detok);
        assert_true(part.len <= len - at);
        if (part.len > 0) assert_memory_equal(text + at, part.ptr, part.len);
        at += part.len;
    }
    assert_int_equal(at, len);
    llm_detok_destroy(detok);
}

/* Whatever the ids, their text is well-formed, and token by token it is the same. */
static void test_stream_random(void **state) {
    (void)state;
    seed = test_seed("tokenizer", 20261123);
    tiny_bpe(&tiny, "gpt-2");
    llm_vocab *vocab = vocab_make(&tiny.params);
    for (int round = 0; round < 300; ++round) {
        int32_t ids[64];
        const size_t n = random_below(64);
        for (size_t i = 0; i < n; ++i)
            ids[i] = random_below(3) == 0 ? (int32_t)random_below(BPE_COUNT)
                                          : (int32_t)(0x80 + random_below(0x80));
        char *text;
        size_t len;
        assert_int_equal(llm_detokenize(vocab, ids, n, 0, &text, &len, NULL), TDM_OK);
        int32_t *again;
        size_t n_again;
        char *back;
        size_t back_len;
        /* Were it ill-formed, encoding would replace something. */
        assert_int_equal(llm_tokenize(vocab, text, len, 0, &again, &n_again, NULL), TDM_OK);
        assert_int_equal(llm_detokenize(vocab, again, n_again, 0, &back, &back_len, NULL), TDM_OK);
        assert_int_equal(back_len, len);
        assert_memory_equal(back, text, len);
        stream_check(vocab, ids, n, text, len);
        free(back);
        free(again);
        free(text);
    }
    llm_vocab_destroy(vocab);
}

/* ---- Size and time ---- */

/* CPU time: other load on the machine does not count. */
static double seconds_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Tokenizes `len` bytes of one unit repeated, and back; returns the CPU seconds that this took. A
 * megabyte of quadratic work would take minutes. */
static double repeat_run(const llm_vocab *vocab, const char *unit, size_t len, unsigned flags) {
    const size_t n_unit = strlen(unit);
    char *text = malloc(len), *back;
    assert_non_null(text);
    for (size_t i = 0; i < len; ++i) text[i] = unit[i % n_unit];
    int32_t *ids;
    size_t n, back_len;
    const double t0 = seconds_now();
    assert_int_equal(llm_tokenize(vocab, text, len, flags, &ids, &n, NULL), TDM_OK);
    assert_int_equal(llm_detokenize(vocab, ids, n, LLM_DETOKENIZE_SPECIAL, &back, &back_len, NULL),
                     TDM_OK);
    const double t = seconds_now() - t0;
    free(back);
    free(ids);
    free(text);
    return t;
}

static void test_megabyte(void **state) {
    (void)state;
    static const char *const spm_units[] = {"a", " ", "\xC3\xA9", "<|x|>y<s"};
    static const char *const units[] = {"l", " ", "\n",           " \n", "1",
                                        "'", "L", "\xE4\xB8\xAD", "\xFF"};
    static const char *const pres[] = {"gpt-2",  "llama-bpe", "qwen2",     "qwen35",
                                       "falcon", "default",   "starcoder", "tekken"};
    double worst = 0;
    tiny_spm(&tiny);
    llm_vocab *vocab = vocab_make(&tiny.params);
    for (size_t u = 0; u < TINY_COUNT(spm_units); ++u) {
        const double t = repeat_run(vocab, spm_units[u], 1 << 20, LLM_TOKENIZE_PARSE_SPECIAL);
        worst = t > worst ? t : worst;
    }
    llm_vocab_destroy(vocab);
    for (size_t p = 0; p < TINY_COUNT(pres); ++p) {
        tiny_bpe(&tiny, pres[p]);
        vocab = vocab_make(&tiny.params);
        for (size_t u = 0; u < TINY_COUNT(units); ++u) {
            const double t = repeat_run(vocab, units[u], u < 2 ? 1 << 20 : 1 << 17, 0);
            worst = t > worst ? t : worst;
        }
        llm_vocab_destroy(vocab);
    }
    printf("slowest megabyte: %.2f s\n", worst);
    assert_true(worst < 20);
}

static void test_too_long(void **state) {
    (void)state;
    tiny_spm(&tiny);
    llm_vocab *vocab = vocab_make(&tiny.params);
    tdm_error err = {0};
    int32_t *ids = (int32_t *)&err;
    size_t n;
    /* Refused by its length, before a byte is read. */
    assert_int_equal(llm_tokenize(vocab, "a", (size_t)1 << 40, 0, &ids, &n, &err),
                     TDM_OUT_OF_RANGE);
    assert_null(ids);
    assert_non_null(strstr(err.message, "1099511627776"));
    llm_vocab_destroy(vocab);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_spm_merges), cmocka_unit_test(test_spm_prefix),
        cmocka_unit_test(test_spm_bytes),  cmocka_unit_test(test_special),
        cmocka_unit_test(test_bpe_merges), cmocka_unit_test(test_bpe_few_bytes),
        cmocka_unit_test(test_random),     cmocka_unit_test(test_detokenize),
        cmocka_unit_test(test_stream),     cmocka_unit_test(test_stream_random),
        cmocka_unit_test(test_megabyte),   cmocka_unit_test(test_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
