/* SPDX-License-Identifier: MIT
 *
 * fuzz_tokenizer.c: the first byte of the input selects a vocabulary, the second the flags. The
 * rest is text, well-formed or not. Ids must be in range. The text of the ids must be UTF-8, the
 * same in one call and token by token. A vocabulary that can encode everything must give the text
 * back. The same bytes are also used as ids.
 *
 * Vocabularies are the tests' tiny ones, a BPE for each kind of pre-tokenizer and one of every
 * other kind; the model that lies in the source tree (TANDEM_SOURCE_ROOT) has a SentencePiece one
 * with all bytes. The input is also taken for rules of a Unigram vocabulary.
 */
#include <string.h>
#include <utf8proc.h>

#include "llm/tokenizer/tokenizer.h"
#include "tests/fuzz/fuzz.h"
#include "llm/tokenizer/pretokenizer_table.h"
#include "tests/unit/tiny_kinds.h"

/* The vocabularies, in this order. */
enum { KIND_SPM, KIND_WPM, KIND_UGM, KIND_RWKV, KIND_PLAMO, KIND_RAW, KIND_STORIES, N_KIND };
enum { N_PRE_MAX = 64 };

static llm_vocab *vocabs[N_KIND + N_PRE_MAX];
static bool is_byte_level[N_KIND + N_PRE_MAX];
static size_t n_vocab;

static void vocab_add(const tiny_vocab *v) {
    tdm_error err = {0};
    FUZZ_DEMAND(llm_vocab_create(&v->params, &vocabs[n_vocab++], &err) == TDM_OK, "%s",
                err.message);
}

static void stories_add(void) {
    char path[1024];
    const char *root = getenv("TANDEM_SOURCE_ROOT");
    llm_gguf *gguf;
    tdm_error err = {0};
    snprintf(path, sizeof path, "%s/models/stories-3m-q8_0.gguf", root != NULL ? root : ".");
    FUZZ_DEMAND(llm_gguf_open(path, &gguf, &err) == TDM_OK, "%s", err.message);
    FUZZ_DEMAND(llm_vocab_from_gguf(gguf, &vocabs[n_vocab++], &err) == TDM_OK, "%s", err.message);
    llm_gguf_close(gguf);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    (void)argc;
    (void)argv;
    static tiny_vocab v;
    static void (*const makers[])(tiny_vocab *) = {tiny_spm,  tiny_wpm,   tiny_ugm,
                                                   tiny_rwkv, tiny_plamo, tiny_raw};
    for (size_t i = 0; i < TINY_COUNT(makers); i++) {
        makers[i](&v);
        vocab_add(&v);
    }
    stories_add();
    const llm_pre_kind *kind;
    for (size_t i = 0; (kind = llm_pre_kind_at(i)) != NULL; i++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(kind->names, " "), kind->names);
        FUZZ_DEMAND(i < N_PRE_MAX, "more pre-tokenizers than room");
        tiny_bpe(&v, name);
        is_byte_level[n_vocab] = !kind->is_raw;
        vocab_add(&v);
    }
    return 0;
}

static bool is_utf8(const char *text, size_t len) {
    for (size_t at = 0; at < len;) {
        utf8proc_int32_t point;
        const utf8proc_ssize_t n = utf8proc_iterate((const utf8proc_uint8_t *)text + at,
                                                    (utf8proc_ssize_t)(len - at), &point);
        if (n <= 0) return false;
        at += (size_t)n;
    }
    return true;
}

/* In one go and token by token; the caller frees the text. */
static char *ids_to_text(const llm_vocab *vocab, const int32_t *ids, size_t n, unsigned flags,
                         size_t *len) {
    char *text;
    tdm_error err = {0};
    llm_detok *detok;
    llm_vocab_str part;
    FUZZ_DEMAND(llm_detokenize(vocab, ids, n, flags, &text, len, &err) == TDM_OK, "%s",
                err.message);
    FUZZ_DEMAND(is_utf8(text, *len) && text[*len] == '\0', "the way back is no text");
    FUZZ_DEMAND(llm_detok_create(vocab, flags, &detok, &err) == TDM_OK, "%s", err.message);
    size_t at = 0;
    for (size_t i = 0; i <= n; i++) {
        if (i == n)
            part = llm_detok_flush(detok);
        else
            FUZZ_DEMAND(llm_detok_push(detok, ids[i], &part, &err) == TDM_OK, "%s", err.message);
        FUZZ_DEMAND(is_utf8(part.ptr, part.len), "part %zu is no text", i);
        FUZZ_DEMAND(part.len <= *len - at &&
                        (part.len == 0 || memcmp(text + at, part.ptr, part.len) == 0),
                    "token by token it is another text at byte %zu", at);
        at += part.len;
    }
    FUZZ_DEMAND(at == *len, "token by token it is shorter: %zu of %zu bytes", at, *len);
    llm_detok_destroy(detok);
    return text;
}

/* Whether the ids of this text must give it back. Byte-level vocabularies do for all UTF-8; the
 * others do where special tokens are not parsed: RWKV's always, PLaMo-2's but for a byte order mark
 * at the beginning, SentencePiece with all bytes unless its mark of a space is in the text. */
static bool comes_back(size_t which, const char *text, size_t len, unsigned flags) {
    if (!is_utf8(text, len)) return false;
    if (is_byte_level[which]) return true;
    if (which == KIND_RWKV) return (flags & LLM_TOKENIZE_PARSE_SPECIAL) == 0;
    if (which == KIND_PLAMO)
        return (flags & LLM_TOKENIZE_PARSE_SPECIAL) == 0 &&
               (len < 3 || memcmp(text, "\xEF\xBB\xBF", 3) != 0);
    return which == KIND_STORIES && (flags & LLM_TOKENIZE_PARSE_SPECIAL) == 0 &&
           memmem(text, len, "\xE2\x96\x81", 3) == NULL;
}

static void text_try(size_t which, const char *text, size_t len, unsigned flags) {
    const llm_vocab *vocab = vocabs[which];
    int32_t *ids;
    size_t n, back_len;
    tdm_error err = {0};
    FUZZ_DEMAND(llm_tokenize(vocab, text, len, flags, &ids, &n, &err) == TDM_OK, "%s", err.message);
    for (size_t i = 0; i < n; i++)
        FUZZ_DEMAND(ids[i] >= 0 && ids[i] < llm_vocab_n_token(vocab), "id %d", ids[i]);
    char *back = ids_to_text(vocab, ids, n, LLM_DETOKENIZE_SPECIAL, &back_len);
    if (comes_back(which, text, len, flags) && (flags & LLM_TOKENIZE_ADD_SPECIAL) == 0)
        FUZZ_DEMAND(back_len == len && memcmp(back, text, len) == 0,
                    "vocabulary %zu, flags %u: '%.*s' comes back as '%s'", which, flags, (int)len,
                    text, back);
    free(back);
    back = ids_to_text(vocab, ids, n, LLM_DETOKENIZE_CONTINUE, &back_len);
    free(back);
    free(ids);
}

static void ids_try(const llm_vocab *vocab, const uint8_t *data, size_t size, unsigned flags) {
    const size_t n = size / 2;
    size_t len;
    int32_t *ids = malloc(n * sizeof *ids + 1);
    FUZZ_DEMAND(ids != NULL, "no memory");
    for (size_t i = 0; i < n; i++)
        ids[i] = (data[2 * i] | data[2 * i + 1] << 8) % llm_vocab_n_token(vocab);
    char *text = ids_to_text(vocab, ids, n, flags, &len);
    free(text);
    free(ids);
}

/* Rules that are taken, however odd, must leave encoding sound. */
static void rules_try(const uint8_t *data, size_t size) {
    static tiny_vocab v;
    llm_vocab *vocab;
    int32_t *ids;
    size_t n;
    tdm_error err = {0};
    tiny_ugm(&v);
    v.params.charsmap = (llm_vocab_str){(const char *)data, size};
    const tdm_status status = llm_vocab_create(&v.params, &vocab, &err);
    FUZZ_DEMAND(status == TDM_OK || status == TDM_DATA_LOSS, "%s", err.message);
    if (status != TDM_OK) return;
    FUZZ_DEMAND(llm_tokenize(vocab, (const char *)data, size, 0, &ids, &n, &err) == TDM_OK, "%s",
                err.message);
    for (size_t i = 0; i < n; i++)
        FUZZ_DEMAND(ids[i] >= 0 && ids[i] < llm_vocab_n_token(vocab), "id %d", ids[i]);
    free(ids);
    llm_vocab_destroy(vocab);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    const size_t which = data[0] % n_vocab;
    if (which == KIND_UGM) rules_try(data + 2, size - 2);
    const unsigned flags = data[1];
    text_try(which, (const char *)data + 2, size - 2,
             flags & (LLM_TOKENIZE_ADD_SPECIAL | LLM_TOKENIZE_PARSE_SPECIAL));
    ids_try(vocabs[which], data + 2, size - 2,
            flags >> 2 & (LLM_DETOKENIZE_SPECIAL | LLM_DETOKENIZE_CONTINUE));
    return 0;
}
