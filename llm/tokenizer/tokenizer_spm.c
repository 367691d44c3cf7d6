/* SPDX-License-Identifier: MIT
 *
 * tokenizer_spm.c: SentencePiece's BPE. The text is one chain of characters, in which those
 * neighbours merge first that form the token with the best score. A character without a token
 * becomes the tokens of its bytes; if these are missing, the unknown token; without one, nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/symbol_merge.h"
#include "llm/tokenizer/tokenizer_kind.h"
#include "llm/tokenizer/utf8.h"

/* U+2581, the space inside tokens. */
static const char space_mark[3] = {'\xE2', '\x96', '\x81'};

typedef struct spm_text {
    const llm_vocab *vocab;
    const char *text;
} spm_text;

/* Maps scores to unsigned numbers; the best score gives the lowest. */
static uint32_t score_order(float score) {
    const float positive_zero = score + 0.0f; /* -0 and 0 are equal */
    uint32_t bits;
    memcpy(&bits, &positive_zero, sizeof bits);
    const uint32_t ascending = (bits >> 31) != 0 ? ~bits : bits | 0x80000000u;
    return ~ascending;
}

static bool spm_join(const void *context, const llm_symbol *left, const llm_symbol *right,
                     uint32_t *order, uint32_t *piece) {
    const spm_text *t = context;
    const uint32_t size = left->size + right->size;
    if (size > t->vocab->max_piece_size) return false;
    *piece = llm_vocab_piece_find(t->vocab, t->text + left->off, size);
    if (*piece == LLM_PIECE_NONE) return false;
    *order = score_order(t->vocab->scores[*piece]);
    return true;
}

static tdm_status spm_emit(const llm_vocab *vocab, const char *text, const llm_symbol *symbol,
                           llm_id_list *ids, tdm_error *err) {
    if (symbol->piece != LLM_PIECE_NONE) return llm_id_list_add(ids, (int32_t)symbol->piece, err);
    bool has_bytes = true;
    for (uint32_t i = 0; i < symbol->size && has_bytes; ++i)
        has_bytes = vocab->byte_piece[(unsigned char)text[symbol->off + i]] != LLM_PIECE_NONE;
    if (!has_bytes)
        return vocab->unk_id != LLM_TOKEN_NONE ? llm_id_list_add(ids, vocab->unk_id, err) : TDM_OK;
    tdm_status status = TDM_OK;
    for (uint32_t i = 0; i < symbol->size && status == TDM_OK; ++i) {
        const uint32_t piece = vocab->byte_piece[(unsigned char)text[symbol->off + i]];
        status = llm_id_list_add(ids, (int32_t)piece, err);
    }
    return status;
}

static tdm_status spm_encode_marked(const llm_vocab *vocab, const char *text, size_t len,
                                    llm_symbol_chain *chain, llm_id_list *ids, tdm_error *err) {
    tdm_status status = llm_symbol_chain_begin(chain, len, err);
    if (status != TDM_OK) return status;
    for (size_t off = 0; off < len;) {
        size_t size;
        if (llm_utf8_begin(text + off, len - off, &size) != LLM_UTF8_WHOLE) size = 1;
        llm_symbol_chain_add(chain, (uint32_t)off, (uint32_t)size,
                             llm_vocab_piece_find(vocab, text + off, size));
        off += size;
    }
    const spm_text context = {vocab, text};
    status = llm_symbol_chain_merge(chain, spm_join, &context, err);
    for (int32_t i = 0; status == TDM_OK && i >= 0; i = chain->symbols[i].next)
        status = spm_emit(vocab, text, &chain->symbols[i], ids, err);
    return status;
}

tdm_status llm_spm_encode(const llm_vocab *vocab, const char *text, size_t len, bool with_prefix,
                          llm_id_list *ids, tdm_error *err) {
    if (len == 0) return TDM_OK;
    size_t n_space = with_prefix ? 1 : 0;
    for (size_t i = 0; i < len; ++i) n_space += text[i] == ' ';
    char *marked = malloc(len + 1 + n_space * sizeof space_mark);
    if (marked == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "tokenizer: no memory for %zu bytes of text",
                        len);
    size_t n = 0;
    if (with_prefix) {
        memcpy(marked, space_mark, sizeof space_mark);
        n = sizeof space_mark;
    }
    for (size_t i = 0; i < len; ++i) {
        if (text[i] == ' ') {
            memcpy(marked + n, space_mark, sizeof space_mark);
            n += sizeof space_mark;
        } else {
            marked[n++] = text[i];
        }
    }
    llm_symbol_chain chain = {0};
    const tdm_status status = spm_encode_marked(vocab, marked, n, &chain, ids, err);
    llm_symbol_chain_free(&chain);
    free(marked);
    return status;
}
