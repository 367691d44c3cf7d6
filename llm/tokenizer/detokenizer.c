/* SPDX-License-Identifier: MIT
 *
 * detokenizer.c: ids to text, as a stream of whole code points.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/tokenizer.h"
#include "llm/tokenizer/utf8.h"

static const char replacement[3] = {'\xEF', '\xBF', '\xBD'}; /* U+FFFD */

struct llm_detok {
    const llm_vocab *vocab;
    unsigned flags;
    bool strip_space; /* remove the next byte if it is a space */
    char held[4];     /* the first bytes of an unfinished code point, at most 3, and one more */
    size_t n_held;
    char *out; /* the text that the last call of llm_detok_push returned */
    size_t out_capacity;
};

tdm_status llm_detok_create(const llm_vocab *vocab, unsigned flags, llm_detok **out,
                            tdm_error *err) {
    *out = NULL;
    llm_detok *detok = calloc(1, sizeof *detok);
    if (detok == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "detokenizer: no memory");
    detok->vocab = vocab;
    detok->flags = flags;
    llm_detok_reset(detok);
    *out = detok;
    return TDM_OK;
}

void llm_detok_destroy(llm_detok *detok) {
    if (detok == NULL) return;
    free(detok->out);
    free(detok);
}

void llm_detok_reset(llm_detok *detok) {
    detok->n_held = 0;
    detok->strip_space =
        llm_vocab_adds_space(detok->vocab) && (detok->flags & LLM_DETOKENIZE_CONTINUE) == 0;
}

/* The bytes of a token, by the flags. */
static llm_vocab_str token_bytes(const llm_detok *detok, int32_t id) {
    const llm_token_type type = llm_vocab_token_type(detok->vocab, id);
    if ((type == LLM_TOKEN_CONTROL || type == LLM_TOKEN_UNKNOWN) &&
        (detok->flags & LLM_DETOKENIZE_SPECIAL) == 0)
        return (llm_vocab_str){NULL, 0};
    return llm_vocab_token_bytes(detok->vocab, id);
}

/* Makes room for a U+FFFD for every byte, old and new. */
static tdm_status out_reserve(llm_detok *detok, size_t size, tdm_error *err) {
    const size_t most = (size + sizeof detok->held) * sizeof replacement;
    if (most <= detok->out_capacity) return TDM_OK;
    char *out = realloc(detok->out, most);
    if (out == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "detokenizer: no memory for a token's %zu bytes", size);
    detok->out = out;
    detok->out_capacity = most;
    return TDM_OK;
}

/* Writes the first code point of s[0..n) to `out`, or U+FFFD; false if the code point is
 * incomplete. */
static bool code_point_take(const char *s, size_t n, char *out, size_t *n_out, size_t *size) {
    switch (llm_utf8_begin(s, n, size)) {
    case LLM_UTF8_WHOLE:
        memcpy(out + *n_out, s, *size);
        *n_out += *size;
        return true;
    case LLM_UTF8_BAD:
        memcpy(out + *n_out, replacement, sizeof replacement);
        *n_out += sizeof replacement;
        return true;
    case LLM_UTF8_PART: break;
    }
    return false;
}

tdm_status llm_detok_push(llm_detok *detok, int32_t id, llm_vocab_str *text, tdm_error *err) {
    *text = (llm_vocab_str){NULL, 0};
    if (id < 0 || id >= llm_vocab_n_token(detok->vocab))
        return tdm_fail(err, TDM_OUT_OF_RANGE, "token id %d is outside the vocabulary (0 to %d)",
                        id, llm_vocab_n_token(detok->vocab) - 1);
    llm_vocab_str bytes = token_bytes(detok, id);
    if (bytes.len == 0) return TDM_OK;
    if (detok->strip_space) {
        detok->strip_space = false;
        /* Encoding adds its space before text, not before a user-defined token. */
        if (bytes.ptr[0] == ' ' && llm_vocab_token_type(detok->vocab, id) == LLM_TOKEN_NORMAL) {
            ++bytes.ptr;
            --bytes.len;
        }
    }
    const tdm_status status = out_reserve(detok, bytes.len, err);
    if (status != TDM_OK) return status;

    size_t n_out = 0, at = 0, size;
    while (detok->n_held > 0 && at < bytes.len) {
        /* The held bytes are a prefix of a code point. The next byte either belongs to it, or shows
         * that it is ill-formed and begins another one. */
        detok->held[detok->n_held] = bytes.ptr[at];
        if (code_point_take(detok->held, detok->n_held + 1, detok->out, &n_out, &size)) {
            at += size > detok->n_held ? 1 : 0;
            detok->n_held = 0;
        } else {
            ++detok->n_held;
            ++at;
        }
    }
    while (at < bytes.len) {
        if (!code_point_take(bytes.ptr + at, bytes.len - at, detok->out, &n_out, &size)) {
            memcpy(detok->held, bytes.ptr + at, size);
            detok->n_held = size;
            break;
        }
        at += size;
    }
    *text = (llm_vocab_str){detok->out, n_out};
    return TDM_OK;
}

llm_vocab_str llm_detok_flush(llm_detok *detok) {
    if (detok->n_held == 0) return (llm_vocab_str){NULL, 0};
    detok->n_held = 0;
    return (llm_vocab_str){replacement, sizeof replacement};
}

/* Appends to a buffer and keeps room for a NUL. */
static bool text_append(char **text, size_t *len, size_t *capacity, llm_vocab_str add) {
    size_t need;
    if (__builtin_add_overflow(*len, add.len, &need) || __builtin_add_overflow(need, 1, &need))
        return false;
    if (need > *capacity) {
        size_t grown;
        if (__builtin_add_overflow(need, need / 2, &grown)) return false;
        char *moved = realloc(*text, grown);
        if (moved == NULL) return false;
        *text = moved;
        *capacity = grown;
    }
    if (add.len > 0) memcpy(*text + *len, add.ptr, add.len);
    *len += add.len;
    (*text)[*len] = '\0';
    return true;
}

tdm_status llm_detokenize(const llm_vocab *vocab, const int32_t *ids, size_t n, unsigned flags,
                          char **text_out, size_t *len_out, tdm_error *err) {
    *text_out = NULL;
    *len_out = 0;
    llm_detok *detok;
    tdm_status status = llm_detok_create(vocab, flags, &detok, err);
    if (status != TDM_OK) return status;
    char *text = NULL;
    size_t len = 0, capacity = 0;
    bool has_room = text_append(&text, &len, &capacity, (llm_vocab_str){NULL, 0});
    for (size_t i = 0; i < n && status == TDM_OK && has_room; ++i) {
        llm_vocab_str add;
        status = llm_detok_push(detok, ids[i], &add, err);
        if (status == TDM_OK) has_room = text_append(&text, &len, &capacity, add);
    }
    if (status == TDM_OK && has_room)
        has_room = text_append(&text, &len, &capacity, llm_detok_flush(detok));
    if (status == TDM_OK && !has_room)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                          "detokenizer: no memory for the text of %zu tokens", n);
    llm_detok_destroy(detok);
    if (status != TDM_OK) {
        free(text);
        return status;
    }
    *text_out = text;
    *len_out = len;
    return TDM_OK;
}
