/* SPDX-License-Identifier: MIT
 *
 * tokenizer.c: text to ids: finds the special tokens, encodes the text between them with the
 * encoder of the vocabulary's kind, and adds bos and eos.
 */
#include "llm/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/tokenizer_kind.h"
#include "llm/tokenizer/utf8.h"

/* SentencePiece replaces a space by a mark of three bytes, and offsets of bytes have 32 bits. */
#define TEXT_SIZE_MAX ((size_t)256 << 20)

tdm_status llm_id_list_add(llm_id_list *list, int32_t id, tdm_error *err) {
    if (list->n == list->capacity) {
        const size_t capacity = list->capacity != 0 ? list->capacity * 2 : 64;
        size_t size;
        int32_t *ids = NULL;
        if (!__builtin_mul_overflow(capacity, sizeof *ids, &size)) ids = realloc(list->ids, size);
        if (ids == NULL)
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "tokenizer: no memory for %zu token ids",
                            capacity);
        list->ids = ids;
        list->capacity = capacity;
    }
    list->ids[list->n++] = id;
    return TDM_OK;
}

static bool text_is_well_formed(const char *text, size_t len) {
    for (size_t i = 0, size; i < len; i += size) {
        if (llm_utf8_begin(text + i, len - i, &size) != LLM_UTF8_WHOLE) return false;
    }
    return true;
}

tdm_status llm_text_mend(const char **text, size_t *len, char **mended, tdm_error *err) {
    static const char replacement[3] = {'\xEF', '\xBF', '\xBD'}; /* U+FFFD */
    *mended = NULL;
    if (text_is_well_formed(*text, *len)) return TDM_OK;
    char *out = malloc(*len * sizeof replacement);
    if (out == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "tokenizer: no memory for %zu bytes of text",
                        *len);
    size_t n = 0;
    for (size_t i = 0, size; i < *len; i += size) {
        const bool is_whole = llm_utf8_begin(*text + i, *len - i, &size) == LLM_UTF8_WHOLE;
        if (!is_whole) size = 1;
        const size_t add = is_whole ? size : sizeof replacement;
        memcpy(out + n, is_whole ? *text + i : replacement, add);
        n += add;
    }
    *text = *mended = out;
    *len = n;
    return TDM_OK;
}

static bool byte_set_has(const uint64_t set[4], unsigned char byte) {
    return (set[byte / 64] >> (byte % 64) & 1) != 0;
}

/* Positions of special tokens. spans[i]: the length of the one that begins at byte i, 0 = none.
 * covered[i / 8]: a bit for each byte that belongs to one. */
typedef struct special_map {
    uint32_t *spans;
    uint8_t *covered;
} special_map;

static bool is_covered(const special_map *map, size_t at) {
    return (map->covered[at / 8] >> (at % 8) & 1) != 0;
}

/* The special token at text[at, at + size->size), or LLM_PIECE_NONE. */
static uint32_t special_at(const llm_vocab *vocab, const llm_special_size *size, const char *text,
                           size_t at, bool parse_special) {
    const unsigned char first = (unsigned char)text[at];
    const bool may_be_user = byte_set_has(size->first_user, first);
    const bool may_be_other = parse_special && byte_set_has(size->first_other, first);
    if (!may_be_user && !may_be_other) return LLM_PIECE_NONE;
    const uint32_t piece = llm_vocab_piece_find(vocab, text + at, size->size);
    if (piece >= (uint32_t)vocab->n_token) return LLM_PIECE_NONE;
    const uint8_t type = vocab->types[piece];
    const bool is_special =
        type == LLM_TOKEN_USER_DEFINED ||
        (parse_special && (type == LLM_TOKEN_CONTROL || type == LLM_TOKEN_UNKNOWN));
    return is_special ? piece : LLM_PIECE_NONE;
}

/* Finds special tokens, the longest ones first over the whole text, so that a shorter one never
 * takes bytes of a longer one. The tokens found before are at least as long, so one that overlaps
 * a new one covers its first or its last byte: only these two are tested. */
static void special_find(const llm_vocab *vocab, const char *text, size_t len, bool parse_special,
                         const special_map *map) {
    for (size_t s = 0; s < vocab->n_special_size; ++s) {
        const llm_special_size *size = &vocab->special_sizes[s];
        for (size_t at = 0; at + size->size <= len;) {
            if (is_covered(map, at) || is_covered(map, at + size->size - 1) ||
                special_at(vocab, size, text, at, parse_special) == LLM_PIECE_NONE) {
                ++at;
                continue;
            }
            map->spans[at] = size->size;
            for (size_t i = at; i < at + size->size; ++i)
                map->covered[i / 8] = (uint8_t)(map->covered[i / 8] | 1u << (i % 8));
            at += size->size;
        }
    }
}

/* Encodes one of the parts between special tokens. SentencePiece adds its space before each. */
static tdm_status plain_encode(const llm_vocab *vocab, const char *text, size_t len,
                               llm_id_list *ids, tdm_error *err) {
    if (len == 0) return TDM_OK;
    switch (vocab->rule->kind) {
    case LLM_VOCAB_SPM: return llm_spm_encode(vocab, text, len, vocab->add_space_prefix, ids, err);
    case LLM_VOCAB_BPE: return llm_bpe_encode(vocab, text, len, ids, err);
    case LLM_VOCAB_WPM: return llm_wpm_encode(vocab, text, len, ids, err);
    case LLM_VOCAB_UGM: return llm_ugm_encode(vocab, text, len, ids, err);
    case LLM_VOCAB_RWKV: return llm_rwkv_encode(vocab, text, len, ids, err);
    case LLM_VOCAB_PLAMO2: return llm_plamo2_encode(vocab, text, len, ids, err);
    }
    return tdm_fail(err, TDM_INTERNAL, "tokenizer: a vocabulary of no known kind");
}

static bool drops_space(const llm_vocab *vocab, int32_t id) {
    if (!vocab->special_drops_space) return false;
    for (size_t i = 0; i < sizeof vocab->keep_space_ids / sizeof *vocab->keep_space_ids; ++i) {
        if (vocab->keep_space_ids[i] == id) return false;
    }
    return true;
}

static tdm_status parts_encode(const llm_vocab *vocab, const char *text, size_t len,
                               const special_map *map, llm_id_list *ids, tdm_error *err) {
    tdm_status status = TDM_OK;
    size_t begin = 0;
    for (size_t at = 0; at < len && status == TDM_OK;) {
        const uint32_t span = map->spans[at];
        if (span == 0) {
            ++at;
            continue;
        }
        if (at > begin) status = plain_encode(vocab, text + begin, at - begin, ids, err);
        const int32_t id = (int32_t)llm_vocab_piece_find(vocab, text + at, span);
        if (status == TDM_OK) status = llm_id_list_add(ids, id, err);
        at += span;
        if (drops_space(vocab, id)) {
            while (at < len && map->spans[at] == 0 && strchr(" \t\n\v\f\r", text[at]) != NULL &&
                   text[at] != '\0')
                ++at;
        }
        begin = at;
    }
    if (status == TDM_OK) status = plain_encode(vocab, text + begin, len - begin, ids, err);
    return status;
}

static bool text_may_have_special(const llm_vocab *vocab, bool parse_special) {
    for (size_t s = 0; s < vocab->n_special_size; ++s) {
        for (size_t i = 0; i < 4; ++i) {
            if (vocab->special_sizes[s].first_user[i] != 0) return true;
            if (parse_special && vocab->special_sizes[s].first_other[i] != 0) return true;
        }
    }
    return false;
}

static tdm_status text_encode(const llm_vocab *vocab, const char *text, size_t len,
                              bool parse_special, llm_id_list *ids, tdm_error *err) {
    if (len == 0) return TDM_OK;
    if (!text_may_have_special(vocab, parse_special))
        return plain_encode(vocab, text, len, ids, err);
    const special_map map = {.spans = calloc(len, sizeof *map.spans),
                             .covered = calloc(len / 8 + 1, 1)};
    tdm_status status;
    if (map.spans == NULL || map.covered == NULL) {
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "tokenizer: no memory for %zu bytes of text",
                          len);
    } else {
        special_find(vocab, text, len, parse_special, &map);
        status = parts_encode(vocab, text, len, &map, ids, err);
    }
    free(map.spans);
    free(map.covered);
    return status;
}

tdm_status llm_tokenize(const llm_vocab *vocab, const char *text, size_t len, unsigned flags,
                        int32_t **ids_out, size_t *n_out, tdm_error *err) {
    *ids_out = NULL;
    *n_out = 0;
    if (len > TEXT_SIZE_MAX)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "tokenizer: the text has %zu bytes, more than %zu; give it in parts", len,
                        TEXT_SIZE_MAX);
    const bool add_special = (flags & LLM_TOKENIZE_ADD_SPECIAL) != 0;
    llm_id_list list = {0};
    tdm_status status = TDM_OK;
    if (add_special && vocab->add_bos) status = llm_id_list_add(&list, vocab->bos_id, err);
    if (status == TDM_OK)
        status =
            text_encode(vocab, text, len, (flags & LLM_TOKENIZE_PARSE_SPECIAL) != 0, &list, err);
    if (status == TDM_OK && add_special && vocab->add_eos)
        status = llm_id_list_add(&list, vocab->last_id, err);
    if (status == TDM_OK && list.ids == NULL) {
        list.ids = malloc(sizeof *list.ids); /* not NULL, for an empty list too */
        if (list.ids == NULL)
            status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "tokenizer: no memory");
    }
    if (status != TDM_OK) {
        free(list.ids);
        return status;
    }
    *ids_out = list.ids;
    *n_out = list.n;
    return TDM_OK;
}
