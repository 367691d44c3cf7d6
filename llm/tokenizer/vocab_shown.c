/* SPDX-License-Identifier: MIT
 *
 * vocab_shown.c: the decoded bytes of each token, made when a vocabulary is created. Joining them
 * to text: detokenizer.c.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/tokenizer_kind.h"
#include "llm/tokenizer/utf8.h"

static tdm_status shown_no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "vocabulary: no memory for its tables");
}

int llm_byte_of_name(const char *text, size_t size) {
    if (size != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') return -1;
    int value = 0;
    for (int i = 3; i < 5; ++i) {
        const char c = text[i];
        if (c >= '0' && c <= '9')
            value = value * 16 + (c - '0');
        else if (c >= 'A' && c <= 'F')
            value = value * 16 + (c - 'A' + 10);
        else
            return -1;
    }
    return value;
}

static bool shown_add(llm_vocab *vocab, const char *bytes, size_t n) {
    return llm_vocab_bytes_add(&vocab->bytes, &vocab->bytes_size, &vocab->bytes_capacity, bytes, n);
}

/* Adds the decoded bytes of a token in which marks stand for spaces. */
static bool shown_add_unmarked(llm_vocab *vocab, const char *text, size_t size) {
    for (size_t i = 0; i < size;) {
        const bool is_mark = size - i >= 3 && memcmp(text + i, "\xE2\x96\x81", 3) == 0;
        if (!(is_mark ? shown_add(vocab, " ", 1) : shown_add(vocab, text + i, 1))) return false;
        i += is_mark ? 3 : 1;
    }
    return true;
}

/* Adds the decoded bytes of a BPE token: letters of the byte alphabet become bytes, other code
 * points stay. */
static bool shown_add_unlettered(llm_vocab *vocab, const char *text, size_t size) {
    for (size_t i = 0, n; i < size; i += n) {
        int byte = -1;
        if (llm_utf8_begin(text + i, size - i, &n) == LLM_UTF8_WHOLE && n <= 2) {
            const unsigned char *u = (const unsigned char *)text + i;
            byte = llm_byte_of_letter(n == 1 ? u[0] : (uint32_t)(u[0] & 0x1F) << 6 | (u[1] & 0x3F));
        }
        const char as_char = (char)byte;
        if (!(byte >= 0 ? shown_add(vocab, &as_char, 1) : shown_add(vocab, text + i, n)))
            return false;
    }
    return true;
}

static bool shown_add_unescaped(llm_vocab *vocab, const char *text, size_t size) {
    if (!shown_add(vocab, text, size)) return false; /* room for the bytes, which are not more */
    vocab->bytes_size -= size;
    vocab->bytes_size += llm_rwkv_unescape(text, size, vocab->bytes + vocab->bytes_size);
    return true;
}

/* Adds the decoded bytes of a normal token. */
static bool shown_add_normal(llm_vocab *vocab, const char *text, size_t size) {
    switch (vocab->rule->kind) {
    case LLM_VOCAB_SPM:
    case LLM_VOCAB_WPM:
    case LLM_VOCAB_UGM: return shown_add_unmarked(vocab, text, size);
    case LLM_VOCAB_BPE:
        if (!llm_pretokenizer_is_raw(vocab->pre)) return shown_add_unlettered(vocab, text, size);
        return llm_pretokenizer_marks_space(vocab->pre) ? shown_add_unmarked(vocab, text, size)
                                                        : shown_add(vocab, text, size);
    case LLM_VOCAB_RWKV: return shown_add_unescaped(vocab, text, size);
    case LLM_VOCAB_PLAMO2: break;
    }
    return shown_add(vocab, text, size);
}

tdm_status llm_vocab_shown_make(llm_vocab *vocab, tdm_error *err) {
    vocab->shown = malloc((size_t)vocab->n_token * sizeof *vocab->shown);
    if (vocab->shown == NULL) return shown_no_memory(err);
    for (int32_t id = 0; id < vocab->n_token; ++id) {
        const char *text = vocab->text + vocab->pieces[id].off;
        const size_t size = vocab->pieces[id].size;
        const size_t off = vocab->bytes_size;
        bool has_room = true;
        switch (vocab->types[id]) {
        case LLM_TOKEN_NORMAL: has_room = shown_add_normal(vocab, text, size); break;
        case LLM_TOKEN_BYTE: {
            const int byte = llm_byte_of_name(text, size);
            const char as_char = (char)byte;
            has_room = byte >= 0 ? shown_add(vocab, &as_char, 1) : shown_add(vocab, text, size);
            break;
        }
        case LLM_TOKEN_UNKNOWN:
        case LLM_TOKEN_CONTROL:
        case LLM_TOKEN_USER_DEFINED: has_room = shown_add(vocab, text, size); break;
        default: break;
        }
        if (!has_room) return shown_no_memory(err);
        vocab->shown[id] = (llm_byte_range){off, (uint32_t)(vocab->bytes_size - off)};
    }
    return TDM_OK;
}
