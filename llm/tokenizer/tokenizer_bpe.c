/* SPDX-License-Identifier: MIT
 *
 * tokenizer_bpe.c: BPE. Text is cut into words. A word is a chain of symbols, in which neighbours
 * merge in the order of the file's list of merges. Symbols are bytes, as in GPT-2, or in a raw
 * vocabulary code points, as in Gemma 4.
 */
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "llm/tokenizer/symbol_merge.h"
#include "llm/tokenizer/tokenizer_kind.h"
#include "llm/tokenizer/utf8.h"
#include "llm/tokenizer/white_space.h"

/* For words of at most this many bytes, comparing all pairs at each step is faster than a queue. */
enum { SHORT_WORD = 32 };

static tdm_status unknown_emit(const llm_vocab *vocab, llm_id_list *ids, tdm_error *err) {
    return vocab->unk_id != LLM_TOKEN_NONE ? llm_id_list_add(ids, vocab->unk_id, err) : TDM_OK;
}

/* Adds the ids of a piece, whose bytes are word[0..size). */
static tdm_status piece_emit(const llm_vocab *vocab, uint32_t piece, const char *word, size_t size,
                             llm_id_list *ids, tdm_error *err) {
    if (piece < (uint32_t)vocab->n_token) return llm_id_list_add(ids, (int32_t)piece, err);
    if (size == 1) return unknown_emit(vocab, ids, err);
    /* The piece of this merge is not a token: use the tokens of its bytes. */
    tdm_status status = TDM_OK;
    for (size_t i = 0; i < size && status == TDM_OK; ++i)
        status =
            piece_emit(vocab, vocab->byte_piece[(unsigned char)word[i]], word + i, 1, ids, err);
    return status;
}

static tdm_status short_word_encode(const llm_vocab *vocab, const char *word, size_t size,
                                    llm_id_list *ids, tdm_error *err) {
    uint32_t pieces[SHORT_WORD];
    uint8_t sizes[SHORT_WORD];
    const llm_merge_slot *merges[SHORT_WORD]; /* of piece i with piece i + 1 */
    size_t n = size;
    for (size_t i = 0; i < n; ++i) {
        pieces[i] = vocab->byte_piece[(unsigned char)word[i]];
        sizes[i] = 1;
    }
    for (size_t i = 0; i + 1 < n; ++i)
        merges[i] = llm_vocab_merge_find(vocab, pieces[i], pieces[i + 1]);
    for (;;) {
        size_t best = n;
        for (size_t i = 0; i + 1 < n; ++i) {
            if (merges[i] != NULL && (best == n || merges[i]->rank < merges[best]->rank)) best = i;
        }
        if (best == n) break;
        pieces[best] = merges[best]->piece;
        sizes[best] = (uint8_t)(sizes[best] + sizes[best + 1]);
        --n;
        for (size_t i = best + 1; i < n; ++i) {
            pieces[i] = pieces[i + 1];
            sizes[i] = sizes[i + 1];
            merges[i - 1] = merges[i];
        }
        if (best > 0)
            merges[best - 1] = llm_vocab_merge_find(vocab, pieces[best - 1], pieces[best]);
        if (best + 1 < n)
            merges[best] = llm_vocab_merge_find(vocab, pieces[best], pieces[best + 1]);
    }
    tdm_status status = TDM_OK;
    for (size_t i = 0, off = 0; i < n && status == TDM_OK; off += sizes[i++])
        status = piece_emit(vocab, pieces[i], word + off, sizes[i], ids, err);
    return status;
}

static bool bpe_join(const void *context, const llm_symbol *left, const llm_symbol *right,
                     uint32_t *order, uint32_t *piece) {
    const llm_merge_slot *merge = llm_vocab_merge_find(context, left->piece, right->piece);
    if (merge == NULL) return false;
    *order = merge->rank;
    *piece = merge->piece;
    return true;
}

static tdm_status long_word_encode(const llm_vocab *vocab, const char *word, size_t size,
                                   llm_symbol_chain *chain, llm_id_list *ids, tdm_error *err) {
    tdm_status status = llm_symbol_chain_begin(chain, size, err);
    if (status != TDM_OK) return status;
    for (size_t i = 0; i < size; ++i)
        llm_symbol_chain_add(chain, (uint32_t)i, 1, vocab->byte_piece[(unsigned char)word[i]]);
    status = llm_symbol_chain_merge(chain, bpe_join, vocab, err);
    for (int32_t i = 0; status == TDM_OK && i >= 0; i = chain->symbols[i].next) {
        const llm_symbol *s = &chain->symbols[i];
        status = piece_emit(vocab, s->piece, word + s->off, s->size, ids, err);
    }
    return status;
}

/* The token of the whole word, or LLM_PIECE_NONE. `letters` has room for the longest piece. */
static uint32_t word_find(const llm_vocab *vocab, const char *word, size_t size, char *letters) {
    size_t n = 0;
    for (size_t i = 0; i < size; ++i) {
        if (n + 2 > (size_t)vocab->max_piece_size + 1) return LLM_PIECE_NONE;
        n += llm_byte_letter_write((unsigned char)word[i], letters + n);
    }
    const uint32_t piece = llm_vocab_piece_find(vocab, letters, n);
    return piece < (uint32_t)vocab->n_token ? piece : LLM_PIECE_NONE;
}

static tdm_status words_encode(const llm_vocab *vocab, const char *text, const uint32_t *ends,
                               size_t n_ends, llm_id_list *ids, tdm_error *err) {
    char *letters = NULL;
    if (llm_pretokenizer_ignores_merges(vocab->pre)) {
        letters = malloc((size_t)vocab->max_piece_size + 2);
        if (letters == NULL)
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "tokenizer: no memory for a word");
    }
    llm_symbol_chain chain = {0};
    tdm_status status = TDM_OK;
    size_t begin = 0;
    for (size_t i = 0; i < n_ends && status == TDM_OK; ++i) {
        const char *word = text + begin;
        const size_t size = ends[i] - begin;
        const uint32_t whole =
            letters != NULL ? word_find(vocab, word, size, letters) : LLM_PIECE_NONE;
        if (whole != LLM_PIECE_NONE)
            status = llm_id_list_add(ids, (int32_t)whole, err);
        else if (size <= SHORT_WORD)
            status = short_word_encode(vocab, word, size, ids, err);
        else
            status = long_word_encode(vocab, word, size, &chain, ids, err);
        begin = ends[i];
    }
    llm_symbol_chain_free(&chain);
    free(letters);
    return status;
}

/* ---- Raw vocabularies ---- */

/* Adds the id of a symbol. A symbol that is not a token becomes the tokens of its bytes (<0x41>); a
 * byte without a token gives none. */
static tdm_status raw_emit(const llm_vocab *vocab, const llm_symbol *symbol, const char *word,
                           llm_id_list *ids, tdm_error *err) {
    if (symbol->piece < (uint32_t)vocab->n_token)
        return llm_id_list_add(ids, (int32_t)symbol->piece, err);
    tdm_status status = TDM_OK;
    for (uint32_t i = 0; i < symbol->size && status == TDM_OK; ++i) {
        const uint32_t piece = vocab->byte_piece[(unsigned char)word[symbol->off + i]];
        if (piece < (uint32_t)vocab->n_token) status = llm_id_list_add(ids, (int32_t)piece, err);
    }
    return status;
}

static tdm_status raw_word_encode(const llm_vocab *vocab, const char *word, size_t size,
                                  llm_symbol_chain *chain, llm_id_list *ids, tdm_error *err) {
    if (word[0] == '\n' && llm_pretokenizer_keeps_lines(vocab->pre)) {
        const uint32_t whole = llm_vocab_piece_find(vocab, word, size);
        if (whole < (uint32_t)vocab->n_token) return llm_id_list_add(ids, (int32_t)whole, err);
    }
    tdm_status status = llm_symbol_chain_begin(chain, size, err);
    if (status != TDM_OK) return status;
    for (size_t off = 0, n; off < size; off += n) {
        (void)llm_utf8_begin(word + off, size - off, &n);
        llm_symbol_chain_add(chain, (uint32_t)off, (uint32_t)n,
                             llm_vocab_piece_find(vocab, word + off, n));
    }
    status = llm_symbol_chain_merge(chain, bpe_join, vocab, err);
    for (int32_t i = 0; status == TDM_OK && i >= 0; i = chain->symbols[i].next)
        status = raw_emit(vocab, &chain->symbols[i], word, ids, err);
    return status;
}

static tdm_status raw_words_encode(const llm_vocab *vocab, const char *text, const uint32_t *ends,
                                   size_t n_ends, llm_id_list *ids, tdm_error *err) {
    llm_symbol_chain chain = {0};
    tdm_status status = TDM_OK;
    size_t begin = 0;
    for (size_t i = 0; i < n_ends && status == TDM_OK; ++i) {
        status = raw_word_encode(vocab, text + begin, ends[i] - begin, &chain, ids, err);
        begin = ends[i];
    }
    llm_symbol_chain_free(&chain);
    return status;
}

/* Copies text, with U+2581 for each space if the pre-tokenizer marks spaces, and in lower case if
 * the vocabulary has lower case. The result, which the caller frees, has *n_out bytes; NULL without
 * memory. */
static char *text_normalize(const llm_vocab *vocab, const char *text, size_t len, size_t *n_out) {
    static const char space_mark[3] = {'\xE2', '\x96', '\x81'};
    const bool marks = llm_pretokenizer_marks_space(vocab->pre);
    /* A code point in lower case may have one byte more. */
    char *out = malloc(len * 3 + 1);
    if (out == NULL) return NULL;
    size_t n = 0;
    for (size_t i = 0, size; i < len; i += size) {
        (void)llm_utf8_begin(text + i, len - i, &size);
        if (marks && text[i] == ' ') {
            memcpy(out + n, space_mark, sizeof space_mark);
            n += sizeof space_mark;
        } else if (vocab->lowers_case) {
            utf8proc_int32_t point;
            (void)utf8proc_iterate((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)size,
                                   &point);
            n += (size_t)utf8proc_encode_char(utf8proc_tolower(point), (utf8proc_uint8_t *)out + n);
        } else {
            memcpy(out + n, text + i, size);
            n += size;
        }
    }
    *n_out = n;
    return out;
}

static tdm_status split_encode(const llm_vocab *vocab, const char *text, size_t len,
                               llm_id_list *ids, tdm_error *err) {
    uint32_t *ends;
    size_t n_ends;
    tdm_status status = llm_pretokenizer_split(vocab->pre, text, len, &ends, &n_ends, err);
    if (status == TDM_OK && llm_pretokenizer_is_raw(vocab->pre))
        status = raw_words_encode(vocab, text, ends, n_ends, ids, err);
    else if (status == TDM_OK)
        status = words_encode(vocab, text, ends, n_ends, ids, err);
    free(ends);
    return status;
}

/* Encodes the words between white space, which is dropped. */
static tdm_status unspaced_encode(const llm_vocab *vocab, const char *text, size_t len,
                                  llm_id_list *ids, tdm_error *err) {
    tdm_status status = TDM_OK;
    size_t begin = 0, size;
    for (size_t i = 0; i <= len && status == TDM_OK; i += size) {
        utf8proc_int32_t point = ' ';
        size = 1;
        if (i < len) {
            (void)llm_utf8_begin(text + i, len - i, &size);
            (void)utf8proc_iterate((const utf8proc_uint8_t *)text + i, (utf8proc_ssize_t)size,
                                   &point);
        }
        if (!llm_is_white_space(point)) continue;
        if (i > begin) status = split_encode(vocab, text + begin, i - begin, ids, err);
        begin = i + size;
    }
    return status;
}

tdm_status llm_bpe_encode(const llm_vocab *vocab, const char *text, size_t len, llm_id_list *ids,
                          tdm_error *err) {
    char *mended, *normal = NULL;
    tdm_status status = llm_text_mend(&text, &len, &mended, err);
    if (status != TDM_OK) return status;
    if (llm_pretokenizer_marks_space(vocab->pre) || vocab->lowers_case) {
        normal = text_normalize(vocab, text, len, &len);
        text = normal;
        if (normal == NULL)
            status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                              "tokenizer: no memory for %zu bytes of text", len);
    }
    if (status == TDM_OK)
        status = vocab->rule->drops_space ? unspaced_encode(vocab, text, len, ids, err)
                                          : split_encode(vocab, text, len, ids, err);
    free(normal);
    free(mended);
    return status;
}
