/* SPDX-License-Identifier: MIT
 *
 * tokenizer_wpm.c: WordPiece, as in BERT. Text is normalized and cut into words at white space and
 * around signs and Han characters. A word is the longest token with which it begins, then the
 * longest with which the rest begins, and so on; if a rest begins with no token, the whole word is
 * the unknown token. In tokens U+2581 marks the beginning of a word.
 *
 * The normalization is llama.cpp's. Of a character's canonical decomposition it keeps the first
 * code point.
 */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "llm/tokenizer/tokenizer_kind.h"
#include "llm/tokenizer/utf8.h"
#include "llm/tokenizer/white_space.h"

static const char word_mark[3] = {'\xE2', '\x96', '\x81'};

typedef enum point_class { POINT_SPACE, POINT_DROPPED, POINT_SIGN, POINT_LETTER } point_class;

static bool is_han(int32_t p) {
    /* The ranges of BERT's normalizer. */
    static const int32_t ranges[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                        {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                        {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; ++i) {
        if (p >= ranges[i][0] && p <= ranges[i][1]) return true;
    }
    return false;
}

static point_class point_classify(int32_t p, bool strips_accents) {
    if (llm_is_white_space(p)) return POINT_SPACE;
    if (p == 0 || p == 0xFFFD) return POINT_DROPPED;
    switch (utf8proc_category(p)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CS: return POINT_DROPPED;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME: return strips_accents ? POINT_DROPPED : POINT_LETTER;
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO: return POINT_SIGN;
    case UTF8PROC_CATEGORY_SM:
    case UTF8PROC_CATEGORY_SC:
    case UTF8PROC_CATEGORY_SK:
    case UTF8PROC_CATEGORY_SO: return p < 0x7F ? POINT_SIGN : POINT_LETTER;
    default: return is_han(p) ? POINT_SIGN : POINT_LETTER;
    }
}

/* The first code point of the canonical decomposition. */
static int32_t point_decompose(int32_t p) {
    utf8proc_int32_t parts[16];
    int boundary = 0;
    const utf8proc_ssize_t n = utf8proc_decompose_char(
        p, parts, sizeof parts / sizeof *parts, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE, &boundary);
    return n > 0 ? parts[0] : p;
}

/* Reads text[0..*size), a code point or an ill-formed byte, which counts as U+FFFD. */
static int32_t point_read(const char *text, size_t len, size_t *size) {
    utf8proc_int32_t p = 0xFFFD;
    if (llm_utf8_begin(text, len, size) == LLM_UTF8_WHOLE)
        (void)utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)*size, &p);
    else
        *size = 1;
    return p;
}

/* Encodes a word with its mark. */
static tdm_status word_encode(const llm_vocab *vocab, const char *word, size_t size,
                              llm_id_list *ids, tdm_error *err) {
    const size_t n_before = ids->n;
    for (size_t at = 0, n; at < size; at += n) {
        const int32_t id = llm_piece_longest(&vocab->index, word + at, size - at, &n);
        if (id < 0) {
            ids->n = n_before;
            return vocab->unk_id != LLM_TOKEN_NONE ? llm_id_list_add(ids, vocab->unk_id, err)
                                                   : TDM_OK;
        }
        const tdm_status status = llm_id_list_add(ids, id, err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}

static tdm_status text_encode(const llm_vocab *vocab, const char *text, size_t len, char *word,
                              llm_id_list *ids, tdm_error *err) {
    tdm_status status = TDM_OK;
    size_t n = sizeof word_mark; /* bytes of the word, the mark among them */
    for (size_t i = 0, size; i < len && status == TDM_OK; i += size) {
        int32_t p = point_read(text + i, len - i, &size);
        if (vocab->strips_accents) p = point_decompose(p);
        const point_class kind = point_classify(p, vocab->strips_accents);
        if (kind == POINT_DROPPED) continue;
        if (kind != POINT_LETTER && n > sizeof word_mark) {
            status = word_encode(vocab, word, n, ids, err);
            n = sizeof word_mark;
        }
        if (kind == POINT_SPACE) continue;
        if (vocab->lowers_case) p = utf8proc_tolower(p);
        n += (size_t)utf8proc_encode_char(p, (utf8proc_uint8_t *)word + n);
        if (kind == POINT_SIGN && status == TDM_OK) {
            status = word_encode(vocab, word, n, ids, err);
            n = sizeof word_mark;
        }
    }
    if (status == TDM_OK && n > sizeof word_mark) status = word_encode(vocab, word, n, ids, err);
    return status;
}

tdm_status llm_wpm_encode(const llm_vocab *vocab, const char *text, size_t len, llm_id_list *ids,
                          tdm_error *err) {
    if (len == 0) return TDM_OK;
    /* Room: in lower case or decomposed a code point of one byte has at most three bytes, one of
     * two bytes at most four, and an ill-formed byte gives U+FFFD, of three. */
    char *word = malloc(sizeof word_mark + 4 * len);
    if (word == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "tokenizer: no memory for %zu bytes of text",
                        len);
    memcpy(word, word_mark, sizeof word_mark);
    const tdm_status status = text_encode(vocab, text, len, word, ids, err);
    free(word);
    return status;
}
